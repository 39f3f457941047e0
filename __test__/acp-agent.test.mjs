/**
 * simse as an ACP agent, held against the official SDK's client over a pipe, a WebSocket and HTTP. Every message that the agent
 * sends in these tests is held against the JSON schemas that come with the SDK.
 */

import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { createHttpStream } from '@agentclientprotocol/sdk/experimental/http-client'
import { createWebSocketStream } from '@agentclientprotocol/sdk/experimental/ws-client'
import { WebSocket } from 'ws'
import { agentOverPipe, client } from './support/acp.mjs'
import { scriptedModel } from './support/model.mjs'
import { servedAt } from './support/served.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-acp-agent-')))
const open = []

after(async () => {
  for (const each of open.reverse()) await (each.kill?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

let places = 0

/** A home with a directory to work in, and a model that does what it is told. */
async function place(script) {
  places += 1
  const home = join(room, String(places))
  const work = join(home, 'work')
  mkdirSync(work, { recursive: true })
  writeFileSync(join(work, 'a.txt'), 'one\ntwo\n')
  const model = await scriptedModel(script)
  open.push(model)
  const args = ['--data-dir', join(home, 'data'), '--model', 'openai/scripted', '--openai-base-url', model.baseUrl]
  return { home, work, model, args, env: { HOME: home } }
}

/** A client of `simse acp`, initialized. */
async function piped({ home, args, env }, options) {
  const pipe = agentOverPipe({ args, env, cwd: home })
  open.push(pipe)
  const one = client(pipe.stream, options)
  return { ...one, pipe, initialized: await one.initialize() }
}

/** A client of a server that runs. */
async function connected(server, kind, options) {
  const headers = server.headers
  const raw =
    kind === 'HTTP'
      ? createHttpStream(`${server.url}/acp`, { headers })
      : createWebSocketStream(`${server.url.replace('http', 'ws')}/acp`, { headers, WebSocket })
  const one = client(raw, options)
  return { ...one, initialized: await one.initialize() }
}

const ways = {
  'a pipe': async (where, options) => piped(where, options),
  'a WebSocket': async (where, options) => connected(await served(where), 'WebSocket', options),
  HTTP: async (where, options) => connected(await served(where), 'HTTP', options),
  'a pipe to a server that runs': async (where, options) => {
    await served(where)
    return piped(where, options)
  },
}

/** A server in a place. */
async function served({ home, model }, args = []) {
  const server = await servedAt({ home, model, args })
  open.push(server)
  return server
}

const text = (words) => [{ type: 'text', text: words }]
const call = (name, args, id = 'call_1') => ({ calls: [{ id, name, arguments: args }] })
const edit = { path: 'a.txt', old_string: 'two', new_string: 'three' }

/** Answers a question with the option of a kind. */
const choose =
  (kind) =>
  ({ options }) => ({
    outcome: { outcome: 'selected', optionId: options.find((option) => option.kind === kind).optionId },
  })

/** What a session says of itself, without what changes from one telling to the next. */
const told = (updates) => updates.map(({ update: { messageId, _meta, ...rest } }) => rest)

for (const [way, opened] of Object.entries(ways)) {
  test(`over ${way}: a session from its beginning to its end`, { timeout: 120_000 }, async () => {
    const where = await place([
      { reasoning: ['hm'], text: ['I ', 'edit'], ...call('fs_edit', edit) },
      { ...call('bash', { command: 'echo hello' }) },
      { text: ['done', ' now'] },
    ])
    const kinds = ['allow_once', 'reject_once']
    const editor = await opened(where, { permission: (asked) => choose(kinds.shift())(asked) })
    assert.equal(editor.initialized.protocolVersion, 1)
    assert.deepEqual(editor.initialized.authMethods, [])
    const session = await editor.request('session/new', { cwd: where.work, mcpServers: [] })
    const { sessionId } = session
    assert.equal(session.modes.currentModeId, 'ask')
    assert.deepEqual(
      session.configOptions.map((option) => option.id),
      ['mode', 'model', 'thought_level', 'agent'],
    )

    const answer = await editor.request('session/prompt', { sessionId, prompt: text('edit it') })
    assert.deepEqual(answer, {
      stopReason: 'end_turn',
      usage: { inputTokens: 30, outputTokens: 15, totalTokens: 45 },
    })
    await editor.until(() => editor.of(sessionId, 'session_info_update').length > 0)
    assert.equal(readFileSync(join(where.work, 'a.txt'), 'utf8'), 'one\nthree\n')
    assert.equal(editor.text(sessionId), 'I editdone now')
    const thoughts = editor.of(sessionId, 'agent_thought_chunk')
    assert.equal(thoughts.map((one) => one.content.text).join(''), 'hm')
    assert.deepEqual(editor.of(sessionId, 'user_message_chunk'), [], 'the editor knows what it said')
    const diff = { type: 'diff', path: join(where.work, 'a.txt'), oldText: 'one\ntwo\n', newText: 'one\nthree\n' }
    const [first, second] = editor.questions
    assert.deepEqual(first.toolCall.content, [diff])
    assert.deepEqual(
      first.options.map((option) => option.kind),
      ['allow_once', 'allow_always', 'reject_once'],
    )
    const [edits, shell] = editor.of(sessionId, 'tool_call')
    assert.deepEqual([edits.kind, edits.rawInput, first.toolCall.toolCallId], ['edit', edit, edits.toolCallId])
    assert.deepEqual([shell.kind, shell.title, second.toolCall.toolCallId], ['execute', 'echo hello', shell.toolCallId])
    const ends = editor.of(sessionId, 'tool_call_update').filter((one) => one.content !== undefined)
    assert.deepEqual([ends[0].toolCallId, ends[0].status, ends[0].content], [edits.toolCallId, 'completed', [diff]])
    assert.deepEqual([ends[1].toolCallId, ends[1].status], [shell.toolCallId, 'failed'])

    const listed = await editor.request('session/list', { cwd: where.work })
    assert.deepEqual(
      listed.sessions.map((one) => [one.sessionId, one.cwd]),
      [[sessionId, where.work]],
    )
    assert.deepEqual((await editor.request('session/list', { cwd: where.home })).sessions, [])

    // The whole again, before the answer.
    const before = editor.updates.length
    await editor.request('session/load', { sessionId, cwd: where.work, mcpServers: [] })
    await editor.until(() => editor.updates.length - before >= 9)
    const again = told(editor.updates.slice(before))
    assert.deepEqual(
      again.map((one) => one.sessionUpdate),
      [
        'user_message_chunk',
        ...['agent_thought_chunk', 'agent_message_chunk'],
        ...['tool_call', 'tool_call_update', 'tool_call_update'],
        ...['tool_call', 'tool_call_update'],
        'agent_message_chunk',
      ],
    )
    assert.equal(again[0].content.text, 'edit it')
    assert.equal(again.at(-1).content.text, 'done now')
    assert.deepEqual(again[5].content, [diff])

    await editor.request('session/resume', { sessionId, cwd: where.work, mcpServers: [] })
    await editor.request('session/set_mode', { sessionId, modeId: 'plan' })
    await editor.until(() => editor.of(sessionId, 'config_option_update').length > 0)
    assert.deepEqual(editor.of(sessionId, 'current_mode_update').at(-1).currentModeId, 'plan')
    const { configOptions } = await editor.request('session/set_config_option', {
      ...{ sessionId, configId: 'thought_level', value: 'high' },
    })
    const values = (options) => Object.fromEntries(options.map((option) => [option.id, option.currentValue]))
    assert.deepEqual(values(configOptions), {
      ...{ mode: 'plan', model: 'openai/scripted', thought_level: 'high', agent: 'simse' },
    })
    const choosing = { sessionId, configId: 'agent', value: 'build' }
    const chosen = await editor.request('session/set_config_option', choosing)
    assert.deepEqual(
      [values(chosen.configOptions).agent, values(chosen.configOptions).model],
      ['build', 'openai/scripted'],
    )
    const back = await editor.request('session/set_config_option', { ...choosing, value: 'simse' })
    assert.equal(values(back.configOptions).agent, 'simse')
    await assert.rejects(
      editor.request('session/set_config_option', { ...choosing, value: 'nobody' }),
      /`value`.*one of simse, .*plan/s,
    )
    assert.deepEqual(await editor.request('session/set_title', { sessionId, title: 'A title' }), { title: 'A title' })

    const forked = await editor.request('session/fork', { sessionId, cwd: where.work, mcpServers: [] })
    assert.notEqual(forked.sessionId, sessionId)
    assert.deepEqual(values(forked.configOptions).mode, 'plan')
    assert.equal((await editor.request('session/list', {})).sessions.length, 2)

    await editor.request('session/close', { sessionId })
    assert.deepEqual(await editor.request('session/status', { sessionId }), { status: 'saved' })
    await editor.request('session/delete', { sessionId })
    const gone = { code: -32002, data: { code: 'NOT_FOUND' } }
    await assert.rejects(editor.request('session/load', { sessionId, cwd: where.work, mcpServers: [] }), gone)
    await assert.rejects(editor.request('session/prompt', { sessionId, prompt: text('x') }), gone)
    await assert.rejects(editor.request('session/nothing', {}), { code: -32601 })
    await assert.rejects(editor.request('session/new', { cwd: 'here', mcpServers: [] }), {
      code: -32602,
      data: { code: 'INVALID_ARGUMENT', details: { field: 'cwd', expected: 'an absolute path' } },
    })
    assert.deepEqual(editor.seen.faults, [])
    editor.close()
    if (editor.pipe) assert.equal(await editor.pipe.end(), 0, editor.pipe.said())
  })
}

test('a turn is cancelled by its session, by its request, and by a session that is closed', {
  timeout: 60_000,
}, async () => {
  const hang = { hang: true }
  const where = await place([hang, hang, hang, () => (lost() ? hang : { text: 'after' }), { text: 'after' }])
  const editor = await piped(where)
  const { sessionId } = await editor.request('session/new', { cwd: where.work, mcpServers: [] })
  // The one that waits may have begun before its own end reaches it; then the model was asked once more.
  const lost = () => where.model.requests.some((body) => JSON.stringify(body.messages.at(-1)).includes('two'))
  const begun = (count) => editor.until(() => editor.of(sessionId, 'agent_message_chunk').length >= count)
  const first = editor.request('session/prompt', { sessionId, prompt: text('one') })
  await begun(1)
  // The second waits behind it.
  const second = editor.request('session/prompt', { sessionId, prompt: text('two') })
  await editor.notify('session/cancel', { sessionId })
  assert.equal((await first).stopReason, 'cancelled')
  assert.equal((await second).stopReason, 'cancelled')
  const count = editor.of(sessionId, 'agent_message_chunk').length
  const abort = new AbortController()
  const third = editor.request(
    'session/prompt',
    { sessionId, prompt: text('three') },
    { cancellationSignal: abort.signal },
  )
  await begun(count + 1)
  abort.abort()
  await assert.rejects(third)
  await editor.until(() => editor.seen.sent.some((message) => message.error?.code === -32800))
  const fourth = editor.request('session/prompt', { sessionId, prompt: text('four') })
  await begun(count + 2)
  await editor.request('session/close', { sessionId })
  assert.equal((await fourth).stopReason, 'cancelled')
  const last = await editor.request('session/prompt', { sessionId, prompt: text('five') })
  assert.equal(last.stopReason, 'end_turn')
  assert.equal(where.model.requests.length, lost() ? 5 : 4)
  assert.deepEqual(editor.seen.faults, [])
  assert.equal(await editor.pipe.end(), 0)
})

test('sessions are those of all doors: settings, prompts and answers of others are told', {
  timeout: 60_000,
}, async () => {
  const where = await place([{ ...call('fs_edit', edit) }, { text: 'edited' }, { text: 'for the other' }])
  const server = await served(where)
  const editor = await piped(where, {
    permission: (_, signal) => new Promise((none) => signal.addEventListener('abort', () => none())),
  })
  const { sessionId } = await editor.request('session/new', { cwd: where.work, mcpServers: [] })
  const path = `/sessions/${sessionId}`
  assert.equal((await server.call('GET', path)).body.workingDirectory, where.work)

  const prompted = editor.request('session/prompt', { sessionId, prompt: text('edit') })
  await editor.until(() => editor.questions.length > 0)
  const [{ requestId }] = (await server.call('GET', path)).body.requests.map(({ payload }) => payload)
  await server.call('POST', `${path}/feedback`, { requestId, decision: 'allow' })
  assert.equal((await prompted).stopReason, 'end_turn')
  await editor.until(() => editor.withdrawn.length > 0)
  assert(editor.seen.sent.some((message) => message.method === '$/cancel_request'))

  await server.call('PATCH', path, { permissionMode: 'auto', title: 'Elsewhere' })
  await editor.until(() => editor.of(sessionId, 'current_mode_update').at(-1)?.currentModeId === 'auto')
  await editor.until(() => editor.of(sessionId, 'session_info_update').at(-1)?.title === 'Elsewhere')
  const mode = editor
    .of(sessionId, 'config_option_update')
    .at(-1)
    .configOptions.find((option) => option.id === 'mode')
  assert.equal(mode.currentValue, 'auto')

  await server.call('POST', `${path}/prompt?wait=true`, { prompt: 'from elsewhere' })
  await editor.until(() => editor.text(sessionId).endsWith('for the other'))
  assert.deepEqual(
    editor.of(sessionId, 'user_message_chunk').map((one) => one.content.text),
    ['from elsewhere'],
  )
  assert.deepEqual(editor.seen.faults, [])
  // The server goes: the editor's agent says so and ends.
  await server.kill()
  const [code] = await editor.pipe.closed
  assert.equal(code, 1)
  assert.match(editor.pipe.said(), /the server that the sessions are in is gone/)
})

test('a session works in the directories that its editor names, and in those alone', { timeout: 60_000 }, async () => {
  const writes = (path) => call('fs_write', { path, content: 'x' })
  const steps = []
  const where = await place([0, 1, 2, 3].flatMap((at) => [() => writes(steps[at]), { text: 'done' }]))
  const [more, other] = ['more', 'other'].map((name) => join(where.home, name))
  for (const directory of [more, other]) mkdirSync(directory)
  steps.push(join(more, 'a'), join(other, 'a'), join(more, 'b'), join(other, 'b'))
  const editor = await piped(where, { permission: choose('allow_once') })
  assert.deepEqual(editor.initialized.agentCapabilities.sessionCapabilities.additionalDirectories, {})
  const opens = { cwd: where.work, mcpServers: [] }
  const { sessionId } = await editor.request('session/new', { ...opens, additionalDirectories: [more] })
  const list = async () => (await editor.request('session/list', {})).sessions[0].additionalDirectories
  const prompt = () => editor.request('session/prompt', { sessionId, prompt: text('write') })
  const wrote = () => steps.map((path) => existsSync(path))
  assert.deepEqual(await list(), [more])
  await prompt()
  await prompt()
  assert.deepEqual(wrote(), [true, false, false, false])
  await editor.request('session/resume', { ...opens, sessionId, additionalDirectories: [other] })
  assert.deepEqual(await list(), [other])
  await prompt()
  await prompt()
  assert.deepEqual(wrote(), [true, false, false, true])
  await editor.request('session/load', { ...opens, sessionId })
  assert.equal(await list(), undefined, 'who names none has none')
  for (const [given, field] of [
    [['more'], 'additionalDirectories[0]'],
    [[more, join(where.home, 'nothing')], 'additionalDirectories[1]'],
  ]) {
    const refused = editor.request('session/new', { ...opens, additionalDirectories: given })
    await assert.rejects(refused, (error) => error.code === -32602 && error.message.includes(field))
  }
  assert.deepEqual(editor.seen.faults, [])
})

test('two editors without a server share one', { timeout: 60_000 }, async () => {
  const where = await place([{ text: 'hello' }])
  const first = await piped(where)
  const second = await piped(where)
  const { sessionId } = await first.request('session/new', { cwd: where.work, mcpServers: [] })
  await second.request('session/resume', { sessionId, cwd: where.work })
  const answer = await second.request('session/prompt', { sessionId, prompt: text('hi') })
  assert.equal(answer.stopReason, 'end_turn')
  await first.until(() => first.text(sessionId) === 'hello')
  assert.equal(await second.pipe.end(), 0)
  assert.equal(await first.pipe.end(), 0)
})

/** A model that calls the tool `ask` of a server with what the prompt says, in JSON, and then says what came of it. */
const relay = (tool) =>
  Array.from({ length: 20 }, () => ({ messages }) => {
    const last = messages.at(-1)
    return last.role === 'tool' ? { text: last.content } : call(tool, last.content)
  })

test("an editor's tool servers are its session's, and what they ask is a form", { timeout: 120_000 }, async () => {
  const where = await place(relay('mcp:the-asker/ask'))
  const asker = {
    name: 'the asker',
    command: process.execPath,
    args: [new URL('./support/elicits.mjs', import.meta.url).pathname],
    env: [{ name: 'A', value: 'b' }],
  }
  const forms = { elicitation: { form: {} } }
  const form = ({ requestedSchema: { properties } }) => {
    const [name] = Object.keys(properties)
    const { type, enum: choices } = properties[name]
    const value = { boolean: true, string: choices?.[1] ?? 'some words', array: ['b'] }[type]
    return { action: 'accept', content: { [name]: value } }
  }
  const editor = await piped(
    { ...where, args: [...where.args, '--default-policy', 'allow'] },
    { form, capabilities: forms },
  )
  const { sessionId } = await editor.request('session/new', { cwd: where.work, mcpServers: [asker] })
  const requestedSchema = {
    type: 'object',
    properties: {
      name: { type: 'string', title: 'Name' },
      sure: { type: 'boolean' },
      one: { type: 'string', enum: ['a', 'b'] },
    },
    required: ['name', 'sure', 'one'],
  }
  const wanted = JSON.stringify({ message: 'Who?', requestedSchema })
  const answer = await editor.request('session/prompt', { sessionId, prompt: text(wanted) })
  assert.equal(answer.stopReason, 'end_turn')
  assert.deepEqual(JSON.parse(editor.text(sessionId)), {
    action: 'accept',
    content: { name: 'some words', sure: true, one: 'b' },
  })
  assert.equal(editor.questions.length, 3)
  const bad = { ...asker, type: 'sse', url: 'http://127.0.0.1:1/', headers: [] }
  await assert.rejects(editor.request('session/new', { cwd: where.work, mcpServers: [bad] }), { code: -32602 })
  // Another session has them not.
  const other = await editor.request('session/new', { cwd: where.work, mcpServers: [] })
  await editor.request('session/prompt', { sessionId: other.sessionId, prompt: text(wanted) })
  assert.match(editor.text(other.sessionId), /mcp:the-asker\/ask/)
  assert.equal(editor.questions.length, 3)
  assert.deepEqual(editor.seen.faults, [])
  assert.equal(await editor.pipe.end(), 0)
  // A client without forms declines.
  const plain = await piped({ ...where, args: [...where.args, '--default-policy', 'allow'] })
  await plain.request('session/load', { sessionId, cwd: where.work, mcpServers: [asker] })
  const from = plain.text(sessionId).length
  await plain.request('session/prompt', { sessionId, prompt: text(wanted) })
  assert.deepEqual(JSON.parse(plain.text(sessionId).slice(from)), { action: 'decline' })
  assert.deepEqual(plain.seen.faults, [])
  assert.equal(await plain.pipe.end(), 0)
})

test('a message goes into the running turn, or begins one, or is left to the client', { timeout: 60_000 }, async () => {
  const where = await place([{ ...call('bash', { command: 'true' }) }, { text: 'steered' }, { text: 'begun' }])
  let asked
  const waits = new Promise((go) => {
    asked = go
  })
  const editor = await piped(where, { permission: (params) => waits.then(() => choose('allow_once')(params)) })
  assert.equal(editor.initialized._meta.steering.supported, true)
  const { sessionId } = await editor.request('session/new', { cwd: where.work, mcpServers: [] })
  const steer = (words, _meta) =>
    editor.request('_session/steering', { sessionId, prompt: text(words), ...(_meta && { _meta }) })
  const idle = { steering: { idleBehavior: 'promptRequired' } }
  assert.equal((await steer('nothing runs', idle)).outcome, 'promptRequired')
  const prompted = editor.request('session/prompt', { sessionId, prompt: text('go') })
  await editor.until(() => editor.questions.length > 0)
  assert.deepEqual(await steer('and this', idle), { outcome: 'injected' })
  asked()
  assert.equal((await prompted).stopReason, 'end_turn')
  assert.equal(where.model.requests[1].messages.at(-1).content, 'and this')
  assert.deepEqual(await steer('a new one'), { outcome: 'startedNewTurn' })
  await editor.until(() => editor.text(sessionId).endsWith('begun'))
  assert.deepEqual(editor.of(sessionId, 'user_message_chunk'), [], 'the editor knows what it said')
  await assert.rejects(steer('x', { steering: { idleBehavior: 'other' } }), { code: -32602 })
  assert.deepEqual(editor.seen.faults, [])
  assert.equal(await editor.pipe.end(), 0)
})

test('what a turn ends with is told as the protocol calls it', { timeout: 60_000 }, async () => {
  const where = await place([
    { status: 400, body: { error: { message: 'no such thing' } } },
    { ...call('bash', { command: 'true' }) },
    { ...call('bash', { command: 'true' }, 'call_2') },
  ])
  const editor = await piped({ ...where, args: [...where.args, '--max-iterations', '2', '--default-policy', 'allow'] })
  const { sessionId } = await editor.request('session/new', { cwd: where.work, mcpServers: [] })
  const prompt = (words) => editor.request('session/prompt', { sessionId, prompt: text(words) })
  await assert.rejects(prompt('fails'), ({ message, data }) => /no such thing/.test(message) && data.code !== undefined)
  assert.equal((await prompt('goes on')).stopReason, 'max_turn_requests')
  assert.deepEqual(editor.seen.faults, [])
  assert.equal(await editor.pipe.end(), 0)
})

test('a message goes into a turn that runs, and its prompt still has its answer', { timeout: 60_000 }, async () => {
  let go
  const waits = new Promise((resolve) => {
    go = resolve
  })
  let begun
  const asked = new Promise((resolve) => {
    begun = resolve
  })
  const slow = {
    ...call('fs_list', { path: '.' }),
    pace() {
      begun()
      return waits
    },
  }
  const where = await place([slow, { text: 'with it' }])
  const editor = await piped(where)
  const { sessionId } = await editor.request('session/new', { cwd: where.work, mcpServers: [] })
  const prompted = editor.request('session/prompt', { sessionId, prompt: text('go') })
  await asked
  const steered = await editor.request('_session/steering', { sessionId, prompt: text('more') })
  assert.deepEqual(steered, { outcome: 'injected' })
  go()
  assert.equal((await prompted).stopReason, 'end_turn')
  assert.equal(where.model.requests[1].messages.at(-1).content, 'more')
  assert.equal(await editor.pipe.end(), 0)
})
