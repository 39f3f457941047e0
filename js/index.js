/** The package for ES modules: what index.cjs makes, by name. */

import simse from './index.cjs'

export const {
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
} = simse
