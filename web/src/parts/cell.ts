/** A value that the page follows: called, it is read; `set` puts another one in its place. */
import { createSignal } from 'solid-js'

export interface Cell<T> {
  (): T
  set(value: T): void
}

/** `always`: also the same value again is news. */
export function cell<T>(value: T, always = false): Cell<T> {
  const [get, set] = createSignal<T>(value, always ? { equals: false } : {})
  return Object.assign(() => get(), { set: (next: T) => void set(() => next) })
}
