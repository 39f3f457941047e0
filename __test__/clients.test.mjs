/**
 * Clients that others wrote, against the program: npm's `ws`, `undici` and `eventsource`, and Python's `websockets`. What they show is the
 * contract as such a client sees it: replays, conflicts, and streams that go on exactly where they were when a
 * connection, or the server, breaks off.
 */

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { EventSource as EventSourceOfPackage } from 'eventsource'
import { Agent, Client, EventSource as EventSourceOfUndici, WebSocket as WebSocketOfUndici } from 'undici'
import { WebSocket as WebSocketOfWs } from 'ws'
import { events } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'
import { deferred } from './support/registry.mjs'
import { servedAt } from './support/served.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-clients-')))
const open = []

after(async () => {
  for (const each of open) await (each.kill?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

/** A server in a home of its own, on a scripted model. */
async function served(name, script) {
  const home = join(room, name)
  mkdirSync(home)
  const model = await scriptedModel(script)
  open.push(model)
  const server = await servedAt({ home, model })
  open.push(server)
  return server
}

/** All events of a session up to the end of turn number `turns`, as the server shows them to whoever asks now. */
async function logged(server, sessionId, turns) {
  const all = []
  let ended = 0
  for await (const event of events(server, sessionId, 0, server.headers)) {
    all.push(event)
    if (event.type === 'session.completed') ended += 1
    if (ended === turns) return all
  }
  return all
}

/** A WebSocket of any make: commands by their ids, and events as they come. */
class Line {
  events = []
  #messages = []
  #waiting

  constructor(socket) {
    this.socket = socket
    socket.addEventListener('message', ({ data }) => this.#add(JSON.parse(data)))
    socket.addEventListener('error', () => {})
    this.closed = new Promise((closed) => socket.addEventListener('close', closed))
    this.closed.then(({ code }) => this.#add({ type: 'closed', code }))
  }

  #add(message) {
    this.#messages.push(message)
    this.#waiting?.()
  }

  async next() {
    while (this.#messages.length === 0) {
      const more = deferred()
      this.#waiting = more.resolve
      await more.promise
    }
    const message = this.#messages.shift()
    if (message.type === 'event') this.events.push(message.event)
    return message
  }

  /** The answer to a command, and the steps before it. */
  async command(command) {
    this.socket.send(JSON.stringify(command))
    const steps = []
    for (;;) {
      const message = await this.next()
      if (message.type === 'closed') throw new Error(`the connection was closed with ${message.code}`)
      if (message.id !== command.id) continue
      if (message.type === 'response') return { ...message, steps }
      steps.push(message.type)
    }
  }

  /** Takes what comes until `count` turns have ended. */
  async until(count) {
    while (this.events.filter(({ type }) => type === 'session.completed').length < count) {
      const { type, code } = await this.next()
      if (type === 'closed') throw new Error(`the connection was closed with ${code}`)
    }
  }
}

const LINES = [
  ['ws', (url, headers) => new WebSocketOfWs(url, { headers }), (socket) => socket.terminate()],
  ['undici', (url, headers) => new WebSocketOfUndici(url, { headers }), (socket) => socket.close()],
]

for (const [name, connect, cut] of LINES) {
  test(`a WebSocket of ${name}: replays, conflicts, and a connection and a server that break off`, {
    timeout: 120_000,
  }, async () => {
    const held = deferred()
    const server = await served(`ws-${name}`, [{ text: ['o', 'ne'] }, () => held.promise, { text: 'three' }])
    const opened = async () => {
      const line = new Line(connect(`${server.url.replace('http', 'ws')}/ws`, server.headers))
      const ready = await line.next()
      assert.deepEqual([ready.type, ready.transport, ready.protocolVersion], ['server_ready', 'websocket', '1.0.0'])
      // Both of them offer to compress.
      assert.equal(line.socket.extensions, '')
      return line
    }
    const line = await opened()
    const created = await line.command({ id: '1', type: 'create_session', sessionId: 's' })
    assert.deepEqual([created.success, created.data.sessionId, created.sessionVersion], [true, 's', 0])
    assert.deepEqual(created.steps, ['command_accepted', 'command_started', 'command_finished'])
    await line.command({ id: '2', type: 'subscribe', sessionId: 's', after: 0 })
    const prompt = { id: '3', type: 'prompt', sessionId: 's', prompt: 'hello' }
    const first = await line.command(prompt)
    assert.equal(first.success, true)
    await line.until(1)

    // The same again is answered alike and done no second time; something else under the same name is a conflict.
    const again = await line.command(prompt)
    assert.deepEqual([again.replayed, again.data, first.replayed], [true, first.data, undefined])
    const conflicts = [
      [{ ...prompt, prompt: 'something else' }, /3/],
      [{ ...prompt, id: '4', ifSessionVersion: 0 }, /version [1-9]\d*, not 0/],
      [{ ...prompt, id: '5', idempotencyKey: 'k', ifSessionVersion: 77 }, /version \d+, not 77/],
    ]
    for (const [command, words] of conflicts) {
      const { success, error } = await line.command(command)
      assert.deepEqual([success, error?.code], [false, 'CONFLICT'], JSON.stringify(command))
      assert.match(error.message, words)
    }

    // The connection ends in the middle of a turn; the turn does not.
    const second = await line.command({
      id: '6',
      idempotencyKey: 'second',
      type: 'prompt',
      sessionId: 's',
      prompt: 'go on',
    })
    assert.equal(second.success, true)
    cut(line.socket)
    held.resolve({ text: 'two' })
    const back = await opened()
    // Under its key it is known on every connection, whatever its id.
    const known = await back.command({
      id: '7',
      idempotencyKey: 'second',
      type: 'prompt',
      sessionId: 's',
      prompt: 'go on',
    })
    assert.deepEqual([known.replayed, known.data.turnId], [true, second.data.turnId])
    await back.command({ id: '8', type: 'subscribe', sessionId: 's', after: line.events.at(-1).seq })
    await back.until(1)
    const both = [...line.events, ...back.events]
    assert.deepEqual(both, await logged(server, 's', 2))
    assert.deepEqual(
      both.map(({ seq }) => seq),
      both.map((_, i) => i + 1),
    )

    await server.kill()
    await back.closed
    await server.start()
    const last = await opened()
    for (const [command, before] of [
      [{ id: '1', type: 'create_session', sessionId: 's' }, created],
      [prompt, first],
    ]) {
      const durable = await last.command(command)
      assert.deepEqual([durable.replayed, durable.success, durable.data], [true, true, before.data])
    }
    await last.command({ id: '9', type: 'subscribe', sessionId: 's', after: both.at(-1).seq })
    await last.command({ id: '10', type: 'prompt', sessionId: 's', prompt: 'third' })
    await last.until(1)
    assert.deepEqual([...both, ...last.events], await logged(server, 's', 3))
    last.socket.close()
    assert.equal((await last.closed).wasClean, true)
  })
}

/** Adds the token to what an EventSource asks for, and notes behind which event it wants to go on. */
const EVENT_SOURCES = [
  [
    'eventsource',
    (url, headers, asked) =>
      new EventSourceOfPackage(url, {
        fetch: (input, init) => {
          asked.push(init.headers['Last-Event-ID'])
          return fetch(input, { ...init, headers: { ...init.headers, ...headers } })
        },
      }),
  ],
  [
    'undici',
    (url, headers, asked) => {
      const withToken = (dispatch) => (options, handler) => {
        asked.push(options.headers['last-event-id'])
        return dispatch({ ...options, headers: { ...options.headers, ...headers } }, handler)
      }
      const dispatcher = new Agent().compose(withToken)
      open.push({ close: () => dispatcher.destroy() })
      return new EventSourceOfUndici(url, { node: { dispatcher, reconnectionTime: 200 } })
    },
  ],
]

test('an EventSource goes on behind the last event that it saw when the server was killed', {
  timeout: 120_000,
}, async () => {
  const server = await served('sse', [{ text: ['o', 'ne'] }, { text: 'two' }])
  await server.call('POST', '/sessions', { sessionId: 's' })
  const readers = EVENT_SOURCES.map(([name, connect]) => {
    const reader = { name, asked: [], seen: [], turns: [deferred(), deferred()] }
    reader.source = connect(`${server.url}/sessions/s/events`, server.headers, reader.asked)
    open.push(reader.source)
    let ended = 0
    reader.source.onmessage = ({ data, lastEventId }) => {
      const event = JSON.parse(data)
      if (event.seq === undefined) return
      reader.seen.push({ lastEventId, data, event })
      if (event.type === 'session.completed') reader.turns[ended++].resolve()
    }
    return reader
  })
  await server.call('POST', '/sessions/s/prompt', { prompt: 'first' })
  await Promise.all(readers.map(({ turns }) => turns[0].promise))
  const before = readers[0].seen.length
  await server.kill()
  await server.start()
  await server.call('POST', '/sessions/s/prompt?wait=true', { prompt: 'second' })
  await Promise.all(readers.map(({ turns }) => turns[1].promise))
  const all = await logged(server, 's', 2)
  for (const { name, asked, seen, source } of readers) {
    source.close()
    assert.deepEqual(
      seen.map(({ event }) => event),
      all,
      name,
    )
    assert.deepEqual(
      seen.map(({ lastEventId }) => lastEventId),
      all.map((_, i) => String(i + 1)),
      name,
    )
    // The first time from the first event on, then behind the last one that had come.
    assert.deepEqual([asked[0], asked.at(-1)], [undefined, String(before)], name)
  }
  assert.deepEqual(
    readers[0].seen.map(({ data }) => data),
    readers[1].seen.map(({ data }) => data),
  )
})

test('undici over one connection: requests behind each other, keys, versions, and a stream that is left', {
  timeout: 120_000,
}, async () => {
  const held = deferred()
  const server = await served('http', [{ text: 'one' }, () => held.promise])
  const client = new Client(server.url, { pipelining: 8 })
  open.push({ close: () => client.destroy() })
  const ask = async (method, path, { body, headers, signal } = {}) => {
    const answer = await client.request({
      method,
      path,
      headers: { ...server.headers, 'content-type': 'application/json', ...headers },
      body: body && JSON.stringify(body),
      signal,
      // A write that says its own key may be sent behind another one.
      idempotent: true,
    })
    return answer
  }
  const key = { 'idempotency-key': 'make' }
  const made = await Promise.all(
    Array.from({ length: 8 }, () => ask('POST', '/sessions', { body: { sessionId: 's' }, headers: key })),
  )
  const bodies = await Promise.all(made.map(({ body }) => body.text()))
  assert.ok(made.every(({ statusCode }) => statusCode === 201))
  assert.deepEqual(new Set(bodies).size, 1)
  assert.equal(made.filter(({ headers }) => headers['idempotency-replayed'] === 'true').length, 7)

  // The turn's own stream, which ends with it.
  const streamed = await ask('POST', '/sessions/s/prompt', {
    body: { prompt: 'go' },
    headers: { accept: 'text/event-stream', 'idempotency-key': 'one' },
  })
  assert.equal(streamed.headers['content-type'], 'text/event-stream')
  const text = await streamed.body.text()
  const types = [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data).type)
  assert.deepEqual([types.includes('stream.delta'), types.at(-1)], [true, 'session.completed'])

  const stale = await ask('POST', '/sessions/s/prompt', { body: { prompt: 'late' }, headers: { 'if-match': '"0"' } })
  const refused = await stale.body.json()
  assert.deepEqual([stale.statusCode, refused.error.code], [409, 'CONFLICT'])
  assert.match(refused.error.message, /version [1-9]\d*, not 0/)

  // Who leaves the stream of a turn does not stop the turn.
  const leave = new AbortController()
  const left = await ask('POST', '/sessions/s/prompt', {
    body: { prompt: 'hold' },
    headers: { accept: 'text/event-stream', 'idempotency-key': 'two' },
    signal: leave.signal,
  })
  await once(left.body, 'data')
  leave.abort()
  await assert.rejects(left.body.text())
  held.resolve({ text: 'two' })
  const all = await logged(server, 's', 2)
  assert.equal(all.at(-1).payload.result, 'two')
})

/** A Python that has the package, or why there is none. `.ci/run` installs one and names it. */
function python() {
  const named = process.env.SIMSE_TEST_PYTHON
  const program = named || 'python3'
  const tried = spawnSync(program, ['-c', 'import websockets.asyncio.client'], { encoding: 'utf8' })
  if (tried.status === 0) return { program }
  const why = tried.error?.message ?? tried.stderr.trim().split('\n').at(-1)
  assert.ok(!named, `SIMSE_TEST_PYTHON (${named}) cannot be used: ${why}`)
  const how = 'python3 -m venv DIR && DIR/bin/pip install websockets, then SIMSE_TEST_PYTHON=DIR/bin/python'
  return { lacking: `${program} has no package websockets 13 or newer (${why}); ${how}` }
}

test('the websockets package of Python: replays, conflicts, and coming back by itself', {
  timeout: 120_000,
}, async (t) => {
  const { program, lacking } = python()
  if (lacking) return t.skip(lacking)
  const server = await served('python', [{ text: ['o', 'ne'] }, { text: 'two' }])
  const script = fileURLToPath(new URL('./support/client.py', import.meta.url))
  const args = [script, `${server.url.replace('http', 'ws')}/ws`, server.headers.authorization]
  // How long the package waits before it tries again.
  const delays = { WEBSOCKETS_BACKOFF_INITIAL_DELAY: '0.1', WEBSOCKETS_BACKOFF_MIN_DELAY: '0.2' }
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, ...delays } })
  open.push({ kill: () => child.kill('SIGKILL') })
  let wrong = ''
  child.stderr.on('data', (text) => {
    wrong += text
  })
  const ended = once(child, 'close')
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const next = async () => {
    const { value, done } = await lines.next()
    assert.ok(!done, `the client ended: ${wrong}`)
    return JSON.parse(value)
  }

  const { ready, created, first, again, other, stale } = await next()
  assert.deepEqual([ready.type, created.data.sessionId, first.success], ['server_ready', 'python', true])
  assert.deepEqual([again.replayed, again.data], [true, first.data])
  assert.deepEqual([other.success, other.error.code, stale.error.code], [false, 'CONFLICT', 'CONFLICT'])
  assert.match(stale.error.message, /version [1-9]\d*, not 0/)
  assert.deepEqual(await next(), { at: 'kill' })
  await server.kill()
  child.stdin.write('\n')
  assert.deepEqual(await next(), { at: 'start' })
  child.stdin.write('\n')
  await server.start()
  const { durable, events: seen } = await next()
  assert.deepEqual([durable.replayed, durable.data], [true, first.data])
  assert.deepEqual(seen, await logged(server, 'python', 2))
  assert.deepEqual(await ended, [0, null], wrong)
})
