/** The MCP client of a program (typescript-api.md §7), against real processes. */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createMCPClient, createToolRegistry } from '../js/index.js'
import { call, deferred } from './support/registry.mjs'
import { entry, runModule } from './support/run.mjs'

const room = mkdtempSync(join(tmpdir(), 'simse-mcp-client-'))
const clients = []
after(async () => {
  for (const client of clients) await client.disconnectAll()
  rmSync(room, { recursive: true, force: true })
})

const script = new URL('../tests/it/support/mcp_server.mjs', import.meta.url).pathname
const program = (name, mode = 'plain') => ({
  name,
  command: process.execPath,
  args: [script, mode, join(room, name)],
})
const missing = { name: 'missing', command: join(room, 'no-such-program') }
const heard = (name, method) =>
  readFileSync(join(room, name), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter((note) => note.method === method)

/** A client of these servers, and the warnings that it gives. */
function clientOf(servers, more = {}) {
  const warnings = []
  const client = createMCPClient({ servers, ...more }, { warn: (message) => warnings.push(message) })
  clients.push(client)
  return { client, warnings }
}

const withCode = (code, statusCode, words) => (error) => {
  assert.deepEqual([error.code, error.statusCode], [code, statusCode], error.message)
  assert.match(error.message, words)
  return true
}

test('what cannot be a client is refused', () => {
  for (const [make, path] of [
    [() => createMCPClient(), ''],
    [() => createMCPClient({}), 'servers'],
    [() => createMCPClient({ servers: [{ name: 'a' }] }), 'servers.0.command'],
    [() => createMCPClient({ servers: [program('a'), program('a')] }), 'servers.1.name'],
    [() => createMCPClient({ servers: [], name: 'x' }), 'name'],
    [() => createMCPClient({ servers: [] }, {}), 'logger'],
  ])
    assert.throws(make, (e) => e.code === 'CONFIG_VALIDATION' && e.issues.some((issue) => issue.path === path))
})

test('connect, ask for everything, disconnect', async () => {
  const { client, warnings } = clientOf([program('one'), missing, program('two')], {
    clientName: 'mine',
    clientVersion: '7',
  })
  assert.ok(Object.isFrozen(client))
  assert.deepEqual([client.connectionCount, client.connectedServerNames, client.isAvailable()], [0, [], false])
  assert.deepEqual(await client.connectAll(), ['one', 'two'])
  assert.equal(warnings.length, 1)
  assert.match(warnings[0], /missing.*cannot start/)
  assert.deepEqual([client.connectionCount, client.connectedServerNames], [2, ['one', 'two']])
  assert.deepEqual(['one', 'missing', 'none', undefined].map(client.isAvailable), [true, false, false, true])
  assert.deepEqual(heard('one', 'initialize')[0].params.clientInfo, { name: 'mine', version: '7' })

  const tools = await client.listTools('one')
  assert.deepEqual(
    tools.map((tool) => tool.name),
    ['echo', 'wait', 'die', 'grow', 'fail', 'flood', 'picture'],
  )
  assert.deepEqual([tools[0].serverName, tools[0].inputSchema.required], ['one', ['text']])
  assert.equal((await client.listTools()).length, 14)
  const resources = await client.listResources('two')
  assert.deepEqual(
    resources,
    [1, 2].map((n) => ({ uri: `mem://${n}`, name: 'r', serverName: 'two' })),
  )
  assert.deepEqual(await client.listResourceTemplates(), [], 'a server without them has none')
  const read = await client.readResource('one', 'mem://1')
  assert.deepEqual(read, { contents: [{ uri: 'mem://1', mimeType: 'text/plain', text: 'inside' }] })
  assert.deepEqual((await client.listPrompts('one'))[0].arguments, [{ name: 'who', required: true }])
  const prompt = await client.getPrompt('one', 'greet', { who: 'Ada' })
  assert.deepEqual(prompt.messages, [{ role: 'user', content: { type: 'text', text: 'Greet Ada.' } }])

  assert.deepEqual((await client.callTool('one', 'echo', { text: 'hi' })).content, [{ type: 'text', text: 'echo: hi' }])
  assert.equal((await client.callTool('one', 'fail')).isError, true)
  await client.disconnect('one')
  await client.disconnect('one')
  assert.deepEqual(client.connectedServerNames, ['two'])
  await assert.rejects(
    client.callTool('one', 'echo', { text: '' }),
    withCode('MCP_NOT_CONNECTED', 503, /`one` is not connected/),
  )
  await client.disconnectAll()
  assert.equal(client.isAvailable(), false)
})

test('each failure has its code', async () => {
  const { client } = clientOf([program('codes'), missing, program('refusing', 'refuse')])
  await assert.rejects(
    client.connect('nobody'),
    withCode('MCP_CONNECTION_ERROR', 503, /no MCP server `nobody`; known are codes/),
  )
  await assert.rejects(client.connect('missing'), withCode('MCP_CONNECTION_ERROR', 503, /cannot start/))
  await assert.rejects(client.connect('refusing'), withCode('MCP_CONNECTION_ERROR', 503, /not today/))
  await assert.rejects(client.connect(5), withCode('CONFIG_VALIDATION', 400, /name/))
  await client.connect('codes')
  await client.connect('codes')
  assert.equal(heard('codes', 'initialize').length, 1)
  await assert.rejects(
    client.callTool('codes', 'none'),
    withCode('MCP_TOOL_ERROR', 502, /unknown tool none \(code -32602\)/),
  )
  await assert.rejects(client.readResource('codes', 'mem://9'), withCode('MCP_ERROR', 500, /no such resource/))
  await assert.rejects(client.getPrompt('codes', 'greet', { who: 5 }), withCode('CONFIG_VALIDATION', 400, /args\.who/))
  const slow = client.callTool('codes', 'wait', {}, { timeoutMs: 50 })
  await assert.rejects(slow, withCode('OPERATION_TIMEOUT', 504, /timed out after 50ms/))
  await assert.rejects(client.callTool('codes', 'die'), withCode('MCP_TOOL_ERROR', 502, /exit code 7/))
  assert.equal((await client.callTool('codes', 'echo', { text: 'back' })).content[0].text, 'echo: back')
})

test('a signal cancels a call, on the server too', async () => {
  const { client } = clientOf([program('slow')])
  await client.connect('slow')
  const stop = new AbortController()
  const asked = client.callTool('slow', 'wait', {}, { signal: stop.signal })
  const seen = async (method) => {
    for (let i = 0; i < 10_000 && heard('slow', method).length === 0; i++)
      await new Promise((soon) => setTimeout(soon, 5))
    return heard('slow', method)[0]
  }
  await seen('tools/call')
  stop.abort()
  await assert.rejects(asked, { name: 'AbortError' })
  assert.equal((await seen('notifications/cancelled')).params.requestId, (await seen('tools/call')).id)
  await assert.rejects(client.callTool('slow', 'wait', {}, { signal: stop.signal }), { name: 'AbortError' })
})

test('an image of a server is an image of the registry', async () => {
  const { client } = clientOf([program('painter')])
  await client.connect('painter')
  const registry = createToolRegistry({ mcpClient: client })
  await registry.discover()
  const { output, parts, isError } = await registry.execute(call('mcp:painter/picture'))
  const image = { type: 'image', mediaType: 'image/png', data: 'AAECAw==' }
  assert.deepEqual([output, parts, isError], ['[image, image/png, 4 bytes]', [image], false])
})

test('changed tools are told, and a registry takes them', async () => {
  const { client, warnings } = clientOf([program('growing')])
  await client.connect('growing')
  const registry = createToolRegistry({ mcpClient: client })
  await registry.discover()
  assert.ok(registry.isRegistered('mcp:growing/echo') && !registry.isRegistered('mcp:growing/grown'))
  const told = deferred()
  client.onToolsChanged(() => {
    throw new Error('a bad listener')
  })
  const end = client.onToolsChanged(told.resolve)
  const grown = await registry.execute(call('mcp:growing/grow'))
  assert.deepEqual([grown.output, grown.isError], ['grown', false])
  assert.equal(await told.promise, 'growing')
  assert.match(warnings[0], /a bad listener/)
  end()
  end()
  await registry.discover()
  assert.ok(registry.isRegistered('mcp:growing/grown'))
})

test('the process ends by itself after disconnectAll(), and stays while a server is connected', async () => {
  const head = `
    import { createMCPClient } from ${entry}
    const client = createMCPClient({ servers: [${JSON.stringify(program('alive'))}] })
    await client.connectAll()
    console.log('connected')`
  const ended = await runModule(`${head}
    await client.disconnectAll()`)
  assert.deepEqual([ended.code, ended.said], [0, 'connected\n'])
  const kept = await runModule(head, { limitMs: 3000 })
  assert.equal(kept.timedOut, true)
})

/** A server that wants things of its client, and tells. */
const rich = (name) => ({
  name,
  command: process.execPath,
  args: [new URL('../tests/it/support/mcp_rich.mjs', import.meta.url).pathname, join(room, name)],
})
const answerOf = async (...args) => JSON.parse((await args[0].callTool(...args.slice(1))).content[0].text)

/** Waits until something holds, and not for ever. */
async function until(holds) {
  const end = Date.now() + 60_000
  while (!holds()) {
    assert.ok(Date.now() < end, `it never came to hold: ${holds}`)
    await new Promise((soon) => setTimeout(soon, 5))
  }
}

test('a program answers what its servers ask', async () => {
  const asked = []
  const { client } = clientOf([rich('asks')], {
    roots: [room],
    onSampling: async (request, { server, signal }) => {
      asked.push([server, request.messages[0].content.text, request.systemPrompt, signal instanceof AbortSignal])
      if (request.maxTokens === 1) throw new Error('not for one token')
      return { role: 'assistant', content: { type: 'text', text: 'an answer' }, model: 'mine', stopReason: 'endTurn' }
    },
  })
  await client.connect('asks')
  const { capabilities } = heard('asks', 'initialize')[0].params
  assert.deepEqual(capabilities, { roots: { listChanged: true }, sampling: {} })
  const answer = await answerOf(client, 'asks', 'sample')
  assert.deepEqual([answer.model, answer.content.text, answer.stopReason], ['mine', 'an answer', 'endTurn'])
  assert.deepEqual(asked, [['asks', 'What is it?', 'Be brief. s3cret-key', true]])
  const refused = await answerOf(client, 'asks', 'sample', { maxTokens: 1 })
  assert.deepEqual(refused.error, { code: -1, message: 'not for one token' })
  const [root] = (await answerOf(client, 'asks', 'roots')).roots
  assert.equal(root.uri, `file://${room}`)
  client.setRoots([join(room, 'a b'), '/'])
  const later = await answerOf(client, 'asks', 'roots')
  assert.deepEqual(
    later.roots.map((each) => each.uri),
    [`file://${room}/a%20b`, 'file:///'],
  )
  while (heard('asks', 'notifications/roots/list_changed').length === 0)
    await new Promise((soon) => setTimeout(soon, 5))
  assert.throws(() => client.setRoots('x'), { code: 'CONFIG_VALIDATION' })
})

test('a person fills in forms and opens pages, or does not', async () => {
  const asks = {
    name: 'asker',
    command: process.execPath,
    args: [new URL('./support/elicits.mjs', import.meta.url).pathname],
  }
  const asked = []
  const { client, warnings } = clientOf([asks], {
    onElicitation: async (request, { server }) => {
      if (request.message === 'Fail.') throw new Error('no room at /home/ada/keys')
      asked.push({ server, ...request })
      if (request.mode === 'form') return { action: 'accept', content: { name: 'Ada' } }
      if (request.url.endsWith('/nothing')) return undefined
      // What is said beside of a page goes nowhere.
      return request.url.endsWith('/no') ? { action: 'decline' } : { action: 'accept', content: { secret: 'x' } }
    },
  })
  await client.connect('asker')
  const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] }
  const form = await answerOf(client, 'asker', 'ask', { message: 'Who?', requestedSchema })
  assert.deepEqual(form, { action: 'accept', content: { name: 'Ada' } })
  const page = { message: 'Log in.', url: 'https://pages.example/login' }
  assert.deepEqual(await answerOf(client, 'asker', 'ask', page), { action: 'accept' })
  assert.deepEqual(await answerOf(client, 'asker', 'ask', { ...page, url: 'https://pages.example/no' }), {
    action: 'decline',
  })
  const none = await answerOf(client, 'asker', 'ask', { ...page, url: 'https://pages.example/nothing' })
  assert.match(none.error, /the program's answer is none/)
  const thrown = await answerOf(client, 'asker', 'ask', { message: 'Fail.', requestedSchema })
  assert.equal(thrown.error, 'MCP error -32603: the question could not be put to a person')
  assert.match(JSON.stringify(warnings), /onElicitation failed for MCP server .*no room at/)
  const refused = await answerOf(client, 'asker', 'ask', { ...page, url: 'file:///etc/passwd', raw: true })
  assert.match(refused.error, /expected an http or https address/)
  assert.deepEqual(asked, [
    { server: 'asker', mode: 'form', message: 'Who?', requestedSchema },
    { server: 'asker', mode: 'url', elicitationId: 'e1', ...page },
    { server: 'asker', mode: 'url', elicitationId: 'e1', message: 'Log in.', url: 'https://pages.example/no' },
    { server: 'asker', mode: 'url', elicitationId: 'e1', message: 'Log in.', url: 'https://pages.example/nothing' },
  ])
})

test('progress, log messages and changed resources are told, also after a new start', async () => {
  const { client } = clientOf([rich('tells')])
  const told = []
  const ends = [
    client.onLog((message) => told.push(['log', message])),
    client.onResourceUpdated((server, uri) => told.push(['updated', server, uri])),
    client.onResourcesChanged((server) => told.push(['resources', server])),
    client.onPromptsChanged((server) => told.push(['prompts', server])),
  ]
  await client.connect('tells')
  const steps = []
  const slow = await client.callTool('tells', 'slow', {}, { timeoutMs: 700, onProgress: (step) => steps.push(step) })
  assert.equal(slow.content[0].text, 'at last', 'it took longer than its time, and said that it goes on')
  assert.deepEqual(
    steps.map((step) => step.progress),
    [1, 2, 3, 4],
  )
  assert.deepEqual(steps[3], { progress: 4, total: 4, message: 'step 4 s3cret-key' })
  for (let n = 0; n < 50; n++) {
    const heard = []
    const onProgress = ({ progress }) => heard.push(progress)
    await client.callTool('tells', 'hurry', { count: 5, quiet: true }, { onProgress })
    assert.deepEqual(heard, [1, 2, 3, 4, 5], 'all of it, in its order, before the answer')
  }
  await assert.rejects(client.callTool('tells', 'slow', {}, { timeoutMs: 700 }), { code: 'OPERATION_TIMEOUT' })
  await client.setLogLevel('tells', 'error')
  await client.subscribeResource('tells', 'mem://1')
  await client.subscribeResource('tells', 'mem://2')
  await client.unsubscribeResource('tells', 'mem://2')
  assert.deepEqual(await client.complete('tells', { prompt: 'p' }, { name: 'city', value: 'pa' }, { country: 'F' }), {
    values: ['paris'],
    total: 1,
  })
  assert.deepEqual(heard('tells', 'completion/complete')[0].params.context, { arguments: { country: 'F' } })
  await assert.rejects(client.complete('tells', {}, { name: 'a', value: '' }), { code: 'CONFIG_VALIDATION' })
  await assert.rejects(client.setLogLevel('tells', 'loud'), { code: 'CONFIG_VALIDATION' })
  await client.callTool('tells', 'chatter')
  await client.callTool('tells', 'touch', { uri: 'mem://1' })
  await until(() => !(told.length < 4))
  assert.deepEqual(told, [
    ['log', { server: 'tells', level: 'warning', logger: 'l', data: 'word 0' }],
    ['updated', 'tells', 'mem://1'],
    ['resources', 'tells'],
    ['prompts', 'tells'],
  ])
  for (const end of ends) end()
  await assert.rejects(client.callTool('tells', 'die'), { code: 'MCP_TOOL_ERROR' })
  await client.callTool('tells', 'chatter')
  // The new program is told again what the one before it was told.
  await until(() => !(heard('tells', 'resources/subscribe').length < 3))
  const [level] = heard('tells', 'logging/setLevel').slice(-1)
  const [uri] = heard('tells', 'resources/subscribe').slice(-1)
  assert.deepEqual([level.params.level, uri.params.uri, told.length], ['error', 'mem://1', 4])
})
