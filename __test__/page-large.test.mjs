/**
 * The web page, in Chromium: hostile texts, ten thousand items, a flood of pieces, small and large screens, light and dark.
 */

import assert from 'node:assert/strict'
import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { scriptedModel } from './support/model.mjs'
import { browserPath, faults, launch, openPage, picture } from './support/page.mjs'
import { servedAt } from './support/served.mjs'

const home = realpathSync(mkdtempSync(join(tmpdir(), 'simse-page-large-')))
const ROUNDS = 100
const CALLS = 50
const PIECES = 5_000

/** Each of them would run, if it were taken for what it looks like. */
const HOSTILE = [
  '<script>window.hit=1</script>',
  '<img src=x onerror="window.hit=2">',
  '<svg/onload=window.hit=3>',
  '<iframe srcdoc="<script>parent.hit=4</script>"></iframe>',
  '<a href="javascript:window.hit=5">press</a>',
  '[press](javascript:window.hit=6)',
  '[press](JaVaScRiPt:window.hit=7)',
  '[press](data:text/html,<script>window.hit=8</script>)',
  '[press](vbscript:x)',
  '[press](\u0001javascript:window.hit=9)',
  '![x](javascript:window.hit=10)',
  '![x](" onerror="window.hit=11)',
  '<style>*{display:none}</style>',
  '<meta http-equiv="refresh" content="0;url=https://example.com">',
  '<base href="https://example.com/">',
  '<form action="https://example.com"><button>press</button></form>',
  '<input autofocus onfocus=window.hit=12>',
  '<details open ontoggle=window.hit=13>',
  '<math><mtext><table><mglyph><style><img src=x onerror=window.hit=14>',
  '`<script>window.hit=15</script>`',
  '```html\n<script>window.hit=16</script>\n```',
  '```"><img src=x onerror=window.hit=17>\ncode\n```',
  '| <img src=x onerror=window.hit=18> | b |\n|---|---|\n| <script>window.hit=19</script> | 2 |',
  '- [x] <img src=x onerror=window.hit=20>',
  '> <script>window.hit=21</script>',
  '# <svg onload=window.hit=22>',
  '[ref]: javascript:window.hit=23\n\n[ref]',
  '<javascript:window.hit=24>',
  '&lt;script&gt;window.hit=25&lt;/script&gt; &#60;script&#62;window.hit=26&#60;/script&#62;',
  '\u202e<script>window.hit=27</script>',
  '<!--><script>window.hit=28</script>-->',
  '<![CDATA[<script>window.hit=29</script>]]>',
  '{{window.hit=30}} {{constructor.constructor("window.hit=31")()}}',
]

let calls = 0
function reply({ messages, tools }) {
  const last = messages.findLastIndex(({ role }) => role === 'user')
  const said = JSON.stringify(messages[last].content)
  const results = messages.slice(last + 1).filter(({ role }) => role === 'tool').length
  if (tools === undefined) return { text: '<img src=x onerror=window.hit=40>' }
  if (said.includes('hostile')) {
    if (results > 0) return { text: HOSTILE.join('\n\n'), reasoning: HOSTILE.join('\n') }
    const text = HOSTILE.join('\n')
    return {
      calls: [
        { id: `h_${++calls}`, name: 'bash', arguments: { command: `cat <<'END'\n${text}\nEND` } },
        {
          id: `h_${++calls}`,
          name: 'fs_write',
          arguments: { path: '<img src=x onerror=window.hit=41>.html', content: text },
        },
      ],
    }
  }
  if (said.includes('many') && results < ROUNDS * CALLS)
    return {
      calls: Array.from({ length: CALLS }, () => ({
        id: `m_${++calls}`,
        name: 'fs_stat',
        arguments: { path: `none-${calls}` },
      })),
    }
  if (said.includes('flood')) {
    const pieces = Array.from({ length: PIECES }, (_, at) => (at % 40 === 39 ? `w${at}.\n\n` : `w${at} `))
    return { text: pieces }
  }
  return { text: 'done' }
}

let model
let server
let browser
before(async () => {
  if (browserPath === undefined) return
  model = await scriptedModel(Array(1_000).fill(reply))
  server = await servedAt({ home, model, args: ['--max-iterations', '200', '--permission-mode', 'auto'] })
  browser = await launch()
})
after(async () => {
  await browser?.close()
  await server?.kill()
  await model?.close()
  rmSync(home, { recursive: true, force: true })
})

const only = { skip: browserPath === undefined && 'there is no Chromium here' }

async function session(body = {}) {
  return (await server.call('POST', '/sessions', body)).body.sessionId
}

test('nothing that a model, a tool or a file says is taken for the page', only, async () => {
  const sessionId = await session({ title: '<img src=x onerror=window.hit=50>' })
  const { page, errors, context } = await openPage(browser, server, { at: `/s/${sessionId}` })
  await page.waitForSelector('.line-state.live')
  const before = await page.locator('script, style, iframe, object, embed, form, base, meta').count()
  await page.fill('#prompt', `hostile ${HOSTILE.join('\n')}`)
  await page.press('#prompt', 'Enter')
  await page.waitForSelector('article.changes')
  await page.waitForFunction(() => document.querySelector('.stop') === null)
  // Everything that can be opened is.
  for (const place of [0, 0.25, 0.5, 0.75, 1]) {
    await page.evaluate((share) => {
      const scroller = document.querySelector('.timeline')
      scroller.scrollTop = share * scroller.scrollHeight
    }, place)
    await page.waitForTimeout(80)
    await page.evaluate(() => {
      for (const details of document.querySelectorAll('details')) details.open = true
    })
    await page.waitForTimeout(80)
  }
  await page.click('header.session >> text=Panels')
  await page.waitForSelector('.panels details.file')
  await page.evaluate(() => {
    for (const details of document.querySelectorAll('details')) details.open = true
  })
  await page.click('#tab-events')
  await page.waitForTimeout(300)
  await picture(page, 'hostile')
  assert.equal(await page.evaluate(() => window.hit), undefined)
  const found = await page.evaluate(() => ({
    after: document.querySelectorAll('script, style, iframe, object, embed, form, base, meta').length,
    links: [...document.querySelectorAll('a')].map((link) => link.protocol),
    handlers: [...document.querySelectorAll('*')].filter((one) =>
      [...one.attributes].some(({ name }) => name.startsWith('on')),
    ).length,
    pictures: [...document.querySelectorAll('img')].length,
  }))
  assert.equal(found.after, before, 'no element came that acts by itself')
  assert.equal(found.handlers, 0)
  assert.equal(found.pictures, 0)
  assert.deepEqual(
    [...new Set(found.links)].filter((protocol) => !['http:', 'https:', 'mailto:'].includes(protocol)),
    [],
  )
  assert.deepEqual(errors, [], 'the policy had nothing to hold back')
  await context.close()
})

test('ten thousand items are there, and few of them in the page', only, async () => {
  const sessionId = await session()
  const done = await server.call('POST', `/sessions/${sessionId}/prompt?wait=true`, { prompt: 'many calls' })
  assert.equal(done.body.status, 'completed', JSON.stringify(done.body))
  const view = (await server.call('GET', `/sessions/${sessionId}`)).body
  assert.ok(view.messageCount >= ROUNDS * CALLS, `${view.messageCount}`)
  const { page, errors, context } = await openPage(browser, server, { at: `/s/${sessionId}` })
  await page.waitForFunction(
    () => document.querySelectorAll('.row').length > 0 && document.querySelector('.line-state.live'),
  )
  await page.waitForFunction(() => document.querySelector('.timeline').innerText.includes('done'))
  const rows = () => page.locator('.row').count()
  assert.ok((await rows()) < 100, `${await rows()} rows`)
  // Up to the beginning, page by page, without a jump of what is read.
  const begin = Date.now()
  while ((await page.locator('.older').count()) > 0 && Date.now() - begin < 120_000) {
    await page.evaluate(() => {
      document.querySelector('.timeline').scrollTop = 0
    })
    await page.waitForTimeout(20)
  }
  assert.equal(await page.locator('.older').count(), 0)
  await page.evaluate(() => {
    document.querySelector('.timeline').scrollTop = 0
  })
  await page.waitForSelector('article.user:has-text("many calls")')
  assert.ok((await rows()) < 100, `${await rows()} rows`)
  await page.click('.to-end')
  await page.waitForFunction(() => document.querySelector('.timeline').innerText.includes('done'))
  await picture(page, 'ten-thousand')
  assert.deepEqual(errors, [])
  await context.close()
})

test('a flood of pieces is shown whole, in order, and the page goes along', only, async () => {
  const sessionId = await session()
  const { page, errors, context } = await openPage(browser, server, { at: `/s/${sessionId}` })
  await page.waitForSelector('.line-state.live')
  await page.fill('#prompt', 'flood')
  await page.press('#prompt', 'Enter')
  await page.waitForFunction(
    (last) => document.querySelector('article.assistant:not(.live)')?.innerText.includes(last),
    `w${PIECES - 1}.`,
    {
      timeout: 60_000,
    },
  )
  const words = (await page.locator('article.assistant:not(.live) .markdown').innerText()).match(/w\d+/g)
  assert.deepEqual(
    words,
    Array.from({ length: PIECES }, (_, at) => `w${at}`),
  )
  const atEnd = await page.evaluate(() => {
    const scroller = document.querySelector('.timeline')
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight
  })
  assert.ok(atEnd < 80, `${atEnd} pixels from the end`)
  assert.deepEqual(errors, [])
  await context.close()
})

test('it is right on small and large screens, light and dark', only, async () => {
  const sessionId = await session({ title: 'A title' })
  await server.call('POST', `/sessions/${sessionId}/prompt?wait=true`, { prompt: 'hostile' })
  for (const [name, options] of [
    ['phone', { viewport: { width: 360, height: 640 }, colorScheme: 'light', hasTouch: true }],
    ['phone-dark', { viewport: { width: 360, height: 640 }, colorScheme: 'dark' }],
    ['desk-dark', { viewport: { width: 1280, height: 800 }, colorScheme: 'dark' }],
    ['wall', { viewport: { width: 3840, height: 2160 }, colorScheme: 'light' }],
  ]) {
    const { page, errors, context } = await openPage(browser, server, { at: `/s/${sessionId}`, ...options })
    await page.waitForFunction(() => document.querySelector('article.assistant'))
    await page.waitForTimeout(200)
    await picture(page, name)
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    assert.ok(over <= 0, `${name}: ${over} pixels too wide`)
    assert.deepEqual(await faults(page), [], name)
    if (options.viewport.width < 760) {
      await page.click('[aria-label="Sessions"]')
      await page.waitForSelector('.sessions a')
      await page.waitForTimeout(100)
      await picture(page, `${name}-list`)
      assert.deepEqual(await faults(page), [], `${name} with the list`)
      await page.click('.sessions a[aria-current]')
      await page.waitForFunction(() => document.querySelector('.sidebar') === null)
    }
    assert.deepEqual(errors, [])
    await context.close()
  }
})
