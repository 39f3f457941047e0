/**
 * The examples of README.md and of the guide, run as they stand there: the Node one in a project of its own that has `simse` installed,
 * the curl one against the program, in an empty home. Only the port is another, so that nothing else is disturbed.
 */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const top = dirname(dirname(fileURLToPath(import.meta.url)))
const readme = readFileSync(join(top, 'README.md'), 'utf8')
const built = process.env.CARGO_TARGET_DIR ?? join(top, 'target')
const binary = process.env.SIMSE_TEST_BINARY ?? join(built, 'debug', 'simse')
const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-readme-')))
const children = new Set()

after(() => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(room, { recursive: true, force: true })
})

/** The code blocks of a section. */
function blocks(section, language) {
  const text = readme.split(/^## /m).find((part) => part.startsWith(`${section}\n`))
  assert.ok(text, `README.md has no section "${section}"`)
  return [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```/gm)]
    .filter((match) => match[1] === language)
    .map((match) => match[2])
}

/** An environment without models and settings of this machine. */
function environment(home) {
  const own = Object.entries(process.env).filter(([name]) => !/^(SIMSE_|OPENAI_|XDG_|NODE_)/.test(name))
  return { ...Object.fromEntries(own), HOME: home }
}

/** A project that has `simse` installed and `example.mjs` in it. */
function projectOf(directory, source) {
  mkdirSync(join(directory, 'node_modules'), { recursive: true })
  symlinkSync(top, join(directory, 'node_modules', 'simse'))
  writeFileSync(join(directory, 'example.mjs'), source)
  return directory
}

function start(program, args, options) {
  const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
  children.add(child)
  const said = { out: '', err: '' }
  child.stdout.on('data', (text) => (said.out += text))
  child.stderr.on('data', (text) => (said.err += text))
  const ended = once(child, 'close').then(([code]) => {
    children.delete(child)
    return code
  })
  return { child, said, ended }
}

test('the Node example runs in a project of its own', async () => {
  const [source, ...more] = blocks('From Node', 'js')
  assert.equal(more.length, 0)
  const project = projectOf(join(room, 'project'), source)
  const { said, ended } = start(process.execPath, ['example.mjs'], { cwd: project, env: environment(room) })
  assert.equal(await ended, 0, said.err)
  assert.match(said.out, /^fs_list: .*f example\.mjs/ms)
  assert.match(said.out, /^shout: HELLO!$/m)
  assert.match(said.out, /^completed ./m)
  assert.equal(said.err, '')
})

test('the program of the migration page runs', async () => {
  const page = readFileSync(join(top, 'docs', 'guide', 'from-claude-agent-sdk.md'), 'utf8')
  const [, source] = /^```js\n([\s\S]*?)^```/m.exec(page)
  const project = projectOf(join(room, 'migrated'), source)
  const { said, ended } = start(process.execPath, ['example.mjs'], { cwd: project, env: environment(room) })
  assert.equal(await ended, 0, said.err)
  assert.match(said.out, /\S/)
  assert.equal(said.err, '')
})

test('the example of a model runs', async () => {
  const [source, ...more] = blocks('A model in JavaScript', 'js')
  assert.equal(more.length, 0)
  const project = projectOf(join(room, 'model'), source)
  const { said, ended } = start(process.execPath, ['example.mjs'], { cwd: project, env: environment(room) })
  assert.equal(await ended, 0, said.err)
  assert.deepEqual(said, { out: 'You said: hello\n', err: '' })
})

test('the client example runs beside the program', async () => {
  const [source, ...more] = blocks('A typed client', 'js')
  assert.equal(more.length, 0)
  const home = join(room, 'client')
  const project = projectOf(join(home, 'project'), source)
  const portFile = join(home, 'port')
  const options = { cwd: project, env: environment(home) }
  const server = start(binary, ['serve', '--port', '0', '--port-file', portFile], options)
  await portOf(portFile, server)
  const { said, ended } = start(process.execPath, ['example.mjs'], options)
  assert.equal(await ended, 0, said.err)
  assert.match(said.out, /^completed ./m)
  assert.match(said.out, /^2 session\.prompt$/m)
  assert.match(said.out, /^From a program completed$/m)
  assert.match(said.out, /^NOT_FOUND 404$/m)
  assert.equal(said.err, '')
  server.child.kill('SIGTERM')
  assert.equal(await server.ended, 0, server.said.err)
})

const lacksCurl = !(process.env.PATH ?? '').split(':').some((folder) => existsSync(join(folder, 'curl')))

test('the curl example runs against the program', { skip: lacksCurl && 'curl is not installed' }, async () => {
  const [serve, calls, ...more] = blocks('With curl', 'sh')
  assert.equal(more.length, 0)
  const home = join(room, 'home')
  mkdirSync(home)
  writeFileSync(join(home, 'notes.txt'), 'a file\n')
  const portFile = join(home, 'port')
  const [program, name, ...args] = serve.trim().split(' ')
  assert.deepEqual([program, name], ['npx', 'simse'])
  const options = args.join(' ').replace('--port 4100', '--port 0').split(' ')
  const server = start(binary, [...options, '--port-file', portFile], { cwd: home, env: environment(home) })
  const port = await portOf(portFile, server)

  const script = calls.replaceAll('127.0.0.1:4100', `127.0.0.1:${port}`)
  const shell = start('bash', ['-euc', script], { cwd: home, env: environment(home) })
  assert.equal(await shell.ended, 0, shell.said.err)
  const { out } = shell.said
  assert.match(out, /"sessionId":\s*"first"/)
  assert.match(out, /"status":\s*"completed"/)
  const numbers = [...out.matchAll(/^id: (\d+)$/gm)].map((match) => Number(match[1]))
  assert.ok(numbers.length >= 3, out)
  assert.deepEqual(
    numbers,
    numbers.map((_, at) => at + 1),
  )
  assert.match(out, /"type":"session\.completed"/)

  server.child.kill('SIGTERM')
  assert.equal(await server.ended, 0, server.said.err)
})

/** The port, once the server has written it: it does so when it answers. */
async function portOf(file, server) {
  const deadline = Date.now() + 60_000
  while (!existsSync(file) || readFileSync(file, 'utf8') === '') {
    assert.equal(server.child.exitCode, null, server.said.err)
    assert.ok(Date.now() < deadline, `no port within 60 s: ${server.said.err}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  return readFileSync(file, 'utf8').trim()
}
