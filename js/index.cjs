/** The package for CommonJS. index.js gives the same functions, and the same state, to ES modules. */
'use strict'

const { createEventBus } = require('./bus.cjs')
const { createHookSystem } = require('./hooks.cjs')
const { createMCPClient } = require('./mcp-client.cjs')
const { createToolPermissionResolver } = require('./permissions.cjs')
const { createToolRegistry, registerMemoryTools } = require('./registry.cjs')
const { fuzzyMatch, registerBashTool, registerFilesystemTools, registerGitTools } = require('./host.cjs')
const { createSimseServer } = require('./server.cjs')

module.exports = {
  createEventBus,
  createHookSystem,
  createMCPClient,
  createSimseServer,
  createToolPermissionResolver,
  createToolRegistry,
  fuzzyMatch,
  registerBashTool,
  registerFilesystemTools,
  registerGitTools,
  registerMemoryTools,
}
