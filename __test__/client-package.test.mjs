/** `simse/client` as a package: generated from the document, the same both ways, without Node too, and finding its server by itself. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
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
  assert.equal(exports['./client'].default, './js/client/index.js')
})

/** A data directory that says that a server is at `url`. */
function dataAt(path, url, token) {
  mkdirSync(path, { recursive: true })
  writeFileSync(join(path, 'server.json'), JSON.stringify({ url, port: 1, pid: 1, version: '0' }))
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
    await withVariables(variables, () => createSimseClient({ ...options, fetch }).tools())
    const want = [`http://127.0.0.1:9/${encodeURIComponent(place)}/tools`, `Bearer of-${place.length}`]
    assert.deepEqual(asked, want, JSON.stringify(variables))
  }
  const asked = []
  const fetch = async (_, { headers }) => {
    asked.push(headers)
    return Response.json({ tools: [] })
  }
  await createSimseClient({ dataDirectory: at('open'), fetch }).tools()
  assert.equal('authorization' in asked[0], false)

  const missing = await refusedWith(assert, 'NO_SERVER', createSimseClient({ dataDirectory: at('nowhere') }).tools())
  assert.match(missing.message, /no server runs on .*nowhere \(`npx simse serve` starts one\)/)
  writeFileSync(at('open', 'server.json'), '{')
  const broken = await refusedWith(assert, 'NO_SERVER', createSimseClient({ dataDirectory: at('open') }).tools())
  assert.match(broken.message, /server\.json is no JSON/)
  if (process.getuid?.() !== 0) {
    chmodSync(at('open', 'server.json'), 0)
    await refusedWith(assert, 'NO_SERVER', createSimseClient({ dataDirectory: at('open') }).tools())
  }
})

test('a server that comes back elsewhere, with another token, is found again', async () => {
  const directory = join(room, 'moved')
  const fetch = async (url, { headers }) => {
    if (url.startsWith('http://127.0.0.1:1/')) throw new TypeError('fetch failed')
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
