/**
 * `fs_grep` and `fs_glob` from Node, beside `rg` started as a program and npm's globbing packages, in one run.
 *
 *   node benches/tools/search.mjs [--files N] [--markdown FILE] [--cache DIR]
 *
 * The trees (made by rule, see tree.mjs) and the npm packages lie in the cache folder. Contestants take turns, round by
 * round, so that what else the machine does hits all alike. Before anything is timed, `agree.mjs` holds the results
 * against rg's. docs/benchmarks.md says what each row means.
 */

import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { homedir, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { createToolRegistry, registerFilesystemTools } from 'simse'
import { median, number } from '../lib/figures.mjs'
import { caller, machine, race, table } from '../lib/race.mjs'
import { agree } from './agree.mjs'
import { globbers, ripgrep, ripgrepVersion } from './rivals.mjs'
import { makeTree } from './tree.mjs'

const SMALL_FILES = 500
/** What a file's last change must lie back for simse to keep what it read (`SEARCH_SETTLED_MS`), and a second. */
const SETTLED_MS = 61_000

const toolsIn = (workingDirectory) => caller((registry) => registerFilesystemTools(registry, { workingDirectory }))

/** A grep as ours and as rg's. `firstOnly`: rg in the order of the paths, ended after as many lines as ours shows. */
function grep(cwd, pattern, firstOnly = false) {
  const tool = toolsIn(cwd)
  const contestants = {
    simse: () => tool('fs_grep', { pattern }),
    rg: () => ripgrep(cwd, ['-n', pattern]),
  }
  if (firstOnly)
    contestants['rg --sort path, first 1,000 lines'] = () => ripgrep(cwd, ['-n', '--sort', 'path', pattern], 1000)
  return contestants
}

/** A glob as ours and as the packages'; `withRipgrep`: rg too, which names paths in no order. */
function glob(cwd, pattern, packages, withRipgrep = true) {
  const tool = toolsIn(cwd)
  const others = Object.entries(packages).map(([name, run]) => [name, () => run(pattern, cwd)])
  return {
    simse: () => tool('fs_glob', { pattern }),
    ...(withRipgrep ? { 'rg --files -g': () => ripgrep(cwd, ['--files', '-g', pattern]) } : {}),
    ...Object.fromEntries(others),
  }
}

/** Milliseconds from an abort to the answer, in the middle of a search of the large tree. */
async function abortTimes(cwd, rounds) {
  const registry = createToolRegistry({})
  registerFilesystemTools(registry, { workingDirectory: cwd })
  const times = []
  for (let round = 0; round < rounds; round++) {
    const controller = new AbortController()
    const request = { id: 'call_1', name: 'fs_grep', arguments: { pattern: '\\w{9}\\s\\w{40}' } }
    const running = registry.execute(request, { signal: controller.signal })
    await new Promise((resolve) => setTimeout(resolve, 30))
    const begin = performance.now()
    controller.abort()
    const { output } = await running
    if (!/abort/i.test(output)) throw new Error(`not aborted: ${output.slice(0, 200)}`)
    times.push(performance.now() - begin)
  }
  return median(times)
}

function registrySources() {
  const top = join(process.env.CARGO_HOME || join(homedir(), '.cargo'), 'registry', 'src')
  if (!existsSync(top)) return undefined
  const folder = readdirSync(top).map((name) => join(top, name))
  return folder.find((path) => statSync(path).isDirectory())
}

/** Waits until the last change of a tree lies so far back that simse keeps what it reads there. */
async function settled(tree) {
  const rest = statSync(join(tree, '.complete')).ctimeMs + SETTLED_MS - Date.now()
  if (rest > 0) await new Promise((resolve) => setTimeout(resolve, rest))
}

/** A small tree whose files are too young for that. */
function written(tree) {
  rmSync(tree, { recursive: true, force: true })
  makeTree(tree, SMALL_FILES)
  return tree
}

async function measure({ files, cache }) {
  const [small, large] = [join(cache, `tree-${SMALL_FILES}`), join(cache, `tree-${files}`)]
  const young = join(cache, 'tree-young')
  makeTree(small, SMALL_FILES)
  makeTree(large, files)
  const packages = await globbers(join(cache, 'npm'))
  const count = files.toLocaleString('en-US')
  await settled(small)
  const rows = [
    [`grep, ${SMALL_FILES} files, a rare word`, '≥ 5× rg', await race(60, grep(small, 'needle_7f3a'))],
    [`grep, ${SMALL_FILES} files, 215 matches`, '≥ 5× rg', await race(60, grep(small, 'fn account'))],
    [
      `grep, ${SMALL_FILES} files written just now, a rare word`,
      '',
      await race(60, grep(written(young), 'needle_7f3a')),
    ],
    [`grep, ${count} files, a rare word`, '≥ 1× rg', await race(9, grep(large, 'needle_7f3a'))],
    [`grep, ${count} files, a frequent word, first 1,000 matches`, '≥ 1× rg', await race(7, grep(large, 'fn ', true))],
    [
      `grep, ${count} files, \`\\w{12}\\s\\w{9}\\s\\w{12}\``,
      '≥ 1× rg',
      await race(5, grep(large, '\\w{12}\\s\\w{9}\\s\\w{12}')),
    ],
    [
      `glob \`**/*.rs\`, ${count} files: newest first`,
      '≥ 5×',
      await race(9, glob(large, '**/*.rs', packages.newest, false)),
    ],
    [
      'the same, but the others name paths alone',
      '≥ 5×; rg ≥ 0.91×',
      await race(9, glob(large, '**/*.rs', packages.paths)),
    ],
  ]
  const sources = registrySources()
  if (sources !== undefined) {
    rows.push([
      'grep, crates’ sources, a rare phrase',
      '≥ 1× rg',
      await race(7, grep(sources, 'fn gitconfig_excludes_path')),
    ])
    rows.push([
      'grep, crates’ sources, first 1,000 of `unsafe`',
      '≥ 1× rg',
      await race(5, grep(sources, 'unsafe', true)),
    ])
    rows.push([
      'glob `**/*.rs`, crates’ sources: newest first',
      '≥ 5×',
      await race(7, glob(sources, '**/*.rs', packages.newest, false)),
    ])
    rows.push([
      'the same, but the others name paths alone',
      '',
      await race(7, glob(sources, '**/*.rs', packages.paths)),
    ])
  }
  const abort = await abortTimes(large, 11)
  return { rows, abort }
}

async function main() {
  const { values } = parseArgs({
    options: {
      files: { type: 'string', default: '50000' },
      markdown: { type: 'string' },
      cache: { type: 'string', default: join(tmpdir(), 'simse-bench-search') },
    },
  })
  const version = ripgrepVersion()
  if (version === undefined) throw new Error('rg is not installed (Debian, Ubuntu: apt install ripgrep)')
  const load = loadavg()[0]
  const agreed = await agree(3)
  const { rows, abort } = await measure({ files: Number(values.files), cache: values.cache })
  const text = [
    machine(load, version),
    `${agreed} searches on trees made by rule agreed with rg first.`,
    table(rows),
    `From an abort to the answer, in the middle of the large tree: ${number(abort)} ms (median of 11).`,
  ].join('\n\n')
  console.log(text)
  if (values.markdown) writeFileSync(values.markdown, `${text}\n`)
}

await main()
