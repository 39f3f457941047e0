const FROM_CENTS = 10_000
const PERCENT = 10

/** What is taken off an amount, in cents: ten percent from 100.00 on, rounded down. */
export function discount(cents) {
  if (cents < FROM_CENTS) return 0
  return Math.floor((cents * PERCENT) / 100)
}
