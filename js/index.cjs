/** The package for CommonJS. index.js gives the same functions, and the same state, to ES modules. */
'use strict'

const { createACPClient } = require('./acp-client.cjs')
const { createLoopBreaker } = require('./breaker.cjs')
const { createEventBus } = require('./bus.cjs')
const { countTokens, createContextPruner, createConversation } = require('./conversation.cjs')
const { createHookSystem } = require('./hooks.cjs')
const { createAgenticLoop } = require('./loop.cjs')
const { createMCPClient } = require('./mcp-client.cjs')
const { createLocalEmbedder, createMemoryManager } = require('./memory.cjs')
const { createToolPermissionResolver } = require('./permissions.cjs')
const { createProviderPromptResolver, discoverInstructions } = require('./prompts.cjs')
const { createToolRegistry, registerMemoryTools, registerTaskTools } = require('./registry.cjs')
const { createTaskList } = require('./tasks.cjs')
const {
  fuzzyMatch,
  registerBashTool,
  registerExecTools,
  registerFilesystemTools,
  registerGitTools,
} = require('./host.cjs')
const interop = require('./interop.cjs')
const { createSimseServer } = require('./server.cjs')
const { fromVercelModel } = require('./vercel-model.cjs')

module.exports = {
  countTokens,
  createACPClient,
  createAgenticLoop,
  createContextPruner,
  createConversation,
  createEventBus,
  createHookSystem,
  createLoopBreaker,
  createMCPClient,
  createLocalEmbedder,
  createMemoryManager,
  createProviderPromptResolver,
  createSimseServer,
  createTaskList,
  createToolPermissionResolver,
  createToolRegistry,
  discoverInstructions,
  fromVercelModel,
  fuzzyMatch,
  registerBashTool,
  registerExecTools,
  registerFilesystemTools,
  registerGitTools,
  registerMemoryTools,
  registerTaskTools,
  ...interop,
}
