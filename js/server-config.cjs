/** What a server can be told: the shape of its configuration, and its form for Rust. */
'use strict'

const {
  assertFits,
  boolean,
  describe,
  environment,
  fn,
  integer,
  list,
  number,
  oneOf,
  optional,
  plain,
  record,
  shape,
  string,
  text,
} = require('./check.cjs')
const { HOOK_TYPES, timeout: hookTimeout } = require('./hooks.cjs')
const native = require('./load.cjs')
const { modelList, nativeModel } = require('./models.cjs')
const { permissionConfig } = require('./permissions.cjs')

/** What each whole number may be, from and to, by its path: the same list that flags, variables and files are held against. */
const BOUNDS = JSON.parse(native.configBounds())
const within = (path) => optional(integer(...BOUNDS[path]))

/** An address to ask. */
const httpUrl = (value, path, issues) => {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    issues.push({ path, message: `expected a URL that begins with http:// or https://, got ${describe(value)}` })
  else if (url.username || url.password) issues.push({ path, message: 'expected a URL without a user or password' })
}

/** The fields of an MCP server, each with the transport that it belongs to. */
const MCP_FIELDS = {
  command: 'stdio',
  args: 'stdio',
  env: 'stdio',
  cwd: 'stdio',
  url: 'http',
  headers: 'http',
  oauth: 'http',
}

const serverName = (value, path, issues) => {
  if (typeof value !== 'string' || !/^[^\s/*?"\p{Cc}]{1,64}$/u.test(value))
    issues.push({
      path,
      message: `expected 1 to 64 characters, none of them a blank, a control character, a quote, "/", "*" or "?", got ${describe(value)}`,
    })
}

/** Headers that the protocol sets itself are not the caller's. Values may be secret and are not repeated. */
const OWN_HEADERS =
  /^(?:accept|connection|content-length|content-type|host|last-event-id|mcp-protocol-version|mcp-session-id)$/i
const headers = (value, path, issues) => {
  const before = issues.length
  record(string)(value, path, issues)
  if (issues.length > before) return
  for (const [name, text] of Object.entries(value)) {
    if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/i.test(name))
      issues.push({ path: `${path}.${name}`, message: 'expected a name that a header can have' })
    else if (OWN_HEADERS.test(name))
      issues.push({ path: `${path}.${name}`, message: 'expected no header that the protocol sets itself' })
    else if (!/^[\t\x20-\x7e]*$/.test(text))
      issues.push({ path: `${path}.${name}`, message: 'expected a value of visible ASCII characters' })
  }
}

/** The name of an agent; `simse` is our own. */
const agentName = (value, path, issues) => {
  serverName(value, path, issues)
  if (value === 'simse') issues.push({ path, message: 'expected a name other than "simse", which is our own agent\'s' })
}

/** Which of our tools an agent can call. */
const agentTools = (value, path, issues) =>
  (Array.isArray(value) ? list(text) : oneOf('own', 'all', 'none'))(value, path, issues)

const agentMembers = {
  args: optional(list(string)),
  cwd: optional(text),
  env: optional(environment),
  defaultAgent: optional(text),
  timeoutMs: within('acpServers.timeoutMs'),
  permissionPolicy: optional(oneOf('auto-approve', 'prompt', 'deny')),
  authMethod: optional(text),
  files: optional(boolean),
  terminals: optional(boolean),
  tools: optional(agentTools),
  mcpServers: optional(oneOf('direct', 'through', 'none')),
}
const PROFILES = ['claude', 'codex', 'gemini', 'opencode', 'qwen', 'pi', 'goose', 'kimi']
const ownAgent = shape({ ...agentMembers, profile: optional(oneOf(...PROFILES)), name: agentName, command: text })
/** Its profile says what it does not. */
const knownAgent = shape({
  ...agentMembers,
  profile: oneOf(...PROFILES),
  name: optional(agentName),
  command: optional(text),
})
const acpServer = (value, path, issues) => (value?.profile === undefined ? ownAgent : knownAgent)(value, path, issues)

const APIS = ['openai-chat', 'openai-responses', 'anthropic-messages', 'gemini']
/** Providers that a name is enough of. */
const KNOWN_PROVIDERS = new Set([...JSON.parse(native.knownProviders()), 'openai'])
const price = number(0, Number.MAX_SAFE_INTEGER)
const json = (value, path, issues) => {
  if (!plain(value)) issues.push({ path, message: `expected an object, got ${describe(value)}` })
}

const providerModel = shape({
  name: text,
  api: optional(oneOf(...APIS)),
  label: optional(text),
  contextTokens: optional(integer(1)),
  outputTokens: optional(integer(1)),
  images: optional(boolean),
  reasoning: optional(boolean),
  prices: optional(shape({ input: price, output: price, cacheRead: optional(price), cacheWrite: optional(price) })),
  body: optional(json),
})

/** Where sessions are. What else is wrong with an address is said when it is used. */
const store = (value, path, issues) => {
  // What was given may have a password in it.
  if (typeof value !== 'string' || !/^(sqlite$|postgres(ql)?:\/\/)/.test(value))
    issues.push({ path, message: 'expected sqlite, or an address that begins with postgres://' })
}

/** Where the other servers of a database reach this one. */
const nodeUrl = (value, path, issues) => {
  const place = /^https?:\/\/(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:[1-9]\d{0,4})?\/?$/
  // What was given may have a password in it.
  if (typeof value !== 'string' || !place.test(value) || !URL.canParse(value))
    issues.push({ path, message: 'expected http:// or https://, a host and a port, and nothing behind it' })
}

/** Labels of workspaces: at most 32 (src/config/node_settings.rs). */
const nodeLabel = (value, path, issues) => {
  if (typeof value !== 'string' || !/^[\w.-]{1,64}$/.test(value))
    issues.push({ path, message: `expected 1 to 64 letters, digits, ".", "_" or "-", got ${describe(value)}` })
}
const nodeLabels = (value, path, issues) => {
  list(nodeLabel)(value, path, issues)
  if (Array.isArray(value) && (value.length > 32 || new Set(value).size < value.length))
    issues.push({ path, message: 'expected at most 32 labels, each once' })
}

const providerFields = shape({
  name: text,
  api: optional(oneOf(...APIS)),
  baseUrl: optional(httpUrl),
  apiKey: optional(text),
  apiKeyFile: optional(text),
  headers: optional(headers),
  concurrency: optional(integer(1, 1_000_000)),
  requestsPerMinute: optional(integer(1, 1_000_000)),
  body: optional(json),
  models: optional((value, path, issues) => named(providerModel)(value, path, issues)),
})

/** Its fields; a provider that is not known by its name needs an address and a wire. */
const provider = (value, path, issues) => {
  const before = issues.length
  providerFields(value, path, issues)
  if (issues.length > before) return
  if (!/^[\w.-]{1,64}$/.test(value.name) || ['acp', 'demo', 'js', 'simse'].includes(value.name))
    issues.push({
      path: `${path}.name`,
      message: 'expected 1 to 64 letters, digits, ".", "_" or "-", and none of acp, demo, js, simse',
    })
  else if (!KNOWN_PROVIDERS.has(value.name)) {
    if (value.baseUrl === undefined)
      issues.push({
        path: `${path}.baseUrl`,
        message: "expected an address, because this name is not a known provider's",
      })
    if (value.api === undefined)
      issues.push({
        path: `${path}.api`,
        message: `expected one of ${APIS.join(', ')}, because this name is not a known provider's`,
      })
  }
  if (value.apiKey !== undefined && value.apiKeyFile !== undefined)
    issues.push({ path: `${path}.apiKey`, message: 'expected nothing, because "apiKeyFile" is there' })
}

const mcpFields = shape({
  name: serverName,
  transport: optional(oneOf('stdio', 'http')),
  command: optional(text),
  args: optional(list(string)),
  env: optional(environment),
  cwd: optional(text),
  url: optional(httpUrl),
  headers: optional(headers),
  oauth: optional(
    shape({
      clientId: optional(text),
      clientSecret: optional(text),
      clientMetadataUrl: optional(httpUrl),
      scopes: optional(list(text)),
      redirectPort: optional(integer(1, 65_535)),
      clientCredentials: optional(boolean),
      privateKeyFile: optional(text),
      identityProvider: optional(
        shape({ tokenEndpoint: httpUrl, clientId: text, clientSecret: optional(text), idTokenFile: text }),
      ),
      workloadTokenFile: optional(text),
    }),
  ),
})

/** Its fields, and those of one transport only: `http` when there is a `url` and no `command`, unless it is said. */
const mcpServer = (value, path, issues) => {
  const before = issues.length
  mcpFields(value, path, issues)
  if (issues.length > before) return
  const transport = value.transport ?? (value.command === undefined && value.url !== undefined ? 'http' : 'stdio')
  for (const [field, home] of Object.entries(MCP_FIELDS))
    if (value[field] !== undefined && home !== transport)
      issues.push({
        path: `${path}.${field}`,
        message: `expected nothing, because it belongs to the transport "${home}" and this is "${transport}"`,
      })
  const needed = transport === 'http' ? 'url' : 'command'
  if (value[needed] === undefined)
    issues.push({
      path: `${path}.${needed}`,
      message: `expected ${needed === 'url' ? 'an address' : 'a program'}, because the transport is "${transport}"`,
    })
}

/** At most 10,000 bytes (src/base/limit/hooks.rs). */
const commandLine = (value, path, issues) => {
  if (typeof value !== 'string' || value.trim() === '' || value.includes('\0') || Buffer.byteLength(value) > 10_000)
    issues.push({ path, message: 'expected a command line of at most 10000 bytes, without a zero byte' })
}
const hookHandler = shape({ type: oneOf(...HOOK_TYPES), handler: fn, timeoutMs: hookTimeout })
const hookCommand = shape({
  type: oneOf(...HOOK_TYPES),
  command: commandLine,
  matcher: optional(text),
  timeoutMs: optional(integer(1, 3_600_000)),
})
/** A handler, or a command that is run. */
const hook = (value, path, issues) => {
  if (!plain(value) || !('command' in value)) return hookHandler(value, path, issues)
  hookCommand(value, path, issues)
  const { type, matcher } = value
  if (matcher !== undefined && typeof type === 'string' && !type.startsWith('tool.'))
    issues.push({ path: `${path}.matcher`, message: `expected nothing: it is about tools, and "${type}" is not` })
  else if (typeof matcher === 'string' && matcher.split('|').some((name) => name.trim() === ''))
    issues.push({ path: `${path}.matcher`, message: 'expected names of tools with "|" between them' })
}

const memory = shape({
  enabled: boolean,
  embeddingAgent: optional(text),
  similarityThreshold: optional(number(0, 1)),
  model: optional(text),
  maxResults: within('memory.maxResults'),
  maxEntries: within('memory.maxEntries'),
  forgetAfterDays: within('memory.forgetAfterDays'),
})

/** What fits into an `Authorization` header; never told in a message. */
const token = (value, path, issues) => {
  if (typeof value !== 'string' || !/^[\x21-\x7e]+$/.test(value))
    issues.push({ path, message: 'expected a non-empty string of visible ASCII characters without blanks' })
}

/** A list whose entries have names of their own. */
const named = (check) => (value, path, issues) => {
  list(check)(value, path, issues)
  if (!Array.isArray(value)) return
  const names = value.map((entry) => entry?.name)
  for (const [i, name] of names.entries()) {
    if (typeof name === 'string' && names.indexOf(name) < i)
      issues.push({ path: `${path}.${i}.name`, message: `expected a name of its own, got "${name}" once more` })
  }
}

const LIMITS = 'limits.'
/** What may be spent. */
const budget = shape({
  tokens: optional(integer(1, Number.MAX_SAFE_INTEGER)),
  costUsd: optional(number(1e-9, Number.MAX_VALUE)),
  timeMs: optional(integer(1, Number.MAX_SAFE_INTEGER)),
  turns: optional(integer(1, Number.MAX_SAFE_INTEGER)),
  toolCalls: optional(integer(1, Number.MAX_SAFE_INTEGER)),
})
const limits = shape({
  ...Object.fromEntries(
    Object.keys(BOUNDS)
      .filter((path) => path.startsWith(LIMITS))
      .map((path) => [path.slice(LIMITS.length), within(path)]),
  ),
  sessionBudget: optional(budget),
  clientBudget: optional(budget),
})

const configShape = shape({
  port: within('port'),
  host: optional(text),
  acpServers: optional(named(acpServer)),
  mcpServers: optional(named(mcpServer)),
  workingDirectory: text,
  toolPermissions: optional(permissionConfig),
  permissionMode: optional(oneOf('plan', 'ask', 'accept-edits', 'auto')),
  hooks: optional(list(hook)),
  memory: optional(memory),
  providerPrompts: optional(shape({ prompts: optional(record(string)), defaultPrompt: optional(string) })),
  instructionDiscovery: optional(
    shape({ patterns: optional(list(text)), rootDir: optional(text), autoInject: optional(boolean) }),
  ),
  model: optional(text),
  models: optional(modelList),
  openai: optional(
    shape({
      baseUrl: optional(httpUrl),
      apiKey: optional(text),
      images: optional(boolean),
      api: optional(oneOf('openai-chat', 'openai-responses')),
    }),
  ),
  agentTypes: optional(
    named(
      shape({
        name: text,
        description: optional(string),
        model: optional(text),
        reasoning: optional(oneOf('auto', 'none', 'minimal', 'low', 'medium', 'high', 'xhigh')),
        tools: optional(list(text)),
      }),
    ),
  ),
  providers: optional((value, path, issues) => named(provider)(value, path, issues)),
  modelFallbacks: optional(list(text)),
  smallModel: optional(text),
  findLocalModels: optional(boolean),
  recordModels: optional(text),
  replayModels: optional(text),
  replaySpeed: optional(number(0, 1_000_000)),
  dataDirectory: optional(text),
  store: optional(store),
  nodeUrl: optional(nodeUrl),
  nodeLabels: optional(nodeLabels),
  toolRegistry: optional((value, path, issues) => {
    if (!plain(value))
      issues.push({ path, message: `expected a registry that createToolRegistry made, got ${describe(value)}` })
  }),
  authToken: optional(token),
  allowPublic: optional(boolean),
  allowedRoots: optional(list(text)),
  allowedPaths: optional(list(text)),
  agentsDirs: optional(list(text)),
  skillsDirs: optional(list(text)),
  commandsDirs: optional(list(text)),
  staleCheck: optional(oneOf('strict', 'warn', 'off')),
  sandbox: optional(oneOf('read-only', 'workspace-write', 'off')),
  sandboxNetwork: optional(boolean),
  limits: optional(limits),
})

/** What fits by itself and not together. */
const together = (value, path, issues) => {
  const before = issues.length
  configShape(value, path, issues)
  if (issues.length > before) return
  if (value.recordModels !== undefined && value.replayModels !== undefined)
    issues.push({
      path: 'recordModels',
      message: 'expected nothing, because "replayModels" is there: what is replayed is not recorded',
    })
  const { store = 'sqlite', nodeUrl, nodeLabels = [] } = value
  if (nodeUrl === undefined && nodeLabels.length === 0) return
  const field = nodeUrl === undefined ? 'nodeLabels' : 'nodeUrl'
  if (store === 'sqlite')
    issues.push({ path: field, message: 'expected to stand beside a "store" that begins with postgres://' })
  else if (nodeUrl === undefined) issues.push({ path: field, message: 'expected to stand beside "nodeUrl"' })
}

/** Checks a configuration; throws `CONFIG_VALIDATION`. */
function checkConfig(config) {
  assertFits('createSimseServer', together, config)
}

const nativeHook = ({ type, ...rest }) => ({ event: type, ...rest })

/** The part of a checked configuration that Rust reads. */
function nativeConfig(config) {
  const { hooks, models, toolRegistry, toolPermissions, providerPrompts, ...rest } = config
  return {
    ...rest,
    ...(hooks && { hooks: hooks.filter(({ command }) => command !== undefined).map(nativeHook) }),
    ...(models && { models: models.map(nativeModel) }),
    ...(toolPermissions && {
      toolPermissions: { defaultPolicy: toolPermissions.defaultPolicy, rules: toolPermissions.rules ?? [] },
      asks: toolPermissions.onPermissionRequest !== undefined,
    }),
    ...(providerPrompts && {
      providerPrompts: { ...providerPrompts, prompts: Object.entries(providerPrompts.prompts ?? {}) },
    }),
  }
}

module.exports = { checkConfig, nativeConfig, acpServers: named(acpServer), mcpServers: named(mcpServer) }
