/** A small client of the server: JSON requests, and its event stream. */

/** One request; answers with status and body. */
export async function http(server, method, path, body, headers = {}) {
  const response = await fetch(server.url + path, {
    method,
    headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  return { status: response.status, body: await response.json() }
}

/** The events of a session as they come: `{seq, type, payload, …}`. Ends with the stream, or when left. */
export async function* events(server, sessionId, after = 0, headers = {}) {
  const controller = new AbortController()
  const response = await fetch(`${server.url}/sessions/${sessionId}/events?after=${after}`, {
    headers,
    signal: controller.signal,
  })
  try {
    let text = ''
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      text += piece
      const frames = text.split('\n\n')
      text = frames.pop()
      for (const frame of frames) {
        const data = frame.split('\n').find((line) => line.startsWith('data:'))
        if (data === undefined) continue
        const event = JSON.parse(data.slice(5))
        if (event.seq !== undefined) yield event
      }
    }
  } finally {
    controller.abort()
  }
}

const TERMINAL = new Set(['session.completed', 'session.error', 'abort'])

/** Creates a session, prompts it, and answers with its id and all events up to the turn's end. `onEvent` sees each. */
export async function turn(server, prompt, { session = {}, onEvent } = {}) {
  const created = await http(server, 'POST', '/sessions', session)
  if (created.status !== 201) throw new Error(JSON.stringify(created))
  const { sessionId } = created.body
  const seen = []
  const stream = events(server, sessionId)
  const accepted = await http(server, 'POST', `/sessions/${sessionId}/prompt`, { prompt })
  if (accepted.status !== 202) throw new Error(JSON.stringify(accepted))
  for await (const event of stream) {
    seen.push(event)
    await onEvent?.(event, sessionId)
    if (TERMINAL.has(event.type)) break
  }
  return { sessionId, events: seen, last: seen.at(-1) }
}
