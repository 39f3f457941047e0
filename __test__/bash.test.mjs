/** `bash` from Node: live output, whole outputs, what is kept between calls, and what is left running. */

import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { createEventBus, createToolRegistry, registerBashTool, registerFilesystemTools } from '../js/index.js'
import { call } from './support/registry.mjs'
import { entry, runModule } from './support/run.mjs'

const root = realpathSync(mkdtempSync(join(tmpdir(), 'simse-bash-')))
after(() => rmSync(root, { recursive: true }))

function shell(options = {}, more = {}) {
  const registry = createToolRegistry(options)
  registerBashTool(registry, { workingDirectory: root, ...more })
  registerFilesystemTools(registry, { workingDirectory: root })
  const bash = async (command, args = {}) => {
    const { output, isError } = await registry.execute(call('bash', { command, ...args }))
    assert.equal(isError, false, output)
    return output
  }
  return { registry, bash }
}

/** Whether a process is there and no zombie. */
const runs = (id) => existsSync(`/proc/${id}`) && !readFileSync(`/proc/${id}/stat`, 'utf8').includes(') Z ')

for (const way of ['execute', 'batchExecute']) {
  test(`${way}: what a command writes is heard while it runs, and the pieces are the whole`, async () => {
    const bus = createEventBus()
    const { registry } = shell({ eventBus: bus })
    const events = []
    let pieces = ''
    let go
    const begun = new Promise((resolve) => {
      go = resolve
    })
    bus.subscribeAll((type, payload) => {
      events.push(type)
      if (type !== 'tool.call.output') return
      assert.equal(payload.name, 'bash')
      assert.equal(payload.skippedBytes, undefined)
      pieces += payload.text
      if (pieces === 'one\ntwo ä\n') go()
    })
    const gate = join(root, `gate-${way}`)
    const command = `echo one; echo two ä >&2; while ! [ -e ${gate} ]; do sleep 0.01; done; echo three`
    const request = call('bash', { command })
    const running = way === 'execute' ? registry.execute(request) : registry.batchExecute([request])
    await begun
    // Only now can it end.
    await registry.execute(call('fs_write', { path: gate, content: '' }))
    const [result] = [await running].flat()
    assert.equal(result.output, 'one\ntwo ä\nthree\n')
    assert.equal(pieces, result.output)
    assert.equal(events[0], 'tool.call.start')
    assert.equal(events.filter((type) => type === 'tool.call.end').length, 2)
    assert.equal(events.at(-1), 'tool.call.end')
  })
}

test('the whole of a long output is paged by fs_read, in the order it came, and goes with the process', async () => {
  const { registry, bash } = shell({}, { maxOutputBytes: 1000 })
  const command = 'i=0; while [ $i -lt 5000 ]; do echo "out $i"; echo "err $i" >&2; i=$((i+1)); done'
  const { output, details } = await registry.execute(call('bash', { command }))
  assert.match(output, /^out 0\nerr 0\n/)
  assert.ok(output.endsWith(`; the whole is in ${details.outputPath}, see fs_read]`), output)
  assert.equal(details.outputBytes, details.totalBytes)
  const whole = readFileSync(details.outputPath, 'utf8')
  const want = Array.from({ length: 5000 }, (_, i) => `out ${i}\nerr ${i}\n`).join('')
  assert.equal(whole, want)
  const read = await registry.execute(call('fs_read', { path: details.outputPath, offset: 9999, limit: 2 }))
  assert.match(read.output, /^ {2}9999\tout 4999\n 10000\terr 4999/)
  assert.match(await bash(`grep -c err ${details.outputPath}`), /^5000$/m)
  const other = shell().registry
  const refused = await other.execute(call('fs_read', { path: details.outputPath }))
  assert.match(refused.output, /escapes the working directory/)
  const source = `import * as s from ${entry}
    const r = s.createToolRegistry(); s.registerBashTool(r, { workingDirectory: ${JSON.stringify(root)}, maxOutputBytes: 10 })
    console.log((await r.execute({ id: '1', name: 'bash', arguments: { command: 'seq 100' } })).details.outputPath)`
  const { said } = await runModule(source)
  assert.match(said, /simse-output-/)
  assert.equal(existsSync(said.trim()), false)
})

test('directory and asked-for variables are kept from call to call, in each registry by itself', async () => {
  const { bash } = shell()
  await bash('mkdir -p deep/er; cd deep; export KEPT=1; NOT=2', { env: { GIVEN: 'a b' }, persist_env: true })
  assert.equal(await bash('cd er; echo "$KEPT $NOT $GIVEN"'), '1  a b\n')
  assert.equal(await bash('pwd; echo $ONCE', { env: { ONCE: 'x' } }), `${root}/deep/er\nx\n`)
  assert.equal(await bash('echo "$ONCE$KEPT$GIVEN"', { env: { KEPT: null } }), 'a b\n')
  assert.equal(await shell().bash('pwd; echo "$KEPT"'), `${root}\n\n`)
})

test('a program in the background does not hold the call up', async () => {
  const begin = Date.now()
  const { bash } = shell()
  const id = (await bash('sleep 300 > log 2>&1 & echo $!')).trim()
  assert.ok(Date.now() - begin < 8000)
  assert.equal(await bash('true'), '')
  assert.ok(runs(id), 'and goes on')
  await bash(`kill ${id}`)
})

for (const [end, source] of [
  ['its natural end', ''],
  ['process.exit()', 'process.exit(0)'],
  ['an error', "throw new Error('as it should')"],
]) {
  test(`what is left running ends with the process: ${end}`, async () => {
    const { said } = await runModule(`import * as s from ${entry}
      const r = s.createToolRegistry(); s.registerBashTool(r, { workingDirectory: ${JSON.stringify(root)} })
      globalThis.kept = r
      const command = 'setsid sleep 300 > log 2>&1 & echo $!'
      console.log((await r.execute({ id: '1', name: 'bash', arguments: { command } })).output)
      ${source}`)
    assert.match(said, /^\d+/)
    assert.equal(runs(said.trim()), false)
  })
}

test('an abort ends what left the group, and tells what was written', async () => {
  const { registry } = shell()
  const controller = new AbortController()
  const started = join(root, 'started')
  const command = `echo so far; env -i setsid sleep 300 & echo $! > ${started}.tmp; mv ${started}.tmp ${started}; wait`
  const running = registry.execute(call('bash', { command }), { signal: controller.signal })
  while (!existsSync(started)) await new Promise((resolve) => setTimeout(resolve, 5))
  controller.abort()
  const { output, isError } = await running
  assert.deepEqual({ output, isError }, { output: 'Tool "bash" execution failed: aborted\nso far\n', isError: true })
  // It was killed; a machine that is busy lets it die a little later.
  const id = readFileSync(started, 'utf8').trim()
  for (let waits = 0; waits < 500 && runs(id); waits++) await new Promise((resolve) => setTimeout(resolve, 10))
  assert.equal(runs(id), false)
})

test('a hundred megabytes of output leave the memory as it is', async () => {
  const { bash } = shell()
  await bash('head -c 1000000 /dev/zero | tr "\\\\0" x')
  const before = process.memoryUsage().rss
  let most = before
  const look = setInterval(() => {
    most = Math.max(most, process.memoryUsage().rss)
  }, 5)
  const output = await bash('head -c 104857600 /dev/zero | tr "\\\\0" x')
  clearInterval(look)
  assert.match(output, /\[truncated: 104857600 bytes total, .*; the first 67108864 bytes are in /)
  assert.ok(most - before < 10e6, `${(most - before) / 1e6} MB more`)
})
