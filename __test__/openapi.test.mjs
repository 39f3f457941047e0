/**
 * The OpenAPI document against the program. Whatever a server says in sessions of all kinds, over HTTP, as events and on a
 * WebSocket, is held against the document, closed: a field that it does not have is a fault. And bodies on either side of every
 * line that it draws are sent: what it refuses the server refuses, and what it accepts the server accepts.
 */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import Ajv from 'ajv/dist/2020.js'
import { WebSocket } from 'ws'
import { scriptedModel } from './support/model.mjs'
import { servedAt } from './support/served.mjs'

const document = JSON.parse(readFileSync(new URL('../docs/openapi.json', import.meta.url), 'utf8'))
const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-openapi-')))
const open = []

after(async () => {
  for (const each of open) await (each.kill?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

/** The schema without room for fields that it does not name. */
function closed(schema, within = false) {
  if (Array.isArray(schema)) return schema.map((each) => closed(each, within))
  if (schema === null || typeof schema !== 'object') return schema
  const composed = schema.oneOf ?? schema.anyOf ?? schema.allOf
  const isObject = schema.type === 'object' && schema.properties !== undefined
  const result = {}
  for (const [key, value] of Object.entries(schema)) {
    if (key === 'oneOf' || key === 'anyOf' || key === 'allOf')
      result[key] = closed(value, within || (isObject && composed))
    else if (key === 'properties')
      result[key] = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, closed(each)]))
    else if (key === 'items') result[key] = closed(value)
    else result[key] = value
  }
  if (isObject && !within && schema.additionalProperties === undefined) result.unevaluatedProperties = false
  return result
}

const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: false })
const schemas = Object.fromEntries(
  Object.entries(document.components.schemas).map(([name, each]) => [name, closed(each)]),
)
ajv.addSchema({ ...document, components: { ...document.components, schemas } }, 'simse')
const compiled = new Map()

/** What is at a place of the document, as a check. */
function at(...place) {
  const pointer = place.map((each) => encodeURIComponent(each.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')
  if (!compiled.has(pointer)) compiled.set(pointer, ajv.compile({ $ref: `simse#/${pointer}` }))
  return compiled.get(pointer)
}

function holds(check, value, what) {
  assert.ok(
    check(value),
    `${what}: ${JSON.stringify(check.errors?.slice(0, 3))} in ${JSON.stringify(value)?.slice(0, 1500)}`,
  )
}

/** The path of the document that a path is. */
function template(path) {
  const parts = path.split('?')[0].split('/')
  const same = (known) => {
    const own = known.split('/')
    return own.length === parts.length && own.every((part, n) => part.startsWith('{') || part === parts[n])
  }
  const fits = Object.keys(document.paths).filter(same)
  return fits.find((known) => !known.includes('{')) ?? fits[0]
}

/** A request whose answer is held against the document. */
async function ask(server, method, path, body, headers = {}) {
  const response = await fetch(server.url + path, {
    method,
    headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...server.headers, ...headers },
    body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
  })
  const what = `${method} ${path}: ${response.status}`
  const type = response.headers.get('content-type')
  assert.equal(type, 'application/json', what)
  const answer = await response.json()
  assert.ok(response.headers.get('x-request-id'), what)
  const operation = document.paths[template(path)]?.[method.toLowerCase()]
  if (operation === undefined) {
    const name = response.status === 405 ? 'MethodNotAllowed' : 'NotFound'
    holds(at('components', 'responses', name, 'content', 'application/json', 'schema'), answer, what)
  } else {
    const described = operation.responses[response.status]
    assert.ok(described, `${what} is not in the document`)
    const place = described.$ref
      ? described.$ref.slice(2).split('/')
      : ['paths', template(path), method.toLowerCase(), 'responses', String(response.status)]
    holds(at(...place, 'content', 'application/json', 'schema'), answer, what)
    const headersSaid = described.$ref ? document.components.responses[place.at(-1)].headers : described.headers
    for (const name of Object.keys(headersSaid ?? {})) {
      if (!document.components.headers[name].required) continue
      assert.ok(response.headers.get(name), `${what} without ${name}`)
    }
  }
  return { status: response.status, body: answer, headers: response.headers }
}

/** The frames of a stream up to one that `ends` it, each held against the document. */
async function frames(server, method, path, kind, ends, body) {
  const controller = new AbortController()
  const headers = {
    ...server.headers,
    accept: 'text/event-stream',
    ...(body && { 'content-type': 'application/json' }),
  }
  const response = await fetch(server.url + path, {
    method,
    headers,
    body: body && JSON.stringify(body),
    signal: controller.signal,
  })
  assert.equal(response.headers.get('content-type'), 'text/event-stream')
  const seen = []
  let text = ''
  try {
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      text += piece
      const whole = text.split('\n\n')
      text = whole.pop()
      for (const frame of whole) {
        const data = frame.split('\n').find((line) => line.startsWith('data: '))
        if (data === undefined) continue
        const value = JSON.parse(data.slice(6))
        const schema = value.type === 'ready' ? 'StreamReady' : kind
        holds(at('components', 'schemas', schema), value, `${path}, a frame`)
        seen.push(value)
        if (ends(value)) return seen
      }
    }
    return seen
  } finally {
    controller.abort()
  }
}

const TERMINAL = new Set(['session.completed', 'session.error', 'abort'])
const ended = ({ type }) => TERMINAL.has(type)

/** The model does what the prompt says: `say X`, `call NAME {…}`, `fail`, `hang`. */
function reply({ messages }) {
  const last = messages.at(-1)
  if (last.role === 'tool') return { text: ['do', 'ne'] }
  const said = [last.content]
    .flat()
    .map((part) => part.text ?? part)
    .join(' ')
  const [, verb, rest] = /(say|call|fail|hang)\s?(.*)$/s.exec(said) ?? []
  if (verb === 'call') {
    const [, name, args] = /^(\S+) (.*)$/s.exec(rest)
    return { text: 'a call', calls: [{ id: `call_${messages.length}`, name, arguments: args }] }
  }
  if (verb === 'fail') return { status: 400, body: { error: { message: 'no such model' } } }
  if (verb === 'hang') return { hang: true }
  return { text: ['o', 'k'] }
}

async function served(name) {
  const home = join(room, name)
  mkdirSync(home)
  const model = await scriptedModel(Array.from({ length: 10_000 }, () => reply))
  open.push(model)
  const server = await servedAt({ home, model, args: ['--commands-per-minute', '1000000'] })
  open.push(server)
  return server
}

test('sessions of all kinds: every answer, event and error is what the document says', {
  timeout: 120_000,
}, async () => {
  const server = await served('kinds')
  writeFileSync(join(server.work, 'a.txt'), 'one\n')
  const ok = async (method, path, body, headers) => {
    const answer = await ask(server, method, path, body, headers)
    assert.ok(answer.status < 400, `${method} ${path}: ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const refused = async (status, method, path, body, headers) => {
    const answer = await ask(server, method, path, body, headers)
    assert.equal(answer.status, status, `${method} ${path}: ${JSON.stringify(answer.body)}`)
  }
  const everywhere = frames(server, 'GET', '/events', 'LifecycleEvent', ({ type }) => type === 'session.deleted')

  for (const path of [
    '/tools',
    '/agents',
    '/skills',
    '/commands',
    '/models',
    '/config',
    '/nodes',
    '/health',
    '/health?verbose=true',
    '/openapi.json',
    '/permissions/grants',
    '/sessions',
  ])
    await ok('GET', path)
  const { sessionId: id } = await ok('POST', '/sessions', {
    sessionId: 'kinds',
    title: 'All kinds',
    permissionMode: 'ask',
  })
  const own = `/sessions/${id}`
  await ok('GET', own)
  const turn = await ok('POST', `${own}/prompt?wait=true`, { prompt: 'say something' })
  assert.equal(turn.status, 'completed')
  const image = {
    type: 'image',
    mediaType: 'image/png',
    data: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=',
  }
  await frames(server, 'POST', `${own}/prompt`, 'Event', ended, {
    prompt: [{ type: 'text', text: 'say what this is' }, image],
  })
  await frames(server, 'POST', `${own}/prompt`, 'Event', ended, {
    prompt: `call fs_read ${JSON.stringify({ path: 'a.txt' })}`,
  })
  await frames(server, 'POST', `${own}/prompt`, 'Event', ended, {
    prompt: `call fs_read ${JSON.stringify({ path: 'missing.txt' })}`,
  })
  await frames(server, 'POST', `${own}/prompt`, 'Event', ended, { prompt: 'fail' })
  await ok('PATCH', own, { title: 'Other', reasoning: 'low', tools: ['-bash'] })
  await ok('PATCH', own, { tools: ['*'] }, { 'if-match': '*' })

  // A question, and its answer; then what it wrote is shown, undone and done again.
  const asked = async (decision) => {
    const write = { path: 'b.txt', content: `${decision}\n` }
    const seen = frames(server, 'GET', `${own}/events?after=${(await ok('GET', own)).lastSeq}`, 'Event', ended)
    await ok('POST', `${own}/prompt`, { prompt: `call fs_write ${JSON.stringify(write)}` })
    let question
    while (question === undefined) {
      const page = await ok('GET', `${own}/history?events=true&limit=1000`)
      const answered = new Set(
        page.items.filter(({ type }) => type === 'permission.response').map(({ payload }) => payload.requestId),
      )
      question = page.items.find(
        ({ type, payload }) => type === 'permission.request' && !answered.has(payload.requestId),
      )
    }
    await ok('POST', `${own}/feedback`, { requestId: question.payload.requestId, decision })
    await refused(409, 'POST', `${own}/feedback`, { requestId: question.payload.requestId, decision })
    await seen
  }
  await asked('deny')
  await asked('allow_always')
  const { items: grants } = await ok('GET', `/permissions/grants?sessionId=${id}`)
  await ok('DELETE', `/permissions/grants/${grants[0].grantId}?sessionId=${id}`)
  await ok('GET', `${own}/files`)
  await ok('GET', `${own}/files?query=a&limit=1`)
  await refused(404, 'GET', `${own}/files?path=nowhere`)
  await ok('GET', `${own}/diff`)
  await ok('POST', `${own}/undo`, {})
  await ok('POST', `${own}/redo`)

  // Controls, while the model says nothing more.
  const controlled = async (control, ...then) => {
    const seen = frames(server, 'GET', `${own}/events?after=${(await ok('GET', own)).lastSeq}`, 'Event', ended)
    const begun = frames(
      server,
      'GET',
      `${own}/events?after=${(await ok('GET', own)).lastSeq}`,
      'Event',
      ({ type }) => type === 'stream.delta',
    )
    await ok('POST', `${own}/prompt`, { prompt: 'hang' })
    await begun
    await ok('POST', `${own}/prompt`, { prompt: 'say it later' })
    await ok('POST', `${own}/prompt`, { prompt: 'say it now', mode: 'steer' })
    await refused(409, 'POST', `${own}/prompt`, { prompt: 'x', mode: 'reject' })
    await ok('POST', `${own}/${control}`, { reason: 'enough' })
    for (const each of then) await ok('POST', `${own}/${each}`)
    await seen
    let view = await ok('GET', own)
    while (view.turn !== undefined || view.queued > 0) view = await ok('GET', own)
  }
  await controlled('abort')
  await refused(409, 'POST', `${own}/abort`)

  await ok('GET', `${own}/turns?limit=1`)
  await ok('GET', `${own}/turns/${turn.turnId}`)
  await ok('GET', `${own}/history`)
  await ok('POST', '/permissions/explain', { tool: 'bash', arguments: { command: 'ls | wc' }, sessionId: id })
  const fork = await ok('POST', `${own}/fork`, { at: 3, title: 'A fork' })
  await frames(server, 'POST', `/sessions/${fork.sessionId}/prompt`, 'Event', ended, { prompt: 'say more' })

  // Errors.
  await refused(400, 'POST', '/sessions', '{')
  await refused(400, 'GET', '/sessions?limit=0')
  await refused(401, 'GET', '/sessions', undefined, { authorization: 'Bearer wrong' })
  await refused(404, 'GET', '/sessions/nobody')
  await refused(404, 'GET', '/nowhere')
  await refused(405, 'PUT', '/sessions', {})
  await refused(409, 'POST', '/sessions', { sessionId: id })
  await refused(409, 'POST', '/drain')
  await refused(409, 'PATCH', own, { title: 'x' }, { 'if-match': '"999"' })
  await refused(415, 'POST', '/sessions', {}, { 'content-encoding': 'gzip' })
  await refused(426, 'GET', '/ws')
  await refused(403, 'POST', '/sessions', {}, { origin: 'https://elsewhere.example' })

  const seen = new Set()
  for (const session of [id, fork.sessionId]) {
    for (let cursor = 0; cursor !== null; ) {
      const page = await ok('GET', `/sessions/${session}/history?events=true&limit=1000&cursor=${cursor}`)
      for (const event of page.items) seen.add(event.type)
      cursor = page.nextCursor
    }
  }
  await ok('DELETE', own)
  const lifecycle = await everywhere
  assert.ok(lifecycle.some(({ type }) => type === 'session.deleted'))
  const expected = [
    'session.created',
    'session.prompt',
    'session.completed',
    'session.error',
    'session.configured',
    'session.forked',
    'turn.queued',
    'loop.start',
    'loop.complete',
    'stream.start',
    'stream.delta',
    'stream.complete',
    'tool.call.start',
    'tool.call.end',
    'turn.complete',
    'turn.changes',
    'permission.request',
    'permission.response',
    'changes.undone',
    'changes.redone',
    'abort',
  ]
  assert.deepEqual(
    expected.filter((type) => !seen.has(type)),
    [],
  )
})

test('a WebSocket: every message of both sides is what the document says', { timeout: 60_000 }, async () => {
  const server = await served('socket')
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}/ws`, { headers: server.headers })
  const messages = []
  const waiting = []
  socket.on('message', (data) => {
    messages.push(JSON.parse(data))
    for (const each of waiting.splice(0)) each()
  })
  const seen = async (fits) => {
    for (;;) {
      const found = messages.find(fits)
      if (found) return found
      await new Promise((more) => waiting.push(more))
    }
  }
  let number = 0
  const say = async (message, success = true) => {
    const id = `c${++number}`
    const whole = { id, ...message }
    if (success) holds(at('components', 'schemas', 'ClientMessage'), whole, 'a command')
    socket.send(JSON.stringify(whole))
    const answer = await seen((each) => each.type === 'response' && each.id === id)
    assert.equal(answer.success, success, JSON.stringify(answer))
    return answer.data
  }
  await seen(({ type }) => type === 'server_ready')
  const sessionId = (await say({ type: 'create_session', title: 'x' })).sessionId
  await say({ type: 'subscribe', sessionId, after: 0 })
  const { turnId } = await say({ type: 'prompt', sessionId, prompt: 'say hello', idempotencyKey: 'k' })
  await seen(({ type, event }) => type === 'event' && event.type === 'session.completed')
  await say({ type: 'prompt', sessionId, prompt: 'say hello', idempotencyKey: 'k' })
  for (const type of ['get_session', 'get_history', 'list_turns']) await say({ type, sessionId })
  await say({ type: 'get_turn', sessionId, turnId })
  await say({ type: 'configure', sessionId, title: 'y' })
  await say({ type: 'explain_permission', tool: 'bash', arguments: { command: 'ls' } })
  for (const type of ['list_sessions', 'list_grants', 'list_tools', 'list_agents', 'list_models', 'get_health'])
    await say({ type })
  for (const type of ['list_skills', 'list_commands']) {
    await say({ type })
    await say({ type, sessionId })
  }
  await say({ type: 'fork', sessionId })
  await say({ type: 'abort', sessionId }, false)
  await say({ type: 'nothing' }, false)
  await say({ type: 'unsubscribe', sessionId })
  await say({ type: 'subscribe', sessionId })
  await say({ type: 'delete_session', sessionId })
  await seen(({ type }) => type === 'subscription_ended')
  socket.close()
  for (const message of messages)
    holds(at('components', 'schemas', 'ServerMessage'), message, 'a message of the server')
})

/** Values that stand where others belong. */
const STRANGE = [null, true, 5, 0, -1, 1.5, 'x', '', ' ', [], [null], {}, { x: 1 }]

/** Everything that `value` becomes by one change. */
function* changed(value) {
  yield* STRANGE
  if (Array.isArray(value)) {
    for (const [n, item] of value.entries()) {
      for (const other of changed(item))
        yield value.with?.(n, other) ?? [...value.slice(0, n), other, ...value.slice(n + 1)]
      if (item !== null && typeof item === 'object')
        yield [...value.slice(0, n), Object.values(item), ...value.slice(n + 1)]
    }
  } else if (value !== null && typeof value === 'object') {
    yield { ...value, strange: 1 }
    yield Object.values(value)
    for (const [name, own] of Object.entries(value)) {
      const { [name]: _, ...rest } = value
      yield rest
      for (const other of changed(own)) yield { ...value, [name]: other }
    }
  }
}

/** What only the server knows: which of these there are. */
const KNOWN_TO_THE_SERVER = /^(configure\.)?(model|agent|workingDirectory|tools(\[\d+\])?)$|^(at|turnId)$/

test('bodies: what the document refuses is refused, and what it accepts is accepted', {
  timeout: 120_000,
}, async () => {
  const server = await served('bodies')
  await ask(server, 'POST', '/sessions', { sessionId: 's' })
  const rule = {
    tool: 'bash',
    pattern: 'ls *',
    policy: 'allow',
    category: ['execute'],
    annotations: { title: 't', readOnly: true },
  }
  const settings = {
    model: null,
    reasoning: 'auto',
    title: 't',
    instructions: 'i',
    tools: ['bash'],
    permissionMode: 'ask',
    workingDirectory: null,
  }
  const long = (length) => 'x'.repeat(length)
  const image = { type: 'image', mediaType: 'image/png', data: 'AAAA' }
  const table = [
    ['POST', '/sessions', { ...settings, toolPermissions: { defaultPolicy: 'ask', rules: [rule] } }],
    ['POST', '/sessions', { title: long(256) }],
    ['POST', '/sessions', { title: long(257) }],
    ['POST', '/sessions', { title: 'é😀'.repeat(128) }],
    ['POST', '/sessions', { title: 'a\u0085' }],
    ['POST', '/sessions', { title: 'a\u2028' }],
    ['POST', '/sessions', { instructions: long(200_000) }],
    ['POST', '/sessions', { instructions: long(200_001) }],
    ['POST', '/sessions', { tools: Array(1001).fill('bash') }],
    ['POST', '/sessions', { tools: Array(1000).fill('bash') }],
    ['POST', '/sessions', { sessionId: long(257) }],
    ['POST', '/sessions', { sessionId: '..' }],
    ['POST', '/sessions', { sessionId: 'a/b' }],
    ['POST', '/sessions', { toolPermissions: { defaultPolicy: 'ask', rules: [{ ...rule, category: 'edit' }] } }],
    ['POST', '/sessions', { toolPermissions: { defaultPolicy: 'ask', rules: [{ ...rule, category: [] }] } }],
    ['PATCH', '/sessions/s', settings],
    ['POST', '/sessions/s/prompt', { prompt: 'say x', mode: 'queue', configure: settings, ifVersion: 3 }],
    ['POST', '/sessions/s/prompt', { prompt: [{ type: 'text', text: 'say' }, image], ifVersion: 3.0 }],
    ['POST', '/sessions/s/prompt', { prompt: [{ type: 'text', text: ' ' }] }],
    ['POST', '/sessions/s/prompt', { prompt: [{ type: 'text', text: ' ' }, image] }],
    ['POST', '/sessions/s/prompt', { prompt: [{ ...image, data: 'data:,' }] }],
    ['POST', '/sessions/s/prompt', { prompt: '\u00a0\u3000\u0085' }],
    ['POST', '/sessions/s/prompt', { prompt: '\ufeff' }],
    ['POST', '/sessions/s/prompt', { prompt: '\u001c' }],
    ['POST', '/sessions/s/abort', { turnId: 't', reason: 'r' }],
    ['POST', '/sessions/s/abort', { reason: long(10_000) }],
    ['POST', '/sessions/s/abort', { reason: long(10_001) }],
    ['POST', '/sessions/s/pause', { reason: null }],
    [
      'POST',
      '/sessions/s/feedback',
      { callId: 'c', requestId: 'r', decision: 'allow', message: 'm', scope: 'session', expiresInMs: 5 },
    ],
    ['POST', '/sessions/s/feedback', { callId: 'c', allowed: true, expiresInMs: 5 }],
    ['POST', '/sessions/s/feedback', { callId: 'c', allowed: false, scope: 'once' }],
    ['POST', '/sessions/s/feedback', { callId: 'c', decision: 'allow_always', scope: 'once' }],
    ['POST', '/sessions/s/feedback', { callId: 'c', decision: 'allow_always', expiresInMs: 5.0 }],
    ['POST', '/sessions/s/feedback', { callId: 'c', allowed: true, decision: 'allow' }],
    ['POST', '/sessions/s/fork', { at: 1, newSessionId: null, title: 't' }],
    ['POST', '/sessions/s/undo', { turnId: 't', partial: true, ifVersion: 1 }],
    ['POST', '/permissions/explain', { sessionId: 's', id: 'i', tool: 'bash', arguments: { command: 'ls' } }],
    ['POST', '/permissions/explain', { name: 'bash' }],
    ['POST', '/permissions/explain', { name: 'bash', tool: 'bash' }],
  ]
  let sent = 0
  for (const [method, path, whole] of table) {
    const check = at(
      'paths',
      template(path),
      method.toLowerCase(),
      'requestBody',
      'content',
      'application/json',
      'schema',
    )
    const bodies = JSON.stringify(whole).length > 2000 ? [whole] : [whole, ...changed(whole)]
    for (const body of bodies) {
      const accepted = check(body)
      const { status, body: answer } = await ask(server, method, path, JSON.stringify(body))
      const said = `${method} ${path} ${JSON.stringify(body).slice(0, 500)}: ${status} ${JSON.stringify(answer).slice(0, 500)}`
      sent += 1
      if (!accepted)
        assert.equal(status, 400, `the document refuses it (${JSON.stringify(check.errors?.[0])}): ${said}`)
      else if (status === 400)
        assert.match(answer.error.details?.field ?? '', KNOWN_TO_THE_SERVER, `the document accepts it: ${said}`)
    }
  }
  assert.ok(sent > 500, `${sent} bodies`)
})
