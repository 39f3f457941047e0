/**
 * An agent of the Vercel AI SDK that works with the tools of simse: the SDK has the loop, the tools are native and held to rules.
 *
 *   OPENAI_API_KEY=… MODEL=gpt-5 node examples/node/vercel-agent.mjs "Which files here are JavaScript?"
 */

import process from 'node:process'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { stepCountIs, streamText } from 'ai'
import { createToolPermissionResolver, createToolRegistry, registerFilesystemTools, toVercelTools } from 'simse'

// Reading and searching; anything else is answered with the reason why not.
const permissionResolver = createToolPermissionResolver({
  defaultPolicy: 'deny',
  rules: [{ tool: '*', policy: 'allow', category: ['read', 'search'] }],
})
const registry = createToolRegistry({ permissionResolver })
registerFilesystemTools(registry, { workingDirectory: process.cwd() })

const openai = createOpenAICompatible({
  name: 'openai',
  baseURL: process.env.OPENAI_BASE_URL ?? 'https://api.openai.com/v1',
  apiKey: process.env.OPENAI_API_KEY,
})
const { fullStream } = streamText({
  model: openai(process.env.MODEL ?? 'gpt-5'),
  prompt: process.argv[2] ?? 'Which files here are JavaScript?',
  tools: toVercelTools(registry),
  stopWhen: stepCountIs(20),
})
for await (const part of fullStream) {
  if (part.type === 'text-delta') process.stdout.write(part.text)
  if (part.type === 'tool-result') console.log(`${part.toolName}: ${part.output.output}`)
  if (part.type === 'tool-error') console.log(`${part.toolName} failed: ${part.error.message}`)
}
console.log()
