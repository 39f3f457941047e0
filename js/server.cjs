/** The server: the whole engine behind HTTP, started and stopped from here. */
'use strict'

const { join } = require('node:path')
const { addTarget, bridge, native } = require('./bridge.cjs')
const { revive, simseError } = require('./errors.cjs')
const { createHookSystem, watchHooks, HOOK_TYPES } = require('./hooks.cjs')
const { toJson } = require('./json.cjs')
const { endAtExit } = require('./leftovers.cjs')
const { runModel } = require('./models.cjs')
const { askPerson, questionOf } = require('./permissions.cjs')
const { stateOf } = require('./registry.cjs')
const { checkConfig, nativeConfig } = require('./server-config.cjs')

/** The longest that a timer can wait. */
const FOR_EVER_MS = 0x7fff_ffff

/** What agents start to come to our tools. */
const TOOL_BRIDGE = { program: process.execPath, args: [join(__dirname, 'tool-bridge.cjs')] }

const warn = (message) => console.warn(`simse: ${message}`)

/** All hooks of a server: its own, then those of its registry; the registry's resolver has a word before both. */
function composeHooks(config, registry) {
  const hooks = createHookSystem()
  const resolver = registry?.resolver
  if (resolver) {
    const ask = async ({ request }) => {
      const allowed = await resolver.check(request, registry.tools.get(request.name)?.definition)
      return allowed === true ? undefined : { blocked: true, reason: `Permission denied for tool: "${request.name}"` }
    }
    // Who asks a person waits for as long as that one is given.
    hooks.register('tool.execute.before', ask, { timeoutMs: 0 })
  }
  // Commands are run by Rust, behind all of these.
  for (const { type, handler, timeoutMs } of config.hooks ?? [])
    if (handler !== undefined) hooks.register(type, handler, timeoutMs === undefined ? undefined : { timeoutMs })
  const more = registry?.options.hooks
  // Its handlers have limits of their own.
  if (more) for (const type of HOOK_TYPES) hooks.register(type, (context) => more.run(type, context), { timeoutMs: 0 })
  return hooks
}

/** What Rust calls while the server runs. */
class State {
  constructor(config) {
    this.config = config
    this.registry = config.toolRegistry && stateOf(config.toolRegistry, 'createSimseServer: toolRegistry')
    this.hooks = composeHooks(config, this.registry)
    this.native = new native.NativeServer(bridge, addTarget(this))
    endAtExit()
    const { native: server } = this
    this.hookWatcher = (mask) => server.setHookMask(mask)
    watchHooks(this.hooks, this.hookWatcher)
  }

  async handle(operation, input, call) {
    if (operation === 'model') return runModel(this.config.models[input.at], input.request, call)
    if (operation === 'ask')
      return String(await askPerson(this.config.toolPermissions.onPermissionRequest, questionOf(input), warn))
    const notify = (text, level) => void call.notify(text, level)
    const show = (display) => void call.show(display)
    const answer = await this.hooks.run(operation.slice('hook:'.length), { ...input, ask: call.ask, notify, show })
    return toJson(answer ?? null)
  }
}

/** `http://host:port`, an IPv6 address in brackets. */
function urlOf(host, port) {
  return `http://${host.includes(':') && !host.startsWith('[') ? `[${host}]` : host}:${port}`
}

/** Advice that the engine gives in flags and variables, in the words of this package. */
const WORDS = [
  [/--allow-public, and a token/g, '`allowPublic: true` and an `authToken`'],
  [/that needs a token; leave out --no-auth/g, 'that needs an `authToken`'],
  [/`openai\/NAME` needs OPENAI_API_KEY or OPENAI_BASE_URL/g, '`openai/NAME` needs `openai: { baseUrl, apiKey }`'],
  [/choose another with --port, or 0 for any free one/g, 'choose another `port`, or 0 for any free one'],
]
const inOurWords = (text) => WORDS.reduce((said, [theirs, ours]) => said.replace(theirs, ours), text)

/** Why a start failed, as an error that speaks of the configuration's members and not of flags. */
function startError(thrown) {
  const cause = revive(thrown)
  if (typeof cause?.code !== 'string' || typeof cause.message !== 'string') return cause
  const { issues: given, ...metadata } = cause.metadata ?? {}
  const issues = given?.map(({ path, message }) => Object.freeze({ path, message: inOurWords(message) }))
  return simseError(cause.code, inOurWords(cause.message), { metadata, issues })
}

/** Start and stop, one after the other, in the order in which they were asked for. */
class Life {
  port = 0
  #state
  #keepAlive = null
  #referenced = true
  #running = false
  #last = Promise.resolve()

  constructor(state) {
    this.#state = state
  }

  #then(step) {
    const next = this.#last.then(step)
    this.#last = next.catch(() => {})
    return next
  }

  start() {
    return this.#then(async () => {
      if (this.#running)
        throw simseError(
          'SERVER_STATE',
          `the server is running already, on port ${this.port}; stop() it before the next start()`,
        )
      const { config, native: server, registry } = this.#state
      try {
        const given = { ...nativeConfig(config), toolBridge: TOOL_BRIDGE }
        const { port } = JSON.parse(await server.start(toJson(given), registry?.native))
        this.port = port
      } catch (cause) {
        throw startError(cause)
      }
      this.#running = true
      // Keeps the process alive, and everything that Rust may call.
      this.#keepAlive = setInterval((held) => held, FOR_EVER_MS, this.#state)
      if (!this.#referenced) this.#keepAlive.unref()
    })
  }

  stop() {
    return this.#then(async () => {
      if (!this.#running) return
      try {
        await this.#state.native.stop()
      } catch (cause) {
        throw revive(cause)
      } finally {
        this.#running = false
        clearInterval(this.#keepAlive)
      }
    })
  }

  reference(referenced) {
    this.#referenced = referenced
    if (this.#running) referenced ? this.#keepAlive.ref() : this.#keepAlive.unref()
  }
}

/** Creates a server; it does nothing before `start()`. */
function createSimseServer(config) {
  checkConfig(config)
  // A copy: what the caller changes later changes nothing here.
  const { models } = config
  const life = new Life(new State({ ...config, ...(models && { models: [...models] }) }))
  const host = config.host ?? '127.0.0.1'
  const server = {
    start: () => life.start(),
    stop: () => life.stop(),
    get port() {
      return life.port
    },
    get url() {
      return urlOf(host, life.port)
    },
    ref() {
      life.reference(true)
      return server
    },
    unref() {
      life.reference(false)
      return server
    },
    [Symbol.asyncDispose]: () => life.stop(),
  }
  return Object.freeze(server)
}

module.exports = { createSimseServer, urlOf }
