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

/** Whether a Standard Schema can be told to a model. */
const isTold = (schema) => typeof schema['~standard'].jsonSchema?.input === 'function'

/** A Standard Schema as JSON Schema. One that cannot say so takes any object here and is held against arguments in JavaScript. */
function standardToJson(schema) {
  const refuse = (message) => invalid('register', [{ path: 'parameters', message }])
  let converted
  try {
    converted = isTold(schema) ? schema['~standard'].jsonSchema.input({ target: 'draft-2020-12' }) : undefined
  } catch (cause) {
    throw refuse(`this schema has no form in JSON Schema, which models are told: ${messageOf(cause)}`)
  }
  const { $schema, ...json } = converted ?? { type: 'object', properties: {} }
  if (!isJsonSchema(json)) throw refuse('expected a schema of an object')
  return json
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
  if (isStandard(parameters)) return { data: standardToJson(parameters), schema: parameters }
  if (!isJsonSchema(parameters)) checkByName(parameters)
  return { data: structuredClone(parameters), schema: undefined }
}

/**
 * A definition, checked, copied and frozen; `schema` is the Standard Schema of its parameters, if it has one.
 * @returns {{ definition: object, schema: object | undefined }}
 */
function readDefinition(given) {
  assertFits('register', definitionShape, given)
  const { data, schema } = parametersOf(given.parameters)
  const { parameters: _, ...rest } = given
  return { definition: deepFreeze(structuredClone({ ...rest, parameters: data })), schema }
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

/** Holds arguments against a Standard Schema: the value to use, or what is wrong. */
async function validateStandard(schema, args) {
  const outcome = await schema['~standard'].validate(args)
  if (!outcome.issues) return { value: outcome.value }
  const said = outcome.issues.map(({ path, message }) => {
    const where = (path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
    return where ? `argument "${where}": ${message}` : message
  })
  return { problem: said.join('; ') }
}

module.exports = { isStandard, isTold, readDefinition, listParameters, validateStandard, deepFreeze, CATEGORIES }
