/** Tools of an MCP client, registered as `mcp:<server>/<tool>`. */
'use strict'

const { native } = require('./bridge.cjs')
const { plain } = require('./check.cjs')
const { messageOf, revive } = require('./errors.cjs')
const { toJson } = require('./json.cjs')

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

function addTool(state, client, server, tool) {
  const schema = tool.inputSchema ?? tool.parameters
  const definition = {
    name: `mcp:${server}/${tool.name}`,
    description: String(tool.description ?? ''),
    parameters: plain(schema) ? schema : { type: 'object', properties: {} },
    category: 'other',
    ...annotationsOf(tool),
  }
  state.add(definition, async (args) => outputOf(await client.callTool(server, tool.name, args)), 'mcp')
  return definition.name
}

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
      state.log(`tool "${tool?.name}" of MCP server "${server}" is skipped: ${messageOf(cause)}`, { server, cause })
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
