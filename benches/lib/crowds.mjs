/**
 * What is measured with many at once: many prompts, many readers, many turns, many sessions, many events. Like the
 * groups of `groups.mjs`, each starts its own server and answers with plain figures.
 */

import { execFileSync } from 'node:child_process'
import { appendFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { create, crowd, many, resume } from './clients.mjs'
import { median, percentile } from './figures.mjs'
import { cpuMs, makeProject, openReady, prompts } from './groups.mjs'
import { call, memory, resetPeak, stop } from './process.mjs'

/** Deltas of the turn that a crowd watches. */
const CROWD_DELTAS = 1_000
/** Events of one turn of the long log. */
const LONG_TURN = 10_000
/** How a delta is paced where many turns run: so many a second, for so many seconds. */
const PACED = { every: 50, seconds: 20 }
/** Turns at the begin and the end of a long session that are compared. */
const COMPARED_TURNS = 200

const mb = (kb) => kb / 1024

/** So many sessions, made a few at a time. */
async function makeSessions(target, server, count) {
  const made = []
  while (made.length < count) {
    const next = Array.from({ length: Math.min(16, count - made.length) }, () =>
      target.session(server.base, server.project),
    )
    made.push(...(await Promise.all(next)))
  }
  return made
}

/** Prompts over 64 connections, each in a session of its own, with all that becomes of them. */
export async function accepted(target, context) {
  const server = await openReady(target, context)
  const sessions = await makeSessions(target, server, 64)
  const path = sessions.map((session) => session.prompt).join(',')
  const where = { address: server.address, path, connections: 64, body: target.body('bench-turn=1 say five words') }
  await create({ ...where, count: 128 })
  await allAtRest(target, server, sessions)
  await context.model.spans()
  const before = cpuMs(server.child.pid)
  const begin = performance.now()
  const posted = await create({ ...where, count: target.rounds.prompts })
  await allAtRest(target, server, sessions)
  const seconds = (performance.now() - begin) / 1000
  const answered = (await context.model.spans()).filter((span) => span.script === 'turn').length
  const cpu = (cpuMs(server.child.pid) - before) / posted.count
  await stop(server.child)
  if (answered < Math.min(posted.count, 10_000)) throw new Error(`${answered} of ${posted.count} turns ran`)
  return {
    perSecond: posted.perSecond,
    p99Ms: posted.p99Us / 1000,
    turnsPerSecond: posted.count / seconds,
    cpuMs: cpu,
  }
}

/** Waits until no session has a turn that runs or waits. */
async function allAtRest(target, server, sessions) {
  const until = performance.now() + 120_000
  for (const session of sessions) {
    while (!(await target.atRest(server.base, session))) {
      if (performance.now() > until) throw new Error(`${target.name}: turns did not end`)
      await pause(10)
    }
  }
}

/** A thousand clients on one session. */
export async function clients(target, context) {
  const server = await openReady(target, context)
  const session = await target.session(server.base, server.project)
  await prompts(target, context, server, { prompt: 'bench-turn=0 warm', script: 'turn', count: 2, session })
  const results = []
  for (let round = 0; round < target.rounds.crowds; round++) {
    resetPeak(server.child.pid)
    const seen = await crowd({
      address: server.address,
      events: await target.events(server.base, session),
      prompt: session.prompt,
      body: target.body(`${target.unjoined}=${CROWD_DELTAS} go`),
      clients: target.rounds.crowd,
      terminal: target.markers.terminal,
      delta: target.markers.delta,
    })
    if (seen.over < seen.clients || seen.deltasMin < CROWD_DELTAS || seen.deltasMax > CROWD_DELTAS || seen.astray > 0)
      throw new Error(`${target.name}: not all of them saw all of it in order: ${JSON.stringify(seen)}`)
    results.push({ ms: (seen.lastUs - seen.sentUs) / 1000, peakMb: mb(memory(server.child.pid).peakKb) })
  }
  await stop(server.child)
  return { ms: median(results.map((one) => one.ms)), peakMb: Math.max(...results.map((one) => one.peakMb)) }
}

/** A session of a million events, read at its end and from its first event on, by a server that was just started. */
export async function replay(target, context) {
  const first = await openReady(target, context)
  const session = await target.session(first.base, first.project)
  for (let left = target.rounds.events; left > 0; left -= LONG_TURN) {
    // A text and a thought each.
    const prompt = `bench-mixed=${LONG_TURN / 2} go`
    await prompts(target, context, first, { prompt, script: 'mixed', count: 1, session })
  }
  const last = await target.last(first.base, session)
  await stop(first.child)
  const path = (after) => `/sessions/${session.id}/events?after=${after}`
  const ends = []
  let server
  for (let round = 0; round < 5; round++) {
    if (server) await stop(server.child)
    server = await openReady(target, context, first.home)
    const seen = await resume({ address: server.address, events: path(last - 10), until: last })
    if (seen.events !== 10) throw new Error(`${seen.events} events behind a cursor before the last ten`)
    ends.push(seen.firstMs)
  }
  const awake = (await resume({ address: server.address, events: path(last - 10), until: last })).firstMs
  resetPeak(server.child.pid)
  const before = memory(server.child.pid).nowKb
  const cpu = cpuMs(server.child.pid)
  const seen = await resume({ address: server.address, events: path(0), until: last })
  const figures = {
    events: seen.events,
    endMs: median(ends),
    awakeMs: awake,
    perSecond: seen.events / seen.seconds,
    cpuUs: ((cpuMs(server.child.pid) - cpu) * 1000) / seen.events,
    growthMb: mb(memory(server.child.pid).peakKb - before),
  }
  await stop(server.child)
  if (seen.events !== last || seen.astray > 0) throw new Error(`not every event in order: ${JSON.stringify(seen)}`)
  return figures
}

/** A store full of sessions that nobody uses. */
export async function idle(target, context) {
  const first = await openReady(target, context)
  const count = target.rounds.idle
  await create({ address: first.address, ...target.create, connections: 16, count })
  await stop(first.child)
  const starts = []
  let server
  for (let round = 0; round < 5; round++) {
    if (server) await stop(server.child)
    server = await openReady(target, context, first.home)
    starts.push(server.startMs)
  }
  await pause(5_000)
  const rest = mb(memory(server.child.pid).nowKb)
  const pages = []
  let cursor
  for (let page = 0; page < 200; page++) {
    const begin = performance.now()
    const { json } = await call(server.base, 'GET', target.page(cursor))
    pages.push(performance.now() - begin)
    cursor = target.nextPage(json)
  }
  const after = mb(memory(server.child.pid).nowKb)
  await stop(server.child)
  return {
    sessions: count,
    startMs: median(starts),
    restMb: rest,
    afterMb: after,
    pageMs: median(pages),
    pageP99Ms: percentile(pages, 0.99),
  }
}

/** Turns that run at once, each of them streaming. */
export async function together(target, context) {
  const server = await openReady(target, context)
  const sessions = await makeSessions(target, server, target.rounds.together)
  const list = join(server.home, 'sessions.txt')
  writeFileSync(list, '')
  for (const session of sessions)
    appendFileSync(list, `${await target.events(server.base, session)} ${session.prompt}\n`)
  await context.model.spans()
  resetPeak(server.child.pid)
  const before = cpuMs(server.child.pid)
  const texts = (PACED.seconds * 1000) / PACED.every
  const seen = await many({
    address: server.address,
    list,
    body: target.body(`bench-paced=${texts} bench-every=${PACED.every} go`),
    terminal: target.markers.terminal,
    delta: target.markers.delta,
  })
  const paces = (await context.model.spans()).filter((span) => span.script === 'paced')
  const pace = median(paces.map((span) => (span.endUs - span.firstUs) / 1000 / (texts - 1)))
  const figures = {
    turns: seen.turns,
    everyMs: pace,
    p50Ms: seen.p50Us / 1000,
    p99Ms: seen.p99Us / 1000,
    p999Ms: seen.p999Us / 1000,
    maxMs: seen.maxUs / 1000,
    peakMb: mb(memory(server.child.pid).peakKb),
    cpuUs: ((cpuMs(server.child.pid) - before) * 1000) / seen.deltas,
  }
  await stop(server.child)
  if (seen.over < seen.turns || seen.deltas !== seen.turns * texts || seen.astray > 0)
    throw new Error(`not all deltas came in order: ${JSON.stringify(seen)}`)
  // Those of turns that begin late or end early would be deltas of few turns.
  if (seen.counted < seen.deltas / 4)
    throw new Error(
      `the turns did not run together: ${seen.counted} of ${seen.deltas} deltas came while all of them ran`,
    )
  if (pace > PACED.every * 1.1) throw new Error(`the model wrote a delta every ${pace} ms instead of ${PACED.every}`)
  return figures
}

/** Ten thousand turns in one session: what the first ones and the last ones take. */
export async function long(target, context) {
  const server = await openReady(target, context)
  const session = await target.session(server.base, server.project)
  const one = { prompt: 'bench-turn={n} say five words', script: 'turn', session }
  const part = async (count) => {
    const before = cpuMs(server.child.pid)
    const seen = await prompts(target, context, server, { ...one, count })
    const own = seen.map((turn) => turn.wallMs - turn.modelMs)
    return { own: median(own), cpu: (cpuMs(server.child.pid) - before) / count }
  }
  await part(5)
  const first = await part(COMPARED_TURNS)
  await part(target.rounds.longTurns - 2 * COMPARED_TURNS - 5)
  const last = await part(COMPARED_TURNS)
  const rest = mb(memory(server.child.pid).nowKb)
  await stop(server.child)
  return {
    firstMs: first.own,
    lastMs: last.own,
    ratio: last.own / first.own,
    firstCpuMs: first.cpu,
    lastCpuMs: last.cpu,
    restMb: rest,
  }
}

/** What git takes to keep the same: all of a turn's changes in a commit, and in a stash that leaves the files alone. */
export function git(context) {
  const directory = join(context.directory, `git-${context.next()}`)
  makeProject(directory)
  const run = (...args) =>
    execFileSync('git', ['-c', 'user.name=b', '-c', 'user.email=b@example.invalid', ...args], { cwd: directory })
  const [commits, stashes] = [[], []]
  for (let round = 0; round < 20; round++) {
    writeFileSync(join(directory, `note-${round}.txt`), `a note of turn ${round}\n`.repeat(40))
    const begin = performance.now()
    run('add', '--all')
    run('stash', 'create')
    const middle = performance.now()
    run('add', '--all')
    run('commit', '--quiet', '--message', `turn ${round}`)
    stashes.push(middle - begin)
    commits.push(performance.now() - middle)
  }
  return { commitMs: median(commits), stashMs: median(stashes) }
}
