/**
 * `fs_edit` beside reading and writing the file in Node, and the block-anchor tier beside the same rule in plain JavaScript.
 *
 *   node benches/tools/edit.mjs [--markdown FILE]
 *
 * Contestants take turns, round by round. docs/benchmarks.md says what each row means.
 */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { open, readFile, rename, writeFile } from 'node:fs/promises'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { fuzzyMatch, registerFilesystemTools } from 'simse'
import { caller, machine, race, table } from '../lib/race.mjs'

const LINES = 20_000
// biome-ignore format: one list
const WORDS = [
  'let', 'total', '=', 'value', '+', 'count', 'if', 'index', 'return', 'self', 'name', 'match', 'result', 'for', 'item',
  'in', 'list', '.push(', ')', '{', '}', '&mut', 'Some(', 'None',
]

/** Whole numbers below `n`, the same ones each time, here and in benches/edit.rs. */
function dice(seed) {
  let state = (Math.imul(seed, 2_654_435_761) + 1) >>> 0
  return (n) => {
    state = (state ^ (state << 13)) >>> 0
    state = (state ^ (state >>> 17)) >>> 0
    state = (state ^ (state << 5)) >>> 0
    return state % n
  }
}

/** 20,000 lines of code-like blocks, all of which begin and end alike. */
function blocks(height, seed) {
  const roll = dice(seed)
  const line = () => `    ${Array.from({ length: 4 + roll(6) }, () => WORDS[roll(24)]).join(' ')};`
  const block = () => ["it('works', () => {", ...Array.from({ length: height - 2 }, line), '})']
  return Array.from({ length: LINES / height }, block)
}

const text = (some) => some.map((block) => `${block.join('\n')}\n`).join('')

/** The distance by the plain rule: two rows, every cell. */
function levenshtein(a, b) {
  let [above, row] = [Uint32Array.from({ length: b.length + 1 }, (_, at) => at), new Uint32Array(b.length + 1)]
  for (let i = 0; i < a.length; i++) {
    row[0] = i + 1
    const c = a.charCodeAt(i)
    for (let j = 0; j < b.length; j++) {
      const swap = above[j] + (c === b.charCodeAt(j) ? 0 : 1)
      row[j + 1] = Math.min(swap, above[j + 1] + 1, row[j] + 1)
    }
    ;[above, row] = [row, above]
  }
  return above[b.length]
}

/** The block-anchor rule, written plainly: the line where the one near block begins, or -1. */
function plainBlockAnchor(content, old) {
  const lines = content.split('\n').map((line) => line.trim())
  const wanted = old
    .trim()
    .split('\n')
    .map((line) => line.trim())
  const middle = wanted.slice(1, -1).join('\n')
  let [best, second, found] = [1, 1, -1]
  for (let start = 0; start < lines.length; start++) {
    if (lines[start] !== wanted[0]) continue
    for (let end = start + 1; end < lines.length; end++) {
      if (lines[end] !== wanted.at(-1)) continue
      const between = lines.slice(start + 1, end).join('\n')
      const longer = Math.max(between.length, middle.length)
      if (between.length - middle.length > 0.4 * longer) break
      if (middle.length - between.length > 0.4 * longer) continue
      const ratio = longer === 0 ? 0 : levenshtein(between, middle) / longer
      if (ratio < best) [best, second, found] = [ratio, best, start]
      else if (ratio < second) second = ratio
    }
  }
  return best <= 0.3 && second - best >= 0.1 ? found : -1
}

/** A file of a megabyte and more, edited at one place in its middle, there and back. */
async function exact(folder, rounds) {
  const path = join(folder, 'file.rs')
  const half = text(blocks(20, 7))
  const words = ['the_first_word', 'the_other_word']
  const content = `${half}let x = ${words[0]};\n${half.slice(0, 400_000)}`
  await writeFile(path, content)
  const tool = caller((registry) => registerFilesystemTools(registry, { workingDirectory: folder }))
  let now = 0
  const next = () => {
    now = 1 - now
    return [words[1 - now], words[now]]
  }
  const inNode = async (write) => {
    const [from, to] = next()
    const before = await readFile(path, 'utf8')
    if (!before.includes(from)) throw new Error(`${from} is not there`)
    await write(before.replace(from, to))
  }
  const times = await race(rounds, {
    simse: () => {
      const [from, to] = next()
      return tool('fs_edit', { path: 'file.rs', old_string: from, new_string: to })
    },
    'read and write in Node': () => inNode((after) => writeFile(path, after)),
    'the same, but whole or not at all, and on the disk': () =>
      inNode(async (after) => {
        const file = await open(`${path}.tmp`, 'w')
        await file.writeFile(after)
        await file.sync()
        await file.close()
        await rename(`${path}.tmp`, path)
        const directory = await open(folder, 'r')
        await directory.sync()
        await directory.close()
      }),
  })
  return { times, bytes: content.length }
}

/** A block that is nowhere near, or near one of them. */
async function anchors(height, near, rounds) {
  const all = blocks(height, 7)
  const content = text(all)
  const place = Math.floor((all.length * 3) / 4)
  const block = near ? [...all[place]] : blocks(height, 99)[0]
  if (near) {
    block[1] += 'x'
    block[height >> 1] = block[height >> 1].replaceAll('e', 'E')
  }
  const old = text([block])
  const want = near ? place * height : -1
  const ours = fuzzyMatch(content, old, 'new')
  if ((ours === null) === near) throw new Error(`a block of ${height} lines: ${JSON.stringify(ours?.strategy)}`)
  return race(rounds, {
    simse: () => fuzzyMatch(content, old, 'new'),
    'plain JavaScript': () => {
      if (plainBlockAnchor(content, old) !== want) throw new Error('the plain rule finds another place')
    },
  })
}

async function main() {
  const { values } = parseArgs({ options: { markdown: { type: 'string' } } })
  const load = loadavg()[0]
  const rows = []
  const folders = [['on the disk', tmpdir()], ...(existsSync('/dev/shm') ? [['in memory', '/dev/shm']] : [])]
  for (const [where, parent] of folders) {
    const folder = mkdtempSync(join(parent, 'simse-bench-edit-'))
    try {
      const { times, bytes } = await exact(folder, 41)
      rows.push([`\`fs_edit\`, an exact place in ${(bytes / 1e6).toFixed(1)} MB ${where}`, '≤ 2×', times])
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  }
  for (const [height, near, rounds] of [
    [20, false, 5],
    [20, true, 5],
    [50, false, 3],
    [50, true, 3],
  ]) {
    const what = `block anchors, 20,000 lines: ${LINES / height} blocks of ${height} lines, ${near ? 'one' : 'none'} near`
    rows.push([what, '≤ 20 ms; ≥ 100×', await anchors(height, near, rounds)])
  }
  const output = `${machine(load)}\n\n${table(rows)}\n`
  console.log(output)
  if (values.markdown) writeFileSync(values.markdown, output)
}

await main()
