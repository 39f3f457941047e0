/** A dialog over the page. Escape and a click beside it close it; the browser keeps the focus inside. */
import { type JSX, onMount } from 'solid-js'

export function Dialog(props: { title: string; onClose: () => void; children: JSX.Element }): JSX.Element {
  let dialog!: HTMLDialogElement
  onMount(() => dialog.showModal())
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, as the browser has it
    <dialog
      ref={dialog}
      aria-label={props.title}
      onClose={() => props.onClose()}
      onClick={(event) => {
        if (event.target === dialog) dialog.close()
      }}
    >
      <header>
        <h2>{props.title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => dialog.close()}>
          ✕
        </button>
      </header>
      <div class="content">{props.children}</div>
    </dialog>
  )
}
