/** The newest events as they came, for those who want to know exactly. */
import { createSignal, For, type JSX } from 'solid-js'
import type { SessionModel } from '../session/model.ts'

export function Events(props: { model: SessionModel }): JSX.Element {
  const [filter, setFilter] = createSignal('')
  const shown = () =>
    props.model
      .recent()
      .filter((event) => event.type.includes(filter().trim()))
      .slice(-200)
      .reverse()
  return (
    <>
      <input
        type="search"
        aria-label="Filter events by type"
        placeholder="Filter by type"
        value={filter()}
        onInput={(event) => setFilter(event.currentTarget.value)}
      />
      <ul class="plain events">
        <For each={shown()} fallback={<li class="faint">None since this page came.</li>}>
          {(event) => (
            <li>
              <details>
                <summary>
                  <span class="faint">{event.seq}</span> {event.type}
                </summary>
                <pre>{JSON.stringify(event.payload, null, 2)}</pre>
              </details>
            </li>
          )}
        </For>
      </ul>
    </>
  )
}
