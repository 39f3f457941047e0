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

/** A list with the handler in it, and its entry there: what ends a subscription ends that one, and no later one of the same function. */
function entered(list, handler) {
  const found = list.find((each) => each.handler === handler)
  if (found !== undefined) return { list, entry: found }
  const entry = { handler }
  return { list: [...list, entry], entry }
}

/** Publishes on a bus of whatever make, if there is one: a bus that throws is reported once, and stops nobody. */
function publishTo(bus, type, payload) {
  if (bus === undefined) return
  try {
    const returned = bus.publish(type, payload)
    if (typeof returned?.then === 'function') returned.then(undefined, (cause) => reportBus(type, cause))
  } catch (cause) {
    reportBus(type, cause)
  }
}

function reportBus(type, cause) {
  console.error(`simse: the event bus failed to publish "${type}":`, cause)
}

/** The handlers of one type. `only`: the handler of the list when it is alone, which is called without going through the list. */
const channelOf = (type, list) => ({ type, only: list.length === 1 ? list[0].handler : undefined, list })
/** Belongs to no type. */
const NOBODY = channelOf(undefined, NONE)

function callEach(type, list, payload) {
  for (let i = 0; i < list.length; i++) {
    try {
      const { handler } = list[i]
      const returned = handler(payload)
      if (returned !== undefined) settle(type, returned)
    } catch (cause) {
      report(type, cause)
    }
  }
}

/** Creates an event bus. */
function createEventBus() {
  const typed = new Map()
  // The channel that was published on last: most events come in runs of one type. NOBODY once any channel has changed.
  let last = NOBODY
  let all = NONE

  function channelFor(type) {
    const channel = typed.get(type)
    if (channel === undefined) return NOBODY
    last = channel
    return channel
  }

  function publish(type, payload) {
    const channel = last.type === type ? last : channelFor(type)
    // Taken before the first handler runs, as the typed ones are.
    const wildcards = all
    const { only } = channel
    if (only === undefined) callEach(type, channel.list, payload)
    else {
      try {
        const returned = only(payload)
        if (returned !== undefined) settle(type, returned)
      } catch (cause) {
        report(type, cause)
      }
    }
    for (let i = 0; i < wildcards.length; i++) {
      try {
        const { handler } = wildcards[i]
        const returned = handler(type, payload)
        if (returned !== undefined) settle(type, returned)
      } catch (cause) {
        report(type, cause)
      }
    }
  }

  /** Gives a type these handlers. */
  function change(type, list) {
    last = NOBODY
    if (list.length > 0) typed.set(type, channelOf(type, list))
    else typed.delete(type)
  }

  const handlersOf = (type) => typed.get(type)?.list ?? NONE

  function subscribe(type, handler) {
    assertFits('subscribe', text, type, 'type')
    assertFits('subscribe', fn, handler, 'handler')
    const { list, entry } = entered(handlersOf(type), handler)
    change(type, list)
    return () =>
      change(
        type,
        handlersOf(type).filter((other) => other !== entry),
      )
  }

  function subscribeAll(handler) {
    assertFits('subscribeAll', fn, handler, 'handler')
    const { list, entry } = entered(all, handler)
    all = list
    return () => {
      all = all.filter((other) => other !== entry)
    }
  }

  function clear() {
    last = NOBODY
    typed.clear()
    all = NONE
  }

  return Object.freeze({ publish, subscribe, subscribeAll, clear })
}

module.exports = { createEventBus, publishTo }
