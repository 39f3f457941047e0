/**
 * The agents that are tried: what is installed, and how each is pointed at the scripted model. Each gets a home of its own.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const json = (file, value) => writeFileSync(file, JSON.stringify(value, undefined, 2))

/** A folder of the home, made. */
function folder(home, ...names) {
  const path = join(home, ...names)
  mkdirSync(path, { recursive: true })
  return path
}

export const agents = [
  {
    name: 'codex',
    packages: ['@agentclientprotocol/codex-acp@2.6.0'],
    bin: 'codex-acp',
    // In its usual mode a model of its own judges instead of the user.
    asks: { mode: 'read-only' },
    configure({ home, port }) {
      const codex = folder(home, '.codex')
      writeFileSync(
        join(codex, 'config.toml'),
        `model = "mock"\nmodel_provider = "mock"\ncheck_for_update_on_startup = false\n\n[model_providers.mock]\nname = "mock"\nbase_url = "http://127.0.0.1:${port}/v1"\nenv_key = "MOCK_KEY"\nwire_api = "responses"\n`,
      )
      return { CODEX_HOME: codex, MOCK_KEY: 'sk-mock', NO_BROWSER: '1' }
    },
  },
  {
    name: 'claude',
    packages: ['@agentclientprotocol/claude-agent-acp@0.100.0'],
    bin: 'claude-agent-acp',
    node: 22,
    configure: ({ port }) => ({
      IS_SANDBOX: '1',
      ANTHROPIC_API_KEY: 'sk-mock',
      ANTHROPIC_BASE_URL: `http://127.0.0.1:${port}`,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      DISABLE_TELEMETRY: '1',
      DISABLE_AUTOUPDATER: '1',
    }),
  },
  {
    name: 'pi',
    packages: ['pi-acp@0.0.34', '@earendil-works/pi-coding-agent@0.87.1'],
    bin: 'pi-acp',
    node: 22,
    configure({ home, port }) {
      const agent = folder(home, '.pi', 'agent')
      const model = { id: 'mock', name: 'mock', contextWindow: 128_000, maxTokens: 8_000 }
      json(join(agent, 'models.json'), {
        providers: {
          mock: {
            baseUrl: `http://127.0.0.1:${port}/v1`,
            api: 'openai-completions',
            apiKey: 'sk-mock',
            models: [model],
          },
        },
      })
      json(join(agent, 'settings.json'), { defaultProvider: 'mock', defaultModel: 'mock', quietStartup: true })
      return { PI_OFFLINE: '1' }
    },
    asksNobody: true,
    // It keeps the servers that it is told and starts none of them.
    connectsNoServers: true,
  },
  {
    name: 'gemini',
    // It tells no output of a command.
    hidesOutput: true,
    packages: ['@google/gemini-cli@0.61.0'],
    bin: 'gemini',
    args: ['--acp', '--model', 'gemini-2.5-flash'],
    configure({ home, port }) {
      json(join(folder(home, '.gemini'), 'settings.json'), {
        security: { auth: { selectedType: 'gemini-api-key' } },
        privacy: { usageStatisticsEnabled: false },
        telemetry: { enabled: false },
        general: { disableAutoUpdate: true },
      })
      return {
        GEMINI_API_KEY: 'mock',
        GOOGLE_GEMINI_BASE_URL: `http://127.0.0.1:${port}`,
        GEMINI_CLI_TRUST_WORKSPACE: 'true',
      }
    },
  },
  {
    name: 'opencode',
    packages: ['opencode-ai@1.18.33'],
    bin: 'opencode',
    args: ['acp'],
    configure({ home, port }) {
      const file = join(home, 'oc.json')
      json(file, {
        share: 'disabled',
        autoupdate: false,
        model: 'mock/mock',
        small_model: 'mock/mock',
        permission: { bash: 'ask', edit: 'ask' },
        provider: {
          mock: {
            npm: '@ai-sdk/openai-compatible',
            name: 'mock',
            options: { baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'sk-mock' },
            models: { mock: { name: 'mock', tool_call: true } },
          },
        },
      })
      return { OPENCODE_CONFIG: file, OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1' }
    },
  },
  {
    name: 'qwen',
    packages: ['@qwen-code/qwen-code@0.24.4'],
    bin: 'qwen',
    args: ['--acp', '--auth-type', 'openai'],
    node: 22,
    configure: ({ port }) => ({
      OPENAI_API_KEY: 'sk-mock',
      OPENAI_BASE_URL: `http://127.0.0.1:${port}/v1`,
      OPENAI_MODEL: 'mock-model',
    }),
  },
  {
    name: 'goose',
    packages: ['@aaif/goose-binary-linux-x64@0.20.2'],
    bin: 'goose',
    args: ['acp', '--with-builtin', 'developer'],
    configure: ({ port }) => ({
      GOOSE_PROVIDER: 'openai',
      GOOSE_MODEL: 'mock',
      GOOSE_MODE: 'approve',
      GOOSE_DISABLE_KEYRING: '1',
      GOOSE_TELEMETRY_ENABLED: 'false',
      OPENAI_API_KEY: 'sk-mock',
      OPENAI_HOST: `http://127.0.0.1:${port}`,
    }),
  },
  {
    name: 'kimi',
    packages: ['@moonshot-ai/kimi-code@2.1.0'],
    bin: 'kimi',
    args: ['acp'],
    node: 22,
    configure({ home, port }) {
      const file = join(folder(home, '.kimi-code'), 'config.toml')
      writeFileSync(
        file,
        `default_model = "mock"\ntelemetry = false\n\n[providers.mock]\ntype = "openai"\nbase_url = "http://127.0.0.1:${port}/v1"\napi_key = "sk-mock"\n\n[models.mock]\nprovider = "mock"\nmodel = "mock"\nmax_context_size = 128000\n`,
      )
      return {}
    },
  },
]
