/**
 * Holds `fs_grep` and `fs_glob` against ripgrep on trees made by rule: the same files, the same lines.
 *
 *   node benches/tools/agree.mjs [--seeds N]
 *
 * Each tree has ignore files at several levels, hidden names, binaries, CRLF, bytes that are no UTF-8, long lines, empty
 * files. Known differences are left out by asking rg for the same: `--no-require-git` (rules count outside a
 * repository), `--crlf`; and what rg's `-g` finds among ignored and hidden files is dropped, because ours leaves those
 * out. Exit code 1 with the first differences when they do not agree, 2 when there is no rg.
 */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { createToolRegistry, registerFilesystemTools } from 'simse'
import { ripgrep, ripgrepVersion } from './rivals.mjs'

const NAMES = ['a', 'b', 'lib', 'src', 'out', 'gen', '.hid', 'Main', 'x y', 'ü']
const SUFFIXES = ['', '.rs', '.ts', '.log', '.txt', '.md', '.tmp']
const RULES = [
  '*.log',
  '!a.log',
  'out/',
  '/gen',
  'lib/*.rs',
  '!lib/a.rs',
  '*.tmp',
  '.hid',
  '!.hid',
  'src/**/b*',
  '# no',
  '',
]
const PIECES = [
  'alpha',
  'Alpha',
  'beta',
  'alphabet',
  'fn alpha() {',
  'ALPHA_1',
  'x = alpha;',
  '}',
  '',
  '  beta alpha',
  'ünï',
]

/** Whole numbers below `n`, the same ones each time. */
function dice(seed) {
  let state = seed * 2654435761 + 1
  return (n) => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) % n
  }
}

function content(roll) {
  const lines = Array.from({ length: roll(12) }, () => PIECES[roll(PIECES.length)])
  const end = roll(5) === 0 ? '\r\n' : '\n'
  const text = lines.join(end) + (roll(4) === 0 ? '' : end)
  switch (roll(12)) {
    case 0:
      return Buffer.concat([Buffer.from(text), Buffer.from([0, 1, 2])])
    case 1:
      return Buffer.concat([Buffer.from([0x63, 0xe9, 0x20]), Buffer.from(text)])
    case 2:
      return Buffer.from(`\ufeff${text}`)
    case 3:
      return Buffer.from(`\ufeff${text}`, 'utf16le')
    case 4:
      return Buffer.from(`${'y'.repeat(90_000)}\n${text}`)
    default:
      return Buffer.from(text)
  }
}

function makeTree(root, roll) {
  const folders = ['']
  for (let n = 0; n < 14; n++) {
    const parent = folders[roll(folders.length)]
    folders.push(join(parent, NAMES[roll(NAMES.length)]))
  }
  for (const folder of folders) mkdirSync(join(root, folder), { recursive: true })
  const put = (path, bytes) => {
    mkdirSync(dirname(path), { recursive: true })
    try {
      writeFileSync(path, bytes)
    } catch (problem) {
      if (problem.code !== 'EISDIR') throw problem
    }
  }
  for (const folder of folders) {
    for (let n = roll(6); n > 0; n--) {
      put(join(root, folder, NAMES[roll(NAMES.length)] + SUFFIXES[roll(SUFFIXES.length)]), content(roll))
    }
    for (const file of ['.gitignore', '.ignore']) {
      if (roll(4) !== 0) continue
      put(join(root, folder, file), Array.from({ length: 1 + roll(4) }, () => RULES[roll(RULES.length)]).join('\n'))
    }
  }
}

/** What our tool answers and what rg is asked. */
const GREPS = [
  [{ pattern: 'alpha' }, ['alpha']],
  [{ pattern: '^alpha$' }, ['^alpha$']],
  [{ pattern: 'alpha', ignore_case: true }, ['-i', 'alpha']],
  [{ pattern: 'alpha_1', smart_case: true }, ['-S', 'alpha_1']],
  [{ pattern: 'Alpha', smart_case: true }, ['-S', 'Alpha']],
  [{ pattern: 'alpha() {', literal: true }, ['-F', 'alpha() {']],
  [{ pattern: 'alpha', word: true }, ['-w', 'alpha']],
  [{ pattern: '\\w+\\s*=\\s*\\w+;' }, ['\\w+\\s*=\\s*\\w+;']],
  [{ pattern: 'ünï|be.a' }, ['ünï|be.a']],
  [{ pattern: 'alpha', hidden: true }, ['--hidden', 'alpha']],
  [{ pattern: 'alpha', no_ignore: true }, ['--no-ignore', 'alpha']],
  [{ pattern: 'alpha', hidden: true, no_ignore: true }, ['--hidden', '--no-ignore', 'alpha']],
  [{ pattern: 'alpha', type: 'rust,ts' }, ['-t', 'rust', '-t', 'ts', 'alpha']],
  [{ pattern: 'alpha', type: '!rust' }, ['-T', 'rust', 'alpha']],
  [{ pattern: 'alpha', glob: '*.{rs,md}' }, ['-g', '*.{rs,md}', 'alpha']],
  [{ pattern: 'alpha', glob: '!*.rs,!src/' }, ['-g', '!*.rs', '-g', '!src/', 'alpha']],
  [{ pattern: 'alpha', glob: 'src/**' }, ['-g', '/src/**', 'alpha']],
  [{ pattern: 'alpha', context: 1 }, ['-C1', 'alpha']],
  [{ pattern: 'beta', before: 2, after: 1 }, ['-B2', '-A1', 'beta']],
  [{ pattern: 'alpha\\n+beta', multiline: true }, ['-U', 'alpha\\n+beta']],
  [{ pattern: 'alpha', mode: 'count' }, ['-c', 'alpha']],
  [{ pattern: 'alpha', mode: 'files_with_matches' }, ['-l', 'alpha']],
  [{ pattern: '.', mode: 'files_with_matches', hidden: true }, ['-l', '--hidden', '.']],
]
const GLOBS = [
  [{ pattern: '**/*.rs' }, ['-g', '**/*.rs']],
  [{ pattern: '*.{rs,md}' }, ['-g', '/*.{rs,md}']],
  [{ pattern: '**/a*' }, ['-g', '**/a*']],
  [{ pattern: 'src/**' }, ['-g', '/src/**']],
  [{ pattern: '!*.rs' }, ['-g', '!*.rs']],
  [{ pattern: '**/*', exclude: '*.rs,out/' }, ['-g', '!*.rs', '-g', '!out/']],
  [{ pattern: '**/*', hidden: true }, ['--hidden']],
  [{ pattern: '**/*.log', no_ignore: true }, ['--no-ignore', '-g', '**/*.log']],
  [{ pattern: '[ab]?*' }, ['-g', '/[ab]?*']],
]

/** What stands for the line that ours cuts and rg prints whole. */
const LONG = '(long)'

const COMMON = ['--no-require-git', '--crlf', '--no-messages', '--sort', 'path']

/** rg's lines as ours are written: a blank after the number, long lines and binary warnings taken out by the caller. */
function asOurs(text) {
  // With --crlf rg ends its own lines with CR as well.
  const lines = text.split('\n').map((line) => line.replace(/\r$/, ''))
  const own = lines.filter((line) => line !== '' && !line.startsWith('WARNING: stopped searching binary'))
  return own.map((line) => line.replace(/^(.*?)([:-])(\d+)\2/, '$1$2$3$2 ').replace(/y{100,}/, LONG))
}

/** Ours, less the notes at the end; the Latin-1 that ours decodes as rg's bytes come out here. */
function ourLines(output) {
  if (/^No (matches|files) found/.test(output)) return []
  const lines = output.replaceAll('c\u00e9 ', 'c\ufffd ').split('\n')
  return lines.map((line) => line.replace(/y{100,} \[line cut: \d+ bytes in all\]$/, LONG))
}

/** Every page of a grep or a glob. */
async function whole(registry, name, args) {
  const result = await registry.execute({ id: 'call_1', name, arguments: args })
  assert.equal(result.isError, false, result.output)
  assert.ok(!result.output.includes('(Results limited'), 'the trees are small enough for one page')
  return ourLines(result.output)
}

/** The files that are neither ignored nor hidden (rg's -g and -t outrank both). */
async function listed(root, args) {
  const kept = args.filter((arg) => ['--hidden', '--no-ignore'].includes(arg))
  return new Set((await ripgrep(root, [...COMMON, '--files', ...kept])).split('\n').filter(Boolean))
}

/** Whether a file holds a NUL and is no UTF-16: ours says nothing of it, rg now and then a line before the NUL. */
function isBinary(path) {
  const bytes = readFileSync(path)
  return bytes.includes(0) && !(bytes[0] === 0xff && bytes[1] === 0xfe)
}

async function checkTree(seed, root, differences) {
  const registry = createToolRegistry({})
  registerFilesystemTools(registry, { workingDirectory: root })
  const note = (what, ours, theirs) => {
    const missing = theirs.filter((line) => !ours.includes(line)).slice(0, 5)
    const extra = ours.filter((line) => !theirs.includes(line)).slice(0, 5)
    if (ours.join('\n') !== theirs.join('\n')) differences.push({ seed, what: JSON.stringify(what), missing, extra })
  }
  for (const [args, flags] of GREPS) {
    const files = [...(await listed(root, flags))].filter((file) => !isBinary(join(root, file)))
    const own = await whole(registry, 'fs_grep', args)
    const plain = flags.includes('-c') || flags.includes('-l')
    const printed = asOurs(await ripgrep(root, [...COMMON, '--no-heading', ...(plain ? [] : ['-n']), ...flags]))
    const shows = (line, file) => line === file || line.startsWith(`${file}:`) || line.startsWith(`${file}-`)
    const kept = printed.filter((line) => line === '--' || files.some((file) => shows(line, file)))
    note(args, own, kept)
  }
  for (const [args, flags] of GLOBS) {
    const files = await listed(root, flags)
    const theirs = (await ripgrep(root, [...COMMON, '--files', ...flags])).split('\n').filter((path) => files.has(path))
    note(args, (await whole(registry, 'fs_glob', args)).sort(), theirs.sort())
  }
}

/** Compares on `seeds` trees. The number of comparisons, or throws with the first differences. */
export async function agree(seeds) {
  const home = mkdtempSync(join(tmpdir(), 'simse-agree-'))
  const differences = []
  try {
    for (let seed = 1; seed <= seeds; seed++) {
      const root = join(home, String(seed))
      makeTree(root, dice(seed))
      await checkTree(seed, root, differences)
    }
  } finally {
    if (differences.length === 0) rmSync(home, { recursive: true, force: true })
  }
  if (differences.length > 0) {
    const first = differences.slice(0, 10).map((difference) => JSON.stringify(difference, null, 1))
    throw new Error(`${differences.length} differences to rg in ${home}, such as\n${first.join('\n')}`)
  }
  return seeds * (GREPS.length + GLOBS.length)
}

if (process.argv[1] === import.meta.filename) {
  const { values } = parseArgs({ options: { seeds: { type: 'string', default: '20' } } })
  const version = ripgrepVersion()
  if (version === undefined) {
    process.stderr.write('agree: rg is not installed (Debian, Ubuntu: apt install ripgrep)\n')
    process.exit(2)
  }
  console.log(`${await agree(Number(values.seeds))} searches agree with ${version}`)
}
