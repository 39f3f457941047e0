/** Agents, skills and commands of markdown files, in a server of the package. */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, test } from 'node:test'
import { createSimseServer } from '../js/index.js'
import { http } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-agents-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const open = new Set()

after(async () => {
  for (const each of open) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

/** Writes a file, its folders made. */
function write(path, text) {
  mkdirSync(dirname(join(room, path)), { recursive: true })
  writeFileSync(join(room, path), text)
}

test('folders of the configuration: agents, skills and commands are listed, chosen and filled in', async () => {
  write('agents/reviewer.md', '---\nname: reviewer\ndescription: Reviews\ntools: [Read]\n---\nYou review.\n')
  write('agents/bad.md', '---\nname: bad\nmax_iters: 0\n---\n')
  write('skills/pdf/SKILL.md', '---\ndescription: Reads PDFs\n---\nRead $1.\n')
  write('commands/fix.md', 'Fix $ARGUMENTS.\n')
  mkdirSync(join(room, 'work'))
  const model = await scriptedModel([{ text: ['Fixed.'] }])
  open.add(model)
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    workingDirectory: join(room, 'work'),
    agentsDirs: ['../agents'],
    skillsDirs: ['../skills'],
    commandsDirs: ['../commands'],
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    limits: { shutdownGraceMs: 0 },
  })
  open.add(server)
  await server.start()
  const { body } = await http(server, 'GET', '/agents')
  const byName = Object.fromEntries(body.agents.map((agent) => [agent.name, agent]))
  assert.deepEqual(
    [byName.reviewer.source, byName.reviewer.tools, byName.plan.source],
    ['settings', ['Read'], 'built-in'],
  )
  assert.equal(body.faults.length, 1)
  assert.match(body.faults[0].reason, /`max_iters`: expected a whole number from 1 to 1000, got 0/)
  assert.deepEqual(
    (await http(server, 'GET', '/skills')).body.skills.map(({ name }) => name),
    ['pdf'],
  )
  assert.deepEqual(
    (await http(server, 'GET', '/commands')).body.commands.map(({ name, kind }) => [name, kind]),
    [
      ['fix', 'command'],
      ['pdf', 'skill'],
    ],
  )
  const session = await http(server, 'POST', '/sessions', { agent: 'reviewer' })
  assert.equal(session.body.agent, 'reviewer')
  const path = `/sessions/${session.body.sessionId}/prompt?wait=true`
  const { body: done } = await http(server, 'POST', path, { prompt: '/fix the bug' })
  assert.deepEqual([done.status, done.prompt], ['completed', 'Fix the bug.'])
  const refused = await http(server, 'POST', '/sessions', { agent: 'bad' })
  assert.equal(refused.status, 400)
})

test('what is no list of folders is refused by name', () => {
  for (const member of ['agentsDirs', 'skillsDirs', 'commandsDirs'])
    assert.throws(
      () => createSimseServer({ port: 0, acpServers: [], workingDirectory: room, [member]: 'x' }),
      (error) => error.code === 'CONFIG_VALIDATION' && error.message.includes(member),
    )
})
