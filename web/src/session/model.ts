/**
 * A session as the page shows it: a snapshot, and its events from there on without a gap or a repeat, over broken lines and restarts
 * of the server. Events are taken as they come and shown once for each picture that the screen shows, so that five thousand a second
 * cost no more than sixty.
 */

import { type Event, type EventBody, type SessionView, SimseError, type TurnRecord } from 'simse/client'
import { batch } from 'solid-js'
import { client, told } from '../connection.ts'
import { cell } from '../parts/cell.ts'
import { type CallEntry, type Entry, entriesOf, opened, picturesOf } from './entries.ts'
import { Live } from './live.ts'
import { Side } from './side.ts'

/** Items of a page of the history. */
const PAGE = 200
/** Longest preview of a call that is kept, in UTF-16 units. */
const PREVIEW_MAX = 60_000
/** The newest events that can be looked at as they came. */
const RECENT_MAX = 500

/** How the line to the server is. */
export type Line = 'opening' | 'live' | 'broken' | 'gone'

/** A question that waits: of this session, or of one under it. */
export interface Question {
  readonly sessionId: string
  readonly request: Extract<EventBody, { type: 'permission.request' | 'client.request' }>
}

export class SessionModel {
  readonly #end = new AbortController()
  #pending: Event[] = []
  #scheduled = false
  #entries: Entry[] = []
  /** Where calls stand that have not ended. */
  #open = new Map<string, number>()
  #before: string | null = null
  #older: Promise<void> | undefined

  readonly view = cell<SessionView | undefined>(undefined)
  readonly entries = cell<readonly Entry[]>([])
  readonly questions = cell<readonly Question[]>([])
  /** Prompts that wait. */
  readonly queue = cell<readonly TurnRecord[]>([])
  readonly line = cell<Line>('opening')
  readonly trouble = cell('')
  /** Whether there is more of the history further back. */
  readonly hasOlder = cell(false)
  /** The newest events as they came, the pieces of texts left out. */
  readonly recent = cell<readonly Event[]>([])
  /** What the model says now. */
  readonly live = new Live()
  /** What stands beside the timeline: plans, tasks, sub-agents, changes. */
  readonly side: Side

  constructor(readonly sessionId: string) {
    this.side = new Side(sessionId)
    void this.#run()
  }

  close(): void {
    this.#end.abort()
  }

  async #run(): Promise<void> {
    for (let attempt = 0; !this.#end.signal.aborted; attempt++) {
      try {
        const view = await client.sessions.get(this.sessionId, {
          snapshot: true,
          limit: PAGE,
          signal: this.#end.signal,
        })
        this.#begin(view)
        attempt = 0
        await this.#follow(view.snapshot?.seq ?? view.lastSeq)
        this.line.set('gone')
        return
      } catch (cause) {
        if (this.#end.signal.aborted) return
        const final = cause instanceof SimseError && ['NOT_FOUND', 'FORBIDDEN', 'UNAUTHORIZED'].includes(cause.code)
        batch(() => {
          this.trouble.set(told(cause))
          this.line.set(final ? 'gone' : 'broken')
        })
        if (final) return
        await new Promise((done) => setTimeout(done, Math.min(500 * 2 ** attempt, 10_000)))
      }
    }
  }

  #begin(view: SessionView): void {
    const { snapshot } = view
    this.#pending = []
    this.#entries = entriesOf(snapshot?.items ?? [])
    this.#open = new Map()
    this.#before = snapshot?.before ?? null
    this.live.clear()
    const underway = snapshot?.open
    if (underway !== undefined) {
      for (const call of underway.calls) this.#resume(underway.turnId, call)
      if (underway.text !== undefined || underway.reasoning !== undefined)
        this.live.begin(underway.text ?? '', underway.reasoning ?? '')
    }
    batch(() => {
      this.view.set(view)
      this.entries.set([...this.#entries])
      this.hasOlder.set(this.#before !== null)
      this.queue.set(snapshot?.queue ?? [])
      this.questions.set((view.requests ?? []).flatMap((body) => asked(this.sessionId, body)))
      this.line.set('live')
      this.trouble.set('')
      this.live.show()
    })
    this.side.begin(view)
  }

  /** A call of a turn that ran when the page came. */
  #resume(
    turnId: string,
    call: {
      callId: string
      name: string
      arguments: Readonly<Record<string, unknown>>
      at: number
      output?: string
      skippedBytes?: number
    },
  ): void {
    const at = this.#entries.findIndex((entry) => entry.kind === 'call' && entry.callId === call.callId)
    const place = { seq: 0, turnId, at: call.at }
    const entry: CallEntry = {
      ...(at >= 0 ? (this.#entries[at] as CallEntry) : opened(place, { ...call, args: call.arguments })),
      output: call.output ?? '',
      skippedBytes: call.skippedBytes ?? 0,
    }
    if (at >= 0) this.#entries[at] = entry
    else this.#entries.push(entry)
    this.#open.set(call.callId, at >= 0 ? at : this.#entries.length - 1)
  }

  async #follow(after: number): Promise<void> {
    const events = client.sessions.events(this.sessionId, {
      after,
      signal: this.#end.signal,
      giveUpMs: Number.POSITIVE_INFINITY,
      onReconnect: () => this.line.set('broken'),
    })
    for await (const event of events) {
      this.#pending.push(event)
      if (this.line() === 'broken') this.line.set('live')
      this.#schedule()
    }
    this.#show()
  }

  /** A hidden page gets no pictures; it is told of things all the same. */
  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    const run = () => {
      this.#scheduled = false
      this.#show()
    }
    if (document.visibilityState === 'visible') requestAnimationFrame(run)
    else setTimeout(run, 100)
  }

  #show(): void {
    const events = this.#pending
    if (events.length === 0 || this.#end.signal.aborted) return
    this.#pending = []
    batch(() => {
      let settled = false
      const size = this.#entries.length
      let changed = false
      for (const event of events) {
        changed = this.#take(event) || changed
        settled = settled || SETTLING.has(event.type)
        this.side.take(event)
      }
      if (changed || this.#entries.length !== size) this.entries.set([...this.#entries])
      this.live.show()
      const kept = events.filter((event) => event.type !== 'stream.delta' && event.type !== 'tool.call.output')
      if (kept.length > 0) this.recent.set([...this.recent(), ...kept].slice(-RECENT_MAX))
      if (settled) void this.refresh()
    })
  }

  /** The session's own facts, as they are now. */
  async refresh(): Promise<void> {
    try {
      const view = await client.sessions.get(this.sessionId, { snapshot: true, limit: 1, signal: this.#end.signal })
      batch(() => {
        this.view.set(view)
        this.queue.set(view.snapshot?.queue ?? [])
      })
    } catch {
      // The line says what is wrong; the next event asks again.
    }
  }

  /** What lies further back. */
  loadOlder(): Promise<void> {
    this.#older ??= this.#loadOlder().finally(() => {
      this.#older = undefined
    })
    return this.#older
  }

  async #loadOlder(): Promise<void> {
    if (this.#before === null) return
    const page = await client.sessions.history(this.sessionId, { back: true, limit: PAGE }).page(this.#before)
    const older = entriesOf([...page.items].sort((a, b) => a.seq - b.seq))
    // A call whose result lay on the newer page is one entry.
    const later = new Map(
      this.#entries.flatMap((entry, at) => (entry.kind === 'call' ? [[entry.callId, at] as const] : [])),
    )
    const gone = new Set<number>()
    const joined = older.map((entry) => {
      const at = entry.kind === 'call' && entry.state === 'running' ? later.get(entry.callId) : undefined
      if (entry.kind !== 'call' || at === undefined) return entry
      gone.add(at)
      return { ...(this.#entries[at] as CallEntry), args: entry.args, seq: entry.seq, at: entry.at }
    })
    this.#entries = [...joined, ...this.#entries.filter((_, at) => !gone.has(at))]
    this.#open = new Map(
      this.#entries.flatMap((entry, at) =>
        entry.kind === 'call' && entry.state === 'running' ? [[entry.callId, at] as const] : [],
      ),
    )
    this.#before = page.nextCursor
    batch(() => {
      this.hasOlder.set(this.#before !== null)
      this.entries.set([...this.#entries])
    })
  }

  #push(entry: Entry): true {
    this.#entries.push(entry)
    return true
  }

  #note(event: Event, level: 'info' | 'warning' | 'error', text: string): true {
    return this.#push({
      kind: 'note',
      key: `event ${event.seq}`,
      seq: event.seq,
      turnId: event.turnId,
      at: event.at,
      level,
      text,
    })
  }

  /** Whether the entries are other ones now. */
  #take(event: Event): boolean {
    const place = { key: `event ${event.seq}`, seq: event.seq, turnId: event.turnId, at: event.at }
    switch (event.type) {
      case 'session.prompt':
      case 'session.steer': {
        if (event.type === 'session.prompt' && event.payload.task !== undefined) return false
        const { prompt, parts } = event.payload
        return this.#push({
          ...place,
          kind: 'user',
          text: prompt,
          pictures: picturesOf(parts),
          steers: event.type === 'session.steer',
        })
      }
      case 'stream.start':
        this.live.begin('', '')
        return false
      case 'stream.delta':
        this.live.add(event.payload.text)
        return false
      case 'stream.reasoning':
        this.live.think(event.payload.text)
        return false
      case 'stream.retry': {
        const { attempt, error, model } = event.payload
        this.live.begin('', '')
        return this.#note(event, 'warning', `Try ${attempt}${model === undefined ? '' : ` with ${model}`}: ${error}`)
      }
      case 'stream.complete': {
        const reasoning = this.live.thoughts()
        this.live.clear()
        if (event.payload.text === '' && reasoning === '') return false
        return this.#push({ ...place, kind: 'assistant', text: event.payload.text, reasoning })
      }
      case 'tool.call.start':
        this.#open.set(event.payload.callId, this.#entries.length)
        return this.#push(opened(place, event.payload))
      case 'tool.call.output': {
        const { callId, text, skippedBytes } = event.payload
        return this.#change(callId, (call) => ({
          output: (call.output + text).slice(-PREVIEW_MAX),
          skippedBytes: call.skippedBytes + (skippedBytes ?? 0),
        }))
      }
      case 'tool.call.end': {
        const { callId, output, isError, durationMs, parts, findings } = event.payload
        const changed = this.#change(callId, () => ({
          state: isError ? 'failed' : 'done',
          output,
          durationMs,
          pictures: picturesOf(parts),
          findings: findings ?? [],
          skippedBytes: 0,
        }))
        this.#open.delete(callId)
        return changed
      }
      case 'tool.call.error': {
        const changed = this.#change(event.payload.callId, () => ({
          state: 'failed',
          output: event.payload.error.message,
        }))
        this.#open.delete(event.payload.callId)
        return changed
      }
      case 'turn.changes': {
        const { files, fileCount } = event.payload
        return fileCount > 0 && this.#push({ ...place, kind: 'changes', files, fileCount })
      }
      case 'compaction.complete':
        return this.#push({ ...place, kind: 'summary', text: event.payload.summary })
      case 'session.error':
      case 'abort':
        return this.#ended(event)
      default:
        return this.#told(event)
    }
  }

  #ended(event: Extract<Event, { type: 'session.error' | 'abort' }>): true {
    this.live.clear()
    for (const callId of [...this.#open.keys()]) this.#change(callId, () => ({ state: 'failed' }))
    this.#open.clear()
    this.questions.set([])
    if (event.type === 'abort') return this.#note(event, 'info', `Stopped: ${event.payload.reason}`)
    return this.#note(event, 'error', event.payload.error.message)
  }

  /** Events that are told in a line, or that are about questions. */
  #told(event: Event): boolean {
    switch (event.type) {
      case 'permission.request':
      case 'client.request':
        this.questions.set([...this.questions(), ...asked(this.sessionId, event as EventBody)])
        return false
      case 'permission.response':
      case 'client.response':
        this.#answered(event.payload.requestId)
        return false
      case 'subagent.request':
        this.questions.set([...this.questions(), ...asked(event.payload.sessionId, event.payload.request)])
        return false
      case 'subagent.response': {
        const { response } = event.payload
        if (response.type === 'permission.response' || response.type === 'client.response')
          this.#answered(response.payload.requestId)
        return false
      }
      case 'client.notice':
        return this.#note(event, event.payload.level, event.payload.text)
      case 'compaction.failed':
        return this.#note(event, 'warning', `The conversation could not be summed up: ${event.payload.error.message}`)
      case 'loop.doom_loop':
        return this.#note(
          event,
          'warning',
          `The same call of ${event.payload.toolName} came ${event.payload.callCount} times.`,
        )
      case 'budget.warning':
      case 'budget.exceeded':
        return this.#note(
          event,
          'warning',
          `${event.type === 'budget.warning' ? 'Nearly spent' : 'Spent'}: ${event.payload.kind} of the ${event.payload.scope}.`,
        )
      case 'changes.undone':
      case 'changes.redone':
        return this.#note(
          event,
          'info',
          `${event.type === 'changes.undone' ? 'Undone' : 'Done again'}: ${event.payload.paths.join(', ')}`,
        )
      default:
        return false
    }
  }

  #answered(requestId: string): void {
    this.questions.set(this.questions().filter(({ request }) => request.payload.requestId !== requestId))
  }

  #change(callId: string, to: (call: CallEntry) => Partial<CallEntry>): boolean {
    const at = this.#open.get(callId)
    const call = at === undefined ? undefined : this.#entries[at]
    if (at === undefined || call?.kind !== 'call') return false
    this.#entries[at] = { ...call, ...to(call) }
    return true
  }
}

/** Events behind which a session's own facts are other ones. */
const SETTLING = new Set<Event['type']>([
  'session.prompt',
  'session.completed',
  'session.error',
  'session.configured',
  'abort',
  'turn.queued',
  'turn.paused',
  'turn.resumed',
  'turn.complete',
  'turn.control',
])

function asked(sessionId: string, body: EventBody): Question[] {
  if (body.type === 'permission.request' || body.type === 'client.request') return [{ sessionId, request: body }]
  // What a session under this one asks stands in its list too.
  if (body.type === 'subagent.request') return asked(body.payload.sessionId, body.payload.request)
  return []
}
