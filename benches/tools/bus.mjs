/**
 * The event bus, events on their way from Rust to JavaScript, and batches of tool calls, in one run.
 *
 *   node benches/tools/bus.mjs [--markdown FILE] [--cache DIR]
 *
 * Contestants take turns, round by round, so that what else the machine does hits all alike. `mitt` is installed into the
 * cache folder, once. docs/benchmarks.md says what each row means.
 */

import { execFileSync } from 'node:child_process'
import { EventEmitter } from 'node:events'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism, cpus, getPriority, loadavg, release, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { createEventBus, createToolRegistry } from 'simse'
import { native, registerProbes } from '../../__test__/support/addon.mjs'
import { median, number } from '../lib/figures.mjs'

const { bridge, closeBatch, openBatch } = createRequire(import.meta.url)('../../js/bridge.cjs')

const MITT = '3.0.1'
const CALLS = 1_000
const PUBLISHED = 200_000
const EVENTS = 200_000

/** What each contestant takes, in turns; the first rounds warm up and do not count, nor does what `ready` does before each turn. */
async function race(rounds, contestants, ready = {}) {
  const times = Object.fromEntries(Object.keys(contestants).map((name) => [name, []]))
  const warm = Math.ceil(rounds / 4)
  for (let round = 0; round < warm + rounds; round++) {
    for (const [name, run] of Object.entries(contestants)) {
      await ready[name]?.()
      const begin = performance.now()
      await run()
      if (round >= warm) times[name].push(performance.now() - begin)
    }
  }
  return Object.fromEntries(Object.entries(times).map(([name, each]) => [name, median(each)]))
}

async function mittOf(cache) {
  if (!existsSync(join(cache, 'node_modules', 'mitt'))) {
    mkdirSync(cache, { recursive: true })
    const args = ['install', '--prefix', cache, '--no-save', '--ignore-scripts', '--no-audit', '--no-fund']
    execFileSync('npm', [...args, `mitt@${MITT}`], { stdio: ['ignore', 'ignore', 'inherit'] })
  }
  return (await import(pathToFileURL(join(cache, 'node_modules', 'mitt', 'dist', 'mitt.mjs')).href)).default
}

/** Nanoseconds of one publication, with this many handlers. */
async function publishing(mitt, handlers) {
  const payload = { text: 'a word' }
  const seen = { simse: 0, 'node:events': 0, mitt: 0 }
  const [ours, events, theirs] = [createEventBus(), new EventEmitter(), mitt()]
  for (let n = 0; n < handlers; n++) {
    ours.subscribe('stream.delta', (given) => {
      seen.simse += given.text.length + n
    })
    events.on('stream.delta', (given) => {
      seen['node:events'] += given.text.length + n
    })
    theirs.on('stream.delta', (given) => {
      seen.mitt += given.text.length + n
    })
  }
  // A loop for each: one for all would be compiled for none of them.
  const times = await race(80, {
    simse: () => {
      for (let n = 0; n < PUBLISHED; n++) ours.publish('stream.delta', payload)
    },
    'node:events': () => {
      for (let n = 0; n < PUBLISHED; n++) events.emit('stream.delta', payload)
    },
    mitt: () => {
      for (let n = 0; n < PUBLISHED; n++) theirs.emit('stream.delta', payload)
    },
  })
  if (new Set(Object.values(seen)).size !== 1) throw new Error(`not all were heard: ${JSON.stringify(seen)}`)
  return Object.fromEntries(Object.entries(times).map(([name, ms]) => [name, (ms * 1e6) / PUBLISHED]))
}

/**
 * Events a second that a thread of Rust's makes and a handler of the bus has seen. Before each turn a contestant runs once with few
 * events: what a flood leaves behind, such as freed memory, would delay the other one by ten milliseconds.
 */
async function crossing() {
  const bus = createEventBus()
  let seen = 0
  bus.subscribe('stream.delta', ({ text }) => {
    if (text.startsWith('word ')) seen += 1
  })
  const all = (run, count) => async () => {
    seen = 0
    await run(count)
    while (seen < count) await new Promise(setImmediate)
    if (seen !== count) throw new Error(`${seen} events instead of ${count}`)
  }
  const batched = async (count) => {
    let events
    const batch = openBatch(() => drain(events))
    const drain = (from) => {
      const taken = JSON.parse(from.take())
      for (let i = 0; i < taken.length; i += 2) for (const payload of taken[i + 1]) bus.publish(taken[i], payload)
    }
    events = new native.NativeEvents(bridge, batch)
    await native.probeEvents(events, count)
    drain(events)
    closeBatch(batch)
  }
  const each = (count) => native.probeEventsEach((type, payload) => bus.publish(type, JSON.parse(payload)), count)
  const contestants = (count) => ({ simse: all(batched, count), 'a thread-safe call each': all(each, count) })
  const times = await race(9, contestants(EVENTS), contestants(EVENTS / 100))
  return Object.fromEntries(Object.entries(times).map(([name, ms]) => [name, (EVENTS / ms) * 1000]))
}

/** Microseconds a call. */
async function batches() {
  const registry = createToolRegistry({})
  registerProbes(registry)
  registry.register({ name: 'noop', description: 'Does nothing.', parameters: {} }, async () => '')
  const calls = (name) => Array.from({ length: CALLS }, (_, n) => ({ id: `call_${n}`, name, arguments: {} }))
  const [ours, theirs] = [calls('probe_noop'), calls('noop')]
  const plain = async ({ id, name }) => ({ id, name, output: '', isError: false })
  const run = async (batch) => {
    const results = await registry.batchExecute(batch)
    if (results.length !== CALLS || results.some((result) => result.isError)) throw new Error(results[0].output)
  }
  const times = await race(60, {
    native: () => run(ours),
    javascript: () => run(theirs),
    plain: () => Promise.all(ours.map(plain)),
  })
  return Object.fromEntries(Object.entries(times).map(([name, ms]) => [name, (ms * 1000) / CALLS]))
}

/** A row: what, aim, ours, and the others with how many times better ours is. */
function row([what, unit, aim, { simse, ...others }, more]) {
  const better = (other) => number(more ? simse / other : other / simse)
  const shown = Object.entries(others).map(([name, value]) => `${name}: ${number(value)} ${unit} (${better(value)}×)`)
  return `| ${what} | ${aim} | ${number(simse)} ${unit} | ${shown.join('; ')} |`
}

async function main() {
  const { values } = parseArgs({
    options: {
      markdown: { type: 'string' },
      cache: { type: 'string', default: join(tmpdir(), 'simse-bench-bus') },
    },
  })
  const load = loadavg()[0]
  const mitt = await mittOf(values.cache)
  const [one, ten] = [await publishing(mitt, 1), await publishing(mitt, 10)]
  const crossed = await crossing()
  const { native: ours, javascript, plain } = await batches()
  const perCall = (us) => ({ simse: us, '`Promise.all` over plain async functions': plain })
  const rows = [
    ['bus: `publish` with one handler', 'ns', '≥ 1× node:events', one],
    ['bus: `publish` with ten handlers', 'ns', '', ten],
    ['events of a Rust thread, seen by a handler', 'a second', '≥ 1,000,000; ≥ 5×', crossed, true],
    [`\`batchExecute\` of ${number(CALLS)} native calls that do nothing`, 'µs a call', '≤ 3', perCall(ours)],
    ['the same with a JavaScript handler', 'µs a call', '≤ 15', perCall(javascript)],
  ]
  const text = [
    `${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC, ${availableParallelism()} × ${cpus()[0]?.model.trim()}, ` +
      `Linux ${release()}, Node ${process.versions.node}, mitt ${MITT}; load ${load.toFixed(1)} before and ` +
      `${loadavg()[0].toFixed(1)} after, priority ${getPriority()}`,
    ['| what | aim | simse | others |', '|---|---|---|---|', ...rows.map(row)].join('\n'),
  ].join('\n\n')
  console.log(text)
  if (values.markdown) writeFileSync(values.markdown, `${text}\n`)
}

await main()
