/** The MCP client: servers that the program connects by itself. Connections and processes are Rust's. */
'use strict'

const { addTarget, bridge, cancelHandle, native } = require('./bridge.cjs')
const { isAbsolute, resolve } = require('node:path')
const {
  assertFits,
  fn,
  having,
  integer,
  list,
  optional,
  path,
  plain,
  record,
  shape,
  string,
  text,
} = require('./check.cjs')
const { messageOf, revive, simseError } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { mcpServers } = require('./server-config.cjs')

/** Longest wait for an answer, of a call and of anything else. */
const CALL_TIMEOUT_MS = 600_000
const TIMEOUT_MS = 60_000
/** Pages of one list. */
const PAGES_MAX = 100
/** The longest that a timer can wait. */
const FOR_EVER_MS = 0x7fff_ffff

const roots = list(path)
const configShape = shape({
  servers: mcpServers,
  clientName: optional(text),
  clientVersion: optional(text),
  roots: optional(roots),
  onSampling: optional(fn),
  onElicitation: optional(fn),
})
const LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']
const absolute = (paths) => paths.map((each) => (isAbsolute(each) ? each : resolve(each)))
const optionsShape = optional(
  shape({
    signal: optional(having('addEventListener', 'removeEventListener')),
    timeoutMs: optional(integer(1, FOR_EVER_MS)),
    onProgress: optional(fn),
  }),
)
const argumentShape = shape({ name: text, value: string })
const refShape = (value, at, issues) => {
  shape({ prompt: optional(text), resource: optional(text) })(value, at, issues)
  if (plain(value) && (value.prompt === undefined) === (value.resource === undefined))
    issues.push({ path: at, message: 'expected either `prompt` or `resource`' })
}
const levelCheck = (value, at, issues) => {
  if (!LEVELS.includes(value)) issues.push({ path: at, message: `expected one of ${LEVELS.join(', ')}` })
}
const anyRecord = (value, path, issues) => {
  if (!plain(value)) issues.push({ path, message: 'expected an object' })
}

/** What Rust calls, and everything that the facade works with. */
class State {
  #listeners = new Map()
  #progress = new Map()
  #requests = 0
  #keepAlive = null
  #wanted = new Set()
  #answers

  constructor(config, logger) {
    this.names = config.servers.map((server) => server.name)
    this.logger = logger
    const { servers, clientName, clientVersion, onSampling, onElicitation } = config
    this.#answers = { 'sampling/createMessage': onSampling, 'elicitation/create': onElicitation }
    const settings = toJson({
      servers,
      clientName,
      clientVersion,
      directory: process.cwd(),
      roots: absolute(config.roots ?? [process.cwd()]),
      samples: onSampling !== undefined,
      elicits: onElicitation !== undefined,
    })
    try {
      this.native = new native.NativeMcpClient(bridge, settings, addTarget(this))
    } catch (cause) {
      throw revive(cause)
    }
  }

  warn(message, metadata) {
    if (this.logger) this.logger.warn(message, metadata)
    else console.warn(`simse: ${message}`)
  }

  /** A call of Rust's. */
  async handle(operation, input, call) {
    const { server } = input
    if (operation === 'answer') return this.#answer(input, call)
    if (operation === 'progress') {
      const listener = this.#progress.get(input.request)
      if (listener) this.#tell('progress', () => listener(input.progress), server)
      return ''
    }
    const { kind, ...rest } = input.news
    const what = { log: [{ ...rest, server }], resourceUpdated: [server, rest.uri] }[kind] ?? [server]
    for (const listener of [...(this.#listeners.get(kind) ?? [])]) this.#tell(kind, () => listener(...what), server)
    return ''
  }

  /** What a server asks of the program. What is thrown over a model is told to the server as a refusal; what is thrown over a form is not. */
  async #answer({ server, method, params }, call) {
    let answer
    try {
      answer = await this.#answers[method](params, { server, signal: call.signal })
    } catch (cause) {
      if (method === 'elicitation/create' && !call.signal.aborted)
        this.warn(`onElicitation failed for MCP server "${server}": ${messageOf(cause)}`, { server, cause })
      throw cause
    }
    // Who answers nothing is told so in Rust, in the words for other wrong answers.
    return toJson(answer ?? null)
  }

  #tell(what, listener, server) {
    try {
      listener()
    } catch (cause) {
      this.warn(`a listener for ${what} failed: ${messageOf(cause)}`, { server, cause })
    }
  }

  listen(kind, listener) {
    // Each has an entry of its own, so that one can be taken out twice and the other stays.
    const entry = (...news) => listener(...news)
    const entries = this.#listeners.get(kind) ?? new Set()
    this.#listeners.set(kind, entries.add(entry))
    return () => void entries.delete(entry)
  }

  setRoots(paths) {
    this.native.setRoots(toJson(absolute(paths)))
  }

  get connected() {
    return JSON.parse(this.native.connected())
  }

  async connect(name) {
    this.#keep(name)
    try {
      await this.native.connect(name)
    } catch (cause) {
      this.#release(name)
      throw revive(cause)
    }
  }

  async disconnect(name) {
    try {
      await this.native.disconnect(name)
    } finally {
      this.#release(name)
    }
  }

  /** A connection keeps the process alive, as an open socket does. */
  #keep(name) {
    this.#wanted.add(name)
    this.#keepAlive ??= setInterval((held) => held, FOR_EVER_MS, this)
  }

  #release(name) {
    this.#wanted.delete(name)
    if (this.#wanted.size > 0) return
    clearInterval(this.#keepAlive)
    this.#keepAlive = null
  }

  /** One request; its answer as the protocol has it. */
  async request(server, method, params, { signal, timeoutMs = TIMEOUT_MS, onProgress } = {}) {
    signal?.throwIfAborted()
    const cancel = signal && cancelHandle(signal)
    const progress = onProgress && ++this.#requests
    if (onProgress) this.#progress.set(progress, onProgress)
    try {
      const request = toJson({ server, method, params, timeoutMs, progress })
      return JSON.parse(await this.native.request(request, cancel?.handle))
    } catch (cause) {
      signal?.throwIfAborted()
      throw revive(cause)
    } finally {
      cancel?.release()
      this.#progress.delete(progress)
    }
  }

  /** All pages of a list of one server. */
  async list(server, method, member) {
    const items = []
    let cursor
    for (let page = 0; page < PAGES_MAX; page++) {
      const answer = await this.request(server, method, cursor === undefined ? {} : { cursor })
      for (const item of answer[member] ?? [])
        if (plain(item)) items.push(Object.freeze({ ...item, serverName: server }))
      if (!answer.nextCursor || answer.nextCursor === cursor) break
      cursor = answer.nextCursor
    }
    return Object.freeze(items)
  }

  /** The list of one server, or of all that are connected: one that does not list is then skipped with a warning. */
  async listOf(name, method, member) {
    if (name !== undefined) return this.list(name, method, member)
    const lists = this.connected.map(async (server) => {
      try {
        return await this.list(server, method, member)
      } catch (cause) {
        const what = method.split('/')[0]
        this.warn(`MCP server "${server}" did not list its ${what} and is skipped: ${messageOf(cause)}`, {
          server,
          cause,
        })
        return []
      }
    })
    return Object.freeze((await Promise.all(lists)).flat())
  }

  /** Connects all; one that cannot be connected is skipped with a warning. */
  async connectAll() {
    const reached = await Promise.all(
      this.names.map(async (name) => {
        try {
          await this.connect(name)
          return [name]
        } catch (cause) {
          this.warn(`MCP server "${name}" is skipped: ${messageOf(cause)}`, { server: name, cause })
          return []
        }
      }),
    )
    return reached.flat()
  }

  async call(server, tool, args, options) {
    const how = { timeoutMs: CALL_TIMEOUT_MS, ...options }
    try {
      return await this.request(server, 'tools/call', { name: tool, arguments: args }, how)
    } catch (cause) {
      if (cause?.code !== 'MCP_ERROR') throw cause
      throw simseError('MCP_TOOL_ERROR', cause.message, { metadata: { ...cause.metadata, tool }, cause })
    }
  }
}

/** Creates a client; nothing is connected before `connect()`. */
function createMCPClient(config, logger) {
  assertFits('createMCPClient', configShape, config)
  assertFits('createMCPClient', optional(having('warn')), logger, 'logger')
  const state = new State(config, logger)
  const disconnectAll = async () => void (await Promise.all(state.names.map((name) => state.disconnect(name))))
  const list = (name, caller, method, member) => {
    assertFits(caller, optional(text), name, 'name')
    return state.listOf(name, method, member)
  }
  const listening = (caller, kind) => (handler) => {
    assertFits(caller, fn, handler, 'handler')
    return state.listen(kind, handler)
  }
  return Object.freeze({
    async connect(name) {
      assertFits('connect', text, name, 'name')
      await state.connect(name)
    },
    connectAll: () => state.connectAll(),
    async disconnect(name) {
      assertFits('disconnect', text, name, 'name')
      await state.disconnect(name)
    },
    disconnectAll,
    isAvailable: (name) => (name === undefined ? state.connected.length > 0 : state.connected.includes(name)),
    listTools: async (name) => list(name, 'listTools', 'tools/list', 'tools'),
    async callTool(server, tool, args = {}, options = undefined) {
      assertFits('callTool', text, server, 'server')
      assertFits('callTool', text, tool, 'tool')
      assertFits('callTool', anyRecord, args, 'args')
      assertFits('callTool', optionsShape, options, 'options')
      return state.call(server, tool, args, options)
    },
    listResources: async (name) => list(name, 'listResources', 'resources/list', 'resources'),
    listResourceTemplates: async (name) =>
      list(name, 'listResourceTemplates', 'resources/templates/list', 'resourceTemplates'),
    async readResource(server, uri) {
      assertFits('readResource', text, server, 'server')
      assertFits('readResource', text, uri, 'uri')
      return state.request(server, 'resources/read', { uri })
    },
    listPrompts: async (name) => list(name, 'listPrompts', 'prompts/list', 'prompts'),
    async getPrompt(server, prompt, args = {}) {
      assertFits('getPrompt', text, server, 'server')
      assertFits('getPrompt', text, prompt, 'prompt')
      assertFits('getPrompt', record(string), args, 'args')
      return state.request(server, 'prompts/get', { name: prompt, arguments: args })
    },
    async complete(server, about, argument, context = undefined) {
      assertFits('complete', text, server, 'server')
      assertFits('complete', refShape, about, 'about')
      assertFits('complete', argumentShape, argument, 'argument')
      assertFits('complete', optional(record(string)), context, 'context')
      const ref = about.prompt
        ? { type: 'ref/prompt', name: about.prompt }
        : { type: 'ref/resource', uri: about.resource }
      const params = { ref, argument, ...(context && { context: { arguments: context } }) }
      return (await state.request(server, 'completion/complete', params)).completion
    },
    async subscribeResource(server, uri) {
      assertFits('subscribeResource', text, server, 'server')
      assertFits('subscribeResource', text, uri, 'uri')
      await state.request(server, 'resources/subscribe', { uri })
    },
    async unsubscribeResource(server, uri) {
      assertFits('unsubscribeResource', text, server, 'server')
      assertFits('unsubscribeResource', text, uri, 'uri')
      await state.request(server, 'resources/unsubscribe', { uri })
    },
    async setLogLevel(server, level) {
      assertFits('setLogLevel', text, server, 'server')
      assertFits('setLogLevel', levelCheck, level, 'level')
      await state.request(server, 'logging/setLevel', { level })
    },
    setRoots(paths) {
      assertFits('setRoots', roots, paths, 'roots')
      state.setRoots(paths)
    },
    onToolsChanged: listening('onToolsChanged', 'toolsChanged'),
    onResourcesChanged: listening('onResourcesChanged', 'resourcesChanged'),
    onResourceUpdated: listening('onResourceUpdated', 'resourceUpdated'),
    onPromptsChanged: listening('onPromptsChanged', 'promptsChanged'),
    onLog: listening('onLog', 'log'),
    get connectedServerNames() {
      return Object.freeze(state.connected)
    },
    get connectionCount() {
      return state.connected.length
    },
    [Symbol.asyncDispose]: disconnectAll,
  })
}

module.exports = { createMCPClient }
