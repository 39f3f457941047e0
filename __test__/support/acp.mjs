/**
 * Clients of the Agent Client Protocol, made of the official SDK: over a pipe, a WebSocket and HTTP. Whatever the agent sends is
 * held against the schemas that come with the SDK: those of the stable protocol where they know the method, else the unstable ones.
 */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import process from 'node:process'
import { Readable, Writable } from 'node:stream'
import * as acp from '@agentclientprotocol/sdk'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { binary } from './served.mjs'

const require = createRequire(import.meta.url)

/** Checks of one schema file: by method, of what the agent answers and of what it asks and tells. */
function checksOf(file) {
  const schema = JSON.parse(readFileSync(require.resolve(`@agentclientprotocol/sdk/schema/v1/${file}`), 'utf8'))
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false })
  ajv.addSchema(schema, 'acp')
  const answers = new Map()
  const sent = new Map()
  for (const [name, definition] of Object.entries(schema.$defs)) {
    const { 'x-method': method, 'x-side': side } = definition
    if (!method) continue
    const check = ajv.getSchema(`acp#/$defs/${name}`)
    assert(check, name)
    if (side === 'agent' && name.endsWith('Response')) answers.set(method, check)
    if (side !== 'agent' && !name.endsWith('Response')) sent.set(method, check)
  }
  return { answers, sent, error: ajv.getSchema('acp#/$defs/Error') }
}

const stable = checksOf('schema.json')
const unstable = checksOf('schema.unstable.json')

/** Methods of extensions, whose answers have no schema. */
const EXTENSIONS = new Set(['_session/steering'])

/** What is wrong with messages of the agent. `asked` are the methods of the client's requests, by their ids. */
function fault(message, asked) {
  if (message.jsonrpc !== '2.0') return 'jsonrpc'
  const held = (check, value) => (check(value) ? undefined : JSON.stringify(check.errors?.slice(0, 5)))
  if (message.method !== undefined) {
    const check = stable.sent.get(message.method) ?? unstable.sent.get(message.method)
    return check ? held(check, message.params) : `no such method: ${message.method}`
  }
  if (message.error !== undefined) return held(stable.error, message.error)
  const method = asked.get(message.id)
  if (EXTENSIONS.has(method)) return undefined
  const check = stable.answers.get(method) ?? unstable.answers.get(method)
  return check ? held(check, message.result) : `an answer to ${method}, which was not asked`
}

/** The same stream, looked at: `sent` is all that the agent sent, `faults` what was wrong with it. */
export function watched({ readable, writable }) {
  const asked = new Map()
  const seen = { sent: [], faults: [] }
  const incoming = new TransformStream({
    transform(message, out) {
      seen.sent.push(message)
      const wrong = fault(message, asked)
      if (wrong) seen.faults.push({ wrong, message })
      out.enqueue(message)
    },
  })
  const outgoing = new TransformStream({
    transform(message, out) {
      if (message.method !== undefined && message.id !== undefined) asked.set(message.id, message.method)
      out.enqueue(message)
    },
  })
  const ends = [readable.pipeTo(incoming.writable), outgoing.readable.pipeTo(writable)]
  // A connection that is closed breaks both off.
  for (const end of ends) end.catch(() => {})
  return { stream: { readable: incoming.readable, writable: outgoing.writable }, seen }
}

/** `simse acp` as a child; `end()` closes its input and answers with the exit code. */
export function agentOverPipe({ args = [], env = {}, cwd }) {
  const own = Object.entries(process.env).filter(([name]) => !/^(SIMSE_|OPENAI_|XDG_|NODE_)/.test(name))
  const child = spawn(binary, ['acp', ...args], {
    cwd,
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...Object.fromEntries(own), ...env },
  })
  let said = ''
  child.stderr.on('data', (text) => {
    said += text
  })
  const closed = once(child, 'close')
  return {
    child,
    closed,
    stream: acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)),
    said: () => said,
    async end() {
      child.stdin.end()
      const [code] = await closed
      return code
    },
    async kill() {
      child.kill('SIGKILL')
      await closed
    },
  }
}

/** A client on a stream. `updates` are all that it was told; `permission` and `form` answer questions. */
export function client(raw, { permission, form, capabilities = {} } = {}) {
  const { stream, seen } = watched(raw)
  const updates = []
  const questions = []
  const withdrawn = []
  const waiting = []
  const app = acp
    .client({ name: 'test' })
    .onNotification('session/update', ({ params }) => {
      updates.push(params)
      for (const wake of waiting.splice(0)) wake()
    })
    .onRequest('session/request_permission', async (context) => {
      questions.push(context.params)
      for (const wake of waiting.splice(0)) wake()
      context.signal.addEventListener('abort', () => withdrawn.push(context.params))
      return (await permission?.(context.params, context.signal)) ?? { outcome: { outcome: 'cancelled' } }
    })
    .onRequest('elicitation/create', async (context) => {
      questions.push(context.params)
      return (await form?.(context.params)) ?? { action: 'cancel' }
    })
  const connection = app.connect(stream)
  const agent = connection.agent
  return {
    connection,
    agent,
    seen,
    updates,
    questions,
    withdrawn,
    request: (method, params, options) => agent.request(method, params, options),
    notify: (method, params) => agent.notify(method, params),
    initialize: () =>
      agent.request('initialize', {
        protocolVersion: acp.PROTOCOL_VERSION,
        clientCapabilities: capabilities,
        clientInfo: { name: 'test', version: '1' },
      }),
    /** The updates of a session of one kind. */
    of: (sessionId, kind) =>
      updates
        .filter((one) => one.sessionId === sessionId && one.update.sessionUpdate === kind)
        .map((one) => one.update),
    /** What the agent has said in a session. */
    text: (sessionId) =>
      updates
        .filter((one) => one.sessionId === sessionId && one.update.sessionUpdate === 'agent_message_chunk')
        .map((one) => one.update.content.text)
        .join(''),
    /** Waits until something is true; looks whenever something comes. */
    async until(what, patience = 60_000) {
      const end = Date.now() + patience
      while (!what()) {
        assert(Date.now() < end, `it does not come: ${what}`)
        await new Promise((wake) => {
          waiting.push(wake)
          setTimeout(wake, 20)
        })
      }
    },
    close: () => connection.close(),
  }
}
