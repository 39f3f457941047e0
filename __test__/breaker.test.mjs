/** The loop breaker, by itself and at the hooks of a registry. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createHookSystem, createLoopBreaker } from '../js/index.js'
import { call, define, registryOf } from './support/registry.mjs'

test('replies: told at the fourth of the same, stopped at the eighth and when nothing can be read', () => {
  const breaker = createLoopBreaker()
  assert.ok(Object.isFrozen(breaker))
  const same = { text: 'again', toolCalls: [call('a', { x: 1 }), call('b')] }
  const actions = Array.from({ length: 8 }, () => breaker.checkReply({ ...same }))
  assert.deepEqual(
    actions.map(({ action }) => action),
    ['continue', 'continue', 'continue', 'tell', 'tell', 'tell', 'tell', 'stop'],
  )
  assert.match(actions[3].message, /same reply 4 times in a row/)
  breaker.reset()
  assert.deepEqual(breaker.checkReply(same), { action: 'continue' })
  const unreadable = Array.from({ length: 4 }, (_, n) => breaker.checkReply({ text: `${n}`, unreadable: true }).action)
  assert.deepEqual(unreadable, ['continue', 'continue', 'continue', 'stop'])
})

test('at the hooks: the third of the same calls is blocked, the fourth empty search is a finding', async () => {
  const hooks = createHookSystem()
  let ran = 0
  const registry = registryOf({ count: async () => `${++ran}` }, { hooks })
  const findings = ['No matches found.', '', 'No matches found.', '[]', 'a.txt:1: x']
  registry.register(define('find', { category: 'search', parameters: {} }), async ({ n }) => findings[n])
  const breaker = createLoopBreaker()
  const detach = breaker.attach(hooks, registry)
  const outputs = []
  for (let n = 0; n < 4; n++) outputs.push((await registry.execute(call('count', { a: 1 }))).output)
  assert.deepEqual([ran, outputs.slice(0, 2)], [2, ['1', '2']])
  assert.match(outputs[2], /^Tool "count" was blocked: this same call came 3 times in a row/)
  assert.equal((await registry.execute(call('count', { a: 2 }))).output, '3')
  const hints = []
  for (let n = 0; n < 5; n++) hints.push((await registry.execute(call('find', { n }))).findings?.[0])
  assert.deepEqual(hints.map(Boolean), [false, false, false, true, false])
  assert.match(hints[3], /^4 searches in a row found nothing/)
  detach()
  for (let n = 0; n < 4; n++) assert.equal((await registry.execute(call('count'))).isError, false)
})

test('limits, and what does not fit', () => {
  const breaker = createLoopBreaker({ identicalCalls: 2, emptySearches: 0 })
  assert.equal(breaker.checkCall({ name: 'a' }), undefined)
  assert.match(breaker.checkCall({ name: 'a', arguments: {} }), /2 times/)
  const search = { category: 'search' }
  for (let n = 0; n < 9; n++)
    assert.equal(breaker.checkResult({ name: 'a', output: '', isError: false }, search), undefined)
  for (const limits of [{ identicalCalls: -1 }, { identicalCalls: 1.5 }, { calls: 3 }])
    assert.throws(() => createLoopBreaker(limits), { code: 'CONFIG_VALIDATION' })
  assert.throws(() => breaker.checkCall('a'), { code: 'CONFIG_VALIDATION' })
  assert.throws(() => breaker.checkReply({ toolCalls: [{}] }), { code: 'CONFIG_VALIDATION' })
  assert.throws(() => breaker.attach({}, {}), { code: 'CONFIG_VALIDATION' })
})
