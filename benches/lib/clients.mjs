/**
 * The compiled half (benches/server): built with rustc alone when it is older than its sources, and called here.
 */

import { execFile, execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { launch } from './process.mjs'

/** The folder of the checkout. */
export const top = dirname(dirname(dirname(fileURLToPath(import.meta.url))))

const sources = join(top, 'benches', 'server')
/** The compiled program. */
export const program = join(process.env.CARGO_TARGET_DIR ?? join(top, 'target'), 'bench', 'server')

/** Compiles the clients when needed. */
export function buildClients() {
  const newest = Math.max(...readdirSync(sources).map((file) => statSync(join(sources, file)).mtimeMs))
  if (existsSync(program) && statSync(program).mtimeMs > newest) return
  mkdirSync(dirname(program), { recursive: true })
  execFileSync('rustc', ['--edition', '2024', '-O', '-o', program, join(sources, 'main.rs')], { stdio: 'inherit' })
}

async function run(command, options) {
  const args = Object.entries(options).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}`, String(value)],
  )
  const limits = { maxBuffer: 64 << 20, timeout: 180_000 }
  const { stdout } = await promisify(execFile)(program, [command, ...args], limits).catch((problem) => {
    throw new Error(`${command}: ${problem.stdout || problem.message}`)
  })
  return JSON.parse(stdout)
}

/** `count` POSTs of one body over `connections` connections: rate and percentiles. */
export const create = (options) => run('create', options)

/** Prompts one after another, watched through an event stream: one record a turn. */
export const turns = (options) => run('turns', options)

/** One turn, watched by many streams of its session. */
export const crowd = (options) => run('crowd', options)

/** A stream from its cursor to an event. */
export const resume = (options) => run('resume', options)

/** A turn in each of many sessions at once, and how late its deltas come. */
export const many = (options) => run('many', options)

/** The scripted model, running. */
export async function startModel(directory) {
  const file = join(directory, 'model.port')
  rmSync(file, { force: true })
  const child = launch(program, ['model', '--port-file', file], { cwd: directory, log: join(directory, 'model.log') })
  for (let waits = 0; waits < 500; waits++) {
    await pause(10)
    const port = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0
    if (port > 0) return { child, address: `127.0.0.1:${port}`, spans: () => takeSpans(port) }
  }
  throw new Error('the scripted model did not start')
}

/** What the model has clocked since it was asked last. It notes an answer just after its last byte: give it a moment. */
async function takeSpans(port) {
  await pause(20)
  const response = await fetch(`http://127.0.0.1:${port}/spans`)
  return response.json()
}
