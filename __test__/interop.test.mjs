/** A registry in other interfaces' forms, each with the package that speaks the interface, against a scripted endpoint. */

import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { generateText, stepCountIs } from 'ai'
import { MockLanguageModelV3 } from 'ai/test'
import OpenAI from 'openai'
import { z } from 'zod'
import {
  createHookSystem,
  createToolRegistry,
  runAnthropicToolCalls,
  runMcpToolCall,
  runOpenAIResponsesToolCalls,
  runOpenAIToolCalls,
  toAnthropicTools,
  toMcpTools,
  toOpenAIResponsesTools,
  toOpenAITools,
  toVercelTools,
} from '../js/index.js'
import { deferred, define } from './support/registry.mjs'
import { vendor } from './support/vendor.mjs'

const PNG = 'iVBORw0KGgo='
const image = { type: 'image', mediaType: 'image/png', data: PNG }
const url = `data:image/png;base64,${PNG}`
/** The failed result of a call without its argument. */
const missing =
  'Tool "mcp:notes/add" execution failed: argument "text" is missing: expected a string (What), got nothing'

/** A tool in the simple form under a name that no interface takes, one with a Zod schema, and one that shows an image. */
function tools(options) {
  const registry = createToolRegistry(options)
  const text = { type: 'string', description: 'What', required: true }
  const annotations = { title: 'Add', destructive: true }
  registry.register(
    define('mcp:notes/add', { parameters: { text }, annotations }),
    async (args) => `added ${args.text}`,
  )
  const parameters = z.object({ a: z.number().describe('One'), b: z.number().optional() })
  registry.register(define('sum', { parameters, annotations: { readOnly: true } }), async ({ a, b = 0 }) => `${a + b}`)
  registry.register(define('look'), async () => ({ output: 'a dot', parts: [image] }))
  return registry
}
const addSchema = { type: 'object', properties: { text: { type: 'string', description: 'What' } }, required: ['text'] }

const endpoints = []
after(() => Promise.all(endpoints.map((endpoint) => endpoint.close())))
async function endpointOf(...replies) {
  const endpoint = await vendor(replies)
  endpoints.push(endpoint)
  return endpoint
}

/** The same calls for every interface: three that work, one whose arguments are wrong, one of no tool. */
const CALLS = [
  ['c1', 'mcp__notes__add', { text: 'milk' }],
  ['c2', 'sum', { a: 1, b: 2 }],
  ['c3', 'look', {}],
  ['c4', 'mcp__notes__add', {}],
  ['c5', 'nowhere', {}],
]
const OUTPUTS = ['added milk', '3', 'a dot', missing, 'Tool not found: "nowhere"']

test('OpenAI chat completions', async () => {
  const message = (more) => ({
    id: 'x',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [
      { index: 0, finish_reason: 'stop', logprobs: null, message: { role: 'assistant', refusal: null, ...more } },
    ],
  })
  const toolCalls = [
    ...CALLS.map(([id, name, args]) => ({ id, type: 'function', function: { name, arguments: JSON.stringify(args) } })),
    { id: 'c6', type: 'function', function: { name: 'sum', arguments: '{"a": 1' } },
    { id: 'c7', type: 'function', function: { name: 'sum', arguments: '[1]' } },
    { id: 'c8', type: 'custom', custom: { name: 'own', input: 'x' } },
  ]
  const endpoint = await endpointOf(
    () => message({ content: null, tool_calls: toolCalls }),
    () => message({ content: 'done' }),
  )
  const client = new OpenAI({ apiKey: 'k', baseURL: endpoint.url, maxRetries: 0 })
  const registry = tools()
  const messages = [{ role: 'user', content: 'go' }]
  const ask = () => client.chat.completions.create({ model: 'm', messages, tools: toOpenAITools(registry) })
  const { choices } = await ask()
  messages.push(choices[0].message, ...(await runOpenAIToolCalls(registry, choices[0].message.tool_calls)))
  assert.equal((await ask()).choices[0].message.content, 'done')

  const [first, second] = endpoint.requests
  assert.equal(first.path, '/chat/completions')
  const sent = first.body.tools
  assert.deepEqual(
    sent.map((tool) => [tool.type, tool.function.name]),
    [
      ['function', 'mcp__notes__add'],
      ['function', 'sum'],
      ['function', 'look'],
    ],
  )
  assert.deepEqual(sent[0].function, {
    name: 'mcp__notes__add',
    description: 'Does mcp:notes/add.',
    parameters: addSchema,
  })
  assert.deepEqual(sent[1].function.parameters.properties.a, { type: 'number', description: 'One' })
  assert.deepEqual(sent[1].function.parameters.required, ['a'])
  assert.deepEqual(sent[2].function.parameters, { type: 'object', properties: {} })
  const answers = second.body.messages.slice(2)
  assert.deepEqual(
    answers.slice(0, 5),
    OUTPUTS.map((content, i) => ({ role: 'tool', tool_call_id: `c${i + 1}`, content })),
  )
  assert.match(answers[5].content, /^Tool "sum" execution failed: the arguments are not JSON: /)
  assert.equal(answers[6].content, 'Tool "sum" execution failed: the arguments are no object, but an array')
  const label = { type: 'text', text: 'What look (call c3) shows:' }
  assert.deepEqual(answers.slice(7), [{ role: 'user', content: [label, { type: 'image_url', image_url: { url } }] }])
})

test('OpenAI Responses', async () => {
  const response = (output) => ({ id: 'r', object: 'response', created_at: 1, model: 'm', status: 'completed', output })
  const said = { id: 'm1', type: 'message', role: 'assistant', status: 'completed' }
  const endpoint = await endpointOf(
    () =>
      response([
        { id: 'rs1', type: 'reasoning', summary: [] },
        ...CALLS.map(([id, name, args]) => ({
          id: `f${id}`,
          type: 'function_call',
          call_id: id,
          name,
          arguments: JSON.stringify(args),
          status: 'completed',
        })),
      ]),
    () => response([{ ...said, content: [{ type: 'output_text', text: 'done', annotations: [] }] }]),
  )
  const client = new OpenAI({ apiKey: 'k', baseURL: endpoint.url, maxRetries: 0 })
  const registry = tools()
  const input = [{ role: 'user', content: 'go' }]
  const ask = () => client.responses.create({ model: 'm', input, tools: toOpenAIResponsesTools(registry) })
  const { output } = await ask()
  input.push(...output, ...(await runOpenAIResponsesToolCalls(registry, output)))
  assert.equal((await ask()).output_text, 'done')

  const [first, second] = endpoint.requests
  assert.equal(first.path, '/responses')
  assert.deepEqual(first.body.tools[0], {
    type: 'function',
    name: 'mcp__notes__add',
    description: 'Does mcp:notes/add.',
    parameters: addSchema,
    strict: false,
  })
  const told = (call_id, output) => ({ type: 'function_call_output', call_id, output })
  const shown = [
    { type: 'input_text', text: 'a dot' },
    { type: 'input_image', image_url: url, detail: 'auto' },
  ]
  assert.deepEqual(
    second.body.input.slice(7),
    OUTPUTS.map((text, i) => told(`c${i + 1}`, i === 2 ? shown : text)),
  )
})

test('Anthropic messages', async () => {
  const message = (content, stop_reason) => ({
    id: 'x',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content,
    stop_reason,
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 1 },
  })
  const uses = CALLS.map(([id, name, input]) => ({ type: 'tool_use', id, name, input }))
  const endpoint = await endpointOf(
    () => message([{ type: 'text', text: 'I look.' }, ...uses], 'tool_use'),
    () => message([{ type: 'text', text: 'done' }], 'end_turn'),
  )
  const client = new Anthropic({ apiKey: 'k', baseURL: endpoint.url, maxRetries: 0 })
  const registry = tools()
  const messages = [{ role: 'user', content: 'go' }]
  const ask = () => client.messages.create({ model: 'm', max_tokens: 9, messages, tools: toAnthropicTools(registry) })
  const { content } = await ask()
  messages.push(
    { role: 'assistant', content },
    { role: 'user', content: await runAnthropicToolCalls(registry, content) },
  )
  assert.equal((await ask()).content[0].text, 'done')

  const [first, second] = endpoint.requests
  assert.equal(first.path, '/v1/messages')
  assert.deepEqual(first.body.tools[0], {
    name: 'mcp__notes__add',
    description: 'Does mcp:notes/add.',
    input_schema: addSchema,
  })
  const told = (tool_use_id, content, more) => ({ type: 'tool_result', tool_use_id, content, ...more })
  const source = { type: 'base64', media_type: 'image/png', data: PNG }
  assert.deepEqual(second.body.messages[2], {
    role: 'user',
    content: [
      told('c1', OUTPUTS[0]),
      told('c2', OUTPUTS[1]),
      told('c3', [
        { type: 'text', text: 'a dot' },
        { type: 'image', source },
      ]),
      told('c4', OUTPUTS[3], { is_error: true }),
      told('c5', OUTPUTS[4], { is_error: true }),
    ],
  })
})

test('MCP: a registry as a server, with the official client', async () => {
  const registry = tools()
  const server = new Server({ name: 'ours', version: '1' }, { capabilities: { tools: {} } })
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: toMcpTools(registry) }))
  server.setRequestHandler(CallToolRequestSchema, ({ params }, { signal }) =>
    runMcpToolCall(registry, params, { signal }),
  )
  const client = new Client({ name: 'theirs', version: '1' })
  const [here, there] = InMemoryTransport.createLinkedPair()
  await Promise.all([server.connect(there), client.connect(here)])
  const listed = (await client.listTools()).tools
  assert.deepEqual(listed[0], {
    name: 'mcp__notes__add',
    description: 'Does mcp:notes/add.',
    inputSchema: addSchema,
    annotations: { title: 'Add', destructiveHint: true },
  })
  assert.deepEqual([listed[1].annotations, listed[2].annotations], [{ readOnlyHint: true }, {}])
  const answers = []
  for (const [, name, args] of CALLS) answers.push(await client.callTool({ name, arguments: args }))
  const text = (text) => ({ type: 'text', text })
  assert.deepEqual(answers, [
    { content: [text(OUTPUTS[0])] },
    { content: [text(OUTPUTS[1])] },
    { content: [text(OUTPUTS[2]), { type: 'image', data: PNG, mimeType: 'image/png' }] },
    { content: [text(OUTPUTS[3])], isError: true },
    { content: [text(OUTPUTS[4])], isError: true },
  ])
  // A cancelled request aborts its call.
  const started = deferred()
  const aborted = deferred()
  registry.register(define('wait'), async (_args, { signal }) => {
    signal.addEventListener('abort', () => aborted.resolve())
    started.resolve()
    await aborted.promise
    return ''
  })
  const controller = new AbortController()
  const waiting = client.callTool({ name: 'wait' }, undefined, { signal: controller.signal })
  await started.promise
  controller.abort()
  await assert.rejects(waiting)
  await aborted.promise
  await client.close()
})

test('the Vercel AI SDK runs the tools by itself', async () => {
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } }
  const finish = (unified) => ({ unified, raw: unified })
  const replies = [
    {
      content: CALLS.slice(0, 4).map(([toolCallId, toolName, args]) => ({
        type: 'tool-call',
        toolCallId,
        toolName,
        input: JSON.stringify(args),
      })),
      finishReason: finish('tool-calls'),
    },
    { content: [{ type: 'text', text: 'done' }], finishReason: finish('stop') },
  ]
  const asked = []
  const model = new MockLanguageModelV3({
    doGenerate: async (options) => {
      asked.push(options)
      return { ...replies[asked.length - 1], usage, warnings: [] }
    },
  })
  const registry = tools()
  const result = await generateText({ model, prompt: 'go', tools: toVercelTools(registry), stopWhen: stepCountIs(3) })
  assert.equal(result.text, 'done')
  const [first, second] = asked
  assert.deepEqual(
    first.tools.map((tool) => [tool.type, tool.name]),
    [
      ['function', 'mcp__notes__add'],
      ['function', 'sum'],
      ['function', 'look'],
    ],
  )
  assert.deepEqual(first.tools[0].inputSchema, addSchema)
  const results = second.prompt.filter((message) => message.role === 'tool').flatMap((message) => message.content)
  const told = Object.fromEntries(results.map(({ toolCallId, output }) => [toolCallId, output]))
  assert.deepEqual(
    [told.c1, told.c2],
    [
      { type: 'text', value: OUTPUTS[0] },
      { type: 'text', value: OUTPUTS[1] },
    ],
  )
  assert.equal(told.c3.type, 'content')
  assert.deepEqual(told.c3.value[0], { type: 'text', text: 'a dot' })
  assert.equal(told.c3.value[1].data, PNG)
  assert.deepEqual(told.c4, { type: 'error-text', value: OUTPUTS[3] })
  const failed = result.steps[0].content.find((part) => part.type === 'tool-error')
  assert.equal(failed.error.code, 'TOOL_EXECUTION_ERROR')
})

test('images can be left out, and are named then', async () => {
  const registry = tools()
  const options = { images: false }
  const text = 'a dot\n[image, image/png, not shown]'
  const openai = [{ id: 'c', type: 'function', function: { name: 'look', arguments: '' } }]
  assert.deepEqual(await runOpenAIToolCalls(registry, openai, options), [
    { role: 'tool', tool_call_id: 'c', content: text },
  ])
  const items = [{ type: 'function_call', call_id: 'c', name: 'look', arguments: '{}' }]
  assert.equal((await runOpenAIResponsesToolCalls(registry, items, options))[0].output, text)
  const blocks = [{ type: 'tool_use', id: 'c', name: 'look', input: {} }]
  assert.equal((await runAnthropicToolCalls(registry, blocks, options))[0].content, text)
  assert.deepEqual((await runMcpToolCall(registry, { name: 'look' }, options)).content, [{ type: 'text', text }])
})

test('findings of hooks are told with the result, and tools that come later are there', async () => {
  const hooks = createHookSystem()
  hooks.register('tool.result.validate', ({ request }) => [`${request.name} was looked at`])
  const registry = tools({ hooks })
  const call = (name, args = {}) => [{ type: 'tool_use', id: 'c', name, input: args }]
  const [found] = await runAnthropicToolCalls(registry, call('sum', { a: 1 }))
  assert.equal(found.content, '1\n\nsum was looked at')
  registry.register(define('mcp:late/one'), async () => 'late')
  assert.equal(
    (await runAnthropicToolCalls(registry, call('mcp__late__one')))[0].content,
    'late\n\nmcp:late/one was looked at',
  )
  registry.unregister('mcp:late/one')
  assert.equal(toMcpTools(registry).length, 3)
  assert.match((await runAnthropicToolCalls(registry, call('mcp__late__one')))[0].content, /Tool not found/)
})

test('what is no registry, no list or no option is refused', async () => {
  const registry = tools()
  for (const make of [toOpenAITools, toOpenAIResponsesTools, toAnthropicTools, toMcpTools, toVercelTools])
    assert.throws(() => make({}), { code: 'CONFIG_VALIDATION' })
  await assert.rejects(runOpenAIToolCalls(registry, 'x'), /toolCalls: expected a list, got string "x"/)
  await assert.rejects(runAnthropicToolCalls(registry, [], { image: true }), /image: unknown field/)
  await assert.rejects(runMcpToolCall(registry, 'sum'), /params: expected \{name, arguments\}/)
  assert.deepEqual(await runOpenAIToolCalls(registry, undefined), [])
  const nameless = [{ id: 'n', type: 'function' }]
  const told = { role: 'tool', tool_call_id: 'n', content: 'Malformed tool call: name: expected a string, got nothing' }
  assert.deepEqual(await runOpenAIToolCalls(registry, nameless), [told])
  assert.deepEqual(await runAnthropicToolCalls(registry, 'only words'), [])
})
