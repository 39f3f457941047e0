/** Tool calls as text, for models that have no calls of their own: what they are told, and what they answer. */
'use strict'

const { plain } = require('./check.cjs')
const { listParameters } = require('./schema.cjs')

const OPEN = '<tool_use>'
const CLOSE = '</tool_use>'
/** Between two tags that belong together. */
const BLANKS_MAX = 1024

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

/** Where the object that begins at `start` ends; -1 when it does not. */
function endOfObject(text, start) {
  let depth = 0
  let inString = false
  for (let i = start; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (inString) {
      if (c === 0x5c) i++
      else if (c === 0x22) inString = false
    } else if (c === 0x22) inString = true
    else if (c === 0x7b) depth++
    else if (c === 0x7d && --depth === 0) return i + 1
  }
  return -1
}

/** Where a tag ends that stands at `at`, behind blanks or none; -1 when there is none. */
function endOfTag(text, at, tag) {
  const found = at + text.slice(at, at + BLANKS_MAX).search(/\S|$/)
  return text.startsWith(tag, found) ? found + tag.length : -1
}

/** What stands first in a block that begins at `start`, behind blanks. */
function firstIn(text, start) {
  return start + text.slice(start).search(/\S|$/)
}

/** Where the block that nothing closes ends: with its object, or with the reply when that was cut off. -1: a tag that opens no block. */
function endOfUnclosed(text, start) {
  const first = firstIn(text, start)
  if (first === text.length) return first
  if (text[first] !== '{') return -1
  const end = endOfObject(text, first)
  return end === -1 ? text.length : end
}

/** Whether a tag is only spoken of: no object follows it, and another block begins before anything is closed. */
function mentioned(text, start, closing) {
  if (text[firstIn(text, start)] === '{') return false
  const next = text.indexOf(OPEN, start)
  return next !== -1 && next < closing
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
  const { text, toolCalls } = readReply(response)
  return Object.freeze({ text, toolCalls })
}

/** The same, and how many blocks are malformed. */
function readReply(response) {
  const toolCalls = []
  const texts = []
  let malformed = 0
  let inVain = 4 * response.length + 65_536
  let at = 0
  let closing = 0
  for (;;) {
    const open = response.indexOf(OPEN, at)
    if (open === -1) break
    const { start, doubled } = insideOf(response, open)
    // The next one; looked for no more once there is none.
    if (closing !== -1 && closing < start) closing = response.indexOf(CLOSE, start)
    if (closing === -1 || mentioned(response, start, closing)) {
      const end = closing === -1 ? endOfUnclosed(response, start) : -1
      texts.push(response.slice(at, end === -1 ? start : open))
      if (end !== -1) malformed += 1
      at = end === -1 ? start : end
      continue
    }
    const aware = inVain > 0 ? endOfBlock(response, start) : closing
    const call = aware === -1 ? undefined : parseBody(response.slice(start, aware))
    if (call) toolCalls.push(readCall(call))
    else {
      malformed += 1
      inVain -= (aware === -1 ? response.length : aware) - start
    }
    texts.push(response.slice(at, open))
    // A block whose JSON does not hold ends at the first closing tag, so that it cannot swallow the next one.
    at = behind(response, (call ? aware : closing) + CLOSE.length, doubled)
  }
  texts.push(response.slice(at))
  return { text: texts.join('').trim(), toolCalls: Object.freeze(toolCalls), malformed }
}

/** Where the inside of a block begins; a tag that is written twice and more opens one block. */
function insideOf(text, open) {
  let start = open + OPEN.length
  for (let doubled = 0; ; doubled++) {
    const next = endOfTag(text, start, OPEN)
    if (next === -1) return { start, doubled }
    start = next
  }
}

/** Where the text behind a block goes on, with as many further closing tags as it had opening ones. */
function behind(text, end, doubled) {
  for (let left = doubled; left > 0; left--) {
    const next = endOfTag(text, end, CLOSE)
    if (next === -1) break
    end = next
  }
  return end
}

module.exports = { formatForSystemPrompt, parseToolCalls, readReply, newCallId }
