/** Tool servers of the official SDK that ask a person while they work: their forms are questions to the clients of the session. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { after, test } from 'node:test'
import { WebSocket } from 'ws'
import { createSimseServer } from '../js/index.js'
import { events, http } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'
import { deferred } from './support/registry.mjs'
import { servedAt } from './support/served.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-elicitation-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const script = new URL('./support/elicits.mjs', import.meta.url).pathname
const open = new Set()
/** The data directory of each server. */
const directories = new Map()
let rooms = 0

after(async () => {
  for (const each of open) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

const piped = { name: 'asker', command: process.execPath, args: [script] }

/** The same server behind an address. */
async function addressed() {
  const child = spawn(process.execPath, [script, 'http'], { stdio: ['ignore', 'pipe', 'inherit'] })
  open.add({ close: () => void child.kill('SIGKILL') })
  const [url] = await once(createInterface({ input: child.stdout }), 'line')
  return { name: 'asker', url }
}

/** A model that calls `ask` with what the prompt says, in JSON, and then says what came of it. */
const relay = () =>
  scriptedModel(
    Array.from({ length: 40 }, () => ({ messages }) => {
      const last = messages.at(-1)
      if (last.role === 'tool') return { text: last.content }
      return { calls: [{ id: 'call_1', name: 'mcp:asker/ask', arguments: last.content }] }
    }),
  )

async function served(server, more = {}) {
  const model = await relay()
  const workingDirectory = join(room, `work${++rooms}`)
  mkdirSync(workingDirectory)
  const config = {
    port: 0,
    acpServers: [],
    mcpServers: [server],
    workingDirectory,
    dataDirectory: join(room, `data${rooms}`),
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
    limits: { shutdownGraceMs: 0 },
    ...more,
  }
  const simse = createSimseServer(config)
  open.add(simse)
  open.add(model)
  await simse.start()
  await connected(simse)
  directories.set(simse, config.dataDirectory)
  return simse
}

/** Waits until the tool server is there: a turn waits for it too, but not for ever. */
async function connected(server, headers = {}) {
  for (;;) {
    const { checks } = (await http(server, 'GET', '/health', undefined, headers)).body
    if (checks.mcpServers.servers.asker === 'connected') return
    await new Promise((soon) => setTimeout(soon, 20))
  }
}

async function sessionOf(server) {
  const { sessionId } = (await http(server, 'POST', '/sessions', {})).body
  return { server, sessionId, path: `/sessions/${sessionId}` }
}

/** Prompts, and reads the turn's events; `onEvent` sees each. Answers with them, and what the tool server heard. */
async function turnOf({ server, sessionId, path }, wanted, onEvent) {
  const from = (await http(server, 'GET', path)).body.lastSeq
  const stream = events(server, sessionId, from)
  const accepted = await http(server, 'POST', `${path}/prompt`, { prompt: JSON.stringify(wanted) })
  assert.equal(accepted.status, 202)
  const seen = []
  for await (const event of stream) {
    seen.push(event)
    await onEvent?.(event)
    if (['session.completed', 'session.error', 'abort'].includes(event.type)) break
  }
  const { result } = seen.at(-1).payload
  return { seen, heard: result === undefined ? undefined : JSON.parse(result) }
}

const of = (seen, type) => seen.filter((event) => event.type === type).map((event) => event.payload)

/** A client over a WebSocket that sends commands and waits for events. */
async function socketOf({ server, sessionId }, after = 0) {
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}/ws`)
  await once(socket, 'open')
  const came = []
  let wake = () => {}
  socket.on('message', (data) => {
    came.push(JSON.parse(data))
    wake()
  })
  const seen = async (wanted) => {
    for (;;) {
      const found = came.find(wanted)
      if (found) return found
      await new Promise((soon) => {
        wake = soon
      })
    }
  }
  const command = (message) => {
    socket.send(JSON.stringify({ sessionId, ...message }))
    return seen(({ type, id }) => type === 'response' && id === message.id)
  }
  const event = async (type, nth = 0) => {
    const is = (message) => message.type === 'event' && message.event.type === type
    await seen(() => came.filter(is).length > nth)
    return came.filter(is)[nth].event
  }
  assert.equal((await command({ id: 'sub', type: 'subscribe', after })).success, true)
  return { socket, command, event }
}

const FORM = {
  message: 'Where does it go?',
  requestedSchema: {
    type: 'object',
    properties: {
      place: {
        type: 'string',
        title: 'Place',
        oneOf: [
          { const: 'eu', title: 'Europe' },
          { const: 'us', title: 'America' },
        ],
      },
      copies: { type: 'integer', minimum: 1, maximum: 9 },
      mail: { type: 'string', format: 'email', description: 'whom to tell' },
      dry: { type: 'boolean', title: 'Only try' },
      parts: { type: 'array', items: { type: 'string', enum: ['app', 'db'] }, minItems: 1 },
      note: { type: 'string' },
    },
    required: ['place', 'copies', 'mail', 'dry', 'parts'],
  },
}
const YES = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } }

test('a form is one question after another, answered over HTTP and over /ws, and the SDK takes the answer', async () => {
  const session = await sessionOf(await served(piped))
  const { server, path } = session
  const clients = [await socketOf(session), await socketOf(session)]
  // What each is about, what is answered, by whom: over HTTP or the second socket.
  const plan = [
    ['select', 'Place (1 of 6)', 'Europe', 'http'],
    ['input', 'copies (2 of 6)', '10', 'ws'],
    ['input', 'copies (2 of 6)', '3', 'ws'],
    ['input', 'mail: whom to tell (3 of 6)', 'ann@example.org', 'http'],
    ['confirm', 'Only try (4 of 6)', false, 'ws'],
    ['select', 'parts (5 of 6)', ['db', 'app'], 'http'],
    ['input', 'note (6 of 6)', '', 'ws'],
  ]
  let asked = 0
  const { seen, heard } = await turnOf(session, FORM, async ({ type, payload }) => {
    if (type !== 'client.request') return
    const at = asked++
    const [kind, words, value, door] = plan[at]
    assert.equal(payload.callId, 'call_1')
    assert.equal(payload.question.kind, kind)
    assert.ok(payload.question.title.endsWith(`The tool server \`asker\` asks: Where does it go?\n${words}`))
    if (at === 2) assert.match(payload.question.title, /^That does not fit: .*at most 9/)
    for (const client of clients) assert.deepEqual((await client.event('client.request', at)).payload, payload)
    assert.deepEqual((await http(server, 'GET', path)).body.requests, [{ type, payload }])
    const { requestId } = payload
    const first = { id: `a${at}`, type: 'feedback', requestId, value }
    if (door === 'ws') assert.equal((await clients[1].command(first)).success, true)
    else assert.equal((await http(server, 'POST', `${path}/feedback`, { requestId, value })).status, 200)
    const second = await clients[0].command({ ...first, id: `b${at}` })
    assert.equal(second.error.code, 'CONFLICT', 'resolved once')
  })
  const content = { place: 'eu', copies: 3, mail: 'ann@example.org', dry: false, parts: ['db', 'app'] }
  assert.deepEqual(heard, { action: 'accept', content })
  assert.equal(asked, plan.length)
  const responses = of(seen, 'client.response')
  assert.deepEqual(
    responses.map(({ value, by }) => [value, by]),
    plan.map(([, , value]) => [value, 'client']),
  )
  assert.equal(new Set(responses.map(({ requestId }) => requestId)).size, plan.length)
  for (const { socket } of clients) socket.close()
})

test('yes, no, no answer in time, nobody there, a form that nobody can be asked: the server hears which', async () => {
  const server = await served(piped, { limits: { shutdownGraceMs: 0, permissionTimeoutMs: 400 } })
  const session = await sessionOf(server)
  const answer =
    (body) =>
    async ({ type, payload }) => {
      if (type !== 'client.request') return
      assert.equal(payload.question.kind, 'confirm')
      const { requestId } = payload
      assert.equal((await http(server, 'POST', `${session.path}/feedback`, { requestId, ...body })).status, 200)
    }
  const yes = await turnOf(session, YES, answer({ value: true }))
  assert.deepEqual(yes.heard, { action: 'accept', content: {} })
  assert.deepEqual((await turnOf(session, YES, answer({ value: false }))).heard, { action: 'decline' })
  assert.deepEqual(
    (
      await turnOf(session, FORM, async (event) => {
        if (event.type !== 'client.request') return
        await answerNo(server, session, event)
      })
    ).heard,
    { action: 'decline' },
  )
  const late = await turnOf(session, YES)
  assert.deepEqual(late.heard, { action: 'cancel' })
  assert.deepEqual(
    of(late.seen, 'client.response').map(({ by, cancelled }) => [by, cancelled]),
    [['timeout', true]],
  )
  // What nobody can be asked is refused, with the reason, and nobody is bothered.
  const many = Object.fromEntries(Array.from({ length: 33 }, (_, at) => [`p${at}`, { type: 'boolean' }]))
  const refused = await turnOf(session, { message: 'm', requestedSchema: { type: 'object', properties: many } })
  assert.deepEqual([refused.heard.code, of(refused.seen, 'client.request').length], [-32602, 0])
  assert.match(refused.heard.error, /at most 32 properties, got 33/)

  // Nobody reads: the prompt alone is no client.
  const alone = await served(piped, { limits: { shutdownGraceMs: 0, clientGraceMs: 30 } })
  const { sessionId, path } = await sessionOf(alone)
  await http(alone, 'POST', `${path}/prompt`, { prompt: JSON.stringify(YES) })
  let view
  do view = (await http(alone, 'GET', path)).body
  while (view.status !== 'completed')
  for await (const { type, payload } of events(alone, sessionId)) {
    if (type === 'client.response') assert.deepEqual([payload.by, payload.cancelled], ['no-client', true])
    if (type === 'session.completed') {
      assert.deepEqual(JSON.parse(payload.result), { action: 'cancel' })
      break
    }
  }
})

async function answerNo(server, { path }, { payload: { requestId } }) {
  const body = { requestId, cancelled: true }
  assert.equal((await http(server, 'POST', `${path}/feedback`, body)).status, 200)
}

test('a server that waits no longer takes its question back; an abort and a stop end it', async () => {
  const server = await served(piped)
  const session = await sessionOf(server)
  const impatient = await turnOf(session, { ...YES, timeout: 100 })
  assert.match(impatient.heard.error, /timed out/i)
  const ends = (seen) => of(seen, 'client.response').map(({ by, cancelled }) => [by, cancelled])
  assert.deepEqual(ends(impatient.seen), [['abort', true]])
  const [{ requestId }] = of(impatient.seen, 'client.request')
  assert.equal((await http(server, 'POST', `${session.path}/feedback`, { requestId, value: true })).status, 409)

  const aborted = await turnOf(session, YES, async ({ type }) => {
    if (type === 'client.request') await http(server, 'POST', `${session.path}/abort`, {})
  })
  assert.deepEqual([aborted.seen.at(-1).type, ends(aborted.seen)], ['abort', [['abort', true]]])
  assert.ok(aborted.seen.findIndex(({ type }) => type === 'client.response') < aborted.seen.length - 1)

  // A client that comes back finds the question, and its end after the server's own.
  const client = await socketOf(session, aborted.seen.at(-1).seq)
  await http(server, 'POST', `${session.path}/prompt`, { prompt: JSON.stringify(YES) })
  const asked = await client.event('client.request')
  client.socket.terminate()
  const again = await socketOf(session, asked.seq - 1)
  assert.deepEqual(await again.event('client.request'), asked)
  again.socket.on('error', () => {})
  await server.stop()
  const next = await served(piped, { dataDirectory: directories.get(server) })
  const { turn, requests } = (await http(next, 'GET', session.path)).body
  assert.deepEqual([turn, requests], [undefined, undefined], 'nothing is left open')
  const rest = []
  for await (const event of events(next, session.sessionId, asked.seq - 1)) {
    rest.push(event)
    if (['abort', 'session.error'].includes(event.type)) break
  }
  assert.deepEqual(rest[0], asked)
  assert.equal(rest.filter(({ type }) => type === 'client.response').length, 1)
})

test('a question goes to the session whose call it belongs to, or to nobody', async () => {
  // Over HTTP it comes with the call's own answer; over pipes nothing says whose it is when several sessions call at once.
  for (const [transport, sure] of [
    [await addressed(), true],
    [piped, false],
  ]) {
    const server = await served(transport)
    const sessions = await Promise.all([sessionOf(server), sessionOf(server)])
    const input = (at) => ({
      message: `Who are you, ${at}?`,
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
      raw: true,
    })
    // The first asks, and waits until the second has asked too.
    const arrived = [deferred(), deferred()]
    const turns = sessions.map(async (session, at) => {
      if (at === 1) await arrived[0].promise
      return turnOf(session, input(at), async ({ type, payload }) => {
        if (type !== 'client.request') return
        assert.match(payload.question.title, new RegExp(`Who are you, ${at}\\?`))
        arrived[at].resolve()
        await (sure ? arrived[1].promise : second)
        const body = { requestId: payload.requestId, value: `n${at}` }
        assert.equal((await http(server, 'POST', `${session.path}/feedback`, body)).status, 200)
      })
    })
    const second = turns[1]
    const [first, other] = await Promise.all(turns)
    const filled = (at) => ({ action: 'accept', content: { name: `n${at}` } })
    assert.deepEqual(first.heard, filled(0))
    assert.deepEqual(other.heard, sure ? filled(1) : { action: 'cancel' })
    assert.equal(of(other.seen, 'client.request').length, sure ? 1 : 0)
  }
})

test('an answer that was acknowledged holds over kill -9, and nobody can give another', {
  timeout: 120_000,
}, async () => {
  const model = await relay()
  const home = join(room, 'killed')
  mkdirSync(home)
  const config = join(home, 'config.toml')
  const command = JSON.stringify(process.execPath)
  writeFileSync(config, `[[mcp_servers]]\nname = "asker"\ncommand = ${command}\nargs = ${JSON.stringify([script])}\n`)
  const server = await servedAt({ home, model, args: ['--config', config] })
  open.add({ close: () => server.kill() })
  open.add(model)
  const toolPermissions = { defaultPolicy: 'allow', rules: [] }
  for (const [at, afterMs] of [0, 1, 4].entries()) {
    const sessionId = `s${at}`
    const created = await server.call('POST', '/sessions', { sessionId, toolPermissions })
    assert.equal(created.status, 201, JSON.stringify(created))
    const stream = events(server, sessionId, 0, server.headers)
    await connected(server, server.headers)
    await server.call('POST', `/sessions/${sessionId}/prompt`, { prompt: JSON.stringify(YES) })
    let asked
    for await (const { type, payload } of stream) {
      asked = payload
      assert.notEqual(type, 'session.completed', JSON.stringify(payload))
      if (type === 'client.request') break
    }
    const answer = { requestId: asked.requestId, value: at % 2 === 0 }
    const answered = await server.call('POST', `/sessions/${sessionId}/feedback`, answer)
    assert.equal(answered.status, 200, JSON.stringify(answered))
    // At once, and a little later: the moment is the point.
    if (afterMs > 0) await new Promise((soon) => setTimeout(soon, afterMs))
    await server.kill()
    await server.start()
    const again = await server.call('POST', `/sessions/${sessionId}/feedback`, { ...answer, value: at % 2 === 1 })
    assert.equal(again.status, 409, JSON.stringify(again))
    const seen = []
    for await (const event of events(server, sessionId, 0, server.headers)) {
      seen.push(event)
      if (['session.completed', 'session.error'].includes(event.type)) break
    }
    assert.deepEqual(
      of(seen, 'client.response').map(({ requestId, value, cancelled, by }) => [requestId, value, cancelled, by]),
      [[asked.requestId, answer.value, false, 'client']],
    )
  }
})
