/**
 * From nothing to the first tool call, as a user of the package has it: `npm install` of the two packed packages into an empty project
 * with an empty cache, then a program that lists a directory with a tool.
 *
 * `node benches/install.mjs --addon FILE --launcher FILE [--rounds N]`, with what a published build has made. The packages come from
 * files: the time on the network is that of their bytes, which are printed.
 */

import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { performance } from 'node:perf_hooks'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const { values } = parseArgs({
  options: {
    addon: { type: 'string' },
    launcher: { type: 'string' },
    rounds: { type: 'string', default: '5' },
  },
})
if (!values.addon || !values.launcher) throw new Error('expected --addon FILE and --launcher FILE')

const CALL = `import { createToolRegistry, registerFilesystemTools } from 'simse'
const registry = createToolRegistry({})
registerFilesystemTools(registry, { workingDirectory: '.' })
const { output, isError } = await registry.execute({ id: '1', name: 'fs_list', arguments: {} })
if (isError || !output.includes('package.json')) throw new Error(output)
`
const top = fileURLToPath(new URL('..', import.meta.url))
const place = mkdtempSync(join(tmpdir(), 'simse-install-'))
const run = (program, args, cwd, more = {}) =>
  execFileSync(program, args, { cwd, stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...more } })

/** Bytes below a directory, or of a file. */
function bytes(path) {
  const found = statSync(path)
  if (!found.isDirectory()) return found.size
  return readdirSync(path).reduce((sum, name) => sum + bytes(join(path, name)), 0)
}

const megabytes = (count) => `${(count / 1e6).toFixed(1)} MB`
const median = (all) => [...all].sort((one, other) => one - other)[Math.floor(all.length / 2)]

try {
  const parts = []
  for (const name of ['addon', 'launcher']) {
    cpSync(resolve(values[name]), join(place, name))
    run('strip', [join(place, name)], place)
    parts.push(`--${name}`, join(place, name))
  }
  run(process.execPath, [join(top, 'scripts/package.mjs'), '--out', place, ...parts], place)
  const packed = readdirSync(place).filter((name) => name.endsWith('.tgz'))
  const rounds = []
  for (let round = 0; round < Number(values.rounds); round++) {
    const project = join(place, `project-${round}`)
    mkdirSync(project)
    writeFileSync(join(project, 'package.json'), '{"name": "empty", "private": true, "type": "module"}')
    writeFileSync(join(project, 'call.mjs'), CALL)
    const cache = { npm_config_cache: join(place, `cache-${round}`) }
    const quiet = ['--offline', '--no-audit', '--no-fund', '--loglevel=error']
    const begun = performance.now()
    run('npm', ['install', ...packed.map((name) => join(place, name)), ...quiet], project, cache)
    const installed = performance.now()
    run(process.execPath, ['call.mjs'], project)
    rounds.push([installed - begun, performance.now() - installed])
  }
  const modules = join(place, 'project-0', 'node_modules')
  const unpacked = readdirSync(modules)
    .filter((name) => name.startsWith('simse'))
    .map((name) => `${name} ${megabytes(bytes(join(modules, name)))}`)
  const fetched = packed.map((name) => `${name} ${megabytes(bytes(join(place, name)))}`)
  process.stdout.write(`to be fetched: ${fetched.join(', ')}\nunpacked: ${unpacked.join(', ')}\n`)
  const [install, call] = [0, 1].map((at) => median(rounds.map((round) => round[at])))
  const all = median(rounds.map(([one, other]) => one + other))
  const seconds = (ms) => `${(ms / 1_000).toFixed(2)} s`
  process.stdout.write(
    `install ${seconds(install)}, first call ${seconds(call)}, both ${seconds(all)} (medians of ${rounds.length})\n`,
  )
} finally {
  rmSync(place, { recursive: true, force: true })
}
