/**
 * `npm run package`: the packages as they are published, in `dist/`: `simse` without native parts, and `simse-<platform>` with the
 * addon for one platform and what launches it as a program, which npm installs where it fits.
 *
 * `node scripts/package.mjs [--platform P --addon FILE --launcher FILE]… [--out DIR]`. Without a platform: this machine's, with what
 * `npm run build` has made. The packages of other platforms are named all the same: they are made on machines of their own, with the
 * same version (see .github/workflows/release.yml).
 */

import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { writeDeclarations } from './declarations.mjs'
import { missing, platform, run, say, top } from './tools.mjs'

const { PLATFORMS } = createRequire(import.meta.url)('../js/platform.cjs')
const own = JSON.parse(readFileSync(join(top, 'package.json'), 'utf8'))
const shared = { version: own.version, license: own.license, repository: own.repository, engines: own.engines }

const options = {
  platform: { type: 'string' },
  addon: { type: 'string' },
  launcher: { type: 'string' },
  out: { type: 'string', default: join(top, 'dist') },
  'main-only': { type: 'boolean', default: false },
}
const { values } = parseArgs({ options })
const target = values.platform ?? platform()
if (!PLATFORMS.includes(target)) missing(`no package is made for ${target}`, `There are: ${PLATFORMS.join(', ')}.`)
const out = resolve(values.out)

/** Writes a package's description as npm wants it. */
const describe = (folder, described) =>
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(described, null, 2)}\n`)

/** The main package: what is said in package.json, without what only a checkout needs. */
function stageMain(folder) {
  const { devDependencies: _, scripts: __, workspaces: ___, ...kept } = own
  writeDeclarations()
  const skipped = /\.node$|[/\\]bin$/
  for (const file of own.files)
    cpSync(join(top, file), join(folder, file), { recursive: true, filter: (from) => !skipped.test(from) })
  const optionalDependencies = Object.fromEntries(PLATFORMS.map((name) => [`simse-${name}`, own.version]))
  describe(folder, { ...kept, optionalDependencies })
}

/** The package of a platform: its addon, and what launches that as a program. */
function stagePlatform(folder) {
  const [os, cpu, libc] = target.split('-')
  const addon = values.addon ?? join(top, 'js', `simse.${target}.node`)
  const launcher = values.launcher ?? join(top, 'js', 'bin', 'simse')
  for (const file of [addon, launcher])
    if (!statSync(file, { throwIfNoEntry: false })) missing(`${file} is not there`, '`npm run build` makes it.')
  const main = `simse.${target}.node`
  mkdirSync(join(folder, 'bin'))
  copyFileSync(addon, join(folder, main))
  copyFileSync(launcher, join(folder, 'bin', 'simse'))
  chmodSync(join(folder, 'bin', 'simse'), 0o755)
  copyFileSync(join(top, 'LICENSE'), join(folder, 'LICENSE'))
  writeFileSync(join(folder, 'README.md'), `# simse-${target}\n\nThe native parts of simse for ${target}.\n`)
  const libcs = libc === undefined ? {} : { libc: [libc === 'gnu' ? 'glibc' : 'musl'] }
  const files = [main, 'bin/simse', 'LICENSE', 'README.md']
  describe(folder, {
    name: `simse-${target}`,
    description: `simse for ${target}`,
    ...shared,
    main,
    os: [os],
    cpu: [cpu],
    ...libcs,
    files,
  })
}

mkdirSync(out, { recursive: true })
for (const stage of values['main-only'] ? [stageMain] : [stageMain, stagePlatform]) {
  const folder = mkdtempSync(join(tmpdir(), 'simse-stage-'))
  stage(folder)
  const code = await run('npm', ['pack', folder, '--pack-destination', out, '--silent'])
  rmSync(folder, { recursive: true, force: true })
  if (code !== 0) process.exit(code)
}
say(`the packages are in ${out}`)
