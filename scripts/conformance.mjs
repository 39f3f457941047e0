/**
 * Holds the MCP server against the official conformance suite: installs it into a cache, starts `simse serve` with the suite's fixtures
 * on a free port, runs the server scenarios, and ends with their exit code. `node scripts/conformance.mjs [PROGRAM] [--suite NAME]`; what
 * else is given goes to the suite. Exit code 3: the suite, or a Node that it runs on, cannot be installed.
 */

import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import process from 'node:process'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const VERSION = process.env.SIMSE_CONFORMANCE_VERSION ?? '0.1.16'
const root = join(dirname(fileURLToPath(import.meta.url)), '..')

const rest = process.argv.slice(2)
const program = rest[0] === undefined || rest[0].startsWith('--') ? undefined : resolve(rest.shift())
const simse = program ?? [join(root, 'target/debug/simse'), join(root, 'target/release/simse')].find(existsSync)

/** Ends, saying why. */
function giveUp(why, code) {
  console.error(`conformance: ${why}`)
  process.exit(code)
}

/** A Node that the suite runs on: this one, or one from npm. */
function nodeFor(cache) {
  if (Number(process.versions.node.split('.')[0]) >= 22) return process.execPath
  const place = join(cache, 'node-22')
  const found = join(place, 'node_modules', `node-linux-${process.arch}`, 'bin/node')
  if (!existsSync(found)) install(place, `node-linux-${process.arch}@22`)
  return existsSync(found) ? found : undefined
}

function install(place, what) {
  mkdirSync(place, { recursive: true })
  const args = ['install', '--no-save', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', place, what]
  return spawnSync('npm', args, { encoding: 'utf8', cwd: place }).status === 0
}

const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'simse')
const place = join(cache, `mcp-conformance-${VERSION}`)
const suite = join(place, 'node_modules/@modelcontextprotocol/conformance/dist/index.js')
if (!existsSync(suite) && !install(place, `@modelcontextprotocol/conformance@${VERSION}`)) {
  giveUp(`the suite ${VERSION} cannot be installed`, 3)
}
const node = nodeFor(cache)
if (node === undefined) giveUp('the suite needs Node 22, which cannot be installed', 3)
if (simse === undefined) giveUp('no program to look at: cargo build, or name one', 1)

const room = mkdtempSync(join(tmpdir(), 'simse-conformance-'))
const port = join(room, 'port')
const options = ['--no-auth', '--port', '0', '--port-file', port, '--data-dir', join(room, 'data'), '--mcp-fixtures']
const server = spawn(simse, ['serve', ...options], { cwd: room, stdio: ['ignore', 'ignore', 'inherit'] })
const ended = new Promise((known) => server.once('exit', known))
let code = 1
try {
  for (let tries = 0; !existsSync(port) && server.exitCode === null && tries < 600; tries += 1) await setTimeout(50)
  if (!existsSync(port)) throw new Error('the server does not start')
  const url = `http://127.0.0.1:${readFileSync(port, 'utf8').trim()}/mcp`
  const wanted = rest.length > 0 ? rest : ['--suite', 'all']
  const run = spawn(node, [suite, 'server', '--url', url, '-o', join(room, 'results'), ...wanted], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  run.stdout.on('data', (piece) => {
    said += piece
  })
  code = await new Promise((known) => run.once('close', known))
  console.log(said.slice(Math.max(0, said.lastIndexOf('=== SUMMARY ==='))).trim())
} finally {
  server.kill('SIGTERM')
  await ended
  rmSync(room, { recursive: true, force: true })
}
process.exit(code ?? 1)
