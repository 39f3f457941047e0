/**
 * The web page in Chromium, against the real program: until its first picture, until a session of 10,000 items stands there, and how
 * evenly it draws while 5,000 pieces a second come.
 *
 *   node benches/page.mjs [--binary PATH] [--rounds N] [--markdown FILE]
 *
 * The program is target/release/simse (npm run build -- --standalone) unless another one is named. The model is scripted and outside; it writes 25 pieces of
 * some nine bytes every 5 ms. A picture counts when the browser calls for it (requestAnimationFrame); the browser runs without a screen.
 */

import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { top } from './lib/clients.mjs'
import { median, number } from './lib/figures.mjs'
import { machine } from './lib/machine.mjs'

const { values } = parseArgs({
  options: {
    binary: { type: 'string', default: join(top, 'target', 'release', 'simse') },
    rounds: { type: 'string', default: '5' },
    markdown: { type: 'string' },
  },
})
process.env.SIMSE_TEST_BINARY = values.binary
const { scriptedModel } = await import('../__test__/support/model.mjs')
const { launch } = await import('../__test__/support/page.mjs')
const { servedAt } = await import('../__test__/support/served.mjs')

const rounds = Number(values.rounds)
const [load] = loadavg()
const [ROUNDS, CALLS] = [100, 50]
const [SECONDS, EACH, EVERY_MS] = [5, 25, 5]
const PIECES = (SECONDS * 1_000 * EACH) / EVERY_MS
let calls = 0

/** Pieces at their pace: what is late is made up for. */
function paced() {
  const begin = performance.now()
  let count = 0
  return async () => {
    if (count++ % EACH !== 0) return
    const due = begin + (count / EACH) * EVERY_MS
    const wait = due - performance.now()
    if (wait > 0) await new Promise((done) => setTimeout(done, wait))
  }
}

function reply({ messages, tools }) {
  const last = messages.findLastIndex(({ role }) => role === 'user')
  const said = JSON.stringify(messages[last].content)
  const results = messages.slice(last + 1).filter(({ role }) => role === 'tool').length
  if (tools === undefined) return { text: 'A title' }
  if (said.includes('many') && results < ROUNDS * CALLS)
    return {
      calls: Array.from({ length: CALLS }, () => ({
        id: `m_${++calls}`,
        name: 'fs_stat',
        arguments: { path: `none-${calls}` },
      })),
    }
  if (said.includes('stream')) {
    const text = Array.from({ length: PIECES }, (_, at) => (at % 60 === 59 ? `w${at}.\n\n` : `w${at} `))
    return { text, pace: paced() }
  }
  return { text: 'done' }
}

const home = realpathSync(mkdtempSync(join(tmpdir(), 'simse-page-bench-')))
const model = await scriptedModel(Array(2_000).fill(reply))
const server = await servedAt({
  home,
  model,
  args: ['--max-iterations', '200', '--permission-mode', 'auto', '--commands-per-minute', '0'],
})
const browser = await launch()
const token = server.headers.authorization.replace('Bearer ', '')
const session = async () => (await server.call('POST', '/sessions', {})).body.sessionId

/** A page of its own, as somebody opens it for the first time. */
async function opened(place, work) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } })
  await context.addInitScript((key) => sessionStorage.setItem('simse.token', key), token)
  const page = await context.newPage()
  try {
    const begin = performance.now()
    await page.goto(`${server.url}/${place}`)
    return await work(page, begin)
  } finally {
    await context.close()
  }
}

const paints = []
for (let round = 0; round < rounds; round++) {
  paints.push(
    await opened('', async (page) => {
      await page.waitForSelector('.sidebar')
      return page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime)
    }),
  )
}

const large = await session()
await server.call('POST', `/sessions/${large}/prompt?wait=true`, { prompt: 'many' })
const items = (await server.call('GET', `/sessions/${large}`)).body.messageCount
const opens = []
for (let round = 0; round < rounds; round++) {
  opens.push(
    await opened(`#/s/${large}`, async (page, begin) => {
      await page.waitForFunction(() => document.querySelector('.timeline')?.innerText.includes('done'), undefined, {
        polling: 'raf',
      })
      return performance.now() - begin
    }),
  )
}

const streaming = await opened(`#/s/${await session()}`, async (page) => {
  await page.waitForSelector('.line-state.live')
  await page.fill('#prompt', 'stream')
  await page.evaluate(() => {
    globalThis.frames_ = []
    const frame = (at) => {
      if (document.querySelector('article.live') !== null) globalThis.frames_.push(at)
      requestAnimationFrame(frame)
    }
    requestAnimationFrame(frame)
  })
  await page.press('#prompt', 'Enter')
  const end = `w${PIECES - 1}`
  await page.waitForFunction(
    (text) => document.querySelector('article.assistant:not(.live)')?.innerText.includes(text),
    end,
    { timeout: 120_000 },
  )
  const words = (await page.locator('article.assistant:not(.live) .markdown').innerText()).match(/w\d+/g)
  const whole = words.length === PIECES && words.every((word, at) => word === `w${at}`)
  const frames = await page.evaluate(() => globalThis.frames_)
  const gaps = frames
    .slice(1)
    .map((at, n) => at - frames[n])
    .sort((a, b) => a - b)
  return { whole, gaps, seconds: (frames.at(-1) - frames[0]) / 1_000 }
})
await browser.close()
await server.kill()
await model.close()
rmSync(home, { recursive: true, force: true })
if (!streaming.whole) throw new Error('words were lost')

const at = (share) => streaming.gaps[Math.round((streaming.gaps.length - 1) * share)]
const lines = [
  '| what | aim | simse |',
  '|---|---|---|',
  `| until the first picture with something on it, median of ${rounds} | ≤ 300 ms | ${number(median(paints))} ms |`,
  `| until the end of a session of ${2 * items - 2} items is there, median of ${rounds} | ≤ 1 s | ${number(median(opens))} ms |`,
  `| ${PIECES} pieces in ${number(streaming.seconds)} s, no word lost: pictures a second, median (p95, worst gap) | 60 | ${number(1_000 / at(0.5))} (${number(at(0.95))} ms, ${number(at(1))} ms) |`,
]
const report = `${machine(load)}\n\n${lines.join('\n')}\n`
process.stdout.write(report)
if (values.markdown !== undefined) writeFileSync(values.markdown, report)
