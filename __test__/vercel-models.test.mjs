/** Models of the Vercel AI SDK behind a server: the real package, and its real provider against a scripted endpoint. */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, simulateReadableStream } from 'ai'
import { MockLanguageModelV3 } from 'ai/test'
import { createSimseServer, fromVercelModel } from '../js/index.js'
import { http, turn } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'
import { registryOf } from './support/registry.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-vercel-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const open = new Set()

after(async () => {
  for (const each of open) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

let rooms = 0
async function started(model, more = {}) {
  const workingDirectory = join(room, `work${++rooms}`)
  mkdirSync(workingDirectory)
  const server = createSimseServer({
    port: 0,
    workingDirectory,
    models: [model],
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
    limits: { shutdownGraceMs: 0 },
    ...more,
  })
  open.add(server)
  await server.start()
  return server
}

const payloads = ({ events }, type) => events.filter((event) => event.type === type).map((event) => event.payload)
const deltas = (ended) => payloads(ended, 'stream.delta').map(({ text }) => text)

const usage = (input, output) => ({
  inputTokens: { total: input, noCache: input, cacheRead: 0, cacheWrite: undefined },
  outputTokens: { total: output, text: output, reasoning: 0 },
})
const finish = (unified, tokens = usage(1, 2)) => ({
  type: 'finish',
  finishReason: { unified, raw: unified },
  usage: tokens,
})
const text = (...pieces) => [
  { type: 'stream-start', warnings: [] },
  { type: 'text-start', id: 't' },
  ...pieces.map((delta) => ({ type: 'text-delta', id: 't', delta })),
  { type: 'text-end', id: 't' },
]
const answer = (...chunks) => ({ stream: simulateReadableStream({ chunks }) })

/** A model of the SDK's that answers with these, one after the other; a function is called. */
function mock(...answers) {
  let next = 0
  const made = new MockLanguageModelV3({
    provider: 'mock',
    modelId: 'v3',
    doStream: async (options) => {
      const given = answers[next++]
      return typeof given === 'function' ? given(options) : given
    },
  })
  return made
}

test('a model of the SDK is one line away: a turn with a call, its result, reasoning and tokens', async () => {
  const model = mock(
    answer(
      { type: 'reasoning-start', id: 'r' },
      { type: 'reasoning-delta', id: 'r', delta: 'hm' },
      { type: 'reasoning-end', id: 'r' },
      ...text('let me ', 'see'),
      { type: 'tool-input-start', id: 'c1', toolName: 'mcp__far__look' },
      { type: 'tool-input-delta', id: 'c1', delta: '{"at":"x"}' },
      { type: 'tool-input-end', id: 'c1' },
      { type: 'tool-call', toolCallId: 'c1', toolName: 'mcp__far__look', input: '{"at":"x"}' },
      finish('tool-calls', usage(7, 5)),
    ),
    answer(...text('done'), finish('stop')),
  )
  const parameters = { at: { type: 'string', description: 'where', required: true } }
  const toolRegistry = registryOf({ 'mcp:far/look': async ({ at }) => `seen ${at}` }, {}, { parameters })
  const server = await started(fromVercelModel(model), { toolRegistry })
  const { body } = await http(server, 'GET', '/models')
  assert.equal(body.models.find((each) => each.default).id, 'mock/v3')
  const ended = await turn(server, 'look', { session: { reasoning: 'high' } })
  assert.equal(ended.last.payload.result, 'done')
  assert.deepEqual(deltas(ended), ['let me ', 'see', 'done'])
  assert.deepEqual(
    payloads(ended, 'stream.reasoning').map((each) => each.text),
    ['hm'],
  )
  assert.deepEqual(payloads(ended, 'turn.complete')[0].usage.inputTokens, 7)

  const [first, second] = model.doStreamCalls
  assert.equal(first.prompt[0].role, 'system')
  assert.deepEqual(first.prompt.slice(1), [{ role: 'user', content: [{ type: 'text', text: 'look' }] }])
  const [tool] = first.tools
  assert.deepEqual([tool.type, tool.name, tool.inputSchema.required], ['function', 'mcp__far__look', ['at']])
  assert.deepEqual(first.toolChoice, { type: 'auto' })
  assert.deepEqual(first.providerOptions, { mock: { reasoningEffort: 'high' } })
  assert.ok(first.abortSignal instanceof AbortSignal)
  assert.deepEqual(second.prompt.slice(2), [
    {
      role: 'assistant',
      content: [
        { type: 'text', text: 'let me see' },
        { type: 'tool-call', toolCallId: 'c1', toolName: 'mcp__far__look', input: { at: 'x' } },
      ],
    },
    {
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          toolCallId: 'c1',
          toolName: 'mcp__far__look',
          output: { type: 'text', value: 'seen x' },
        },
      ],
    },
  ])
})

test('what a provider has signed is given back to it as it was', async () => {
  const signed = (signature) => ({ anthropic: { signature } })
  const reply = answer(
    { type: 'reasoning-start', id: '0' },
    { type: 'reasoning-delta', id: '0', delta: 'let me ' },
    { type: 'reasoning-delta', id: '0', delta: 'think' },
    { type: 'reasoning-delta', id: '0', delta: '', providerMetadata: signed('s1') },
    { type: 'reasoning-end', id: '0' },
    ...text('looking'),
    {
      type: 'tool-call',
      toolCallId: 'c1',
      toolName: 'mcp__far__look',
      input: '{"at":"x"}',
      providerMetadata: { google: { thoughtSignature: 's2' } },
    },
    finish('tool-calls'),
  )
  const model = mock(reply, answer(...text('done'), finish('stop')), answer(...text('other'), finish('stop')))
  const other = { name: 'js/other', stream: (request) => [JSON.stringify(request.messages)] }
  const toolRegistry = registryOf({ 'mcp:far/look': async ({ at }) => `seen ${at}` })
  const server = await started(fromVercelModel(model), { toolRegistry, models: [fromVercelModel(model), other] })
  const first = await turn(server, 'look')
  assert.equal(first.last.payload.result, 'done')
  const own = [
    { type: 'reasoning', text: 'let me think', providerOptions: signed('s1') },
    { type: 'text', text: 'looking' },
    {
      type: 'tool-call',
      toolCallId: 'c1',
      providerOptions: { google: { thoughtSignature: 's2' } },
      toolName: 'mcp__far__look',
      input: { at: 'x' },
    },
  ]
  assert.deepEqual(model.doStreamCalls[1].prompt[2], { role: 'assistant', content: own })
  const kept = payloads(first, 'stream.complete')[0].original
  assert.deepEqual([kept.wire, kept.model, kept.items.length], ['javascript', 'mock/v3', 3])
  // Another model is told the text and the call, and not what is the first one's own.
  const path = `/sessions/${first.sessionId}/prompt?wait=true`
  const { body } = await http(server, 'POST', path, { prompt: 'and you?', turn: { model: 'js/other' } })
  assert.ok(body.result.includes('looking') && !body.result.includes('original'), body.result)
})

test('a signature is kept where ids come again and arguments cannot be read; a schema is the format of the answer', async () => {
  const call = (id, input, thoughtSignature) => ({
    type: 'tool-call',
    toolCallId: id,
    toolName: 'look',
    input,
    providerMetadata: { google: { thoughtSignature } },
  })
  const model = mock(
    answer(call('c', '{}', 's1'), call('c', '{"a":', 's2'), finish('tool-calls')),
    answer(...text('{"n":7}'), finish('stop')),
  )
  const toolRegistry = registryOf({ look: async () => 'seen' }, {}, { parameters: {} })
  const server = await started(fromVercelModel(model), { toolRegistry })
  const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }
  const { body: session } = await http(server, 'POST', '/sessions', {})
  const path = `/sessions/${session.sessionId}/prompt?wait=true`
  const { body } = await http(server, 'POST', path, { prompt: 'look', turn: { outputSchema: schema } })
  assert.deepEqual([body.status, body.output], ['completed', { n: 7 }], JSON.stringify(body.error))
  const [first, second] = model.doStreamCalls
  assert.deepEqual(first.responseFormat, { type: 'json', schema, name: 'answer' })
  const replied = second.prompt.find(({ role }) => role === 'assistant')
  const calls = replied.content.filter((part) => part.type === 'tool-call')
  assert.deepEqual(
    calls.map(({ toolCallId, input, providerOptions }) => [toolCallId, input, providerOptions.google.thoughtSignature]),
    [
      ['c', {}, 's1'],
      ['c_2', {}, 's2'],
    ],
  )
})

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='

/** A model that only writes down what it was asked, in a version of the interface. */
function recording(specificationVersion, finishReason) {
  const asked = []
  const model = {
    specificationVersion,
    provider: 'some.chat',
    modelId: 'm',
    doStream: async (options) => {
      asked.push(options)
      return answer(
        { type: 'text-delta', id: 't', delta: 'ok' },
        { type: 'finish', finishReason, usage: { inputTokens: 3, outputTokens: 4, totalTokens: 8 } },
      )
    },
  }
  return { model, asked }
}

for (const [version, finishReason, data] of [
  ['v2', 'stop', PIXEL],
  ['v3', { unified: 'stop', raw: 'stop' }, PIXEL],
  ['v4', { unified: 'stop', raw: 'stop' }, { type: 'data', data: PIXEL }],
]) {
  test(`${version} of the interface: images, results that failed, how much it thinks, options`, async () => {
    const { model, asked } = recording(version, finishReason)
    const callOptions = { temperature: 0.5, providerOptions: { some: { x: 1 }, other: { y: 2 } } }
    const { stream } = fromVercelModel(model, { callOptions })
    const image = { type: 'image', mediaType: 'image/png', data: PIXEL }
    const chunks = []
    const result = (id, more) => ({ role: 'tool_result', toolCallId: id, toolName: 'view', ...more })
    const request = {
      model: 'some.chat/m',
      system: '',
      reasoning: 'low',
      tools: [],
      messages: [
        { role: 'user', content: 'a', parts: [{ type: 'text', text: 'a' }, image] },
        { role: 'assistant', content: '', toolCalls: ['1', '2'].map((id) => ({ id, name: 'view', arguments: {} })) },
        result('1', { content: 'no', isError: true }),
        result('2', { content: 'here', isError: false, parts: [image] }),
        { role: 'user', content: 'found' },
      ],
    }
    const { signal } = new AbortController()
    for await (const chunk of await stream(request, signal)) chunks.push(chunk)
    const tokens = version === 'v2' ? { inputTokens: 3, outputTokens: 4, totalTokens: 8 } : undefined
    assert.deepEqual(chunks[0], 'ok')
    if (tokens) assert.deepEqual(chunks[1], { type: 'complete', finishReason: 'end_turn', usage: tokens })
    const [{ prompt, ...options }] = asked
    const file = { type: 'file', mediaType: 'image/png', data }
    const output = (id, type, value) => ({
      type: 'tool-result',
      toolCallId: id,
      toolName: 'view',
      output: { type, value },
    })
    assert.deepEqual(prompt, [
      { role: 'user', content: [{ type: 'text', text: 'a' }, file] },
      {
        role: 'assistant',
        content: ['1', '2'].map((id) => ({ type: 'tool-call', toolCallId: id, toolName: 'view', input: {} })),
      },
      { role: 'tool', content: [output('1', 'error-text', 'no'), output('2', 'text', 'here')] },
      { role: 'user', content: [{ type: 'text', text: 'What view (call 2) shows:' }, file] },
      { role: 'user', content: [{ type: 'text', text: 'found' }] },
    ])
    const own = version === 'v4' ? { x: 1 } : { reasoningEffort: 'low', x: 1 }
    assert.deepEqual(options.providerOptions, { some: own, other: { y: 2 } })
    assert.equal(options.reasoning, version === 'v4' ? 'low' : undefined)
    assert.deepEqual([options.temperature, options.abortSignal], [0.5, signal])
    assert.ok(!('tools' in options) && !('toolChoice' in options))
  })
}

test('errors of the SDK are sorted by what they are; a stream that is cut off is tried again', async () => {
  const busy = new APICallError({
    message: 'busy',
    url: 'http://x/',
    requestBodyValues: {},
    statusCode: 429,
    responseHeaders: { 'retry-after-ms': '1' },
  })
  const refused = new APICallError({
    message: 'no such model',
    url: 'http://x/',
    requestBodyValues: {},
    statusCode: 404,
  })
  const thrown = (error) => () => Promise.reject(error)
  const model = mock(
    thrown(busy),
    answer(...text('half'), { type: 'error', error: busy }),
    answer(...text('all'), finish('stop')),
    answer(...text('half')),
    answer(...text('all'), finish('stop')),
    thrown(refused),
    answer(...text('half'), finish('error')),
    answer(...text('all'), finish('stop')),
  )
  const server = await started(fromVercelModel(model, { name: 'sdk' }))
  const first = await turn(server, 'go')
  assert.equal(first.last.payload.result, 'all')
  assert.deepEqual(
    payloads(first, 'stream.retry').map(({ attempt }) => attempt),
    [2, 3],
  )
  const cut = await turn(server, 'go')
  assert.equal(cut.last.payload.result, 'all')
  assert.match(payloads(cut, 'stream.retry')[0].error, /ended before the answer was whole/)
  const { error } = (await turn(server, 'go')).last.payload
  assert.deepEqual([error.message, error.details.kind], ['the model "js/sdk" failed: no such model', 'refused'])
  const ended = await turn(server, 'go')
  assert.match(payloads(ended, 'stream.retry')[0].error, /ended the answer with an error/)
})

test('what a provider runs by itself is not ours to run; arguments that were cut off are told', async () => {
  const model = mock(
    answer(
      { type: 'tool-input-start', id: 's', toolName: 'web_search', providerExecuted: true },
      { type: 'tool-call', toolCallId: 's', toolName: 'web_search', input: '{}', providerExecuted: true },
      { type: 'tool-result', toolCallId: 's', toolName: 'web_search', result: {}, providerExecuted: true },
      ...text('found'),
      { type: 'tool-input-start', id: 'c', toolName: 'look' },
      { type: 'tool-input-delta', id: 'c', delta: '{"at":' },
      finish('length'),
    ),
    answer(...text('ok'), finish('stop')),
  )
  let ran = 0
  const server = await started(fromVercelModel(model), {
    toolRegistry: registryOf({ look: async () => String(ran++) }),
  })
  const ended = await turn(server, 'go')
  assert.equal(ended.last.payload.result, 'ok')
  assert.equal(ran, 0)
  const told = model.doStreamCalls[1].prompt.at(-1)
  assert.deepEqual([told.role, told.content[0].output.type], ['tool', 'error-text'])
  assert.match(told.content[0].output.value, /limit of tokens inside the arguments/)
})

test('an abort reaches the signal and cancels the stream, also one that does not heed it', async () => {
  let cancelled
  const stream = new ReadableStream({
    start: (controller) => text('one moment').forEach((part) => void controller.enqueue(part)),
    cancel: () => {
      cancelled = true
    },
  })
  const model = mock({ stream })
  const server = await started(fromVercelModel(model))
  const ended = await turn(server, 'go', {
    onEvent: async ({ type }, id) => {
      if (type === 'stream.delta') await http(server, 'POST', `/sessions/${id}/abort`)
    },
  })
  assert.equal(ended.last.type, 'abort')
  const end = Date.now() + 60_000
  while (!(cancelled && model.doStreamCalls[0].abortSignal.aborted)) {
    assert.ok(Date.now() < end, 'it was never cancelled')
    await new Promise((soon) => setTimeout(soon, 5))
  }
})

test('a provider of the SDK speaks to its endpoint: the whole way', async () => {
  const scripted = await scriptedModel([
    { reasoning: ['hm'], text: ['I ', 'call'], calls: [{ id: 'c1', name: 'add', arguments: { a: 20, b: 22 } }] },
    { text: 'it is 42' },
    { status: 400, body: { error: { message: 'not like this' } } },
    { status: 503, body: { error: { message: 'busy' } } },
    { text: 'there' },
  ])
  open.add(scripted)
  const provider = createOpenAICompatible({ name: 'local', baseURL: scripted.baseUrl, includeUsage: true })
  const number = { type: 'number', description: '', required: true }
  const toolRegistry = registryOf(
    { add: async ({ a, b }) => String(a + b) },
    {},
    { parameters: { a: number, b: number } },
  )
  const server = await started(fromVercelModel(provider('scripted')), { toolRegistry })
  const ended = await turn(server, 'add', { session: { reasoning: 'low' } })
  assert.equal(ended.last.payload.result, 'it is 42')
  assert.deepEqual(deltas(ended), ['I ', 'call', 'it is 42'])
  assert.deepEqual(payloads(ended, 'turn.complete')[0].usage.inputTokens, 10)
  const [first, second] = scripted.requests
  assert.equal(first.reasoning_effort, 'low')
  assert.equal(first.tools[0].function.name, 'add')
  assert.deepEqual(
    second.messages.map(({ role }) => role),
    ['system', 'user', 'assistant', 'tool'],
  )
  const { error } = (await turn(server, 'go')).last.payload
  assert.deepEqual([error.details.kind, error.message.includes('not like this')], ['refused', true])
  assert.equal((await turn(server, 'go')).last.payload.result, 'there')
})

const REFUSED = [
  ['a name alone', 'openai/gpt-5', {}, 'model'],
  ['nothing', undefined, {}, 'model'],
  ['an old version', { specificationVersion: 'v1', doStream() {} }, {}, 'model.specificationVersion'],
  ['no stream', { specificationVersion: 'v3' }, {}, 'model.doStream'],
  ['an unknown option', mock(), { temperature: 1 }, 'options.temperature'],
  ['a name with blanks', mock(), { name: 'a b' }, 'options.name'],
  ['a prompt among the options', mock(), { callOptions: { prompt: [] } }, 'options.callOptions.prompt'],
]
for (const [what, model, options, path] of REFUSED) {
  test(`refused: ${what}`, () => {
    assert.throws(
      () => fromVercelModel(model, options),
      (error) => error.code === 'CONFIG_VALIDATION' && error.issues.some((issue) => issue.path === path),
    )
  })
}
