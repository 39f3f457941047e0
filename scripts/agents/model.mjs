/**
 * A scripted model that speaks the four wire formats that agents speak: OpenAI Responses and Chat Completions, Anthropic
 * Messages, Gemini generateContent. What it does stands in the user's prompt, so that it needs no state of its own:
 *
 *   @@say WORDS@@          says them
 *   @@run COMMAND@@        has the agent's shell tool run it, then says `done`
 *   @@write PATH TEXT@@    has the agent's writing tool write it (or its shell, of an agent without one), then says `done`
 *   @@note TEXT@@          has the agent call our `memory_add`, then says `done`; `no such tool` where it is not offered. Agents put
 *                          the tools of MCP servers behind a search: then it is searched for first, as their models do
 *   @@slow@@               says a word every 50 ms, until nobody listens any more
 *
 * It answers at once. A request without tools is one for a title, and gets one.
 */
import { createServer } from 'node:http'

const SHELLS = ['exec_command', 'shell', 'shell_command', 'Bash', 'bash', 'run_shell_command']
const WRITERS = ['Write', 'write', 'write_file']
/** How agents look for tools that they do not tell one by one, and how they name ours. */
const SEARCHES = ['ToolSearch', 'tool_search']
const OURS = 'mcp__simse__memory_add'
const ORDER = /@@(say|run|write|note|slow)(?: ([\s\S]*?))?@@/g

/** Starts it on a free port of this machine; `requests` counts what came, by wire format. */
export async function scriptedModel() {
  const requests = {}
  const server = createServer((request, response) => {
    const body = []
    request.on('data', (piece) => body.push(piece))
    request.on('end', () => {
      const path = new URL(request.url, 'http://x').pathname
      const json = body.length ? JSON.parse(Buffer.concat(body).toString()) : {}
      const [name, format] = formatOf(path) ?? []
      if (format === undefined) return other(path, response)
      requests[name] = (requests[name] ?? 0) + 1
      if (process.env.AGENTS_TRACE) console.error(path, JSON.stringify(json).slice(0, Number(process.env.AGENTS_TRACE)))
      answer(format, json, path, response).catch((error) => response.destroy(error))
    })
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  const close = () => new Promise((done) => server.close(done) && server.closeAllConnections())
  return { port: server.address().port, requests, close }
}

function formatOf(path) {
  if (path.endsWith('/responses')) return ['responses', responses]
  if (path.endsWith('/messages')) return ['messages', messages]
  if (path.endsWith('/chat/completions')) return ['chat', chat]
  if (/:(stream)?[gG]enerateContent$/.test(path)) return ['gemini', gemini]
  return undefined
}

/** What agents ask beside the conversation. */
function other(path, response) {
  const send = (status, value) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
  if (path.endsWith('/models')) return send(200, { object: 'list', data: [{ id: 'mock', object: 'model' }] })
  if (path.endsWith('count_tokens')) return send(200, { input_tokens: 10 })
  if (path.endsWith(':countTokens')) return send(200, { totalTokens: 10 })
  send(404, { error: { message: `nothing at ${path}`, type: 'not_found' } })
}

async function answer(format, json, path, response) {
  const tools = format.tools(json)
  const step = tools.length === 0 ? { text: 'A title' } : next(format.said(json), tools)
  const out = format.open(json, path, response)
  if (step.call) out.call(step.call)
  else if (step.slow) await slowly(out, response)
  else out.text(step.text)
  out.end(step.call !== undefined)
}

async function slowly(out, response) {
  for (let word = 0; word < 1200 && !response.destroyed; word += 1) {
    out.text(`word ${word} `)
    await new Promise((done) => setTimeout(done, 50))
  }
}

/** What comes next: the newest order of the user, unless a tool has answered it already. */
function next(said, tools) {
  let [order, answers] = [undefined, []]
  for (const { role, text } of said) {
    if (role === 'tool') answers.push(text)
    const found = role === 'user' ? [...text.matchAll(ORDER)].at(-1) : undefined
    // Some agents say the prompt again behind the results of tools.
    if (found && found[0] !== order?.[0]) [order, answers] = [found, []]
  }
  const results = answers.length
  const [, word, rest = ''] = order ?? []
  if (word === undefined) return { text: 'ok' }
  if (word === 'say') return { text: rest }
  if (word === 'slow') return { slow: true }
  if (word === 'note') return note(rest, tools, answers)
  if (results > 0) return { text: 'done' }
  const named = (names) => tools.find((tool) => names.includes(tool.name))
  if (word === 'run') return { call: call(named(SHELLS), { command: rest }) }
  const [, file, content] = rest.match(/^(\S+) ([\s\S]*)$/)
  const writer = named(WRITERS)
  if (writer) return { call: call(writer, { path: file, content }) }
  return { call: call(named(SHELLS), { command: `printf '%s' '${content}' > '${file}'`, escalates: true }) }
}

/**
 * The next step to a call of our tool: the call where it is among the tools, or where a search has found it; the search where there
 * is one.
 */
function note(words, tools, answers) {
  const found = answers.join('\n').match(/[\w.-]*memory_add/)?.[0]
  const ours = tools.find((tool) => /memory_add$/.test(tool.name))
  const search = tools.find((tool) => SEARCHES.includes(tool.name))
  const args = { text: words }
  if (ours) return answers.length > (search && found ? 1 : 0) ? { text: 'done' } : { call: { ...call(ours, {}), args } }
  if (search && answers.length === 0)
    return { call: { ...call(search, {}), args: { query: `select:${OURS}`, max_results: 5 } } }
  if (!search || !found) return { text: 'no such tool' }
  if (answers.length > 1) return { text: 'done' }
  // Some have the search put the tool among the others, some call it through another tool.
  const through = tools.find((tool) => tool.name === 'tool_call')
  return {
    call: through
      ? { ...call(through, {}), args: { name: OURS, arguments: args } }
      : { ...call({ name: OURS }, {}), args },
  }
}

/** A call of a tool with the arguments that its schema asks for. */
function call(tool, { command, path, content, escalates }) {
  if (tool === undefined) throw new Error('the agent offers no such tool')
  const names = Object.keys(tool.schema?.properties ?? {})
  const one = (...all) => all.find((name) => names.includes(name))
  const args = {}
  const put = (value, ...all) => {
    const name = value === undefined ? undefined : one(...all)
    if (name) args[name] = value
  }
  put(command, 'cmd', 'command')
  put(path, 'file_path', 'filePath', 'path')
  put(content, 'content')
  put('a step of the script', 'description')
  put(false, 'is_background')
  if (path === undefined && escalates) put('require_escalated', 'sandbox_permissions')
  if (args.sandbox_permissions) put('a step of the script', 'justification')
  if (tool.schema?.properties?.command?.type === 'array') args.command = ['bash', '-lc', command]
  return { name: tool.name, namespace: tool.namespace, args, id: `call_${Math.random().toString(36).slice(2, 12)}` }
}

const textOf = (content) =>
  typeof content === 'string' ? content : (content ?? []).map((part) => part.text ?? '').join('\n')

/** A stream of server-sent events. */
function stream(response) {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  return (data, event) => {
    if (response.destroyed) return
    response.write(
      `${event ? `event: ${event}\n` : ''}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`,
    )
  }
}

const responses = {
  tools: (json) =>
    (json.tools ?? []).flatMap(({ type, name, parameters, tools }) => {
      if (type === 'function') return [{ name, schema: parameters }]
      const within = (tool) => ({ name: tool.name, schema: tool.parameters, namespace: name })
      // The tools of an MCP server stand in a namespace.
      return type === 'namespace' ? tools.map(within) : []
    }),
  said: (json) =>
    [json.input].flat().map((item) => {
      if (typeof item === 'string') return { role: 'user', text: item }
      if (item.type?.endsWith('_call_output')) return { role: 'tool', text: textOf(item.output) }
      return { role: item.role, text: textOf(item.content) }
    }),
  open(_json, _path, response) {
    const send = stream(response)
    const tell = (type, more) => send({ type, ...more }, type)
    const id = `resp_${Date.now()}`
    const items = []
    let open
    tell('response.created', { response: { id, object: 'response', status: 'in_progress', output: [] } })
    return {
      text(text) {
        const item = { type: 'message', id: 'msg_1', role: 'assistant', content: [] }
        if (open === undefined)
          tell('response.output_item.added', { output_index: 0, item: { ...item, status: 'in_progress' } })
        open = (open ?? '') + text
        tell('response.output_text.delta', { item_id: 'msg_1', output_index: 0, content_index: 0, delta: text })
      },
      call({ name, namespace, args, id: callId }) {
        const item = {
          type: 'function_call',
          ...(namespace && { namespace }),
          id: `fc_${callId}`,
          call_id: callId,
          name,
          arguments: JSON.stringify(args),
          status: 'completed',
        }
        tell('response.output_item.added', { output_index: 0, item: { ...item, arguments: '', status: 'in_progress' } })
        tell('response.function_call_arguments.delta', { item_id: item.id, output_index: 0, delta: item.arguments })
        tell('response.output_item.done', { output_index: 0, item })
        items.push(item)
      },
      end() {
        if (open !== undefined) {
          const item = {
            type: 'message',
            id: 'msg_1',
            role: 'assistant',
            status: 'completed',
            content: [{ type: 'output_text', text: open, annotations: [] }],
          }
          tell('response.output_item.done', { output_index: 0, item })
          items.push(item)
        }
        const usage = {
          input_tokens: 10,
          input_tokens_details: { cached_tokens: 0 },
          output_tokens: 5,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: 15,
        }
        tell('response.completed', { response: { id, object: 'response', status: 'completed', output: items, usage } })
        response.end()
      },
    }
  },
}

/** What a result says, or which tools a search has brought. */
const found = ({ content }) =>
  typeof content === 'string' ? content : (content ?? []).map((part) => part.text ?? part.tool_name ?? '').join('\n')

const messages = {
  tools: (json) => (json.tools ?? []).map((tool) => ({ name: tool.name, schema: tool.input_schema })),
  said: (json) =>
    json.messages.flatMap(({ role, content }) =>
      (typeof content === 'string' ? [{ type: 'text', text: content }] : content).map((part) =>
        part.type === 'tool_result' ? { role: 'tool', text: found(part) } : { role, text: part.text ?? '' },
      ),
    ),
  open(json, _path, response) {
    const usage = { input_tokens: 10, output_tokens: 5 }
    const message = {
      // Claude Code takes replies of one id for parts of one reply.
      id: `msg_${Math.random().toString(36).slice(2, 12)}`,
      type: 'message',
      role: 'assistant',
      model: json.model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage,
    }
    if (!json.stream) {
      const content = []
      return {
        text: (text) => content.push({ type: 'text', text }),
        call: ({ name, args, id }) => content.push({ type: 'tool_use', id, name, input: args }),
        end(called) {
          response.writeHead(200, { 'content-type': 'application/json' })
          response.end(JSON.stringify({ ...message, content, stop_reason: called ? 'tool_use' : 'end_turn' }))
        },
      }
    }
    const send = stream(response)
    const tell = (type, more) => send({ type, ...more }, type)
    let open = false
    tell('message_start', { message })
    return {
      text(text) {
        if (!open) tell('content_block_start', { index: 0, content_block: { type: 'text', text: '' } })
        open = true
        tell('content_block_delta', { index: 0, delta: { type: 'text_delta', text } })
      },
      call({ name, args, id }) {
        open = true
        tell('content_block_start', { index: 0, content_block: { type: 'tool_use', id, name, input: {} } })
        tell('content_block_delta', {
          index: 0,
          delta: { type: 'input_json_delta', partial_json: JSON.stringify(args) },
        })
      },
      end(called) {
        if (open) tell('content_block_stop', { index: 0 })
        tell('message_delta', { delta: { stop_reason: called ? 'tool_use' : 'end_turn', stop_sequence: null }, usage })
        tell('message_stop', {})
        response.end()
      },
    }
  },
}

const chat = {
  tools: (json) => (json.tools ?? []).map(({ function: tool }) => ({ name: tool.name, schema: tool.parameters })),
  said: (json) => json.messages.map(({ role, content }) => ({ role, text: textOf(content) })),
  open(json, _path, response) {
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }
    const base = { id: 'chatcmpl-1', created: Math.floor(Date.now() / 1000), model: json.model }
    const asked = ({ name, args, id }) => ({
      index: 0,
      id,
      type: 'function',
      function: { name, arguments: JSON.stringify(args) },
    })
    if (!json.stream) {
      const message = { role: 'assistant', content: '' }
      return {
        text: (text) => (message.content += text),
        call: (call) => (message.tool_calls = [asked(call)]),
        end(called) {
          const choices = [{ index: 0, message, finish_reason: called ? 'tool_calls' : 'stop' }]
          response.writeHead(200, { 'content-type': 'application/json' })
          response.end(JSON.stringify({ ...base, object: 'chat.completion', choices, usage }))
        },
      }
    }
    const send = stream(response)
    const tell = (delta, finish) =>
      send({ ...base, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish ?? null }] })
    return {
      text: (content) => tell({ role: 'assistant', content }),
      call: (call) => tell({ role: 'assistant', content: null, tool_calls: [asked(call)] }),
      end(called) {
        tell({}, called ? 'tool_calls' : 'stop')
        send({ ...base, object: 'chat.completion.chunk', choices: [], usage })
        send('[DONE]')
        response.end()
      },
    }
  },
}

const gemini = {
  tools: (json) =>
    (json.tools ?? []).flatMap((tool) =>
      (tool.functionDeclarations ?? []).map(({ name, parametersJsonSchema, parameters }) => ({
        name,
        schema: parametersJsonSchema ?? parameters,
      })),
    ),
  said: (json) =>
    json.contents.flatMap(({ role, parts }) =>
      parts.map((part) => ({ role: part.functionResponse ? 'tool' : role, text: part.text ?? '' })),
    ),
  open(_json, path, response) {
    const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 }
    const chunk = (parts, finishReason) => ({
      candidates: [{ index: 0, content: { role: 'model', parts }, finishReason }],
      usageMetadata,
    })
    const parts = []
    const send = path.endsWith(':streamGenerateContent') ? stream(response) : undefined
    const put = (part) => (send ? send(chunk([part])) : parts.push(part))
    return {
      text: (text) => put({ text }),
      call: ({ name, args }) => put({ functionCall: { name, args } }),
      end() {
        if (send) {
          send(chunk([{ text: '' }], 'STOP'))
          response.end()
        } else {
          response.writeHead(200, { 'content-type': 'application/json' })
          response.end(JSON.stringify(chunk(parts, 'STOP')))
        }
      },
    }
  },
}
