/**
 * The agentic loop: rounds with a client until it calls no more tools. The client speaks texts, so calls stand in them as `<tool_use>`
 * blocks; what is decided about calls, repetitions and old outputs is decided by the same code as in the server's own loop.
 */
'use strict'

const { createEventBus } = require('./bus.cjs')
const {
  assertFits,
  boolean,
  describe,
  fn,
  having,
  integer,
  optional,
  plain,
  shape,
  string,
  text,
} = require('./check.cjs')
const { prunerOf, serializeMessages } = require('./conversation.cjs')
const { messageOf, simseError } = require('./errors.cjs')
const { Calls } = require('./loop-calls.cjs')
const { readFailure } = require('./model-failure.cjs')
const { Pull } = require('./pull.cjs')

const NO_RESPONSE = 'No response received from model.'
/** The longest pause before another try, whatever is asked for. */
const PAUSE_MS_MAX = 30_000
const COMPACTION = `Sum up the conversation below for somebody who has to go on with it and sees nothing else. Keep: what the user wants, in the user's own words where they matter; what was decided and why; which files were looked at or changed, and how; what was tried and failed; what is still to be done, and the next step. Leave out greetings and repetitions. Answer with the summary alone.`

const retry = optional(shape({ maxAttempts: optional(integer(1, 100)), baseDelayMs: optional(integer(0, 86_400_000)) }))
const signalCheck = having('addEventListener', 'removeEventListener')
const optionsShape = shape({
  acpClient: having('generateStream'),
  toolRegistry: having('execute', 'batchExecute', 'parseToolCalls', 'formatForSystemPrompt'),
  conversation: having('addUser', 'addAssistant', 'addToolResult', 'toMessages', 'replaceMessages', 'compact'),
  logger: optional(having('warn')),
  maxTurns: optional(integer(1, 1_000_000)),
  serverName: optional(text),
  agentId: optional(text),
  systemPrompt: optional(string),
  signal: optional(signalCheck),
  autoCompact: optional(boolean),
  compactionProvider: optional(having('generate')),
  compactionPrompt: optional(string),
  contextPruner: optional(having('prune')),
  hooks: optional(having('run')),
  eventBus: optional(having('publish')),
  maxIdenticalToolCalls: optional(integer(0, 1_000_000)),
  streamRetry: retry,
  toolRetry: retry,
})
/** Members beside ours are let be: what a program subscribes to by them is on the bus. */
const callbacksCheck = (value, path, issues) => {
  if (!plain(value)) return void issues.push({ path, message: `expected an object, got ${describe(value)}` })
  for (const name of Object.keys(CALLBACKS)) optional(fn)(value[name], `${path}.${name}`, issues)
}

/** How often hooks can make one run go on (src/base/limit/hooks.rs). */
const CONTINUES_MAX = 8

/** Callback → the event that it hears, and what it is called with. */
const CALLBACKS = {
  onStreamStart: ['stream.start', () => []],
  onStreamDelta: ['stream.delta', ({ text }) => [text]],
  onToolCallStart: ['tool.call.start', ({ callId: id, name, args }) => [{ id, name, arguments: args }]],
  onToolCallEnd: ['tool.call.end', ({ callId: id, ...rest }) => [{ id, ...rest }]],
  onTurnComplete: ['turn.complete', (_, run) => [run.turns.at(-1)]],
  onCompaction: ['compaction.complete', (_, run) => [run.summary]],
  onDoomLoop: ['loop.doom_loop', ({ toolName, callCount }) => [toolName, callCount]],
  onError: ['error', (error) => [error]],
  onUsageUpdate: ['usage', (usage) => [usage]],
}

/** Numbers of two records, added by name. */
function plus(sum, more) {
  if (!plain(more)) return sum
  const added = { ...sum }
  for (const [name, value] of Object.entries(more))
    if (typeof value === 'number') added[name] = (added[name] ?? 0) + value
  return Object.freeze(added)
}

const asError = (thrown) =>
  thrown instanceof Error ? thrown : simseError('LOOP_ERROR', messageOf(thrown), { cause: thrown })

/** One run of a loop. */
class Run {
  turns = []
  summary = ''
  #inner = createEventBus()
  #finalText = ''
  #usage
  /** How often hooks have made it go on. */
  #continued = 0
  /** A summary did not help, or could not be had: once is enough. */
  #futile = false

  constructor(options, userInput, callbacks) {
    this.options = options
    this.userInput = userInput
    this.calls = new Calls(options, this.#inner, (ms) => this.#pause(ms))
    for (const [name, [type, argumentsOf]] of Object.entries(CALLBACKS)) {
      const callback = callbacks?.[name]
      if (callback) this.#inner.subscribe(type, (payload) => callback.apply(callbacks, argumentsOf(payload, this)))
    }
  }

  #publish(type, payload) {
    this.calls.bus.publish(type, payload)
  }

  get #aborted() {
    return this.options.signal?.aborted === true
  }

  /** Waits; false: the signal fired meanwhile. */
  #pause(ms) {
    const { signal } = this.options
    if (this.#aborted) return false
    return new Promise((resolve) => {
      const over = (whole) => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', aborted)
        resolve(whole)
      }
      const aborted = () => over(false)
      const timer = setTimeout(() => over(true), Math.min(ms, PAUSE_MS_MAX))
      signal?.addEventListener('abort', aborted)
    })
  }

  async run() {
    const began = performance.now()
    this.#publish('loop.start', {})
    try {
      const { totalTurns, hitTurnLimit = false, aborted = false } = await this.#answer()
      if (aborted) this.#publish('abort', { reason: messageOf(this.options.signal.reason ?? 'aborted') })
      this.#publish('loop.complete', { totalTurns, hitTurnLimit })
      return Object.freeze({
        finalText: this.#finalText,
        turns: Object.freeze([...this.turns]),
        totalTurns,
        hitTurnLimit,
        aborted,
        totalDurationMs: Math.round(performance.now() - began),
        ...(this.#usage && { totalUsage: this.#usage }),
      })
    } finally {
      this.calls.end()
    }
  }

  /** Takes the prompt as hooks leave it, and answers it. */
  async #answer() {
    const { conversation, hooks, signal } = this.options
    if (hooks !== undefined && !this.#aborted) {
      const given = { prompt: this.userInput }
      const said = await this.calls.gate('prompt.submit', given, given)
      if (said.blocked === true) {
        this.#fail(simseError('LOOP_ERROR', `the prompt was blocked by a hook: ${said.reason}`))
        return { totalTurns: 0 }
      }
      const { prompt = this.userInput, context = [] } = said
      this.userInput = [prompt, ...context.map((text) => `[Added by a hook]\n${text}`)].join('\n\n')
    }
    conversation.addUser(this.userInput)
    const ended = await this.#rounds()
    if (hooks !== undefined && !ended.aborted && signal?.aborted !== true && !ended.told) await this.#stops(ended)
    return ended
  }

  /** Tells hooks that the run ends; the texts with which one that is done goes on. */
  async #stops({ hitTurnLimit = false, done = false }) {
    const ended = done ? 'completed' : hitTurnLimit ? 'iteration_limit' : 'failed'
    const context = { ended, text: this.#finalText, rounds: this.turns.length, continued: this.#continued }
    const texts = await this.calls.hook('turn.stop', context, [])
    return done ? texts.filter((text) => typeof text === 'string' && text.trim() !== '') : []
  }

  /** Whether hooks make a run go on that would be done. */
  async #goesOn() {
    if (this.options.hooks === undefined || this.#aborted) return false
    const texts = await this.#stops({ done: true })
    if (texts.length === 0 || this.#aborted) return false
    if (this.#continued >= CONTINUES_MAX || this.turns.length >= this.options.maxTurns) return false
    this.#continued++
    this.options.conversation.addUser(texts.join('\n\n'))
    this.#publish('turn.continued', { texts })
    return true
  }

  async #rounds() {
    const { maxTurns } = this.options
    for (let turn = 1; turn <= maxTurns; turn++) {
      if (this.#aborted) return { totalTurns: turn - 1, aborted: true }
      await this.#shrink()
      const again = await this.#round(turn)
      if (this.#aborted && again !== 'done') return { totalTurns: this.turns.length, aborted: true }
      if (again === 'done' && (await this.#goesOn())) continue
      if (again !== 'on') return { totalTurns: turn, told: again === 'done' }
    }
    return { totalTurns: maxTurns, hitTurnLimit: true }
  }

  /** One round: `on` when another follows. */
  async #round(turn) {
    const began = performance.now()
    const { response, usage, error } = await this.#ask()
    const { conversation } = this.options
    if (this.#aborted) {
      // What there is of it was said all the same.
      if (response.trim() !== '') conversation.addAssistant(response)
      this.#finalText = this.calls.read(response).text || this.#finalText
      return 'over'
    }
    if (error !== undefined) {
      this.#fail(error)
      return 'over'
    }
    const end = (type, more) => this.#end({ turn, type, ...more, ...(usage && { usage }) }, began)
    if (response.trim() === '') {
      this.#finalText = NO_RESPONSE
      end('text', { text: NO_RESPONSE })
      this.#publishError(simseError('LOOP_ERROR', NO_RESPONSE))
      return 'over'
    }
    const reply = this.calls.read(response)
    conversation.addAssistant(response)
    if (reply.text !== '') this.#finalText = reply.text
    if (reply.toolCalls.length === 0 && reply.malformed === 0) {
      end('text', { text: reply.text })
      return 'done'
    }
    return this.#call(reply, end)
  }

  async #call(reply, end) {
    const advice = this.calls.judge(reply)
    const told = { continue: undefined, tell: advice.message, stop: 'the run was stopped' }[advice.action]
    const { results, findings } = await this.calls.answer(reply.toolCalls, told, this.options.signal)
    const { conversation } = this.options
    for (const { id, name, output, parts = [] } of results) {
      const images = parts
        .filter(({ type }) => type === 'image')
        .map(({ mediaType }) => `[image, ${mediaType}, not shown]`)
      conversation.addToolResult(id, name, [output, ...images].join('\n'))
    }
    const notes = [...unreadable(reply.malformed), ...findings]
    if (notes.length > 0) conversation.addUser(notes.join('\n\n'))
    end('tool_use', { text: reply.text, toolCalls: Object.freeze(reply.toolCalls), toolResults: results })
    if (advice.action !== 'stop') return 'on'
    this.#fail(simseError('LOOP_ERROR', advice.message))
    return 'over'
  }

  #end(turn, began) {
    this.turns.push(Object.freeze({ ...turn, durationMs: Math.round(performance.now() - began) }))
    this.#publish('turn.complete', { turn: turn.turn, type: turn.type })
  }

  #fail(error) {
    this.#finalText = `Error: ${messageOf(error)}`
    this.#publishError(asError(error))
  }

  #publishError(error) {
    this.#inner.publish('error', error)
  }

  // ── Asking ────────────────────────────────────────────────────────────────────────────────────

  /** Asks, and asks again when that may help: `{response, usage}`, with `error` when it did not. */
  async #ask() {
    const { maxAttempts, baseDelayMs } = this.options.streamRetry
    this.#publish('stream.start', {})
    for (let attempt = 1; ; attempt++) {
      const reply = { response: '', usage: undefined, error: undefined }
      try {
        await this.#listen(reply)
      } catch (cause) {
        reply.error = cause ?? simseError('LOOP_ERROR', 'the client failed without saying why')
      }
      const { kind, retryAfterMs = 0 } = reply.error === undefined ? {} : readFailure(reply.error)
      const delayMs = Math.min(Math.max(baseDelayMs * 2 ** (attempt - 1), retryAfterMs), PAUSE_MS_MAX)
      const last = kind !== 'transient' || attempt >= maxAttempts || this.#aborted
      if (!last) this.#publish('stream.retry', { attempt: attempt + 1, delayMs, error: messageOf(reply.error) })
      if (last || !(await this.#pause(delayMs))) {
        this.#publish('stream.complete', { text: reply.response })
        this.#count(reply.usage)
        return reply
      }
    }
  }

  #count(usage) {
    if (usage === undefined) return
    this.#usage = plus(this.#usage, usage)
    this.#inner.publish('usage', this.#usage)
  }

  async #listen(reply) {
    const { acpClient, serverName, agentId, signal } = this.options
    const prompt = await this.#prompt()
    const options = {
      ...(serverName && { serverName }),
      ...(agentId && { agentId }),
      ...(signal && { signal }),
      newSession: true,
    }
    const pull = new Pull({ name: 'generateStream', who: 'the client' })
    await pull.run(
      () => acpClient.generateStream(prompt, options),
      signal,
      (chunk) => this.#take(chunk, reply),
    )
  }

  #take(chunk, reply) {
    const { type, text } = typeof chunk === 'string' ? { type: 'delta', text: chunk } : (chunk ?? {})
    if (type === 'delta') {
      if (typeof text !== 'string')
        throw new TypeError(`generateStream: text: expected a string, got ${describe(text)}`)
      reply.response += text
      if (text !== '') this.#publish('stream.delta', { text })
    } else if (type === 'complete') {
      if (chunk.usage !== undefined) reply.usage = chunk.usage
    } else if (typeof type !== 'string')
      throw new TypeError(
        `generateStream: expected {type: 'delta', text} or {type: 'complete'}, got ${describe(chunk)}`,
      )
    // What an agent does with tools of its own is its own affair.
  }

  /** What the client is asked: the whole conversation as one text. */
  async #prompt() {
    const { conversation, hooks, toolRegistry } = this.options
    const all = conversation.toMessages()
    const own = this.options.systemPrompt ?? all.find(({ role }) => role === 'system')?.content
    const parts = [own, toolRegistry.formatForSystemPrompt()].filter((part) => part !== undefined && part !== '')
    let prompt = parts.join('\n\n')
    let messages = all.filter(({ role }) => role !== 'system')
    if (hooks !== undefined) {
      prompt = await this.calls.hook('prompt.system.transform', { prompt }, prompt)
      messages = await this.calls.hook('prompt.messages.transform', { messages }, messages)
    }
    const system = prompt === '' ? [] : [{ role: 'system', content: prompt }]
    return serializeMessages([...system, ...messages])
  }

  // ── What the model still gets to see ──────────────────────────────────────────────────────────

  /** Old outputs go; and where that is not enough, everything becomes a summary. */
  async #shrink() {
    const { conversation } = this.options
    const pruner = this.options.contextPruner ?? prunerOf(conversation)
    if (pruner !== undefined) {
      const before = conversation.toMessages()
      const after = pruner.prune(before)
      if (after !== before) {
        conversation.replaceMessages(after)
        this.#publish('compaction.prune', this.#size())
      }
    }
    if (!this.options.autoCompact || this.#futile || !conversation.needsCompaction) return
    try {
      await this.#compact()
    } catch (cause) {
      // The old context is still there.
      this.#futile = true
      this.#warn('the conversation could not be summed up', cause)
    }
  }

  #size() {
    const { messageCount, estimatedChars } = this.options.conversation
    return { messageCount, estimatedChars }
  }

  #warn(message, cause) {
    const { logger } = this.options
    if (logger) logger.warn(message, { cause })
    else console.warn(`simse: ${message}:`, cause)
  }

  async #compact() {
    const { conversation, hooks } = this.options
    const messages = conversation.toMessages().filter(({ role }) => role !== 'system')
    const last = messages.at(-1)
    const fresh = last?.role === 'user' && last.content === this.userInput
    const old = fresh ? messages.slice(0, -1) : messages
    if (old.length === 0) return
    const size = this.#size()
    const before = { trigger: 'threshold', ...size }
    const said = hooks === undefined ? {} : await this.calls.hook('session.compact.before', before, {})
    if (said.blocked === true) {
      this.#futile = true
      return
    }
    this.#publish('compaction.start', size)
    let summary = await this.#summarize(old, said.focus)
    if (hooks !== undefined) summary = await this.calls.hook('session.compacting', { messages: old, summary }, summary)
    if (summary.trim() === '') throw simseError('LOOP_ERROR', 'the summary is empty')
    conversation.compact(summary)
    // What is wanted stays in the words in which it was said.
    conversation.addUser(this.userInput)
    this.summary = summary
    this.#futile = conversation.needsCompaction
    this.#publish('compaction.complete', { summaryLength: summary.length })
  }

  async #summarize(messages, focus) {
    const { acpClient, compactionProvider, compactionPrompt = COMPACTION, serverName, agentId, signal } = this.options
    const task = focus ? `${compactionPrompt}\nWhat it is to keep above all: ${focus}` : compactionPrompt
    const prompt = `${task}\n\n${serializeMessages(messages)}`
    if (compactionProvider !== undefined) return textOf(await compactionProvider.generate(prompt, { signal }))
    let summary = ''
    const pull = new Pull({ name: 'generateStream', who: 'the client' })
    const make = () => acpClient.generateStream(prompt, { serverName, agentId, signal, newSession: true })
    await pull.run(make, signal, (chunk) => {
      const piece = typeof chunk === 'string' ? chunk : chunk?.type === 'delta' && chunk.text
      if (typeof piece === 'string') summary += piece
    })
    return summary
  }
}

/** What a provider of texts gave: a text, or an object that holds one. */
function textOf(given) {
  const text = [given, given?.content, given?.text].find((value) => typeof value === 'string')
  if (text === undefined) throw new TypeError(`compactionProvider.generate: expected a text, got ${describe(given)}`)
  return text
}

const unreadable = (count) =>
  count === 0
    ? []
    : [
        `${count === 1 ? 'A <tool_use> block' : `${count} <tool_use> blocks`} in your reply could not be read and nothing was run for it: the body must be one JSON object with "id", "name" and "arguments". Write it again.`,
      ]

/** Creates an agentic loop. */
function createAgenticLoop(options) {
  assertFits('createAgenticLoop', optionsShape, options, 'options')
  const given = {
    maxTurns: 10,
    autoCompact: false,
    maxIdenticalToolCalls: 3,
    ...options,
    streamRetry: { maxAttempts: 2, baseDelayMs: 1000, ...options.streamRetry },
    toolRetry: { maxAttempts: 2, baseDelayMs: 500, ...options.toolRetry },
  }
  let running = false

  async function run(userInput, callbacks) {
    assertFits('run', string, userInput, 'userInput')
    assertFits('run', optional(callbacksCheck), callbacks, 'callbacks')
    if (running)
      throw simseError('LOOP_ERROR', 'this loop is running already: its conversation has one voice at a time')
    running = true
    try {
      return await new Run(given, userInput, callbacks).run()
    } finally {
      running = false
    }
  }

  return Object.freeze({ run })
}

module.exports = { createAgenticLoop }
