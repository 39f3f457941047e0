/**
 * An MCP server on standard input and output that wants things of its client: answers of models, roots; and tells: progress, log
 * messages, changed resources. Its first argument is a file; a line of JSON is appended to it for each message that comes in. Its second is what it
 * speaks: `older` revisions of the protocol, of which `silent` does not answer what it does not know and `fragile` ends at it; or the `newest` (2026-07-28).
 */
import { appendFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [log, speaks = 'older'] = process.argv.slice(2)
const newest = speaks === 'newest'
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
const text = (value) => ({ content: [{ type: 'text', text: value }] })
const any = { type: 'object' }
let asked = 0
const answers = new Map()

/** Asks the client for a call that runs, and gives what it answers. */
const ask = (run, method, params) =>
  new Promise((answer) => {
    const id = `q${++asked}`
    answers.set(id, Object.assign(answer, { run }))
    if (!newest) return send({ id, method, params })
    send({ id: run.id, result: { resultType: 'input_required', inputRequests: { q: { method, params } }, requestState: id } })
  })

/** Tells the client, in the newest revision under the request that listens for it. */
let listens
const tell = (method, params) => {
  if (!newest) return send({ method, params })
  if (listens === undefined || !listens.takes(method, params)) return
  send({ method, params: { ...params, _meta: { 'io.modelcontextprotocol/subscriptionId': listens.id } } })
}

const said = (role, words) => ({ role, content: { type: 'text', text: words } })

const tools = {
  // Asks a model, with whatever it is given.
  async sample(args, _, run) {
    const params = { messages: [said('user', 'What is it?')], maxTokens: 50, systemPrompt: 'Be brief. s3cret-key', ...args }
    return text(JSON.stringify(await ask(run, 'sampling/createMessage', params)))
  },
  roots: async (_, __, run) => text(JSON.stringify(await ask(run, 'roots/list', {}))),
  // Takes four times the time between two words about it.
  async slow(_, token) {
    for (let i = 1; i <= 4; i++) {
      await new Promise((over) => setTimeout(over, 250))
      const params = { progressToken: token, progress: i, total: 4, message: `step ${i} s3cret-key` }
      send({ method: 'notifications/progress', params })
    }
    return text('at last')
  },
  // Tells all of it at once, and its answer with it.
  hurry({ count, quiet = false }, token, run) {
    const told = []
    for (let i = 1; i <= count; i++) {
      told.push({ method: 'notifications/progress', params: { progressToken: token, progress: i } })
      if (!quiet) told.push({ method: 'notifications/message', params: { level: 'warning', data: i } })
    }
    told.push({ id: run.id, result: { ...text('at once'), ...(newest && { resultType: 'complete' }) } })
    process.stdout.write(told.map((message) => `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`).join(''))
  },
  async chatter({ count = 1 }) {
    for (let i = 0; i < count; i++)
      send({ method: 'notifications/message', params: { level: 'warning', logger: 'l', data: `word ${i}` } })
    return text('said')
  },
  async touch({ uri }) {
    tell('notifications/resources/updated', { uri })
    tell('notifications/resources/list_changed')
    tell('notifications/prompts/list_changed')
    return text('touched')
  },
  async page({ url = 'https://pages.example/login?step=1' }, _, run) {
    const params = { mode: 'url', elicitationId: 'e1', message: 'Please log in.', url }
    return text(JSON.stringify(await ask(run, 'elicitation/create', params)))
  },
  // Says at first that it is busy, with nothing to ask.
  async busy(_, __, run) {
    await new Promise((again) => {
      const state = `b${++asked}`
      answers.set(state, Object.assign(again, { run }))
      send({ id: run.id, result: { resultType: 'input_required', requestState: state } })
    })
    return text('done')
  },
  async endless(_, __, run) {
    for (;;) await ask(run, 'roots/list', {})
  },
  async grow() {
    tools.grown = () => text('grown')
    tell('notifications/tools/list_changed')
    return text('it grew')
  },
  // Ends the request that listens, as a server does that has to go.
  async deaf() {
    const { id } = listens
    listens = undefined
    send({ id, result: { resultType: 'complete', _meta: { 'io.modelcontextprotocol/subscriptionId': id } } })
    tools.unheard = () => text('unheard')
    return text('deaf')
  },
  die: () => process.exit(3),
}

const capabilities = {
  tools: newest ? { listChanged: true } : {},
  resources: { subscribe: true, listChanged: true },
  prompts: newest ? { listChanged: true } : {},
  logging: {},
  completions: {},
}
const serverInfo = { name: 'rich', version: '1' }

const methods = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities, serverInfo }),
  ping: () => ({}),
  'tools/list': () => ({ tools: Object.keys(tools).map((name) => ({ name, inputSchema: any })) }),
  'tools/call': ({ name, arguments: args, _meta }, run) => tools[name](args ?? {}, _meta?.progressToken, run),
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

if (newest) {
  for (const gone of ['initialize', 'ping', 'resources/subscribe', 'resources/unsubscribe', 'logging/setLevel']) delete methods[gone]
  methods['server/discover'] = () => ({ supportedVersions: ['2026-07-28'], capabilities, serverInfo, ttlMs: 0, cacheScope: 'private' })
}

function listen(id, wanted) {
  const flags = { tools: 'toolsListChanged', prompts: 'promptsListChanged', resources: 'resourcesListChanged' }
  const takes = (method, params) =>
    method.endsWith('/updated')
      ? (wanted.resourceSubscriptions ?? []).includes(params.uri)
      : wanted[flags[method.split('/')[1]]] === true
  listens = { id, takes }
  const accepted = { ...wanted }
  // Of this one it never tells.
  if (accepted.resourceSubscriptions)
    accepted.resourceSubscriptions = accepted.resourceSubscriptions.filter((uri) => uri !== 'mem://still')
  const _meta = { 'io.modelcontextprotocol/subscriptionId': id }
  send({ method: 'notifications/subscriptions/acknowledged', params: { notifications: accepted, _meta } })
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
  if (newest && method === 'subscriptions/listen') return listen(id, params.notifications)
  if (newest && params?.requestState) {
    // The call goes on under its new name.
    const going = answers.get(params.requestState)
    going.run.id = id
    return going(params.inputResponses?.q)
  }
  if (!methods[method]) {
    if (method === 'server/discover' && speaks === 'fragile') process.exit(9)
    if (method === 'server/discover' && speaks === 'silent') return
    return send({ id, error: { code: -32601, message: `no ${method}` } })
  }
  const run = { id }
  const result = await methods[method](params ?? {}, run)
  if (result === undefined) return
  send({ id: run.id, result: newest ? { resultType: 'complete', ...result } : result })
})
