/** The package for ES modules: what index.cjs makes, by name. */

import simse from './index.cjs'

export const {
  createAgenticLoop,
  createContextPruner,
  createConversation,
  createEventBus,
  createHookSystem,
  createLoopBreaker,
  createMCPClient,
  createProviderPromptResolver,
  createSimseServer,
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
