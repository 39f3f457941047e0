/**
 * An ACP agent made with the official SDK, for tests of the client: it remembers what it was told, lists and deletes its sessions, has modes and
 * models, writes its answer in pieces cut anywhere, and asks for permission. Its words say what it does: `count`, `slow`, `hang`, `ask`,
 * `fail`, `die`, `flood N`; anything else is answered with what it has heard in this session.
 *
 *     node acp-agent.mjs [--sessions FILE] [--no-modes] [--slow-start MS]
 */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import process from 'node:process'
import { Readable } from 'node:stream'
import { agent, methods, ndJsonStream, RequestError } from '@agentclientprotocol/sdk'

const option = (name) => {
  const at = process.argv.indexOf(name)
  return at === -1 ? undefined : process.argv[at + 1]
}
const file = option('--sessions')
const modes = !process.argv.includes('--no-modes')

/** Session → `{cwd, mode, model, heard}`. */
const sessions = new Map(file && existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : [])
const keep = () => file && writeFileSync(file, JSON.stringify([...sessions]))
const open = new Set()
const running = new Map()
let ids = 0

/** What goes out goes in two writes, cut inside a character where there is one. */
const output = new WritableStream({
  async write(chunk) {
    const bytes = Buffer.from(chunk)
    const high = bytes.findIndex((byte) => byte >= 0x80)
    if (high !== -1) {
      process.stdout.write(bytes.subarray(0, high + 1))
      await new Promise((soon) => setTimeout(soon, 1))
    }
    process.stdout.write(bytes.subarray(high + 1))
  },
})

let client
const update = (sessionId, update) => client.notify(methods.client.session.update, { sessionId, update })
const say = (sessionId, text) =>
  update(sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } })

const choices = (session) =>
  modes && {
    configOptions: [
      choice('mode', 'mode', session.mode, ['ask', 'code']),
      choice('which-model', 'model', session.model, ['small', 'large']),
    ],
  }
const choice = (id, category, currentValue, values) => ({
  id,
  name: id,
  category,
  type: 'select',
  currentValue,
  options: values.map((value) => ({ value, name: value.toUpperCase() })),
})

function fault(code, message) {
  throw new RequestError(code, message)
}

async function permission(sessionId) {
  const toolCall = { toolCallId: `t${++ids}`, title: 'rm -rf x', kind: 'execute', rawInput: { command: 'rm -rf x' } }
  update(sessionId, { sessionUpdate: 'tool_call', ...toolCall, status: 'pending' })
  const options = ['allow_once', 'reject_once'].map((kind) => ({ optionId: kind, name: kind, kind }))
  const question = { sessionId, toolCall, options }
  const { outcome } = await client.request(methods.client.session.requestPermission, question)
  const status = outcome.optionId === 'allow_once' ? 'completed' : 'failed'
  const content = [{ type: 'content', content: { type: 'text', text: status } }]
  update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId: toolCall.toolCallId, status, content })
  say(sessionId, `it ${status}`)
}

async function answer(sessionId, session, text) {
  const [word, more] = text.split(' ')
  if (word === 'ask') return permission(sessionId)
  if (word === 'fail') fault(-32603, 'it went wrong')
  if (word === 'die') process.exit(3)
  if (word === 'slow' || word === 'hang') {
    say(sessionId, 'one moment')
    await new Promise((resolve) => running.set(sessionId, word === 'slow' ? resolve : () => {}))
    return
  }
  if (word === 'flood') for (let i = 0; i < Number(more); i++) say(sessionId, `${i}ü `)
  else if (word === 'where') say(sessionId, session.cwd)
  else if (word === 'settings') say(sessionId, `${session.mode} ${session.model}`)
  else say(sessionId, `${session.heard.length}: ${session.heard.join(' | ')} 😀`)
}

const handlers = {
  initialize: async () => {
    await new Promise((soon) => setTimeout(soon, Number(option('--slow-start') ?? 0)))
    const sessionCapabilities = { list: {}, delete: {}, close: {} }
    return { protocolVersion: 1, agentCapabilities: { loadSession: true, sessionCapabilities }, authMethods: [] }
  },
  'session/new': ({ cwd }) => {
    const sessionId = `s${process.pid}-${++ids}`
    const session = { cwd, mode: 'ask', model: 'small', heard: [] }
    sessions.set(sessionId, session)
    open.add(sessionId)
    keep()
    return { sessionId, ...choices(session) }
  },
  'session/load': ({ sessionId }) => {
    const session = sessions.get(sessionId) ?? fault(-32002, 'no such session')
    open.add(sessionId)
    for (const text of session.heard) say(sessionId, `again: ${text}`)
    return { ...choices(session) }
  },
  'session/list': ({ cursor }) => {
    const all = [...sessions].map(([sessionId, { cwd }]) => ({ sessionId, cwd, title: `title of ${sessionId}` }))
    const from = Number(cursor ?? 0)
    return { sessions: all.slice(from, from + 2), ...(from + 2 < all.length && { nextCursor: String(from + 2) }) }
  },
  'session/delete': ({ sessionId }) => {
    if (!sessions.delete(sessionId)) fault(-32002, 'no such session')
    keep()
    return {}
  },
  'session/close': ({ sessionId }) => {
    open.delete(sessionId)
    sessions.delete(sessionId)
    keep()
    return {}
  },
  'session/set_config_option': ({ sessionId, configId, value }) => {
    const session = sessions.get(sessionId)
    session[configId === 'mode' ? 'mode' : 'model'] = value
    return { ...choices(session) }
  },
  'session/prompt': async ({ sessionId, prompt }) => {
    const session = sessions.get(sessionId) ?? fault(-32002, 'no such session')
    const text = prompt.map((block) => block.text).join('\n')
    session.heard.push(text)
    keep()
    await answer(sessionId, session, text)
    const cancelled = running.get(sessionId) === 'cancelled'
    running.delete(sessionId)
    const usage = { inputTokens: 3, outputTokens: 4, totalTokens: 7 }
    return { stopReason: cancelled ? 'cancelled' : 'end_turn', usage }
  },
  'session/cancel': ({ sessionId }) => {
    const stop = running.get(sessionId)
    running.set(sessionId, 'cancelled')
    stop?.()
  },
}

process.stdout.write('A line that is no message.\n')
const app = agent({ name: 'test' })
for (const [method, handler] of Object.entries(handlers))
  if (method === methods.agent.session.cancel) app.onNotification(method, ({ params }) => handler(params))
  else app.onRequest(method, ({ params }) => handler(params))
client = app.connect(ndJsonStream(output, Readable.toWeb(process.stdin))).client
