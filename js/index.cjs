/** The package for CommonJS. index.js gives the same functions, and the same state, to ES modules. */
'use strict'

const { createLoopBreaker } = require('./breaker.cjs')
const { createEventBus } = require('./bus.cjs')
const { createHookSystem } = require('./hooks.cjs')
const { createMCPClient } = require('./mcp-client.cjs')
const { createToolPermissionResolver } = require('./permissions.cjs')
const { createToolRegistry, registerMemoryTools } = require('./registry.cjs')
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
  createEventBus,
  createHookSystem,
  createLoopBreaker,
  createMCPClient,
  createSimseServer,
  createToolPermissionResolver,
  createToolRegistry,
  fromVercelModel,
  fuzzyMatch,
  registerBashTool,
  registerExecTools,
  registerFilesystemTools,
  registerGitTools,
  registerMemoryTools,
  ...interop,
}
