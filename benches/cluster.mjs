/**
 * Three servers over one real PostgreSQL: how much later an event is seen on another server than on the one that has the session, and how
 * long the sessions of a server that is killed are away.
 *
 *   node benches/cluster.mjs [--binary PATH] [--sessions N] [--markdown FILE]
 *
 * The program is target/release/simse unless another one is named. The model is scripted and outside. Database, model, clients and all
 * servers share this machine, so figures are upper bounds. A session counts as taken when a prompt to it, sent to the two servers that are
 * left by turns, has been accepted; it is intact when its log has no gap, its turn that ran has failed with its reason, and the one that
 * waited has run once.
 */

import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { scriptedModel } from '../__test__/support/model.mjs'
import { top } from './lib/clients.mjs'
import { median, number, percentile } from './lib/figures.mjs'
import { machine } from './lib/machine.mjs'
import { startPostgres } from './lib/postgres.mjs'
import { freePort } from './lib/process.mjs'

const { values } = parseArgs({
  options: {
    binary: { type: 'string', default: join(top, 'target', 'release', 'simse') },
    sessions: { type: 'string', default: '500' },
    markdown: { type: 'string' },
  },
})
const [load] = loadavg()
const count = Number(values.sessions)
const SERVERS = 3
const home = mkdtempSync(join(tmpdir(), 'simse-cluster-'))
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

/** What is asked of a server; undefined when it does not answer. */
async function ask(server, path, body, headers = {}) {
  try {
    const answer = await fetch(`${server.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    })
    return { status: answer.status, value: await answer.json() }
  } catch {
    return undefined
  }
}

/** When each event of a session came, by its number; ends with the process. */
async function arrivals(server, session, came) {
  const answer = await fetch(`${server.url}/sessions/${session}/events`)
  const decoder = new TextDecoder()
  let text = ''
  for await (const piece of answer.body) {
    const now = performance.now()
    text += decoder.decode(piece, { stream: true })
    const frames = text.split('\n\n')
    text = frames.pop()
    for (const frame of frames) {
      const seq = Number(/^id: (\d+)/m.exec(frame)?.[1])
      if (seq > 0) came.set(seq, now)
    }
  }
}

const words = Array.from({ length: 60 }, (_, at) => `w${at} `)
const model = await scriptedModel(
  Array.from({ length: 20_000 }, () => ({ messages }) => {
    const said = JSON.stringify(messages.findLast(({ role }) => role === 'user').content)
    if (said.includes('hang')) return { hang: true }
    return said.includes('slow') ? { text: words, pace: () => sleep(10) } : { text: 'done' }
  }),
)
const database = await startPostgres(`${home}-database`)
const work = join(home, 'work')
mkdirSync(work)
const servers = []
for (let nth = 0; nth < SERVERS; nth++) {
  const own = await freePort()
  const url = `http://127.0.0.1:${own}`
  const said = [
    'serve',
    '--store',
    `postgres://simse@127.0.0.1:${database.port}/postgres`,
    '--no-auth',
    '--node-url',
    url,
  ]
  const rest = ['--port', String(own), '--data-dir', join(home, `data-${nth}`), '--openai-base-url', model.baseUrl]
  const child = spawn(values.binary, [...said, ...rest, '--model', 'openai/m', '--log-level', 'error'], {
    cwd: work,
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, OPENAI_API_KEY: 'none' },
  })
  servers.push({ url, child })
  while ((await ask(servers[nth], '/health'))?.status !== 200) await sleep(50)
}
const [first, second, third] = servers

// How much later: the same session, read on the server that has it and on another one.
await ask(first, '/sessions', { sessionId: 'seen' })
const came = [new Map(), new Map()]
for (const [at, server] of [first, second].entries()) arrivals(server, 'seen', came[at]).catch(() => {})
await sleep(500)
for (let round = 0; round < 5; round++) await ask(first, '/sessions/seen/prompt?wait=true', { prompt: 'slow' })
await sleep(1_000)
const later = [...came[0]].filter(([seq]) => came[1].has(seq) && seq > 1).map(([seq, at]) => came[1].get(seq) - at)

// The loss of a server: all sessions have a turn that runs and one that waits.
const ids = Array.from({ length: count }, (_, at) => `lost-${at}`)
const inGroups = async (work_) => {
  for (let at = 0; at < ids.length; at += 25) await Promise.all(ids.slice(at, at + 25).map(work_))
}
await inGroups(async (id) => {
  await ask(first, '/sessions', { sessionId: id })
  await ask(first, `/sessions/${id}/prompt`, { prompt: 'hang' })
  await ask(first, `/sessions/${id}/prompt`, { prompt: 'waits' })
})
const killed = performance.now()
first.child.kill('SIGKILL')
const away = await Promise.all(
  ids.map(async (id, at) => {
    for (let tries = at; ; tries++) {
      const server = [second, third][tries % 2]
      const answer = await ask(server, `/sessions/${id}/prompt`, { prompt: 'after' }, { 'idempotency-key': id })
      if (answer?.status === 202) return performance.now() - killed
      await sleep(100)
    }
  }),
)
let intact = 0
await inGroups(async (id, at) => {
  const server = [second, third][at % 2]
  for (let tries = 0; tries < 300; tries++) {
    const turns = (await ask(server, `/sessions/${id}/turns`))?.value.items ?? []
    const all = turns.map(({ prompt, status, error }) => `${prompt} ${status} ${error?.message ?? ''}`.trim())
    const log = (await ask(server, `/sessions/${id}/history?events=true&limit=500`))?.value.items ?? []
    const whole = log.every(({ seq }, nth) => seq === nth + 1)
    const want = ['after completed', 'waits completed', 'hang failed interrupted by restart']
    if (whole && JSON.stringify(all) === JSON.stringify(want)) {
      intact++
      return
    }
    await sleep(100)
  }
})
const nodes = (await ask(second, '/nodes')).value.nodes.filter(({ state }) => state === 'active').length

for (const { child } of servers) child.kill('SIGKILL')
await database.stop()
await model.close()
rmSync(home, { recursive: true, force: true })
if (nodes !== 2) throw new Error(`${nodes} servers are left`)

const ms = (value) => `${number(value)} ms`
const lines = [
  '| what | aim | simse |',
  '|---|---|---|',
  `| an event on another server than the one that has the session, later by: median (p95, worst) of ${later.length} | ≤ 10 ms median | ${ms(median(later))} (${ms(percentile(later, 0.95))}, ${ms(Math.max(...later))}) |`,
  `| SIGKILL of the server of ${count} sessions, until each has taken a prompt elsewhere: median (worst) | ≤ 5 s (≤ 10 s) | ${ms(median(away))} (${ms(Math.max(...away))}) |`,
  `| of these intact | ${count} of ${count} | ${intact} of ${count} |`,
]
const report = `${machine(load, database.version)}\n\n${lines.join('\n')}\n`
process.stdout.write(report)
if (values.markdown !== undefined) writeFileSync(values.markdown, report)
process.exit(0)
