/** The hook system: handlers in the order of registration, composed here; Rust sees the composition. */
'use strict'

const { isDeepStrictEqual } = require('node:util')
const { assertFits, fn, plain, record } = require('./check.cjs')
const { messageOf, simseError } = require('./errors.cjs')

/** The hook points, in the order of their bits in the native mask (src/node/hooks.rs). */
const HOOK_TYPES = Object.freeze([
  'tool.execute.before',
  'tool.execute.after',
  'tool.result.validate',
  'prompt.system.transform',
  'prompt.messages.transform',
  'session.compacting',
])

/** Frozen system → its insides: how to watch which points have handlers. */
const insides = new WeakMap()

function warn(type, cause) {
  console.warn(`simse: a "${type}" hook failed; the value before it is kept:`, cause)
}

const object = record(() => {})
const isString = (value) => typeof value === 'string'
const isCall = (value) => plain(value) && typeof value.name === 'string' && plain(value.arguments ?? {})
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
      if (next?.blocked === true)
        return Object.freeze({ blocked: true, reason: String(next.reason ?? 'blocked by a hook') })
      if (!isCall(next)) throw new TypeError('it returned neither a call nor {blocked: true, reason}')
      current = next
    } catch (cause) {
      // Fails closed: what a hook could not look at does not run.
      return Object.freeze({ blocked: true, reason: `a tool.execute.before hook failed: ${messageOf(cause)}` })
    }
  }
  return current
}

async function runValidate(type, handlers, context) {
  const found = []
  for (const handler of handlers) {
    try {
      const texts = await handler(context)
      if (texts === undefined) continue
      if (!Array.isArray(texts) || !texts.every(isString))
        throw new TypeError('it returned something that is not an array of strings')
      found.push(...texts)
    } catch (cause) {
      warn(type, cause)
    }
  }
  return Object.freeze(found)
}

const RUN = {
  'tool.execute.before': runBefore,
  'tool.execute.after': chain('result', isResult, 'a tool call result'),
  'tool.result.validate': runValidate,
  'prompt.system.transform': chain('prompt', isString, 'a string'),
  'prompt.messages.transform': chain('messages', Array.isArray, 'an array of messages'),
  'session.compacting': chain('summary', isString, 'a string'),
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

  function register(type, handler) {
    assertType(type)
    assertFits('register', fn, handler, 'handler')
    // An entry of its own: the same function registered twice runs twice, and each is taken out by itself.
    const entry = (context) => handler(context)
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

module.exports = { createHookSystem, watchHooks, HOOK_TYPES }
