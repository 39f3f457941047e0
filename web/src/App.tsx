/** The page: the list of sessions, the one that is looked at, and the keys. */
import { createSignal, For, type JSX, Match, onCleanup, onMount, Show, Switch } from 'solid-js'
import { again, client, standing, trouble } from './connection.ts'
import { Login } from './Login.tsx'
import { NewSession } from './NewSession.tsx'
import { Dialog } from './parts/Dialog.tsx'
import { announced, roomy } from './parts/screen.ts'
import { attempt, Toasts } from './parts/toasts.tsx'
import { go, place } from './place.ts'
import { Server } from './Server.tsx'
import { focusSearch, Sidebar } from './Sidebar.tsx'
import { Session } from './session/Session.tsx'
import { followSessions } from './sessions.ts'

const KEYS: readonly (readonly [string, string])[] = [
  ['/', 'search sessions'],
  ['n', 'new session'],
  ['i', 'write a prompt'],
  ['Esc', 'stop the turn (twice)'],
  ['y  a  n', 'answer the first question: once, always, no'],
  ['Enter', 'send'],
  ['Shift Enter', 'a new line'],
  ['?', 'these keys'],
]

function Keys(props: { onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Keys" onClose={props.onClose}>
      <dl class="keys">
        <For each={KEYS}>
          {([key, words]) => (
            <>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{words}</dd>
            </>
          )}
        </For>
      </dl>
    </Dialog>
  )
}

/** Between two presses of Escape that stop a turn. */
const TWICE_MS = 1_200

function Work(): JSX.Element {
  const [dialog, setDialog] = createSignal<'new' | 'server' | 'keys' | undefined>()
  const [menu, setMenu] = createSignal(roomy())
  let escaped = 0
  const close = () => setDialog(undefined)
  const begin = () => setDialog('new')
  const escaping = () => {
    const id = place()
    const twice = performance.now() - escaped < TWICE_MS
    escaped = performance.now()
    if (id !== undefined && twice) void attempt(() => client.sessions.abort(id, { reason: 'stopped on the page' }))
  }
  const press = (event: KeyboardEvent) => {
    if (dialog() !== undefined || event.ctrlKey || event.metaKey || event.altKey) return
    if (event.key === 'Escape') return escaping()
    if ((event.target as HTMLElement).closest('input, textarea, select')) return
    const does = {
      '/': focusSearch,
      n: begin,
      '?': () => setDialog('keys'),
      i: () => document.getElementById('prompt')?.focus(),
    }[event.key]
    if (does === undefined) return
    event.preventDefault()
    does()
  }
  onMount(() => {
    void followSessions()
    addEventListener('keydown', press)
    onCleanup(() => removeEventListener('keydown', press))
  })
  const quick = () =>
    void attempt(async () => {
      go((await client.sessions.create({})).sessionId)
    })
  return (
    <div class="page" classList={{ 'with-menu': menu() }}>
      <Show when={menu()}>
        <Sidebar
          onNew={begin}
          onServer={() => setDialog('server')}
          onKeys={() => setDialog('keys')}
          onChosen={() => {
            if (!roomy()) setMenu(false)
          }}
        />
      </Show>
      <Show when={menu() && !roomy()}>
        <button type="button" class="shade" aria-label="Close the list of sessions" onClick={() => setMenu(false)} />
      </Show>
      <Show
        when={place()}
        keyed
        fallback={
          <main class="empty">
            <Show when={!menu()}>
              <button type="button" class="quiet menu" aria-label="Sessions" onClick={() => setMenu(true)}>
                ☰
              </button>
            </Show>
            <h1>What is to be done?</h1>
            <p>Choose a session, or begin a new one.</p>
            <p>
              <button type="button" onClick={quick}>
                Begin where the server works
              </button>{' '}
              <button type="button" class="quiet" onClick={begin}>
                Choose first…
              </button>
            </p>
          </main>
        }
      >
        {(sessionId) => <Session sessionId={sessionId} onMenu={() => setMenu(!menu())} />}
      </Show>
      <Show when={dialog() === 'new'}>
        <NewSession onClose={close} />
      </Show>
      <Show when={dialog() === 'server'}>
        <Server onClose={close} />
      </Show>
      <Show when={dialog() === 'keys'}>
        <Keys onClose={close} />
      </Show>
    </div>
  )
}

export function App(): JSX.Element {
  return (
    <>
      <Switch>
        <Match when={standing() === 'open'}>
          <Work />
        </Match>
        <Match when={standing() === 'looking'}>
          {/* As in index.html: nothing moves while the server is asked. */}
          <main class="empty">
            <h1>simse</h1>
          </main>
        </Match>
        <Match when={standing() === 'locked'}>
          <Login />
        </Match>
        <Match when={standing() === 'away'}>
          <main class="empty">
            <h1>simse</h1>
            <p role="alert">{trouble()}</p>
            <button type="button" onClick={() => void again()}>
              Try again
            </button>
          </main>
        </Match>
      </Switch>
      <Toasts />
      <div class="unseen" aria-live="polite">
        {announced()}
      </div>
    </>
  )
}
