/** `execute` and `batchExecute`: one crossing each, and the events around it. */
'use strict'

const { bridge, cancelHandle, closeBatch, native, openBatch } = require('./bridge.cjs')
const { publishTo } = require('./bus.cjs')
const { describe, plain } = require('./check.cjs')
const { invalid, messageOf, revive, simseError } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { newCallId } = require('./tool-text.cjs')

const CONCURRENCY = 8
/** Arguments inside arguments, at most: what reads JSON has an end somewhere. */
const NESTED_MAX = 100
const NESTED = `arguments: nested more than ${NESTED_MAX} deep`

/** The engine's codes in the words of this package. */
const CODES = { NOT_FOUND: 'TOOL_NOT_FOUND', FORBIDDEN: 'PERMISSION_DENIED', TIMEOUT: 'OPERATION_TIMEOUT' }

/** What a failed call is on the bus: an Error. */
function failureOf(failure, name, output) {
  return simseError(CODES[failure?.code] ?? 'TOOL_EXECUTION_ERROR', failure?.message ?? output, {
    metadata: { tool: name },
  })
}

function checkSignal(signal) {
  const usable = signal === undefined || signal === null || typeof signal.addEventListener === 'function'
  if (!usable)
    throw invalid('execute', [{ path: 'signal', message: `expected an AbortSignal, got ${describe(signal)}` }])
}

/** A call as Rust reads it, and what is wrong with one that it need not read. What throws when it is read is no call. */
function readCall(call) {
  try {
    return readMembers(call)
  } catch (cause) {
    const request = { id: newCallId(), name: '', arguments: {} }
    return { request, problem: `a call: it cannot be read: ${messageOf(cause)}` }
  }
}

function readMembers(call) {
  const { id, name, arguments: args } = plain(call) ? call : {}
  const request = {
    id: typeof id === 'string' ? id : newCallId(),
    name: typeof name === 'string' ? name : '',
    // What says itself how it is written is taken at its word, and held to it.
    arguments: (typeof args?.toJSON === 'function' ? args.toJSON() : args) ?? {},
  }
  return {
    request,
    problem: plain(call) ? problemOf(request, name) : `a call: expected {id, name, arguments}, got ${describe(call)}`,
  }
}

function problemOf({ id, arguments: args }, name) {
  // An id that is not Unicode could not come back as it was.
  if (!id.isWellFormed()) return 'id: expected text, got one that has half of a character in it'
  if (typeof name !== 'string') return `name: expected a string, got ${describe(name)}`
  if (!plain(args)) return `arguments: expected an object, got ${describe(args)}`
  return undefined
}

/** Whether a value holds others more than `left` deep. */
function tooDeep(value, left) {
  if (typeof value !== 'object' || value === null) return false
  if (left === 0) return true
  for (const key in value) if (tooDeep(value[key], left - 1)) return true
  return false
}

/** A call as JSON, or why it has none. */
function encodeCall({ request, problem }) {
  if (problem) return { problem }
  try {
    const json = toJson(request)
    const deep = json.length > 2 * NESTED_MAX && tooDeep(request.arguments, NESTED_MAX)
    return deep ? { problem: NESTED } : { json }
  } catch (cause) {
    // The stack has an end, too.
    if (cause instanceof RangeError) return { problem: NESTED }
    return { problem: `the arguments are not JSON: ${messageOf(cause)}` }
  }
}

/** Calls in the form of a batch: what belongs to one stands at the same place in each list. */
const listsOf = (requests, maxConcurrency) =>
  toJson({
    ids: requests.map(({ id }) => id),
    names: requests.map(({ name }) => name),
    arguments: requests.map(({ arguments: args }) => args),
    maxConcurrency,
  })

/** Calls as JSON, those that have none left out; and the problems of these, each at its place. */
function encodeAll(calls, maxConcurrency) {
  if (calls.every(({ problem }) => problem === undefined)) {
    const requests = calls.map(({ request }) => request)
    try {
      const json = listsOf(requests, maxConcurrency)
      const deep = json.length > 2 * NESTED_MAX && requests.some(({ arguments: args }) => tooDeep(args, NESTED_MAX))
      if (!deep) return { json, problems: [] }
    } catch {
      // Which of them it is, is found out below.
    }
  }
  const encoded = calls.map(encodeCall)
  const requests = encoded.flatMap(({ json }) => (json === undefined ? [] : JSON.parse(json)))
  return { json: listsOf(requests, maxConcurrency), problems: encoded.map((e) => e.problem) }
}

function refused({ id, name }, problem) {
  const output = name ? `Tool "${name}" execution failed: ${problem}` : `Malformed tool call: ${problem}`
  return { result: { id, name, output, isError: true }, failure: { code: 'INVALID_ARGUMENT', message: output } }
}

function freezeResult({ result, findings }) {
  if (findings !== undefined) result.findings = Object.freeze(findings)
  return Object.freeze(result)
}

function publishStart(bus, { id, name, arguments: args }) {
  publishTo(bus, 'tool.call.start', { callId: id, name, args })
}

function publishEnd(bus, { result, findings, timedOutMs, failure }) {
  const { id, name, output, isError, durationMs = 0, parts, details } = result
  if (timedOutMs !== undefined) publishTo(bus, 'tool.timeout', { name, timeoutMs: timedOutMs })
  if (isError) publishTo(bus, 'tool.call.error', { callId: id, name, error: failureOf(failure, name, output) })
  const more = { ...(parts && { parts }), ...(details && { details }), ...(findings && { findings }) }
  publishTo(bus, 'tool.call.end', { callId: id, name, output, isError, durationMs, ...more })
}

/** Publishes what happened during a batch, as far as it is known. */
function drain(bus, events) {
  const taken = JSON.parse(events.take())
  for (let i = 0; i < taken.length; i += 2) {
    const type = taken[i]
    for (const payload of taken[i + 1]) {
      if (type === 'tool.call.error') payload.error = failureOf(payload.error, payload.name, '')
      publishTo(bus, type, payload)
    }
  }
}

/** Brings what happens from now on to the bus, until `end`. */
function listen(bus) {
  let events
  const batch = openBatch(() => drain(bus, events))
  events = new native.NativeEvents(bridge, batch)
  return {
    events,
    end() {
      closeBatch(batch)
      drain(bus, events)
    },
  }
}

/** Runs a call, given as JSON too. */
async function runOne(state, call, json, signal) {
  const cancel = signal ? cancelHandle(signal) : undefined
  const heard = state.publishes(call.name) ? listen(state.options.eventBus) : undefined
  try {
    return JSON.parse(await state.native.execute(json, cancel?.handle, heard?.events))
  } catch (cause) {
    return refused(call, messageOf(revive(cause)))
  } finally {
    cancel?.release()
    heard?.end()
  }
}

/** Runs calls, given as JSON; the bus hears of them. */
async function runMany(state, json, signal) {
  const bus = state.options.eventBus
  const cancel = signal ? cancelHandle(signal) : undefined
  const heard = bus && listen(bus)
  try {
    return JSON.parse(await state.native.executeBatch(json, cancel?.handle, heard?.events))
  } catch (cause) {
    throw revive(cause)
  } finally {
    cancel?.release()
    heard?.end()
  }
}

function checkConcurrency(value) {
  if (Number.isInteger(value) && value >= 1) return Math.min(value, 0xffff_ffff)
  throw Object.assign(new RangeError(`maxConcurrency: expected an integer of at least 1, got ${describe(value)}`), {
    code: 'ERR_OUT_OF_RANGE',
  })
}

/** `execute` and `batchExecute` of one registry. */
function createCalls(state) {
  const { eventBus: bus } = state.options

  async function execute(call, options) {
    const signal = options?.signal
    checkSignal(signal)
    const read = readCall(call)
    const { request } = read
    const { json, problem } = encodeCall(read)
    // A copy: what a listener does to the arguments is done to nobody's call.
    if (bus) publishStart(bus, json ? JSON.parse(json) : request)
    const outcome = problem ? refused(request, problem) : await runOne(state, request, json, signal)
    if (bus) publishEnd(bus, outcome)
    return freezeResult(outcome)
  }

  async function batchExecute(calls, options) {
    const maxConcurrency = checkConcurrency(
      options?.maxConcurrency === undefined ? CONCURRENCY : options.maxConcurrency,
    )
    checkSignal(options?.signal)
    if (!Array.isArray(calls))
      throw invalid('batchExecute', [{ path: 'calls', message: `expected an array, got ${describe(calls)}` }])
    const read = Array.from(calls, readCall)
    if (read.length === 0) return Object.freeze([])
    const { json, problems } = encodeAll(read, maxConcurrency)
    const { outputs, durations, others } = await runMany(state, json, options?.signal)
    const whole = others.length > 0 ? new Map(others) : undefined
    let next = 0
    const results = read.map(({ request }, i) => {
      if (!problems[i]) {
        const at = next++
        const outcome = whole?.get(at)
        if (outcome !== undefined) return freezeResult(outcome)
        const { id, name } = request
        return Object.freeze({ id, name, output: outputs[at], isError: false, durationMs: durations[at] })
      }
      const outcome = refused(request, problems[i])
      if (bus) {
        publishStart(bus, request)
        publishEnd(bus, outcome)
      }
      return freezeResult(outcome)
    })
    return Object.freeze(results)
  }

  return { execute, batchExecute }
}

module.exports = { createCalls }
