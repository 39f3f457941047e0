/** The tool registry: typescript-api.md §2. */

import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { inspect } from 'node:util'
import { type } from 'arktype'
import * as v from 'valibot'
import { z } from 'zod'
import {
  createEventBus,
  createHookSystem,
  createToolPermissionResolver,
  createToolRegistry,
  registerBashTool,
  registerFilesystemTools,
  toMcpTools,
} from '../js/index.js'
import { waitingCalls } from './support/addon.mjs'
import { call, deferred, define, registryOf } from './support/registry.mjs'

const echo = async ({ text }) => text

test('definitions: order, replacement in place, frozen, counted', () => {
  const registry = createToolRegistry({})
  assert.equal(registry.toolCount, 0)
  for (const name of ['a', 'b', 'c']) registry.register(define(name), echo)
  registry.register(define('b', { description: 'new' }), echo)
  assert.deepEqual(registry.toolNames, ['a', 'b', 'c'])
  assert.equal(registry.getToolDefinition('b').description, 'new')
  assert.equal(registry.getToolDefinition('x'), undefined)
  assert.equal(registry.isRegistered('c'), true)
  assert.equal(registry.unregister('a'), true)
  assert.equal(registry.unregister('a'), false)
  assert.deepEqual(
    registry.getToolDefinitions().map((d) => d.name),
    ['b', 'c'],
  )
  assert.equal(registry.toolCount, 2)
  const frozen = [registry, registry.toolNames, registry.getToolDefinitions(), registry.getToolDefinition('b')]
  for (const value of frozen) assert.ok(Object.isFrozen(value))
  assert.ok(Object.keys(registry).includes('toolCount'), 'live values are enumerable getters')
})

test('a definition is copied: what its maker changes later changes nothing', () => {
  const given = define('a', { parameters: { x: { type: 'string', description: 'x' } } })
  const registry = createToolRegistry()
  registry.register(given, echo)
  given.parameters.x.type = 'number'
  assert.equal(registry.getToolDefinition('a').parameters.x.type, 'string')
  assert.ok(Object.isFrozen(registry.getToolDefinition('a').parameters.x))
})

function circle() {
  const schema = { type: 'object', properties: {} }
  schema.properties.again = schema
  return schema
}

function nestedSchema(depth) {
  let schema = { type: 'string' }
  for (let i = 0; i < depth; i++) schema = { type: 'object', properties: { a: schema } }
  return schema
}

const MALFORMED = [
  ['no definition', undefined, echo, 'register'],
  ['no name', { description: '', parameters: {} }, echo, 'name'],
  ['empty name', define(''), echo, 'name'],
  ['no description', { name: 'a', parameters: {} }, echo, 'description'],
  ['no parameters', { name: 'a', description: '' }, echo, 'parameters'],
  ['parameter that is no object', define('a', { parameters: { x: 'string' } }), echo, 'parameters.x'],
  ['parameter without a type', define('a', { parameters: { x: { description: '' } } }), echo, 'parameters.x.type'],
  ['unknown category', define('a', { category: 'magic' }), echo, 'category'],
  ['parameters that hold themselves', define('a', { parameters: circle() }), echo, 'parameters'],
  ['parameters that are no JSON', define('a', { parameters: { type: 'object', const: 1n } }), echo, 'parameters'],
  ['parameters nested without end', define('a', { parameters: nestedSchema(5000) }), echo, 'parameters'],
  ['misspelt option', define('a', { timeoutMS: 5 }), echo, 'timeoutMS'],
  ['time-out of 0', define('a', { timeoutMs: 0 }), echo, 'timeoutMs'],
  ['handler that is none', define('a'), 'echo', 'handler'],
]
for (const [what, definition, handler, path] of MALFORMED) {
  test(`registering with ${what} throws and names it`, () => {
    const registry = createToolRegistry()
    assert.throws(
      () => registry.register(definition, handler),
      (error) => error.code === 'CONFIG_VALIDATION' && error.message.includes(path) && error.issues.length === 1,
    )
    assert.equal(registry.toolCount, 0)
  })
}

test('options that do not fit are refused with their names', () => {
  const table = [
    [{ maxOutputChars: -1 }, 'maxOutputChars'],
    [{ defaultToolTimeoutMs: 1.5 }, 'defaultToolTimeoutMs'],
    [{ permissionResolver: {} }, 'permissionResolver'],
    [{ hooks: 1 }, 'hooks'],
    [{ eventBus: {} }, 'eventBus'],
    [{ mcpClient: { listTools() {} } }, 'mcpClient'],
    [{ memoryManager: {} }, 'memoryManager'],
    [{ colour: 'red' }, 'colour'],
  ]
  for (const [options, path] of table) {
    assert.throws(
      () => createToolRegistry(options),
      (e) => e.code === 'CONFIG_VALIDATION' && e.issues[0].path === path,
    )
  }
})

test('an error of this package is an Error with code, status, metadata and toJSON()', () => {
  try {
    createToolRegistry({ hooks: 1 })
    assert.fail('it throws')
  } catch (error) {
    assert.ok(error instanceof Error)
    assert.equal(error.code, 'CONFIG_VALIDATION')
    assert.equal(error.statusCode, 400)
    assert.deepEqual(error.issues, [{ path: 'hooks', message: 'expected an object with run(), got number 1' }])
    const plain = JSON.parse(JSON.stringify(error))
    assert.deepEqual(Object.keys(plain).sort(), ['code', 'issues', 'message', 'metadata', 'name', 'statusCode'])
    assert.match(error.stack, /registry\.test\.mjs/)
  }
})

// ── one call ────────────────────────────────────────────────────────────────────────────────────

test('a call reaches its handler and its result is frozen', async () => {
  const registry = registryOf({ echo })
  const result = await registry.execute({ id: '7', name: 'echo', arguments: { text: 'grüße 😀' } })
  assert.ok(Object.isFrozen(result))
  const { durationMs, ...rest } = result
  assert.deepEqual(rest, { id: '7', name: 'echo', output: 'grüße 😀', isError: false })
  assert.equal(typeof durationMs, 'number')
})

test('an unknown tool', async () => {
  const result = await registryOf({}).execute({ id: '1', name: 'X', arguments: {} })
  assert.deepEqual(result, { id: '1', name: 'X', output: 'Tool not found: "X"', isError: true })
})

const THROWN = [
  ['an Error', new TypeError('no good'), 'no good'],
  ['a text', 'plain text', 'plain text'],
  ['undefined', undefined, 'undefined'],
  ['a number', 42, '42'],
  ['an object', { a: 1 }, '[object Object]'],
  ['something without a text', Object.create(null), 'something that has no text was thrown'],
]
for (const [what, thrown, message] of THROWN) {
  test(`a handler that throws ${what}`, async () => {
    for (const handler of [
      async () => {
        throw thrown
      },
      () => {
        throw thrown
      },
    ]) {
      const result = await registryOf({ X: handler }).execute(call('X'))
      assert.equal(result.output, `Tool "X" execution failed: ${message}`)
      assert.equal(result.isError, true)
      assert.equal(typeof result.durationMs, 'number')
    }
  })
}

for (const returned of [undefined, null, 5, { a: 1 }, ['x']]) {
  test(`a handler that returns ${inspect(returned)} instead of a string`, async () => {
    const result = await registryOf({ X: () => returned }).execute(call('X'))
    assert.match(result.output, /^Tool "X" execution failed: .*expected the handler to return a string, got /)
    assert.equal(result.isError, true)
  })
}

test('a handler need not be async', async () => {
  assert.equal((await registryOf({ X: () => 'now' }).execute(call('X'))).output, 'now')
})

const simple = { n: { type: 'number', description: 'n', required: true }, s: { type: 'string', description: 's' } }
const schema = { type: 'object', properties: { n: { type: 'number' }, s: { type: 'string' } }, required: ['n'] }
const zod = z.object({ n: z.number(), s: z.string().optional() })
for (const [form, parameters] of [
  ['by name', simple],
  ['in JSON Schema', schema],
  ['in Zod', zod],
]) {
  test(`bad arguments are refused before the handler runs: parameters ${form}`, async () => {
    const registry = createToolRegistry()
    let ran = 0
    registry.register(define('X', { parameters }), async ({ n }) => {
      ran += 1
      return String(n)
    })
    assert.equal((await registry.execute(call('X', { n: 5, s: 'x' }))).output, '5')
    const table = [
      [{}, /n/],
      [{ n: 'five' }, /n.*number.*(five|string)/],
      [{ n: 1, s: 2 }, /s.*string.*(2|number)/],
    ]
    for (const [args, said] of table) {
      const result = await registry.execute(call('X', args))
      assert.equal(result.isError, true)
      assert.match(result.output, /^Tool "X" execution failed: /)
      assert.match(result.output, said)
    }
    assert.equal(ran, 1)
    assert.match(registry.formatForSystemPrompt(), / {2}Parameters: n \(number, required\), s \(string\)/)
  })
}

test('a Standard Schema makes the value that the handler gets; one without JSON Schema works as well', async () => {
  const registry = createToolRegistry()
  registry.register(define('defaults', { parameters: z.object({ n: z.number().default(3) }) }), async ({ n }) =>
    String(n),
  )
  assert.equal((await registry.execute(call('defaults'))).output, '3')
  const own = {
    '~standard': {
      version: 1,
      vendor: 'test',
      validate: async (value) =>
        value.ok ? { value: { ok: 'made' } } : { issues: [{ message: 'is missing', path: ['ok'] }] },
    },
  }
  registry.register(define('own', { parameters: own }), async ({ ok }) => ok)
  assert.equal((await registry.execute(call('own', { ok: true }))).output, 'made')
  const refused = await registry.execute(call('own'))
  assert.equal(refused.output, 'Tool "own" execution failed: argument "ok": is missing')
})

test('what a Standard Schema refuses without a word, or in a form of its own, is refused all the same', async () => {
  const registry = createToolRegistry()
  const unsaid = 'the arguments do not fit its schema'
  const table = [
    [[], unsaid],
    [[{ message: '' }], unsaid],
    ['x', unsaid],
    [null, unsaid],
    [[null, { message: 'no', path: [null, { key: 'k' }, 0] }], 'argument "?.k.0": no'],
    [[{ path: ['a'] }], 'argument "a": does not fit'],
  ]
  for (const [issues, said] of table) {
    const parameters = { '~standard': { version: 1, vendor: 'own', validate: () => ({ issues }) } }
    registry.register(define('own', { parameters }), async () => 'ran')
    const { output } = await registry.execute(call('own', { a: 1 }))
    assert.equal(output, `Tool "own" execution failed: ${said}`)
  }
})

test('a refusal that repeats what was asked for is no longer than an output may be', async () => {
  const published = []
  const eventBus = createEventBus()
  eventBus.subscribe('tool.call.error', ({ error }) => published.push(error.message))
  const registry = createToolRegistry({ eventBus, maxOutputChars: 100 })
  registry.register(define('one', { parameters: { type: 'object', additionalProperties: false } }), echo)
  const long = 'x'.repeat(1_000_000)
  for (const asked of [call(long), call('one', { [long]: 1 })]) {
    const { output } = await registry.execute(asked)
    assert.ok(output.endsWith('chars total, showing first 100]'), output.slice(0, 200))
    const [batched] = await registry.batchExecute([asked])
    assert.equal(batched.output, output)
  }
  assert.deepEqual(
    published.map((message) => message.length < 300),
    [true, true, true, true],
  )
})

test('a result that a hook makes an error is one on the bus, of a call and of a batch', async () => {
  const eventBus = createEventBus()
  const hooks = createHookSystem()
  hooks.register('tool.execute.after', ({ result }) => ({ ...result, output: 'bad', isError: true }))
  const types = []
  eventBus.subscribeAll((type) => types.push(type))
  const registry = createToolRegistry({ eventBus, hooks })
  registry.register(define('one'), async () => 'well')
  await registry.execute(call('one'))
  const alone = types.splice(0)
  await registry.batchExecute([call('one')])
  assert.deepEqual(alone, ['tool.call.start', 'tool.call.error', 'tool.call.end'])
  assert.deepEqual(types, alone)
})

test("a lone surrogate in the name of an argument is that call's alone", async () => {
  const registry = createToolRegistry()
  registry.register(define('echo'), async (args) => JSON.stringify(args))
  const calls = [call('echo', { a: 1 }), call('echo', { '\ud800': '\\ud800 \udc00', '😀': '😀' })]
  const [first, second] = await registry.batchExecute(calls)
  assert.equal(first.output, '{"a":1}')
  assert.equal(second.output, '{"\ufffd":"\\\\ud800 \ufffd","😀":"😀"}')
})

test('schemas of other libraries: what is wrong is named, and the model is told what fits', async () => {
  const warnings = []
  const registry = createToolRegistry({ logger: { warn: (message) => warnings.push(message) } })
  const answer = async (args) => JSON.stringify(args)
  registry.register(define('ark', { parameters: type({ n: 'number', 'in?': { 'deep?': 'string[]' } }) }), answer)
  assert.deepEqual(warnings, [])
  const inner = v.object({ deep: v.optional(v.array(v.string())) })
  const parameters = v.object({ n: v.pipe(v.number(), v.minValue(1)), in: v.optional(inner) })
  registry.register(define('vali', { parameters }), answer)
  assert.match(warnings[0], /^tool "vali": its schema \(valibot\) does not say itself as JSON Schema/)
  const inZod = z.object({ n: z.number(), in: z.object({ deep: z.array(z.string()).optional() }).optional() })
  registry.register(define('zod', { parameters: inZod }), answer)
  for (const name of ['ark', 'vali', 'zod']) {
    const good = { n: 1, in: { deep: ['a'] } }
    assert.equal((await registry.execute(call(name, good))).output, JSON.stringify(good))
    for (const [args, field] of [
      [{}, 'n'],
      [{ n: 'x' }, 'n'],
      [{ n: 1, in: { deep: ['a', 5] } }, 'in'],
    ]) {
      const { output, isError } = await registry.execute(call(name, args))
      assert.ok(isError && output.startsWith(`Tool "${name}" execution failed: argument "${field}`), output)
    }
  }
  const told = Object.fromEntries(toMcpTools(registry).map((tool) => [tool.name, tool.inputSchema]))
  for (const name of ['ark', 'zod']) {
    assert.deepEqual([told[name].required, told[name].properties.n], [['n'], { type: 'number' }])
    assert.deepEqual(told[name].properties.in.properties.deep, { type: 'array', items: { type: 'string' } })
  }
  assert.deepEqual(told.vali, { type: 'object', properties: {} })
  registry.register(define('when', { parameters: z.object({ n: z.number(), when: z.date() }) }), answer)
  const { properties } = registry.getToolDefinition('when').parameters
  assert.deepEqual(properties, { n: { type: 'number' }, when: {} }, 'all that can be said')
  assert.throws(
    () => registry.register(define('n', { parameters: z.number() }), answer),
    /expected a schema of an object/,
  )
})

test('arguments that are no object, or no JSON', async () => {
  const registry = registryOf({ X: async (args) => JSON.stringify(args) })
  const circular = {}
  circular.self = circular
  for (const args of ['x', 5, [1], circular, { big: 1n }]) {
    const result = await registry.execute({ id: '1', name: 'X', arguments: args })
    assert.match(result.output, /^Tool "X" execution failed: .*arguments/)
    assert.equal(result.isError, true)
  }
  assert.equal((await registry.execute({ id: '1', name: 'X' })).output, '{}')
  const lone = await registry.execute(call('X', { text: `a\ud800b` }))
  assert.equal(lone.output, '{"text":"a\ufffdb"}')
})

test('a call whose id could not come back as it was is refused under it, and the others run', async () => {
  const bus = createEventBus()
  const events = recorded(bus)
  const registry = registryOf({ X: async () => 'ran' }, { eventBus: bus })
  const odd = { id: '\ud800x', name: 'X', arguments: {} }
  const alone = await registry.execute(odd)
  assert.deepEqual([alone.id, alone.isError], [odd.id, true])
  assert.match(
    alone.output,
    /^Tool "X" execution failed: id: expected text, got one that has half of a character in it$/,
  )
  assert.ok(events.length > 0 && events.every(([, payload]) => payload.callId === odd.id))
  const whole = { id: '\ud83d\ude00', name: 'X', arguments: {} }
  const results = await registry.batchExecute([odd, whole])
  assert.deepEqual(
    results.map(({ id, output }) => [id, output]),
    [
      [odd.id, alone.output],
      [whole.id, 'ran'],
    ],
  )
})

test('what is no call is a failed result, never a rejection', async () => {
  const bus = createEventBus()
  const events = recorded(bus)
  const registry = registryOf({ X: async () => 'ran' }, { eventBus: bus })
  const bad = [undefined, null, 'x', { id: '1' }, { id: '2', name: 5 }]
  const words = [/got nothing$/, /got null$/, /got string "x"$/, /name: expected a string, got nothing$/, /number 5$/]
  const batch = [...(await registry.batchExecute([...bad, call('X')]))]
  assert.equal(batch.pop().output, 'ran')
  const alone = []
  for (const each of bad) alone.push(await registry.execute(each))
  for (const results of [alone, batch]) {
    for (const [i, { id, name, output, isError }] of results.entries()) {
      assert.deepEqual([isError, name, typeof id], [true, '', 'string'])
      assert.match(output, /^Malformed tool call: /)
      assert.match(output, words[i])
    }
    assert.deepEqual([results[3].id, results[4].id], ['1', '2'])
  }
  const of = (wanted) => events.filter(([type]) => type === wanted).length
  assert.deepEqual([of('tool.call.start'), of('tool.call.end'), of('tool.call.error')], [11, 11, 10])
})

test('what throws when it is read fails alone, and what says how it is written is held to it', async () => {
  const gone = () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    return proxy
  }
  const throwing = (name) => Object.defineProperty({ ...call('X') }, name, { get: () => assert.fail('boo') })
  const registry = registryOf({ X: async (args) => JSON.stringify(args) })
  for (const [bad, want] of [
    [gone(), /^Malformed tool call: a call: it cannot be read: .*revoked/],
    [throwing('name'), /^Malformed tool call: a call: it cannot be read: boo$/],
    [throwing('arguments'), /^Malformed tool call: a call: it cannot be read: boo$/],
    [call('X', gone()), /cannot be read: .*revoked/],
    [call('X', { a: gone() }), /arguments are not JSON: .*revoked/],
    [call('X', new Date(0)), /^Tool "X" execution failed: arguments: expected an object, got string "1970-/],
    [call('X', { toJSON: () => [1] }), /arguments: expected an object, got an array$/],
    [call('X', { toJSON: () => ({ b: 2 }) }), /^{"b":2}$/],
  ]) {
    const [one, other] = await registry.batchExecute([bad, call('X', { a: 1 })])
    assert.match(one.output, want)
    assert.equal(other.output, '{"a":1}')
    assert.match((await registry.execute(bad)).output, want)
  }
})

test('numbers reach handlers, hooks and resolvers as the ones that were given', async () => {
  const hooks = createHookSystem()
  const seen = { hook: [], resolver: [] }
  hooks.register('tool.execute.before', ({ request }) => void seen.hook.push(request.arguments.a))
  const check = async (request) => {
    seen.resolver.push(request.arguments.a)
    return true
  }
  const registry = registryOf({ X: async ({ a }) => JSON.stringify(a) }, { hooks, permissionResolver: { check } })
  const bits = new DataView(new ArrayBuffer(8))
  const random = () => {
    bits.setUint32(0, Math.random() * 2 ** 32)
    bits.setUint32(4, Math.random() * 2 ** 32)
    return bits.getFloat64(0)
  }
  const numbers = [0.16776309410825085, 114716.49381494497, 123456789012345680000, 5e-324, Number.MAX_VALUE]
  for (let i = 0; i < 500; i++) numbers.push(random(), Math.random())
  const given = numbers.filter(Number.isFinite)
  const { output } = await registry.execute(call('X', { a: given }))
  assert.deepEqual(JSON.parse(output), given)
  assert.deepEqual([seen.hook, seen.resolver], [[given], [given]])
})

test('arguments nested without end are refused in one sentence, and nobody else is', async () => {
  const nested = (depth) => {
    let value = 0
    for (let i = 0; i < depth; i++) value = { a: value }
    return value
  }
  const depthOf = (value) => (typeof value === 'object' ? 1 + depthOf(value.a) : 0)
  const registry = registryOf({ X: async (args) => String(depthOf(args)) })
  const said = 'Tool "X" execution failed: arguments: nested more than 100 deep'
  for (const [depth, want] of [
    [100, '100'],
    [101, said],
    [5000, said],
  ]) {
    assert.equal((await registry.execute(call('X', nested(depth)))).output, want)
    const batch = await registry.batchExecute([call('X', nested(depth)), call('X', { a: 1 })])
    assert.deepEqual(
      batch.map((r) => r.output),
      [want, '1'],
    )
  }
})

test('an optional argument that is null is one that is left out; a schema that takes null gets it', async () => {
  const registry = createToolRegistry()
  const handler = async ({ b = 5 }) => String(b)
  const b = { type: 'number', description: '' }
  registry.register(define('simple', { parameters: { b } }), handler)
  registry.register(define('required', { parameters: { b: { ...b, required: true } } }), handler)
  registry.register(define('schema', { parameters: { type: 'object', properties: { b: {} } } }), handler)
  registry.register(define('zod', { parameters: z.object({ b: z.number().nullable() }) }), handler)
  for (const none of [null, Number.NaN, undefined]) {
    assert.equal((await registry.execute(call('simple', { b: none }))).output, '5')
  }
  assert.match((await registry.execute(call('required', { b: null }))).output, /expected a number, got null/)
  assert.equal((await registry.execute(call('schema', { b: null }))).output, 'null')
  assert.equal((await registry.execute(call('zod', { b: null }))).output, 'null')
})

test('a JSON Schema that calls cannot be held against is refused when it is registered', async () => {
  const registry = createToolRegistry()
  const of = (a) => define('t', { parameters: { type: 'object', properties: { a } } })
  for (const [a, path] of [
    [{ type: 'strin' }, 'parameters.properties.a.type'],
    [{ pattern: '(' }, 'parameters.properties.a.pattern'],
    [{ $ref: '#/$defs/none' }, 'parameters.properties.a.$ref'],
    [{ unevaluatedProperties: false }, 'parameters.properties.a.unevaluatedProperties'],
  ]) {
    assert.throws(
      () => registry.register(of(a), async () => ''),
      (error) => error.code === 'CONFIG_VALIDATION' && error.issues[0].path === path,
    )
  }
  assert.equal(registry.toolCount, 0)
  registry.register(of({ pattern: '^a+$', uniqueItems: true }), async ({ a }) => String(a))
  assert.equal((await registry.execute(call('t', { a: 'aa' }))).output, 'aa')
  const wrong = 'Tool "t" execution failed: argument "a": expected a text that matches /^a+$/, got the string "ab"'
  assert.equal((await registry.execute(call('t', { a: 'ab' }))).output, wrong)
  assert.match((await registry.execute(call('t', { a: [1, 1] }))).output, /expected an item that is not there yet/)
})

test('arguments are held against a Standard Schema itself: what it makes of them reaches the handler', async () => {
  const registry = createToolRegistry()
  for (const [schema, given, want] of [
    [z.coerce.number(), '7', 7],
    [z.preprocess(Number, z.number()), '8', 8],
    [z.number().catch(3), 'x', 3],
    [z.coerce.date(), '2026-01-02', new Date('2026-01-02')],
    [z.coerce.bigint(), '12345678901234567890', 12345678901234567890n],
    [z.custom((value) => value === 1), 1, 1],
    [z.string().transform((text) => text.length), 'abc', 3],
  ]) {
    let got
    registry.register(define('t', { parameters: z.object({ d: schema, s: z.string() }) }), async ({ d }) => {
      got = d
      return ''
    })
    const { output } = await registry.execute(call('t', { d: given, s: '' }))
    assert.deepEqual([output, got], ['', want])
    assert.match((await registry.execute(call('t', { d: given }))).output, /execution failed: argument "s": /)
    const { parameters } = registry.getToolDefinition('t')
    assert.equal(parameters.properties.s.type, 'string', 'the model is told all that can be said')
  }
  // One that throws away everything it knows when it is asked in other words is taken as any object.
  const silent = { input: () => assert.fail('no words for it') }
  const own = { '~standard': { version: 1, vendor: 'own', validate: (value) => ({ value }), jsonSchema: silent } }
  const warn = mock.method(console, 'warn', () => {})
  registry.register(define('own', { parameters: own }), async ({ a }) => String(a))
  warn.mock.restore()
  assert.match(String(warn.mock.calls[0].arguments[0]), /any object fits/)
  assert.equal((await registry.execute(call('own', { a: 1 }))).output, '1')
})

test('a bus that throws is reported, and every call runs and has its result', async () => {
  const error = mock.method(console, 'error', () => {})
  try {
    const publishers = [
      () => {
        throw new Error('bus boom')
      },
      () => Promise.reject(new Error('bus boom')),
    ]
    for (const publish of publishers) {
      const before = error.mock.callCount()
      const permissionResolver = createToolPermissionResolver({
        defaultPolicy: 'ask',
        rules: [],
        onPermissionRequest: async () => true,
      })
      const registry = registryOf({ X: async () => 'ran' }, { eventBus: { publish }, permissionResolver })
      assert.equal((await registry.execute(call('X'))).output, 'ran')
      const batch = await registry.batchExecute([call('X'), call('none'), call('X')])
      assert.deepEqual(
        batch.map((r) => r.output),
        ['ran', 'Tool not found: "none"', 'ran'],
      )
      await new Promise(setImmediate)
      // Start, question, answer and end of three calls; start, failure and end of the one that is not found.
      assert.equal(error.mock.callCount() - before, 3 * 4 + 3)
      assert.match(String(error.mock.calls.at(-1).arguments[0]), /event bus failed to publish "tool\.call\.end"/)
    }
  } finally {
    error.mock.restore()
  }
})

test('a listener that changes the arguments changes nobody else’s', async () => {
  const bus = createEventBus()
  bus.subscribe('tool.call.start', ({ args }) => {
    args.n = 2
    args.deep.n = 2
  })
  const registry = registryOf({ X: async (args) => JSON.stringify(args) }, { eventBus: bus })
  const request = call('X', { n: 1, deep: { n: 1 } })
  for (const run of [() => registry.execute(request), async () => (await registry.batchExecute([request]))[0]]) {
    assert.equal((await run()).output, '{"n":1,"deep":{"n":1}}')
    assert.deepEqual(request.arguments, { n: 1, deep: { n: 1 } })
  }
})

test('too long an output is cut and says so; 0 means no limit', async () => {
  const long = async () => 'x'.repeat(60_000)
  const cut = (n, m) => `${'x'.repeat(m)}\n\n[OUTPUT TRUNCATED — ${n} chars total, showing first ${m}]`
  assert.equal((await registryOf({ long }).execute(call('long'))).output, cut(60_000, 50_000))
  assert.equal((await registryOf({ long }, { maxOutputChars: 10 }).execute(call('long'))).output, cut(60_000, 10))
  assert.equal((await registryOf({ long }, { maxOutputChars: 0 }).execute(call('long'))).output.length, 60_000)
  const own = registryOf({ long }, { maxOutputChars: 10 }, { maxOutputChars: 20 })
  assert.equal((await own.execute(call('long'))).output, cut(60_000, 20))
})

test('a tool that takes too long', async () => {
  const bus = createEventBus()
  const events = []
  bus.subscribe('tool.timeout', (payload) => events.push(payload))
  let signal
  const slow = (_args, context) => {
    signal = context.signal
    return new Promise(() => {})
  }
  const registry = registryOf({ slow }, { eventBus: bus, defaultToolTimeoutMs: 30 })
  const result = await registry.execute(call('slow'))
  assert.equal(result.output, 'Tool "slow" execution failed: Operation "tool:slow" timed out after 30ms')
  assert.equal(result.isError, true)
  assert.deepEqual(events, [{ name: 'slow', timeoutMs: 30 }])
  assert.equal(signal.aborted, true, 'the handler is told')
  const own = registryOf({ slow }, { defaultToolTimeoutMs: 60_000 }, { timeoutMs: 20 })
  assert.match((await own.execute(call('slow'))).output, /timed out after 20ms/)
})

// ── abort ───────────────────────────────────────────────────────────────────────────────────────

test('an AbortSignal stops a call and reaches its handler', async () => {
  const started = deferred()
  const stopped = deferred()
  const wait = (_args, { signal }) =>
    new Promise((_, reject) => {
      signal.addEventListener('abort', () => {
        stopped.resolve()
        reject(new Error('stopped'))
      })
      started.resolve()
    })
  const registry = registryOf({ wait })
  const controller = new AbortController()
  const running = registry.execute(call('wait'), { signal: controller.signal })
  await started.promise
  controller.abort()
  const result = await running
  assert.equal(result.isError, true)
  assert.match(result.output, /^Tool "wait" execution failed: /)
  await stopped.promise
  const late = await registry.execute(call('wait'), { signal: controller.signal })
  assert.equal(late.isError, true, 'a signal that fired before')
  const batch = await registry.batchExecute([call('wait'), call('wait')], { signal: controller.signal })
  assert.ok(batch.every((r) => r.isError))
  await assert.rejects(registry.execute(call('wait'), { signal: 'now' }), { code: 'CONFIG_VALIDATION' })
})

test('a signal that only the call holds fires, whatever is collected meanwhile', async () => {
  const registry = registryOf({ never: () => new Promise(() => {}) })
  const run = () => registry.execute(call('never'), { signal: AbortSignal.any([AbortSignal.timeout(100)]) })
  const running = run()
  const plainly = registry.execute(call('never'), { signal: AbortSignal.timeout(100) })
  await collected()
  for (const each of [running, plainly]) assert.equal((await each).output, 'Tool "never" execution failed: aborted')
})

test('many calls on one signal have one listener', async () => {
  const registry = registryOf({ echo: () => 'x' })
  const { signal } = new AbortController()
  const listen = mock.method(signal, 'addEventListener')
  await Promise.all(Array.from({ length: 50 }, () => registry.execute(call('echo'), { signal })))
  assert.equal(listen.mock.callCount(), 1)
})

test('a handler that never settles does not stay behind when its call is aborted', async () => {
  const started = deferred()
  const registry = registryOf({
    never() {
      started.resolve()
      return new Promise(() => {})
    },
  })
  const controller = new AbortController()
  const running = registry.execute(call('never'), { signal: controller.signal })
  await started.promise
  controller.abort()
  assert.equal((await running).isError, true)
  assert.equal(waitingCalls(), 0)
})

// ── batches ─────────────────────────────────────────────────────────────────────────────────────

test('a batch: one result for each call, in order, errors isolated, frozen', async () => {
  const registry = registryOf({
    late: async () => {
      await new Promise(setImmediate)
      return 'late'
    },
    soon: async () => 'soon',
    bad: async () => {
      throw new Error('bad')
    },
  })
  const calls = [call('late'), call('bad'), call('none'), { id: 'x', name: 'soon', arguments: 5 }, call('soon')]
  const results = await registry.batchExecute(calls)
  assert.deepEqual(
    results.map((r) => [r.id, r.isError]),
    calls.map((c, i) => [c.id, [false, true, true, true, false][i]]),
  )
  assert.equal(results[0].output, 'late')
  assert.equal(results[4].output, 'soon')
  assert.ok(Object.isFrozen(results) && results.every(Object.isFrozen))
  const none = await registry.batchExecute([])
  assert.deepEqual(none, [])
  assert.ok(Object.isFrozen(none))
})

test('a batch never runs more than maxConcurrency at once, and as many as that', async () => {
  for (const [options, most] of [
    [undefined, 8],
    [{ maxConcurrency: 3 }, 3],
    [{ maxConcurrency: 1 }, 1],
    [{ maxConcurrency: 1000 }, 20],
  ]) {
    let now = 0
    let peak = 0
    let left = 20
    const waiting = []
    // All go on a moment after as many as may run are there, and at the end with whoever is left.
    const goOn = () => {
      for (const go of waiting.splice(0)) go()
    }
    const registry = registryOf({
      async count() {
        now += 1
        peak = Math.max(peak, now)
        left -= 1
        const waits = new Promise((resolve) => waiting.push(resolve))
        if (waiting.length === most || left === 0) setTimeout(goOn, 20)
        await waits
        now -= 1
        return 'x'
      },
    })
    const results = await registry.batchExecute(
      Array.from({ length: 20 }, () => call('count')),
      options,
    )
    assert.equal(results.length, 20)
    assert.equal(peak, most)
  }
})

test('a maxConcurrency that makes no sense is a RangeError', async () => {
  const registry = registryOf({ echo })
  for (const maxConcurrency of [0, -1, 1.5, Number.NaN, '8', null, Number.POSITIVE_INFINITY]) {
    await assert.rejects(registry.batchExecute([call('echo')], { maxConcurrency }), RangeError)
  }
  await assert.rejects(registry.batchExecute('x'), { code: 'CONFIG_VALIDATION' })
})

// ── events ──────────────────────────────────────────────────────────────────────────────────────

function recorded(bus) {
  const events = []
  bus.subscribeAll((type, payload) => events.push([type, payload]))
  return events
}

test('events of one call', async () => {
  const bus = createEventBus()
  const events = recorded(bus)
  const registry = registryOf({ echo, bad: async () => Promise.reject(new Error('why')) }, { eventBus: bus })
  await registry.execute({ id: '1', name: 'echo', arguments: { text: 'x' } })
  await registry.execute({ id: '2', name: 'bad', arguments: {} })
  await registry.execute({ id: '3', name: 'none', arguments: {} })
  assert.deepEqual(
    events.map(([type, p]) => [type, p.callId]),
    [
      ['tool.call.start', '1'],
      ['tool.call.end', '1'],
      ['tool.call.start', '2'],
      ['tool.call.error', '2'],
      ['tool.call.end', '2'],
      ['tool.call.start', '3'],
      ['tool.call.error', '3'],
      ['tool.call.end', '3'],
    ],
  )
  assert.deepEqual(events[0][1], { callId: '1', name: 'echo', args: { text: 'x' } })
  const { durationMs, ...end } = events[1][1]
  assert.deepEqual(end, { callId: '1', name: 'echo', output: 'x', isError: false })
  assert.equal(typeof durationMs, 'number')
  assert.ok(events[3][1].error instanceof Error)
  assert.equal(events[3][1].error.code, 'TOOL_EXECUTION_ERROR')
  assert.match(events[3][1].error.message, /why/)
  assert.equal(events[6][1].error.code, 'TOOL_NOT_FOUND')
})

test('events of a batch come while it runs, all before its results', async () => {
  const bus = createEventBus()
  const events = recorded(bus)
  const gate = deferred()
  const firstEnded = deferred()
  bus.subscribe('tool.call.end', firstEnded.resolve)
  const registry = registryOf({ soon: async () => 'x', late: () => gate.promise }, { eventBus: bus })
  const calls = [call('soon'), call('late'), call('none')]
  const running = registry.batchExecute(calls)
  await firstEnded.promise
  gate.resolve('y')
  await running
  const of = (wanted) => events.filter(([type]) => type === wanted).map(([, p]) => p.callId)
  const ids = calls.map((c) => c.id).sort()
  assert.deepEqual(of('tool.call.start').sort(), ids)
  assert.deepEqual(of('tool.call.end').sort(), ids)
  assert.deepEqual(of('tool.call.error'), [calls[2].id])
  const error = events.find(([type]) => type === 'tool.call.error')[1].error
  assert.ok(error instanceof Error && error.code === 'TOOL_NOT_FOUND')
  assert.ok(of('tool.call.end').indexOf(calls[0].id) < of('tool.call.end').indexOf(calls[1].id))
})

// ── figures ─────────────────────────────────────────────────────────────────────────────────────

test('figures count calls that reached the tool', async () => {
  const registry = registryOf({ echo, bad: async () => Promise.reject(new Error('x')) })
  assert.equal(registry.getToolMetrics('echo'), undefined)
  assert.deepEqual(registry.getAllToolMetrics(), [])
  await registry.execute(call('echo', { text: 'x' }))
  await registry.execute(call('echo', { text: 'x' }))
  await registry.execute(call('bad'))
  await registry.execute(call('none'))
  const metrics = registry.getToolMetrics('echo')
  assert.equal(metrics.callCount, 2)
  assert.equal(metrics.errorCount, 0)
  assert.ok(Math.abs(metrics.avgDurationMs - metrics.totalDurationMs / 2) < 1e-9)
  assert.ok(Math.abs(Date.now() - metrics.lastCalledAt) < 60_000)
  assert.equal(registry.getToolMetrics('bad').errorCount, 1)
  assert.deepEqual(
    registry.getAllToolMetrics().map((m) => m.name),
    ['echo', 'bad'],
  )
  registry.clearMetrics()
  assert.equal(registry.getToolMetrics('echo'), undefined)
})

// ── MCP ─────────────────────────────────────────────────────────────────────────────────────────

test('discover() brings the tools of MCP servers, again and again, and leaves the others', async () => {
  const warnings = []
  let tools = [{ name: 'add', description: 'Adds.', inputSchema: schema }]
  const mcpClient = {
    connectedServerNames: ['math', 'broken'],
    async listTools(server) {
      if (server === 'broken') throw new Error('no answer')
      return tools
    },
    async callTool(server, tool, args) {
      if (args.n < 0) return { isError: true, content: [{ type: 'text', text: 'negative' }] }
      return { content: [{ type: 'text', text: `${server} ${tool} ${args.n}` }] }
    },
  }
  const registry = registryOf({ mine: () => 'x' }, { mcpClient, logger: { warn: (m) => warnings.push(m) } })
  await registry.discover()
  assert.deepEqual(registry.toolNames, ['mine', 'mcp:math/add'])
  assert.equal(registry.getToolDefinition('mcp:math/add').category, 'other')
  assert.equal(warnings.length, 1)
  assert.match(warnings[0], /broken.*no answer/)
  assert.equal((await registry.execute(call('mcp:math/add', { n: 1 }))).output, 'math add 1')
  const failed = await registry.execute(call('mcp:math/add', { n: -1 }))
  assert.equal(failed.output, 'Tool "mcp:math/add" execution failed: negative')
  assert.match((await registry.execute(call('mcp:math/add', {}))).output, /n/)
  tools = [{ name: 'sub', inputSchema: schema }]
  await Promise.all([registry.discover(), registry.discover()])
  assert.deepEqual(registry.toolNames, ['mine', 'mcp:math/sub'])
  await registryOf({ mine: () => 'x' }).discover()
})

test('a server that does not list is skipped, and keeps the tools that it had', async () => {
  const warnings = []
  const logger = { warn: (message) => warnings.push(message) }
  const lists = { a: [{ name: 'x' }], b: [{ name: 'y' }] }
  const listTools = async (server) => {
    const wanted = server ? [server] : Object.keys(lists)
    return wanted.flatMap((name) => {
      if (lists[name] === undefined) throw new Error(`${name} is down`)
      return lists[name].map((tool) => ({ ...tool, serverName: name }))
    })
  }
  const callTool = async (server, tool) => `${server} ${tool}`
  for (const connectedServerNames of [['a', 'b'], undefined]) {
    warnings.length = 0
    Object.assign(lists, { a: [{ name: 'x' }], b: [{ name: 'y' }] })
    const mcpClient = { connectedServerNames, listTools, callTool }
    const registry = registryOf({ mine: () => 'x' }, { mcpClient, logger })
    await registry.discover()
    assert.deepEqual(registry.toolNames, ['mine', 'mcp:a/x', 'mcp:b/y'])
    Object.assign(lists, { a: [{ name: 'x2' }], b: undefined })
    await registry.discover()
    assert.equal(warnings.length, 1)
    assert.match(warnings[0], /b is down/)
    const names = connectedServerNames ? ['mcp:a/x2', 'mcp:b/y'] : ['mcp:a/x', 'mcp:b/y']
    assert.deepEqual(registry.toolNames.toSorted(), [...names, 'mine'])
    assert.equal((await registry.execute(call('mcp:b/y'))).output, 'b y')
    Object.assign(lists, { a: [], b: [] })
    await registry.discover()
    assert.deepEqual(registry.toolNames, ['mine'])
  }
})

test('a tool that is registered again, or taken out, takes no call with it', async () => {
  const asked = []
  const resolver = { check: () => new Promise((answer) => asked.push(answer)) }
  const registry = createToolRegistry({ permissionResolver: resolver })
  const running = deferred()
  let began
  const hasBegun = new Promise((done) => (began = done))
  registry.register(define('a'), async () => {
    began()
    return running.promise
  })
  // One runs, one waits for its permission, one waits for its turn behind them.
  const batch = registry.batchExecute([call('a'), call('a'), call('a')], { maxConcurrency: 2 })
  while (asked.length < 2) await new Promise(setImmediate)
  asked[0](true)
  await hasBegun
  registry.register(define('a', { description: 'second' }), async () => 'second')
  registry.register(define('a', { description: 'third' }), async () => 'third')
  asked[1](true)
  running.resolve('first')
  while (asked.length < 3) await new Promise(setImmediate)
  asked[2](true)
  const outputs = (await batch).map(({ output, isError }) => ({ output, isError }))
  assert.deepEqual(outputs, [
    { output: 'first', isError: false },
    { output: 'first', isError: false },
    { output: 'third', isError: false },
  ])
  // Taken out while a call waits for its permission: that call still runs, and a later one finds nothing.
  const waiting = registry.execute(call('a'))
  while (asked.length < 4) await new Promise(setImmediate)
  assert.equal(registry.unregister('a'), true)
  asked[3](true)
  assert.equal((await waiting).output, 'third')
  assert.match((await registry.execute(call('a'))).output, /Tool not found/)
})

test('a handler that was replaced is let go when its last call has ended', async () => {
  const registry = createToolRegistry()
  const blocked = deferred()
  let began
  const hasBegun = new Promise((done) => (began = done))
  const old = (() => {
    const handler = async () => {
      began()
      return blocked.promise
    }
    registry.register(define('a'), handler)
    return new WeakRef(handler)
  })()
  const running = registry.execute(call('a'))
  await hasBegun
  registry.register(define('a'), async () => 'new')
  await collected()
  assert.ok(old.deref(), 'a call runs in it')
  blocked.resolve('old')
  assert.equal((await running).output, 'old')
  // Rust lets go of it on a thread of its own.
  for (const until = Date.now() + 60_000; old.deref() && Date.now() < until; ) await collected()
  assert.equal(old.deref(), undefined)
})

async function collected() {
  await new Promise(setImmediate)
  globalThis.gc()
}

const PNG = { type: 'image', mediaType: 'image/png', data: 'iVBORw0KGgo=' }

test('a handler may give images and details beside its text', async () => {
  const registry = registryOf({ show: async ({ answer }) => JSON.parse(answer) })
  const show = (answer) => registry.execute(call('show', { answer: JSON.stringify(answer) }))
  const given = { output: 'a dot', parts: [PNG, { type: 'text', text: 'and a word' }], details: { size: 8 } }
  const { output, parts, details, isError } = await show(given)
  assert.deepEqual([output, parts, details, isError], ['a dot\nand a word', [PNG], { size: 8 }, false])
  // A text that looks like the inner form is a text all the same.
  const text = '\u0001simse:{"output":"no"}'
  assert.equal((await show(text)).output, text)
  for (const [answer, words] of [
    [{ output: 5 }, /expected the handler to return a string, got an object/],
    [
      { output: '', parts: [{ type: 'image', mediaType: 'image/tiff', data: 'AAAA' }] },
      /parts\.0\.mediaType: expected one of/,
    ],
    [{ output: '', parts: [{ ...PNG, data: 'data:image/png;base64,AAAA' }] }, /parts\.0\.data: expected base64/],
    [{ output: '', parts: [{ type: 'video' }] }, /parts\.0: expected \{type: 'text', text\} or/],
    [{ output: '', part: [] }, /part: unknown field/],
  ]) {
    const failed = await show(answer)
    assert.equal(failed.isError, true)
    assert.match(failed.output, words)
  }
})

test('writers are barriers in a batch', async () => {
  const seen = []
  const gates = { read: deferred(), write: deferred() }
  const registry = createToolRegistry()
  const note = (name, more) =>
    registry.register(define(name, more), async (_args, { callId }) => {
      seen.push(`+${callId}`)
      if (seen.length === 2) gates.read.resolve()
      if (name === 'read') await gates.read.promise
      seen.push(`-${callId}`)
      return ''
    })
  note('read', { annotations: { readOnly: true } })
  note('write', { category: 'edit' })
  // What says both is taken for what is worse.
  note('x', { annotations: { readOnly: true, destructive: true } })
  const calls = ['read', 'read', 'write', 'read', 'x'].map((name, i) => ({
    id: `${name[0]}${i}`,
    name,
    arguments: {},
  }))
  const results = await registry.batchExecute(calls)
  assert.deepEqual(
    results.map(({ id }) => id),
    calls.map(({ id }) => id),
  )
  // Both readers had begun before either ended.
  assert.deepEqual(seen.slice(0, 2), ['+r0', '+r1'])
  assert.deepEqual(seen.slice(4), ['+w2', '-w2', '+r3', '-r3', '+x4', '-x4'])
})

test('the host tools answer to the names that models give them and their arguments, and refuse what they do not know', async (t) => {
  const { mkdtemp, rm, writeFile } = await import('node:fs/promises')
  const { tmpdir } = await import('node:os')
  const { join } = await import('node:path')
  const workingDirectory = await mkdtemp(join(tmpdir(), 'simse-names-'))
  t.after(() => rm(workingDirectory, { recursive: true, force: true }))
  await writeFile(join(workingDirectory, 'a.txt'), 'one\ntwo\n')
  const permissionResolver = createToolPermissionResolver({
    defaultPolicy: 'allow',
    rules: [{ tool: 'bash', pattern: 'rm *', policy: 'deny' }],
  })
  const registry = createToolRegistry({ permissionResolver })
  registerFilesystemTools(registry, { workingDirectory })
  registerBashTool(registry, { workingDirectory })
  for (const [name, args, want] of [
    ['Read', { file: 'a.txt' }, '     1\tone\n     2\ttwo'],
    ['Read', { filepath: 'a.txt', limit: 1 }, /^ {5}1\tone\n/],
    ['Grep', { query: 'TWO', '-i': true }, 'a.txt:2: two'],
    ['Glob', { glob: '*.txt' }, 'a.txt'],
    ['LS', { dir: '.' }, 'f a.txt'],
    ['Edit', { file: 'a.txt', old: 'one', new: '1' }, 'Edited a.txt using strategy: exact'],
    ['Write', { filepath: 'b.txt', content: 'x' }, 'Wrote 1 bytes to b.txt'],
    ['Bash', { cmd: 'echo hi' }, 'hi\n'],
    ['Bash', { cmd: 'rm b.txt' }, 'Permission denied for tool: "bash"'],
    ['fs_move', { from: 'b.txt', to: 'c.txt' }, 'Moved b.txt → c.txt'],
    [
      'fs_read',
      { path: 'a.txt', lines: 3 },
      'Tool "fs_read" execution failed: argument "lines" is unknown: expected only path, offset, pages, raw, limit',
    ],
  ]) {
    const { output } = await registry.execute(call(name, args))
    if (typeof want === 'string') assert.equal(output, want, name)
    else assert.match(output, want)
  }
  // A tool of that very name comes first.
  registry.register(define('Read'), async () => 'mine')
  assert.equal((await registry.execute(call('Read', { file: 'a.txt' }))).output, 'mine')
})

test('what a server lists badly is skipped and told, or taken as far as it goes', async () => {
  const warnings = []
  const logger = { warn: (message) => warnings.push(message) }
  const callTool = async (_, tool, args) => `${tool} ${JSON.stringify(args)}`
  const registryWith = (listed, more = { connectedServerNames: ['a'] }) =>
    createToolRegistry({ mcpClient: { listTools: async () => listed, callTool, ...more }, logger })

  const nameless = registryWith([{ description: 'x' }, { name: '' }, { name: 5 }, null, { name: 'ok' }])
  await nameless.discover()
  assert.deepEqual(nameless.toolNames, ['mcp:a/ok'])
  assert.deepEqual(warnings, [
    'tool (nothing) of MCP server "a" is skipped: expected a tool with a name, got nothing',
    'tool "" of MCP server "a" is skipped: expected a tool with a name, got string ""',
    'tool (number 5) of MCP server "a" is skipped: expected a tool with a name, got number 5',
    'tool (nothing) of MCP server "a" is skipped: expected a tool with a name, got null',
  ])

  warnings.length = 0
  const homeless = registryWith([{ name: 'q' }, { name: 'r', serverName: '' }, { name: 's', server: 'b' }], {})
  await homeless.discover()
  assert.deepEqual(homeless.toolNames, ['mcp:b/s'])
  assert.equal(warnings.length, 2)
  assert.match(
    warnings[0],
    /^tool "q" of MCP server \(nothing\) is skipped: expected the name of its server, got nothing$/,
  )

  // Nested deeper than Rust reads.
  let deep = {}
  for (let i = 0; i < 300; i++) deep = { type: 'array', items: deep }
  warnings.length = 0
  const tools = [
    { name: 'typeless', inputSchema: { properties: { a: { type: 'string' } }, required: ['a'] } },
    { name: 'banana', inputSchema: { type: 'banana', properties: { a: { type: 'string' } }, required: ['a'] } },
    { name: 'empty', inputSchema: {} },
    { name: 'simple', parameters: { a: { type: 'string', description: '', required: true } } },
    { name: 'deep', inputSchema: { type: 'object', properties: { deep } } },
  ]
  const registry = registryWith(tools)
  await registry.discover()
  assert.deepEqual(
    registry.toolNames,
    ['typeless', 'banana', 'empty', 'simple'].map((name) => `mcp:a/${name}`),
  )
  for (const name of ['typeless', 'banana', 'simple']) {
    const refused = await registry.execute(call(`mcp:a/${name}`, {}))
    assert.match(refused.output, /argument "a" is missing/, name)
    assert.equal((await registry.execute(call(`mcp:a/${name}`, { a: 'x' }))).output, `${name} {"a":"x"}`)
  }
  assert.equal((await registry.execute(call('mcp:a/empty', { b: 1 }))).output, 'empty {"b":1}')
  assert.equal(warnings.length, 1)
  assert.match(warnings[0], /^tool "deep" of MCP server "a" is skipped: definition: .*recursion limit/)
  // Nor does it stand in what `register` throws.
  const definition = define('deep', { parameters: { type: 'object', properties: { deep } } })
  assert.throws(() => registry.register(definition, async () => ''), { code: 'CONFIG_VALIDATION' })
})
