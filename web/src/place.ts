/** Which session is looked at: it stands behind `#` of the address, so that a page can be reloaded, kept and sent. */
import { createSignal } from 'solid-js'

const read = (): string | undefined => {
  const found = /^#\/s\/(.+)$/.exec(location.hash)?.[1]
  try {
    return found === undefined ? undefined : decodeURIComponent(found)
  } catch {
    return undefined
  }
}

const [place, setPlace] = createSignal(read())
addEventListener('hashchange', () => setPlace(read()))

/** The session that is looked at. */
export { place }

export function go(sessionId: string | undefined): void {
  location.hash = sessionId === undefined ? '' : `/s/${encodeURIComponent(sessionId)}`
}
