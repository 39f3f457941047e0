/** `createLocalEmbedder`: an embedding model in a directory; the real one comes from a package of PyPI. */

import assert from 'node:assert/strict'
import { copyFileSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createLocalEmbedder, createMemoryManager, createSimseServer } from '../js/index.js'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-embedder-')))
after(() => rmSync(room, { recursive: true, force: true }))

const refused = (path) => (error) => error.code === 'CONFIG_VALIDATION' && error.issues.some((i) => i.path === path)
const config = { enabled: true, similarityThreshold: 0.3, maxResults: 5 }

/** A model of three words, made here. */
function small(name) {
  const directory = join(room, name)
  mkdirSync(directory)
  const head = JSON.stringify({ embeddings: { dtype: 'F32', shape: [3, 2], data_offsets: [0, 24] } })
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(head.length))
  const rows = Buffer.from(Float32Array.from([0, 0, 1, 0, 0, 1]).buffer)
  const vocab = { '[UNK]': 0, cat: 1, anvil: 2 }
  const model = {
    type: 'WordPiece',
    unk_token: '[UNK]',
    continuing_subword_prefix: '##',
    max_input_chars_per_word: 9,
    vocab,
  }
  writeFileSync(join(directory, 'config.json'), '{}')
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify({ pre_tokenizer: { type: 'Whitespace' }, model }))
  writeFileSync(join(directory, 'model.safetensors'), Buffer.concat([size, Buffer.from(head), rows]))
  return directory
}

test('a model of a directory embeds, and a memory takes it', async () => {
  const directory = small('a')
  const embedder = createLocalEmbedder(directory)
  assert.ok(Object.isFrozen(embedder))
  assert.deepEqual(await embedder.embed('cat'), { embeddings: [[1, 0]] })
  const { embeddings } = await embedder.embed(['anvil', 'nothing'])
  assert.deepEqual(embeddings, [
    [0, 1],
    [0, 0],
  ])
  const path = join(room, 'memory.db')
  const memory = createMemoryManager(embedder, config, { path })
  await memory.initialize()
  const id = await memory.add('the cat')
  await memory.add('nothing that it knows')
  const found = await memory.search('cat, of a kind')
  assert.deepEqual(
    found.map(({ entry }) => entry.id),
    [id],
  )
  await memory.dispose()
  // What lies elsewhere is the same model.
  const again = createMemoryManager(createLocalEmbedder(small('b')), config, { path })
  await again.initialize()
  assert.equal((await again.search('cat')).length, 1)
  await again.dispose()
})

test('a directory without a model is refused', async () => {
  assert.throws(() => createLocalEmbedder(''), refused('directory'))
  const none = createLocalEmbedder(join(room, 'none'))
  await assert.rejects(
    none.embed('a'),
    (error) => error.code === 'EMBEDDING_ERROR' && /config\.json/.test(error.message),
  )
  await assert.rejects(none.embed(5), refused('input'))
  const memory = createMemoryManager(none, config)
  await assert.rejects(memory.initialize(), { code: 'EMBEDDING_ERROR' })
  const broken = small('c')
  copyFileSync(join(broken, 'config.json'), join(broken, 'model.safetensors'))
  await assert.rejects(createLocalEmbedder(broken).embed('a'), /model\.safetensors: it has no head/)
  const server = createSimseServer({ workingDirectory: room, port: 0, memory: { enabled: true, model: 'none' } })
  await assert.rejects(server.start(), /memory\.model.*config\.json/)
})

test('a full memory forgets what is of least use, and never what is pinned', async () => {
  const memory = createMemoryManager(createLocalEmbedder(small('d')), config, { maxEntries: 2, forgetAfterDays: 30 })
  await memory.initialize()
  const pinned = await memory.add('the cat is pinned', { pinned: true })
  await memory.add('an anvil')
  const newest = await memory.add('another anvil')
  assert.deepEqual(
    (await memory.getAll()).map((entry) => entry.id),
    [newest, pinned],
  )
  assert.equal(await memory.add('Another  "anvil".'), newest, 'said in another way')
  assert.equal(memory.size, 2)
  await memory.dispose()
  const wrong = (options) => () => createMemoryManager(createLocalEmbedder(room), config, options)
  assert.throws(wrong({ maxEntries: 0 }), refused('options.maxEntries'))
  assert.throws(wrong({ maxEntries: 100_001 }), refused('options.maxEntries'))
  assert.throws(wrong({ forgetAfterDays: 0.5 }), refused('options.forgetAfterDays'))
})

/** The directory of a real model: that of the package tokenlearn-static-model (10,000 vectors of 64 numbers, 276,326 tokens of many languages). */
const real = process.env.SIMSE_TEST_EMBEDDING_MODEL
/** Beginnings of vectors as that package itself makes them. */
const vectors = [
  ['The cat is fed at noon.', [-0.148, -0.3141, -0.0943, 0.0005, -0.2088, 0.1687, 0.0475, 0.0506]],
  ['Un chat mange à midi.', [-0.3965, -0.1309, -0.1971, 0.0089, -0.3054, 0.1274, 0.0259, 0.0852]],
  ['Café ﬁ １２ naïve', [-0.0163, -0.1874, 0.0644, -0.0884, -0.0861, 0.1286, 0.0096, -0.1183]],
  ['the quick brown fox', [-0.0195, -0.1299, -0.008, -0.2457, -0.2091, -0.2278, -0.0661, 0.0351]],
  ['部署用 make deploy 命令', [-0.5309, 0.1517, -0.166, -0.3478, 0.1735, 0.0441, -0.1587, -0.127]],
  ['黒い猫が好きです', [-0.1923, -0.4445, -0.0991, -0.2304, -0.0652, 0.0081, -0.1809, -0.0486]],
  ['createSimseServer(config)', [-0.2205, 0.0669, -0.2972, -0.2496, 0.1084, 0.2982, -0.0066, 0.1114]],
  [' Ärger\tüber\n\nZoë! ', [-0.3764, -0.2608, -0.0916, -0.0465, -0.1999, 0.2326, -0.2493, 0.0141]],
  ['🎉 party', [-0.2205, -0.1666, -0.2582, -0.246, 0.0468, 0.0273, -0.1518, 0.0355]],
]

test('a real model gives the vectors of those who made it', {
  skip: real ? false : 'SIMSE_TEST_EMBEDDING_MODEL names no model',
}, async () => {
  const embedder = createLocalEmbedder(real)
  const { embeddings } = await embedder.embed(vectors.map(([text]) => text))
  for (const [n, [text, want]] of vectors.entries()) {
    const got = embeddings[n]
    assert.equal(got.length, 64)
    assert.ok(Math.abs(Math.hypot(...got) - 1) < 1e-4, text)
    for (const [at, number] of want.entries())
      assert.ok(Math.abs(got[at] - number) < 5e-4, `${text}: ${got.slice(0, 8)}`)
  }
  assert.deepEqual((await embedder.embed(' ')).embeddings, [new Array(64).fill(0)])
  const memory = createMemoryManager(embedder, config)
  await memory.initialize()
  const texts = ['The cat is fed at noon.', 'The database listens on port 5433.', 'Release notes are written by hand.']
  await memory.addBatch(texts.map((text) => ({ text })))
  const [best] = await memory.search('When do our pets get their food?', 1, 0)
  assert.equal(best.entry.text, texts[0])
  await memory.dispose()
})
