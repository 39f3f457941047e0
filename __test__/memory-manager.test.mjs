/** `createMemoryManager`: a memory over an embedding provider of the program's own (typescript-api.md §7). */

import assert from 'node:assert/strict'
import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createMemoryManager, createToolRegistry, registerMemoryTools } from '../js/index.js'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-memory-')))
after(() => rmSync(room, { recursive: true, force: true }))

const refused = (path) => (error) => error.code === 'CONFIG_VALIDATION' && error.issues.some((i) => i.path === path)
const config = { enabled: true, similarityThreshold: 0.3, maxResults: 5 }

/** Knows two meanings: feet on four, and iron. */
const meanings = () => {
  const asked = []
  return {
    asked,
    async embed(input, model) {
      const texts = typeof input === 'string' ? [input] : input
      asked.push([texts.length, model])
      const about = (text, words) => (words.some((word) => text.includes(word)) ? 1 : 0)
      return {
        embeddings: texts.map((text) =>
          Float32Array.from([about(text, ['cat', 'feline']), about(text, ['anvil', 'forge']), 0.01]),
        ),
      }
    },
  }
}

test('what is remembered is found by meaning and by words, and outlives the program', async () => {
  const path = join(room, 'memory.db')
  const embedder = meanings()
  const memory = createMemoryManager(embedder, { ...config, embeddingAgent: 'm' }, { path, project: 'p' })
  assert.ok(Object.isFrozen(memory))
  assert.deepEqual([memory.isInitialized, memory.size], [false, 0])
  await assert.rejects(memory.add('early'), { code: 'MEMORY_ERROR' })
  await memory.initialize()
  await memory.initialize()
  const id = await memory.add('The cat is fed at noon.', { topic: 'animals' })
  const [anvil, again] = await memory.addBatch([
    { text: 'The anvil stands outside.' },
    { text: 'The cat is fed at noon.' },
  ])
  assert.equal(again, id, 'a text is there once')
  assert.deepEqual([memory.isInitialized, memory.size], [true, 2])
  const [best, ...rest] = await memory.search('feline')
  assert.equal(rest.length, 0, 'the other one is not near')
  assert.deepEqual(
    [best.entry.id, best.entry.text, best.entry.metadata],
    [id, 'The cat is fed at noon.', { topic: 'animals' }],
  )
  assert.ok(
    best.score > 0.9 && best.score <= 1 && Number.isInteger(best.entry.timestamp) && Object.isFrozen(best.entry),
  )
  assert.deepEqual(
    (await memory.textSearch({ query: 'anvil outside', maxResults: 1 })).map(({ entry }) => entry.id),
    [anvil],
  )
  assert.deepEqual(await memory.textSearch({ query: 'feline' }), [], 'by words alone')
  assert.equal((await memory.getById(anvil)).text, 'The anvil stands outside.')
  assert.equal(await memory.getById('none'), undefined)
  assert.deepEqual(
    (await memory.getAll()).map((entry) => entry.id),
    [anvil, id],
  )
  assert.ok(embedder.asked.every(([, model]) => model === 'm') && embedder.asked.length >= 3)
  await memory.dispose()
  assert.equal(memory.isInitialized, false)
  await assert.rejects(memory.search('cat'), { code: 'MEMORY_ERROR' })
  // Another program, and another project in the same file.
  const later = createMemoryManager(meanings(), { ...config, embeddingAgent: 'm' }, { path, project: 'p' })
  const other = createMemoryManager(meanings(), config, { path, project: 'q' })
  await later.initialize()
  await other.initialize()
  assert.deepEqual([later.size, other.size], [2, 0])
  assert.deepEqual([await later.delete(anvil), await later.delete(anvil), later.size], [true, false, 1])
  await later.clear()
  assert.equal(later.size, 0)
  await later.dispose()
  await other.dispose()
})

test('an embedding provider that fails leaves the words, and is told of', async () => {
  const warnings = []
  const logger = { warn: (text) => warnings.push(text) }
  const embedder = { embed: () => Promise.reject(new Error('no vectors today')) }
  const memory = createMemoryManager(embedder, config, { logger })
  await memory.initialize()
  const id = await memory.add('The forge is hot.')
  assert.deepEqual(
    (await memory.search('forge')).map(({ entry }) => entry.id),
    [id],
  )
  assert.ok(warnings.length >= 1 && warnings[0].includes('no vectors today'), `${warnings}`)
  await memory.dispose()
  for (const embeddings of [[], [[1], [1, 2]], [[Number.NaN]], 'none']) {
    const odd = createMemoryManager({ embed: async () => ({ embeddings }) }, config, { logger })
    await odd.initialize()
    await odd.add('one text')
    assert.equal(odd.size, 1, 'the text is kept all the same')
    await odd.dispose()
  }
})

test('the memory tools take it', async () => {
  const memoryManager = createMemoryManager(meanings(), config)
  await memoryManager.initialize()
  const registry = createToolRegistry()
  registerMemoryTools(registry, memoryManager)
  const run = async (name, args) => (await registry.execute({ id: '1', name, arguments: args })).output
  assert.match(await run('memory_add', { text: 'The cat sleeps by the forge.', topic: 'cats' }), /^Remembered: /)
  assert.match(await run('memory_search', { query: 'feline' }), /\[cats\] \(score: /)
  await memoryManager.dispose()
})

test('what does not fit is refused', async () => {
  const embedder = meanings()
  assert.throws(() => createMemoryManager({}, config), refused('embedder'))
  assert.throws(() => createMemoryManager(embedder, { ...config, maxResults: 101 }), refused('config.maxResults'))
  assert.throws(
    () => createMemoryManager(embedder, { ...config, similarityThreshold: 2 }),
    refused('config.similarityThreshold'),
  )
  assert.throws(() => createMemoryManager(embedder, { ...config, enable: true }), refused('config.enable'))
  assert.throws(() => createMemoryManager(embedder, config, { paths: 'a' }), refused('options.paths'))
  const off = createMemoryManager(embedder, { ...config, enabled: false })
  await assert.rejects(off.initialize(), { code: 'MEMORY_ERROR' })
  const memory = createMemoryManager(embedder, config)
  await memory.initialize()
  await assert.rejects(memory.add(5), refused('text'))
  await assert.rejects(memory.add(' '), refused('text'))
  await assert.rejects(memory.search('a', 0), refused('maxResults'))
  await assert.rejects(memory.textSearch({ query: 'a', limit: 5 }), refused('limit'))
  await memory.dispose()
})
