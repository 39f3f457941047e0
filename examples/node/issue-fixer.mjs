/**
 * Fixes an issue of a repository without anybody beside it: a branch of its own, an agent that edits and runs the tests and nothing
 * else, the tests once more by this script, and a commit, or the tree as it was.
 *
 *   OPENAI_API_KEY=… MODEL=openai/gpt-5 node examples/node/issue-fixer.mjs REPOSITORY ISSUE.md
 *
 * Exit code 0: fixed and committed on the branch that it prints. 1: not fixed.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import process from 'node:process'
import { createSimseServer } from 'simse'
import { createSimseClient } from 'simse/client'

const [repository, issueFile] = process.argv.slice(2)
if (issueFile === undefined) {
  console.error('usage: issue-fixer.mjs REPOSITORY ISSUE.md')
  process.exit(2)
}
const workingDirectory = resolve(repository)
const issue = readFileSync(issueFile, 'utf8')
const git = (...args) => execFileSync('git', args, { cwd: workingDirectory, encoding: 'utf8' }).trim()
const testsPass = () => spawnSync('npm', ['test', '--silent'], { cwd: workingDirectory }).status === 0

if (git('status', '--porcelain') !== '') throw new Error(`${workingDirectory} has changes that are not committed`)
const before = git('rev-parse', '--abbrev-ref', 'HEAD')
const branch = `fix/${basename(issueFile, '.md')}`
git('switch', '--quiet', '--create', branch)

// Nobody answers questions here: what is not allowed is refused, and the model reads that.
const server = createSimseServer({
  port: 0,
  workingDirectory,
  model: process.env.MODEL,
  openai: { baseUrl: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY },
  toolPermissions: {
    defaultPolicy: 'deny',
    rules: [
      { tool: '*', policy: 'allow', category: ['read', 'search', 'edit'] },
      { tool: 'bash', pattern: 'npm test*', policy: 'allow' },
    ],
  },
})
await server.start()
let fixed = false
try {
  const client = createSimseClient({ baseUrl: server.url })
  const { sessionId } = await client.sessions.create({
    title: branch,
    instructions:
      'Fix the issue with the smallest change that does it, and run `npm test` before you say that it is fixed.',
    budget: { turns: 1, toolCalls: 200, timeMs: 20 * 60_000 },
  })
  const turn = await client.sessions.prompt(sessionId, { prompt: issue }, { wait: true })
  console.log(turn.status === 'completed' ? turn.result : `failed: ${turn.error?.message}`)
  fixed = turn.status === 'completed' && git('status', '--porcelain') !== '' && testsPass()
  if (fixed) {
    git('add', '--all')
    git('commit', '--quiet', '--message', `${issue.split('\n')[0].replace(/^#\s*/, '')}\n\n${turn.result}`)
    console.log(`fixed on the branch ${branch}`)
  } else {
    await client.sessions.undo(sessionId).catch(() => {})
    git('reset', '--quiet', '--hard')
  }
} finally {
  await server.stop()
  git('switch', '--quiet', before)
  if (!fixed) git('branch', '--quiet', '--delete', '--force', branch)
}
process.exitCode = fixed ? 0 : 1
