/**
 * `npm run build`: the release addon (js/simse.<platform>.node), the release binary (js/bin/simse), and what is made of the OpenAPI
 * document: the client (scripts/client.mjs).
 *
 * The binary is built without the feature `node`: it is smaller by the addon's constructors, and needs no
 * Node. `npx simse` runs it.
 */

import { mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { writeClient } from './client.mjs'
import { cargoBuild, needNode, needRust, place, placeAddon, say, top } from './tools.mjs'

needNode()
needRust()
writeClient()
say('building the release addon and the release binary. The first build takes several minutes.')
mkdirSync(join(top, 'js', 'bin'), { recursive: true })
for (const part of [
  { args: ['--lib', '--features', 'node'], file: 'library', put: placeAddon },
  { args: ['--bin', 'simse'], file: 'binary', put: (from) => place(from, join(top, 'js', 'bin', 'simse')) },
]) {
  const built = await cargoBuild(['--release', ...part.args])
  if (built.code !== 0 || !built[part.file]) {
    say('the build failed: see the messages above')
    process.exit(built.code || 1)
  }
  const to = part.put(built[part.file])
  say(`${to} (${(statSync(to).size / 1e6).toFixed(1)} MB)`)
}
