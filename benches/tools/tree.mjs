/**
 * Trees of files made by rule: the same bytes on every machine, in every run.
 *
 * A tree looks like a large repository: nested folders, sources of some kilobytes in several languages, ignore files,
 * hidden files, a few binaries. One word, `needle_7f3a`, stands in three files; `fn ` in a fifth of all lines.
 */

import { existsSync, mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const WORDS = (
  'account buffer cache delta event filter gateway handle index journal kernel ledger matrix node object packet query ' +
  'record session token update value worker zone async await const error fields given inner limit model number option'
).split(' ')
const SUFFIXES = ['rs', 'rs', 'rs', 'rs', 'ts', 'ts', 'js', 'md', 'json', 'toml', 'txt', 'py']
const NEEDLES = [7, 1_003, 33_333]

/** Numbers from 0 to below 1, the same ones each time (mulberry32). */
function numbers(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}

function line(next) {
  const pick = () => WORDS[Math.floor(next() * WORDS.length)]
  const indent = '    '.repeat(Math.floor(next() * 3))
  if (next() < 0.2) return `${indent}pub fn ${pick()}_${pick()}(${pick()}: &str) -> ${pick()} {`
  const words = Array.from({ length: 3 + Math.floor(next() * 8) }, pick)
  return `${indent}${words.join(' ')};`
}

function content(next, file) {
  const lines = Array.from({ length: 5 + Math.floor(next() ** 3 * 300) }, () => line(next))
  if (NEEDLES.includes(file)) lines.splice(lines.length >> 1, 0, 'let needle_7f3a = 1;')
  return `${lines.join('\n')}\n`
}

/** Makes `count` files below `root`, when they are not there yet. Twenty files a folder, four levels of folders. */
export function makeTree(root, count) {
  const stamp = join(root, '.complete')
  if (existsSync(stamp)) return
  rmSync(root, { recursive: true, force: true })
  const next = numbers(count)
  // A repository, so that everybody's rules say that .gitignore counts.
  mkdirSync(join(root, '.git'), { recursive: true })
  writeFileSync(join(root, '.gitignore'), 'target/\n*.log\n/dist\nnode_modules/\n*.o\n.env\n!keep.log\n')
  let folder = root
  for (let file = 0; file < count; file++) {
    if (file % 20 === 0) {
      const at = file / 20
      folder = join(root, `part${at % 10}`, `area${((at / 10) % 10) | 0}`, `group${((at / 100) % 10) | 0}`, `unit${at}`)
      mkdirSync(folder, { recursive: true })
      if (at % 50 === 7) writeFileSync(join(folder, '.gitignore'), 'generated_*\n/local.txt\n')
    }
    const kind = SUFFIXES[Math.floor(next() * SUFFIXES.length)]
    const name = `${WORDS[file % WORDS.length]}_${file}.${file % 211 === 0 ? 'log' : kind}`
    const path = join(folder, name)
    writeFileSync(path, file % 997 === 0 ? Buffer.from([0x7f, 0x45, 0, file & 255, 10]) : content(next, file))
    const time = 1_700_000_000 + Math.floor(next() * 10_000_000)
    utimesSync(path, time, time)
  }
  writeFileSync(stamp, '')
}
