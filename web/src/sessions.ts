/** The sessions that the page lists, the newest first, kept true by the stream over all of them. */

import type { SessionView } from 'simse/client'
import { createSignal } from 'solid-js'
import { client } from './connection.ts'

const PAGE = 50

const [sessions, setSessions] = createSignal<readonly SessionView[]>([])
const [more, setMore] = createSignal(false)
/** Sessions that wait for somebody's answer. */
const [waiting, setWaiting] = createSignal<ReadonlySet<string>>(new Set())

export { more, sessions, waiting }

let cursor: string | null = null

export async function loadSessions(): Promise<void> {
  const page = await client.sessions.list({ limit: PAGE }).page()
  take(page.items)
  cursor = page.nextCursor
  setMore(cursor !== null)
}

export async function loadMore(): Promise<void> {
  if (cursor === null) return
  const page = await client.sessions.list({ limit: PAGE }).page(cursor)
  take(page.items)
  cursor = page.nextCursor
  setMore(cursor !== null)
}

/** All pages, for a search that looks at all of them. */
export async function loadAll(most: number): Promise<void> {
  while (cursor !== null && sessions().length < most) await loadMore()
}

function take(items: readonly SessionView[]): void {
  const known = new Map(sessions().map((one) => [one.sessionId, one]))
  for (const item of items) known.set(item.sessionId, item)
  setSessions([...known.values()].sort((a, b) => b.createdAt - a.createdAt))
  mark(items)
}

function mark(items: readonly SessionView[]): void {
  const next = new Set(waiting())
  for (const { sessionId, requests } of items) {
    if ((requests?.length ?? 0) > 0) next.add(sessionId)
    else next.delete(sessionId)
  }
  setWaiting(next)
}

export function forget(sessionId: string): void {
  setSessions(sessions().filter((one) => one.sessionId !== sessionId))
}

const due = new Set<string>()

/** Looks once at what several events are about, or what this page has changed itself. */
export function look(sessionId: string): void {
  due.add(sessionId)
  if (due.size > 1) return
  setTimeout(async () => {
    const ids = [...due]
    due.clear()
    const found = await Promise.allSettled(ids.map((id) => client.sessions.get(id)))
    take(found.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : [])))
  }, 80)
}

/** Follows what happens to all sessions, for as long as the page is there. */
export async function followSessions(): Promise<void> {
  for (;;) {
    try {
      const events = client.events({ giveUpMs: Number.POSITIVE_INFINITY })
      // What happened before the stream began is in the list.
      void loadSessions().catch(() => {})
      for await (const event of events) {
        if (event.type === 'session.deleted') forget(event.sessionId)
        else look(event.sessionId)
      }
    } catch {
      // The server refused; the page looks again.
    }
    await new Promise((done) => setTimeout(done, 3_000))
  }
}
