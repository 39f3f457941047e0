/** Hooks around sessions and turns of a server (typescript-api.md §6), and a real linter whose findings the model gets. */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createHookSystem, createSimseServer, createToolRegistry, registerFilesystemTools } from '../js/index.js'
import { http, turn } from './support/http.mjs'
import { scriptedModel } from './support/model.mjs'

const run = promisify(execFile)
const biome = fileURLToPath(new URL('../node_modules/.bin/biome', import.meta.url))
const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-hooks-')))
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

/** A server on a scripted model. */
async function scripted(script, more = {}) {
  const model = await scriptedModel(script)
  open.add(model)
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    workingDirectory: directory(),
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    limits: { shutdownGraceMs: 0 },
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
    ...more,
  })
  open.add(server)
  await server.start()
  return { server, model }
}

const textOf = ({ content }) => (typeof content === 'string' ? content : content.map(({ text }) => text).join(' | '))
const usersOf = ({ messages }) => messages.filter(({ role }) => role === 'user').map(textOf)

test('a session starts, its prompt is changed or refused, its turn goes on, it ends, and all of it is told', async () => {
  const heard = []
  const note = (type, answer) => ({
    type,
    handler: ({ ask, notify, show, ...rest }) => {
      heard.push([type, rest])
      return answer?.(rest)
    },
  })
  const { server, model } = await scripted([{ text: 'lazy' }, { text: 'done' }], {
    hooks: [
      note('session.start', () => ['the house rules']),
      note('session.end'),
      note('prompt.submit', ({ prompt }) =>
        prompt === 'secret'
          ? { blocked: true, reason: 'that is secret' }
          : { prompt: `${prompt}!`, context: ['today'] },
      ),
      note('turn.stop', ({ text }) => (text === 'lazy' ? ['work'] : undefined)),
      note('notification'),
    ],
  })
  const { last, events: seen, sessionId } = await turn(server, 'go')
  assert.deepEqual([last.type, last.payload.result], ['session.completed', 'done'])
  assert.deepEqual(seen.find(({ type }) => type === 'turn.continued').payload, { texts: ['work'] })
  const [first, second] = model.requests.map(usersOf)
  assert.deepEqual(first, ['go! | [Added by a hook]\nthe house rules | [Added by a hook]\ntoday'])
  assert.deepEqual(second, [...first, 'work'])
  const refused = await http(server, 'POST', `/sessions/${sessionId}/prompt`, { prompt: 'secret' })
  assert.deepEqual([refused.status, refused.body.error.code], [403, 'FORBIDDEN'])
  assert.equal(refused.body.error.message, 'the prompt was blocked by a hook: that is secret')
  const { workingDirectory } = (await http(server, 'GET', `/sessions/${sessionId}`)).body
  await server.stop()
  const of = (wanted) => heard.filter(([type]) => type === wanted).map(([, context]) => context)
  assert.deepEqual(of('session.start'), [{ sessionId, workingDirectory, source: 'new' }])
  assert.deepEqual(of('session.end'), [{ sessionId, workingDirectory, reason: 'shutdown' }])
  assert.deepEqual(of('prompt.submit')[0], { sessionId, workingDirectory, prompt: 'go', mode: 'queue' })
  const { turnId } = last
  const stop = { sessionId, turnId, workingDirectory, ended: 'completed' }
  assert.deepEqual(of('turn.stop'), [
    { ...stop, text: 'lazy', rounds: 1, continued: 0 },
    { ...stop, text: 'done', rounds: 2, continued: 1 },
  ])
  const news = { sessionId, turnId, workingDirectory, kind: 'turn_ended', status: 'completed', result: 'done' }
  assert.deepEqual(
    of('notification').map(({ stopReason, ...rest }) => rest),
    [news],
  )
})

test('a summary that a client wants is held back, or looks at what a hook says', async () => {
  let held = true
  const hooks = [
    {
      type: 'session.compact.before',
      handler: ({ focus }) => (held ? { blocked: true, reason: 'not yet' } : { focus: `${focus} and the docs` }),
    },
  ]
  const summary = '## Goal\nall\n\n## State\nhalf'
  const { server, model } = await scripted([{ text: 'said' }, { text: summary }], { hooks })
  const { sessionId } = await turn(server, 'go')
  const compact = async () => {
    const { body } = await http(server, 'POST', `/sessions/${sessionId}/compact`, { focus: 'the tests' })
    for (;;) {
      const { body: record } = await http(server, 'GET', `/sessions/${sessionId}/turns/${body.turnId}`)
      if (record.endedAt !== undefined) return record
      await new Promise((soon) => setTimeout(soon, 20))
    }
  }
  const refused = await compact()
  assert.deepEqual([refused.status, refused.error.message], ['failed', 'a hook holds it back: not yet'])
  held = false
  assert.equal((await compact()).status, 'completed')
  assert.ok(JSON.stringify(model.requests.at(-1)).includes('the tests and the docs'))
})

test('a handler has its time', async () => {
  const never = () => new Promise(() => {})
  const hooks = createHookSystem()
  hooks.register('prompt.submit', never, { timeoutMs: 5 })
  const blocked = await hooks.run('prompt.submit', { prompt: 'p' })
  assert.deepEqual(blocked, { blocked: true, reason: 'a prompt.submit hook failed: it did not answer within 5 ms' })
  assert.throws(() => hooks.register('turn.stop', never, { timeoutMs: -1 }), { code: 'CONFIG_VALIDATION' })
  const { server } = await scripted([{ text: 'never' }], {
    hooks: [{ type: 'prompt.submit', handler: never, timeoutMs: 5 }],
  })
  const { body } = await http(server, 'POST', '/sessions', {})
  const refused = await http(server, 'POST', `/sessions/${body.sessionId}/prompt`, { prompt: 'go' })
  assert.equal(refused.status, 403)
})

// ── A real linter ───────────────────────────────────────────────────────────────────────────────

const BAD = 'export function same(a, b) {\n  var unused = 1\n  return a == b\n}\n'
const GOOD = 'export function same(a, b) {\n  return a === b\n}\n'
const RULES = JSON.stringify({ root: true, linter: { rules: { style: {}, suspicious: { noVar: 'error' } } } })
const EDITS = ['fs_write', 'fs_edit', 'fs_multi_edit']

/** A directory with rules of its own. */
function project() {
  const path = directory()
  writeFileSync(join(path, 'biome.json'), RULES)
  return path
}

const written = (content, id) => ({ calls: [{ id, name: 'fs_write', arguments: { path: 'same.js', content } }] })

/** The model writes something bad, is told what the linter says, and writes it anew. */
const SCRIPT = [written(BAD, 'c1'), written(GOOD, 'c2'), { text: 'Done.' }]

/** What the model was told behind the results of a round, beside results. */
const toldLast = (request) => usersOf(request).slice(1).join('\n')

function assertLinted(model, workingDirectory) {
  const [, second, third] = model.requests
  assert.match(toldLast(second), /noDoubleEquals/)
  assert.match(toldLast(second), /noVar/)
  assert.equal(usersOf(second).length, 2, 'the prompt, and what the linter says')
  assert.equal(usersOf(third).length, 2, 'nothing is found in what was written anew')
  assert.equal(readFileSync(join(workingDirectory, 'same.js'), 'utf8'), GOOD)
}

test('a linter in a hook: its findings are in the next request, and in the log', async () => {
  const workingDirectory = project()
  const toolRegistry = createToolRegistry({
    hooks: (() => {
      const hooks = createHookSystem()
      hooks.register('tool.result.validate', async ({ request, result }) => {
        if (!EDITS.includes(request.name) || result.isError) return []
        const lint = run(biome, ['lint', '--colors=off', request.arguments.path], { cwd: workingDirectory })
        return lint.then(
          () => [],
          ({ stdout, stderr }) => [`biome finds in ${request.arguments.path}:\n${stdout}${stderr}`],
        )
      })
      return hooks
    })(),
  })
  registerFilesystemTools(toolRegistry, { workingDirectory })
  const { server, model } = await scripted(SCRIPT, { workingDirectory, toolRegistry })
  const { last, events: seen } = await turn(server, 'Write same.js.')
  assert.equal(last.type, 'session.completed')
  assertLinted(model, workingDirectory)
  const ends = seen.filter(({ type }) => type === 'tool.call.end').map(({ payload }) => payload.findings?.length ?? 0)
  assert.deepEqual(ends, [1, 0])
})

test('the same linter as a configured command', async () => {
  const workingDirectory = project()
  const command = [process.execPath, fileURLToPath(new URL('./support/lint.mjs', import.meta.url)), biome]
    .map((word) => `'${word}'`)
    .join(' ')
  const { server, model } = await scripted(SCRIPT, {
    workingDirectory,
    hooks: [
      { type: 'tool.result.validate', matcher: 'fs_write | fs_edit | fs_multi_edit', command, timeoutMs: 60_000 },
      { type: 'tool.result.validate', matcher: 'bash', command: 'exit 2' },
    ],
  })
  const { last } = await turn(server, 'Write same.js.')
  assert.equal(last.type, 'session.completed')
  assertLinted(model, workingDirectory)
})

test('handlers come before commands, and a command that fails before a call or a prompt blocks it', async () => {
  const { server, model } = await scripted([written(GOOD, 'c1'), { text: 'Done.' }], {
    hooks: [
      { type: 'prompt.submit', command: `grep -q '"prompt":"from a handler"' && echo 'from a command'` },
      { type: 'prompt.submit', handler: () => ({ prompt: 'from a handler' }) },
      { type: 'tool.execute.before', command: 'exit 1' },
    ],
  })
  await turn(server, 'go')
  assert.deepEqual(usersOf(model.requests[0]), ['from a handler | [Added by a hook]\nfrom a command'])
  const { content } = model.requests[1].messages.find(({ role }) => role === 'tool')
  assert.match(content, /was blocked: hooks\[1\] failed: it ended with exit code 1/)
})

for (const [what, hook, path] of [
  ['an unknown point', { type: 'Stop', command: 'true' }, 'hooks.0.type'],
  ['nothing to run', { type: 'turn.stop', command: ' ' }, 'hooks.0.command'],
  ['a tool where there is none', { type: 'turn.stop', command: 'true', matcher: 'bash' }, 'hooks.0.matcher'],
  ['no tool', { type: 'tool.execute.after', command: 'true', matcher: 'a||b' }, 'hooks.0.matcher'],
  ['no time', { type: 'turn.stop', command: 'true', timeoutMs: 0 }, 'hooks.0.timeoutMs'],
  ['both', { type: 'turn.stop', command: 'true', handler() {} }, 'hooks.0.handler'],
])
  test(`a command is refused: ${what}`, () => {
    const config = { port: 0, acpServers: [], workingDirectory: room, hooks: [hook] }
    assert.throws(
      () => createSimseServer(config),
      (e) => e.code === 'CONFIG_VALIDATION' && e.metadata.issues[0].path === path,
    )
  })
