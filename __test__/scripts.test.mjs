/** The npm scripts: what they say on a machine that lacks something, and that the package is what it claims to be. */

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { nodeFault, run, rustFault } from '../scripts/tools.mjs'

const top = dirname(dirname(fileURLToPath(import.meta.url)))
const room = mkdtempSync(join(tmpdir(), 'simse-scripts-'))
after(() => rmSync(room, { recursive: true, force: true }))

/** Runs a script on a machine that has only these programs: name → shell script, or true for the real one. */
function onMachine(programs, script) {
  const bin = mkdtempSync(join(room, 'bin-'))
  for (const [name, body] of Object.entries(programs)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${body}\n`)
    chmodSync(join(bin, name), 0o755)
  }
  symlinkSync('/bin/sh', join(bin, 'sh'))
  const env = { PATH: bin, HOME: bin, CARGO_HOME: bin }
  return spawnSync(process.execPath, [join(top, 'scripts', script)], { env, encoding: 'utf8' })
}

const oldRust = { cargo: 'echo cargo 1.70.0', rustc: 'echo "rustc 1.70.0 (90c541806 2023-05-31)"', cc: 'echo cc' }
const newRust = { cargo: 'echo cargo 9.0.0', rustc: 'echo "rustc 9.0.0 (90c541806 2099-05-31)"' }

for (const script of ['start.mjs', 'test.mjs', 'build.mjs']) {
  for (const [what, programs, says] of [
    ['no cargo', {}, /cargo was not found.*\n.*rustup/],
    ['an old Rust', oldRust, /this is Rust 1\.70, and simse needs Rust \d+\.\d+ or newer\n.*rustup update/],
    ['no C compiler', newRust, /no C compiler was found.*\n.*build-essential/],
  ]) {
    test(`${script} explains ${what}`, () => {
      const { status, stderr, stdout } = onMachine(programs, script)
      assert.equal(status, 2, stderr)
      assert.match(stderr, says)
      assert.equal(stdout, '')
    })
  }
}

test('versions of Node and Rust are told apart', () => {
  assert.match(nodeFault('18.20.4'), /Node 18\.20\.4.*Node 20 or newer/)
  assert.match(nodeFault('8.0.0'), /Node 20/)
  for (const version of ['20.0.0', '22.1.0', '100.0.0']) assert.equal(nodeFault(version), undefined)
  assert.match(rustFault('rustc 1.94.1 (x 2026-01-01)', '1.95'), /Rust 1\.94/)
  assert.match(rustFault('', '1.95'), /does not say/)
  for (const line of ['rustc 1.95.0 (x)', 'rustc 1.100.0-nightly (x)', 'rustc 2.0.0 (x)']) {
    assert.equal(rustFault(line, '1.95'), undefined)
  }
})

test('npm test refuses a step that it does not know', () => {
  const { status, stderr } = spawnSync(process.execPath, [join(top, 'scripts', 'test.mjs'), 'nonsense'], {
    encoding: 'utf8',
  })
  assert.equal(status, 2)
  assert.match(stderr, /no step nonsense; there are: fmt, clippy/)
})

test('npx simse without a binary says how to make it', () => {
  const copy = join(room, 'package', 'js')
  mkdirSync(copy, { recursive: true })
  for (const file of ['cli.js', 'platform.cjs']) cpSync(join(top, 'js', file), join(copy, file))
  writeFileSync(join(room, 'package', 'package.json'), '{"type": "module", "version": "0.1.0"}')
  const { status, stderr } = spawnSync(process.execPath, [join(copy, 'cli.js'), '--help'], { encoding: 'utf8' })
  assert.equal(status, 2)
  assert.match(stderr, /there is no binary for .*\n.*npm run build/)
})

test('npx simse hands arguments, output and exit code through', () => {
  const bin = join(room, 'built', 'js', 'bin')
  mkdirSync(bin, { recursive: true })
  for (const file of ['cli.js', 'platform.cjs']) cpSync(join(top, 'js', file), join(bin, '..', file))
  writeFileSync(join(room, 'built', 'package.json'), '{"type": "module"}')
  writeFileSync(join(bin, 'simse'), '#!/bin/sh\necho "$# $2"\nexit 7\n', { mode: 0o755 })
  const { status, stdout } = spawnSync(process.execPath, [join(bin, '..', 'cli.js'), 'a', 'b c'], { encoding: 'utf8' })
  assert.equal(status, 7)
  assert.equal(stdout, '2 b c\n')
})

test('the package holds what it exports', () => {
  const { status, stdout, stderr } = spawnSync('npm', ['pack', '--dry-run', '--json'], { cwd: top, encoding: 'utf8' })
  assert.equal(status, 0, stderr)
  const [packed] = [JSON.parse(stdout)].flatMap((answer) => (Array.isArray(answer) ? answer : Object.values(answer)))
  const files = new Set(packed.files.map((file) => file.path))
  const { exports, bin } = JSON.parse(readFileSync(join(top, 'package.json'), 'utf8'))
  const named = (value) => (typeof value === 'string' ? [value] : Object.values(value).flatMap(named))
  for (const path of [...named(exports), ...Object.values(bin), 'README.md', 'LICENSE']) {
    assert.ok(files.has(path.replace(/^\.\//, '')), `${path} is not in the package`)
  }
  const stray = [...files].filter((path) => /^(src|target|tests|__test__|benches|scripts)\//.test(path))
  assert.deepEqual(stray, [])
})

test('what says nothing for too long is ended with all that it started, and what it said is there', async () => {
  const said = []
  const script = 'echo begun; sh -c "echo \\$\\$; exec sleep 600"; echo never'
  const from = Date.now()
  const code = await run('sh', ['-c', script], { each: (line) => said.push(line), quiet: true, quietMax: 0.5 })
  assert.equal(code, 128 + 15)
  assert.ok(Date.now() - from < 60_000)
  assert.deepEqual([said.length, said[0]], [2, 'begun'])
  const lives = () => {
    try {
      return process.kill(Number(said[1]), 0)
    } catch (cause) {
      assert.equal(cause.code, 'ESRCH')
      return false
    }
  }
  while (lives()) {
    assert.ok(Date.now() - from < 60_000)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  // What goes on talking is let go on.
  const talks = 'for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done; exit 3'
  assert.equal(await run('sh', ['-c', talks], { each: () => {}, quiet: true, quietMax: 1 }), 3)
})
