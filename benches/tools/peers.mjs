/**
 * Turns on an instant scripted model, driven in one run: our server, `opencode serve`, `pi --mode rpc` and `codex app-server`,
 * the model alone and the model read by its vendor's SDK. From the prompt to the event that ends the turn, and to the first piece of text.
 *
 *   node benches/tools/peers.mjs [--cache DIR] [--only NAME,NAME] [--work short,bash,d2000,f2000,d10000,f10000] [--rounds N] [--markdown FILE] [--keep]
 *
 * The peers are installed into the cache, once (npm; about 900 MB). Each has a home of its own, everything off that would reach
 * the network, and is asked in turn with the others, so that what else the machine does hits all of them. All are watched in
 * the same way: bytes are searched for markers, nothing is parsed. codex speaks Responses, the others Chat Completions.
 */

import { execFileSync, spawn } from 'node:child_process'
import { createWriteStream, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { homedir, loadavg, tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { buildClients, startModel, top } from '../lib/clients.mjs'
import { median, number, percentile } from '../lib/figures.mjs'
import { makeProject } from '../lib/groups.mjs'
import { machine } from '../lib/machine.mjs'
import { installOpencode, opencode } from '../lib/opencode.mjs'
import { freePort, launch, ready, stopAll } from '../lib/process.mjs'
import { load, SDKS } from '../lib/sdks.mjs'
import { simse } from '../lib/simse.mjs'

const PI = '0.87.1'
const CODEX = '0.169.0'
/** Node for pi, which wants a newer one than we do. */
const NODE = '22'
const TURN_MS_MAX = 120_000
const WARM = 3

/** What is asked: the prompt, how often, pieces of text in the last answer, and what is hoped for. */
const WORK = {
  short: { prompt: 'say something', rounds: 60, what: 'a short turn', aim: 'the model + ≤ 3 ms' },
  bash: {
    prompt: 'bench-bash=1 run it',
    rounds: 40,
    what: 'a turn with one `bash` call (`true`)',
    aim: 'the model + ≤ 15 ms',
  },
  d2000: { prompt: 'bench-deltas=2000 go on', rounds: 15, what: '2,000 deltas', aim: '≤ 1.5 × the model' },
  f2000: {
    prompt: 'bench-flushed=2000 go on',
    rounds: 15,
    what: '2,000 deltas, each written by itself',
    aim: '≤ 1.5 × the model',
  },
  d10000: { prompt: 'bench-deltas=10000 go on', rounds: 7, what: '10,000 deltas', aim: '≤ 1.5 × the model' },
}

WORK.f10000 = { ...WORK.f2000, prompt: 'bench-flushed=10000 go on', rounds: 7, what: '10,000 of these' }

/** Counts markers in a stream of bytes; a marker never spans two pieces unseen. */
function watcher() {
  let [rest, waiting] = ['', undefined]
  const watch = (bytes) => {
    if (waiting === undefined) return
    const text = rest + bytes.toString('latin1')
    const { delta, terminal, failure } = waiting.markers
    if (waiting.firstMs === undefined && text.includes(delta)) waiting.firstMs = performance.now() - waiting.since
    if (failure && text.includes(failure)) return finish(() => waiting.reject(new Error(text.slice(-600))))
    if (text.includes(terminal))
      return finish(() => waiting.resolve({ wallMs: performance.now() - waiting.since, firstMs: waiting.firstMs }))
    rest = text.slice(-80)
  }
  const finish = (end) => {
    end()
    clearTimeout(waiting.timer)
    ;[rest, waiting] = ['', undefined]
  }
  const next = (markers) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => finish(() => reject(new Error(`no end of a turn; last: ${rest}`))), TURN_MS_MAX)
      waiting = { markers, resolve, reject, timer, since: performance.now() }
    })
  return { watch, next }
}

const agent = new Agent({ keepAlive: true, maxSockets: 8 })

/** One POST whose answer is given piece by piece. */
function post(url, body, onBytes = () => {}) {
  return new Promise((resolve, reject) => {
    const out = request(url, { agent, method: 'POST', headers: { 'content-type': 'application/json' } }, (answer) => {
      let text = ''
      answer.on('data', (bytes) => {
        onBytes(bytes)
        if (text.length < 10_000) text += bytes
      })
      answer.on('end', () =>
        answer.statusCode < 300 ? resolve(text) : reject(new Error(`${url}: ${answer.statusCode} ${text}`)),
      )
      answer.on('error', reject)
    })
    out.on('error', reject)
    out.end(body)
  })
}

/** What was said so far, in JSON: each turn sends all of it, as a program without an agent in it would. */
function conversation() {
  let before = ''
  return {
    /** The messages of a request: those before, and these. */
    with: (...messages) => `[${before}${messages.map((message) => JSON.stringify(message)).join(',')}]`,
    /** Adds a prompt and what the answer's bytes say. */
    add(prompt, answer) {
      const pieces = answer.matchAll(/"(?:content|delta)":"(w\d+ )"/g)
      const text = Array.from(pieces, ([, piece]) => piece).join('')
      before += `${JSON.stringify({ role: 'user', content: prompt })},${JSON.stringify({ role: 'assistant', content: text })},`
    },
  }
}

const TOOLS = [{ type: 'function', function: { name: 'bash', parameters: { type: 'object' } } }]

/** The model without anything before it, on the wire that is named. */
function modelAlone(model, wire) {
  const url = `http://${model.address}/v1/${wire}`
  const said = conversation()
  const messages = wire === 'responses' ? 'input' : 'messages'
  const body = (...more) =>
    `{"model":"m","stream":true,"${messages}":${said.with(...more)},"tools":${JSON.stringify(TOOLS)}}`
  return {
    async turn(prompt) {
      const user = { role: 'user', content: prompt }
      // The two requests of a turn with a call.
      const bodies = [body(user)]
      if (prompt.includes('bench-bash'))
        bodies.push(body(user, wire === 'responses' ? { type: 'function_call_output' } : { role: 'tool' }))
      const since = performance.now()
      const seen = []
      let firstMs
      for (const each of bodies)
        await post(url, each, (bytes) => {
          seen.push(bytes)
          if (firstMs === undefined && bytes.includes('"delta"')) firstMs = performance.now() - since
        })
      const wallMs = performance.now() - since
      said.add(prompt, Buffer.concat(seen).toString())
      return { wallMs, firstMs }
    },
    end() {},
  }
}

/** The model read by its vendor's SDK, as a program without an agent between them would. */
async function modelBySdk(cache, model) {
  const [{ default: OpenAI }] = await load(cache)
  const openai = new OpenAI({ apiKey: 'none', baseURL: `http://${model.address}/v1` })
  const before = []
  return {
    async turn(prompt) {
      const user = { role: 'user', content: prompt }
      let [text, firstMs] = ['', undefined]
      const since = performance.now()
      const ask = async (more) => {
        const messages = [...before, user, ...more]
        for await (const chunk of await openai.chat.completions.create({
          model: 'm',
          messages,
          tools: TOOLS,
          stream: true,
        })) {
          const piece = chunk.choices[0]?.delta?.content
          if (piece) firstMs ??= performance.now() - since
          text += piece ?? ''
        }
      }
      await ask([])
      if (prompt.includes('bench-bash')) await ask([{ role: 'tool', tool_call_id: 'c', content: '' }])
      const wallMs = performance.now() - since
      before.push(user, { role: 'assistant', content: text })
      return { wallMs, firstMs }
    },
    end() {},
  }
}

/** A server with routes and a stream of events. */
async function served(target, model, home) {
  const project = join(home, 'project')
  makeProject(project)
  const port = await freePort()
  const { program, args, cwd, env } = target.command({ port, home, project, model: model.address })
  const since = performance.now()
  const child = launch(program, args, { cwd, env, log: join(home, 'server.log') })
  await ready(child, port, target.health, since)
  const base = `http://127.0.0.1:${port}`
  const session = await target.session(base, project)
  const { watch, next } = watcher()
  const path = await target.events(base, session)
  await new Promise((resolve, reject) => {
    const out = request(base + path, { headers: { accept: 'text/event-stream' } }, (answer) => {
      answer.on('data', watch)
      answer.on('error', () => {})
      resolve()
    })
    out.on('error', reject)
    out.end()
  })
  return {
    async turn(prompt) {
      const seen = next(target.markers)
      await Promise.all([post(base + session.prompt, target.body(prompt)), seen])
      return seen
    },
    end: () => child.kill('SIGTERM'),
  }
}

/** A program that is spoken to in lines over its standard streams. */
function piped(command, args, { cwd, env, log }) {
  const child = spawn(command, args, { cwd, env, stdio: ['pipe', 'pipe', 'pipe'] })
  child.stderr.pipe(createWriteStream(log))
  const { watch, next } = watcher()
  child.stdout.on('data', watch)
  child.on('error', (problem) => console.error(problem.message))
  const send = (value) => child.stdin.write(`${JSON.stringify(value)}\n`)
  return { child, next, send }
}

function environment(cache, home, more) {
  const path = [
    join(cache, 'node_modules', 'node', 'bin'),
    join(cache, 'node_modules', '.bin'),
    dirname(process.execPath),
  ]
  return { HOME: home, PATH: [...path, process.env.PATH].join(delimiter), LANG: 'C.UTF-8', ...more }
}

async function pi(cache, model, home) {
  const folder = join(home, '.pi', 'agent')
  mkdirSync(folder, { recursive: true })
  const project = join(home, 'project')
  makeProject(project)
  const scripted = { id: 'scripted', name: 'scripted', contextWindow: 1_000_000, maxTokens: 100_000 }
  const provider = {
    baseUrl: `http://${model.address}/v1`,
    api: 'openai-completions',
    apiKey: 'none',
    models: [scripted],
  }
  writeFileSync(join(folder, 'models.json'), JSON.stringify({ providers: { bench: provider } }))
  writeFileSync(
    join(folder, 'settings.json'),
    JSON.stringify({ defaultProvider: 'bench', defaultModel: 'scripted', quietStartup: true }),
  )
  const env = environment(cache, home, { PI_OFFLINE: '1' })
  const { child, next, send } = piped('pi', ['--mode', 'rpc'], { cwd: project, env, log: join(home, 'pi.log') })
  const markers = { delta: '"type":"text_delta"', terminal: '"type":"agent_settled"', failure: '"stopReason":"error"' }
  return {
    turn(message) {
      const seen = next(markers)
      send({ type: 'prompt', message })
      return seen
    },
    end: () => child.kill('SIGTERM'),
  }
}

async function codex(cache, model, home) {
  // Not below the temporary directory: it refuses that.
  mkdirSync(home, { recursive: true })
  const project = join(home, 'project')
  makeProject(project)
  const text = JSON.stringify
  writeFileSync(
    join(home, 'config.toml'),
    `model = "mock"\nmodel_provider = "mock"\ncheck_for_update_on_startup = false\n\n[model_providers.mock]\nname = "mock"\nbase_url = ${text(`http://${model.address}/v1`)}\nenv_key = "MOCK_KEY"\nwire_api = "responses"\n`,
  )
  const env = environment(cache, home, { CODEX_HOME: home, MOCK_KEY: 'none' })
  const { child, next, send } = piped('codex', ['app-server'], { cwd: project, env, log: join(home, 'codex.log') })
  const answered = (id) => ({ delta: '\u0000', terminal: `"id":${id},`, failure: '"error":{"code"' })
  const ask = async (id, method, params) => {
    let seen = ''
    const listen = (bytes) => {
      seen += bytes
    }
    child.stdout.on('data', listen)
    const done = next(answered(id))
    send({ jsonrpc: '2.0', id, method, params })
    await done
    child.stdout.off('data', listen)
    return seen
  }
  await ask(9001, 'initialize', { clientInfo: { name: 'bench', title: 'bench', version: '1' } })
  send({ jsonrpc: '2.0', method: 'initialized' })
  const started = await ask(9002, 'thread/start', { cwd: project, approvalPolicy: 'never', sandbox: 'workspace-write' })
  const threadId = /"thread":\{"id":"([^"]+)"/.exec(started)?.[1]
  if (threadId === undefined) throw new Error(`codex: no thread: ${started.slice(0, 500)}`)
  const markers = {
    delta: '"method":"item/agentMessage/delta"',
    terminal: '"method":"turn/completed"',
    failure: '"method":"error"',
  }
  let id = 10_000
  return {
    turn(prompt) {
      const seen = next(markers)
      id += 1
      send({
        jsonrpc: '2.0',
        id,
        method: 'turn/start',
        params: { threadId, input: [{ type: 'text', text: prompt, text_elements: [] }] },
      })
      return seen
    },
    end: () => child.kill('SIGTERM'),
  }
}

/** Installs the two that are programs of npm, once. */
function installPeers(cache) {
  const wanted = [`@openai/codex@${CODEX}`, `@earendil-works/pi-coding-agent@${PI}`, `node@${NODE}`]
  const done = ['@openai/codex', '@earendil-works/pi-coding-agent', 'node'].every((name) =>
    existsSync(join(cache, 'node_modules', name)),
  )
  if (done) return
  mkdirSync(cache, { recursive: true })
  const args = ['install', '--prefix', cache, '--no-save', '--no-audit', '--no-fund', ...wanted]
  execFileSync('npm', args, { stdio: ['ignore', 'ignore', 'inherit'] })
}

async function contestants(settings, model, directory) {
  const { cache, only } = settings
  const peers = join(cache, 'peers')
  const home = (name) => join(directory, name)
  const binary = process.env.SIMSE_BIN ?? join(top, 'target', 'release', 'simse')
  const makers = {
    'model alone': async () => modelAlone(model, 'chat/completions'),
    'model by SDK': () => modelBySdk(join(cache, 'sdks'), model),
    simse: () => served(simse(binary), model, home('simse')),
    opencode: () => served(opencode(installOpencode(cache), { snapshot: true }), model, home('opencode')),
    pi: () => pi(peers, model, home('pi')),
    codex: () => codex(peers, model, join(cache, `codex-home-${process.pid}`)),
  }
  if (only.some((name) => ['pi', 'codex'].includes(name))) installPeers(peers)
  const all = {}
  for (const name of only) {
    const maker = makers[name]
    if (!maker) throw new Error(`--only: \`${name}\` is none of ${Object.keys(makers).join(', ')}`)
    all[name] = await maker()
  }
  return all
}

const shown = (ms) => (ms === undefined || Number.isNaN(ms) ? '–' : `${number(ms)} ms`)

async function main() {
  const { values } = parseArgs({
    options: {
      cache: { type: 'string', default: join(homedir(), '.cache', 'simse-bench') },
      only: { type: 'string', default: 'model alone,model by SDK,simse,opencode,pi,codex' },
      work: { type: 'string', default: Object.keys(WORK).join(',') },
      rounds: { type: 'string' },
      markdown: { type: 'string' },
      keep: { type: 'boolean', default: false },
    },
  })
  const busy = loadavg()[0]
  buildClients()
  const directory = mkdtempSync(join(tmpdir(), 'simse-bench-peers-'))
  const model = await startModel(directory)
  const all = await contestants({ cache: values.cache, only: values.only.split(',') }, model, directory)
  const lines = [
    `| what | aim | ${Object.keys(all).join(' | ')} |`,
    `|---|---|${'---|'.repeat(Object.keys(all).length)}`,
  ]
  try {
    for (const { prompt, rounds, what, aim } of values.work.split(',').map((name) => WORK[name])) {
      const seen = Object.fromEntries(Object.keys(all).map((name) => [name, []]))
      for (let round = -WARM; round < Number(values.rounds ?? rounds); round++) {
        for (const [name, { turn }] of Object.entries(all)) {
          const one = await turn(prompt)
          if (round >= 0) seen[name].push(one)
        }
      }
      const row = (label, aim, of) =>
        lines.push(
          `| ${label} | ${aim} | ${Object.values(seen)
            .map((each) => shown(of(each)))
            .join(' | ')} |`,
        )
      row(`${what}, p50`, aim, (each) => median(each.map((one) => one.wallMs)))
      row('the same, p95', '', (each) =>
        percentile(
          each.map((one) => one.wallMs),
          0.95,
        ),
      )
      row('its first piece of text, p50', '', (each) => median(each.map((one) => one.firstMs ?? Number.NaN)))
    }
  } finally {
    for (const { end } of Object.values(all)) end()
    await stopAll()
    if (!values.keep) rmSync(directory, { recursive: true, force: true })
    rmSync(join(values.cache, `codex-home-${process.pid}`), { recursive: true, force: true })
  }
  const about = machine(busy, `opencode 1.18.33, pi ${PI}, codex ${CODEX}, openai ${SDKS.openai}`)
  const text = `${lines.join('\n')}\n\n${about}\n`
  process.stdout.write(text)
  if (values.markdown) writeFileSync(values.markdown, text)
  agent.destroy()
}

await main()
process.exit()
