/** docs/reference says what the program says, and what docs, README and the like refer to is there. */

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { reference } from '../scripts/reference.mjs'

const top = fileURLToPath(new URL('..', import.meta.url))
const built = process.env.CARGO_TARGET_DIR ?? join(top, 'target')
const binary = process.env.SIMSE_TEST_BINARY ?? join(built, 'debug', 'simse')

test('the reference is what the program says', async () => {
  const pages = await reference(binary)
  for (const [name, text] of Object.entries(pages)) {
    const kept = readFileSync(join(top, 'docs', 'reference', name), 'utf8')
    assert.equal(kept, text, `docs/reference/${name} is not what the program says: node scripts/reference.mjs`)
  }
})

/** What GitHub makes of a heading to be led to. */
const anchor = (heading) =>
  heading
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replaceAll(/\s/g, '-')
const withoutCode = (text) => text.replaceAll(/^```[\s\S]*?^```/gm, '').replaceAll(/`[^`\n]*`/g, '``')
const anchors = (text) =>
  new Set([...text.replaceAll(/^```[\s\S]*?^```/gm, '').matchAll(/^#+ (.+)$/gm)].map(([, heading]) => anchor(heading)))

test('every link of the documentation leads somewhere', () => {
  const files = execFileSync('git', ['ls-files', '--', '*.md'], { cwd: top, encoding: 'utf8' }).split('\n')
  const ours = files.filter((file) => /^(?:docs\/.*|[A-Z]+)\.md$/.test(file))
  assert.ok(ours.length > 20)
  const broken = []
  let looked = 0
  for (const file of ours) {
    const text = readFileSync(join(top, file), 'utf8')
    for (const [, link] of withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(link)) continue
      looked += 1
      const [path, heading] = link.split('#')
      const to = path === '' ? join(top, file) : join(top, dirname(file), path)
      if (!existsSync(to)) broken.push(`${file}: ${link}`)
      else if (heading && to.endsWith('.md') && !anchors(readFileSync(to, 'utf8')).has(heading))
        broken.push(`${file}: ${link} (no such heading)`)
    }
  }
  assert.ok(looked > 100)
  assert.deepEqual(broken, [])
})
