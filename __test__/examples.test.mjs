/**
 * The examples of examples/node and examples/python, run as programs of their own, on a scripted model server in the place of a real one. Each of them does here
 * what it says that it does: tools run, questions are answered, a linter's findings reach the model, a fix is committed.
 */

import assert from 'node:assert/strict'
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createSimseServer } from '../js/index.js'
import { scriptedModel } from './support/model.mjs'
import { binary } from './support/served.mjs'

const folder = fileURLToPath(new URL('../examples/node', import.meta.url))
const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-examples-')))
const children = new Set()
const models = new Set()
let rooms = 0

after(async () => {
  for (const child of children) child.kill('SIGKILL')
  for (const model of models) await model.close()
  rmSync(room, { recursive: true, force: true })
})

/** A directory with these files. */
function directory(files = {}) {
  const path = join(room, `work${++rooms}`)
  mkdirSync(path)
  for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text)
  return path
}

/** Starts one on a model that says this. */
async function start(name, { script, cwd, args = [], model: named = 'openai/scripted' }) {
  const model = await scriptedModel(script)
  models.add(model)
  const own = Object.entries(process.env).filter(([key]) => !/^(SIMSE_|OPENAI_|XDG_|NODE_)/.test(key))
  const ours = {
    HOME: room,
    OPENAI_BASE_URL: model.baseUrl,
    OPENAI_API_KEY: 'k',
    MODEL: named,
    PORT: '0',
    SIMSE: binary,
  }
  const env = { ...Object.fromEntries(own), ...ours }
  const child = spawn(process.execPath, [join(folder, `${name}.mjs`), ...args], { cwd, env })
  children.add(child)
  return { child, model }
}

/** Runs one to its end. `answers` are its standard input, each behind the question that it answers. */
async function example(name, { cwd = directory(), answers = [], ...options }) {
  const { child, model } = await start(name, { cwd, ...options })
  let [out, err] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text) => {
    out += text
    if (/: $/.test(out) && answers.length > 0) child.stdin.write(`${answers.shift()}\n`)
  })
  child.stderr.setEncoding('utf8').on('data', (text) => {
    err += text
  })
  const [code] = await once(child, 'close')
  children.delete(child)
  return { out, err, code, cwd, requests: model.requests }
}

const call = (name, args, id = name) => ({ id, name, arguments: args })
const results = (request) => request.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)
const users = (request) =>
  request.messages.filter(({ role }) => role === 'user').map(({ content }) => JSON.stringify(content))

test('a tool of your own with Zod', async () => {
  const script = [
    { calls: [call('weather', { city: 'Oslo', unit: 'fahrenheit' }, 'a'), call('weather', { city: '' }, 'b')] },
    { text: 'It is cold in Oslo.' },
  ]
  const { out, err, code, requests } = await example('zod-tool', { script })
  assert.deepEqual([code, err], [0, ''])
  const [tool, ...others] = requests[0].tools
  assert.deepEqual([tool.function.name, others.length, tool.function.parameters.required], ['weather', 0, ['city']])
  assert.match(out, /^weather: 26.6 °F$/m)
  assert.match(results(requests[1])[1], /city/, 'what Zod refuses is told to the model')
  assert.match(out, /It is cold in Oslo\.$/m)
})

test('a permission question in a terminal', async () => {
  const write = (id, content) => ({ calls: [call('fs_write', { path: 'haiku.txt', content }, id)] })
  const script = () => [write('a', 'lines'), { text: 'So it is.' }]
  const yes = await example('permission-prompt', { script: script(), answers: ['what?', 'y'] })
  assert.deepEqual([yes.code, yes.err], [0, ''])
  assert.match(yes.out, /^fs_write \{.*haiku\.txt/m)
  assert.match(yes.out, /✓ fs_write$/m)
  assert.equal(readFileSync(join(yes.cwd, 'haiku.txt'), 'utf8'), 'lines')

  const no = await example('permission-prompt', { script: script(), answers: ['n'] })
  assert.equal(no.code, 0, no.err)
  assert.match(no.out, /✗ fs_write$/m)
  assert.throws(() => readFileSync(join(no.cwd, 'haiku.txt')), { code: 'ENOENT' })
})

test('a linter in hooks', async () => {
  const written = (content, id) => ({ calls: [call('fs_write', { path: 'same.js', content }, id)] })
  const [bad, good] = ['export const same = (a, b) => a == b\n', 'export const same = (a, b) => a === b\n']
  const script = [written(bad, 'a'), { text: 'Done.' }, written(good, 'b'), { text: 'Now it is.' }]
  const cwd = directory({ 'biome.json': JSON.stringify({ root: true }) })
  const { out, err, code, requests } = await example('linter-hook', { script, cwd })
  assert.deepEqual([code, err], [0, ''])
  assert.match(users(requests[1]).at(-1), /noDoubleEquals/, 'what it finds is in the next request')
  assert.match(users(requests[2]).at(-1), /noDoubleEquals/, 'the model stopped, and the turn goes on')
  assert.match(out, /The linter has the turn go on\./)
  assert.equal(requests.length, 4, 'and then nothing is found')
  assert.equal(readFileSync(join(cwd, 'same.js'), 'utf8'), good)
})

test('an agent of the Vercel AI SDK', async () => {
  const script = [
    { calls: [call('fs_glob', { pattern: '*.js' }, 'a'), call('fs_write', { path: 'b.js', content: '' }, 'b')] },
    { text: 'One: a.js.' },
  ]
  const cwd = directory({ 'a.js': '1\n' })
  const { out, err, code, requests } = await example('vercel-agent', { script, cwd, model: 'scripted' })
  assert.deepEqual([code, err], [0, ''])
  assert.match(out, /^fs_glob: .*a\.js/m)
  assert.match(out, /^fs_write failed: .*ermission/m)
  assert.match(out, /One: a\.js\.$/m)
  assert.match(results(requests[1])[0], /a\.js/)
  assert.throws(() => readFileSync(join(cwd, 'b.js')), { code: 'ENOENT' })
})

/** A repository whose test fails, and an issue about it. */
function repository() {
  const cwd = directory({
    'package.json': JSON.stringify({ type: 'module', scripts: { test: 'node --test' } }),
    'add.js': 'export const add = (a, b) => a - b\n',
    'add.test.js': `import assert from 'node:assert'\nimport { test } from 'node:test'\nimport { add } from './add.js'\ntest('adds', () => assert.equal(add(1, 2), 3))\n`,
  })
  const git = (...args) => execFileSync('git', args, { cwd, encoding: 'utf8' }).trim()
  git('init', '--quiet', '--initial-branch=main')
  git('config', 'user.name', 'Ada')
  git('config', 'user.email', 'ada@example.com')
  git('add', '--all')
  git('commit', '--quiet', '--message', 'It adds')
  const issue = join(room, `issue-${rooms}.md`)
  writeFileSync(issue, '# add subtracts\n\n`add(1, 2)` is -1.\n')
  return { cwd, git, issue, branch: `fix/issue-${rooms}` }
}

test('an issue is fixed on a branch of its own', async () => {
  const { cwd, git, issue, branch } = repository()
  const script = [
    { calls: [call('fs_read', { path: 'add.js' })] },
    { calls: [call('fs_edit', { path: 'add.js', old_string: 'a - b', new_string: 'a + b' })] },
    { calls: [call('bash', { command: 'npm test' }, 'a'), call('bash', { command: 'npm publish' }, 'b')] },
    { text: 'It adds now.' },
  ]
  const { out, code, err, requests } = await example('issue-fixer', { script, args: [cwd, issue] })
  assert.equal(code, 0, out + err)
  assert.match(out, new RegExp(`fixed on the branch ${branch}`))
  const [ran, refused] = results(requests[3]).slice(-2)
  assert.match(ran, /pass 1/)
  assert.match(refused, /denied|not allowed/i)
  assert.equal(git('log', '-1', '--format=%B', branch), 'add subtracts\n\nIt adds now.')
  assert.equal(git('show', `${branch}:add.js`), 'export const add = (a, b) => a + b')
  assert.deepEqual([git('rev-parse', '--abbrev-ref', 'HEAD'), git('status', '--porcelain')], ['main', ''])
})

test('an issue that is not fixed leaves nothing behind', async () => {
  const { cwd, git, issue, branch } = repository()
  const script = [
    { calls: [call('fs_write', { path: 'add.js', content: 'export const add = () => 4\n' })] },
    { text: 'It adds now.' },
  ]
  const { out, code, err } = await example('issue-fixer', { script, args: [cwd, issue] })
  assert.equal(code, 1, out + err)
  assert.deepEqual([git('status', '--porcelain'), git('branch', '--list', branch)], ['', ''])
  assert.equal(git('show', 'HEAD:add.js'), 'export const add = (a, b) => a - b')
})

test('a web application that embeds the server', async () => {
  const script = [{ text: ['Two', ' files.'] }, { text: 'As I said.' }, { hang: true }, { text: 'Here again.' }]
  const { child, model } = await start('express-app', { script, cwd: directory() })
  const url = await new Promise((said) =>
    child.stdout.setEncoding('utf8').on('data', (text) => said(/http:\S+/.exec(text)[0])),
  )
  const ask = (body, signal) => {
    const headers = { 'content-type': 'application/json' }
    return fetch(`${url}/ask`, { method: 'POST', headers, body: JSON.stringify(body), signal: signal ?? null })
  }
  const answer = async (question) => (await ask({ user: 'ada', question })).text()
  assert.equal((await ask({ user: '../x', question: 'q' })).status, 400)
  assert.equal(await answer('How many files?'), 'Two files.\n')
  assert.equal(await answer('Sure?'), 'As I said.\n')
  assert.equal(users(model.requests[1]).length, 2, 'it is one conversation')
  // Who goes away stops the turn: else the next question would wait behind it for ever.
  const leaving = new AbortController()
  const left = await ask({ user: 'ada', question: 'And now?' }, leaving.signal)
  const { value } = await left.body.getReader().read()
  assert.match(new TextDecoder().decode(value), /one moment/)
  leaving.abort()
  assert.equal(await answer('Still there?'), 'Here again.\n')
  child.kill('SIGTERM')
  assert.deepEqual(await once(child, 'close'), [0, null])
  children.delete(child)
})

test('an editor over ACP', async () => {
  const script = [
    { text: 'I write it.', calls: [call('fs_write', { path: 'note.txt', content: 'hello' })] },
    { text: 'It is written.' },
  ]
  const args = ['write a note', '--model', 'openai/scripted', '--data-dir', join(room, 'editor')]
  const { out, code, cwd } = await example('acp-editor', { script, args, answers: ['1'] })
  assert.equal(code, 0)
  assert.match(out, /I write it\.[\s\S]*\[completed\][\s\S]*It is written\.\n\(end_turn\)\n$/)
  assert.equal(readFileSync(join(cwd, 'note.txt'), 'utf8'), 'hello')
})

const python = process.env.SIMSE_TEST_PYTHON ?? 'python3'
const noPython = spawnSync(python, ['--version']).status === 0 ? false : 'there is no python3 here'

test('a client in Python, made from the OpenAPI document', { skip: noPython }, async () => {
  const model = await scriptedModel([{ text: ['Two', ' files.'] }])
  models.add(model)
  const authToken = 'a-token-of-this-test-that-is-long-enough'
  const server = createSimseServer({
    port: 0,
    workingDirectory: directory(),
    dataDirectory: join(room, 'python'),
    authToken,
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
  })
  await server.start()
  const env = { ...process.env, SIMSE_URL: server.url, SIMSE_TOKEN: authToken }
  const program = fileURLToPath(new URL('../examples/python/client.py', import.meta.url))
  const { stdout, stderr } = await promisify(execFile)(python, ['-B', program, 'How many?'], { env })
  await server.stop()
  assert.deepEqual([stdout, stderr], ['Two files.\ncompleted, 15 tokens\n404 NOT_FOUND\n', ''])
})
