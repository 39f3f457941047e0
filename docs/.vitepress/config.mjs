/**
 * The guide as a site: `npm run guide` builds it into docs/.vitepress/dist. Its pages are the Markdown files of the repository, as
 * they are read there as well; links to what is no page lead to the repository. A link to a page that is missing ends the build.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const top = fileURLToPath(new URL('../..', import.meta.url))
const own = JSON.parse(readFileSync(join(top, 'package.json'), 'utf8'))
const source = own.repository.url.replace(/^git\+/, '').replace(/\.git$/, '')
const TOP_PAGES = ['README', 'ARCHITECTURE', 'SECURITY', 'CONTRIBUTING', 'CHANGELOG']

/** The first heading of a page. */
const title = (file) => /^# (.+)$/m.exec(readFileSync(join(top, file), 'utf8'))?.[1].replaceAll('`', '') ?? file
const entry = (file) => ({ text: title(file), link: `/${file.replace(/\.md$/, '')}` })
const pagesOf = (folder) =>
  readdirSync(join(top, folder))
    .filter((name) => name.endsWith('.md'))
    .sort()
    .map((name) => entry(`${folder}/${name}`))

/** Leads links to files that are no pages of the guide to where they lie in the repository, and those to README.md to the first page. */
function leadOut(markdown) {
  markdown.core.ruler.push('lead-out', ({ tokens, env }) => {
    for (const token of tokens.flatMap((one) => one.children ?? [])) {
      const href = token.type === 'link_open' ? token.attrGet('href') : null
      if (href === null || /^(?:[a-z]+:|#|\/)/.test(href)) continue
      const [path] = href.split('#')
      const to = normalize(join(dirname(env.relativePath), path))
      const page = to.endsWith('.md') && (to.startsWith('docs/') || TOP_PAGES.includes(to.slice(0, -3)))
      if (to === 'README.md') token.attrSet('href', href.replace(path, '/'))
      // What is not there at all stays as it is, and VitePress says so.
      if (!page && existsSync(join(top, to))) token.attrSet('href', `${source}/blob/main/${to}`)
    }
  })
}

export default defineConfig({
  title: own.name,
  description: own.description,
  srcDir: '..',
  srcExclude: [
    '{.ci,.github,__test__,benches,dist,examples,fuzz,js,scripts,src,target,tests,web}/**',
    '**/node_modules/**',
  ],
  outDir: join(top, 'docs', '.vitepress', 'dist'),
  cleanUrls: false,
  rewrites: { 'README.md': 'index.md' },
  markdown: { config: leadOut },
  themeConfig: {
    nav: [
      { text: 'First steps', link: '/docs/guide/first-steps' },
      { text: 'Reference', link: '/docs/reference/settings' },
      // Made by TypeDoc, and so no page that VitePress knows.
      { text: 'TypeScript', link: '/api/index.html', target: '_self' },
      { text: 'Operations', link: '/docs/operations' },
    ],
    sidebar: [
      {
        text: 'Begin',
        items: ['first-steps', 'from-opencode', 'from-codex', 'from-claude-agent-sdk'].map((name) =>
          entry(`docs/guide/${name}.md`),
        ),
      },
      { text: 'Use', items: [{ text: 'All of it', link: '/' }, ...pagesOf('docs')] },
      { text: 'Look up', items: pagesOf('docs/reference') },
      { text: 'Build', items: TOP_PAGES.slice(1).map((name) => entry(`${name}.md`)) },
      { text: 'Decisions', collapsed: true, items: pagesOf('docs/adr') },
    ],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: source }],
  },
})
