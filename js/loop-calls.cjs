/**
 * The calls of one reply in a loop of JavaScript: which are run, which are answered without running, which are run again. Every one of
 * them has a start and an end on the loop's bus, and a result.
 */
'use strict'

const { createLoopBreaker } = require('./breaker.cjs')
const { publishTo } = require('./bus.cjs')
const { plain } = require('./check.cjs')
const { messageOf, simseError } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { readFailure } = require('./model-failure.cjs')
const { createCalls } = require('./registry-calls.cjs')
const { findState, isOurs } = require('./registry.cjs')
const { readReply } = require('./tool-text.cjs')

/** Events of a call. */
const CALL_EVENTS = ['tool.call.start', 'tool.call.end', 'tool.call.error', 'tool.timeout']

const failed = ({ id, name }, message) => ({
  id,
  name,
  output: `Tool "${name}" execution failed: ${message}`,
  isError: true,
})

/** Hands what is published on to several buses. */
function fan(buses) {
  const all = [...new Set(buses)].filter((bus) => bus !== undefined)
  return { publish: (type, payload) => all.forEach((bus) => void publishTo(bus, type, payload)) }
}

/** Runs calls by a registry, and has each of them on the loop's bus. */
class Runner {
  #ids = new Set()

  constructor({ toolRegistry, eventBus }, inner) {
    this.registry = toolRegistry
    /** The loop's own bus, and the one that it was given. */
    this.bus = fan([inner, eventBus])
    this.state = findState(toolRegistry)
    /** Call → what its handler threw. */
    this.thrown = this.state?.thrown ?? new Map()
    const given = this.state?.options.eventBus
    if (isOurs(toolRegistry)) {
      // The registry's calls, with all that listens.
      const options = { ...this.state.options, eventBus: fan([inner, eventBus, given]) }
      this.calls = createCalls(Object.create(this.state, { options: { value: options } }))
    } else {
      this.calls = toolRegistry
      // What a registry publishes by itself is not told twice.
      const tells = given !== undefined && given === eventBus
      this.tells = !tells
      if (tells)
        this.heard = CALL_EVENTS.map((type) => given.subscribe(type, (payload) => this.#hear(inner, type, payload)))
    }
  }

  #hear(inner, type, payload) {
    if (type === 'tool.timeout' || this.#ids.has(payload.callId)) inner.publish(type, payload)
  }

  end() {
    for (const stop of this.heard ?? []) stop()
  }

  /** Answers without running. */
  refuse(request, result) {
    this.#start(request)
    this.#end(result)
    return result
  }

  #start({ id, name, arguments: args }) {
    this.bus.publish('tool.call.start', { callId: id, name, args })
  }

  #end(result) {
    const { id: callId, name, output, isError, durationMs = 0 } = result
    if (isError) {
      const error = simseError('TOOL_EXECUTION_ERROR', output, { metadata: { tool: name } })
      this.bus.publish('tool.call.error', { callId, name, error })
    }
    this.bus.publish('tool.call.end', { callId, name, output, isError, durationMs })
  }

  /** Runs calls; one result for each. Several go through `batchExecute`. */
  async run(requests, signal) {
    for (const { id } of requests) {
      this.#ids.add(id)
      this.thrown.set(id, undefined)
    }
    if (this.tells) for (const request of requests) this.#start(request)
    const results = await this.#execute(requests, { signal })
    if (this.tells) for (const result of results) this.#end(result)
    return results
  }

  async #execute(requests, options) {
    try {
      const results =
        requests.length === 1
          ? [await this.calls.execute(requests[0], options)]
          : await this.calls.batchExecute(requests, options)
      return requests.map((request, i) => results[i] ?? failed(request, 'the registry gave no result'))
    } catch (cause) {
      return requests.map((request) => {
        this.thrown.set(request.id, cause)
        return failed(request, messageOf(cause))
      })
    }
  }

  /** What the handler of a call threw. The second time nothing. */
  takeThrown(id) {
    const thrown = this.thrown.get(id)
    this.thrown.delete(id)
    return thrown
  }
}

/** The calls of a run of the loop. */
class Calls {
  #used = new Set()
  #repeats = 0

  constructor(options, bus, pause) {
    this.options = options
    this.runner = new Runner(options, bus)
    this.bus = this.runner.bus
    this.pause = pause
    this.breaker = createLoopBreaker({ identicalCalls: options.maxIdenticalToolCalls })
    const { hooks } = options
    /** The registry runs hooks of its own; those of the loop are run here where they are others. */
    this.hooks = hooks !== undefined && this.runner.state?.options.hooks !== hooks ? hooks : undefined
  }

  /** Takes a reply apart: its text, its calls with ids of their own, and what could not be read. */
  read(response) {
    const {
      text,
      toolCalls,
      malformed = 0,
    } = isOurs(this.options.toolRegistry) ? readReply(response) : this.options.toolRegistry.parseToolCalls(response)
    return { text, malformed, toolCalls: toolCalls.map((call) => this.#adopt(call)) }
  }

  #adopt({ id, name, arguments: args }) {
    let own = id
    for (let number = 2; this.#used.has(own); number++) own = `${id}_${number}`
    this.#used.add(own)
    return Object.freeze({ id: own, name, arguments: args ?? {} })
  }

  /** What the breaker says of a reply. */
  judge({ text, toolCalls, malformed }) {
    const readable = toolCalls.filter(({ arguments: args }) => plain(args))
    if (toolCalls.length > 0 && readable.length > 0 && readable.every((call) => this.#mayRepeat(call)))
      return { action: 'continue' }
    const unreadable = malformed > 0 ? toolCalls.length === 0 : toolCalls.length > 0 && readable.length === 0
    return this.breaker.checkReply({ text, toolCalls: readable, unreadable })
  }

  #mayRepeat({ name, arguments: args }) {
    return this.runner.state?.native.mayRepeat(name, toJson(args)) ?? false
  }

  /** Why a call is not to be run, if it is not. */
  #repeated(request) {
    if (!plain(request.arguments)) return undefined
    const reason = this.breaker.checkCall(request)
    if (reason === undefined || this.#mayRepeat(request)) {
      this.#repeats = 0
      return undefined
    }
    this.#repeats += 1
    const callCount = this.options.maxIdenticalToolCalls + this.#repeats - 1
    this.bus.publish('loop.doom_loop', { toolName: request.name, callCount, args: request.arguments })
    return reason
  }

  /** Answers the calls of a reply, in their order: `{results, findings}`. `told`: none of them is to be run, and why. */
  async answer(requests, told, signal) {
    const planned = requests.map((request) => {
      const reason = this.#repeated(request) ?? told
      return {
        request,
        result: reason === undefined ? undefined : this.runner.refuse(request, failed(request, reason)),
      }
    })
    await Promise.all(planned.map((call) => this.#before(call)))
    await this.#runAll(planned, signal)
    const findings = await Promise.all(planned.map((call) => this.#after(call)))
    return {
      results: Object.freeze(planned.map(({ result }) => Object.freeze(result))),
      findings: findings.flat(),
    }
  }

  async #before(call) {
    if (this.hooks === undefined || call.result !== undefined) return
    const { request } = call
    let said
    try {
      said = await this.hooks.run('tool.execute.before', { request })
    } catch (cause) {
      said = { blocked: true, reason: `a tool.execute.before hook failed: ${messageOf(cause)}` }
    }
    if (said?.blocked === true) {
      const output = `Tool "${request.name}" was blocked: ${said.reason}`
      call.result = this.runner.refuse(request, { id: request.id, name: request.name, output, isError: true })
    } else if (plain(said)) call.run = { ...request, name: said.name, arguments: said.arguments ?? {} }
  }

  /** Runs what is to be run, and runs again what failed in a way that may pass. */
  async #runAll(planned, signal) {
    const { maxAttempts, baseDelayMs } = this.options.toolRetry
    let open = planned.filter(({ result }) => result === undefined)
    for (let attempt = 1; open.length > 0; attempt++) {
      const results = await this.runner.run(
        open.map(({ run, request }) => run ?? request),
        signal,
      )
      open = open.filter((call, i) => {
        call.result = { ...results[i], id: call.request.id, name: call.request.name }
        const thrown = this.runner.takeThrown(call.request.id)
        return results[i].isError && thrown !== undefined && readFailure(thrown).kind === 'transient'
      })
      if (attempt >= maxAttempts || open.length === 0 || signal?.aborted) return
      if (!(await this.pause(baseDelayMs * 2 ** (attempt - 1)))) return
    }
  }

  /** Lets hooks see a result; what they and the breaker found. */
  async #after(call) {
    const { request } = call
    const found = [...(call.result.findings ?? [])]
    if (this.hooks !== undefined) {
      const { result } = call
      call.result = await this.hook('tool.execute.after', { request, result }, result)
      found.push(...(await this.hook('tool.result.validate', { request, result: call.result }, [])))
    }
    const hint = this.breaker.checkResult(call.result, this.options.toolRegistry.getToolDefinition?.(request.name))
    return hint === undefined ? found : [...found, hint]
  }

  /** Asks a hook point of the loop's. What a system that is not ours throws changes nothing. */
  async hook(type, context, before) {
    try {
      return (await this.options.hooks.run(type, context)) ?? before
    } catch (cause) {
      console.warn(`simse: a "${type}" hook failed; the value before it is kept:`, cause)
      return before
    }
  }

  /** The same where a failure blocks, as nobody has looked then. */
  async gate(type, context, before) {
    try {
      return (await this.options.hooks.run(type, context)) ?? before
    } catch (cause) {
      return { blocked: true, reason: `a ${type} hook failed: ${messageOf(cause)}` }
    }
  }

  end() {
    this.runner.end()
  }
}

module.exports = { Calls, fan }
