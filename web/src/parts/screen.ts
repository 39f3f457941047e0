/** The screen: its width, the colours that are chosen, and what is said to those who listen. */
import { createSignal } from 'solid-js'

function watched(query: string): () => boolean {
  const list = matchMedia(query)
  const [matches, setMatches] = createSignal(list.matches)
  list.addEventListener('change', () => setMatches(list.matches))
  return matches
}

/** Room for two columns of code. */
export const wide = watched('(min-width: 900px)')
/** Room for the list of sessions beside a session. */
export const roomy = watched('(min-width: 760px)')

export type Theme = 'system' | 'light' | 'dark'
const THEMES: readonly Theme[] = ['system', 'light', 'dark']

function kept(): Theme {
  try {
    const value = localStorage.getItem('simse.theme') as Theme
    return THEMES.includes(value) ? value : 'system'
  } catch {
    return 'system'
  }
}

const [theme, setTheme] = createSignal<Theme>(kept())

export { theme }

export function chooseTheme(next: Theme): void {
  setTheme(next)
  document.documentElement.dataset.theme = next
  try {
    localStorage.setItem('simse.theme', next)
  } catch {
    // It holds for this page.
  }
}

export function nextTheme(): void {
  chooseTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length] ?? 'system')
}

document.documentElement.dataset.theme = theme()

const [announced, announce] = createSignal('')

/** What those who cannot see the page are told. */
export { announce, announced }

const [seconds, setSeconds] = createSignal(Date.now())
setInterval(() => setSeconds(Date.now()), 1_000)
/** The time, each second. */
export const now = seconds

/** A span of time in words. */
export function span(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`
  const all = Math.round(ms / 1_000)
  if (all < 60) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`
  if (all < 3_600) return `${Math.floor(all / 60)} min ${all % 60} s`
  return `${Math.floor(all / 3_600)} h ${Math.floor((all % 3_600) / 60)} min`
}

/** How long ago. */
export function ago(at: number): string {
  const minutes = Math.floor((now() - at) / 60_000)
  if (minutes < 1) return 'now'
  if (minutes < 60) return `${minutes} min`
  if (minutes < 1_440) return `${Math.floor(minutes / 60)} h`
  return new Date(at).toLocaleDateString()
}

/** A number of tokens or bytes, short. */
export function short(value: number): string {
  if (value < 1_000) return String(value)
  if (value < 1_000_000) return `${(value / 1_000).toFixed(value < 10_000 ? 1 : 0)}k`
  return `${(value / 1_000_000).toFixed(1)}M`
}
