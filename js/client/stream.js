/**
 * Event streams that go on: a cursor into the server's log, moved by whoever iterates.
 *
 * Nothing is read ahead of the reader but what one piece of the network holds, so a slow reader costs nothing here. When the line breaks, the next one
 * begins exactly behind the last event that was given out. Invariant: events are given out in the order of their numbers, each once.
 */

import { final, Lost, once, RETRY_AFTER_SECONDS_MAX } from './call.js'
import { foreign, isForeign, refusal, SimseError } from './errors.js'
import { Frames } from './frames.js'
import { follow, later, linked, pause, pauseMs } from './time.js'

/** Between two lines that bring no event: after so long the pauses begin anew. */
const LINE_MS_GOOD = 10_000

/** Where the language does not have it yet, programs that were compiled for it name it the same. */
const ASYNC_DISPOSE = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')

/** Statuses that another try may not meet. */
const PASSING = new Set([408, 429, 500, 502, 503, 504])

/** Somebody between us and the server wants to know who we are: another try does not tell it. */
const CLOSED = new Set([401, 403])

/** Events as an async iterator. */
export class EventStream {
  #world
  #plan
  #stop = new AbortController()
  /** The open line: its signal, its reader, its frames, and when it was opened. */
  #line
  #cursor
  /** Lines in a row that brought nothing, and since when there is none. */
  #failures = 0
  #lostAt
  #connected = false
  #over = false
  /** Calls of `next` that are not done yet: one waits for the other. */
  #waiting = 0
  #last = Promise.resolve()
  #leave

  /**
   * @param world what all calls share
   * @param plan `first(cursor)` and `next(cursor)` make calls; `after` is where it begins, `takes(event)` and `ends(event)` choose,
   *   `ready(frame)` sees the first frame, `gone(failure)` knows that there will be no more; and the options `signal`, `timeoutMs`, `silenceMs`, `giveUpMs`, `onReconnect`
   */
  constructor(world, plan) {
    this.#world = world
    this.#plan = plan
    this.#cursor = plan.after
    const leave = (reason) => this.#stop.abort(reason)
    const followed = [world.closed, plan.signal].flatMap((signal) =>
      signal === undefined ? [] : [follow(signal, leave)],
    )
    this.#leave = () => {
      for (const unfollow of followed) unfollow()
    }
  }

  /** The place of the last event that was given out, for `after`. */
  get lastEventId() {
    return this.#cursor
  }

  [Symbol.asyncIterator]() {
    return this
  }

  next() {
    if (this.#waiting === 0) {
      try {
        const event = this.#there()
        if (event !== undefined) return Promise.resolve(this.#given(event))
      } catch (failure) {
        this.#end()
        return Promise.reject(failure)
      }
    }
    this.#waiting += 1
    const next = this.#last.then(() => this.#advance())
    this.#last = next.then(
      () => this.#waited(),
      () => this.#waited(),
    )
    return next
  }

  #waited() {
    this.#waiting -= 1
  }

  /** The next event that is wanted, of those that have come already; nothing is waited for. */
  #there() {
    while (this.#line !== undefined && !this.#stop.signal.aborted) {
      const frame = this.#line.frames.next()
      if (frame === undefined) return undefined
      const event = this.#wanted(frame)
      if (event !== undefined) return event
    }
    return undefined
  }

  #given(event) {
    if (this.#plan.ends(event)) this.#end()
    return { value: event, done: false }
  }

  /** Ends it, and its connection, at once; a `next()` that waits is done. */
  async return(value) {
    this.#end()
    return { value, done: true }
  }

  /** For `await using`: leaves it, however its block ends. */
  async [ASYNC_DISPOSE]() {
    this.#end()
  }

  /** Opens the line, and waits until the server has said so. */
  async open() {
    while (this.#line === undefined && !this.#stop.signal.aborted) await this.#guarded(() => this.#connect())
  }

  async #advance() {
    for (;;) {
      if (this.#over || this.#stop.signal.aborted) return this.#done()
      const event = await this.#guarded(() => this.#event())
      if (event !== undefined) return this.#given(event)
    }
  }

  #done() {
    this.#end()
    return { value: undefined, done: true }
  }

  #end() {
    this.#over = true
    this.#leave()
    this.#stop.abort()
    this.#drop()
  }

  #drop() {
    const line = this.#line
    this.#line = undefined
    line?.link.fire()
    line?.link.free()
  }

  /** Does a step. One that fails is tried again, or ends the stream, or throws. */
  async #guarded(step) {
    try {
      return await step()
    } catch (failure) {
      this.#drop()
      if (this.#stop.signal.aborted) return undefined
      if (this.#connected && this.#plan.gone(failure)) return this.#end()
      const waits = this.#again(failure)
      const cause = final(failure, this.#plan.operation)
      if (waits !== undefined) {
        this.#plan.onReconnect?.({ attempt: this.#failures, delayMs: waits, cause })
        await pause(waits, this.#stop.signal).catch(() => {})
        if (this.#left() > 0 || this.#stop.signal.aborted) return undefined
      }
      this.#end()
      throw cause
    }
  }

  /** How long a server that has gone is still looked for. */
  #left() {
    if (!this.#connected || this.#lostAt === undefined) return Number.POSITIVE_INFINITY
    return this.#plan.giveUpMs - (Date.now() - this.#lostAt)
  }

  /** How long to wait for the next line; undefined: there is none. */
  #again(failure) {
    this.#failures += 1
    this.#lostAt ??= Date.now()
    const left = this.#left()
    const enough = left <= 0 || (!this.#connected && this.#failures > this.#world.retries)
    if (enough || this.#plan.stale?.()) return undefined
    const waits = this.#patience(failure, left)
    return waits === undefined ? undefined : Math.min(waits, left)
  }

  /** How long a failure is waited out; undefined: another try would meet the same. */
  #patience(failure, left) {
    const usual = pauseMs(this.#failures)
    if (failure instanceof Lost) return usual
    if (!(failure instanceof SimseError) || failure.replayed) return undefined
    if (failure.code === 'NO_SERVER') return this.#world.wasReached() ? usual : undefined
    if (failure.status === 401 && this.#world.distrust()) return 0
    if (!PASSING.has(failure.status) && !this.#strange(failure)) return undefined
    const asked = (failure.retryAfter ?? 0) * 1000
    if (!this.#connected) return asked > RETRY_AFTER_SECONDS_MAX * 1000 ? undefined : Math.max(usual, asked)
    // Who says to come back when we will have given up is asked again before that.
    return Math.max(usual, asked < left ? asked : left / 2)
  }

  /** Whether it is no word of the server's, which was there: what stands before it is not always in order while it is started anew. */
  #strange(failure) {
    if (!this.#connected || CLOSED.has(failure.status)) return false
    return isForeign(failure) || failure.status === 404
  }

  async #connect() {
    const { operation, timeoutMs, silenceMs } = this.#plan
    const link = linked([this.#stop.signal])
    const inTime = later(this.#left(), () => link.fire(new Lost(`${operation}: no answer in time`)))
    const call = this.#connected ? this.#plan.next(this.#cursor) : this.#plan.first(this.#cursor)
    try {
      const response = await this.#within(link, timeoutMs, `no answer within ${timeoutMs} ms`, () =>
        once(this.#world, call, link.signal),
      )
      if (!response.ok) {
        const text = await this.#within(link, timeoutMs, 'no end of the answer', () => response.text())
        throw refusal(operation, response, text)
      }
      const kind = response.headers.get('content-type') ?? ''
      if (!kind.startsWith('text/event-stream'))
        throw foreign(
          new SimseError('BAD_ANSWER', `${operation}: expected an event stream, got ${kind}`, { operation }),
        )
      const line = { link, reader: response.body.getReader(), frames: new Frames(), since: Date.now() }
      // Not every `fetch` ends a body that is being read when its signal fires.
      follow(link.signal, (reason) => line.reader.cancel(reason).catch(() => {}))
      await this.#greeted(line, silenceMs)
      this.#line = line
    } catch (failure) {
      link.fire()
      link.free()
      throw failure
    } finally {
      inTime()
    }
  }

  /** Waits for the frame that says where the line begins. */
  async #greeted(line, silenceMs) {
    const frame = await this.#frame(line, silenceMs)
    const ready = this.#parsed(frame)
    if (ready.type !== 'ready') throw this.#nonsense('a stream that does not begin with `ready`')
    this.#cursor ??= String(ready.payload.position)
    this.#plan.ready?.(ready)
    this.#connected = true
    this.#lostAt = undefined
  }

  /** The next event that is wanted; undefined: there was one that is not. */
  async #event() {
    if (this.#line === undefined) return void (await this.#connect())
    return this.#wanted(await this.#frame(this.#line, this.#plan.silenceMs))
  }

  /** The event of a frame, unless it came before, or is not wanted. */
  #wanted(frame) {
    if (frame.id === undefined) return undefined
    if (this.#cursor !== undefined && Number(frame.id) <= Number(this.#cursor)) return undefined
    const event = this.#parsed(frame)
    this.#cursor = frame.id
    this.#failures = 0
    return this.#plan.takes(event) ? event : undefined
  }

  #parsed(frame) {
    try {
      return JSON.parse(frame.data)
    } catch {
      throw this.#nonsense('an event that is no JSON')
    }
  }

  #nonsense(what) {
    const { operation } = this.#plan
    return new SimseError('BAD_ANSWER', `${operation}: ${what}`, { operation })
  }

  /** The next frame of a line. A line that ends or goes silent is lost: the server writes at least a comment every 15 s. */
  async #frame(line, silenceMs) {
    for (;;) {
      const frame = line.frames.next()
      if (frame !== undefined) return frame
      const read = () => line.reader.read()
      const { done, value } = await this.#within(line.link, silenceMs, `silent for ${silenceMs} ms`, read)
      if (Date.now() - line.since > LINE_MS_GOOD) this.#failures = 0
      if (done) throw new Lost(`${this.#plan.operation}: the stream has ended`)
      line.frames.push(value)
    }
  }

  /** Does something on a line, which is cut off when it takes too long. What goes wrong with the line is `Lost`. */
  async #within(link, ms, words, action) {
    const late = new Lost(`${this.#plan.operation}: ${words}`)
    const inTime = later(ms, () => link.fire(late))
    try {
      const result = await action()
      if (link.signal.aborted) throw link.signal.reason
      return result
    } catch (cause) {
      if (link.signal.aborted) throw link.signal.reason
      if (cause instanceof Lost || cause instanceof SimseError) throw cause
      throw new Lost(`${this.#plan.operation}: the line broke: ${cause?.message ?? cause}`, { cause })
    } finally {
      inTime()
    }
  }
}

/** The events of one turn: an iterator that ends behind the turn's last event. */
export class TurnStream extends EventStream {
  #turn

  constructor(world, plan, turn) {
    super(world, plan)
    this.#turn = turn
  }

  /** The turn. */
  get turnId() {
    return this.#turn.id
  }
}
