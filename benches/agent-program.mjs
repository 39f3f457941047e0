/** An agent on the official SDK, for `benches/agent.mjs`: a prompt says how many pieces of text are sent. Answers at once. */
import { Readable, Writable } from 'node:stream'
import { agent, methods, ndJsonStream } from '@agentclientprotocol/sdk'

let sessions = 0

const app = agent({ name: 'pieces' })
  .onRequest(methods.agent.initialize, () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .onRequest(methods.agent.session.new, () => {
    sessions += 1
    return { sessionId: `s${sessions}` }
  })
  .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
    const { sessionId } = params
    const pieces = Number(params.prompt.at(-1).text)
    for (let piece = 0; piece < pieces; piece += 1) {
      const update = { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: `piece ${piece} ` } }
      await client.notify(methods.client.session.update, { sessionId, update })
    }
    return { stopReason: 'end_turn' }
  })

app.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)))
