/**
 * What npm runs before it packs: the types for `require`, which are those for `import` under the name that TypeScript looks for
 * beside a CommonJS module. They are made of one file each, and not kept.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { top } from './tools.mjs'

/** The declarations that there are, without their ending. */
const DECLARED = ['index', 'client']

/** Writes them beside the others, or into a folder. */
export function writeDeclarations(folder = top) {
  for (const name of DECLARED) {
    const text = readFileSync(join(top, `${name}.d.ts`), 'utf8')
    writeFileSync(join(folder, `${name}.d.cts`), text.replace(/'\.\/client\.js'/g, "'./client.cjs'"))
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeDeclarations()
