/** Answers to what a session asks its clients. */

import { shown } from './call.js'
import { isForeign, isGone, SimseError } from './errors.js'
import { follow } from './time.js'

/** What a question and its end look like in the log; those that this version of the server has not are left out. */
const QUESTIONS = ['permission.request', 'client.request']
const ENDS = ['permission.response', 'client.response']
const NOTICE = 'client.notice'
const DISPLAY = 'client.display'
/** Who can be asked. */
const HANDLERS = ['permission', 'select', 'confirm', 'input', 'editor', 'notice', 'display']
/** Somebody else was faster, or it is too late: nothing is wrong with that. */
const isOver = (failure) =>
  isGone(failure) || (failure instanceof SimseError && failure.status === 409 && !isForeign(failure))

/** The questions that are open now, the oldest first, and where the stream goes on. */
async function openNow(client, sessionId, { types, signal }) {
  const { turn, lastSeq } = await client.sessions.get(sessionId, { signal })
  const open = new Map()
  if (turn?.firstSeq === undefined) return { open, after: lastSeq }
  let after = lastSeq
  const past = { events: true, types, cursor: String(turn.firstSeq - 1), limit: 1000, signal }
  for await (const event of client.sessions.history(sessionId, past)) {
    after = Math.max(after, event.seq)
    const { requestId } = event.payload
    if (QUESTIONS.includes(event.type)) open.set(requestId, event)
    if (ENDS.includes(event.type)) open.delete(requestId)
  }
  return { open, after }
}

/** What is sent for what a handler gave back; undefined: nothing, the question is left to others. */
function feedbackFor(event, given) {
  const { requestId } = event.payload
  if (given === undefined) return undefined
  if (event.type === 'client.request')
    return given === null ? { requestId, cancelled: true } : { requestId, value: given }
  if (typeof given === 'boolean') return { requestId, decision: given ? 'allow' : 'deny' }
  if (typeof given === 'string') return { requestId, decision: given }
  if (given !== null && typeof given === 'object') return { requestId, ...given }
  throw new TypeError(`sessions.answer: \`permission\`: expected a decision, got ${shown(given)}`)
}

/** Hands questions to handlers and their answers to the server, until the session is gone or the signal fires. */
class Desk {
  #client
  #sessionId
  #handlers
  #stop = new AbortController()
  /** Request → what tells its handler that the question is over. */
  #asked = new Map()
  failure

  constructor(client, { sessionId, handlers }) {
    this.#client = client
    this.#sessionId = sessionId
    this.#handlers = handlers
  }

  get signal() {
    return this.#stop.signal
  }

  take(event) {
    if (event.type === NOTICE) this.#run(() => this.#handlers.notice?.(event.payload, event))
    else if (event.type === DISPLAY) this.#run(() => this.#handlers.display?.(event.payload, event))
    else if (QUESTIONS.includes(event.type)) this.#ask(event)
    else this.#asked.get(event.payload.requestId)?.abort()
  }

  #ask(event) {
    const { requestId, question } = event.payload
    const handler = this.#handlers[question?.kind ?? 'permission']
    if (handler === undefined) return
    const over = new AbortController()
    this.#asked.set(requestId, over)
    this.#run(async () => {
      try {
        const feedback = feedbackFor(event, await handler(question ?? event.payload, { event, signal: over.signal }))
        if (feedback !== undefined && !over.signal.aborted) await this.#send(feedback)
      } finally {
        this.#asked.delete(requestId)
      }
    })
  }

  async #send(feedback) {
    try {
      await this.#client.sessions.feedback(this.#sessionId, feedback, { signal: this.#stop.signal })
    } catch (error) {
      if (isOver(error)) return
      if (!this.#stop.signal.aborted) throw error
    }
  }

  /** A handler that fails ends the whole: what it was asked stays open, and silence is no. */
  async #run(work) {
    try {
      await work()
    } catch (error) {
      if (this.#stop.signal.aborted) return
      this.failure = { error }
      this.close()
    }
  }

  close() {
    this.#stop.abort()
    for (const over of this.#asked.values()) over.abort()
  }
}

/** See `sessions.answer` in client.d.ts. */
export async function answerRequests(client, eventTypes, { sessionId, handlers, options }) {
  const strange = Object.keys(handlers).find((name) => !HANDLERS.includes(name))
  if (strange !== undefined)
    throw new TypeError(`sessions.answer: unknown handler \`${strange}\`; there are ${HANDLERS.join(', ')}`)
  const types = [...QUESTIONS, ...ENDS, NOTICE, DISPLAY].filter((type) => eventTypes.includes(type))
  const desk = new Desk(client, { sessionId, handlers })
  if (options.signal?.aborted) return
  const unfollow = options.signal && follow(options.signal, () => desk.close())
  try {
    const { open, after } = await openNow(client, sessionId, { types, signal: desk.signal })
    for (const event of open.values()) desk.take(event)
    const stream = client.sessions.events(sessionId, { ...options, after, types, signal: desk.signal })
    for await (const event of stream) desk.take(event)
    if (desk.failure) throw desk.failure.error
  } catch (error) {
    const gone = isGone(error) && error.operation === 'sessions.events'
    if (!gone && !options.signal?.aborted) throw desk.failure?.error ?? error
  } finally {
    unfollow?.()
    desk.close()
  }
}
