/**
 * The event bus: synchronous, all in JavaScript.
 *
 * Who subscribes stands in a map, in order; what a dispatch goes through is a list made of it when it is needed after a change,
 * replaced and never changed. So a dispatch under way goes on with the list it began with: handlers may subscribe and
 * unsubscribe while they are called. And a change costs nothing but itself, however many handlers there are.
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

/**
 * The handlers of one type, or of all. `entries`: handler → a mark of its subscription, so that what ends one ends no later one of the
 * same function. `list` is them as a dispatch goes through them, undefined after a change. `only`: the handler when it is alone,
 * which is called without going through the list.
 */
const channelOf = (type) => ({ type, only: undefined, list: NONE, entries: new Map() })
/** Belongs to no type. */
const NOBODY = channelOf(Symbol('no type'))

/** What was made of the entries is of no use any more, and holds no handler that has gone. */
function forget(channel) {
  channel.list = undefined
  channel.only = undefined
}

/** Puts a handler into a channel; the mark by which it is taken out. */
function enter(channel, handler) {
  const known = channel.entries.get(handler)
  if (known !== undefined) return known
  const mark = {}
  channel.entries.set(handler, mark)
  forget(channel)
  return mark
}

/** Takes out what was put in under this mark. */
function leave(channel, handler, mark) {
  if (channel.entries.get(handler) !== mark) return
  channel.entries.delete(handler)
  forget(channel)
}

/** Makes the list of a channel that has changed. */
function settleList(channel) {
  if (channel.list !== undefined) return
  const list = [...channel.entries.keys()]
  channel.list = list
  channel.only = list.length === 1 ? list[0] : undefined
}

function callEach(type, list, payload) {
  for (let i = 0; i < list.length; i++) {
    try {
      const handler = list[i]
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
  // The channel that was published on last: most events come in runs of one type. NOBODY once anything has changed, so that
  // whatever is found here has its list, and so have the wildcards.
  let last = NOBODY
  const wild = channelOf(undefined)
  let all = NONE

  function channelFor(type) {
    settleList(wild)
    all = wild.list
    const channel = typed.get(type)
    if (channel === undefined) return NOBODY
    settleList(channel)
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
        const handler = wildcards[i]
        const returned = handler(type, payload)
        if (returned !== undefined) settle(type, returned)
      } catch (cause) {
        report(type, cause)
      }
    }
  }

  function subscribe(type, handler) {
    assertFits('subscribe', text, type, 'type')
    assertFits('subscribe', fn, handler, 'handler')
    const channel = typed.get(type) ?? channelOf(type)
    typed.set(type, channel)
    last = NOBODY
    const mark = enter(channel, handler)
    return () => {
      last = NOBODY
      leave(channel, handler, mark)
      if (channel.entries.size === 0 && typed.get(type) === channel) typed.delete(type)
    }
  }

  function subscribeAll(handler) {
    assertFits('subscribeAll', fn, handler, 'handler')
    const mark = enter(wild, handler)
    changedForAll()
    return () => {
      leave(wild, handler, mark)
      changedForAll()
    }
  }

  function changedForAll() {
    last = NOBODY
    all = NONE
  }

  function clear() {
    typed.clear()
    wild.entries.clear()
    forget(wild)
    changedForAll()
  }

  return Object.freeze({ publish, subscribe, subscribeAll, clear })
}

module.exports = { createEventBus, publishTo }
