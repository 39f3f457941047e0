/**
 * What we add to the turn of an ACP agent: the same program (`agent-program.mjs`, on the official SDK) driven by the SDK's
 * client and by our server, turn about in one run. `node benches/agent.mjs`; SIMSE_BIN: the program, default the release build.
 */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { client, methods, ndJsonStream } from '@agentclientprotocol/sdk'

import { makeProject } from './lib/groups.mjs'
import { freePort, launch, ready, stop } from './lib/process.mjs'

const here = dirname(fileURLToPath(import.meta.url))
const binary = process.env.SIMSE_BIN ?? resolve(here, '../target/release/simse')
const script = join(here, 'agent-program.mjs')
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 200)
const WARM = 20
const SIZES = [1, 100, 2000]

const scratch = mkdtempSync(join(tmpdir(), 'simse-bench-agent-'))
/** Where both let the agent work: a small project, and neither a home nor the server's data in it. */
const project = join(scratch, 'project')
makeProject(project)

/** The agent under the SDK's client: a function that runs one turn. */
function underTheSdk() {
  const child = spawn(process.execPath, [script], { stdio: ['pipe', 'pipe', 'inherit'] })
  const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout))
  let heard = 0
  const app = client({ name: 'bench' }).onNotification(methods.client.session.update, () => {
    heard += 1
  })
  return new Promise((done) => {
    app.connectWith(stream, async (agent) => {
      await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} })
      const { sessionId } = await agent.request(methods.agent.session.new, { cwd: project, mcpServers: [] })
      const turn = async (pieces) => {
        heard = 0
        const prompt = [{ type: 'text', text: String(pieces) }]
        await agent.request(methods.agent.session.prompt, { sessionId, prompt })
        // Its handlers may run behind the answer.
        while (heard < pieces) await new Promise((next) => setImmediate(next))
      }
      await new Promise((end) => done({ turn, end: () => end(child.kill()) }))
    })
  })
}

/** The same under our server: a turn is a prompt whose answer is the stream of its events. */
async function underOurServer() {
  const port = await freePort()
  const config = join(scratch, 'config.toml')
  const text = JSON.stringify
  writeFileSync(config, `[[acp_servers]]\nname = "a"\ncommand = ${text(process.execPath)}\nargs = [${text(script)}]\n`)
  const data = join(scratch, 'data')
  const args = ['serve', '--config', config, '--port', port, '--no-auth', '--data-dir', data, '--cwd', project]
  const env = { PATH: process.env.PATH, HOME: scratch }
  const limits = ['--commands-per-minute', 0, '--log-level', 'warn']
  const all = { cwd: project, env, log: join(scratch, 'log') }
  const since = performance.now()
  const child = launch(binary, [...args, ...limits].map(String), all)
  await ready(child, port, '/health', since)
  const base = `http://127.0.0.1:${port}`
  const post = (path, body, accept) => {
    const headers = { 'content-type': 'application/json', ...(accept && { accept }) }
    return fetch(base + path, { method: 'POST', headers, body: JSON.stringify(body) })
  }
  const { sessionId } = await (await post('/sessions', { agent: 'a' })).json()
  const turn = async (pieces) => {
    const answer = await post(`/sessions/${sessionId}/prompt`, { prompt: String(pieces) }, 'text/event-stream')
    const events = await answer.text()
    if (!events.includes('"type":"session.completed"')) throw new Error(events.slice(-500))
  }
  return { turn, end: () => stop(child) }
}

const middle = (all, share = 0.5) => all.toSorted((a, b) => a - b)[Math.floor((all.length - 1) * share)]

async function timed(turn, pieces) {
  const began = performance.now()
  await turn(pieces)
  return performance.now() - began
}

const [sdk, ours] = await Promise.all([underTheSdk(), underOurServer()])
try {
  console.log(`load before: ${loadavg()[0].toFixed(1)}; ${ROUNDS} turns of each, in turn\n`)
  console.log('| pieces | SDK client p50 | our server p50 | added, p50 | SDK client p95 | our server p95 |')
  console.log('|---|---|---|---|---|---|')
  for (const pieces of SIZES) {
    const rounds = pieces > 1000 ? Math.ceil(ROUNDS / 10) : ROUNDS
    const [alone, through] = [[], []]
    for (let round = -WARM; round < rounds; round += 1) {
      const [one, other] = [await timed(sdk.turn, pieces), await timed(ours.turn, pieces)]
      if (round >= 0) alone.push(one) && through.push(other)
    }
    const added = middle(through) - middle(alone)
    const shown = [middle(alone), middle(through), added, middle(alone, 0.95), middle(through, 0.95)]
    console.log(`| ${pieces} | ${shown.map((ms) => `${ms.toFixed(2)} ms`).join(' | ')} |`)
  }
  console.log(`\nload after: ${loadavg()[0].toFixed(1)}`)
} finally {
  sdk.end()
  await ours.end()
  rmSync(scratch, { recursive: true, force: true })
}
