/** `execute` and `batchExecute`: one crossing each, and the events around it. */
'use strict'

const { bridge, cancelHandle, closeBatch, native, openBatch } = require('./bridge.cjs')
const { describe, plain } = require('./check.cjs')
const { invalid, messageOf, revive, simseError } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { newCallId } = require('./tool-text.cjs')

const CONCURRENCY = 8

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

/** A call as Rust reads it; throws for what is no call at all. */
function readCall(call, path) {
  if (!plain(call))
    throw invalid('execute', [{ path, message: `expected {id, name, arguments}, got ${describe(call)}` }])
  const { id, name, arguments: args } = call
  return { id: typeof id === 'string' ? id : newCallId(), name: String(name), arguments: args ?? {} }
}

/** A call as JSON, or why it has none. */
function encodeCall(call) {
  if (!plain(call.arguments)) return { problem: `arguments: expected an object, got ${describe(call.arguments)}` }
  try {
    return { json: toJson(call) }
  } catch (cause) {
    return { problem: `the arguments are not JSON: ${messageOf(cause)}` }
  }
}

/** Calls as JSON: all at once, or one by one where something in one of them has none. */
function encodeAll(calls) {
  if (calls.every((call) => plain(call.arguments))) {
    try {
      return { json: toJson(calls), problems: [] }
    } catch {
      // Which of them it is, is found out below.
    }
  }
  const encoded = calls.map(encodeCall)
  return { json: `[${encoded.flatMap((each) => each.json ?? []).join(',')}]`, problems: encoded.map((e) => e.problem) }
}

function refused({ id, name }, problem) {
  const output = `Tool "${name}" execution failed: ${problem}`
  return { result: { id, name, output, isError: true }, failure: { code: 'INVALID_ARGUMENT', message: output } }
}

function freezeResult({ result, findings }) {
  if (findings !== undefined) result.findings = Object.freeze(findings)
  return Object.freeze(result)
}

function publishStart(bus, { id, name, arguments: args }) {
  bus.publish('tool.call.start', { callId: id, name, args })
}

function publishEnd(bus, { result, findings, timedOutMs, failure }) {
  const { id, name, output, isError, durationMs = 0, parts, details } = result
  if (timedOutMs !== undefined) bus.publish('tool.timeout', { name, timeoutMs: timedOutMs })
  if (isError) bus.publish('tool.call.error', { callId: id, name, error: failureOf(failure, name, output) })
  const more = { ...(parts && { parts }), ...(details && { details }), ...(findings && { findings }) }
  bus.publish('tool.call.end', { callId: id, name, output, isError, durationMs, ...more })
}

/** Publishes what happened during a batch, as far as it is known. */
function drain(bus, events) {
  const taken = JSON.parse(events.take())
  for (let i = 0; i < taken.length; i += 2) {
    const type = taken[i]
    for (const payload of taken[i + 1]) {
      if (type === 'tool.call.error') payload.error = failureOf(payload.error, payload.name, '')
      bus.publish(type, payload)
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

async function runOne(state, call, signal) {
  const { json, problem } = encodeCall(call)
  if (problem) return refused(call, problem)
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

/** Runs calls, given as a JSON array; the bus hears of them. */
async function runMany(state, calls, maxConcurrency, signal) {
  const bus = state.options.eventBus
  const json = `{"calls":${calls},"maxConcurrency":${maxConcurrency}}`
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
    const request = readCall(call, 'call')
    if (bus) publishStart(bus, request)
    const outcome = await runOne(state, request, signal)
    if (bus) publishEnd(bus, outcome)
    return freezeResult(outcome)
  }

  async function batchExecute(calls, options) {
    const maxConcurrency = checkConcurrency(options?.maxConcurrency ?? CONCURRENCY)
    checkSignal(options?.signal)
    if (!Array.isArray(calls))
      throw invalid('batchExecute', [{ path: 'calls', message: `expected an array, got ${describe(calls)}` }])
    const requests = calls.map((call, i) => readCall(call, `calls.${i}`))
    if (requests.length === 0) return Object.freeze([])
    const { json, problems } = encodeAll(requests)
    const outcomes = await runMany(state, json, maxConcurrency, options?.signal)
    let next = 0
    const results = requests.map((request, i) => {
      if (!problems[i]) return freezeResult(outcomes[next++])
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
