/**
 * The benchmarks: our server and `opencode serve` on the same scripted model, in the same run, on this machine.
 *
 *   node benches/run.mjs [--only NAME,NAME] [--without-opencode] [--json FILE] [--markdown FILE]
 *                        [--opencode-cache DIR] [--keep]
 *
 * NAME is one of the groups below. Everything stays on loopback; only the installation of opencode, once, asks the
 * npm registry. docs/benchmarks.md says what each row means.
 */

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, getPriority, homedir, loadavg, release, tmpdir, totalmem } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { addonAbsent, call, load } from './lib/addon.mjs'
import { buildClients, startModel, top } from './lib/clients.mjs'
import { accepted, clients, git, idle, long, replay, together } from './lib/crowds.mjs'
import { number, ratio } from './lib/figures.mjs'
import { database, deltas, fork, record, sessions, start, tools, turn } from './lib/groups.mjs'
import { installOpencode, opencode } from './lib/opencode.mjs'
import { stopAll } from './lib/process.mjs'
import { simse } from './lib/simse.mjs'

const binary = join(top, 'target', 'release', 'simse')

const SERVER_GROUPS = {
  start,
  sessions,
  turn,
  tools,
  record,
  deltas,
  database,
  fork,
  accepted,
  clients,
  replay,
  idle,
  together,
  long,
}
/** Those that are about what ours alone does, or that would take the other one hours. */
const OURS_ALONE = new Set(['fork', 'replay', 'together', 'long'])
const NODE_GROUPS = { call, import: load }
/** Those that print a table of their own: other contestants, other columns. */
const OWN_TABLES = Object.fromEntries(
  ['search', 'edit', 'bash', 'loop', 'bus', 'mcp', 'peers', 'parse', 'tokens'].map((name) => [
    name,
    join(top, 'benches', 'tools', `${name}.mjs`),
  ]),
)

/** Group, figure, what it is, unit, aim, whether more is better. */
const ROWS = [
  ['start', 'startMs', 'start to the first answered `/health`', 'ms', '≤ 50'],
  ['start', 'idleMb', 'memory at rest, 5 s after the start', 'MB', '≤ 20'],
  ['start', 'unanswered', 'requests accepted and never answered while starting', '', '0'],
  ['sessions', 'perSecond', '`POST /sessions`, 16 connections', 'a second', '≥ 5,000', true],
  ['sessions', 'aloneP99Ms', '`POST /sessions` alone, p99', 'ms', '≤ 2'],
  ['turn', 'medianMs', 'a turn without tools, the server’s own time, median', 'ms', '≤ 3'],
  ['turn', 'p99Ms', 'the same, p99', 'ms', ''],
  ['turn', 'cpuMs', 'the same, processor time of the server a turn', 'ms', ''],
  ['tools', 'ownMs', 'a turn of ten tool calls, beyond the model’s and the tools’ time, median', 'ms', '≤ 30'],
  ['tools', 'wallMs', 'the same, whole time', 'ms', ''],
  ['record', 'ownMs', 'a turn of a write and ten edits, beyond the model’s time, median', 'ms', ''],
  ['record', 'cpuMs', 'the same, processor time of the server', 'ms', ''],
  ['record', 'commitMs', 'the alternative after such a turn: `git add --all` and `git commit`', 'ms', ''],
  ['record', 'stashMs', 'the same: `git add --all` and `git stash create`', 'ms', ''],
  ['deltas', 'perSecond', '10,000 deltas to one client', 'a second', '≥ 50,000', true],
  ['deltas', 'firstMs', 'the first of them, after the model’s first byte', 'ms', '≤ 2'],
  ['deltas', 'growthMb', 'the server’s memory meanwhile, at most', 'MB more', 'flat'],
  ['database', 'ratio', 'growth of the database against its content', '×', '≤ 2'],
  ['database', 'wholeRatio', 'the whole database against its content', '×', ''],
  ['fork', 'endMs', 'a fork of a session of 10,000 items at its end, median', 'ms', '≤ 10'],
  ['fork', 'endKb', 'what it adds to the database', 'kB', '≤ 4'],
  ['fork', 'middleMs', 'a fork of it in its middle, median', 'ms', ''],
  ['fork', 'middleKb', 'what that adds to the database', 'kB', ''],
  [
    'accepted',
    'perSecond',
    'prompts accepted, each with a turn of its own, 64 connections',
    'a second',
    '≥ 3,000',
    true,
  ],
  ['accepted', 'p99Ms', 'the same, p99 of one', 'ms', ''],
  ['accepted', 'turnsPerSecond', 'the same, until the last turn has ended', 'turns a second', '', true],
  ['accepted', 'cpuMs', 'the same, processor time of the server a turn', 'ms', ''],
  [
    'clients',
    'ms',
    '1,000 streams of one session, a turn of 1,000 deltas: until the last one has all of them',
    'ms',
    '≤ 2,000',
  ],
  ['clients', 'peakMb', 'the same, memory at most', 'MB', '≤ 100'],
  ['replay', 'endMs', 'a session of a million events, resumed ten before its end, first event', 'ms', '≤ 20'],
  ['replay', 'perSecond', 'the same from event 1 on', 'events a second', '≥ 300,000', true],
  ['replay', 'growthMb', 'the same, memory meanwhile, at most', 'MB more', 'flat'],
  ['idle', 'startMs', '100,000 sessions in the store: start to the first answered `/health`', 'ms', '≤ 100'],
  ['idle', 'restMb', 'the same, memory 5 s after that', 'MB', '≤ 60'],
  ['idle', 'pageMs', 'the same, a page of the list of sessions, median of 200', 'ms', '≤ 10'],
  ['idle', 'pageP99Ms', 'the same, p99', 'ms', ''],
  ['idle', 'afterMb', 'the same, memory behind them', 'MB', ''],
  [
    'together',
    'p99Ms',
    '2,000 turns at once, 20 deltas a second each: a delta’s way from the model to the client, p99',
    'ms',
    '≤ 50',
  ],
  ['together', 'p50Ms', 'the same, median', 'ms', ''],
  ['together', 'peakMb', 'the same, memory at most', 'MB', '≤ 1,000'],
  ['together', 'cpuUs', 'the same, processor time of the server a delta', 'µs', ''],
  [
    'long',
    'ratio',
    'turns 9,801 to 10,000 of a session against turns 6 to 205, the server’s own time, median',
    '×',
    '≤ 1.5',
  ],
  ['long', 'firstMs', 'the same, the first ones', 'ms', ''],
  ['long', 'lastMs', 'the same, the last ones', 'ms', ''],
  ['call', 'executeUs', '`registry.execute` of a native tool that does nothing, from JavaScript', 'µs', '≤ 20'],
  ['import', 'medianMs', '`import ’simse’`', 'ms', '≤ 30'],
]

/** How often each thing is done: enough for a median, and bounded. */
const OUR_ROUNDS = {
  starts: 15,
  early: 3,
  createAlone: 2_000,
  createTogether: 20_000,
  turns: 200,
  toolTurns: 10,
  floods: 5,
  forks: 20,
  prompts: 20_000,
  crowd: 1_000,
  crowds: 3,
  events: 1_000_000,
  idle: 100_000,
  together: 2_000,
  longTurns: 10_000,
}
const THEIR_ROUNDS = {
  starts: 3,
  early: 1,
  createAlone: 200,
  createTogether: 600,
  turns: 30,
  toolTurns: 5,
  floods: 3,
  prompts: 128,
  crowd: 1_000,
  crowds: 1,
  idle: 2_000,
}

function options() {
  const { values } = parseArgs({
    options: {
      only: { type: 'string' },
      'without-opencode': { type: 'boolean', default: false },
      json: { type: 'string' },
      markdown: { type: 'string' },
      'opencode-cache': { type: 'string', default: join(homedir(), '.cache', 'simse-bench') },
      keep: { type: 'boolean', default: false },
    },
  })
  const names = [SERVER_GROUPS, NODE_GROUPS, OWN_TABLES].flatMap(Object.keys)
  const only = values.only === undefined ? names : values.only.split(',')
  const unknown = only.find((name) => !names.includes(name))
  if (unknown !== undefined) throw new Error(`--only: \`${unknown}\` is none of ${names.join(', ')}`)
  return { ...values, only }
}

function say(text) {
  process.stderr.write(`bench: ${text}\n`)
}

/** The servers that are measured, and what cannot be, with why. */
function targets(settings, skipped) {
  const ours = { ...simse(binary), rounds: OUR_ROUNDS }
  const list = []
  const unrecorded = { ...simse(binary, { record: false }), groups: ['record'], rounds: OUR_ROUNDS }
  if (ours.absent === undefined) list.push(ours, unrecorded)
  else skipped.push(`simse: ${ours.absent}`)
  if (settings['without-opencode']) {
    skipped.push('opencode: left out by --without-opencode')
    return list
  }
  try {
    const installed = installOpencode(settings['opencode-cache'])
    const theirs = opencode(installed, { snapshot: true })
    const bare = {
      ...opencode(installed, { snapshot: false }),
      name: 'opencode-bare',
      groups: ['turn', 'tools', 'record'],
    }
    list.push({ ...theirs, rounds: THEIR_ROUNDS }, { ...bare, rounds: THEIR_ROUNDS })
  } catch (problem) {
    skipped.push(`opencode: ${problem.message}`)
  }
  return list
}

/** Runs one group; a failure is said and leaves its rows empty. */
async function attempt(name, group, work, figures, skipped) {
  say(`${group} of ${name}`)
  const begin = performance.now()
  try {
    figures[name] ??= {}
    figures[name][group] = await work()
    say(`  ${JSON.stringify(figures[name][group])} in ${((performance.now() - begin) / 1000).toFixed(1)} s`)
  } catch (problem) {
    skipped.push(`${group} of ${name}: ${problem.message}`)
    say(`  failed: ${problem.message}`)
    await stopAll()
  }
}

/** The servers that a group is measured on. */
function contestants(group, settings) {
  return settings.targets.filter((target) => {
    if (target.groups && !target.groups.includes(group)) return false
    return !OURS_ALONE.has(group) || target.name === 'simse'
  })
}

async function measure(settings, figures, skipped) {
  const directory = mkdtempSync(join(tmpdir(), 'simse-bench-'))
  let count = 0
  const context = { directory, next: () => ++count, model: undefined }
  try {
    for (const [group, work] of Object.entries(SERVER_GROUPS)) {
      if (!settings.only.includes(group)) continue
      for (const target of contestants(group, settings)) {
        context.model = await startModel(directory)
        await attempt(target.name, group, () => work(target, context), figures, skipped)
        await stopAll()
      }
      if (group === 'record') await attempt('git', group, () => git(context), figures, skipped)
    }
    for (const [group, work] of Object.entries(NODE_GROUPS)) {
      if (!settings.only.includes(group)) continue
      const absent = addonAbsent()
      if (absent === undefined) await attempt('simse', group, work, figures, skipped)
      else skipped.push(`${group}: ${absent}`)
    }
  } finally {
    await stopAll()
    if (!settings.keep) rmSync(directory, { recursive: true, force: true })
    else say(`kept ${directory}`)
  }
}

function table(figures) {
  const value = (name, group, key) => figures[name]?.[group]?.[key]
  const shown = (amount, unit) => (amount === undefined ? '–' : `${number(amount)} ${unit}`.trim())
  const lines = ['| what | aim | simse | opencode | ratio |', '|---|---|---|---|---|']
  for (const [group, key, what, unit, aim, more] of ROWS) {
    const [ours, theirs] = [value('simse', group, key), value('opencode', group, key)]
    const git = value('git', group, key)
    if (git !== undefined) lines.push(`| ${what} | | git: ${shown(git, unit)} | | |`)
    if (ours === undefined && theirs === undefined) continue
    const without = (name) => {
      const bare = value(name, group, key)
      return bare === undefined ? '' : ` (snapshots off: ${number(bare)})`
    }
    const goal = aim === '' ? '' : `${aim} ${unit}`.trim()
    lines.push(
      `| ${what} | ${goal} | ${shown(ours, unit)}${without('simse-bare')} | ${shown(theirs, unit)}${without('opencode-bare')} | ${ratio(ours, theirs, more)} |`,
    )
  }
  return lines.join('\n')
}

function machine() {
  const model = cpus()[0]?.model.trim() ?? 'unknown processor'
  return `${cpus().length} × ${model}, ${Math.round(totalmem() / 2 ** 30)} GB, Linux ${release()}, Node ${process.versions.node}`
}

/** On a busy machine `nice -n -15` helps all servers of the run alike; then it is said. */
function priority() {
  return getPriority() === 0 ? '' : `, all at priority ${getPriority()}`
}

/** Builds the release binary and addon where one that is measured is missing. What still is missing is said with its rows. */
function buildOurs(only) {
  const serves = only.some((name) => name in SERVER_GROUPS)
  const loads = only.some((name) => !(name in SERVER_GROUPS))
  const build = (...flags) => {
    say(`a release build is missing: npm run build ${flags.join(' ')}`)
    spawnSync('npm', ['run', 'build', ...flags], { cwd: top, stdio: ['ignore', process.stderr, process.stderr] })
  }
  if (serves && simse(binary).absent !== undefined) build('--', '--standalone')
  if (loads && addonAbsent() !== undefined) build()
}

async function main() {
  if (process.platform !== 'linux') throw new Error('the benchmarks read /proc and run on Linux alone')
  const settings = options()
  const begin = performance.now()
  const skipped = []
  const figures = {}
  const load = { before: loadavg()[0], after: 0 }
  buildOurs(settings.only)
  buildClients()
  settings.targets = targets(settings, skipped)
  await measure(settings, figures, skipped)
  load.after = loadavg()[0]
  const version = JSON.parse(readFileSync(join(top, 'package.json'), 'utf8')).version
  const peer = settings.targets.find((target) => target.name === 'opencode')?.version
  const about = [
    `${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC, ${machine()}`,
    `load ${load.before.toFixed(1)} before and ${load.after.toFixed(1)} after${priority()}`,
    `simse ${version}${peer ? `, opencode ${peer}` : ''}; ${((performance.now() - begin) / 1000).toFixed(0)} s`,
  ]
  let text = `${about.join('\n\n')}\n\n${table(figures)}\n${skipped.map((why) => `\nNot measured: ${why}`).join('')}\n`
  process.stdout.write(text)
  for (const [name, script] of Object.entries(OWN_TABLES)) {
    if (!settings.only.includes(name)) continue
    say(name)
    const { status, stdout } = spawnSync(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] })
    process.stdout.write(stdout)
    text += `\n## ${name}\n\n${stdout}`
    if (status === 0) continue
    skipped.push(`${name}: ended with ${status}`)
    process.stdout.write(`\nNot measured: ${skipped.at(-1)}\n`)
  }
  if (settings.markdown) writeFileSync(settings.markdown, text)
  if (settings.json) writeFileSync(settings.json, `${JSON.stringify({ about, figures, skipped }, null, 2)}\n`)
  process.exitCode = skipped.length === 0 || settings['without-opencode'] ? 0 : 1
}

await main()
