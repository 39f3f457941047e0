/**
 * What one database has to do for servers that are busy with tools: is it the limit when there are three of them instead of one?
 *
 *   node benches/scale.mjs [--binary PATH] [--store PATH] [--sessions N] [--files N] [--seconds N] [--rounds N] [--markdown FILE]
 *
 * Sessions prompt again and again; each turn, in a session of its own, searches a tree ten times (`fs_grep`, an expression that no index
 * helps), as a scripted model asks for it. One server takes all of this machine with that, and so do three: what more machines would give
 * is hidden. So it is simulated too: the same calls in a tree of a few files, so that the events are as many and as large, and before each the model
 * waits as long as the call has taken in the large tree while the machine was busy with it. A server then does what it did, without a
 * processor, and three do three times that unless something that they share holds them up.
 *
 * What the database can do is measured on the same PostgreSQL by benches/store.rs: three stores that do nothing but append, one event a
 * commit. `--store` names it compiled (`cargo bench --bench store --no-run` says where that is); without it that is left out. Its processor
 * time is that of all its processes. Everything shares the machine. Medians of the rounds.
 */

import { execFile, execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs, promisify } from 'node:util'
import { scriptedModel } from '../__test__/support/model.mjs'
import { top } from './lib/clients.mjs'
import { median, number, sum } from './lib/figures.mjs'
import { cpuMs } from './lib/groups.mjs'
import { machine } from './lib/machine.mjs'
import { startPostgres } from './lib/postgres.mjs'
import { call, freePort, launch, ready, stop, stopAll } from './lib/process.mjs'
import { makeTree } from './tools/tree.mjs'

const { values } = parseArgs({
  options: {
    binary: { type: 'string', default: join(top, 'target', 'release', 'simse') },
    store: { type: 'string' },
    sessions: { type: 'string', default: '8' },
    files: { type: 'string', default: '8000' },
    seconds: { type: 'string', default: '10' },
    rounds: { type: 'string', default: '3' },
    markdown: { type: 'string' },
  },
})
const [load] = loadavg()
const SERVERS = 3
/** Calls of a turn. */
const CALLS = 10
/** What is searched, and what has the same single match. */
const [FILES, FEW_FILES] = [Number(values.files), 20]
const PATTERN = '[a-z]+ [a-z]+_[0-9][a-f][0-9][a-f] . [0-9];'
const WARM_MS = 3_000
const FRESH_MS = 65_000
/** Ticks of /proc/PID/stat a second, on every Linux that Node runs on. */
const TICKS = 100
const ALLOW = { defaultPolicy: 'allow', rules: [] }

const home = mkdtempSync(join(tmpdir(), 'simse-scale-'))
/** The trees stay for the next run, and for other benches. */
const work = join(tmpdir(), 'simse-bench-search')
const [large, small] = [FILES, FEW_FILES].map((files) => join(work, `tree-${files}`))
makeTree(large, FILES)
makeTree(small, FEW_FILES)
// What a file held that was written just now is not kept from one search to the next.
const age = Date.now() - statSync(join(large, '.complete')).mtimeMs
if (age < FRESH_MS) await pause(FRESH_MS - age)

/** What the model waits before each call (milliseconds). */
let waitMs = 0
let asked = 0
const model = await scriptedModel(
  Array.from({ length: 100_000 }, () => async ({ messages }) => {
    if (messages.filter(({ role }) => role === 'tool').length >= CALLS) return { text: 'done' }
    if (waitMs > 0) await pause(waitMs)
    asked += 1
    // Replies that are all the same would end the turn.
    const args = { pattern: PATTERN, limit: 10 + (asked % 90) }
    return { calls: [{ id: `call_${asked}`, name: 'fs_grep', arguments: args }] }
  }),
)

const database = await startPostgres(`${home}-database`)
const { bin, port } = database
const postmaster = Number(readFileSync(`${home}-database/data/postmaster.pid`, 'utf8').split('\n')[0])
const address = (name) => `postgres://simse@127.0.0.1:${port}/${name}?sslmode=disable`

/** The numbers behind the name in /proc/PID/stat: from the parent on. */
function stat(pid) {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) \S+ /s, '')
      .split(' ')
      .map(Number)
  } catch {
    return undefined
  }
}

/** Milliseconds of processor time that all processes of the database have used, those that ended too. */
function databaseMs() {
  const [, , , , , , , , , , ...own] = stat(postmaster)
  const children = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(stat)
  const running = children.filter((fields) => fields?.[0] === postmaster).map((fields) => fields[10] + fields[11])
  return ((sum(own.slice(0, 4)) + sum(running)) * 1000) / TICKS
}

/** Sums of what servers have counted. */
async function counted(servers) {
  const pages = await Promise.all(servers.map(async ({ base }) => (await fetch(`${base}/metrics`)).text()))
  const of = (name) =>
    sum(
      pages.map((page) =>
        Number(
          page
            .split('\n')
            .find((line) => line.startsWith(name))
            ?.split(' ')
            .at(-1) ?? 0,
        ),
      ),
    )
  return {
    calls: of('simse_tool_calls_total{tool="fs_grep",outcome="ok"} '),
    toolMs: of('simse_tool_duration_seconds_sum{tool="fs_grep"} ') * 1000,
    events: of('simse_events_appended_total '),
    transactions: of('simse_store_commit_size_count '),
    databaseMs: databaseMs(),
    serversMs: sum(servers.map(({ child }) => cpuMs(child.pid))),
  }
}

async function begin(nth) {
  const own = await freePort()
  const base = `http://127.0.0.1:${own}`
  const said = ['serve', '--store', address('postgres'), '--node-url', base, '--port', own, '--no-auth', '--cwd', work]
  const rest = ['--data-dir', join(home, `data-${nth}`), '--openai-base-url', model.baseUrl, '--model', 'openai/m']
  const more = ['--commands-per-minute', 0, '--find-local-models', false, '--log-level', 'error']
  const env = { PATH: process.env.PATH, HOME: home, OPENAI_API_KEY: 'none' }
  const child = launch(values.binary, [...said, ...rest, ...more].map(String), {
    cwd: work,
    env,
    log: join(home, 'log'),
  })
  await ready(child, own, '/health', performance.now())
  return { base, child }
}

/** One turn behind the other until it is over. */
async function turns(base, workingDirectory, end) {
  while (!end.isThere) {
    const { json } = await call(base, 'POST', '/sessions', { workingDirectory, toolPermissions: ALLOW })
    const turn = (await call(base, 'POST', `/sessions/${json.sessionId}/prompt?wait=true`, { prompt: 'search' })).json
    if (turn.status !== 'completed') throw new Error(`a turn has not gone well: ${JSON.stringify(turn)}`)
  }
}

/** So many servers, busy: what each second had. */
async function busy(count, directory, eachMs) {
  waitMs = eachMs
  const servers = []
  while (servers.length < count) servers.push(await begin(servers.length))
  const end = { isThere: false }
  const sessions = servers.flatMap(({ base }) => Array.from({ length: Number(values.sessions) }, () => base))
  const all = Promise.all(sessions.map((base) => turns(base, directory, end)))
  // What fails meanwhile is told when all of them are waited for.
  all.catch(() => {})
  await pause(WARM_MS)
  const [before, began] = [await counted(servers), performance.now()]
  await pause(Number(values.seconds) * 1000)
  const [after, seconds] = [await counted(servers), (performance.now() - began) / 1000]
  end.isThere = true
  await all
  await Promise.all(servers.map(({ child }) => stop(child)))
  const more = (name) => after[name] - before[name]
  const processors = (name) => more(name) / 1000 / seconds
  return {
    calls: more('calls') / seconds,
    toolMs: more('toolMs') / more('calls'),
    events: more('events') / seconds,
    transactions: more('transactions') / seconds,
    database: processors('databaseMs'),
    servers: processors('serversMs'),
  }
}

/** Events a second of three stores that do nothing but append, one event a commit. */
async function capacity(name, env) {
  execFileSync(join(bin, 'createdb'), ['-h', '127.0.0.1', '-p', String(port), '-U', 'simse', name])
  const settings = { ROUNDS: values.rounds, NODES: String(SERVERS), BARE: '0', POSTGRES: address(name), ...env }
  const { stdout } = await promisify(execFile)(values.store, ['--bench'], { env: { ...process.env, ...settings } })
  const line = stdout.split('\n').find((text) => text.includes(`PostgreSQL, servers: ${SERVERS}, one event a commit`))
  return Number.parseFloat(line.split('|')[2])
}

/** All that is measured. */
async function measured() {
  const rounds = []
  while (rounds.length < Number(values.rounds)) {
    const one = await busy(1, large, 0)
    rounds.push({
      one,
      three: await busy(SERVERS, large, 0),
      waiting: await busy(1, small, one.toolMs),
      threeWaiting: await busy(SERVERS, small, one.toolMs),
    })
  }
  if (values.store === undefined) return { rounds }
  // Many sessions, whose commits go together; and one session of each server, so that each commit is a transaction.
  const events = await capacity('many', {})
  const transactions = await capacity('few', { SESSIONS: '1', EVENTS: '20000' })
  return { rounds, most: { events, transactions } }
}

const { rounds, most } = await measured().finally(async () => {
  await stopAll()
  await database.stop()
  await model.close()
  rmSync(home, { recursive: true, force: true })
})

const phases = ['one', 'three', 'waiting', 'threeWaiting']
const figure = (phase, name) => median(rounds.map((round) => round[phase][name]))
const row = (what, aim, cell) => `| ${what} | ${aim} | ${phases.map(cell).join(' | ')} |`
const rates = (name) => row(`${name} a second`, '', (phase) => number(figure(phase, name)))
const used = (name) => row(`processors that the ${name} took`, '', (phase) => number(figure(phase, name)))
const times = row('calls, against 1 server', `${SERVERS}× where they wait`, (phase) => {
  const beside = phase.toLowerCase().includes('waiting') ? 'waiting' : 'one'
  return `${number(median(rounds.map((round) => round[phase].calls / round[beside].calls)))}×`
})
const shares = Object.entries(most ?? {}).map(([name, rate]) =>
  row(`of the ${number(rate)} ${name} a second of stores that only append`, '≤ 30 % with 1 server', (phase) => {
    return `${number((figure(phase, name) / rate) * 100)} %`
  }),
)
const wait = `a wait of ${number(figure('one', 'toolMs'))} ms`
const lines = [
  `| ${values.sessions} sessions of each server, \`fs_grep\` of ${number(FILES)} files | aim | 1 server | ${SERVERS} on the same machine | ${wait}: 1 server | ${SERVERS} servers |`,
  '|---|---|---|---|---|---|',
  ...['calls', 'events', 'transactions'].map(rates),
  times,
  ...shares,
  ...['database', 'servers'].map(used),
  row('the database’s processor time a call', '', (phase) => {
    return `${number(median(rounds.map((round) => (round[phase].database * 1000) / round[phase].calls)))} ms`
  }),
]
const report = `${machine(load, database.version)}\n\n${lines.join('\n')}\n`
process.stdout.write(report)
if (values.markdown !== undefined) writeFileSync(values.markdown, report)
process.exit(0)
