/**
 * What the npm scripts share: checks that explain what is missing, and running other programs.
 *
 * Plain Node without dependencies, and in a syntax that old versions of Node can parse, so that the
 * check for an old Node is the first thing that happens and not a syntax error.
 */

import { spawn, spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, readFileSync, renameSync, statSync, unlinkSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'

/** The folder of the checkout. */
export const top = dirname(dirname(fileURLToPath(import.meta.url)))

/** Oldest Node that works. */
export const NODE_MAJOR_MIN = 20

/** Exit code when the machine lacks something. */
export const EXIT_MISSING = 2

/** Says one line about what happens, on stderr. */
export function say(text) {
  process.stderr.write(`simse: ${text}\n`)
}

/** Ends the program because something is missing: what, and how to get it. */
export function missing(what, remedy) {
  process.stderr.write(`simse: ${what}\n       ${remedy}\n`)
  process.exit(EXIT_MISSING)
}

/** What is wrong with this version of Node, or nothing. */
export function nodeFault(version) {
  const major = Number.parseInt(version, 10)
  if (major >= NODE_MAJOR_MIN) return undefined
  return `this is Node ${version}, and simse needs Node ${NODE_MAJOR_MIN} or newer`
}

/** What is wrong with this version of Rust (`rustc 1.95.0 (…)`), or nothing. */
export function rustFault(line, minimum) {
  const found = /(\d+)\.(\d+)/.exec(line)
  if (!found) return 'rustc does not say which version it is'
  const [major, minor] = minimum.split('.').map(Number)
  const ok = Number(found[1]) > major || (Number(found[1]) === major && Number(found[2]) >= minor)
  return ok ? undefined : `this is Rust ${found[0]}, and simse needs Rust ${minimum} or newer`
}

/** Ends the program with an explanation on an old Node. */
export function needNode() {
  const fault = nodeFault(process.versions.node)
  if (fault) missing(fault, 'Get a current one from https://nodejs.org or your package manager, then try again.')
}

/** Ends the program with an explanation when Rust or a C compiler is missing; else puts cargo on the PATH. */
export function needRust() {
  const own = join(process.env.CARGO_HOME || join(homedir(), '.cargo'), 'bin')
  if (!answers('cargo', ['--version']) && existsSync(join(own, 'cargo'))) {
    process.env.PATH = own + delimiter + process.env.PATH
  }
  const cargo = answers('cargo', ['--version'])
  if (!cargo) {
    missing(
      'cargo was not found: simse is built from Rust sources',
      'Install Rust from https://rustup.rs (one command, no root needed), open a new terminal, then try again.',
    )
  }
  const minimum = /^rust-version = "([^"]+)"/m.exec(readFileSync(join(top, 'Cargo.toml'), 'utf8'))[1]
  const fault = rustFault(answers('rustc', ['--version']) || '', minimum)
  if (fault) missing(fault, 'Run `rustup update stable`, then try again.')
  if (!answers('cc', ['--version'])) {
    missing(
      'no C compiler was found (cc): Rust links with it, and SQLite is compiled by it',
      'Install one (Debian, Ubuntu: apt install build-essential; Fedora: dnf install gcc; macOS: xcode-select --install).',
    )
  }
}

/** The first line that a program prints, or nothing when it cannot be run. */
export function answers(program, args) {
  const found = spawnSync(program, args, { cwd: top, encoding: 'utf8' })
  return found.status === 0 ? found.stdout.split('\n')[0] : undefined
}

/**
 * Runs a program in the checkout to its end; its output goes to the terminal.
 *
 * With `each` its standard output is read line by line as well as shown. With `quietMax` as well, it is ended with all
 * that it started once it has said nothing for so many seconds: what hangs must not take its last words with it. Answers
 * with the exit code, 127 when the program could not be started and 128 + n when signal n ended it.
 */
export function run(program, args, options = {}) {
  return new Promise((resolve) => {
    const watched = options.each && options.quietMax > 0
    const child = spawn(program, args, {
      cwd: options.cwd || top,
      env: { ...process.env, ...options.env },
      stdio: [options.stdin || 'ignore', options.each ? 'pipe' : 'inherit', 'inherit'],
      // A group of its own can be ended as a whole.
      detached: watched,
    })
    if (options.each) readLines(child.stdout, options)
    const relay = watched ? (signal) => endGroup(child.pid, signal) : (signal) => child.kill(signal)
    for (const signal of SIGNALS) process.on(signal, relay)
    const unwatch = watched ? watchQuiet(child, options.quietMax) : () => {}
    const done = (code) => {
      unwatch()
      for (const signal of SIGNALS) process.removeListener(signal, relay)
      resolve(code)
    }
    child.on('error', (cause) => {
      say(`cannot run ${program}: ${cause.message}`)
      done(127)
    })
    child.on('close', (code, signal) => done(code === null ? 128 + (SIGNAL_NUMBERS[signal] || 0) : code))
  })
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP']
const SIGNAL_NUMBERS = { SIGHUP: 1, SIGINT: 2, SIGKILL: 9, SIGTERM: 15 }

function endGroup(leader, signal) {
  try {
    process.kill(-leader, signal)
  } catch (cause) {
    // It has ended meanwhile.
    if (cause.code !== 'ESRCH') throw cause
  }
}

/** Ends the group of a program that says nothing for so many seconds: asked to first, killed ten seconds behind it. */
function watchQuiet(child, seconds) {
  const timers = new Set()
  const quiet = () => {
    say(`nothing was said for ${seconds} s: it is ended with all that it started; what runs for long stands above`)
    endGroup(child.pid, 'SIGTERM')
    timers.add(setTimeout(() => endGroup(child.pid, 'SIGKILL'), 10_000))
  }
  const timer = setTimeout(quiet, seconds * 1000)
  timers.add(timer)
  child.stdout.on('data', () => timer.refresh())
  return () => {
    for (const set of timers) clearTimeout(set)
  }
}

function readLines(stream, { each, quiet }) {
  let rest = ''
  stream.setEncoding('utf8')
  stream.on('data', (text) => {
    if (!quiet) process.stdout.write(text)
    const lines = (rest + text).split('\n')
    rest = lines.pop()
    for (const line of lines) each(line)
  })
  stream.on('end', () => rest && each(rest))
}

/**
 * `cargo build`, or another command of cargo's that builds, with its own progress on stderr.
 *
 * Answers with the exit code and the files that were made: `binary` and `library`, as far as asked for.
 */
export async function cargoBuild(args, command = 'build') {
  const built = { code: 0, binary: undefined, library: undefined }
  built.code = await run('cargo', [command, '--message-format=json-render-diagnostics', ...args], {
    quiet: true,
    each: (line) => {
      const message = line.startsWith('{') ? JSON.parse(line) : {}
      if (message.reason !== 'compiler-artifact' || message.target.name !== 'simse') return
      built.binary = message.executable || built.binary
      built.library = message.filenames.find((name) => /\.(so|dylib|dll)$/.test(name)) || built.library
    },
  })
  return built
}

/** Puts the built library where js/ looks for it. The old one may be in use, so it is replaced, never written over. */
export function placeAddon(library) {
  return place(library, join(top, 'js', `simse.${platform()}.node`))
}

/** Copies `from` over `to` in one step. */
export function place(from, to) {
  const next = `${to}.new`
  if (existsSync(next)) unlinkSync(next)
  copyFileSync(from, next)
  renameSync(next, to)
  return to
}

/** The platform in the form that the addon's file name carries, such as `linux-x64-gnu`. */
export function platform() {
  if (process.platform !== 'linux') return `${process.platform}-${process.arch}`
  const glibc = process.report.getReport().header.glibcVersionRuntime
  return `linux-${process.arch}-${glibc ? 'gnu' : 'musl'}`
}

/** Installs the development dependencies when they are not there or older than the lock file. */
export async function needPackages() {
  const stamp = join(top, 'node_modules', '.package-lock.json')
  const lock = join(top, 'package-lock.json')
  if (existsSync(stamp) && statSync(stamp).mtimeMs >= statSync(lock).mtimeMs) return
  say('installing the development dependencies (npm ci) …')
  const code = await run('npm', ['ci', '--prefer-offline', '--no-audit', '--no-fund'])
  if (code !== 0) missing('npm ci failed, see above', 'It needs the npm registry once; later runs do not.')
}
