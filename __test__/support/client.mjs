/** `simse/client` against the program, for tests: a server of one's own, and a `fetch` that can be interfered with. */

import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createSimseClient } from '../../js/client.node.js'
import { scriptedModel } from './model.mjs'
import { servedAt } from './served.mjs'

/** A place for the servers of a file of tests; `close()` ends them all. */
export function clientRoom(name) {
  const room = realpathSync(mkdtempSync(join(tmpdir(), `simse-${name}-`)))
  const open = []
  let count = 0
  return {
    room,
    open,
    /** A server in a home of its own on a scripted model, and a client that finds it by its data directory. */
    async served(script = [], { args, ...options } = {}) {
      count += 1
      const home = join(room, String(count))
      mkdirSync(home)
      const model = await scriptedModel(script)
      const server = await servedAt({ home, model, args })
      const client = createSimseClient({ dataDirectory: join(home, 'data'), ...options })
      open.push(model, server, client)
      return { server, client, model, home }
    },
    async close() {
      for (const each of open.reverse()) await (each.kill?.() ?? each.close())
      rmSync(room, { recursive: true, force: true })
    },
  }
}

/** Waits until something holds that has no signal of its own. */
export async function until(holds) {
  while (!(await holds())) await new Promise((soon) => setTimeout(soon, 10))
}

/** All that an iterator gives, up to the first that `ends`. */
export async function gathered(iterator, ends = () => false) {
  const all = []
  for await (const each of iterator) {
    all.push(each)
    if (ends(each, all)) break
  }
  return all
}

/** Fails unless `promise` rejects with an error of this code; gives the error back. */
export async function refusedWith(assert, code, promise) {
  const error = await promise.then(
    () => assert.fail(`expected ${code}, and it succeeded`),
    (cause) => cause,
  )
  assert.equal(error.code, code, error.stack)
  return error
}
