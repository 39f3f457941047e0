/**
 * The processes of a run: starting, watching memory, stopping. Only what was started here is ever stopped.
 */

import { spawn } from 'node:child_process'
import { createWriteStream, readFileSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

const started = new Set()

/** Starts a program whose output goes to a file. */
export function launch(command, args, { cwd, env, log }) {
  const child = spawn(command, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] })
  const file = createWriteStream(log, { flags: 'a' })
  child.stdout.pipe(file, { end: false })
  child.stderr.pipe(file, { end: false })
  started.add(child)
  child.ended = new Promise((resolve) => {
    child.once('error', (problem) => resolve(problem.message))
    child.once('exit', (code, signal) => resolve(signal ?? code))
  })
  child.ended.then(() => {
    started.delete(child)
    file.end()
  })
  return child
}

/** SIGTERM, and SIGKILL when that does not help within the grace. What it ended with. */
export async function stop(child, graceMs = 15_000) {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM')
  const late = Symbol('late')
  const end = await Promise.race([child.ended, pause(graceMs, late, { ref: false })])
  if (end !== late) return end
  child.kill('SIGKILL')
  return child.ended
}

/** Stops whatever still runs. */
export async function stopAll() {
  await Promise.all([...started].map((child) => stop(child, 3_000)))
}

/** Resident memory in kB: now, and at its peak since `resetPeak`. */
export function memory(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const field = (name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)[1])
  return { nowKb: field('VmRSS'), peakKb: field('VmHWM') }
}

/** Lets the peak begin anew at what is resident now. */
export function resetPeak(pid) {
  writeFileSync(`/proc/${pid}/clear_refs`, '5')
}

/** A port that is free at this moment. */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

/**
 * One GET on a connection of its own. Resolves with what became of it: `refused` (nobody listened), `answered`
 * with the status, or `unanswered` (the connection was accepted, and nothing came within the limit or it was cut).
 */
export function probe(port, path, limitMs) {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port })
    let accepted = false
    let text = ''
    const finish = (what, status) => {
      socket.destroy()
      resolve({ what, status })
    }
    socket.setTimeout(limitMs, () => finish('unanswered'))
    socket.once('connect', () => {
      accepted = true
      socket.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`)
    })
    socket.on('data', (bytes) => {
      text += bytes
      const status = /^HTTP\/1\.1 (\d+)/.exec(text)
      if (status) finish('answered', Number(status[1]))
    })
    socket.once('error', () => finish(accepted ? 'unanswered' : 'refused'))
    socket.once('close', () => finish(accepted ? 'unanswered' : 'refused'))
  })
}

/**
 * Asks again and again until the first 200; milliseconds since `since` (performance.now()).
 *
 * No request waits for the one before it: a server that accepts and never answers would hold up the measuring
 * and not itself. They come every millisecond at first, later less often, to leave the processor to the server.
 */
export async function ready(child, port, path, since, limitMs = 60_000) {
  let answeredMs
  while (answeredMs === undefined) {
    const elapsedMs = performance.now() - since
    if (elapsedMs > limitMs) throw new Error(`the server was not ready within ${limitMs} ms`)
    if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode} before it was ready`)
    probe(port, path, 12_000).then(({ status }) => {
      if (status === 200) answeredMs ??= performance.now() - since
    })
    await pause(elapsedMs < 100 ? 1 : 15)
  }
  return answeredMs
}

/** JSON of a request, which must succeed. */
export async function call(base, method, path, body) {
  const response = await fetch(base + path, {
    method,
    headers: body === undefined ? {} : { 'content-type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(60_000),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 300)}`)
  return { text, json: text === '' ? undefined : JSON.parse(text) }
}
