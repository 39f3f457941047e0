/** An amount of cents as it stands on the receipt, such as `12.05`. */
export function formatAmount(cents) {
  const whole = Math.floor(cents / 100)
  const rest = String(cents % 100).padStart(2, '0')
  return `${whole}.${rest}`
}
