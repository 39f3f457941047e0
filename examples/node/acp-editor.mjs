/**
 * An editor connected over ACP, as small as one can be: it starts `simse acp` as its agent, opens a session in the current directory,
 * sends a prompt, shows what comes, and asks its user before something is done. Zed and others do the same with buttons.
 *
 *   OPENAI_API_KEY=… node examples/node/acp-editor.mjs "Rename the function" --model openai/gpt-5
 *
 * What stands behind the prompt are arguments of `simse acp`. SIMSE names the program where it is not on the PATH.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import process from 'node:process'
import { createInterface } from 'node:readline/promises'
import { Readable, Writable } from 'node:stream'
import { client, ndJsonStream, PROTOCOL_VERSION } from '@agentclientprotocol/sdk'

const [text, ...args] = process.argv.slice(2)
const agent = spawn(process.env.SIMSE ?? 'simse', ['acp', ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
const terminal = createInterface({ input: process.stdin, output: process.stdout })

const editor = client({ name: 'acp-editor' })
  .onNotification('session/update', ({ params: { update } }) => {
    if (update.sessionUpdate === 'agent_message_chunk') process.stdout.write(update.content.text)
    else if (update.sessionUpdate === 'tool_call') console.log(`\n[${update.title}]`)
    else if (update.sessionUpdate === 'tool_call_update' && update.status !== undefined)
      console.log(`[${update.status}]`)
  })
  .onRequest('session/request_permission', async ({ params: { toolCall, options } }) => {
    for (const [at, { name }] of options.entries()) console.log(`  ${at + 1} ${name}`)
    const answer = Number(await terminal.question(`${toolCall.title ?? 'This call'}? number: `))
    const chosen = options[answer - 1]
    return { outcome: chosen ? { outcome: 'selected', optionId: chosen.optionId } : { outcome: 'cancelled' } }
  })
const connection = editor.connect(ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)))

await connection.agent.request('initialize', {
  protocolVersion: PROTOCOL_VERSION,
  clientCapabilities: {},
  clientInfo: { name: 'acp-editor', version: '1' },
})
const { sessionId } = await connection.agent.request('session/new', { cwd: process.cwd(), mcpServers: [] })
const { stopReason } = await connection.agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text }] })
console.log(`\n(${stopReason})`)

// The end of its input ends the agent in order; the session stays, for the next editor.
terminal.close()
agent.stdin.end()
const [code] = await once(agent, 'exit')
process.exitCode = code
