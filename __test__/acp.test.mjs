/** ACP agents from Node: `acpServers` of `createSimseServer` (typescript-api.md §1). */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createSimseServer, createToolRegistry } from '../js/index.js'
import { http } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-acp-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const open = []

after(async () => {
  for (const each of open) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

const script = new URL('./support/agent.mjs', import.meta.url).pathname
const agent = (more = {}) => ({ name: 'scripted', command: process.execPath, args: [script], ...more })

/** A started server with these agents. */
async function started(acpServers, more = {}) {
  const server = createSimseServer({
    port: 0,
    acpServers,
    workingDirectory: room,
    limits: { shutdownGraceMs: 0 },
    ...more,
  })
  open.push(server)
  await server.start()
  return server
}

/** One prompt in a new session, waited for. */
async function asked(server, prompt, session = {}) {
  const created = await http(server, 'POST', '/sessions', session)
  assert.equal(created.status, 201, JSON.stringify(created.body))
  const turn = await http(server, 'POST', `/sessions/${created.body.sessionId}/prompt?wait=true`, { prompt })
  return { session: created.body, turn: turn.body }
}

const lives = (pid) => {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

test('the first agent answers sessions when there is no other model, and ends with the server', async () => {
  mkdirSync(join(room, 'own'))
  const entry = agent({ args: [script, '--outlive'], cwd: 'own', env: { AGENT_SECRET: 's3' }, timeoutMs: 20_000 })
  const server = await started([entry, agent({ name: 'second' })])
  const { session, turn } = await asked(server, 'facts')
  assert.deepEqual([session.agent, session.model, turn.status], ['scripted', 'acp/scripted', 'completed'])
  const { pid, ...facts } = JSON.parse(turn.result)
  assert.deepEqual(facts, { cwd: room, own: join(room, 'own'), secret: 's3' })
  assert.ok(lives(pid))
  const second = await asked(server, 'facts', { agent: 'second' })
  assert.notEqual(JSON.parse(second.turn.result).pid, pid)
  await server.stop()
  assert.ok(!lives(pid))
})

test('another model stays the default, and the agent is there by its name', async () => {
  const model = await scriptedModel([{ text: ['Own.'] }])
  open.push(model)
  const server = await started([agent()], { model: 'openai/scripted', openai: { baseUrl: model.baseUrl } })
  const own = await asked(server, 'hello')
  assert.deepEqual([own.session.agent, own.turn.result], ['simse', 'Own.'])
  const foreign = await asked(server, 'facts', { agent: 'scripted' })
  assert.equal(foreign.session.model, 'acp/scripted')
  assert.equal(foreign.turn.status, 'completed')
})

test('an agent asks through onPermissionRequest, and rules come first', async () => {
  const questions = []
  const toolPermissions = {
    defaultPolicy: 'ask',
    rules: [{ tool: 'bash', pattern: 'rm *', policy: 'deny' }],
    onPermissionRequest: async (request) => questions.push(request) > 0,
  }
  const server = await started([agent()], { toolPermissions })
  assert.equal((await asked(server, 'run make')).turn.result, 'completed')
  assert.equal((await asked(server, 'run rm -rf x')).turn.result, 'failed')
  assert.deepEqual(
    questions.map(({ name, arguments: args }) => [name, args.command]),
    [['acp:scripted/execute', 'make']],
  )
})

test('permissionPolicy decides without anybody', async () => {
  const server = await started([
    agent({ name: 'yes', permissionPolicy: 'auto-approve' }),
    agent({ name: 'no', permissionPolicy: 'deny' }),
  ])
  assert.equal((await asked(server, 'run make', { agent: 'yes' })).turn.result, 'completed')
  assert.equal((await asked(server, 'run make', { agent: 'no' })).turn.result, 'failed')
})

test('an agent that is missing, or none, starts nothing and is told', async () => {
  const missing = join(room, 'no-such-agent')
  const server = await started([
    { name: 'echo', command: 'echo' },
    { name: 'gone', command: missing },
  ])
  const { turn } = await asked(server, 'hello')
  assert.equal(turn.status, 'failed')
  assert.match(turn.error.message, /the agent `echo`: its program ended/)
  const refused = await http(server, 'POST', '/sessions', { agent: 'gone' })
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'UPSTREAM_UNAVAILABLE'])
  assert.ok(refused.body.error.message.includes(missing))
})

for (const [what, entry, path] of [
  ['a name that no rule could name', { name: 'a/b', command: 'x' }, 'acpServers.0.name'],
  ['our own name', { name: 'simse', command: 'x' }, 'acpServers.0.name'],
  ['a time-out of nothing', agent({ timeoutMs: 0 }), 'acpServers.0.timeoutMs'],
  ['an unknown policy', agent({ permissionPolicy: 'ask' }), 'acpServers.0.permissionPolicy'],
  ['an environment that is none', agent({ env: { 'A=': 'x' } }), 'acpServers.0.env.A='],
  ['arguments that are no list', agent({ args: 'x' }), 'acpServers.0.args'],
]) {
  test(`${what} is refused by its field`, () => {
    assert.throws(
      () => createSimseServer({ port: 0, acpServers: [entry], workingDirectory: room }),
      (error) => error.code === 'CONFIG_VALIDATION' && error.issues[0].path === path,
    )
  })
}

test('an agent calls the tools of the program that runs the server', async () => {
  const toolRegistry = createToolRegistry({})
  toolRegistry.register(
    { name: 'notify', description: 'Tells somebody.', parameters: { text: { type: 'string', required: true } } },
    async ({ text }) => `told ${text}`,
  )
  const toolPermissions = { defaultPolicy: 'allow' }
  const server = await started([agent(), agent({ name: 'none', tools: 'none' })], { toolRegistry, toolPermissions })
  const { session, turn } = await asked(server, 'tool notify {"text":"hello"}')
  assert.equal(turn.status, 'completed', JSON.stringify(turn))
  const { tools, said, isError } = JSON.parse(turn.result)
  assert.deepEqual([tools.includes('notify'), said, isError], [true, 'told hello', false])
  const { body } = await http(server, 'GET', `/sessions/${session.sessionId}/history?events=true`)
  const ends = body.items.filter(({ type }) => type === 'tool.call.end')
  assert.deepEqual([ends[0].payload.name, ends[0].payload.output], ['notify', 'told hello'])
  assert.throws(() => createSimseServer({ acpServers: [agent({ tools: 'some' })], workingDirectory: room }), /tools/)
  assert.throws(
    () => createSimseServer({ acpServers: [agent({ mcpServers: 'x' })], workingDirectory: room }),
    /mcpServers/,
  )
})
