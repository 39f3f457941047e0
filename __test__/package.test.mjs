/** The package as a program sees it: packed, installed into an empty TypeScript project, imported both ways. */

import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import * as modules from '../js/index.js'
import { run } from './support/run.mjs'

const exported = { ...modules }
const require = createRequire(import.meta.url)
const top = fileURLToPath(new URL('..', import.meta.url))
const declarations = await readFile(join(top, 'index.d.ts'), 'utf8')

/** What index.d.ts declares to be there at run time. */
const declared = [...declarations.matchAll(/^export (?:declare )?(?:function|const|let|var|class|enum) (\w+)/gm)].map(
  (m) => m[1],
)

test('index.d.ts, the ES module and the CommonJS module export the same names', () => {
  const names = [...new Set(declared)].sort()
  assert.ok(names.length >= 9)
  assert.deepEqual(Object.keys(exported).sort(), names)
  assert.deepEqual(Object.keys(require('../js/index.cjs')).sort(), names)
})

test('both modules have one state', () => {
  const common = require('../js/index.cjs')
  for (const name of declared) assert.equal(common[name], exported[name])
})

test('every export and every member in index.d.ts is documented', () => {
  const lines = declarations.split('\n')
  const bare = lines.filter((line, i) => {
    const member = /^( {2}(readonly )?[\w'[\]~$-]+[?]?(<.*>)?[:(]|export )/.test(line) && !/^export \{/.test(line)
    const before = lines[i - 1]?.trim() ?? ''
    return member && !before.endsWith('*/') && !line.endsWith(',') && !isOverload(lines, i)
  })
  assert.deepEqual(bare, [])
})

/** The second form of a function stands under the first one's words. */
function isOverload(lines, i) {
  const name = /^ *(\w+)[<(]/.exec(lines[i])?.[1]
  return (
    name !== undefined && lines.slice(Math.max(0, i - 6), i).some((line) => new RegExp(`^ *${name}[<(]`).test(line))
  )
}

let project
before(async () => {
  project = await mkdtemp(join(tmpdir(), 'simse-package-'))
})
after(() => rm(project, { recursive: true, force: true }))

/** Runs npm without a word about updates, and without a network. */
const npm = (args, cwd) =>
  run('npm', [...args, '--offline', '--no-audit', '--no-fund', '--loglevel=error'], { cwd, limitMs: 120_000 })

const PROGRAM = `
const registry: ToolRegistry = createToolRegistry({ eventBus: createEventBus() })
registry.register(
  { name: 'add', description: 'Adds.', parameters: { a: { type: 'number', description: '', required: true } } },
  async ({ a }) => String(Number(a) + 1),
)
registerFilesystemTools(registry, { workingDirectory: '.' })
registerBashTool(registry, { workingDirectory: '.' })
registerGitTools(registry, { workingDirectory: '.' })
const resolver = createToolPermissionResolver({ defaultPolicy: 'deny', rules: [] })
const server = createSimseServer({ port: 0, acpServers: [], workingDirectory: '.' })
const client = createSimseClient({ baseUrl: server.url })
async function main(): Promise<void> {
  const { output } = await registry.execute({ id: '1', name: 'add', arguments: { a: 1 } })
  const denied = await resolver.check({ id: '2', name: 'add', arguments: {} })
  const refused = await client.tools({ signal: AbortSignal.abort(new RangeError('no')) }).catch((e: Error) => e.name)
  console.log(output, denied, server.url, registry.isRegistered('bash'), refused)
}
void main()
`
/** The client alone: nothing of Node is named, errors are typed, and a stream that is left ends. */
const CLIENT = `
import { createSimseClient, SimseError, type Event } from 'simse/client'
const client = createSimseClient({ baseUrl: 'http://127.0.0.1:9', retries: 0 })
async function code(): Promise<string> {
  try {
    for await (const event of client.sessions.events('s', { types: ['stream.delta'] })) return event.payload.text
    return 'ended'
  } catch (error) {
    return error instanceof SimseError ? error.code : String(error)
  }
}
const said: string = await code()
const stream: AsyncIterable<Event> & AsyncDisposable = client.sessions.events('s')
await stream[Symbol.asyncDispose]()
let events = 0
for await (const _ of stream) events += 1
console.log(said, events === 0, 'done', client.sessions !== undefined)
`
const NAMES =
  'createEventBus, createSimseServer, createToolPermissionResolver, createToolRegistry, registerBashTool, registerFilesystemTools, registerGitTools'

test('packed and installed in an empty TypeScript project, it type-checks and runs, imported and required', async () => {
  const packed = await npm(['pack', top, '--pack-destination', project, '--json'], project)
  assert.equal(packed.code, 0, packed.said)
  const [{ filename }] = JSON.parse(packed.said.slice(packed.said.indexOf('[')))
  const [{ files }] = JSON.parse(packed.said.slice(packed.said.indexOf('[')))
  const paths = files.map((f) => f.path)
  assert.ok(
    paths.some((p) => /^js\/simse\..*\.node$/.test(p)),
    paths.join(' '),
  )
  assert.ok(!paths.some((p) => p.startsWith('__test__') || p.startsWith('src')), paths.join(' '))

  await writeFile(join(project, 'package.json'), '{"name": "empty", "private": true, "type": "module"}')
  const installed = await npm(['install', `./${filename}`], project)
  assert.equal(installed.code, 0, installed.said)

  const options = { target: 'es2022', module: 'nodenext', strict: true, types: [], outDir: 'out', noEmitOnError: true }
  await writeFile(
    join(project, 'tsconfig.json'),
    JSON.stringify({ compilerOptions: options, files: ['a.mts', 'b.cts'] }),
  )
  const head = `import { ${NAMES}, type ToolRegistry } from 'simse'\nimport { createSimseClient } from 'simse/client'\n`
  await writeFile(join(project, 'a.mts'), head + PROGRAM)
  await writeFile(join(project, 'b.cts'), head + PROGRAM)
  const untyped = [': ToolRegistry', ': Promise<void>', ': Error'].reduce(
    (text, type) => text.replace(type, ''),
    PROGRAM,
  )
  await writeFile(
    join(project, 'c.cjs'),
    `const { ${NAMES} } = require('simse')\nconst { createSimseClient } = require('simse/client')\n${untyped}`,
  )
  const tsc = join(top, 'node_modules/typescript/bin/tsc')
  const compiled = await run(process.execPath, [tsc, '-p', '.'], {
    cwd: project,
  })
  assert.equal(compiled.code, 0, compiled.said)
  assert.match(await readFile(join(project, 'out/b.cjs'), 'utf8'), /require\(["']simse["']\)/)
  // What is put together for a browser, as bundlers resolve it, with the types of the platform only.
  await writeFile(
    join(project, 'tsconfig.bundler.json'),
    JSON.stringify({
      compilerOptions: {
        ...options,
        module: 'esnext',
        moduleResolution: 'bundler',
        lib: ['es2022', 'dom', 'esnext.disposable'],
        outDir: 'bundled',
      },
      files: ['d.ts'],
    }),
  )
  await writeFile(join(project, 'd.ts'), CLIENT)
  const bundled = await run(process.execPath, [tsc, '-p', 'tsconfig.bundler.json'], { cwd: project })
  assert.equal(bundled.code, 0, bundled.said)
  const ran = await run(process.execPath, ['bundled/d.js'], { cwd: project })
  assert.deepEqual([ran.code, ran.said], [0, 'UNREACHABLE true done true\n'])
  for (const program of ['out/a.mjs', 'out/b.cjs', 'c.cjs']) {
    const { code, said } = await run(process.execPath, [program], { cwd: project })
    assert.deepEqual({ code, said }, { code: 0, said: '2 false http://127.0.0.1:0 true RangeError\n' }, program)
  }
})
