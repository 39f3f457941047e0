/**
 * An MCP server on standard input and output that wants things of its client: answers of models, roots; and tells: progress, log
 * messages, changed resources. Its argument is a file; a line of JSON is appended to it for each message that comes in.
 */
import { appendFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [log] = process.argv.slice(2)
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
const text = (value) => ({ content: [{ type: 'text', text: value }] })
const any = { type: 'object' }
let asked = 0
const answers = new Map()

/** Asks the client, and gives what it answers. */
const ask = (method, params) =>
  new Promise((answer) => {
    const id = `q${++asked}`
    answers.set(id, answer)
    send({ id, method, params })
  })

const said = (role, words) => ({ role, content: { type: 'text', text: words } })

const tools = {
  // Asks a model, with whatever it is given.
  async sample(args) {
    const params = { messages: [said('user', 'What is it?')], maxTokens: 50, systemPrompt: 'Be brief. s3cret-key', ...args }
    return text(JSON.stringify(await ask('sampling/createMessage', params)))
  },
  roots: async () => text(JSON.stringify(await ask('roots/list', {}))),
  // Takes four times the time between two words about it.
  async slow(_, token) {
    for (let i = 1; i <= 4; i++) {
      await new Promise((over) => setTimeout(over, 250))
      const params = { progressToken: token, progress: i, total: 4, message: `step ${i} s3cret-key` }
      send({ method: 'notifications/progress', params })
    }
    return text('at last')
  },
  async chatter({ count = 1 }) {
    for (let i = 0; i < count; i++)
      send({ method: 'notifications/message', params: { level: 'warning', logger: 'l', data: `word ${i}` } })
    return text('said')
  },
  async touch({ uri }) {
    send({ method: 'notifications/resources/updated', params: { uri } })
    send({ method: 'notifications/resources/list_changed' })
    send({ method: 'notifications/prompts/list_changed' })
    return text('touched')
  },
  async page({ url = 'https://pages.example/login?step=1' }) {
    const params = { mode: 'url', elicitationId: 'e1', message: 'Please log in.', url }
    return text(JSON.stringify(await ask('elicitation/create', params)))
  },
  die: () => process.exit(3),
}

const methods = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {}, resources: { subscribe: true, listChanged: true }, prompts: {}, logging: {}, completions: {} },
    serverInfo: { name: 'rich', version: '1' },
  }),
  ping: () => ({}),
  'tools/list': () => ({ tools: Object.keys(tools).map((name) => ({ name, inputSchema: any })) }),
  'tools/call': ({ name, arguments: args, _meta }) => tools[name](args ?? {}, _meta?.progressToken),
  'resources/list': ({ cursor }) =>
    cursor
      ? { resources: [{ uri: 'mem://2', name: 'two' }] }
      : { resources: [{ uri: 'mem://1', name: 'one', mimeType: 'text/plain', description: 'The first.' }], nextCursor: 'c"2' },
  'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'mem://{n}', name: 'any' }] }),
  'resources/read': ({ uri }) => ({
    contents: [
      { uri, mimeType: 'text/plain', text: `inside ${uri}` },
      { uri, mimeType: 'image/png', blob: 'AAECAw==' },
    ],
  }),
  'resources/subscribe': () => ({}),
  'resources/unsubscribe': () => ({}),
  'logging/setLevel': () => ({}),
  'completion/complete': ({ argument }) => ({ completion: { values: [`${argument.value}ris`], total: 1 } }),
}

createInterface({ input: process.stdin }).on('line', async (line) => {
  const message = JSON.parse(line)
  const { id, method, params } = message
  appendFileSync(log, `${JSON.stringify(message)}\n`)
  if (method === undefined) {
    answers.get(id)?.(message.error ? { error: message.error } : message.result)
    return
  }
  if (id === undefined) return
  if (!methods[method]) return send({ id, error: { code: -32601, message: `no ${method}` } })
  send({ id, result: await methods[method](params ?? {}) })
})
