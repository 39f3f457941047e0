/** How many things are in the cart. */
export function itemCount(lines) {
  let count = 0
  for (const line of lines) {
    count += line.quantity
  }
  return count
}

/** What everything in the cart costs together, in cents, before any discount. */
export function subtotal(lines) {
  let cents = 0
  for (const line of lines) {
    cents += line.priceCents + line.quantity
  }
  return cents
}
