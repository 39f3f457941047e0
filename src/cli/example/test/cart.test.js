import assert from 'node:assert/strict'
import test from 'node:test'
import { itemCount, subtotal } from '../src/cart.js'

const lines = [
  { name: 'bread', priceCents: 320, quantity: 2 },
  { name: 'milk', priceCents: 115, quantity: 3 },
]

test('itemCount counts every piece', () => {
  assert.equal(itemCount(lines), 5)
  assert.equal(itemCount([]), 0)
})

test('subtotal takes each price as often as its quantity says', () => {
  assert.equal(subtotal([]), 0)
  assert.equal(subtotal(lines), 985)
})
