/**
 * `npm run fuzz`: builds the fuzz targets in fuzz/ and runs them, each for a while, two side by side.
 *
 *     npm run fuzz                              every target, 60 seconds each
 *     npm run fuzz -- edit path                 these
 *     npm run fuzz -- --seconds 600 --jobs 1    for longer, one after the other
 *     npm run fuzz -- edit --input FILE         once, with this input: what a finding does
 *     npm run fuzz -- --seed 1                  the same inputs each time, in a minute at most what two processors of 2026 get
 *                                               through: for judging a change, which no faster machine must judge otherwise
 *
 * Needs stable Rust and a C++ compiler (libFuzzer is C++); `cargo fuzz run edit` does the same for who has cargo-fuzz. What
 * is found new is kept beside the build and begun with next time; what breaks a property is written to fuzz/artifacts, and
 * belongs into fuzz/corpus once it is mended, where `cargo test` replays it. Exit code: 0 when all hold, 1 when a property
 * broke, 2 when the machine lacks something.
 */

import { spawn } from 'node:child_process'
import { createWriteStream, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { answers, EXIT_MISSING, missing, needNode, needRust, run, say, top } from './tools.mjs'

const folder = join(top, 'fuzz')

/** What one input may take, in seconds and megabytes. Beyond that it is a finding. */
const TIMEOUT_S = 30
const MEMORY_MB = 1024

/** Longest inputs, in bytes, where the default of 4,096 is not right. */
const BYTES_MAX = {
  agents: 1024,
  answers: 2048,
  command: 1024,
  compose: 128,
  path: 512,
  servers: 1024,
  glob: 512,
  sse: 512,
  wire: 1024,
}

/** Inputs a minute, at most, when the same are wanted each time. */
const SEEDED_A_MINUTE = {
  agents: 2_000_000,
  answers: 180_000,
  command: 50_000,
  commands: 1_800_000,
  compose: 20_000,
  edit: 400_000,
  glob: 90_000,
  patch: 240_000,
  path: 150_000,
  servers: 2_000_000,
  settings: 240_000,
  sse: 3_000_000,
  transfer: 600_000,
  wire: 3_600_000,
}

/** Coverage as libFuzzer wants it, and comparisons told; `cfg(fuzzing)` as cargo-fuzz sets it. */
const FLAGS = [
  '--cfg=fuzzing',
  '-Cpasses=sancov-module',
  '-Cllvm-args=-sanitizer-coverage-level=4',
  '-Cllvm-args=-sanitizer-coverage-inline-8bit-counters',
  '-Cllvm-args=-sanitizer-coverage-pc-table',
  '-Cllvm-args=-sanitizer-coverage-trace-compares',
]

needNode()
needRust()
if (!answers('c++', ['--version'])) {
  missing('no C++ compiler was found (c++)', 'Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++.')
}
const wanted = parse(process.argv.slice(2))
const target = process.env.CARGO_TARGET_DIR ? join(process.env.CARGO_TARGET_DIR, 'fuzz') : join(folder, 'target')
const host = answers('rustc', ['--print', 'host-tuple'])
process.exitCode = await main()

async function main() {
  const begun = Date.now()
  const bins = wanted.targets.flatMap((name) => ['--bin', name])
  const build = ['build', '--release', '--locked', '--target', host, '--target-dir', target, ...bins]
  // A target of its own: what runs while building (macros, build scripts) is built without coverage.
  const built = await run('cargo', [...build, '--manifest-path', join(folder, 'Cargo.toml')], {
    env: { RUSTFLAGS: FLAGS.join(' ') },
  })
  if (built !== 0) return 1
  say(`built in ${seconds(begun)}`)
  if (wanted.input) return run(program(wanted.targets[0]), [wanted.input])
  const waiting = [...wanted.targets]
  const broken = []
  const worker = async () => {
    for (let name = waiting.shift(); name; name = waiting.shift()) if (!(await fuzz(name))) broken.push(name)
  }
  await Promise.all(Array.from({ length: wanted.jobs }, worker))
  say(`${wanted.targets.length - broken.length} targets hold, ${broken.length} broken (${seconds(begun)})`)
  return broken.length === 0 ? 0 : 1
}

/** Runs one target; its output goes to a file, and here when it fails. */
async function fuzz(name) {
  const begun = Date.now()
  // What was found before would make it other inputs.
  const grown = join(target, wanted.seed ? 'seeded' : 'corpus', name)
  if (wanted.seed) rmSync(grown, { recursive: true, force: true })
  const artifacts = join(folder, 'artifacts', name)
  const log = join(target, `${name}.log`)
  for (const place of [grown, artifacts]) mkdirSync(place, { recursive: true })
  const dictionary = join(folder, 'dictionaries', `${name}.dict`)
  const options = [
    `-max_total_time=${wanted.seconds}`,
    `-timeout=${TIMEOUT_S}`,
    `-rss_limit_mb=${MEMORY_MB}`,
    `-max_len=${BYTES_MAX[name] ?? 4096}`,
    `-artifact_prefix=${artifacts}/`,
    '-print_final_stats=1',
    ...(wanted.seed ? [`-seed=${wanted.seed}`, `-runs=${inputs(name)}`] : []),
    ...(existsSync(dictionary) ? [`-dict=${dictionary}`] : []),
  ]
  const code = await quietly(program(name), [grown, join(folder, 'corpus', name), ...options], log)
  const text = readFileSync(log, 'utf8')
  if (code === 0) {
    const runs = /number_of_executed_units: (\d+)/.exec(text)?.[1]
    say(`${name}: holds, ${runs} inputs in ${seconds(begun)}`)
    return true
  }
  process.stderr.write(text.split('\n').slice(-60).join('\n'))
  say(`${name}: BROKEN (exit code ${code}); the input is in ${artifacts}, all of its output in ${log}`)
  return false
}

/** How many inputs a run with a seed has, at most. */
function inputs(name) {
  return Math.ceil(((SEEDED_A_MINUTE[name] ?? 100_000) * wanted.seconds) / 60)
}

function program(name) {
  return join(target, host, 'release', name)
}

/** Runs a program with its output in a file. */
function quietly(path, args, log) {
  return new Promise((done) => {
    const out = createWriteStream(log)
    out.on('open', () => {
      const child = spawn(path, args, { cwd: top, stdio: ['ignore', out, out] })
      const relay = (signal) => child.kill(signal)
      for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, relay)
      child.on('error', () => done(127))
      child.on('close', (code) => done(code ?? 128))
    })
  })
}

function seconds(from) {
  return `${((Date.now() - from) / 1000).toFixed(0)} s`
}

/** The targets that there are, by their files. */
function known() {
  const files = readdirSync(join(folder, 'fuzz_targets'))
  return files.map((file) => file.replace(/\.rs$/, '')).sort()
}

function parse(args) {
  const options = { seconds: 60, jobs: 2, seed: undefined, input: undefined, targets: [] }
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at]
    if (arg === '--seconds' || arg === '--jobs' || arg === '--seed') {
      at += 1
      const number = Number(args[at])
      if (!Number.isInteger(number) || number < 1) refuse(`${arg}: expected a whole number, 1 or more, got ${args[at]}`)
      options[arg.slice(2)] = number
    } else if (arg === '--input') {
      at += 1
      options.input = resolve(process.env.INIT_CWD ?? process.cwd(), args[at] ?? '')
      if (!existsSync(options.input)) refuse(`--input: no file ${options.input}`)
    } else if (known().includes(arg)) {
      options.targets.push(arg)
    } else {
      refuse(`no target ${arg}; there are: ${known().join(', ')}`)
    }
  }
  if (options.input && options.targets.length !== 1) refuse('--input: name the one target that it is for')
  if (options.targets.length === 0) options.targets = known()
  return options
}

function refuse(text) {
  say(text)
  process.exit(EXIT_MISSING)
}
