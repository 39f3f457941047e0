/** simse as an MCP server, by the official SDK's client: over stdio (`simse mcp`) and over streamable HTTP (`/mcp`), the same of both. */

import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  ElicitRequestSchema,
  ResourceListChangedNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { scriptedModel } from './support/model.mjs'
import { binary, servedAt } from './support/served.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-mcp-server-')))
const open = []

after(async () => {
  for (const each of open.reverse()) await each()
  rmSync(room, { recursive: true, force: true })
})

/** A client that answers forms with what `answers` says of them; without it, it has none. */
function clientWith(answers) {
  const capabilities = answers === undefined ? {} : { elicitation: { form: {} } }
  const client = new Client({ name: 'sdk', version: '1.0' }, { capabilities })
  if (answers !== undefined) client.setRequestHandler(ElicitRequestSchema, (request) => answers(request.params))
  return client
}

let homes = 0

/** A program for one client, in a directory of its own. */
async function overStdio(answers) {
  const home = join(room, `home-${++homes}`)
  const work = join(home, 'work')
  mkdirSync(work, { recursive: true })
  const client = clientWith(answers)
  const transport = new StdioClientTransport({
    command: binary,
    args: ['mcp', '--client-grace-ms', '100'],
    cwd: work,
    env: { PATH: process.env.PATH, HOME: home },
    stderr: 'ignore',
  })
  open.push(() => client.close())
  await client.connect(transport)
  return { client, work, transport }
}

/** A server, and clients of it. */
async function overHttp(answers) {
  const home = join(room, `home-${++homes}`)
  const model = await scriptedModel([{ text: 'hello' }, { text: 'hello' }])
  const server = await servedAt({ home, model, args: ['--client-grace-ms', '100'] })
  open.push(async () => {
    await server.kill()
    await model.close()
  })
  const client = clientWith(answers)
  const requestInit = { headers: server.headers }
  const transport = new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`), { requestInit })
  open.push(() => client.close())
  await client.connect(transport)
  return { client, work: server.work, server, transport }
}

const accept = (decision) => ({ action: 'accept', content: { decision } })
const textOf = (result) => result.content[0].text

for (const [way, connect] of [
  ['stdio', overStdio],
  ['HTTP', overHttp],
]) {
  test(`the tools over ${way}: listed, asked about, run, with progress, images and structure`, async () => {
    const asked = []
    const { client, work } = await connect((params) => {
      asked.push(params)
      return accept('allow')
    })
    assert.equal(client.getServerVersion().name, 'simse')
    const { tools } = await client.listTools()
    const named = Object.fromEntries(tools.map((tool) => [tool.name, tool]))
    for (const name of [
      'fs_read',
      'fs_write',
      'bash',
      'exec_command',
      'git_status',
      'session_prompt',
      'session_wait',
    ]) {
      assert.equal(named[name]?.inputSchema.type, 'object', name)
    }
    assert.equal(named.fs_read.annotations.readOnlyHint, true)
    assert.equal(named.bash.annotations.readOnlyHint, false)

    // The SDK holds structured results against the schemas that it was told.
    const written = await client.callTool({ name: 'fs_write', arguments: { path: 'a.txt', content: 'one\n' } })
    assert.ok(written.structuredContent.details, JSON.stringify(written))
    assert.equal(readFileSync(join(work, 'a.txt'), 'utf8'), 'one\n')
    assert.match(asked[0].message, /fs_write/)
    const read = await client.callTool({ name: 'fs_read', arguments: { path: 'a.txt' } })
    assert.match(textOf(read), /one/)
    assert.equal(asked.length, 1, 'reading asks nobody')

    const progress = []
    const command = 'for i in 1 2 3; do echo line $i; sleep 0.1; done'
    const options = { onprogress: (each) => progress.push(each.message) }
    const ran = await client.callTool({ name: 'bash', arguments: { command } }, undefined, options)
    assert.equal(textOf(ran), 'line 1\nline 2\nline 3\n')
    assert.equal(progress.join(''), textOf(ran), 'all of it came while it ran')
    assert.match(asked[1].message, /line \$i/)

    const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='
    writeFileSync(join(work, 'dot.png'), Buffer.from(png, 'base64'))
    const shown = await client.callTool({ name: 'view_image', arguments: { path: 'dot.png' } })
    const image = shown.content.find((part) => part.type === 'image')
    assert.deepEqual([image.mimeType, image.data], ['image/png', png])

    const failed = await client.callTool({ name: 'fs_read', arguments: { path: 'none' } })
    assert.equal(failed.isError, true)
    await assert.rejects(client.callTool({ name: 'no_such_tool', arguments: {} }), { code: -32602 })
    assert.deepEqual(await client.ping(), {})
  })

  test(`what is refused over ${way} does not run`, async () => {
    let answer = { action: 'decline' }
    const { client, work } = await connect(() => answer)
    const touch = (name) => client.callTool({ name: 'bash', arguments: { command: `touch ${name}` } })
    assert.match(textOf(await touch('declined')), /declined/)
    answer = accept('deny')
    assert.equal((await touch('denied')).isError, true)
    answer = accept('allow_always')
    assert.equal((await touch('allowed')).isError, false)
    answer = accept('deny')
    assert.equal((await touch('allowed')).isError, false, 'it was allowed for always')
    assert.deepEqual(
      ['declined', 'denied', 'allowed'].map((name) => existsSync(join(work, name))),
      [false, false, true],
    )
  })

  test(`a client without forms is refused over ${way}, with the reason`, async () => {
    const { client, work } = await connect(undefined)
    const result = await client.callTool({ name: 'bash', arguments: { command: 'touch f' } })
    assert.equal(result.isError, true)
    assert.match(result.content.map((part) => part.text).join(' '), /elicitation/)
    assert.equal(existsSync(join(work, 'f')), false)
  })

  test(`a call that is given up over ${way} is aborted`, async () => {
    const { client, work } = await connect(() => accept('allow'))
    const giveUp = new AbortController()
    const command = 'echo begun; trap "touch ended" EXIT; sleep 300'
    const options = { signal: giveUp.signal, onprogress: () => giveUp.abort('enough') }
    await assert.rejects(client.callTool({ name: 'bash', arguments: { command } }, undefined, options))
    // The next one finds the first in the log, over.
    const { resources } = await client.listResources()
    const { uri } = resources.find((resource) => resource.uri !== 'simse://sessions')
    let history = ''
    for (let tries = 0; !history.includes('aborted') && tries < 600; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 50))
      history = (await client.readResource({ uri: `${uri}/history` })).contents[0].text
    }
    assert.match(history, /aborted/)
    assert.equal(existsSync(join(work, 'f')), false)
  })

  test(`sessions are resources over ${way}`, async () => {
    const { client } = await connect(() => accept('allow'))
    const told = []
    const changed = new Promise((resolve) => {
      client.setNotificationHandler(ResourceListChangedNotificationSchema, () => resolve('list'))
    })
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => told.push(params.uri))
    const { resourceTemplates } = await client.listResourceTemplates()
    assert.equal(resourceTemplates.length, 2)
    await client.subscribeResource({ uri: 'simse://sessions' })
    await client.callTool({ name: 'fs_list', arguments: {} })
    await client.callTool({ name: 'session_prompt', arguments: { prompt: 'x', title: 'Mine' } })
    const { contents } = await client.readResource({ uri: 'simse://sessions' })
    const { items } = JSON.parse(contents[0].text)
    assert.deepEqual(
      items.map((item) => item.title),
      ['Mine', 'MCP: sdk 1.0'],
    )
    const ref = { type: 'ref/resource', uri: 'simse://sessions/{sessionId}' }
    const { completion } = await client.complete({ ref, argument: { name: 'sessionId', value: items[0].sessionId } })
    assert.deepEqual(completion.values, [items[0].sessionId])
    await changed
    for (let tries = 0; told.length === 0 && tries < 600; tries += 1) await new Promise((r) => setTimeout(r, 50))
    assert.equal(told[0], 'simse://sessions')
    await client.setLoggingLevel('error')
  })
}

test('a prompt is worked on by the agent of the server, and waited for', async () => {
  const { client, server } = await overHttp(() => accept('allow'))
  const prompted = await client.callTool({ name: 'session_prompt', arguments: { prompt: 'say hello' } })
  const { sessionId, turnId } = prompted.structuredContent
  const waited = await client.callTool({ name: 'session_wait', arguments: { sessionId, turnId } })
  assert.deepEqual([waited.isError, textOf(waited), waited.structuredContent.status], [false, 'hello', 'completed'])
  const { status, body } = await server.call('GET', `/sessions/${sessionId}/turns/${turnId}`)
  assert.deepEqual([status, body.result], [200, 'hello'])
})

test('a server that was started again sends its clients back to the beginning', async () => {
  const { client, server, transport } = await overHttp(() => accept('allow'))
  await client.callTool({ name: 'bash', arguments: { command: 'true' } })
  await server.kill()
  await server.start()
  await assert.rejects(client.ping(), (error) => error.code === 404 || /404/.test(error.message))
  await transport.close()
  const again = clientWith(() => accept('allow'))
  open.push(() => again.close())
  const requestInit = { headers: server.headers }
  await again.connect(new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`), { requestInit }))
  const { contents } = await again.readResource({ uri: 'simse://sessions' })
  assert.equal(JSON.parse(contents[0].text).items[0].title, 'MCP: sdk 1.0', 'what it did is in the log')
})
