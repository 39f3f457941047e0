/**
 * `simse serve --stdio`: its stdout carries the protocol and nothing else, whatever runs beneath it: commands, terminals, background
 * processes, hooks of a repository, tool servers and agents that print, and a library that writes to file descriptor 1.
 */

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readlinkSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { scriptedModel } from './support/model.mjs'
import { servedOverPipe } from './support/served.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-stdio-')))
const open = []

after(async () => {
  for (const each of open) await (each.kill?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

/** What a line of the protocol may be. */
const TYPES = new Set([
  'server_ready',
  'server_shutdown',
  'command_accepted',
  'command_started',
  'command_finished',
  'response',
  'event',
  'subscription_ended',
])

/** A line that would be believed, if it came through. */
const forged = (by) => JSON.stringify({ type: 'response', id: 'forged', command: by, success: true })

/** A shell that prints on everything that it has: whole lines, half ones, and what looks like the protocol. */
const printing = (by) => `
echo 'out of ${by}'; echo 'err of ${by}' >&2; echo '${forged(by)}'; echo '${forged(by)}' >&2
echo 'again of ${by}' > /dev/stdout; echo 'once more of ${by}' > /proc/self/fd/1
for n in 3 4 5 6 7 8 9; do (echo '${forged(by)}' >&$n) 2>/dev/null; done
printf 'half a line of ${by}'; printf 'half a line of ${by}' >&2
`

function git(directory, ...args) {
  const { status, stderr } = spawnSync('git', ['-C', directory, ...args], { encoding: 'utf8' })
  assert.equal(status, 0, stderr)
}

/** A repository with something to commit, whose hooks print. */
function repository(work) {
  mkdirSync(work, { recursive: true })
  git(work, 'init', '-q')
  git(work, 'config', 'user.name', 'Somebody')
  git(work, 'config', 'user.email', 'somebody@example.com')
  writeFileSync(join(work, 'file'), 'text\n')
  git(work, 'add', 'file')
  for (const hook of ['pre-commit', 'post-commit']) {
    const path = join(work, '.git', 'hooks', hook)
    mkdirSync(join(work, '.git', 'hooks'), { recursive: true })
    writeFileSync(path, `#!/bin/sh\n${printing(hook)}`)
    chmodSync(path, 0o755)
  }
}

/** A configuration file with a tool server and an agent that print beside what they say. */
function configuration(home) {
  const here = (path) => fileURLToPath(new URL(path, import.meta.url))
  const programs = [
    ['mcp_servers', 'noisy', [here('../tests/it/support/mcp_server.mjs'), 'garbage', join(home, 'mcp.log')]],
    ['acp_servers', 'scripted', [here('./support/agent.mjs')]],
  ]
  const entries = programs.map(
    ([table, name, args]) =>
      `[[${table}]]\nname = "${name}"\ncommand = ${JSON.stringify(process.execPath)}\nargs = ${JSON.stringify(args)}\n`,
  )
  const path = join(home, 'config.toml')
  writeFileSync(path, entries.join('\n'))
  return path
}

/** Sends a prompt and takes what comes until its turn has ended; every question is answered with yes. */
async function turn(server, sessionId, id, prompt) {
  server.send({ id, type: 'prompt', sessionId, prompt })
  const answered = new Set()
  const { data } = await server.seen((line) => line.type === 'response' && line.id === id)
  const ends = ['session.completed', 'session.error', 'abort']
  const { event } = await server.seen(({ type, event }) => {
    if (type !== 'event' || event.sessionId !== sessionId) return false
    const { requestId } = event.payload
    if (event.type === 'permission.request' && !answered.has(requestId)) {
      answered.add(requestId)
      server.send({
        id: `yes-${requestId}`,
        type: 'feedback',
        sessionId: event.sessionId,
        requestId,
        decision: 'allow',
      })
    }
    return ends.includes(event.type) && event.turnId === data.turnId
  })
  return event
}

test('nothing but the protocol is in stdout, whoever prints', { timeout: 120_000 }, async () => {
  const home = join(room, 'home')
  const work = join(home, 'work')
  repository(work)
  const call = (name, args) => ({ calls: [{ id: `call_${name}`, name, arguments: args }] })
  // Nobody may read any more what it prints then.
  const late = `(trap '' PIPE; while [ ! -e go ]; do sleep 0.02; done; ${printing('late')} touch gone) &\n`
  const model = await scriptedModel([
    call('bash', { command: late + printing('bash') }),
    call('exec_command', { cmd: printing('terminal'), tty: true, yield_time_ms: 10_000 }),
    call('git_commit', { message: 'a change' }),
    call('mcp__noisy__echo', { text: 'from the tool server' }),
    { text: 'Done.' },
  ])
  open.push(model)
  const args = ['--config', configuration(home), '--log-level', 'debug', '--log-format', 'json']
  const server = servedOverPipe({ home, model, args })
  open.push(server)

  await server.seen(({ type }) => type === 'server_ready')
  // What a library in the program prints goes to file descriptor 1, which leads to stderr.
  if (process.platform === 'linux') {
    const [one, two] = [1, 2].map((n) => readlinkSync(`/proc/${server.pid}/fd/${n}`))
    assert.equal(one, two)
    appendFileSync(`/proc/${server.pid}/fd/1`, `out of a library\n${forged('library')}\n`)
  }
  const sent = []
  for (const [sessionId, more] of [
    ['own', {}],
    ['foreign', { agent: 'scripted' }],
  ]) {
    server.send({ id: `make-${sessionId}`, type: 'create_session', sessionId, ...more })
    const made = await server.seen(({ type, id }) => type === 'response' && id === `make-${sessionId}`)
    assert.ok(made.success, JSON.stringify(made))
    server.send({ id: `see-${sessionId}`, type: 'subscribe', sessionId, after: 0 })
    const { type, payload } = await turn(server, sessionId, `do-${sessionId}`, 'Go.')
    assert.equal(type, 'session.completed', JSON.stringify(payload))
    sent.push(`make-${sessionId}`, `see-${sessionId}`, `do-${sessionId}`)
  }
  // The background process prints now, when no call runs any more.
  writeFileSync(join(work, 'go'), '')
  while (!existsSync(join(work, 'gone'))) await new Promise((soon) => setTimeout(soon, 10))

  const { code, out, err } = await server.end()
  assert.equal(code, 0, err)
  assert.ok(out.endsWith('\n'))
  const messages = out
    .slice(0, -1)
    .split('\n')
    .map((line) => JSON.parse(line))
  for (const message of messages) assert.ok(TYPES.has(message.type), JSON.stringify(message))
  const responses = messages.filter(({ type }) => type === 'response').map(({ id }) => id)
  assert.deepEqual(new Set(responses).size, responses.length)
  for (const id of sent) assert.ok(responses.includes(id), id)
  assert.ok(!responses.includes('forged'))
  assert.equal(messages[0].type, 'server_ready')
  assert.equal(messages.filter(({ type }) => type === 'server_shutdown').length, 1)

  // They did print: it is in the results, where it belongs, and the rest in stderr.
  const ends = messages.filter(({ event }) => event?.type === 'tool.call.end').map(({ event }) => event.payload)
  const outputs = Object.fromEntries(ends.map(({ name, output }) => [name, output]))
  for (const [name, texts] of [
    ['bash', ['out of bash', 'err of bash', forged('bash'), 'once more of bash']],
    ['exec_command', ['out of terminal', 'err of terminal', forged('terminal')]],
    ['git_commit', ['out of pre-commit', 'err of post-commit']],
    ['mcp:noisy/echo', ['echo: from the tool server']],
  ])
    for (const text of texts) assert.ok(outputs[name]?.includes(text), `${name}: ${text}: ${outputs[name]}`)
  if (process.platform === 'linux') assert.ok(err.includes('out of a library'))
  assert.ok(err.includes('"level"'), 'the log is in stderr')
})
