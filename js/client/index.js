/** `simse/client` for browsers, and for whatever else has `fetch`: nothing of Node is needed, or imported. */

import { makeClient } from './client.js'
import { SimseError } from './errors.js'

/** The server that the page came from. */
async function ownOrigin() {
  const origin = globalThis.location?.origin
  if (typeof origin === 'string' && /^https?:/.test(origin)) return { url: origin, token: undefined }
  throw new SimseError(
    'NO_SERVER',
    'createSimseClient: `baseUrl`: expected the address of a server: none can be looked for here',
  )
}

/** Creates a client; nothing is sent before the first call. */
export function createSimseClient(options = {}) {
  return makeClient(options, ownOrigin)
}

export { SimseError } from './errors.js'
export { EVENT_TYPES } from './operations.js'
