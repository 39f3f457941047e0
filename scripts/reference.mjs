/**
 * `node scripts/reference.mjs [--binary FILE] [--out DIR]`: writes docs/reference, the lists of all commands, settings, events,
 * routes, error codes and metrics, from what the program itself says of them. Nothing in there is written by hand: a test holds it
 * against the program. Without a program named: the debug build's, else the release build's.
 */

import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { missing, say, top } from './tools.mjs'

/** How long the server may take to be there, in milliseconds. */
const START_MS = 60_000
const MADE = 'Made by `node scripts/reference.mjs` from the program.'

/** Text for a cell of a table. */
const cell = (text) => String(text).replaceAll('|', '\\|').replaceAll('<', '&lt;').replaceAll(/\s+/g, ' ').trim()
const page = (title, text, ...body) => `# ${title}\n\n${MADE} ${text}\n\n${body.join('\n')}\n`
const table = (head, rows) =>
  [
    `| ${head.join(' | ')} |`,
    `|${head.map(() => '---').join('|')}|`,
    ...rows.map((row) => `| ${row.map(cell).join(' | ')} |`),
  ].join('\n')
const code = (text) => `\`${text}\``

/** What a value has to be, in a few words. */
function shape(schema) {
  if (schema === true || schema === undefined) return 'anything'
  if (schema.$ref) return code(schema.$ref.split('/').at(-1))
  if (schema.const !== undefined) return code(JSON.stringify(schema.const))
  if (schema.enum) return schema.enum.map((value) => code(JSON.stringify(value))).join(', ')
  const choices = schema.oneOf ?? schema.anyOf
  if (choices) return [...new Set(choices.map(shape))].join(' or ')
  if (schema.allOf?.length === 1) return shape(schema.allOf[0])
  if (schema.type === 'array') return `array of ${shape(schema.items)}`
  const types = [schema.type ?? 'anything'].flat().join(' or ')
  const from = schema.minimum === undefined ? '' : ` from ${schema.minimum}`
  const to = schema.maximum === undefined ? '' : ` to ${schema.maximum}`
  return types + from + to
}

const fields = (schema) =>
  Object.entries(schema?.properties ?? {}).map(([name, of]) => [
    code(name),
    shape(of),
    schema.required?.includes(name) ? 'always' : '',
    of.description ?? '',
  ])
const tableOfFields = (schema) =>
  Object.keys(schema?.properties ?? {}).length === 0
    ? 'Nothing.'
    : table(['field', 'what it is', 'there', 'meaning'], fields(schema))

/** The commands and flags, as `--help` tells them. */
function commands(binary) {
  const help = (names) =>
    execFileSync(binary, [...names, '--help'], {
      encoding: 'utf8',
      env: { PATH: process.env.PATH, HOME: '/nowhere', COLUMNS: '100' },
    }).trimEnd()
  const sections = []
  const visit = (names) => {
    const text = help(names)
    sections.push(`## simse ${names.join(' ')}`.trimEnd(), '', '```text', text, '```', '')
    const listed = /^Commands:\n([\s\S]*?)\n(?:\n|$)/m.exec(text)?.[1] ?? ''
    for (const [, name] of listed.matchAll(/^ {2}(\S+)/gm)) if (name !== 'help') visit([...names, name])
  }
  visit([])
  return page('Commands', 'What each command and flag of the program does.', ...sections)
    .trimEnd()
    .concat('\n')
}

/** The settings of the configuration file. */
function settings(binary) {
  const schema = JSON.parse(execFileSync(binary, ['config', 'schema'], { encoding: 'utf8' }))
  const rows = (of) =>
    Object.entries(of.properties).map(([name, one]) => [code(name), shape(one), one.description ?? ''])
  const head = ['setting', 'what it is', 'meaning']
  const resolved = (of) =>
    of?.$ref
      ? of.$ref
          .slice(2)
          .split('/')
          .reduce((at, key) => at[key], schema)
      : of
  const inner = Object.entries(schema.properties).flatMap(([name, of]) => {
    const one = resolved(of.items ?? of)
    return one?.properties ? ['', `## ${name}`, '', one.description ?? '', '', table(head, rows(one))] : []
  })
  const text =
    'The configuration file is TOML (`--config`; `~/.config/simse/config.toml` when it is there). `simse config schema` is the same for programs, `simse config check` says what is wrong with a file.'
  return page('Settings', text, table(head, rows(schema)), ...inner)
}

/** The events of a session. */
function events(document) {
  const body = document.components.schemas.EventBody
  const sections = (body.oneOf ?? []).flatMap((event) => [
    `## ${event.properties.type.const}`,
    '',
    event.description ?? '',
    '',
    tableOfFields(event.properties.payload),
    '',
  ])
  const text = 'What the log of a session has, and its stream says. Each event has `seq`, `type`, `payload` and a time.'
  return page('Events', text, ...sections)
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete']

/** The routes. */
function routes(document) {
  const rows = Object.entries(document.paths).flatMap(([path, of]) =>
    METHODS.filter((method) => of[method]).map((method) => [
      code(`${method.toUpperCase()} ${path}`),
      of[method].summary ?? '',
      Object.keys(of[method].responses).join(' '),
    ]),
  )
  return page(
    'Routes',
    'Parameters, bodies and answers of each: [openapi.json](../openapi.json).',
    table(['route', 'what it does', 'statuses'], rows),
  )
}

/** Codes of errors. */
function errors(document) {
  const of = document.components.schemas.ErrorCode
  const rows = of.enum
    ? of.enum.map((name) => [code(name), ''])
    : of.oneOf.flatMap((one) => (one.enum ?? [one.const]).map((name) => [code(name), one.description ?? '']))
  return page(
    'Error codes',
    'What to do about each stands in [errors](../errors.md).',
    table(['code', 'meaning'], rows),
  )
}

/** The metrics, as a server of its own tells them. */
async function metrics(binary) {
  const home = mkdtempSync(join(tmpdir(), 'simse-reference-'))
  const portFile = join(home, 'port')
  const flags = ['--port', '0', '--no-auth', '--data-dir', join(home, 'data'), '--port-file', portFile]
  const env = { PATH: process.env.PATH, HOME: home }
  const server = spawn(binary, ['serve', ...flags], { cwd: home, env, stdio: 'ignore' })
  try {
    for (const end = Date.now() + START_MS; !existsSync(portFile); await sleep(50))
      if (Date.now() > end || server.exitCode !== null) throw new Error(`${binary} does not serve`)
    const text = await (await fetch(`http://127.0.0.1:${readFileSync(portFile, 'utf8').trim()}/metrics`)).text()
    const kinds = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)/gm)].map(([, name, kind]) => [name, kind]))
    const rows = [...text.matchAll(/^# HELP (\S+) (.*)/gm)].map(([, name, help]) => [
      code(name),
      kinds.get(name) ?? '',
      help,
    ])
    if (rows.length === 0) throw new Error('GET /metrics tells of nothing')
    return page('Metrics', 'What `GET /metrics` tells Prometheus.', table(['metric', 'kind', 'meaning'], rows))
  } finally {
    const ended = new Promise((resolve) => server.once('exit', resolve))
    if (server.exitCode === null && server.kill('SIGTERM')) await ended
    rmSync(home, { recursive: true, force: true })
  }
}

/** All pages: name of the file to text. */
export async function reference(binary) {
  const document = JSON.parse(execFileSync(binary, ['openapi'], { encoding: 'utf8', maxBuffer: 1 << 26 }))
  return {
    'commands.md': commands(binary),
    'errors.md': errors(document),
    'events.md': events(document),
    'metrics.md': await metrics(binary),
    'routes.md': routes(document),
    'settings.md': settings(binary),
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const options = { binary: { type: 'string' }, out: { type: 'string', default: join(top, 'docs', 'reference') } }
  const { values } = parseArgs({ options })
  const builds = ['debug', 'release'].map((kind) => join(top, 'target', kind, 'simse'))
  const binary = values.binary === undefined ? builds.find(existsSync) : resolve(values.binary)
  if (binary === undefined) missing('there is no program to ask', '`cargo build` makes it.')
  mkdirSync(values.out, { recursive: true })
  for (const [name, text] of Object.entries(await reference(binary))) writeFileSync(join(values.out, name), text)
  say(`the reference is in ${values.out}`)
}
