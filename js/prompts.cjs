/** Prompts by model, and instruction files: both as the server finds them. */
'use strict'

const { resolve } = require('node:path')
const { native } = require('./bridge.cjs')
const { assertFits, boolean, list, optional, path, record, shape, string, text } = require('./check.cjs')
const { revive } = require('./errors.cjs')
const { toJson } = require('./json.cjs')

const PATTERNS = Object.freeze(['CLAUDE.md', 'AGENTS.md', '.simse/instructions.md'])
const promptsShape = shape({ prompts: optional(record(string)), defaultPrompt: optional(string) })
const discoveryShape = shape({ patterns: optional(list(text)), rootDir: path, autoInject: optional(boolean) })

/** Creates a resolver of prompts by model. */
function createProviderPromptResolver(config) {
  assertFits('createProviderPromptResolver', promptsShape, config, 'config')
  const { prompts = {}, defaultPrompt } = config
  const given = toJson({ prompts: Object.entries(prompts), defaultPrompt })
  return Object.freeze({
    resolve(modelId) {
      assertFits('resolve', string, modelId, 'modelId')
      try {
        return native.providerPromptFor(given, modelId) ?? ''
      } catch (cause) {
        throw revive(cause)
      }
    },
  })
}

/** Finds the instruction files of a directory. */
async function discoverInstructions(options) {
  assertFits('discoverInstructions', discoveryShape, options, 'options')
  const { patterns = PATTERNS, rootDir } = options
  try {
    const found = JSON.parse(await native.discoverIn(resolve(rootDir), [...patterns]))
    return Object.freeze(found.map((file) => Object.freeze(file)))
  } catch (cause) {
    throw revive(cause)
  }
}

module.exports = { createProviderPromptResolver, discoverInstructions }
