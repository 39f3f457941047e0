/** What went wrong or well, in a corner for some seconds. */
import { createSignal, For, type JSX } from 'solid-js'
import { told } from '../connection.ts'

interface Toast {
  readonly id: number
  readonly level: 'info' | 'error'
  readonly text: string
}

const SHOWN_MS = 8_000
const [toasts, setToasts] = createSignal<readonly Toast[]>([])
let count = 0

export function toast(level: 'info' | 'error', text: string): void {
  const id = ++count
  setToasts([...toasts().slice(-4), { id, level, text }])
  setTimeout(() => setToasts(toasts().filter((one) => one.id !== id)), SHOWN_MS)
}

/** Does something, and says what went wrong. Whether it went well. */
export async function attempt(what: () => Promise<unknown>): Promise<boolean> {
  try {
    await what()
    return true
  } catch (cause) {
    toast('error', told(cause))
    return false
  }
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status">
      <For each={toasts()}>{(one) => <div class={`toast ${one.level}`}>{one.text}</div>}</For>
    </div>
  )
}
