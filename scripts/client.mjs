/**
 * Makes `simse/client` from docs/openapi.json: the table of operations (js/client/operations.js), its types (client.d.ts), and all
 * of it for `require` (js/client.cjs).
 *
 *     node scripts/client.mjs           writes the files
 *     node scripts/client.mjs --check   says which of them are not what would be written, and exits with 1
 *
 * `npm run build` does the first, the tests do the second.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { declarations } from './client/declarations.mjs'
import { Document } from './client/document.mjs'
import { commonJs } from './client/modules.mjs'
import { literal, member } from './client/types.mjs'
import { say, top } from './tools.mjs'

const HEAD =
  '/** What the server can be asked, made from its OpenAPI document by scripts/client.mjs. Do not edit it. */\n\n'

/** The table: what `js/client/client.js` makes methods of. */
function table(document, operations) {
  const stream = operations.find(({ name }) => name === 'sessions.events')
  if (stream?.stream === undefined) throw new Error('no operation `sessions.events` with a stream of events')
  const rows = operations.map((operation) => {
    const { name, method, path, parameters, query, key, version, answered } = operation
    const kind = document.kindOf(operation)
    const list = (values) => `[${values.map(literal).join(', ')}]`
    const fields = [
      ['kind', literal(kind)],
      ['method', literal(method)],
      ['path', literal(path)],
      ['parameters', list(parameters)],
      ['query', `{ ${query.map((each) => `${member(each.name)}: true`).join(', ')} }`.replace('{  }', '{}')],
      ['body', String(operation.body !== undefined)],
      ['key', String(key)],
      ['version', String(version)],
      ['answers', list(answered)],
      ['gives', shapes(document.shapesOf(operation))],
    ]
    if (kind === 'prompt')
      fields.push(
        ['follow', literal(siblingOf(operation, operations, 'events'))],
        ['record', literal(siblingOf(operation, operations, 'turn'))],
      )
    return `  ${member(name)}: {\n${fields.map(([field, value]) => `    ${field}: ${value},`).join('\n')}\n  },\n`
  })
  const types = document.typesOf(stream.stream).map((type) => `  ${literal(type)},\n`)
  return `${HEAD}export const operations = {\n${rows.join('')}}\n\n/** The types of all events of sessions. */\nexport const EVENT_TYPES = Object.freeze([\n${types.join('')}])\n`
}

/** What answers have, each way on a line of its own. */
function shapes(ways) {
  const one = (way) =>
    `      { ${way.map(([name, kinds]) => `${member(name)}: ${literal(kinds.join('|'))}`).join(', ')} },\n`
  return ways.length === 0 ? '[]' : `[\n${ways.map(one).join('')}    ]`
}

/** Another operation of the same group. */
function siblingOf(operation, operations, member) {
  const wanted = `${operation.name.split('.')[0]}.${member}`
  if (!operations.some(({ name }) => name === wanted)) throw new Error(`${operation.name} needs ${wanted}`)
  return wanted
}

/** Statuses besides 2xx that bring what was asked for, such as 503 of the health. */
const answered = ({ json }) =>
  Object.keys(json)
    .filter((status) => !status.startsWith('2'))
    .map(Number)

/** Path → text of everything that is made. */
export function made(json, directory = join(top, 'js', 'client')) {
  const document = new Document(json)
  const operations = [...document.operations()].map((operation) => ({ ...operation, answered: answered(operation) }))
  const operationsText = table(document, operations)
  return {
    'js/client/operations.js': operationsText,
    'js/client.cjs': commonJs(directory, operationsText),
    'client.d.ts': declarations(document, operations),
  }
}

/** What is written, and what stands there. */
export function compared() {
  const json = JSON.parse(readFileSync(join(top, 'docs', 'openapi.json'), 'utf8'))
  const found = (path) => {
    try {
      return readFileSync(join(top, path), 'utf8')
    } catch {
      return undefined
    }
  }
  return Object.entries(made(json)).map(([path, text]) => ({ path, text, same: found(path) === text }))
}

/** Writes what is not as it should be. */
export function writeClient() {
  for (const { path, text, same } of compared()) {
    if (same) continue
    writeFileSync(join(top, path), text)
    say(`${path} was written`)
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes('--check')) {
    const stale = compared().filter(({ same }) => !same)
    for (const { path } of stale) say(`${path} is not what docs/openapi.json says: run \`node scripts/client.mjs\``)
    process.exitCode = stale.length > 0 ? 1 : 0
  } else {
    writeClient()
  }
}
