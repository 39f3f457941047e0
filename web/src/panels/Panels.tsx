/** What stands beside the conversation: changes, files, agents, plan and tasks, tool servers, events. */
import { createSignal, For, type JSX, Match, Show, Switch } from 'solid-js'
import type { SessionModel } from '../session/model.ts'
import { Agents } from './Agents.tsx'
import { Changes } from './Changes.tsx'
import { Events } from './Events.tsx'
import { Files } from './Files.tsx'
import { Plan } from './Plan.tsx'
import { Servers } from './Servers.tsx'

const PANELS = ['changes', 'files', 'agents', 'plan', 'servers', 'events'] as const
type Panel = (typeof PANELS)[number]
const NAMES: Readonly<Record<Panel, string>> = {
  changes: 'Changes',
  files: 'Files',
  agents: 'Agents',
  plan: 'Plan',
  servers: 'Servers',
  events: 'Events',
}

const [panel, setPanel] = createSignal<Panel>('changes')

export function Panels(props: { model: SessionModel; onClose: () => void }): JSX.Element {
  const count = (which: Panel): number => {
    if (which === 'changes') return props.model.side.turns().filter((turn) => !turn.undone && !turn.dropped).length
    if (which === 'agents')
      return Math.max(0, props.model.side.runs().filter((run) => run.sessionId !== props.model.sessionId).length)
    if (which === 'plan') return props.model.side.tasks().filter((task) => task.status !== 'completed').length
    return 0
  }
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0
    if (step === 0) return
    const next = PANELS[(PANELS.indexOf(panel()) + step + PANELS.length) % PANELS.length] ?? 'changes'
    setPanel(next)
    document.getElementById(`tab-${next}`)?.focus()
  }
  return (
    <aside class="panels" aria-label="Beside the conversation">
      <header>
        <div role="tablist" aria-label="Panels" onKeyDown={move}>
          <For each={PANELS}>
            {(which) => (
              <button
                type="button"
                role="tab"
                id={`tab-${which}`}
                aria-controls="panel"
                aria-selected={panel() === which}
                tabindex={panel() === which ? 0 : -1}
                onClick={() => setPanel(which)}
              >
                {NAMES[which]}
                <Show when={count(which) > 0}>
                  <span class="count">{count(which)}</span>
                </Show>
              </button>
            )}
          </For>
        </div>
        <button type="button" class="quiet" aria-label="Close the panels" onClick={() => props.onClose()}>
          ✕
        </button>
      </header>
      <div id="panel" class="content" role="tabpanel" aria-labelledby={`tab-${panel()}`} tabindex="0">
        <Switch>
          <Match when={panel() === 'changes'}>
            <Changes model={props.model} />
          </Match>
          <Match when={panel() === 'files'}>
            <Files model={props.model} />
          </Match>
          <Match when={panel() === 'agents'}>
            <Agents model={props.model} />
          </Match>
          <Match when={panel() === 'plan'}>
            <Plan model={props.model} />
          </Match>
          <Match when={panel() === 'servers'}>
            <Servers model={props.model} />
          </Match>
          <Match when={panel() === 'events'}>
            <Events model={props.model} />
          </Match>
        </Switch>
      </div>
    </aside>
  )
}
