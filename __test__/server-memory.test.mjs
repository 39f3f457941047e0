/** `memory` of createSimseServer: what one session notes, another finds, in a later server too. */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createSimseServer } from '../js/index.js'
import { http, turn } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'
import { registryOf } from './support/registry.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-memory-')))
const open = new Set()
let rooms = 0

after(async () => {
  for (const each of open) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

/** Where a server works and keeps its data. */
function place() {
  const at = join(room, String(++rooms))
  const [workingDirectory, dataDirectory] = ['work', 'data'].map((name) => join(at, name))
  mkdirSync(workingDirectory, { recursive: true })
  return { workingDirectory, dataDirectory }
}

/** A server on a scripted model that answers chats and embeddings in this order. */
async function scripted(script, { memory, ...more }) {
  const model = await scriptedModel(script)
  open.add(model)
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    limits: { shutdownGraceMs: 0 },
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
    memory: { enabled: true, similarityThreshold: 0.5, maxResults: 5, ...memory },
    ...more,
  })
  open.add(server)
  await server.start()
  return { server, model }
}

const calls = (name, args) => ({ calls: [{ id: 'call_1', name, arguments: args }] })

/** An answer of the embeddings route: each text gets the vector that `meaning` says. */
const embeds = (meaning) => (body) => ({
  status: 200,
  body: {
    object: 'list',
    data: body.input.map((text, index) => ({ object: 'embedding', index, embedding: meaning(text) })),
    model: body.model,
    usage: { prompt_tokens: 1, total_tokens: 1 },
  },
})

const animal = (text) => (/cat|feline/.test(text) ? [1, 0] : [0, 1])
const note = { text: 'The cat is fed at noon.', topic: 'house' }
const outputOf = (events) => events.find((event) => event.type === 'tool.call.end').payload.output
const memoryEvents = (events) => events.filter((event) => event.type.startsWith('memory.'))

test('a note of one session is found by its meaning in another, in a later server', async () => {
  const where = { ...place(), memory: { embeddingAgent: 'openai/embed' } }
  const first = await scripted([calls('memory_add', note), embeds(animal), { text: 'Noted.' }], where)
  const noted = await turn(first.server, 'Note it.')
  const [added] = memoryEvents(noted.events)
  assert.equal(added.type, 'memory.add')
  assert.match(added.payload.id, /^mem_/)
  assert.equal(added.payload.contentLength, note.text.length)
  assert.equal(outputOf(noted.events), `Remembered: ${added.payload.id}`)
  assert.deepEqual(first.model.requests[1], { model: 'embed', input: [note.text], encoding_format: 'float' })
  await first.server.stop()

  const second = await scripted(
    [calls('memory_search', { query: 'feline' }), embeds(animal), { text: 'At noon.' }],
    where,
  )
  const found = await turn(second.server, 'When?')
  const [searched] = memoryEvents(found.events)
  assert.equal(searched.type, 'memory.search')
  assert.deepEqual([searched.payload.query, searched.payload.resultCount], ['feline', 1])
  assert.equal(outputOf(found.events), `1. [house] (score: 1.00, id: ${added.payload.id})\n   ${note.text}`)
  assert.equal(found.last.payload.result, 'At noon.')
})

test('an embedding model that fails leaves the words, and the event says so', async () => {
  const refusal = { status: 401, body: { error: { message: 'wrong key' } } }
  const script = [
    calls('memory_add', note),
    refusal,
    { text: 'Noted.' },
    calls('memory_search', { query: 'cat' }),
    { text: 'Yes.' },
  ]
  const { server } = await scripted(script, { ...place(), memory: { embeddingAgent: 'embed' } })
  await turn(server, 'Note it.')
  const { events } = await turn(server, 'When?')
  assert.match(memoryEvents(events)[0].payload.degraded, /wrong key/)
  assert.match(outputOf(events), /fed at noon/)
})

test('tools of a registry stand beside those of memory, and keep their names', async () => {
  const toolRegistry = registryOf({ hello: () => Promise.resolve('hi'), memory_search: () => Promise.resolve('mine') })
  const { server } = await scripted([calls('memory_search', {}), { text: 'Done.' }], { ...place(), toolRegistry })
  const { body } = await http(server, 'GET', '/tools')
  assert.deepEqual(
    body.tools.map((tool) => tool.name),
    ['hello', 'memory_search', 'memory_add', 'memory_delete'],
  )
  const { events } = await turn(server, 'Search.')
  assert.equal(outputOf(events), 'mine')
})

test('an embedding model needs an endpoint', async () => {
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    ...place(),
    memory: { enabled: true, embeddingAgent: 'embed', similarityThreshold: 0.5, maxResults: 5 },
  })
  await assert.rejects(server.start(), (e) => {
    assert.doesNotMatch(e.message, /OPENAI_|memory_embedding_model/)
    return e.code === 'CONFIG_VALIDATION' && e.issues[0].path === 'memory.embeddingAgent'
  })
})
