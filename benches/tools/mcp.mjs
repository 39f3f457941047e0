/**
 * What 500 registered tools of an MCP server cost a turn and a prompt, against none.
 *
 *   node benches/tools/mcp.mjs [--program FILE] [--turns N] [--markdown FILE]
 *
 * Two servers of ours, one with an MCP server of 500 tools and one without, on the same scripted model in this process; one turn at each in turn. The
 * model answers at once and notes how many bytes it was sent, of which how many are tools.
 */

import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { availableParallelism, cpus, loadavg, release, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { number, percentile } from '../lib/figures.mjs'

const top = new URL('../..', import.meta.url).pathname
const script = join(top, 'tests/it/support/mcp_server.mjs')
const WARM_UP = 20

const { values } = parseArgs({
  options: {
    program: { type: 'string', default: join(top, 'js', 'bin', 'simse') },
    turns: { type: 'string', default: '300' },
    markdown: { type: 'string' },
  },
})

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-bench-mcp-')))
const asked = []
const model = createServer(async (request, response) => {
  const pieces = []
  for await (const piece of request) pieces.push(piece)
  const body = Buffer.concat(pieces)
  asked.push({ bytes: body.length, toolBytes: Buffer.byteLength(JSON.stringify(JSON.parse(body).tools ?? [])) })
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  const piece = (choice) => `data: ${JSON.stringify({ choices: [choice] })}\n\n`
  response.end(`${piece({ delta: { content: 'ok' } })}${piece({ delta: {}, finish_reason: 'stop' })}data: [DONE]\n\n`)
})
await new Promise((listening) => model.listen(0, '127.0.0.1', listening))

const children = []
/** A server of ours; `mcp`: with 500 tools. */
async function started(name, mcp) {
  const config = join(room, `${name}.toml`)
  const entry = `[[mcp_servers]]\nname = "many"\ncommand = "${process.execPath}"\nargs = ["${script}", "many", "${join(room, 'log')}"]\n`
  writeFileSync(config, mcp ? entry : '')
  const portFile = join(room, `${name}.port`)
  const args = ['serve', '--config', config, '--port', '0', '--port-file', portFile, '--no-auth', '--cwd', room]
  args.push('--data-dir', join(room, `${name}-data`), '--commands-per-minute', '0', '--log-level', 'error')
  args.push('--openai-base-url', `http://127.0.0.1:${model.address().port}/v1`, '--model', 'openai/scripted')
  const env = { PATH: process.env.PATH, HOME: room }
  const child = spawn(values.program, args, { env, stdio: 'ignore' })
  children.push(child)
  while (!existsSync(portFile)) await pause(10)
  const base = `http://127.0.0.1:${readFileSync(portFile, 'utf8').trim()}`
  const post = async (path, body) => {
    const answer = await fetch(base + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`)
    return answer.json()
  }
  const tools = async () => (await (await fetch(`${base}/tools`)).json()).tools.length
  const own = await tools()
  while (mcp && (await tools()) < 500) await pause(20)
  const times = []
  return {
    name,
    times,
    tools: mcp ? await tools() : own,
    /** Each turn in a session of its own: the conversation is as long in each. */
    async turn() {
      const { sessionId } = await post('/sessions', {})
      const begin = performance.now()
      await post(`/sessions/${sessionId}/prompt?wait=true`, { prompt: 'hello' })
      times.push(performance.now() - begin)
      return asked.at(-1)
    },
  }
}

try {
  const load = loadavg()[0]
  const [none, many] = [await started('none', false), await started('many', true)]
  const sent = {}
  for (let turn = 0; turn < Number(values.turns) + WARM_UP; turn++)
    for (const server of turn % 2 ? [many, none] : [none, many]) sent[server.name] = await server.turn()
  const of = (server, share) => percentile(server.times.slice(WARM_UP), share)
  const row = (what, unit, before, after, aim) =>
    `| ${what} | ${number(before)} ${unit} | ${number(after)} ${unit} | ${after >= before ? '+' : ''}${number(after - before)} ${unit} | ${aim} |`
  const lines = [
    `${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC, ${availableParallelism()} × ${cpus()[0]?.model.trim()}, Linux ${release()}, Node ${process.versions.node}, ${values.turns} turns at each; load ${load.toFixed(1)} before`,
    '',
    `| what | ${none.tools} tools, no MCP server | ${many.tools} tools, 500 of an MCP server | difference | aim |`,
    '|---|---|---|---|---|',
    row('a turn, median', 'ms', of(none, 0.5), of(many, 0.5), '≤ +1 ms'),
    row('the same, p90', 'ms', of(none, 0.9), of(many, 0.9), ''),
    row('tools in the prompt', 'bytes', sent.none.toolBytes, sent.many.toolBytes, '≤ +2,000 bytes'),
    row('the whole request', 'bytes', sent.none.bytes, sent.many.bytes, '≤ +2,000 bytes'),
  ]
  const text = `${lines.join('\n')}\n`
  process.stdout.write(text)
  if (values.markdown) writeFileSync(values.markdown, text)
} finally {
  for (const child of children) child.kill('SIGTERM')
  await Promise.all(children.map((child) => child.exitCode ?? new Promise((end) => child.once('exit', end))))
  model.close()
  rmSync(room, { recursive: true, force: true })
}
