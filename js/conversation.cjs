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
/** So much of a message that is no output is enough to see that it is a summary. */
const HEAD = 64
/** No shorter output is pruned; where there is none, nobody need be asked. */
const OUTPUT_MIN = 200
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

function lineOf({ role, content, toolName, toolCallId }) {
  if (role === 'tool_result') return ['output', toolName ?? toolCallId ?? '', content]
  return [role === 'user' ? 'user' : 'other', '', content.slice(0, HEAD)]
}

/** Creates a pruner of old tool outputs. */
function createContextPruner(options = {}) {
  assertFits('createContextPruner', prunerShape, options, 'options')
  const given = { protectRecentTurns: 2, ...options }

  function prune(all) {
    assertFits('prune', messages, all, 'messages')
    if (!all.some(({ role, content }) => role === 'tool_result' && content.length >= OUTPUT_MIN)) return all
    let changes
    try {
      changes = JSON.parse(native.pruneConversation(toJson({ entries: all.map(lineOf), options: given })))
    } catch (cause) {
      throw revive(cause)
    }
    if (changes.length === 0) return all
    const pruned = [...all]
    for (const [at, content] of changes) {
      // What it showed goes with what it said.
      const { parts: _, ...rest } = pruned[at]
      pruned[at] = Object.freeze({ ...rest, content })
    }
    return Object.freeze(pruned)
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

  constructor(options) {
    this.options = options
    this.systemPrompt = options.systemPrompt
  }

  add(fields) {
    assertFits('conversation', message, fields)
    this.messages = bounded([...this.messages, Object.freeze(fields)], this.options.maxMessages ?? 0)
  }

  all() {
    const system =
      this.systemPrompt === undefined ? [] : [Object.freeze({ role: 'system', content: this.systemPrompt })]
    return Object.freeze([...system, ...this.messages])
  }

  /** Takes others instead. A system message among them is the system prompt. */
  replace(given) {
    const others = given.filter(({ role }) => role !== 'system')
    const system = given.findLast(({ role }) => role === 'system')
    if (system !== undefined) this.systemPrompt = system.content
    const copies = others.map((each) => Object.freeze({ ...each }))
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

module.exports = { createConversation, createContextPruner, prunerOf, serializeMessages }
