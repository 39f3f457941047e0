/** The web page in a real Chromium: where that is, a page that tells of every error, and pictures that are kept. */

import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import process from 'node:process'
import { chromium } from 'playwright-core'

/** The browser that the machine has; undefined: none. */
export const browserPath = (() => {
  if (process.env.SIMSE_TEST_CHROMIUM) return process.env.SIMSE_TEST_CHROMIUM
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    try {
      return execFileSync('which', [name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
    } catch {
      // The next one.
    }
  }
  return undefined
})()

/** Where pictures go, for people to look at. */
const PICTURES = join(process.env.CARGO_TARGET_DIR ?? 'target', 'page')
const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

/** A browser. */
export function launch() {
  mkdirSync(PICTURES, { recursive: true })
  return chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', '--disable-dev-shm-usage'] })
}

/**
 * A page of a server, let in with its token. `errors` is what its console and its scripts have complained of, lost connections left out:
 * those are told on the page.
 */
export async function openPage(browser, server, { at = '', token, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
  const page = await context.newPage()
  const errors = []
  page.on('console', (message) => {
    if (message.type() === 'error' && !/ERR_|Failed to load resource/.test(message.text())) errors.push(message.text())
  })
  page.on('pageerror', (error) => errors.push(error.stack ?? String(error)))
  const key = token ?? server.headers.authorization.replace('Bearer ', '')
  await page.goto(`${server.url}/#token=${encodeURIComponent(key)}`)
  await page.waitForSelector('.page, .login')
  if (at !== '') await page.evaluate((place) => Object.assign(location, { hash: place }), at)
  return { page, errors, context }
}

/** Keeps a picture of it. */
export const picture = (page, name) => page.screenshot({ path: join(PICTURES, `${name}.png`) })

/** What axe finds wrong, a line each. */
export async function faults(page) {
  // What the page's own rules do not let in comes in beside them.
  await page.evaluate(await import('node:fs').then(({ readFileSync }) => readFileSync(axe, 'utf8')))
  // What a model says begins with headings of any height.
  const options = { resultTypes: ['violations'], rules: { 'heading-order': { enabled: false } } }
  const found = await page.evaluate((options) => globalThis.axe.run(document, options), options)
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(' | ')}`)
}
