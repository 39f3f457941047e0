/**
 * The tool registry: definitions and handlers live here, calls go through Rust, which validates, asks for
 * permission, limits, times and counts them.
 */
'use strict'

const { addTarget, bridge, native, BadInput } = require('./bridge.cjs')
const {
  assertFits,
  describe,
  fn,
  having,
  integer,
  list,
  oneOf,
  optional,
  plain,
  shape,
  string,
} = require('./check.cjs')
const { invalid, messageOf, revive } = require('./errors.cjs')
const { createCalls } = require('./registry-calls.cjs')
const { watchHooks } = require('./hooks.cjs')
const { toJson } = require('./json.cjs')
const { publishTo } = require('./bus.cjs')
const { addMemoryTools, manager, registrar } = require('./memory-tools.cjs')
const tasks = require('./tasks.cjs')
const { createDiscovery } = require('./mcp-tools.cjs')
const { askPerson, claim, questionOf, resolverInsides } = require('./permissions.cjs')
const { deepFreeze, readDefinition, validateStandard } = require('./schema.cjs')
const { formatForSystemPrompt, parseToolCalls } = require('./tool-text.cjs')

const optionsShape = shape({
  mcpClient: optional(having('listTools', 'callTool')),
  memoryManager: optional(manager),
  permissionResolver: optional(having('check')),
  logger: optional(having('warn')),
  eventBus: optional(having('publish')),
  hooks: optional(having('run')),
  defaultToolTimeoutMs: optional(integer(1)),
  maxOutputChars: optional(integer(0)),
})

/** What an answer begins with that is no plain text (src/node/tool.rs). */
const MORE = '\u0001simse:'
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp']
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

const part = (value, path, issues) => {
  if (value?.type === 'text') shape({ type: string, text: string })(value, path, issues)
  else if (value?.type === 'image')
    shape({ type: string, mediaType: oneOf(...IMAGES), data: base64 })(value, path, issues)
  else
    issues.push({
      path,
      message: `expected {type: 'text', text} or {type: 'image', mediaType, data}, got ${describe(value)}`,
    })
}
const base64 = (value, path, issues) => {
  const fits = typeof value === 'string' && value.length % 4 === 0 && BASE64.test(value)
  if (!fits) issues.push({ path, message: `expected base64 without a data: prefix, got ${describe(value)}` })
}
const handlerOutput = shape({ output: string, parts: optional(list(part)), details: () => {} })

/** What a handler returned, as Rust reads it. */
function encodeOutput(returned) {
  if (typeof returned === 'string') return returned.startsWith(MORE) ? MORE + toJson({ output: returned }) : returned
  if (!plain(returned) || typeof returned.output !== 'string') {
    throw new Error(`expected the handler to return a string, got ${describe(returned)}`)
  }
  const issues = []
  handlerOutput(returned, '', issues)
  if (issues.length > 0) throw new Error(`the handler's answer: ${issues[0].path}: ${issues[0].message}`)
  return MORE + toJson(returned)
}

/** What Rust calls: everything a registry needs at run time, and nothing that holds its facade. */
class State {
  /** Name → `{definition, origin}`, in the order of registration. */
  tools = new Map()
  /** Handler number → `{handler, schema}`, as long as Rust may call it. */
  handlers = new Map()
  /** Counts the changes of `tools`. */
  version = 0
  /** Call → what its handler threw, of those calls that somebody asks about (js/loop-calls.cjs). */
  thrown = new Map()
  #lastHandler = 0

  constructor(options) {
    this.options = options
    this.log = (message, metadata) =>
      options.logger ? options.logger.warn(message, metadata) : console.warn(`simse: ${message}`)
    this.resolver = options.permissionResolver
    const inside = this.resolver && resolverInsides(this.resolver)
    this.onPermissionRequest = inside?.onPermissionRequest
    const settings = {
      target: addTarget(this),
      foreignResolver: this.resolver !== undefined && inside === undefined,
      asks: this.onPermissionRequest !== undefined,
      defaultToolTimeoutMs: options.defaultToolTimeoutMs,
      maxOutputChars: options.maxOutputChars,
    }
    this.native = new native.NativeRegistry(bridge, toJson(settings), inside?.rules ?? null)
    if (options.hooks) {
      const { native: registry } = this
      // Held here, weakly by the hook system: a long-lived one keeps no registry alive.
      this.hookWatcher = (mask) => registry.setHookMask(mask)
      watchHooks(options.hooks, this.hookWatcher)
    }
  }

  add(given, handler, origin) {
    const { definition, schema, told } = readDefinition(given)
    assertFits('register', fn, handler, 'handler')
    if (schema && !told) {
      this.log(
        `tool "${definition.name}": its schema (${schema['~standard'].vendor}) does not say itself as JSON Schema, so models are told that any object fits`,
        { tool: definition.name },
      )
    }
    // What others' servers describe badly is taken as far as it goes.
    if (schema === undefined && origin !== 'mcp') this.#checkParameters(definition)
    const number = ++this.#lastHandler
    this.#registerNative(definition, number, schema !== undefined)
    this.handlers.set(number, { handler, schema })
    claim(definition, this.native)
    this.tools.set(definition.name, { definition, origin })
    this.version += 1
  }

  #registerNative(definition, number, checks) {
    try {
      this.native.register(toJson(definition), number, checks)
    } catch (cause) {
      throw revive(cause)
    }
  }

  #checkParameters({ parameters }) {
    try {
      this.native.checkParameters(toJson(parameters))
    } catch (cause) {
      throw revive(cause)
    }
  }

  /** Notes native tools, which Rust has registered already. */
  note(definitionsJson) {
    for (const definition of JSON.parse(definitionsJson)) {
      claim(definition, this.native)
      this.tools.set(definition.name, { definition: deepFreeze(definition), origin: 'native' })
    }
    this.version += 1
  }

  /** Whether a call of this tool has events of its own for the bus: those that run programs tell what these write. */
  publishes(name) {
    if (this.options.eventBus === undefined) return false
    const tool = this.tools.get(name)
    return tool === undefined || (tool.origin === 'native' && tool.definition.category === 'execute')
  }

  remove(name) {
    if (!this.tools.has(name)) return false
    this.tools.delete(name)
    this.version += 1
    return this.native.unregister(name)
  }

  /** Rust holds the tool of this handler no more: it was replaced or taken out, and its last call has ended. */
  release(number) {
    this.handlers.delete(number)
  }

  /** A call of Rust's; answers with text. */
  handle(operation, input, call) {
    if (operation === 'tool') return this.#runTool(input, call)
    if (operation === 'check') return this.#check(input)
    if (operation === 'ask') return this.#ask(input)
    return this.#runHook(operation.slice('hook:'.length), input, call)
  }

  async #runTool({ handler: number, arguments: args, callId, sessionId }, call) {
    const found = this.handlers.get(number)
    if (found === undefined) throw new Error(`handler ${number} of the tool is gone`)
    let value = args
    if (found.schema) {
      const outcome = await validateStandard(found.schema, args)
      if (outcome.problem) throw new BadInput(outcome.problem)
      value = outcome.value
    }
    const context = Object.freeze({
      callId,
      ...(sessionId && { sessionId }),
      ask: call.ask,
      notify: this.#notifier(call, callId),
      show: this.#shower(call, callId),
      get signal() {
        return call.signal
      },
    })
    try {
      return encodeOutput(await found.handler(value, context))
    } catch (cause) {
      if (this.thrown.has(callId)) this.thrown.set(callId, cause)
      throw cause
    }
  }

  /** Notices of a call go to the session's clients; outside a server to the bus. */
  #notifier(call, callId) {
    return (text, level = 'info') => {
      if (!call.notify(text, level)) publishTo(this.options.eventBus, 'client.notice', { callId, level, text })
    }
  }

  /** So does what it shows. */
  #shower(call, callId) {
    return (display) => {
      if (!call.show(display)) publishTo(this.options.eventBus, 'client.display', { callId, display })
    }
  }

  async #check({ request, definition, preview }) {
    if (definition) claim(definition, this.native)
    try {
      return String((await this.resolver.check(questionOf({ request, preview }), definition ?? undefined)) === true)
    } catch (cause) {
      this.log(`the permission resolver failed for tool "${request.name}", which counts as no: ${messageOf(cause)}`, {
        cause,
      })
      return 'false'
    }
  }

  async #ask({ request, preview }) {
    const bus = this.options.eventBus
    const { id: callId, name: toolName, arguments: args } = request
    publishTo(bus, 'permission.request', { callId, toolName, args, ...(preview && { preview }) })
    const allowed = await askPerson(this.onPermissionRequest, questionOf({ request, preview }), this.log)
    publishTo(bus, 'permission.response', { callId, allowed })
    return String(allowed)
  }

  async #runHook(type, given, call) {
    const input = { 'tool.execute.before': 'request', 'tool.execute.after': 'result' }[type]
    const callId = given.request?.id
    const { ask } = call
    const context = { ...given, ask, notify: this.#notifier(call, callId), show: this.#shower(call, callId) }
    const output = await this.options.hooks.run(type, context)
    return toJson(output === undefined ? (given[input] ?? []) : output)
  }
}

/** Registry → its state, for the functions of this package that work on registries. */
const states = new WeakMap()
/** Method → the state of the registry that it belongs to: what is spread into another object is still known by it. */
const owners = new WeakMap()

/** The state of a registry, or of one that was put into another object; undefined for one that is not ours. */
function findState(registry) {
  return states.get(registry) ?? owners.get(registry.register)
}

/** The state of a registry that `createToolRegistry` made. */
function stateOf(registry, what) {
  const state = plain(registry) ? states.get(registry) : undefined
  if (state === undefined) {
    const [caller, path = 'registry'] = what.split(': ')
    throw invalid(caller, [
      { path, message: `expected a registry that createToolRegistry made, got ${describe(registry)}` },
    ])
  }
  return state
}

function metricsOf(state) {
  return JSON.parse(state.native.metrics()).map((metrics) => Object.freeze(metrics))
}

/** Creates a tool registry. */
function createToolRegistry(options = {}) {
  assertFits('createToolRegistry', optionsShape, options)
  let state
  try {
    state = new State({ ...options })
  } catch (cause) {
    throw revive(cause)
  }
  if (options.memoryManager !== undefined) addMemoryTools(state, options.memoryManager)
  const definitions = () => Object.freeze([...state.tools.values()].map((tool) => tool.definition))
  const registry = Object.freeze({
    discover: createDiscovery(state),
    register: (definition, handler) => state.add(definition, handler, 'custom'),
    unregister: (name) => state.remove(name),
    getToolDefinitions: definitions,
    getToolDefinition: (name) => state.tools.get(name)?.definition,
    isRegistered: (name) => state.tools.has(name),
    formatForSystemPrompt: () => formatForSystemPrompt(definitions()),
    parseToolCalls: (response) => parseToolCalls(String(response)),
    ...createCalls(state),
    getToolMetrics: (name) => metricsOf(state).find((metrics) => metrics.name === name),
    getAllToolMetrics: () => Object.freeze(metricsOf(state)),
    clearMetrics: () => state.native.clearMetrics(),
    get toolCount() {
      return state.tools.size
    },
    get toolNames() {
      return Object.freeze([...state.tools.keys()])
    },
  })
  states.set(registry, state)
  owners.set(registry.register, state)
  return registry
}

/** Registers `memory_search`, `memory_add` and `memory_delete` over a memory manager. */
const registerMemoryTools = registrar(stateOf)

/** Registers `task_create`, `task_update`, `task_get`, `task_list` and `task_delete` over a task list. */
const registerTaskTools = tasks.registrar(stateOf)

module.exports = {
  createToolRegistry,
  findState,
  isOurs: (registry) => states.has(registry),
  registerMemoryTools,
  registerTaskTools,
  stateOf,
}
