/**
 * A tool of your own whose arguments Zod checks, and a model that uses it, embedded in a program.
 *
 *   OPENAI_API_KEY=… MODEL=openai/gpt-5 node examples/node/zod-tool.mjs "What is the weather in Oslo and in Rome?"
 */

import process from 'node:process'
import { createSimseServer, createToolRegistry } from 'simse'
import { createSimseClient } from 'simse/client'
import { z } from 'zod'

const temperatures = { oslo: -3, rome: 14 }

const registry = createToolRegistry({})
registry.register(
  {
    name: 'weather',
    description: 'The temperature in a city, in degrees Celsius',
    category: 'read',
    parameters: z.object({
      city: z.string().min(1).describe('The name of a city'),
      unit: z.enum(['celsius', 'fahrenheit']).default('celsius'),
    }),
  },
  // What comes here is what Zod made of the model's words: a default is filled in, and what does not fit never comes.
  async ({ city, unit }) => {
    const celsius = temperatures[city.toLowerCase()]
    if (celsius === undefined) throw new Error(`nothing is known of ${city}`)
    return unit === 'celsius' ? `${celsius} °C` : `${celsius * 1.8 + 32} °F`
  },
)

const server = createSimseServer({
  port: 0,
  workingDirectory: process.cwd(),
  toolRegistry: registry,
  model: process.env.MODEL,
  openai: { baseUrl: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY },
})
await server.start()
const client = createSimseClient({ baseUrl: server.url })
const { sessionId } = await client.sessions.create({ tools: ['weather'] })
const prompt = process.argv[2] ?? 'What is the weather in Oslo and in Rome?'
for await (const { type, payload } of await client.sessions.prompt(sessionId, { prompt }, { stream: true })) {
  if (type === 'tool.call.end') console.log(`${payload.name}: ${payload.output}`)
  if (type === 'stream.delta') process.stdout.write(payload.text)
}
console.log()
await server.stop()
