/**
 * How long Node's own thread is kept waiting while tools work: the delay of a timer, beyond the millisecond it asks for.
 *
 *   node benches/tools/loop.mjs [--files N] [--cache DIR] [--markdown FILE]
 *
 * At rest, during a grep of the large tree (see tree.mjs), during a bash command that prints 100 MB, and during both.
 */

import { writeFileSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { registerBashTool, registerFilesystemTools } from 'simse'
import { number, percentile } from '../lib/figures.mjs'
import { caller, machine } from '../lib/race.mjs'
import { makeTree } from './tree.mjs'

const SECONDS = 4
const OUTPUT_BYTES = 100_000_000

/** Delays in milliseconds while `run` is repeated for some seconds. */
export async function delays(run, seconds = SECONDS) {
  const each = []
  let last = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    each.push(Math.max(0, now - last - 1))
    last = now
  }, 1)
  const end = performance.now() + seconds * 1000
  do await run()
  while (performance.now() < end)
  clearInterval(timer)
  return each
}

async function main() {
  const { values } = parseArgs({
    options: {
      files: { type: 'string', default: '50000' },
      cache: { type: 'string', default: join(tmpdir(), 'simse-bench-search') },
      markdown: { type: 'string' },
    },
  })
  const load = loadavg()[0]
  const tree = join(values.cache, `tree-${values.files}`)
  makeTree(tree, Number(values.files))
  const tool = caller((registry) => {
    registerFilesystemTools(registry, { workingDirectory: tree })
    registerBashTool(registry, { workingDirectory: tree })
  })
  const grep = () => tool('fs_grep', { pattern: '\\w{12}\\s\\w{9}\\s\\w{12}' })
  const bash = () => tool('bash', { command: `head -c ${OUTPUT_BYTES} /dev/zero | tr '\\0' 'x' | fold -w 80` })
  const rest = () => new Promise((resolve) => setTimeout(resolve, 100))
  const lines = ['| Node’s thread waits, beyond 1 ms | aim | median | p99 | longest |', '|---|---|---|---|---|']
  for (const [what, aim, run] of [
    ['at rest', '', rest],
    ['during a grep of the large tree', '', grep],
    ['during a bash command that prints 100 MB', '', bash],
    ['during both', 'p99 ≤ 5 ms', () => Promise.all([grep(), bash()])],
  ]) {
    await run()
    const each = await delays(run)
    const shown = [0.5, 0.99, 1].map((share) => `${number(percentile(each, share))} ms`)
    lines.push(`| ${what} | ${aim} | ${shown.join(' | ')} |`)
  }
  const output = `${machine(load)}\n\n${lines.join('\n')}\n`
  console.log(output)
  if (values.markdown) writeFileSync(values.markdown, output)
}

if (process.argv[1] === import.meta.filename) await main()
