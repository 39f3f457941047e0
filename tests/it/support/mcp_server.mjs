/**
 * A scripted MCP server on standard input and output. Its first argument is what it does beside the ordinary:
 *
 * - `refuse`: answers `initialize` with an error.  - `hang`: never answers it.  - `exit`: ends at once, with words.
 * - `garbage`: writes what is no message before and between the messages.  - `crash-once`: ends after `initialize`,
 *   the first time (a file beside the log remembers).  - `bad-tools`: lists tools that are none.  - `many`: lists 500 tools.
 *
 * The second argument is a file; a line of JSON is appended to it for its start and for each message that comes in.
 */
import { spawn } from 'node:child_process'
import { appendFileSync, existsSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [mode, log] = process.argv.slice(2)
const note = (entry) => appendFileSync(log, `${JSON.stringify(entry)}\n`)
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)

// A grandchild in a session of its own: only who looks for it ends it.
const helper = spawn('sleep', ['1000'], { stdio: 'ignore', detached: mode === 'stray' })
note({ started: process.pid, helper: helper.pid, cwd: process.cwd(), key: process.env.GIVEN_KEY, leaked: process.env.LEAKED_TOKEN })

if (mode === 'exit') {
  process.stderr.write('no configuration\n')
  helper.kill('SIGKILL')
  process.exit(3)
}

const schema = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }
const any = { type: 'object' }
let tools = [
  { name: 'echo', description: 'Says it again.', inputSchema: schema, annotations: { readOnlyHint: true, title: 'Echo' } },
  { name: 'wait', description: 'Never ends.', inputSchema: any },
  { name: 'die', inputSchema: any },
  { name: 'grow', inputSchema: any },
  { name: 'fail', inputSchema: any },
  { name: 'flood', inputSchema: any },
  { name: 'picture', inputSchema: any },
]
if (mode === 'many') {
  const about = (n) => `Does one of many things, number ${n} of them, and says what it was given.`
  tools = Array.from({ length: 500 }, (_, n) => ({ name: `tool_number_${n}`, description: about(n), inputSchema: schema }))
}
if (mode === 'bad-tools') tools = [{ name: 'no schema' }, { name: 'a b', inputSchema: any }, tools[0], tools[0], 5]

const text = (value) => ({ content: [{ type: 'text', text: value }] })

function call(id, name, args) {
  switch (name) {
    case 'echo':
      return send({ id, result: text(`echo: ${args.text}`) })
    case 'wait':
      return undefined
    case 'die':
      process.stderr.write('I die\n')
      return process.exit(7)
    case 'grow':
      tools = [...tools, { name: 'grown', inputSchema: any }]
      send({ method: 'notifications/tools/list_changed' })
      return send({ id, result: text('grown') })
    case 'fail':
      return send({ id, result: { ...text('it did not work'), isError: true } })
    case 'flood':
      process.stdout.write(`{"jsonrpc":"2.0","id":${id},"result":"`)
      for (let i = 0; i < 17; i++) process.stdout.write('x'.repeat(1 << 20))
      return process.stdout.write('"}\n')
    case 'picture':
      return send({ id, result: { content: [{ type: 'image', data: 'AAECAw==', mimeType: 'image/png' }] } })
    default:
      if (mode === 'many') return send({ id, result: text(`${name}: ${args.text}`) })
      return send({ id, error: { code: -32602, message: `unknown tool ${name}` } })
  }
}

const lines = createInterface({ input: process.stdin })
// Whoever started it was killed: then nobody ends it but itself.
const { ppid } = process
lines.on('close', () =>
  setTimeout(() => {
    if (process.ppid === ppid) return
    helper.kill('SIGKILL')
    process.exit()
  }, 100),
)
lines.on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  note({ method, id, params })
  if (mode === 'garbage') process.stdout.write('hello, I am starting…\n\n')
  if (method === 'initialize') {
    if (mode === 'hang') return
    if (mode === 'refuse') return send({ id, error: { code: -32000, message: 'not today' } })
    const { protocolVersion } = params
    send({ id, result: { protocolVersion, capabilities: { tools: { listChanged: true } }, serverInfo: { name: 'scripted', version: '1' } } })
  } else if (method === 'notifications/initialized' && mode === 'crash-once' && !existsSync(`${log}.crashed`)) {
    writeFileSync(`${log}.crashed`, '')
    process.exit(1)
  } else if (method === 'tools/list') {
    // Two pages.
    const from = Number(params?.cursor ?? 0)
    const end = from + (mode === 'many' ? 100 : 4)
    send({ id, result: { tools: tools.slice(from, end), ...(end < tools.length && { nextCursor: String(end) }) } })
  } else if (method === 'resources/list') {
    const more = params?.cursor === undefined
    send({ id, result: { resources: [{ uri: `mem://${more ? 1 : 2}`, name: 'r' }], ...(more && { nextCursor: 'x' }) } })
  } else if (method === 'resources/read') {
    if (params.uri !== 'mem://1') return send({ id, error: { code: -32002, message: 'no such resource' } })
    send({ id, result: { contents: [{ uri: params.uri, mimeType: 'text/plain', text: 'inside' }] } })
  } else if (method === 'prompts/list') {
    send({ id, result: { prompts: [{ name: 'greet', arguments: [{ name: 'who', required: true }] }] } })
  } else if (method === 'prompts/get') {
    const content = { type: 'text', text: `Greet ${params.arguments.who}.` }
    send({ id, result: { messages: [{ role: 'user', content }] } })
  } else if (method === 'tools/call') call(id, params.name, params.arguments)
  else if (id !== undefined) {
    send(method === 'ping' ? { id, result: {} } : { id, error: { code: -32601, message: `no ${method}` } })
  }
})
