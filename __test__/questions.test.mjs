/** What tools and hooks in JavaScript ask the clients of their session, and tell them. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { after, test } from 'node:test'
import { WebSocket } from 'ws'
import { createEventBus, createHookSystem, createSimseServer, createToolRegistry } from '../js/index.js'
import { events, http } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'
import { deferred, define, registryOf } from './support/registry.mjs'
import { entry } from './support/run.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-questions-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const open = new Set()
let rooms = 0

after(async () => {
  for (const each of open) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

function directory() {
  const path = join(room, `work${++rooms}`)
  mkdirSync(path)
  return path
}

/** A server whose model calls `tool` in each turn and then is done, and a session of it. */
async function asking(tool, more = {}, turns = 1) {
  const call = { calls: [{ id: 'call_1', name: tool, arguments: {} }] }
  const model = await scriptedModel(Array.from({ length: turns }, () => [call, { text: 'Done.' }]).flat())
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    workingDirectory: directory(),
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
    limits: { shutdownGraceMs: 0 },
    ...more,
  })
  open.add(server)
  open.add(model)
  await server.start()
  const { sessionId } = (await http(server, 'POST', '/sessions', {})).body
  return { server, sessionId, path: `/sessions/${sessionId}` }
}

/** Prompts, and reads the events of the turn; `onEvent` sees each. */
async function turnOf({ server, sessionId, path }, onEvent) {
  const from = (await http(server, 'GET', path)).body.lastSeq
  const stream = events(server, sessionId, from)
  const accepted = await http(server, 'POST', `${path}/prompt`, { prompt: 'go' })
  assert.equal(accepted.status, 202)
  const seen = []
  for await (const event of stream) {
    seen.push(event)
    await onEvent?.(event)
    if (['session.completed', 'session.error', 'abort'].includes(event.type)) break
  }
  return seen
}

const of = (seen, type) => seen.filter((event) => event.type === type).map((event) => event.payload)

test('a tool asks each kind of question and gets a value that fits', async () => {
  const QUESTIONS = [
    [{ kind: 'select', title: 'Which?', options: ['a', 'b'] }, 'b'],
    [{ kind: 'select', title: 'Which?', options: ['a', 'b'], several: true }, ['b']],
    [{ kind: 'confirm', title: 'Sure?', message: 'It is big.' }, true],
    [{ kind: 'input', title: 'Name?', placeholder: 'Ann' }, 'Bob \u{1f600}'],
    [{ kind: 'editor', title: 'Text', text: 'old' }, 'new\ntext'],
  ]
  const replies = []
  const toolRegistry = registryOf({
    survey: async (_args, context) => {
      context.notify('questions come')
      for (const [question] of QUESTIONS) replies.push(await context.ask(question))
      context.notify('that was all', 'warning')
      return 'asked'
    },
  })
  const session = await asking('survey', { toolRegistry })
  const { server, path } = session
  const seen = await turnOf(session, async ({ type, payload }) => {
    if (type !== 'client.request') return
    const at = QUESTIONS.findIndex(([question]) => JSON.stringify(question) === JSON.stringify(payload.question))
    assert.equal(payload.callId, 'call_1')
    assert.ok(payload.deadline > Date.now())
    const view = (await http(server, 'GET', path)).body
    assert.deepEqual([view.turn.status, view.requests], ['waiting', [{ type, payload }]])
    const misfit = await http(server, 'POST', `${path}/feedback`, { requestId: payload.requestId, value: 7 })
    assert.deepEqual([misfit.status, misfit.body.error.details.field], [400, 'value'], 'it stays open')
    const body = { requestId: payload.requestId, value: QUESTIONS[at][1] }
    const answered = await http(server, 'POST', `${path}/feedback`, body)
    assert.deepEqual(answered, {
      status: 200,
      body: { requestId: payload.requestId, callId: 'call_1', cancelled: false },
    })
    assert.equal((await http(server, 'POST', `${path}/feedback`, body)).status, 409, 'once')
  })
  assert.deepEqual(
    replies,
    QUESTIONS.map(([, value]) => ({ cancelled: false, value })),
  )
  assert.ok(Object.isFrozen(replies[0]))
  assert.deepEqual(of(seen, 'client.notice'), [
    { callId: 'call_1', level: 'info', text: 'questions come' },
    { callId: 'call_1', level: 'warning', text: 'that was all' },
  ])
  assert.deepEqual(
    of(seen, 'client.response').map(({ value, by }) => [value, by]),
    QUESTIONS.map(([, value]) => [value, 'client']),
  )
})

test('without an answer it is cancelled, with a question that cannot be put it throws, and the server goes on', async () => {
  const sure = { kind: 'confirm', title: 'Sure?' }
  const late = deferred()
  let reply
  const toolRegistry = registryOf({
    soon: async (_args, { ask }) => JSON.stringify(await ask(sure, { timeoutMs: 30 })),
    wrong: async (_args, { ask }) => {
      const bad = [{ kind: 'select', title: 't', options: [] }, { kind: 'guess', title: 't' }, null, { ...sure, x: 1 }]
      const codes = []
      for (const question of bad) codes.push(await ask(question).catch((e) => e.code))
      codes.push(await ask(sure, { timeoutMs: -1 }).catch((e) => e.code))
      return codes.join(' ')
    },
    leaves: async (_args, { ask }) => {
      // Does not wait for the answer.
      ask(sure).then((gone) => {
        reply = gone
        late.resolve(ask)
      })
      return 'left'
    },
  })
  const seen = await turnOf(await asking('soon', { toolRegistry }))
  const [{ output }] = of(seen, 'tool.call.end')
  assert.deepEqual(JSON.parse(output), { cancelled: true, by: 'timeout', reason: 'nobody answered within 30 ms' })

  const [end] = of(await turnOf(await asking('wrong', { toolRegistry })), 'tool.call.end')
  assert.equal(end.output, Array(5).fill('CONFIG_VALIDATION').join(' '))

  const left = await turnOf(await asking('leaves', { toolRegistry }))
  assert.equal(left.at(-1).type, 'session.completed')
  const ask = await late.promise
  assert.deepEqual([reply.cancelled, reply.by], [true, 'abort'])
  assert.deepEqual(
    of(left, 'client.response').map(({ by, cancelled }) => [by, cancelled]),
    [['abort', true]],
  )
  assert.deepEqual(await ask(sure), { cancelled: true, by: 'abort', reason: 'the call that asked is over' })

  // No client: nobody reads, and nobody waits.
  const alone = await asking('ask', {
    toolRegistry: registryOf({ ask: async (_args, { ask }) => JSON.stringify(await ask(sure)) }),
    limits: { shutdownGraceMs: 0, clientGraceMs: 30 },
  })
  await http(alone.server, 'POST', `${alone.path}/prompt`, { prompt: 'go' })
  let view
  do view = (await http(alone.server, 'GET', alone.path)).body
  while (view.status !== 'completed')
  const history = (await http(alone.server, 'GET', `${alone.path}/history`)).body.items
  const { output: told } = history.find((item) => item.type === 'tool_result')
  assert.deepEqual(JSON.parse(told), {
    cancelled: true,
    by: 'no-client',
    reason: 'no client is connected who could be asked',
  })
})

test('what a tool shows stands in the snapshot until it is replaced, taken away, or the turn ends', async () => {
  const [standing, goOn] = [deferred(), deferred()]
  const SHOWN = [
    { kind: 'status', key: 'build', text: '1 of 2' },
    { kind: 'widget', key: 'plan', lines: ['a', 'b'] },
    { kind: 'working', text: 'building' },
    { kind: 'title', text: 'my window' },
    { kind: 'status', key: 'build', text: '2 of 2' },
    { kind: 'title', text: null },
  ]
  const toolRegistry = registryOf({
    build: async (_args, { show }) => {
      for (const display of SHOWN) show(display)
      const bad = [{ kind: 'status', key: '', text: 'x' }, { kind: 'title', text: 'a\nb' }, { kind: 'popup' }, null]
      for (const display of bad) assert.throws(() => show(display), { code: 'CONFIG_VALIDATION' })
      standing.resolve()
      await goOn.promise
      return 'built'
    },
  })
  const session = await asking('build', { toolRegistry })
  const turn = turnOf(session)
  await standing.promise
  const { open } = (await http(session.server, 'GET', `${session.path}?snapshot=true`)).body.snapshot
  assert.deepEqual(open.displays, [SHOWN[4], SHOWN[1], SHOWN[2]])
  goOn.resolve()
  const seen = await turn
  const gone = ({ text, ...rest }) => (text === null ? rest : { ...rest, ...(text !== undefined && { text }) })
  assert.deepEqual(
    of(seen, 'client.display'),
    SHOWN.map((display) => ({ callId: 'call_1', display: gone(display) })),
  )
  assert.equal(of(seen, 'tool.call.end')[0].output, 'built')
  const after = (await http(session.server, 'GET', `${session.path}?snapshot=true`)).body.snapshot
  assert.equal(after.open, undefined)

  const bus = createEventBus()
  const told = []
  bus.subscribe('client.display', (shown) => told.push(shown))
  const free = createToolRegistry({ eventBus: bus })
  free.register(define('tell'), async (_args, { show }) => {
    show(SHOWN[0])
    return 'told'
  })
  assert.equal((await free.execute({ id: 'c', name: 'tell', arguments: {} })).output, 'told')
  assert.deepEqual(told, [{ callId: 'c', display: SHOWN[0] }])
})

test('hooks ask and tell, of a server and of its registry; outside a server nobody is there', async () => {
  const hooks = createHookSystem()
  hooks.register('tool.execute.before', async ({ request, ask }) => {
    const reply = await ask({ kind: 'input', title: 'As what?' })
    return reply.cancelled ? { blocked: true, reason: reply.by } : { ...request, arguments: { text: reply.value } }
  })
  const bus = createEventBus()
  const told = []
  bus.subscribe('client.notice', (notice) => told.push(notice))
  const registry = createToolRegistry({ hooks, eventBus: bus })
  registry.register(define('echo'), async ({ text }, { notify }) => {
    notify(`echo ${text}`)
    return text
  })
  const serverHooks = [
    {
      type: 'prompt.system.transform',
      handler: ({ prompt, notify }) => {
        notify('a system prompt', 'error')
        return prompt
      },
    },
  ]
  const session = await asking('echo', { toolRegistry: registry, hooks: serverHooks })
  const seen = await turnOf(session, async ({ type, payload }) => {
    if (type !== 'client.request') return
    assert.equal(payload.callId, 'call_1')
    await http(session.server, 'POST', `${session.path}/feedback`, { requestId: payload.requestId, value: 'this' })
  })
  assert.equal(of(seen, 'tool.call.end')[0].output, 'this')
  assert.deepEqual(of(seen, 'client.notice'), [
    { level: 'error', text: 'a system prompt' },
    { callId: 'call_1', level: 'info', text: 'echo this' },
    { level: 'error', text: 'a system prompt' },
  ])
  assert.deepEqual(told, [])

  const alone = await registry.execute({ id: 'c', name: 'echo', arguments: { text: 'x' } })
  assert.equal(alone.output, 'Tool "echo" was blocked: no-client')
  const free = createToolRegistry({ eventBus: bus })
  free.register(define('tell'), async (_args, { notify }) => {
    notify('hello', 'warning')
    assert.throws(() => notify('x'.repeat(20_000)), { code: 'CONFIG_VALIDATION' })
    assert.throws(() => notify('x', 'loud'), { code: 'CONFIG_VALIDATION' })
    return 'told'
  })
  assert.equal((await free.execute({ id: 'c', name: 'tell', arguments: {} })).output, 'told')
  assert.deepEqual(told, [{ callId: 'c', level: 'warning', text: 'hello' }])
})

/** A WebSocket that hears a session's events from number `after` on. */
async function listener({ server, sessionId }, after = 0) {
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}/ws`)
  const messages = []
  const waiting = []
  socket.on('message', (data) => {
    messages.push(JSON.parse(String(data)))
    for (const each of waiting.splice(0)) each()
  })
  await once(socket, 'open')
  const seen = async (fits) => {
    for (let at = 0; ; at++) {
      while (at >= messages.length) await new Promise((more) => waiting.push(more))
      if (fits(messages[at])) return messages[at]
    }
  }
  const command = async (body) => {
    socket.send(JSON.stringify({ sessionId, ...body }))
    return seen((message) => message.type === 'response' && message.id === body.id)
  }
  const event = async (type) => (await seen((message) => message.type === 'event' && message.event.type === type)).event
  assert.equal((await command({ id: 'sub', type: 'subscribe', after })).success, true)
  return { socket, command, event }
}

test('two clients answer at once: one wins, the other hears a conflict, and both see the one answer', async () => {
  const toolRegistry = registryOf({
    pick: async (_args, { ask }) => (await ask({ kind: 'select', title: 'Which?', options: ['one', 'two'] })).value,
  })
  const session = await asking('pick', { toolRegistry })
  const clients = [await listener(session), await listener(session)]
  await http(session.server, 'POST', `${session.path}/prompt`, { prompt: 'go' })
  const asked = await Promise.all(clients.map((client) => client.event('client.request')))
  assert.deepEqual(asked[0], asked[1])
  const { requestId } = asked[0].payload
  const answers = await Promise.all(
    clients.map((client, at) =>
      client.command({ id: 'answer', type: 'feedback', requestId, value: ['one', 'two'][at] }),
    ),
  )
  const won = answers.findIndex((answer) => answer.success)
  assert.equal(answers[1 - won].error.code, 'CONFLICT')
  const ends = await Promise.all(clients.map((client) => client.event('client.response')))
  assert.deepEqual(ends[0], ends[1])
  assert.equal(ends[0].payload.value, ['one', 'two'][won])
  const done = await clients[0].event('tool.call.end')
  assert.equal(done.payload.output, ['one', 'two'][won])
  for (const { socket } of clients) socket.close()
})

test('a question outlives the connection: who comes back sees it again and answers it', async () => {
  const toolRegistry = registryOf({
    name: async (_args, { ask }) => (await ask({ kind: 'input', title: 'Name?' })).value,
  })
  const session = await asking('name', { toolRegistry })
  const first = await listener(session)
  await http(session.server, 'POST', `${session.path}/prompt`, { prompt: 'go' })
  const asked = await first.event('client.request')
  first.socket.terminate()
  await once(first.socket, 'close')
  const view = (await http(session.server, 'GET', session.path)).body
  assert.deepEqual(view.requests, [{ type: 'client.request', payload: asked.payload }])
  const again = await listener(session, asked.seq - 1)
  assert.deepEqual(await again.event('client.request'), asked)
  const { requestId } = asked.payload
  assert.equal((await again.command({ id: 'a', type: 'feedback', requestId, value: 'Ann' })).success, true)
  assert.equal((await again.event('tool.call.end')).payload.output, 'Ann')
  again.socket.close()
})

test('kill -9 while a question is open: after the restart it is cancelled, and the turn has failed', async () => {
  const model = await scriptedModel([{ calls: [{ id: 'call_1', name: 'ask', arguments: {} }] }, { text: 'Done.' }])
  open.add(model)
  const config = {
    port: 0,
    acpServers: [],
    workingDirectory: directory(),
    dataDirectory: join(room, 'killed'),
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
  }
  const program = `import { createSimseServer, createToolRegistry } from ${entry}
    const toolRegistry = createToolRegistry({})
    toolRegistry.register({ name: 'ask', description: 'Asks.', parameters: {} },
      async (_args, { ask }) => JSON.stringify(await ask({ kind: 'confirm', title: 'Sure?' })))
    const server = createSimseServer({ ...${JSON.stringify(config)}, toolRegistry })
    await server.start()
    console.log(server.url)`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [url] = await once(createInterface({ input: child.stdout }), 'line')
  const server = { url }
  const { sessionId } = (await http(server, 'POST', '/sessions', {})).body
  const path = `/sessions/${sessionId}`
  const stream = events(server, sessionId)
  const { turnId } = (await http(server, 'POST', `${path}/prompt`, { prompt: 'go' })).body
  let asked
  for await (const event of stream) {
    if (event.type !== 'client.request') continue
    asked = event
    break
  }
  child.kill('SIGKILL')
  await once(child, 'close')

  const restarted = createSimseServer(config)
  open.add(restarted)
  await restarted.start()
  const turn = (await http(restarted, 'GET', `${path}/turns/${turnId}`)).body
  assert.deepEqual([turn.status, turn.error.message], ['failed', 'interrupted by restart'])
  assert.equal((await http(restarted, 'GET', path)).body.requests, undefined)
  const after = []
  for await (const event of events(restarted, sessionId, asked.seq)) {
    after.push(event)
    if (event.type === 'session.error') break
  }
  const { requestId } = asked.payload
  assert.deepEqual(of(after, 'client.response'), [
    { requestId, callId: 'call_1', cancelled: true, by: 'abort', reason: 'interrupted by restart' },
  ])
  const late = await http(restarted, 'POST', `${path}/feedback`, { requestId, value: true })
  assert.deepEqual([late.status, late.body.error.code], [409, 'CONFLICT'])
})
