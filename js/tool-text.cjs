/** Tool calls as text, for models that have no calls of their own: what they are told, and what they answer. */
'use strict'

const { plain } = require('./check.cjs')
const { listParameters } = require('./schema.cjs')

const OPEN = '<tool_use>'
const CLOSE = '</tool_use>'

const INTRO = `You can use tools. To call one, write a block of exactly this form:

${OPEN}
{"id": "call_1", "name": "tool_name", "arguments": {"key": "value"}}
${CLOSE}

One reply may hold several such blocks; give each call an id of its own. The results come with the next message.

Available tools:`

/** The part of a system prompt that tells a model about its tools; empty without tools. */
function formatForSystemPrompt(definitions) {
  if (definitions.length === 0) return ''
  const lines = [INTRO]
  for (const { name, description, parameters } of definitions) {
    lines.push(`- ${name}: ${description}`)
    const listed = listParameters(parameters).map(([key, p]) => `${key} (${p.type}${p.required ? ', required' : ''})`)
    if (listed.length > 0) lines.push(`  Parameters: ${listed.join(', ')}`)
    lines.push('')
  }
  return lines.join('\n')
}

/** Where the block that begins at `start` ends, strings skipped; -1 when it does not, or when its strings are no JSON. */
function endOfBlock(text, start) {
  let inString = false
  for (let i = start; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (inString) {
      if (c === 0x5c) i++
      else if (c === 0x22) inString = false
      else if (c === 0x0a) return -1
    } else if (c === 0x22) inString = true
    else if (c === 0x3c && text.startsWith(CLOSE, i)) return i
  }
  return -1
}

function parseBody(body) {
  try {
    const call = JSON.parse(body)
    return plain(call) && typeof call.name === 'string' && call.name !== '' ? call : undefined
  } catch {
    return undefined
  }
}

/** A call id that nobody used before. */
function newCallId() {
  return `call_${globalThis.crypto.randomUUID().replaceAll('-', '')}`
}

/** Arguments as an object, out of a text too. What is none stays as it is: the call fails with words about it. */
function readArguments(given) {
  if (typeof given !== 'string') return given ?? {}
  try {
    const read = JSON.parse(given)
    return plain(read) ? read : given
  } catch {
    return given
  }
}

function readCall(call) {
  const id = typeof call.id === 'string' && call.id !== '' ? call.id : newCallId()
  return Object.freeze({ id, name: call.name, arguments: readArguments(call.arguments) })
}

/**
 * A model's reply, taken apart: its calls, and its text without them. Malformed blocks are in neither.
 *
 * A block that is none may look as if it went on to the end of the reply, and so may the next one. What is read in vain has
 * a limit, four times the reply; beyond it a block ends at its first closing tag.
 */
function parseToolCalls(response) {
  const toolCalls = []
  const texts = []
  let inVain = 4 * response.length + 65_536
  let at = 0
  for (;;) {
    const open = response.indexOf(OPEN, at)
    if (open === -1) break
    const start = open + OPEN.length
    const first = response.indexOf(CLOSE, start)
    if (first === -1) break
    const aware = inVain > 0 ? endOfBlock(response, start) : first
    const call = aware === -1 ? undefined : parseBody(response.slice(start, aware))
    if (!call) inVain -= (aware === -1 ? response.length : aware) - start
    // A block whose JSON does not hold ends at the first closing tag, so that it cannot swallow the next one.
    const end = call ? aware : first
    if (call) toolCalls.push(readCall(call))
    texts.push(response.slice(at, open))
    at = end + CLOSE.length
  }
  texts.push(response.slice(at))
  return Object.freeze({ text: texts.join('').trim(), toolCalls: Object.freeze(toolCalls) })
}

module.exports = { formatForSystemPrompt, parseToolCalls, newCallId }
