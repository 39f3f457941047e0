/**
 * A registry in the forms of other interfaces: OpenAI's (chat completions and Responses), Anthropic's, MCP's, and the
 * Vercel AI SDK's. One function makes the tools, one runs the calls that come back, and gives the answers in the same form.
 *
 * Names go out in letters that all of them take (`mcp:files/read` as `mcp__files__read`), and come back as ours.
 */
'use strict'

const { assertFits, describe, boolean, having, integer, optional, plain, shape } = require('./check.cjs')
const { invalid, simseError } = require('./errors.cjs')
const { stateOf } = require('./registry.cjs')

const optionsShape = optional(
  shape({
    signal: optional(having('addEventListener')),
    maxConcurrency: optional(integer(1)),
    images: optional(boolean),
  }),
)

/** A registry's tools as models' interfaces take them, and the way back from their names. Kept until the tools change. */
function wired(registry, what) {
  const state = stateOf(registry, what)
  if (state.wired?.version !== state.version) {
    const text = state.native.wireTools()
    const ours = new Map(JSON.parse(text).map((tool) => [tool.wireName, tool.name]))
    state.wired = { version: state.version, text, ours }
  }
  return state.wired
}

/** The tools, new each time: whoever gets them may change them. */
function toolsOf(registry, what) {
  return JSON.parse(wired(registry, what).text).map((tool) => ({
    ...tool,
    schema: tool.schema,
  }))
}

/** Arguments as an interface has them, read: an object, or why it is none. */
function readArguments(given) {
  let args = given ?? {}
  if (typeof given === 'string') {
    try {
      args = given.trim() === '' ? {} : JSON.parse(given)
    } catch (cause) {
      return { problem: `the arguments are not JSON: ${cause.message}` }
    }
  }
  return plain(args) ? { args } : { problem: `the arguments are no object, but ${describe(args)}` }
}

function listOf(value, what, path) {
  if (value == null) return []
  if (Array.isArray(value)) return value
  throw invalid(what, [{ path, message: `expected a list, got ${describe(value)}` }])
}

/** Runs calls `{id, name, given}`, in their order; one result for each. */
async function runAll(registry, asked, options, what) {
  const { ours } = wired(registry, what)
  assertFits(what, optionsShape, options, 'options')
  const { signal, maxConcurrency } = options ?? {}
  const read = asked.map(({ id, name, given }) => ({ id, name: ours.get(name) ?? name, ...readArguments(given) }))
  const calls = read.filter((call) => call.args).map(({ id, name, args }) => ({ id, name, arguments: args }))
  const ran = await registry.batchExecute(calls, { signal, ...(maxConcurrency && { maxConcurrency }) })
  let next = 0
  return read.map(({ id, name, problem }) => {
    if (!problem) return withFindings(ran[next++])
    return { id, name, output: `Tool "${name}" execution failed: ${problem}`, isError: true }
  })
}

/** What hooks found in a result is told with it: these interfaces have no other place for it. */
function withFindings(result) {
  if (result.findings === undefined) return result
  return { ...result, output: [result.output, ...result.findings].filter((text) => text !== '').join('\n\n') }
}

const imagesOf = ({ parts = [] }, options) =>
  options?.images === false ? [] : parts.filter((part) => part.type === 'image')
const dataUrl = ({ mediaType, data }) => `data:${mediaType};base64,${data}`

/** What a model is told of a result whose images are left out. */
function textOf(result, options) {
  const images = (result.parts ?? []).filter((part) => part.type === 'image')
  if (options?.images !== false || images.length === 0) return result.output
  return `${result.output}\n${images.map((image) => `[image, ${image.mediaType}, not shown]`).join('\n')}`
}

/** The tools of a registry for chat completions. */
function toOpenAITools(registry) {
  return toolsOf(registry, 'toOpenAITools').map(({ wireName, description, schema }) => ({
    type: 'function',
    function: { name: wireName, description, parameters: schema },
  }))
}

/** Runs the `tool_calls` of a chat completion's message: the messages that answer it. */
async function runOpenAIToolCalls(registry, toolCalls, options) {
  const what = 'runOpenAIToolCalls'
  const calls = listOf(toolCalls, what, 'toolCalls').filter((call) => call?.type === 'function')
  const asked = calls.map(({ id, function: called }) => ({ id, name: called?.name, given: called?.arguments }))
  const results = await runAll(registry, asked, options, what)
  const messages = results.map((result) => ({
    role: 'tool',
    tool_call_id: result.id,
    content: textOf(result, options),
  }))
  // A tool's message holds no images here, and all of them have to follow the calls at once.
  const shown = results.flatMap((result) => {
    const images = imagesOf(result, options)
    const label = { type: 'text', text: `What ${result.name} (call ${result.id}) shows:` }
    return images.length === 0
      ? []
      : [label, ...images.map((image) => ({ type: 'image_url', image_url: { url: dataUrl(image) } }))]
  })
  return shown.length === 0 ? messages : [...messages, { role: 'user', content: shown }]
}

/** The tools of a registry for the Responses interface. */
function toOpenAIResponsesTools(registry) {
  return toolsOf(registry, 'toOpenAIResponsesTools').map(({ wireName, description, schema }) => ({
    type: 'function',
    name: wireName,
    description,
    parameters: schema,
    strict: false,
  }))
}

/** Runs the function calls in a response's `output`: the input items that answer them. */
async function runOpenAIResponsesToolCalls(registry, output, options) {
  const what = 'runOpenAIResponsesToolCalls'
  const calls = listOf(output, what, 'output').filter((item) => item?.type === 'function_call')
  const asked = calls.map(({ call_id: id, name, arguments: given }) => ({ id, name, given }))
  return (await runAll(registry, asked, options, what)).map((result) => {
    const images = imagesOf(result, options)
    const text = textOf(result, options)
    const shown = images.map((image) => ({ type: 'input_image', image_url: dataUrl(image), detail: 'auto' }))
    const told = images.length === 0 ? text : [{ type: 'input_text', text }, ...shown]
    return { type: 'function_call_output', call_id: result.id, output: told }
  })
}

/** The tools of a registry for Anthropic's Messages interface. */
function toAnthropicTools(registry) {
  return toolsOf(registry, 'toAnthropicTools').map(({ wireName, description, schema }) => ({
    name: wireName,
    description,
    input_schema: schema,
  }))
}

/** Runs the `tool_use` blocks in a message's `content`: the blocks of the user's message that answers it. */
async function runAnthropicToolCalls(registry, content, options) {
  const what = 'runAnthropicToolCalls'
  const blocks = typeof content === 'string' ? [] : listOf(content, what, 'content')
  const calls = blocks.filter((block) => block?.type === 'tool_use')
  const asked = calls.map(({ id, name, input }) => ({ id, name, given: input }))
  return (await runAll(registry, asked, options, what)).map((result) => {
    const text = textOf(result, options)
    const images = imagesOf(result, options).map(({ mediaType, data }) => ({
      type: 'image',
      source: { type: 'base64', media_type: mediaType, data },
    }))
    // An empty text block is refused there.
    const texts = text === '' ? [] : [{ type: 'text', text }]
    const told = images.length === 0 ? text : [...texts, ...images]
    return {
      type: 'tool_result',
      tool_use_id: result.id,
      content: told,
      ...(result.isError && { is_error: true }),
    }
  })
}

/** The tools of a registry as an MCP server lists them. */
function toMcpTools(registry) {
  return toolsOf(registry, 'toMcpTools').map(({ wireName, description, schema, annotations }) => {
    const { title, readOnly, destructive } = annotations
    const hints = {
      ...(title !== undefined && { title }),
      ...(readOnly !== undefined && { readOnlyHint: readOnly }),
      ...(destructive !== undefined && { destructiveHint: destructive }),
    }
    return { name: wireName, description, inputSchema: schema, annotations: hints }
  })
}

let lastMcpCall = 0

/** Runs the call of a `tools/call` request: its result. */
async function runMcpToolCall(registry, params, options) {
  const what = 'runMcpToolCall'
  if (!plain(params) || typeof params.name !== 'string')
    throw invalid(what, [{ path: 'params', message: `expected {name, arguments}, got ${describe(params)}` }])
  lastMcpCall += 1
  const asked = { id: `mcp_${lastMcpCall}`, name: params.name, given: params.arguments }
  const [result] = await runAll(registry, [asked], options, what)
  const images = imagesOf(result, options).map(({ mediaType, data }) => ({ type: 'image', data, mimeType: mediaType }))
  return {
    content: [{ type: 'text', text: textOf(result, options) }, ...images],
    ...(result.isError && { isError: true }),
  }
}

/** The AI SDK knows its own schemas by this mark; another that is no such schema would have its objects closed. */
const VERCEL_SCHEMA = Symbol.for('vercel.ai.schema')

/** A JSON Schema as the AI SDK takes one. Arguments are held against it by the registry, which tells the model in full. */
function vercelSchema(schema) {
  const validate = (value) => ({ value })
  const jsonSchema = { input: () => schema, output: () => schema }
  return {
    [VERCEL_SCHEMA]: true,
    _type: undefined,
    jsonSchema: schema,
    validate: undefined,
    '~standard': { version: 1, vendor: 'simse', validate, jsonSchema },
  }
}

/** What the AI SDK tells a model of a result. */
function vercelOutput(result, options) {
  const images = imagesOf(result, options)
  if (images.length === 0) return { type: 'text', value: textOf(result, options) }
  const shown = images.map(({ mediaType, data }) => ({ type: 'image-data', data, mediaType }))
  return { type: 'content', value: [{ type: 'text', text: result.output }, ...shown] }
}

/** The tools of a registry as a `ToolSet` of the AI SDK, which runs them by itself. */
function toVercelTools(registry, options) {
  const what = 'toVercelTools'
  assertFits(what, optional(shape({ images: optional(boolean) })), options, 'options')
  const toModelOutput = ({ output }) => vercelOutput(output, options)
  const tool = ({ wireName, name, description, schema, annotations: { title } }) => {
    const execute = async (input, { toolCallId, abortSignal } = {}) => {
      const [result] = await runAll(registry, [{ id: toolCallId, name, given: input }], { signal: abortSignal }, what)
      if (!result.isError) return result
      // A failure is thrown there, and becomes a `tool-error` that the model is told.
      throw simseError('TOOL_EXECUTION_ERROR', result.output, { metadata: { tool: name } })
    }
    const made = { description, inputSchema: vercelSchema(schema), execute, toModelOutput }
    return [wireName, title === undefined ? made : { ...made, title }]
  }
  return Object.fromEntries(toolsOf(registry, what).map(tool))
}

module.exports = {
  toOpenAITools,
  runOpenAIToolCalls,
  toOpenAIResponsesTools,
  runOpenAIResponsesToolCalls,
  toAnthropicTools,
  runAnthropicToolCalls,
  toMcpTools,
  runMcpToolCall,
  toVercelTools,
}
