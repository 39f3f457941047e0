/** Files from JavaScript: images, stale files, and what a full disk and a sudden end leave behind. */

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createEventBus, createToolRegistry, registerFilesystemTools } from '../js/index.js'
import { call } from './support/registry.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-files-')))
after(() => rmSync(room, { recursive: true, force: true }))
const entry = new URL('../js/index.js', import.meta.url).href
let rooms = 0

/** A registry with the file tools over a new directory. */
function files(options = {}) {
  const workingDirectory = join(room, `work${++rooms}`)
  mkdirSync(workingDirectory)
  const eventBus = createEventBus()
  const registry = createToolRegistry({ eventBus })
  registerFilesystemTools(registry, { workingDirectory, ...options })
  const run = (name, args) => registry.execute(call(name, args))
  return { workingDirectory, eventBus, run, path: (name) => join(workingDirectory, name) }
}

/** A PNG of one pixel. */
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==',
  'base64',
)

test('an image comes beside the text, in the result and in the event', async () => {
  const { eventBus, run, path } = files()
  writeFileSync(path('p.png'), PNG)
  const ends = []
  eventBus.subscribe('tool.call.end', (end) => ends.push(end))
  const result = await run('view_image', { path: 'p.png' })
  const part = { type: 'image', mediaType: 'image/png', data: PNG.toString('base64') }
  assert.equal(result.output, `Image "p.png": image/png, 1x1 pixels, ${PNG.length} bytes`)
  assert.deepEqual(result.parts, [part])
  assert.deepEqual(ends[0].parts, [part])
  assert.equal('parts' in (await run('fs_read', { path: 'p.png' })), false)
})

test('a change carries its diff, and says when nothing changes', async () => {
  const { run, path } = files()
  const made = await run('fs_write', { path: 'a', content: 'one\n' })
  assert.equal(made.output, 'Wrote 4 bytes to a')
  assert.deepEqual(
    { ...made.details, diff: made.details.diff.split('\n').slice(0, 2) },
    { path: 'a', isNew: true, diff: ['--- /dev/null', '+++ b/a'], added: 1, removed: 0, truncated: false },
  )
  const edited = await run('fs_edit', { path: 'a', old_string: 'one', new_string: 'two' })
  assert.match(edited.details.diff, /^--- a\/a\n\+\+\+ b\/a\n@@ -1 \+1 @@\n-one\n\+two\n$/)
  const same = await run('fs_write', { path: 'a', content: 'two\n' })
  assert.equal(same.output, 'Unchanged: a holds exactly these 4 bytes already')
  assert.equal(readFileSync(path('a'), 'utf8'), 'two\n')
})

test('a file that changed since it was read is left alone, unless the check is off', async () => {
  for (const staleCheck of ['strict', 'warn', 'off', undefined]) {
    const { run, path } = files({ staleCheck })
    writeFileSync(path('a'), 'one\n')
    await run('fs_read', { path: 'a' })
    writeFileSync(path('a'), 'somebody else was here\n')
    const result = await run('fs_write', { path: 'a', content: 'mine\n' })
    assert.equal(result.isError, staleCheck !== 'off', staleCheck)
    if (result.isError) {
      assert.match(result.output, /"a" has changed since this session last read it/)
      assert.equal(readFileSync(path('a'), 'utf8'), 'somebody else was here\n')
    }
  }
  assert.throws(() => files({ staleCheck: 'sometimes' }), /staleCheck/)
})

/** Runs a module of this text in a process of its own. */
const program = (lines) => `
  import { createToolRegistry, registerFilesystemTools } from ${JSON.stringify(entry)}
  const registry = createToolRegistry({})
  registerFilesystemTools(registry, { workingDirectory: process.argv[1] })
  const run = (name, args) => registry.execute({ id: '1', name, arguments: args })
  ${lines}
`

test('a full disk leaves the old file and nothing else', (t) => {
  const work = join(room, 'full')
  mkdirSync(work)
  const source = program(`
    await run('fs_write', { path: 'a', content: 'old' })
    const { output, isError } = await run('fs_write', { path: 'a', content: 'x'.repeat(1_000_000) })
    const { readdirSync, readFileSync } = await import('node:fs')
    const left = readdirSync(process.argv[1])
    console.log(JSON.stringify({ output, isError, left, content: readFileSync(process.argv[1] + '/a', 'utf8') }))
  `)
  const mount = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" --input-type=module -e "$3" "$1"'
  const ran = spawnSync('unshare', ['-Urm', 'sh', '-c', mount, 'sh', work, process.execPath, source], {
    encoding: 'utf8',
  })
  if (ran.error || /unshare|mount/.test(ran.stderr.split('\n')[0])) return t.skip('no small disk can be mounted here')
  const said = JSON.parse(ran.stdout)
  assert.deepEqual({ ...said, output: '' }, { output: '', isError: true, left: ['a'], content: 'old' })
  assert.match(said.output, /Cannot write "a": No space left on device/)
})

test('a process that is killed while it writes leaves whole files', async () => {
  const work = join(room, 'killed')
  mkdirSync(work)
  const source = program(`
    console.log('ready')
    for (let n = 0; ; n++) await run('fs_write', { path: 'a', content: String(n % 10).repeat(200_000) })
  `)
  for (let round = 0; round < 5; round++) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', source, work], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(child.stdout, 'data')
    // Some writes later, wherever it is.
    const first = readIfThere(join(work, 'a'))
    for (const until = Date.now() + 20_000; Date.now() < until && readIfThere(join(work, 'a')) === first; );
    child.kill('SIGKILL')
    await once(child, 'exit')
    const content = readFileSync(join(work, 'a'), 'utf8')
    assert.equal(content, content[0].repeat(200_000), 'one write, whole')
    const strange = readdirSync(work).filter((name) => name !== 'a' && !/^\.simse-.*\.tmp$/.test(name))
    assert.deepEqual(strange, [])
  }
})

function readIfThere(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
