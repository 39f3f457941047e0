/**
 * What stands in a session's timeline, and how the items of its history and its events become that. Nothing here knows of the page:
 * events go in, entries come out.
 */
import type { FileChange, Item, Part } from 'simse/client'

/** A picture in a message. */
export interface Picture {
  readonly mediaType: string
  readonly data: string
}

interface Place {
  /** Stays the same while the entry changes. */
  readonly key: string
  /** The event that it stands for; a fork begins there. */
  readonly seq: number
  readonly turnId: string | undefined
  readonly at: number
}

export interface UserEntry extends Place {
  readonly kind: 'user'
  readonly text: string
  readonly pictures: readonly Picture[]
  /** Said into a turn that ran. */
  readonly steers: boolean
}

export interface AssistantEntry extends Place {
  readonly kind: 'assistant'
  readonly text: string
  readonly reasoning: string
}

export type CallState = 'running' | 'done' | 'failed'

export interface CallEntry extends Place {
  readonly kind: 'call'
  readonly callId: string
  readonly name: string
  readonly args: Readonly<Record<string, unknown>>
  readonly state: CallState
  readonly output: string
  readonly pictures: readonly Picture[]
  readonly findings: readonly string[]
  readonly durationMs: number | undefined
  /** Bytes of the preview that were left out. */
  readonly skippedBytes: number
}

export interface SummaryEntry extends Place {
  readonly kind: 'summary'
  readonly text: string
}

export interface ChangesEntry extends Place {
  readonly kind: 'changes'
  readonly files: readonly FileChange[]
  readonly fileCount: number
}

export interface NoteEntry extends Place {
  readonly kind: 'note'
  readonly level: 'info' | 'warning' | 'error'
  readonly text: string
}

export type Entry = UserEntry | AssistantEntry | CallEntry | SummaryEntry | ChangesEntry | NoteEntry

export function textOf(parts: readonly Part[] | undefined): string {
  return (parts ?? []).flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
}

export function picturesOf(parts: readonly Part[] | undefined): Picture[] {
  return (parts ?? []).flatMap((part) => (part.type === 'image' ? [part] : []))
}

/** A call as it begins. */
export function opened(
  place: Omit<Place, 'key'>,
  call: { callId: string; name: string; args: Readonly<Record<string, unknown>> },
): CallEntry {
  return {
    ...place,
    ...call,
    kind: 'call',
    key: `call ${call.callId}`,
    state: 'running',
    output: '',
    pictures: [],
    findings: [],
    durationMs: undefined,
    skippedBytes: 0,
  }
}

/** Entries of items of the history, the oldest first. A result whose call lies further back stands alone. */
export function entriesOf(items: readonly Item[]): Entry[] {
  const entries: Entry[] = []
  const calls = new Map<string, number>()
  for (const item of items) {
    const place = { seq: item.seq, turnId: item.turnId, at: item.at }
    if (item.type === 'message') {
      const [text, pictures] = [textOf(item.content), picturesOf(item.content)]
      if (item.role === 'user')
        entries.push({ ...place, kind: 'user', key: `item ${item.seq}`, text, pictures, steers: false })
      else if (text !== '') entries.push({ ...place, kind: 'assistant', key: `item ${item.seq}`, text, reasoning: '' })
    } else if (item.type === 'tool_call') {
      calls.set(item.callId, entries.length)
      entries.push(opened(place, { callId: item.callId, name: item.name, args: item.arguments }))
    } else if (item.type === 'tool_result') {
      const known = calls.get(item.callId)
      const call = known === undefined ? undefined : (entries[known] as CallEntry)
      const whole: CallEntry = {
        ...(call ?? opened(place, { callId: item.callId, name: item.name, args: {} })),
        state: item.isError ? 'failed' : 'done',
        output: item.output,
        pictures: picturesOf(item.parts),
        findings: item.findings ?? [],
        durationMs: call === undefined ? undefined : Math.max(0, item.at - call.at),
      }
      if (known === undefined) entries.push(whole)
      else entries[known] = whole
    } else {
      entries.push({ ...place, kind: 'summary', key: `item ${item.seq}`, text: item.text })
    }
  }
  return entries
}
