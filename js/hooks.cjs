/** The hook system: handlers in the order of registration, composed here; Rust sees the composition. */
'use strict'

const { isDeepStrictEqual } = require('node:util')
const { assertFits, fn, integer, optional, plain, record, shape } = require('./check.cjs')
const { messageOf, simseError } = require('./errors.cjs')

/** The hook points, in the order of their bits in the native mask (src/node/hooks.rs). */
const HOOK_TYPES = Object.freeze([
  'tool.execute.before',
  'tool.execute.after',
  'tool.result.validate',
  'prompt.system.transform',
  'prompt.messages.transform',
  'session.compacting',
  'session.start',
  'session.end',
  'prompt.submit',
  'turn.stop',
  'session.compact.before',
  'notification',
])

/** How long a handler may work (src/base/limit/hooks.rs). */
const TIMEOUT_MS = 600_000
const TIMEOUT_MS_MAX = 3_600_000

/** Frozen system → its insides: how to watch which points have handlers. */
const insides = new WeakMap()

function warn(type, cause) {
  console.warn(`simse: a "${type}" hook failed; the value before it is kept:`, cause)
}

const object = record(() => {})
const timeout = optional(integer(0, TIMEOUT_MS_MAX))
const registerOptions = optional(shape({ timeoutMs: timeout }))
const isString = (value) => typeof value === 'string'
// What is neither yes nor no was meant as something: it is no answer, and before a call or a prompt that blocks.
const isNoBlock = (value) => plain(value) && (value.blocked ?? false) === false
const isCall = (value) => isNoBlock(value) && typeof value.name === 'string' && plain(value.arguments ?? {})
const isTexts = (value) => Array.isArray(value) && value.every(isString)
const isBlock = (value) => plain(value) && value.blocked === true
const isOr = (fits) => (value) => value === undefined || fits(value)
const isSubmission = (value) => isNoBlock(value) && isOr(isString)(value.prompt) && isOr(isTexts)(value.context)
const isResult = (value) =>
  plain(value) && [value.id, value.name, value.output].every(isString) && typeof value.isError === 'boolean'

/** What gives a value as it is now, whatever a handler does to it meanwhile. */
function snapshot(value) {
  if (typeof value !== 'object' || value === null) return () => value
  try {
    const copy = structuredClone(value)
    return () => (isDeepStrictEqual(copy, value) ? value : copy)
  } catch {
    // It holds something that has no copy.
    return () => value
  }
}

/** A refusal in the form that callers read. */
const blockOf = (value) => Object.freeze({ blocked: true, reason: String(value.reason ?? 'blocked by a hook') })

/** What a handler gives, in time. */
function within(timeoutMs, answer) {
  if (timeoutMs === 0 || typeof answer?.then !== 'function') return answer
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`it did not answer within ${timeoutMs} ms`))
    const timer = setTimeout(late, timeoutMs)
    timer.unref()
    const done = (end) => (value) => {
      clearTimeout(timer)
      end(value)
    }
    answer.then(done(resolve), done(reject))
  })
}

/** Chains handlers over one field of the context. A handler that fails or answers with another form changes nothing. */
function chain(field, fits, expected) {
  return async (type, handlers, context) => {
    let current = context[field]
    for (const handler of handlers) {
      const before = snapshot(current)
      try {
        const next = await handler({ ...context, [field]: current })
        if (next !== undefined && !fits(next)) throw new TypeError(`it returned something that is not ${expected}`)
        current = next === undefined ? before() : next
      } catch (cause) {
        current = before()
        warn(type, cause)
      }
    }
    return current
  }
}

async function runBefore(_type, handlers, context) {
  let current = context.request
  for (const handler of handlers) {
    const before = snapshot(current)
    try {
      const next = await handler({ ...context, request: current })
      if (next === undefined) {
        current = before()
        continue
      }
      if (isBlock(next)) return blockOf(next)
      if (!isCall(next)) throw new TypeError('it returned neither a call nor {blocked: true, reason}')
      current = next
    } catch (cause) {
      // Fails closed: what a hook could not look at does not run.
      return Object.freeze({ blocked: true, reason: `a tool.execute.before hook failed: ${messageOf(cause)}` })
    }
  }
  return current
}

/** Texts of all handlers, joined. */
async function runTexts(type, handlers, context) {
  const found = []
  for (const handler of handlers) {
    try {
      const texts = await handler(context)
      if (texts === undefined) continue
      if (!isTexts(texts)) throw new TypeError('it returned something that is not an array of strings')
      found.push(...texts)
    } catch (cause) {
      warn(type, cause)
    }
  }
  return Object.freeze(found)
}

/** Handlers that only hear. */
async function runHeard(type, handlers, context) {
  for (const handler of handlers) {
    try {
      await handler(context)
    } catch (cause) {
      warn(type, cause)
    }
  }
}

/** The same prompt with another text; its images stay. */
function withText(context, prompt) {
  if (context.parts === undefined) return { ...context, prompt }
  const images = context.parts.filter(({ type }) => type === 'image')
  return { ...context, prompt, parts: [{ type: 'text', text: prompt }, ...images] }
}

async function runSubmit(_type, handlers, context) {
  let current = context
  const added = []
  for (const handler of handlers) {
    try {
      const next = await handler({ ...current })
      if (next === undefined) continue
      if (isBlock(next)) return blockOf(next)
      if (!isSubmission(next)) throw new TypeError('it returned neither {prompt, context} nor {blocked: true, reason}')
      if (next.prompt !== undefined && next.prompt !== current.prompt) current = withText(current, next.prompt)
      added.push(...(next.context ?? []))
    } catch (cause) {
      // Fails closed: what a hook could not look at is not said.
      return blockOf({ reason: `a prompt.submit hook failed: ${messageOf(cause)}` })
    }
  }
  return Object.freeze({ prompt: current.prompt, context: Object.freeze(added) })
}

async function runCompactBefore(type, handlers, context) {
  let { focus } = context
  for (const handler of handlers) {
    try {
      const next = await handler({ ...context, ...(focus !== undefined && { focus }) })
      if (next === undefined) continue
      if (isBlock(next)) return blockOf(next)
      if (!isNoBlock(next) || !isOr(isString)(next.focus))
        throw new TypeError('it returned neither {focus} nor {blocked: true, reason}')
      focus = next.focus ?? focus
    } catch (cause) {
      warn(type, cause)
    }
  }
  return Object.freeze(focus === undefined ? {} : { focus })
}

const RUN = {
  'tool.execute.before': runBefore,
  'tool.execute.after': chain('result', isResult, 'a tool call result'),
  'tool.result.validate': runTexts,
  'prompt.system.transform': chain('prompt', isString, 'a string'),
  'prompt.messages.transform': chain('messages', Array.isArray, 'an array of messages'),
  'session.compacting': chain('summary', isString, 'a string'),
  'session.start': runTexts,
  'session.end': runHeard,
  'prompt.submit': runSubmit,
  'turn.stop': runTexts,
  'session.compact.before': runCompactBefore,
  notification: runHeard,
}

function assertType(type) {
  if (!Object.hasOwn(RUN, type))
    throw simseError('CONFIG_VALIDATION', `Unknown hook type: ${String(type)}`, { metadata: { type } })
}

/** Creates a hook system. */
function createHookSystem() {
  const handlers = new Map(HOOK_TYPES.map((type) => [type, []]))
  const watchers = new Set()
  const mask = () => HOOK_TYPES.reduce((bits, type, i) => bits | (handlers.get(type).length > 0 ? 1 << i : 0), 0)
  const changed = () => {
    for (const ref of watchers) {
      const watcher = ref.deref()
      if (watcher) watcher(mask())
      else watchers.delete(ref)
    }
  }

  function register(type, handler, options) {
    assertType(type)
    assertFits('register', fn, handler, 'handler')
    assertFits('register', registerOptions, options, 'options')
    const { timeoutMs = TIMEOUT_MS } = options ?? {}
    // An entry of its own: the same function registered twice runs twice, and each is taken out by itself.
    const entry = (context) => within(timeoutMs, handler(context))
    handlers.set(type, [...handlers.get(type), entry])
    changed()
    return () => {
      handlers.set(
        type,
        handlers.get(type).filter((other) => other !== entry),
      )
      changed()
    }
  }

  async function run(type, context) {
    assertType(type)
    assertFits('run', object, context, 'context')
    return RUN[type](type, handlers.get(type), context)
  }

  const system = Object.freeze({ register, run })
  insides.set(system, { mask, watchers })
  return system
}

/**
 * Tells `watcher` which points have handlers, now and after every change. It is held weakly: whoever
 * watches keeps it. A system that is not of ours may have handlers anywhere.
 */
function watchHooks(system, watcher) {
  const inside = insides.get(system)
  if (inside === undefined) return watcher((1 << HOOK_TYPES.length) - 1)
  inside.watchers.add(new WeakRef(watcher))
  watcher(inside.mask())
}

module.exports = { createHookSystem, watchHooks, withText, timeout, HOOK_TYPES }
