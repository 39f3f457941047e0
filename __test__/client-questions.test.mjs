/** What tools of the embedding program ask, answered through `simse/client`: each kind, and notices. */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, test } from 'node:test'
import { createSimseClient, EVENT_TYPES } from '../js/client.node.js'
import { createSimseServer } from '../js/index.js'
import { gathered, refusedWith } from './support/client.mjs'
import { scriptedModel } from './support/model.mjs'
import { registryOf } from './support/registry.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-client-questions-')))
process.env.XDG_DATA_HOME = join(room, 'data')
const open = []

after(async () => {
  for (const each of open.reverse()) await (each.stop?.() ?? each.close())
  rmSync(room, { recursive: true, force: true })
})

/** A server that knows no questions but those about permission has none to ask. */
const skip = !EVENT_TYPES.includes('client.request') && 'this version asks about permission alone'

/** A server whose model calls the tool `survey` in each turn, and a client with a session. */
async function surveyed(survey) {
  const workingDirectory = join(room, String(open.length))
  mkdirSync(workingDirectory)
  const call = { calls: [{ id: 'call_1', name: 'survey', arguments: {} }] }
  const model = await scriptedModel([call, { text: 'Done.' }, call, { text: 'Done.' }])
  const server = createSimseServer({
    port: 0,
    acpServers: [],
    workingDirectory,
    model: 'openai/scripted',
    openai: { baseUrl: model.baseUrl },
    toolPermissions: { defaultPolicy: 'allow', rules: [] },
    limits: { shutdownGraceMs: 0 },
    toolRegistry: registryOf({ survey }),
  })
  await server.start()
  const client = createSimseClient({ baseUrl: server.url })
  open.push(model, server, client)
  const { sessionId } = await client.sessions.create()
  return { client, sessionId }
}

const QUESTIONS = [
  [{ kind: 'select', title: 'Which?', options: ['a', 'b'] }, 'b'],
  [{ kind: 'select', title: 'Which?', options: ['a', 'b'], several: true }, ['b']],
  [{ kind: 'confirm', title: 'Sure?' }, true],
  [{ kind: 'input', title: 'Name?' }, 'Ann'],
  [{ kind: 'editor', title: 'Text', text: 'old' }, 'new\ntext'],
  [{ kind: 'confirm', title: 'Never?' }, null],
]

test('each kind of question goes to its handler, and the answer to the tool', { skip, timeout: 60_000 }, async () => {
  const replies = []
  const { client, sessionId } = await surveyed(async (_, { ask, notify }) => {
    for (const [question] of QUESTIONS) {
      replies.push(await ask(question))
      // Whoever has answered is there to hear it.
      if (replies.length === 1) notify('questions come', 'warning')
    }
    return 'asked'
  })
  const stop = new AbortController()
  const asked = []
  const notices = []
  const answer = (question, { event }) => {
    asked.push([question, event.payload.callId])
    return QUESTIONS.find(([{ title, several }]) => title === question.title && several === question.several)[1]
  }
  const answering = client.sessions.answer(
    sessionId,
    {
      select: answer,
      confirm: answer,
      input: answer,
      editor: answer,
      notice: ({ level, text }) => void notices.push([level, text]),
    },
    { signal: stop.signal },
  )
  const turn = gathered(await client.sessions.prompt(sessionId, { prompt: 'go' }, { stream: true }))
  assert.equal((await turn).at(-1).type, 'session.completed')
  stop.abort()
  await answering
  assert.deepEqual(
    asked,
    QUESTIONS.map(([question]) => [question, 'call_1']),
  )
  assert.deepEqual(
    replies.map(({ cancelled, value }) => [cancelled, value]),
    QUESTIONS.map(([, value]) => (value === null ? [true, undefined] : [false, value])),
  )
  assert.deepEqual(notices, [['warning', 'questions come']])
})

test('an answer that does not fit is heard of, and the question stays open for a better one', {
  skip,
  timeout: 60_000,
}, async () => {
  let reply
  const { client, sessionId } = await surveyed(async (_, { ask }) => {
    reply = await ask({ kind: 'confirm', title: 'Sure?' })
    return 'asked'
  })
  const turn = gathered(await client.sessions.prompt(sessionId, { prompt: 'go' }, { stream: true }))
  const wrong = await refusedWith(
    assert,
    'INVALID_ARGUMENT',
    client.sessions.answer(sessionId, { confirm: () => 'yes' }),
  )
  assert.equal(wrong.details.field, 'value')
  const stop = new AbortController()
  const answering = client.sessions.answer(sessionId, { confirm: () => true }, { signal: stop.signal })
  await turn
  stop.abort()
  await answering
  assert.deepEqual([reply.cancelled, reply.value], [false, true])
})
