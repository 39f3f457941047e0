/**
 * The web page, in Chromium, against the real program: what somebody does who has never read a line about it. Pictures of each step are
 * in target/page.
 */

import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { scriptedModel } from './support/model.mjs'
import { browserPath, faults, launch, openPage, picture } from './support/page.mjs'
import { servedAt } from './support/served.mjs'

const home = realpathSync(mkdtempSync(join(tmpdir(), 'simse-page-')))
const BEFORE = 'fn main() {\n    println!("hi");\n}\n'
const AFTER = 'fn main() {\n    println!("hello");\n}\n'

const TEXT =
  '# A heading\n\nSome **bold** text, `code`, a [link](https://example.com/) and <b>no HTML</b>.\n\n- one\n- two\n\n' +
  '```rust\nfn main() { println!("hi"); }\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n'

const pause = (ms) => new Promise((done) => setTimeout(done, ms))
let calls = 0
const call = (name, args) => ({ id: `call_${++calls}`, name, arguments: args })

/** What the model does: the words of the last prompt say it. */
function reply({ messages, tools }) {
  const last = messages.findLastIndex(({ role }) => role === 'user')
  const content = messages[last].content
  const said = typeof content === 'string' ? content : content.map((part) => part.text ?? '').join(' ')
  const results = messages.slice(last + 1).filter(({ role }) => role === 'tool').length
  if (tools === undefined && !said.startsWith('task')) return { text: 'A title' }
  if (said.includes('edit') && results === 0)
    return { reasoning: 'I think.', calls: [call('fs_write', { path: 'main.rs', content: AFTER })] }
  if (said.includes('plant') && results === 0)
    return { calls: [call('fs_write', { path: 'deep/new.txt', content: 'new\n' })] }
  if (said.includes('shell') && results === 0) return { calls: [call('bash', { command: 'echo from the shell' })] }
  if (said.includes('divide') && results === 0)
    return {
      calls: [
        call('spawn_agent', { task: 'task one', name: 'helper' }),
        call('task_create', { subject: 'A first step' }),
      ],
    }
  if (said.includes('slow')) {
    const pieces = Array.from({ length: 400 }, (_, at) => `word${at} `)
    return { text: pieces, pace: () => pause(15) }
  }
  return { text: said.includes('show') ? TEXT.match(/[\s\S]{1,20}/g) : `You said: ${said}` }
}

let model
let server
let browser
before(async () => {
  if (browserPath === undefined) return
  model = await scriptedModel(Array(1_000).fill(reply))
  server = await servedAt({ home, model })
  writeFileSync(join(server.work, 'main.rs'), BEFORE)
  browser = await launch()
})
after(async () => {
  await browser?.close()
  await server?.kill()
  await model?.close()
  rmSync(home, { recursive: true, force: true })
})

const only = { skip: browserPath === undefined && 'there is no Chromium here' }

/** A page on a new session. */
async function begun(options) {
  const { body } = await server.call('POST', '/sessions', {})
  const opened = await openPage(browser, server, { at: `/s/${body.sessionId}`, ...options })
  await opened.page.waitForSelector('.line-state.live')
  const say = async (words) => {
    await opened.page.fill('#prompt', words)
    await opened.page.press('#prompt', 'Enter')
  }
  const ended = () => opened.page.waitForFunction(() => document.querySelector('.stop') === null)
  return { ...opened, sessionId: body.sessionId, say, ended }
}

const timeline = (page) => page.locator('.timeline').innerText()

test('the page asks for a token, keeps it for the tab, and no script but its own runs', only, async () => {
  const answer = await fetch(server.url)
  const policy = answer.headers.get('content-security-policy')
  assert.match(policy, /^default-src 'none'; script-src 'self';/)
  assert.doesNotMatch(policy, /unsafe|\*|http/)
  assert.equal(answer.headers.get('x-frame-options'), 'DENY')
  const html = await answer.text()
  const again = await fetch(server.url, { headers: { 'if-none-match': answer.headers.get('etag') } })
  assert.equal(again.status, 304)
  const script = /src="\.\/(assets\/[^"]+)"/.exec(html)[1]
  const file = await fetch(`${server.url}/${script}`)
  assert.match(file.headers.get('cache-control'), /immutable/)
  assert.equal((await fetch(`${server.url}/assets/none.js`)).status, 404)
  assert.equal((await fetch(`${server.url}/sessions`)).status, 401, 'the rest needs the token')

  const { page, errors, context } = await openPage(browser, server, { token: 'wrong' })
  await page.waitForSelector('.login')
  assert.ok((await page.locator('.login [role=alert]').innerText()).length > 0)
  await picture(page, 'login')
  assert.deepEqual(await faults(page), [])
  await page.fill('input[type=password]', server.headers.authorization.replace('Bearer ', ''))
  await page.click('text=Open')
  await page.waitForSelector('.sidebar')
  assert.equal(new URL(page.url()).hash, '', 'no token stands in the address')
  await page.reload()
  await page.waitForSelector('.sidebar')
  assert.deepEqual(errors, [])
  await context.close()
})

test('a task is given, followed, allowed, looked at and undone', only, async () => {
  const { page, errors, context, sessionId, say, ended } = await begun()
  await say('show me')
  await page.waitForSelector('.timeline h2:has-text("A heading")')
  await ended()
  assert.equal(await page.locator('.timeline a[href="https://example.com/"]').count(), 1)
  assert.match(await timeline(page), /<b>no HTML<\/b>/)
  await page.waitForSelector('figure.code .hljs-keyword')
  await picture(page, 'answer')
  assert.deepEqual(await faults(page), [])

  await say('edit the file')
  const card = page.locator('section.permission')
  await card.waitFor()
  assert.match(
    await card.innerText(),
    /May fs_write run\?[\s\S]*\d+ s[\s\S]*main\.rs[\s\S]*println!\("hi"\);[\s\S]*println!\("hello"\);/,
  )
  await picture(page, 'permission')
  assert.deepEqual(await faults(page), [])
  await page.evaluate(() => document.activeElement?.blur())
  await page.keyboard.press('y')
  await page.waitForSelector('article.changes')
  assert.equal(readFileSync(join(server.work, 'main.rs'), 'utf8'), AFTER)
  await ended()

  await page.click('header.session >> text=Panels')
  await page.click('.panels details.file summary')
  await page.waitForSelector('.panels table.diff td.added')
  await page.click('.panels >> text=Inline')
  await page.waitForSelector('.panels table.diff.split')
  const widths = await page.$eval('.panels table.diff.split tr:nth-child(2)', (row) =>
    [...row.children].map((cell) => cell.getBoundingClientRect().width),
  )
  assert.ok(widths[1] > 2 * widths[0], `the code has the room, not the numbers: ${widths}`)
  await picture(page, 'changes')
  assert.deepEqual(await faults(page), [])
  await page.click('.panels .turns >> text=Undo')
  await page.waitForSelector('.panels .undone')
  assert.equal(readFileSync(join(server.work, 'main.rs'), 'utf8'), BEFORE)
  await page.click('.panels .turns >> text=Redo')
  await page.waitForFunction(() => document.querySelector('.panels .undone') === null)
  assert.equal(readFileSync(join(server.work, 'main.rs'), 'utf8'), AFTER)

  // All of it is there again for who comes later.
  await page.reload()
  await page.waitForSelector('details.call.done')
  assert.match(await timeline(page), /A heading[\s\S]*edit the file[\s\S]*fs_write/)
  // A fork goes on from a place in the middle.
  await page.locator('article.user .actions button:has-text("Fork")').first().click()
  await page.waitForFunction((id) => !location.hash.includes(id) && location.hash.startsWith('#/s/'), sessionId)
  await page.waitForSelector('.line-state.live')
  assert.doesNotMatch(await timeline(page), /edit the file/)
  assert.deepEqual(errors, [])
  await context.close()
})

test('while a turn runs prompts wait, go into it, are taken back, and it is stopped', only, async () => {
  const { page, errors, context, say, ended, sessionId } = await begun()
  await say('slow work')
  await page.waitForSelector('article.live')
  await say('the next thing')
  await page.waitForSelector('.queue li:has-text("the next thing")')
  await page.selectOption('.composer .mode select', 'steer')
  await say('mind this')
  await picture(page, 'queue')
  assert.deepEqual(await faults(page), [])
  await page.click('.queue [aria-label="Take back"]')
  await page.waitForFunction(() => document.querySelector('.queue') === null)
  await page.click('.stop')
  await page.waitForSelector('.note:has-text("Stopped")')
  // What was steered and not heard any more is a turn of its own.
  await page.waitForFunction(() => document.querySelector('.timeline')?.innerText.includes('You said: mind this'))
  await ended()
  const { body } = await server.call('GET', `/sessions/${sessionId}/turns`)
  assert.deepEqual(body.items.map(({ status }) => status).sort(), ['aborted', 'aborted', 'completed'])
  assert.deepEqual(errors, [])
  await context.close()
})

test('sub-agents stand in a tree, tasks in a list, and a shell shows what it says', only, async () => {
  const { page, errors, context, say, ended } = await begun()
  await say('divide this')
  await ended()
  await page.click('header.session >> text=Panels')
  await page.click('#tab-agents')
  await page.waitForSelector('.runs .badge.completed')
  assert.match(await page.locator('.runs').innerText(), /helper/)
  await picture(page, 'agents')
  assert.deepEqual(await faults(page), [])
  await page.click('#tab-plan')
  await page.waitForSelector('#panel >> text=A first step')
  await page.click('.runs a:has-text("helper"), #tab-agents')
  await page.click('.runs a:has-text("helper")')
  await page.waitForFunction(() => document.querySelector('.timeline')?.innerText.includes('task one'))
  await page.click('header.session a[title="The session above"]')
  await page.waitForFunction(() => document.querySelector('.timeline')?.innerText.includes('divide this'))
  await say('shell')
  await page.locator('section.permission button.allow').click()
  await page.waitForSelector('details.call.terminal.done')
  await page.click('details.call.terminal summary')
  await page.waitForSelector('.output:has-text("from the shell")')
  assert.deepEqual(errors, [])
  await context.close()
})

test('two windows see the same, and a question is answered once', only, async () => {
  const { page, errors, context, sessionId, say, ended } = await begun()
  const other = await openPage(browser, server, { at: `/s/${sessionId}` })
  await other.page.waitForSelector('.line-state.live')
  await say('shell please')
  await page.waitForSelector('section.permission')
  await other.page.waitForSelector('section.permission')
  await other.page.locator('section.permission button.deny').click()
  await page.waitForFunction(() => document.querySelector('section.permission') === null)
  await ended()
  await other.page.waitForFunction(() => document.querySelector('.stop') === null)
  const [one, two] = await Promise.all([timeline(page), timeline(other.page)])
  assert.match(one, /failed/)
  assert.equal(one.replaceAll(/\d+ ms/g, ''), two.replaceAll(/\d+ ms/g, ''))
  // Who comes in the middle is shown what waits.
  await say('edit again')
  await page.waitForSelector('section.permission')
  await other.page.reload()
  await other.page.waitForSelector('section.permission')
  await other.page.locator('section.permission button.deny').click()
  await ended()
  assert.deepEqual([...errors, ...other.errors], [])
  await other.context.close()
  await context.close()
})

test('a server that is killed and comes again costs no word', only, async () => {
  const { page, errors, context, sessionId, say } = await begun()
  await say('slow work that is cut off')
  await page.waitForFunction(() => document.querySelector('article.live')?.innerText.includes('word20'))
  await server.kill()
  await page.waitForSelector('.line-state.broken')
  await picture(page, 'broken')
  await server.start()
  await page.waitForSelector('.line-state.live', { timeout: 60_000 })
  await say('are you there')
  await page.waitForFunction(() => document.querySelector('.timeline')?.innerText.includes('You said: are you there'))
  const { body } = await server.call('GET', `/sessions/${sessionId}/history`)
  const said = body.items
    .filter(({ type }) => type === 'message')
    .map(({ content }) => content.map(({ text }) => text).join(''))
  const shown = (await timeline(page)).replaceAll(/\s+/g, ' ')
  for (const text of said) assert.ok(shown.includes(text.trim().replaceAll(/\s+/g, ' ')), `${text} is not shown`)
  assert.deepEqual(errors, [])
  await context.close()
})

test('pictures are pasted, files are dropped as text, and commands are offered', only, async () => {
  const { page, errors, context, say, ended } = await begun()
  await page.evaluate(() => {
    const bytes = Uint8Array.from(
      atob('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='),
      (c) => c.charCodeAt(0),
    )
    const data = new DataTransfer()
    data.items.add(new File([bytes], 'dot.png', { type: 'image/png' }))
    document
      .getElementById('prompt')
      .dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }))
    const text = new DataTransfer()
    text.items.add(new File(['some notes'], 'notes.txt', { type: 'text/plain' }))
    document
      .querySelector('.composer')
      .dispatchEvent(new DragEvent('drop', { dataTransfer: text, bubbles: true, cancelable: true }))
  })
  await page.waitForSelector('.composer .pictures img')
  await page.waitForFunction(() => document.getElementById('prompt').value.includes('some notes'))
  await page.press('#prompt', 'Enter')
  await page.waitForSelector('article.user .pictures img')
  await ended()
  const sent = JSON.stringify(model.requests.at(-1).messages)
  assert.match(sent, /data:image\/png;base64,iVBOR/)
  assert.match(sent, /notes\.txt/)
  assert.equal(existsSync(join(server.work, 'notes.txt')), false)
  await say('thanks')
  await ended()
  assert.deepEqual(errors, [])
  await context.close()
})

test('the files of the project are looked through, named in a prompt, and marked when they change', only, async () => {
  mkdirSync(join(server.work, 'deep/er'), { recursive: true })
  writeFileSync(join(server.work, 'deep/er/wanted.txt'), 'here')
  writeFileSync(join(server.work, 'deep/.gitignore'), 'left-out\n')
  writeFileSync(join(server.work, 'deep/left-out'), 'x')
  const { page, errors, context, say, ended } = await begun()
  await page.fill('#prompt', 'look at @wan')
  await page.waitForSelector('.offers [role=option]')
  assert.equal((await page.textContent('.offers [aria-selected=true]')).trim(), '@deep/er/wanted.txt')
  await page.press('#prompt', 'Tab')
  assert.equal(await page.inputValue('#prompt'), 'look at @deep/er/wanted.txt ')
  // In the middle of what is written, where the arrows lead; the lines behind it stay.
  await page.fill('#prompt', 'see @wa\n\nplease')
  for (let step = 0; step < 8; step += 1) await page.press('#prompt', 'ArrowLeft')
  await page.waitForSelector('.offers [role=option]')
  await page.click('.offers [role=option]')
  assert.equal(await page.inputValue('#prompt'), 'see @deep/er/wanted.txt \n\nplease')
  await page.fill('#prompt', 'look at @wan')
  await page.waitForSelector('.offers [role=option]')
  await page.press('#prompt', 'Home')
  await page.waitForSelector('.offers', { state: 'detached' })
  // What is written while a prompt is on its way stays.
  await page.route('**/prompt', async (route) => {
    await pause(300)
    await route.continue()
  })
  await say('one')
  await page.keyboard.type('the next one')
  await ended()
  await page.waitForSelector('article.user:has-text("one")')
  assert.equal(await page.inputValue('#prompt'), 'the next one')
  await page.unroute('**/prompt')
  await page.fill('#prompt', '')
  await page.click('text=Panels')
  await page.click('#tab-files')
  await page.click('#panel summary:has-text("deep/")')
  await page.waitForSelector('#panel .ignored:has-text("left-out")')
  await page.click('#panel summary:has-text("er/")')
  await page.click('#panel button:has-text("wanted.txt")')
  await page.waitForFunction(() => document.getElementById('prompt').value === '@deep/er/wanted.txt ')
  await page.fill('#panel input[type=search]', 'wntd')
  await page.waitForSelector('#panel button:has-text("deep/er/wanted.txt")')
  await page.fill('#panel input[type=search]', 'x'.repeat(1_100))
  await page.waitForSelector('#panel:has-text("They cannot be looked for.")')
  await page.fill('#panel input[type=search]', 'wntd')
  await page.waitForSelector('#panel button:has-text("deep/er/wanted.txt")')
  await page.fill('#panel input[type=search]', '')
  await page.click('#panel summary:has-text("deep/")')
  await page.waitForSelector('#panel .ignored:has-text("left-out")')
  await say('plant a file')
  await page.locator('section.permission').waitFor()
  await page.evaluate(() => document.activeElement?.blur())
  await page.keyboard.press('y')
  await page.waitForSelector('article.changes')
  await ended()
  await page.waitForSelector('#panel summary:has-text("1 changed")')
  await page.waitForSelector('#panel details[open] button:has-text("new.txt")')
  await picture(page, 'files')
  assert.deepEqual(await faults(page), [])
  assert.deepEqual(errors, [])
  await context.close()
})

test('sessions are found, settings changed, and keys are enough', only, async () => {
  await server.call('POST', '/sessions', { title: 'The needle' })
  const { page, errors, context, sessionId } = await begun()
  await page.evaluate(() => document.activeElement?.blur())
  await page.keyboard.press('/')
  await page.keyboard.type('needle')
  await page.waitForFunction(() => document.querySelectorAll('.sessions li').length === 1)
  await page.fill('#search', '')
  await page.fill('input.title', 'Another name')
  await page.press('input.title', 'Enter')
  await page.waitForSelector('.sessions .title:has-text("Another name")')
  await page.selectOption('[aria-label="What it may do"]', 'plan')
  const mode = async () => (await server.call('GET', `/sessions/${sessionId}`)).body.permissionMode
  while ((await mode()) !== 'plan') await pause(20)
  await page.evaluate(() => document.activeElement?.blur())
  await page.keyboard.press('?')
  await page.waitForSelector('dialog[aria-label="Keys"]')
  assert.deepEqual(await faults(page), [])
  await page.keyboard.press('Escape')
  await page.keyboard.press('n')
  await page.waitForSelector('dialog[aria-label="New session"]')
  assert.deepEqual(await faults(page), [])
  await page.fill('dialog label:has-text("Title") input', 'By keys')
  await page.keyboard.press('Enter')
  await page.waitForSelector('.sessions .title:has-text("By keys")')
  await page.click('text=Server and settings')
  await page.waitForSelector('dialog code:has-text("openai/scripted")')
  const row = (name) => `dialog .settings tr:has(code:text-is("${name}"))`
  await page.waitForSelector(`${row('data_dir')} >> text=argument`)
  assert.equal(await page.locator(row('max_iterations')).count(), 0)
  await page.fill('[aria-label="Search the settings"]', 'rounds with the model')
  await page.waitForSelector(`${row('max_iterations')}:has-text("200")`)
  assert.equal(await page.locator(row('data_dir')).count(), 0)
  for (const spelling of ['--max-iterations', 'SIMSE_MAX_ITERATIONS', 'max iterations']) {
    await page.fill('[aria-label="Search the settings"]', spelling)
    await page.waitForSelector(row('max_iterations'))
  }
  await picture(page, 'server')
  assert.deepEqual(await faults(page), [])
  assert.deepEqual(errors, [])
  await context.close()
})
