/** `simse/client` as a package: generated from the document, the same both ways, without Node too, and finding its server by itself. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { operations } from '../js/client/operations.js'
import * as modules from '../js/client.node.js'
import { compared, made } from '../scripts/client.mjs'
import { clientRoom, refusedWith } from './support/client.mjs'
import { run } from './support/run.mjs'
import { binary } from './support/served.mjs'

const top = dirname(dirname(fileURLToPath(import.meta.url)))
const declarations = readFileSync(join(top, 'client.d.ts'), 'utf8')
const entry = { ...modules }
const { createSimseClient } = entry
const { room, served, close } = clientRoom('client-package')
after(close)

test('what is committed is what the document gives', () => {
  const stale = compared().filter(({ same }) => !same)
  assert.deepEqual(
    stale.map(({ path }) => path),
    [],
    'run `node scripts/client.mjs`',
  )
})

test('imported and required it is one thing, and what client.d.ts declares', () => {
  const require = createRequire(import.meta.url)
  const common = require('../js/client.cjs')
  const declared = [...declarations.matchAll(/^export declare (?:function|const|class) (\w+)/gm)].map(
    ([, name]) => name,
  )
  assert.deepEqual(Object.keys(entry).sort(), declared.sort())
  for (const name of declared) assert.equal(entry[name], common[name])
})

test('every export, member and method in client.d.ts is documented', () => {
  const lines = declarations.split('\n')
  const bare = lines.filter((line, i) => {
    const member = /^ +(readonly )?[\w'[\].$-]+[?]?(<.*>)?[(:]/.test(line) || /^export /.test(line)
    return member && !line.endsWith(',') && !lines[i - 1].trim().endsWith('*/')
  })
  assert.deepEqual(bare, [])
})

test('a browser needs nothing but its own', { timeout: 60_000 }, async () => {
  const { server } = await served([{ text: 'one' }])
  const [, token] = server.headers.authorization.split(' ')
  const program = join(top, '__test__', 'support', 'browser.mjs')
  const args = ['--no-warnings', '--experimental-vm-modules', program, server.url, token]
  const { code, said } = await run(process.execPath, args, { cwd: top })
  assert.equal(code, 0, said)
  const { types, refused, names, files } = JSON.parse(said)
  assert.deepEqual([types[0], types.at(-1), refused], ['session.prompt', 'session.completed', 'NOT_FOUND'])
  assert.deepEqual(names, Object.keys(entry).sort())
  // All of them but the one that looks for a server on this machine.
  assert.equal(files, readdirSync(join(top, 'js', 'client')).length - 1)
  const { exports } = JSON.parse(readFileSync(join(top, 'package.json'), 'utf8'))
  assert.equal(exports['./client'].import.default, './js/client/index.js')
})

const KEY = '0123456789abcdef'.repeat(4)
/** What a server with that key answers to a path that ends with a nonce. */
const proofOf = (path) =>
  createHmac('sha256', KEY)
    .update(`simse proof ${path.split('/').at(-1)}`)
    .digest('hex')

/** A `fetch` to a server that shows that it is the one, and otherwise does what `fetch` does. */
const proving = (fetch) => async (url, init) =>
  url.includes('/proof/') ? Response.json({ proof: proofOf(url) }) : await fetch(url, init)

/** A data directory that says that a server is at `url`. */
function dataAt(path, url, token, pid = 1) {
  mkdirSync(path, { recursive: true })
  writeFileSync(join(path, 'server.json'), JSON.stringify({ url, port: 1, pid, version: '0', key: KEY }))
  if (token) writeFileSync(join(path, 'token'), `${token}\n`, { mode: 0o600 })
}

/** Sets variables of this process while something runs. */
async function withVariables(variables, act) {
  const names = ['HOME', 'SIMSE_CONFIG', 'SIMSE_DATA_DIR', 'XDG_CONFIG_HOME', 'XDG_DATA_HOME']
  const before = names.map((name) => [name, process.env[name]])
  for (const name of names) delete process.env[name]
  Object.assign(process.env, variables)
  try {
    return await act()
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  }
}

test('the server of this user is found as the program finds its data', async () => {
  const at = (...path) => join(room, 'found', ...path)
  const places = ['home/.local/share/simse', 'xdg/simse', 'named', 'told/data', 'told/quoted "it"']
  for (const place of places) dataAt(at(place), `http://127.0.0.1:9/${encodeURIComponent(place)}`, `of-${place.length}`)
  dataAt(at('open'), 'http://127.0.0.1:9/open')
  const file = (name, text) => {
    mkdirSync(dirname(at(name)), { recursive: true })
    writeFileSync(at(name), text)
    return at(name)
  }
  const HOME = at('home')
  const one = file(
    'told/config.toml',
    '# data_dir = "no"\nport = 1\ndata_dir = "data" # here\n[sandbox]\ndata_dir = "no"\n',
  )
  const two = file('told/two.toml', 'data_dir = "quoted \\"it\\""\n')
  const three = file('told/three.toml', `data_dir = '${at('named')}'\n`)
  const none = file('told/none.toml', '[table]\ndata_dir = "data"\n')
  file('conf/simse/config.toml', `data_dir = "${at('told/data')}"\n`)
  const table = [
    [{ HOME }, {}, places[0]],
    [{ HOME, XDG_DATA_HOME: at('xdg') }, {}, places[1]],
    [{ HOME, XDG_DATA_HOME: 'relative' }, {}, places[0]],
    [{ HOME, SIMSE_DATA_DIR: at('named') }, {}, places[2]],
    [{ HOME, SIMSE_CONFIG: one }, {}, places[3]],
    [{ HOME, SIMSE_CONFIG: two }, {}, places[4]],
    [{ HOME, SIMSE_CONFIG: three }, {}, places[2]],
    [{ HOME, SIMSE_CONFIG: none }, {}, places[0]],
    [{ HOME, XDG_CONFIG_HOME: at('conf') }, {}, places[3]],
    [{ HOME, SIMSE_CONFIG: one, SIMSE_DATA_DIR: at('named') }, {}, places[2]],
    [{ HOME }, { dataDirectory: at('xdg', 'simse') }, places[1]],
  ]
  for (const [variables, options, place] of table) {
    const asked = []
    const fetch = async (url, { headers }) => {
      asked.push(url, headers.authorization)
      return Response.json({ tools: [] })
    }
    await withVariables(variables, () => createSimseClient({ ...options, fetch: proving(fetch) }).tools())
    const want = [`http://127.0.0.1:9/${encodeURIComponent(place)}/tools`, `Bearer of-${place.length}`]
    assert.deepEqual(asked, want, JSON.stringify(variables))
  }
  const asked = []
  const fetch = async (_, { headers }) => {
    asked.push(headers)
    return Response.json({ tools: [] })
  }
  await createSimseClient({ dataDirectory: at('open'), fetch: proving(fetch) }).tools()
  assert.equal('authorization' in asked[0], false)

  const missing = await refusedWith(assert, 'NO_SERVER', createSimseClient({ dataDirectory: at('nowhere') }).tools())
  assert.match(missing.message, /no server runs on .*nowhere \(`npx simse serve` starts one\)/)
  writeFileSync(at('open', 'server.json'), '{')
  const broken = await refusedWith(assert, 'NO_SERVER', createSimseClient({ dataDirectory: at('open') }).tools())
  assert.match(broken.message, /server\.json is no JSON/)
  for (const text of ['null', '{"url":"http://127.0.0.1:9"}', `{"url":1,"key":"${KEY}"}`]) {
    writeFileSync(at('open', 'server.json'), text)
    const bare = await refusedWith(assert, 'NO_SERVER', createSimseClient({ dataDirectory: at('open') }).tools())
    assert.match(bare.message, /does not say where a server is and how to know it/)
  }
  if (process.getuid?.() !== 0) {
    chmodSync(at('open', 'server.json'), 0)
    await refusedWith(assert, 'NO_SERVER', createSimseClient({ dataDirectory: at('open') }).tools())
  }
})

test('a server that comes back elsewhere, with another token, is found again', async () => {
  const directory = join(room, 'moved')
  const fetch = async (url, { headers }) => {
    if (url.startsWith('http://127.0.0.1:1/')) throw new TypeError('fetch failed')
    if (url.includes('/proof/')) return Response.json({ proof: proofOf(url) })
    if (headers.authorization !== 'Bearer second') {
      dataAt(directory, 'http://127.0.0.1:2', 'second')
      return Response.json({ error: { code: 'UNAUTHORIZED', message: 'no' } }, { status: 401 })
    }
    return Response.json({ tools: [url] })
  }
  dataAt(directory, 'http://127.0.0.1:1', 'first')
  const client = createSimseClient({ dataDirectory: directory, fetch })
  const answer = client.tools()
  dataAt(directory, 'http://127.0.0.1:2', 'first')
  assert.deepEqual(await answer, { tools: ['http://127.0.0.1:2/tools'] })
})

/** Listens at a port and keeps all that comes. */
async function stranger(port, answer) {
  const heard = []
  const server = createServer((request, response) => {
    const { method, url, headers } = request
    heard.push({ method, url, headers })
    request.resume()
    answer(response, url)
  })
  // What a killed server was just starting has its port until it is begun: some milliseconds.
  for (let tries = 0; !server.listening; tries++) {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening').catch(async (problem) => {
      if (problem.code !== 'EADDRINUSE' || tries === 100) throw problem
      await new Promise((soon) => setTimeout(soon, 20))
    })
  }
  return { heard, port: server.address().port, close: () => server.close(() => {}) && server.closeAllConnections() }
}

/** Nothing was told that is not for everybody. */
function toldNothing(heard, token) {
  for (const { method, url, headers } of heard) {
    assert.match(`${method} ${url}`, /^GET \/proof\/[0-9a-f]{64}$/)
    assert.equal(JSON.stringify(headers).includes(token), false)
    assert.equal('authorization' in headers, false)
  }
}

test('who cannot show that it is the server of the data directory is sent nothing', { timeout: 60_000 }, async () => {
  const directory = join(room, 'strange')
  const says = (text) => (response) => response.setHeader('content-type', 'application/json').end(text)
  const wrong = createHmac('sha256', 'another key').update('simse proof x').digest('hex')
  const table = [
    ['NO_SERVER', says('{}')],
    ['NO_SERVER', says('null')],
    ['NO_SERVER', says('no JSON')],
    ['NO_SERVER', says(`{"proof":"${wrong}"}`)],
    ['NO_SERVER', (response) => response.writeHead(404).end('{"error":{"code":"NOT_FOUND","message":"no"}}')],
    ['NO_SERVER', (response, url) => says(`{"proof":"${url.split('/').at(-1)}"}`)(response)],
    ['RESOURCE_EXHAUSTED', (response) => response.writeHead(429).end()],
    ['UNREACHABLE', (response) => response.writeHead(302, { location: 'http://127.0.0.1:9/' }).end()],
    ['UNREACHABLE', (response) => response.destroy()],
  ]
  for (const [code, answer] of table) {
    const { heard, port, close } = await stranger(0, answer)
    try {
      dataAt(directory, `http://127.0.0.1:${port}`, 'of-the-owner')
      const client = createSimseClient({ dataDirectory: directory, retries: 0 })
      const { message } = await refusedWith(assert, code, client.sessions.prompt('x', { prompt: 'mine' }))
      if (code === 'NO_SERVER') assert.match(message, /is not the server that `server\.json` tells of/)
      const given = createSimseClient({ dataDirectory: directory, retries: 0, token: 'given' })
      await refusedWith(assert, code, given.sessions.get('x'))
      const stream = createSimseClient({ dataDirectory: directory, retries: 0 }).sessions.events('x')
      await refusedWith(assert, code, stream.next())
      assert.ok(heard.length >= 3)
      toldNothing(heard, 'of-the-owner')
      toldNothing(heard, 'given')
    } finally {
      close()
    }
  }
  // One that says nothing is not waited for beyond the call's own time.
  const { heard, port, close } = await stranger(0, () => {})
  dataAt(directory, `http://127.0.0.1:${port}`, 'of-the-owner')
  const client = createSimseClient({ dataDirectory: directory, timeoutMs: 200 })
  await refusedWith(assert, 'TIMEOUT', client.tools())
  toldNothing(heard, 'of-the-owner')
  close()
})

test('a server that was just started on the port of the old one is waited for', { timeout: 60_000 }, async () => {
  const directory = join(room, 'anew')
  let asked = 0
  const { port, close } = await stranger(0, (response, url) => {
    response.setHeader('content-type', 'application/json')
    if (!url.startsWith('/proof/')) return response.end('{"tools":[]}')
    asked++
    // The file is still that of the old one when this is asked first, and not much longer.
    if (asked === 1) setTimeout(() => dataAt(directory, `http://127.0.0.1:${port}`, 'of-the-new', 2), 100)
    response.end(JSON.stringify({ proof: asked === 1 ? 'of another key' : proofOf(url) }))
  })
  try {
    dataAt(directory, `http://127.0.0.1:${port}`, 'of-the-old')
    const client = createSimseClient({ dataDirectory: directory })
    assert.deepEqual(await client.tools(), { tools: [] })
    assert.equal(asked, 2)
  } finally {
    close()
  }
})

test('what takes the port of a server that was killed is sent nothing', { timeout: 60_000 }, async () => {
  const { server, home } = await served()
  await server.kill()
  const data = join(home, 'data')
  assert.ok(existsSync(join(data, 'server.json')), 'it could not take it away')
  const { heard, close } = await stranger(new URL(server.url).port, (response) => response.end('{}'))
  const token = readFileSync(join(data, 'token'), 'utf8').trim()
  try {
    const late = createSimseClient({ dataDirectory: data })
    await refusedWith(assert, 'NO_SERVER', late.sessions.get('x'))
    assert.equal(heard.length, 1)
    toldNothing(heard, token)
  } finally {
    close()
  }
})

test('the program itself, started with its defaults, is found', { timeout: 60_000 }, async () => {
  const home = join(room, 'user')
  mkdirSync(join(home, 'work'), { recursive: true })
  const own = Object.entries(process.env).filter(([name]) => !/^(SIMSE_|OPENAI_|XDG_|NODE_)/.test(name))
  const portFile = join(home, 'port')
  const child = spawn(binary, ['serve', '--port', '0', '--port-file', portFile], {
    cwd: join(home, 'work'),
    env: { ...Object.fromEntries(own), HOME: home },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const ended = once(child, 'close')
  try {
    while (!existsSync(portFile)) {
      assert.equal(child.exitCode, null)
      await new Promise((soon) => setTimeout(soon, 10))
    }
    const { status } = await withVariables({ HOME: home }, async () => {
      const client = createSimseClient()
      await client.sessions.create({ sessionId: 's' })
      return client.sessions.get('s')
    })
    assert.equal(status, 'created')
  } finally {
    child.kill('SIGKILL')
    await ended
  }
})

test('an answer of another shape is none', async () => {
  const first = async (list) => {
    for await (const each of list) return each
  }
  const wrong = ['{}', 'null', '[]', '"x"', '7', '{"sessionId":7,"turnId":[],"items":{},"tools":null,"deleted":"yes"}']
  for (const text of wrong) {
    const fetch = async () => new Response(text, { headers: { 'content-type': 'application/json' } })
    const client = createSimseClient({ baseUrl: 'http://127.0.0.1:9', fetch })
    for (const [name, { kind, parameters, body }] of Object.entries(operations)) {
      if (kind === 'text' || kind === 'events') continue
      const [group, member] = name.split('.')
      const args = [...parameters.map(() => 'x'), ...(body ? [{}] : [])]
      const given = member === undefined ? client[group](...args) : client[group][member](...args)
      const { message, status } = await refusedWith(assert, 'BAD_ANSWER', kind === 'list' ? first(given) : given)
      assert.deepEqual([message, status], [`${name}: the answer is not what this server gives`, 200], text)
    }
  }
})

test('the generator refuses a document that it would misread', () => {
  const document = JSON.parse(readFileSync(join(top, 'docs', 'openapi.json'), 'utf8'))
  const changed = (change) => {
    const copy = structuredClone(document)
    change(copy)
    return () => made(copy)
  }
  const table = [
    [(it) => (it.openapi = '3.0.3'), /expected 3\.1, got 3\.0\.3/],
    [
      (it) => (it.paths['/tools'].get.operationId = 'list tools'),
      /get \/tools: operationId list tools is no method's name/,
    ],
    [(it) => delete it.paths['/sessions/{sessionId}/events'], /no operation `sessions\.events`/],
    [(it) => delete it.components.schemas.SessionView, /SessionView leads nowhere/],
  ]
  for (const [change, words] of table) assert.throws(changed(change), words)
})
