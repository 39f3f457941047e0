/** `simse run`, `chat`, `sessions`, `doctor` and `completions`: what scripts are told, by exit codes and on stdout. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { scriptedModel } from './support/model.mjs'
import { binary, environment, servedAt } from './support/served.mjs'

let home
before(() => {
  home = mkdtempSync(join(tmpdir(), 'simse-run-'))
})
after(() => rmSync(home, { recursive: true, force: true }))

/** A place with a scripted model. `run` starts the program there and waits for its end. */
async function placed(name, script) {
  const place = join(home, name)
  const work = join(place, 'work')
  mkdirSync(work, { recursive: true })
  const model = await scriptedModel(script)
  const data = ['--data-dir', join(place, 'data')]
  const own = [...data, '--model', 'openai/scripted', '--openai-base-url', model.baseUrl]
  const start = (args, env = {}) =>
    spawn(binary, args, { cwd: work, env: { ...environment(place), ...env }, stdio: ['pipe', 'pipe', 'pipe'] })
  const ended = async (child) => {
    const said = { out: '', err: '' }
    child.stdout.on('data', (text) => {
      said.out += text
    })
    child.stderr.on('data', (text) => {
      said.err += text
    })
    const [code] = await once(child, 'close')
    return { code, ...said }
  }
  const run = async (args, { input = '', env } = {}) => {
    const child = start(args, env)
    child.stdin.end(input)
    return ended(child)
  }
  return { place, work, model, data, own, start, ended, run }
}

const bash = (command) => ({ calls: [{ id: 'call_1', name: 'bash', arguments: { command } }] })
const words = (request) => JSON.stringify(request.messages)

test('a prompt is run: the result alone on stdout, and the next one goes on', async () => {
  const { model, own, run } = await placed('plain', [{ text: 'the result' }, { text: 'the next' }])
  const first = await run(['run', ...own, 'do', 'this'])
  assert.deepEqual([first.code, first.out], [0, 'the result\n'])
  assert.match(first.err, /^session ses_\w+, model openai\/scripted$/m)
  const next = await run(['run', ...own, '--continue', 'and that'])
  assert.deepEqual([next.code, next.out], [0, 'the next\n'])
  assert.match(words(model.requests[1]), /do this.*the result.*and that/)
  await model.close()
})

test('what is piped stands behind the prompt, or is it', async () => {
  const { model, own, run } = await placed('piped', [{ text: 'a' }, { text: 'b' }, { text: 'c' }])
  await run(['run', ...own, 'explain'], { input: 'piped words\n' })
  assert.match(words(model.requests[0]), /explain\\n\\npiped words/)
  await run(['run', ...own], { input: 'only this' })
  await run(['run', ...own, '-'], { input: 'and this' })
  assert.match(words(model.requests[1]), /only this/)
  assert.match(words(model.requests[2]), /and this/)
  for (const [args, input] of [
    [['run', ...own], ''],
    [['run', ...own, ' '], '\n'],
    [['run', ...own, '-'], Buffer.from([0xff, 0xfe])],
    [['run', '--port', '1', 'x'], ''],
    [['run', '--attach', 'nonsense', 'x'], ''],
    [['run', ...own, '--schema', 'missing.json', 'x'], ''],
  ]) {
    const refused = await run(args, { input })
    assert.deepEqual([refused.code, refused.out], [2, ''], args.join(' '))
    assert.match(refused.err, /expected|--port is for|missing\.json/)
  }
  await model.close()
})

test('with --json each event is a line, from the first to the last', async () => {
  const { model, own, run } = await placed('json', [{ text: ['in ', 'pieces'] }])
  const { code, out } = await run(['run', ...own, '--json', 'go'])
  const events = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  assert.equal(code, 0)
  assert.deepEqual(
    events.map(({ seq }) => seq),
    events.map((_, at) => at + 1),
  )
  assert.equal(events[0].type, 'session.created')
  assert.equal(events.at(-1).type, 'session.completed')
  assert.equal(events.at(-1).payload.result, 'in pieces')
  await model.close()
})

test('who is not there is not asked: calls are refused, allowed with --yes, or by the mode', async () => {
  const made = (work) => existsSync(join(work, 'made'))
  for (const [name, args, allowed] of [
    ['refused', [], false],
    ['yes', ['--yes'], true],
    ['mode', ['--permission-mode', 'plan'], false],
  ]) {
    const { model, own, run, work } = await placed(name, [bash('echo x > made'), { text: 'well' }])
    const { code, err, out } = await run(['run', ...own, ...args, 'go'])
    assert.deepEqual([code, out, made(work)], [0, 'well\n', allowed], name)
    if (name === 'refused') assert.match(err, /1 call refused, because nobody could be asked: bash/)
    await model.close()
  }
})

test('an answer can be data, by a schema', async () => {
  const { model, own, run, work } = await placed('schema', [{ text: '{"n": 3}' }])
  const schema = {
    type: 'object',
    properties: { n: { type: 'integer' } },
    required: ['n'],
    additionalProperties: false,
  }
  writeFileSync(join(work, 'schema.json'), JSON.stringify(schema))
  const { code, out } = await run(['run', ...own, '--schema', 'schema.json', 'count'])
  assert.deepEqual([code, JSON.parse(out)], [0, { n: 3 }])
  await model.close()
})

test('exit codes tell failure, a stop, and a server that is not there', async () => {
  const refusal = { status: 400, body: { error: { message: 'no such model' } } }
  const failing = await placed('failing', [refusal])
  const failed = await failing.run(['run', ...failing.own, 'go'])
  assert.equal(failed.code, 1)
  assert.match(failed.err, /the turn failed: .*no such model/)
  const limited = await placed('limited', [bash('true'), bash('true')])
  const limit = ['--max-iterations', '1', '--yes']
  assert.equal((await limited.run(['run', ...limited.own, ...limit, 'go'])).code, 4)
  const gone = await failing.run(['run', '--attach', 'http://127.0.0.1:1', 'go'])
  assert.equal(gone.code, 3)
  const hanging = await placed('hanging', [{ hang: true }])
  const child = hanging.start(['run', ...hanging.own, 'go'])
  child.stdin.end()
  const ended = hanging.ended(child)
  child.stderr.on('data', (text) => {
    if (String(text).includes('one moment')) child.kill('SIGINT')
  })
  const stopped = await ended
  assert.equal(stopped.code, 4)
  assert.match(stopped.err, /the turn was stopped: stopped at the terminal/)
  await Promise.all([failing, limited, hanging].map(({ model }) => model.close()))
})

test('it joins the server that runs, with its token, and tells flags that are of no use there', async () => {
  const place = join(home, 'joined')
  mkdirSync(place)
  const { model, run, place: other } = await placed('other', [{ text: 'from there' }, { text: 'and again' }])
  const server = await servedAt({ home: place, model })
  const data = ['--data-dir', join(place, 'data'), '--cwd', server.work]
  const joined = await run(['run', ...data, 'go'])
  assert.deepEqual([joined.code, joined.out], [0, 'from there\n'])
  const useless = await run(['run', ...data, '--memory', 'true', 'go'])
  assert.equal(useless.code, 2)
  assert.match(useless.err, /--memory is of no use here: the server of this data directory runs already/)
  const bare = await run(['run', '--data-dir', join(other, 'data'), '--attach', server.url, 'go'])
  assert.equal(bare.code, 3)
  assert.match(bare.err, /wants a token: SIMSE_TOKEN/)
  const token = readFileSync(join(place, 'data', 'token'), 'utf8').trim()
  const env = { SIMSE_TOKEN: token }
  const attached = await run(['run', '--attach', server.url, '--cwd', server.work, 'go'], { env })
  assert.deepEqual([attached.code, attached.out], [0, 'and again\n'], attached.err)
  const listed = await run(['sessions', '--data-dir', join(place, 'data'), '--json'])
  assert.equal(listed.out.trim().split('\n').length, 2)
  const nowhere = await run(['sessions', '--data-dir', join(place, 'nowhere')])
  assert.deepEqual([nowhere.code, nowhere.out, existsSync(join(place, 'nowhere'))], [0, '', false])
  await server.kill()
  const offline = await run(['sessions', '--data-dir', join(place, 'data')])
  assert.match(offline.out, /^ses_\w+ {2}\d{4}-\d\d-\d\d \d\d:\d\d {2}idle .*2 messages/m)
  await model.close()
})

test('chat takes a prompt a line, asks on the line, and has commands of its own', async () => {
  const script = [{ text: 'first' }, bash('echo x > made'), { text: 'made it' }, { text: 'in another' }]
  const { model, own, start, ended, work } = await placed('chat', script)
  const child = start(['chat', ...own])
  const all = ended(child)
  let said = ''
  child.stdout.on('data', (text) => {
    said += text
  })
  const until = async (what) => {
    while (!said.includes(what)) await new Promise((more) => child.stdout.once('data', more))
  }
  child.stdin.write('one \\\nprompt\n')
  await until('first')
  child.stdin.write('make it\n')
  await until('or no: ')
  child.stdin.write('y\n')
  await until('made it')
  child.stdin.write('/new\n/help\nfresh\n')
  await until('in another')
  child.stdin.end('/exit\n')
  const { code } = await all
  assert.equal(code, 0)
  assert.match(words(model.requests[0]), /one \\nprompt/)
  assert.ok(existsSync(join(work, 'made')))
  assert.doesNotMatch(words(model.requests[3]), /make it/)
  assert.match(said, /begin a new session/)
  await model.close()
})

test('a line that is no text ends the input, is told, and is a failure', async () => {
  const { model, own, start, ended } = await placed('chat-bytes', [{ text: 'first' }])
  const child = start(['chat', ...own])
  const all = ended(child)
  child.stdin.end(Buffer.from('one\n\xff\xfe bad\ntwo\n', 'latin1'))
  const { code, out, err } = await all
  assert.equal(code, 2)
  assert.match(out, /first/)
  assert.match(err, /standard input, line 2: expected UTF-8/)
  assert.equal(model.requests.length, 1)
  await model.close()
})

test('doctor says how everything is, and completions are made for shells', async () => {
  const { own, data, run, model, place } = await placed('doctor', [])
  const { code, out } = await run(['doctor', ...data])
  assert.equal(code, 0, out)
  for (const what of ['version', 'settings', 'data', 'git', 'bash', 'server', 'sandbox', 'model', 'tools'])
    assert.match(out, new RegExp(`^(ok|less) +${what} `, 'm'))
  writeFileSync(join(place, 'bad.toml'), 'porrt = 1\n')
  const bad = await run(['doctor', ...data, '--config', join(place, 'bad.toml')])
  assert.equal(bad.code, 1)
  assert.match(bad.out, /^BAD +settings .*port/m)
  for (const shell of ['bash', 'zsh', 'fish', 'powershell', 'elvish']) {
    const script = await run(['completions', shell])
    assert.equal(script.code, 0)
    assert.match(script.out, /permission-mode/)
  }
  const none = await run([...own])
  assert.equal(none.code, 2)
  assert.match(none.err, /this is no terminal/)
  await model.close()
})
