/** Pictures of messages and results. Only kinds that cannot hold a script are drawn. */
import { For, type JSX, Show } from 'solid-js'
import type { Picture } from './entries.ts'

const DRAWN = ['image/png', 'image/jpeg', 'image/gif', 'image/webp']

export function Pictures(props: { pictures: readonly Picture[] }): JSX.Element {
  return (
    <Show when={props.pictures.length > 0}>
      <div class="pictures">
        <For each={props.pictures}>
          {(picture) => (
            <Show
              when={DRAWN.includes(picture.mediaType)}
              fallback={<p class="faint">A picture of the kind {picture.mediaType}.</p>}
            >
              <img src={`data:${picture.mediaType};base64,${picture.data}`} alt="attached" loading="lazy" />
            </Show>
          )}
        </For>
      </div>
    </Show>
  )
}
