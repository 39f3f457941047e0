/** A session at one moment (`?snapshot=true`, `get_session`), and its stream going on from there. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { WebSocket } from 'ws'
import { createSimseClient } from '../js/client.node.js'
import { createSimseServer } from '../js/index.js'
import { gathered } from './support/client.mjs'
import { events, http } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'
import { registryOf } from './support/registry.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-snapshot-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const open = []

after(async () => {
  for (const each of open.reverse()) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

/** A server on a scripted model with these tools, and a session. */
async function serving(script, tools, more = {}) {
  const workingDirectory = join(room, String(open.length))
  mkdirSync(workingDirectory)
  const model = await scriptedModel(script)
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    workingDirectory,
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    limits: { shutdownGraceMs: 0, commandsPerMinute: 1_000_000 },
    toolRegistry: registryOf(tools),
    ...more,
  })
  await server.start()
  const client = createSimseClient({ baseUrl: server.url })
  open.push(model, server, client)
  const { sessionId } = await client.sessions.create()
  return { server, client, sessionId, path: `/sessions/${sessionId}` }
}

/** Commands on a WebSocket. */
async function commands(server) {
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}/ws`)
  await once(socket, 'open')
  const waiting = new Map()
  socket.on('message', (data) => {
    const message = JSON.parse(String(data))
    if (message.type === 'response') waiting.get(message.id)?.(message)
  })
  let last = 0
  const command = (body) => {
    const id = `c${++last}`
    const answer = new Promise((known) => waiting.set(id, known))
    socket.send(JSON.stringify({ id, ...body }))
    return answer
  }
  return { command, close: () => socket.close() }
}

const message = (role, payload) => ({
  type: 'message',
  role,
  content: payload.parts ?? [{ type: 'text', text: payload.prompt ?? payload.text }],
})

/** What a reader holds of a session: it begins with nothing or with a snapshot, and takes event after event. */
class Picture {
  items = []
  text
  reasoning
  calls = new Map()
  requests = new Map()
  queue = []
  running

  static of({ turn, requests = [], snapshot }) {
    const picture = new Picture()
    picture.items = snapshot.items.map(({ at, turnId, ...item }) => item)
    picture.queue = snapshot.queue.map(({ turnId }) => turnId)
    picture.running = turn?.turnId
    assert.equal(snapshot.open?.turnId, turn?.turnId)
    picture.text = snapshot.open?.text
    picture.reasoning = snapshot.open?.reasoning
    for (const { at, output = '', ...call } of snapshot.open?.calls ?? []) {
      picture.calls.set(call.callId, { ...call, output })
    }
    for (const { type, payload } of requests) picture.requests.set(payload.requestId, { type, payload })
    return picture
  }

  take({ seq, type, payload, turnId }) {
    const item = (body) => this.items.push({ seq, ...body })
    const silent = () => {
      this.text = undefined
      this.reasoning = undefined
    }
    switch (type) {
      case 'turn.queued':
        return void this.queue.push(turnId)
      case 'session.prompt':
        this.running = turnId
        this.queue = this.queue.filter((id) => id !== turnId)
        return item(message('user', payload))
      case 'session.steer':
        return item(message('user', payload))
      case 'stream.start':
      case 'stream.retry':
        silent()
        this.text = ''
        return
      case 'stream.delta':
        this.text = (this.text ?? '') + payload.text
        return
      case 'stream.reasoning':
        this.reasoning = (this.reasoning ?? '') + payload.text
        return
      case 'stream.complete':
        assert.ok(payload.text.startsWith(this.text ?? ''), 'what was shown before is the beginning of it')
        silent()
        return payload.text === '' ? undefined : item(message('assistant', payload))
      case 'tool.call.start': {
        const { callId, name, args } = payload
        this.calls.set(callId, { callId, name, arguments: args, output: '' })
        return item({ type: 'tool_call', callId, name, arguments: args })
      }
      case 'tool.call.output':
        this.calls.get(payload.callId).output += payload.text
        return
      case 'tool.call.end': {
        const { durationMs, details, ...result } = payload
        assert.ok(this.calls.delete(payload.callId), 'a call that had begun')
        return item({ type: 'tool_result', ...result })
      }
      case 'permission.request':
      case 'client.request':
        return void this.requests.set(payload.requestId, { type, payload })
      case 'permission.response':
      case 'client.response':
        return void assert.ok(this.requests.delete(payload.requestId), 'a question that was open')
      case 'session.completed':
      case 'session.error':
      case 'abort':
        this.running = undefined
    }
  }
}

const words = (count, word) => Array.from({ length: count }, (_, at) => `${word}${at} `)

test('snapshots at any moment of turns, over HTTP and /ws: each is the log so far, and the stream goes on from it', {
  timeout: 120_000,
}, async () => {
  const wake = []
  /** Between two pieces of the model one snapshot is taken, more or less. */
  const pace = () => (over ? undefined : new Promise((go) => wake.push(go)))
  let over = false
  const call = (id, name, args = {}) => ({ id, name, arguments: args })
  const script = [
    {
      reasoning: words(6, 'hm'),
      text: words(8, 'first'),
      calls: [call('a', 'ask', { n: 1 }), call('b', 'act')],
      pace,
    },
    {
      reasoning: words(3, 'so'),
      text: words(8, 'second'),
      calls: [call('c', 'act'), call('d', 'ask', { n: 2 })],
      pace,
    },
    { calls: [call('e', 'act', { last: true })], pace },
    { text: words(8, 'third'), pace },
    { text: words(8, 'fourth'), pace },
  ]
  const tools = {
    ask: async ({ n }, { ask }) => {
      await pace()
      return `asked ${(await ask({ kind: 'input', title: `Number ${n}?` })).value}`
    },
    act: async () => {
      await pace()
      return 'acted'
    },
  }
  const toolPermissions = { defaultPolicy: 'allow', rules: [{ tool: 'act', policy: 'ask' }] }
  const { server, client, sessionId, path } = await serving(script, tools, { toolPermissions })
  const log = []
  const ends = new Set(['session.completed', 'session.error', 'abort'])
  const reading = (async () => {
    let ended = 0
    for await (const event of events(server, sessionId)) {
      log.push(event)
      if (ends.has(event.type) && ++ended === 2) return
    }
  })()
  const socket = await commands(server)
  const taken = []
  const take = async (way) => {
    const view =
      way === 'http'
        ? (await http(server, 'GET', `${path}?snapshot=true&limit=1000`)).body
        : (await socket.command({ type: 'get_session', sessionId, snapshot: true, limit: 1000 })).data
    assert.equal(view.snapshot?.seq, view.lastSeq, JSON.stringify(view))
    taken.push(view)
    return view
  }
  for (const prompt of ['go', 'and then']) {
    assert.equal((await http(server, 'POST', `${path}/prompt`, { prompt })).status, 202)
  }
  const steer = { prompt: 'mind this', mode: 'steer' }
  assert.equal((await http(server, 'POST', `${path}/prompt`, steer)).status, 202)
  let done = false
  const ended = reading.finally(() => {
    done = true
    over = true
    for (const go of wake.splice(0)) go()
  })
  const resumed = []
  for (let round = 0; !done; round++) {
    const [one, two] = await Promise.all([take('http'), take('ws')])
    if (round % 8 === 0) resumed.push([one, firstOf(events(server, sessionId, one.snapshot.seq))])
    // A question stays open for a while, so that some picture has it.
    const [asked] = two.requests ?? []
    if (asked !== undefined && round % 3 === 0) {
      const { requestId } = asked.payload
      const answer = asked.type === 'client.request' ? { requestId, value: 'x' } : { requestId, decision: 'allow' }
      await http(server, 'POST', `${path}/feedback`, answer)
    }
    wake.shift()?.()
  }
  await ended
  socket.close()

  const history = await gathered(client.sessions.history(sessionId))
  const final = history.map(({ at, turnId, ...item }) => item)
  taken.push((await http(server, 'GET', `${path}?snapshot=true&limit=1000`)).body)
  for (const view of taken) {
    const { seq } = view.snapshot
    const before = new Picture()
    for (const event of log.slice(0, seq)) before.take(event)
    const picture = Picture.of(view)
    // A stream that has begun and said nothing thinks nothing either.
    assert.deepEqual(picture, before, `the picture at ${seq}`)
    for (const event of log.slice(seq)) picture.take(event)
    assert.deepEqual(picture.items, final, `the history from ${seq} on`)
    assert.deepEqual(
      [picture.calls.size, picture.requests.size, picture.running, picture.text],
      [0, 0, undefined, undefined],
    )
  }
  for (const [view, next] of resumed) assert.deepEqual(await next, log[view.snapshot.seq])
  const seen = (holds) => assert.ok(taken.some(holds), `a picture with ${holds}`)
  seen(({ snapshot }) => snapshot.open?.text?.length > 0)
  seen(({ snapshot }) => snapshot.open?.reasoning?.length > 0)
  seen(({ snapshot }) => snapshot.open?.calls.length > 0)
  seen(({ snapshot }) => snapshot.queue.length === 1)
  seen(({ requests }) => requests?.some(({ type }) => type === 'client.request'))
  seen(({ requests }) => requests?.some(({ type }) => type === 'permission.request'))
})

/** The first event of a stream; undefined when it has none before its end. */
async function firstOf(stream) {
  for await (const event of stream) return event
}

test('what lies before a snapshot is read backwards, page by page, through simse/client too', async () => {
  const turns = 7
  const { server, client, sessionId, path } = await serving(
    words(turns, 'answer').map((text) => ({ text })),
    {},
  )
  for (let at = 0; at < turns; at++) {
    await client.sessions.prompt(sessionId, { prompt: `question ${at}` }, { wait: true })
  }
  const all = await gathered(client.sessions.history(sessionId))
  assert.equal(all.length, 2 * turns)
  for (const limit of [1, 3, 5, 14, 1000]) {
    const view = await client.sessions.get(sessionId, { snapshot: true, limit })
    assert.deepEqual(view.snapshot.items, all.slice(-limit))
    assert.deepEqual([view.snapshot.open, view.snapshot.queue], [undefined, []])
    const { before } = view.snapshot
    assert.equal(before === null, limit >= all.length)
    if (before === null) continue
    const older = await gathered(client.sessions.history(sessionId, { cursor: before, back: true, limit }))
    assert.deepEqual([...older.reverse(), ...view.snapshot.items], all)
  }
  assert.deepEqual((await gathered(client.sessions.history(sessionId, { back: true }))).reverse(), all)
  assert.equal((await client.sessions.get(sessionId)).snapshot, undefined)
  const socket = await commands(server)
  const page = await socket.command({ type: 'get_history', sessionId, back: true, limit: 2 })
  assert.deepEqual(page.data.items, all.slice(-2).reverse())
  const refused = await socket.command({ type: 'get_session', sessionId, limit: 2 })
  assert.equal(refused.error.details.field, 'limit')
  socket.close()
  for (const [query, field] of [
    ['?limit=2', 'limit'],
    ['?snapshot=2', 'snapshot'],
    ['?snapshot=true&limit=0', 'limit'],
    ['/history?back=true&events=true', 'back'],
  ]) {
    const { status, body } = await http(server, 'GET', path + query)
    assert.deepEqual([status, body.error.details.field], [400, field], query)
  }
  assert.equal((await http(server, 'GET', '/sessions/none?snapshot=true')).status, 404)
})
