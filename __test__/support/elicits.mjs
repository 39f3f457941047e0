/**
 * A tool server of the official SDK that asks a person while it works, over its standard streams or, with the argument `http`,
 * on a port that it prints. Its tool `ask` asks for what its arguments say (`message`, `requestedSchema` or `url`, `timeout`) and gives
 * back what came of it; `both` asks twice at once.
 */
import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import process from 'node:process'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { CallToolRequestSchema, ElicitResultSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'

const inputSchema = { type: 'object' }

function serverOf() {
  const server = new Server({ name: 'asker', version: '1' }, { capabilities: { tools: {} } })
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [{ name: 'ask', inputSchema }] }))
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { sendRequest }) => {
    const { message, requestedSchema, timeout = 60_000, raw, url } = params.arguments
    const asked = url ? { mode: 'url', message, url, elicitationId: 'e1' } : { message, requestedSchema }
    let said
    try {
      // `sendRequest` says for which call it asks, where the transport can; `elicitInput` holds the answer against the schema.
      said = raw
        ? await sendRequest({ method: 'elicitation/create', params: asked }, ElicitResultSchema, { timeout })
        : await server.elicitInput(asked, { timeout })
    } catch (error) {
      said = { code: error.code, error: error.message }
    }
    return { content: [{ type: 'text', text: JSON.stringify(said) }] }
  })
  return server
}

if (process.argv[2] === 'http') {
  const transports = new Map()
  const http = createServer(async (request, response) => {
    let transport = transports.get(request.headers['mcp-session-id'])
    if (transport === undefined) {
      const opened = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => void transports.set(id, opened),
      })
      transport = opened
      await serverOf().connect(opened)
    }
    await transport.handleRequest(request, response)
  })
  http.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${http.address().port}/mcp`))
} else {
  await serverOf().connect(new StdioServerTransport())
}
