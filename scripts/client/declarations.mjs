/** client.d.ts: the part that is written by hand, the types of the document, and a method for each operation. */

import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { comment, member, nameOf, Types } from './types.mjs'

const here = dirname(fileURLToPath(import.meta.url))
const HEAD =
  '/** `simse/client`: a client of the server, made from its OpenAPI document by scripts/client.mjs. Do not edit it. */\n\n'

/** Names of the schemas that these name, and those that they name. */
function namedBy(document, schemas) {
  const names = new Set()
  const visit = (value) => {
    if (Array.isArray(value)) return value.forEach(visit)
    if (value === null || typeof value !== 'object') return
    const name = typeof value.$ref === 'string' ? value.$ref.split('/').at(-1) : undefined
    if (name === undefined) return Object.values(value).forEach(visit)
    if (names.has(name)) return
    names.add(name)
    visit(document.resolve(value))
  }
  schemas.forEach(visit)
  return names
}

/** The types that callers hand in, and all types that a caller can meet. The rest is about other doors. */
function typesOf(document, operations) {
  const sent = operations.flatMap(({ body, query }) => [body?.schema, ...query.map(({ schema }) => schema)])
  const got = operations.flatMap(({ json, stream }) => [...Object.values(json), stream])
  const own = OWN.map((name) => ({ $ref: `#/components/schemas/${name}` }))
  return { sent: namedBy(document, sent), all: namedBy(document, [...sent, ...got, ...own]) }
}

/** Types that the part that is written by hand names. */
const OWN = ['ErrorCode', 'Event', 'EventType', 'Feedback']

/** The alternatives of what an operation answers, as a type. */
function answerOf(types, operation, statuses) {
  const found = Object.entries(operation.json).filter(([status]) => statuses(status))
  return [...new Set(found.map(([, schema]) => types.of(schema, { indent: '  ' })))].join(' | ')
}

/** The options that only this operation has, as members of a type, and the options that it shares. */
function optionsOf(types, operation, { kind, eventTypes, without = [] }) {
  const write = operation.version ? 'VersionedOptions' : operation.key ? 'WriteOptions' : 'CallOptions'
  const shared = kind === 'events' ? 'StreamOptions' : write
  const own = operation.query
    .filter(({ name }) => !without.includes(name))
    .map(({ name, description, schema }) => {
      const typed =
        name === 'cursor'
          ? CURSOR
          : name === 'types'
            ? `readonly ${eventTypes ?? 'EventType'}[]`
            : types.of(schema, { indent: '    ', sent: true })
      return `${comment(description ?? schema.description, '    ')}    readonly ${member(name)}?: ${typed} | undefined\n`
    })
  return own.length === 0 ? shared : `${shared} & {\n${own.join('')}  }`
}

/** `nextCursor` is a text; a place in the log is as good. */
const CURSOR = 'string | number'

/** One method, with as many forms as it has. */
function method(types, operation, { document, eventTypes, indent = '  ' }) {
  const kind = document.kindOf(operation)
  const name = operation.name.split('.').at(-1)
  const first = operation.parameters.map((parameter) => `${parameter}: string`)
  if (operation.body) {
    const type = types.of(operation.body.schema, { indent: '  ', sent: true })
    first.push(operation.body.required ? `body: ${type}` : `body?: ${type}`)
  }
  const form = (options, result, generic = '') =>
    `${indent}${name}${generic}(${[...first, options].join(', ')}): ${result}\n`
  // What is said at length about a stream is about its frames, which nobody sees here.
  const framed = operation.stream !== undefined && operation.summary !== ''
  const said = framed ? [operation.summary] : [operation.summary, operation.description]
  const words = comment(said.filter((text) => text !== '').join('\n\n'), indent)
  const ok = (status) => status.startsWith('2') || operation.answered.includes(Number(status))
  const usual = (more = {}) => optionsOf(types, operation, { kind, ...more })
  switch (kind) {
    case 'text':
      return words + form(`options?: ${usual()}`, 'Promise<string>')
    case 'call':
      return words + form(`options?: ${usual()}`, `Promise<${answerOf(types, operation, ok)}>`)
    case 'list':
      return listForms(types, operation, { words, form, usual })
    case 'events': {
      const { union, names } = eventTypes
      const item = `Extract<${union}, { readonly type: T }>`
      return (
        words +
        form(`options?: ${usual({ eventTypes: 'T' })}`, `EventStream<${item}>`, `<T extends ${names} = ${names}>`)
      )
    }
    case 'prompt': {
      const options = usual({ without: ['wait'] })
      const turn = answerOf(types, operation, (status) => status === '200')
      const accepted = answerOf(types, operation, (status) => status === '202')
      return (
        words +
        form(`options?: ${options} & ${NOW}`, `Promise<${accepted}>`) +
        comment('Waits for the end of the turn, however long that takes; `timeoutMs` limits it.', indent) +
        form(`options: ${options} & ${WAIT}`, `Promise<${turn}>`) +
        comment(
          'The events of the turn, as soon as the prompt is accepted. Leaving the stream does not stop the turn.',
          indent,
        ) +
        form(`options: ${options} & ${STREAM}`, 'Promise<TurnStream>')
      )
    }
    default:
      throw new Error(`no such kind: ${kind}`)
  }
}

const NOW = '{ readonly wait?: false | undefined; readonly stream?: false | undefined }'
const WAIT = 'StreamOptions & { readonly wait: true; readonly stream?: false | undefined }'
const STREAM = 'StreamOptions & { readonly stream: true; readonly wait?: false | undefined }'

/** A list of one kind of entries; or of another one where a flag says so. */
function listForms(types, operation, { words, form, usual }) {
  const pages = types.document.variantsOf(Object.values(operation.json)[0])
  const entry = (page) => {
    const { items } = types.document.resolve(page.properties.items)
    return types.of(items, { indent: '  ' })
  }
  if (pages.length === 1) return words + form(`options?: ${usual()}`, `PagedList<${entry(pages[0])}>`)
  const flag = operation.query.find(({ schema }) => types.document.resolve(schema).type === 'boolean')?.name
  if (pages.length !== 2 || flag === undefined)
    throw new Error(`${operation.name}: pages of ${pages.length} kinds, and no flag`)
  const [plain, flagged] = pages
  const options = usual({ without: [flag, 'types'] })
  const never = operation.query.filter(({ description = '' }) => description.includes(`Not with \`${flag}\``))
  const without = [flag, ...never.map(({ name }) => name)]
  return (
    words +
    form(`options?: ${options} & { readonly ${flag}?: false | undefined }`, `PagedList<${entry(plain)}>`) +
    comment(operation.query.find(({ name }) => name === flag).description, '  ') +
    form(`options: ${usual({ without })} & { readonly ${flag}: true }`, `PagedList<${entry(flagged)}>`)
  )
}

/** The names of the events of a stream, as a type: that of its parameter `types`. */
function eventTypesOf(types, operation) {
  const union = types.of(operation.stream)
  const items = operation.query.find(({ name }) => name === 'types')?.schema?.items
  return { union, names: items?.$ref === undefined ? `${union}['type']` : types.of(items) }
}

/** Handlers of what tools and hooks ask, and what they tell. */
const ASKED = `  /** Which of the options: one, or several where the question says so. */
  readonly select?: Answering<'select', string | readonly string[]>
  /** Yes or no. */
  readonly confirm?: Answering<'confirm', boolean>
  /** A line of text. */
  readonly input?: Answering<'input', string>
  /** A text of several lines. */
  readonly editor?: Answering<'editor', string>
  /** Is told what nobody has to answer. */
  readonly notice?: (notice: EventPayload<'client.notice'>, event: EventOf<'client.notice'>) => void | Promise<void>
  /** Is told what stands on the screen now, in place of what stood there; it is gone with the end of the turn. */
  readonly display?: (shown: EventPayload<'client.display'>, event: EventOf<'client.display'>) => void | Promise<void>
`
const ANSWERING = `/** Answers a kind of question. null: there will be no answer; undefined: the question is left to others. */
export type Answering<K extends string, V> = (
  question: Extract<EventPayload<'client.request'>['question'], { readonly kind: K }>,
  context: RequestContext,
) => V | null | undefined | Promise<V | null | undefined>

`

/** The part that is written by hand, with what this version of the server can ask. */
function handWritten(document, operations) {
  const text = readFileSync(join(here, 'client.d.ts'), 'utf8')
  const { stream } = operations.find(({ name }) => name === 'sessions.events')
  const asks = document.typesOf(stream).includes('client.request')
  const handlers = text.replace('  // Further kinds come here.\n', asks ? ASKED : '')
  const marked = '/** Who answers what a session asks.'
  return (asks ? handlers.replace(marked, ANSWERING + marked) : handlers).split(
    '// What the document says comes here.\n',
  )
}

/** The whole file. */
export function declarations(document, operations) {
  const { sent, all } = typesOf(document, operations)
  const types = new Types(document, sent)
  const groups = new Map()
  for (const operation of operations) {
    const group = operation.name.includes('.') ? operation.name.split('.')[0] : ''
    const eventTypes = operation.stream === undefined ? undefined : eventTypesOf(types, operation)
    const text = method(types, operation, { document, eventTypes })
    groups.set(group, (groups.get(group) ?? '') + text)
  }
  const [before, after] = handWritten(document, operations)
  const named = Object.entries(document.schemas)
    .filter(([name]) => all.has(name))
    .map(([name, schema]) => types.declaration(name, schema))
  const interfaces = [...groups].filter(([group]) => group !== '').map(([group, text]) => groupOf(group, text))
  const top = [...groups.keys()].filter((group) => group !== '').map(groupMember)
  const client = after.replace('  // Groups and methods come here.\n', `${top.join('')}${groups.get('') ?? ''}`)
  return `${HEAD}${before.replace(/^\/\*\*[\s\S]*?\*\/\n\n/, '')}${[...named, ...interfaces].join('\n')}${client}`
}

const interfaceOf = (group) => `${nameOf(group)}Client`

function groupOf(group, text) {
  const more = group === 'sessions' ? ANSWER : ''
  return `/** The methods of \`client.${group}\`. */\nexport interface ${interfaceOf(group)} {\n${text}${more}}\n`
}

const groupMember = (group) => `  /** ${nameOf(group)}. */\n  readonly ${group}: ${interfaceOf(group)}\n`

const ANSWER = `  /**
   * Answers what the session asks: each handler is called with the questions that are open now and those that come, and what it gives back is
   * the answer. Ends when the session is deleted or the signal fires; rejects when a handler does. Somebody else's answer is as good.
   */
  answer(sessionId: string, handlers: RequestHandlers, options?: StreamOptions): Promise<void>
`
