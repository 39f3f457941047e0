/**
 * The server that the page came from, and who looks at it. One client for the whole page; a token is kept for the tab, or on this
 * machine where its user says so. Nothing is sent anywhere else.
 */

import { createSimseClient, type SimseClient, SimseError } from 'simse/client'
import { createSignal } from 'solid-js'

const KEPT = 'simse.token'

/** Where the page stands: looking, asking for a token, or at work. */
export type Standing = 'looking' | 'locked' | 'open' | 'away'

const [standing, setStanding] = createSignal<Standing>('looking')
const [trouble, setTrouble] = createSignal('')

export { standing, trouble }

let token: string | undefined

/** With the token that counts now: the client itself would look for another one once a second at most. */
function send(input: Parameters<typeof fetch>[0], init?: RequestInit): Promise<Response> {
  const headers = new Headers(init?.headers)
  if (token !== undefined) headers.set('authorization', `Bearer ${token}`)
  return fetch(input, { ...init, headers })
}

/** The client of the page. */
export const client: SimseClient = createSimseClient({ baseUrl: location.origin, fetch: send })

/** A storage that may be forbidden to the page. */
function stored(storage: () => Storage, change?: string | null): string | undefined {
  try {
    if (change === null) storage().removeItem(KEPT)
    else if (change !== undefined) storage().setItem(KEPT, change)
    return storage().getItem(KEPT) ?? undefined
  } catch {
    return undefined
  }
}

/** A token in the address (`#token=…`), which is taken out of it at once. */
function fromAddress(): string | undefined {
  const given = /^#token=([^&]+)/.exec(location.hash)?.[1]
  if (given === undefined) return undefined
  history.replaceState(null, '', location.pathname)
  return decodeURIComponent(given)
}

/** Looks whether the server lets the page in with the token that there is. */
export async function begin(): Promise<void> {
  const given = fromAddress()
  if (given !== undefined) stored(() => sessionStorage, given)
  token = given ?? stored(() => sessionStorage) ?? stored(() => localStorage)
  await look()
}

async function look(): Promise<void> {
  try {
    await client.models()
    setTrouble('')
    setStanding('open')
  } catch (cause) {
    const refused = cause instanceof SimseError && (cause.code === 'UNAUTHORIZED' || cause.code === 'FORBIDDEN')
    setTrouble(refused ? (token === undefined ? '' : told(cause)) : told(cause))
    setStanding(refused ? 'locked' : 'away')
  }
}

/** Another token. `keep`: on this machine, not only for this tab. */
export async function unlock(given: string, keep: boolean): Promise<void> {
  token = given.trim()
  await look()
  if (standing() !== 'open') return
  stored(() => sessionStorage, token)
  stored(() => localStorage, keep ? token : null)
}

/** Forgets the token. */
export function lock(): void {
  token = undefined
  stored(() => sessionStorage, null)
  stored(() => localStorage, null)
  location.hash = ''
  location.reload()
}

/** Whether a token was shown. */
export const hasToken = (): boolean => token !== undefined

/** Tries again after the server was away. */
export async function again(): Promise<void> {
  setStanding('looking')
  await look()
}

/** A failure in words. */
export function told(cause: unknown): string {
  if (cause instanceof SimseError && cause.code === 'UNREACHABLE') return 'The server does not answer.'
  return cause instanceof Error ? cause.message : String(cause)
}
