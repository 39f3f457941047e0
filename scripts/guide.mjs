/**
 * `npm run guide`: builds the guide into docs/.vitepress/dist, with the reference of the TypeScript interface under api/, and follows
 * every link inside of it, to headings too. Exit code: 0 when all of them lead somewhere, 1 when one does not, or when the build fails:
 * also by a declaration without words, or with words that name what is not there.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { run, say, top } from './tools.mjs'

/** How many broken links are named. */
const NAMED_MAX = 30
const site = join(top, 'docs', '.vitepress', 'dist')

/** Links of the built pages that lead nowhere, and how many were followed. */
function follow(folder) {
  const pages = new Map(
    readdirSync(folder, { recursive: true })
      .filter((name) => name.endsWith('.html'))
      .map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
  )
  const headings = new Map(
    [...pages].map(([name, html]) => [name, new Set([...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id))]),
  )
  const broken = []
  let followed = 0
  for (const [name, html] of pages) {
    for (const [, link] of html.matchAll(/<a [^>]*href="([^"]*)"/g)) {
      if (/^[a-z]+:/.test(link)) continue
      followed += 1
      const [path, heading] = link.replaceAll('&amp;', '&').split('#')
      const at = path === '' ? name : join(...(path.startsWith('/') ? [path.slice(1)] : [dirname(name), path]))
      const to = at === '.' || at.endsWith('/') ? join(at, 'index.html') : at
      const known = headings.get(to)
      if (!existsSync(join(folder, to))) broken.push(`${name}: ${link}`)
      else if (heading && known && !known.has(decodeURIComponent(heading))) broken.push(`${name}: ${link} (no heading)`)
    }
  }
  return { pages: pages.size, followed, broken }
}

/** The reference, from the declarations that are published. */
function reference() {
  const { repository } = JSON.parse(readFileSync(join(top, 'package.json'), 'utf8'))
  const source = repository.url.replace(/^git\+/, '').replace(/\.git$/, '')
  const links = ['--disableGit', '--gitRevision', 'main', '--sourceLinkTemplate', `${source}/blob/main/{path}#L{line}`]
  const args = [...links, '--basePath', top, '--out', join(site, 'api')]
  return run(join(top, 'docs', 'api', 'node_modules', '.bin', 'typedoc'), args, { cwd: join(top, 'docs', 'api') })
}

const code = (await run(join(top, 'node_modules', '.bin', 'vitepress'), ['build', 'docs'])) || (await reference())
if (code !== 0) process.exit(code)
const { pages, followed, broken } = follow(site)
for (const link of broken.slice(0, NAMED_MAX)) say(`leads nowhere: ${link}`)
say(`${pages} pages, ${followed} links, ${broken.length} of them lead nowhere`)
process.exitCode = broken.length === 0 && followed > 0 ? 0 : 1
