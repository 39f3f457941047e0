/**
 * A web application that embeds the server: each of its users has a session, whose answers come to the browser piece by piece. Nobody but
 * the application reaches the server itself.
 *
 *   OPENAI_API_KEY=… MODEL=openai/gpt-5 PORT=8080 node examples/node/express-app.mjs
 *   curl -N localhost:8080/ask -H 'content-type: application/json' -d '{"user": "ada", "question": "Which files are here?"}'
 */

import { randomBytes } from 'node:crypto'
import process from 'node:process'
import express from 'express'
import { createSimseServer } from 'simse'
import { createSimseClient, SimseError } from 'simse/client'

const token = randomBytes(32).toString('hex')
const server = createSimseServer({
  port: 0,
  workingDirectory: process.cwd(),
  authToken: token,
  // Its users are strangers: they have the model read, and nothing else.
  toolPermissions: {
    defaultPolicy: 'deny',
    rules: [{ tool: '*', policy: 'allow', category: ['read', 'search'] }],
  },
  model: process.env.MODEL,
  openai: { baseUrl: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY },
})
await server.start()
const client = createSimseClient({ baseUrl: server.url, token })

/** The session of a user: the one that there is, also after a restart of the application, or a new one. */
async function sessionOf(user) {
  const sessionId = `user-${user}`
  try {
    await client.sessions.create({ sessionId, title: user, budget: { tokens: 200_000 } })
  } catch (error) {
    if (!(error instanceof SimseError && error.status === 409)) throw error
  }
  return sessionId
}

const app = express()
app.use(express.json())
app.post('/ask', async (request, response) => {
  const { user, question } = request.body ?? {}
  if (!/^[a-z0-9]{1,64}$/.test(user) || typeof question !== 'string') {
    response.status(400).json({ error: 'expected `user` (letters and digits) and `question`' })
    return
  }
  const sessionId = await sessionOf(user)
  // Who closes the page no longer waits; the turn is stopped then.
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  const events = await client.sessions.prompt(sessionId, { prompt: question }, { stream: true, signal: gone.signal })
  response.type('text/plain')
  for await (const { type, payload } of events) {
    if (type === 'stream.delta') response.write(payload.text)
    if (type === 'session.error') response.write(`\n[${payload.error.message}]`)
  }
  if (!gone.signal.aborted) response.end('\n')
  // It may have ended meanwhile: then there is nothing to stop.
  else await client.sessions.abort(sessionId).catch(() => {})
})

const listening = app.listen(Number(process.env.PORT ?? 8080), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${listening.address().port}`)
})
process.once('SIGTERM', async () => {
  listening.close()
  await server.stop()
})
