/**
 * `npm run build`: the native parts as they are published: the addon (js/simse.<platform>.node), which has the whole server as well,
 * and the launcher that runs it as a program (js/bin/simse, for `npx simse`); and what is made of the OpenAPI document: the client
 * (scripts/client.mjs).
 *
 * `npm run build -- --standalone`: the program in one file that needs neither (target/release/simse), for servers.
 */

import { mkdirSync, renameSync, statSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { writeClient } from './client.mjs'
import { cargoBuild, needNode, needRust, placeAddon, run, say, top } from './tools.mjs'

const { values } = parseArgs({ options: { standalone: { type: 'boolean', default: false } } })
needNode()
needRust()
say('a release build. The first one takes several minutes.')

/** Puts what was made where it belongs and says so, or ends where nothing was. */
function made(code, built, put = (file) => file) {
  if (code !== 0 || !built) {
    say('the build failed: see the messages above')
    process.exit(code || 1)
  }
  const file = put(built)
  say(`${file} (${(statSync(file).size / 1e6).toFixed(1)} MB)`)
}

if (values.standalone) {
  const { code, binary } = await cargoBuild(['--release', '--bin', 'simse'])
  made(code, binary)
} else {
  writeClient()
  // A library of the crate is both, for Rust and for Node, and only one kind alone can be optimised as a whole.
  const addon = ['--profile', 'published', '--lib', '--crate-type', 'cdylib', '--features', 'node']
  const { code, library } = await cargoBuild(addon, 'rustc')
  made(code, library, placeAddon)
  const launcher = join(top, 'js', 'bin', 'simse')
  mkdirSync(join(top, 'js', 'bin'), { recursive: true })
  const flags = (process.env.RUSTFLAGS ?? '').split(' ').filter(Boolean)
  const options = ['--edition', '2024', '-O', '-C', 'panic=abort', '-C', 'strip=symbols', ...flags]
  const compiled = join(top, 'js', 'bin', 'launcher')
  made(await run('rustc', [...options, '-o', compiled, join(top, 'src', 'launcher.rs')]), compiled, () => {
    renameSync(compiled, launcher)
    return launcher
  })
}
