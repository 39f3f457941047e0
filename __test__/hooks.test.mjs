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
  ['session.start', { source: 'new' }, [], () => ['found'], ['found', 'found']],
  ['turn.stop', { ended: 'completed', text: 't' }, [], ({ text }) => [text], ['t', 't']],
  [
    'prompt.submit',
    { prompt: 'p' },
    { prompt: 'p', context: [] },
    ({ prompt }) => ({ prompt: `${prompt}!`, context: [prompt] }),
    { prompt: 'p!!', context: ['p', 'p!'] },
  ],
  [
    'session.compact.before',
    { trigger: 'manual', focus: 'f' },
    { focus: 'f' },
    ({ focus }) => ({ focus: `${focus}!` }),
    { focus: 'f!!' },
  ],
]
/** What nobody could look at does not pass. */
const GATES = ['tool.execute.before', 'prompt.submit']

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
      if (GATES.includes(type)) {
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

test('a `blocked` that is neither true nor false is no yes', async () => {
  const request = { id: '1', name: 'n', arguments: {} }
  for (const blocked of ['true', 1, {}]) {
    const hooks = createHookSystem()
    hooks.register('tool.execute.before', ({ request }) => ({ ...request, blocked }))
    hooks.register('prompt.submit', () => ({ blocked }))
    assert.equal((await hooks.run('tool.execute.before', { request })).blocked, true)
    const said = await hooks.run('prompt.submit', { prompt: 'p' })
    assert.deepEqual([said.blocked, /neither/.test(said.reason)], [true, true])
  }
  const hooks = createHookSystem()
  hooks.register('prompt.submit', () => ({ blocked: false, prompt: 'q' }))
  assert.equal((await hooks.run('prompt.submit', { prompt: 'p' })).prompt, 'q')
})

test('a block ends the chain; of a prompt with images the text alone is replaced', async () => {
  for (const [type, context] of [
    ['prompt.submit', { prompt: 'p' }],
    ['session.compact.before', { trigger: 'manual' }],
  ]) {
    const hooks = createHookSystem()
    hooks.register(type, () => ({ blocked: true, reason: 'no' }))
    hooks.register(type, () => assert.fail('it is not asked'))
    assert.deepEqual(await hooks.run(type, context), { blocked: true, reason: 'no' })
  }
  const hooks = createHookSystem()
  const image = { type: 'image', mediaType: 'image/png', data: 'AA==' }
  const seen = []
  hooks.register('prompt.submit', () => ({ prompt: 'q' }))
  hooks.register('prompt.submit', ({ parts }) => void seen.push(...parts))
  await hooks.run('prompt.submit', { prompt: 'p', parts: [{ type: 'text', text: 'p' }, image] })
  assert.deepEqual(seen, [{ type: 'text', text: 'q' }, image])
})

test('who only hears changes nothing, and what throws there is warned of', async () => {
  const warn = mock.method(console, 'warn', () => {})
  try {
    for (const type of ['session.end', 'notification']) {
      const hooks = createHookSystem()
      const heard = []
      hooks.register(type, () => {
        throw new Error('broken')
      })
      hooks.register(type, (context) => heard.push(context))
      assert.equal(await hooks.run(type, { kind: 'k' }), undefined)
      assert.deepEqual(heard, [{ kind: 'k' }])
    }
    assert.equal(warn.mock.callCount(), 2)
  } finally {
    warn.mock.restore()
  }
})

test('what is of another form is no answer', async () => {
  const warn = mock.method(console, 'warn', () => {})
  try {
    for (const [type, answer, want] of [
      ['session.start', 'text', []],
      ['turn.stop', [1], []],
      ['session.compact.before', 'f', {}],
      ['prompt.submit', 'q', undefined],
      ['prompt.submit', { context: 'q' }, undefined],
    ]) {
      const hooks = createHookSystem()
      hooks.register(type, () => answer)
      const said = await hooks.run(type, { prompt: 'p' })
      if (want === undefined) assert.equal(said.blocked, true)
      else assert.deepEqual(said, want)
    }
  } finally {
    warn.mock.restore()
  }
})
