/** Permission resolvers. Rules are judged in Rust; `onPermissionRequest` is asked here. */
'use strict'

const { native } = require('./bridge.cjs')
const { assertFits, either, fn, list, oneOf, optional, plain, shape, string, text, boolean } = require('./check.cjs')
const { messageOf, revive } = require('./errors.cjs')
const { CATEGORIES } = require('./schema.cjs')
const { toJson } = require('./json.cjs')

const policy = oneOf('allow', 'ask', 'deny')
const category = oneOf(...CATEGORIES)

const rule = shape({
  tool: text,
  pattern: optional(string),
  policy,
  category: optional(either(`one of ${CATEGORIES.join(', ')}, or a list of them`, category, list(category))),
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

/** Resolver → its rules and whom it asks. */
const insides = new WeakMap()

/** The part of a configuration that Rust judges, as JSON. */
function rulesJson({ defaultPolicy, rules = [] }) {
  return toJson({ defaultPolicy, rules })
}

/** Asks a person through `onPermissionRequest`. Only `true` is yes; a failure is no, and `log` hears of it. */
async function askPerson(onPermissionRequest, request, log) {
  try {
    return (await onPermissionRequest(request)) === true
  } catch (cause) {
    log(`onPermissionRequest failed for tool "${request.name}", which counts as no: ${messageOf(cause)}`, { cause })
    return false
  }
}

/** What rules look at in a definition, as JSON; its parameters may be of any kind. */
function facts(definition) {
  if (!plain(definition)) return null
  const { category, annotations } = definition
  return toJson({ name: '', description: '', parameters: {}, category, annotations })
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

  async function check(request, definition) {
    if (!plain(request) || typeof request.name !== 'string') return false
    let answer
    try {
      answer = rules.decide(toJson({ id: '', ...request, arguments: request.arguments ?? {} }), facts(definition))
    } catch (cause) {
      console.warn(
        `simse: a call of tool "${request.name}" cannot be judged, which counts as no: ${messageOf(revive(cause))}`,
      )
      return false
    }
    if (answer !== 'ask') return answer === 'allow'
    return onPermissionRequest === undefined ? false : askPerson(onPermissionRequest, request, console.warn)
  }

  const resolver = Object.freeze({ check })
  insides.set(resolver, Object.freeze({ rules, onPermissionRequest }))
  return resolver
}

/** What a resolver of ours is made of; undefined for others. */
const resolverInsides = (resolver) => insides.get(resolver)

module.exports = { createToolPermissionResolver, resolverInsides, permissionConfig, rulesJson, askPerson }
