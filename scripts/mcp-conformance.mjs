/**
 * Runs the client scenarios of the MCP conformance suite against our MCP client (`tests/mcp_conformance.rs`).
 *
 *     node scripts/mcp-conformance.mjs [SCENARIO…]
 *
 * Installs the suite and the Node that it needs into a folder beside the build once. Prints a line a scenario, and the sum; exits with 1 when
 * one fails that is not expected to. What is expected to fail, and why, stands in EXPECTED.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const root = new URL('..', import.meta.url).pathname
const cache = process.env.SIMSE_MCP_CACHE ?? join(root, 'target/mcp-real')
const SUITE = '@modelcontextprotocol/conformance@0.1.16'
const NODE = 'node@22'

/** Scenarios that fail, and why. */
const EXPECTED = {
  'auth/2025-03-26-oauth-metadata-backcompat':
    'its metadata names an issuer at another address than its own, which rmcp refuses (RFC 8414, 3.3)',
  'auth/cross-app-access-complete-flow': 'logins by an identity provider of a company are not made',
}

if (!existsSync(join(cache, 'node_modules/@modelcontextprotocol/conformance'))) {
  mkdirSync(cache, { recursive: true })
  writeFileSync(join(cache, 'package.json'), '{"private":true}')
  execFileSync('npm', ['install', '--no-audit', '--no-fund', SUITE, NODE], { cwd: cache, stdio: 'inherit' })
}
const node = join(cache, 'node_modules/node/bin/node')
const suite = join(cache, 'node_modules/@modelcontextprotocol/conformance/dist/index.js')
const client = join(root, 'target/debug/examples/mcp_conformance')
if (!existsSync(client)) {
  console.error('build it first: cargo build --features node --example mcp_conformance')
  process.exit(2)
}

const listed = execFileSync(node, [suite, 'list'], { encoding: 'utf8' }).split('Client scenarios')[1]
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
