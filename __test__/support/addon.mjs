/** What tests need of the addon and no program does. */

import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)

/** The addon itself. */
export const native = require('../../js/load.cjs')
/** The calls from Rust that JavaScript has not answered yet. */
export const waitingCalls = () => require('../../js/bridge.cjs').bridge.waiting()

const { stateOf } = require('../../js/registry.cjs')

/** Registers `probe_noop` (does nothing) and `probe_panic`. */
export function registerProbes(registry) {
  const state = stateOf(registry, 'probes')
  state.note(native.probeRegister(state.native))
}
