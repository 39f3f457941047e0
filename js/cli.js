#!/usr/bin/env node
/**
 * `npx simse`: runs the simse binary, with the arguments, input and exit code handed through.
 *
 * The binary is the newest of those that a checkout has (js/bin/simse of `npm run build`, target/release/simse), else that of the
 * package for this platform.
 */

import { spawn } from 'node:child_process'
import { statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'

const require = createRequire(import.meta.url)
const { platform, remedy } = require('./platform.cjs')
const here = dirname(fileURLToPath(import.meta.url))

/** The binary. Nothing where there is none. */
function binary() {
  const newest = [join(here, 'bin', 'simse'), join(here, '..', 'target', 'release', 'simse')]
    .map((path) => ({ path, age: statSync(path, { throwIfNoEntry: false })?.mtimeMs }))
    .filter(({ age }) => age !== undefined)
    .sort((a, b) => b.age - a.age)[0]
  if (newest !== undefined) return newest.path
  try {
    return require.resolve(`simse-${platform()}/bin/simse`)
  } catch {
    return undefined
  }
}

const path = binary()
if (path === undefined) {
  process.stderr.write(`simse: there is no binary for ${platform()}.\n       ${remedy()}\n`)
  process.exit(2)
}

const child = spawn(path, process.argv.slice(2), { stdio: 'inherit' })
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
// A terminal sends SIGINT to the whole process group: the binary has it already and decides what it means.
process.on('SIGINT', () => process.stdin.isTTY || child.kill('SIGINT'))
child.on('error', (cause) => {
  process.stderr.write(`simse: cannot run ${path}: ${cause.message}\n`)
  process.exit(2)
})
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]))
