/** The loop breaker: what is decided is decided in Rust, as in the server's own loop. */
'use strict'

const { native } = require('./bridge.cjs')
const { assertFits, boolean, having, integer, list, optional, plain, shape, string } = require('./check.cjs')
const { revive } = require('./errors.cjs')
const { toJson } = require('./json.cjs')

const count = optional(integer(0, 1_000_000))
const limitsShape = shape({
  identicalCalls: count,
  emptySearches: count,
  identicalReplies: count,
  unreadableReplies: count,
})
const call = (value, path, issues) => {
  if (!plain(value) || typeof value.name !== 'string' || !plain(value.arguments ?? {}))
    issues.push({ path, message: 'expected {id, name, arguments}' })
}
const anyResult = (value, path, issues) => {
  if (!plain(value) || typeof value.output !== 'string')
    issues.push({ path, message: 'expected {name, output, isError}' })
}
const replyShape = shape({ text: optional(string), toolCalls: optional(list(call)), unreadable: optional(boolean) })

/** Calls Rust; its errors become ours. */
function ask(run) {
  try {
    return run()
  } catch (cause) {
    throw revive(cause)
  }
}

const asCall = ({ name, arguments: args }) => ({ id: '', name, arguments: args ?? {} })

/** What a breaker looks at in a definition. */
function facts(definition) {
  if (!plain(definition)) return undefined
  const { category, annotations } = definition
  return toJson({ name: '', description: '', category, annotations })
}

/** Creates a loop breaker. */
function createLoopBreaker(limits = {}) {
  assertFits('createLoopBreaker', limitsShape, limits, 'limits')
  const inner = ask(() => new native.NativeLoopBreaker(toJson(limits)))

  function checkReply(reply) {
    assertFits('checkReply', replyShape, reply, 'reply')
    const { text = '', toolCalls = [], unreadable = false } = reply
    const told = ask(() => inner.reply(toJson({ text, toolCalls: toolCalls.map(asCall), unreadable })))
    return Object.freeze(JSON.parse(told))
  }

  function checkCall(request) {
    assertFits('checkCall', call, request, 'call')
    return ask(() => inner.call(toJson(asCall(request)))) ?? undefined
  }

  function checkResult(result, definition) {
    assertFits('checkResult', anyResult, result, 'result')
    const { name, output, isError } = result
    const shown = toJson({ id: '', name: String(name), output: String(output), isError: isError === true })
    return ask(() => inner.result(shown, facts(definition))) ?? undefined
  }

  function attach(hooks, registry) {
    assertFits('attach', having('register'), hooks, 'hooks')
    assertFits('attach', having('getToolDefinition'), registry, 'registry')
    const ends = [
      hooks.register('tool.execute.before', ({ request }) => {
        const reason = checkCall(request)
        return reason === undefined ? undefined : { blocked: true, reason }
      }),
      hooks.register('tool.result.validate', ({ request, result }) => {
        const hint = checkResult(result, registry.getToolDefinition(request.name))
        return hint === undefined ? [] : [hint]
      }),
    ]
    return () => {
      for (const end of ends) end()
    }
  }

  return Object.freeze({ checkReply, checkCall, checkResult, attach, reset: () => inner.reset() })
}

module.exports = { createLoopBreaker }
