/**
 * A small ACP agent on the official wire, for tests: answers each prompt with facts about itself, and asks before it "runs" a command.
 * `tool NAME {…}` has it call a tool of the server that it was given, over the official MCP client.
 * `node agent.mjs [--outlive]`: with it, the end of its input does not end it.
 */

import process from 'node:process'
import { createInterface } from 'node:readline'

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
const update = (sessionId, update) => send({ method: 'session/update', params: { sessionId, update } })
const say = (sessionId, text) =>
  update(sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } })

const sessions = new Map()
const toolServers = new Map()
const asked = new Map()
let ids = 0

const methods = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] }),
  'session/new': ({ cwd, mcpServers }) => {
    const sessionId = `s${++ids}`
    toolServers.set(sessionId, mcpServers)
    sessions.set(sessionId, cwd)
    return { sessionId }
  },
  'session/prompt': async ({ sessionId, prompt }) => {
    const text = prompt.at(-1).text
    if (text.startsWith('tool ')) {
      const { Client } = await import('@modelcontextprotocol/sdk/client/index.js')
      const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js')
      const { command, args, env } = toolServers.get(sessionId).find(({ name }) => name === 'simse')
      const client = new Client({ name: 'agent', version: '1' })
      const variables = Object.fromEntries(env.map(({ name, value }) => [name, value]))
      await client.connect(new StdioClientTransport({ command, args, env: variables }))
      const { tools } = await client.listTools()
      const [, name, given = '{}'] = /^tool (\S+) ?(.*)$/.exec(text)
      const { content, isError } = await client.callTool({ name, arguments: JSON.parse(given) })
      await client.close()
      say(sessionId, JSON.stringify({ tools: tools.map((tool) => tool.name), said: content[0].text, isError }))
    } else if (text.startsWith('run ')) {
      const toolCall = { toolCallId: 'call_1', title: text, kind: 'execute', rawInput: { command: text.slice(4) } }
      update(sessionId, { sessionUpdate: 'tool_call', ...toolCall, status: 'pending' })
      const options = ['allow_once', 'reject_once'].map((kind) => ({ optionId: kind, name: kind, kind }))
      const id = `ask_${++ids}`
      send({ id, method: 'session/request_permission', params: { sessionId, toolCall, options } })
      const { outcome } = await new Promise((resolve) => asked.set(id, resolve))
      const status = outcome.optionId === 'allow_once' ? 'completed' : 'failed'
      update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId: 'call_1', status })
      say(sessionId, status)
    } else {
      const { pid, env } = process
      say(
        sessionId,
        JSON.stringify({ pid, cwd: sessions.get(sessionId), own: process.cwd(), secret: env.AGENT_SECRET }),
      )
    }
    return { stopReason: 'end_turn' }
  },
}

process.stdout.write('A line that is no message.\n')
if (process.argv.includes('--outlive')) setInterval(() => {}, 1000)
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params, result } = JSON.parse(line)
  if (method === undefined) {
    asked.get(id)?.(result)
  } else if (methods[method]) {
    Promise.resolve(methods[method](params)).then((result) => send({ id, result }))
  } else if (id !== undefined) {
    send({ id, error: { code: -32601, message: 'method not found' } })
  }
}
