/** A real PostgreSQL for a benchmark, in a directory that is gone at its end: see tests/postgres.sh. */

import { execFileSync, spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { top } from './clients.mjs'
import { freePort } from './process.mjs'

/** Starts the newest one that is installed, in that directory. */
export async function startPostgres(home) {
  const programs = readdirSync('/usr/lib/postgresql').sort((one, other) => Number(one) - Number(other))
  const bin = `/usr/lib/postgresql/${programs.at(-1)}/bin`
  const port = await freePort()
  const child = spawn('sh', [join(top, 'tests/postgres.sh'), bin, home, String(port)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  await new Promise((is) => child.stdout.once('data', is))
  return {
    bin,
    port,
    version: execFileSync(join(bin, 'postgres'), ['--version']).toString().trim(),
    /** Ends it, and takes its directory away. */
    async stop() {
      child.stdin.end()
      await new Promise((ended) => child.once('exit', ended))
    },
  }
}
