/** The package for ES modules: what index.cjs makes, by name. */

import simse from './index.cjs'

export const {
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
  runAnthropicToolCalls,
  runMcpToolCall,
  runOpenAIResponsesToolCalls,
  runOpenAIToolCalls,
  toAnthropicTools,
  toMcpTools,
  toOpenAIResponsesTools,
  toOpenAITools,
  toVercelTools,
} = simse
