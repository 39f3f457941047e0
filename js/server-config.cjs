/** What a server can be told: the shape of its configuration, and its form for Rust. */
'use strict'

const {
  assertFits,
  boolean,
  describe,
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
const { HOOK_TYPES } = require('./hooks.cjs')
const { permissionConfig } = require('./permissions.cjs')

const acpServer = shape({
  name: text,
  command: text,
  args: optional(list(string)),
  cwd: optional(text),
  env: optional(record(string)),
  defaultAgent: optional(text),
  timeoutMs: optional(integer(1)),
  permissionPolicy: optional(oneOf('auto-approve', 'prompt', 'deny')),
})

const hook = shape({ type: oneOf(...HOOK_TYPES), handler: fn })

const memory = shape({
  enabled: boolean,
  embeddingAgent: optional(string),
  similarityThreshold: optional(number(0, 1)),
  maxResults: optional(integer(1, 100)),
})

/** Refuses what this version cannot do, instead of taking it and doing nothing. */
const unavailable = (what, check, wanted) => (value, path, issues) => {
  if (value === undefined) return
  const before = issues.length
  check(value, path, issues)
  if (issues.length === before && wanted(value)) issues.push({ path, message: `${what} not available in this version` })
}

/** Where a model answers. */
const httpUrl = (value, path, issues) => {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    issues.push({ path, message: `expected a URL that begins with http:// or https://, got ${describe(value)}` })
}

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

const anyList = (value, path, issues) => {
  if (!Array.isArray(value)) issues.push({ path, message: `expected an array, got ${describe(value)}` })
}

const limits = shape({
  permissionTimeoutMs: optional(integer(1)),
  clientGraceMs: optional(integer(0)),
  modelIdleTimeoutMs: optional(integer(1)),
  maxIterations: optional(integer(1, 1_000_000)),
  queuedPrompts: optional(integer(0)),
  sessions: optional(integer(1)),
  streamsPerSession: optional(integer(1)),
  bodyBytes: optional(integer(1)),
  connections: optional(integer(1)),
  heartbeatMs: optional(integer(1)),
  shutdownGraceMs: optional(integer(0)),
})

const configShape = shape({
  port: optional(integer(0, 65535)),
  host: optional(text),
  acpServers: optional(named(acpServer)),
  mcpServers: unavailable('MCP servers are', anyList, (servers) => servers.length > 0),
  workingDirectory: text,
  toolPermissions: optional(permissionConfig),
  hooks: optional(list(hook)),
  memory: unavailable('memory is', memory, (given) => given.enabled),
  providerPrompts: optional(shape({ prompts: optional(record(string)), defaultPrompt: optional(string) })),
  instructionDiscovery: optional(
    shape({ patterns: optional(list(text)), rootDir: optional(text), autoInject: optional(boolean) }),
  ),
  model: optional(text),
  openai: optional(shape({ baseUrl: optional(httpUrl), apiKey: optional(text), images: optional(boolean) })),
  dataDirectory: optional(text),
  toolRegistry: optional((value, path, issues) => {
    if (!plain(value))
      issues.push({ path, message: `expected a registry that createToolRegistry made, got ${describe(value)}` })
  }),
  authToken: optional(token),
  allowPublic: optional(boolean),
  allowedRoots: optional(list(text)),
  allowedPaths: optional(list(text)),
  staleCheck: optional(oneOf('strict', 'warn', 'off')),
  limits: optional(limits),
})

/** Checks a configuration; throws `CONFIG_VALIDATION`. */
function checkConfig(config) {
  assertFits('createSimseServer', configShape, config)
}

/** The part of a checked configuration that Rust reads. */
function nativeConfig(config) {
  const { hooks, memory: _memory, mcpServers, toolRegistry, toolPermissions, providerPrompts, ...rest } = config
  return {
    ...rest,
    ...(toolPermissions && {
      toolPermissions: { defaultPolicy: toolPermissions.defaultPolicy, rules: toolPermissions.rules ?? [] },
      asks: toolPermissions.onPermissionRequest !== undefined,
    }),
    ...(providerPrompts && {
      providerPrompts: { ...providerPrompts, prompts: Object.entries(providerPrompts.prompts ?? {}) },
    }),
  }
}

module.exports = { checkConfig, nativeConfig }
