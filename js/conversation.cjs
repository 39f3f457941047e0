/** A conversation as a loop keeps it, and the pruner of its old outputs; what is pruned is decided in Rust, as in the server's own loop. */
'use strict'

const { native } = require('./bridge.cjs')
const {
  assertFits,
  boolean,
  describe,
  fn,
  integer,
  list,
  oneOf,
  optional,
  plain,
  shape,
  string,
  text,
} = require('./check.cjs')
const { invalid, messageOf, revive } = require('./errors.cjs')
const { toJson } = require('./json.cjs')

/** What a message begins with that sums up all before it. */
const SUMMARY = '[Conversation summary]\n'
/** From this share of the context window on, a conversation is too long. */
const FULL_PERCENT = 80

const count = optional(integer(0))
const optionsShape = shape({
  systemPrompt: optional(string),
  maxMessages: count,
  autoCompactChars: count,
  pruneMinimumTokens: count,
  pruneProtectTokens: count,
  pruneProtectTurns: count,
  pruneProtectedTools: optional(list(text)),
  tokenEstimator: optional(fn),
  contextWindowTokens: count,
})
const prunerShape = shape({
  protectRecentTurns: count,
  pruneProtectedTools: optional(list(text)),
  pruneMinimumTokens: count,
  pruneProtectTokens: count,
})

const ROLES = ['system', 'user', 'assistant', 'tool_result']
/** Fields beside these are handed on: hooks and models know more of them. */
const known = {
  role: oneOf(...ROLES),
  content: string,
  toolCallId: optional(string),
  toolName: optional(string),
  timestamp: optional((value, path, issues) => {
    if (typeof value !== 'number') issues.push({ path, message: `expected a number, got ${describe(value)}` })
  }),
  isError: optional(boolean),
}
const message = (value, path, issues) => {
  if (!plain(value)) return void issues.push({ path, message: `expected {role, content}, got ${describe(value)}` })
  for (const [field, check] of Object.entries(known)) check(value[field], path ? `${path}.${field}` : field, issues)
}
const messages = list(message)

// ── Pruning ─────────────────────────────────────────────────────────────────────────────────────

/** Calls Rust; its errors become ours. */
function ask(run) {
  try {
    return run()
  } catch (cause) {
    throw revive(cause)
  }
}

/** What is said of a message (src/node/context.rs). */
const USER = 0
const OTHER = 1
const SUMMED_UP = 2
const OUTPUT = 3
const STAYS = 4

/** What messages begin with that are blank already, or sum up all before them. */
let marks
function marked() {
  marks ??= JSON.parse(ask(() => native.pruneMarks()))
  return marks
}

/** Whether a message is one, quickly; what is wrong with one that is not says `assertFits`. */
function fits(value) {
  if (typeof value !== 'object' || value === null) return false
  const { role, content } = value
  if (typeof content !== 'string') return false
  if (role !== 'tool_result' && role !== 'assistant' && role !== 'user' && role !== 'system') return false
  const { toolCallId, toolName, timestamp, isError } = value
  return (
    (toolCallId === undefined || typeof toolCallId === 'string') &&
    (toolName === undefined || typeof toolName === 'string') &&
    (timestamp === undefined || typeof timestamp === 'number') &&
    (isError === undefined || typeof isError === 'boolean')
  )
}

/** What all marks begin with: `[`. */
const BRACKET = 91

/** What was seen of one conversation. It goes on while the messages are the same ones, with more behind them. */
class Look {
  #native
  #protected
  #seen = []
  /** How many of them nobody can change any more, as far as that was looked at. */
  #frozen = 0
  /** Where outputs go, and what stands there then. */
  #due = []
  #blank = []
  #prunes = false

  constructor({ pruneProtectedTools, ...options }) {
    this.#protected = new Set(pruneProtectedTools ?? [])
    this.#native = ask(() => new native.NativePruner(toJson(options)))
  }

  /** Messages that somebody could have changed since are looked at anew. */
  goesOn(all) {
    const seen = this.#seen
    if (all.length < seen.length) return false
    for (let at = seen.length - 1; at >= 0; at--) if (seen[at] !== all[at]) return false
    while (this.#frozen < seen.length) if (!Object.isFrozen(seen[this.#frozen++])) return false
    return true
  }

  prune(all) {
    const from = this.#seen.length
    const looks = new Uint32Array(2 * (all.length - from))
    for (let at = from, to = 0; at < all.length; at++) {
      const each = all[at]
      if (!fits(each)) assertFits('prune', messages, all, 'messages')
      looks[to++] = this.#kind(each)
      looks[to++] = each.content.length
    }
    if (from === 0) this.#seen = all.slice()
    else for (let at = from; at < all.length; at++) this.#seen.push(all[at])
    if (looks.length > 0)
      this.#take(
        all,
        ask(() => this.#native.add(looks)),
      )
    if (!this.#prunes) return all
    const pruned = all.slice()
    for (let n = 0; n < this.#due.length; n++) pruned[this.#due[n]] = this.#blank[n]
    return Object.freeze(pruned)
  }

  /** A summary ends what was due before it. */
  #take(all, told) {
    this.#prunes = told[0] === 1
    this.#due.length = told[1]
    this.#blank.length = told[1]
    const beginning = marked()[0]
    for (let n = 2; n < told.length; n++) {
      const whole = all[told[n]]
      const content = `${beginning}${whole.content.length} chars]`
      this.#due.push(told[n])
      this.#blank.push(Object.freeze('parts' in whole ? bare(whole, content) : { ...whole, content }))
    }
  }

  #kind({ role, content, toolName, toolCallId }) {
    const marks = content.charCodeAt(0) === BRACKET ? marked() : undefined
    if (role === 'tool_result') {
      if (this.#protected.size > 0 && this.#protected.has(toolName ?? toolCallId ?? '')) return STAYS
      return marks !== undefined && content.startsWith(marks[0]) ? STAYS : OUTPUT
    }
    if (marks?.some((mark, n) => n > 0 && content.startsWith(mark))) return SUMMED_UP
    return role === 'user' ? USER : OTHER
  }
}

/** What it showed goes with what it said. */
function bare({ parts: _, ...rest }, content) {
  return { ...rest, content }
}

/** Creates a pruner of old tool outputs. */
function createContextPruner(options = {}) {
  assertFits('createContextPruner', prunerShape, options, 'options')
  const given = { protectRecentTurns: 2, ...options }
  let look

  function prune(all) {
    if (!Array.isArray(all)) assertFits('prune', messages, all, 'messages')
    if (look === undefined || !look.goesOn(all)) look = new Look(given)
    try {
      return look.prune(all)
    } catch (cause) {
      // What it has seen of them by then counts for nothing.
      look = undefined
      throw cause
    }
  }

  return Object.freeze({ prune })
}

// ── The conversation ────────────────────────────────────────────────────────────────────────────

function headOf({ role, toolName, toolCallId }) {
  if (role === 'tool_result') return `[Tool Result: ${toolName ?? toolCallId}]`
  return { system: '[System]', user: '[User]', assistant: '[Assistant]' }[role]
}

/** Messages as one text. */
const serializeMessages = (all) => all.map((each) => `${headOf(each)}\n${each.content}`).join('\n\n')

/** What is over a limit goes, oldest first. Results never stay without the message that called for them, nor the newest ones go. */
function bounded(all, max) {
  if (max === 0 || all.length <= max) return all
  let from = all.length - max
  while (from < all.length && all[from].role === 'tool_result') from++
  if (from === all.length) {
    from = all.length - max
    while (from > 0 && all[from].role === 'tool_result') from--
  }
  return all.slice(from)
}

/** Conversation → its own pruner, for the loop. */
const pruners = new WeakMap()

/** What a conversation holds. */
class State {
  messages = []
  system = undefined

  constructor(options) {
    this.options = options
    this.systemPrompt = options.systemPrompt
  }

  add(fields) {
    assertFits('conversation', message, fields)
    this.messages = bounded([...this.messages, Object.freeze(fields)], this.options.maxMessages ?? 0)
  }

  all() {
    if (this.systemPrompt === undefined) return Object.freeze([...this.messages])
    // The same one again, so that who has seen it knows it.
    if (this.system?.content !== this.systemPrompt)
      this.system = Object.freeze({ role: 'system', content: this.systemPrompt })
    return Object.freeze([this.system, ...this.messages])
  }

  /** Takes others instead. A system message among them is the system prompt. */
  replace(given) {
    const others = given.filter(({ role }) => role !== 'system')
    const system = given.findLast(({ role }) => role === 'system')
    if (system !== undefined) this.systemPrompt = system.content
    const copies = others.map((each) => (Object.isFrozen(each) ? each : Object.freeze({ ...each })))
    this.messages = bounded(copies, this.options.maxMessages ?? 0)
  }

  read(json) {
    let data
    try {
      data = JSON.parse(json)
    } catch (cause) {
      throw invalid('fromJSON', [{ path: '', message: `expected JSON: ${messageOf(cause)}` }])
    }
    assertFits('fromJSON', shape({ systemPrompt: optional(string), messages }), data)
    this.systemPrompt = data.systemPrompt
    this.messages = []
    this.replace(data.messages)
  }

  get chars() {
    return this.messages.reduce((sum, { content }) => sum + content.length, this.systemPrompt?.length ?? 0)
  }

  get tokens() {
    const { tokenEstimator } = this.options
    if (tokenEstimator === undefined) return Math.ceil(this.chars / 4)
    const sum = this.all().reduce((sum, { content }) => sum + tokenEstimator(content), 0)
    if (!Number.isFinite(sum)) throw invalid('tokenEstimator', [{ path: '', message: 'expected it to give numbers' }])
    return sum
  }

  get percent() {
    const window = this.options.contextWindowTokens ?? 0
    return window === 0 ? 0 : Math.round((this.tokens / window) * 100)
  }

  get full() {
    return this.chars > (this.options.autoCompactChars ?? 100_000) || this.percent >= FULL_PERCENT
  }
}

/** Creates a conversation. */
function createConversation(options = {}) {
  assertFits('createConversation', optionsShape, options, 'options')
  const state = new State({ ...options })
  const conversation = Object.freeze({
    addUser: (content) => state.add({ role: 'user', content }),
    addAssistant: (content) => state.add({ role: 'assistant', content }),
    addToolResult: (toolCallId, toolName, content) => state.add({ role: 'tool_result', content, toolCallId, toolName }),
    setSystemPrompt(prompt) {
      assertFits('setSystemPrompt', string, prompt, 'prompt')
      state.systemPrompt = prompt
    },
    getSystemPrompt: () => state.systemPrompt,
    toMessages: () => state.all(),
    replaceMessages(all) {
      assertFits('replaceMessages', messages, all, 'messages')
      state.replace(all)
    },
    serialize: () => serializeMessages(state.all()),
    clear() {
      state.messages = []
    },
    compact(summary) {
      assertFits('compact', string, summary, 'summary')
      state.messages = [Object.freeze({ role: 'user', content: SUMMARY + summary })]
    },
    toJSON: () => JSON.stringify({ systemPrompt: state.systemPrompt, messages: state.messages }),
    fromJSON(json) {
      assertFits('fromJSON', string, json, 'json')
      state.read(json)
    },
    get messageCount() {
      return state.messages.length
    },
    get estimatedChars() {
      return state.chars
    },
    get estimatedTokens() {
      return state.tokens
    },
    get contextUsagePercent() {
      return state.percent
    },
    get needsCompaction() {
      return state.full
    },
  })
  pruners.set(
    conversation,
    createContextPruner({
      protectRecentTurns: options.pruneProtectTurns ?? 2,
      pruneProtectedTools: options.pruneProtectedTools ?? [],
      pruneMinimumTokens: options.pruneMinimumTokens ?? 20_000,
      pruneProtectTokens: options.pruneProtectTokens ?? 40_000,
    }),
  )
  return conversation
}

/** The pruner that a conversation was set up with; undefined for one that is not of ours. */
const prunerOf = (conversation) => pruners.get(conversation)

const countShape = shape({ model: text })

/** How many tokens a text has for a model. */
function countTokens(content, options) {
  assertFits('countTokens', string, content, 'text')
  assertFits('countTokens', countShape, options, 'options')
  return ask(() => native.countTokens(content, options.model))
}

module.exports = { countTokens, createConversation, createContextPruner, prunerOf, serializeMessages }
