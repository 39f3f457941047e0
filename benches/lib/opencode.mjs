/**
 * `opencode serve` (npm `opencode-ai`) as the benchmarks see it, with everything off that would reach the network.
 *
 * It is installed into a cache directory outside the checkout, beside `@vscode/ripgrep`: its grep and glob need
 * `rg`, which it would otherwise download.
 */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import process from 'node:process'
import { call } from './process.mjs'

const VERSION = '1.18.33'
const RIPGREP = '1.18.0'

/** Installs it when it is not there. The path of its program, and of the folder that holds `rg`. */
export function installOpencode(cache) {
  const platform = `${process.platform}-${process.arch}`
  const program = join(cache, 'node_modules', `opencode-${platform}`, 'bin', 'opencode')
  const ripgrep = join(cache, 'node_modules', '@vscode', `ripgrep-${platform}`, 'bin')
  if (!existsSync(program) || !existsSync(ripgrep)) {
    mkdirSync(cache, { recursive: true })
    const packages = [`opencode-ai@${VERSION}`, `@vscode/ripgrep@${RIPGREP}`]
    const args = ['install', '--prefix', cache, '--no-save', '--ignore-scripts', '--no-audit', '--no-fund']
    execFileSync('npm', [...args, ...packages], { stdio: ['ignore', 'ignore', 'inherit'] })
  }
  if (!existsSync(program)) throw new Error(`npm installed no opencode for ${platform} into ${cache}`)
  return { program, ripgrep }
}

function configuration(model, snapshot) {
  return JSON.stringify({
    provider: {
      bench: {
        npm: '@ai-sdk/openai-compatible',
        name: 'bench',
        options: { baseURL: `http://${model}/v1`, apiKey: 'none' },
        models: { scripted: { name: 'scripted', tool_call: true, limit: { context: 1_000_000, output: 100_000 } } },
      },
    },
    model: 'bench/scripted',
    small_model: 'bench/scripted',
    share: 'disabled',
    autoupdate: false,
    permission: 'allow',
    snapshot,
  })
}

/** opencode; `snapshot: false` leaves out its copies of the work tree. */
export function opencode({ program, ripgrep }, { snapshot }) {
  return {
    name: 'opencode',
    version: VERSION,
    health: '/global/health',
    create: { path: '/session', body: '{}' },
    unjoined: 'bench-deltas',
    markers: {
      terminal: '"type":"session.idle"',
      failure: '"type":"session.error"',
      delta: '"type":"message.part.delta"',
      keep: '"state":{"status":"completed"',
    },

    command({ port, home, project, model }) {
      mkdirSync(home, { recursive: true })
      const config = join(home, 'opencode.json')
      writeFileSync(config, configuration(model, snapshot))
      return {
        program,
        args: ['serve', '--hostname', '127.0.0.1', '--port', String(port)],
        cwd: project,
        env: {
          PATH: ripgrep + delimiter + process.env.PATH,
          HOME: home,
          OPENCODE_CONFIG: config,
          OPENCODE_DISABLE_AUTOUPDATE: '1',
          OPENCODE_DISABLE_MODELS_FETCH: '1',
          OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
          OPENCODE_DISABLE_SHARE: '1',
          OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
        },
      }
    },

    async session(base) {
      const { json } = await call(base, 'POST', '/session', {})
      return { id: json.id, prompt: `/session/${json.id}/prompt_async` }
    },

    events: async () => '/event',

    body: (prompt) => JSON.stringify({ parts: [{ type: 'text', text: prompt }] }),

    /** The tools' own milliseconds in a turn; a part is reported more than once. */
    tools(kept) {
      const parts = new Map(kept.map((event) => [event.properties.part.id, event.properties.part.state.time]))
      return [...parts.values()].map((time) => time.end - time.start)
    },

    /** Whether nothing runs in a session. */
    async atRest(base, session) {
      const { json } = await call(base, 'GET', '/session/status')
      return (json[session.id]?.type ?? 'idle') === 'idle'
    },

    /** The list of sessions: it has no pages, only a number of how many. */
    page: () => '/session?limit=50',
    nextPage: () => undefined,

    /** Bytes of the messages with their parts in JSON. */
    async content(base, session) {
      const { text } = await call(base, 'GET', `/session/${session.id}/message`)
      return Buffer.byteLength(text)
    },

    data: (home) => join(home, '.local', 'share', 'opencode'),
    isDatabase: (name) => /^opencode.*\.db(-wal|-shm)?$/.test(name),
  }
}
