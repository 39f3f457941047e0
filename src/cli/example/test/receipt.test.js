import assert from 'node:assert/strict'
import test from 'node:test'
import { formatAmount } from '../src/receipt.js'

test('formatAmount shows two decimals', () => {
  assert.equal(formatAmount(1205), '12.05')
  assert.equal(formatAmount(7), '0.07')
})
