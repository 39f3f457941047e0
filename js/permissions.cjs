/** Permission resolvers. Rules are judged in Rust; `onPermissionRequest` is asked here. */
'use strict'

const { native } = require('./bridge.cjs')
const {
  assertFits,
  describe,
  either,
  filled,
  fn,
  list,
  oneOf,
  optional,
  plain,
  shape,
  string,
  text,
  boolean,
} = require('./check.cjs')
const { messageOf, revive } = require('./errors.cjs')
const { CATEGORIES, isStandard } = require('./schema.cjs')
const { toJson } = require('./json.cjs')

const policy = oneOf('allow', 'ask', 'deny')
const category = oneOf(...CATEGORIES)

const rule = shape({
  tool: text,
  pattern: optional(text),
  policy,
  category: optional(
    either(`one of ${CATEGORIES.join(', ')}, or a list of at least one of them`, category, filled(category)),
  ),
  annotations: optional(
    shape({ title: optional(string), destructive: optional(boolean), readOnly: optional(boolean) }),
  ),
})

/** The shape of a `ToolPermissionConfig`. */
const permissionConfig = shape({
  defaultPolicy: policy,
  rules: optional(list(rule)),
  onPermissionRequest: optional(fn),
})

/** What can be explained; more members are welcome. */
const call = (value, path, issues) => {
  const said = (at, expected, got) => issues.push({ path: at, message: `expected ${expected}, got ${describe(got)}` })
  if (!plain(value)) said(path, 'a call', value)
  else if (typeof value.name !== 'string') said('name', 'a string', value.name)
  else if (value.arguments !== undefined && !plain(value.arguments)) said('arguments', 'an object', value.arguments)
}

function frozen(explanation) {
  for (const part of explanation.parts) Object.freeze(part)
  Object.freeze(explanation.parts)
  return Object.freeze(explanation)
}

/** Definition → the native registry that it is of, as long as that lives. */
const owners = new WeakMap()

/** Notes that a definition is of a registry: calls are then judged by the tool that stands there. */
const claim = (definition, registry) => owners.set(definition, new WeakRef(registry))

const ownerOf = (definition) => (plain(definition) && owners.get(definition)?.deref()) || null

/** Resolver → its rules and whom it asks. */
const insides = new WeakMap()

/** The part of a configuration that Rust judges, as JSON. */
function rulesJson({ defaultPolicy, rules = [] }) {
  return toJson({ defaultPolicy, rules })
}

/** A call, and what it would do where that is known, for whoever is asked about it. */
const questionOf = ({ request, preview }) => (preview ? { ...request, preview } : request)

/** Asks a person through `onPermissionRequest`. Only `true` is yes; a failure is no, and `log` hears of it. */
async function askPerson(onPermissionRequest, request, log) {
  try {
    return (await onPermissionRequest(request)) === true
  } catch (cause) {
    log(`onPermissionRequest failed for tool "${request.name}", which counts as no: ${messageOf(cause)}`, { cause })
    return false
  }
}

/** What rules look at in a definition, as JSON. */
function facts(definition) {
  if (!plain(definition)) return null
  const { category, annotations } = definition
  return toJson({ name: '', description: '', parameters: {}, category, annotations })
}

/** The same with its parameters, as far as they are data. */
function factsAndParameters(definition) {
  if (!plain(definition)) return null
  const { category, annotations, parameters } = definition
  const data = plain(parameters) && !isStandard(parameters) ? parameters : {}
  return toJson({ name: '', description: '', parameters: data, category, annotations })
}

/** Creates a permission resolver. */
function createToolPermissionResolver(config) {
  assertFits('createToolPermissionResolver', permissionConfig, config)
  const { onPermissionRequest } = config
  let rules
  try {
    rules = new native.NativeRules(rulesJson(config))
  } catch (cause) {
    throw revive(cause)
  }

  const asJson = (request) => toJson({ id: '', ...request, arguments: request.arguments ?? {} })

  async function check(request, definition) {
    if (!plain(request) || typeof request.name !== 'string') return false
    let answer
    try {
      answer = rules.decide(asJson(request), facts(definition), ownerOf(definition))
    } catch (cause) {
      console.warn(
        `simse: a call of tool "${request.name}" cannot be judged, which counts as no: ${messageOf(revive(cause))}`,
      )
      return false
    }
    if (answer !== 'ask') return answer === 'allow'
    return onPermissionRequest === undefined ? false : askPerson(onPermissionRequest, request, console.warn)
  }

  async function explain(request, definition) {
    assertFits('explain', call, request)
    try {
      const owner = ownerOf(definition)
      return frozen(JSON.parse(rules.explain(asJson(request), factsAndParameters(definition), owner)))
    } catch (cause) {
      throw revive(cause)
    }
  }

  const resolver = Object.freeze({ check, explain })
  insides.set(resolver, Object.freeze({ rules, onPermissionRequest }))
  return resolver
}

/** What a resolver of ours is made of; undefined for others. */
const resolverInsides = (resolver) => insides.get(resolver)

module.exports = {
  claim,
  createToolPermissionResolver,
  resolverInsides,
  permissionConfig,
  rulesJson,
  askPerson,
  questionOf,
}
