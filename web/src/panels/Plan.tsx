/** The plan of the agent, and the tasks that the sessions of a tree share. */
import { For, type JSX, Show } from 'solid-js'
import type { SessionModel } from '../session/model.ts'
import { Markdown } from '../text/Markdown.tsx'

const SIGNS: Readonly<Record<string, string>> = { completed: '☑', in_progress: '◐', pending: '☐' }
const WORDS: Readonly<Record<string, string>> = { completed: 'done', in_progress: 'in work', pending: 'open' }

function Sign(props: { status: string }): JSX.Element {
  return (
    <span role="img" aria-label={WORDS[props.status] ?? props.status}>
      {SIGNS[props.status] ?? '☐'}
    </span>
  )
}

export function Plan(props: { model: SessionModel }): JSX.Element {
  const side = props.model.side
  return (
    <Show when={side.plans().length + side.tasks().length > 0} fallback={<p class="faint">No plan and no tasks.</p>}>
      <For each={side.plans()}>
        {(plan) => (
          <section>
            <h3>Plan</h3>
            <Show when={plan.text}>{(text) => <Markdown text={text()} />}</Show>
            <ul class="plain">
              <For each={plan.entries}>
                {(entry) => (
                  <li class={entry.status}>
                    <Sign status={entry.status} /> {entry.content}
                  </li>
                )}
              </For>
            </ul>
          </section>
        )}
      </For>
      <Show when={side.tasks().length > 0}>
        <section>
          <h3>Tasks</h3>
          <ul class="plain">
            <For each={side.tasks()}>
              {(task) => (
                <li class={task.status}>
                  <Sign status={task.status} />{' '}
                  {task.status === 'in_progress' ? (task.activeForm ?? task.subject) : task.subject}{' '}
                  <Show when={task.owner}>{(owner) => <span class="badge">{owner()}</span>}</Show>
                  <Show when={task.blockedBy.length > 0}>
                    <span class="faint"> waits for {task.blockedBy.join(', ')}</span>
                  </Show>
                </li>
              )}
            </For>
          </ul>
        </section>
      </Show>
    </Show>
  )
}
