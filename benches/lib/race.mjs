/**
 * Contestants that take turns.
 */

import { createToolRegistry } from 'simse'
import { median, number } from './figures.mjs'

export { machine } from './machine.mjs'

/** Milliseconds of each contestant, in turns; the first round warms up and does not count. */
export async function race(rounds, contestants) {
  const times = Object.fromEntries(Object.keys(contestants).map((name) => [name, []]))
  for (let round = 0; round <= rounds; round++) {
    for (const [name, run] of Object.entries(contestants)) {
      const begin = performance.now()
      await run()
      if (round > 0) times[name].push(performance.now() - begin)
    }
  }
  return Object.fromEntries(Object.entries(times).map(([name, each]) => [name, median(each)]))
}

/** A function that calls tools, which `register` puts into a registry; an error of a tool is thrown. */
export function caller(register) {
  const registry = createToolRegistry({})
  register(registry)
  return async (name, args) => {
    const { output, isError } = await registry.execute({ id: 'call_1', name, arguments: args })
    if (isError) throw new Error(output)
    return output
  }
}

/** Rows of name, aim and milliseconds, `simse` first, as a table. */
export function table(rows) {
  const lines = ['| what | aim | simse | others |', '|---|---|---|---|']
  for (const [what, aim, { simse, ...others }] of rows) {
    const shown = Object.entries(others).map(([name, ms]) => `${name}: ${number(ms)} ms (${number(ms / simse)}×)`)
    lines.push(`| ${what} | ${aim} | ${number(simse)} ms | ${shown.join('; ')} |`)
  }
  return lines.join('\n')
}
