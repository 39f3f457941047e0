/** The agentic loop over a client of this program's own: typescript-api.md §7. */

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import {
  createAgenticLoop,
  createContextPruner,
  createConversation,
  createEventBus,
  createHookSystem,
  createToolPermissionResolver,
  createToolRegistry,
} from '../js/index.js'
import { deferred, define, registryOf } from './support/registry.mjs'

const { stateOf } = createRequire(import.meta.url)('../js/registry.cjs')

const toolUse = (name, args = {}, id = 'call_1') =>
  `<tool_use>\n${JSON.stringify({ id, name, arguments: args })}\n</tool_use>`

/** A client that answers with these, one after the other: a text, pieces, an error to throw, or a generator function. */
function scripted(...replies) {
  const prompts = []
  const asked = []
  let next = 0
  return {
    prompts,
    asked,
    async *generateStream(prompt, options) {
      prompts.push(prompt)
      asked.push(options)
      const reply = replies[Math.min(next++, replies.length - 1)]
      if (typeof reply === 'function') return yield* reply(options)
      if (reply instanceof Error) throw reply
      for (const text of [reply].flat()) yield { type: 'delta', text }
      yield { type: 'complete', usage: { promptTokens: 3, completionTokens: 2, totalTokens: 5 } }
    },
  }
}

/** A loop, and all that it publishes. */
function looped(acpClient, more = {}) {
  const eventBus = createEventBus()
  const events = []
  eventBus.subscribeAll((type, payload) => events.push([type, payload]))
  const conversation = createConversation()
  const toolRegistry = createToolRegistry()
  const options = { acpClient, conversation, toolRegistry, eventBus, ...more }
  const loop = createAgenticLoop(options)
  const types = () => events.map(([type]) => type)
  const of = (type) => events.filter((each) => each[0] === type).map((each) => each[1])
  return { loop, events, types, of, ...options }
}

const coded = (code, more = {}) => Object.assign(new Error(`it is ${code}`), { code, ...more })
const fast = { streamRetry: { baseDelayMs: 1 }, toolRetry: { baseDelayMs: 1 } }

// ── Turns ───────────────────────────────────────────────────────────────────────────────────────

test('an answer: what comes of it, what is asked, what is told', async () => {
  const acpClient = scripted(['Hel', 'lo'])
  const { loop, types, of, conversation } = looped(acpClient, {
    systemPrompt: 'Be brief.',
    serverName: 's',
    agentId: 'a',
    toolRegistry: registryOf({ look: async () => '' }),
  })
  assert.ok(Object.isFrozen(loop))
  const heard = []
  const note =
    (name) =>
    (...args) =>
      heard.push([name, ...args])
  const names = ['onStreamStart', 'onStreamDelta', 'onTurnComplete', 'onError', 'onUsageUpdate', 'onToolCallStart']
  const result = await loop.run('hi', Object.fromEntries(names.map((name) => [name, note(name)])))
  const { totalDurationMs, ...rest } = result
  assert.equal(typeof totalDurationMs, 'number')
  const usage = { promptTokens: 3, completionTokens: 2, totalTokens: 5 }
  const { durationMs } = result.turns[0]
  const turn = { turn: 1, type: 'text', text: 'Hello', usage, durationMs }
  assert.deepEqual(rest, {
    finalText: 'Hello',
    turns: [turn],
    totalTurns: 1,
    hitTurnLimit: false,
    aborted: false,
    totalUsage: usage,
  })
  assert.ok(Object.isFrozen(result) && Object.isFrozen(result.turns))
  assert.deepEqual(heard, [
    ['onStreamStart'],
    ['onStreamDelta', 'Hel'],
    ['onStreamDelta', 'lo'],
    ['onUsageUpdate', usage],
    ['onTurnComplete', turn],
  ])
  assert.deepEqual(types(), [
    'loop.start',
    'stream.start',
    'stream.delta',
    'stream.delta',
    'stream.complete',
    'turn.complete',
    'loop.complete',
  ])
  assert.deepEqual(of('stream.complete'), [{ text: 'Hello' }])
  assert.deepEqual(of('turn.complete'), [{ turn: 1, type: 'text' }])
  assert.deepEqual(of('loop.complete'), [{ totalTurns: 1, hitTurnLimit: false }])
  assert.match(acpClient.prompts[0], /^\[System\]\nBe brief\.\n\n.*Available tools:\n- look: .*\n\n\[User\]\nhi$/s)
  assert.deepEqual(acpClient.asked, [{ serverName: 's', agentId: 'a', newSession: true }])
  assert.deepEqual(
    conversation.toMessages().map(({ role, content }) => [role, content]),
    [
      ['user', 'hi'],
      ['assistant', 'Hello'],
    ],
  )
})

test('calls run, their results go back, several through batchExecute; ids are made unique', async () => {
  const batches = []
  const inner = registryOf({ add: async ({ n }) => String(n + 1), look: async () => 'seen' })
  const toolRegistry = {
    ...inner,
    batchExecute: (calls, options) => {
      batches.push(calls.map(({ id }) => id))
      return inner.batchExecute(calls, options)
    },
  }
  const acpClient = scripted(
    `Wait. ${toolUse('add', { n: 1 })} and ${toolUse('add', { n: 5 })}`,
    toolUse('look'),
    'done',
  )
  const { loop, of, conversation } = looped(acpClient, { toolRegistry })
  const ended = []
  const result = await loop.run('go', { onToolCallEnd: ({ id, output }) => ended.push([id, output]) })
  assert.equal(result.finalText, 'done')
  assert.deepEqual(batches, [['call_1', 'call_1_2']])
  assert.deepEqual(
    result.turns.map(({ type, text, toolCalls, toolResults }) => [
      type,
      text,
      toolCalls?.length,
      toolResults?.map((r) => r.output),
    ]),
    [
      ['tool_use', 'Wait.  and', 2, ['2', '6']],
      ['tool_use', '', 1, ['seen']],
      ['text', 'done', undefined, undefined],
    ],
  )
  assert.deepEqual(ended, [
    ['call_1', '2'],
    ['call_1_2', '6'],
    ['call_1_3', 'seen'],
  ])
  const callIds = (type) => of(type).map(({ callId }) => callId)
  assert.deepEqual(callIds('tool.call.start'), ['call_1', 'call_1_2', 'call_1_3'])
  assert.deepEqual(callIds('tool.call.end'), ['call_1', 'call_1_2', 'call_1_3'])
  assert.match(acpClient.prompts[1], /\[Tool Result: add\]\n2\n\n\[Tool Result: add\]\n6$/)
  assert.equal(conversation.messageCount, 7)
  assert.deepEqual(result.totalUsage, { promptTokens: 9, completionTokens: 6, totalTokens: 15 })
})

for (const [what, make] of [
  ['one bus for both', (bus) => createToolRegistry({ eventBus: bus })],
  ['a registry without a bus', () => createToolRegistry()],
  ['a registry with a bus of its own', () => createToolRegistry({ eventBus: createEventBus() })],
  ['a registry in another object', (bus) => ({ ...createToolRegistry({ eventBus: bus }) })],
  ['one in another object, with a bus of its own', () => ({ ...createToolRegistry({ eventBus: createEventBus() }) })],
]) {
  test(`every call has one start and one end: ${what}`, async () => {
    const eventBus = createEventBus()
    const toolRegistry = make(eventBus)
    toolRegistry.register(define('look'), async () => 'seen')
    const replies = [toolUse('look') + toolUse('none'), toolUse('look'), 'done']
    const { loop, of } = looped(scripted(...replies), { toolRegistry, eventBus })
    const events = []
    eventBus.subscribeAll((type, payload) => events.push([type, payload]))
    const heard = []
    await loop.run('go', {
      onToolCallStart: ({ id, name }) => heard.push(['start', id, name]),
      onToolCallEnd: ({ id, isError }) => heard.push(['end', id, isError]),
    })
    void of
    const count = (type) => events.filter((each) => each[0] === type).length
    assert.deepEqual(['tool.call.start', 'tool.call.end', 'tool.call.error'].map(count), [3, 3, 1])
    assert.deepEqual(heard.map(([kind]) => kind).sort(), ['end', 'end', 'end', 'start', 'start', 'start'])
    assert.deepEqual(
      heard
        .filter(([kind]) => kind === 'end')
        .map(([, , isError]) => isError)
        .sort(),
      [false, false, true],
    )
    // Nothing hears on after the run.
    await toolRegistry.execute({ id: 'later', name: 'look', arguments: {} })
    assert.equal(heard.length, 6)
  })
}

test('a limit of turns resolves and says so', async () => {
  let n = 0
  const toolRegistry = registryOf({ look: async () => 'seen' })
  const acpClient = scripted(async function* () {
    yield { type: 'delta', text: `step ${++n} ${toolUse('look', { n })}` }
  })
  const { loop, of } = looped(acpClient, { toolRegistry, maxTurns: 3 })
  const result = await loop.run('go')
  assert.deepEqual([result.totalTurns, result.hitTurnLimit, result.aborted], [3, true, false])
  assert.equal(result.finalText, 'step 3')
  assert.deepEqual(of('loop.complete'), [{ totalTurns: 3, hitTurnLimit: true }])
})

test('a block that cannot be read is told to the model; one that goes on so is stopped', async () => {
  const acpClient = scripted('I call <tool_use>{"name": </tool_use>', 'sorry')
  const first = looped(acpClient)
  const result = await first.loop.run('go')
  assert.equal(result.finalText, 'sorry')
  assert.match(acpClient.prompts[1], /\[User\]\nA <tool_use> block in your reply could not be read/)
  let n = 0
  const never = scripted(async function* () {
    yield { type: 'delta', text: `${++n} <tool_use>{</tool_use>` }
  })
  const second = looped(never)
  const errors = []
  const stopped = await second.loop.run('go', { onError: (error) => errors.push(error) })
  assert.equal(stopped.totalTurns, 4)
  assert.match(stopped.finalText, /^Error: .*cannot be read 4 times in a row/)
  assert.equal(errors[0].code, 'LOOP_ERROR')
})

test('a blank answer is an error with a text', async () => {
  for (const blank of ['', ' \n ']) {
    const { loop, conversation } = looped(scripted(blank))
    const errors = []
    const result = await loop.run('go', { onError: (error) => errors.push(error.message) })
    assert.equal(result.finalText, 'No response received from model.')
    assert.deepEqual(errors, ['No response received from model.'])
    assert.deepEqual([result.totalTurns, conversation.messageCount], [1, 1])
  }
})

// ── What goes wrong ─────────────────────────────────────────────────────────────────────────────

test('a stream is tried again for its kind of failure only, and what came of it is void', async () => {
  const breaks = (error) =>
    async function* () {
      yield { type: 'delta', text: 'half' }
      throw error
    }
  for (const [error, tries] of [
    [coded('ECONNRESET'), 2],
    [Object.assign(new Error('x'), { status: 529 }), 2],
    [new TypeError('fetch failed', { cause: coded('ECONNREFUSED') }), 2],
    [new Error('network error: timed out, ECONNRESET, 503'), 1],
    [Object.assign(new Error('x'), { status: 400 }), 1],
  ]) {
    const acpClient = scripted(breaks(error), 'whole')
    const { loop, of, conversation } = looped(acpClient, fast)
    const errors = []
    const result = await loop.run('go', { onError: (each) => errors.push(each) })
    assert.equal(acpClient.prompts.length, tries, String(error))
    assert.deepEqual(
      of('stream.retry').map(({ attempt }) => attempt),
      tries === 2 ? [2] : [],
    )
    if (tries === 2) {
      assert.equal(result.finalText, 'whole')
      assert.deepEqual([errors.length, acpClient.prompts[0]], [0, acpClient.prompts[1]])
    } else {
      assert.deepEqual(errors, [error])
      assert.equal(result.finalText, `Error: ${error.message}`)
      assert.equal(conversation.messageCount, 1, 'a failure is no answer')
      assert.deepEqual([result.totalTurns, result.turns.length], [1, 0])
    }
  }
  const dead = scripted(coded('ECONNREFUSED'))
  const third = looped(dead, { streamRetry: { maxAttempts: 3, baseDelayMs: 1 } })
  assert.match((await third.loop.run('go')).finalText, /^Error: it is ECONNREFUSED/)
  assert.equal(dead.prompts.length, 3)
  assert.deepEqual(
    third.of('stream.retry').map(({ delayMs }) => delayMs),
    [1, 2],
  )
})

test('a tool is run again for what its handler threw, never for words in its output', async () => {
  const ran = {}
  const counted = (name, handler) => async () => {
    ran[name] = (ran[name] ?? 0) + 1
    return handler(ran[name])
  }
  const fail = (error) => {
    throw error
  }
  const toolRegistry = registryOf({
    recovers: counted('recovers', (n) => (n === 1 ? fail(coded('ECONNRESET')) : 'fine')),
    never: counted('never', () => fail(coded('ETIMEDOUT'))),
    words: counted('words', () => fail(new Error('network timeout ECONNRESET 503'))),
    says: counted('says', () => 'network error, try again'),
    mcp: counted('mcp', () => fail(coded('MCP_TOOL_ERROR', { statusCode: 502 }))),
  })
  const names = ['recovers', 'never', 'words', 'says', 'mcp']
  const acpClient = scripted(names.map((name, i) => toolUse(name, {}, `c${i}`)).join('\n'), 'done')
  const { loop } = looped(acpClient, { toolRegistry, ...fast })
  const { turns } = await loop.run('go')
  assert.deepEqual(ran, { recovers: 2, never: 2, words: 1, says: 1, mcp: 1 })
  assert.deepEqual(
    turns[0].toolResults.map(({ name, isError }) => [name, isError]),
    [
      ['recovers', false],
      ['never', true],
      ['words', true],
      ['says', false],
      ['mcp', true],
    ],
  )
  assert.equal(stateOf(toolRegistry, 'test').thrown.size, 0)
})

test('the same call in a row is not run again, and the model is told', async () => {
  let ran = 0
  let n = 0
  const toolRegistry = registryOf({ look: async () => `seen ${++ran}` })
  const acpClient = scripted(async function* () {
    n += 1
    yield { type: 'delta', text: n > 4 ? 'done' : `step ${n} ${toolUse('look', { at: 1 })}` }
  })
  const { loop, of } = looped(acpClient, { toolRegistry })
  const dooms = []
  const result = await loop.run('go', { onDoomLoop: (...args) => dooms.push(args) })
  assert.equal(result.finalText, 'done')
  assert.equal(ran, 2)
  assert.deepEqual(dooms, [
    ['look', 3],
    ['look', 4],
  ])
  assert.deepEqual(of('loop.doom_loop')[0], { toolName: 'look', callCount: 3, args: { at: 1 } })
  assert.match(acpClient.prompts[3], /\[Tool Result: look\]\nTool "look" execution failed: this same call came 3 times/)
})

test('a client that yields what is no chunk, or no stream at all, fails the run', async () => {
  for (const [reply, want] of [
    [
      async function* () {
        yield { type: 'delta' }
      },
      /text: expected a string, got nothing/,
    ],
    [
      async function* () {
        yield 5
      },
      /expected \{type: 'delta', text\}/,
    ],
  ]) {
    const { loop } = looped(scripted(reply))
    assert.match((await loop.run('go')).finalText, want)
  }
  const { loop } = looped({ generateStream: () => undefined })
  assert.match((await loop.run('go')).finalText, /expected generateStream\(\) to return an async iterable, got nothing/)
})

// ── Ends ────────────────────────────────────────────────────────────────────────────────────────

test('a signal that fired before a turn, in a stream and in a tool ends the run', async () => {
  const before = looped(scripted('x'), { signal: AbortSignal.abort() })
  const first = await before.loop.run('go')
  assert.deepEqual([first.aborted, first.totalTurns, before.acpClient.prompts.length], [true, 0, 0])
  assert.deepEqual(before.types(), ['loop.start', 'abort', 'loop.complete'])

  const controller = new AbortController()
  let left = false
  const streaming = looped(
    scripted(async function* ({ signal }) {
      try {
        yield { type: 'delta', text: 'some' }
        queueMicrotask(() => controller.abort())
        await new Promise((over) => signal.addEventListener('abort', over))
        yield { type: 'delta', text: 'more' }
      } finally {
        left = true
      }
    }),
    { signal: controller.signal },
  )
  const second = await streaming.loop.run('go')
  assert.deepEqual([second.aborted, second.totalTurns, second.finalText], [true, 0, 'some'])
  await new Promise((soon) => setImmediate(soon))
  assert.ok(left)

  const third = new AbortController()
  const begun = deferred()
  const toolRegistry = registryOf({
    wait: (_, { signal }) => {
      begun.resolve()
      return new Promise((_, no) => signal.addEventListener('abort', () => no(signal.reason)))
    },
  })
  const calling = looped(scripted(toolUse('wait'), 'never'), { toolRegistry, signal: third.signal })
  begun.promise.then(() => third.abort())
  const result = await calling.loop.run('go')
  assert.deepEqual([result.aborted, result.turns[0].toolResults[0].isError], [true, true])
  assert.equal(calling.acpClient.prompts.length, 1)

  const deaf = new AbortController()
  const hung = looped(
    scripted(async function* () {
      yield { type: 'delta', text: 'a' }
      deaf.abort()
      await new Promise(() => {})
    }),
    { signal: deaf.signal },
  )
  assert.equal((await hung.loop.run('go')).aborted, true)
})

test('a pause before another try ends with the signal', async () => {
  const controller = new AbortController()
  const acpClient = scripted(coded('ECONNRESET'))
  const { loop, eventBus } = looped(acpClient, { signal: controller.signal, streamRetry: { baseDelayMs: 20_000 } })
  eventBus.subscribe('stream.retry', () => controller.abort())
  assert.equal((await loop.run('go')).aborted, true)
  assert.equal(acpClient.prompts.length, 1)
})

test('one run at a time', async () => {
  const { loop } = looped(scripted('a'))
  const first = loop.run('one')
  await assert.rejects(loop.run('two'), (error) => error.code === 'LOOP_ERROR')
  await first
  await loop.run('three')
})

// ── Hooks, permission, pruning, compaction ──────────────────────────────────────────────────────

test('hooks of the loop are run around prompts and calls, once, whoever else has them', async () => {
  for (const shared of [true, false]) {
    const hooks = createHookSystem()
    const seen = []
    hooks.register('prompt.system.transform', ({ prompt }) => `${prompt}!`)
    hooks.register('prompt.messages.transform', ({ messages }) => [...messages, { role: 'user', content: 'PS' }])
    hooks.register('tool.execute.before', ({ request }) => {
      seen.push(`before ${request.name}`)
      if (request.name === 'no') return { blocked: true, reason: 'not here' }
      return { ...request, arguments: { n: 2 } }
    })
    hooks.register('tool.execute.after', ({ result }) => ({ ...result, output: `<${result.output}>` }))
    hooks.register('tool.result.validate', ({ request }) => (request.name === 'yes' ? ['look again'] : []))
    const toolRegistry = registryOf(
      { yes: async ({ n }) => `n=${n}`, no: async () => 'never' },
      shared ? { hooks } : {},
    )
    const acpClient = scripted(`${toolUse('yes', { n: 1 }, 'a')}${toolUse('no', {}, 'b')}`, 'done')
    const { loop, of } = looped(acpClient, { toolRegistry, hooks, systemPrompt: 'S' })
    const { turns } = await loop.run('go')
    assert.deepEqual(seen.sort(), ['before no', 'before yes'], `shared: ${shared}`)
    const [yes, no] = turns[0].toolResults
    assert.deepEqual([yes.output, yes.isError], ['<n=2>', false])
    assert.match(no.output, /Tool "no" was blocked: not here/)
    assert.equal(no.isError, true)
    assert.match(acpClient.prompts[0], /!\n\n\[User\]\ngo\n\n\[User\]\nPS$/)
    assert.match(acpClient.prompts[1], /\[User\]\nlook again\n\n\[User\]\nPS$/)
    assert.equal(of('tool.call.start').length, 2)
    assert.equal(of('tool.call.end').length, 2)
  }
})

test('calls are judged one by one, and a denial is told', async () => {
  const rules = [{ tool: 'no', policy: 'deny' }]
  const permissionResolver = createToolPermissionResolver({ defaultPolicy: 'allow', rules })
  const toolRegistry = registryOf({ yes: async () => 'ok', no: async () => 'never' }, { permissionResolver })
  const acpClient = scripted(`${toolUse('yes', {}, 'a')}${toolUse('no', {}, 'b')}`, 'done')
  await looped(acpClient, { toolRegistry }).loop.run('go')
  assert.match(
    acpClient.prompts[1],
    /\[Tool Result: yes\]\nok\n\n\[Tool Result: no\]\nPermission denied for tool: "no"$/,
  )
})

test('old outputs go before each round: by the pruner that is given, else as the conversation was set up', async () => {
  const fill = (conversation) => {
    for (const name of ['one', 'two', 'three']) {
      conversation.addUser(name)
      conversation.addToolResult(name, 't', name.repeat(200))
    }
  }
  const contextPruner = createContextPruner({ protectRecentTurns: 1 })
  for (const [options, more, pruned] of [
    [{}, { contextPruner }, 2],
    [{ pruneMinimumTokens: 0, pruneProtectTokens: 0, pruneProtectTurns: 1 }, {}, 2],
    [{}, {}, 0],
  ]) {
    const conversation = createConversation(options)
    fill(conversation)
    const acpClient = scripted('done')
    const { loop, of } = looped(acpClient, { conversation, ...more })
    await loop.run('go')
    assert.equal(acpClient.prompts[0].match(/OUTPUT PRUNED/g)?.length ?? 0, pruned)
    assert.equal(of('compaction.prune').length, pruned > 0 ? 1 : 0)
  }
})

test('a conversation that is too long is summed up once, and what is wanted stays', async () => {
  const generated = []
  const compactionProvider = {
    generate: async (prompt) => {
      generated.push(prompt)
      return { content: 'short' }
    },
  }
  const hooks = createHookSystem()
  hooks.register('session.compacting', ({ summary, messages }) => `${summary} (${messages.length})`)
  const conversation = createConversation({ autoCompactChars: 100 })
  conversation.addUser('x'.repeat(200))
  conversation.addAssistant('y')
  const acpClient = scripted('done')
  const { loop, of } = looped(acpClient, {
    conversation,
    autoCompact: true,
    compactionProvider,
    compactionPrompt: 'Sum up.',
    hooks,
  })
  const summaries = []
  await loop.run('go on', { onCompaction: (summary) => summaries.push(summary) })
  assert.deepEqual(summaries, ['short (2)'])
  assert.match(generated[0], /^Sum up\.\n\n\[User\]\nx+\n\n\[Assistant\]\ny$/)
  assert.match(acpClient.prompts[0], /\[User\]\n\[Conversation summary\]\nshort \(2\)\n\n\[User\]\ngo on$/)
  assert.equal(of('compaction.start')[0].messageCount, 3)
  assert.deepEqual(of('compaction.complete'), [{ summaryLength: 'short (2)'.length }])
})

test('a summary that fails or does not help is not tried again and again; switched off there is none', async () => {
  const long = () => {
    const conversation = createConversation({ autoCompactChars: 10 })
    conversation.addUser('x'.repeat(50))
    return conversation
  }
  const toolRegistry = registryOf({ look: async () => 'seen' })
  const replies = [toolUse('look', { n: 1 }), toolUse('look', { n: 2 }), 'done']
  for (const [generate, autoCompact, want] of [
    [async () => 'a summary that is too long itself', true, 1],
    [
      async () => {
        throw new Error('no')
      },
      true,
      1,
    ],
    [async () => '', true, 1],
    [async () => 'short', false, 0],
  ]) {
    let times = 0
    const compactionProvider = {
      generate: (...args) => {
        times += 1
        return generate(...args)
      },
    }
    const warnings = []
    const logger = { warn: (message) => warnings.push(message) }
    const { loop } = looped(scripted(...replies), {
      conversation: long(),
      toolRegistry,
      autoCompact,
      compactionProvider,
      logger,
    })
    const result = await loop.run('go')
    assert.equal(result.finalText, 'done')
    assert.equal(times, want)
  }
  const byClient = scripted('a summary', 'done')
  const conversation = long()
  await looped(byClient, { conversation, autoCompact: true }).loop.run('go')
  assert.match(byClient.prompts[1], /\[Conversation summary\]\na summary/)
})

// ── Options ─────────────────────────────────────────────────────────────────────────────────────

test('options that do not fit are refused by name', async () => {
  const good = { acpClient: scripted('a'), toolRegistry: createToolRegistry(), conversation: createConversation() }
  for (const [more, path] of [
    [{ acpClient: {} }, 'options.acpClient'],
    [{ toolRegistry: {} }, 'options.toolRegistry'],
    [{ conversation: undefined }, 'options.conversation'],
    [{ maxTurns: 0 }, 'options.maxTurns'],
    [{ maxTurn: 5 }, 'options.maxTurn'],
    [{ streamRetry: { maxAttempts: 0 } }, 'options.streamRetry.maxAttempts'],
    [{ signal: {} }, 'options.signal'],
  ])
    assert.throws(
      () => createAgenticLoop({ ...good, ...more }),
      (error) => error.code === 'CONFIG_VALIDATION' && error.issues.some((issue) => issue.path === path),
      path,
    )
  const { loop } = looped(scripted('a'))
  await assert.rejects(loop.run(5), (error) => error.code === 'CONFIG_VALIDATION')
  await assert.rejects(loop.run('a', { onError: 5 }), (error) => error.issues[0].path === 'callbacks.onError')
})

test('hooks of the loop: a prompt is changed or refused, a run that is done goes on, but not forever', async () => {
  const hooks = createHookSystem()
  const ends = []
  hooks.register('prompt.submit', ({ prompt }) =>
    prompt === 'secret' ? { blocked: true, reason: 'no' } : { prompt: `${prompt}!`, context: ['today'] },
  )
  hooks.register('turn.stop', ({ ended, text, rounds, continued }) => {
    ends.push([ended, text, rounds, continued])
    return text === 'lazy' ? ['work'] : undefined
  })
  const acpClient = scripted('lazy', 'done')
  const { loop, of } = looped(acpClient, { hooks })
  const { finalText, totalTurns } = await loop.run('go')
  assert.deepEqual([finalText, totalTurns], ['done', 2])
  assert.deepEqual(ends, [
    ['completed', 'lazy', 1, 0],
    ['completed', 'done', 2, 1],
  ])
  assert.deepEqual(of('turn.continued'), [{ texts: ['work'] }])
  assert.ok(acpClient.prompts[0].includes('[User]\ngo!\n\n[Added by a hook]\ntoday'))
  assert.ok(acpClient.prompts[1].endsWith('[User]\nwork'))
  const refused = await loop.run('secret')
  assert.deepEqual([refused.totalTurns, acpClient.prompts.length], [0, 2])
  assert.equal(refused.finalText, 'Error: the prompt was blocked by a hook: no')

  const stubborn = createHookSystem()
  stubborn.register('turn.stop', () => ['more'])
  for (const [maxTurns, want] of [
    [3, 3],
    [50, 9],
  ]) {
    const outcome = await looped(scripted('done'), { hooks: stubborn, maxTurns }).loop.run('go')
    assert.deepEqual([outcome.totalTurns, outcome.hitTurnLimit, outcome.finalText], [want, false, 'done'])
  }
})

test('hooks of the loop: a summary is held back, or looks at what a hook says', async () => {
  for (const held of [true, false]) {
    const hooks = createHookSystem()
    hooks.register('session.compact.before', () => (held ? { blocked: true, reason: 'no' } : { focus: 'the docs' }))
    const conversation = createConversation({ autoCompactChars: 10 })
    conversation.addUser('something that is long')
    conversation.addAssistant('something that is as long')
    const acpClient = scripted('a summary', 'done')
    const { loop, of } = looped(acpClient, { hooks, conversation, autoCompact: true })
    await loop.run('go')
    assert.equal(of('compaction.complete').length, held ? 0 : 1)
    assert.equal(acpClient.prompts[0].includes('What it is to keep above all: the docs'), !held)
  }
})
