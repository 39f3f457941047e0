/** The packages as they are published: installed without a compiler, what is said where a part is missing, and in other people's tools. */

import assert from 'node:assert/strict'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { run } from './support/run.mjs'
import { binary } from './support/served.mjs'

const require = createRequire(import.meta.url)
const { PLATFORMS, platform } = require('../js/platform.cjs')
const top = fileURLToPath(new URL('..', import.meta.url))
const modules = join(top, 'node_modules')
const here = platform()
const only = { skip: !PLATFORMS.includes(here) && `no package is made for ${here}` }

const CALL = `
const registry = createToolRegistry({})
registerFilesystemTools(registry, { workingDirectory: '.' })
const { output, isError } = await registry.execute({ id: '1', name: 'fs_list', arguments: {} })
if (isError || !output.includes('package.json')) throw new Error(output)
`
const NAMES = 'createToolRegistry, registerFilesystemTools'

let place
let project
/** Runs npm without a network. */
const npm = (args, cwd) =>
  run('npm', [...args, '--offline', '--no-audit', '--no-fund', '--loglevel=error'], { cwd, limitMs: 120_000 })
/** Runs a program of the development dependencies, or Node itself. */
const node = (args, cwd = project, more = {}) => run(process.execPath, args, { cwd, limitMs: 120_000, ...more })

before(async () => {
  if (only.skip) return
  place = mkdtempSync(join(tmpdir(), 'simse-packages-'))
  project = join(place, 'project')
  mkdirSync(project)
  // What is tested is as it was built; the symbols, which only make it large, are left out.
  const parts = []
  for (const [name, from] of [
    ['addon', join(top, 'js', `simse.${here}.node`)],
    ['launcher', join(dirname(binary), 'simse-launcher')],
  ]) {
    const to = join(place, name)
    const stripped = await run('strip', ['-o', to, from], { cwd: place, limitMs: 60_000 })
    if (stripped.code !== 0) cpSync(from, to)
    parts.push(`--${name}`, to)
  }
  const made = await node([join(top, 'scripts/package.mjs'), '--out', place, ...parts], place)
  assert.equal(made.code, 0, made.said)
  writeFileSync(join(project, 'package.json'), '{"name": "empty", "private": true, "type": "module"}')
  const packed = readdirSync(place).filter((name) => name.endsWith('.tgz'))
  assert.deepEqual(packed.sort(), [`simse-0.1.0.tgz`, `simse-${here}-0.1.0.tgz`])
  const installed = await npm(['install', ...packed.map((name) => join(place, name))], project)
  assert.equal(installed.code, 0, installed.said)
})
after(() => place !== undefined && rmSync(place, { recursive: true, force: true }))

test(
  'two packages are installed without a compiler, and the first call works, imported and required',
  only,
  async () => {
    const main = join(project, 'node_modules', 'simse')
    assert.deepEqual(
      readdirSync(join(main, 'js')).filter((name) => name.endsWith('.node') || name === 'bin'),
      [],
      'the native parts lie in the other one',
    )
    const described = JSON.parse(readFileSync(join(main, 'package.json'), 'utf8'))
    assert.deepEqual(
      Object.keys(described.optionalDependencies),
      PLATFORMS.map((name) => `simse-${name}`),
    )
    assert.equal(described.scripts, undefined, 'nothing runs when it is installed')
    const native = JSON.parse(readFileSync(join(project, 'node_modules', `simse-${here}`, 'package.json'), 'utf8'))
    assert.deepEqual([native.os, native.cpu], [[process.platform], [process.arch]])
    writeFileSync(join(project, 'a.mjs'), `import { ${NAMES} } from 'simse'\n${CALL}\nconsole.log('called')`)
    writeFileSync(
      join(project, 'b.cjs'),
      `const { ${NAMES} } = require('simse')\n;(async () => {${CALL}\nconsole.log('called')})()`,
    )
    for (const file of ['a.mjs', 'b.cjs']) assert.equal((await node([file])).said.trim(), 'called')
    const version = await run(join(project, 'node_modules/.bin/simse'), ['--version'], { cwd: project })
    assert.equal(version.said.trim(), 'simse 0.1.0')
    const failed = await run(join(project, 'node_modules/.bin/simse'), ['run', '--port', '1', 'x'], { cwd: project })
    assert.equal(failed.code, 2, 'exit codes come through')
    const whole = await run(join(project, 'node_modules/.bin/simse'), ['start', '--once'], {
      cwd: project,
      limitMs: 120_000,
    })
    assert.match(whole.said, /The job is done/, 'and with the addon it is the whole program')
  },
)

test('what is missing is said, with what brings it', only, async () => {
  const broken = join(place, 'broken')
  const native = join(broken, 'node_modules', `simse-${here}`)
  cpSync(project, broken, { recursive: true, verbatimSymlinks: true })
  const loaded = () => node(['-e', 'require("simse")'], broken)
  const launched = () => run(join(native, 'bin', 'simse'), ['--version'], { cwd: broken })
  writeFileSync(join(native, `simse.${here}.node`), 'no library')
  assert.match((await loaded()).said, /simse cannot load .*\.node: it does not fit this system/)
  assert.match((await launched()).said, /^simse: cannot load \/.*\.node: /)
  writeFileSync(
    join(native, 'package.json'),
    JSON.stringify({ name: `simse-${here}`, version: '0.0.9', main: `simse.${here}.node` }),
  )
  assert.match((await loaded()).said, new RegExp(`simse 0\\.1\\.0 cannot use simse-${here} 0\\.0\\.9: .npm install`))
  rmSync(join(native, `simse.${here}.node`))
  const alone = await launched()
  assert.match(alone.said, /^simse: \/.*\.node is missing: install the package anew/)
  assert.equal(alone.code, 3)
  rmSync(native, { recursive: true })
  assert.match(
    (await loaded()).said,
    new RegExp(`no native addon for ${here}: .* is missing\\. The package simse-${here} is an optional`),
  )
  const bare = await run(join(broken, 'node_modules/.bin/simse'), ['--version'], { cwd: broken })
  assert.equal(bare.code, 2)
  assert.match(
    bare.said,
    new RegExp(`there is no binary for ${here}[^]*npm install simse-${here}@0\\.1\\.0`.replace('[^]', '[\\s\\S]')),
  )
})

test('it works in worker threads, side by side', only, async () => {
  const program = `
import { Worker, isMainThread, parentPort } from 'node:worker_threads'
import { ${NAMES} } from 'simse'
if (isMainThread) {
  const workers = Array.from({ length: 4 }, () => new Worker(new URL(import.meta.url)))
  const said = await Promise.all(workers.map((worker) => new Promise((told, failed) => worker.once('message', told).once('error', failed))))
  await Promise.all(workers.map((worker) => worker.terminate()))
  ${CALL}
  console.log(said.join(' '))
} else {
  ${CALL}
  parentPort.postMessage('called')
}`
  writeFileSync(join(project, 'threads.mjs'), program)
  assert.equal((await node(['threads.mjs'])).said.trim(), 'called called called called')
})

test('it works in vitest and in jest', only, async () => {
  const folder = join(project, 'runners')
  mkdirSync(folder)
  writeFileSync(
    join(folder, 'one.test.mjs'),
    `import { expect, test } from 'vitest'\nimport { ${NAMES} } from 'simse'\ntest('a call', async () => {${CALL}\nexpect(isError).toBe(false)})`,
  )
  writeFileSync(
    join(folder, 'two.test.cjs'),
    `const { ${NAMES} } = require('simse')\ntest('a call', async () => {${CALL}\nexpect(isError).toBe(false)})`,
  )
  // The runners are not the project's own here; all that they see of it is.
  const vitest = await node(
    [join(modules, 'vitest/vitest.mjs'), 'run', '--root', project, 'runners/one.test.mjs'],
    top,
    {
      env: { ...process.env, NODE_PATH: modules, CI: 'true' },
    },
  )
  assert.equal(vitest.code, 0, vitest.said)
  assert.match(vitest.said, /1 passed/)
  const jest = await node([
    join(modules, 'jest/bin/jest.js'),
    ...[
      '--rootDir',
      project,
      '--testMatch',
      '**/two.test.cjs',
      '--testEnvironment',
      join(modules, 'jest-environment-node'),
    ],
  ])
  assert.equal(jest.code, 0, jest.said)
  assert.match(jest.said, /1 passed/)
})

test('a bundle of esbuild has it outside, and works', only, async () => {
  writeFileSync(join(project, 'bundled.mjs'), `import { ${NAMES} } from 'simse'\n${CALL}\nconsole.log('called')`)
  const bundled = await run(
    join(modules, 'esbuild/bin/esbuild'),
    ['bundled.mjs', '--bundle', '--platform=node', '--format=esm', '--external:simse', '--outfile=out.mjs'],
    { cwd: project },
  )
  assert.equal(bundled.code, 0, bundled.said)
  assert.equal((await node(['out.mjs'])).said.trim(), 'called')
})

test('types and exports are right for every way of import', only, async () => {
  const tarball = join(place, 'simse-0.1.0.tgz')
  const types = await node([
    join(modules, '@arethetypeswrong/cli/dist/index.js'),
    tarball,
    '--profile',
    'node16',
    '--format',
    'ascii',
  ])
  assert.equal(types.code, 0, types.said)
  const lint = await node([join(modules, 'publint/src/cli.js'), 'run', tarball, '--strict'])
  assert.equal(lint.code, 0, lint.said)
  assert.match(lint.said, /All good/)
})
