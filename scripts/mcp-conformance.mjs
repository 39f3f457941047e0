/**
 * Runs the client scenarios of the MCP conformance suite against our MCP client (`tests/mcp_conformance.rs`).
 *
 *     node scripts/mcp-conformance.mjs [SCENARIO…]
 *
 * Installs the suite and the Node that it needs into a cache once. Prints a line a scenario, and the sum; exits with 1 when one fails that is
 * not expected to, or the other way round, with 3 when the suite cannot be installed. What is expected to fail, and why, stands in EXPECTED.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'

const root = new URL('..', import.meta.url).pathname
const VERSION = process.env.SIMSE_CONFORMANCE_VERSION ?? '0.2.0-alpha.12'
const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'simse')
const place = join(cache, `mcp-conformance-${VERSION}`)
const suite = join(place, 'node_modules/@modelcontextprotocol/conformance/dist/index.js')

/** Scenarios that fail, and why. */
const EXPECTED = {}

function install(where, what) {
  mkdirSync(where, { recursive: true })
  const args = ['install', '--no-save', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', where, what]
  return spawnSync('npm', args, { encoding: 'utf8', cwd: where }).status === 0
}

/** A Node that the suite runs on: this one, or one from npm. */
function nodeFor() {
  if (Number(process.versions.node.split('.')[0]) >= 22) return process.execPath
  const where = join(cache, 'node-22')
  const found = join(where, 'node_modules', `node-linux-${process.arch}`, 'bin/node')
  if (!existsSync(found)) install(where, `node-linux-${process.arch}@22`)
  return existsSync(found) ? found : undefined
}

if (!existsSync(suite) && !install(place, `@modelcontextprotocol/conformance@${VERSION}`)) {
  console.error(`the suite ${VERSION} cannot be installed`)
  process.exit(3)
}
const node = nodeFor()
if (node === undefined) {
  console.error('the suite needs Node 22, which cannot be installed')
  process.exit(3)
}
const target = process.env.CARGO_TARGET_DIR ?? join(root, 'target')
const client = join(target, 'debug/examples/mcp_conformance')
if (!existsSync(client)) {
  console.error('build it first: cargo build --features node --example mcp_conformance')
  process.exit(2)
}

const lists = execFileSync(node, [suite, 'list'], { encoding: 'utf8' }).split('Client scenarios')[1]
const listed = lists.split('Authorization server scenarios')[0]
const all = [...listed.matchAll(/^ {2}- (\S+)/gm)].map(([, name]) => name)
const wanted = process.argv.length > 2 ? process.argv.slice(2) : all

let unexpected = 0
let checksPassed = 0
let checksFailed = 0
let passed = 0
for (const scenario of wanted) {
  const out = mkdtempSync(join(tmpdir(), 'mcp-conformance-'))
  const args = [suite, 'client', '--command', client, '--scenario', scenario, '--timeout', '30000', '-o', out]
  const run = spawnSync(node, args, { encoding: 'utf8', timeout: 60_000 })
  const files = readdirSync(out, { recursive: true }).filter((file) => file.endsWith('checks.json'))
  const checks = files.flatMap((file) => JSON.parse(readFileSync(join(out, file), 'utf8')))
  const failed = checks.filter((check) => check.status === 'FAILURE')
  const good = checks.filter((check) => check.status === 'SUCCESS').length
  const warned = checks.filter((check) => check.status === 'WARNING').length
  checksPassed += good
  checksFailed += failed.length
  const ok = run.status === 0 && failed.length === 0
  if (ok) passed++
  const expected = EXPECTED[scenario]
  if (ok === (expected !== undefined)) unexpected++
  const why = ok
    ? ''
    : `: ${failed.map((check) => check.errorMessage ?? check.description).join('; ') || run.stderr.trim().split('\n').pop()}`
  console.log(
    `${ok ? 'ok  ' : 'FAIL'} ${scenario} (${good} passed, ${failed.length} failed, ${warned} warnings)${why}${expected ? ` [expected: ${expected}]` : ''}`,
  )
  rmSync(out, { recursive: true, force: true })
}
console.log(`${passed} of ${wanted.length} scenarios; checks: ${checksPassed} passed, ${checksFailed} failed`)
process.exit(unexpected === 0 ? 0 : 1)
