/**
 * A language model of the Vercel AI SDK as a model of a server. The SDK itself is not needed: its models say in which version
 * of their interface they speak (`v2` of AI SDK 5, `v3` of 6, `v4` of 7), and these differ in little.
 */
'use strict'

const { assertFits, describe, fn, optional, plain, shape } = require('./check.cjs')
const { invalid, simseError } = require('./errors.cjs')
const { FACTS, modelName } = require('./models.cjs')

const VERSIONS = ['v2', 'v3', 'v4']
/** What `callOptions` may not set: it is the request's. */
const OWN = ['prompt', 'tools', 'toolChoice', 'abortSignal', 'includeRawChunks']

const anyOptions = (value, path, issues) => {
  if (typeof value === 'function') return
  if (!plain(value))
    return void issues.push({ path, message: `expected an object or a function, got ${describe(value)}` })
  for (const name of OWN)
    if (Object.hasOwn(value, name))
      issues.push({ path: `${path}.${name}`, message: 'expected nothing, because it belongs to the request' })
}
const optionsShape = shape({ name: optional(modelName), ...FACTS, callOptions: optional(anyOptions) })

function checkModel(model) {
  const issues = []
  if (typeof model === 'string')
    issues.push({
      path: 'model',
      message: `expected a model object such as openai('gpt-5') makes, got the name ${JSON.stringify(model)}`,
    })
  else if (!plain(model) && typeof model !== 'function')
    issues.push({ path: 'model', message: `expected a language model of the AI SDK, got ${describe(model)}` })
  else {
    if (!VERSIONS.includes(model.specificationVersion))
      issues.push({
        path: 'model.specificationVersion',
        message: `expected one of ${VERSIONS.map((v) => `"${v}"`).join(', ')}, got ${describe(model.specificationVersion)}`,
      })
    fn(model.doStream, 'model.doStream', issues)
  }
  if (issues.length > 0) throw invalid('fromVercelModel', issues)
}

/** `provider/model`, without what an id has no room for. */
const nameOf = ({ provider, modelId }) =>
  `${String(provider || 'vercel').replace(/[\s/]+/g, '-')}/${String(modelId || 'model').replace(/\s+/g, '-')}`.slice(
    0,
    200,
  )

// ── The request ─────────────────────────────────────────────────────────────────────────────────

const filePart = (version, { mediaType, data }) => ({
  type: 'file',
  mediaType,
  data: version === 'v4' ? { type: 'data', data } : data,
})

const userPart = (version) => (part) =>
  part.type === 'image' ? filePart(version, part) : { type: 'text', text: part.text }

/** Whether a call that its provider called `given` may be called `id`: ids that are there twice have a number behind them. */
const isNamed = (given, id) => id === given || id.startsWith(`${given || 'call'}_`) || (!given && id === 'call')

/**
 * A reply in the words of its provider. It is the provider's to say what it wants back, and ours what was called: where the two
 * differ, the reply is told without them.
 */
function ownWords({ original, toolCalls = [] }) {
  if (!Array.isArray(original)) return undefined
  const called = original.filter((part) => part.type === 'tool-call')
  const same =
    called.length === toolCalls.length && called.every((part, at) => isNamed(part.toolCallId, toolCalls[at].id))
  if (!same) return undefined
  const calls = toolCalls.values()
  return original.map((part) => {
    if (part.type !== 'tool-call') return part
    const { id, name, arguments: input } = calls.next().value
    return { ...part, toolCallId: id, toolName: name, input }
  })
}

function assistantMessage(message) {
  const { content, toolCalls = [] } = message
  const own = ownWords(message)
  if (own) return { role: 'assistant', content: own }
  const texts = content === '' ? [] : [{ type: 'text', text: content }]
  const calls = toolCalls.map(({ id, name, arguments: input }) => ({
    type: 'tool-call',
    toolCallId: id,
    toolName: name,
    input,
  }))
  return { role: 'assistant', content: [...texts, ...calls] }
}

const resultPart = ({ toolCallId, toolName, content, isError }) => ({
  type: 'tool-result',
  toolCallId,
  toolName,
  output: { type: isError ? 'error-text' : 'text', value: content },
})

/**
 * A conversation as the SDK has it. Results that follow each other are one message, as their calls were; what they show comes
 * behind them, because some providers would write an image in a result out as text.
 */
function promptOf({ system, messages }, version) {
  const prompt = system === '' ? [] : [{ role: 'system', content: system }]
  let shown = []
  const showAll = () => {
    if (shown.length > 0) prompt.push({ role: 'user', content: shown })
    shown = []
  }
  for (const message of messages) {
    if (message.role !== 'tool_result') {
      showAll()
      if (message.role === 'assistant') prompt.push(assistantMessage(message))
      else {
        const parts = message.parts ?? [{ type: 'text', text: message.content }]
        prompt.push({ role: 'user', content: parts.map(userPart(version)) })
      }
      continue
    }
    const last = prompt.at(-1)
    if (last?.role === 'tool') last.content.push(resultPart(message))
    else prompt.push({ role: 'tool', content: [resultPart(message)] })
    const images = (message.parts ?? []).filter((part) => part.type === 'image')
    if (images.length > 0) {
      const label = { type: 'text', text: `What ${message.toolName} (call ${message.toolCallId}) shows:` }
      shown.push(label, ...images.map((image) => filePart(version, image)))
    }
  }
  showAll()
  return prompt
}

/** How much it is to think, in the words of its version. */
function reasoningOf({ reasoning }, model) {
  if (reasoning === 'auto') return {}
  if (model.specificationVersion === 'v4') return { reasoning }
  const provider = String(model.provider).split('.')[0].trim()
  return { providerOptions: { [provider]: { reasoningEffort: reasoning } } }
}

/** Options of providers by provider, the later ones over the earlier. */
function mergeProviders(ours, theirs) {
  if (ours === undefined || theirs === undefined) return ours ?? theirs
  const merged = { ...ours }
  for (const [name, options] of Object.entries(theirs)) merged[name] = { ...merged[name], ...options }
  return merged
}

function callOptions(model, request, signal, given) {
  const more = (typeof given === 'function' ? given(request) : given) ?? {}
  const tools = request.tools.map(({ name, description, parameters }) => ({
    type: 'function',
    name,
    description,
    inputSchema: parameters,
  }))
  const thinking = reasoningOf(request, model)
  const { outputSchema } = request
  const providerOptions = mergeProviders(thinking.providerOptions, more.providerOptions)
  return {
    ...thinking,
    ...more,
    ...(providerOptions && { providerOptions }),
    prompt: promptOf(request, model.specificationVersion),
    ...(outputSchema && { responseFormat: { type: 'json', schema: outputSchema, name: 'answer' } }),
    ...(tools.length > 0 && { tools, toolChoice: { type: 'auto' } }),
    includeRawChunks: false,
    abortSignal: signal,
  }
}

// ── The answer ──────────────────────────────────────────────────────────────────────────────────

const REASONS = { stop: 'end_turn', 'tool-calls': 'tool_use', length: 'length', 'content-filter': 'content_filter' }

/** Tokens are numbers in `v2`, and objects with a `total` since. */
const tokens = (value) => {
  const total = plain(value) ? value.total : value
  return Number.isSafeInteger(total) && total >= 0 ? total : undefined
}

function usageOf(usage) {
  if (!plain(usage)) return undefined
  const told = {
    inputTokens: tokens(usage.inputTokens),
    outputTokens: tokens(usage.outputTokens),
    totalTokens: tokens(usage.totalTokens),
    cachedInputTokens: tokens(usage.inputTokens?.cacheRead ?? usage.cachedInputTokens),
    cacheWriteTokens: tokens(usage.inputTokens?.cacheWrite),
    reasoningTokens: tokens(usage.outputTokens?.reasoning ?? usage.reasoningTokens),
  }
  const known = Object.entries(told).filter(([, value]) => value !== undefined)
  return known.length > 0 ? Object.fromEntries(known) : undefined
}

const broken = (message) => simseError('PROVIDER_UNAVAILABLE', message)

/** Makes chunks of a stream's parts. */
class Translator {
  finished = false
  /** Calls whose arguments have begun and are not whole. */
  #begun = new Map()
  /** The reply as the provider wants it back, and those parts of it by their ids that are not whole. */
  #parts = []
  #open = new Map()
  /** Something in it is the provider's own. */
  #marked = false

  /** The chunks of one part: none, one or some. */
  take(part) {
    switch (part?.type) {
      case 'text-start':
      case 'text-end':
      case 'reasoning-start':
      case 'reasoning-end':
        this.#keep(part)
        return []
      case 'text-delta':
        this.#keep(part)
        return [part.delta]
      case 'reasoning-delta':
        this.#keep(part)
        return [{ type: 'reasoning', text: part.delta }]
      case 'tool-input-start':
        if (!part.providerExecuted) this.#begun.set(part.id, { id: part.id, name: part.toolName, arguments: '' })
        return []
      case 'tool-input-delta': {
        const begun = this.#begun.get(part.id)
        if (begun) begun.arguments += part.delta
        return []
      }
      case 'tool-call':
        return this.#call(part)
      case 'finish':
        return this.#finish(part)
      case 'error':
        throw part.error ?? broken('its provider gave an error without saying which')
      default:
        // Sources, files, what its provider has run by itself: the conversation has no place for them.
        return []
    }
  }

  /** Adds a piece to the part that it belongs to. */
  #keep({ type, id, delta = '', providerMetadata }) {
    const kind = type.slice(0, type.indexOf('-'))
    const key = `${kind} ${id}`
    let kept = this.#open.get(key)
    if (kept === undefined) {
      kept = { type: kind, text: '' }
      this.#open.set(key, kept)
      this.#parts.push(kept)
    }
    kept.text += delta
    this.#mark(kept, providerMetadata)
    if (type.endsWith('-end')) this.#open.delete(key)
  }

  #mark(kept, providerMetadata) {
    if (!plain(providerMetadata)) return
    kept.providerOptions = mergeProviders(kept.providerOptions, providerMetadata)
    this.#marked = true
  }

  #call({ toolCallId, toolName, input, providerExecuted, providerMetadata }) {
    this.#begun.delete(toolCallId)
    if (providerExecuted) return []
    const kept = { type: 'tool-call', toolCallId }
    this.#parts.push(kept)
    this.#mark(kept, providerMetadata)
    return [{ type: 'tool_call', toolCall: { id: toolCallId, name: toolName, arguments: input ?? '' } }]
  }

  #finish({ finishReason, usage }) {
    const reason = plain(finishReason) ? finishReason.unified : finishReason
    if (reason === 'error') throw broken('its provider ended the answer with an error')
    this.finished = true
    const told = usageOf(usage)
    // What was cut off inside its arguments is told to the model, and not lost.
    const cut = [...this.#begun.values()].map((toolCall) => ({ type: 'tool_call', toolCall }))
    const end = { type: 'complete', finishReason: REASONS[reason] ?? 'end_turn', ...(told && { usage: told }) }
    // A call that was cut off is none that a provider would take back.
    const parts = this.#parts.filter(({ text, providerOptions }) => text !== '' || providerOptions !== undefined)
    const own = this.#marked && cut.length === 0 ? [{ type: 'original', items: parts }] : []
    return [...cut, ...own, end]
  }
}

/** An answer: an iterator that cancels the stream when it is left, also while it waits. */
class Answer {
  #reader
  #ready = []
  #translator = new Translator()

  constructor(stream) {
    this.#reader = stream.getReader()
  }

  [Symbol.asyncIterator]() {
    return this
  }

  async next() {
    while (this.#ready.length === 0) {
      if (this.#translator.finished) return { done: true, value: undefined }
      const { done, value } = await this.#reader.read()
      if (done) throw broken('its stream ended before the answer was whole')
      this.#take(value)
    }
    return { done: false, value: this.#ready.shift() }
  }

  #take(part) {
    try {
      this.#ready.push(...this.#translator.take(part))
    } catch (cause) {
      // Nobody reads on. How the cancelling goes is of no interest beside this.
      this.#reader.cancel(cause).catch(() => {})
      throw cause
    }
  }

  async return() {
    this.#ready = []
    await this.#reader.cancel()
    return { done: true, value: undefined }
  }
}

/** A language model of the AI SDK as a model of a server. */
function fromVercelModel(model, options = {}) {
  checkModel(model)
  assertFits('fromVercelModel', optionsShape, options, 'options')
  const { name = nameOf(model), callOptions: given, ...facts } = options
  return Object.freeze({
    ...facts,
    name,
    async stream(request, signal) {
      const { stream } = await model.doStream(callOptions(model, request, signal, given))
      return new Answer(stream)
    },
  })
}

module.exports = { fromVercelModel }
