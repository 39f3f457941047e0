/** Tool definitions as callers write them: checked, frozen, and brought to a form that Rust and a model can read. */
'use strict'

const { assertFits, boolean, describe, integer, oneOf, optional, plain, shape, string, text } = require('./check.cjs')
const { invalid, messageOf } = require('./errors.cjs')

const CATEGORIES = Object.freeze(['read', 'edit', 'search', 'execute', 'memory', 'vfs', 'task', 'subagent', 'other'])
const annotations = shape({ title: optional(string), destructive: optional(boolean), readOnly: optional(boolean) })

/** Parameters of any known form; `parametersOf` looks closer. */
function anyParameters(value, path, issues) {
  if (!plain(value) && typeof value !== 'function') {
    issues.push({
      path,
      message: `expected parameters by name, a JSON Schema object or a Standard Schema, got ${describe(value)}`,
    })
  }
}

const definitionShape = shape({
  name: text,
  description: string,
  parameters: anyParameters,
  category: optional(oneOf(...CATEGORIES)),
  annotations: optional(annotations),
  timeoutMs: optional(integer(1)),
  maxOutputChars: optional(integer(0)),
})

/** Freezes a value and all that it holds. */
function deepFreeze(value) {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  for (const key of Object.keys(value)) deepFreeze(value[key])
  return Object.freeze(value)
}

const isStandard = (value) => typeof value?.['~standard']?.validate === 'function'
/** As in src/tool/validate.rs: in the simple form every entry is an object. */
const isJsonSchema = (value) =>
  value.type === 'object' ||
  typeof value.$ref === 'string' ||
  ['anyOf', 'oneOf', 'allOf'].some((word) => Array.isArray(value[word]))

/** What a converter makes; what has no form in JSON becomes anything (`unrepresentable` is Zod's word). Undefined: it cannot say. */
function converted(schema) {
  const { vendor, jsonSchema } = schema['~standard']
  if (typeof jsonSchema?.input !== 'function') return undefined
  const libraryOptions = vendor === 'zod' ? { unrepresentable: 'any' } : undefined
  try {
    return jsonSchema.input({ target: 'draft-2020-12', ...(libraryOptions && { libraryOptions }) })
  } catch {
    return undefined
  }
}

/** A Standard Schema as JSON Schema, for models: arguments are held against the schema itself. One that cannot say so is told as any object. */
function standardToJson(schema) {
  const { $schema, ...json } = converted(schema) ?? {}
  if (Object.keys(json).length === 0) return { data: { type: 'object', properties: {} }, told: false }
  if (!isJsonSchema(json))
    throw invalid('register', [{ path: 'parameters', message: 'expected a schema of an object' }])
  return { data: json, told: true }
}

function checkByName(parameters) {
  const issues = []
  for (const [name, parameter] of Object.entries(parameters)) {
    const path = `parameters.${name}`
    if (!plain(parameter))
      issues.push({ path, message: `expected {type, description, required?}, got ${describe(parameter)}` })
    else {
      text(parameter.type, `${path}.type`, issues)
      optional(string)(parameter.description, `${path}.description`, issues)
      optional(boolean)(parameter.required, `${path}.required`, issues)
    }
  }
  if (issues.length > 0) throw invalid('register', issues)
}

/** Parameters as data, and what holds arguments against them beyond that. */
function parametersOf(parameters) {
  if (isStandard(parameters)) return { ...standardToJson(parameters), schema: parameters }
  if (!isJsonSchema(parameters)) checkByName(parameters)
  return { data: copied(parameters), schema: undefined }
}

/** A copy of what is data; anything else has no place in a schema. */
function copied(parameters) {
  try {
    return JSON.parse(JSON.stringify(parameters))
  } catch (cause) {
    const why = cause instanceof RangeError ? 'nested without end' : messageOf(cause).split('\n')[0]
    throw invalid('register', [{ path: 'parameters', message: `expected what can be written as JSON: ${why}` }])
  }
}

/**
 * A definition, checked, copied and frozen; `schema` is the Standard Schema of its parameters, if it has one, and `told` whether models know it.
 * @returns {{ definition: object, schema: object | undefined, told: boolean | undefined }}
 */
function readDefinition(given) {
  assertFits('register', definitionShape, given)
  const { data, schema, told } = parametersOf(given.parameters)
  const { parameters: _, ...rest } = given
  return { definition: deepFreeze(structuredClone({ ...rest, parameters: data })), schema, told }
}

/** Parameters as `[name, {type, required}]`, whatever their form. */
function listParameters(parameters) {
  if (!isJsonSchema(parameters)) {
    return Object.entries(parameters).map(([name, p]) => [name, { type: p.type, required: p.required === true }])
  }
  const required = new Set(Array.isArray(parameters.required) ? parameters.required : [])
  return Object.entries(parameters.properties ?? {}).map(([name, p]) => [
    name,
    { type: typeName(p), required: required.has(name) },
  ])
}

function typeName(schema) {
  if (typeof schema?.type === 'string') return schema.type
  if (Array.isArray(schema?.type)) return schema.type.join(' | ')
  if (Array.isArray(schema?.enum)) return 'enum'
  return 'any'
}

/** Holds arguments against a Standard Schema: the value to use, or what is wrong, in words that are never empty. */
async function validateStandard(schema, args) {
  const outcome = await schema['~standard'].validate(args)
  if (outcome?.issues === undefined) return { value: outcome?.value }
  const issues = Array.isArray(outcome.issues) ? outcome.issues : []
  const said = issues.map(issueText).filter((text) => text !== '')
  return { problem: said.length > 0 ? said.join('; ') : UNSAID }
}

/** What a schema refuses without saying why. */
const UNSAID = 'the arguments do not fit its schema'

/** One issue, from a library that may not keep to the standard's form. */
function issueText(issue) {
  const message = typeof issue?.message === 'string' ? issue.message : ''
  const path = Array.isArray(issue?.path) ? issue.path : []
  const where = path.map((part) => String(typeof part === 'object' ? (part?.key ?? '?') : part)).join('.')
  return where ? `argument "${where}": ${message || 'does not fit'}` : message
}

module.exports = { isStandard, isJsonSchema, readDefinition, listParameters, validateStandard, deepFreeze, CATEGORIES }
