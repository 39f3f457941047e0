/**
 * Requests: put together, sent, and sent again where that can do no harm.
 *
 * A write carries a key, so that the server does it once however often it is sent; a read changes nothing. Anything else is sent
 * again only when the server said that it has not touched it.
 */

import { refusal, SimseError } from './errors.js'
import { follow, linked, pause, pauseMs } from './time.js'

/** The longest that a `Retry-After` is followed; a longer one is the caller's to wait for. */
export const RETRY_AFTER_SECONDS_MAX = 30
/** The server knows a key for ten minutes. Past the half of it nothing is sent again: it might be done a second time. */
export const KEY_MS_MAX = 300_000

/** The path and query of a call. */
export function addressOf({ operation, path, parameters, query }) {
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
export function shown(value) {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`
}

/** A name for a write that nothing else has. */
export function newKey() {
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
export class Lost extends Error {}

/** Sends a request once. Rejects with `Lost`, with what a signal was fired with, or with what is wrong about the place. */
export async function once(world, call, signal) {
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
export function wordsOf(cause) {
  const inner = cause?.cause?.code ?? cause?.cause?.message
  return inner ? `${cause.message} (${inner})` : String(cause?.message ?? cause)
}

/** Reads an answer to its end. */
export async function textOf(response, call, signal) {
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
export function final(failure, operation) {
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
export function exchange(world, call) {
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
