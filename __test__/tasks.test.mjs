/** `createTaskList` and `registerTaskTools`. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createTaskList, createToolRegistry, registerTaskTools } from '../js/index.js'
import { call } from './support/registry.mjs'

const code = (expected) => (error) => {
  assert.equal(error.code, expected, error.message)
  return true
}

test('tasks wait for each other until those are completed', () => {
  const tasks = createTaskList()
  const first = tasks.create({ subject: 'build', description: 'all of it', metadata: { a: 1, b: 2 } })
  const second = tasks.create({ subject: 'test', blockedBy: [first.id], owner: 'me' })
  const third = tasks.create({ subject: 'plan', blocks: [first.id] })
  assert.deepEqual([first.id, second.id, third.id, tasks.taskCount], ['1', '2', '3', 3])
  assert.deepEqual(tasks.get('1').blockedBy, ['3'])
  assert.deepEqual(tasks.get('1').blocks, ['2'])
  const names = (all) => all.map(({ subject }) => subject)
  assert.deepEqual(names(tasks.listAvailable()), ['plan'])
  assert.deepEqual(names(tasks.listBlocked()), ['build', 'test'])
  tasks.update('3', { status: 'completed' })
  assert.deepEqual(names(tasks.listAvailable()), ['build'])
  const changed = tasks.update('1', { status: 'in_progress', metadata: { a: null, c: 3 }, activeForm: 'Building' })
  assert.deepEqual(
    [changed.status, changed.metadata, changed.activeForm, changed.description],
    ['in_progress', { b: 2, c: 3 }, 'Building', 'all of it'],
  )
  assert.deepEqual(names(tasks.listAvailable()), [])
  assert.equal('owner' in tasks.update('2', { owner: '' }), false)
  assert.deepEqual([tasks.delete('1'), tasks.delete('1'), tasks.get('2').blockedBy], [true, false, []])
  assert.equal(tasks.create({ subject: 'more' }).id, '4', 'an id is not given twice')
  tasks.clear()
  assert.deepEqual([tasks.taskCount, tasks.list()], [0, []])
})

test('what is handed out is frozen and no way in', () => {
  const tasks = createTaskList()
  const facts = { list: [1] }
  const task = tasks.create({ subject: 's', metadata: facts })
  facts.list.push(2)
  for (const frozen of [task, task.blocks, task.blockedBy, task.metadata, tasks.list()])
    assert.ok(Object.isFrozen(frozen))
  task.metadata.list.push(3)
  assert.deepEqual(tasks.get('1').metadata, { list: [1] })
})

test('no task waits for itself, and what is refused has changed nothing', () => {
  const seen = []
  const tasks = createTaskList({ maxTasks: 4, onTaskChange: ({ id }, action) => seen.push(`${action} ${id}`) })
  for (const subject of ['a', 'b', 'c']) tasks.create({ subject })
  tasks.update('2', { addBlockedBy: ['1'] })
  tasks.update('3', { addBlockedBy: ['2'] })
  const before = JSON.stringify(tasks.list())
  seen.length = 0
  for (const [id, change] of [
    ['1', { addBlockedBy: ['1'] }],
    ['1', { addBlockedBy: ['3'], subject: 'other' }],
    ['3', { addBlocks: ['1'], status: 'completed' }],
  ])
    assert.throws(() => tasks.update(id, change), code('TASK_CIRCULAR_DEPENDENCY'))
  assert.throws(
    () => tasks.update('1', { addBlockedBy: ['3'] }),
    (error) => error.message === 'task 1 waits for 3 waits for 2 waits for 1',
  )
  assert.throws(() => tasks.create({ subject: 'd', blocks: ['1'], blockedBy: ['3'] }), code('TASK_CIRCULAR_DEPENDENCY'))
  for (const change of [{ addBlocks: ['9'] }, { addBlockedBy: ['2', '9'] }, { removeBlocks: ['9'] }])
    assert.throws(() => tasks.update('1', { subject: 'x', ...change }), code('TASK_NOT_FOUND'))
  assert.throws(() => tasks.update('9', {}), code('TASK_NOT_FOUND'))
  assert.equal(JSON.stringify(tasks.list()), before)
  assert.equal(tasks.create({ subject: 'd' }).id, '4', 'what was refused has used no id')
  assert.throws(() => tasks.create({ subject: 'e' }), code('TASK_LIMIT'))
  assert.deepEqual(seen, ['create 4'])
  tasks.update('2', { removeBlockedBy: ['1'] })
  tasks.update('1', { addBlockedBy: ['3'] })
  tasks.delete('4')
  assert.deepEqual(seen, ['create 4', 'update 2', 'update 1', 'delete 4'])
})

test('input that does not fit names the field', () => {
  const tasks = createTaskList()
  for (const [input, path] of [
    [{}, 'subject'],
    [{ subject: '' }, 'subject'],
    [{ subject: 'x'.repeat(50_001) }, 'subject'],
    [{ subject: 's', metadata: [] }, 'metadata'],
    [{ subject: 's', blockedBy: [1] }, 'blockedBy.0'],
    [{ subject: 's', urgent: true }, 'urgent'],
  ])
    assert.throws(
      () => tasks.create(input),
      (error) => error.code === 'CONFIG_VALIDATION' && error.issues[0].path === path,
    )
  tasks.create({ subject: 's' })
  assert.throws(() => tasks.update('1', { status: 'done' }), code('CONFIG_VALIDATION'))
  assert.throws(() => createTaskList({ maxTasks: 0 }), code('CONFIG_VALIDATION'))
  assert.throws(() => registerTaskTools(createToolRegistry(), {}), code('CONFIG_VALIDATION'))
})

test('a function that hears of changes and throws is no failure of the change', (t) => {
  const warn = t.mock.method(console, 'warn', () => {})
  const tasks = createTaskList({
    onTaskChange() {
      throw new Error('broken')
    },
  })
  assert.equal(tasks.create({ subject: 's' }).id, '1')
  assert.equal(warn.mock.callCount(), 1)
})

test('a model keeps the list by tools, and an unknown id is an error', async () => {
  const registry = createToolRegistry()
  const tasks = createTaskList()
  registerTaskTools(registry, tasks)
  assert.deepEqual(registry.toolNames, ['task_create', 'task_update', 'task_get', 'task_list', 'task_delete'])
  const run = async (name, args = {}) => registry.execute(call(name, args))
  assert.equal((await run('task_list')).output, 'There are no tasks.')
  assert.equal((await run('task_create', { subject: 'build' })).output, 'Created #1 [pending] build')
  const second = await run('task_create', { subject: 'test', description: 'all', blockedBy: ['1'], owner: 'me' })
  assert.equal(second.output, 'Created #2 [pending] test\nOwner: me\nWaits for: #1\n\nall')
  assert.equal((await run('task_list')).output, '#1 [pending] build\n#2 [pending] test (me) waits for #1')
  assert.match((await run('task_update', { id: '1', status: 'completed' })).output, /^Updated #1 \[completed\] build/)
  assert.equal((await run('task_list')).output, '#1 [completed] build\n#2 [pending] test (me)')
  assert.equal((await run('task_get', { id: '1' })).output, '#1 [completed] build\nComes before: #2')
  for (const [name, args] of [
    ['task_get', { id: '9' }],
    ['task_update', { id: '9', status: 'completed' }],
    ['task_delete', { id: '9' }],
    ['task_update', { id: '1', addBlockedBy: ['9'] }],
    ['task_update', { id: '1', addBlockedBy: ['2'] }],
    ['task_update', { id: '1', status: 'done' }],
    ['task_create', {}],
  ]) {
    const result = await run(name, args)
    assert.equal(result.isError, true, `${name} ${JSON.stringify(args)}: ${result.output}`)
  }
  assert.equal((await run('task_delete', { id: '2' })).output, 'Deleted #2')
  assert.equal(tasks.taskCount, 1)
})
