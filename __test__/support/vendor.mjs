/** A vendor's endpoint for tests: answers each request with the next of its replies, and keeps what was asked. */

import { createServer } from 'node:http'

/**
 * Starts one. `requests` are `{path, body}`; `url` is where it listens.
 * @param {readonly ((body: object) => object)[]} replies - JSON bodies, made from the request's
 */
export async function vendor(replies) {
  const requests = []
  const left = [...replies]
  const server = createServer(async (request, response) => {
    let text = ''
    for await (const piece of request) text += piece
    const body = JSON.parse(text)
    requests.push({ path: request.url, body })
    const reply = left.shift()
    response.writeHead(reply ? 200 : 400, { 'content-type': 'application/json' })
    response.end(JSON.stringify(reply ? reply(body) : { error: { message: 'the script is over' } }))
  })
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
  return {
    requests,
    url: `http://127.0.0.1:${server.address().port}`,
    close() {
      server.closeAllConnections()
      return new Promise((closed) => server.close(closed))
    },
  }
}
