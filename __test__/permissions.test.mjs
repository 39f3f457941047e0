/** Permission resolvers: typescript-api.md §3, as JavaScript sees them. */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { mock, test } from 'node:test'
import {
  createEventBus,
  createToolPermissionResolver,
  createToolRegistry,
  registerBashTool,
  registerExecTools,
  registerFilesystemTools,
  registerGitTools,
} from '../js/index.js'
import { call, define, registryOf } from './support/registry.mjs'

const allow = (tool, pattern) => ({ tool, policy: 'allow', ...(pattern && { pattern }) })
const deny = (tool, pattern) => ({ tool, policy: 'deny', ...(pattern && { pattern }) })
const command = (text) => ({ id: '1', name: 'bash', arguments: { command: text } })
const resolver = (defaultPolicy, ...rules) => createToolPermissionResolver({ defaultPolicy, rules })

const COMMANDS = [
  // rules, default deny; command; allowed?
  [[allow('bash', 'git *')], 'git status', true],
  [[allow('bash', 'git *')], 'git status; rm -rf /', false],
  [[allow('bash', 'git *')], 'git log | sh', false],
  [[allow('bash', 'git *')], 'git $(rm -rf /)', false],
  [[allow('bash', 'git *')], 'git status && git log', true],
  [[allow('bash', 'git *')], 'GIT_SSH_COMMAND=evil git fetch', false],
  [[allow('bash', 'git status *')], 'git status', true],
  [[allow('bash', 'git status *')], 'git statusx', false],
  [[allow('bash', 'echo *')], 'echo "unclosed', false],
  [[allow('bash'), deny('bash', 'rm *')], 'rm -rf /', false],
  [[allow('bash'), deny('bash', 'rm *')], 'r\\m -rf /', false],
  [[allow('bash'), deny('bash', 'rm *')], '"rm" -rf /', false],
  [[allow('bash'), deny('bash', 'rm *')], 'X=1 rm -rf /', false],
  [[allow('bash'), deny('bash', 'rm *')], 'ls; rm x', false],
  [[allow('bash'), deny('bash', 'rm *')], 'ls', true],
  [[deny('bash', 'git *'), allow('bash', 'git status')], 'git status', true],
  [[deny('*'), allow('b?sh')], 'ls', true],
]
for (const [rules, text, allowed] of COMMANDS) {
  test(`${rules.map((r) => `${r.policy} ${r.tool} ${r.pattern ?? ''}`).join(', ')}: ${text} → ${allowed}`, async () => {
    assert.equal(await resolver('deny', ...rules).check(command(text)), allowed)
    const registry = registryOf({ bash: async () => 'ran' }, { permissionResolver: resolver('deny', ...rules) })
    const result = await registry.execute(command(text))
    assert.deepEqual(
      [result.output, result.isError],
      allowed ? ['ran', false] : ['Permission denied for tool: "bash"', true],
    )
    if (!allowed) assert.equal(result.durationMs, undefined)
  })
}

test('what cannot be judged is no, never a rejection; a definition needs only what rules look at', async (t) => {
  const warn = t.mock.method(console, 'warn', () => {})
  const judge = resolver('allow', { tool: 'a', policy: 'deny', category: 'edit' })
  assert.equal(await judge.check(call('a', { big: 1n })), false)
  assert.equal(await judge.check({ id: 5, name: 'a', arguments: {} }), false)
  assert.equal(await judge.check(call('a'), { category: 'bogus' }), false)
  assert.equal(warn.mock.callCount(), 3)
  for (const { arguments: said } of warn.mock.calls)
    assert.match(said[0], /^simse: a call of tool "a" cannot be judged/)
  assert.equal(await judge.check(call('a'), { category: 'edit' }), false)
  assert.equal(await judge.check(call('a'), { category: 'read' }), true)
  assert.equal(await judge.check(call('a'), {}), true)
})

test('categories and annotations narrow a rule', async () => {
  const rules = [
    { tool: '*', policy: 'allow', category: ['read', 'search'] },
    { tool: '*', policy: 'deny', annotations: { destructive: true } },
  ]
  const judge = resolver('deny', ...rules)
  const table = [
    [define('a', { category: 'read' }), true],
    [define('a', { category: 'edit' }), false],
    [define('a'), false],
    [define('a', { category: 'search', annotations: { destructive: true } }), false],
    [undefined, false],
  ]
  for (const [definition, allowed] of table) assert.equal(await judge.check(call('a'), definition), allowed)
})

test('a path is judged after it is resolved', async () => {
  const judge = resolver('deny', allow('fs_*', '/tmp/work/*'))
  const path = (text) => ({ id: '1', name: 'fs_read', arguments: { path: text } })
  assert.equal(await judge.check(path('/tmp/work/../../etc/passwd')), false)
  assert.equal(await judge.check(path('/tmp/other')), false)
})

test('what a rule denies by name is passed over by searches, and not moved with its directory', async () => {
  const home = mkdtempSync(join(tmpdir(), 'simse-veil-'))
  try {
    mkdirSync(join(home, 'sec'))
    writeFileSync(join(home, 'sec', 'k'), 'key\n')
    writeFileSync(join(home, '.env'), 'key\n')
    writeFileSync(join(home, 'open'), 'key\n')
    const rules = [allow('*'), deny('fs_*', 'sec/*'), deny('fs_*', '*.env')]
    const registry = createToolRegistry({ permissionResolver: resolver('deny', ...rules) })
    registerFilesystemTools(registry, { workingDirectory: home })
    const run = async (name, args) => (await registry.execute(call(name, args))).output
    assert.equal(await run('fs_grep', { pattern: 'key', hidden: true }), 'open:1: key')
    assert.equal(await run('fs_grep', { pattern: 'key', path: 'sec' }), 'No matches found.')
    assert.equal(await run('fs_glob', { pattern: '**/*', hidden: true }), 'open')
    assert.equal(await run('fs_list', { depth: 2 }), 'f open\nd sec')
    assert.match(await run('fs_read', { path: 'sec/k' }), /Permission denied/)
    assert.match(await run('fs_move', { source: 'sec', destination: 'z' }), /Permission denied/)
    assert.match(await run('fs_delete', { path: 'sec', recursive: true }), /Permission denied/)
    assert.doesNotMatch(await run('fs_move', { source: 'open', destination: 'opened' }), /denied/)
  } finally {
    rmSync(home, { recursive: true })
  }
})

test('ask: nobody to ask is no; only true is yes; an error is no, and said', async () => {
  const warn = mock.method(console, 'warn', () => {})
  try {
    assert.equal(await resolver('ask').check(call('a')), false)
    for (const [answer, allowed] of [
      [async () => true, true],
      [() => true, true],
      [async () => false, false],
      [async () => 'yes', false],
      [async () => undefined, false],
      [
        async () => {
          throw new Error('gone')
        },
        false,
      ],
    ]) {
      const judge = createToolPermissionResolver({ defaultPolicy: 'ask', rules: [], onPermissionRequest: answer })
      assert.equal(await judge.check(call('a')), allowed)
      const registry = registryOf({ a: async () => 'ran' }, { permissionResolver: judge })
      assert.equal((await registry.execute(call('a'))).isError, !allowed)
    }
    assert.equal(warn.mock.callCount(), 2)
    assert.match(String(warn.mock.calls[0].arguments[0]), /gone/)
  } finally {
    warn.mock.restore()
  }
})

test('an ask is on the bus, with its answer, each call of a batch by itself', async () => {
  const eventBus = createEventBus()
  const events = []
  for (const type of ['permission.request', 'permission.response']) {
    eventBus.subscribe(type, (payload) => events.push([type, payload]))
  }
  const permissionResolver = createToolPermissionResolver({
    defaultPolicy: 'ask',
    rules: [],
    onPermissionRequest: async ({ arguments: { n } }) => n % 2 === 0,
  })
  const registry = registryOf({ a: async ({ n }) => String(n) }, { permissionResolver, eventBus })
  const results = await registry.batchExecute(
    [0, 1, 2, 3].map((n) => ({ id: `c${n}`, name: 'a', arguments: { n } })),
    { maxConcurrency: 1 },
  )
  assert.deepEqual(
    results.map((r) => r.isError),
    [false, true, false, true],
  )
  assert.equal(events.length, 8)
  assert.deepEqual(events.slice(0, 2), [
    ['permission.request', { callId: 'c0', toolName: 'a', args: { n: 0 } }],
    ['permission.response', { callId: 'c0', allowed: true }],
  ])
})

test('whoever is asked is told what would happen: the diff of a write', async (t) => {
  const workingDirectory = await mkdtemp(join(tmpdir(), 'simse-ask-'))
  t.after(() => rm(workingDirectory, { recursive: true, force: true }))
  await writeFile(join(workingDirectory, 'a.txt'), 'one\n')
  const eventBus = createEventBus()
  const asked = []
  eventBus.subscribe('permission.request', ({ args, preview }) => asked.push(['event', args.content, preview]))
  const note =
    (who) =>
    async ({ arguments: { content }, preview }) => {
      asked.push([who, content, preview])
      return true
    }
  const onPermissionRequest = note('person')
  for (const [who, permissionResolver] of [
    ['person', createToolPermissionResolver({ defaultPolicy: 'ask', rules: [], onPermissionRequest })],
    ['resolver', { check: note('resolver') }],
  ]) {
    asked.length = 0
    const registry = registryOf({ mine: async () => 'x' }, { permissionResolver, eventBus })
    registerFilesystemTools(registry, { workingDirectory })
    await registry.execute(call('mine', { content: 'plain' }))
    assert.ok(asked.every(([, content, preview]) => content === 'plain' && preview === undefined))
    const content = `two ${who}\n`
    await registry.execute(call('fs_write', { path: 'a.txt', content }))
    const told = asked.filter((each) => each[1] === content)
    assert.deepEqual(
      told.map(([by]) => by),
      who === 'person' ? ['event', 'person'] : ['resolver'],
    )
    for (const [, , preview] of told) {
      assert.deepEqual([preview.path, preview.isNew, preview.added, preview.removed], ['a.txt', false, 1, 1])
      assert.ok(preview.diff.includes(`+${content}`), preview.diff)
    }
  }
})

test('a call that is aborted while somebody is asked about it is aborted, and not refused', async () => {
  const eventBus = createEventBus()
  const errors = []
  eventBus.subscribe('tool.call.error', ({ error }) => errors.push(error.code))
  const open = []
  const onPermissionRequest = () => {
    open.shift()()
    return new Promise(() => {})
  }
  for (const permissionResolver of [
    createToolPermissionResolver({ defaultPolicy: 'ask', rules: [], onPermissionRequest }),
    { check: onPermissionRequest },
  ]) {
    const registry = registryOf({ t: async () => 'ran' }, { permissionResolver, eventBus })
    const controller = new AbortController()
    open.push(() => controller.abort())
    const { output } = await registry.execute(call('t'), { signal: controller.signal })
    assert.equal(output, 'Tool "t" execution failed: aborted')
  }
  assert.deepEqual(errors, ['TOOL_EXECUTION_ERROR', 'TOOL_EXECUTION_ERROR'])
})

test('a resolver of the caller: asked with call and definition; what is not true, or fails, is no', async () => {
  const asked = []
  const warnings = []
  const logger = { warn: (message) => warnings.push(message) }
  const answers = [true, false, 'yes', undefined]
  const permissionResolver = {
    async check(request, definition) {
      asked.push([request, definition])
      if (answers.length === 0) throw new Error('resolver broke')
      return answers.shift()
    },
  }
  const registry = registryOf({ a: async () => 'ran' }, { permissionResolver, logger })
  const results = await registry.batchExecute(
    Array.from({ length: 5 }, () => call('a', { x: 1 })),
    { maxConcurrency: 1 },
  )
  assert.deepEqual(
    results.map((r) => r.output),
    ['ran', ...Array(4).fill('Permission denied for tool: "a"')],
  )
  assert.deepEqual(asked[0][0].arguments, { x: 1 })
  assert.equal(asked[0][1].name, 'a')
  assert.equal(warnings.length, 1)
  assert.match(warnings[0], /"a".*resolver broke/)
})

test('an unknown tool is not found before anybody is asked', async () => {
  let asked = 0
  const permissionResolver = { check: async () => asked++ === 0 }
  assert.equal((await createToolRegistry({ permissionResolver }).execute(call('x'))).output, 'Tool not found: "x"')
  assert.equal(asked, 0)
})

test('what is no configuration is refused with its place', () => {
  const table = [
    [undefined, ''],
    [{ rules: [] }, 'defaultPolicy'],
    [{ defaultPolicy: 'maybe', rules: [] }, 'defaultPolicy'],
    [{ defaultPolicy: 'ask', rules: {} }, 'rules'],
    [{ defaultPolicy: 'ask', rules: [{ policy: 'allow' }] }, 'rules.0.tool'],
    [{ defaultPolicy: 'ask', rules: [{ tool: '*', policy: 'yes' }] }, 'rules.0.policy'],
    [{ defaultPolicy: 'ask', rules: [{ tool: '*', policy: 'allow', category: 'magic' }] }, 'rules.0.category'],
    [{ defaultPolicy: 'allow', rules: [{ tool: '*', policy: 'deny', category: [] }] }, 'rules.0.category'],
    [{ defaultPolicy: 'allow', rules: [{ tool: 'bash', policy: 'deny', pattern: '' }] }, 'rules.0.pattern'],
    [{ defaultPolicy: 'ask', rules: [{ tool: '*', policy: 'allow', patern: 'x' }] }, 'rules.0.patern'],
    [{ defaultPolicy: 'ask', rules: [], onPermissionRequest: true }, 'onPermissionRequest'],
  ]
  for (const [config, path] of table) {
    assert.throws(
      () => createToolPermissionResolver(config),
      (e) => e.code === 'CONFIG_VALIDATION' && e.issues[0].path === path,
    )
  }
  assert.throws(
    () => resolver('allow', { tool: '*', policy: 'deny', category: [] }),
    /at least one of them, got an empty array/,
  )
  assert.ok(Object.isFrozen(resolver('deny')))
})

test('the floor: no rule lifts it, for tools that run commands', async () => {
  const { check, explain } = createToolPermissionResolver({
    defaultPolicy: 'allow',
    rules: [{ tool: '*', policy: 'allow' }],
  })
  const bash = (command) => ({ id: 'c', name: 'bash', arguments: { command } })
  for (const command of [
    'rm -rf /',
    'sudo rm -rf ~',
    "sh -c 'mkfs.ext4 /dev/sda'",
    ':(){ :|:& };:',
    'shutdown -h now',
    'chmod -R 777 /',
  ])
    assert.equal(await check(bash(command)), false, command)
  for (const command of ['rm -rf build', 'echo rm -rf /', 'grep reboot log'])
    assert.equal(await check(bash(command)), true, command)
  assert.equal(await check({ id: 'c', name: 'robot', arguments: { command: 'halt' } }), true)
  assert.equal((await explain(bash('rm -rf /'))).source, 'floor')
})

test('explain: the answer, what it rests on, and each part', async () => {
  const { explain } = createToolPermissionResolver({
    defaultPolicy: 'ask',
    rules: [
      { tool: 'bash', pattern: 'git *', policy: 'allow' },
      { tool: 'bash', pattern: 'rm *', policy: 'deny' },
    ],
  })
  const told = await explain({ name: 'bash', arguments: { command: 'git log; sudo rm x' } })
  assert.deepEqual(told, {
    decision: 'deny',
    source: 'rule',
    rule: 1,
    reason: 'rule 1 (tool "bash", pattern "rm *") denies `rm x`',
    parts: [
      {
        part: 'git log',
        hidden: false,
        decision: 'allow',
        source: 'rule',
        rule: 0,
        reason: 'rule 0 (tool "bash", pattern "git *") allows `git log`',
      },
      {
        part: 'sudo rm x',
        hidden: false,
        decision: 'ask',
        source: 'default',
        reason: 'no rule is about `sudo rm x`; the default is ask',
      },
      {
        part: 'rm x',
        hidden: true,
        decision: 'deny',
        source: 'rule',
        rule: 1,
        reason: 'rule 1 (tool "bash", pattern "rm *") denies `rm x`',
      },
    ],
  })
  assert.ok(Object.isFrozen(told) && Object.isFrozen(told.parts[0]))
  for (const wrong of [undefined, {}, { name: 5 }, { name: 'bash', arguments: 'ls' }])
    await assert.rejects(explain(wrong), { code: 'CONFIG_VALIDATION' })
})

test('explain says why a call could not run at all', async () => {
  const { explain } = createToolPermissionResolver({ defaultPolicy: 'allow', rules: [] })
  const read = (args) => ({ id: '1', name: 'fs_read', arguments: args })
  const parameters = { path: { type: 'string', description: 'Which', required: true } }
  const definition = { name: 'fs_read', description: '', parameters, category: 'read' }
  assert.equal('problem' in (await explain(read({ path: 'a.txt' }), definition)), false)
  const bad = await explain(read({}), definition)
  assert.deepEqual(
    [bad.decision, bad.problem],
    ['allow', 'argument "path" is missing: expected a string (Which), got nothing'],
  )
  const lost = await explain(read({ path: 'none/../../a' }))
  assert.match(
    lost.problem,
    /^the path "none\/\.\.\/\.\.\/a" leads out of the allowed directories, or cannot be resolved$/,
  )
  const standard = { ...definition, parameters: { '~standard': { version: 1, vendor: 'x', validate: () => ({}) } } }
  assert.equal((await explain(read({ path: 'a.txt' }), standard)).decision, 'allow')
})

test('check and explain say what the registry of the definition does', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'simse-judged-'))
  try {
    mkdirSync(join(directory, 'sec'))
    writeFileSync(join(directory, 'sec/k'), 'x')
    symlinkSync('sec', join(directory, 'link'))
    const patch = '*** Begin Patch\n*** Add File: sec/n\n+x\n*** End Patch'
    const rules = [
      deny('*', 'sec/*'),
      allow('bash', 'ls *'),
      allow('exec_command', 'echo *'),
      allow('fs_*'),
      allow('apply_patch'),
    ].toReversed()
    const permissionResolver = createToolPermissionResolver({ defaultPolicy: 'ask', rules })
    const registry = createToolRegistry({ permissionResolver })
    for (const add of [registerFilesystemTools, registerBashTool, registerExecTools, registerGitTools])
      add(registry, { workingDirectory: directory })
    const calls = [
      ['bash', { command: 'ls' }, true],
      ['bash', { command: 'ls', env: { PATH: '/evil' } }, false],
      ['bash', { command: patch }, false],
      ['exec_command', { cmd: 'echo a' }, true],
      ['exec_command', { cmd: 'echo a', shell: './evil.sh' }, false],
      ['fs_list', {}, true],
      ['fs_read', { path: 'sec/k' }, false],
      ['fs_read', { path: 'link/k' }, false],
      ['fs_read', { path: join(directory, 'sec/k') }, false],
      ['Read', { file: 'sec/k' }, false],
      ['fs_glob', { pattern: 'sec/*' }, false],
      ['apply_patch', { input: patch }, false],
      ['fs_move', { from: 'sec', to: 'z' }, false],
    ]
    for (const [name, args, want] of calls) {
      const request = { id: '1', name, arguments: args }
      const what = `${name} ${JSON.stringify(args)}`
      const { isError, output } = await registry.execute(request)
      assert.equal(isError && output.startsWith('Permission denied'), !want, what)
      const own = name === 'Read' ? 'fs_read' : name
      const definition = registry.getToolDefinition(own)
      assert.equal(await permissionResolver.check(request, definition), want, what)
      assert.equal((await permissionResolver.explain(request, definition)).decision === 'allow', want, what)
      // A resolver around it is told the same definition.
      const around = createToolRegistry({
        permissionResolver: { check: (...call) => permissionResolver.check(...call) },
      })
      registerFilesystemTools(around, { workingDirectory: directory })
      const told = around.isRegistered(own) && (await around.execute(request))
      if (told) assert.equal(told.isError && told.output.startsWith('Permission denied'), !want, what)
    }
    const bare = (name, args) => permissionResolver.check({ id: '1', name, arguments: args })
    assert.equal(await bare('bash', { command: 'ls' }), true)
    assert.equal(await bare('bash', { command: 'ls', env: { PATH: '/evil' } }), false)
    assert.equal(await bare('fs_read', { path: join(directory, 'sec/k') }), false)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
})

test('a directory that becomes a link while the question is open leads nowhere', async (t) => {
  const workingDirectory = mkdtempSync(join(tmpdir(), 'simse-swap-'))
  t.after(() => rmSync(workingDirectory, { recursive: true, force: true }))
  const at = (name) => join(workingDirectory, name)
  for (const [name, text] of [
    ['pub', 'open'],
    ['sec', 'secret'],
  ]) {
    mkdirSync(at(name))
    writeFileSync(at(`${name}/f`), text)
  }
  const permissionResolver = createToolPermissionResolver({
    defaultPolicy: 'ask',
    rules: [deny('*', 'sec/*')],
    onPermissionRequest: async () => {
      renameSync(at('pub'), at('away'))
      symlinkSync('sec', at('pub'))
      return true
    },
  })
  const registry = createToolRegistry({ permissionResolver })
  registerFilesystemTools(registry, { workingDirectory })
  const calls = [
    ['fs_read', { path: 'pub/f' }],
    ['fs_write', { path: 'pub/f', content: 'mine' }],
    ['fs_delete', { path: 'pub/f' }],
    ['apply_patch', { patch: '*** Begin Patch\n*** Delete File: pub/f\n*** End Patch' }],
  ]
  for (const [name, given] of calls) {
    const { isError, output } = await registry.execute({ id: '1', name, arguments: given })
    assert.equal(isError, true, output)
    assert.match(output, /changed while the question about it was open/)
    assert.equal(readFileSync(at('sec/f'), 'utf8'), 'secret')
    rmSync(at('pub'))
    renameSync(at('away'), at('pub'))
  }
})

test('a patch typed into a shell is held to what rules say of patches and of edits', async (t) => {
  const workingDirectory = mkdtempSync(join(tmpdir(), 'simse-typed-'))
  t.after(() => rmSync(workingDirectory, { recursive: true, force: true }))
  const patch = (path) => `apply_patch <<'E'\n*** Begin Patch\n*** Add File: ${path}\n+x\n*** End Patch\nE\n`
  for (const [rule, denied] of [
    [deny('apply_patch'), true],
    [deny('apply_patch', 'q*'), true],
    [{ ...deny('*'), category: 'edit' }, true],
    [deny('apply_patch', 'other'), false],
    [deny('fs_write'), false],
  ]) {
    const permissionResolver = resolver('allow', rule)
    const registry = createToolRegistry({ permissionResolver })
    registerBashTool(registry, { workingDirectory })
    registerExecTools(registry, { workingDirectory })
    for (const [name, argument] of [
      ['bash', 'command'],
      ['exec_command', 'cmd'],
    ]) {
      const request = { id: '1', name, arguments: { [argument]: patch(`q-${name}`) } }
      const { isError, output } = await registry.execute(request)
      assert.equal(isError, denied, `${name} ${JSON.stringify(rule)}: ${output}`)
      if (!denied) rmSync(join(workingDirectory, `q-${name}`))
      const command = { id: '2', name, arguments: { [argument]: 'echo hi' } }
      assert.equal((await registry.execute(command)).isError, false, 'no other command is a patch')
    }
  }
})
