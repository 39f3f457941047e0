/** The client: one method for each operation of the server, made from the table that the OpenAPI document gives. */

import { addressOf, exchange, KEY_MS_MAX, newKey, shown } from './call.js'
import { isGone, SimseError } from './errors.js'
import { PagedList } from './list.js'
import { EVENT_TYPES, operations } from './operations.js'
import { answerRequests } from './requests.js'
import { EventStream, TurnStream } from './stream.js'
import { follow, later } from './time.js'

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
export function makeClient(options, find) {
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
