/** `registerMemoryTools` and `createToolRegistry({ memoryManager })`, over a memory of the caller's own. */

import assert from 'node:assert/strict'
import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { createEventBus, createSimseServer, createToolRegistry, registerMemoryTools } from '../js/index.js'
import { http } from './support/http.mjs'
import { call } from './support/registry.mjs'

/** Remembers in a Map, finds what contains the question. */
function memory() {
  const entries = new Map()
  const asked = []
  return {
    asked,
    async add(text, metadata) {
      const id = `m${entries.size + 1}`
      entries.set(id, { id, text, metadata })
      return id
    },
    async search(query, maxResults, threshold) {
      asked.push([query, maxResults, threshold])
      const found = [...entries.values()].filter(({ text }) => text.includes(query))
      return found.slice(0, maxResults ?? 5).map((entry, i) => ({ entry, score: 1 - i / 4 }))
    },
    delete: async (id) => entries.delete(id),
  }
}

function registryOver(memoryManager) {
  const eventBus = createEventBus()
  const seen = []
  eventBus.subscribeAll((type, payload) => type.startsWith('memory.') && seen.push([type, payload]))
  return { registry: createToolRegistry({ memoryManager, eventBus }), seen }
}

const NAMES = ['memory_search', 'memory_add', 'memory_delete']

test('the tools remember, find and forget, and publish what they did', async () => {
  const manager = memory()
  const { registry, seen } = registryOver(manager)
  assert.deepEqual(registry.toolNames, NAMES)
  const run = async (name, args) => (await registry.execute(call(name, args))).output
  assert.equal(await run('memory_add', { text: ' The cat\nis fed 😀 ', topic: 'house' }), 'Remembered: m1')
  assert.equal(await run('memory_add', { text: 'The cat sleeps' }), 'Remembered: m2')
  assert.equal(
    await run('memory_search', { query: 'cat', maxResults: 2 }),
    '1. [house] (score: 1.00, id: m1)\n   The cat\n   is fed 😀\n\n2. (score: 0.75, id: m2)\n   The cat sleeps',
  )
  assert.equal(await run('memory_search', { query: 'dog' }), 'Nothing is remembered about that.')
  assert.deepEqual(manager.asked, [
    ['cat', 2, undefined],
    ['dog', undefined, undefined],
  ])
  assert.equal(await run('memory_delete', { id: 'm2' }), 'Forgotten: m2')
  const [, , searched] = seen
  assert.equal(typeof searched[1].durationMs, 'number')
  assert.deepEqual(
    seen.map(([type, { durationMs, ...payload }]) => [type, payload]),
    [
      ['memory.add', { id: 'm1', contentLength: 17 }],
      ['memory.add', { id: 'm2', contentLength: 14 }],
      ['memory.search', { query: 'cat', resultCount: 2 }],
      ['memory.search', { query: 'dog', resultCount: 0 }],
      ['memory.delete', { id: 'm2' }],
    ],
  )
})

test('what fails is a failed call, and nothing is published', async () => {
  const broken = { ...memory(), search: async () => 'no list', add: () => Promise.reject(new Error('full')) }
  const { registry, seen } = registryOver(broken)
  for (const [name, args, words] of [
    ['memory_search', { query: 'a' }, /list of \{entry, score\}, got string "no list"/],
    ['memory_search', { query: ' ' }, /`query`: expected a text that is not empty/],
    [
      'memory_search',
      { query: 'a', maxResults: 0 },
      /`maxResults`: expected a whole number from 1 to 100, got number 0/,
    ],
    ['memory_search', {}, /query/],
    ['memory_add', { text: 'a' }, /full/],
    ['memory_add', { text: '\n' }, /`text`/],
    ['memory_delete', { id: 'm9' }, /no note with the id "m9"/],
  ]) {
    const { output, isError } = await registry.execute(call(name, args))
    assert.ok(isError, output)
    assert.match(output, words)
  }
  assert.deepEqual(seen, [])
})

test('registered later they are the same; what is no memory is refused', () => {
  const registry = createToolRegistry({})
  registerMemoryTools(registry, memory())
  assert.deepEqual(registry.toolNames, NAMES)
  for (const [make, path] of [
    [() => registerMemoryTools(registry, {}), 'memoryManager'],
    [() => registerMemoryTools(registry), 'memoryManager'],
    [() => registerMemoryTools({}, memory()), 'registry'],
    [() => createToolRegistry({ memoryManager: { search() {} } }), 'memoryManager'],
  ])
    assert.throws(make, (e) => e.code === 'CONFIG_VALIDATION' && e.issues[0].path === path)
})

test('they are defined as the server defines them', async () => {
  const workingDirectory = realpathSync(mkdtempSync(join(tmpdir(), 'simse-memory-tools-')))
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    workingDirectory,
    dataDirectory: join(workingDirectory, 'data'),
    memory: { enabled: true, similarityThreshold: 0.5, maxResults: 5 },
  })
  await server.start()
  try {
    const { body } = await http(server, 'GET', '/tools')
    const theirs = body.tools.filter((tool) => tool.category === 'memory')
    const { registry } = registryOver(memory())
    assert.deepEqual(theirs, JSON.parse(JSON.stringify(registry.getToolDefinitions())))
  } finally {
    await server.stop()
    rmSync(workingDirectory, { recursive: true, force: true })
  }
})
