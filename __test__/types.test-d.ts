/** Type checks of index.d.ts; tsc reads this file, nothing runs it. */

import { z } from 'zod'
import {
  type ACPClient,
  type BlockedResult,
  type ClientReply,
  type Conversation,
  createACPClient,
  createAgenticLoop,
  createContextPruner,
  createConversation,
  createEventBus,
  createHookSystem,
  createMCPClient,
  type createProviderPromptResolver,
  createSimseServer,
  createToolPermissionResolver,
  createToolRegistry,
  discoverInstructions,
  type EventBus,
  fuzzyMatch,
  type HookRegistration,
  type HookSystem,
  type MCPClient,
  type ModelChunk,
  registerBashTool,
  registerExecTools,
  registerFilesystemTools,
  registerGitTools,
  registerMemoryTools,
  type SimseModel,
  type SimseServer,
  type ToolCallRequest,
  type ToolCallResult,
  type ToolDefinition,
  type ToolHandler,
  type ToolPermissionConfig,
  type ToolPermissionResolver,
  type ToolRegistry,
} from '../index.js'

/** Fails to compile unless both types are the same. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : never
const same = <A, B>(_same: Same<A, B>): void => {}

// Registry
const bus: EventBus = createEventBus()
const hooks: HookSystem = createHookSystem()
const resolver: ToolPermissionResolver = createToolPermissionResolver({
  defaultPolicy: 'ask',
  rules: [{ tool: 'fs_*', policy: 'allow', category: ['read', 'search'], annotations: { readOnly: true } }],
  onPermissionRequest: async (request: ToolCallRequest) => request.name === 'bash',
})
const registry: ToolRegistry = createToolRegistry({ permissionResolver: resolver, eventBus: bus, hooks })
createToolRegistry()
createToolRegistry({})
createToolRegistry({ logger: console, defaultToolTimeoutMs: 1, maxOutputChars: 0 })
// @ts-expect-error a misspelt option
createToolRegistry({ maxOutputChar: 1 })

const definition: ToolDefinition = {
  name: 'add',
  description: 'Adds.',
  parameters: { a: { type: 'number', description: 'One.', required: true } },
}
const handler: ToolHandler = async (args, context) => `${args.a} ${context?.callId} ${context?.signal.aborted}`
registry.register(definition, handler)
registry.register(
  { ...definition, parameters: { type: 'object', properties: {}, additionalProperties: false } },
  handler,
)
registry.register({ ...definition, parameters: z.object({ n: z.number() }) }, async ({ n }) => {
  same<typeof n, number>(true)
  return String(n)
})
registry.register(definition, async (_args, context) => {
  if (!context) return ''
  const { ask, notify, show } = context
  show({ kind: 'status', key: 'build', text: '3 of 7' })
  show({ kind: 'widget', key: 'plan', lines: null })
  // @ts-expect-error a status has a key
  show({ kind: 'status', text: 'x' })
  notify('questions come')
  notify('careful', 'warning')
  // @ts-expect-error no such level
  notify('x', 'loud')
  const sure = await ask({ kind: 'confirm', title: 'Sure?' }, { timeoutMs: 1000 })
  same<typeof sure, ClientReply<{ readonly kind: 'confirm'; readonly title: 'Sure?' }>>(true)
  if (sure.cancelled)
    return `${sure.by satisfies 'client' | 'timeout' | 'no-client' | 'abort' | 'policy'}: ${sure.reason}`
  same<typeof sure.value, boolean>(true)
  const one = await ask({ kind: 'select', title: 'Which?', options: ['a', 'b'] })
  if (!one.cancelled) same<typeof one.value, string>(true)
  const some = await ask({ kind: 'select', title: 'Which?', options: ['a', 'b'], several: true })
  if (!some.cancelled) same<typeof some.value, readonly string[]>(true)
  const line = await ask({ kind: 'input', title: 'Name?', placeholder: 'Ann' })
  if (!line.cancelled) same<typeof line.value, string>(true)
  const text = await ask({ kind: 'editor', title: 'Text', text: 'old' })
  // @ts-expect-error there may be no answer
  text.value
  // @ts-expect-error no such kind
  await ask({ kind: 'guess', title: 'x' })
  // @ts-expect-error a choice has options
  await ask({ kind: 'select', title: 'x' })
  return ''
})
// @ts-expect-error a handler answers with a text
registry.register(definition, async () => 5)
// @ts-expect-error a definition has a name
registry.register({ description: '', parameters: {} }, handler)
// @ts-expect-error definitions do not change
definition.name = 'x'
// @ts-expect-error nor do registries
registry.toolCount = 5

const call: ToolCallRequest = { id: '1', name: 'add', arguments: { a: 1 } }
same<ReturnType<ToolRegistry['execute']>, Promise<ToolCallResult>>(true)
const results: Promise<readonly ToolCallResult[]> = registry.batchExecute([call], {
  maxConcurrency: 2,
  signal: new AbortController().signal,
})
void results
same<ReturnType<ToolRegistry['getToolDefinition']>, ToolDefinition | undefined>(true)
const { text, toolCalls } = registry.parseToolCalls('')
same<typeof text, string>(true)
same<typeof toolCalls, readonly ToolCallRequest[]>(true)

// Host tools
registerFilesystemTools(registry, { workingDirectory: '.', allowedPaths: ['../other'] })
registerBashTool(registry, { workingDirectory: '.', env: { A: 'b' }, shell: '/bin/bash', maxOutputBytes: 5 })
registerExecTools(registry, { workingDirectory: '.', maxOutputTokens: 5, sandbox: 'read-only' })
registerGitTools(registry, { workingDirectory: '.' })
const memoryManager = {
  add: async (text: string) => text,
  search: async (query: string) => [{ entry: { id: '1', text: query }, score: 1 }],
  delete: async (id: string) => id === '1',
}
registerMemoryTools(registry, memoryManager)
createToolRegistry({ memoryManager })
// @ts-expect-error a memory can forget
registerMemoryTools(registry, { add: memoryManager.add, search: memoryManager.search })
// @ts-expect-error the working directory is needed
registerBashTool(registry, {})
const match = fuzzyMatch('a', 'a', 'b')
// @ts-expect-error it may be null
match.replaced
if (match) same<typeof match.replaced, string>(true)

// Events
const off: () => void = bus.subscribe('tool.call.end', (payload) => {
  same<typeof payload.durationMs, number>(true)
})
off()
bus.subscribeAll((type, payload) => {
  same<typeof payload, unknown>(true)
  void type
})
bus.publish('tool.timeout', { name: 'a', timeoutMs: 5 })
// @ts-expect-error the payload belongs to the type
bus.publish('tool.timeout', { text: 'x' })
// @ts-expect-error no such event
bus.subscribe('tool.call.started', () => {})

// Hooks
hooks.register('tool.execute.before', ({ request }): ToolCallRequest | BlockedResult =>
  request.name === 'bash' ? { blocked: true, reason: 'no shell' } : request,
)
hooks.register('prompt.system.transform', async ({ prompt }) => `${prompt}!`)
hooks.register('tool.result.validate', () => undefined)
hooks.register('prompt.submit', ({ prompt }) => ({ prompt, context: [] }), { timeoutMs: 5 })
hooks.register('notification', (told) =>
  told.kind === 'turn_ended' ? console.log(told.status, told.sessionId) : undefined,
)
hooks.register('session.end', async ({ reason }) => console.log(reason satisfies 'idle' | 'deleted' | 'shutdown'))
hooks.register('turn.stop', ({ ended, continued }) => (ended === 'completed' && continued < 1 ? ['more'] : undefined))
// @ts-expect-error: texts come in a list
hooks.register('turn.stop', () => 'more')
// @ts-expect-error a prompt is a text
hooks.register('prompt.system.transform', () => 5)
same<ReturnType<typeof hooks.run<'session.compacting'>>, Promise<string>>(true)

// Server
const permissions: ToolPermissionConfig = { defaultPolicy: 'deny', rules: [] }
const hook: HookRegistration<'prompt.system.transform'> = { type: 'prompt.system.transform', handler: () => 'x' }
const more: HookRegistration[] = [hook]
const server: SimseServer = createSimseServer({
  port: 0,
  acpServers: [{ name: 'a', command: 'echo', permissionPolicy: 'prompt' }],
  workingDirectory: '.',
  toolPermissions: permissions,
  hooks: [
    { type: 'turn.stop', command: 'true', timeoutMs: 5 },
    hook,
    { type: 'tool.execute.after', handler: ({ result }) => ({ ...result, output: '' }) },
    ...more,
  ],
  providerPrompts: { prompts: { 'openai/*': 'Be brief.' }, defaultPrompt: '' },
  instructionDiscovery: { patterns: ['AGENTS.md'] },
  toolRegistry: registry,
  openai: { baseUrl: 'http://127.0.0.1:1/v1' },
})
same<typeof server.port, number>(true)
same<ReturnType<typeof server.stop>, Promise<void>>(true)
async function scope(): Promise<string> {
  await using disposed = server
  return disposed.url
}
void scope
// @ts-expect-error the working directory is needed
createSimseServer({ acpServers: [] })

// Models
const poet: SimseModel = {
  name: 'poet',
  async *stream({ messages, tools }, signal): AsyncGenerator<ModelChunk> {
    if (signal.aborted) return
    yield messages.at(-1)?.content ?? ''
    yield { type: 'tool_call', toolCall: { name: tools[0]?.name ?? 'a', arguments: {} } }
    yield { type: 'complete', finishReason: 'tool_use', usage: { inputTokens: 1 } }
  },
}
createSimseServer({ workingDirectory: '.', models: [poet, { name: 'list', stream: () => ['a'], images: false }] })
// @ts-expect-error no such chunk
const noModel: SimseModel = { name: 'a', stream: () => [{ type: 'text', text: 'a' }] }
void noModel

// Loop
const conversation: Conversation = createConversation({ systemPrompt: 'a', maxMessages: 5 })
createAgenticLoop({
  acpClient: {
    async *generateStream(prompt, options) {
      yield { type: 'delta', text: `${prompt}${options?.signal?.aborted}` }
    },
  },
  toolRegistry: registry,
  conversation,
  contextPruner: createContextPruner({ protectRecentTurns: 1 }),
})
  .run('go', { onTurnComplete: ({ toolResults }) => toolResults?.[0]?.output, onError: ({ message }) => message })
  .then(({ finalText, turns }) => `${finalText}${turns.length}`)
// @ts-expect-error a client has to stream
createAgenticLoop({ acpClient: {}, toolRegistry: registry, conversation })
same<ReturnType<ReturnType<typeof createProviderPromptResolver>['resolve']>, string>(true)
discoverInstructions({ rootDir: '.' }).then(([first]) => first?.content)
// @ts-expect-error where to look is needed
discoverInstructions({})

// ACP client
const acp: ACPClient = createACPClient({ servers: [{ name: 'a', command: 'b' }] }, { permissionResolver: resolver })
createAgenticLoop({ acpClient: acp, toolRegistry: registry, conversation })
acp.generate('go', { agentId: 'a' }).then(({ content, usage }) => `${content}${usage?.totalTokens}`)
export async function streamed(): Promise<string> {
  let content = ''
  for await (const chunk of acp.generateStream('go')) if (chunk.type === 'delta') content += chunk.text
  return content
}
// @ts-expect-error no such policy
acp.setPermissionPolicy('ask')
// @ts-expect-error a client has servers
createACPClient({})

// MCP client
const client: MCPClient = createMCPClient({ servers: [{ name: 'a', command: 'x' }], clientName: 'mine' }, console)
createToolRegistry({ mcpClient: client })
const stopListening: () => void = client.onToolsChanged((server: string) => server.length)
stopListening()
client.callTool('a', 't', {}, { signal: new AbortController().signal }).then((answer) => answer.content[0]?.text)
// @ts-expect-error a misspelt option
createMCPClient({ server: [] })

// What may be left out may be undefined, too: under exactOptionalPropertyTypes that is another thing.
export async function maybe(signal: AbortSignal | undefined, maxConcurrency: number | undefined): Promise<void> {
  await createToolRegistry().execute({ id: '1', name: 'a', arguments: {} }, { signal })
  await createToolRegistry().batchExecute([], { signal, maxConcurrency })
}

// Whoever is asked sees what would happen; one who reads the call alone will do.
createToolPermissionResolver({
  defaultPolicy: 'ask',
  rules: [],
  onPermissionRequest: async ({ preview }) => typeof preview?.diff === 'string',
})
createToolPermissionResolver({
  defaultPolicy: 'ask',
  rules: [],
  onPermissionRequest: async (request: ToolCallRequest) => request.name === 'a',
})
