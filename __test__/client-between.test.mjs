/** What stands between `simse/client` and its server and answers in its place, and how long a client waits where it is told to. */

import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { pause } from '../js/client/time.js'
import { createSimseClient } from '../js/client.node.js'
import { clientRoom, gathered, refusedWith, until } from './support/client.mjs'

const { served, close } = clientRoom('client-between')
after(close)

const READY = 'data: {"type":"ready","payload":{"position":0}}\n\n'
const frame = (seq) =>
  `id: ${seq}\ndata: ${JSON.stringify({ seq, type: 'stream.delta', payload: { text: '' }, sessionId: 's', at: 0 })}\n\n`

/** A line with one event, which breaks behind it. */
const line = (seq) => () => new Response(READY + frame(seq), { headers: { 'content-type': 'text/event-stream' } })
/** What a proxy says. */
const page = (status, headers) => () =>
  new Response('<h1>somebody else</h1>', { status, headers: { 'content-type': 'text/html', ...headers } })
/** What the server says. */
const refusal = (status, code) => () => Response.json({ error: { code, message: 'no session s' } }, { status })

/** A client whose requests get these answers, one after the other; the last one again and again. */
function answered(...answers) {
  const requests = []
  const fetch = async (url, init) => {
    requests.push({ url, ...init })
    return answers[Math.min(requests.length, answers.length) - 1](init)
  }
  return { requests, client: createSimseClient({ baseUrl: 'http://127.0.0.1:9', fetch }) }
}

const numbers = (events) => events.map(({ seq }) => seq)

test('only the server itself ends a stream', { timeout: 60_000 }, async () => {
  const answers = [line(1), page(404), page(200), page(400), line(2), refusal(404, 'NOT_FOUND')]
  const { client, requests } = answered(...answers)
  const causes = []
  const onReconnect = ({ cause }) => causes.push(cause.code)
  assert.deepEqual(numbers(await gathered(client.sessions.events('s', { onReconnect }))), [1, 2])
  assert.equal(requests.length, 6)
  assert.equal(requests[4].headers['last-event-id'], '1')
  assert.deepEqual(causes, ['UNREACHABLE', 'NOT_FOUND', 'BAD_ANSWER', 'INVALID_ARGUMENT', 'UNREACHABLE'])

  // No deletion ends the stream over all sessions.
  const all = answered(line(1), page(404), refusal(404, 'NOT_FOUND'), line(2))
  const two = await gathered(all.client.events(), (_, { length }) => length === 2)
  assert.deepEqual(numbers(two), [1, 2])

  // What was never connected, and what asks who it is, is not looked for.
  await refusedWith(assert, 'NOT_FOUND', answered(page(404)).client.sessions.events('s').next())
  const closed = answered(line(1), page(403), line(2)).client.sessions.events('s')
  await closed.next()
  assert.equal((await refusedWith(assert, 'FORBIDDEN', closed.next())).status, 403)
})

test('a proxy that stays in between is told of in the end', { timeout: 60_000 }, async () => {
  const stays = async (status, code) => {
    const stream = answered(line(1), page(status)).client.sessions.events('s', { giveUpMs: 3_000 })
    assert.equal((await stream.next()).value.seq, 1)
    await refusedWith(assert, code, stream.next())
    assert.equal((await stream.next()).done, true)
  }
  await Promise.all([stays(404, 'NOT_FOUND'), stays(200, 'BAD_ANSWER')])
  const never = answered(line(1), line(2)).client.sessions.events('s', { giveUpMs: 0 })
  assert.equal((await never.next()).value.seq, 1)
  await refusedWith(assert, 'UNREACHABLE', never.next())
  // A line that is not answered is let go of at the end, too.
  const hangs = ({ signal }) =>
    new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }))
  const silent = answered(line(1), hangs).client
  const hanging = silent.sessions.events('s', { giveUpMs: 300 })
  await hanging.next()
  await refusedWith(assert, 'UNREACHABLE', hanging.next())
})

test('who answers questions is told when a proxy takes them', { timeout: 60_000 }, async () => {
  const numbers = { createdAt: 0, lastSeq: 0, messageCount: 0, queued: 0, updatedAt: 0, version: 0 }
  const words = { agent: 'a', model: 'a/b', permissionMode: 'ask', reasoning: 'off', status: 'idle', sessionId: 's' }
  const view = () => Response.json({ ...numbers, ...words, usage: {}, workingDirectory: '/' })
  const asking = (get) => answered(get).client.sessions.answer('s', {})
  assert.equal((await refusedWith(assert, 'NOT_FOUND', asking(page(404)))).operation, 'sessions.get')
  const request = { requestId: 'r', callId: 'c', tool: 'bash', arguments: {} }
  const question = { seq: 1, type: 'permission.request', payload: request, sessionId: 's', at: 0 }
  const body = `${READY}id: 1\ndata: ${JSON.stringify(question)}\n\n`
  const asked = () => new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  const fetch = async (url, { method }) => {
    if (method === 'POST') return page(404)()
    return url.includes('/events') ? asked() : view()
  }
  const client = createSimseClient({ baseUrl: 'http://127.0.0.1:9', fetch })
  const answering = client.sessions.answer('s', { permission: () => 'allow' })
  assert.equal((await refusedWith(assert, 'NOT_FOUND', answering)).operation, 'sessions.feedback')
})

test('no pause is longer than a timer holds, and none is cut short', async (t) => {
  const pieces = []
  const timers = t.mock.method(globalThis, 'setTimeout', (tell, ms) => {
    pieces.push(ms)
    queueMicrotask(tell)
  })
  await pause(5_000_000_000, new AbortController().signal)
  timers.mock.restore()
  assert.deepEqual(pieces, [2_147_483_647, 2_147_483_647, 705_032_706])
})

test('a `Retry-After` is followed while the server is looked for, and no longer', { timeout: 60_000 }, async () => {
  const told = (seconds, giveUpMs) => {
    const { client, requests } = answered(line(1), page(503, { 'retry-after': seconds }))
    const pauses = []
    const onReconnect = ({ cause, delayMs }) => cause.status === 503 && pauses.push(delayMs)
    return { stream: client.sessions.events('s', { giveUpMs, onReconnect }), requests, pauses }
  }
  // Long before the hour is over, and by what was seen.
  const short = told('3600', 3_000)
  await short.stream.next()
  assert.equal((await refusedWith(assert, 'UPSTREAM_UNAVAILABLE', short.stream.next())).retryAfter, 3600)
  assert.ok(short.pauses.length > 0)

  // What no timer holds is no reason to ask again at once.
  const date = new Date(Date.now() + 40 * 86_400_000).toUTCString()
  for (const [seconds, giveUpMs, least, most] of [
    ['3000000', Number.POSITIVE_INFINITY, 3_000_000_000, 3_000_000_000],
    [date, Number.POSITIVE_INFINITY, 39 * 86_400_000, 41 * 86_400_000],
    ['3000000', 3_000_000, 1, 1_500_000],
    ['10', 3_000_000, 10_000, 10_000],
  ]) {
    const { stream, requests, pauses } = told(seconds, giveUpMs)
    await stream.next()
    const next = stream.next()
    await until(() => pauses.length > 0)
    assert.ok(pauses[0] >= least && pauses[0] <= most, `${seconds}: ${pauses[0]}`)
    await new Promise((some) => setTimeout(some, 50))
    assert.equal(requests.length, 2, `${seconds}: it is asked again and again`)
    await stream.return()
    assert.equal((await next).done, true)
  }

  // Nothing was given out yet: whoever wants it may wait.
  const first = answered(page(503, { 'retry-after': '31' })).client
  assert.equal((await refusedWith(assert, 'UPSTREAM_UNAVAILABLE', first.sessions.events('s').next())).retryAfter, 31)
  assert.equal((await refusedWith(assert, 'UPSTREAM_UNAVAILABLE', first.tools())).retryAfter, 31)
})

test('what the server may have forgotten is not sent again, refused or lost', async (t) => {
  const begun = Date.now()
  let gone = 0
  const { client, requests } = answered(() => {
    gone = 300_000
    return refusal(503, 'UPSTREAM_UNAVAILABLE')()
  })
  t.mock.method(Date, 'now', () => begun + gone)
  await refusedWith(assert, 'UPSTREAM_UNAVAILABLE', client.sessions.create({ title: 'mine' }))
  assert.equal(requests.length, 1)
})

test('a call may take as long as anybody likes', { timeout: 60_000 }, async () => {
  const { client } = await served([{ text: 'one' }, { text: 'two' }])
  await client.sessions.create({ sessionId: 's' })
  for (const [timeoutMs, text] of [
    [Number.POSITIVE_INFINITY, 'one'],
    [2 ** 32, 'two'],
  ]) {
    const { result } = await client.sessions.prompt('s', { prompt: 'go' }, { wait: true, timeoutMs })
    assert.equal(result, text)
  }
})
