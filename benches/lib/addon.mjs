/**
 * What is measured in Node alone: the price of a native tool call, and of importing the package.
 */

import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { promisify } from 'node:util'
import { top } from './clients.mjs'
import { median } from './figures.mjs'

/** Why the addon cannot be measured, or nothing. */
export function addonAbsent() {
  const there = readdirSync(join(top, 'js')).some((name) => name.endsWith('.node'))
  return there ? undefined : 'the addon is missing: run `npm run build`'
}

async function node(file) {
  const { stdout } = await promisify(execFile)(process.execPath, [join(top, 'benches', file)], { timeout: 60_000 })
  return JSON.parse(stdout)
}

/** `registry.execute` of a native tool from JavaScript, beside a plain async function. */
export const call = () => node('call.mjs')

/** `import 'simse'` in fresh processes, the first left out: it fills the page cache. */
export async function load() {
  const times = []
  for (let round = 0; round < 21; round++) times.push((await node('import.mjs')).ms)
  return { medianMs: median(times.slice(1)) }
}
