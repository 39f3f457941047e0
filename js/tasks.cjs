/**
 * A list of tasks that depend on each other, and the tools by which a model keeps it.
 *
 * Promises: an update is done whole or not at all; no task waits for itself, by whatever way; ids are never given twice; what is
 * handed out is frozen.
 */
'use strict'

const {
  assertFits,
  describe,
  fn,
  having,
  integer,
  list,
  oneOf,
  optional,
  plain,
  shape,
  string,
  text,
} = require('./check.cjs')
const { simseError } = require('./errors.cjs')

const TASKS_MAX = 100
const STATUSES = ['pending', 'in_progress', 'completed']
/** Characters of a text of a task, as many as a model is told of one output. */
const TEXT_MAX = 50_000

const short = (value, path, issues) => {
  text(value, path, issues)
  if (typeof value === 'string' && value.length > TEXT_MAX)
    issues.push({ path, message: `expected at most ${TEXT_MAX} characters, got ${value.length}` })
}
const facts = (value, path, issues) => {
  if (!plain(value)) issues.push({ path, message: `expected an object, got ${describe(value)}` })
}
const ids = optional(list(text))

const OPTIONS = shape({ maxTasks: optional(integer(1, 10_000)), onTaskChange: optional(fn) })
const CREATE = shape({
  subject: short,
  description: optional(string),
  activeForm: optional(string),
  owner: optional(string),
  metadata: optional(facts),
  blocks: ids,
  blockedBy: ids,
})
const UPDATE = shape({
  subject: optional(short),
  description: optional(string),
  activeForm: optional(string),
  owner: optional(string),
  status: optional(oneOf(...STATUSES)),
  metadata: optional(facts),
  addBlocks: ids,
  addBlockedBy: ids,
  removeBlocks: ids,
  removeBlockedBy: ids,
})

const notFound = (id) => simseError('TASK_NOT_FOUND', `no task "${id}"`, { metadata: { taskId: id } })

/** A task as it is handed out. */
function shown(task, blocks) {
  const { id, subject, description, activeForm, owner, status, metadata, blockedBy, createdAt, updatedAt } = task
  return Object.freeze({
    id,
    subject,
    description,
    ...(activeForm !== undefined && { activeForm }),
    ...(owner !== undefined && { owner }),
    status,
    ...(metadata && { metadata: Object.freeze(structuredClone(metadata)) }),
    blocks: Object.freeze([...blocks]),
    blockedBy: Object.freeze([...blockedBy]),
    createdAt,
    updatedAt,
  })
}

/** Facts with changes: `null` takes one away. None are left: nothing. */
function merged(before, changes) {
  if (changes === undefined) return before
  const all = Object.entries({ ...before, ...structuredClone(changes) }).filter(([, value]) => value !== null)
  return all.length > 0 ? Object.fromEntries(all) : undefined
}

/** Creates a task list. */
function createTaskList(options = {}) {
  assertFits('createTaskList', OPTIONS, options)
  const { maxTasks = TASKS_MAX, onTaskChange } = options
  /** id → task; `blockedBy` of each is the one record of who waits for whom. */
  let tasks = new Map()
  let last = 0

  const known = (id, among = tasks) => {
    const task = among.get(id)
    if (task === undefined) throw notFound(id)
    return task
  }
  /** These tasks as they are handed out. */
  function showAll(some) {
    const waiting = new Map()
    for (const { id, blockedBy } of tasks.values())
      for (const before of blockedBy) waiting.set(before, [...(waiting.get(before) ?? []), id])
    return Object.freeze(some.map((task) => shown(task, waiting.get(task.id) ?? [])))
  }
  const show = (task) => showAll([task])[0]
  const open = (task) => [...task.blockedBy].filter((id) => tasks.get(id)?.status !== 'completed')

  function tell(task, action) {
    try {
      onTaskChange?.(task, action)
    } catch (cause) {
      console.warn('simse: an onTaskChange function failed:', cause)
    }
  }

  /** Whoever waits for whom, no task waits for itself. */
  function assertNoCircle(among, from) {
    /** Who led to each: by that the circle is told. */
    const ledBy = new Map()
    const open = [from]
    while (open.length > 0) {
      const id = open.pop()
      for (const next of among.get(id).blockedBy) {
        if (next === from) {
          const circle = [from]
          for (let at = id; at !== undefined; at = at === from ? undefined : ledBy.get(at)) circle.unshift(at)
          const metadata = { taskIds: circle }
          throw simseError('TASK_CIRCULAR_DEPENDENCY', `task ${circle.join(' waits for ')}`, { metadata })
        }
        if (ledBy.has(next)) continue
        ledBy.set(next, id)
        open.push(next)
      }
    }
  }

  /** The tasks as they are once `change` was made to a copy; what fails leaves those that are. */
  function changed(change) {
    const next = new Map([...tasks].map(([id, task]) => [id, { ...task, blockedBy: new Set(task.blockedBy) }]))
    change(next)
    tasks = next
  }

  function link(next, task, { adds = [], addsBy = [], removes = [], removesBy = [] }) {
    for (const id of removes) known(id, next).blockedBy.delete(task.id)
    for (const id of removesBy) {
      known(id, next)
      task.blockedBy.delete(id)
    }
    for (const id of addsBy) {
      known(id, next)
      task.blockedBy.add(id)
    }
    for (const id of adds) known(id, next).blockedBy.add(task.id)
    if (adds.length > 0 || addsBy.length > 0) assertNoCircle(next, task.id)
  }

  function create(input) {
    assertFits('create', CREATE, input)
    if (tasks.size >= maxTasks)
      throw simseError('TASK_LIMIT', `there are ${maxTasks} tasks already: delete some`, { metadata: { maxTasks } })
    const { subject, description = '', activeForm, owner, metadata, blocks: adds, blockedBy: addsBy } = input
    const id = String(last + 1)
    const now = Date.now()
    changed((next) => {
      const task = { id, subject, description, activeForm, owner, status: 'pending', createdAt: now, updatedAt: now }
      task.metadata = merged(undefined, metadata)
      task.blockedBy = new Set()
      next.set(id, task)
      link(next, task, { adds, addsBy })
    })
    last += 1
    const task = show(tasks.get(id))
    tell(task, 'create')
    return task
  }

  function update(id, input) {
    assertFits('update', text, id, 'id')
    assertFits('update', UPDATE, input)
    known(id)
    changed((next) => {
      const task = next.get(id)
      for (const field of ['subject', 'description', 'activeForm', 'owner', 'status'])
        if (input[field] !== undefined) task[field] = input[field]
      // An empty one takes it away.
      for (const field of ['activeForm', 'owner']) if (task[field] === '') task[field] = undefined
      task.metadata = merged(task.metadata, input.metadata)
      task.updatedAt = Date.now()
      const { addBlocks: adds, addBlockedBy: addsBy, removeBlocks: removes, removeBlockedBy: removesBy } = input
      link(next, task, { adds, addsBy, removes, removesBy })
    })
    const task = show(tasks.get(id))
    tell(task, 'update')
    return task
  }

  function remove(id) {
    assertFits('delete', text, id, 'id')
    if (!tasks.has(id)) return false
    const gone = show(tasks.get(id))
    changed((next) => {
      next.delete(id)
      for (const task of next.values()) task.blockedBy.delete(id)
    })
    tell(gone, 'delete')
    return true
  }

  return Object.freeze({
    create,
    update,
    delete: remove,
    get: (id) => (tasks.has(id) ? show(tasks.get(id)) : undefined),
    list: () => showAll([...tasks.values()]),
    listAvailable: () =>
      showAll([...tasks.values()].filter((task) => task.status === 'pending' && open(task).length === 0)),
    listBlocked: () =>
      showAll([...tasks.values()].filter((task) => task.status !== 'completed' && open(task).length > 0)),
    clear() {
      for (const id of [...tasks.keys()]) remove(id)
    },
    get taskCount() {
      return tasks.size
    },
  })
}

const taskList = having('create', 'update', 'delete', 'get', 'list')

const ID = { type: 'string', description: 'The id of the task', required: true }
const IDS = (what) => ({ type: 'array', items: { type: 'string' }, description: what })
const DEFINITIONS = [
  {
    name: 'task_create',
    description:
      'Adds a task to the list of this work. For work of several steps: one task for each step that can be done by itself, before it is begun.',
    parameters: {
      subject: { type: 'string', description: 'What is to be done, in a few words', required: true },
      description: { type: 'string', description: 'What belongs to it, and when it is done' },
      activeForm: { type: 'string', description: 'What is shown while it is worked on, such as "Running tests"' },
      owner: { type: 'string', description: 'Who works on it' },
      blockedBy: IDS('Ids of tasks that come first'),
    },
    category: 'task',
    annotations: {},
  },
  {
    name: 'task_update',
    description:
      'Changes a task: its status (in_progress when it is begun, completed when it is done and checked), its words, its owner, what it waits for.',
    parameters: {
      id: ID,
      status: { type: 'string', enum: STATUSES, description: 'Where it stands' },
      subject: { type: 'string', description: 'Other words for what is to be done' },
      description: { type: 'string', description: 'Another description' },
      activeForm: { type: 'string', description: 'What is shown while it is worked on; empty: nothing' },
      owner: { type: 'string', description: 'Who works on it; empty: nobody' },
      addBlocks: IDS('Ids of tasks that wait for this one from now on'),
      addBlockedBy: IDS('Ids of tasks that this one waits for from now on'),
    },
    category: 'task',
    annotations: {},
  },
  {
    name: 'task_get',
    description: 'Shows a task with all that belongs to it.',
    parameters: { id: ID },
    category: 'task',
    annotations: { readOnly: true },
  },
  {
    name: 'task_list',
    description: 'Shows all tasks: where each stands, who works on it, what it waits for.',
    parameters: {},
    category: 'task',
    annotations: { readOnly: true },
  },
  {
    name: 'task_delete',
    description: 'Takes a task off the list that is no longer to be done.',
    parameters: { id: ID },
    category: 'task',
    annotations: { destructive: true },
  },
]

/** A task in one line. */
function line({ id, subject, status, owner, blockedBy }, done) {
  const waits = blockedBy.filter((other) => !done.has(other))
  return [
    `#${id} [${status}] ${subject}`,
    owner ? ` (${owner})` : '',
    waits.length > 0 ? ` waits for ${waits.map((other) => `#${other}`).join(', ')}` : '',
  ].join('')
}

/** A task in all its words. */
function told(task) {
  const refs = (all) => all.map((id) => `#${id}`).join(', ')
  return [
    `#${task.id} [${task.status}] ${task.subject}`,
    task.owner && `Owner: ${task.owner}`,
    task.blockedBy.length > 0 && `Waits for: ${refs(task.blockedBy)}`,
    task.blocks.length > 0 && `Comes before: ${refs(task.blocks)}`,
    task.metadata && `Facts: ${JSON.stringify(task.metadata)}`,
    task.description && `\n${task.description}`,
  ]
    .filter(Boolean)
    .join('\n')
}

/** Name → handler. */
function handlers(tasks) {
  const known = (id) => {
    const task = tasks.get(id)
    if (task === undefined) throw notFound(id)
    return task
  }
  return {
    task_create: (input) => `Created ${told(tasks.create(input))}`,
    task_update({ id, ...changes }) {
      known(id)
      return `Updated ${told(tasks.update(id, changes))}`
    },
    task_get: ({ id }) => told(known(id)),
    task_list() {
      const all = tasks.list()
      if (all.length === 0) return 'There are no tasks.'
      const done = new Set(all.filter(({ status }) => status === 'completed').map(({ id }) => id))
      return all.map((task) => line(task, done)).join('\n')
    },
    task_delete({ id }) {
      known(id)
      if (tasks.delete(id) !== true) throw notFound(id)
      return `Deleted #${id}`
    },
  }
}

/** `registerTaskTools`; `stateOf` finds what is behind a registry. */
const registrar = (stateOf) => (registry, tasks) => {
  const state = stateOf(registry, 'registerTaskTools')
  assertFits('registerTaskTools', taskList, tasks, 'taskList')
  const run = handlers(tasks)
  for (const definition of DEFINITIONS) state.add(definition, async (input) => run[definition.name](input), 'custom')
}

module.exports = { createTaskList, registrar }
