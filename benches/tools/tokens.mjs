/**
 * Tokens and pruning from JavaScript: `countTokens` against js-tiktoken and gpt-tokenizer on 1 MB of code, and `createContextPruner`
 * against the same rule in plain JavaScript on a conversation of 5,000 messages.
 *
 *   node benches/tools/tokens.mjs [--cache DIR] [--rounds N] [--markdown FILE]
 *
 * The tokenizers are installed into the cache, once (npm). All count the same text with the same vocabulary, in turn, and have to agree.
 * The pruners are asked in two ways: about a conversation that they have never seen, and at each turn of one that grows by three messages,
 * as a loop does. What they give back has to be the same.
 */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { homedir, loadavg } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { countTokens, createContextPruner } from '../../js/index.js'
import { top } from '../lib/clients.mjs'
import { median, number } from '../lib/figures.mjs'
import { machine } from '../lib/machine.mjs'

const PACKAGES = { 'js-tiktoken': '1.0.21', 'gpt-tokenizer': '4.0.0' }
const MESSAGES = 5_000
const OPTIONS = { pruneProtectTokens: 40_000, pruneMinimumTokens: 20_000 }

const { values } = parseArgs({
  options: {
    cache: { type: 'string', default: join(homedir(), '.cache', 'simse-bench', 'tokens') },
    rounds: { type: 'string', default: '9' },
    markdown: { type: 'string' },
  },
})
const rounds = Number(values.rounds)
const [load] = loadavg()

async function tokenizers(cache) {
  const wanted = Object.entries(PACKAGES)
  if (!wanted.every(([name]) => existsSync(join(cache, 'node_modules', name)))) {
    mkdirSync(cache, { recursive: true })
    const args = ['install', '--prefix', cache, '--no-save', '--ignore-scripts', '--no-audit', '--no-fund']
    const packages = wanted.map(([name, version]) => `${name}@${version}`)
    execFileSync('npm', [...args, ...packages], { stdio: ['ignore', 'ignore', 'inherit'] })
  }
  const load = (name, file) => import(pathToFileURL(join(cache, 'node_modules', name, file)).href)
  const { getEncoding } = await load('js-tiktoken', 'dist/index.js')
  const gpt = await load('gpt-tokenizer', 'esm/encoding/o200k_base.js')
  return { tiktoken: getEncoding('o200k_base'), gpt }
}

/** 1 MB of the sources of this repository. */
function code() {
  const files = readdirSync(join(top, 'src'), { recursive: true, encoding: 'utf8' }).sort()
  const texts = files.filter((name) => name.endsWith('.rs')).map((name) => readFileSync(join(top, 'src', name), 'utf8'))
  return texts.join('\n').slice(0, 1_000_000)
}

const timed = (run) => {
  const begin = performance.now()
  const value = run()
  return { ms: performance.now() - begin, value }
}

/** Each contestant in turn, so that what else the machine does hits all. The median of each, in ms; all say the same. */
function race(contestants) {
  const took = contestants.map(() => [])
  for (let round = 0; round < rounds; round++) {
    const said = contestants.map((run, at) => {
      const { ms, value } = timed(run)
      took[at].push(ms)
      return value
    })
    for (const one of said) if (one !== said[0]) throw new Error(`they differ: ${said.join(', ')}`)
  }
  return took.map(median)
}

// ── Pruning in plain JavaScript ─────────────────────────────────────────────────────────────────

const MARKS = ['[SUMMARY]', '[Conversation summary]']

/** The rule as one would write it, from the newest message to the oldest. */
function plainly(messages) {
  const chosen = []
  let [turns, newest, seen, saved] = [0, true, 0, 0]
  for (let at = messages.length - 1; at >= 0; at--) {
    const { role, content } = messages[at]
    if (role !== 'tool_result') {
      if (MARKS.some((mark) => content.startsWith(mark))) break
      if (role === 'user') turns++
      continue
    }
    const isNewest = newest
    newest = false
    if (isNewest || turns < 2 || content.startsWith('[OUTPUT PRUNED — ')) continue
    const tokens = Math.ceil(content.length / 4)
    seen += tokens
    if (seen <= OPTIONS.pruneProtectTokens || content.length < 200) continue
    saved += tokens
    chosen.push(at)
  }
  if (chosen.length === 0 || saved < OPTIONS.pruneMinimumTokens) return messages
  const pruned = [...messages]
  for (const at of chosen) {
    const { parts: _, ...rest } = pruned[at]
    pruned[at] = Object.freeze({ ...rest, content: `[OUTPUT PRUNED — ${rest.content.length} chars]` })
  }
  return Object.freeze(pruned)
}

/** A message of a session: a turn is a prompt, some calls with their results, and an answer. */
function message(at) {
  const place = at % 8
  const text = (units) => `${at} `.padEnd(units, 'some words of an output, ')
  if (place === 0) return Object.freeze({ role: 'user', content: `go on with ${at}` })
  if (place % 2 === 1) return Object.freeze({ role: 'assistant', content: text(200) })
  return Object.freeze({
    role: 'tool_result',
    content: text(300 + ((at * 37) % 4_000)),
    toolCallId: `c${at}`,
    toolName: 'bash',
  })
}

const digest = (messages) =>
  `${messages.length} ${messages.filter(({ content }) => content.startsWith('[OUTPUT PRUNED')).length}`

function pruning() {
  const whole = Array.from({ length: MESSAGES }, (_, at) => message(at))
  const anew = race([() => digest(createContextPruner(OPTIONS).prune(whole)), () => digest(plainly(whole))])
  const looks = race([() => digest(whole), () => digest(whole)])[0]
  // Of one that grows: the time of a turn, median over 200 turns.
  const pruner = createContextPruner(OPTIONS)
  const [ours, plain] = [[], []]
  let all = whole
  pruner.prune(all)
  for (let turn = 0; turn < 200; turn++) {
    all = [...all, ...[0, 1, 2].map((n) => message(all.length + n))]
    const [one, other] = [timed(() => pruner.prune(all)), timed(() => plainly(all))]
    if (digest(one.value) !== digest(other.value)) throw new Error(`they differ at turn ${turn}`)
    ours.push(one.ms)
    plain.push(other.ms)
  }
  return { anew: anew.map((ms) => Math.max(ms - looks, 0)), grown: [median(ours), median(plain)] }
}

const { tiktoken, gpt } = await tokenizers(values.cache)
const text = code()
const first = timed(() => countTokens('hello', { model: 'openai/gpt-5' })).ms
const [ours, byGpt, byTiktoken] = race([
  () => countTokens(text, { model: 'openai/gpt-5' }),
  () => gpt.countTokens(text),
  () => tiktoken.encode(text).length,
])
const { anew, grown } = pruning()

const ms = (value) => `${number(value)} ms`
const us = (value) => `${number(value * 1_000)} µs`
const times = (other, own) => `${number(other / own)} ×`
const lines = [
  `| what | simse | other | ours is faster |`,
  `|---|---|---|---|`,
  `| tokens of 1 MB of code, \`o200k_base\` | ${ms(ours)} | gpt-tokenizer ${PACKAGES['gpt-tokenizer']}: ${ms(byGpt)} | ${times(byGpt, ours)} |`,
  `| the same | ${ms(ours)} | js-tiktoken ${PACKAGES['js-tiktoken']}: ${ms(byTiktoken)} | ${times(byTiktoken, ours)} |`,
  `| the first count in a process (the table is unpacked) | ${ms(first)} | | |`,
  `| a turn of a conversation of 5,000 messages that grows | ${us(grown[0])} | the rule in plain JavaScript: ${us(grown[1])} | ${times(grown[1], grown[0])} |`,
  `| one of 5,000 messages that was never seen | ${us(anew[0])} | the rule in plain JavaScript: ${us(anew[1])} | ${times(anew[1], anew[0])} |`,
]
const report = `${machine(load)}\n\n${lines.join('\n')}\n`
process.stdout.write(report)
if (values.markdown !== undefined) writeFileSync(values.markdown, report)
