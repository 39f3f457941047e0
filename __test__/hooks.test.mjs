/** The hook system: typescript-api.md §6. */

import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { createHookSystem, createToolRegistry } from '../js/index.js'

const request = Object.freeze({ id: '1', name: 'echo', arguments: { text: 'hello' } })
const result = Object.freeze({ id: '1', name: 'echo', output: 'hello', isError: false })

/** Point → a context, what comes back without hooks, a handler, and what two of them make. */
const CHAINED = [
  [
    'tool.execute.before',
    { request },
    request,
    (c) => ({ ...c.request, name: `${c.request.name}!` }),
    { ...request, name: 'echo!!' },
  ],
  [
    'tool.execute.after',
    { request, result },
    result,
    (c) => ({ ...c.result, output: `${c.result.output}!` }),
    { ...result, output: 'hello!!' },
  ],
  ['prompt.system.transform', { prompt: 'p' }, 'p', (c) => `${c.prompt}!`, 'p!!'],
  ['session.compacting', { messages: [], summary: 's' }, 's', (c) => `${c.summary}!`, 's!!'],
  [
    'prompt.messages.transform',
    { messages: [] },
    [],
    (c) => [...c.messages, { role: 'user', content: 'x' }],
    [
      { role: 'user', content: 'x' },
      { role: 'user', content: 'x' },
    ],
  ],
  ['tool.result.validate', { request, result }, [], () => ['found'], ['found', 'found']],
]

for (const [type, context, untouched, handler, twice] of CHAINED) {
  test(`${type}: input back, chained, unchanged by undefined, taken out again`, async () => {
    const hooks = createHookSystem()
    assert.deepEqual(await hooks.run(type, context), untouched)
    hooks.register(type, () => undefined)
    assert.deepEqual(await hooks.run(type, context), untouched)
    hooks.register(type, handler)
    const off = hooks.register(type, async (c) => handler(c))
    assert.deepEqual(await hooks.run(type, context), twice)
    off()
    off()
    assert.notDeepEqual(await hooks.run(type, context), twice)
  })

  test(`${type}: one that throws`, async () => {
    const warn = mock.method(console, 'warn', () => {})
    try {
      const hooks = createHookSystem()
      hooks.register(type, () => {
        throw new Error('broken')
      })
      hooks.register(type, handler)
      const outcome = await hooks.run(type, context)
      if (type === 'tool.execute.before') {
        assert.equal(outcome.blocked, true, 'fails closed')
        assert.match(outcome.reason, /broken/)
      } else {
        assert.notDeepEqual(outcome, untouched, 'the ones behind it still run')
        assert.equal(warn.mock.callCount(), 1)
      }
    } finally {
      warn.mock.restore()
    }
  })
}

test('a handler that changes what it is given and returns nothing, or throws, changes nothing', async () => {
  const warn = mock.method(console, 'warn', () => {})
  try {
    for (const [type, field, value] of [
      ['tool.execute.before', 'request', { id: '1', name: 'a', arguments: { deep: { n: 1 } } }],
      ['tool.execute.after', 'result', { id: '1', name: 'a', output: 'x', isError: false }],
      ['prompt.messages.transform', 'messages', [{ role: 'user', content: 'x' }]],
    ]) {
      const hooks = createHookSystem()
      const seen = []
      hooks.register(type, (context) => {
        const given = context[field]
        if (Array.isArray(given)) given.push({ role: 'user', content: 'more' })
        else Object.assign(given, { name: 'other', output: 'other', arguments: given.arguments })
        if (given.arguments) given.arguments.deep.n = 2
        if (type === 'tool.execute.after') throw new Error('broken')
      })
      hooks.register(type, (context) => {
        seen.push(structuredClone(context[field]))
      })
      const given = structuredClone(value)
      assert.deepEqual(await hooks.run(type, { request: {}, [field]: given }), value, type)
      assert.deepEqual(seen, [value], type)
    }
    const hooks = createHookSystem()
    hooks.register('tool.execute.before', ({ request }) => request)
    const request = { id: '1', name: 'a', arguments: {} }
    assert.equal(await hooks.run('tool.execute.before', { request }), request, 'the very object')
  } finally {
    warn.mock.restore()
  }
})

test('the first block ends the chain', async () => {
  const hooks = createHookSystem()
  let later = 0
  hooks.register('tool.execute.before', () => ({ blocked: true, reason: 'not today' }))
  hooks.register('tool.execute.before', () => {
    later += 1
  })
  assert.deepEqual(await hooks.run('tool.execute.before', { request }), { blocked: true, reason: 'not today' })
  assert.equal(later, 0)
})

test('an answer of another form is a failure', async () => {
  const hooks = createHookSystem()
  hooks.register('tool.execute.before', () => 17)
  assert.equal((await hooks.run('tool.execute.before', { request })).blocked, true)
  const warn = mock.method(console, 'warn', () => {})
  hooks.register('prompt.system.transform', () => 17)
  assert.equal(await hooks.run('prompt.system.transform', { prompt: 'p' }), 'p')
  assert.equal(warn.mock.callCount(), 1)
  // A part of a result is no result, and that is said: it is not merged, nor dropped in silence.
  const result = { id: '1', name: 't', output: 'before', isError: false }
  hooks.register('tool.execute.after', () => ({ output: 'after' }))
  assert.equal(await hooks.run('tool.execute.after', { request, result }), result)
  assert.equal(warn.mock.callCount(), 2)
  warn.mock.restore()
})

test('an unknown type', async () => {
  const hooks = createHookSystem()
  await assert.rejects(hooks.run('no.such', {}), { message: 'Unknown hook type: no.such' })
  const without = { code: 'CONFIG_VALIDATION', message: 'run: context: expected an object, got nothing' }
  await assert.rejects(hooks.run('tool.execute.before'), without)
  assert.throws(() => hooks.register('no.such', () => {}), { message: 'Unknown hook type: no.such' })
  assert.throws(() => hooks.register('tool.execute.before', 'x'), { code: 'CONFIG_VALIDATION' })
  assert.ok(Object.isFrozen(hooks))
})

function withEcho(hooks) {
  const registry = createToolRegistry({ hooks })
  registry.register(
    { name: 'echo', description: 'Echoes.', parameters: { text: { type: 'string', description: '' } } },
    async ({ text }) => text,
  )
  return registry
}

test('a registry runs them around each call, those that come later too', async () => {
  const hooks = createHookSystem()
  const registry = withEcho(hooks)
  assert.equal((await registry.execute(request)).output, 'hello')
  const off = hooks.register('tool.execute.before', ({ request: call }) => ({
    ...call,
    arguments: { text: 'changed' },
  }))
  hooks.register('tool.execute.after', ({ result: came }) => ({ ...came, output: came.output.toUpperCase() }))
  hooks.register('tool.result.validate', () => ['look again'])
  const changed = await registry.execute(request)
  assert.equal(changed.output, 'CHANGED')
  assert.deepEqual(changed.findings, ['look again'])
  off()
  assert.equal((await registry.execute(request)).output, 'HELLO')
})

test('a block is a failed result with its reason, and the handler does not run', async () => {
  const hooks = createHookSystem()
  let ran = 0
  const registry = createToolRegistry({ hooks })
  registry.register({ name: 'echo', description: '', parameters: {} }, async () => {
    ran += 1
    return 'ran'
  })
  hooks.register('tool.execute.before', () => ({ blocked: true, reason: 'house rules' }))
  const blocked = await registry.execute(request)
  assert.equal(blocked.isError, true)
  assert.match(blocked.output, /house rules/)
  assert.equal(blocked.durationMs, undefined)
  hooks.register('tool.execute.before', () => {
    throw new Error('never reached')
  })
  assert.equal(ran, 0)
})

test('a hook system of the caller works too', async () => {
  const seen = []
  const registry = withEcho({
    async run(type, context) {
      seen.push(type)
      return type === 'tool.execute.after' ? { ...context.result, output: 'theirs' } : undefined
    },
  })
  assert.equal((await registry.execute(request)).output, 'theirs')
  assert.deepEqual(seen, ['tool.execute.before', 'tool.execute.after', 'tool.result.validate'])
})
