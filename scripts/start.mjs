/**
 * `npm start [-- options]`: builds the program, then runs the main job (`simse start …`).
 *
 * The development profile and the same features as the tests, so that `npm start` and `npm test`
 * compile the dependencies once between them. Exit code: 2 when the machine lacks something, 1 when
 * the build failed, else the job's own.
 */

import process from 'node:process'
import { cargoBuild, EXIT_MISSING, missing, needNode, needRust, run, say } from './tools.mjs'

needNode()
needRust()
say('building (cargo build). The first build compiles about 250 crates and takes some minutes; later ones seconds.')
const from = Date.now()
const built = await cargoBuild(['--features', 'node', '--bin', 'simse'])
if (built.code !== 0 || !built.binary) {
  say('the build failed: see the messages above')
  process.exit(built.code === EXIT_MISSING ? 1 : built.code || 1)
}
if (process.platform === 'win32') missing('Windows is not supported', 'Use Linux, macOS or WSL.')
say(`built in ${((Date.now() - from) / 1000).toFixed(1)} s, starting`)
// npm moves to the package's folder; a relative --cwd means the caller's.
const cwd = process.env.INIT_CWD ?? process.cwd()
process.exitCode = await run(built.binary, ['start', ...process.argv.slice(2)], { stdin: 'inherit', cwd })
