/**
 * Our server as the benchmarks see it: how it is started, what its routes and events are called.
 */

import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { call } from './process.mjs'

const ALLOW = { defaultPolicy: 'allow', rules: [] }

/** Our server. `program` is the release binary; without `record` it does not record what turns do to files. */
export function simse(program, { record = true } = {}) {
  return {
    name: record ? 'simse' : 'simse-bare',
    health: '/health',
    create: { path: '/sessions', body: '{}' },
    // A flood in which each piece is an event of its own: what stands together would become one.
    unjoined: 'bench-mixed',
    markers: {
      terminal: '"type":"session.completed"',
      failure: '"type":"session.error"',
      delta: '"type":"stream.delta"',
      keep: '"type":"tool.call.end"',
    },

    command({ port, home, project, model }) {
      mkdirSync(home, { recursive: true })
      const args = [
        'serve',
        '--port',
        port,
        '--cwd',
        project,
        '--data-dir',
        join(home, 'data'),
        '--no-auth',
        '--commands-per-minute',
        '0',
        // Prompts are accepted faster than turns end.
        '--queued-prompts-max',
        '1000',
      ]
      if (!record) args.push('--snapshot-bytes-max', 0)
      return {
        program,
        args: [...args.map(String), '--openai-base-url', `http://${model}/v1`, '--model', 'openai/scripted'],
        cwd: project,
        env: { PATH: process.env.PATH, HOME: home },
      }
    },

    async session(base, project) {
      const body = { workingDirectory: project, toolPermissions: ALLOW }
      const { json } = await call(base, 'POST', '/sessions', body)
      return { id: json.sessionId, prompt: `/sessions/${json.sessionId}/prompt` }
    },

    /** The stream of what comes from now on; without a number it would begin with the first event. */
    async events(base, session) {
      const { json } = await call(base, 'GET', `/sessions/${session.id}`)
      return `/sessions/${session.id}/events?after=${json.lastSeq}`
    },

    body: (prompt) => JSON.stringify({ prompt }),

    /** The tools' own milliseconds in a turn. */
    tools(kept) {
      const failed = kept.find((event) => event.payload.isError)
      if (failed) throw new Error(`a tool failed: ${JSON.stringify(failed.payload).slice(0, 300)}`)
      return kept.map((event) => event.payload.durationMs)
    },

    /** Forks a session, at its end unless given an event. */
    async fork(base, session, at) {
      const { json } = await call(base, 'POST', `/sessions/${session.id}/fork`, at === undefined ? {} : { at })
      if (json.sessionId === undefined) throw new Error(`no fork: ${JSON.stringify(json)}`)
    },

    /** The number of a session's last event. */
    last: async (base, session) => (await call(base, 'GET', `/sessions/${session.id}`)).json.lastSeq,

    /** Whether nothing runs or waits in a session. */
    async atRest(base, session) {
      const { json } = await call(base, 'GET', `/sessions/${session.id}`)
      return json.turn === undefined && json.queued === 0
    },

    /** A page of the list of sessions, and the cursor of the one behind it. */
    page: (cursor) => `/sessions?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''}`,
    nextPage: (json) => json.nextCursor,

    /** Bytes of the history's items in JSON. */
    async content(base, session) {
      let bytes = 0
      let cursor = ''
      do {
        const query = `limit=200${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`
        const { json } = await call(base, 'GET', `/sessions/${session.id}/history?${query}`)
        for (const item of json.items) bytes += Buffer.byteLength(JSON.stringify(item))
        cursor = json.nextCursor ?? ''
      } while (cursor !== '')
      return bytes
    },

    /** Where its database is. */
    data: (home) => join(home, 'data'),
    isDatabase: (name) => /\.(db|sqlite3?)(-wal|-shm)?$/.test(name),
    absent: existsSync(program) ? undefined : `${program} is missing: run \`npm run build\``,
  }
}
