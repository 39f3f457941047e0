/** What the client throws: one class, with the server's own code where the server said one. */

/** Answers of the server that are no errors of ours to explain further. */
const SAID_NOTHING = 'the server gave no reason'

/** A call that failed. */
export class SimseError extends Error {
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
export function retryAfterOf(headers) {
  const text = headers.get('retry-after')
  if (text === null) return undefined
  if (/^\d+$/.test(text.trim())) return Number.isSafeInteger(Number(text)) ? Number(text) : undefined
  const at = Date.parse(text)
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - Date.now()) / 1000))
}

/** What an answer says that is no success. */
export function refusal(operation, response, text) {
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
export function foreign(failure) {
  foreigners.add(failure)
  return failure
}

export const isForeign = (failure) => foreigners.has(failure)

/** Whether the server itself says that there is no such thing. */
export const isGone = (failure) =>
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
