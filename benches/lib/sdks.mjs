/**
 * The vendors' SDKs for Node, installed into a cache, once.
 */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

export const SDKS = { openai: '6.49.0', '@anthropic-ai/sdk': '1.13.0', '@google/genai': '2.32.0' }

function install(cache) {
  const wanted = Object.entries(SDKS)
  const is = ([name, version]) => {
    const file = join(cache, 'node_modules', name, 'package.json')
    return existsSync(file) && JSON.parse(readFileSync(file, 'utf8')).version === version
  }
  if (wanted.every(is)) return
  mkdirSync(cache, { recursive: true })
  const args = ['install', '--prefix', cache, '--no-save', '--no-audit', '--no-fund']
  execFileSync('npm', [...args, ...wanted.map(([name, version]) => `${name}@${version}`)], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
}

/** The modules of the SDKs, in their order. */
export function load(cache) {
  install(cache)
  const { resolve } = createRequire(join(cache, 'package.json'))
  return Promise.all(Object.keys(SDKS).map((name) => import(pathToFileURL(resolve(name)).href)))
}
