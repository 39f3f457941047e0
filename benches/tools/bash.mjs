/**
 * `bash` from Node beside `child_process.exec`, in one run.
 *
 *   node benches/tools/bash.mjs [--rounds N] [--markdown FILE]
 *
 * Contestants take turns, round by round, so that what else the machine does hits all alike. docs/benchmarks.md says what
 * each row means.
 */

import { exec } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, cpus, loadavg, release, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs, promisify } from 'node:util'
import { createEventBus, createToolRegistry, registerBashTool } from 'simse'
import { median, number, percentile } from '../lib/figures.mjs'

const FLOOD_BYTES = 100 << 20
const FLOOD = `yes 0123456789abcdef | head -c ${FLOOD_BYTES}`
const run = promisify(exec)

/** Milliseconds of each contestant, in turns; the first round warms up and does not count. */
async function race(rounds, contestants) {
  const times = Object.fromEntries(Object.keys(contestants).map((name) => [name, []]))
  for (let round = 0; round <= rounds; round++) {
    for (const [name, go] of Object.entries(contestants)) {
      const begin = performance.now()
      await go()
      if (round > 0) times[name].push(performance.now() - begin)
    }
  }
  return Object.fromEntries(Object.entries(times).map(([name, each]) => [name, median(each)]))
}

/** `bash` of a registry of its own. */
function shellIn(workingDirectory, options = {}, more = {}) {
  const registry = createToolRegistry(options)
  registerBashTool(registry, { workingDirectory, ...more })
  return async (command) => {
    const { output, isError } = await registry.execute({ id: 'call_1', name: 'bash', arguments: { command } })
    if (isError) throw new Error(output)
    return output
  }
}

/** A command as ours, as ours with somebody who hears what it writes, in the sandbox, and as Node's. */
function command(cwd, line) {
  const bus = createEventBus()
  bus.subscribe('tool.call.output', () => {})
  const [plain, heard] = [shellIn(cwd), shellIn(cwd, { eventBus: bus })]
  const caged = shellIn(cwd, {}, { sandbox: 'workspace-write' })
  return {
    simse: () => plain(line),
    'simse, heard': () => heard(line),
    'simse, in the sandbox': () => caged(line),
    exec: () => run(line, { cwd, maxBuffer: 2 * FLOOD_BYTES }),
  }
}

/** The most memory over what there was before, in MB, and the delay of the event loop (p99) in ms, while `go` works. */
async function weigh(go) {
  globalThis.gc?.()
  const before = process.memoryUsage.rss()
  const delays = []
  let most = before
  let last = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    delays.push(Math.max(0, now - last - 1))
    last = now
    most = Math.max(most, process.memoryUsage.rss())
  }, 1)
  await go()
  clearInterval(timer)
  return { mb: (Math.max(most, process.memoryUsage.rss()) - before) / 1e6, delayMs: percentile(delays, 0.99) ?? 0 }
}

function table(rows) {
  const lines = ['| what | aim | simse | others |', '|---|---|---|---|']
  for (const [what, aim, { simse, ...others }] of rows) {
    const shown = Object.entries(others).map(
      ([name, ms]) => `${name}: ${number(ms)} ms (simse takes ${number(simse / ms)}×)`,
    )
    lines.push(`| ${what} | ${aim} | ${number(simse)} ms | ${shown.join('; ')} |`)
  }
  return lines.join('\n')
}

async function measure(cwd, rounds) {
  const rows = [
    ['`true`', '≤ 0.8× exec', await race(rounds, command(cwd, 'true'))],
    ['`/bin/true`, a program', '', await race(rounds, command(cwd, '/bin/true'))],
    ['`cd . && true`, which may move the shell', '', await race(rounds, command(cwd, 'cd . && true'))],
    ['100 MB of output', '< 1× exec', await race(Math.max(3, Math.round(rounds / 20)), command(cwd, FLOOD))],
  ]
  const plain = shellIn(cwd)
  const ours = await weigh(() => plain(FLOOD))
  const theirs = await weigh(() => run(FLOOD, { cwd, maxBuffer: 2 * FLOOD_BYTES }))
  return { rows, ours, theirs }
}

async function main() {
  const { values } = parseArgs({
    options: { rounds: { type: 'string', default: '100' }, markdown: { type: 'string' } },
  })
  const cwd = mkdtempSync(join(tmpdir(), 'simse-bench-bash-'))
  const load = loadavg()[0]
  try {
    const { rows, ours, theirs } = await measure(cwd, Number(values.rounds))
    const text = [
      `${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC, ${availableParallelism()} × ${cpus()[0]?.model.trim()}, ` +
        `Linux ${release()}, Node ${process.versions.node}; load ${load.toFixed(1)} before and ${loadavg()[0].toFixed(1)} after`,
      table(rows),
      `During 100 MB of output: memory ${number(ours.mb)} MB over rest (aim ≤ 10; exec ${number(theirs.mb)} MB), delay of Node's event loop, ` +
        `p99, ${number(ours.delayMs)} ms (aim ≤ 5; exec ${number(theirs.delayMs)} ms).`,
    ].join('\n\n')
    console.log(text)
    if (values.markdown) writeFileSync(values.markdown, `${text}\n`)
  } finally {
    rmSync(cwd, { recursive: true })
  }
}

await main()
