/**
 * Whether the addon of this checkout works in other runtimes: Node 22 and 24, and Bun. Each calls a native tool and one of
 * its own, and starts and stops a server.
 *
 * `node scripts/runtimes.mjs`: they are brought by npm into a cache (SIMSE_RUNTIMES_CACHE, else ~/.cache/simse/runtimes). Exit code 3:
 * one cannot be brought, and nothing failed.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'
import { run, say, top } from './tools.mjs'

const RUNTIMES = [
  { name: 'Node 22', spec: 'node@22.23.3', program: 'node/bin/node' },
  { name: 'Node 24', spec: 'node@24.21.0', program: 'node/bin/node' },
  {
    name: 'Bun 1.4',
    spec: `@oven/bun-${process.platform}-${process.arch}@1.4.5`,
    program: `@oven/bun-${process.platform}-${process.arch}/bin/bun`,
  },
]
const PROGRAM = `
import { createSimseServer, createToolRegistry, registerFilesystemTools } from ${JSON.stringify(pathToFileURL(join(top, 'js/index.js')).href)}
const registry = createToolRegistry({})
registerFilesystemTools(registry, { workingDirectory: '.' })
const parameters = { a: { type: 'number', description: 'One number', required: true } }
registry.register({ name: 'add', description: 'Adds one', parameters }, async ({ a }) => String(a + 1))
const listed = await registry.execute({ id: '1', name: 'fs_list', arguments: {} })
const added = await registry.execute({ id: '2', name: 'add', arguments: { a: 1 } })
const server = createSimseServer({ port: 0, acpServers: [], workingDirectory: '.' })
await server.start()
const health = await (await fetch(server.url + '/health')).json()
await server.stop()
console.log(JSON.stringify([listed.isError, listed.output.includes('call.mjs'), added.output, health.status]))
`
const WANTED = JSON.stringify([false, true, '2', 'ok'])

const cache = process.env.SIMSE_RUNTIMES_CACHE ?? join(homedir(), '.cache', 'simse', 'runtimes')
let missing = 0
let failed = 0
for (const { name, spec, program } of RUNTIMES) {
  const folder = join(cache, spec.replaceAll(/[@/]/g, '-'))
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{"private": true}')
  const path = join(folder, 'node_modules', program)
  if (!existsSync(path)) await run('npm', ['install', '--silent', '--no-save', spec], { cwd: folder })
  if (!existsSync(path)) {
    say(`${name} (${spec}) cannot be brought`)
    missing += 1
    continue
  }
  writeFileSync(join(folder, 'call.mjs'), PROGRAM)
  const { stdout, stderr } = spawnSync(path, ['call.mjs'], { cwd: folder, encoding: 'utf8', timeout: 60_000 })
  const good = stdout?.trim() === WANTED
  say(`${name}: ${good ? 'works' : `expected ${WANTED}, got ${stdout} ${stderr}`}`)
  if (!good) failed += 1
}
process.exitCode = failed > 0 ? 1 : missing > 0 ? 3 : 0
