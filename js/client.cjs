/** `simse/client` for Node: js/client in one file, made by scripts/client.mjs. Do not edit it. */
'use strict'

// errors.js

/** Answers of the server that are no errors of ours to explain further. */
const SAID_NOTHING = 'the server gave no reason'

/** A call that failed. */
class SimseError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {{ status?: number, details?: unknown, requestId?: string, retryAfter?: number, replayed?: boolean, operation?: string, cause?: unknown }} [more]
   */
  constructor(code, message, more = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause })
    this.code = code
    this.status = more.status
    this.details = more.details
    this.requestId = more.requestId
    this.retryAfter = more.retryAfter
    this.replayed = more.replayed ?? false
    this.operation = more.operation
  }

  get name() {
    return 'SimseError'
  }

  toJSON() {
    const { name, code, message, status, details, requestId, retryAfter, operation } = this
    return { name, code, message, status, details, requestId, retryAfter, operation }
  }
}

/** Seconds of a `Retry-After`, in either of its two forms. */
function retryAfterOf(headers) {
  const text = headers.get('retry-after')
  if (text === null) return undefined
  if (/^\d+$/.test(text.trim())) return Number.isSafeInteger(Number(text)) ? Number(text) : undefined
  const at = Date.parse(text)
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - Date.now()) / 1000))
}

/** What an answer says that is no success. */
function refusal(operation, response, text) {
  const more = {
    status: response.status,
    requestId: response.headers.get('x-request-id') ?? undefined,
    retryAfter: retryAfterOf(response.headers),
    replayed: response.headers.get('idempotency-replayed') === 'true',
    operation,
  }
  const said = errorIn(text)
  if (said === undefined) {
    const code = CODE_OF_STATUS[response.status] ?? 'BAD_ANSWER'
    return foreign(new SimseError(code, `${operation}: ${response.status}, ${SAID_NOTHING}`, more))
  }
  return new SimseError(said.code, said.message, { ...more, details: said.details })
}

/** What somebody between us and the server said. */
const foreigners = new WeakSet()

/** Marks what is not the server's own word: it tells nothing of what was asked for. */
function foreign(failure) {
  foreigners.add(failure)
  return failure
}

const isForeign = (failure) => foreigners.has(failure)

/** Whether the server itself says that there is no such thing. */
const isGone = (failure) =>
  failure instanceof SimseError && failure.status === 404 && failure.code === 'NOT_FOUND' && !isForeign(failure)

/** For what stands between us and the server and has words of its own. */
const CODE_OF_STATUS = {
  400: 'INVALID_ARGUMENT',
  401: 'UNAUTHORIZED',
  403: 'FORBIDDEN',
  404: 'NOT_FOUND',
  409: 'CONFLICT',
  413: 'PAYLOAD_TOO_LARGE',
  429: 'RESOURCE_EXHAUSTED',
  500: 'INTERNAL',
  502: 'UPSTREAM_UNAVAILABLE',
  503: 'UPSTREAM_UNAVAILABLE',
  504: 'TIMEOUT',
}

function errorIn(text) {
  try {
    const { error } = JSON.parse(text)
    return typeof error?.code === 'string' && typeof error.message === 'string' ? error : undefined
  } catch {
    return undefined
  }
}

// time.js

/** The first pause between two attempts, and the longest. */
const PAUSE_MS = 100
const PAUSE_MS_MAX = 5_000
/** The longest that a timer can wait. */
const TIMER_MS_MAX = 0x7fff_ffff

/** How long to wait before attempt `number + 1`: doubling, and never all clients at once. */
function pauseMs(number, random = Math.random) {
  const whole = Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** Math.min(number - 1, 20))
  return whole / 2 + (whole / 2) * random()
}

/** Who is to be told when a signal fires. One listener for all of them: Node takes many on one signal for a leak. */
const followers = new WeakMap()

/** Calls `tell(reason)` when the signal fires, at once when it has. What comes back ends that. */
function follow(signal, tell) {
  if (signal.aborted) {
    tell(signal.reason)
    return () => {}
  }
  let all = followers.get(signal)
  if (all === undefined) {
    all = new Set()
    followers.set(signal, all)
    signal.addEventListener('abort', () => tellAll(signal), { once: true })
  }
  all.add(tell)
  return () => all.delete(tell)
}

function tellAll(signal) {
  const all = followers.get(signal)
  followers.delete(signal)
  for (const tell of all) tell(signal.reason)
}

/** Calls `tell` after a while; never after an endless one. A timer that is given more than it can hold fires at once. What comes back ends that. */
function later(ms, tell) {
  if (ms === Number.POSITIVE_INFINITY) return () => {}
  let left = ms
  let timer
  const wait = () => {
    const piece = Math.min(left, TIMER_MS_MAX)
    left -= piece
    timer = setTimeout(left > 0 ? wait : tell, piece)
  }
  wait()
  return () => clearTimeout(timer)
}

/** Resolves after a while; rejects with the signal's reason when that comes first. */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    let unfollow = () => {}
    const stop = later(ms, () => {
      unfollow()
      resolve()
    })
    unfollow = follow(signal, (reason) => {
      stop()
      reject(reason)
    })
  })
}

/**
 * A signal that fires with any of `signals`, or `fire(reason)`, or after `ms`. `free()` lets go of all of them: no timer and no listener stays.
 */
function linked(signals, ms = Number.POSITIVE_INFINITY, late = () => new Error('too late')) {
  const controller = new AbortController()
  const freeing = []
  const fire = (reason) => controller.abort(reason)
  for (const signal of signals) if (signal !== undefined) freeing.push(follow(signal, fire))
  freeing.push(later(ms, () => fire(late())))
  return {
    signal: controller.signal,
    fire,
    free: () => {
      for (const each of freeing.splice(0)) each()
    },
  }
}

// frames.js

/** Longest frame in UTF-16 units: nothing that the server writes comes near it. */
const FRAME_UNITS_MAX = 64 << 20

/** Holds what came and was not taken yet: one piece of the network's, and the beginning of a frame. */
class Frames {
  #decoder = new TextDecoder()
  /** Pieces of a line whose end has not come. */
  #open = []
  #openUnits = 0
  /** Whole lines that were not read yet, and how far they were. */
  #text = ''
  #at = 0
  #data = []
  #dataUnits = 0
  #id

  /** Takes a piece of the stream. Only once `next` has given all that was there. */
  push(bytes) {
    const text = this.#decoder.decode(bytes, { stream: true })
    const end = text.lastIndexOf('\n') + 1
    if (end === 0) return this.#keep(text)
    this.#text = this.#text.slice(this.#at) + this.#open.join('') + text.slice(0, end)
    this.#at = 0
    this.#open = []
    this.#openUnits = 0
    this.#keep(text.slice(end))
  }

  #keep(text) {
    if (text === '') return
    this.#open.push(text)
    this.#openUnits += text.length
    this.#check()
  }

  #check() {
    if (this.#openUnits + this.#dataUnits > FRAME_UNITS_MAX)
      throw new SimseError('BAD_ANSWER', `an event of more than ${FRAME_UNITS_MAX} characters`)
  }

  /** The next whole frame that has data: `{ id, data }`. Undefined: more has to come first. Comments are passed over. */
  next() {
    for (;;) {
      const end = this.#text.indexOf('\n', this.#at)
      if (end < 0) return undefined
      let line = this.#text.slice(this.#at, end)
      this.#at = end + 1
      if (line.endsWith('\r')) line = line.slice(0, -1)
      if (line !== '') this.#field(line)
      else if (this.#data.length > 0) return this.#take()
    }
  }

  #field(line) {
    const colon = line.indexOf(':')
    if (colon === 0) return
    const name = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    if (name === 'id' && !value.includes('\0')) this.#id = value
    if (name !== 'data') return
    this.#data.push(value)
    this.#dataUnits += value.length
    this.#check()
  }

  #take() {
    const frame = { id: this.#id, data: this.#data.join('\n') }
    this.#data = []
    this.#dataUnits = 0
    this.#id = undefined
    return frame
  }
}

// call.js

/** The longest that a `Retry-After` is followed; a longer one is the caller's to wait for. */
const RETRY_AFTER_SECONDS_MAX = 30
/** The server knows a key for ten minutes. Past the half of it nothing is sent again: it might be done a second time. */
const KEY_MS_MAX = 300_000

/** The path and query of a call. */
function addressOf({ operation, path, parameters, query }) {
  const place = path.replace(/\{(\w+)\}/g, (_, name) => {
    const value = parameters[name]
    if (typeof value !== 'string' || value === '')
      throw new TypeError(`${operation}: \`${name}\`: expected a text that is not empty, got ${shown(value)}`)
    // In an address they are steps and no names, however they are written.
    if (value === '.' || value === '..')
      throw new TypeError(`${operation}: \`${name}\`: expected a name, got \`${value}\``)
    return encodeURIComponent(value)
  })
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined)
  if (pairs.length === 0) return place
  return `${place}?${pairs.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join('&')}`
}

/** A value in an error: its kind, and nothing of what may be a secret. */
function shown(value) {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`
}

/** A name for a write that nothing else has. */
function newKey() {
  if (typeof crypto.randomUUID === 'function') return crypto.randomUUID()
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** What is sent beside the place: who calls, the key, the version that is expected. */
function headersOf(world, call, token) {
  const headers = { ...world.headers, ...call.headers, accept: call.accept }
  if (call.body !== undefined) headers['content-type'] = 'application/json'
  if (token !== undefined) headers.authorization = `Bearer ${token}`
  if (world.clientId !== undefined) headers['x-client-id'] = world.clientId
  if (call.key !== undefined) headers['idempotency-key'] = call.key
  if (call.ifVersion !== undefined) headers['if-match'] = `"${call.ifVersion}"`
  if (call.lastEventId !== undefined) headers['last-event-id'] = call.lastEventId
  return headers
}

/** The connection failed: nobody knows whether the server has seen the request. */
class Lost extends Error {}

/** Sends a request once. Rejects with `Lost`, with what a signal was fired with, or with what is wrong about the place. */
async function once(world, call, signal) {
  const { url, token } = await located(world, call, signal)
  if (signal.aborted) throw signal.reason
  const init = { method: call.method, headers: headersOf(world, call, token), signal, redirect: 'error' }
  if (call.body !== undefined) init.body = call.body
  try {
    const response = await world.fetch(url + call.address, init)
    world.reached()
    return response
  } catch (cause) {
    if (signal.aborted) throw signal.reason
    world.lost()
    throw new Lost(`${call.operation}: no answer from ${url}: ${wordsOf(cause)}`, { cause })
  }
}

/** Where to. What is asked there first takes its time. */
async function located(world, call, signal) {
  let unfollow = () => {}
  const stopped = new Promise((_, reject) => {
    unfollow = follow(signal, reject)
  })
  try {
    return await Promise.race([world.locate(), stopped])
  } catch (failure) {
    if (!(failure instanceof Lost)) throw failure
    throw new Lost(`${call.operation}: ${failure.message}`, { cause: failure.cause })
  } finally {
    unfollow()
  }
}

/** The words of a failed `fetch`: the reason lies below it. */
function wordsOf(cause) {
  const inner = cause?.cause?.code ?? cause?.cause?.message
  return inner ? `${cause.message} (${inner})` : String(cause?.message ?? cause)
}

/** Reads an answer to its end. */
async function textOf(response, call, signal) {
  try {
    return await response.text()
  } catch (cause) {
    if (signal.aborted) throw signal.reason
    throw new Lost(`${call.operation}: the answer broke off: ${wordsOf(cause)}`, { cause })
  }
}

/** How long to wait before the same is tried again; undefined: it is not. */
function again(world, call, { failure, attempt, since }) {
  if (attempt > world.retries) return undefined
  const waits = patience(world, call, failure, pauseMs(attempt))
  // An attempt before may have been done, though its answer was lost, or this one was refused.
  const known = call.key === undefined || Date.now() - since + (waits ?? 0) < KEY_MS_MAX
  return known ? waits : undefined
}

/** How long a failure is waited out; undefined: another attempt would meet the same, or do harm. */
function patience(world, call, failure, usual) {
  if (failure instanceof Lost) return call.method === 'GET' || call.key !== undefined ? usual : undefined
  if (!(failure instanceof SimseError) || failure.replayed) return undefined
  if (failure.code === 'NO_SERVER') return world.wasReached() ? usual : undefined
  if (failure.status === 401) return world.distrust() ? 0 : undefined
  if (failure.status !== 429 && failure.status !== 503) return undefined
  const asked = failure.retryAfter ?? 0
  return asked > RETRY_AFTER_SECONDS_MAX ? undefined : Math.max(usual, asked * 1000)
}

/** What a caller sees of a failure. */
function final(failure, operation) {
  if (!(failure instanceof Lost)) return failure
  return new SimseError('UNREACHABLE', failure.message, { operation, cause: failure.cause })
}

/**
 * Tries until there is an answer that stands. `take(response, signal)` makes the result of one, and may throw `Lost`.
 */
async function attempts(world, call, take) {
  const tooLate = () =>
    new SimseError('TIMEOUT', `${call.operation}: no answer within ${call.timeoutMs} ms`, { operation: call.operation })
  const link = linked([world.closed, call.signal], call.timeoutMs, tooLate)
  const since = Date.now()
  try {
    for (let attempt = 1; ; attempt += 1) {
      if (link.signal.aborted) throw link.signal.reason
      try {
        return await take(await once(world, call, link.signal), link.signal)
      } catch (failure) {
        const waits = link.signal.aborted ? undefined : again(world, call, { failure, attempt, since })
        if (waits === undefined) throw final(failure, call.operation)
        await pause(waits, link.signal)
      }
    }
  } finally {
    link.free()
  }
}

const kindOf = (value) => (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value)

/** Whether an answer has what those of an operation have, each of its kind, in one of the ways in which they may be. */
function fits(value, ways) {
  const has = ([name, kinds]) =>
    Object.hasOwn(value, name) && (kinds === '' || kinds.split('|').includes(kindOf(value[name])))
  return kindOf(value) === 'object' && ways.some((way) => Object.entries(way).every(has))
}

/** Calls, and gives back what the JSON or the text of the answer says. */
function exchange(world, call) {
  return attempts(world, call, async (response, signal) => {
    const text = await textOf(response, call, signal)
    if (!response.ok && !call.answers.includes(response.status)) throw refusal(call.operation, response, text)
    if (call.text) return text
    const bad = (what, cause) =>
      new SimseError('BAD_ANSWER', `${call.operation}: ${what}`, {
        status: response.status,
        operation: call.operation,
        cause,
      })
    let value
    try {
      value = JSON.parse(text)
    } catch (cause) {
      throw bad('the answer is no JSON', cause)
    }
    if (!fits(value, call.gives)) throw bad('the answer is not what this server gives')
    return value
  })
}

// list.js

/** All entries, one page in memory at a time. Nothing is asked for before it is iterated. */
class PagedList {
  #fetch
  #first
  #operation

  /** `fetch(cursor)` gets a page; `first` is the cursor of the first one, undefined for the list's beginning. */
  constructor(operation, first, fetch) {
    this.#operation = operation
    this.#first = first
    this.#fetch = fetch
  }

  /** One page: the first one, or that of a cursor. */
  page(cursor = this.#first) {
    return this.#fetch(cursor)
  }

  async *pages() {
    let cursor = this.#first
    for (;;) {
      const page = await this.#fetch(cursor)
      yield page
      const next = page.nextCursor ?? undefined
      if (next === undefined) return
      if (next === cursor) throw new SimseError('BAD_ANSWER', `${this.#operation}: a page leads to itself`)
      cursor = next
    }
  }

  async *[Symbol.asyncIterator]() {
    for await (const { items } of this.pages()) yield* items
  }
}

// stream.js

/** Between two lines that bring no event: after so long the pauses begin anew. */
const LINE_MS_GOOD = 10_000

/** Where the language does not have it yet, programs that were compiled for it name it the same. */
const ASYNC_DISPOSE = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')

/** Statuses that another try may not meet. */
const PASSING = new Set([408, 429, 500, 502, 503, 504])

/** Somebody between us and the server wants to know who we are: another try does not tell it. */
const CLOSED = new Set([401, 403])

/** Events as an async iterator. */
class EventStream {
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
class TurnStream extends EventStream {
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

// requests.js

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
async function answerRequests(client, eventTypes, { sessionId, handlers, options }) {
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

// operations.js

const operations = {
  'sessions.list': {
    kind: 'list',
    method: 'GET',
    path: '/sessions',
    parameters: [],
    query: { cursor: true, limit: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { items: 'array', nextCursor: 'string|null' },
    ],
  },
  'sessions.create': {
    kind: 'call',
    method: 'POST',
    path: '/sessions',
    parameters: [],
    query: {},
    body: true,
    key: true,
    version: false,
    answers: [],
    gives: [
      { agent: 'string', createdAt: 'number', lastSeq: 'number', messageCount: 'number', model: 'string', permissionMode: '', queued: 'number', reasoning: '', sessionId: 'string', status: '', updatedAt: 'number', usage: 'object', version: 'number', workingDirectory: 'string' },
    ],
  },
  'sessions.get': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}',
    parameters: ['sessionId'],
    query: { snapshot: true, limit: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { agent: 'string', createdAt: 'number', lastSeq: 'number', messageCount: 'number', model: 'string', permissionMode: '', queued: 'number', reasoning: '', sessionId: 'string', status: '', updatedAt: 'number', usage: 'object', version: 'number', workingDirectory: 'string' },
    ],
  },
  'sessions.configure': {
    kind: 'call',
    method: 'PATCH',
    path: '/sessions/{sessionId}',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { agent: 'string', createdAt: 'number', lastSeq: 'number', messageCount: 'number', model: 'string', permissionMode: '', queued: 'number', reasoning: '', sessionId: 'string', status: '', updatedAt: 'number', usage: 'object', version: 'number', workingDirectory: 'string' },
    ],
  },
  'sessions.delete': {
    kind: 'call',
    method: 'DELETE',
    path: '/sessions/{sessionId}',
    parameters: ['sessionId'],
    query: {},
    body: false,
    key: true,
    version: true,
    answers: [],
    gives: [
      { deleted: 'boolean' },
    ],
  },
  'sessions.prompt': {
    kind: 'prompt',
    method: 'POST',
    path: '/sessions/{sessionId}/prompt',
    parameters: ['sessionId'],
    query: { wait: true },
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { createdAt: 'number', prompt: 'string', rounds: 'number', sessionId: 'string', status: '', turnId: 'string', usage: 'object' },
      { status: '', turnId: 'string', version: 'number' },
    ],
    follow: 'sessions.events',
    record: 'sessions.turn',
  },
  'sessions.compact': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/compact',
    parameters: ['sessionId'],
    query: { wait: true },
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { createdAt: 'number', prompt: 'string', rounds: 'number', sessionId: 'string', status: '', turnId: 'string', usage: 'object' },
      { status: '', turnId: 'string', version: 'number' },
    ],
  },
  'sessions.abort': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/abort',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { aborted: 'boolean', turnId: 'string' },
    ],
  },
  'sessions.interrupt': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/interrupt',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { interrupted: 'boolean', turnId: 'string' },
    ],
  },
  'sessions.pause': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/pause',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { paused: 'boolean', status: '', turnId: 'string' },
    ],
  },
  'sessions.resume': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/resume',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { resumed: 'boolean', turnId: 'string' },
    ],
  },
  'sessions.feedback': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/feedback',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { requestId: 'string' },
    ],
  },
  'sessions.events': {
    kind: 'events',
    method: 'GET',
    path: '/sessions/{sessionId}/events',
    parameters: ['sessionId'],
    query: { after: true, types: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [],
  },
  events: {
    kind: 'events',
    method: 'GET',
    path: '/events',
    parameters: [],
    query: { after: true, types: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [],
  },
  'sessions.history': {
    kind: 'list',
    method: 'GET',
    path: '/sessions/{sessionId}/history',
    parameters: ['sessionId'],
    query: { cursor: true, limit: true, events: true, back: true, types: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { items: 'array', nextCursor: 'string|null' },
    ],
  },
  'sessions.agent': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}/agent',
    parameters: ['sessionId'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { agent: 'string', chosen: 'object', commands: 'array', options: 'array', plans: 'array' },
    ],
  },
  'sessions.turns': {
    kind: 'list',
    method: 'GET',
    path: '/sessions/{sessionId}/turns',
    parameters: ['sessionId'],
    query: { cursor: true, limit: true, hidden: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { items: 'array', nextCursor: 'string|null' },
    ],
  },
  'sessions.turn': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}/turns/{turnId}',
    parameters: ['sessionId', 'turnId'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { createdAt: 'number', prompt: 'string', rounds: 'number', sessionId: 'string', status: '', turnId: 'string', usage: 'object' },
    ],
  },
  'sessions.files': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}/files',
    parameters: ['sessionId'],
    query: { path: true, query: true, limit: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { entries: 'array', truncated: 'boolean' },
    ],
  },
  'sessions.diff': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}/diff',
    parameters: ['sessionId'],
    query: { turn: true, cursor: true, path: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { diffTruncated: 'boolean', fileCount: 'number', files: 'array', nextCursor: 'string|null', sessionId: 'string', truncatedCount: 'number', turns: 'array' },
    ],
  },
  'sessions.fork': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/fork',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { agent: 'string', createdAt: 'number', lastSeq: 'number', messageCount: 'number', model: 'string', permissionMode: '', queued: 'number', reasoning: '', sessionId: 'string', status: '', updatedAt: 'number', usage: 'object', version: 'number', workingDirectory: 'string' },
    ],
  },
  'sessions.undo': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/undo',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { files: 'array', turnIds: 'array', version: 'number' },
    ],
  },
  'sessions.redo': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/redo',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { files: 'array', turnIds: 'array', version: 'number' },
    ],
  },
  'sessions.decidePlan': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/plan',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: false,
    version: false,
    answers: [],
    gives: [
      { status: '', turnId: 'string', version: 'number' },
    ],
  },
  skills: {
    kind: 'call',
    method: 'GET',
    path: '/skills',
    parameters: [],
    query: { sessionId: true, workingDirectory: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { faults: 'array', skills: 'array' },
    ],
  },
  slashCommands: {
    kind: 'call',
    method: 'GET',
    path: '/commands',
    parameters: [],
    query: { sessionId: true, workingDirectory: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { commands: 'array', faults: 'array' },
    ],
  },
  'sessions.mcp': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}/mcp',
    parameters: ['sessionId'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { servers: 'array' },
    ],
  },
  'sessions.trustMcp': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/mcp/trust',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: false,
    version: false,
    answers: [],
    gives: [
      { servers: 'array' },
    ],
  },
  'sessions.askMcp': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/mcp/ask',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: false,
    version: false,
    answers: [],
    gives: [
      { result: '' },
    ],
  },
  'sessions.tokens': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}/tokens',
    parameters: ['sessionId'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { tokens: 'array' },
    ],
  },
  'sessions.createToken': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/tokens',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: false,
    version: false,
    answers: [],
    gives: [
      { createdAt: 'number', role: '', sessionId: 'string', token: 'string', tokenId: 'string' },
    ],
  },
  'sessions.revokeToken': {
    kind: 'call',
    method: 'DELETE',
    path: '/sessions/{sessionId}/tokens/{tokenId}',
    parameters: ['sessionId', 'tokenId'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { deleted: 'boolean' },
    ],
  },
  'sessions.children': {
    kind: 'list',
    method: 'GET',
    path: '/sessions/{sessionId}/children',
    parameters: ['sessionId'],
    query: { cursor: true, limit: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { items: 'array', nextCursor: 'string|null' },
    ],
  },
  'sessions.budget': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}/budget',
    parameters: ['sessionId'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { budgets: 'array' },
    ],
  },
  'runs.list': {
    kind: 'list',
    method: 'GET',
    path: '/runs',
    parameters: [],
    query: { sessionId: true, cursor: true, limit: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { items: 'array', nextCursor: 'string|null' },
    ],
  },
  'runs.get': {
    kind: 'call',
    method: 'GET',
    path: '/runs/{runId}',
    parameters: ['runId'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { agent: 'string', agentKind: '', createdAt: 'number', depth: 'number', model: 'string', prompt: 'string', rootSessionId: 'string', rounds: 'number', runId: 'string', sessionId: 'string', status: '', turnId: 'string', usage: 'object', workingDirectory: 'string' },
    ],
  },
  'runs.context': {
    kind: 'list',
    method: 'GET',
    path: '/runs/{runId}/context',
    parameters: ['runId'],
    query: { view: true, cursor: true, limit: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { run: 'object', summary: 'object' },
    ],
  },
  'runs.cancel': {
    kind: 'call',
    method: 'POST',
    path: '/runs/{runId}/cancel',
    parameters: ['runId'],
    query: {},
    body: true,
    key: false,
    version: false,
    answers: [],
    gives: [
      { cancelledRunIds: 'array' },
    ],
  },
  'blackboard.list': {
    kind: 'list',
    method: 'GET',
    path: '/sessions/{sessionId}/blackboard',
    parameters: ['sessionId'],
    query: { prefix: true, cursor: true, limit: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { items: 'array', nextCursor: 'string|null' },
    ],
  },
  'blackboard.clear': {
    kind: 'call',
    method: 'DELETE',
    path: '/sessions/{sessionId}/blackboard',
    parameters: ['sessionId'],
    query: {},
    body: false,
    key: true,
    version: false,
    answers: [],
    gives: [
      { deleted: 'boolean' },
    ],
  },
  'blackboard.get': {
    kind: 'call',
    method: 'GET',
    path: '/sessions/{sessionId}/blackboard/{key}',
    parameters: ['sessionId', 'key'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { key: 'string', updatedAt: 'number', value: '', version: 'number' },
    ],
  },
  'blackboard.put': {
    kind: 'call',
    method: 'PUT',
    path: '/sessions/{sessionId}/blackboard/{key}',
    parameters: ['sessionId', 'key'],
    query: {},
    body: true,
    key: true,
    version: true,
    answers: [],
    gives: [
      { key: 'string', updatedAt: 'number', value: '', version: 'number' },
    ],
  },
  'blackboard.delete': {
    kind: 'call',
    method: 'DELETE',
    path: '/sessions/{sessionId}/blackboard/{key}',
    parameters: ['sessionId', 'key'],
    query: {},
    body: false,
    key: true,
    version: true,
    answers: [],
    gives: [
      { deleted: 'boolean' },
    ],
  },
  'sessions.tasks': {
    kind: 'list',
    method: 'GET',
    path: '/sessions/{sessionId}/tasks',
    parameters: ['sessionId'],
    query: { cursor: true, limit: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { items: 'array', nextCursor: 'string|null' },
    ],
  },
  'tasks.create': {
    kind: 'call',
    method: 'POST',
    path: '/sessions/{sessionId}/tasks',
    parameters: ['sessionId'],
    query: {},
    body: true,
    key: true,
    version: false,
    answers: [],
    gives: [
      { blockedBy: 'array', blocks: 'array', createdAt: 'number', id: 'string', status: '', subject: 'string', updatedAt: 'number' },
    ],
  },
  'tasks.update': {
    kind: 'call',
    method: 'PATCH',
    path: '/sessions/{sessionId}/tasks/{taskId}',
    parameters: ['sessionId', 'taskId'],
    query: {},
    body: true,
    key: true,
    version: false,
    answers: [],
    gives: [
      { blockedBy: 'array', blocks: 'array', createdAt: 'number', id: 'string', status: '', subject: 'string', updatedAt: 'number' },
    ],
  },
  'tasks.delete': {
    kind: 'call',
    method: 'DELETE',
    path: '/sessions/{sessionId}/tasks/{taskId}',
    parameters: ['sessionId', 'taskId'],
    query: {},
    body: false,
    key: true,
    version: false,
    answers: [],
    gives: [
      { deleted: 'boolean' },
    ],
  },
  'permissions.explain': {
    kind: 'call',
    method: 'POST',
    path: '/permissions/explain',
    parameters: [],
    query: {},
    body: true,
    key: false,
    version: false,
    answers: [],
    gives: [
      { decision: '', parts: 'array', reason: 'string', source: '' },
    ],
  },
  'permissions.grants': {
    kind: 'list',
    method: 'GET',
    path: '/permissions/grants',
    parameters: [],
    query: { sessionId: true, cursor: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { items: 'array', nextCursor: 'string|null' },
    ],
  },
  'permissions.revoke': {
    kind: 'call',
    method: 'DELETE',
    path: '/permissions/grants/{grantId}',
    parameters: ['grantId'],
    query: { sessionId: true },
    body: false,
    key: true,
    version: true,
    answers: [],
    gives: [
      { deleted: 'boolean' },
    ],
  },
  tools: {
    kind: 'call',
    method: 'GET',
    path: '/tools',
    parameters: [],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { tools: 'array' },
    ],
  },
  agents: {
    kind: 'call',
    method: 'GET',
    path: '/agents',
    parameters: [],
    query: { workingDirectory: true },
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { agents: 'array', faults: 'array', types: 'array' },
    ],
  },
  models: {
    kind: 'call',
    method: 'GET',
    path: '/models',
    parameters: [],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { models: 'array' },
    ],
  },
  countTokens: {
    kind: 'call',
    method: 'POST',
    path: '/models/count-tokens',
    parameters: [],
    query: {},
    body: true,
    key: false,
    version: false,
    answers: [],
    gives: [
      { model: 'string', tokens: 'number' },
    ],
  },
  config: {
    kind: 'call',
    method: 'GET',
    path: '/config',
    parameters: [],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { settings: 'array' },
    ],
  },
  health: {
    kind: 'call',
    method: 'GET',
    path: '/health',
    parameters: [],
    query: { verbose: true },
    body: false,
    key: false,
    version: false,
    answers: [503],
    gives: [
      { checks: 'object', status: 'string', timestamp: 'string', version: 'string' },
    ],
  },
  proof: {
    kind: 'call',
    method: 'GET',
    path: '/proof/{nonce}',
    parameters: ['nonce'],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { proof: 'string' },
    ],
  },
  metrics: {
    kind: 'text',
    method: 'GET',
    path: '/metrics',
    parameters: [],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [],
  },
  openapi: {
    kind: 'call',
    method: 'GET',
    path: '/openapi.json',
    parameters: [],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { components: '', info: '', openapi: '', paths: '' },
    ],
  },
  nodes: {
    kind: 'call',
    method: 'GET',
    path: '/nodes',
    parameters: [],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { nodes: 'array' },
    ],
  },
  drain: {
    kind: 'call',
    method: 'POST',
    path: '/drain',
    parameters: [],
    query: {},
    body: false,
    key: false,
    version: false,
    answers: [],
    gives: [
      { draining: 'boolean', left: 'number' },
    ],
  },
}

/** The types of all events of sessions. */
const EVENT_TYPES = Object.freeze([
  'session.created',
  'session.prompt',
  'session.steer',
  'session.completed',
  'session.error',
  'session.configured',
  'turn.queued',
  'turn.control',
  'turn.paused',
  'turn.resumed',
  'loop.start',
  'loop.complete',
  'loop.doom_loop',
  'agent.session',
  'agent.plan',
  'agent.commands',
  'agent.options',
  'agent.usage',
  'agent.compaction',
  'stream.start',
  'stream.delta',
  'stream.reasoning',
  'stream.retry',
  'compaction.start',
  'compaction.complete',
  'compaction.failed',
  'compaction.prune',
  'stream.complete',
  'tool.call.start',
  'tool.call.output',
  'tool.call.end',
  'tool.call.error',
  'tool.timeout',
  'turn.complete',
  'turn.continued',
  'permission.request',
  'permission.response',
  'permission.granted',
  'permission.revoked',
  'client.request',
  'client.response',
  'client.notice',
  'client.display',
  'memory.add',
  'memory.search',
  'memory.delete',
  'turn.changes',
  'changes.undone',
  'changes.redone',
  'session.forked',
  'subagent.start',
  'subagent.queued',
  'subagent.complete',
  'subagent.error',
  'subagent.request',
  'subagent.response',
  'budget.warning',
  'budget.exceeded',
  'blackboard.set',
  'blackboard.delete',
  'task.create',
  'task.update',
  'task.delete',
  'abort',
])

// client.js

/** How long a call takes at most, all its attempts together. */
const TIMEOUT_MS = 60_000
/** How often a call is sent again. */
const RETRIES = 6
/** A line that says nothing for so long is dead: three comments of the server's are missing. */
const SILENCE_MS = 45_000
/** Between two looks for another token. */
const DISTRUST_MS = 1_000
/** How long a stream looks for a server that has gone. */
const GIVE_UP_MS = 300_000
/** How long a server that was found is taken for the one: after that it shows it again. */
const TRUST_MS = 1_000

/** The events of a turn behind which nothing of it comes. */
const TERMINAL = new Set(['session.completed', 'session.error', 'abort'])

const OPTIONS = ['baseUrl', 'token', 'clientId', 'dataDirectory', 'fetch', 'headers', 'timeoutMs', 'retries']
const STREAM_OPTIONS = ['silenceMs', 'giveUpMs', 'onReconnect']
const CALL_OPTIONS = ['signal', 'timeoutMs', 'headers']

/** Refuses options that do not exist: a misspelt one would do nothing. */
function checkNames(what, options, known) {
  if (options === null || typeof options !== 'object')
    throw new TypeError(`${what}: expected options, got ${shown(options)}`)
  const strange = Object.keys(options).find((name) => !known.includes(name))
  if (strange !== undefined)
    throw new TypeError(`${what}: unknown option \`${strange}\`; there are ${known.join(', ')}`)
}

function checkNumber(what, name, value, least) {
  if (value === undefined || (typeof value === 'number' && value >= least)) return
  throw new TypeError(`${what}: \`${name}\`: expected a number, ${least} or more, got ${shown(value)}`)
}

/** What stands behind `#`, and a slash at its end, are no part of an address that paths are added to. */
function checkedUrl(text) {
  let url
  try {
    url = new URL(text)
  } catch {
    throw new TypeError('createSimseClient: `baseUrl`: expected an address such as http://127.0.0.1:4100')
  }
  if (!/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash)
    throw new TypeError(
      'createSimseClient: `baseUrl`: expected http or https, and neither a name, a query nor a fragment',
    )
  return url.href.replace(/\/+$/, '')
}

/** Where the server is and what it wants to see, as told or as found. What was found is looked for anew when it does not answer. */
class Place {
  #find
  #found
  #foundAt = 0
  #reached = false
  /** Whether it could be another one the next time. */
  #fixed
  /** Whether the options say where it is. */
  #told
  #distrustedAt = Number.NEGATIVE_INFINITY

  constructor(options, find, send) {
    const { baseUrl, token } = options
    this.#told = baseUrl !== undefined
    this.#fixed = baseUrl !== undefined && typeof token !== 'function'
    const given = async () => (typeof token === 'function' ? await token() : token)
    if (baseUrl !== undefined) {
      const url = checkedUrl(baseUrl)
      this.#find = async () => ({ url, token: await given() })
    } else {
      this.#find = async () => {
        const found = await find(options, send)
        return { url: checkedUrl(found.url), token: token === undefined ? found.token : await given() }
      }
    }
  }

  locate() {
    // It may have gone since, and another program have its port.
    if (!this.#told && Date.now() - this.#foundAt > TRUST_MS) this.#found = undefined
    if (this.#found === undefined) {
      const found = this.#find()
      this.#found = found
      this.#foundAt = Number.POSITIVE_INFINITY
      found.then(
        () => {
          if (this.#found === found) this.#foundAt = Date.now()
        },
        () => this.#forget(found),
      )
    }
    return this.#found
  }

  #forget(found) {
    if (this.#found === found) this.#found = undefined
  }

  reached() {
    this.#reached = true
  }

  wasReached() {
    return this.#reached
  }

  lost() {
    this.#found = undefined
  }

  /** Whether a token that was refused is worth another look, which this is: it may have been made anew. Not again and again. */
  distrust() {
    if (this.#fixed || Date.now() - this.#distrustedAt < DISTRUST_MS) return false
    this.#distrustedAt = Date.now()
    this.#found = undefined
    return true
  }
}

/** What all calls of a client share. */
function worldOf(options, find) {
  checkNames('createSimseClient', options, OPTIONS)
  checkNumber('createSimseClient', 'timeoutMs', options.timeoutMs, 1)
  checkNumber('createSimseClient', 'retries', options.retries, 0)
  if (options.baseUrl !== undefined && options.dataDirectory !== undefined)
    throw new TypeError(
      'createSimseClient: `dataDirectory`: only without `baseUrl`, which says already where the server is',
    )
  const send = options.fetch ?? ((...request) => globalThis.fetch(...request))
  const place = new Place(options, find, send)
  const end = new AbortController()
  return {
    fetch: send,
    headers: options.headers,
    clientId: options.clientId,
    timeoutMs: options.timeoutMs ?? TIMEOUT_MS,
    retries: options.retries ?? RETRIES,
    closed: end.signal,
    close: () => end.abort(new SimseError('CLOSED', 'the client was closed')),
    locate: () => place.locate(),
    reached: () => place.reached(),
    wasReached: () => place.wasReached(),
    lost: () => place.lost(),
    distrust: () => place.distrust(),
  }
}

/** Takes the arguments of a method apart: names in the path, the body, options. */
function taken(name, operation, given) {
  const values = [...given]
  const parameters = Object.fromEntries(operation.parameters.map((parameter) => [parameter, values.shift()]))
  const body = operation.body ? values.shift() : undefined
  const options = values.shift() ?? {}
  if (values.length > 0) throw new TypeError(`${name}: too many arguments`)
  const known = [...CALL_OPTIONS, ...Object.keys(operation.query)]
  if (operation.key) known.push('idempotencyKey')
  if (operation.version) known.push('ifVersion')
  if (operation.kind === 'prompt') known.push('stream')
  if (operation.kind === 'events' || operation.kind === 'prompt') known.push(...STREAM_OPTIONS)
  checkNames(name, options, known)
  for (const [option, least] of [
    ['timeoutMs', 1],
    ['silenceMs', 1],
    ['giveUpMs', 0],
    ['ifVersion', 0],
  ])
    checkNumber(name, option, options[option], least)
  return { parameters, body, options }
}

/** A value of a query: lists are joined, as the server wants them. */
const inQuery = (value) => (Array.isArray(value) ? value.join(',') : value)

/** A request, ready to be sent. */
function callOf(world, name, { operation, parameters, body, options, leaves = [] }) {
  const query = {}
  for (const each of Object.keys(operation.query)) if (!leaves.includes(each)) query[each] = inQuery(options[each])
  return {
    operation: name,
    method: operation.method,
    address: addressOf({ operation: name, path: operation.path, parameters, query }),
    accept: operation.kind === 'text' ? '*/*' : 'application/json',
    text: operation.kind === 'text',
    answers: operation.answers,
    gives: operation.gives,
    body: operation.body ? JSON.stringify(body ?? {}) : undefined,
    key: operation.key ? (options.idempotencyKey ?? newKey()) : undefined,
    ifVersion: options.ifVersion,
    headers: options.headers,
    signal: options.signal,
    timeoutMs: options.timeoutMs ?? world.timeoutMs,
  }
}

/** Options of a stream, and what all of its lines have in common. */
function planOf(world, name, options) {
  return {
    operation: name,
    signal: options.signal,
    timeoutMs: options.timeoutMs ?? world.timeoutMs,
    silenceMs: options.silenceMs ?? SILENCE_MS,
    giveUpMs: options.giveUpMs ?? GIVE_UP_MS,
    onReconnect: options.onReconnect,
    gone: isGone,
    takes: () => true,
    ends: () => false,
  }
}

function events(world, name, given) {
  const { options } = given
  const base = { ...callOf(world, name, { ...given, leaves: ['after'] }), accept: 'text/event-stream' }
  const { after } = options
  const bare = base.address
  const begins = (cursor) => {
    if (cursor === undefined) return after === undefined ? base : { ...base, address: added(bare, 'after', after) }
    return { ...base, lastEventId: String(cursor) }
  }
  // A word such as `newest` is no place yet: the server says which one it is.
  const known = after === undefined || /^\d+$/.test(String(after))
  const start = known ? String(after ?? 0) : undefined
  const plan = { ...planOf(world, name, options), after: start, first: begins, next: begins }
  // What is not of one session outlives all of them.
  if (given.operation.parameters.length === 0) plan.gone = () => false
  return new EventStream(world, plan)
}

const added = (address, name, value) =>
  `${address}${address.includes('?') ? '&' : '?'}${name}=${encodeURIComponent(String(value))}`

/** Sends a prompt and follows its turn. A line that breaks is taken up again in the session's own stream. */
async function turnOf(world, name, given) {
  const { options, parameters, operation } = given
  const begun = Date.now()
  const first = { ...callOf(world, name, { ...given, leaves: ['wait'] }), accept: 'text/event-stream' }
  const follow = operations[operation.follow]
  const next = callOf(world, name, { operation: follow, parameters, options: { headers: options.headers } })
  const turn = { id: undefined }
  const stream = new TurnStream(
    world,
    {
      ...planOf(world, name, options),
      first: () => first,
      next: (cursor) => ({ ...next, accept: 'text/event-stream', lastEventId: cursor }),
      ready: (frame) => {
        turn.id ??= frame.turnId
      },
      takes: (event) => event.turnId === turn.id,
      ends: (event) => event.turnId === turn.id && TERMINAL.has(event.type),
      // Not accepted as far as we know, and soon too old to be sent again.
      stale: () => turn.id === undefined && Date.now() - begun > KEY_MS_MAX,
    },
    turn,
  )
  await stream.open()
  if (turn.id === undefined) throw (options.signal?.aborted && options.signal.reason) || world.closed.reason
  return stream
}

/** Sends a prompt and waits for the end of its turn, however long that takes: the line is kept open by the server's comments. */
async function waited(world, name, given) {
  const { options, parameters, operation } = given
  const late = new AbortController()
  const reason = () => new SimseError('TIMEOUT', `${name}: no end within ${options.timeoutMs} ms`, { operation: name })
  const inTime = later(options.timeoutMs ?? Number.POSITIVE_INFINITY, () => late.abort(reason()))
  const unfollow = options.signal && follow(options.signal, (reason) => late.abort(reason))
  try {
    const { timeoutMs: _, ...rest } = options
    const stream = await turnOf(world, name, { ...given, options: { ...rest, signal: late.signal } })
    let done = false
    while (!done) ({ done } = await stream.next())
    if (late.signal.aborted) throw late.signal.reason
    const read = { operation: operations[operation.record], body: undefined, options: { signal: late.signal } }
    return await exchange(world, callOf(world, name, { ...read, parameters: { ...parameters, turnId: stream.turnId } }))
  } finally {
    inTime()
    unfollow?.()
  }
}

/** How each kind of operation is carried out. */
const KINDS = {
  call: async (world, name, given) => exchange(world, callOf(world, name, given)),
  text: async (world, name, given) => exchange(world, callOf(world, name, given)),
  list(world, name, given) {
    const page = async (cursor) =>
      exchange(world, callOf(world, name, { ...given, options: { ...given.options, cursor } }))
    return new PagedList(name, given.options.cursor, page)
  },
  events,
  async prompt(world, name, given) {
    const { stream, wait } = given.options
    if (stream && wait) throw new TypeError(`${name}: \`stream\` and \`wait\` exclude each other`)
    if (stream) return turnOf(world, name, given)
    if (wait) return waited(world, name, given)
    return exchange(world, callOf(world, name, { ...given, leaves: ['wait'] }))
  },
}

/** Makes a client. `find` looks for the server where the options do not say. */
function makeClient(options, find) {
  const world = worldOf({ ...options }, find)
  const client = {}
  for (const [name, operation] of Object.entries(operations)) {
    const [group, member] = name.includes('.') ? name.split('.') : [undefined, name]
    if (group !== undefined && client[group] === undefined) client[group] = {}
    const into = group === undefined ? client : client[group]
    into[member] = (...given) => KINDS[operation.kind](world, name, { operation, ...taken(name, operation, given) })
  }
  client.sessions.answer = (sessionId, handlers, more = {}) =>
    answerRequests(client, EVENT_TYPES, { sessionId, handlers, options: more })
  client.close = () => world.close()
  for (const each of Object.values(client)) Object.freeze(each)
  return Object.freeze(client)
}

// local.js

/** Largest file of the data directory that is read, in bytes. */
const FILE_BYTES_MAX = 1 << 20
/** How long a server may take to show that it is the one. */
const PROOF_MS = 10_000
/** How long one that has just been started may take to say where it is: it listens a little before. */
const ANNOUNCED_MS = 500
/** Pause between two looks for that. */
const LOOK_MS = 50

/** The content of a small file; undefined: there is none. */
async function read(path) {
  const { open } = await import('node:fs/promises')
  let file
  try {
    file = await open(path, 'r')
    const { size } = await file.stat()
    if (size > FILE_BYTES_MAX) throw unfound(`${path} is larger than ${FILE_BYTES_MAX} bytes`)
    return await file.readFile('utf8')
  } catch (cause) {
    if (cause.code === 'ENOENT') return undefined
    throw cause instanceof SimseError ? cause : unfound(`${path} cannot be read: ${cause.message}`, cause)
  } finally {
    await file?.close()
  }
}

function unfound(problem, cause) {
  return new SimseError('NO_SERVER', `createSimseClient: no server was found: ${problem}`, { cause })
}

/** A variable that says something. */
function variable(name) {
  const value = process.env[name]
  return value === undefined || value === '' ? undefined : value
}

/** The data directory as the program finds it: the variable, the configuration file, the usual place. */
async function dataDirectory() {
  const { dirname, isAbsolute, join, resolve } = await import('node:path')
  const { homedir } = await import('node:os')
  const named = variable('SIMSE_DATA_DIR')
  if (named !== undefined) return resolve(named)
  const base = (name, below) => {
    const given = variable(name)
    return given !== undefined && isAbsolute(given) ? given : join(variable('HOME') ?? homedir(), below)
  }
  const config = resolve(variable('SIMSE_CONFIG') ?? join(base('XDG_CONFIG_HOME', '.config'), 'simse', 'config.toml'))
  const text = await read(config)
  const said = text === undefined ? undefined : dataDirIn(text)
  return said === undefined ? join(base('XDG_DATA_HOME', '.local/share'), 'simse') : resolve(dirname(config), said)
}

/** `data_dir` of a configuration file: it stands before the first table. */
function dataDirIn(text) {
  const head = text.split(/^[ \t]*\[/m, 1)[0]
  const found = /^[ \t]*data_dir[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')/m.exec(head)
  if (found === null) return undefined
  return found[2] ?? JSON.parse(`"${found[1]}"`)
}

/** Has whoever listens at `url` show that it has the key, which is not sent. */
async function checkProof({ url, key }, send) {
  const { createHmac, randomBytes } = await import('node:crypto')
  const nonce = randomBytes(32).toString('hex')
  const strange = (cause) => unfound(`what listens at ${url} is not the server that \`server.json\` tells of`, cause)
  let response
  let text
  try {
    const signal = AbortSignal.timeout(PROOF_MS)
    const init = { method: 'GET', headers: { accept: 'application/json' }, redirect: 'error', signal }
    response = await send(`${url}/proof/${nonce}`, init)
    text = await response.text()
  } catch (cause) {
    throw new Lost(`no answer from ${url}: ${wordsOf(cause)}`, { cause })
  }
  // It may be the one, and has no time.
  if (response.status === 429 || response.status === 503) throw refusal('proof', response, text)
  let proof
  try {
    proof = JSON.parse(text).proof
  } catch (cause) {
    throw strange(cause)
  }
  if (proof !== createHmac('sha256', key).update(`simse proof ${nonce}`).digest('hex')) throw strange()
}

/** Whether another server says there that it is the one, now or in a moment. */
async function isAnnouncedAnew(directory, text) {
  const { join } = await import('node:path')
  const { setTimeout: pause } = await import('node:timers/promises')
  for (let waited = 0; waited < ANNOUNCED_MS; waited += LOOK_MS) {
    const now = await read(join(directory, 'server.json'))
    if (now !== undefined && now !== text) return true
    await pause(LOOK_MS)
  }
  return false
}

/** Address and token of the server that has the data directory. */
async function findLocal(options, send) {
  const { join } = await import('node:path')
  const directory = options.dataDirectory ?? (await dataDirectory())
  const text = await read(join(directory, 'server.json'))
  if (text === undefined) throw unfound(`no server runs on ${directory} (\`npx simse serve\` starts one)`)
  let said
  try {
    said = JSON.parse(text)
  } catch (cause) {
    throw unfound(`${join(directory, 'server.json')} is no JSON`, cause)
  }
  if (typeof said?.url !== 'string' || typeof said.key !== 'string' || said.key === '')
    throw unfound(`${join(directory, 'server.json')} does not say where a server is and how to know it`)
  try {
    await checkProof(said, send)
  } catch (failure) {
    if (failure instanceof SimseError && failure.code === 'NO_SERVER' && (await isAnnouncedAnew(directory, text)))
      throw new Lost(`a server has just been started at ${said.url}`, { cause: failure })
    throw failure
  }
  // A server that wants none has no file, or an old one that does no harm.
  const token = (await read(join(directory, 'token')))?.trim()
  return { url: said.url, token: token === '' ? undefined : token }
}

/** Creates a client; nothing is read or sent before the first call. */
function createSimseClient(options = {}) {
  return makeClient(options, findLocal)
}

module.exports = { createSimseClient, EVENT_TYPES, SimseError }
