/**
 * What a native tool call costs from JavaScript: `registry.execute` of a native tool that does nothing, one call
 * after the other, beside a plain async function that answers with the same result. Prints JSON, in microseconds.
 */

import { createToolRegistry } from 'simse'
import { registerProbes } from '../__test__/support/addon.mjs'

const CALLS = 2_000
const BATCHES = 15

/** Microseconds a call, the median of the batches; the first ones warm up. */
async function time(run) {
  const each = []
  for (let batch = 0; batch < BATCHES; batch++) {
    const begin = performance.now()
    for (let call = 0; call < CALLS; call++) await run()
    each.push(((performance.now() - begin) * 1000) / CALLS)
  }
  return each.slice(3).sort((a, b) => a - b)[Math.floor((BATCHES - 3) / 2)]
}

const registry = createToolRegistry({})
registerProbes(registry)
const request = { id: 'call_1', name: 'probe_noop', arguments: {} }
const once = await registry.execute(request)
if (once.isError) throw new Error(once.output)

const executeUs = await time(() => registry.execute(request))
const plainUs = await time(async () => ({ id: request.id, name: request.name, output: '', isError: false }))
console.log(JSON.stringify({ executeUs, plainUs }))
