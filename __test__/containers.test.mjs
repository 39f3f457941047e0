/**
 * The images and Docker Compose, by a real engine: podman, with docs/deploy as it is. `SIMSE_TEST_CONTAINERS` names podman-compose.
 * Images from elsewhere are made here of Debian's packages, and in the place of an hour's compilation stands the program that is
 * tested: `cargo` in the image of Rust hands it over.
 */

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { http } from './support/http.mjs'
import { run } from './support/run.mjs'
import { binary } from './support/served.mjs'

const top = fileURLToPath(new URL('..', import.meta.url))
const deploy = join(top, 'docs/deploy')
const compose = process.env.SIMSE_TEST_CONTAINERS
const place = mkdtempSync(join(tmpdir(), 'simse-containers-'))
const LIBRARIES = ['libc.so.6', 'libm.so.6', 'libgcc_s.so.1', 'libdl.so.2', 'libpthread.so.0']
// What a container may have of this machine's limits, which not every engine's default keeps to.
const LIMITS = ['nofile=4096:4096', 'nproc=4000:4000']
const env = {
  ...process.env,
  CONTAINERS_CONF: join(place, 'containers.conf'),
  CONTAINERS_STORAGE_CONF: join(place, 'storage.conf'),
  // OCI's format has no health check.
  BUILDAH_FORMAT: 'docker',
}
const FLAGS = [...LIMITS.flatMap((limit) => ['--ulimit', limit]), '--network', 'host']

/** Runs a program of the engine; what fails is told whole. */
async function engine(program, args, { limitMs = 300_000 } = {}) {
  const { code, said } = await run(program, args, { cwd: place, env, limitMs })
  assert.equal(code, 0, `${program} ${args.join(' ')}\n${said}`)
  return said
}
const podman = (...args) => engine('podman', args)

/** Makes an image of these lines and files. */
async function image(name, lines, files = {}) {
  const folder = join(place, name.replaceAll(/\W/g, '-'))
  mkdirSync(folder)
  for (const [path, write] of Object.entries(files)) write(join(folder, path))
  writeFileSync(join(folder, 'Dockerfile'), `${lines.join('\n')}\n`)
  await podman('build', '-q', ...FLAGS, '-t', name, folder)
}

/** Why no container runs here, or nothing: one is tried. */
function fault() {
  if (!compose) return 'SIMSE_TEST_CONTAINERS names no podman-compose'
  if (process.getuid?.() !== 0) return 'debootstrap wants root'
  writeFileSync(
    env.CONTAINERS_CONF,
    `[containers]\ndefault_ulimits = ${JSON.stringify(LIMITS)}\n[engine]\nruntime = "runc"\n`,
  )
  const [graph, runs] = ['graph', 'run'].map((name) => JSON.stringify(join(place, name)))
  writeFileSync(env.CONTAINERS_STORAGE_CONF, `[storage]\ndriver = "overlay"\ngraphroot = ${graph}\nrunroot = ${runs}\n`)
  const base = spawnSync('debootstrap', ['--variant=minbase', 'bookworm', join(place, 'base')], { encoding: 'utf8' })
  if (base.status !== 0) return `debootstrap: ${base.error?.message ?? base.stdout.slice(-300)}`
  const packed = spawnSync(
    'sh',
    ['-c', 'tar -C base -c . | podman import -q - docker.io/library/debian:bookworm-slim'],
    { cwd: place, env },
  )
  if (packed.status !== 0) return `podman: ${packed.stderr}`
  const tried = spawnSync('podman', ['run', '--rm', 'debian:bookworm-slim', 'true'], { env, encoding: 'utf8' })
  return tried.status === 0 ? undefined : `podman runs nothing: ${tried.stderr.trim()}`
}
const why = fault()
const only = { skip: why }
if (compose && why !== undefined) process.stderr.write(`no containers: ${why}\n`)

before(async () => {
  if (why !== undefined) return
  await image(
    'docker.io/library/rust:1.95-bookworm',
    ['FROM debian:bookworm-slim', 'COPY simse /prebuilt/simse', 'COPY cargo /usr/local/bin/cargo'],
    {
      // Without what is only for whoever looks for faults it is smaller by half.
      simse: (to) => assert.equal(spawnSync('strip', ['-o', to, binary]).status, 0),
      cargo: (to) => {
        writeFileSync(to, '#!/bin/sh\nmkdir -p target/release && cp /prebuilt/simse target/release/simse\n')
        chmodSync(to, 0o755)
      },
    },
  )
  const copied = LIBRARIES.map((name) => `COPY --from=debian /lib/x86_64-linux-gnu/${name} /lib/x86_64-linux-gnu/`)
  await image('gcr.io/distroless/cc-debian12:nonroot', [
    'FROM debian:bookworm-slim AS debian',
    'FROM scratch',
    ...copied,
    'COPY --from=debian /lib64/ld-linux-x86-64.so.2 /lib64/',
    'USER 65532:65532',
  ])
})
after(async () => {
  if (why === undefined) await run('podman', ['system', 'reset', '--force'], { env })
  rmSync(place, { recursive: true, force: true })
})

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1')
  await new Promise((listens) => probe.once('listening', listens))
  const { port } = probe.address()
  await new Promise((closed) => probe.close(closed))
  return port
}

/** Waits until a server answers. */
async function healthy(url) {
  for (let tries = 0; ; tries += 1) {
    try {
      const answer = await fetch(`${url}/health`)
      if (answer.status === 200) return
    } catch (cause) {
      if (tries > 150) throw cause
    }
    await sleep(200)
  }
}

const steps = process.arch === 'x64' ? only : { skip: 'the libraries of the small image are those of x64' }

test('the image without tools has the program alone, answers, and stops in order', steps, async () => {
  const port = await freePort()
  await podman('build', '-q', ...FLAGS, '-f', join(deploy, 'Dockerfile'), '--target', 'bare', '-t', 'simse-bare', top)
  const flags = ['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges', '--tmpfs', '/tmp']
  await podman('run', '-d', '--name', 'bare', ...flags, '-p', `127.0.0.1:${port}:4100`, 'simse-bare')
  await healthy(`http://127.0.0.1:${port}`)
  const shell = await run('podman', ['exec', 'bare', 'sh', '-c', 'true'], { env })
  assert.notEqual(shell.code, 0, 'there is nothing else in it')
  await podman('stop', '-t', '30', 'bare')
  assert.equal((await podman('inspect', 'bare', '--format', '{{.State.ExitCode}}')).trim(), '0')
})

test(
  'Docker Compose: a session runs a command, nothing else can be written, and a restart loses nothing',
  steps,
  async () => {
    const port = await freePort()
    const file = join(place, 'compose.yaml')
    const text = readFileSync(join(deploy, 'compose.yaml'), 'utf8')
    const here = text.replace('context: ../..', `context: ${top}`).replace('127.0.0.1:4100:', `127.0.0.1:${port}:`)
    assert.ok(here.includes(top) && here.includes(String(port)))
    writeFileSync(file, here)
    const up = (...args) =>
      engine(compose, ['-p', 'simse', '-f', file, `--podman-build-args=${FLAGS.join(' ')}`, ...args])
    await up('up', '-d', '--build')
    const url = `http://127.0.0.1:${port}`
    await healthy(url)
    const inside = async (script) => (await podman('exec', 'simse_simse_1', 'sh', '-c', script)).trim()
    const headers = { authorization: `Bearer ${await inside('cat /data/token')}` }
    const call = (method, path, body) => http({ url }, method, path, body, headers)
    const made = await call('POST', '/sessions', { sessionId: 'kept', permissionMode: 'auto' })
    assert.equal(made.status, 201, JSON.stringify(made.body))
    const turn = await call('POST', '/sessions/kept/prompt?wait=true', { prompt: 'what is here?' })
    assert.equal(turn.body.status, 'completed', JSON.stringify(turn.body))
    assert.equal(await inside('id -u'), '65532')
    assert.match(await inside('cat /proc/1/status'), /CapEff:\s0+\n[\s\S]*NoNewPrivs:\s1/)
    assert.match(await inside('touch /etc/x 2>&1; true'), /Read-only file system/)
    assert.match(await inside('git --version'), /^git version/)
    await podman('healthcheck', 'run', 'simse_simse_1')
    await up('stop')
    assert.equal((await podman('inspect', 'simse_simse_1', '--format', '{{.State.ExitCode}}')).trim(), '0')
    await up('start')
    await healthy(url)
    assert.equal((await call('GET', '/sessions/kept')).body.lastSeq, turn.body.lastSeq)
    await up('down', '-v')
  },
)
