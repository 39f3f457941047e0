/** A piece of code, coloured when its grammar is there. */
import { createResource, For, type JSX, Show } from 'solid-js'
import { highlight } from './highlight.ts'

export function Code(props: { code: string; language: string }): JSX.Element {
  const [pieces] = createResource(
    () => [props.code, props.language] as const,
    ([code, language]) => highlight(code, language),
  )
  // Of the code before, the colours are wrong.
  const now = () => (pieces.state === 'ready' ? pieces() : undefined)
  return (
    <code>
      <Show when={now()} fallback={props.code}>
        {(all) => <For each={all()}>{(piece) => <span class={piece.classes}>{piece.text}</span>}</For>}
      </Show>
    </code>
  )
}

/** A block of code with its language and a button that copies it. */
export function CodeBlock(props: { code: string; language: string }): JSX.Element {
  const copy = (event: MouseEvent) => {
    const button = event.currentTarget as HTMLButtonElement
    void navigator.clipboard?.writeText(props.code).then(() => {
      button.textContent = 'Copied'
      setTimeout(() => {
        button.textContent = 'Copy'
      }, 1_500)
    })
  }
  return (
    <figure class="code">
      <figcaption>
        <span>{props.language}</span>
        <button type="button" class="quiet" onClick={copy}>
          Copy
        </button>
      </figcaption>
      <pre tabindex="0">
        <Code code={props.code} language={props.language} />
      </pre>
    </figure>
  )
}
