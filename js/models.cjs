/**
 * Models that are generators: what they may yield, how they are pulled, and what becomes of what they throw.
 *
 * What a generator yields without waiting crosses to Rust at once, in one batch; no more is pulled than Rust has room for.
 */
'use strict'

const { boolean, describe, fn, integer, number, oneOf, optional, plain, shape, string, text } = require('./check.cjs')
const { messageOf } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { failureOf } = require('./model-failure.cjs')
const { NoStream, Pull } = require('./pull.cjs')

const FINISH_REASONS = Object.freeze(['end_turn', 'tool_use', 'length', 'content_filter', 'refusal'])
/** Chunks of one batch, and about how many units of text. */
const BATCH_CHUNKS = 64
const BATCH_UNITS = 32_768
/** Milliseconds, at most a day. */
const MS_MAX = 86_400_000

// ── What is given ───────────────────────────────────────────────────────────────────────────────

const NAME = /^(?:[^\s/\p{Cc}]+\/)?[^\s\p{Cc}/][^\s\p{Cc}]{0,199}$/u
const OTHERS = /^(?:acp|demo)\//
const modelName = (value, path, issues) => {
  if (typeof value !== 'string' || !NAME.test(value) || value.length > 200)
    issues.push({
      path,
      message: `expected a name or "provider/name" of at most 200 characters without blanks, got ${describe(value)}`,
    })
  else if (OTHERS.test(value))
    issues.push({ path, message: `expected another provider than "${value.split('/')[0]}", which is ours` })
}

const tokenLimit = optional(integer(1))
const price = number(0, Number.MAX_SAFE_INTEGER)
const FACTS = {
  label: optional(text),
  contextTokens: tokenLimit,
  outputTokens: tokenLimit,
  images: optional(boolean),
  reasoning: optional(boolean),
  structuredOutput: optional(boolean),
  prices: optional(shape({ input: price, output: price, cacheRead: optional(price), cacheWrite: optional(price) })),
}
const FIELDS = { name: modelName, stream: fn, ...FACTS }
const literal = shape(FIELDS)

/** One of a class may keep more in itself than is ours to know; of a literal every field is meant for us. */
function anyModel(value, path, issues) {
  if (!plain(value)) return void issues.push({ path, message: `expected {name, stream}, got ${describe(value)}` })
  const above = Object.getPrototypeOf(value)
  if (above === Object.prototype || above === null) return literal(value, path, issues)
  for (const [key, check] of Object.entries(FIELDS)) check(value[key], `${path}.${key}`, issues)
}

/** The id of a model that is given by this name. */
const modelId = (name) => (name.includes('/') ? name : `js/${name}`)

/** A list of models, each with an id of its own. */
function modelList(value, path, issues) {
  if (!Array.isArray(value)) return void issues.push({ path, message: `expected an array, got ${describe(value)}` })
  const ids = []
  for (const [i, model] of value.entries()) {
    anyModel(model, `${path}.${i}`, issues)
    const id = typeof model?.name === 'string' ? modelId(model.name) : undefined
    if (id !== undefined && ids.includes(id))
      issues.push({ path: `${path}.${i}.name`, message: `expected a name of its own, got "${model.name}" once more` })
    ids.push(id)
  }
}

/** What Rust is told of a model. */
const nativeModel = (model) => ({
  id: modelId(model.name),
  ...Object.fromEntries(Object.keys(FACTS).map((fact) => [fact, model[fact]])),
})

// ── What is yielded ─────────────────────────────────────────────────────────────────────────────

const count = optional(integer(0))
const usageShape = shape({
  inputTokens: count,
  outputTokens: count,
  totalTokens: count,
  cachedInputTokens: count,
  cacheWriteTokens: count,
  reasoningTokens: count,
})
const anyArguments = (value, path, issues) => {
  if (!plain(value) && typeof value !== 'string')
    issues.push({ path, message: `expected an object, or JSON in a string, got ${describe(value)}` })
}
const callShape = shape({ id: optional(string), name: text, arguments: optional(anyArguments) })
const type = string
/** What a model gives back to itself is its own affair; it has to have a form in JSON. */
function anyItems(value, path, issues) {
  if (!Array.isArray(value)) issues.push({ path, message: `expected an array, got ${describe(value)}` })
}

const CHUNKS = {
  delta: shape({ type, text: string }),
  reasoning: shape({ type, text: string }),
  tool_call: shape({ type, toolCall: callShape }),
  tool_call_delta: shape({
    type,
    index: optional(integer(0)),
    id: optional(string),
    name: optional(string),
    arguments: optional(string),
  }),
  usage: shape({ type, usage: usageShape }),
  original: shape({ type, items: anyItems }),
  complete: shape({ type, finishReason: optional(oneOf(...FINISH_REASONS)), usage: optional(usageShape) }),
  error: shape({
    type,
    message: text,
    code: optional(string),
    status: optional(integer(100, 599)),
    retryable: optional(boolean),
    retryAfterMs: optional(number(0, MS_MAX)),
  }),
}
const TYPES = Object.keys(CHUNKS)

const anyChunk = (value, path, issues) => {
  if (!plain(value))
    return void issues.push({ path, message: `expected a string or {type, …}, got ${describe(value)}` })
  if (typeof value.type !== 'string' || !Object.hasOwn(CHUNKS, value.type))
    return void oneOf(...TYPES)(value.type, path ? `${path}.type` : 'type', issues)
  CHUNKS[value.type](value, path, issues)
}

/** Arguments as JSON in a text. What has no form there is said. */
function argumentsText(args, at) {
  if (args === undefined || typeof args === 'string') return args
  try {
    return toJson(args)
  } catch (cause) {
    throw new BadChunk(`chunk ${at}: toolCall.arguments: cannot be written as JSON: ${messageOf(cause)}`)
  }
}

/** Items as they stand now, in a form that JSON has. */
function plainItems(items, at) {
  try {
    return JSON.parse(toJson(items))
  } catch (cause) {
    throw new BadChunk(`chunk ${at}: items: cannot be written as JSON: ${messageOf(cause)}`)
  }
}

/** Something was yielded that is no chunk. */
class BadChunk extends Error {}

/** What Rust reads (src/node/chunks.rs): copies, because a generator may change what it yields again. */
const WRITE = {
  delta: ({ text }) => [text],
  reasoning: ({ text }) => [{ type: 'reasoning', text }],
  tool_call: ({ toolCall: { id, name, arguments: args } }, at) => [
    { type: 'tool_call', id, name, arguments: argumentsText(args, at) },
  ],
  tool_call_delta: (chunk) => [{ ...chunk }],
  usage: ({ usage }) => [{ type: 'usage', ...usage }],
  original: ({ items }, at) => [{ type: 'original', items: plainItems(items, at) }],
  complete: ({ finishReason, usage }) => [
    ...(usage === undefined ? [] : [{ type: 'usage', ...usage }]),
    { type: 'complete', finishReason },
  ],
}

/** Chunks on their way to Rust. */
class Pump {
  /** Nobody wants more. */
  over = false
  #call
  #items = []
  #units = 0
  /** The first half of a character whose other half comes with the next piece: of its text, of its thoughts. */
  #halves = { text: '', reasoning: '' }

  constructor(call) {
    this.#call = call
  }

  /** Takes a text or an item; true: enough for one batch, which has gone. */
  add(item) {
    if (typeof item === 'string') return this.#addText('text', item, (text) => text)
    if (item.type === 'reasoning') return this.#addText('reasoning', item.text, (text) => ({ type: 'reasoning', text }))
    if (item.type === 'complete') this.end()
    return this.#push(item)
  }

  #addText(kind, piece, item) {
    const text = this.#halves[kind] + piece
    const cut = endsInHalf(text) ? text.length - 1 : text.length
    this.#halves[kind] = text.slice(cut)
    return cut > 0 && this.#push(item(text.slice(0, cut)))
  }

  /** No more pieces come: halves that wait stay halves. */
  end() {
    const { text, reasoning } = this.#halves
    this.#halves = { text: '', reasoning: '' }
    if (reasoning !== '') this.#push({ type: 'reasoning', text: reasoning })
    if (text !== '') this.#push(text)
  }

  #push(item) {
    // Runs when the generator waits: all that it yielded until then is one batch.
    if (this.#items.push(item) === 1) process.nextTick(this.flush)
    this.#units += typeof item === 'string' ? item.length : (item.text ?? item.arguments ?? '').length
    if (this.#items.length < BATCH_CHUNKS && this.#units < BATCH_UNITS) return false
    this.flush()
    return true
  }

  /** Waits until Rust has room for more; undefined where it has. */
  room() {
    return this.#call.room()
  }

  flush = () => {
    if (this.#items.length === 0) return
    const items = this.#items
    this.#items = []
    this.#units = 0
    if (!this.#call.push(toJson(items))) this.over = true
  }
}

/** Whether a text ends with the first half of a character. */
function endsInHalf(text) {
  const last = text.charCodeAt(text.length - 1)
  return last >= 0xd800 && last <= 0xdbff
}

const nextTurn = () => new Promise((resolve) => setImmediate(resolve))

// ── How it is pulled ────────────────────────────────────────────────────────────────────────────

/** Takes one chunk: true when it is the last one, a promise when the next one has to wait. */
function take(chunk, at, pump) {
  let full = false
  if (typeof chunk === 'string') full = pump.add(chunk)
  else {
    const issues = []
    anyChunk(chunk, '', issues)
    if (issues.length > 0) throw new BadChunk(`chunk ${at}: ${issues.map(said).join('; ')}`)
    // Thrown or yielded: it is the same.
    if (chunk.type === 'error') throw chunk
    for (const item of WRITE[chunk.type](chunk, at)) full = pump.add(item) || full
    if (chunk.type === 'complete') return true
  }
  // The signal is on its way, and the generator is to be left with it.
  if (pump.over) return new Promise(() => {})
  // A generator that never waits must not keep the thread from everything else.
  return full ? nextTurn().then(() => pump.room()) : pump.room()
}

const said = ({ path, message }) => (path ? `${path}: ${message}` : message)

/** How a model failed, as Rust reads it. */
function failure(cause, id) {
  if (cause instanceof BadChunk || cause instanceof NoStream)
    return { kind: 'malformed', message: `the model "${id}": ${cause.message}` }
  return failureOf(cause, id)
}

/** Runs a request to a model for Rust: answers with null, or with how it failed. */
async function runModel(model, request, call) {
  const id = modelId(model.name)
  const pump = new Pump(call)
  const { signal } = call
  const pull = new Pull({ name: 'stream', who: `the model "${id}"` })
  const make = () => model.stream(Object.freeze(request), signal)
  const ended = await pull
    .run(make, signal, (chunk, at) => take(chunk, at, pump))
    .then(
      () => null,
      (cause) => failure(cause, id),
    )
  pump.end()
  pump.flush()
  return toJson(ended)
}

module.exports = { FACTS, modelList, modelName, nativeModel, runModel }
