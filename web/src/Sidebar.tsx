/** The list of sessions: the newest first, with what each does now, a search, and where a new one begins. */

import type { SessionView } from 'simse/client'
import { createEffect, createSignal, For, type JSX, on, Show } from 'solid-js'
import { hasToken, lock } from './connection.ts'
import { ago, nextTheme, theme } from './parts/screen.ts'
import { attempt } from './parts/toasts.tsx'
import { place } from './place.ts'
import { loadAll, loadMore, more, sessions, waiting } from './sessions.ts'

/** Sessions that a search looks through, at most. */
const SEARCHED_MAX = 5_000

/** What a session does now, in a word. */
export function doing(view: SessionView, asks: boolean): 'asks' | 'works' | 'paused' | 'waits' | 'idle' {
  if (asks) return 'asks'
  if (view.turn?.status === 'paused') return 'paused'
  if (view.turn !== undefined) return 'works'
  return view.queued > 0 ? 'waits' : 'idle'
}

/** Its title. One without has the name of its folder, and when it was begun: so that two of them are told apart. */
export function titleOf(view: SessionView): string {
  const begun = new Date(view.createdAt).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' })
  return view.title ?? `${view.workingDirectory.split('/').filter(Boolean).at(-1) ?? '/'} · ${begun}`
}

export function Sidebar(props: {
  onNew: () => void
  onServer: () => void
  onKeys: () => void
  onChosen: () => void
}): JSX.Element {
  const [search, setSearch] = createSignal('')
  const [children, setChildren] = createSignal(false)
  createEffect(
    on(search, (words) => {
      if (words !== '') void attempt(() => loadAll(SEARCHED_MAX))
    }),
  )
  const found = () => {
    const words = search().toLowerCase().split(/\s+/).filter(Boolean)
    return sessions().filter((view) => {
      if (view.lineage !== undefined && !children() && view.sessionId !== place()) return false
      const text =
        `${titleOf(view)} ${view.sessionId} ${view.workingDirectory} ${view.model} ${view.agent}`.toLowerCase()
      return words.every((word) => text.includes(word))
    })
  }
  return (
    <nav class="sidebar" aria-label="Sessions">
      <header>
        <strong class="brand">simse</strong>
        <button
          type="button"
          class="quiet"
          title={`Colours: ${theme()}`}
          aria-label={`Colours: ${theme()}`}
          onClick={nextTheme}
        >
          {theme() === 'dark' ? '☾' : theme() === 'light' ? '☀' : '◐'}
        </button>
        <button type="button" class="quiet" aria-label="Keys" title="Keys (?)" onClick={() => props.onKeys()}>
          ?
        </button>
      </header>
      <button type="button" class="new" onClick={() => props.onNew()}>
        New session
      </button>
      <input
        id="search"
        type="search"
        aria-label="Search sessions"
        placeholder="Search ( / )"
        value={search()}
        onInput={(event) => setSearch(event.currentTarget.value)}
      />
      <label class="faint check">
        <input type="checkbox" checked={children()} onChange={(event) => setChildren(event.currentTarget.checked)} />{' '}
        with those of sub-agents
      </label>
      <ul class="sessions">
        <For each={found()} fallback={<li class="faint">{search() === '' ? 'No session yet.' : 'Nothing found.'}</li>}>
          {(view) => {
            const state = () => doing(view, waiting().has(view.sessionId))
            return (
              <li>
                <a
                  href={`#/s/${encodeURIComponent(view.sessionId)}`}
                  aria-current={place() === view.sessionId ? 'page' : undefined}
                  onClick={() => props.onChosen()}
                >
                  <span class={`state ${state()}`} title={state()}>
                    <span class="unseen">{state()}</span>
                  </span>
                  <span class="title">{titleOf(view)}</span>
                  <span class="faint">{ago(view.updatedAt)}</span>
                </a>
              </li>
            )
          }}
        </For>
      </ul>
      <Show when={more() && search() === ''}>
        <button type="button" class="quiet" onClick={() => void attempt(loadMore)}>
          More
        </button>
      </Show>
      <footer>
        <button type="button" class="quiet" onClick={() => props.onServer()}>
          Server and settings
        </button>
        <Show when={hasToken()}>
          <button type="button" class="quiet" onClick={lock}>
            Log out
          </button>
        </Show>
      </footer>
    </nav>
  )
}

/** Behind the search field, for the key. */
export function focusSearch(): void {
  document.getElementById('search')?.focus()
}
