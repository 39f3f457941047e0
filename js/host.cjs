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
  const match = native.fuzzyMatch(content, oldStr, newStr)
  return match && Object.freeze(match)
}

module.exports = { registerFilesystemTools, registerBashTool, registerExecTools, registerGitTools, fuzzyMatch }
