/**
 * Real agents under the real server: each one installed from its package registry answers a turn with a command, a turn that
 * writes a file after a question, one that calls a tool of ours, a cancel, and a turn after a restart of the server, against a scripted model on this machine.
 * Not part of `npm test`: it downloads up to a gigabyte. `npm run agents`, or `npm run agents -- codex pi`.
 *
 *   SIMSE_BIN      the program; default: target/debug/simse
 *   AGENTS_CACHE   where the packages are installed; default: ~/.cache/simse/agents
 */
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

import { agents } from './agents/list.mjs'
import { scriptedModel } from './agents/model.mjs'

const top = resolve(dirname(fileURLToPath(import.meta.url)), '..')
const program = process.env.SIMSE_BIN ?? join(top, 'target/debug/simse')
const cache = process.env.AGENTS_CACHE ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'simse/agents')
/** Longest wait for anything. */
const WAIT_MS = 120_000
const major = Number(process.versions.node.split('.')[0])

/** Installs packages into a folder of the cache, once. */
function install(name, packages) {
  const directory = join(cache, name)
  const done = join(directory, '.installed')
  const wanted = packages.join(' ')
  if (existsSync(done) && readFileSync(done, 'utf8') === wanted) return directory
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, 'package.json'), '{"private":true}')
  console.error(`installing ${wanted} …`)
  const npm = spawnSync('npm', ['install', '--no-audit', '--no-fund', '--loglevel=error', ...packages], {
    cwd: directory,
    stdio: ['ignore', 2, 2],
  })
  if (npm.status !== 0) throw new Error(`npm could not install ${wanted}`)
  writeFileSync(done, wanted)
  return directory
}

/** The entry of an agent in the server's configuration. */
function entry(agent, home, port) {
  const directory = install(agent.name, agent.packages)
  const path = [join(directory, 'node_modules/.bin')]
  if (agent.node && agent.node > major)
    path.push(join(install(`node${agent.node}`, [`node@${agent.node}`]), 'node_modules/node/bin'))
  path.push(dirname(process.execPath), process.env.PATH)
  const env = { HOME: home, PATH: path.join(delimiter), ...agent.configure({ home, port }) }
  const text = (value) => JSON.stringify(value)
  const table = Object.entries(env).map(([name, value]) => `${name} = ${text(value)}`)
  const started = (agent, bin) => {
    const words = [bin, ...(agent.args ?? [])]
    // What goes over the wire, for who looks into a failure.
    const traced =
      process.env.AGENTS_WIRE &&
      `tee -a ${process.env.AGENTS_WIRE}/${agent.name}.in | ${words.join(' ')} | tee -a ${process.env.AGENTS_WIRE}/${agent.name}.out`
    const [command, ...args] = traced ? ['/bin/sh', '-c', traced] : words
    return `command = ${text(command)}\nargs = [${args.map(text).join(', ')}]`
  }
  const profile = `profile = ${text(agent.name)}\n`
  return `[[acp_servers]]\nname = ${text(agent.name)}\n${profile}${started(agent, join(path[0], agent.bin))}\nenv = { ${table.join(', ')} }\ntimeoutMs = 60000\n`
}

/** Starts the server, and waits until it answers. */
async function serve(scratch, config) {
  const portFile = join(scratch, 'port')
  rmSync(portFile, { force: true })
  const args = [
    'serve',
    '--config',
    config,
    '--port',
    '0',
    '--port-file',
    portFile,
    '--no-auth',
    '--log-level',
    'warn',
    '--data-dir',
    join(scratch, 'data'),
    '--cwd',
    join(scratch, 'work'),
  ]
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  let log = ''
  child.stderr.on('data', (piece) => (log = (log + piece).slice(-8000)))
  const gone = new Promise((_, fail) =>
    child.once('exit', (code) => fail(new Error(`the server ended with ${code}\n${log}`))),
  )
  gone.catch(() => {})
  await Promise.race([gone, until(() => existsSync(portFile) && readFileSync(portFile, 'utf8').trim())])
  const base = `http://127.0.0.1:${readFileSync(portFile, 'utf8').trim()}`
  const call = async (method, path, body) => {
    const init = {
      method,
      headers: body ? { 'content-type': 'application/json' } : {},
      body: body && JSON.stringify(body),
    }
    const reply = await fetch(base + path, init)
    const json = await reply.json()
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${JSON.stringify(json)}`)
    return json
  }
  const stop = async () => {
    const ended = new Promise((done) => child.once('exit', done))
    child.kill('SIGTERM')
    await ended
  }
  return { call, stop, log: () => log }
}

async function until(holds) {
  const end = Date.now() + WAIT_MS
  for (;;) {
    const value = await holds()
    if (value) return value
    if (Date.now() > end) throw new Error(`not within ${WAIT_MS} ms: ${holds}`)
    await new Promise((done) => setTimeout(done, 25))
  }
}

/** A turn to its end: its questions are answered, and counted; `during` is called while it runs. */
async function turn(server, session, prompt, during) {
  const began = performance.now()
  const { turnId } = await server.call('POST', `/sessions/${session}/prompt`, { prompt })
  let asked = 0
  const answered = new Set()
  const record = await until(async () => {
    const view = await server.call('GET', `/sessions/${session}`)
    for (const { payload } of view.requests ?? []) {
      if (answered.has(payload.requestId)) continue
      answered.add(payload.requestId)
      asked += 1
      await server.call('POST', `/sessions/${session}/feedback`, { requestId: payload.requestId, decision: 'allow' })
    }
    await during?.(view)
    const record = await server.call('GET', `/sessions/${session}/turns/${turnId}`)
    return record.endedAt ? record : undefined
  })
  return { record, asked, ms: performance.now() - began }
}

async function events(server, session) {
  const all = []
  let cursor
  do {
    const page = await server.call(
      'GET',
      `/sessions/${session}/history?events=true&limit=1000${cursor ? `&cursor=${cursor}` : ''}`,
    )
    all.push(...page.items)
    cursor = page.nextCursor
  } while (cursor)
  return all
}

function check(holds, words, what) {
  if (!holds) throw new Error(`${words}: ${JSON.stringify(what)}`)
}

/** All four with one agent: what it took and what was seen. */
async function attempt(agent) {
  const scratch = mkdtempSync(join(tmpdir(), `simse-agent-${agent.name}-`))
  // Codex refuses a home below the temporary directory.
  const home = join(cache, 'homes', agent.name)
  rmSync(home, { recursive: true, force: true })
  mkdirSync(home, { recursive: true })
  mkdirSync(join(scratch, 'work'))
  const model = await scriptedModel()
  const config = join(scratch, 'config.toml')
  const rules = ['acp:*', 'bash', 'fs_write', 'fs_edit'].map(
    (tool) => `[[permissions.rules]]\ntool = "${tool}"\npolicy = "ask"\n`,
  )
  writeFileSync(config, `default_policy = "ask"\nmemory = true\n${entry(agent, home, model.port)}\n${rules.join('\n')}`)
  let server = await serve(scratch, config)
  try {
    const row = { agent: agent.name }
    const { sessionId } = await server.call('POST', '/sessions', {
      agent: agent.name,
      ...(agent.asks ? { agentOptions: agent.asks } : {}),
    })
    const ran = await turn(server, sessionId, '@@run echo made-by-a-command@@')
    check(
      ran.record.status === 'completed' && ran.record.result.includes('done'),
      'the turn with a command',
      ran.record,
    )
    let seen = await events(server, sessionId)
    const ends = seen.filter((event) => event.type === 'tool.call.end')
    check(
      agent.hidesOutput || ends.some((end) => end.payload.output.includes('made-by-a-command')),
      'the output of the command',
      ends,
    )
    row['first turn, with a command'] = ran.ms
    const file = join(scratch, 'work', 'written.txt')
    const wrote = await turn(server, sessionId, `@@write ${file} hello@@`)
    check(wrote.record.status === 'completed', 'the turn that writes', wrote.record)
    check(existsSync(file) && readFileSync(file, 'utf8').startsWith('hello'), 'the file', wrote.record)
    check(agent.asksNobody || ran.asked + wrote.asked > 0, 'somebody was asked', wrote)
    row['writes a file'] = wrote.ms
    row.questions = ran.asked + wrote.asked
    const noted = await turn(server, sessionId, '@@note the sky is green@@')
    const offered = noted.record.result === 'done'
    // Which agent shows no tool of ours, and why, stands in the list: anything else is a fault.
    check(offered || agent.connectsNoServers, 'our tool was called', noted.record)
    if (offered) {
      const calls = (await events(server, sessionId)).filter(({ payload }) => payload.name === 'memory_add')
      check(calls.at(-1)?.payload.isError === false, 'our tool ran', calls)
    }
    row['calls our tool'] = offered ? `${Math.round(noted.ms)} ms, ${noted.asked} asked` : 'connects no servers'
    let aborted
    const slow = await turn(server, sessionId, '@@slow@@', async () => {
      if (aborted) return
      const newest = await server.call('GET', `/sessions/${sessionId}?snapshot=true&limit=1`)
      if (!newest.snapshot?.open?.text?.includes('word')) return
      aborted = performance.now()
      await server.call('POST', `/sessions/${sessionId}/abort`, {})
    })
    row['a cancel'] = performance.now() - aborted
    check(slow.record.status === 'aborted', 'the cancel', slow.record)
    const again = await turn(server, sessionId, '@@say here again@@')
    check(again.record.result?.includes('here again'), 'a turn after the cancel', again.record)
    row['short turn'] = again.ms
    const id = (list) => list.filter((event) => event.type === 'agent.session').at(-1).payload.agentSessionId
    seen = await events(server, sessionId)
    const before = id(seen)
    await server.stop()
    server = await serve(scratch, config)
    const after = await turn(server, sessionId, '@@say back@@')
    check(after.record.result?.includes('back'), 'a turn after the restart', after.record)
    row['first turn after a restart'] = after.ms
    const all = await events(server, sessionId)
    row['same session'] = id(all) === before ? 'yes' : 'told anew'
    const said = all
      .slice(seen.length)
      .filter((event) => event.type === 'stream.complete')
      .map((event) => event.payload.text)
    check(!said.some((text) => text.includes('word')), 'nothing is replayed', said)
    const kinds = new Set(all.map((event) => event.type).filter((type) => type.startsWith('agent.')))
    row.tells = [...kinds]
      .map((kind) => kind.slice(6))
      .filter((kind) => kind !== 'session')
      .join(' ')
    row.options = (await server.call('GET', `/sessions/${sessionId}/agent`)).options
      .map((option) => option.id)
      .join(' ')
    row.events = all.length
    row['model requests'] = Object.entries(model.requests)
      .map(([name, count]) => `${count} ${name}`)
      .join(', ')
    return row
  } catch (error) {
    error.message += `\n${server.log()}`
    throw error
  } finally {
    await server.stop().catch(() => {})
    await model.close()
    rmSync(scratch, { recursive: true, force: true })
  }
}

const wanted = process.argv.slice(2)
const chosen = agents.filter((agent) => wanted.length === 0 || wanted.includes(agent.name))
const rows = []
let failed = 0
for (const agent of chosen) {
  try {
    const row = await attempt(agent)
    rows.push(row)
    console.error(`${agent.name}: all of it`)
  } catch (error) {
    failed += 1
    console.error(`${agent.name}: ${error.message}`)
  }
}
const shown = (value) =>
  typeof value === 'number' && !Number.isInteger(value) ? `${Math.round(value)} ms` : String(value)
if (rows.length > 0) {
  const names = Object.keys(rows[0])
  console.log(`| ${names.join(' | ')} |\n|${names.map(() => '---').join('|')}|`)
  for (const row of rows) console.log(`| ${names.map((name) => shown(row[name])).join(' | ')} |`)
}
process.exitCode = failed > 0 || rows.length === 0 ? 1 : 0
