/**
 * The interface in a terminal while 5,000 pieces a second stream: how long a key takes to the screen, and how much memory it holds.
 * `node benches/terminal/run.mjs [program]`; beside it the same of the program alone, in a screen that stands still.
 */

import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const program = process.argv[2] ?? join(process.cwd(), 'target', 'release', 'simse')
process.env.SIMSE_TEST_BINARY = program
const { scriptedModel } = await import('../../__test__/support/model.mjs')
const { servedAt } = await import('../../__test__/support/served.mjs')

const RATE = 5_000
const KEYS = 400

/** Pieces at a rate, by the clock: what a timer misses is caught up. */
function* paced(seconds) {
  for (let at = 0; at < RATE * seconds; at++) yield at % 12 === 11 ? ` delta ${at}.\n\n` : ` delta ${at}`
}

async function measured(name, seconds, pace) {
  const home = mkdtempSync(join(tmpdir(), 'simse-bench-'))
  mkdirSync(join(home, 'work'))
  const model = await scriptedModel([{ text: [...paced(seconds)], pace }])
  const server = await servedAt({ home, model })
  const script = join(fileURLToPath(import.meta.url), '..', 'keys.py')
  const args = [script, String(KEYS), program, 'attach', server.url, '--token-file', join(home, 'data', 'token')]
  const env = { ...process.env, HOME: home, TERM: 'xterm-256color' }
  const cwd = server.work
  const { stdout } = await promisify(execFile)('python3', args, { cwd, env, maxBuffer: 1 << 26 })
  const { latencyMs, bytes, memoryKb } = JSON.parse(stdout)
  const sorted = latencyMs.filter((one) => one !== null).sort((a, b) => a - b)
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]
  const lost = latencyMs.length - sorted.length
  console.log(
    `${name}: p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, p99 ${at(0.99)} ms, worst ${sorted.at(-1)} ms of ${sorted.length} keys, ` +
      `${lost} lost; ${(memoryKb / 1024).toFixed(1)} MB; ${(bytes / 1e6).toFixed(1)} MB onto the screen`,
  )
  await server.kill()
  await model.close()
  rmSync(home, { recursive: true, force: true })
}

/** Awaited before each piece. */
function clock() {
  let began
  let sent = 0
  return async () => {
    began ??= performance.now()
    const due = ((performance.now() - began) * RATE) / 1000
    if (sent++ > due) await new Promise((soon) => setTimeout(soon, 2))
  }
}

await measured('still', 0.01, undefined)
await measured('5,000 pieces a second', 40, clock())
