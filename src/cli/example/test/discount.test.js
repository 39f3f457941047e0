import assert from 'node:assert/strict'
import test from 'node:test'
import { discount } from '../src/discount.js'

test('discount is ten percent from 100.00 on', () => {
  assert.equal(discount(9_999), 0)
  assert.equal(discount(10_000), 1_000)
  assert.equal(discount(12_345), 1_234)
})
