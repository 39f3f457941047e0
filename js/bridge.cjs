/**
 * Where Rust calls JavaScript. Rust knows objects by number only and holds none of them: an object lives
 * as long as its facade, and while a call that needs it is under way.
 */
'use strict'

const native = require('./load.cjs')
const { assertFits, integer, oneOf, optional, shape, string } = require('./check.cjs')
const { messageOf, revive } = require('./errors.cjs')
const { toJson } = require('./json.cjs')

/** Number → weak reference to an object with `handle(operation, input, call)`. */
const targets = new Map()
const forget = new FinalizationRegistry((target) => targets.delete(target))
/** Sequence → call under way. */
const running = new Map()
/** Batch number → what takes its events. */
const batches = new Map()
let last = 0

/** What a question comes to when the call that asked has answered. */
const OVER = Object.freeze({ cancelled: true, by: 'abort', reason: 'the call that asked is over' })
const noticeLevel = oneOf('info', 'warning', 'error')
const askOptions = shape({ timeoutMs: optional(integer(1)) })

/** What `push` answers (src/node/feed.rs). */
const UNWANTED = 0
const FULL = 2

/** A promise and what resolves it. */
function deferred() {
  let resolve
  const promise = new Promise((resolved) => {
    resolve = resolved
  })
  return { promise, resolve }
}

/** A call that Rust made. Its signal is made when somebody asks for it. */
class Call {
  #controller = null
  #aborted = false
  #room = null
  #sequence

  constructor(sequence) {
    this.#sequence = sequence
  }

  /** Asks the clients of the session that the call belongs to. */
  ask = async (question, options = {}) => {
    assertFits('ask', askOptions, options, 'options')
    if (!running.has(this.#sequence)) return OVER
    try {
      const asked = { question: question ?? null, ...options }
      return Object.freeze(JSON.parse(await bridge.ask(this.#sequence, toJson(asked))))
    } catch (cause) {
      throw revive(cause)
    }
  }

  /** Shows them a notice. False: there is no session, or no longer. */
  notify = (text, level = 'info') => {
    assertFits('notify', string, text, 'text')
    assertFits('notify', noticeLevel, level, 'level')
    try {
      return bridge.notice(this.#sequence, toJson({ text, level }))
    } catch (cause) {
      throw revive(cause)
    }
  }

  /** Puts something onto their screens. False: there is no session, or no longer. */
  show = (display) => {
    try {
      return bridge.show(this.#sequence, toJson(display ?? null))
    } catch (cause) {
      throw revive(cause)
    }
  }

  get signal() {
    if (this.#controller === null) {
      this.#controller = new AbortController()
      if (this.#aborted) this.#controller.abort()
    }
    return this.#controller.signal
  }

  abort() {
    this.#aborted = true
    this.#controller?.abort()
    this.drain()
  }

  /** Hands over a batch of an answer that comes in pieces; false: nobody wants it any more. */
  push(batch) {
    const said = bridge.push(this.#sequence, batch)
    if (said === FULL && this.#room === null) this.#room = deferred()
    return said !== UNWANTED
  }

  /** Waits until there is room for more; undefined where there is. */
  room() {
    return this.#room?.promise
  }

  /** There is room again. */
  drain() {
    this.#room?.resolve()
    this.#room = null
  }
}

/** An input that was refused before a handler ran. */
class BadInput extends Error {}

async function run(sequence, target, operation, input) {
  const call = new Call(sequence)
  running.set(sequence, call)
  try {
    const object = targets.get(target)?.deref()
    if (object === undefined) throw new Error('the object that this call is for is gone')
    answer(sequence, 0, await object.handle(operation, input, call))
  } catch (cause) {
    answer(sequence, cause instanceof BadInput ? 2 : 1, messageOf(cause))
  } finally {
    running.delete(sequence)
  }
}

function invoke([sequence, target, operation, input]) {
  if (operation === 'abort') running.get(sequence)?.abort()
  else if (operation === 'drain') running.get(sequence)?.drain()
  else if (operation === 'events') batches.get(target)?.()
  else if (operation === 'release') targets.get(target)?.deref()?.release(sequence)
  else run(sequence, target, operation, input)
}

/** Takes all calls that wait. None of them can stop the others: what fails in one is its answer. */
const bridge = new native.NativeBridge(() => {
  for (const each of JSON.parse(bridge.take())) invoke(each)
})

let sequences = []
let statuses = []
let texts = []

/** Answers that come at one time go back together. */
function answer(sequence, status, text) {
  sequences.push(sequence)
  statuses.push(status)
  texts.push(String(text))
  if (sequences.length === 1) process.nextTick(flush)
}

function flush() {
  const all = [sequences, statuses, texts]
  sequences = []
  statuses = []
  texts = []
  if (all[0].length === 1) bridge.settle(all[0][0], all[1][0], all[2][0])
  else bridge.settleAll(...all)
}

/** Gives an object a number by which Rust can call it. */
function addTarget(object) {
  const target = ++last
  targets.set(target, new WeakRef(object))
  forget.register(object, target)
  return target
}

/** Calls `onEvents` whenever events of a batch wait; returns its number. */
function openBatch(onEvents) {
  const batch = ++last
  batches.set(batch, onEvents)
  return batch
}

function closeBatch(batch) {
  batches.delete(batch)
}

/** Signal → the handles that it cancels. One listener for each signal, however many calls wait on it. */
const fans = new WeakMap()

/**
 * The sources of an `AbortSignal.any()`. Node 20 holds them weakly even while somebody listens, so that one that nobody else holds, such as an
 * `AbortSignal.timeout()`, would never fire.
 */
function sourcesOf(signal) {
  const hidden = Object.getOwnPropertySymbols(signal).find((symbol) => symbol.description === 'kSourceSignals')
  const sources = hidden && signal[hidden]
  return typeof sources?.[Symbol.iterator] === 'function' ? Array.from(sources, (source) => source?.deref?.()) : []
}

/** Makes a handle that the signal cancels, and holds the signal with all that it hangs on. `release` when the call is over. */
function cancelHandle(signal) {
  const handle = new native.CancelHandle()
  if (signal.aborted) {
    handle.cancel()
    return { handle, release() {} }
  }
  let fan = fans.get(signal)
  if (fan === undefined) {
    fan = { handles: new Set(), listener: null, sources: sourcesOf(signal) }
    fan.listener = () => {
      for (const each of fan.handles) each.cancel()
    }
    fans.set(signal, fan)
    signal.addEventListener('abort', fan.listener, { once: true })
  }
  fan.handles.add(handle)
  return {
    handle,
    release() {
      fan.handles.delete(handle)
      if (fan.handles.size > 0 || fans.get(signal) !== fan) return
      fans.delete(signal)
      signal.removeEventListener('abort', fan.listener)
    },
  }
}

module.exports = { native, bridge, addTarget, openBatch, closeBatch, cancelHandle, BadInput }
