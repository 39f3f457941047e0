/** Tools of an MCP client, registered as `mcp:<server>/<tool>`. */
'use strict'

const { native } = require('./bridge.cjs')
const { describe, plain } = require('./check.cjs')
const { messageOf, revive } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { isJsonSchema, isStandard } = require('./schema.cjs')

const NONE = new Set()
const ALL = { has: () => true }

/** What a call returned, for the model. An answer marked as an error becomes one. */
function outputOf(answer) {
  if (typeof answer === 'string') return answer
  const content = answer?.content
  if (Array.isArray(content)) return answerOf(answer)
  const text = typeof content === 'string' ? content : JSON.stringify(answer ?? null)
  if (answer?.isError === true) throw new Error(text)
  return text
}

/** An answer of the protocol: texts, images as such, and what cannot be shown by name. */
function answerOf(answer) {
  try {
    return JSON.parse(native.readMcpAnswer(toJson(answer)))
  } catch (cause) {
    throw revive(cause)
  }
}

/** The protocol's hints as ours. */
function annotationsOf({ annotations, title }) {
  const { readOnlyHint: readOnly, destructiveHint: destructive, title: inner } = plain(annotations) ? annotations : {}
  const name = inner ?? title
  const hints = {
    ...(typeof name === 'string' && { title: name }),
    ...(typeof destructive === 'boolean' && { destructive }),
    ...(typeof readOnly === 'boolean' && { readOnly }),
  }
  return Object.keys(hints).length > 0 ? { annotations: hints } : {}
}

/** All servers' tools, and the servers that did not list theirs. A client without `connectedServerNames` lists all servers at once. */
async function listAll(client, log) {
  const servers = client.connectedServerNames
  if (!Array.isArray(servers)) {
    try {
      return { listed: (await client.listTools()).map((tool) => [tool.serverName ?? tool.server, tool]), silent: NONE }
    } catch (cause) {
      log(`the MCP servers did not list their tools and are skipped: ${messageOf(cause)}`, { cause })
      return { listed: [], silent: ALL }
    }
  }
  const silent = new Set()
  const lists = await Promise.all(
    servers.map(async (server) => {
      try {
        return (await client.listTools(server)).map((tool) => [server, tool])
      } catch (cause) {
        log(`MCP server "${server}" did not list its tools and is skipped: ${messageOf(cause)}`, { server, cause })
        silent.add(server)
        return []
      }
    }),
  )
  return { listed: lists.flat(), silent }
}

/** A tool's full name, or an error about what it lacks. */
function nameOf(server, tool) {
  if (typeof server !== 'string' || server === '')
    throw new Error(`expected the name of its server, got ${describe(server)}`)
  if (typeof tool?.name !== 'string' || tool.name === '')
    throw new Error(`expected a tool with a name, got ${describe(plain(tool) ? tool.name : tool)}`)
  return `mcp:${server}/${tool.name}`
}

/** Whether every entry is a parameter in the simple form. */
const simple = (schema) => {
  const entries = Object.values(schema)
  return entries.length > 0 && entries.every((entry) => typeof entry?.type === 'string')
}

/** The parameters of a tool. A schema that leaves out that it is an object's is one all the same: arguments are never anything else. */
function parametersOf({ inputSchema, parameters }) {
  const schema = inputSchema ?? parameters
  if (!plain(schema)) return { type: 'object', properties: {} }
  return isStandard(schema) || isJsonSchema(schema) || simple(schema) ? schema : { ...schema, type: 'object' }
}

function addTool(state, client, server, tool) {
  const definition = {
    name: nameOf(server, tool),
    description: String(tool.description ?? ''),
    parameters: parametersOf(tool),
    category: 'other',
    ...annotationsOf(tool),
  }
  state.add(definition, async (args) => outputOf(await client.callTool(server, tool.name, args)), 'mcp')
  return definition.name
}

/** A name in a message; one that is none is told as what it is. */
const shown = (name) => (typeof name === 'string' ? JSON.stringify(name.slice(0, 80)) : `(${describe(name)})`)

/** `servers`: tool → its server. A server that is skipped keeps the tools that it had. */
async function discover(state, servers) {
  const client = state.options.mcpClient
  if (client === undefined) return
  const { listed, silent } = await listAll(client, state.log)
  for (const [name, { origin }] of [...state.tools]) {
    if (origin === 'mcp' && !silent.has(servers.get(name))) state.remove(name)
  }
  for (const name of servers.keys()) if (!state.tools.has(name)) servers.delete(name)
  for (const [server, tool] of listed) {
    try {
      servers.set(addTool(state, client, server, tool), server)
    } catch (cause) {
      state.log(`tool ${shown(tool?.name)} of MCP server ${shown(server)} is skipped: ${messageOf(cause)}`, {
        server,
        cause,
      })
    }
  }
}

/** `discover` of one registry; several at once run one after the other. */
function createDiscovery(state) {
  let last = Promise.resolve()
  const servers = new Map()
  return () => {
    const next = last.then(() => discover(state, servers))
    last = next.catch(() => {})
    return next
  }
}

module.exports = { createDiscovery }
