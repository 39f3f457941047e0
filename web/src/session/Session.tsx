/** A session: what was said and done, what waits for an answer, and where one goes on. */
import { createEffect, createSignal, For, type JSX, on, onCleanup, Show } from 'solid-js'
import { client } from '../connection.ts'
import { Panels } from '../panels/Panels.tsx'
import { announce, roomy } from '../parts/screen.ts'
import { attempt } from '../parts/toasts.tsx'
import { Composer } from './Composer.tsx'
import { Header } from './Header.tsx'
import { SessionModel } from './model.ts'
import { Questions } from './Questions.tsx'
import { Timeline } from './Timeline.tsx'

/** The plan that a session in plan mode answered with: it waits for a decision. */
function Decision(props: { model: SessionModel }): JSX.Element {
  const [edited, setEdited] = createSignal<string | undefined>()
  const [message, setMessage] = createSignal('')
  const last = () => props.model.entries().findLast((entry) => entry.kind === 'assistant' || entry.kind === 'user')
  const plan = () => {
    const entry = last()
    const view = props.model.view()
    if (view?.permissionMode !== 'plan' || view.turn !== undefined || entry?.kind !== 'assistant') return undefined
    return entry.text
  }
  const decide = async (decision: 'approve' | 'edit' | 'reject') => {
    const words = message().trim()
    const body = {
      decision,
      ...(decision === 'edit' ? { plan: edited() ?? '' } : {}),
      ...(words === '' ? {} : { message: words }),
    }
    if (await attempt(() => client.sessions.decidePlan(props.model.sessionId, body))) {
      setEdited(undefined)
      setMessage('')
    }
  }
  return (
    <Show when={plan()}>
      {(text) => (
        <section class="question" aria-label="The plan">
          <header>
            <h2>Carry this plan out?</h2>
          </header>
          <Show when={edited() !== undefined}>
            <textarea
              aria-label="The plan, to edit"
              rows="10"
              value={edited() ?? ''}
              onInput={(event) => setEdited(event.currentTarget.value)}
            />
          </Show>
          <div class="answers">
            <button
              type="button"
              class="allow"
              onClick={() => void decide(edited() === undefined ? 'approve' : 'edit')}
            >
              {edited() === undefined ? 'Approve' : 'Approve as edited'}
            </button>
            <button type="button" onClick={() => setEdited(edited() === undefined ? text() : undefined)}>
              {edited() === undefined ? 'Edit' : 'As it was'}
            </button>
            <button type="button" class="deny" onClick={() => void decide('reject')}>
              Reject
            </button>
            <input
              aria-label="Words for the model"
              placeholder="Words for the model (optional)"
              value={message()}
              onInput={(event) => setMessage(event.currentTarget.value)}
            />
          </div>
        </section>
      )}
    </Show>
  )
}

/** What tools and hooks put onto the screen. */
function Displays(props: { model: SessionModel }): JSX.Element {
  return (
    <Show when={props.model.side.displays().length > 0}>
      <div class="displays">
        <For each={props.model.side.displays()}>
          {(display) => (
            <Show
              when={'lines' in display ? display.lines : undefined}
              fallback={<p>{'text' in display ? display.text : ''}</p>}
            >
              {(lines) => <pre>{lines().join('\n')}</pre>}
            </Show>
          )}
        </For>
      </div>
    </Show>
  )
}

export function Session(props: { sessionId: string; onMenu: () => void }): JSX.Element {
  const model = new SessionModel(props.sessionId)
  const [panels, setPanels] = createSignal(false)
  onCleanup(() => model.close())
  createEffect(
    on(
      () => model.view()?.turn?.turnId,
      (turn, before) => {
        if (before !== undefined && turn === undefined) announce('The turn has ended.')
        if (before === undefined && turn !== undefined) announce('A turn runs.')
      },
    ),
  )
  createEffect(() => {
    const view = model.view()
    document.title = `${model.questions().length > 0 ? '● ' : ''}${view?.title ?? 'simse'}`
  })
  return (
    <div class="session-frame" classList={{ 'with-panels': panels() }}>
      <main class="session" aria-label="Session">
        <h1 class="unseen">{model.view()?.title ?? 'Session'}</h1>
        <Header model={model} onMenu={props.onMenu} onPanels={() => setPanels(!panels())} panels={panels()} />
        <Show when={model.line() === 'broken' || model.line() === 'gone'}>
          <p class="note warning" role="status">
            {model.line() === 'gone'
              ? model.trouble() || 'This session is gone.'
              : 'The line to the server broke; what is missed comes when it is back.'}
          </p>
        </Show>
        <Timeline model={model} />
        <Displays model={model} />
        <Questions model={model} />
        <Decision model={model} />
        <Show when={model.line() !== 'gone'}>
          <Composer model={model} />
        </Show>
      </main>
      <Show when={panels()}>
        <Panels model={model} onClose={() => setPanels(false)} />
      </Show>
      <Show when={panels() && !roomy()}>
        <button type="button" class="shade" aria-label="Close the panels" onClick={() => setPanels(false)} />
      </Show>
    </div>
  )
}
