/**
 * An agent in a terminal that asks before it does something: y, n, or a for "always".
 *
 *   OPENAI_API_KEY=… MODEL=openai/gpt-5 node examples/node/permission-prompt.mjs "Write a haiku to haiku.txt"
 */

import process from 'node:process'
import { createInterface } from 'node:readline/promises'
import { createSimseServer } from 'simse'
import { createSimseClient } from 'simse/client'

const DECISIONS = { y: 'allow', a: 'allow_always', n: 'deny' }

const server = createSimseServer({
  port: 0,
  workingDirectory: process.cwd(),
  model: process.env.MODEL,
  openai: { baseUrl: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY },
})
await server.start()
const client = createSimseClient({ baseUrl: server.url })
const { sessionId } = await client.sessions.create()
const terminal = createInterface({ input: process.stdin, output: process.stdout })

// Answers what the session asks until the turn is over, and shows what a call would do before it is done.
const done = new AbortController()
const answers = client.sessions.answer(
  sessionId,
  {
    permission: async ({ toolName, args }) => {
      console.log(`\n${toolName} ${JSON.stringify(args)}`)
      for (;;) {
        const said = await terminal.question('Allow? [y]es, [a]lways, [n]o: ', { signal: done.signal })
        const decision = DECISIONS[said.trim().toLowerCase()]
        if (decision) return decision
      }
    },
  },
  { signal: done.signal },
)

const prompt = process.argv[2] ?? 'Write a haiku about compilers to haiku.txt'
for await (const { type, payload } of await client.sessions.prompt(sessionId, { prompt }, { stream: true })) {
  if (type === 'stream.delta') process.stdout.write(payload.text)
  if (type === 'tool.call.end') console.log(`${payload.isError ? '✗' : '✓'} ${payload.name}`)
}
console.log()
done.abort()
await answers.catch(() => {})
terminal.close()
await server.stop()
