/**
 * Joins an agent's tool client, over the standard streams, to the server that runs the agent: what `simse bridge` does, for servers
 * that run in Node. It understands nothing of what passes, and ends with either side.
 */
'use strict'

const { connect } = require('node:net')

const { SIMSE_TOOL_DOOR: door = '', SIMSE_TOOL_KEY: key = '' } = process.env
const at = door.lastIndexOf(':')
if (at < 0 || key === '') {
  process.stderr.write('simse: it is started by an agent, which gives it SIMSE_TOOL_DOOR and SIMSE_TOOL_KEY\n')
  process.exit(2)
}
const server = connect({ host: door.slice(0, at), port: Number(door.slice(at + 1)), noDelay: true })
server.on('error', (cause) => {
  process.stderr.write(`simse: no server at ${door}: ${cause.message}\n`)
  process.exit(1)
})
server.on('close', () => process.exit(0))
process.stdout.on('error', () => process.exit(0))
server.write(`${key}\n`)
process.stdin.on('end', () => process.exit(0))
process.stdin.pipe(server)
server.pipe(process.stdout)
