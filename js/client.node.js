/** `simse/client` for ES modules in Node, Bun and Deno: what client.cjs makes, by name. */

import client from './client.cjs'

export const { createSimseClient, EVENT_TYPES, SimseError } = client
