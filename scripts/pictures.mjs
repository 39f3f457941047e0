/**
 * `node scripts/pictures.mjs [--binary FILE]`: takes the pictures of the page and of the terminal that the guide shows, into
 * docs/pictures: `simse start` does its job, and both look at its session. Needs a Chromium and tmux.
 */

import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { browserPath, launch, openPage } from '../__test__/support/page.mjs'
import { screen } from '../__test__/support/screen.mjs'
import { missing, say, top } from './tools.mjs'

const JOB_MS = 120_000
const COLOURS = ['#1c1f26', '#e06c75', '#98c379', '#e5c07b', '#61afef', '#c678dd', '#56b6c2', '#d5dae3']
const BRIGHT = ['#7f8796', ...COLOURS.slice(1, 7), '#ffffff']
const LEVELS = [0, 95, 135, 175, 215, 255]
const text = (value) => value.replaceAll('&', '&amp;').replaceAll('<', '&lt;')

/** What colours a terminal's text: ESC, `[`, numbers, `m`. */
const SEQUENCE = new RegExp(`${String.fromCharCode(27)}\\[([\\d;]*)m`)

/** A colour of the table of 256. */
function coloured(number) {
  if (number < 16) return (number < 8 ? COLOURS : BRIGHT)[number % 8]
  if (number > 231) return `rgb(${Array(3).fill(8 + (number - 232) * 10)})`
  const at = number - 16
  return `rgb(${[Math.floor(at / 36), Math.floor(at / 6) % 6, at % 6].map((level) => LEVELS[level])})`
}

/** What a sequence of a terminal (SGR) makes of the style before it. */
function restyled(style, codes) {
  const next = { ...style }
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at]
    if (code === 0) for (const key of Object.keys(next)) delete next[key]
    else if (code === 1) next.bold = true
    else if (code === 2) next.dim = true
    else if (code === 3) next.italic = true
    else if (code === 7) next.turned = true
    else if (code === 22) next.bold = next.dim = false
    else if (code === 27) next.turned = false
    else if (code === 39) delete next.front
    else if (code === 49) delete next.back
    else if (code === 38 || code === 48) {
      const wide = codes[at + 1] === 2
      next[code === 38 ? 'front' : 'back'] = wide ? `rgb(${codes.slice(at + 2, at + 5)})` : coloured(codes[at + 2])
      at += wide ? 4 : 2
    } else {
      const [table, key] = [
        code >= 90 ? BRIGHT : COLOURS,
        (code % 100 >= 40 && code < 90) || code >= 100 ? 'back' : 'front',
      ]
      if (code >= 30) next[key] = table[code % 10]
    }
  }
  return next
}

/** A terminal's screen as a page. */
function drawn(raw) {
  let style = {}
  const pieces = raw.split(SEQUENCE).map((piece, at) => {
    if (at % 2 === 1) {
      style = restyled(style, piece.split(';').map(Number))
      return ''
    }
    const pair = [style.front ?? '#d5dae3', style.back ?? '#14161b']
    const [front, back] = style.turned ? pair.reverse() : pair
    const rules = `color:${front};background:${back};${style.bold ? 'font-weight:700;' : ''}${style.dim ? 'opacity:.65;' : ''}${style.italic ? 'font-style:italic;' : ''}`
    return `<span style="${rules}">${text(piece)}</span>`
  })
  return `<body style="margin:0;background:#14161b"><pre style="display:inline-block;margin:0;padding:14px;font:14px/1.25 'DejaVu Sans Mono',monospace;color:#d5dae3">${pieces.join('')}</pre>`
}

const { values } = parseArgs({ options: { binary: { type: 'string' } } })
const binary = resolve(values.binary ?? join(top, 'target', 'release', 'simse'))
if (!existsSync(binary)) missing(`${binary} is not there`, '`npm run build -- --standalone` makes it.')
if (browserPath === undefined) missing('there is no Chromium', 'Debian: apt install chromium.')
const home = mkdtempSync(join(tmpdir(), 'simse-pictures-'))
const out = join(top, 'docs', 'pictures')
mkdirSync(out, { recursive: true })
const env = { PATH: process.env.PATH, HOME: home }
const flags = ['start', '--port', '0', '--data-dir', join(home, 'data')]
const server = spawn(binary, flags, { cwd: home, env, stdio: ['ignore', 'pipe', 'ignore'] })
let said = ''
server.stdout.on('data', (piece) => (said += piece))
const browser = await launch()
try {
  for (const end = Date.now() + JOB_MS; !said.includes('Ctrl-C stops it'); await sleep(50))
    if (Date.now() > end || server.exitCode !== null) throw new Error(`the job does not end: ${said}`)
  const [, url, id] = /(http:\/\/127\.0\.0\.1:\d+)\/sessions\/(ses_\w+)/.exec(said)
  const headers = { authorization: `Bearer ${readFileSync(join(home, 'data', 'token'), 'utf8').trim()}` }
  for (const colorScheme of ['light', 'dark']) {
    const at = `#/s/${id}`
    const { page, context } = await openPage(browser, { url, headers }, { colorScheme, at })
    await sleep(1500)
    await page.screenshot({ path: join(out, `page-${colorScheme}.png`) })
    await context.close()
  }
  const args = ['attach', url, '--token-file', join(home, 'data', 'token'), '--session', id]
  const terminal = await screen({ program: binary, args, env, cwd: home, columns: 110, rows: 34 })
  await sleep(3000)
  const page = await browser.newPage({ viewport: { width: 1000, height: 700 } })
  await page.setContent(drawn(await terminal.raw()))
  await page.locator('pre').screenshot({ path: join(out, 'terminal.png') })
  await terminal.close()
} finally {
  await browser.close()
  server.kill('SIGTERM')
  await new Promise((done) => (server.exitCode === null ? server.once('exit', done) : done()))
  rmSync(home, { recursive: true, force: true })
}
say(`the pictures are in ${out}`)
