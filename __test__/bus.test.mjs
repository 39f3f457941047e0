/** The event bus: typescript-api.md §6. */

import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import { mock, test } from 'node:test'
import { createEventBus } from '../js/index.js'

test('typed handlers in order, then those of all types, at once', () => {
  const bus = createEventBus()
  const seen = []
  bus.subscribeAll((type, payload) => seen.push(['all', type, payload.text]))
  bus.subscribe('stream.delta', ({ text }) => seen.push(['first', text]))
  bus.subscribe('stream.delta', ({ text }) => seen.push(['second', text]))
  bus.subscribe('abort', () => seen.push(['never']))
  bus.publish('stream.delta', { text: 'x' })
  assert.deepEqual(seen, [
    ['first', 'x'],
    ['second', 'x'],
    ['all', 'stream.delta', 'x'],
  ])
  assert.ok(Object.isFrozen(bus))
})

test('a handler that throws is reported once, and the others still run', async () => {
  const error = mock.method(console, 'error', () => {})
  try {
    const bus = createEventBus()
    const seen = []
    bus.subscribe('abort', () => {
      throw new Error('first')
    })
    bus.subscribe('abort', () => seen.push('second'))
    bus.subscribeAll(() => seen.push('all'))
    bus.publish('abort', { reason: 'r' })
    assert.deepEqual(seen, ['second', 'all'])
    assert.equal(error.mock.callCount(), 1)

    bus.clear()
    bus.subscribe('abort', async () => {
      throw new Error('later')
    })
    bus.publish('abort', { reason: 'r' })
    await new Promise(setImmediate)
    assert.equal(error.mock.callCount(), 2, 'a rejected promise is reported too, and is no unhandled rejection')
  } finally {
    error.mock.restore()
  }
})

test('the same function subscribed twice is called once; unsubscribing twice is harmless', () => {
  const bus = createEventBus()
  let calls = 0
  const handler = () => {
    calls += 1
  }
  const off = bus.subscribe('abort', handler)
  bus.subscribe('abort', handler)
  bus.publish('abort', { reason: '' })
  assert.equal(calls, 1)
  off()
  off()
  bus.publish('abort', { reason: '' })
  assert.equal(calls, 1)

  const offAll = bus.subscribeAll(handler)
  bus.subscribeAll(handler)
  bus.publish('abort', { reason: '' })
  assert.equal(calls, 2)
  offAll()
  offAll()
  bus.publish('abort', { reason: '' })
  assert.equal(calls, 2)
})

test('what ends a subscription ends no later one of the same function', () => {
  const bus = createEventBus()
  let calls = 0
  const handler = () => {
    calls += 1
  }
  for (const subscribe of [() => bus.subscribe('abort', handler), () => bus.subscribeAll(handler)]) {
    calls = 0
    const first = subscribe()
    first()
    const second = subscribe()
    first()
    bus.publish('abort', { reason: '' })
    assert.equal(calls, 1)
    second()
    const third = subscribe()
    bus.clear()
    const last = subscribe()
    third()
    bus.publish('abort', { reason: '' })
    assert.equal(calls, 2)
    last()
    bus.publish('abort', { reason: '' })
    assert.equal(calls, 2)
  }
})

test('handlers may subscribe, unsubscribe and publish while they are called', () => {
  const bus = createEventBus()
  const seen = []
  const off = bus.subscribe('abort', () => {
    off()
    bus.subscribe('abort', () => seen.push('new'))
    bus.publish('stream.delta', { text: 'nested' })
    seen.push('old')
  })
  bus.subscribe('stream.delta', ({ text }) => seen.push(text))
  bus.publish('abort', { reason: '' })
  assert.deepEqual(seen, ['nested', 'old'])
  bus.publish('abort', { reason: '' })
  assert.deepEqual(seen, ['nested', 'old', 'new'])
  bus.clear()
  bus.publish('abort', { reason: '' })
  assert.equal(seen.length, 3)
})

test('the next publication of the same type sees every change', () => {
  const bus = createEventBus()
  const seen = []
  const see = (name) => () => seen.push(name)
  const heard = (type) => {
    seen.length = 0
    bus.publish(type, { reason: '' })
    return seen.join('')
  }
  assert.equal(heard('abort'), '')
  const offA = bus.subscribe('abort', see('a'))
  assert.equal(heard('abort'), 'a')
  const offB = bus.subscribe('abort', see('b'))
  assert.equal(heard('abort'), 'ab')
  bus.subscribe('stream.delta', see('other'))
  assert.equal(heard('abort'), 'ab')
  offA()
  assert.equal(heard('abort'), 'b')
  assert.equal(heard('stream.delta'), 'other')
  offB()
  assert.equal(heard('abort'), '')
  bus.subscribe('abort', see('c'))
  assert.equal(heard('abort'), 'c')
  bus.clear()
  assert.equal(heard('abort'), '')
  // A handler that clears the bus, or takes itself out, is not called by what it publishes itself.
  let left = 3
  const off = bus.subscribe('abort', () => {
    seen.push('d')
    left -= 1
    if (left === 1) off()
    if (left > 0) bus.publish('abort', { reason: '' })
  })
  assert.equal(heard('abort'), 'dd')
  assert.equal(heard(undefined), '')
})

test('handlers that come and go during a dispatch belong to the next one', () => {
  for (const wild of [false, true]) {
    const bus = createEventBus()
    const seen = []
    const subscribe = (handler) => (wild ? bus.subscribeAll(handler) : bus.subscribe('abort', handler))
    const heard = () => {
      seen.length = 0
      bus.publish('abort', { reason: '' })
      return seen.join('')
    }
    const ends = {}
    const see = (name) => {
      ends[name] = subscribe(() => seen.push(name))
    }
    see('a')
    const trigger = subscribe(() => {
      seen.push('!')
      ends.a()
      ends.b()
      see('c')
      trigger()
    })
    see('b')
    assert.equal(heard(), 'a!b', 'the dispatch goes on with those that it began with')
    assert.equal(heard(), 'c')
    see('a')
    see('b')
    assert.equal(heard(), 'cab', 'who comes again stands behind')
    const clearing = subscribe(() => bus.clear())
    assert.equal(heard(), 'cab')
    clearing()
    assert.equal(heard(), '')
  }
})

test('handlers come and go at a cost of their own, however many there are', () => {
  const bus = createEventBus()
  const COUNT = 60_000
  const from = process.hrtime.bigint()
  let calls = 0
  for (const subscribe of [(handler) => bus.subscribe('abort', handler), (handler) => bus.subscribeAll(handler)]) {
    calls = 0
    const ends = Array.from({ length: COUNT }, () =>
      subscribe(() => {
        calls += 1
      }),
    )
    bus.publish('abort', { reason: '' })
    assert.equal(calls, COUNT)
    for (const end of ends) end()
    bus.publish('abort', { reason: '' })
    assert.equal(calls, COUNT)
  }
  // In the square of their number it would be minutes.
  const seconds = Number(process.hrtime.bigint() - from) / 1e9
  assert.ok(seconds < 15, `${seconds} s`)
})

test('what is no handler is refused', () => {
  const bus = createEventBus()
  for (const bad of [() => bus.subscribe('abort'), () => bus.subscribe('', () => {}), () => bus.subscribeAll(17)]) {
    assert.throws(bad, { code: 'CONFIG_VALIDATION' })
  }
})

test('publishing costs about what an EventEmitter costs', () => {
  const bus = createEventBus()
  const emitter = new EventEmitter()
  let sum = 0
  const handler = ({ n }) => {
    sum += n
  }
  bus.subscribe('stream.delta', handler)
  emitter.on('stream.delta', handler)
  const payload = { n: 1 }
  const fastest = (publish) => {
    let best = Number.POSITIVE_INFINITY
    for (let round = 0; round < 20; round++) {
      const from = process.hrtime.bigint()
      for (let i = 0; i < 20_000; i++) publish('stream.delta', payload)
      best = Math.min(best, Number(process.hrtime.bigint() - from) / 20_000)
    }
    return best
  }
  const theirs = fastest((type, event) => emitter.emit(type, event))
  const ours = fastest((type, event) => bus.publish(type, event))
  assert.ok(sum > 0)
  // Wide, because the machine may be busy; the bench has the figure.
  assert.ok(ours < 20 * theirs + 500, `${ours.toFixed(0)} ns against ${theirs.toFixed(0)} ns`)
})
