/** The program: `simse serve` as a child, over a port that it keeps when it is killed and started again, or over a pipe. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { http } from './http.mjs'

const top = dirname(dirname(dirname(fileURLToPath(import.meta.url))))

/** The built program. */
export const binary =
  process.env.SIMSE_TEST_BINARY ?? join(process.env.CARGO_TARGET_DIR ?? join(top, 'target'), 'debug', 'simse')

/** Below the ports that the system gives to whoever connects somewhere: nobody takes it while the server is away. */
const PORTS = { from: 15_000, count: 10_000 }

/** A port that nobody listens on. */
async function freePort() {
  for (;;) {
    const port = PORTS.from + Math.floor(Math.random() * PORTS.count)
    const probe = createServer()
    const free = await new Promise((known) => {
      probe.once('error', () => known(false))
      probe.listen(port, '127.0.0.1', () => probe.close(() => known(true)))
    })
    if (free) return port
  }
}

/** An environment without models and settings of this machine. */
export function environment(home) {
  const own = Object.entries(process.env).filter(([name]) => !/^(SIMSE_|OPENAI_|XDG_|NODE_)/.test(name))
  return { ...Object.fromEntries(own), HOME: home }
}

/** Arguments that name a home's data directory, its working directory, and a scripted model. */
function argumentsOf({ home, work, model }) {
  mkdirSync(work, { recursive: true })
  return [
    ...['serve', '--data-dir', join(home, 'data'), '--cwd', work, '--shutdown-grace-ms', '2000'],
    ...['--model', 'openai/scripted', '--openai-base-url', model.baseUrl],
  ]
}

/**
 * A server in the directory `home`, on a scripted model. `start()` starts it, again too, on the same port and data;
 * `kill()` is `kill -9`; `call` is a request with its token, and answers with status and body.
 */
export async function servedAt({ home, model, args = [] }) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const portFile = join(home, 'port')
  const work = join(home, 'work')
  let child
  let ended

  const server = {
    port,
    url,
    work,
    /** The header that its token stands in. */
    get headers() {
      return { authorization: `Bearer ${readFileSync(join(home, 'data', 'token'), 'utf8').trim()}` }
    },
    call: (method, path, body, headers = {}) => http(server, method, path, body, { ...server.headers, ...headers }),
    async start() {
      rmSync(portFile, { force: true })
      const all = [...argumentsOf({ home, work, model }), '--port', String(port), '--port-file', portFile, ...args]
      child = spawn(binary, all, { stdio: ['ignore', 'ignore', 'pipe'], env: environment(home) })
      let said = ''
      child.stderr.on('data', (text) => {
        said += text
      })
      let over = false
      ended = once(child, 'close').then(() => {
        over = true
      })
      while (!existsSync(portFile)) {
        if (over) throw new Error(`the server did not start: ${said}`)
        await new Promise((soon) => setTimeout(soon, 5))
      }
    },
    async kill() {
      child?.kill('SIGKILL')
      await ended
    },
  }
  await server.start()
  return server
}

/**
 * `simse serve --stdio` in the directory `home`. `lines` are all lines of its stdout so far; `end()` closes its stdin and answers
 * with the exit code and all that it wrote.
 */
export function servedOverPipe({ home, model, args = [] }) {
  const work = join(home, 'work')
  const all = [...argumentsOf({ home, work, model }), '--stdio', ...args]
  // A file, so that a test can write into the descriptor that leads there.
  const errors = join(home, 'stderr')
  const stderr = openSync(errors, 'a')
  const child = spawn(binary, all, { stdio: ['pipe', 'pipe', stderr], env: environment(home) })
  closeSync(stderr)
  let out = ''
  child.stdout.setEncoding('utf8')
  child.stdout.on('data', (text) => {
    out += text
  })
  const closed = once(child, 'close')
  const reader = createInterface({ input: child.stdout })
  const lines = []
  const waiting = []
  const wake = () => {
    for (const each of waiting.splice(0)) each()
  }
  reader.on('line', (line) => {
    lines.push(line)
    wake()
  })
  reader.on('close', wake)
  return {
    pid: child.pid,
    work,
    lines,
    send: (message) => child.stdin.write(`${JSON.stringify(message)}\n`),
    /** Waits for a line that `fits` and answers with it. */
    async seen(fits) {
      for (let at = 0; ; at++) {
        while (at >= lines.length) {
          if (child.exitCode !== null || child.signalCode !== null)
            throw new Error(`it ended: ${readFileSync(errors, 'utf8')}`)
          await new Promise((more) => waiting.push(more))
        }
        const message = JSON.parse(lines[at])
        if (fits(message)) return message
      }
    },
    async end() {
      child.stdin.end()
      const [code] = await closed
      return { code, out, err: readFileSync(errors, 'utf8') }
    },
    kill: () => child.kill('SIGKILL'),
  }
}
