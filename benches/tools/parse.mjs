/**
 * A recorded answer of 100,000 pieces on each wire, from the socket to events: our wires (`benches/parse.rs`) and the vendors'
 * SDKs for Node, from one server on loopback, in one run.
 *
 *   node benches/tools/parse.mjs [--cache DIR] [--chunks N] [--rounds N] [--markdown FILE]
 *
 * The SDKs are iterated as their documentation does it, and only the length of a piece is looked at. They are installed into the
 * cache, once (npm). Ours also puts the whole reply together, as it is given back to the model.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { buildClients, program, top } from '../lib/clients.mjs'
import { median, number } from '../lib/figures.mjs'
import { machine } from '../lib/machine.mjs'
import { launch, stopAll } from '../lib/process.mjs'
import { load, SDKS } from '../lib/sdks.mjs'

const piece = (at) => `w${String(at).padStart(6, '0')} `
const frame = (value, event) => `${event ? `event: ${event}\n` : ''}data: ${JSON.stringify(value)}\n\n`

/** The recordings, in the form and with the members that the vendors send. */
const RECORDINGS = {
  'openai-chat': (count) => {
    const head = {
      id: 'chatcmpl-CkX1',
      object: 'chat.completion.chunk',
      created: 1764000000,
      model: 'gpt-5.1',
      service_tier: 'default',
      system_fingerprint: 'fp_1',
    }
    const chunk = (delta, finish = null) =>
      frame({
        ...head,
        choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
        usage: null,
        obfuscation: 'xK3',
      })
    const usage = {
      prompt_tokens: 100,
      completion_tokens: count,
      total_tokens: 100 + count,
      prompt_tokens_details: { cached_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 0 },
    }
    return [
      chunk({ role: 'assistant', content: '', refusal: null }),
      ...Array.from({ length: count }, (_, at) => chunk({ content: piece(at) })),
      chunk({}, 'stop'),
      frame({ ...head, choices: [], usage }),
      'data: [DONE]\n\n',
    ]
  },
  'openai-responses': (count) => {
    let number = 0
    const event = (type, more) => frame({ type, sequence_number: number++, ...more }, type)
    const response = {
      id: 'resp_1',
      object: 'response',
      created_at: 1764000000,
      status: 'in_progress',
      model: 'gpt-5.1',
      output: [],
      usage: null,
    }
    const at = { item_id: 'msg_1', output_index: 0, content_index: 0 }
    const message = (status, content) => ({ id: 'msg_1', type: 'message', status, role: 'assistant', content })
    const text = Array.from({ length: count }, (_, index) => piece(index)).join('')
    const part = { type: 'output_text', annotations: [], logprobs: [], text }
    const usage = {
      input_tokens: 100,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: count,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 100 + count,
    }
    return [
      event('response.created', { response }),
      event('response.in_progress', { response }),
      event('response.output_item.added', { output_index: 0, item: message('in_progress', []) }),
      event('response.content_part.added', { ...at, part: { ...part, text: '' } }),
      ...Array.from({ length: count }, (_, index) =>
        event('response.output_text.delta', { ...at, delta: piece(index), logprobs: [], obfuscation: 'xK3' }),
      ),
      event('response.output_text.done', { ...at, text, logprobs: [] }),
      event('response.content_part.done', { ...at, part }),
      event('response.output_item.done', { output_index: 0, item: message('completed', [part]) }),
      event('response.completed', {
        response: { ...response, status: 'completed', output: [message('completed', [part])], usage },
      }),
    ]
  },
  'anthropic-messages': (count) => {
    const event = (type, more) => frame({ type, ...more }, type)
    const usage = {
      input_tokens: 100,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 0,
      output_tokens: 1,
      service_tier: 'standard',
    }
    const message = {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'claude-sonnet-4-5',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage,
    }
    return [
      event('message_start', { message }),
      event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
      event('ping', {}),
      ...Array.from({ length: count }, (_, at) =>
        event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: piece(at) } }),
      ),
      event('content_block_stop', { index: 0 }),
      event('message_delta', {
        delta: { stop_reason: 'end_turn', stop_sequence: null },
        usage: { output_tokens: count },
      }),
      event('message_stop', {}),
    ]
  },
  gemini: (count) => {
    const chunk = (text, finish) => ({
      candidates: [
        { content: { parts: [{ text }], role: 'model' }, ...(finish ? { finishReason: finish } : {}), index: 0 },
      ],
      usageMetadata: {
        promptTokenCount: 100,
        candidatesTokenCount: 10,
        totalTokenCount: 110,
        promptTokensDetails: [{ modality: 'TEXT', tokenCount: 100 }],
      },
      modelVersion: 'gemini-2.5-flash',
      responseId: 'r1',
    })
    return Array.from({ length: count }, (_, at) => frame(chunk(piece(at), at + 1 === count ? 'STOP' : undefined)))
  },
}

/** For each wire, a function that reads one answer to its end and gives the bytes of its text. */
async function sdks(cache, base) {
  const [{ default: OpenAI }, { default: Anthropic }, { GoogleGenAI }] = await load(cache)
  const openai = new OpenAI({ apiKey: 'none', baseURL: `${base}/v1` })
  const anthropic = new Anthropic({ apiKey: 'none', baseURL: base })
  const google = new GoogleGenAI({ apiKey: 'none', httpOptions: { baseUrl: base } })
  const messages = [{ role: 'user', content: 'go' }]
  const total = async (stream, of) => {
    let bytes = 0
    for await (const event of await stream) bytes += of(event)?.length ?? 0
    return bytes
  }
  return {
    'openai-chat': () =>
      total(
        openai.chat.completions.create({ model: 'm', messages, stream: true }),
        (chunk) => chunk.choices[0]?.delta?.content,
      ),
    'openai-responses': () =>
      total(openai.responses.create({ model: 'm', input: 'go', stream: true }), (event) =>
        event.type === 'response.output_text.delta' ? event.delta : undefined,
      ),
    'anthropic-messages': () =>
      total(anthropic.messages.create({ model: 'm', max_tokens: 1000, messages, stream: true }), (event) =>
        event.type === 'content_block_delta' ? event.delta.text : undefined,
      ),
    gemini: () => total(google.models.generateContentStream({ model: 'm', contents: 'go' }), (chunk) => chunk.text),
  }
}

/** The server of the recordings, running. */
async function serve(directory) {
  const file = join(directory, 'port')
  launch(program, ['recordings', '--directory', directory, '--port-file', file], {
    cwd: directory,
    log: join(directory, 'log'),
  })
  for (let waits = 0; waits < 500; waits++) {
    await pause(10)
    const port = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0
    if (port > 0) return `127.0.0.1:${port}`
  }
  throw new Error('the server of recordings did not start')
}

function ours(address, rounds) {
  const command = process.env.PARSE_BIN
  const [file, args] = command
    ? [command, []]
    : ['cargo', ['bench', '--quiet', '--features', 'node', '--bench', 'parse', '--']]
  const { status, stdout, stderr } = spawnSync(file, [...args, '--address', address, '--rounds', String(rounds)], {
    cwd: top,
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`benches/parse.rs: ${stderr.slice(-2000)}`)
  const lines = stdout.split('\n').filter((line) => line.startsWith('{'))
  return Object.fromEntries(lines.map((line) => JSON.parse(line)).map((figures) => [figures.wire, figures]))
}

async function main() {
  const { values } = parseArgs({
    options: {
      cache: { type: 'string', default: join(homedir(), '.cache', 'simse-bench', 'sdks') },
      chunks: { type: 'string', default: '100000' },
      rounds: { type: 'string', default: '5' },
      markdown: { type: 'string' },
    },
  })
  const busy = loadavg()[0]
  const [chunks, rounds] = [Number(values.chunks), Number(values.rounds)]
  buildClients()
  const directory = mkdtempSync(join(tmpdir(), 'simse-bench-parse-'))
  const lines = ['| wire | bytes | simse | SDK for Node | ratio |', '|---|---|---|---|---|']
  try {
    const bytes = {}
    for (const [name, make] of Object.entries(RECORDINGS)) {
      const text = make(chunks).join('')
      bytes[name] = text.length
      writeFileSync(join(directory, `${name}.sse`), text)
    }
    const address = await serve(directory)
    const readers = await sdks(values.cache, `http://${address}`)
    const mine = ours(address, rounds)
    for (const [name, read] of Object.entries(readers)) {
      const times = []
      for (let round = 0; round <= rounds; round++) {
        const since = performance.now()
        const got = await read()
        if (got !== mine[name].bytes)
          throw new Error(`${name}: the SDK read ${got} bytes of text, we ${mine[name].bytes}`)
        if (round > 0) times.push(performance.now() - since)
      }
      const [we, they] = [mine[name].ms, median(times)]
      lines.push(
        `| ${name} | ${number(bytes[name] / 1e6)} MB | ${number(we)} ms | ${number(they)} ms | ${number(they / we)}× |`,
      )
    }
  } finally {
    await stopAll()
    rmSync(directory, { recursive: true, force: true })
  }
  const about = machine(busy, ...Object.entries(SDKS).map(([name, version]) => `${name} ${version}`))
  const text = `${lines.join('\n')}\n\n${number(chunks)} pieces, median of ${rounds}. ${about}\n`
  process.stdout.write(text)
  if (values.markdown) writeFileSync(values.markdown, text)
}

await main()
process.exit()
