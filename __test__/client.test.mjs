/** `simse/client` against the program: every operation, errors, lists, and questions. */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { operations } from '../js/client/operations.js'
import { createSimseClient, EVENT_TYPES, SimseError } from '../js/client.node.js'
import { clientRoom, gathered, refusedWith, until } from './support/client.mjs'
import { deferred } from './support/registry.mjs'

const { served, close, open } = clientRoom('client')
after(close)

const allow = { defaultPolicy: 'allow', rules: [] }
const ask = { defaultPolicy: 'ask', rules: [] }
const calling = (name, args, id = 'call_1') => ({ calls: [{ id, name, arguments: args }] })
const writes = (path, content) => calling('fs_write', { path, content })

/** A client that notes which of its methods were called. */
function watched(client, called) {
  const wrap = (target, prefix) =>
    Object.fromEntries(
      Object.entries(target).map(([name, member]) => {
        if (typeof member !== 'function') return [name, wrap(member, `${name}.`)]
        return [
          name,
          (...given) => {
            called.add(prefix + name)
            return member(...given)
          },
        ]
      }),
    )
  return wrap(client, '')
}

test('every operation does what it is called', { timeout: 60_000 }, async () => {
  const held = deferred()
  const { client: bare, server } = await served(
    [
      { text: 'one' },
      writes('a.txt', 'first\n'),
      { text: 'written' },
      { text: '## Goal\nall\n## State\nhalf' },
      () => held.promise,
      { text: 'resumed' },
      { hang: true },
      { hang: true },
    ],
    { args: ['--interrupt-grace-ms', '200'] },
  )
  const called = new Set()
  const client = watched(bare, called)
  const { sessions, permissions } = client

  const created = await sessions.create({ sessionId: 's', title: 'A title', toolPermissions: allow })
  assert.deepEqual([created.sessionId, created.version, created.status], ['s', 0, 'created'])
  assert.deepEqual(
    (await gathered(sessions.list())).map(({ sessionId }) => sessionId),
    ['s'],
  )
  const changed = await sessions.configure('s', { title: 'Another' }, { ifVersion: 0 })
  assert.deepEqual([changed.title, (await sessions.get('s')).title], ['Another', 'Another'])

  const first = await sessions.prompt('s', { prompt: 'go' }, { wait: true })
  assert.deepEqual([first.status, first.result], ['completed', 'one'])
  assert.deepEqual(await sessions.turn('s', first.turnId), first)
  const second = await sessions.prompt('s', { prompt: 'write' }, { stream: true })
  const events = await gathered(second)
  assert.deepEqual([events[0].type, events.at(-1).type], ['session.prompt', 'session.completed'])
  assert.ok(events.every(({ turnId }) => turnId === second.turnId))
  assert.equal(readFileSync(join(server.work, 'a.txt'), 'utf8'), 'first\n')
  assert.deepEqual((await gathered(sessions.turns('s'))).length, 2)
  const items = await gathered(sessions.history('s'))
  assert.deepEqual(items.map(({ type }) => type).slice(0, 2), ['message', 'message'])
  const raw = await gathered(sessions.history('s', { events: true }))
  const streamed = await gathered(sessions.events('s'), (_, all) => all.length === raw.length)
  assert.deepEqual(raw, streamed)
  const prompts = sessions.history('s', { events: true, types: ['session.prompt'] })
  assert.deepEqual(
    (await gathered(prompts)).map(({ payload }) => payload.prompt),
    ['go', 'write'],
  )

  const diff = await sessions.diff('s', { turn: second.turnId })
  assert.deepEqual(
    diff.files.map(({ path, kind }) => [path, kind]),
    [['a.txt', 'A']],
  )
  const found = await sessions.files('s', { query: 'A.T', limit: 5 })
  assert.deepEqual(found, { entries: [{ path: 'a.txt', kind: 'file' }], truncated: false })
  assert.deepEqual((await sessions.undo('s')).turnIds, [second.turnId])
  assert.throws(() => readFileSync(join(server.work, 'a.txt')), { code: 'ENOENT' })
  assert.deepEqual((await sessions.redo('s', { turnId: second.turnId })).turnIds, [second.turnId])
  assert.equal(readFileSync(join(server.work, 'a.txt'), 'utf8'), 'first\n')
  const compacted = await sessions.compact('s', { focus: 'the files' }, { wait: true })
  assert.match(compacted.result, /^## Goal/)
  assert.deepEqual(compacted.task, { kind: 'compact', focus: 'the files' })
  const fork = await sessions.fork('s', { newSessionId: 'fork' })
  assert.equal(fork.sessionId, 'fork')

  const third = await sessions.prompt('s', { prompt: 'wait' })
  assert.match(third.status, /queued|running/)
  // It is under way until the turn holds, or for its grace: on a busy machine that may be over before anybody looks.
  let answered = false
  const pausing = sessions.pause('s').finally(() => {
    answered = true
  })
  const underWay = ({ limits }) => limits.find(({ name }) => name === 'commandsUnderWay').used
  await until(async () => answered || underWay(await client.health({ verbose: true })) > 0)
  held.resolve(calling('fs_list', { path: '.' }))
  assert.equal((await pausing).turnId, third.turnId)
  await until(async () => (await sessions.get('s')).turn?.status === 'paused')
  assert.equal((await sessions.resume('s')).turnId, third.turnId)
  await gathered(sessions.events('s', { after: raw.length }), ({ type }) => type === 'session.completed')
  const ends = async (end, type) => {
    const turn = await sessions.prompt('s', { prompt: 'hang' }, { stream: true })
    for await (const event of turn) {
      if (event.type === 'stream.delta') await end(turn.turnId)
      assert.notEqual(event.type, 'session.completed')
    }
    assert.equal((await sessions.turn('s', turn.turnId)).status, type)
  }
  await ends((turnId) => sessions.abort('s', { turnId, reason: 'enough' }), 'aborted')
  await ends(() => sessions.interrupt('s', { turnId: undefined }), 'interrupted')

  const verdict = await permissions.explain({ sessionId: 's', tool: 'fs_list', arguments: { path: '.' } })
  assert.equal(verdict.decision, 'allow')
  assert.deepEqual(await gathered(permissions.grants()), [])
  assert.equal((await refusedWith(assert, 'NOT_FOUND', permissions.revoke('grant_1'))).status, 404)
  await refusedWith(assert, 'NOT_FOUND', sessions.feedback('s', { requestId: 'req_1', decision: 'allow' }))
  const unplanned = await refusedWith(assert, 'CONFLICT', sessions.decidePlan('s', { decision: 'approve' }))
  assert.equal(unplanned.details.why, 'not_planning')
  for (const what of ['tools', 'agents', 'skills', 'models'])
    assert.ok(Array.isArray((await client[what]())[what]), what)
  assert.deepEqual(await client.slashCommands({ sessionId: 's' }), { commands: [], faults: [] })
  assert.equal((await refusedWith(assert, 'CONFLICT', client.countTokens({ prompt: 'hello' }))).status, 409)
  assert.match((await client.proof('0123456789abcdef'.repeat(4))).proof, /^[0-9a-f]{64}$/)
  const config = await client.config()
  assert.ok(config.settings.some(({ name, value }) => name === 'model' && value === 'openai/scripted'))
  const { nodes } = await client.nodes()
  assert.deepEqual(
    nodes.map(({ isSelf, state, url }) => [isSelf, state, url]),
    [[true, 'active', undefined]],
  )
  assert.equal((await refusedWith(assert, 'CONFLICT', client.drain())).status, 409)
  const health = await client.health({ verbose: true })
  assert.deepEqual([health.status, Array.isArray(health.limits)], ['ok', true])
  const seen = await gathered(client.events(), ({ type }) => type === 'abort')
  assert.deepEqual([seen[0].type, seen[0].sessionId], ['session.created', 's'])
  assert.equal(typeof (await sessions.agent('s')), 'object')
  assert.deepEqual((await sessions.mcp('s')).servers, [])
  await assert.rejects(sessions.trustMcp('s', { hash: '0'.repeat(64) }))
  await assert.rejects(sessions.askMcp('s', { server: 'none', method: 'prompts/list' }), /none/)
  const { token, tokenId } = await sessions.createToken('s', { expiresInMs: 60_000 })
  const about = (await sessions.tokens('s')).tokens
  assert.deepEqual(
    [token.startsWith('simse_one_'), about.map((one) => one.tokenId), about[0].token],
    [true, [tokenId], undefined],
  )
  assert.deepEqual(await sessions.revokeToken('s', tokenId), { deleted: true })
  await underAnother(client)
  await shared(client)
  assert.deepEqual(await sessions.delete('fork'), { deleted: true })
  await elsewhere(client)

  const missing = Object.keys(operations).filter((name) => !called.has(name))
  assert.deepEqual(missing, [])
})

/** Sessions under others, and turns as runs. */
async function underAnother({ sessions, runs }) {
  await sessions.create({ sessionId: 'under', parent: 'fork' })
  const children = await gathered(sessions.children('fork'))
  assert.deepEqual(
    children.map(({ sessionId, lineage }) => [sessionId, lineage.path]),
    [['under', ['fork']]],
  )
  const { budgets } = await sessions.budget('under')
  assert.deepEqual(
    budgets.map(({ scope, sessionId, limits }) => [scope, sessionId, limits]),
    [['session', 'under', {}]],
  )
  const all = await gathered(runs.list({ sessionId: 's' }))
  const { runId } = all.at(-1)
  assert.equal((await runs.get(runId)).runId, runId)
  assert.ok((await gathered(runs.context(runId, { view: 'raw' }))).length > 0)
  assert.equal((await refusedWith(assert, 'CONFLICT', runs.cancel(runId))).details.why, 'run_over')
}

/** What the sessions of a tree share. */
async function shared({ blackboard, sessions, tasks }) {
  const first = await blackboard.put('under', 'a/b', { value: [1], ifVersion: 0 })
  assert.deepEqual([first.key, first.value], ['a/b', [1]])
  assert.deepEqual(await blackboard.get('fork', 'a/b'), first)
  await refusedWith(assert, 'CONFLICT', blackboard.put('fork', 'a/b', { value: 2, ifVersion: 0 }))
  const second = await blackboard.put('fork', 'a/b', { value: 2 }, { ifVersion: first.version })
  assert.deepEqual(await gathered(blackboard.list('under', { prefix: 'a/' })), [second])
  assert.deepEqual(await blackboard.delete('under', 'a/b'), { deleted: true })
  await refusedWith(assert, 'NOT_FOUND', blackboard.get('fork', 'a/b'))
  assert.deepEqual(await blackboard.clear('fork'), { deleted: true })
  assert.deepEqual(await gathered(sessions.tasks('under')), [])
  const task = await tasks.create('under', { subject: 'build' }, { idempotencyKey: 'task-1' })
  assert.deepEqual(await tasks.create('under', { subject: 'build' }, { idempotencyKey: 'task-1' }), task)
  const begun = await tasks.update('fork', task.id, { status: 'in_progress', owner: 'me' })
  assert.deepEqual([begun.id, begun.status, begun.owner], ['1', 'in_progress', 'me'])
  assert.deepEqual(await gathered(sessions.tasks('under')), [begun])
  assert.deepEqual(await tasks.delete('under', task.id), { deleted: true })
  assert.deepEqual(await gathered(sessions.tasks('fork')), [])
}

/** Operations that stand for themselves: those that this version of the document has. */
async function elsewhere(client) {
  if (client.openapi) assert.match((await client.openapi()).openapi, /^3\.1\./)
  if (client.metrics) assert.match(await client.metrics(), /^# (HELP|TYPE) simse_/m)
}

test('the table of operations is that of the running server, and so are the types of events', async () => {
  const { client, server } = await served()
  const document = await client.openapi()
  assert.deepEqual(document, JSON.parse(readFileSync(new URL('../docs/openapi.json', import.meta.url), 'utf8')))
  const there = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([, operation]) => operation.operationId && !operation['x-simse-door'])
      .map(([method, operation]) => `${operation.operationId} ${method.toUpperCase()} ${path}`),
  )
  const here = Object.entries(operations).map(([name, { method, path }]) => `${name} ${method} ${path}`)
  assert.deepEqual(here.sort(), there.sort())
  // The server names them all when it is asked for one that there is not.
  const { body } = await server.call('POST', '/sessions', {})
  const refused = await server.call('GET', `/sessions/${body.sessionId}/events?types=nonsense`)
  const [, named] = /^some of (.+)$/.exec(refused.body.error.details.expected)
  assert.deepEqual([...EVENT_TYPES].sort(), named.split(', ').sort())
})

test('refusals are typed errors', { timeout: 60_000 }, async () => {
  const { client, server, home } = await served([{ hang: true }], { args: ['--commands-per-minute', '10'] })
  const { sessions } = client
  await sessions.create({ sessionId: 's' })
  const invalid = await refusedWith(assert, 'INVALID_ARGUMENT', sessions.create({ title: 5 }))
  assert.ok(invalid instanceof SimseError && invalid instanceof Error)
  assert.deepEqual([invalid.status, invalid.details.field, invalid.operation], [400, 'title', 'sessions.create'])
  assert.match(invalid.requestId, /^[\w.-]+$/)
  assert.equal((await refusedWith(assert, 'NOT_FOUND', sessions.get('nobody'))).status, 404)
  assert.equal((await refusedWith(assert, 'NOT_FOUND', sessions.events('nobody').next())).status, 404)
  assert.equal((await refusedWith(assert, 'CONFLICT', sessions.create({ sessionId: 's' }))).status, 409)
  const stale = sessions.configure('s', { title: 'x' }, { ifVersion: 7 })
  assert.match((await refusedWith(assert, 'CONFLICT', stale)).message, /version 0, not 7/)
  await sessions.prompt('s', { prompt: 'hang' })
  const busy = sessions.prompt('s', { prompt: 'more', mode: 'reject' }, { stream: true })
  assert.equal((await refusedWith(assert, 'CONFLICT', busy)).details.why, 'busy')

  const stranger = createSimseClient({ baseUrl: server.url, token: 'sesame-1' })
  const unknown = await refusedWith(assert, 'UNAUTHORIZED', stranger.sessions.get('s'))
  assert.deepEqual([unknown.status, unknown.message.includes('sesame')], [401, false])
  // One that finds its token by itself looks once more, and then takes no for an answer.
  const asked = []
  const found = createSimseClient({
    dataDirectory: join(home, 'data'),
    token: () => {
      asked.push(1)
      return 'sesame-2'
    },
  })
  await refusedWith(assert, 'UNAUTHORIZED', found.tools())
  assert.equal(asked.length, 2)

  // The share of a minute is used up: who does not try again is told when to.
  const impatient = createSimseClient({ dataDirectory: join(home, 'data'), retries: 0 })
  const calls = Array.from({ length: 12 }, () => impatient.sessions.configure('s', { title: 'x' }).catch((e) => e))
  const limited = (await Promise.all(calls)).find(({ code }) => code === 'RESOURCE_EXHAUSTED')
  assert.deepEqual([limited.status, limited.retryAfter >= 1], [429, true])
  assert.equal(JSON.parse(JSON.stringify(limited)).code, 'RESOURCE_EXHAUSTED')
})

test('what a method is given has to be what it takes', async () => {
  const client = createSimseClient({ baseUrl: 'http://127.0.0.1:9' })
  const table = [
    [() => client.sessions.get(''), /sessions\.get: `sessionId`: expected a text/],
    [() => client.sessions.get(undefined), /`sessionId`.*type undefined/],
    [() => client.sessions.get('s', { sginal: 1 }), /unknown option `sginal`; there are signal, timeoutMs/],
    [() => client.sessions.get('s', {}, {}), /too many arguments/],
    [() => client.sessions.configure('s', {}, { ifVersion: '1' }), /`ifVersion`: expected a number/],
    [() => client.sessions.events('s', { silenceMs: 0 }), /`silenceMs`: expected a number, 1 or more/],
    [() => client.sessions.prompt('s', { prompt: 'x' }, { wait: true, stream: true }), /exclude each other/],
    [() => client.sessions.answer('s', { permisson: () => true }), /unknown handler `permisson`/],
    [() => createSimseClient({ baseURL: 'x' }), /unknown option `baseURL`/],
    [() => createSimseClient({ baseUrl: 'ftp://x' }), /`baseUrl`: expected http or https/],
    [() => createSimseClient({ baseUrl: 'x' }), /`baseUrl`: expected an address/],
    [() => createSimseClient({ baseUrl: 'http://x', dataDirectory: '/' }), /only without `baseUrl`/],
    [() => createSimseClient({ retries: -1 }), /`retries`: expected a number, 0 or more/],
  ]
  for (const [act, words] of table)
    await assert.rejects(
      async () => act(),
      (error) => error instanceof TypeError && words.test(error.message),
      String(words),
    )
})

test('ids that could be read as something else are names all the same', async () => {
  const { client } = await served()
  for (const sessionId of ['...', 'a.b', 'A-_9']) {
    await client.sessions.create({ sessionId })
    assert.equal((await client.sessions.get(sessionId)).sessionId, sessionId)
  }
  for (const step of ['.', '..'])
    await assert.rejects(async () => client.sessions.get(step), /`sessionId`: expected a name, got/)
  for (const strange of ['a/b', '../health', 'a?b=c', 'é#'])
    await refusedWith(assert, 'INVALID_ARGUMENT', client.sessions.get(strange))
})

test('a list is iterated over all its pages, and no page more than is asked for', { timeout: 60_000 }, async () => {
  const { server, home } = await served()
  let pages = 0
  const client = createSimseClient({
    dataDirectory: join(home, 'data'),
    fetch: (url, init) => {
      if (url.startsWith(`${server.url}/sessions?`)) pages += 1
      return fetch(url, init)
    },
  })
  const names = Array.from({ length: 300 }, (_, i) => `s${i}`)
  for (let at = 0; at < names.length; at += 20)
    await Promise.all(names.slice(at, at + 20).map((sessionId) => client.sessions.create({ sessionId })))
  const ids = (await gathered(client.sessions.list())).map(({ sessionId }) => sessionId)
  assert.deepEqual([ids.length, new Set(ids).size, ids.every((id) => names.includes(id))], [300, 300, true])
  const list = client.sessions.list({ limit: 40 })
  const sizes = (await gathered(list.pages())).map(({ items }) => items.length)
  assert.deepEqual(sizes, [40, 40, 40, 40, 40, 40, 40, 20])
  const first = await list.page()
  const second = await list.page(first.nextCursor)
  assert.deepEqual(
    [...first.items, ...second.items].map(({ sessionId }) => sessionId),
    ids.slice(0, 80),
  )
  pages = 0
  await gathered(client.sessions.list({ limit: 40 }), (_, all) => all.length === 41)
  assert.equal(pages, 2)
})

test('two names of a client are two clients', async () => {
  const { client, home } = await served()
  const [a, b] = ['a', 'b'].map((clientId) => createSimseClient({ dataDirectory: join(home, 'data'), clientId }))
  await a.sessions.create({ sessionId: 's' })
  assert.equal((await a.sessions.get('s')).sessionId, 's')
  await refusedWith(assert, 'NOT_FOUND', b.sessions.get('s'))
  assert.deepEqual(await gathered(b.sessions.list()), [])
  assert.ok(client)
})

test('questions are answered by handlers: open ones, new ones, and not those that others have answered', {
  timeout: 60_000,
}, async () => {
  const { client, server } = await served([
    writes('a.txt', 'a'),
    writes('b.txt', 'b'),
    writes('c.txt', 'c'),
    { text: 'done' },
  ])
  writeFileSync(join(server.work, 'seen.txt'), '')
  const { sessions } = client
  await sessions.create({ sessionId: 's', toolPermissions: ask })
  const turn = await sessions.prompt('s', { prompt: 'go' }, { stream: true })
  const waiting = gathered(turn)
  // The first one is open before anybody answers.
  await gathered(sessions.events('s', { types: ['permission.request'] }), () => true)
  const stop = new AbortController()
  const asked = []
  const third = deferred()
  const answering = sessions.answer(
    's',
    {
      async permission(request, { event, signal }) {
        asked.push([request.toolName, request.requestId, event.seq > 0])
        if (asked.length === 1) return 'allow'
        if (asked.length === 2) return { decision: 'deny', message: 'not that one' }
        third.resolve(request)
        await new Promise((over) => signal.addEventListener('abort', over, { once: true }))
        return 'deny'
      },
    },
    { signal: stop.signal },
  )
  const { requestId } = await third.promise
  await sessions.feedback('s', { requestId, decision: 'allow' })
  const events = await waiting
  const answers = events.filter(({ type }) => type === 'permission.response').map(({ payload }) => payload.allowed)
  assert.deepEqual(answers, [true, false, true])
  assert.equal(new Set(asked.map(([, id]) => id)).size, 3)
  assert.ok(events.some(({ type, payload }) => type === 'tool.call.end' && payload.output.includes('not that one')))
  stop.abort()
  await answering

  // Deletion ends it as well; a handler that fails ends it with its error.
  const none = (error) => assert.deepEqual([error.code, error.operation], ['NOT_FOUND', 'sessions.get'])
  const ends = sessions.answer('s', { permission: () => true }).catch(none)
  await sessions.delete('s')
  await ends
})

test('a handler of questions that fails is heard of, and the question stays open', { timeout: 60_000 }, async () => {
  const { client } = await served([writes('a.txt', 'a'), { text: 'done' }])
  const { sessions } = client
  await sessions.create({ sessionId: 's', toolPermissions: ask })
  const turn = gathered(await sessions.prompt('s', { prompt: 'go' }, { stream: true }))
  const fails = () => {
    throw new RangeError('no idea')
  }
  await assert.rejects(sessions.answer('s', { permission: fails }), RangeError)
  await assert.rejects(sessions.answer('s', { permission: () => 5 }), /expected a decision, got a value of type number/)
  const stop = new AbortController()
  const left = sessions.answer('s', { permission: () => undefined }, { signal: stop.signal })
  const answering = sessions.answer('s', { permission: () => true }, { signal: stop.signal })
  assert.equal((await turn).at(-1).type, 'session.completed')
  stop.abort()
  await Promise.all([left, answering])
})

test('a client that is closed gives up its calls and ends its streams', async () => {
  const { client, home } = await served([{ hang: true }])
  const own = createSimseClient({ dataDirectory: join(home, 'data') })
  await client.sessions.create({ sessionId: 's' })
  const stream = own.sessions.events('s')
  assert.equal((await stream.next()).value.type, 'session.created')
  const rest = gathered(stream)
  const waiting = refusedWith(assert, 'CLOSED', own.sessions.prompt('s', { prompt: 'hang' }, { wait: true }))
  await gathered(client.sessions.events('s'), ({ type }) => type === 'stream.delta')
  own.close()
  await waiting
  assert.equal((await rest)[0].type, 'session.prompt')
  assert.equal((await stream.next()).done, true)
  await refusedWith(assert, 'CLOSED', own.tools())
  assert.ok(open.length > 0)
})
