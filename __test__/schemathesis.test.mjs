/** The OpenAPI document held against a running server by schemathesis, which makes requests of it: good ones, bad ones, and chains. */

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { scriptedModel } from './support/model.mjs'
import { run } from './support/run.mjs'
import { servedAt } from './support/served.mjs'

/** How long it may go on; in CI longer. */
const seconds = process.env.SIMSE_TEST_SCHEMATHESIS_SECONDS ?? '40'
const support = fileURLToPath(new URL('./support', import.meta.url))

/** A Python that has the package, or why there is none. `.ci/run` installs one and names it. */
function python() {
  const named = process.env.SIMSE_TEST_SCHEMATHESIS
  const program = named || 'python3'
  const tried = spawnSync(program, ['-c', 'import schemathesis.cli'], { encoding: 'utf8' })
  if (tried.status === 0) return { program }
  const why = tried.error?.message ?? tried.stderr.trim().split('\n').at(-1)
  assert.ok(!named, `SIMSE_TEST_SCHEMATHESIS (${named}) cannot be used: ${why}`)
  const how =
    'python3 -m venv DIR && DIR/bin/pip install schemathesis==4.32.5, then SIMSE_TEST_SCHEMATHESIS=DIR/bin/python'
  return { lacking: `${program} has no package schemathesis (${why}); ${how}` }
}

test('schemathesis: all checks, on every route', { timeout: 240_000 }, async (t) => {
  const { program, lacking } = python()
  if (lacking) return t.skip(lacking)
  const home = mkdtempSync(join(tmpdir(), 'simse-schemathesis-'))
  const model = await scriptedModel(Array.from({ length: 100_000 }, () => ({ text: 'done' })))
  const server = await servedAt({ home, model, args: ['--commands-per-minute', '1000000'] })
  try {
    const token = server.headers.authorization
    const env = {
      ...process.env,
      SIMSE_URL: server.url,
      SIMSE_WORK: server.work,
      SIMSE_AUTHORIZATION: token,
      SCHEMATHESIS_HOOKS: 'schemathesis_hooks',
      PYTHONPATH: support,
      PYTHONDONTWRITEBYTECODE: '1',
    }
    const config = join(support, 'schemathesis.toml')
    const bounds = ['--checks', 'all', '--seed', '1', '--max-examples', '15', '--max-time', seconds, '--workers', '1']
    const how = ['--generation-database', 'none', '--continue-on-failure']
    const args = ['-m', 'schemathesis.cli', '--config-file', config, 'run', `${server.url}/openapi.json`]
    // In its own directory: it leaves a cache where it runs.
    const told = await run(program, [...args, '-H', `Authorization:${token}`, ...bounds, ...how], {
      env,
      cwd: home,
      limitMs: 200_000,
    })
    assert.equal(told.code, 0, told.said)
    const [, count] = /(\d+) generated/.exec(told.said) ?? []
    assert.ok(Number(count) > 300, `it made few requests: ${told.said}`)
  } finally {
    await server.kill()
    await model.close()
    rmSync(home, { recursive: true, force: true })
  }
})
