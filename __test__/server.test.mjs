/** The server from Node: typescript-api.md §1, and the loop that calls JavaScript. */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createHookSystem, createSimseServer, createToolPermissionResolver, createToolRegistry } from '../js/index.js'
import { events, http, turn } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'
import { deferred, define, registryOf } from './support/registry.mjs'
import { entry, runModule } from './support/run.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-server-')))
// Where servers without a data directory keep theirs.
process.env.XDG_DATA_HOME = join(room, 'data')
const open = new Set()

after(async () => {
  for (const each of open) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

let rooms = 0

/** A new directory. */
function directory() {
  const path = join(room, `work${++rooms}`)
  mkdirSync(path)
  return path
}

/** The configuration of a server that listens anywhere. */
const config = (more = {}) => ({ port: 0, acpServers: [], workingDirectory: directory(), ...more })

/** A started server. */
async function started(more) {
  const server = createSimseServer(config(more))
  open.add(server)
  await server.start()
  return server
}

/** A server on a scripted model. */
async function scripted(script, more = {}) {
  const model = await scriptedModel(script)
  open.add(model)
  const server = await started({
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    limits: { shutdownGraceMs: 0 },
    ...more,
  })
  return { server, model }
}

const toolCall = (name, args, id = 'call_1') => ({ calls: [{ id, name, arguments: args }] })

// ── life ────────────────────────────────────────────────────────────────────────────────────────

test('start, stop, start again; ports and addresses; a second start and a second stop', async () => {
  const server = createSimseServer(config())
  open.add(server)
  assert.deepEqual([server.port, server.url], [0, 'http://127.0.0.1:0'])
  assert.ok(Object.isFrozen(server))
  await server.stop()
  await server.start()
  const { port } = server
  assert.ok(port > 0)
  assert.equal(server.url, `http://127.0.0.1:${port}`)
  assert.equal((await http(server, 'GET', '/health')).body.status, 'ok')
  await assert.rejects(server.start(), (e) => e.code === 'SERVER_STATE' && e.message.includes(String(port)))
  assert.equal((await http(server, 'GET', '/health')).status, 200)
  await server.stop()
  await server.stop()
  assert.equal(server.port, port, 'the last port stays readable')
  await assert.rejects(fetch(`${server.url}/health`))
  await server.start()
  assert.equal((await http(server, 'GET', '/health')).status, 200)
  await Promise.all([server.stop(), server.stop()])
})

test('calls to start() and stop() happen in their order', async () => {
  const server = createSimseServer(config())
  const done = await Promise.allSettled([server.start(), server.stop(), server.start(), server.start(), server.stop()])
  assert.deepEqual(
    done.map((d) => d.status),
    ['fulfilled', 'fulfilled', 'fulfilled', 'rejected', 'fulfilled'],
  )
})

test('an IPv6 host is in brackets', async (t) => {
  const probe = createServer()
  const has = await new Promise((known) => {
    probe.once('error', () => known(false))
    probe.listen(0, '::1', () => probe.close(() => known(true)))
  })
  assert.equal(createSimseServer(config({ host: '::1' })).url, 'http://[::1]:0')
  if (!has) return t.skip('this machine has no IPv6')
  const server = await started({ host: '::1' })
  assert.equal(server.url, `http://[::1]:${server.port}`)
  assert.equal((await http(server, 'GET', '/health')).status, 200)
})

test('a port in use: the error says so, and nothing is left behind', async () => {
  const first = await started()
  const dataDirectory = directory()
  const second = createSimseServer(config({ port: first.port, dataDirectory }))
  await assert.rejects(second.start(), (e) => e.code === 'PORT_IN_USE' && e.message.includes(String(first.port)))
  const third = createSimseServer(config({ dataDirectory }))
  await third.start()
  await third.stop()
})

test('a data directory has one server; without one each server has its own', async () => {
  const dataDirectory = directory()
  const first = await started({ dataDirectory })
  const second = createSimseServer(config({ dataDirectory }))
  await assert.rejects(second.start(), (e) => e.code === 'DATA_DIRECTORY_IN_USE' && e.message.includes(dataDirectory))
  await first.stop()
  await second.start()
  await second.stop()

  const workingDirectory = directory()
  const [one, two] = [await started({ workingDirectory }), await started({ workingDirectory })]
  const { body } = await http(one, 'POST', '/sessions', {})
  assert.equal((await http(two, 'GET', `/sessions/${body.sessionId}`)).status, 404)
  await one.stop()
  await one.start()
  assert.equal((await http(one, 'GET', `/sessions/${body.sessionId}`)).status, 200, 'sessions outlive the server')
})

test('the process ends by itself after stop(), stays while the server runs, and unref() lets it go', async () => {
  const head = `import { createSimseServer } from ${entry}
    const server = createSimseServer({ port: 0, acpServers: [], workingDirectory: ${JSON.stringify(directory())} })
    await server.start(); console.log('runs');`
  const stopped = await runModule(
    `${head} await fetch(server.url + '/health'); await server.stop(); console.log('stopped')`,
  )
  assert.deepEqual([stopped.code, stopped.said], [0, 'runs\nstopped\n'])
  const unref = await runModule(`${head} server.unref()`)
  assert.deepEqual([unref.code, unref.said], [0, 'runs\n'])
  const kept = await runModule(head, { limitMs: 3000 })
  assert.equal(kept.timedOut, true)
})

// ── configuration ───────────────────────────────────────────────────────────────────────────────

const agent = (name) => ({ name, command: 'true' })
/** A server among several that share a database. */
const node = (more) => ({ store: 'postgres://h/d', nodeUrl: 'http://10.0.0.7:4000', ...more })

const REFUSED = [
  ['nothing', () => undefined, ''],
  ['no working directory', () => ({ acpServers: [] }), 'workingDirectory'],
  ['a port out of range', () => config({ port: 70_000 }), 'port'],
  ['a port as text', () => config({ port: '3000' }), 'port'],
  ['an unknown field', () => config({ prot: 1 }), 'prot'],
  ['an agent without a command', () => config({ acpServers: [{ name: 'a' }] }), 'acpServers.0.command'],
  ['an agent of no profile', () => config({ acpServers: [{ profile: 'x' }] }), 'acpServers.0.profile'],
  ['an unknown field of an agent', () => config({ acpServers: [{ name: 'a', command: 'b', x: 1 }] }), 'acpServers.0.x'],
  [
    'an unknown policy',
    () => config({ toolPermissions: { defaultPolicy: 'x', rules: [] } }),
    'toolPermissions.defaultPolicy',
  ],
  ['an unknown hook', () => config({ hooks: [{ type: 'x', handler() {} }] }), 'hooks.0.type'],
  ['a hook without a handler', () => config({ hooks: [{ type: 'session.compacting' }] }), 'hooks.0.handler'],
  ['tool servers that are no list', () => config({ mcpServers: {} }), 'mcpServers'],
  ['a tool server without a program', () => config({ mcpServers: [{ name: 'a' }] }), 'mcpServers.0.command'],
  [
    'a tool server without an address',
    () => config({ mcpServers: [{ name: 'a', transport: 'http' }] }),
    'mcpServers.0.url',
  ],
  [
    'a program with an address',
    () => config({ mcpServers: [{ ...agent('a'), url: 'http://x/' }] }),
    'mcpServers.0.url',
  ],
  [
    'an address with a program',
    () => config({ mcpServers: [{ ...agent('a'), transport: 'http', url: 'http://x/' }] }),
    'mcpServers.0.command',
  ],
  [
    'a tool server of an unknown kind',
    () => config({ mcpServers: [{ ...agent('a'), transport: 'sse' }] }),
    'mcpServers.0.transport',
  ],
  ['a tool server at no URL', () => config({ mcpServers: [{ name: 'a', url: 'localhost' }] }), 'mcpServers.0.url'],
  ['an unknown field of a tool server', () => config({ mcpServers: [{ ...agent('a'), x: 1 }] }), 'mcpServers.0.x'],
  ['arguments that are no texts', () => config({ mcpServers: [{ ...agent('a'), args: [1] }] }), 'mcpServers.0.args.0'],
  ['an environment of numbers', () => config({ mcpServers: [{ ...agent('a'), env: { A: 1 } }] }), 'mcpServers.0.env.A'],
  [
    'a variable that cannot be',
    () => config({ mcpServers: [{ ...agent('a'), env: { 'A=B': '' } }] }),
    'mcpServers.0.env.A=B',
  ],
  [
    'a header that cannot be',
    () => config({ mcpServers: [{ name: 'a', url: 'http://x/', headers: { 'a b': 'x' } }] }),
    'mcpServers.0.headers.a b',
  ],
  [
    'a header of the protocol',
    () => config({ mcpServers: [{ name: 'a', url: 'http://x/', headers: { 'Mcp-Session-Id': 'x' } }] }),
    'mcpServers.0.headers.Mcp-Session-Id',
  ],
  ['a name with a slash', () => config({ mcpServers: [agent('a/b')] }), 'mcpServers.0.name'],
  ['a name that is a pattern', () => config({ mcpServers: [agent('*')] }), 'mcpServers.0.name'],
  ['two tool servers of one name', () => config({ mcpServers: [agent('a'), agent('a')] }), 'mcpServers.1.name'],
  ['memory that is no object', () => config({ memory: true }), 'memory'],
  [
    'memory that does not say whether',
    () => config({ memory: { similarityThreshold: 0.5, maxResults: 5 } }),
    'memory.enabled',
  ],
  ['an unknown part of memory', () => config({ memory: { enabled: true, size: 5 } }), 'memory.size'],
  ['no result at all', () => config({ memory: { enabled: true, maxResults: 0 } }), 'memory.maxResults'],
  ['too many results', () => config({ memory: { enabled: true, maxResults: 101 } }), 'memory.maxResults'],
  ['part of a result', () => config({ memory: { enabled: true, maxResults: 1.5 } }), 'memory.maxResults'],
  [
    'a threshold below 0',
    () => config({ memory: { enabled: true, similarityThreshold: -0.1 } }),
    'memory.similarityThreshold',
  ],
  [
    'an embedding model without a name',
    () => config({ memory: { enabled: true, embeddingAgent: '' } }),
    'memory.embeddingAgent',
  ],
  [
    'a threshold out of range',
    () => config({ memory: { enabled: false, similarityThreshold: 5, maxResults: 5 } }),
    'memory.similarityThreshold',
  ],
  ['prompts that are no texts', () => config({ providerPrompts: { prompts: { a: 1 } } }), 'providerPrompts.prompts.a'],
  [
    'patterns that are no list',
    () => config({ instructionDiscovery: { patterns: 'a' } }),
    'instructionDiscovery.patterns',
  ],
  ['a registry that is none', () => config({ toolRegistry: 5 }), 'toolRegistry'],
  ['a registry of another make', () => config({ toolRegistry: {} }), 'toolRegistry'],
  ['two agents of one name', () => config({ acpServers: [agent('a'), agent('b'), agent('a')] }), 'acpServers.2.name'],
  ['a model address that is no URL', () => config({ openai: { baseUrl: 'localhost' } }), 'openai.baseUrl'],
  ['a model address of another scheme', () => config({ openai: { baseUrl: 'ftp://x/v1' } }), 'openai.baseUrl'],
  ['a store of another kind', () => config({ store: 'mysql://u:p@h/d' }), 'store'],
  ['a node URL with a path', () => config(node({ nodeUrl: 'http://h:1/x' })), 'nodeUrl'],
  ['a node URL with a password', () => config(node({ nodeUrl: 'http://u:p@h:1' })), 'nodeUrl'],
  ['a node URL without a database', () => config({ nodeUrl: 'http://h:1' }), 'nodeUrl'],
  ['node labels without a database', () => config({ nodeLabels: ['a'] }), 'nodeLabels'],
  ['node labels without a node URL', () => config({ store: 'postgres://h/d', nodeLabels: ['a'] }), 'nodeLabels'],
  ['a node label with a blank', () => config(node({ nodeLabels: ['a', 'a b'] })), 'nodeLabels.1'],
  ['a node label twice', () => config(node({ nodeLabels: ['a', 'b', 'a'] })), 'nodeLabels'],
  ['too many node labels', () => config(node({ nodeLabels: Array.from({ length: 33 }, String) })), 'nodeLabels'],
  ['a token that no header can carry', () => config({ authToken: 'a\nb' }), 'authToken'],
  ['an unknown limit', () => config({ limits: { speed: 1 } }), 'limits.speed'],
  ['more connections than can be', () => config({ limits: { connections: 1_000_001 } }), 'limits.connections'],
  ['a wait that no timer runs', () => config({ limits: { heartbeatMs: 31_536_000_001 } }), 'limits.heartbeatMs'],
  ['a body that there is no room for', () => config({ limits: { bodyBytes: 268_435_457 } }), 'limits.bodyBytes'],
  ['no turns', () => config({ limits: { turns: 0 } }), 'limits.turns'],
  [
    'a wait for an agent that no timer runs',
    () => config({ acpServers: [{ ...agent('a'), timeoutMs: 31_536_000_001 }] }),
    'acpServers.0.timeoutMs',
  ],
  ['a grace that is too long', () => config({ limits: { interruptGraceMs: 24_001 } }), 'limits.interruptGraceMs'],
]
for (const [what, make, path] of REFUSED) {
  test(`refused: ${what}`, () => {
    assert.throws(
      () => createSimseServer(make()),
      (e) => e.code === 'CONFIG_VALIDATION' && e.statusCode === 400 && e.issues.some((issue) => issue.path === path),
    )
  })
}

test('every limit that is declared can be set', () => {
  const declared = readFileSync(new URL('../index.d.ts', import.meta.url), 'utf8')
  const [, members] = /interface SimseServerLimits \{([^}]*)\}/.exec(declared)
  const names = [...members.matchAll(/readonly (\w+)\?: number/g)].map(([, name]) => name)
  assert.ok(names.includes('turns') && names.includes('snapshotBytes'), names.join(' '))
  for (const name of names) createSimseServer(config({ limits: { [name]: 1 } }))
})

test('a server among several is fine', () => {
  createSimseServer(config(node({ nodeLabels: ['gpu', 'eu-1'] })))
  createSimseServer(config(node({ nodeUrl: 'https://[::1]/', nodeLabels: [] })))
})

test('what asks for nothing is fine', () => {
  createSimseServer(config({ mcpServers: [], memory: { enabled: false, similarityThreshold: 0.5, maxResults: 5 } }))
  assert.throws(() => createSimseServer(config({ toolRegistry: {} })), { code: 'CONFIG_VALIDATION' })
})

test('directories that are not there, and public addresses, are refused by start()', async () => {
  symlinkSync('loop', join(room, 'loop'))
  for (const [more, path] of [
    [{ workingDirectory: join(room, 'none') }, 'workingDirectory'],
    [{ host: '0.0.0.0' }, 'host'],
    [{ host: '0.0.0.0', allowPublic: true }, 'host'],
    [{ allowedPaths: [join(room, 'loop')] }, 'allowedPaths'],
    [{ allowedRoots: [join(room, 'none')] }, 'allowedRoots'],
    [{ model: 'openai/none' }, 'model'],
    [{ store: 'postgres://u:p@h:none/d' }, 'store'],
  ]) {
    const server = createSimseServer(config(more))
    await assert.rejects(server.start(), (e) => {
      // Members of the configuration are named, no flags, variables or names of the engine.
      assert.doesNotMatch(e.message + e.issues[0].message, /--|OPENAI_|SIMSE_|[a-z]_[a-z]/)
      return e.code === 'CONFIG_VALIDATION' && e.issues[0].path === path
    })
    assert.equal(server.port, 0)
  }
})

test('agents are listed with their availability, and none is started', async () => {
  const server = await started({
    acpServers: [
      { name: 'echo', command: 'echo' },
      { name: 'missing', command: join(room, 'no-such-program'), timeoutMs: 5, permissionPolicy: 'prompt' },
    ],
  })
  const { body } = await http(server, 'GET', '/agents')
  const byName = Object.fromEntries(body.agents.map((agent) => [agent.name, agent]))
  assert.ok(byName.echo && byName.missing)
  assert.equal(byName.missing.available, false)
  assert.equal(typeof byName.missing.reason, 'string')
})

test('authToken is asked for', async () => {
  const server = await started({ authToken: 'a-secret' })
  assert.equal((await http(server, 'GET', '/health')).status, 200)
  assert.equal((await http(server, 'GET', '/sessions')).status, 401)
  assert.equal((await http(server, 'GET', '/sessions', undefined, { authorization: 'Bearer a-secret' })).status, 200)
})

// ── the loop ────────────────────────────────────────────────────────────────────────────────────

test('a prompt is answered, as events', async () => {
  const { server, model } = await scripted([{ text: ['Hel', 'lo.'] }])
  const { events: seen, last } = await turn(server, 'Hi!')
  assert.deepEqual([last.type, last.payload.result], ['session.completed', 'Hello.'])
  assert.equal(
    seen
      .filter((event) => event.type === 'stream.delta')
      .map((event) => event.payload.text)
      .join(''),
    'Hello.',
  )
  assert.deepEqual(
    seen.map((event) => event.seq),
    seen.map((_, i) => i + 1),
  )
  assert.equal(model.requests[0].model, 'scripted')
})

test('JavaScript tools of a registry are called by the loop, several at once, with the session', async () => {
  const contexts = []
  let now = 0
  let peak = 0
  const both = deferred()
  const toolRegistry = registryOf({
    async meet({ who }, context) {
      contexts.push(context)
      now += 1
      peak = Math.max(peak, now)
      if (now === 2) both.resolve()
      await both.promise
      now -= 1
      return `met ${who}`
    },
  })
  const calls = ['a', 'b'].map((who) => ({ id: `call_${who}`, name: 'meet', arguments: { who } }))
  const { server, model } = await scripted([{ calls }, { text: 'Done.' }], {
    toolRegistry,
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
  })
  const listed = await http(server, 'GET', '/tools')
  assert.deepEqual(
    listed.body.tools.map((tool) => tool.name),
    ['meet'],
  )
  const { sessionId, last } = await turn(server, 'Meet them.')
  assert.equal(last.payload.result, 'Done.')
  assert.equal(peak, 2)
  assert.deepEqual(
    contexts.map((context) => [context.callId, context.sessionId]).sort(),
    calls.map((call) => [call.id, sessionId]),
  )
  const told = model.requests[1].messages.filter((message) => message.role === 'tool')
  assert.deepEqual(
    told.map((message) => message.content),
    ['met a', 'met b'],
  )
})

test('an image that a JavaScript tool gives is shown to the model', async () => {
  const data = 'iVBORw0KGgo='
  const parts = [{ type: 'image', mediaType: 'image/png', data }]
  const toolRegistry = registryOf({ look: async () => ({ output: 'a dot', parts, details: { seen: 1 } }) })
  const { server, model } = await scripted([toolCall('look', {}), { text: 'A dot.' }], {
    toolRegistry,
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
  })
  const { last, events: seen } = await turn(server, 'look')
  assert.equal(last.payload.result, 'A dot.')
  const end = seen.find((event) => event.type === 'tool.call.end').payload
  assert.deepEqual([end.output, end.parts, end.details], ['a dot', parts, { seen: 1 }])
  const shown = model.requests[1].messages.at(-1)
  assert.deepEqual(shown.content.at(-1), { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } })
})

test('a call is explained by the names that models use, and what could not run is said', async () => {
  const server = await started()
  const explain = async (body) => (await http(server, 'POST', '/permissions/explain', body)).body
  const read = await explain({ id: '1', name: 'Read', arguments: { file: 'a.txt' } })
  assert.deepEqual([read.decision, read.problem], ['allow', undefined])
  assert.match((await explain({ tool: 'fs_read', arguments: { path: '/etc/passwd' } })).problem, /leads out/)
  assert.equal(
    (await explain({ tool: 'bash', arguments: { command: 'ls', why: 'x' } })).problem.startsWith(
      'argument "why" is unknown',
    ),
    true,
  )
  const both = await http(server, 'POST', '/permissions/explain', { tool: 'bash', name: 'bash' })
  assert.equal(both.status, 400)
})

test('a model that gives the same reply again and again is told, and at last stopped', async () => {
  const reply = { calls: ['a', 'b'].map((id) => ({ id, name: 'note', arguments: { id } })) }
  let ran = 0
  const { server, model } = await scripted(Array(9).fill(reply), {
    toolRegistry: registryOf({ note: async () => `${++ran}` }),
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
  })
  const { last } = await turn(server, 'go')
  assert.equal(last.type, 'session.error')
  assert.match(last.payload.error.message, /same reply 8 times in a row/)
  assert.deepEqual([ran, model.requests.length], [6, 8])
  assert.match(model.requests[4].messages.at(-1).content, /this same reply 4 times in a row/)
})

test('an abort reaches a JavaScript handler', async () => {
  const began = deferred()
  const stopped = deferred()
  const toolRegistry = registryOf({
    wait: (_args, { signal }) =>
      new Promise((_, reject) => {
        signal.addEventListener('abort', () => {
          stopped.resolve()
          reject(new Error('stopped'))
        })
        began.resolve()
      }),
  })
  const { server } = await scripted([toolCall('wait', {})], {
    toolRegistry,
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
  })
  const { body } = await http(server, 'POST', '/sessions', {})
  await http(server, 'POST', `/sessions/${body.sessionId}/prompt`, { prompt: 'Wait.' })
  await began.promise
  const aborted = await http(server, 'POST', `/sessions/${body.sessionId}/abort`, { reason: 'enough' })
  assert.equal(aborted.status, 200)
  await stopped.promise
  for await (const event of events(server, body.sessionId)) {
    if (event.type !== 'abort') continue
    assert.equal(event.payload.reason, 'enough')
    break
  }
})

test('without a registry sessions have the host tools, inside their working directory', async () => {
  const workingDirectory = directory()
  writeFileSync(join(workingDirectory, 'a.txt'), 'old\n')
  const edit = toolCall('fs_edit', { path: 'a.txt', old_string: 'old', new_string: 'new' })
  const leave = toolCall('fs_write', { path: '../escaped.txt', content: 'x' }, 'call_2')
  const { server } = await scripted([edit, leave, { text: 'Done.' }], {
    workingDirectory,
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
  })
  const { events: seen } = await turn(server, 'Edit.')
  const ends = seen.filter((event) => event.type === 'tool.call.end').map((event) => event.payload)
  assert.deepEqual(
    ends.map((end) => [end.name, end.isError]),
    [
      ['fs_edit', false],
      ['fs_write', true],
    ],
  )
  assert.match(ends[1].output, /escapes the working directory/)
  assert.equal(readFileSync(join(workingDirectory, 'a.txt'), 'utf8'), 'new\n')
})

test('hooks change, block and check calls and prompts', async () => {
  const toolRegistry = registryOf({ echo: async ({ text }) => text })
  const calls = [
    { id: 'c1', name: 'echo', arguments: { text: 'plain' } },
    { id: 'c2', name: 'echo', arguments: { text: 'forbidden' } },
  ]
  const hooks = [
    {
      type: 'tool.execute.before',
      handler: ({ request }) =>
        request.arguments.text === 'forbidden' ? { blocked: true, reason: 'house rules' } : undefined,
    },
    { type: 'tool.execute.after', handler: ({ result }) => ({ ...result, output: `<${result.output}>` }) },
    { type: 'tool.result.validate', handler: ({ request }) => [`checked ${request.id}`] },
    { type: 'prompt.system.transform', handler: ({ prompt }) => `${prompt}\nFROM A HOOK` },
    {
      type: 'prompt.messages.transform',
      handler: ({ messages }) =>
        messages.map((message) =>
          message.role === 'user' ? { ...message, content: message.content.toUpperCase() } : message,
        ),
    },
  ]
  const { server, model } = await scripted([{ calls }, { text: 'Done.' }], {
    toolRegistry,
    hooks,
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
  })
  const { last } = await turn(server, 'hello')
  assert.equal(last.type, 'session.completed')
  const said = model.requests[1].messages
  const system = said.find((message) => message.role === 'system').content
  assert.match(system, /FROM A HOOK/)
  assert.ok(JSON.stringify(said.find((message) => message.role === 'user')).includes('HELLO'))
  const told = JSON.stringify(said)
  assert.ok(told.includes('<plain>'))
  assert.ok(told.includes('house rules'))
  assert.ok(told.includes('checked c1') || told.includes('CHECKED C1'))
})

test('onPermissionRequest answers an ask, with events; a client may be faster', async () => {
  const asked = []
  const toolRegistry = registryOf({ act: async () => 'acted' })
  const never = new Promise(() => {})
  const { server } = await scripted(
    [
      toolCall('act', { n: 1 }),
      toolCall('act', { n: 2 }, 'call_2'),
      toolCall('act', { n: 3 }, 'call_3'),
      { text: 'Done.' },
    ],
    {
      toolRegistry,
      toolPermissions: {
        defaultPolicy: 'ask',
        rules: [],
        onPermissionRequest: async (request) => {
          asked.push(request)
          return request.arguments.n === 3 ? never : request.arguments.n === 1
        },
      },
    },
  )
  const onEvent = async (event, sessionId) => {
    if (event.type !== 'permission.request' || event.payload.callId !== 'call_3') return
    const { requestId } = event.payload
    const answered = await http(server, 'POST', `/sessions/${sessionId}/feedback`, { requestId, decision: 'allow' })
    assert.equal(answered.status, 200)
  }
  const { events: seen } = await turn(server, 'Act.', { onEvent })
  assert.deepEqual(
    asked.map((request) => [request.id, request.name, request.arguments.n]),
    [
      ['call_1', 'act', 1],
      ['call_2', 'act', 2],
      ['call_3', 'act', 3],
    ],
  )
  const answers = seen.filter((event) => event.type === 'permission.response').map((event) => event.payload)
  assert.deepEqual(
    answers.map(({ callId, allowed, by }) => [callId, allowed, by]),
    [
      ['call_1', true, 'program'],
      ['call_2', false, 'program'],
      ['call_3', true, 'client'],
    ],
  )
  const ends = seen.filter((event) => event.type === 'tool.call.end').map((event) => event.payload.isError)
  assert.deepEqual(ends, [false, true, false])
})

test('onPermissionRequest is shown what the call would do', async () => {
  const asked = []
  const workingDirectory = directory()
  writeFileSync(join(workingDirectory, 'a.txt'), 'one\n')
  const { server } = await scripted([toolCall('fs_write', { path: 'a.txt', content: 'two\n' }), { text: 'Done.' }], {
    workingDirectory,
    toolPermissions: {
      defaultPolicy: 'ask',
      rules: [],
      onPermissionRequest: async (request) => asked.push(request) > 0,
    },
  })
  const { events: seen } = await turn(server, 'Write.')
  const put = seen.find((event) => event.type === 'permission.request').payload
  assert.equal(asked.length, 1)
  assert.deepEqual(asked[0].preview, put.preview)
  assert.match(asked[0].preview.diff, /-one\n\+two\n/)
  assert.equal(readFileSync(join(workingDirectory, 'a.txt'), 'utf8'), 'two\n')
})

test('the resolver and the hooks of a registry count in a server too', async () => {
  const hooks = createHookSystem()
  hooks.register('tool.execute.after', ({ result }) => ({ ...result, output: `${result.output}!` }))
  const permissionResolver = createToolPermissionResolver({
    defaultPolicy: 'allow',
    rules: [{ tool: 'bad', policy: 'deny' }],
  })
  const toolRegistry = createToolRegistry({ hooks, permissionResolver })
  let ran = 0
  toolRegistry.register(define('good'), async () => 'good')
  toolRegistry.register(define('bad'), async () => {
    ran += 1
    return 'bad'
  })
  const { server } = await scripted([toolCall('good', {}), toolCall('bad', {}, 'call_2'), { text: 'Done.' }], {
    toolRegistry,
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
  })
  const { events: seen } = await turn(server, 'Go.')
  const outputs = seen.filter((event) => event.type === 'tool.call.end').map((event) => event.payload.output)
  assert.match(outputs[0], /^good!/)
  assert.match(outputs[1], /Permission denied for tool: "bad"/)
  assert.equal(ran, 0)
})

test('prompts by model, and instruction files, reach the model', async () => {
  const workingDirectory = directory()
  writeFileSync(join(workingDirectory, 'HOUSE.md'), 'Knock first.')
  writeFileSync(join(workingDirectory, 'AGENTS.md'), 'Never read.')
  const { server, model } = await scripted([{ text: 'Yes.' }], {
    workingDirectory,
    providerPrompts: { prompts: { 'other/*': 'Not this.', 'openai/*': 'Be brief.' }, defaultPrompt: 'Nor this.' },
    instructionDiscovery: { patterns: ['HOUSE.md'] },
  })
  await turn(server, 'Hi!')
  const system = model.requests[0].messages.find((message) => message.role === 'system').content
  assert.match(system, /Be brief\./)
  assert.match(system, /Knock first\./)
  assert.doesNotMatch(system, /Not this|Nor this|Never read/)
})

test('a model that refuses ends the turn with its reason', async () => {
  const { server } = await scripted([{ status: 401, body: { error: { message: 'bad key' } } }])
  const { last } = await turn(server, 'Hi!')
  assert.equal(last.type, 'session.error')
  assert.match(JSON.stringify(last.payload.error), /401|bad key/)
})

test('stop() ends a turn under way and leaves nothing that keeps the process', async () => {
  const { server } = await scripted([{ hang: true }])
  const { body } = await http(server, 'POST', '/sessions', {})
  await http(server, 'POST', `/sessions/${body.sessionId}/prompt`, { prompt: 'Hi!' })
  for await (const event of events(server, body.sessionId)) if (event.type === 'stream.delta') break
  await server.stop()
  await server.start()
  const { body: history } = await http(server, 'GET', `/sessions/${body.sessionId}`)
  assert.notEqual(history.status, 'active')
})
