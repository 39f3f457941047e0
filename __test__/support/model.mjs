/**
 * A model server for tests: speaks chat completions as the wire has them (`POST …/chat/completions`, SSE),
 * and answers with what its script says, reply by reply.
 *
 * A reply is `{ text?, reasoning?, calls?, pace? }` (text and reasoning as one piece or a list of pieces; calls as
 * `{id, name, arguments}`; `pace` is awaited before each piece),
 * or `{ status, body }` for a refusal, or `{ hang: true }` for one that begins and never goes on, or a
 * function of the request that makes one of these, or a promise of one.
 */

import { createServer } from 'node:http'

const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }

function frame(delta, finish = null) {
  const choice = { index: 0, delta, finish_reason: finish }
  const chunk = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'scripted', choices: [choice] }
  return `data: ${JSON.stringify(chunk)}\n\n`
}

/** Arguments come in two pieces, as providers send them. */
function* callFrames(calls) {
  for (const [index, { id, name, arguments: args }] of calls.entries()) {
    const text = typeof args === 'string' ? args : JSON.stringify(args)
    const half = Math.ceil(text.length / 2)
    yield frame({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: text.slice(0, half) } }] })
    yield frame({ tool_calls: [{ index, function: { arguments: text.slice(half) } }] })
  }
}

function* frames({ text = [], reasoning = [], calls = [] }) {
  yield frame({ role: 'assistant', content: '' })
  for (const piece of [reasoning].flat()) yield frame({ reasoning_content: piece })
  for (const piece of [text].flat()) yield frame({ content: piece })
  yield* callFrames(calls)
  yield frame({}, calls.length > 0 ? 'tool_calls' : 'stop')
  yield `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'scripted', choices: [], usage })}\n\n`
  yield 'data: [DONE]\n\n'
}

async function bodyOf(request) {
  let text = ''
  for await (const piece of request) text += piece
  return JSON.parse(text)
}

/**
 * Starts one. `requests` are the bodies that came; `baseUrl` is what a server is told.
 * @param {readonly (object | ((body: object) => object | Promise<object>))[]} script
 */
export async function scriptedModel(script) {
  const requests = []
  const replies = [...script]
  const server = createServer(async (request, response) => {
    const body = await bodyOf(request)
    requests.push(body)
    const next = replies.shift() ?? { status: 500, body: { error: { message: 'the script is over' } } }
    const reply = typeof next === 'function' ? await next(body) : next
    if (reply.status) {
      response.writeHead(reply.status, { 'content-type': 'application/json' })
      response.end(JSON.stringify(reply.body))
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    if (reply.hang) return void response.write(frame({ role: 'assistant', content: 'one moment' }))
    for (const piece of frames(reply)) {
      await reply.pace?.()
      response.write(piece)
    }
    response.end()
  })
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
  return {
    requests,
    baseUrl: `http://127.0.0.1:${server.address().port}/v1`,
    close() {
      server.closeAllConnections()
      return new Promise((closed) => server.close(closed))
    },
  }
}
