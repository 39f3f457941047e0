/** Models that are generators of this program: a real server, a real client of its streams. */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createSimseServer } from '../js/index.js'
import { waitingCalls } from './support/addon.mjs'
import { events, http, turn } from './support/http.mjs'
import { deferred, registryOf } from './support/registry.mjs'
import { entry, runModule } from './support/run.mjs'

const require = createRequire(import.meta.url)
const { bridge } = require('../js/bridge.cjs')
const { failureOf } = require('../js/model-failure.cjs')
const { runModel } = require('../js/models.cjs')

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-models-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const open = new Set()

after(async () => {
  for (const each of open) await each.stop()
  rmSync(room, { recursive: true, force: true })
})

let rooms = 0
function directory() {
  const path = join(room, `work${++rooms}`)
  mkdirSync(path)
  return path
}

const config = (models, more = {}) => ({
  port: 0,
  workingDirectory: directory(),
  models,
  ...more,
  limits: { shutdownGraceMs: 0, ...more.limits },
})

async function started(models, more) {
  const server = createSimseServer(config(models, more))
  open.add(server)
  await server.start()
  return server
}

/** A model of one function; `requests` are what it was asked. */
function model(name, stream, more = {}) {
  const requests = []
  return {
    name,
    requests,
    entry: {
      name,
      stream(request, signal) {
        requests.push(request)
        return stream(request, signal)
      },
      ...more,
    },
  }
}

const payloads = ({ events: all }, type) => all.filter((event) => event.type === type).map((event) => event.payload)
const deltas = (ended) => payloads(ended, 'stream.delta').map(({ text }) => text)

/** Waits until something holds. */
async function until(holds) {
  const end = Date.now() + 60_000
  while (!(await holds())) {
    assert.ok(Date.now() < end, `it never came to hold: ${holds}`)
    await new Promise((soon) => setTimeout(soon, 5))
  }
}

// ── A turn ──────────────────────────────────────────────────────────────────────────────────────

test('a generator answers a session: text, reasoning, a tool call, its result, tokens', async () => {
  const script = model('mine', async function* (request) {
    if (request.messages.length === 1) {
      yield { type: 'reasoning', text: 'hm' }
      yield 'let me '
      yield { type: 'delta', text: 'see' }
      yield { type: 'tool_call', toolCall: { id: 'c1', name: 'mcp__far__look', arguments: { at: 'ü' } } }
      yield { type: 'usage', usage: { inputTokens: 3, outputTokens: 4 } }
      return
    }
    yield 'it says: '
    yield request.messages.at(-1).content
    yield { type: 'complete', finishReason: 'end_turn', usage: { inputTokens: 10, outputTokens: 1, totalTokens: 12 } }
    yield 'nobody reads this'
  })
  const toolRegistry = registryOf(
    { 'mcp:far/look': async ({ at }) => `seen ${at}` },
    {},
    {
      parameters: { at: { type: 'string', description: 'where', required: true } },
    },
  )
  const toolPermissions = { defaultPolicy: 'allow', rules: [] }
  const server = await started([script.entry], { toolRegistry, toolPermissions })
  const { body } = await http(server, 'GET', '/models')
  assert.deepEqual(
    body.models.find(({ id }) => id === 'js/mine'),
    { id: 'js/mine', available: true, default: true, ...pick(body.models, 'js/mine') },
  )
  const ended = await turn(server, 'look', { session: { instructions: 'Be brief.', reasoning: 'low' } })
  assert.equal(ended.last.type, 'session.completed')
  assert.equal(ended.last.payload.result, 'it says: seen ü')
  assert.deepEqual(deltas(ended), ['let me ', 'see', 'it says: ', 'seen ü'])
  assert.deepEqual(
    payloads(ended, 'stream.reasoning').map(({ text }) => text),
    ['hm'],
  )
  assert.equal(payloads(ended, 'tool.call.start')[0].name, 'mcp:far/look')
  assert.deepEqual(
    payloads(ended, 'turn.complete').map(({ usage }) => [usage.inputTokens, usage.outputTokens, usage.totalTokens]),
    [
      [3, 4, 7],
      [10, 1, 12],
    ],
  )

  const [first, second] = script.requests
  assert.ok(Object.isFrozen(first))
  assert.equal(first.model, 'js/mine')
  assert.equal(first.reasoning, 'low')
  assert.ok(first.system.includes('Be brief.'))
  assert.deepEqual(first.messages, [{ role: 'user', content: 'look' }])
  assert.deepEqual(
    first.tools.map(({ name, parameters }) => [name, parameters.type, parameters.required]),
    [['mcp__far__look', 'object', ['at']]],
  )
  assert.deepEqual(second.messages.slice(1), [
    {
      role: 'assistant',
      content: 'let me see',
      toolCalls: [{ id: 'c1', name: 'mcp__far__look', arguments: { at: 'ü' } }],
    },
    { role: 'tool_result', content: 'seen ü', toolCallId: 'c1', toolName: 'mcp__far__look', isError: false },
  ])
})

/** What another version of the list may tell beside what is looked at. */
function pick(models, id) {
  const { available: _, default: __, ...rest } = models.find((each) => each.id === id)
  return rest
}

test('what is known of a model is told, and what its tokens cost', async () => {
  const facts = { label: 'Mine', contextTokens: 1000, outputTokens: 100, images: false, reasoning: false }
  const prices = { input: 2, output: 10, cacheRead: 1 }
  const stream = async function* () {
    yield 'a'
    const usage = { inputTokens: 1_000_000, outputTokens: 100_000, cachedInputTokens: 500_000, reasoningTokens: 7 }
    yield { type: 'complete', finishReason: 'end_turn', usage }
  }
  const server = await started([{ name: 'mine', stream, ...facts, prices }])
  const listed = (await http(server, 'GET', '/models')).body.models.find(({ id }) => id === 'js/mine')
  for (const [fact, value] of Object.entries(facts)) assert.equal(listed[fact], value, fact)
  assert.deepEqual([listed.prices.input, listed.prices.cacheRead], [2, 1])
  const [{ usage }] = payloads(await turn(server, 'go'), 'turn.complete')
  assert.deepEqual([usage.cachedInputTokens, usage.reasoningTokens, usage.costUsd], [500_000, 7, 2.5])
})

test('whatever can be iterated is an answer, and several models are told apart', async () => {
  const kinds = {
    'my/promise': async () => ['a', 'b'],
    'my/list': () => new Set(['a', 'b']),
    'my/stream': () => ReadableStream.from(['a', 'b']),
    'my/iterator': () => {
      const left = ['a', 'b']
      return {
        [Symbol.asyncIterator]: () => ({
          next: async () => (left.length > 0 ? { value: left.shift() } : { done: true }),
        }),
      }
    },
  }
  class Own {
    name = 'own'
    pieces = ['a', 'b']
    async *stream() {
      yield* this.pieces
    }
  }
  const models = [...Object.entries(kinds).map(([name, stream]) => ({ name, stream })), new Own()]
  const server = await started(models, { model: 'js/own' })
  for (const id of [...Object.keys(kinds), 'js/own', undefined]) {
    const ended = await turn(server, 'go', { session: id ? { model: id } : {} })
    assert.deepEqual(deltas(ended), ['a', 'b'], id)
  }
})

test('calls come in pieces, and the model is told of arguments that cannot be read', async () => {
  const script = model('pieces', async function* ({ messages }) {
    if (messages.length > 1)
      return yield messages
        .filter(({ role }) => role === 'tool_result')
        .map(({ content }) => content)
        .join('|')
    const piece = (more) => ({ type: 'tool_call_delta', ...more })
    yield piece({ index: 0, id: 'a', name: 'echo', arguments: '{"te' })
    yield piece({ index: 1, id: 'b', name: 'echo', arguments: '{"text": ' })
    yield piece({ index: 0, arguments: 'xt": "one"}' })
    yield { type: 'tool_call', toolCall: { name: 'echo', arguments: '{"text": "three"}' } }
    yield { type: 'complete', finishReason: 'length' }
  })
  const ran = []
  const toolRegistry = registryOf({
    echo: async ({ text }) => {
      ran.push(text)
      return text
    },
  })
  const toolPermissions = { defaultPolicy: 'allow', rules: [] }
  const server = await started([script.entry], { toolRegistry, toolPermissions })
  const { last } = await turn(server, 'go')
  assert.deepEqual(ran.sort(), ['one', 'three'])
  const [one, broken, three] = last.payload.result.split('|')
  assert.deepEqual([one, three], ['one', 'three'])
  assert.match(broken, /limit of tokens inside the arguments, after 9 bytes/)
})

test('a character that is cut in two is put together again', async () => {
  const halves = model('halves', async function* () {
    yield 'a\ud83d'
    await new Promise((soon) => setTimeout(soon, 20))
    yield { type: 'reasoning', text: 'r\ud83d' }
    yield '\ude00b'
    yield { type: 'reasoning', text: '\ude00' }
    yield 'c\ud83d'
  })
  const ended = await turn(await started([halves.entry]), 'go')
  assert.equal(ended.last.payload.result, 'a😀bc\ufffd')
  const thoughts = payloads(ended, 'stream.reasoning').map(({ text }) => text)
  assert.equal(thoughts.join(''), 'r😀')
})

test('what a model wants back in its own words it gets back, and no other does', async () => {
  const own = model('own', async function* ({ messages }) {
    yield 'said'
    if (messages.length === 1) {
      yield { type: 'original', items: ['void'] }
      yield { type: 'original', items: [{ type: 'thought', signature: 's', deep: [1, null, { a: true }] }, 'raw'] }
    }
  })
  const other = model('other', async function* () {
    yield 'other'
  })
  const server = await started([own.entry, other.entry])
  const first = await turn(server, 'one')
  const path = `/sessions/${first.sessionId}/prompt?wait=true`
  await http(server, 'POST', path, { prompt: 'two', turn: { model: 'js/other' } })
  await http(server, 'POST', path, { prompt: 'three' })
  const items = [{ type: 'thought', signature: 's', deep: [1, null, { a: true }] }, 'raw']
  assert.deepEqual(own.requests[1].messages[1], { role: 'assistant', content: 'said', original: items })
  assert.equal(own.requests[1].messages[3].original, undefined, 'it is the reply of another one')
  assert.deepEqual(other.requests[0].messages[1], { role: 'assistant', content: 'said' })
})

test('an answer that is data: told in words, held to by itself, or refused', async () => {
  const schema = {
    type: 'object',
    properties: { n: { type: 'integer', minimum: 1 } },
    required: ['n'],
    additionalProperties: false,
  }
  const answers = ['```json\n{"n": 0}\n```', '{"n": 7}']
  const make = (name, more) => {
    let asked = 0
    const made = model(
      name,
      async function* () {
        yield answers[asked++ % 2]
      },
      more,
    )
    return made
  }
  const [told, held, not] = [
    make('told'),
    make('held', { structuredOutput: true }),
    make('not', { structuredOutput: false }),
  ]
  const server = await started([told.entry, held.entry, not.entry])
  for (const each of [told, held]) {
    const { body: session } = await http(server, 'POST', '/sessions', { model: `js/${each.entry.name}` })
    const path = `/sessions/${session.sessionId}/prompt?wait=true`
    const { body } = await http(server, 'POST', path, { prompt: 'how many?', turn: { outputSchema: schema } })
    assert.deepEqual([body.status, body.output, body.rounds], ['completed', { n: 7 }, 1], JSON.stringify(body.error))
    assert.deepEqual(
      each.requests.map((request) => request.outputSchema),
      [schema, schema],
    )
    assert.match(JSON.stringify(each.requests[1].messages), /This answer cannot be used/)
    assert.equal(each.requests[0].system.includes('JSON Schema'), each === told, each.entry.name)
    const plain = await http(server, 'POST', path, { prompt: 'and now?' })
    assert.equal(plain.body.output, undefined)
    assert.equal('outputSchema' in each.requests[2], false)
  }
  const { body: session } = await http(server, 'POST', '/sessions', { model: 'js/not' })
  const path = `/sessions/${session.sessionId}/prompt`
  const refused = await http(server, 'POST', path, { prompt: 'how many?', turn: { outputSchema: schema } })
  assert.deepEqual([refused.status, refused.body.error.details.why], [409, 'no_structured_output'])
  assert.equal(not.requests.length, 0)
})

test('an id of a call is there once in what a model is asked', async () => {
  const script = model('again', async function* ({ messages }) {
    if (messages.at(-1).role === 'tool_result') return yield 'done'
    yield { type: 'original', items: ['mine'] }
    yield { type: 'tool_call', toolCall: { id: 'same', name: 'fs_list', arguments: { path: '.' } } }
    yield { type: 'tool_call', toolCall: { id: 'same', name: 'fs_list', arguments: '{"path":' } }
  })
  const server = await started([script.entry])
  const { body: session } = await http(server, 'POST', '/sessions', {})
  const path = `/sessions/${session.sessionId}/prompt?wait=true`
  for (const prompt of ['one', 'two']) assert.equal((await http(server, 'POST', path, { prompt })).body.result, 'done')
  const { messages } = script.requests.at(-1)
  const calls = messages.flatMap(({ toolCalls = [] }) => toolCalls.map(({ id }) => id))
  const results = messages.flatMap(({ role, toolCallId }) => (role === 'tool_result' ? [toolCallId] : []))
  assert.deepEqual(results, calls)
  assert.equal(new Set(calls).size, 4, String(calls))
  // Also of a reply in which a call could not be read.
  assert.deepEqual(
    messages.filter((message) => message.toolCalls).map(({ original }) => original),
    [['mine'], ['mine']],
  )
})

test('images go to a model that takes them, and are described to one that does not', async () => {
  const seen = {}
  const looks = (name) => ({
    name,
    async *stream({ messages }) {
      seen[name] = messages[0]
      yield 'ok'
    },
  })
  const server = await started([looks('eyes'), { ...looks('blind'), images: false }])
  const image = {
    type: 'image',
    mediaType: 'image/png',
    data: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  }
  for (const name of ['eyes', 'blind']) {
    const ended = await turn(server, [{ type: 'text', text: 'what is this?' }, image], {
      session: { model: `js/${name}` },
    })
    assert.equal(ended.last.type, 'session.completed')
  }
  assert.deepEqual(
    seen.eyes.parts.map(({ type }) => type),
    ['text', 'image'],
  )
  assert.ok(!JSON.stringify(seen.blind).includes(image.data))
  assert.match(JSON.stringify(seen.blind), /takes no images/)
})

// ── What goes wrong ─────────────────────────────────────────────────────────────────────────────

const deep = {}
deep.self = deep

const GARBAGE = [
  [null, 'chunk 1: expected a string or {type, …}, got null'],
  [undefined, 'chunk 1: expected a string or {type, …}, got nothing'],
  [7, 'chunk 1: expected a string or {type, …}, got number 7'],
  [{}, 'chunk 1: type: expected one of "delta"'],
  [{ type: 'text', text: 'x' }, 'chunk 1: type: expected one of "delta"'],
  [{ type: 'delta' }, 'chunk 1: text: expected a string, got nothing'],
  [{ type: 'delta', text: 5 }, 'chunk 1: text: expected a string, got number 5'],
  [{ type: 'delta', text: '', more: 1 }, 'chunk 1: more: unknown field'],
  [{ type: 'tool_call', toolCall: { id: 'a' } }, 'chunk 1: toolCall.name: expected a non-empty string'],
  [{ type: 'tool_call', toolCall: { name: 'a', arguments: [] } }, 'toolCall.arguments: expected an object, or JSON'],
  [{ type: 'tool_call', toolCall: { name: 'a', arguments: deep } }, 'toolCall.arguments: cannot be written as JSON'],
  [{ type: 'tool_call_delta', index: -1 }, 'chunk 1: index: expected an integer of at least 0'],
  [{ type: 'usage', usage: { inputTokens: 1.5 } }, 'chunk 1: usage.inputTokens: expected an integer'],
  [{ type: 'original', items: 'x' }, 'chunk 1: items: expected an array, got string "x"'],
  [{ type: 'original', items: [deep] }, 'chunk 1: items: cannot be written as JSON'],
  [{ type: 'complete', finishReason: 'stop' }, 'chunk 1: finishReason: expected one of "end_turn"'],
  [{ type: 'error', message: '' }, 'chunk 1: message: expected a non-empty string'],
]

test('what is no chunk ends the turn with words that name the field', async () => {
  let chunk
  const left = []
  const script = model('garbage', async function* () {
    try {
      yield 'so far '
      yield chunk
      yield 'never'
    } finally {
      left.push(true)
    }
  })
  const server = await started([script.entry])
  for (const [garbage, want] of GARBAGE) {
    chunk = garbage
    const ended = await turn(server, 'go')
    assert.equal(ended.last.type, 'session.error')
    const { error } = ended.last.payload
    assert.ok(error.message.startsWith('the model "js/garbage": '), error.message)
    assert.ok(error.message.includes(want), error.message)
    assert.deepEqual(deltas(ended), ['so far '])
  }
  assert.equal(script.requests.length, GARBAGE.length, 'none of it is tried again')
  assert.equal(left.length, GARBAGE.length, 'every generator was ended')
})

test('what stream() gives back has to be something to iterate', async () => {
  let given
  const server = await started([{ name: 'odd', stream: () => given }])
  for (const [value, want] of [
    [undefined, 'got nothing'],
    ['text', 'got string "text"'],
    [{ next() {} }, 'got an object'],
    [{ [Symbol.asyncIterator]: () => ({ next: () => 5 }) }, 'expected next() to give {value, done}, got number 5'],
  ]) {
    given = value
    const { last } = await turn(server, 'go')
    assert.ok(last.payload.error.message.includes(want), last.payload.error.message)
  }
})

const http4xx = (status, more = {}) => Object.assign(new Error('no'), { status, ...more })
const withCause = (cause) => new TypeError('fetch failed', { cause })
const coded = (code) => Object.assign(new Error(`it is ${code}`), { code })

const FAILURES = [
  // what is thrown, the kind, how long it asks to wait
  [new Error('network error, timed out, 429, please retry'), 'unavailable'],
  ['a text', 'unavailable'],
  [undefined, 'unavailable'],
  [http4xx(400), 'refused'],
  [http4xx(400, { code: 'context_length_exceeded' }), 'context_overflow'],
  [http4xx(429, { data: { error: { code: 'insufficient_quota' } } }), 'quota'],
  [Object.assign(new Error('no'), { code: 'CONTENT_FILTER' }), 'content_filter'],
  [http4xx(404), 'refused'],
  [http4xx(401), 'unauthorized'],
  [http4xx(403), 'unauthorized'],
  [http4xx(408), 'transient'],
  [http4xx(429, { headers: new Headers({ 'retry-after': '2' }) }), 'transient', 2000],
  [http4xx(429, { responseHeaders: { 'retry-after-ms': '70', 'retry-after': '9' } }), 'transient', 70],
  [http4xx(503, { retryAfterMs: 5.5 }), 'transient', 6],
  [http4xx(500, { isRetryable: false }), 'refused'],
  [http4xx(401, { isRetryable: false }), 'unauthorized'],
  [Object.assign(new Error('later'), { retryable: true }), 'transient'],
  [Object.assign(new Error('later'), { retryable: false, code: 'ECONNRESET' }), 'refused'],
  [coded('ECONNRESET'), 'transient'],
  [coded('ENOENT'), 'unavailable'],
  [withCause(coded('UND_ERR_HEADERS_TIMEOUT')), 'transient'],
  [withCause(withCause(coded('ECONNREFUSED'))), 'transient'],
  [AbortSignal.timeout(1), 'transient'],
  [{ message: 'plain', retryable: true, retryAfterMs: 1 }, 'transient', 1],
]

test('what is thrown is sorted by types and codes, never by words', async () => {
  for (const [thrown, kind, retryAfterMs] of FAILURES) {
    let value = thrown
    if (thrown instanceof AbortSignal) {
      await new Promise((fired) => (thrown.aborted ? fired() : thrown.addEventListener('abort', fired)))
      value = thrown.reason
    }
    const failure = failureOf(value, 'js/x')
    assert.deepEqual([failure.kind, failure.retryAfterMs], [kind, retryAfterMs], String(value))
    assert.ok(failure.message.startsWith('the model "js/x" failed: '), failure.message)
  }
  assert.match(failureOf(withCause(coded('ECONNREFUSED')), 'js/x').message, /fetch failed: it is ECONNREFUSED/)
  const trap = new Proxy({}, { get: () => assert.fail('it may not be read') })
  assert.equal(failureOf(trap, 'js/x').kind, 'unavailable')
  const circle = new Error('round')
  circle.cause = circle
  assert.equal(failureOf(circle, 'js/x').kind, 'unavailable')
})

test('a transient failure is tried again and its deltas are void; another one ends the turn with its kind', async () => {
  let tries = 0
  const script = model('fails', async function* ({ messages }) {
    tries += 1
    yield `try ${tries}`
    const how = messages.at(-1).content
    if (how === 'yield' && tries === 1) yield { type: 'error', message: 'busy', retryable: true, retryAfterMs: 1 }
    if (how === 'throw' && tries === 1) throw Object.assign(new Error('busy'), { status: 529, retryAfterMs: 1 })
    if (how === 'refuse') throw Object.assign(new Error('not this'), { status: 422 })
  })
  const server = await started([script.entry])
  for (const how of ['yield', 'throw']) {
    tries = 0
    const ended = await turn(server, how)
    assert.equal(ended.last.payload.result, 'try 2')
    const [retry] = payloads(ended, 'stream.retry')
    assert.equal(retry.attempt, 2)
    assert.match(retry.error, /busy/)
  }
  tries = 0
  const { last } = await turn(server, 'refuse')
  assert.equal(last.payload.error.message, 'the model "js/fails" failed: not this')
  assert.equal(last.payload.error.details.kind, 'refused')
  assert.equal(tries, 1)
})

test('a generator that says nothing for too long is left, and its signal fires', async () => {
  const fired = []
  const script = model('hangs', async function* (_, signal) {
    signal.addEventListener('abort', () => fired.push(true))
    yield 'one moment'
    await new Promise(() => {})
  })
  const server = await started([script.entry], { limits: { modelIdleTimeoutMs: 30 } })
  const { last } = await turn(server, 'go')
  assert.match(last.payload.error.message, /the model `js\/hangs` was silent for 30 ms/)
  assert.equal(last.payload.error.details.kind, 'transient')
  await until(() => fired.length === script.requests.length)
  assert.ok(fired.length > 1, 'silence is worth another try')
})

// ── Ends ────────────────────────────────────────────────────────────────────────────────────────

test('an abort fires the signal and returns the generator, also one that never looks at its signal', async () => {
  const seen = []
  const begun = deferred()
  const heeds = {
    name: 'heeds',
    async *stream(_, signal) {
      try {
        yield 'a'
        await new Promise((_, no) => signal.addEventListener('abort', () => no(signal.reason)))
      } finally {
        seen.push('heeds')
      }
    },
  }
  const endless = {
    name: 'endless',
    async *stream(_, signal) {
      try {
        for (;;) yield 'x'
      } finally {
        seen.push(signal.aborted ? 'endless' : 'not aborted')
      }
    },
  }
  const deaf = {
    name: 'deaf',
    async *stream(_, signal) {
      signal.addEventListener('abort', () => seen.push('deaf'))
      yield 'a'
      begun.resolve()
      await new Promise(() => {})
    },
  }
  const server = await started([heeds, endless, deaf])
  for (const { name } of [heeds, endless, deaf]) {
    const onEvent = async ({ type }, id) => {
      if (type === 'stream.delta') await http(server, 'POST', `/sessions/${id}/abort`)
    }
    const ended = await turn(server, 'go', { session: { model: `js/${name}` }, onEvent })
    assert.equal(ended.last.type, 'abort', name)
    await until(() => seen.includes(name))
  }
  await until(() => bridge.feeding() === 0 && waitingCalls() === 0)
  assert.deepEqual(seen, ['heeds', 'endless', 'deaf'])
})

test('no more is pulled than there is room for', async () => {
  let pulled = 0
  let told
  const call = {
    signal: new AbortController().signal,
    push: () => true,
    room: () => told?.promise,
  }
  told = deferred()
  const stream = async function* () {
    for (; pulled < 1000; pulled++) yield 'x'.repeat(1000)
  }
  const running = runModel({ name: 'much', stream }, {}, call)
  await new Promise((later) => setTimeout(later, 20))
  assert.equal(pulled, 0, 'the first chunk waits for its room')
  told.resolve()
  told = undefined
  assert.equal(await running, 'null')
  assert.equal(pulled, 1000)
})

test('a generator that never waits leaves the thread to others, and all that it yields arrives', async () => {
  const count = 20_000
  let turns = 0
  const timer = setInterval(() => turns++, 0)
  const server = await started([
    {
      name: 'fast',
      async *stream() {
        turns = 0
        for (let i = 0; i < count; i++) yield `${i} `
      },
    },
  ])
  const ended = await turn(server, 'go')
  clearInterval(timer)
  assert.equal(ended.last.payload.result.length, Array.from({ length: count }, (_, i) => `${i} `).join('').length)
  assert.equal(deltas(ended).length, count)
  assert.ok(turns > 10, `timers ran ${turns} times`)
})

test('many sessions at once each have their own answer', async () => {
  const server = await started([
    {
      name: 'echo',
      async *stream({ messages }) {
        for (const letter of messages.at(-1).content) {
          yield letter
          await new Promise((soon) => setTimeout(soon, 1))
        }
      },
    },
  ])
  const prompts = Array.from({ length: 40 }, (_, i) => `prompt ${i}`)
  const all = await Promise.all(prompts.map((prompt) => turn(server, prompt)))
  assert.deepEqual(
    all.map(({ last }) => last.payload.result),
    prompts,
  )
})

test('a stop ends what streams, a later start asks again, and nothing is left', async () => {
  const ends = []
  const server = await started([
    {
      name: 'long',
      async *stream(_, signal) {
        try {
          yield 'a'
          await new Promise((end) => signal.addEventListener('abort', end))
        } finally {
          ends.push(signal.aborted)
        }
      },
    },
  ])
  for (const times of [1, 2]) {
    const { body } = await http(server, 'POST', '/sessions', {})
    const stream = events(server, body.sessionId)
    await http(server, 'POST', `/sessions/${body.sessionId}/prompt`, { prompt: 'go' })
    for await (const event of stream) if (event.type === 'stream.delta') break
    await server.stop()
    await until(() => ends.length === times)
    if (times === 1) await server.start()
  }
  assert.deepEqual(ends, [true, true])
  await until(() => bridge.feeding() === 0 && waitingCalls() === 0)
})

test('a process ends by itself after stop(), also with a generator that hangs', async () => {
  const { code, said } = await runModule(`
    import { createSimseServer } from ${entry}
    const server = createSimseServer({ port: 0, workingDirectory: ${JSON.stringify(directory())}, limits: { shutdownGraceMs: 0 },
      models: [{ name: 'hangs', async *stream() { yield 'a'; await new Promise(() => {}) } }] })
    await server.start()
    const post = (path, body) => fetch(server.url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
    const { sessionId } = await (await post('/sessions', {})).json()
    await post('/sessions/' + sessionId + '/prompt', { prompt: 'go' })
    await server.stop()
    console.log('stopped')`)
  assert.deepEqual({ code, said }, { code: 0, said: 'stopped\n' })
})

test('a server with models that runs no more is not held', { skip: globalThis.gc === undefined }, async () => {
  let gone = false
  const registry = new FinalizationRegistry(() => {
    gone = true
  })
  await (async () => {
    const mine = {
      name: 'mine',
      async *stream() {
        yield 'a'
      },
    }
    registry.register(mine)
    const server = createSimseServer(config([mine]))
    await server.start()
    assert.equal((await turn(server, 'go')).last.payload.result, 'a')
    await server.stop()
  })()
  await until(async () => {
    await new Promise((soon) => setImmediate(soon))
    globalThis.gc()
    return gone
  })
})

// ── Configuration ───────────────────────────────────────────────────────────────────────────────

const stream = async function* () {}

const REFUSED = [
  ['no list', {}, 'models'],
  ['no object', ['x'], 'models.0'],
  ['no name', [{ stream }], 'models.0.name'],
  ['no stream', [{ name: 'a' }], 'models.0.stream'],
  ['a stream that is no function', [{ name: 'a', stream: stream() }], 'models.0.stream'],
  ['an unknown field', [{ name: 'a', stream, image: true }], 'models.0.image'],
  ['a blank in a name', [{ name: 'a b', stream }], 'models.0.name'],
  ['an empty provider', [{ name: '/a', stream }], 'models.0.name'],
  ['the name of an agent', [{ name: 'acp/a', stream }], 'models.0.name'],
  [
    'one id twice',
    [
      { name: 'a', stream },
      { name: 'js/a', stream },
    ],
    'models.1.name',
  ],
  ['images that are no truth', [{ name: 'a', stream, images: 'yes' }], 'models.0.images'],
]

for (const [what, models, path] of REFUSED) {
  test(`refused: ${what}`, () => {
    assert.throws(
      () => createSimseServer(config(models)),
      (error) => error.code === 'CONFIG_VALIDATION' && error.issues.some((issue) => issue.path === path),
    )
  })
}

test('a server without other models has the first of these, and `model` names one', async () => {
  const named = (name) => ({ name, stream, images: false })
  const first = await started([named('one'), named('two')])
  const { body } = await http(first, 'GET', '/models')
  assert.equal(body.models.find((each) => each.default).id, 'js/one')
  const second = await started([named('one'), named('big/two')], { model: 'big/two' })
  const listed = (await http(second, 'GET', '/models')).body.models
  assert.equal(listed.find((each) => each.default).id, 'big/two')
  await assert.rejects(started([named('one')], { model: 'js/none' }), (error) => error.code === 'CONFIG_VALIDATION')
})
