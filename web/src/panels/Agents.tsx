/** The tree of runs under a session, each with a bar on the time line they share. */
import { For, type JSX, Show } from 'solid-js'
import { client } from '../connection.ts'
import { now, span } from '../parts/screen.ts'
import { attempt } from '../parts/toasts.tsx'
import type { SessionModel } from '../session/model.ts'
import type { Run } from '../session/side.ts'

const ENDED = new Set(['completed', 'failed', 'aborted', 'interrupted'])

export function Agents(props: { model: SessionModel }): JSX.Element {
  const runs = () => props.model.side.runs()
  const children = () => runs().filter((run) => run.sessionId !== props.model.sessionId)
  const parents = () => new Set(children().map((run) => run.parentRunId))
  const shown = () => runs().filter((run) => run.sessionId !== props.model.sessionId || parents().has(run.runId))
  const begin = () => Math.min(...shown().map((run) => run.startedAt))
  const end = () => Math.max(...shown().map((run) => run.endedAt ?? now()), begin() + 1)
  const bar = (run: Run) => {
    const whole = end() - begin()
    const left = ((run.startedAt - begin()) / whole) * 100
    return { left: `${left}%`, width: `${Math.max(1, (((run.endedAt ?? now()) - run.startedAt) / whole) * 100)}%` }
  }
  const base = () => Math.min(...shown().map((run) => run.depth))
  const cancel = (run: Run) => void attempt(() => client.runs.cancel(run.runId, { reason: 'stopped on the page' }))
  return (
    <Show when={children().length > 0} fallback={<p class="faint">No sub-agents worked here.</p>}>
      <ul class="runs" aria-label="Runs">
        <For each={shown()}>
          {(run) => (
            <li style={{ 'padding-left': `${(run.depth - base()) * 14}px` }}>
              <div class="run">
                <span class={`badge ${run.status}`}>{run.status}</span>
                <a href={`#/s/${encodeURIComponent(run.sessionId)}`}>{run.name}</a>
                <span class="faint">{span((run.endedAt ?? now()) - run.startedAt)}</span>
                <Show when={!ENDED.has(run.status)}>
                  <button type="button" class="quiet" aria-label={`Stop ${run.name}`} onClick={() => cancel(run)}>
                    ■
                  </button>
                </Show>
              </div>
              <p class="faint task">{run.task}</p>
              <div class="track">
                <div class={`bar ${run.status}`} style={bar(run)} />
              </div>
            </li>
          )}
        </For>
      </ul>
    </Show>
  )
}
