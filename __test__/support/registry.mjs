/** Registries for tests. */

import { createToolRegistry } from '../../js/index.js'

/** A definition with a name and, where wanted, more. */
export const define = (name, more = {}) => ({ name, description: `Does ${name}.`, parameters: {}, ...more })

/** A registry with these handlers by name. */
export function registryOf(handlers, options = {}, more = {}) {
  const registry = createToolRegistry(options)
  for (const [name, handler] of Object.entries(handlers)) registry.register(define(name, more), handler)
  return registry
}

let last = 0

/** A call with an id of its own. */
export const call = (name, args = {}) => ({ id: `c${++last}`, name, arguments: args })

/** A promise and the functions that settle it. */
export function deferred() {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
