/** The one kind of error that callers see: an Error with `code`, `statusCode`, `metadata` and `toJSON()`. */
'use strict'

const { isNativeError } = require('node:util/types')

/** The HTTP status that goes with a code; 500 for the others. */
const STATUS = {
  CONFIG_VALIDATION: 400,
  TOOL_NOT_FOUND: 404,
  PERMISSION_DENIED: 403,
  TASK_NOT_FOUND: 404,
  TASK_CIRCULAR_DEPENDENCY: 409,
  TASK_LIMIT: 429,
  OPERATION_TIMEOUT: 504,
  MCP_CONNECTION_ERROR: 503,
  MCP_NOT_CONNECTED: 503,
  MCP_TOOL_ERROR: 502,
  PROVIDER_ERROR: 502,
  PROVIDER_UNAVAILABLE: 503,
  PROVIDER_TIMEOUT: 504,
  PORT_IN_USE: 409,
  DATA_DIRECTORY_IN_USE: 409,
  SERVER_STATE: 409,
}

function toJSON() {
  const { name, code, statusCode, message, metadata } = this
  return { name, code, statusCode, message, metadata, ...(this.issues && { issues: this.issues }) }
}

/**
 * Makes an error.
 * @param {string} code - stable, such as `TOOL_NOT_FOUND`
 * @param {string} message - one sentence for a person
 * @param {{ metadata?: object, cause?: unknown, issues?: readonly object[] }} [more]
 */
function simseError(code, message, more = {}) {
  const error = more.cause === undefined ? new Error(message) : new Error(message, { cause: more.cause })
  if (Error.captureStackTrace) Error.captureStackTrace(error, simseError)
  return decorate(error, code, more)
}

function decorate(error, code, { metadata = {}, issues } = {}) {
  const hidden = (value) => ({ value, enumerable: false, configurable: true, writable: true })
  Object.defineProperties(error, {
    name: hidden('SimseError'),
    code: { value: code, enumerable: true },
    statusCode: { value: STATUS[code] ?? 500, enumerable: true },
    metadata: { value: Object.freeze(issues ? { ...metadata, issues } : { ...metadata }), enumerable: true },
    toJSON: hidden(toJSON),
  })
  if (issues) Object.defineProperty(error, 'issues', { value: issues, enumerable: true })
  return error
}

/**
 * `CONFIG_VALIDATION` with its list of issues.
 * @param {string} what - what was validated, such as `createSimseServer`
 * @param {readonly { path: string, message: string }[]} issues
 */
function invalid(what, issues) {
  const frozen = Object.freeze(issues.map((issue) => Object.freeze({ ...issue })))
  const said = frozen.map(({ path, message }) => (path ? `${path}: ${message}` : message)).join('; ')
  return simseError('CONFIG_VALIDATION', `${what}: ${said}`, { issues: frozen })
}

const MARK = '\u0001simse:'

/** Turns what the addon threw or rejected with into an error of ours; others pass as they are. */
function revive(cause) {
  if (!isNativeError(cause) || !cause.message.startsWith(MARK)) return cause
  const { code, message, data } = JSON.parse(cause.message.slice(MARK.length))
  const { issues, ...metadata } = data ?? {}
  return simseError(code, message, { metadata, issues })
}

/** The words of whatever was thrown; never throws itself. */
function messageOf(thrown) {
  try {
    if (isNativeError(thrown) || thrown instanceof Error) return String(thrown.message)
    return String(thrown)
  } catch {
    return 'something that has no text was thrown'
  }
}

module.exports = { simseError, invalid, revive, messageOf }
