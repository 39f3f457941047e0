#!/usr/bin/env node
/**
 * `npx simse`: runs the simse binary of this package, with the arguments, input and exit code handed through.
 *
 * The binary is the one that `npm run build` made (js/bin/simse), or a newer target/release/simse of a checkout.
 */

import { spawn } from 'node:child_process'
import { statSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const newest = [join(here, 'bin', 'simse'), join(here, '..', 'target', 'release', 'simse')]
  .map((path) => ({ path, age: statSync(path, { throwIfNoEntry: false })?.mtimeMs }))
  .filter(({ age }) => age !== undefined)
  .sort((a, b) => b.age - a.age)[0]

if (!newest) {
  process.stderr.write(
    `simse: the binary has not been built.\n       Run \`npm run build\` in ${dirname(here)} (it needs Rust), then try again.\n`,
  )
  process.exit(2)
}

const child = spawn(newest.path, process.argv.slice(2), { stdio: 'inherit' })
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
// A terminal sends SIGINT to the whole process group: the binary has it already and decides what it means.
process.on('SIGINT', () => process.stdin.isTTY || child.kill('SIGINT'))
child.on('error', (cause) => {
  process.stderr.write(`simse: cannot run ${newest.path}: ${cause.message}\n`)
  process.exit(2)
})
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]))
