/**
 * A configured hook at `tool.result.validate`: has biome (its argument) look at the file that a call has written, and ends with 2 and
 * what it finds.
 */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

const { request, result } = JSON.parse(readFileSync(0, 'utf8'))
const { path } = request.arguments
const { status, stdout, stderr } = spawnSync(process.argv[2], ['lint', '--colors=off', path], { encoding: 'utf8' })
if (!result.isError && status !== 0) {
  process.stderr.write(`biome finds in ${path}:\n${stdout}${stderr}`)
  process.exitCode = 2
}
