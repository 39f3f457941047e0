/** What the addon does to its process: it ends by itself, and a panic does not end it. */

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import process from 'node:process'
import { test } from 'node:test'
import { entry, runModule } from './support/run.mjs'

const ENDS = [
  ['an import alone', ''],
  [
    'subscriptions and registered tools',
    `const bus = s.createEventBus(); bus.subscribeAll(() => {})
     const r = s.createToolRegistry({ eventBus: bus, hooks: s.createHookSystem() })
     r.register({ name: 'a', description: '', parameters: {} }, async () => 'x')
     globalThis.kept = [bus, r]`,
  ],
  [
    'calls that are done',
    `const r = s.createToolRegistry(); r.register({ name: 'a', description: '', parameters: {} }, async () => 'x')
     for (let i = 0; i < 100; i++) await r.execute({ id: '1', name: 'a', arguments: {} })
     const signal = new AbortController().signal
     await r.batchExecute(Array.from({ length: 50 }, (_, i) => ({ id: String(i), name: 'a', arguments: {} })), { signal })`,
  ],
  [
    'an aborted call whose handler never settles',
    `const r = s.createToolRegistry(); const c = new AbortController()
     r.register({ name: 'a', description: '', parameters: {} }, () => { c.abort(); return new Promise(() => {}) })
     await r.execute({ id: '1', name: 'a', arguments: {} }, { signal: c.signal })`,
  ],
]
for (const [what, source] of ENDS) {
  test(`the process ends by itself after ${what}`, async () => {
    const { code, said, timedOut } = await runModule(`import * as s from ${entry}; ${source}; console.log('done')`)
    assert.deepEqual({ code, said, timedOut }, { code: 0, said: 'done\n', timedOut: false })
  })
}

test('a call that is awaited keeps the process alive until it is answered', async () => {
  const source = `import * as s from ${entry}
    const r = s.createToolRegistry()
    r.register({ name: 'a', description: '', parameters: {} }, () => new Promise((go) => setTimeout(go, 50, 'late').unref()))
    r.register({ name: 'b', description: '', parameters: {} }, () => new Promise((go) => setTimeout(go, 50, 'late')))
    console.log((await r.execute({ id: '1', name: 'b', arguments: {} })).output)`
  const { code, said } = await runModule(source)
  assert.deepEqual({ code, said }, { code: 0, said: 'late\n' })
})

test('process.exit() with calls under way ends at once', async () => {
  const source = `import * as s from ${entry}
    const r = s.createToolRegistry()
    let n = 0
    r.register({ name: 'a', description: '', parameters: {} }, () => { if (++n === 8) process.exit(7); return new Promise(() => {}) })
    await r.batchExecute(Array.from({ length: 50 }, (_, i) => ({ id: String(i), name: 'a', arguments: {} })))`
  const { code, signal } = await runModule(source)
  assert.deepEqual({ code, signal }, { code: 7, signal: null })
})

test('a worker may load the addon too, and end while it is called', async () => {
  const inside = `import { parentPort } from 'node:worker_threads'
    import * as s from ${entry}
    const r = s.createToolRegistry()
    r.register({ name: 'a', description: '', parameters: {} }, async () => 'x')
    parentPort.postMessage((await r.execute({ id: '1', name: 'a', arguments: {} })).output)
    for (;;) await r.execute({ id: '1', name: 'a', arguments: {} })`
  const source = `import { Worker } from 'node:worker_threads'
    const url = new URL('data:text/javascript,' + encodeURIComponent(${JSON.stringify(inside)}))
    for (let i = 0; i < 5; i++) {
      const worker = new Worker(url)
      await new Promise((ran, failed) => { worker.once('message', ran); worker.once('error', failed) })
      await worker.terminate()
    }
    console.log('done')`
  const { code, said } = await runModule(source)
  assert.deepEqual({ code, said }, { code: 0, said: 'done\n' })
})

test('what tools run in a worker ends when the worker is terminated', async () => {
  const inside = `import { parentPort } from 'node:worker_threads'
    import * as s from ${entry}
    const registry = s.createToolRegistry()
    s.registerBashTool(registry, { workingDirectory: '/' })
    const run = (command) => registry.execute({ id: '1', name: 'bash', arguments: { command } })
    const { output } = await run('sleep 1000 & echo $!')
    run('echo begun; sleep 1001')
    parentPort.postMessage(output)`
  const source = `import { Worker } from 'node:worker_threads'
    import { existsSync } from 'node:fs'
    const url = new URL('data:text/javascript,' + encodeURIComponent(${JSON.stringify(inside)}))
    const worker = new Worker(url)
    const output = await new Promise((ran, failed) => { worker.once('message', ran); worker.once('error', failed) })
    const pid = /\\d+/.exec(output)[0]
    if (!existsSync('/proc/' + pid)) throw new Error('it does not run: ' + output)
    await worker.terminate()
    for (let i = 0; i < 500 && existsSync('/proc/' + pid); i++) await new Promise((next) => setTimeout(next, 10))
    console.log(existsSync('/proc/' + pid) ? 'it goes on' : 'it ended')`
  const { code, said } = await runModule(source)
  assert.deepEqual({ code, said }, { code: 0, said: 'it ended\n' })
})

test('a panic in Rust is an error, a rejection or a failed result, and the process lives on', async () => {
  const source = `import assert from 'node:assert/strict'
    import { createToolRegistry } from ${entry}
    import { native, registerProbes } from ${JSON.stringify(new URL('./support/addon.mjs', import.meta.url).href)}
    assert.throws(() => native.probePanicSync(), /a probe panics/)
    await assert.rejects(native.probePanicAsync(), /a probe panics/)
    const registry = createToolRegistry()
    registerProbes(registry)
    const result = await registry.execute({ id: '1', name: 'probe_panic', arguments: {} })
    assert.equal(result.isError, true)
    assert.match(result.output, /^Tool "probe_panic" execution failed: .*a probe panics/)
    const both = ['probe_panic', 'probe_noop'].map((name) => ({ id: name, name, arguments: {} }))
    const results = await registry.batchExecute(both)
    assert.deepEqual(results.map((r) => r.isError), [true, false])
    console.log('lives')`
  const { code, said } = await runModule(source, { env: { ...process.env, RUST_BACKTRACE: '0' } })
  assert.equal(code, 0, said)
  assert.match(said, /^lives$/m)
})

test('every export of the addon that is no promise of its own catches panics', () => {
  const folder = new URL('../src/node/', import.meta.url)
  let count = 0
  const bare = readdirSync(folder).flatMap((name) => {
    const source = readFileSync(new URL(name, folder), 'utf8')
    const exports = source.matchAll(/#\[napi(?:\(([^\]]*)\))?\]\s*(?:#\[[^\]]*\]\s*)*pub (async )?fn (\w+)/g)
    const found = [...exports]
    count += found.length
    return found
      .filter(([, how = '', async]) => !async && !how.includes('catch_unwind'))
      .map(([, , , fn]) => `${name}: ${fn}`)
  })
  assert.deepEqual(bare, [])
  assert.ok(count >= 20, `only ${count} exports found: the search is broken`)
})

test('no addon for this machine: the error names the file and the way out', async () => {
  const source = `import { createRequire } from 'node:module'
    Object.defineProperty(process, 'arch', { value: 'pdp11' })
    try { createRequire(import.meta.url)(${JSON.stringify(new URL('../js/load.cjs', import.meta.url).pathname)}) } catch (e) { console.log(e.message) }`
  const { said } = await runModule(source)
  assert.match(said, /pdp11.*missing.*npm run build/)
})
