/**
 * `npm test`: everything that must hold, in order; the last line says how many checks passed and failed.
 *
 *     npm test                  all steps
 *     npm test -- rust node     only the steps of these names
 *
 * A step that fails does not stop the others, except those that need what it makes. Exit code: 0 when all
 * passed, 1 when something failed, 2 when the machine lacks something (with an explanation).
 */

import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import process from 'node:process'
import {
  answers,
  cargoBuild,
  EXIT_MISSING,
  needNode,
  needPackages,
  needRust,
  placeAddon,
  run,
  say,
  top,
} from './tools.mjs'

const NODE = ['--features', 'node']
/** How long no test may come to an end, in seconds: the longest one takes some three minutes on two slow processors. */
const QUIET_MAX = Number(process.env.SIMSE_TEST_QUIET_SECONDS || 900)
const DENY = ['-D', 'warnings']

/** The steps: name, what it shows, and a function that answers with an exit code. `needs` names a step before it. */
const STEPS = [
  { name: 'fmt', shows: 'Rust is formatted', go: () => run('cargo', ['fmt', '--check']) },
  {
    name: 'clippy',
    shows: 'no Rust lint',
    go: () => run('cargo', ['clippy', '--all-targets', ...NODE, '--', ...DENY]),
  },
  {
    name: 'plain',
    shows: 'no Rust lint without the addon',
    go: () => run('cargo', ['clippy', '--lib', '--bins', '--', ...DENY]),
  },
  { name: 'docs', shows: 'the documentation has no broken links', go: docs },
  { name: 'addon', shows: 'the addon is built', go: addon },
  { name: 'rust', shows: 'Rust tests', go: rustTests },
  { name: 'node', shows: 'Node tests', needs: 'addon', go: nodeTests },
  {
    name: 'types',
    shows: 'index.d.ts and what uses it type-check',
    go: types,
  },
  {
    name: 'web',
    shows: 'the web page type-checks, and what the program has of it is what its source makes',
    go: webPage,
  },
  {
    name: 'guide',
    shows: 'the guide is built, and each of its links leads somewhere',
    go: () => run(process.execPath, [join(top, 'scripts', 'guide.mjs')]),
  },
  {
    name: 'biome',
    shows: 'JavaScript and JSON are formatted, no lint',
    go: () => run(tool('biome'), ['check', '--error-on-warnings']),
  },
  { name: 'deny', shows: 'licences, bans and sources of the dependencies', go: deny },
]

const count = { passed: 0, failed: 0, skipped: [] }

needNode()
needRust()
const wanted = process.argv.slice(2)
const unknown = wanted.filter((name) => !STEPS.some((step) => step.name === name))
if (unknown.length > 0) {
  say(`no step ${unknown.join(', ')}; there are: ${STEPS.map((step) => step.name).join(', ')}`)
  process.exit(EXIT_MISSING)
}
const steps = STEPS.filter((step) => wanted.length === 0 || wanted.includes(step.name))
await needPackages()
if (steps.some((step) => step.name === 'rust')) {
  say(
    'a first run compiles all dependencies, for checking and for running: that takes some minutes; later runs do not.',
  )
}

const begun = Date.now()
const failed = new Set()
for (const step of steps) {
  const from = Date.now()
  console.log(`\n── ${step.name}: ${step.shows}`)
  if (step.needs && failed.has(step.needs)) {
    failed.add(step.name)
    count.failed += 1
    console.log(`── ${step.name}: not run, because ${step.needs} failed`)
    continue
  }
  const { passed: passedBefore, failed: failedBefore } = count
  const code = await step.go()
  if (code === undefined) continue
  if (code !== 0) failed.add(step.name)
  // A step with tests counts those; any other counts as one.
  if (code !== 0 && count.failed === failedBefore) count.failed += 1
  if (code === 0 && count.passed === passedBefore) count.passed += 1
  console.log(`── ${step.name}: ${code === 0 ? 'passed' : `FAILED (exit code ${code})`}, ${seconds(from)}`)
}

console.log('')
if (count.skipped.length > 0) console.log(`skipped: ${count.skipped.join('; ')}`)
if (failed.size > 0) console.log(`failed: ${[...failed].join(', ')}`)
console.log(`${count.passed} passed, ${count.failed} failed (${seconds(begun)})`)
process.exitCode = failed.size === 0 ? 0 : 1

function seconds(from) {
  return `${((Date.now() - from) / 1000).toFixed(1)} s`
}

function tool(name) {
  return join(top, 'node_modules', '.bin', name)
}

/** The types of other packages need other libraries than ours: they are held against ours in a project of their own. */
async function types() {
  const own = await run(tool('tsc'), ['-p', 'tsconfig.json'])
  return own === 0 ? run(tool('tsc'), ['-p', join('__test__', 'interop')]) : own
}

function docs() {
  return run('cargo', ['doc', '--no-deps', '--lib', ...NODE], { env: { RUSTDOCFLAGS: DENY.join(' ') } })
}

/** Built without the test features, as it is shipped; the binary beside it serves the Node tests. */
async function addon() {
  const built = await cargoBuild(['--lib', '--bins', ...NODE])
  if (built.code !== 0) return built.code
  console.log(`${placeAddon(built.library)} is now the development build (npm run build makes the release one)`)
  process.env.SIMSE_TEST_BINARY = built.binary
  return 0
}

async function rustTests() {
  const each = (line) => {
    const result = /^test result: .* (\d+) passed; (\d+) failed/.exec(line)
    if (!result) return
    count.passed += Number(result[1])
    count.failed += Number(result[2])
  }
  // Compiling is quiet for long, tests are not.
  const compiled = await run('cargo', ['test', '--no-run', ...NODE])
  return compiled || run('cargo', ['test', '--no-fail-fast', ...NODE], { each, quietMax: QUIET_MAX })
}

async function nodeTests() {
  const files = readdirSync(join(top, '__test__')).filter((name) => name.endsWith('.test.mjs'))
  const each = (line) => {
    const result = /^\S+ (pass|fail|cancelled) (\d+)$/.exec(line)
    if (!result) return
    count[result[1] === 'pass' ? 'passed' : 'failed'] += Number(result[2])
  }
  const paths = files.sort().map((name) => join('__test__', name))
  // Some tests make Rust panic; their backtraces would bury the rest.
  const env = { RUST_BACKTRACE: '0' }
  return run(process.execPath, ['--expose-gc', '--test', '--test-reporter=spec', ...paths], {
    each,
    env,
    quietMax: QUIET_MAX,
  })
}

/** Built anew beside the one that is committed, and held against it file by file. */
async function webPage() {
  const typed = await run(tool('tsc'), ['-p', 'web/tsconfig.json'])
  if (typed !== 0) return typed
  const built = mkdtempSync(join(tmpdir(), 'simse-web-'))
  try {
    const code = await run(tool('vite'), ['build', 'web', '--outDir', built, '--emptyOutDir', '--logLevel', 'warn'])
    if (code !== 0) return code
    const files = (root) =>
      readdirSync(root, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => relative(root, join(entry.parentPath, entry.name)))
        .sort()
    const [committed, made] = [join(top, 'web', 'dist'), built].map((root) =>
      files(root).map(
        (name) =>
          `${name} ${createHash('sha256')
            .update(readFileSync(join(root, name)))
            .digest('hex')}`,
      ),
    )
    if (committed.join() === made.join()) return 0
    say('web/dist is not what web/ and js/client make: run `npm run web` and commit it')
    return 1
  } finally {
    rmSync(built, { recursive: true, force: true })
  }
}

/** cargo-deny is one more program to install: a machine without it skips the step and says so; CI does not. */
function deny() {
  if (answers('cargo', ['deny', '--version']))
    return run('cargo', ['deny', ...NODE, 'check', 'bans', 'licenses', 'sources'])
  const how = 'cargo-deny is not installed (cargo install cargo-deny --locked)'
  if (process.env.CI) {
    say(how)
    return 1
  }
  count.skipped.push(`deny: ${how}`)
  return undefined
}
