/**
 * Runs js/client as a browser would: in a context with a browser's globals alone, where an import of anything but the client's own modules
 * fails. `node --experimental-vm-modules browser.mjs URL TOKEN` says what came of a turn.
 */

import { readFileSync } from 'node:fs'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { createContext, SourceTextModule } from 'node:vm'

const [baseUrl, token] = process.argv.slice(2)
const globals = { AbortController, clearTimeout, crypto, fetch, setTimeout, TextDecoder, URL }
const context = createContext({ ...globals, location: { origin: baseUrl } })
const loaded = new Map()

function load(url) {
  if (!loaded.has(url.href)) {
    const source = readFileSync(fileURLToPath(url), 'utf8')
    const importModuleDynamically = (name) => {
      throw new Error(`import of ${name}`)
    }
    loaded.set(url.href, new SourceTextModule(source, { context, identifier: url.href, importModuleDynamically }))
  }
  return loaded.get(url.href)
}

const entry = load(new URL('../../js/client/index.js', import.meta.url))
await entry.link((name, from) => {
  if (!/^\.\/\w+\.js$/.test(name)) throw new Error(`${from.identifier} imports ${name}`)
  return load(new URL(name, from.identifier))
})
await entry.evaluate()

// The page's own server, without being told.
const client = entry.namespace.createSimseClient({ token })
const { sessionId } = await client.sessions.create()
const types = []
for await (const { type } of await client.sessions.prompt(sessionId, { prompt: 'go' }, { stream: true }))
  types.push(type)
const refused = await client.sessions.get('nobody').catch(({ code }) => code)
console.log(JSON.stringify({ types, refused, names: Object.keys(entry.namespace).sort(), files: loaded.size }))
