/** Host tools, registered from Rust, and the edit chain by itself. */
'use strict'

const { native } = require('./bridge.cjs')
const { assertFits, boolean, environment, integer, list, oneOf, optional, path, shape, string } = require('./check.cjs')
const { revive } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { endAtExit } = require('./leftovers.cjs')
const { stateOf } = require('./registry.cjs')

const filesystemOptions = shape({
  workingDirectory: path,
  allowedPaths: optional(list(path)),
  staleCheck: optional(oneOf('strict', 'warn', 'off')),
})
const gitOptions = shape({
  workingDirectory: path,
  sandbox: optional(oneOf('read-only', 'workspace-write', 'off')),
  sandboxNetwork: optional(boolean),
})
const bashOptions = shape({
  workingDirectory: path,
  defaultTimeoutMs: optional(integer(1)),
  maxOutputBytes: optional(integer(1)),
  env: optional(environment),
  shell: optional(path),
  sandbox: optional(oneOf('read-only', 'workspace-write', 'off')),
  sandboxNetwork: optional(boolean),
})
const execOptions = shape({
  workingDirectory: path,
  maxOutputTokens: optional(integer(1)),
  env: optional(environment),
  shell: optional(path),
  sandbox: optional(oneOf('read-only', 'workspace-write', 'off')),
  sandboxNetwork: optional(boolean),
})

/** Registers a family of native tools. */
const registrar = (what, options, method) => (registry, given) => {
  const state = stateOf(registry, what)
  assertFits(what, options, given, 'options')
  try {
    state.note(state.native[method](toJson(given)))
  } catch (cause) {
    throw revive(cause)
  }
}

const registerFilesystemTools = registrar('registerFilesystemTools', filesystemOptions, 'registerFilesystem')
const registerBash = registrar('registerBashTool', bashOptions, 'registerBash')
const registerExec = registrar('registerExecTools', execOptions, 'registerExec')
const registerGitTools = registrar('registerGitTools', gitOptions, 'registerGit')

function registerBashTool(registry, options) {
  registerBash(registry, options)
  endAtExit()
}

function registerExecTools(registry, options) {
  registerExec(registry, options)
  endAtExit()
}

/** Replaces the one place that `oldStr` means; null when no tier finds exactly one. */
function fuzzyMatch(content, oldStr, newStr) {
  assertFits('fuzzyMatch', string, content, 'content')
  assertFits('fuzzyMatch', string, oldStr, 'oldStr')
  assertFits('fuzzyMatch', string, newStr, 'newStr')
  const { texts, back } = asUnicode([content, oldStr, newStr])
  const match = native.fuzzyMatch(...texts)
  return match && Object.freeze({ ...match, replaced: back(match.replaced) })
}

/** A half of a character whose other half is missing. */
const LONE = /\p{Surrogate}/gu
/** Characters that mean nothing by themselves. */
const PRIVATE = /\p{Private_Use}/gu

/** Texts as Rust takes them: for each lone half of a character one that no text has stands in, and `back` undoes that. */
function asUnicode(texts) {
  if (texts.every((each) => each.isWellFormed())) return { texts, back: (made) => made }
  const all = texts.join('\n')
  const used = new Set(all.match(PRIVATE))
  const inside = new Map()
  let next = 0xe000
  for (const half of new Set(all.match(LONE))) {
    // Behind the first range, which the texts may fill, there is one of 65,534.
    while (used.has(String.fromCodePoint(next))) next = next === 0xf8ff ? 0xf0000 : next + 1
    inside.set(half, String.fromCodePoint(next))
    next = next === 0xf8ff ? 0xf0000 : next + 1
  }
  const outside = new Map([...inside].map(([half, instead]) => [instead, half]))
  return {
    texts: texts.map((each) => each.replace(LONE, (half) => inside.get(half))),
    back: (made) => made.replace(PRIVATE, (instead) => outside.get(instead) ?? instead),
  }
}

module.exports = { registerFilesystemTools, registerBashTool, registerExecTools, registerGitTools, fuzzyMatch }
