/** The interface in a terminal, through a real one: what is shown, what keys do, and that the terminal is given back. */

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { scriptedModel } from './support/model.mjs'
import { hasTmux, screen } from './support/screen.mjs'
import { binary, environment, servedAt } from './support/served.mjs'

const skip = (await hasTmux()) ? false : 'there is no tmux here'
/** A question is on the screen for a moment before keys answer it. */
const SEEN = 600

let home
before(() => {
  home = mkdtempSync(join(tmpdir(), 'simse-terminal-'))
})
after(() => rmSync(home, { recursive: true, force: true }))

/** A terminal with the interface, on a scripted model; the server is its own one. */
async function begun(name, script, { args = [], files = {}, env: more = {}, ...size } = {}) {
  const place = join(home, name)
  const work = join(place, 'work')
  mkdirSync(work, { recursive: true })
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(join(work, path, '..'), { recursive: true })
    writeFileSync(join(work, path), text)
  }
  const model = await scriptedModel(script)
  const all = [
    '--data-dir',
    join(place, 'data'),
    '--model',
    'openai/scripted',
    '--openai-base-url',
    model.baseUrl,
    ...args,
  ]
  const env = Object.fromEntries(Object.entries(environment(place)).filter(([key]) => /^(HOME|PATH|LANG)$/.test(key)))
  const shown = await screen({
    program: binary,
    args: all,
    env: { ...env, ...more, LANG: 'C.UTF-8' },
    cwd: work,
    ...size,
  })
  const close = async () => {
    await shown.close()
    await model.close()
  }
  return { ...shown, model, work, place, close }
}

const bash = (command, id = 'call_1') => ({ calls: [{ id, name: 'bash', arguments: { command } }] })

test('a task is given, followed, asked about, and its change looked at and undone', { skip }, async () => {
  const script = [
    {
      text: 'I write it **now**.',
      calls: [{ id: 'c1', name: 'fs_write', arguments: { path: 'hello.txt', content: 'one\ntwo\n' } }],
    },
    { text: '# Done\n\n- written\n\n```js\nlet a = 1\n```\n' },
  ]
  const it = await begun('whole', script)
  try {
    await it.until('what is to be done?')
    await it.type('write hello')
    await it.keys('Enter')
    const asked = await it.until('May fs_write run?')
    assert.match(asked, /\+one/, 'what would happen is shown')
    assert.match(asked, /y allow/)
    assert.match(asked, /\d+ s/)
    await sleep(SEEN)
    await it.keys('y')
    const done = await it.until('• written')
    assert.match(done, /> write hello/)
    assert.match(done, /I write it now\./)
    assert.match(done, /● fs_write {2}hello\.txt/)
    assert.match(done, / {4}let a = 1/)
    assert.doesNotMatch(done, /\*\*|```/)
    assert.equal(readFileSync(join(it.work, 'hello.txt'), 'utf8'), 'one\ntwo\n')
    await it.until(/hello\.txt \+2 −0/)
    await it.type('/diff')
    await it.keys('Enter')
    await it.until('Esc closes')
    await it.until('+two')
    await it.keys('Escape')
    await it.type('/undo')
    await it.keys('Enter')
    await it.until('Undone: hello.txt')
    assert.throws(() => readFileSync(join(it.work, 'hello.txt')))
    await it.type('/exit')
    await it.keys('Enter')
    const after = await it.until('ended with 0')
    assert.match(after, /simse --session ses_/, 'it says how to go on')
    assert.doesNotMatch(after, /write hello/, 'the screen is as it was before')
  } finally {
    await it.close()
  }
})

test('who is writing answers nothing by accident, and a no can have words', { skip }, async () => {
  const script = [bash('echo one > made'), bash('echo two > made', 'call_2'), { text: 'as you like' }]
  const it = await begun('words', script)
  try {
    await it.until('what is to be done?')
    await it.type('go')
    await it.keys('Enter')
    await it.type('yyy')
    const shown = await it.until('May bash run?')
    assert.match(shown, /yyy/, 'what was typed is a prompt')
    await sleep(SEEN)
    assert.throws(() => readFileSync(join(it.work, 'made')), 'and no answer')
    await it.keys('C-u')
    await it.keys('Tab')
    await sleep(SEEN)
    await it.keys('w')
    await it.until('denies with these words')
    await it.type('use two')
    await it.keys('Enter')
    await it.until('echo two')
    assert.match(JSON.stringify(it.model.requests[1].messages), /use two/, 'the model reads why')
    await sleep(SEEN)
    await it.keys('n')
    await it.until('as you like')
    assert.throws(() => readFileSync(join(it.work, 'made')))
  } finally {
    await it.close()
  }
})

test('prompts wait, are said into a turn, and a turn is stopped', { skip }, async () => {
  let go
  const held = new Promise((open) => {
    go = open
  })
  const script = [
    () => held.then(() => bash('true')),
    { text: 'first is done' },
    { text: 'second is done' },
    { hang: true },
  ]
  const it = await begun('queue', script, { args: ['--permission-mode', 'auto', '--default-policy', 'allow'] })
  try {
    await it.until('what is to be done?')
    await it.type('first')
    await it.keys('Enter')
    await it.until(/working \d+ s/)
    await it.type('second')
    await it.keys('Enter')
    await it.until('⋯ second')
    await it.type('and quickly')
    await it.keys('C-s')
    go()
    await it.until('» and quickly')
    await it.until('second is done')
    assert.match(JSON.stringify(it.model.requests[1].messages), /and quickly/)
    await it.type('third')
    await it.keys('Enter')
    await it.until('one moment')
    await it.keys('Escape')
    await it.until('Esc once more')
    await it.keys('Escape')
    await it.until('Stopped: stopped at the terminal')
  } finally {
    await it.close()
  }
})

test('words are found further back, a prompt is written elsewhere, and an agent is named', { skip }, async () => {
  const files = {
    '.simse/agents/reviewer.md': '---\nname: reviewer\ndescription: Looks twice.\n---\nYou review.\n',
    'edit.sh': '#!/bin/sh\nprintf "from my editor: " > "$1.new"; cat "$1" >> "$1.new"; mv "$1.new" "$1"\n',
  }
  const script = [
    { text: 'the needle lies here' },
    { text: 'nothing of it' },
    { text: 'written' },
    { text: 'reviewed' },
  ]
  const it = await begun('finding', script, { files, env: { EDITOR: 'sh edit.sh' } })
  try {
    await it.until('what is to be done?')
    for (const [prompt, answer] of [
      ['first', 'the needle lies here'],
      ['second', 'nothing of it'],
    ]) {
      await it.type(prompt)
      await it.keys('Enter')
      await it.until(answer)
      await it.until('what is to be done?')
    }
    await it.keys('C-f')
    await it.until('> /find')
    await it.type('NEEDLE')
    await it.keys('Enter')
    await it.until('n further back')
    await it.keys('n')
    await it.until('`NEEDLE` is not further back')
    await it.keys('Escape')
    await it.type('a draft')
    await it.keys('C-g')
    await it.until('> from my editor: a draft')
    await it.keys('Enter')
    await it.until('written')
    assert.match(JSON.stringify(it.model.requests.at(-1).messages.at(-1)), /from my editor: a draft/)
    await it.type('@rev')
    await it.until('reviewer')
    await it.keys('Tab')
    await it.type('look')
    await it.keys('Enter')
    await it.until('reviewed')
    assert.match(JSON.stringify(it.model.requests.at(-1).messages), /You review/)
  } finally {
    await it.close()
  }
})

test("a sub-agent's own session is looked at, and one goes back to who started it", { skip }, async () => {
  const reply = ({ messages }) => {
    const last = messages.findLastIndex(({ role }) => role === 'user')
    const said = JSON.stringify(messages[last].content)
    const results = messages.slice(last + 1).filter(({ role }) => role === 'tool').length
    if (said.includes('divide') && results === 0)
      return { calls: [{ id: 'c1', name: 'spawn_agent', arguments: { task: 'task one', name: 'helper' } }] }
    return { text: said.includes('task one') ? 'the helper has an answer' : 'all is done' }
  }
  const it = await begun('subagents', Array(10).fill(reply))
  try {
    await it.until('what is to be done?')
    await it.type('/subagents')
    await it.keys('Enter')
    await it.until('nothing fits')
    await it.keys('Escape')
    await it.type('divide it')
    await it.keys('Enter')
    await it.until('all is done')
    await it.type('/subagents')
    await it.keys('Enter')
    await it.until(/helper.*has ended/)
    await it.keys('Enter')
    // Above all, its words stand in the answer of a call.
    await it.until(/> task one[\s\S]*the helper has an answer/)
    assert.doesNotMatch(await it.text(), /divide it/)
    await it.type('/subagents')
    await it.keys('Enter')
    await it.until('↑ the session above')
    await it.keys('Enter')
    await it.until('> divide it')
  } finally {
    await it.close()
  }
})

test('commands, files, models and sessions are chosen by a few letters', { skip }, async () => {
  const files = { 'src/deep/wanted.rs': 'x', 'src/other.rs': 'y', 'ignored/no.rs': 'z', '.gitignore': 'ignored/\n' }
  const it = await begun('choices', [{ text: 'seen' }, { text: 'fresh one' }], { files })
  try {
    await it.until('what is to be done?')
    await it.type('look at @wan')
    await it.until('src/deep/wanted.rs')
    await it.keys('Tab')
    await it.until('> look at @src/deep/wanted.rs')
    await it.type('@no.rs')
    await sleep(300)
    assert.doesNotMatch(await it.text(), /ignored\/no\.rs/)
    await it.keys('C-w')
    await it.keys('Enter')
    await it.until('seen')
    await it.type('/mod')
    await it.until('choose the model')
    await it.keys('Enter')
    await it.until('> /model')
    await it.keys('Enter')
    await it.until('openai/scripted')
    await it.keys('Escape')
    await it.type('/mode nonsense')
    await it.keys('Enter')
    await it.until('expected plan, ask, accept-edits or auto')
    await it.keys('BTab')
    await it.until('· accept-edits')
    await it.type('/title A good name')
    await it.keys('Enter')
    await it.until(/^ A good name/)
    await it.type('/new')
    await it.keys('Enter')
    await it.until(/^ ses_/)
    await it.type('in the new one')
    await it.keys('Enter')
    await it.until('fresh one')
    await it.keys('C-p')
    await it.until('A good name')
    await it.type('good')
    await it.keys('Enter')
    await it.until(/^ A good name[\s\S]*seen/)
    await it.keys('Up')
    await it.until('> in the new one')
    await it.keys('C-c')
    await it.until('what is to be done?')
  } finally {
    await it.close()
  }
})

test('a long paste is a word, and arrives whole; what is written has many lines', { skip }, async () => {
  const it = await begun('paste', [{ text: 'read' }])
  try {
    await it.until('what is to be done?')
    const long = Array.from({ length: 40 }, (_, at) => `line ${at}`).join('\n')
    await it.type('see ')
    await it.paste(long)
    await it.until('> see [paste 1: 40 lines]')
    await it.keys('C-j')
    await it.type('second line')
    await it.keys('Enter')
    await it.until('read')
    const sent = JSON.stringify(it.model.requests[0].messages)
    assert.match(sent, /see line 0\\nline 1\\n.*line 39\\nsecond line/)
  } finally {
    await it.close()
  }
})

test('what a model and a tool say cannot steer the terminal', { skip }, async () => {
  const evil = '\u001b[2J\u001b]0;owned\u0007\u001b[31mred\u202edlrow'
  const it = await begun('evil', [{ text: evil, ...bash(`printf '\\033[2J\\033]0;x\\007out'`) }, { text: 'the end' }], {
    args: ['--permission-mode', 'auto', '--default-policy', 'allow'],
  })
  try {
    await it.until('what is to be done?')
    await it.type('go')
    await it.keys('Enter')
    const shown = await it.until('the end')
    assert.match(shown, /> go/, 'nothing was erased')
    assert.match(shown, /�\[31mred�dlrow/)
    assert.ok(!(await it.raw()).includes('\u001b[31mred'))
  } finally {
    await it.close()
  }
})

test('it fits any size, and the wheel, keys and clicks look back', { skip }, async () => {
  const text = Array.from({ length: 100 }, (_, at) => `${at + 1}. item number ${at + 1}`).join('\n')
  const it = await begun('size', [{ text }, bash('seq 1 30'), { text: 'counted' }], {
    args: ['--permission-mode', 'auto', '--default-policy', 'allow'],
  })
  try {
    await it.until('what is to be done?')
    await it.type('list')
    await it.keys('Enter')
    await it.until('100. item number 100')
    await it.keys('C-Home')
    await it.until('> list')
    await it.until('End goes to the newest')
    await it.resize(40, 12)
    await it.until('1. item number 1')
    await it.resize(160, 45)
    await it.until('39. item number 39')
    await it.keys('End')
    await it.until('100. item number 100')
    await it.type('count')
    await it.keys('Enter')
    await it.until('counted')
    assert.match(await it.text(), /… 24 more lines/)
    await it.keys('C-o')
    await it.until(/^ {4}17$/m)
    await it.keys('C-o')
    const folded = await it.until('… 24 more lines')
    await it.mouse(folded.split('\n').findIndex((line) => line.includes('● bash')) + 1)
    await it.until(/^ {4}17$/m)
    // What nobody sees is not sent, and neither is a command that there is not.
    const asked = it.model.requests.length
    await it.resize(20, 4)
    await it.until('too small')
    await it.type('unseen')
    await it.keys('Enter')
    await it.resize(100, 30)
    await it.until('counted')
    await it.type('/nope at all')
    await it.keys('Enter')
    const told = await it.until('there is no command /nope')
    assert.doesNotMatch(told, /unseen/)
    assert.equal(it.model.requests.length, asked)
    await it.keys('Enter')
    await it.until('> /nope at all')
  } finally {
    await it.close()
  }
})

test('it attaches to a server that runs, and goes on when that was killed and started again', { skip }, async () => {
  const place = join(home, 'attached')
  mkdirSync(join(place, 'work'), { recursive: true })
  const model = await scriptedModel([{ text: 'before' }, { text: 'behind it' }])
  const server = await servedAt({ home: place, model })
  const args = ['attach', server.url, '--token-file', join(place, 'data', 'token')]
  const it = await screen({ program: binary, args, env: { HOME: place }, cwd: server.work })
  try {
    await it.until('what is to be done?')
    await it.type('one')
    await it.keys('Enter')
    await it.until('before')
    await server.kill()
    await it.until('no line to the server')
    await server.start()
    await it.until('Ctrl-P sessions')
    await it.type('two')
    await it.keys('Enter')
    await it.until('behind it')
    await it.keys('C-c')
    await it.keys('C-c')
    await it.until('ended with 0')
  } finally {
    await it.close()
    await server.kill()
    await model.close()
  }
})

test('two share a server, and when its terminal leaves the other one goes on with what it had', { skip }, async () => {
  const first = await begun('shared', [{ text: 'from the first' }])
  let second
  try {
    await first.until('what is to be done?')
    // Flags of a server are refused where one runs; variables are not.
    const env = { HOME: first.place, SIMSE_MODEL: 'openai/scripted', OPENAI_BASE_URL: first.model.baseUrl }
    second = await screen({
      program: binary,
      args: ['--data-dir', join(first.place, 'data')],
      env,
      cwd: first.work,
    })
    await second.until('what is to be done?')
    await second.type('one')
    await second.keys('Enter')
    await second.until('from the first')
    await second.type('still being written')
    await first.keys('C-d')
    await first.until('ended with 0')
    await second.until('no line to the server')
    const shown = await second.until('Ctrl-P sessions')
    assert.match(shown, /from the first[\s\S]*> still being written/)
    await second.keys('C-u')
    await second.type('/title Moved')
    await second.keys('Enter')
    await second.until(/^ Moved/)
    await second.keys('C-d')
    await second.until('ended with 0')
  } finally {
    await first.close()
    await second?.close()
  }
})

test('the terminal is given back when it is killed gently, and stopped to the shell', { skip }, async () => {
  const it = await begun('given', [])
  try {
    await it.until('what is to be done?')
    // The terminal's own program has the same words among its arguments.
    execFileSync('pkill', ['-TERM', '-f', `^${binary} .*${it.place}`])
    const after = await it.until('ended with 0')
    assert.doesNotMatch(after, /what is to be done/)
    await it.type('echo still here')
    await it.until('still here')
  } finally {
    await it.close()
  }
})
