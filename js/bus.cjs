/**
 * The event bus: synchronous, all in JavaScript.
 *
 * The lists of handlers are replaced, never changed, so a dispatch under way goes on with the list it
 * began with: handlers may subscribe and unsubscribe while they are called.
 */
'use strict'

const { assertFits, fn, text } = require('./check.cjs')

const NONE = Object.freeze([])

/** A handler that failed is reported once and stops nobody. */
function report(type, cause) {
  console.error(`simse: a handler of "${type}" failed:`, cause)
}

function settle(type, returned) {
  if (typeof returned?.then === 'function') returned.then(undefined, (cause) => report(type, cause))
}

/** Creates an event bus. */
function createEventBus() {
  const typed = new Map()
  let all = NONE

  function publish(type, payload) {
    const handlers = typed.get(type)
    // Taken before the first handler runs, as the typed ones are.
    const wildcards = all
    if (handlers !== undefined) {
      for (let i = 0; i < handlers.length; i++) {
        try {
          const returned = handlers[i](payload)
          if (returned !== undefined) settle(type, returned)
        } catch (cause) {
          report(type, cause)
        }
      }
    }
    for (let i = 0; i < wildcards.length; i++) {
      try {
        const returned = wildcards[i](type, payload)
        if (returned !== undefined) settle(type, returned)
      } catch (cause) {
        report(type, cause)
      }
    }
  }

  function subscribe(type, handler) {
    assertFits('subscribe', text, type, 'type')
    assertFits('subscribe', fn, handler, 'handler')
    const before = typed.get(type) ?? NONE
    if (!before.includes(handler)) typed.set(type, [...before, handler])
    return () => {
      const left = (typed.get(type) ?? NONE).filter((other) => other !== handler)
      if (left.length > 0) typed.set(type, left)
      else typed.delete(type)
    }
  }

  function subscribeAll(handler) {
    assertFits('subscribeAll', fn, handler, 'handler')
    if (!all.includes(handler)) all = [...all, handler]
    return () => {
      all = all.filter((other) => other !== handler)
    }
  }

  function clear() {
    typed.clear()
    all = NONE
  }

  return Object.freeze({ publish, subscribe, subscribeAll, clear })
}

module.exports = { createEventBus }
