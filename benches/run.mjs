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
import { number, ratio } from './lib/figures.mjs'
import { database, deltas, fork, record, sessions, start, tools, turn } from './lib/groups.mjs'
import { installOpencode, opencode } from './lib/opencode.mjs'
import { stopAll } from './lib/process.mjs'
import { simse } from './lib/simse.mjs'

const binary = join(top, 'js', 'bin', 'simse')

const SERVER_GROUPS = { start, sessions, turn, tools, record, deltas, database, fork }
/** Those that are about what ours alone does. */
const OURS_ALONE = new Set(['fork'])
const NODE_GROUPS = { call, import: load }
/** Those that print a table of their own: other contestants, other columns. */
const OWN_TABLES = Object.fromEntries(
  ['search', 'edit', 'bash', 'loop', 'bus'].map((name) => [name, join(top, 'benches', 'tools', `${name}.mjs`)]),
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
  ['deltas', 'perSecond', '10,000 deltas to one client', 'a second', '≥ 50,000', true],
  ['deltas', 'firstMs', 'the first of them, after the model’s first byte', 'ms', '≤ 2'],
  ['deltas', 'growthMb', 'the server’s memory meanwhile, at most', 'MB more', 'flat'],
  ['database', 'ratio', 'growth of the database against its content', '×', '≤ 2'],
  ['database', 'wholeRatio', 'the whole database against its content', '×', ''],
  ['fork', 'endMs', 'a fork of a session of 10,000 items at its end, median', 'ms', '≤ 10'],
  ['fork', 'endKb', 'what it adds to the database', 'kB', '≤ 4'],
  ['fork', 'middleMs', 'a fork of it in its middle, median', 'ms', ''],
  ['fork', 'middleKb', 'what that adds to the database', 'kB', ''],
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
}
const THEIR_ROUNDS = { starts: 3, early: 1, createAlone: 200, createTogether: 600, turns: 30, toolTurns: 5, floods: 3 }

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

async function measure(settings, figures, skipped) {
  const directory = mkdtempSync(join(tmpdir(), 'simse-bench-'))
  let count = 0
  const context = { directory, next: () => ++count, model: undefined }
  try {
    for (const [group, work] of Object.entries(SERVER_GROUPS)) {
      if (!settings.only.includes(group)) continue
      for (const target of settings.targets) {
        if (target.groups && !target.groups.includes(group)) continue
        if (OURS_ALONE.has(group) && target.name !== 'simse') continue
        context.model = await startModel(directory)
        await attempt(target.name, group, () => work(target, context), figures, skipped)
        await stopAll()
      }
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
  if ((!serves || simse(binary).absent === undefined) && addonAbsent() === undefined) return
  say('the release build is missing: npm run build')
  spawnSync('npm', ['run', 'build'], { cwd: top, stdio: ['ignore', process.stderr, process.stderr] })
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
