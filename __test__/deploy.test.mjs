/** The container and the manifests: the same steps by hand where no engine runs, and descriptions that hold. */

import assert from 'node:assert/strict'
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { binary } from './support/served.mjs'

const top = fileURLToPath(new URL('..', import.meta.url))
const text = readFileSync(join(top, 'docs/deploy/Dockerfile'), 'utf8').replace(/\\\n/g, ' ')
const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))

/** The instructions of a stage, as [name, words]. */
function stage(name) {
  const begin = lines.findIndex((line) => new RegExp(`^FROM .* AS ${name}$`).test(line))
  const end = lines.findIndex((line, at) => at > begin && line.startsWith('FROM '))
  return lines.slice(begin + 1, end < 0 ? undefined : end).map((line) => /^(\w+) (.*)$/.exec(line).slice(1))
}
const words = (name, of) =>
  stage(of)
    .filter(([kind]) => kind === name)
    .map(([, rest]) => rest)

let place
before(() => {
  place = mkdtempSync(join(tmpdir(), 'simse-deploy-'))
})
after(() => rmSync(place, { recursive: true, force: true }))

test('what the build stage copies is there and not ignored, and cargo understands it', () => {
  const ignored = readFileSync(join(top, 'docs/deploy/Dockerfile.dockerignore'), 'utf8').trim().split('\n')
  assert.equal(ignored[0], '*')
  const copied = words('COPY', 'build').flatMap((rest) => rest.split(' ').slice(0, -1))
  assert.ok(copied.includes('src') && copied.includes('Cargo.lock'))
  for (const path of copied) {
    assert.ok(existsSync(join(top, path)), path)
    assert.ok(ignored.includes(`!${path}`), `${path} is not sent to the engine`)
    mkdirSync(dirname(join(place, 'build', path)), { recursive: true })
    cpSync(join(top, path), join(place, 'build', path), { recursive: true })
  }
  const asked = spawnSync('cargo', ['metadata', '--locked', '--offline', '--no-deps', '--format-version', '1'], {
    cwd: join(place, 'build'),
    encoding: 'utf8',
  })
  assert.equal(asked.status, 0, asked.stderr)
  const program = JSON.parse(asked.stdout).packages[0].targets.find(({ kind }) => kind.includes('bin'))
  assert.equal(program.name, 'simse')
})

test('both images run as nobody, with the same settings, which the program knows', () => {
  for (const name of ['bare', 'tools']) {
    assert.deepEqual(words('USER', name), ['65532:65532'])
    assert.deepEqual(words('ENTRYPOINT', name).map(JSON.parse), [['/usr/local/bin/simse']])
    assert.deepEqual(words('STOPSIGNAL', name), ['SIGTERM'])
  }
  assert.deepEqual(words('ENV', 'bare'), words('ENV', 'tools'))
  const known = JSON.parse(execFileSync(binary, ['config', 'schema'], { encoding: 'utf8' })).properties
  for (const [, setting] of words('ENV', 'bare')[0].matchAll(/SIMSE_(\w+)=/g))
    assert.ok(setting.toLowerCase() in known, setting)
})

const chroots = process.getuid?.() === 0 && existsSync('/usr/sbin/chroot')
const root = { skip: !chroots && 'only root may change the root directory' }

test('the bare image by hand: it needs no more than its base has, answers, and stops in order', root, async () => {
  const system = join(place, 'system')
  const put = (from, to = from) => {
    mkdirSync(dirname(join(system, to)), { recursive: true })
    cpSync(from, join(system, to), { dereference: true })
  }
  put(binary, '/usr/local/bin/simse')
  chmodSync(join(system, 'usr/local/bin/simse'), 0o755)
  const needed = execFileSync('ldd', [binary], { encoding: 'utf8' })
  const libraries = [...needed.matchAll(/(\/\S+) \(0x/g)].map(([, path]) => path)
  // What distroless' image for C has.
  const base = /^(libc\.so\.6|libgcc_s\.so\.1|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux[\w.-]*)$/
  for (const path of libraries) {
    assert.match(path.split('/').at(-1), base)
    put(path)
  }
  for (const [name, mode] of [
    ['data', 0o700],
    ['work', 0o755],
    ['tmp', 0o1777],
  ]) {
    mkdirSync(join(system, name))
    chownSync(join(system, name), 65_532, 65_532)
    chmodSync(join(system, name), mode)
  }
  chmodSync(place, 0o755)
  chmodSync(system, 0o755)
  const port = 25_000 + (process.pid % 5_000)
  const settings = words('ENV', 'bare')[0]
    .split(' ')
    .map((word) => word.replace('SIMSE_PORT=4100', `SIMSE_PORT=${port}`))
  const command = [...JSON.parse(words('ENTRYPOINT', 'bare')[0]), ...JSON.parse(words('CMD', 'bare')[0])]
  const child = spawn('/usr/sbin/chroot', ['--userspec=65532:65532', system, ...command], {
    env: Object.fromEntries(settings.map((word) => word.split('='))),
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let said = ''
  child.stderr.on('data', (words) => {
    said += words
  })
  const ended = once(child, 'exit')
  let health
  for (let at = 0; at < 200 && health === undefined && child.exitCode === null; at++) {
    await sleep(50)
    // As a kubelet asks, which knows it by its own address.
    health = await fetch(`http://127.0.0.1:${port}/health`, { headers: { host: '10.1.2.3:4100' } }).catch(
      () => undefined,
    )
  }
  assert.equal(health?.status, 200, said)
  assert.equal(statSync(join(system, 'data', 'token')).uid, 65_532)
  const [probe] = words('HEALTHCHECK', 'tools').map((rest) => JSON.parse(rest.slice(rest.indexOf('['))))
  const asks = () => spawnSync(probe[0], [probe[1], probe[2].replaceAll('4100', port)], { encoding: 'utf8' })
  assert.equal(asks().status, 0, asks().stderr)
  child.kill('SIGTERM')
  const [code] = await ended
  assert.equal(code, 0, said)
  assert.match(said, /"message":"stopped"/)
  assert.notEqual(asks().status, 0, 'who does not answer is not well')
})

const python = process.env.SIMSE_TEST_KUBERNETES
const kubernetes = { skip: python === undefined && 'there is no kubernetes-validate here' }

test("the manifests fit Kubernetes' own schemas, and the probes and volumes fit the container", kubernetes, () => {
  const file = join(top, 'docs/deploy/kubernetes.yaml')
  const script = `
import json, sys, yaml, kubernetes_validate
documents = list(yaml.safe_load_all(open(sys.argv[1])))
for document in documents:
    kubernetes_validate.validate(document, '1.30', strict=True)
print(json.dumps(documents))
`
  const checked = spawnSync(python, ['-c', script, file], { encoding: 'utf8' })
  assert.equal(checked.status, 0, checked.stderr)
  const [service, set] = JSON.parse(checked.stdout)
  const { containers, terminationGracePeriodSeconds, securityContext } = set.spec.template.spec
  assert.equal(service.spec.ports[0].port, 4100)
  assert.equal(set.spec.replicas, 1, 'a data directory has one owner')
  assert.equal(securityContext.runAsUser, 65_532)
  assert.ok(terminationGracePeriodSeconds > 10, 'longer than the default of --shutdown-grace-ms')
  const mounts = containers[0].volumeMounts.map(({ mountPath }) => mountPath)
  for (const volume of JSON.parse(words('VOLUME', 'tools')[0])) assert.ok(mounts.includes(volume), volume)
  const broken = spawnSync(python, ['-c', script, '/dev/stdin'], {
    encoding: 'utf8',
    input: readFileSync(file, 'utf8').replace('periodSeconds: 5', 'periodSecond: 5'),
  })
  assert.notEqual(broken.status, 0, 'what is wrong is found')
})
