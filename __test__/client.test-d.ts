/** The types of `simse/client`: what must compile, and what must not. */

import {
  createSimseClient,
  EVENT_TYPES,
  type Event,
  type EventOf,
  type EventPayload,
  type EventStream,
  type EventType,
  type Item,
  type LifecycleEvent,
  type PagedList,
  type SessionView,
  SimseError,
  type Snapshot,
  type TurnRecord,
  type TurnStream,
} from '../client.js'

/** Compiles when the two are the same type. */
declare function same<A, B>(
  yes: (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false,
): void

const client = createSimseClient()
createSimseClient({ baseUrl: 'http://127.0.0.1:4100', token: async () => 'x', timeoutMs: undefined })
// @ts-expect-error a misspelt option
createSimseClient({ baseURL: 'x' })

export async function calls(signal: AbortSignal | undefined, version: number | undefined): Promise<void> {
  const session = await client.sessions.create()
  same<typeof session, SessionView>(true)
  await client.sessions.create({ sessionId: 's', title: undefined, permissionMode: 'auto' }, { signal })
  // @ts-expect-error no such mode
  await client.sessions.create({ permissionMode: 'yolo' })
  await client.sessions.configure('s', { title: 'x' }, { ifVersion: version, idempotencyKey: 'k' })
  // @ts-expect-error a version is a number
  await client.sessions.configure('s', { title: 'x' }, { ifVersion: '1' })
  // @ts-expect-error a read has no key
  await client.sessions.get('s', { idempotencyKey: 'k' })

  const pictured = await client.sessions.get('s', { snapshot: true, limit: 20 })
  same<typeof pictured, SessionView>(true)
  const picture = pictured.snapshot
  if (picture) {
    same<typeof picture, Snapshot>(true)
    same<typeof picture.seq, number>(true)
    same<typeof picture.items, readonly Item[]>(true)
    same<typeof picture.before, string | null>(true)
    same<typeof picture.queue, readonly TurnRecord[]>(true)
    for (const call of picture.open?.calls ?? []) same<typeof call.callId, string>(true)
    client.sessions.events('s', { after: picture.seq })
    if (picture.before) client.sessions.history('s', { back: true, cursor: picture.before })
  }
  // @ts-expect-error a session without being asked for one has perhaps no picture
  pictured.snapshot.seq
  // @ts-expect-error yes or no
  await client.sessions.get('s', { snapshot: 'true' })
  // @ts-expect-error events have no backwards
  client.sessions.history('s', { events: true, back: true })

  const accepted = await client.sessions.prompt('s', { prompt: 'go', mode: 'queue' })
  same<typeof accepted.turnId, string>(true)
  const turn = await client.sessions.prompt(
    's',
    { prompt: 'go' },
    { wait: true, onReconnect: ({ delayMs }) => void delayMs },
  )
  same<typeof turn, TurnRecord>(true)
  const stream = await client.sessions.prompt('s', { prompt: [{ type: 'text', text: 'go' }] }, { stream: true })
  same<typeof stream, TurnStream>(true)
  // @ts-expect-error one of them
  await client.sessions.prompt('s', { prompt: 'go' }, { stream: true, wait: true })
  // @ts-expect-error a prompt says something
  await client.sessions.prompt('s', {})

  await client.sessions.feedback('s', { requestId: 'r', decision: 'allow_always', scope: 'project' })
  await client.sessions.feedback('s', { callId: 'c', allowed: false })
  // @ts-expect-error which question?
  await client.sessions.feedback('s', { decision: 'allow' })
  // @ts-expect-error which answer?
  await client.sessions.feedback('s', { requestId: 'r' })
  await client.permissions.explain({ tool: 'bash', arguments: { command: 'ls' } })
}

export async function streams(): Promise<void> {
  const all = client.sessions.events('s', { after: 3 })
  same<typeof all, EventStream<Event>>(true)
  for await (const event of all) {
    if (event.type === 'stream.delta') same<typeof event.payload.text, string>(true)
    if (event.type === 'session.completed') same<typeof event.payload.result, string>(true)
    // @ts-expect-error not every event has a text
    event.payload.text
  }
  for await (const event of client.sessions.events('s', { types: ['stream.delta', 'abort'] })) {
    same<typeof event.type, 'stream.delta' | 'abort'>(true)
  }
  // @ts-expect-error no such event
  client.sessions.events('s', { types: ['stream.deltas'] })
  for await (const event of client.events({ after: 'newest' })) same<typeof event, LifecycleEvent>(true)
  // @ts-expect-error no event of all sessions
  client.events({ types: ['stream.delta'] })
  const known: readonly EventType[] = EVENT_TYPES
  void known
  same<EventPayload<'stream.delta'>['text'], string>(true)
  same<EventOf<'abort'>['payload']['reason'], string>(true)
}

/** With a library that knows `await using`. */
export async function disposed(): Promise<void> {
  const stream = client.sessions.events('s')
  same<ReturnType<(typeof stream)[typeof Symbol.asyncDispose]>, Promise<void>>(true)
}

export async function lists(): Promise<void> {
  const list = client.sessions.list({ limit: 5 })
  same<typeof list, PagedList<SessionView>>(true)
  for await (const { sessionId } of list) same<typeof sessionId, string>(true)
  const { items, nextCursor } = await list.page()
  same<typeof items, readonly SessionView[]>(true)
  if (nextCursor !== null) await list.page(nextCursor)
  for await (const item of client.sessions.history('s'))
    if (item.type === 'tool_call') same<typeof item.name, string>(true)
  for await (const event of client.sessions.history('s', { events: true, types: ['abort'] }))
    same<typeof event, Event>(true)
  // @ts-expect-error items have no types
  client.sessions.history('s', { types: ['abort'] })
}

export function errors(thrown: unknown): string | undefined {
  if (!(thrown instanceof SimseError)) return undefined
  if (thrown.code === 'CONFLICT' || thrown.code === 'UNREACHABLE') return thrown.requestId
  // @ts-expect-error no such code
  if (thrown.code === 'CONFLICTS') return undefined
  return thrown.retryAfter?.toFixed()
}

export async function answers(): Promise<void> {
  await client.sessions.answer('s', {
    permission: async ({ toolName, args }, { signal }) =>
      signal.aborted ? undefined : toolName === 'bash' ? { decision: 'deny', message: String(args.command) } : 'allow',
  })
  // @ts-expect-error no decision
  await client.sessions.answer('s', { permission: () => 'maybe' })
  // @ts-expect-error no such question
  await client.sessions.answer('s', { permissions: () => true })
}
