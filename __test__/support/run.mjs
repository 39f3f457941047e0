/** Programs run to their end. */

import { spawn } from 'node:child_process'
import process from 'node:process'
import { fileURLToPath, pathToFileURL } from 'node:url'

/** The package's entry, as a text for an import. */
export const entry = JSON.stringify(pathToFileURL(fileURLToPath(new URL('../../js/index.js', import.meta.url))).href)

/** Longest wait for a program's end. */
const LIMIT_MS = 120_000

/**
 * Runs a program; answers with its exit code, the signal that ended it, and what it said. One that does not
 * end is killed, and then `timedOut` is true.
 */
export function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options })
    let said = ''
    let timedOut = false
    const timer = setTimeout(() => {
      timedOut = true
      child.kill('SIGKILL')
    }, options.limitMs ?? LIMIT_MS)
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (data) => {
        said += data
      })
    }
    child.on('error', reject)
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ code, signal, said, timedOut })
    })
  })
}

/** Runs an ES module given as text. */
export function runModule(source, options) {
  return run(process.execPath, ['--input-type=module', '--eval', source], options)
}
