/** Tool servers from Node: `mcpServers` of `createSimseServer` (typescript-api.md §1, §2). */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createSimseServer } from '../js/index.js'
import { http, turn } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'
import { registryOf } from './support/registry.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-mcp-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const open = []

after(async () => {
  for (const each of open) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

const script = new URL('../tests/it/support/mcp_server.mjs', import.meta.url).pathname
const log = join(room, 'log')
const program = (name) => ({ name, command: process.execPath, args: [script, 'plain', log] })

/** A started server whose model is scripted. */
async function scripted(replies, more) {
  const model = await scriptedModel(replies)
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    workingDirectory: room,
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
    limits: { shutdownGraceMs: 0 },
    ...more,
  })
  open.push(server, model)
  await server.start()
  return { server, model }
}

const calls = (name, args) => ({ calls: [{ id: 'call_1', name, arguments: args }] })
const lives = (pid) => {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

/** What the model was told about its last call. */
const told = (model) => model.requests.at(-1).messages.at(-1).content

/** A tool server behind an address: answers with JSON, and wants a key. */
async function addressed() {
  const keys = []
  const server = createServer(async (request, response) => {
    keys.push(request.headers['x-key'])
    let text = ''
    for await (const piece of request) text += piece
    if (request.method !== 'POST') return void response.writeHead(405).end()
    const { id, method, params } = JSON.parse(text)
    if (id === undefined) return void response.writeHead(202).end()
    const methods = {
      initialize: () => ({
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: 'addressed', version: '1' },
      }),
      'tools/list': () => ({ tools: [{ name: 'add', inputSchema: { type: 'object' } }] }),
      'tools/call': () => ({ content: [{ type: 'text', text: String(params.arguments.a + params.arguments.b) }] }),
    }
    // It is older than the question what it can.
    const error = { code: -32601, message: `no ${method}` }
    const answer = methods[method] ? { result: methods[method]() } : { error }
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }))
  })
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
  open.push({ close: () => server.close() })
  return { url: `http://127.0.0.1:${server.address().port}/mcp`, keys }
}

test('a session calls tools of a program and of an address; stop() leaves no process', async () => {
  const { url, keys } = await addressed()
  const mcpServers = [program('near'), { name: 'far', url, headers: { 'X-Key': 'sesame' } }]
  const replies = [
    calls('mcp__near__echo', { text: 'hi' }),
    calls('mcp__far__add', { a: 2, b: 3 }),
    (body) => ({ text: `The sum is ${body.messages.at(-1).content}.` }),
  ]
  const { server, model } = await scripted(replies, { mcpServers })
  const { last } = await turn(server, 'Go.')
  assert.equal(last.payload.result, 'The sum is 5.')
  assert.equal(model.requests[1].messages.at(-1).content, 'echo: hi')
  const offered = model.requests[0].tools.map((tool) => tool.function.name)
  // In the spelling that the wire takes.
  assert.ok(
    ['fs_read', 'mcp__near__echo', 'mcp__far__add'].every((name) => offered.includes(name)),
    String(offered),
  )
  assert.equal(model.requests[1].messages.at(-2).tool_calls[0].function.name, 'mcp__near__echo')
  const tools = (await http(server, 'GET', '/tools')).body
  const echo = (tools.items ?? tools.tools ?? tools).find((tool) => tool.name === 'mcp:near/echo')
  assert.deepEqual([echo.category, echo.annotations], ['other', { title: 'Echo', readOnly: true }])
  assert.ok(keys.length >= 4 && keys.every((key) => key === 'sesame'))
  const { started, helper } = JSON.parse(readFileSync(log, 'utf8').split('\n')[0])
  assert.deepEqual([lives(started), lives(helper)], [true, true])
  await server.stop()
  // Killed is not buried at the same instant.
  for (let i = 0; i < 4000 && (lives(started) || lives(helper)); i++) await new Promise((soon) => setTimeout(soon, 5))
  assert.deepEqual([lives(started), lives(helper)], [false, false])
})

test('the default rules ask about a tool of a server, whatever it says of itself', async () => {
  const asked = []
  const toolPermissions = {
    defaultPolicy: 'ask',
    rules: [],
    onPermissionRequest: async (request) => {
      asked.push(request.name)
      return false
    },
  }
  const replies = [calls('mcp:near/echo', { text: 'hi' }), { text: 'No.' }]
  const { server, model } = await scripted(replies, { mcpServers: [program('near')], toolPermissions })
  await turn(server, 'Go.')
  assert.deepEqual(asked, ['mcp:near/echo'])
  assert.match(told(model), /^Permission denied for tool: "mcp:near\/echo"/)
})

test('tools of servers stand beside a registry of the program, whose figures go on', async () => {
  const toolRegistry = registryOf({ mine: () => 'from here' })
  const replies = [calls('mine', {}), calls('mcp:near/echo', { text: 'hi' }), { text: 'Done.' }]
  const { server, model } = await scripted(replies, { mcpServers: [program('near')], toolRegistry })
  await turn(server, 'Go.')
  assert.deepEqual(
    [model.requests[1], model.requests[2]].map((r) => r.messages.at(-1).content),
    ['from here', 'echo: hi'],
  )
  assert.equal(toolRegistry.getToolMetrics('mine').callCount, 1)
})

test('start() succeeds when no server is there, and stop() when one never answers', async () => {
  const mcpServers = [
    { name: 'missing', command: join(room, 'no-such-program') },
    { name: 'echo', command: 'echo', args: ['hello'] },
    { name: 'silent', command: 'sleep', args: ['1000'] },
    { name: 'nowhere', url: 'http://127.0.0.1:1/mcp' },
  ]
  const { server } = await scripted([{ text: 'Here.' }], { mcpServers })
  const { last } = await turn(server, 'Go.', { session: { tools: ['fs_read'] } })
  assert.equal(last.payload.result, 'Here.')
  await server.stop()
})
