/** No memory growth over 100,000 calls and events. Needs --expose-gc. `SIMSE_MEMORY_ROUNDS` makes it longer. */

import assert from 'node:assert/strict'
import process from 'node:process'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { createEventBus, createHookSystem, createToolRegistry } from '../js/index.js'
import { registerProbes, waitingCalls } from './support/addon.mjs'

const CALLS = 100_000
const ROUNDS = Number(process.env.SIMSE_MEMORY_ROUNDS ?? 1)
/** A leak of one small object a call would be 10 MB and more. */
const HEAP_GROWTH_MB_MAX = 3
/** Allocators keep some; a leak of 300 bytes a call would pass it. */
const RSS_GROWTH_MB_MAX = 30

async function settle() {
  for (let i = 0; i < 5; i++) {
    globalThis.gc()
    await turn()
  }
}

async function measure() {
  await settle()
  const { heapUsed, rss } = process.memoryUsage()
  return { heap: heapUsed / 1e6, rss: rss / 1e6 }
}

const batchOf = (name) =>
  Array.from({ length: 500 }, (_, i) => ({ id: String(i), name, arguments: { text: 'x'.repeat(100) } }))

/** What a program does: native and JavaScript tools, signals, failures, events, registries that come and go. */
async function work(calls) {
  const eventBus = createEventBus()
  let events = 0
  eventBus.subscribeAll(() => {
    events += 1
  })
  const hooks = createHookSystem()
  const registry = createToolRegistry({ eventBus, hooks })
  registerProbes(registry)
  registry.register({ name: 'echo', description: '', parameters: {} }, async ({ text }) => text)
  registry.register({ name: 'fail', description: '', parameters: {} }, async () => {
    throw new Error('failed')
  })
  const { signal } = new AbortController()
  for (let done = 0; done < calls; done += 1000) {
    await registry.batchExecute(batchOf('probe_noop'), { signal, maxConcurrency: 64 })
    await registry.batchExecute(batchOf(done % 4000 === 0 ? 'fail' : 'echo'), { maxConcurrency: 64 })
    for (let i = 0; i < 20; i++) {
      const one = createToolRegistry({ eventBus, hooks })
      one.register({ name: 'own', description: '', parameters: {} }, async () => String(one.toolCount))
      await one.execute({ id: '1', name: 'own', arguments: {} }, { signal })
    }
    await turn()
  }
  assert.ok(events >= 2 * calls)
}

test(`memory levels off over ${CALLS * ROUNDS} calls and their events`, async () => {
  assert.equal(typeof globalThis.gc, 'function', 'run with --expose-gc')
  await work(CALLS / 4)
  const before = await measure()
  await work(CALLS * ROUNDS)
  const after = await measure()
  const grown = { heap: after.heap - before.heap, rss: after.rss - before.rss }
  const said = JSON.stringify({ before, after, grown })
  assert.ok(grown.heap < HEAP_GROWTH_MB_MAX, said)
  assert.ok(grown.rss < RSS_GROWTH_MB_MAX, said)
  assert.equal(waitingCalls(), 0)
  console.log(said)
})

test('registries, resolvers and hook systems that nobody holds are collected, their handlers included', async () => {
  const freed = new Set()
  const watch = new FinalizationRegistry((i) => freed.add(i))
  const hooks = createHookSystem()
  for (let i = 0; i < 100; i++) {
    const registry = createToolRegistry({ hooks })
    // The usual circle: a handler that uses its own registry.
    registry.register({ name: 'own', description: '', parameters: {} }, async () => String(registry.toolCount))
    await registry.execute({ id: '1', name: 'own', arguments: {} })
    watch.register(registry, i)
  }
  for (let i = 0; i < 20 && freed.size < 95; i++) await settle()
  assert.ok(freed.size >= 95, `${freed.size} of 100`)
})
