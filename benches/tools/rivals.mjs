/**
 * What the search tools are measured against: ripgrep started as a program, and three npm packages that glob.
 */

import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const PACKAGES = { 'fast-glob': '3.3.3', tinyglobby: '0.2.17', globby: '16.2.4' }

/** `ripgrep 13.0.0`, or nothing when there is none. */
export function ripgrepVersion() {
  try {
    return execFileSync('rg', ['--version'], { encoding: 'utf8' }).split('\n')[0]
  } catch {
    return undefined
  }
}

/**
 * Runs rg in `cwd` to its end: what it printed, as text. With `lines` it is ended once it has printed as many.
 *
 * @param {string} cwd
 * @param {string[]} args
 * @param {number} [lines]
 */
export function ripgrep(cwd, args, lines = Number.POSITIVE_INFINITY) {
  return new Promise((resolve, reject) => {
    const child = spawn('rg', ['--no-config', ...args], { cwd, stdio: ['ignore', 'pipe', 'ignore'] })
    const parts = []
    let seen = 0
    child.stdout.on('data', (part) => {
      parts.push(part)
      if (lines === Number.POSITIVE_INFINITY) return
      for (const byte of part) if (byte === 10) seen++
      if (seen >= lines) child.kill('SIGKILL')
    })
    child.on('error', reject)
    child.on('close', () => resolve(Buffer.concat(parts).toString()))
  })
}

/**
 * Installs the npm packages into `cache` when they are not there, and gives functions of pattern and folder: `paths`
 * names what fits, in no order; `newest` the newest 1,000 of it.
 */
export async function globbers(cache) {
  const wanted = Object.entries(PACKAGES)
  if (!wanted.every(([name]) => existsSync(join(cache, 'node_modules', name)))) {
    mkdirSync(cache, { recursive: true })
    const args = ['install', '--prefix', cache, '--no-save', '--ignore-scripts', '--no-audit', '--no-fund']
    const packages = wanted.map(([name, version]) => `${name}@${version}`)
    execFileSync('npm', [...args, ...packages], { stdio: ['ignore', 'ignore', 'inherit'] })
  }
  const load = (name, file) => import(pathToFileURL(join(cache, 'node_modules', name, file)).href)
  const fastGlob = (await load('fast-glob', 'out/index.js')).default
  const { glob } = await load('tinyglobby', 'dist/index.mjs')
  const { globby } = await load('globby', 'index.js')
  const newest = (found) => found.sort((a, b) => b.stats.mtimeMs - a.stats.mtimeMs).slice(0, 1000)
  const timed = async (cwd, paths) => {
    const found = []
    for (let at = 0; at < paths.length; at += 64) {
      const some = paths.slice(at, at + 64).map(async (path) => ({ path, stats: await stat(join(cwd, path)) }))
      found.push(...(await Promise.all(some)))
    }
    return found
  }
  const named = (name) => `${name} ${PACKAGES[name]}`
  return {
    paths: {
      [named('fast-glob')]: (pattern, cwd) => fastGlob(pattern, { cwd }),
      [named('tinyglobby')]: (pattern, cwd) => glob(pattern, { cwd, expandDirectories: false }),
      [named('globby')]: (pattern, cwd) => globby(pattern, { cwd, expandDirectories: false }),
    },
    // What fs_glob gives: the newest 1,000, which needs every file's time.
    newest: {
      [named('fast-glob')]: async (pattern, cwd) => newest(await fastGlob(pattern, { cwd, stats: true })),
      [named('tinyglobby')]: async (pattern, cwd) =>
        newest(await timed(cwd, await glob(pattern, { cwd, expandDirectories: false }))),
      [named('globby')]: async (pattern, cwd) =>
        newest(await globby(pattern, { cwd, expandDirectories: false, stats: true })),
    },
  }
}
