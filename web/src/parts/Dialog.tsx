/**
 * A dialog over the page. Escape and a click beside it close it; the browser keeps the focus inside, and gives it back.
 *
 * It is gone at once, not when the browser gets round to its `close` event: a key that is pressed right behind the
 * Escape counts for the page.
 */
import { type JSX, onCleanup, onMount } from 'solid-js'

export function Dialog(props: { title: string; onClose: () => void; children: JSX.Element }): JSX.Element {
  let dialog!: HTMLDialogElement
  let left = false
  const leave = () => {
    if (left) return
    left = true
    dialog.close()
    props.onClose()
  }
  const press = (event: KeyboardEvent) => {
    if (event.key !== 'Escape') return
    event.preventDefault()
    event.stopPropagation()
    leave()
  }
  onMount(() => {
    dialog.showModal()
    addEventListener('keydown', press, { capture: true })
    onCleanup(() => removeEventListener('keydown', press, { capture: true }))
  })
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, wherever in it the focus is
    <dialog
      ref={dialog}
      aria-label={props.title}
      onClose={leave}
      onClick={(event) => {
        if (event.target === dialog) leave()
      }}
    >
      <header>
        <h2>{props.title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={leave}>
          ✕
        </button>
      </header>
      <div class="content">{props.children}</div>
    </dialog>
  )
}
