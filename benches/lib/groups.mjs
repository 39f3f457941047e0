/**
 * What is measured on a server, group by group. A group starts its own server on a directory of its own, so that
 * none inherits another's memory or database, and answers with plain figures.
 */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { create, turns } from './clients.mjs'
import { median, percentile, sum } from './figures.mjs'
import { freePort, launch, memory, probe, ready, resetPeak, stop } from './process.mjs'

/** Requests are sent this far apart while a server starts (milliseconds), each with this limit. */
const PROBE_EVERY_MS = 15
const PROBE_LIMIT_MS = 12_000
/** Deltas of the flood. */
const DELTAS = 10_000
/** Items of the session that is forked: each turn has two. */
const FORKED_ITEMS = 10_000
/** Ticks of /proc/PID/stat a second, on every Linux that Node runs on. */
const TICKS = 100

/** A git repository with a few files; what the tools of a turn work on. */
export function makeProject(directory) {
  mkdirSync(join(directory, 'src'), { recursive: true })
  const cart = Array.from({ length: 60 }, (_, line) => `export const price${line} = ${line} // line ${line}\n`)
  writeFileSync(join(directory, 'src', 'cart.js'), cart.join(''))
  writeFileSync(join(directory, 'README.md'), '# Shop\n')
  const git = (...args) =>
    execFileSync('git', ['-c', 'user.name=b', '-c', 'user.email=b@example.invalid', ...args], { cwd: directory })
  git('init', '--quiet', '--template=')
  git('add', '--all')
  git('commit', '--quiet', '--message', 'Begin')
}

/** Starts a server on `home` (a new one unless given) and waits until it answers. */
async function open(target, context, home = join(context.directory, `${target.name}-${context.next()}`)) {
  const project = join(home, 'project')
  if (!existsSync(project)) makeProject(project)
  const port = await freePort()
  const { program, args, cwd, env } = target.command({ port, home, project, model: context.model.address })
  const since = performance.now()
  const child = launch(program, args, { cwd, env, log: join(home, 'server.log') })
  return { child, port, since, home, project, address: `127.0.0.1:${port}`, base: `http://127.0.0.1:${port}` }
}

export async function openReady(target, context, home) {
  const server = await open(target, context, home)
  server.startMs = await ready(server.child, server.port, target.health, server.since)
  return server
}

/** Milliseconds of processor time that a process has used, its ended children not counted. */
export function cpuMs(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  return ((Number(fields[11]) + Number(fields[12])) * 1000) / TICKS
}

/** Prompts `count` times in a session of the given server; each turn with its own time. */
export async function prompts(target, context, server, { prompt, script, count, session }) {
  const where = session ?? (await target.session(server.base, server.project))
  const body = target.body(prompt)
  await context.model.spans()
  const watched = await turns({
    address: server.address,
    events: await target.events(server.base, where),
    prompt: where.prompt,
    body,
    count,
    ...target.markers,
  })
  const spans = (await context.model.spans()).filter((span) => span.script === script)
  return watched.map((turn) => {
    const own = spans.filter((span) => span.startUs >= turn.sentUs && span.startUs <= turn.terminalUs)
    if (own.length === 0) throw new Error(`${target.name}: no call of the model in turn ${turn.turn}`)
    const wallMs = (turn.terminalUs - turn.sentUs) / 1000
    // The model may note its end after the server has ended the turn: its share is what lies within the turn.
    const modelUs = own.map((span) => Math.min(span.endUs, turn.terminalUs) - span.startUs)
    return { ...turn, spans: own, wallMs, modelMs: sum(modelUs) / 1000 }
  })
}

/** Start to the first answer, memory at rest, and what became of requests that came too early. */
export async function start(target, context) {
  const startMs = []
  let idleKb = 0
  for (let round = 0; round < target.rounds.starts; round++) {
    const server = await openReady(target, context)
    startMs.push(server.startMs)
    if (round + 1 < target.rounds.starts) {
      await stop(server.child)
      continue
    }
    await pause(5_000)
    idleKb = memory(server.child.pid).nowKb
    await stop(server.child)
  }
  let unanswered = 0
  let sent = 0
  for (let round = 0; round < target.rounds.early; round++) {
    const early = await startedUpon(target, context)
    unanswered += early.filter((result) => result.what === 'unanswered').length
    sent += early.length
  }
  return { startMs: median(startMs), idleMb: idleKb / 1024, unanswered, sent }
}

/** Requests from the moment of the start until half a second after the first answer. */
async function startedUpon(target, context) {
  const server = await open(target, context)
  const pending = []
  let answered = Number.POSITIVE_INFINITY
  const until = performance.now() + 60_000
  while (performance.now() < Math.min(answered + 500, until)) {
    const result = probe(server.port, target.health, PROBE_LIMIT_MS)
    result.then(({ status }) => {
      if (status === 200) answered = Math.min(answered, performance.now())
    })
    pending.push(result)
    await pause(PROBE_EVERY_MS)
  }
  const results = await Promise.all(pending)
  await stop(server.child)
  return results
}

/** Sessions created, alone and over sixteen connections. */
export async function sessions(target, context) {
  const server = await openReady(target, context)
  const where = { address: server.address, ...target.create }
  await create({ ...where, connections: 1, count: 50 })
  const alone = await create({ ...where, connections: 1, count: target.rounds.createAlone })
  const together = await create({ ...where, connections: 16, warm: 32, count: target.rounds.createTogether })
  await stop(server.child)
  return {
    perSecond: together.perSecond,
    togetherP99Ms: together.p99Us / 1000,
    aloneP50Ms: alone.p50Us / 1000,
    aloneP99Ms: alone.p99Us / 1000,
  }
}

/** Turns without a tool. */
export async function turn(target, context) {
  const server = await openReady(target, context)
  const session = await target.session(server.base, server.project)
  const script = 'turn'
  const prompt = 'bench-turn={n} say five words'
  await prompts(target, context, server, { prompt, script, session, count: 5 })
  const before = cpuMs(server.child.pid)
  const seen = await prompts(target, context, server, { prompt, script, session, count: target.rounds.turns })
  const cpu = (cpuMs(server.child.pid) - before) / seen.length
  await stop(server.child)
  const own = seen.map((one) => one.wallMs - one.modelMs)
  return {
    medianMs: median(own),
    p99Ms: percentile(own, 0.99),
    cpuMs: cpu,
    modelMs: median(seen.map((one) => one.modelMs)),
  }
}

/** Turns of ten tool calls, one after another. */
export async function tools(target, context) {
  const server = await openReady(target, context)
  const script = 'tools'
  const prompt = `bench-tools={n} bench-dir=${server.project} work on the note`
  const one = { prompt, script }
  // The files of one pass are still there in the next; each pass has a directory of notes by its own numbers.
  await prompts(target, context, server, { ...one, prompt: prompt.replace('{n}', 'warm-{n}'), count: 1 })
  const before = cpuMs(server.child.pid)
  const seen = await prompts(target, context, server, { ...one, count: target.rounds.toolTurns })
  const cpu = (cpuMs(server.child.pid) - before) / seen.length
  await stop(server.child)
  const results = seen.map((turn) => {
    const each = target.tools(turn.kept)
    if (each.length !== 10) throw new Error(`${target.name}: ${each.length} of 10 tool calls succeeded`)
    return { toolsMs: sum(each), ownMs: turn.wallMs - turn.modelMs - sum(each), wallMs: turn.wallMs }
  })
  const middle = (name) => median(results.map((result) => result[name]))
  return { ownMs: middle('ownMs'), toolsMs: middle('toolsMs'), wallMs: middle('wallMs'), cpuMs: cpu }
}

/** A model that floods: ten thousand deltas through the log to one client. */
export async function deltas(target, context) {
  const server = await openReady(target, context)
  await prompts(target, context, server, { prompt: 'bench-turn=0 warm', script: 'turn', count: 3 })
  const results = []
  for (let round = 0; round < target.rounds.floods; round++) {
    resetPeak(server.child.pid)
    const before = memory(server.child.pid).nowKb
    const flood = { prompt: `bench-deltas=${DELTAS} go`, script: 'deltas', count: 1 }
    const [seen] = await prompts(target, context, server, flood)
    if (seen.deltas < DELTAS) throw new Error(`${target.name}: ${seen.deltas} of ${DELTAS} deltas arrived`)
    const begin = seen.spans[0].firstUs
    results.push({
      perSecond: (seen.deltas / (seen.lastDeltaUs - begin)) * 1e6,
      firstMs: (seen.firstDeltaUs - begin) / 1000,
      growthMb: (memory(server.child.pid).peakKb - before) / 1024,
      bytes: seen.bytes / seen.deltas,
      modelMs: seen.modelMs,
    })
  }
  await stop(server.child)
  const middle = (name) => median(results.map((result) => result[name]))
  return {
    perSecond: middle('perSecond'),
    firstMs: middle('firstMs'),
    growthMb: Math.max(...results.map((result) => result.growthMb)),
    bytesEach: middle('bytes'),
    modelMs: middle('modelMs'),
  }
}

/** Turns that write a file and edit it ten times: what recording them costs shows beside a server that does not. */
export async function record(target, context) {
  const server = await openReady(target, context)
  const script = 'edits'
  const prompt = `bench-edits={n} bench-dir=${server.project} work on the note`
  await prompts(target, context, server, { prompt: prompt.replace('{n}', 'warm-{n}'), script, count: 1 })
  const before = cpuMs(server.child.pid)
  const seen = await prompts(target, context, server, { prompt, script, count: target.rounds.toolTurns })
  const cpu = (cpuMs(server.child.pid) - before) / seen.length
  await stop(server.child)
  for (const turn of seen) {
    const calls = target.tools(turn.kept).length
    if (calls !== 11) throw new Error(`${target.name}: ${calls} of 11 tool calls succeeded`)
  }
  return { ownMs: median(seen.map((turn) => turn.wallMs - turn.modelMs)), cpuMs: cpu }
}

/** Forks of a session of ten thousand items, at its end and in its middle, and what each adds to the database. */
export async function fork(target, context) {
  const first = await openReady(target, context)
  const session = await target.session(first.base, first.project)
  const script = 'turn'
  const prompt = 'bench-turn={n} say five words'
  await prompts(target, context, first, { prompt, script, session, count: FORKED_ITEMS / 2 })
  await stop(first.child)
  const [end, middle] = [(last) => last, (last) => Math.floor(last / 2)]
  const figures = {}
  for (const [name, where] of Object.entries({ end, middle })) {
    const before = databaseBytes(target, first.home)
    const server = await openReady(target, context, first.home)
    const at = where(await target.last(server.base, session))
    const each = []
    for (let round = 0; round < target.rounds.forks; round++) {
      const begin = performance.now()
      await target.fork(server.base, session, at)
      each.push(performance.now() - begin)
    }
    await stop(server.child)
    figures[`${name}Ms`] = median(each)
    figures[`${name}Kb`] = (databaseBytes(target, first.home) - before) / 1000 / target.rounds.forks
    figures.parentKb ??= before / 1000
  }
  return figures
}

/** What a database has grown by, against what it holds. */
export async function database(target, context) {
  const first = await openReady(target, context)
  await stop(first.child)
  const fresh = databaseBytes(target, first.home)
  const server = await openReady(target, context, first.home)
  const words = await target.session(server.base, server.project)
  const output = await target.session(server.base, server.project)
  await prompts(target, context, server, {
    prompt: 'bench-turn={n} say five words',
    script: 'turn',
    count: 20,
    session: words,
  })
  await prompts(target, context, server, {
    prompt: 'bench-output={n} print',
    script: 'output',
    count: 1,
    session: output,
  })
  const content = (await target.content(server.base, words)) + (await target.content(server.base, output))
  await stop(server.child)
  const whole = databaseBytes(target, first.home)
  return {
    contentKb: content / 1000,
    grownKb: (whole - fresh) / 1000,
    wholeKb: whole / 1000,
    ratio: (whole - fresh) / content,
    wholeRatio: whole / content,
  }
}

/** Bytes of the database files, the write-ahead log put into the database first. */
function databaseBytes(target, home) {
  const directory = target.data(home)
  const files = () =>
    readdirSync(directory)
      .filter((name) => target.isDatabase(name))
      .map((name) => join(directory, name))
  const main = files().filter((name) => !/-(wal|shm)$/.test(name))
  if (main.length === 0) throw new Error(`${target.name}: no database in ${directory}`)
  if (files().some((name) => name.endsWith('-wal') && statSync(name).size > 0)) {
    const script =
      'import sqlite3,sys\nfor f in sys.argv[1:]: sqlite3.connect(f).execute("pragma wal_checkpoint(truncate)")'
    execFileSync('python3', ['-c', script, ...main])
  }
  return sum(
    files()
      .filter((name) => !name.endsWith('-shm'))
      .map((name) => statSync(name).size),
  )
}
