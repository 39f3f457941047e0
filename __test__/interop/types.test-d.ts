/** The tools of a registry against the types of the packages that they are for; tsc reads this file, nothing runs it. */

import type { LanguageModelV2, LanguageModelV3 } from '@ai-sdk/provider'
import type Anthropic from '@anthropic-ai/sdk'
import type { CallToolResult, Tool } from '@modelcontextprotocol/sdk/types.js'
import { generateText, type LanguageModel, type ToolSet } from 'ai'
import type OpenAI from 'openai'
import {
  createSimseServer,
  createToolRegistry,
  fromVercelModel,
  runAnthropicToolCalls,
  runMcpToolCall,
  runOpenAIResponsesToolCalls,
  runOpenAIToolCalls,
  toAnthropicTools,
  toMcpTools,
  toOpenAIResponsesTools,
  toOpenAITools,
  toVercelTools,
} from '../../index.js'

const registry = createToolRegistry()

export async function chat(client: OpenAI): Promise<void> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'go' }]
  const { choices } = await client.chat.completions.create({ model: 'm', messages, tools: toOpenAITools(registry) })
  const message = choices[0]!.message
  messages.push(message, ...(await runOpenAIToolCalls(registry, message.tool_calls, { images: false })))
}

export async function responses(client: OpenAI): Promise<void> {
  const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: 'go' }]
  const tools = toOpenAIResponsesTools(registry)
  const response = await client.responses.create({ model: 'm', input, tools })
  input.push(...response.output, ...(await runOpenAIResponsesToolCalls(registry, response.output)))
}

export async function messages(client: Anthropic): Promise<void> {
  const sent: Anthropic.MessageParam[] = [{ role: 'user', content: 'go' }]
  const tools = toAnthropicTools(registry)
  const { content } = await client.messages.create({ model: 'm', max_tokens: 9, messages: sent, tools })
  sent.push({ role: 'assistant', content })
  sent.push({ role: 'user', content: await runAnthropicToolCalls(registry, content, { maxConcurrency: 2 }) })
}

export const mcpTools: Tool[] = toMcpTools(registry)
export const mcpResult: Promise<CallToolResult> = runMcpToolCall(registry, { name: 'a' })

export async function vercel(model: LanguageModel): Promise<void> {
  const tools: ToolSet = toVercelTools(registry)
  await generateText({ model, prompt: 'go', tools })
  await generateText({ model, prompt: 'go', tools: toVercelTools(registry, { images: false }) })
}

export function serve(model: LanguageModelV3, older: LanguageModelV2): void {
  const models = [fromVercelModel(model), fromVercelModel(older, { name: 'old', callOptions: { temperature: 0 } })]
  createSimseServer({ workingDirectory: '.', models })
  // @ts-expect-error a name alone is no model
  fromVercelModel('openai/gpt-5')
}
