/** Host tools called from JavaScript, and the edit chain: typescript-api.md §4 and §5. The tools' own tests are in Rust. */

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import {
  createToolPermissionResolver,
  createToolRegistry,
  fuzzyMatch,
  registerBashTool,
  registerExecTools,
  registerFilesystemTools,
  registerGitTools,
} from '../js/index.js'
import { call } from './support/registry.mjs'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-host-')))
after(() => rmSync(room, { recursive: true, force: true }))
let rooms = 0

/** A registry with all host tools over a new directory, and a function that runs one and answers with its output. */
function host(more = {}) {
  const workingDirectory = join(room, `work${++rooms}`)
  mkdirSync(workingDirectory)
  const registry = createToolRegistry({})
  registerFilesystemTools(registry, { workingDirectory, ...more.filesystem })
  registerBashTool(registry, { workingDirectory, ...more.bash })
  registerExecTools(registry, { workingDirectory, ...more.exec })
  registerGitTools(registry, { workingDirectory, ...more.git })
  const run = async (name, args = {}, options) => registry.execute(call(name, args), options)
  const ok = async (name, args, options) => {
    const result = await run(name, args, options)
    assert.equal(result.isError, false, result.output)
    return result.output
  }
  return { workingDirectory, registry, run, ok, path: (name) => join(workingDirectory, name) }
}

const TOOLS = {
  fs_read: 'read',
  fs_write: 'edit',
  fs_edit: 'edit',
  fs_multi_edit: 'edit',
  apply_patch: 'edit',
  fs_glob: 'search',
  fs_grep: 'search',
  fs_list: 'read',
  bash: 'execute',
  exec_command: 'execute',
  write_stdin: 'execute',
  git_status: undefined,
  git_diff: undefined,
  git_log: undefined,
  git_commit: undefined,
  git_branch: undefined,
}

test('all tools are there, with schema and category, and can be taken out again', () => {
  const { registry } = host()
  for (const [name, category] of Object.entries(TOOLS)) {
    const definition = registry.getToolDefinition(name)
    assert.ok(definition, name)
    if (category) assert.equal(definition.category, category, name)
    assert.ok(Object.isFrozen(definition.parameters))
  }
  assert.equal(registry.getToolDefinition('bash').annotations.destructive, true)
  assert.equal(registry.getToolDefinition('fs_write').annotations.destructive, true)
  const before = registry.toolCount
  assert.equal(registry.unregister('bash'), true)
  assert.equal(registry.toolCount, before - 1)
  registerBashTool(registry, { workingDirectory: room })
  assert.equal(registry.toolCount, before)
})

test('files: write, read, edit, list, find, look into, tell, move, delete', async () => {
  const { ok, run, path } = host()
  assert.equal(await ok('fs_write', { path: 'src/a.txt', content: 'één\ntwo\n' }), 'Wrote 10 bytes to src/a.txt')
  assert.equal(await ok('fs_read', { path: 'src/a.txt' }), '     1\téén\n     2\ttwo')
  const edited = await ok('fs_edit', { path: 'src/a.txt', old_string: 'two', new_string: 'three' })
  assert.match(edited, /^Edited src\/a\.txt using strategy: exact/)
  assert.equal(readFileSync(path('src/a.txt'), 'utf8'), 'één\nthree\n')
  const miss = await run('fs_edit', { path: 'src/a.txt', old_string: 'thee', new_string: 'x' })
  assert.match(
    miss.output,
    /^Tool "fs_edit" execution failed: .*No match found for the provided old_string in the file/,
  )
  assert.equal(await ok('fs_list', { depth: 1 }), 'd src\nf src/a.txt')
  assert.equal(await ok('fs_glob', { pattern: '**/*.txt' }), 'src/a.txt')
  assert.equal(await ok('fs_glob', { pattern: '*.none' }), 'No files found matching the pattern.')
  assert.equal(await ok('fs_grep', { pattern: 'thr.e' }), 'src/a.txt:2: three')
  assert.equal(await ok('fs_grep', { pattern: 'none' }), 'No matches found.')
  const stat = JSON.parse(await ok('fs_stat', { path: 'src/a.txt' }))
  assert.deepEqual(Object.keys(stat).sort(), ['modified', 'permissions', 'size', 'type'])
  assert.equal(await ok('fs_move', { source: 'src/a.txt', destination: 'b.txt' }), 'Moved src/a.txt → b.txt')
  assert.equal(await ok('fs_delete', { path: 'b.txt' }), 'Deleted b.txt')
  assert.equal(existsSync(path('b.txt')), false)
})

test('several edits of one file, and the names that models give to arguments', async () => {
  const { ok, path } = host()
  await ok('fs_write', { file: 'a.txt', content: 'one\ntwo\n' })
  const edits = [
    { old_string: 'one', new_string: '1' },
    { search: 'two', replace: '2' },
  ]
  const said = await ok('fs_multi_edit', { filepath: 'a.txt', edits })
  assert.equal(said, 'Edited a.txt with 2 edits using strategies: exact, exact')
  await ok('fs_edit', { file: 'a.txt', old: '2', new: 'two' })
  assert.equal(readFileSync(path('a.txt'), 'utf8'), '1\ntwo\n')
  await ok('apply_patch', { input: '*** Begin Patch\n*** Delete File: a.txt\n*** End Patch' })
  assert.equal(existsSync(path('a.txt')), false)
})

test('a patch changes several files, or none', async () => {
  const { ok, run, path } = host()
  await ok('fs_write', { path: 'a.txt', content: 'one\r\ntwo\r\n' })
  const patch = (update) =>
    `*** Begin Patch\n*** Add File: new/b.txt\n+hello\n*** Update File: a.txt\n@@\n-${update}\n+2\n*** End Patch`
  const missed = await run('apply_patch', { patch: patch('three') })
  assert.match(
    missed.output,
    /^Tool "apply_patch" execution failed: apply_patch verification failed: a\.txt: .*not in the file/,
  )
  assert.equal(existsSync(path('new/b.txt')), false)
  assert.equal(
    await ok('apply_patch', { patch: patch('two') }),
    'Success. Updated the following files:\nA new/b.txt\nM a.txt',
  )
  assert.equal(readFileSync(path('a.txt'), 'utf8'), 'one\r\n2\r\n')
  const back = '--- a/new/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-hello\n'
  assert.equal(await ok('apply_patch', { patch: back }), 'Success. Updated the following files:\nD new/b.txt')
})

test('nothing leaves the roots: not by name, link, glob or directory; further roots are roots', async () => {
  const other = join(room, 'other')
  mkdirSync(other, { recursive: true })
  writeFileSync(join(other, 'secret.txt'), 'secret')
  const { run, workingDirectory, path } = host()
  symlinkSync(other, path('link'))
  const escapes = [
    ['fs_read', { path: '../other/secret.txt' }, '../other/secret.txt'],
    ['fs_read', { path: join(other, 'secret.txt') }, join(other, 'secret.txt')],
    ['fs_read', { path: 'link/secret.txt' }, 'link/secret.txt'],
    ['fs_write', { path: 'link/new.txt', content: 'x' }, 'link/new.txt'],
  ]
  for (const [name, args, given] of escapes) {
    const { output, isError } = await run(name, args)
    assert.equal(
      output,
      `Tool "${name}" execution failed: Path "${given}" escapes the working directory "${workingDirectory}"`,
    )
    assert.equal(isError, true)
  }
  assert.equal(existsSync(join(other, 'new.txt')), false)
  const wide = host({ filesystem: { allowedPaths: ['../other'] } })
  assert.equal(await wide.ok('fs_read', { path: '../other/secret.txt' }), '     1\tsecret')
})

test('bash: output in order, exit codes, time-outs, its own directory and environment, abort', async () => {
  const { ok, registry } = host({ bash: { env: { FOO: 'bar' }, maxOutputBytes: 100 } })
  assert.equal((await ok('bash', { command: 'echo one; echo two >&2; echo $FOO' })).trim(), 'one\ntwo\nbar')
  assert.match(await ok('bash', { command: 'echo bad; exit 3' }), /^\[exit code 3\]\nbad/)
  assert.match(await ok('bash', { command: 'seq 1 1000' }), /\[truncated: 3893 bytes total, showing/)
  mkdirSync(join(room, `work${rooms}`, 'sub'))
  await ok('bash', { command: 'cd sub' })
  assert.match(await ok('bash', { command: 'pwd' }), /\/sub$/m)
  const hasty = host({ bash: { defaultTimeoutMs: 2000 } })
  assert.match(await hasty.ok('bash', { command: 'echo first; sleep 300' }), /^\[timeout after 2000ms\]\nfirst/)
  const controller = new AbortController()
  const running = registry.execute(call('bash', { command: 'sleep 30', timeout: 60_000 }), {
    signal: controller.signal,
  })
  setTimeout(() => controller.abort(), 50)
  const from = Date.now()
  assert.equal((await running).isError, true)
  assert.ok(Date.now() - from < 10_000)
})

test('exec: sessions that go on, a terminal, details, an abort', async () => {
  const { run, ok, registry } = host({ exec: { env: { FOO: 'bar' }, maxOutputTokens: 500 } })
  const quick = await run('exec_command', { cmd: 'echo $FOO; exit 3' })
  assert.match(
    quick.output,
    /^Chunk ID: \w{6}\nWall time: [\d.]+ seconds\nProcess exited with code 3\nOriginal token count: 1\nOutput:\nbar\n$/,
  )
  const { exitCode, sessionId, outputBytes, omittedBytes } = quick.details
  assert.deepEqual([exitCode, sessionId, outputBytes, omittedBytes], [3, null, 4, 0])
  const cut = await run('exec_command', { cmd: 'seq 1 100000' })
  assert.ok(cut.details.omittedBytes > 500_000 && cut.output.length < 2_300, cut.output.length)

  const shell = await run('exec_command', {
    cmd: 'read x; stty size; echo got $x; sleep 600',
    tty: true,
    yield_time_ms: 250,
  })
  assert.equal(shell.details.sessionId, '1000')
  const typed = { session_id: '1000', rows: 30, cols: 90, chars: 'ä\n', yield_time_ms: 3000 }
  assert.match(await ok('write_stdin', typed), /^ä\n30 90\ngot ä$/m)
  const unknown = await run('write_stdin', { session_id: '7' })
  assert.match(unknown.output, /session 7 is not known; there are 1000 \(`read x/)
  assert.equal((await run('write_stdin', { session_id: '1000', kill: true })).details.exitCode > 128, true)

  const controller = new AbortController()
  const running = registry.execute(call('exec_command', { cmd: 'sleep 30', yield_time_ms: 30_000 }), {
    signal: controller.signal,
  })
  setTimeout(() => controller.abort(), 50)
  const from = Date.now()
  assert.equal((await running).isError, true)
  assert.ok(Date.now() - from < 10_000)
})

test('exec: what still runs ends with the process', async () => {
  const pidsFile = join(room, 'pids')
  const program = `
import { existsSync } from 'node:fs'
import { createToolRegistry, registerExecTools } from ${JSON.stringify(new URL('../js/index.js', import.meta.url).href)}
const registry = createToolRegistry()
registerExecTools(registry, { workingDirectory: ${JSON.stringify(room)} })
const call = { id: '1', name: 'exec_command', arguments: { cmd: 'setsid sleep 600 & echo $! $$ > pids.tmp; mv pids.tmp pids; wait', yield_time_ms: 250 } }
await registry.execute(call)
while (!existsSync(${JSON.stringify(pidsFile)})) await new Promise((soon) => setTimeout(soon, 5))
`
  execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' })
  const pids = readFileSync(pidsFile, 'utf8').trim().split(' ')
  const runs = (pid) => existsSync(`/proc/${pid}/fd/0`)
  for (let tries = 0; pids.some(runs) && tries < 200; tries++) await new Promise((done) => setTimeout(done, 50))
  assert.deepEqual(pids.filter(runs), [])
})

test('exec: rules about bash are about it, and typed text is a command line', async () => {
  const permissionResolver = createToolPermissionResolver({
    defaultPolicy: 'deny',
    rules: [
      { tool: 'bash', pattern: 'cat *', policy: 'allow' },
      { tool: 'bash', pattern: 'ls *', policy: 'allow' },
      { tool: '*', category: 'read', policy: 'allow' },
    ],
  })
  const registry = createToolRegistry({ permissionResolver })
  registerExecTools(registry, { workingDirectory: room })
  const allowed = async (name, args) =>
    !(await registry.execute(call(name, args))).output.startsWith('Permission denied')
  assert.equal(await allowed('exec_command', { cmd: 'cat', tty: true, yield_time_ms: 250 }), true)
  assert.equal(await allowed('exec_command', { cmd: 'rm x' }), false)
  assert.equal(await allowed('exec_command', { cmd: 'cat', shell: '/tmp/evil' }), false)
  assert.equal(await allowed('write_stdin', { session_id: '1000', chars: 'ls\n' }), true)
  assert.equal(await allowed('write_stdin', { session_id: '1000', chars: 'rm x\n' }), false)
  assert.equal(await allowed('write_stdin', { session_id: '1000', rows: 5, cols: 5 }), true)
  assert.equal(await allowed('write_stdin', { session_id: '1000', kill: true }), true)
  for (const args of [{ cmd: 'rm -rf /' }, { command: 'rm -rf /' }]) {
    assert.equal((await permissionResolver.explain({ name: 'exec_command', arguments: args })).source, 'floor')
  }
  const typed = { name: 'write_stdin', arguments: { session_id: '1', chars: 'rm -rf /\n' } }
  assert.equal((await permissionResolver.explain(typed)).source, 'floor')
})

test('git: status, commit, log, diff, branch', async () => {
  const { ok, run, path, workingDirectory } = host()
  execFileSync('git', ['init', '-q', '-b', 'main'], { cwd: workingDirectory })
  for (const [key, value] of [
    ['user.name', 'A'],
    ['user.email', 'a@example.com'],
  ]) {
    execFileSync('git', ['config', key, value], { cwd: workingDirectory })
  }
  writeFileSync(path('a.txt'), 'one\n')
  assert.match(await ok('git_status'), /a\.txt/)
  execFileSync('git', ['add', '.'], { cwd: workingDirectory })
  assert.match((await run('git_commit', { message: '' })).output, /Commit message is required/)
  assert.match(await ok('git_commit', { message: 'begin' }), /begin/)
  assert.match(await ok('git_log'), /begin/)
  writeFileSync(path('a.txt'), 'two\n')
  assert.match(await ok('git_diff'), /^-one$[\s\S]*^\+two$/m)
  await ok('git_branch', { name: 'next', create: true })
  assert.match(await ok('git_branch'), /next/)
})

test('native and JavaScript tools in one batch', async () => {
  const { registry } = host()
  registry.register({ name: 'js', description: '', parameters: {} }, async () => 'from JavaScript')
  const results = await registry.batchExecute([call('bash', { command: 'echo shell' }), call('js'), call('fs_list')])
  assert.deepEqual(
    results.map((result) => result.output.trim()),
    ['shell', 'from JavaScript', 'Directory is empty.'],
  )
})

test('options that do not fit name the field; so does a registry that is none', () => {
  const registry = createToolRegistry()
  const file = join(room, 'no-directory')
  writeFileSync(file, '')
  const table = [
    [() => registerFilesystemTools(registry, {}), 'options.workingDirectory'],
    [() => registerFilesystemTools(registry, { workingDirectory: room, allowedPaths: 'x' }), 'options.allowedPaths'],
    [() => registerFilesystemTools(registry, { workingDirectory: '/a\0b' }), 'options.workingDirectory'],
    ...[registerFilesystemTools, registerBashTool, registerExecTools, registerGitTools].flatMap((register) => [
      [() => register(registry, { workingDirectory: file }), 'options.workingDirectory'],
      [() => register(registry, { workingDirectory: join(file, 'below') }), 'options.workingDirectory'],
    ]),
    ...[registerBashTool, registerExecTools].flatMap((register) => [
      [() => register(registry, { workingDirectory: room, env: { 'A=B': '1' } }), 'options.env.A=B'],
      [() => register(registry, { workingDirectory: room, env: { A: 'x\0y' } }), 'options.env.A'],
      [() => register(registry, { workingDirectory: room, env: { '': 'x' } }), 'options.env.'],
    ]),
    [() => registerBashTool(registry, { workingDirectory: room, env: { A: 1 } }), 'options.env.A'],
    [() => registerBashTool(registry, { workingDirectory: room, timeout: 5 }), 'options.timeout'],
    [() => registerExecTools(registry, { workingDirectory: room, maxOutputTokens: 0 }), 'options.maxOutputTokens'],
    [() => registerExecTools(registry, { workingDirectory: room, sandbox: 'on' }), 'options.sandbox'],
    [() => registerGitTools(registry), 'options'],
    [() => registerGitTools(registry, { workingDirectory: room, sandbox: 'on' }), 'options.sandbox'],
  ]
  for (const [bad, path] of table) {
    assert.throws(bad, (e) => e.code === 'CONFIG_VALIDATION' && e.issues[0].path === path)
  }
  assert.throws(() => registerBashTool({}, { workingDirectory: room }), { code: 'CONFIG_VALIDATION' })
})

test('a working directory may be made later; until then every tool says that it is missing', async () => {
  const registry = createToolRegistry()
  const workingDirectory = join(room, 'made', 'later')
  for (const register of [registerFilesystemTools, registerGitTools]) register(registry, { workingDirectory })
  const calls = [
    call('fs_list'),
    call('fs_read', { path: 'a' }),
    call('fs_glob', { pattern: '*' }),
    call('fs_grep', { pattern: 'x' }),
    call('fs_stat', { path: 'a' }),
    call('fs_edit', { path: 'a', old_string: 'x', new_string: 'y' }),
    call('fs_delete', { path: 'a' }),
    call('git_status'),
    call('git_log'),
  ]
  for (const request of calls) {
    const { output, isError } = await registry.execute(request)
    const want = `Tool "${request.name}" execution failed: Working directory "${workingDirectory}" does not exist or is not a directory`
    assert.deepEqual([isError, output], [true, want])
  }
  const written = await registry.execute(call('fs_write', { path: 'a', content: 'x' }))
  assert.equal(written.output, 'Wrote 1 bytes to a')
  assert.equal((await registry.execute(call('fs_list'))).output, 'f a')
})

test('what a sandboxed shell leaves for git to run is held to the sandbox of the git tools', async (t) => {
  const target = fileURLToPath(new URL('../target', import.meta.url))
  if (process.platform !== 'linux' || ['/tmp/', '/var/tmp/', '/dev/shm/'].some((place) => target.startsWith(place))) {
    return t.skip('there is no place beside the temporary directories')
  }
  // Cargo may be told to build elsewhere: then nobody has made this directory.
  mkdirSync(target, { recursive: true })
  const outside = mkdtempSync(join(target, 'simse-host-'))
  t.after(() => rmSync(outside, { recursive: true, force: true }))
  const plant = `git init -q . && git config user.name T && git config user.email t@example.org &&
    git config filter.f.clean "sh -c 'touch ${outside}/filter; cat'" && echo 'a filter=f' > .gitattributes && echo 1 > a &&
    printf '#!/bin/sh\ntouch ${outside}/hook\ntouch ran\n' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit`
  const table = [
    ['workspace-write', []],
    ['off', ['filter', 'hook']],
  ]
  for (const [sandbox, want] of table) {
    const { ok } = host({ bash: { sandbox: 'workspace-write' }, git: { sandbox } })
    assert.equal(await ok('bash', { command: plant }), '')
    await ok('git_status')
    await ok('git_diff')
    assert.deepEqual(readdirSync(outside), [])
    await ok('git_commit', { message: 'x' })
    assert.match(await ok('fs_list'), /f ran/)
    assert.deepEqual(readdirSync(outside).sort(), want)
  }
})

const EDITS = [
  ['a\nb\n', 'b', 'c', { replaced: 'a\nc\n', strategy: 'exact' }],
  ['  one\n  two\nx\n', 'one\ntwo', 'three\nfour', { replaced: '  three\n  four\nx\n', strategy: 'line-trimmed' }],
  ['foo\nbar\nfoo\n', 'foo', 'x', null],
  ['anything', '', 'x', null],
  ['a\r\nb\r\n', 'b', 'c', { replaced: 'a\r\nc\r\n', strategy: 'exact' }],
  ['grüße 😀\n', '😀', '$&', { replaced: 'grüße $&\n', strategy: 'exact' }],
  ['nothing like it', 'absent', 'x', null],
]
for (const [content, oldStr, newStr, want] of EDITS) {
  test(`fuzzyMatch(${JSON.stringify(content)}, ${JSON.stringify(oldStr)})`, () => {
    const match = fuzzyMatch(content, oldStr, newStr)
    assert.deepEqual(match && { ...match }, want)
    if (match) assert.ok(Object.isFrozen(match))
  })
}

test('fuzzyMatch leaves lone halves of characters as they are, in the place that it changes and outside of it', () => {
  const every = Array.from({ length: 0xf8ff - 0xe000 + 1 }, (_, i) => String.fromCharCode(0xe000 + i)).join('')
  const table = [
    ['a\ud800b', 'a', 'x', 'x\ud800b', 'exact'],
    ['a\ud800b\udfff\ud800', 'b\udfff', '\udfff\udbff', 'a\ud800\udfff\udbff\ud800', 'exact'],
    ['\ue000\ud800\ue001', '\ud800', '\udc00', '\ue000\udc00\ue001', 'exact'],
    [`${every}\ud83d\ude00\ud83d-`, '-', '+', `${every}\ud83d\ude00\ud83d+`, 'exact'],
    ['\u{f0000}\ud800 \n  a\ud801\n', 'a\ud801', 'b', '\u{f0000}\ud800 \n  b\n', 'exact'],
    ['x\ud800\n\ta \udc01  b\n', 'a \udc01 b', 'c\udc01', 'x\ud800\n\tc\udc01\n', 'whitespace-normalized'],
  ]
  for (const [content, oldStr, newStr, replaced, strategy] of table)
    assert.deepEqual({ ...fuzzyMatch(content, oldStr, newStr) }, { replaced, strategy })
  assert.equal(fuzzyMatch('a\ud800b', '\ud801', 'x'), null, 'another half is another text')
  assert.equal(fuzzyMatch('a\ud800b', '\ufffd', 'x'), null)
})

test('fuzzyMatch takes texts', () => {
  assert.throws(
    () => fuzzyMatch('a', 5, 'b'),
    (e) => e.code === 'CONFIG_VALIDATION' && e.issues[0].path === 'oldStr',
  )
})
