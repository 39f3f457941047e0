/** JSON Schema in TypeScript's words. */

/** Longest line of what is written. */
const COLUMNS = 120

/** A comment above something, indented; nothing for no words. */
export function comment(text, indent) {
  const words = (text ?? '').replaceAll('*/', '*\\/').trim()
  if (words === '') return ''
  const paragraphs = words.split(/\n\s*\n/).map((paragraph) => paragraph.replace(/\s*\n\s*/g, ' ').trim())
  const room = COLUMNS - indent.length - 3
  if (paragraphs.length === 1 && paragraphs[0].length + 4 <= room) return `${indent}/** ${paragraphs[0]} */\n`
  const lines = paragraphs.flatMap((paragraph, at) => [...(at > 0 ? [''] : []), ...wrapped(paragraph, room)])
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}`.trimEnd()).join('\n')}\n${indent} */\n`
}

function wrapped(text, room) {
  const lines = ['']
  for (const word of text.split(' ')) {
    const last = lines.at(-1)
    if (last === '') lines[lines.length - 1] = word
    else if (last.length + 1 + word.length <= room) lines[lines.length - 1] = `${last} ${word}`
    else lines.push(word)
  }
  return lines
}

/** A name as it stands in a type: quoted where it has to be. */
export const member = (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : literal(name))

/** A value as a type. */
export const literal = (value) =>
  typeof value === 'string' ? `'${value.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'` : JSON.stringify(value)

/** Words for what has none in the document. */
const PLAIN = { kind: 'Which of them it is.', type: 'What happened.', payload: 'What there is to know about it.' }

/** Writes types. `sent`: names of the schemas that callers hand in, whose members may be undefined too. */
export class Types {
  constructor(document, sent) {
    this.document = document
    this.sent = sent
  }

  /**
   * The type of a schema; what stands in several lines is indented by `indent`. `owner` is the object that a schema without members of its own
   * says more about.
   */
  of(schema, { indent = '', sent = false, owner } = {}) {
    if (schema === true || schema === undefined) return 'unknown'
    if (schema === false) return 'never'
    if (schema.$ref !== undefined) return this.#named(schema.$ref)
    if (schema.const !== undefined) return literal(schema.const)
    if (schema.enum !== undefined) return union(schema.enum.map(literal))
    if (owner !== undefined && isDemand(schema)) return this.#demand(schema, owner, { indent, sent })
    const here = { indent, sent, owner: schema.properties === undefined ? owner : schema }
    const parts = []
    for (const several of [schema.oneOf, schema.anyOf]) if (several) parts.push(this.#oneOf(several, here))
    if (schema.allOf) parts.push(...schema.allOf.map((each) => this.of(each, here)))
    if (schema.type !== undefined || parts.length === 0) parts.unshift(...this.#typed(schema, here, parts.length > 0))
    const said = parts.filter((part) => part !== 'unknown')
    if (said.length === 0) return 'unknown'
    return said.length === 1 ? said[0] : said.map(grouped).join(' & ')
  }

  /** Members that have to be there. */
  #demand({ required = [] }, owner, here) {
    if (required.length === 0) return 'unknown'
    const members = required.map((name) => {
      const type = this.of(owner.properties[name], here).replace(/ \| null$/, '')
      return `readonly ${member(name)}: ${type}`
    })
    return `{ ${members.join('; ')} }`
  }

  #named(reference) {
    const name = reference.split('/').at(-1)
    this.document.resolve({ $ref: reference })
    return nameOf(name)
  }

  #oneOf(several, here) {
    return union(several.map((each) => this.of(each, here)))
  }

  /** By `type`. Beside a union, `object` without members says nothing more. */
  #typed(schema, here, beside) {
    const kinds = [schema.type].flat()
    const types = kinds.map((kind) => {
      switch (kind) {
        case 'string':
          return 'string'
        case 'integer':
        case 'number':
          return 'number'
        case 'boolean':
          return 'boolean'
        case 'null':
          return 'null'
        case 'array':
          return this.#array(schema, here)
        case 'object':
          return beside && schema.properties === undefined ? undefined : this.#object(schema, here)
        default:
          return schema.properties === undefined ? 'unknown' : this.#object(schema, here)
      }
    })
    const found = types.filter((type) => type !== undefined)
    return found.length === 0 ? [] : [union(found)]
  }

  #array(schema, here) {
    if (schema.prefixItems) return `readonly [${schema.prefixItems.map((each) => this.of(each, here)).join(', ')}]`
    return `readonly ${grouped(this.of(schema.items, here))}[]`
  }

  #object(schema, here) {
    const { properties = {}, required = [], additionalProperties: more } = schema
    const names = Object.keys(properties)
    const open = more !== undefined && more !== false && (names.length === 0 || more !== true)
    const rest = open ? `Readonly<Record<string, ${this.of(more, here)}>>` : undefined
    if (names.length === 0)
      return rest ?? (more === false ? 'Readonly<Record<string, never>>' : 'Readonly<Record<string, unknown>>')
    const own = this.members(properties, required, here)
    return rest === undefined ? own : `${own} & ${rest}`
  }

  /** `{ … }` with a line for each member. */
  members(properties, required, { indent, sent }) {
    const inner = `${indent}  `
    const lines = Object.entries(properties).map(([name, schema]) => {
      const optional = !required.includes(name)
      const type = this.of(schema, { indent: inner, sent })
      const absent = optional && sent ? ' | undefined' : ''
      return `${comment(this.#says(schema) ?? PLAIN[name], inner)}${inner}readonly ${member(name)}${optional ? '?' : ''}: ${type}${absent}`
    })
    return `{\n${lines.join('\n')}\n${indent}}`
  }

  /** A member's words, or those of the type that it has. */
  #says(schema) {
    return schema.description ?? schema.title ?? this.document.resolve(schema)?.description
  }

  /** A named schema as a declaration. */
  declaration(name, schema) {
    const sent = this.sent.has(name)
    const head = comment(schema.description, '')
    const plain = schema.type === 'object' && schema.properties && !schema.oneOf && !schema.anyOf && !schema.allOf
    if (plain && schema.additionalProperties !== true && typeof schema.additionalProperties !== 'object')
      return `${head}export interface ${nameOf(name)} ${this.members(schema.properties, schema.required ?? [], { indent: '', sent })}\n`
    const several = schema.oneOf ?? schema.anyOf
    if (several && schema.properties === undefined && !schema.allOf)
      return `${head}${this.#union(nameOf(name), several, sent)}`
    return `${head}export type ${nameOf(name)} = ${this.of(schema, { sent })}\n`
  }

  /** A line for each alternative, with its words. */
  #union(name, several, sent) {
    const lines = several.map((each) => {
      const words = each.$ref === undefined ? comment(each.description, '  ') : ''
      return `${words}  | ${grouped(this.of(each, { indent: '    ', sent }))}`
    })
    return `export type ${name} =\n${lines.join('\n')}\n`
  }
}

/** A schema's name as a type's. */
export const nameOf = (name) => name.replace(/(?:^|[^A-Za-z0-9_$]+)([A-Za-z0-9_$])/g, (_, first) => first.toUpperCase())

/** Whether a schema only says which members of another one have to be there. */
function isDemand({ properties = {}, required: _, not: __, ...rest }) {
  const bare = Object.values(properties).every((schema) => Object.keys(schema).every((key) => key === 'not'))
  return bare && Object.keys(rest).length === 0
}

function union(types) {
  const once = [...new Set(types)]
  return once.includes('unknown') ? 'unknown' : once.join(' | ')
}

/** In brackets where something stands beside it. */
function grouped(type) {
  return /^[^({]* [|&] |^\{[\s\S]*\} [|&] /.test(type) && !/^\([^()]*\)$/.test(type) ? `(${type})` : type
}
