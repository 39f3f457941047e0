/**
 * Small sums over measured values, and how they are written.
 */

/** The value at this share (0–1) of the sorted values, nearest rank. */
export function percentile(values, share) {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * share) - 1))]
}

/** The middle value. */
export const median = (values) => percentile(values, 0.5)

/** The sum. */
export const sum = (values) => values.reduce((total, value) => total + value, 0)

/** Three significant digits, thousands apart; whole numbers whole. */
export function number(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US')
  return value.toPrecision(Math.abs(value) < 0.1 ? 2 : 3)
}

/** How many times better ours is; empty when one of the two is missing or zero. */
export function ratio(ours, theirs, more) {
  if (ours === undefined || theirs === undefined || ours === 0 || theirs === 0) return ''
  return `${number(more ? ours / theirs : theirs / ours)}×`
}
