/**
 * The ACP client: agents that a program drives by itself. Programs, protocol and permission are Rust's; here are the sessions that
 * prompts go to, one after the other, and the forms in which answers come.
 */
'use strict'

const { resolve } = require('node:path')
const { addTarget, bridge, native } = require('./bridge.cjs')
const { publishTo } = require('./bus.cjs')
const {
  assertFits,
  boolean,
  describe,
  having,
  list,
  oneOf,
  optional,
  plain,
  shape,
  string,
  text,
} = require('./check.cjs')
const { invalid, messageOf, revive, simseError } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { endAtExit } = require('./leftovers.cjs')
const { askPerson, questionOf, resolverInsides } = require('./permissions.cjs')
const { acpServers } = require('./server-config.cjs')

/** The policies, in the order of their numbers (src/node/acp.rs). */
const POLICIES = Object.freeze(['auto-approve', 'prompt', 'deny'])

const configShape = shape({ servers: acpServers, defaultServer: optional(text), defaultAgent: optional(text) })
const optionsShape = shape({
  permissionResolver: optional(having('check')),
  eventBus: optional(having('publish')),
  logger: optional(having('warn')),
  workingDirectory: optional(text),
})
const promptShape = shape({
  serverName: optional(text),
  agentId: optional(text),
  systemPrompt: optional(string),
  sessionId: optional(text),
  newSession: optional(boolean),
  workingDirectory: optional(text),
  signal: optional(having('addEventListener', 'removeEventListener')),
})
const message = (value, path, issues) => {
  if (!plain(value)) return void issues.push({ path, message: `expected {role, content}, got ${describe(value)}` })
  oneOf('system', 'user', 'assistant', 'tool_result')(value.role, `${path}.role`, issues)
  string(value.content, `${path}.content`, issues)
}

/** Waits its turn: what is asked of one session is asked one after the other. */
class Line {
  #last = Promise.resolve()

  /** Resolves with what lets the next one go. */
  async enter() {
    let leave
    const before = this.#last
    this.#last = new Promise((resolve) => {
      leave = resolve
    })
    await before
    return leave
  }
}

/** An agent's failure as an error. Whether another try may help is for whoever tries. */
function failed({ code, message, data: { kind, ...metadata } = {} }) {
  const error = simseError(code, message, { metadata: { ...metadata, kind } })
  if (kind !== undefined) Object.defineProperty(error, 'retryable', { value: kind === 'transient', enumerable: false })
  return error
}

/** An agent, and the session of it that prompts go to. */
class Server {
  /** `{id, heard}`: what the session has heard, as far as that is known. */
  session
  line = new Line()
  /** Session → what its options are set to. */
  #options = new Map()
  /** Session → where it works. */
  #opened = new Map()

  constructor(name, client) {
    this.name = name
    this.client = client
  }

  /** Does something with the agent; its failure becomes an error. */
  async ask(operation, input = {}) {
    try {
      return JSON.parse(await this.client.native.ask(this.name, operation, toJson(input)))
    } catch (cause) {
      const error = revive(cause)
      throw error?.metadata?.kind === undefined
        ? error
        : failed({ ...error, message: error.message, data: error.metadata })
    }
  }

  settings(id) {
    return this.#options.get(id) ?? {}
  }

  /** Opens a session, or a new one: `{id, fresh, options}`. */
  async open(id, directory) {
    const opened = await this.ask('open', { session: id, options: id && this.settings(id), directory })
    this.note(opened.id, directory)
    return opened
  }

  note(id, directory) {
    if (!this.#opened.has(id)) this.#opened.set(id, directory ?? this.client.directory)
  }

  /** A session that has to be there. */
  async reach(id) {
    const opened = await this.open(id)
    if (!opened.fresh) return opened
    await this.forget(opened.id)
    throw simseError('PROVIDER_ERROR', `the agent "${this.name}" has no session "${id}" that it could go on with`, {
      metadata: { server: this.name, sessionId: id },
    })
  }

  /** Closes a session that nobody needs any more. */
  async forget(id) {
    this.#opened.delete(id)
    this.#options.delete(id)
    await this.ask('close', { session: id })
  }

  /** The session that prompts go to now, opened when there is none. */
  async current() {
    const opened = await this.open(this.session?.id)
    if (this.session === undefined || opened.fresh) this.session = { id: opened.id, heard: [] }
    return opened
  }

  /** Sets the option of that name, or of that kind. */
  async set(id, what, value) {
    const { options } = await this.reach(id)
    const option = options.find((each) => each.id === what) ?? options.find((each) => each.category === what)
    if (option === undefined)
      throw simseError('PROVIDER_ERROR', `the agent "${this.name}" lets nobody choose its ${what}`, {
        metadata: { server: this.name, kind: 'refused' },
      })
    const before = this.settings(id)
    this.#options.set(id, { ...before, [option.id]: value })
    try {
      await this.open(id)
    } catch (cause) {
      this.#options.set(id, before)
      throw cause
    }
  }

  /** Chooses who answers in a session, where the agent has several. */
  async choose(opened, agentId) {
    const option = agentsOf(opened.options).find(({ values = [] }) => values.some(({ value }) => value === agentId))
    if (option === undefined) {
      if (agentId === this.name) return
      const offered = agentsOf(opened.options).flatMap(({ values = [] }) => values.map(({ value }) => value))
      throw simseError(
        'PROVIDER_ERROR',
        `the agent "${this.name}" has no agent "${agentId}"${offered.length > 0 ? `; it offers ${offered.join(', ')}` : ''}`,
        { metadata: { server: this.name, kind: 'refused' } },
      )
    }
    this.#options.set(opened.id, { ...this.settings(opened.id), [option.id]: agentId })
  }

  async sessions() {
    const listed = await this.ask('list')
    if (listed !== null)
      return listed
        .filter((each) => typeof each?.sessionId === 'string')
        .map(({ sessionId, cwd, title, updatedAt }) =>
          Object.freeze({ sessionId, cwd, ...(title && { title }), ...(updatedAt && { updatedAt }) }),
        )
    return [...this.#opened].map(([sessionId, cwd]) => Object.freeze({ sessionId, cwd }))
  }

  async remove(id) {
    if (!(await this.ask('delete', { session: id })))
      throw simseError('PROVIDER_ERROR', `the agent "${this.name}" deletes no sessions`, {
        metadata: { server: this.name, kind: 'refused' },
      })
    this.#opened.delete(id)
    this.#options.delete(id)
    if (this.session?.id === id) this.session = undefined
  }
}

/** The options that choose what answers: an agent, or a mode. */
const agentsOf = (options) =>
  options.filter(({ id, category }) => category === 'mode' || id === 'mode' || id === 'agent')

/** How many messages of a conversation a session has not heard; undefined: it has heard others. */
function unheardOf(heard, messages) {
  if (heard === undefined) return 1
  const same = heard.every(({ role, content }, i) => messages[i]?.role === role && messages[i]?.content === content)
  return same && heard.length < messages.length ? messages.length - heard.length : undefined
}

/** One prompt to an agent. */
class Prompt {
  #server
  #options
  #turn
  /** The session is this prompt's alone. */
  #alone = false
  #content = ''
  end = {}

  constructor(server, options) {
    this.#server = server
    this.#options = options
  }

  /** Which session it goes to, with the whole conversation and how much of it is new there. */
  async #place(messages, whole) {
    const { sessionId, newSession, agentId, workingDirectory } = this.#options
    const server = this.#server
    if (sessionId !== undefined && sessionId !== server.session?.id) {
      await server.reach(sessionId)
      server.session = { id: sessionId, heard: undefined }
    }
    const { session } = server
    let unheard = whole ? session && unheardOf(session.heard, messages) : messages.length
    this.#alone = newSession === true
    if (this.#alone || (whole && session !== undefined && unheard === undefined)) {
      if (!this.#alone) server.session = undefined
      unheard = undefined
    }
    const opened = this.#alone ? await server.open(undefined, workingDirectory) : await server.current()
    if (agentId !== undefined) await server.choose(opened, agentId)
    return {
      id: opened.id,
      options: opened.options,
      unheard: opened.fresh ? messages.length : (unheard ?? messages.length),
    }
  }

  /** Asks, and yields what comes. `whole`: the messages are the whole conversation, and not what is said next. */
  async *run(system, messages, whole) {
    const { signal, workingDirectory: directory } = this.#options
    signal?.throwIfAborted()
    const server = this.#server
    const leave = this.#options.newSession === true ? () => {} : await server.line.enter()
    const stop = () => this.#turn?.stop()
    let over = false
    try {
      signal?.throwIfAborted()
      const { id, options, unheard } = await this.#place(messages, whole)
      this.end.sessionId = id
      this.end.agentId = this.#agentOf(options, id)
      const told = this.#told(system, messages, unheard)
      const asked = { session: id, ...told, directory, options: server.settings(id) }
      this.#turn = server.client.native.prompt(server.name, toJson(asked))
      signal?.addEventListener('abort', stop, { once: true })
      if (signal?.aborted) stop()
      yield* this.#chunks()
      over = true
      this.#heard(messages, whole)
    } finally {
      signal?.removeEventListener('abort', stop)
      await this.#finish(over)
      leave()
    }
  }

  /** What is sent: instructions stand before the first thing that a session hears. */
  #told(system, messages, unheard) {
    const { session } = this.#server
    const first = this.#alone || session?.heard?.length === 0
    if (!first || system.trim() === '') return { messages, unheard }
    const instructions = { role: 'user', content: `[Instructions]\n${system.trim()}` }
    return { messages: [instructions, ...messages], unheard: unheard + 1 }
  }

  /** Lets the agent end what nobody reads any more, and gives up a session that was for this prompt alone. */
  async #finish(over) {
    const server = this.#server
    const { sessionId } = this.end
    if (!over && this.#turn !== undefined) {
      this.#turn.stop()
      while (JSON.parse(await this.#turn.next()).length > 0);
      // It has heard a part of it, and nobody knows which.
      if (server.session?.id === sessionId) server.session.heard = undefined
    }
    if (this.#alone && sessionId !== undefined) await server.forget(sessionId)
  }

  #agentOf(options, id) {
    const settings = this.#server.settings(id)
    const [option] = agentsOf(options)
    const set = option && (settings[option.id] ?? option.value)
    return this.#options.agentId ?? (typeof set === 'string' ? set : this.#server.name)
  }

  #heard(messages, whole) {
    const { session } = this.#server
    if (this.#alone || session?.id !== this.end.sessionId) return
    const answer = { role: 'assistant', content: this.#content }
    if (whole) session.heard = [...messages, answer]
    else session.heard = session.heard && [...session.heard, ...messages, answer]
  }

  async *#chunks() {
    for (;;) {
      const events = JSON.parse(await this.#turn.next())
      if (events.length === 0) throw simseError('PROVIDER_ERROR', `the agent "${this.#server.name}" gave no end`)
      for (const event of events) {
        const chunk = this.#take(event)
        if (chunk !== undefined) yield chunk
        if (event.type === 'finished') return
      }
    }
  }

  #take(event) {
    switch (event.type) {
      case 'delta':
        this.#content += event.text
        return { type: 'delta', text: event.text }
      case 'reasoning':
        return { type: 'reasoning', text: event.text }
      case 'call':
        return { type: 'tool_call', toolCall: event.call }
      case 'result': {
        const status = event.result.isError ? 'failed' : 'completed'
        return { type: 'tool_call_update', update: { ...event.result, status } }
      }
      case 'usage':
        this.end.usage = event.usage
        return undefined
      case 'session':
        this.end.sessionId = event.id
        this.#server.note(event.id, this.#options.workingDirectory)
        // What went on is a session that was opened anew.
        if (!this.#alone && this.#server.session?.id !== event.id) this.#server.session = { id: event.id, heard: [] }
        return undefined
      case 'finished': {
        this.end.stopReason = event.stopReason
        const { usage, sessionId, stopReason } = this.end
        return { type: 'complete', ...(usage && { usage }), stopReason, sessionId }
      }
      default:
        if (event.code === 'ABORTED') throw this.#options.signal?.reason ?? new DOMException('aborted', 'AbortError')
        throw failed(event)
    }
  }
}

/** What Rust calls, and everything that the facade works with. */
class State {
  constructor(config, options) {
    this.options = options
    this.directory = resolve(options.workingDirectory ?? '.')
    this.log = (words, metadata) =>
      options.logger ? options.logger.warn(words, metadata) : console.warn(`simse: ${words}`)
    this.defaultServer = config.defaultServer ?? config.servers[0].name
    const inside = options.permissionResolver && resolverInsides(options.permissionResolver)
    this.onPermissionRequest = inside?.onPermissionRequest
    const servers = config.servers.map((server) =>
      config.defaultAgent !== undefined && server.name === this.defaultServer
        ? { defaultAgent: config.defaultAgent, ...server }
        : server,
    )
    this.defaultAgent = servers.find(({ name }) => name === this.defaultServer).defaultAgent
    const settings = {
      servers,
      directory: this.directory,
      foreignResolver: options.permissionResolver !== undefined && inside === undefined,
      asks: this.onPermissionRequest !== undefined,
    }
    endAtExit()
    try {
      this.native = new native.NativeAcpClient(bridge, toJson(settings), addTarget(this), inside?.rules ?? null)
    } catch (cause) {
      throw revive(cause)
    }
    this.servers = new Map(servers.map(({ name }) => [name, new Server(name, this)]))
  }

  /** A question of an agent's. */
  async handle(operation, { request, definition, preview }) {
    const { eventBus } = this.options
    const { id: callId, name: toolName, arguments: args } = request
    publishTo(eventBus, 'permission.request', { callId, toolName, args, ...(preview && { preview }) })
    const question = questionOf({ request, preview })
    const allowed =
      operation === 'ask'
        ? await askPerson(this.onPermissionRequest, question, this.log)
        : await this.#check(question, definition ?? undefined)
    publishTo(eventBus, 'permission.response', { callId, allowed })
    return String(allowed)
  }

  async #check(request, definition) {
    try {
      return (await this.options.permissionResolver.check(request, definition)) === true
    } catch (cause) {
      this.log(`the permission resolver failed for tool "${request.name}", which counts as no: ${messageOf(cause)}`, {
        cause,
      })
      return false
    }
  }

  server(name = this.defaultServer, path = 'server') {
    const found = this.servers.get(name)
    if (found !== undefined) return found
    const known = [...this.servers.keys()].map((each) => `"${each}"`).join(', ')
    throw invalid('createACPClient', [{ path, message: `expected one of ${known}, got ${describe(name)}` }])
  }

  async initialize() {
    const started = await Promise.allSettled([...this.servers.values()].map((server) => server.ask('start')))
    const faults = started.filter(({ status }) => status === 'rejected')
    if (faults.length === started.length) throw faults[0].reason
    for (const { reason } of faults) this.log(`an ACP server cannot be used: ${messageOf(reason)}`, { cause: reason })
  }

  prompt(what, options) {
    assertFits(what, promptShape, options, 'options')
    return new Prompt(this.server(options.serverName, 'options.serverName'), options)
  }

  async whole(what, messages, options, whole) {
    const prompt = this.prompt(what, options)
    const system = [options.systemPrompt, ...systemOf(messages)].filter((part) => part !== undefined).join('\n\n')
    let content = ''
    for await (const chunk of prompt.run(system, spoken(messages), whole))
      if (chunk.type === 'delta') content += chunk.text
    const { agentId, sessionId, usage, stopReason } = prompt.end
    const serverName = options.serverName ?? this.defaultServer
    return Object.freeze({ content, agentId, serverName, sessionId, ...(usage && { usage }), stopReason })
  }

  async agents(name) {
    const server = this.server(name)
    const { options } = await server.current()
    const offered = agentsOf(options).flatMap(({ values = [] }) => values)
    const all = offered.length > 0 ? offered : [{ value: server.name, name: server.name }]
    return Object.freeze(
      all.map(({ value, name: called, description }) =>
        Object.freeze({ id: value, name: called, ...(description && { description }), serverName: server.name }),
      ),
    )
  }

  health(name) {
    const server = this.server(name)
    const problem = this.native.problem(server.name)
    const load = this.native.load(server.name)
    return Object.freeze({
      serverName: server.name,
      available: problem === null,
      ...(problem !== null && { reason: problem }),
      running: load !== null,
      ...(load !== null && JSON.parse(load)),
    })
  }
}

const systemOf = (messages) => messages.filter(({ role }) => role === 'system').map(({ content }) => content)
const spoken = (messages) => messages.filter(({ role }) => role !== 'system')
const said = (prompt) => [{ role: 'user', content: prompt }]

/** Creates a client; nothing is started before it is needed. */
function createACPClient(config, options = {}) {
  assertFits('createACPClient', configShape, config)
  assertFits('createACPClient', optionsShape, options, 'options')
  if (config.servers.length === 0)
    throw invalid('createACPClient', [{ path: 'servers', message: 'expected at least one entry, got an empty array' }])
  const names = config.servers.map(({ name }) => name)
  if (config.defaultServer !== undefined && !names.includes(config.defaultServer))
    throw invalid('createACPClient', [
      { path: 'defaultServer', message: `expected the name of a server, got "${config.defaultServer}"` },
    ])
  const state = new State(config, { ...options })
  const dispose = () => state.native.stop()
  const inSession = async (caller, id, name, run) => {
    assertFits(caller, text, id, 'id')
    const server = state.server(name)
    const leave = await server.line.enter()
    try {
      return await run(server)
    } finally {
      leave()
    }
  }

  return Object.freeze({
    initialize: () => state.initialize(),
    dispose,
    listAgents: async (name) => state.agents(name),
    getAgent: async (id, name) => (await state.agents(name)).find((agent) => agent.id === id),
    async generate(prompt, options = {}) {
      assertFits('generate', string, prompt, 'prompt')
      return state.whole('generate', said(prompt), options, false)
    },
    async chat(messages, options = {}) {
      assertFits('chat', list(message), messages, 'messages')
      if (spoken(messages).at(-1)?.role !== 'user')
        throw invalid('chat', [{ path: 'messages', message: 'expected a message of the user at the end' }])
      return state.whole('chat', messages, options, true)
    },
    generateStream(prompt, options = {}) {
      assertFits('generateStream', string, prompt, 'prompt')
      return state.prompt('generateStream', options).run(options.systemPrompt ?? '', said(prompt), false)
    },
    isAvailable: async (name) => state.health(name).available,
    setPermissionPolicy(policy) {
      assertFits('setPermissionPolicy', oneOf(...POLICIES), policy, 'policy')
      state.native.setPolicy(POLICIES.indexOf(policy))
    },
    listSessions: async (name) => Object.freeze(await state.server(name).sessions()),
    loadSession: (id, name) =>
      inSession('loadSession', id, name, async (server) => {
        await server.reach(id)
        server.session = { id, heard: undefined }
        return Object.freeze({ sessionId: id })
      }),
    deleteSession: (id, name) => inSession('deleteSession', id, name, (server) => server.remove(id)),
    setSessionMode: (id, mode, name) => inSession('setSessionMode', id, name, (server) => server.set(id, 'mode', mode)),
    setSessionModel: (id, model, name) =>
      inSession('setSessionModel', id, name, (server) => server.set(id, 'model', model)),
    getServerHealth: (name) => state.health(name),
    get serverNames() {
      return Object.freeze([...names])
    },
    get serverCount() {
      return names.length
    },
    get defaultServerName() {
      return state.defaultServer
    },
    get defaultAgent() {
      return state.defaultAgent
    },
    [Symbol.asyncDispose]: dispose,
  })
}

module.exports = { createACPClient }
