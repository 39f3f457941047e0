/**
 * A hook that runs a linter behind each change of a file: the model reads what it finds in its next request, and mends it.
 * A second one has the turn go on when the model stops while the linter still finds something.
 *
 *   OPENAI_API_KEY=… MODEL=openai/gpt-5 node examples/node/linter-hook.mjs "Write sum.js, a function that adds numbers"
 */

import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import process from 'node:process'
import { promisify } from 'node:util'
import { createSimseServer } from 'simse'
import { createSimseClient } from 'simse/client'

const biome = createRequire(import.meta.url).resolve('@biomejs/biome/bin/biome')
const run = promisify(execFile)
const workingDirectory = process.cwd()

/** What the linter finds at a path, as texts. */
async function lint(path) {
  try {
    await run(process.execPath, [biome, 'lint', '--colors=off', path], { cwd: workingDirectory })
    return []
  } catch ({ stdout, stderr }) {
    return [`The linter finds in ${path}:\n${stdout}${stderr}`]
  }
}

const server = createSimseServer({
  port: 0,
  workingDirectory,
  permissionMode: 'accept-edits',
  model: process.env.MODEL,
  openai: { baseUrl: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY },
  hooks: [
    {
      type: 'tool.result.validate',
      handler: ({ request, result }) =>
        /^fs_(write|edit|multi_edit)$/.test(request.name) && !result.isError ? lint(request.arguments.path) : [],
    },
    { type: 'turn.stop', handler: ({ continued }) => (continued < 3 ? lint('.') : []), timeoutMs: 60_000 },
  ],
})
await server.start()
const client = createSimseClient({ baseUrl: server.url })
const { sessionId } = await client.sessions.create()
const prompt = process.argv[2] ?? 'Write sum.js, a function that adds numbers'
for await (const { type, payload } of await client.sessions.prompt(sessionId, { prompt }, { stream: true })) {
  if (type === 'tool.call.end') console.log(`${payload.name}: ${payload.output.split('\n')[0]}`)
  if (type === 'turn.continued') console.log('The linter has the turn go on.')
  if (type === 'stream.delta') process.stdout.write(payload.text)
}
console.log()
await server.stop()
