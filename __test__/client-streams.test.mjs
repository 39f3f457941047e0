/** Event streams of `simse/client`: what is killed, cut, silent, slow or left, and calls whose answers are lost. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Frames } from '../js/client/frames.js'
import { createSimseClient } from '../js/client.node.js'
import { clientRoom, gathered, refusedWith, until } from './support/client.mjs'
import { deferred } from './support/registry.mjs'

const { served, close, open } = clientRoom('client-streams')
after(close)

const isEnd = ({ type }) => type === 'session.completed' || type === 'session.error' || type === 'abort'

/** An `ends` for `gathered`: behind the end of so many turns. */
const turnsEnd = (count) => (_, all) => all.filter(isEnd).length === count

test('streams lose nothing and repeat nothing over kill -9 and restart', { timeout: 120_000 }, async () => {
  const held = deferred()
  const { server, client, home } = await served([
    { text: ['o', 'ne'] },
    { hang: true },
    () => held.promise,
    { text: 'four' },
  ])
  const { sessions } = client
  await sessions.create({ sessionId: 's' })
  const lines = []
  const onReconnect = ({ cause }) => lines.push(cause)
  const all = gathered(sessions.events('s', { onReconnect }), turnsEnd(4))
  const ends = gathered(sessions.events('s', { types: ['session.completed', 'session.error'] }), turnsEnd(4))
  const lifecycle = gathered(client.events(), turnsEnd(4))
  assert.equal((await sessions.prompt('s', { prompt: 'first' }, { wait: true })).result, 'one')

  // Killed in the middle of a turn: whoever waits for it hears what became of it.
  const second = sessions.prompt('s', { prompt: 'second' }, { wait: true })
  await gathered(sessions.events('s'), ({ type, payload }) => type === 'stream.delta' && payload.text === 'one moment')
  await server.kill()
  await server.start()
  const failed = await second
  assert.deepEqual([failed.status, failed.error.message], ['failed', 'interrupted by restart'])

  // Killed while prompts are sent, again and again: each becomes one turn.
  const third = sessions.prompt('s', { prompt: 'third' })
  const fourth = sessions.prompt('s', { prompt: 'fourth' }, { wait: true, idempotencyKey: 'fourth' })
  const accepted = await third
  held.resolve({ text: 'three' })
  await server.kill()
  const again = sessions.prompt('s', { prompt: 'fourth' }, { idempotencyKey: 'fourth' })
  await server.start()
  assert.equal((await fourth).turnId, (await again).turnId)
  assert.notEqual(accepted.turnId, (await again).turnId)

  const seen = await all
  assert.deepEqual(
    seen.map(({ seq }) => seq),
    seen.map((_, i) => i + 1),
  )
  const logged = await gathered(sessions.history('s', { events: true }))
  assert.deepEqual(seen, logged)
  assert.deepEqual(await ends, logged.filter(isEnd))
  assert.equal(logged.filter(({ type }) => type === 'session.prompt').length, 4)
  const kinds = new Set((await lifecycle).map(({ type }) => type))
  assert.ok(kinds.has('session.created') && !kinds.has('stream.delta'))
  assert.deepEqual((await lifecycle).filter(isEnd), logged.filter(isEnd))
  assert.ok(lines.length >= 2 && lines.every(({ code }) => code === 'UNREACHABLE'), String(lines))

  // A program that was started anew goes on where the old one was.
  const other = createSimseClient({ dataDirectory: join(home, 'data') })
  const begun = other.sessions.events('s')
  await begun.next()
  await begun.next()
  const { lastEventId } = begun
  await begun.return()
  const rest = await gathered(
    other.sessions.events('s', { after: Number(lastEventId) }),
    (_, { length }) => length === seen.length - 2,
  )
  assert.deepEqual(rest, seen.slice(2))
  const newest = other.events({ after: 'newest' })
  const next = newest.next()
  await until(() => newest.lastEventId !== undefined)
  await sessions.create({ sessionId: 'later' })
  assert.equal((await next).value.sessionId, 'later')
  other.close()
})

/** Whether a server is asked to show that it is the one. */
const isProof = (url) => url.includes('/proof/')

/** A `fetch` that does what it is asked, and then loses the first `count` answers to what `fits`. */
function forgetful(count, fits = () => true) {
  const sent = []
  const lost = async (url, init) => {
    const response = await fetch(url, init)
    if (isProof(url) || !fits(url, init)) return response
    sent.push({ method: init.method, path: new URL(url).pathname, key: init.headers['idempotency-key'] })
    if (sent.length > count) return response
    await response.body?.cancel()
    throw new TypeError('fetch failed')
  }
  return { fetch: lost, sent }
}

test('what is sent again because its answer was lost is done once', { timeout: 60_000 }, async () => {
  const { client, home } = await served([{ text: 'one' }, { text: 'two' }, { text: 'three' }])
  const ways = [
    ['create', (with_) => with_.sessions.create({ title: 'mine' })],
    ['prompt', (with_) => with_.sessions.prompt('s', { prompt: 'a' })],
    ['wait', (with_) => with_.sessions.prompt('s', { prompt: 'b' }, { wait: true })],
    ['stream', async (with_) => gathered(await with_.sessions.prompt('s', { prompt: 'c' }, { stream: true }))],
    ['configure', (with_) => with_.sessions.configure('s', { title: 'new' })],
    ['fork', (with_) => with_.sessions.fork('s')],
    ['delete', (with_) => with_.sessions.delete('s')],
  ]
  await client.sessions.create({ sessionId: 's' })
  const results = {}
  for (const [name, act] of ways) {
    const { fetch, sent } = forgetful(3, (_, { method }) => method !== 'GET')
    const own = createSimseClient({ dataDirectory: join(home, 'data'), fetch })
    if (name === 'delete') results.log = await gathered(client.sessions.history('s', { events: true }))
    results[name] = await act(own)
    assert.deepEqual(
      [sent.length, new Set(sent.map(({ key }) => key)).size, typeof sent[0].key],
      [4, 1, 'string'],
      name,
    )
  }
  assert.equal(results.wait.result, 'two')
  assert.deepEqual([results.stream[0].type, results.stream.at(-1).payload.result], ['session.prompt', 'three'])
  const prompts = results.log.filter(({ type }) => type === 'session.prompt').map(({ payload }) => payload.prompt)
  assert.deepEqual(prompts, ['a', 'b', 'c'])
  assert.equal(results.log.filter(({ type }) => type === 'session.configured').length, 1)
  assert.deepEqual(results.delete, { deleted: true })
  // The session that was made once, and the fork that was.
  const ids = (await gathered(client.sessions.list())).map(({ sessionId }) => sessionId)
  assert.deepEqual(ids.sort(), [results.create.sessionId, results.fork.sessionId].sort())
})

test('what may have been done and has no key is not sent again; a limit is waited for', {
  timeout: 120_000,
}, async () => {
  const { home, client } = await served([], { args: ['--commands-per-minute', '60'] })
  const at = (fetch, more) => createSimseClient({ dataDirectory: join(home, 'data'), fetch, ...more })
  const explain = { tool: 'fs_list', arguments: { path: '.' } }
  const once = forgetful(1)
  const lost = await refusedWith(assert, 'UNREACHABLE', at(once.fetch).permissions.explain(explain))
  assert.deepEqual([once.sent.length, lost.status, lost.operation], [1, undefined, 'permissions.explain'])
  assert.match(lost.message, /permissions\.explain: no answer from http:\/\/127\.0\.0\.1:\d+: fetch failed/)
  const reads = forgetful(2)
  assert.ok((await at(reads.fetch).tools()).tools.length > 0)
  assert.equal(reads.sent.length, 3)
  const never = forgetful(100)
  await refusedWith(assert, 'UNREACHABLE', at(never.fetch, { retries: 2 }).tools())
  assert.equal(never.sent.length, 3)

  // 503 says that nothing was done; 429 says when there is room again.
  let refusals = 2
  const refusing = async (url, init) => {
    if (isProof(url) || refusals-- <= 0) return fetch(url, init)
    const error = { error: { code: 'UPSTREAM_UNAVAILABLE', message: 'the server is stopping' } }
    return Response.json(error, { status: 503 })
  }
  assert.equal((await at(refusing).sessions.create({ sessionId: 's' })).sessionId, 's')
  assert.equal(refusals, -1)
  const all = await Promise.all(
    Array.from({ length: 61 }, (_, i) => client.sessions.configure('s', { title: `t${i}` })),
  )
  assert.equal(Math.max(...all.map(({ version }) => version)), 61)

  const slow = createSimseClient({
    baseUrl: 'http://127.0.0.1:9',
    fetch: (_, { signal }) => hangs(signal),
    timeoutMs: 50,
  })
  const late = await refusedWith(assert, 'TIMEOUT', slow.tools())
  assert.deepEqual([late.status, late.message], [undefined, 'tools: no answer within 50 ms'])
  const reason = new RangeError('enough')
  await assert.rejects(slow.tools({ signal: AbortSignal.abort(reason) }), reason)
  const stop = new AbortController()
  const given = slow.tools({ signal: stop.signal, timeoutMs: 60_000 })
  stop.abort(reason)
  await assert.rejects(given, reason)
})

/** Never answers, but gives up when it is told to. */
function hangs(signal) {
  return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }))
}

test('whoever leaves a stream closes its connection', { timeout: 60_000 }, async () => {
  const { client } = await served([{ hang: true }, { text: 'after' }])
  const { sessions } = client
  await sessions.create({ sessionId: 's' })
  const streams = async () => {
    const { limits } = await client.health({ verbose: true })
    return limits.find(({ name }) => name === 'streamsOfASession').used
  }
  assert.equal(await streams(), 0)
  const ways = [
    async (stream) => {
      for await (const _ of stream) break
    },
    async (stream) => {
      await stream.next()
      const next = stream.next()
      await stream.return()
      assert.deepEqual(await next, { value: undefined, done: true })
    },
    async (stream, stop) => {
      await stream.next()
      const next = stream.next()
      stop.abort()
      assert.deepEqual(await next, { value: undefined, done: true })
    },
    // Nobody waits for an event when it is aborted.
    async (stream, stop) => {
      await stream.next()
      stop.abort()
    },
  ]
  for (const leave of ways) {
    const stop = new AbortController()
    const stream = sessions.events('s', { signal: stop.signal })
    const begun = stream.next.bind(stream)
    stream.next = async () => {
      const event = await begun()
      if (!event.done) assert.ok((await streams()) > 0)
      return event
    }
    await leave(stream, stop)
    await until(async () => (await streams()) === 0)
  }
  // The stream of a turn too, and the turn goes on.
  const turn = await sessions.prompt('s', { prompt: 'hang' }, { stream: true })
  for await (const { type } of turn) if (type === 'stream.delta') break
  await until(async () => (await streams()) === 0)
  assert.equal((await sessions.get('s')).turn.turnId, turn.turnId)
  await sessions.abort('s')
  assert.deepEqual(await gathered(sessions.events('s', { signal: AbortSignal.abort() })), [])
})

test('a stream ends with its session', { timeout: 60_000 }, async () => {
  const { client } = await served([])
  await client.sessions.create({ sessionId: 's' })
  const stream = client.sessions.events('s')
  await stream.next()
  const rest = gathered(stream)
  await client.sessions.delete('s')
  assert.deepEqual(await rest, [])
  assert.equal((await stream.next()).done, true)
  await refusedWith(assert, 'NOT_FOUND', gathered(client.sessions.events('s')))
})

/** A server that plays a part: `play(request, write, response)` for each request. */
async function played(play) {
  const requests = []
  const server = createServer((request, response) => {
    requests.push(request)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    play(request, (text) => response.write(text), response)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  open.push({
    close() {
      server.closeAllConnections()
      return new Promise((closed) => server.close(closed))
    },
  })
  return { requests, url: `http://127.0.0.1:${server.address().port}` }
}

const READY = 'data: {"type":"ready","payload":{"position":0}}\n\n'
const frame = (seq, text = '') =>
  `id: ${seq}\ndata: ${JSON.stringify({ seq, type: 'stream.delta', payload: { text }, sessionId: 's', at: 0 })}\n\n`

test('a silent line, a cut one, and one that repeats itself: the events come in order, each once', {
  timeout: 60_000,
}, async () => {
  const { requests, url } = await played((request, write, response) => {
    const from = Number(request.headers['last-event-id'])
    write(READY)
    switch (requests.length) {
      case 1:
        // Goes silent in the middle of an event.
        return void write(frame(1) + frame(2) + frame(3).slice(0, 20))
      case 2:
        // Begins too early, and is cut.
        write(frame(1) + frame(2) + frame(from + 1))
        return void setImmediate(() => response.destroy())
      case 3:
        // Signs of life keep it open.
        return void beats(write, () => write(frame(from + 1) + frame(from + 2)))
      default:
        return void response.end(frame(99))
    }
  })
  const client = createSimseClient({ baseUrl: url })
  const causes = []
  const stream = client.sessions.events('s', { silenceMs: 400, onReconnect: ({ cause }) => causes.push(cause.message) })
  const seen = await gathered(stream, ({ seq }) => seq === 5)
  assert.deepEqual(
    seen.map(({ seq }) => seq),
    [1, 2, 3, 4, 5],
  )
  assert.deepEqual(
    requests.map(({ headers }) => headers['last-event-id']),
    ['0', '2', '3'],
  )
  assert.equal(causes.length, 2)
  assert.match(causes[0], /sessions\.events: silent for 400 ms/)
})

/** Writes comments for longer than a silent line may be, then what it is told. */
function beats(write, then) {
  let left = 6
  const timer = setInterval(() => {
    if (left-- > 0) return write(': still here\n\n')
    clearInterval(timer)
    then()
  }, 150)
}

test('what is no stream of this kind is refused, and a server that has gone is not looked for without end', async () => {
  const { url } = await played((_, write) => write('data: {"type":"hello"}\n\n'))
  await refusedWith(assert, 'BAD_ANSWER', createSimseClient({ baseUrl: url }).sessions.events('s').next())
  const page = () => Promise.resolve(new Response('<html>', { headers: { 'content-type': 'text/html' } }))
  const strange = createSimseClient({ baseUrl: url, fetch: page })
  await refusedWith(assert, 'BAD_ANSWER', strange.sessions.events('s').next())
  await refusedWith(assert, 'BAD_ANSWER', strange.tools())
  const gateway = () => Promise.resolve(new Response('<html>', { status: 502 }))
  const behind = createSimseClient({ baseUrl: url, fetch: gateway })
  assert.equal((await refusedWith(assert, 'UPSTREAM_UNAVAILABLE', behind.tools())).status, 502)

  let up = true
  const real = await played((_, write) => write(READY + frame(1)))
  const fetching = (input, init) => (up ? fetch(input, init) : Promise.reject(new TypeError('fetch failed')))
  const tries = []
  const stream = createSimseClient({ baseUrl: real.url, fetch: fetching }).sessions.events('s', {
    silenceMs: 50,
    giveUpMs: 400,
    onReconnect: (one) => tries.push(one),
  })
  assert.equal((await stream.next()).value.seq, 1)
  up = false
  await refusedWith(assert, 'UNREACHABLE', stream.next())
  assert.equal((await stream.next()).done, true)
  assert.ok(tries.length > 1)
  assert.deepEqual(
    tries.map(({ attempt }) => attempt),
    tries.map((_, i) => i + 1),
  )
})

test('nothing is read ahead of a slow reader', async () => {
  let pulled = 0
  const body = () =>
    new ReadableStream(
      {
        pull(controller) {
          pulled += 1
          controller.enqueue(new TextEncoder().encode(pulled === 1 ? READY : frame(pulled - 1, 'x'.repeat(1000))))
        },
      },
      { highWaterMark: 0 },
    )
  const answer = () => Promise.resolve(new Response(body(), { headers: { 'content-type': 'text/event-stream' } }))
  const stream = createSimseClient({ baseUrl: 'http://127.0.0.1:9', fetch: answer }).sessions.events('s')
  for (let seq = 1; seq <= 20; seq += 1) {
    assert.equal((await stream.next()).value.seq, seq)
    assert.equal(pulled, seq + 1)
  }
  await stream.return()
  // Several `next()` at once get one event each, in order.
  pulled = 0
  const hasty = createSimseClient({ baseUrl: 'http://127.0.0.1:9', fetch: answer }).sessions.events('s')
  const three = await Promise.all([hasty.next(), hasty.next(), hasty.next()])
  assert.deepEqual(
    three.map(({ value }) => value.seq),
    [1, 2, 3],
  )
  await hasty.return()
})

test('a connection is let go of where `fetch` does not look at its signal', async () => {
  const cancelled = []
  const body = () =>
    new ReadableStream({
      start: (controller) => controller.enqueue(new TextEncoder().encode(READY)),
      pull: () => new Promise(() => {}),
      cancel: (reason) => void cancelled.push(reason),
    })
  const answer = () => Promise.resolve(new Response(body(), { headers: { 'content-type': 'text/event-stream' } }))
  const client = createSimseClient({ baseUrl: 'http://127.0.0.1:9', fetch: answer })
  const stop = new AbortController()
  const stream = client.sessions.events('s', { signal: stop.signal })
  const next = stream.next()
  setImmediate(() => stop.abort())
  assert.equal((await next).done, true)
  await until(() => cancelled.length === 1)
  const causes = []
  const silent = client.sessions.events('s', {
    silenceMs: 30,
    onReconnect: ({ cause }) => causes.push(cause),
  })
  const waiting = silent.next()
  await until(() => causes.length > 0)
  await silent.return()
  assert.equal((await waiting).done, true)
  assert.match(causes[0].message, /silent for 30 ms/)
})

test('frames are the same however the network cuts them', () => {
  const text = `: a comment\n\nid: 1\ndata: {"a":"é😀"}\n\ndata: no id\r\n\r\nevent: x\nid: 2\ndata: one\ndata:two\n\n\nid: 3\n\ndata\n\n`
  const want = [
    { id: '1', data: '{"a":"é😀"}' },
    { id: undefined, data: 'no id' },
    { id: '2', data: 'one\ntwo' },
    { id: '3', data: '' },
  ]
  const bytes = new TextEncoder().encode(text)
  for (let size = 1; size <= bytes.length; size += 1) {
    const frames = new Frames()
    const seen = []
    for (let at = 0; at < bytes.length; at += size) {
      frames.push(bytes.subarray(at, at + size))
      for (let one = frames.next(); one !== undefined; one = frames.next()) seen.push(one)
    }
    assert.deepEqual(seen, want, `pieces of ${size}`)
  }
  const endless = new Frames()
  const piece = new Uint8Array(8 << 20).fill(120)
  assert.throws(
    () => {
      for (let i = 0; i < 10; i += 1) endless.push(piece)
    },
    { code: 'BAD_ANSWER' },
  )
})
