/** Host tools, registered from Rust, and the edit chain by itself. */
'use strict'

const { native } = require('./bridge.cjs')
const { assertFits, boolean, integer, list, oneOf, optional, record, shape, string, text } = require('./check.cjs')
const { revive } = require('./errors.cjs')
const { toJson } = require('./json.cjs')
const { endAtExit } = require('./leftovers.cjs')
const { stateOf } = require('./registry.cjs')

const filesystemOptions = shape({
  workingDirectory: text,
  allowedPaths: optional(list(text)),
  staleCheck: optional(oneOf('strict', 'warn', 'off')),
})
const gitOptions = shape({
  workingDirectory: text,
  sandbox: optional(oneOf('read-only', 'workspace-write', 'off')),
  sandboxNetwork: optional(boolean),
})
const bashOptions = shape({
  workingDirectory: text,
  defaultTimeoutMs: optional(integer(1)),
  maxOutputBytes: optional(integer(1)),
  env: optional(record(string)),
  shell: optional(text),
  sandbox: optional(oneOf('read-only', 'workspace-write', 'off')),
  sandboxNetwork: optional(boolean),
})
const execOptions = shape({
  workingDirectory: text,
  maxOutputTokens: optional(integer(1)),
  env: optional(record(string)),
  shell: optional(text),
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
  const match = native.fuzzyMatch(content, oldStr, newStr)
  return match && Object.freeze(match)
}

module.exports = { registerFilesystemTools, registerBashTool, registerExecTools, registerGitTools, fuzzyMatch }
