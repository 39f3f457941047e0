/**
 * What a model's failure means: whether another try may help is told by types and codes, never by words.
 */
'use strict'

const { messageOf } = require('./errors.cjs')

/** How many causes of causes are looked at. */
const DEPTH_MAX = 8
/** The longest wait that a header can ask for, a day. */
const MS_MAX = 86_400_000

/** What systems, resolvers and undici call a connection that did not come about, or broke. */
const TRANSIENT_CODES = new Set([
  'EAI_AGAIN',
  'ECONNABORTED',
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETDOWN',
  'ENETRESET',
  'ENETUNREACH',
  'ENOTFOUND',
  'EPIPE',
  'ERR_STREAM_PREMATURE_CLOSE',
  'ETIMEDOUT',
  'UND_ERR_BODY_TIMEOUT',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_SOCKET',
])
/** Codes of this package, which say more than the status that goes with them. */
const OURS = new Map([
  ['CONFIG_VALIDATION', 'refused'],
  ['LOOP_ERROR', 'unavailable'],
  ['MCP_CONNECTION_ERROR', 'transient'],
  ['MCP_ERROR', 'unavailable'],
  ['MCP_NOT_CONNECTED', 'transient'],
  ['MCP_TOOL_ERROR', 'unavailable'],
  ['OPERATION_TIMEOUT', 'transient'],
  ['PROVIDER_ERROR', 'unavailable'],
  ['PROVIDER_TIMEOUT', 'transient'],
  ['PROVIDER_UNAVAILABLE', 'transient'],
  ['TOOL_EXECUTION_ERROR', 'unavailable'],
  ['TOOL_NOT_FOUND', 'refused'],
])

/** Codes by which anybody can say what else a failure may be, as the server's own models do. */
const SAID = new Map([
  ['CONTEXT_OVERFLOW', 'context_overflow'],
  ['context_length_exceeded', 'context_overflow'],
  ['QUOTA', 'quota'],
  ['insufficient_quota', 'quota'],
  ['CONTENT_FILTER', 'content_filter'],
  ['content_filter', 'content_filter'],
])

/** What an HTTP status says about another try. */
function kindOfStatus(status) {
  if (status === 408 || status === 425 || status === 429 || status >= 500) return 'transient'
  if (status === 401 || status === 403) return 'unauthorized'
  return status >= 400 ? 'refused' : undefined
}

const isObject = (value) => typeof value === 'object' && value !== null

/** A failure and its causes, outermost first. */
function* chainOf(thrown) {
  let each = thrown
  for (let depth = 0; depth < DEPTH_MAX && isObject(each); depth++) {
    yield each
    each = each.cause
  }
}

/** What one error of the chain says: `transient`, another kind, or nothing. */
function kindOf(error) {
  const said = SAID.get(error.code) ?? SAID.get(error.data?.error?.code)
  if (said !== undefined) return said
  const status = [error.statusCode, error.status].find((value) => Number.isInteger(value) && value >= 400)
  const byStatus = status === undefined ? undefined : kindOfStatus(status)
  const retryable = error.retryable ?? error.isRetryable
  if (retryable === true) return 'transient'
  if (retryable === false) return byStatus === undefined || byStatus === 'transient' ? 'refused' : byStatus
  const ours = OURS.get(error.code)
  if (ours !== undefined || byStatus !== undefined) return ours ?? byStatus
  if (TRANSIENT_CODES.has(error.code) || error.name === 'TimeoutError') return 'transient'
  if (typeof error.retryAfterMs === 'number') return 'transient'
  return undefined
}

/** A header, out of a `Headers` or an object of texts. */
function header(headers, name) {
  const value = typeof headers?.get === 'function' ? headers.get(name) : headers?.[name]
  return typeof value === 'string' ? value.trim() : undefined
}

/** A `retry-after` in milliseconds. */
function headerMs(headers) {
  const exact = header(headers, 'retry-after-ms')
  if (exact) return Number(exact)
  const given = header(headers, 'retry-after')
  if (!given) return undefined
  return /^\d+(?:\.\d+)?$/.test(given) ? Number(given) * 1000 : Date.parse(given) - Date.now()
}

/** How long the other side asks to wait, if it does. */
function retryAfterOf(error) {
  const asked = [error.retryAfterMs, headerMs(error.responseHeaders ?? error.headers)]
  const ms = asked.find((value) => Number.isFinite(value) && value >= 0)
  return ms === undefined ? undefined : Math.min(Math.ceil(ms), MS_MAX)
}

/** Its words, and those of a cause that says more: `fetch failed` alone tells nobody anything. */
function wordsOf(thrown) {
  const own = isObject(thrown) && typeof thrown.message === 'string' ? thrown.message : messageOf(thrown)
  const cause = isObject(thrown) && isObject(thrown.cause) ? messageOf(thrown.cause) : ''
  return cause && !own.includes(cause) ? `${own}: ${cause}` : own
}

/** What was thrown, looked at from outside: what throws when it is read says nothing. */
function readFailure(thrown) {
  try {
    for (const error of chainOf(thrown)) {
      const kind = kindOf(error)
      if (kind !== undefined) return { kind, retryAfterMs: kind === 'transient' ? retryAfterOf(error) : undefined }
    }
  } catch {
    // As if it said nothing.
  }
  return { kind: 'unavailable' }
}

/**
 * What a model threw, as Rust reads it (src/node/chunks.rs): `{message, kind, retryAfterMs?}`. What says nothing of itself is
 * `unavailable`: it is not tried again, and another model may do better.
 */
function failureOf(thrown, id) {
  let words
  try {
    words = wordsOf(thrown)
  } catch {
    words = messageOf(thrown)
  }
  return { message: `the model "${id}" failed: ${words}`, ...readFailure(thrown) }
}

module.exports = { failureOf, readFailure, wordsOf }
