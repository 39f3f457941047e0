/** `createACPClient` over a real agent program: typescript-api.md §7, and §8 row 18. */

import assert from 'node:assert/strict'
import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import {
  createACPClient,
  createAgenticLoop,
  createConversation,
  createEventBus,
  createToolPermissionResolver,
  createToolRegistry,
} from '../js/index.js'
import { entry, runModule } from './support/run.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-acp-')))
const clients = new Set()
after(async () => {
  for (const client of clients) await client.dispose()
  rmSync(room, { recursive: true, force: true })
})

const program = fileURLToPath(new URL('support/acp-agent.mjs', import.meta.url))
const agent = (more = {}, args = []) => ({ name: 'a', command: process.execPath, args: [program, ...args], ...more })

function client(servers = [agent()], { options, ...more } = {}) {
  const made = createACPClient({ servers, ...more }, { workingDirectory: room, ...options })
  clients.add(made)
  return made
}

const collect = async (stream) => {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return chunks
}
const texts = (chunks) => chunks.flatMap(({ type, text }) => (type === 'delta' ? [text] : []))

// ── Prompts ─────────────────────────────────────────────────────────────────────────────────────

test('an answer with who gave it; prompts follow each other in one session; characters that are cut come whole', async () => {
  const acp = client()
  assert.ok(Object.isFrozen(acp))
  const first = await acp.generate('hello')
  const { sessionId } = first
  assert.deepEqual(first, {
    content: '1: hello 😀',
    agentId: 'ask',
    serverName: 'a',
    sessionId,
    usage: { inputTokens: 3, outputTokens: 4, totalTokens: 7 },
    stopReason: 'end_turn',
  })
  assert.ok(Object.isFrozen(first))
  const second = await acp.generate('again')
  assert.deepEqual([second.content, second.sessionId], ['2: hello | again 😀', sessionId])
  const other = await acp.generate('apart', { newSession: true })
  assert.equal(other.content, '1: apart 😀')
  assert.notEqual(other.sessionId, sessionId)
  assert.deepEqual(
    (await acp.listSessions()).map((each) => each.sessionId),
    [sessionId],
    'a session for one prompt is closed behind it',
  )
  assert.equal((await acp.generate('third')).content, '3: hello | again | third 😀')
})

test('prompts that come at once go one after the other', async () => {
  const acp = client()
  const all = await Promise.all(['one', 'two', 'three'].map((prompt) => acp.generate(prompt)))
  assert.deepEqual(
    all.map(({ content }) => content),
    ['1: one 😀', '2: one | two 😀', '3: one | two | three 😀'],
  )
  assert.equal(new Set(all.map(({ sessionId }) => sessionId)).size, 1)
})

test('a conversation: what the session has heard is not told again, and another conversation is another session', async () => {
  const acp = client()
  const messages = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'hello' },
  ]
  const first = await acp.chat(messages)
  assert.equal(first.content, '1: [Instructions]\nBe brief.\nhello 😀')
  const more = [...messages, { role: 'assistant', content: first.content }, { role: 'user', content: 'and now' }]
  const second = await acp.chat(more)
  assert.equal(second.sessionId, first.sessionId)
  assert.ok(second.content.endsWith(' | and now 😀') && second.content.startsWith('2: '), second.content)
  const third = await acp.chat([
    { role: 'user', content: 'x' },
    { role: 'assistant', content: 'y' },
    { role: 'user', content: 'z' },
  ])
  assert.notEqual(third.sessionId, first.sessionId)
  assert.match(third.content, /^1: .*\[User\]\nx.*\[Assistant\]\ny.*z 😀$/s)
  await assert.rejects(acp.chat([{ role: 'assistant', content: 'a' }]), (error) => error.code === 'CONFIG_VALIDATION')
})

test('a stream: pieces as they come, calls of the agent, the end', async () => {
  const acp = client()
  const flood = await collect(acp.generateStream('flood 500'))
  // What waits together comes as one piece.
  assert.equal(texts(flood).join(''), Array.from({ length: 500 }, (_, i) => `${i}ü `).join(''))
  const { type, stopReason, usage, sessionId } = flood.at(-1)
  assert.deepEqual([type, stopReason, usage.totalTokens, typeof sessionId], ['complete', 'end_turn', 7, 'string'])
  acp.setPermissionPolicy('auto-approve')
  const chunks = await collect(acp.generateStream('ask'))
  const [call] = chunks.filter((chunk) => chunk.type === 'tool_call')
  const [result] = chunks.filter((chunk) => chunk.type === 'tool_call_update')
  assert.deepEqual(call.toolCall.arguments, { command: 'rm -rf x' })
  assert.deepEqual(
    [result.update.id, result.update.status, result.update.isError],
    [call.toolCall.id, 'completed', false],
  )
  assert.deepEqual(texts(chunks), ['it completed'])
})

// ── Ends and failures ───────────────────────────────────────────────────────────────────────────

test('a signal cancels the turn, and the session goes on', async () => {
  const acp = client()
  await acp.generate('hello')
  for (const word of ['slow', 'slow']) {
    const controller = new AbortController()
    const stream = acp.generateStream(word, { signal: controller.signal })
    const { value } = await stream.next()
    assert.deepEqual(value, { type: 'delta', text: 'one moment' })
    controller.abort(new RangeError('enough'))
    await assert.rejects(stream.next(), (error) => error instanceof RangeError)
  }
  for await (const _ of acp.generateStream('slow')) break
  assert.match((await acp.generate('still there')).content, /^5: hello \| slow \| slow \| slow \| still there/)
  await assert.rejects(acp.generate('x', { signal: AbortSignal.abort() }), (error) => error.name === 'AbortError')
})

test('failures have codes: of a turn, of a program that ends, of one that is not there, of one that hangs', async () => {
  const acp = client([
    agent(),
    { name: 'none', command: '/no/such/agent' },
    agent({ name: 'late', timeoutMs: 50 }, ['--slow-start', '60000']),
  ])
  const code = (wanted, words) => (error) => error.code === wanted && words.test(error.message)
  await assert.rejects(acp.generate('fail'), code('PROVIDER_ERROR', /it went wrong/))
  await assert.rejects(acp.generate('die'), code('PROVIDER_UNAVAILABLE', /ended/))
  assert.match((await acp.generate('after')).content, /^1: .*after/s, 'a new program, and a new session in it')
  await assert.rejects(acp.generate('x', { serverName: 'none' }), code('PROVIDER_UNAVAILABLE', /not installed/))
  await assert.rejects(acp.generate('x', { serverName: 'late' }), code('PROVIDER_UNAVAILABLE', /within 50 ms/))
  await assert.rejects(
    acp.generate('x', { serverName: 'who' }),
    (error) => error.issues[0].path === 'options.serverName',
  )
  await assert.rejects(acp.generate(5), (error) => error.code === 'CONFIG_VALIDATION')
})

test('a prompt may take longer than a request', async () => {
  const acp = client([agent({ timeoutMs: 6000 })])
  await acp.generate('hello')
  const controller = new AbortController()
  const stream = acp.generateStream('slow', { signal: controller.signal })
  await stream.next()
  const next = stream.next()
  const early = await Promise.race([
    next.then(
      () => 'ended',
      () => 'ended',
    ),
    new Promise((later) => setTimeout(later, 6500, 'runs')),
  ])
  assert.equal(early, 'runs')
  controller.abort()
  await assert.rejects(next)
})

// ── Permission ──────────────────────────────────────────────────────────────────────────────────

test('what it asks is allowed, denied, or asked: by rules, by a person, by a resolver; without any of them it is a no', async () => {
  const asked = []
  const ask = (answer) => async (request) => {
    asked.push(request)
    return answer
  }
  const rules = (defaultPolicy, onPermissionRequest, rules = []) =>
    createToolPermissionResolver({ defaultPolicy, rules, ...(onPermissionRequest && { onPermissionRequest }) })
  const deny = [{ tool: 'bash', pattern: 'rm *', policy: 'deny' }]
  for (const [policy, permissionResolver, want, questions] of [
    [undefined, undefined, 'failed', 0],
    ['auto-approve', undefined, 'completed', 0],
    ['deny', rules('allow'), 'failed', 0],
    ['prompt', rules('allow'), 'completed', 0],
    ['prompt', rules('deny'), 'failed', 0],
    ['prompt', rules('allow', undefined, deny), 'failed', 0],
    ['prompt', rules('ask'), 'failed', 0],
    ['prompt', rules('ask', ask(true)), 'completed', 1],
    ['prompt', rules('ask', ask(false)), 'failed', 1],
    ['prompt', { check: ask(true) }, 'completed', 1],
    ['prompt', { check: ask('yes') }, 'failed', 1],
    ['prompt', { check: async () => Promise.reject(new Error('no')) }, 'failed', 0],
  ]) {
    asked.length = 0
    const eventBus = createEventBus()
    const events = []
    eventBus.subscribeAll((type, payload) => events.push([type, payload.allowed]))
    const logger = { warn() {} }
    const acp = client([agent(policy && { permissionPolicy: policy })], {
      options: { eventBus, logger, ...(permissionResolver && { permissionResolver }) },
    })
    assert.equal((await acp.generate('ask')).content, `it ${want}`, `${policy}`)
    assert.equal(asked.length, questions)
    if (questions > 0) {
      assert.deepEqual(asked[0].arguments, { command: 'rm -rf x' })
      assert.deepEqual(events, [
        ['permission.request', undefined],
        ['permission.response', want === 'completed'],
      ])
    }
    acp.setPermissionPolicy(want === 'completed' ? 'deny' : 'auto-approve')
    assert.equal((await acp.generate('ask')).content, `it ${want === 'completed' ? 'failed' : 'completed'}`)
    await acp.dispose()
  }
})

// ── Sessions ────────────────────────────────────────────────────────────────────────────────────

test('sessions are listed over pages, gone on with after a restart, and deleted', async () => {
  const file = join(room, 'sessions.json')
  const first = client([agent({}, ['--sessions', file])])
  const made = []
  for (let i = 0; i < 3; i++) {
    made.push((await first.generate(`hello ${i}`)).sessionId)
    if (i < 2)
      await first.chat([{ role: 'user', content: `another ${i}` }]).then(({ sessionId }) => made.push(sessionId))
  }
  const listed = await first.listSessions()
  assert.deepEqual(new Set(listed.map(({ sessionId }) => sessionId)), new Set(made))
  assert.deepEqual([listed[0].cwd, listed[0].title], [room, `title of ${made[0]}`])
  await first.dispose()

  const second = client([agent({}, ['--sessions', file])])
  await second.loadSession(made[0])
  const { content, sessionId } = await second.generate('and then')
  assert.equal(sessionId, made[0])
  assert.match(content, /hello 0.* \| and then 😀$/s)
  assert.ok(!content.includes('again:'), 'what is replayed is no answer')
  const there = await second.generate('elsewhere', { sessionId: made[1] })
  assert.equal(there.sessionId, made[1])
  await second.deleteSession(made[1])
  assert.ok(!(await second.listSessions()).some((each) => each.sessionId === made[1]))
  await assert.rejects(second.loadSession('nobody'), (error) => /has no session "nobody"/.test(error.message))
  assert.equal((await second.listSessions()).length, new Set(made).size - 1, 'nothing is left of what was tried')
})

test('modes, models and agents of a session', async () => {
  const acp = client([agent(), agent({ name: 'plain' }, ['--no-modes']), agent({ name: 'set', defaultAgent: 'code' })])
  const { sessionId } = await acp.generate('hello')
  await acp.setSessionMode(sessionId, 'code')
  await acp.setSessionModel(sessionId, 'large')
  assert.equal((await acp.generate('settings')).content, 'code large')
  await assert.rejects(acp.setSessionMode(sessionId, 'none'), (error) => /it offers ask, code/.test(error.message))
  assert.equal((await acp.generate('settings')).content, 'code large', 'what is not offered changes nothing')
  assert.deepEqual(await acp.listAgents(), [
    { id: 'ask', name: 'ASK', serverName: 'a' },
    { id: 'code', name: 'CODE', serverName: 'a' },
  ])
  assert.deepEqual(await acp.getAgent('code'), { id: 'code', name: 'CODE', serverName: 'a' })
  assert.equal(await acp.getAgent('none'), undefined)
  const asked = await acp.generate('settings', { agentId: 'ask' })
  assert.deepEqual([asked.content, asked.agentId], ['ask large', 'ask'])
  await assert.rejects(acp.generate('x', { agentId: 'none' }), (error) => /it offers ask, code/.test(error.message))
  assert.deepEqual(await acp.listAgents('plain'), [{ id: 'plain', name: 'plain', serverName: 'plain' }])
  const { sessionId: plain } = await acp.generate('x', { serverName: 'plain' })
  await assert.rejects(acp.setSessionMode(plain, 'code', 'plain'), (error) =>
    /lets nobody choose its mode/.test(error.message),
  )
  assert.equal((await acp.generate('settings', { serverName: 'set' })).content, 'code small')
})

test('which servers there are, and how they are', async () => {
  const acp = client([agent(), { name: 'none', command: '/no/such/agent' }], {
    defaultServer: 'a',
    defaultAgent: 'code',
  })
  assert.deepEqual(
    [acp.serverNames, acp.serverCount, acp.defaultServerName, acp.defaultAgent],
    [['a', 'none'], 2, 'a', 'code'],
  )
  assert.deepEqual([await acp.isAvailable(), await acp.isAvailable('none')], [true, false])
  assert.deepEqual(acp.getServerHealth(), { serverName: 'a', available: true, running: false })
  assert.match(acp.getServerHealth('none').reason, /not installed/)
  await acp.initialize()
  const { running, openSessions } = acp.getServerHealth()
  assert.deepEqual([running, openSessions], [true, 0])
  assert.equal((await acp.generate('settings')).content, 'code small')
  assert.equal((await acp.generate('where', { newSession: true, workingDirectory: tmpdir() })).content, tmpdir())
  await acp.dispose()
  await assert.rejects(acp.generate('x'), (error) => error.code === 'PROVIDER_UNAVAILABLE')
  await assert.rejects(
    client([{ name: 'none', command: '/no/such/agent' }]).initialize(),
    (error) => error.code === 'PROVIDER_UNAVAILABLE',
  )
})

test('a loop over an agent: every round is asked by itself', async () => {
  const acp = client()
  const conversation = createConversation()
  const loop = createAgenticLoop({
    acpClient: acp,
    toolRegistry: createToolRegistry(),
    conversation,
  })
  const { finalText, aborted } = await loop.run('hello')
  assert.equal(aborted, false)
  assert.match(finalText, /^1: \[User\]\nhello 😀$/)
  assert.match((await loop.run('more')).finalText, /^1: /)
  assert.deepEqual(await acp.listSessions(), [])
})

test('the process ends by itself after dispose()', async () => {
  const { code, said } = await runModule(`
    import { createACPClient } from ${entry}
    const acp = createACPClient({ servers: [${JSON.stringify(agent())}] }, { workingDirectory: ${JSON.stringify(room)} })
    console.log((await acp.generate('hello')).content)
    await acp.dispose()`)
  assert.deepEqual({ code, said }, { code: 0, said: '1: hello 😀\n' })
})

const REFUSED = [
  [{ servers: [] }, {}, 'servers'],
  [{ servers: [{ name: 'a' }] }, {}, 'servers.0.command'],
  [{ servers: [agent(), agent()] }, {}, 'servers.1.name'],
  [{ servers: [agent()], defaultServer: 'b' }, {}, 'defaultServer'],
  [{ servers: [agent()], server: 'b' }, {}, 'server'],
  [{ servers: [agent()] }, { permissionResolver: {} }, 'options.permissionResolver'],
]
for (const [config, options, path] of REFUSED) {
  test(`refused: ${path}`, () => {
    assert.throws(
      () => createACPClient(config, options),
      (error) => error.code === 'CONFIG_VALIDATION' && error.issues.some((issue) => issue.path === path),
    )
  })
}
