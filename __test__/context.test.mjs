/** Conversations, pruning, prompts by model, instruction files: typescript-api.md §7. */

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import {
  countTokens,
  createContextPruner,
  createConversation,
  createProviderPromptResolver,
  discoverInstructions,
} from '../js/index.js'

const room = realpathSync(mkdtempSync(join(tmpdir(), 'simse-context-')))
after(() => rmSync(room, { recursive: true, force: true }))

const refused = (path) => (error) => error.code === 'CONFIG_VALIDATION' && error.issues.some((i) => i.path === path)

// ── Conversation ────────────────────────────────────────────────────────────────────────────────

test('messages in their order, the system prompt first; as text, as JSON and back', () => {
  const conversation = createConversation({ systemPrompt: 'Be brief.' })
  assert.ok(Object.isFrozen(conversation))
  conversation.addUser('hi')
  conversation.addAssistant('hello')
  conversation.addToolResult('c1', 'fs_read', 'text')
  assert.deepEqual(conversation.toMessages(), [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: 'hello' },
    { role: 'tool_result', content: 'text', toolCallId: 'c1', toolName: 'fs_read' },
  ])
  assert.ok(Object.isFrozen(conversation.toMessages()) && conversation.toMessages().every(Object.isFrozen))
  assert.equal(conversation.messageCount, 3)
  assert.equal(
    conversation.serialize(),
    '[System]\nBe brief.\n\n[User]\nhi\n\n[Assistant]\nhello\n\n[Tool Result: fs_read]\ntext',
  )
  const copy = createConversation()
  copy.fromJSON(conversation.toJSON())
  assert.deepEqual(copy.toMessages(), conversation.toMessages())
  assert.equal(copy.getSystemPrompt(), 'Be brief.')
  conversation.setSystemPrompt('Be long.')
  assert.equal(conversation.getSystemPrompt(), 'Be long.')
  conversation.clear()
  assert.deepEqual([conversation.messageCount, conversation.toMessages().length], [0, 1])
  assert.deepEqual(createConversation().toMessages(), [])
  assert.equal(createConversation().serialize(), '')
})

test('replacing and summing up', () => {
  const conversation = createConversation({ systemPrompt: 'old' })
  conversation.replaceMessages([
    { role: 'system', content: 'new' },
    { role: 'user', content: 'a', timestamp: 5 },
    { role: 'tool_result', content: 'b', toolCallId: 'c1' },
  ])
  assert.equal(conversation.getSystemPrompt(), 'new')
  assert.equal(conversation.toMessages()[1].timestamp, 5)
  assert.match(conversation.serialize(), /\[Tool Result: c1\]\nb$/)
  conversation.compact('all of it')
  assert.deepEqual(conversation.toMessages().slice(1), [{ role: 'user', content: '[Conversation summary]\nall of it' }])
})

test('how long it is, and when that is too long', () => {
  const conversation = createConversation({ systemPrompt: 'ab', autoCompactChars: 10, contextWindowTokens: 5 })
  conversation.addUser('12345678')
  assert.deepEqual(
    [conversation.estimatedChars, conversation.estimatedTokens, conversation.contextUsagePercent],
    [10, 3, 60],
  )
  assert.equal(conversation.needsCompaction, false)
  conversation.addUser('1')
  assert.equal(conversation.needsCompaction, true)
  assert.equal(createConversation().contextUsagePercent, 0)
  const counted = createConversation({ tokenEstimator: (text) => text.length * 2, contextWindowTokens: 10 })
  counted.addUser('abcd')
  assert.deepEqual([counted.estimatedTokens, counted.contextUsagePercent, counted.needsCompaction], [8, 80, true])
})

test('a limit of messages never leaves a result without the message that called for it', () => {
  // u a message of the user's, a one of the model's, digits results.
  const told = (story, maxMessages) => {
    const conversation = createConversation({ maxMessages })
    for (const each of story) {
      if (each === 'u') conversation.addUser('u')
      else if (each === 'a') conversation.addAssistant('a')
      else conversation.addToolResult(each, 't', each)
    }
    return conversation
      .toMessages()
      .map(({ content }) => content)
      .join('')
  }
  for (const [story, max, want] of [
    ['uaua', 0, 'uaua'],
    ['uaua', 4, 'uaua'],
    ['uaua', 3, 'aua'],
    ['ua12ua', 4, 'ua'],
    ['ua12ua', 5, 'a12ua'],
    ['ua1', 1, 'a1'],
    ['ua123', 2, 'a123'],
  ])
    assert.equal(told(story, max), want, `${story} ${max}`)
})

test('what is no conversation is refused, and changes nothing', () => {
  const conversation = createConversation()
  conversation.addUser('a')
  assert.throws(() => conversation.addUser(5), refused('content'))
  assert.throws(() => conversation.fromJSON('{'), refused(''))
  assert.throws(() => conversation.fromJSON('{"messages":[{"role":"robot","content":""}]}'), refused('messages.0.role'))
  assert.throws(() => conversation.replaceMessages([{ role: 'user' }]), refused('messages.0.content'))
  assert.throws(() => createConversation({ maxMessage: 5 }), refused('options.maxMessage'))
  assert.throws(() => createConversation({ maxMessages: -1 }), refused('options.maxMessages'))
  assert.deepEqual(conversation.toMessages(), [{ role: 'user', content: 'a' }])
})

// ── Pruning ─────────────────────────────────────────────────────────────────────────────────────

const user = (content = 'u') => ({ role: 'user', content })
const output = (content, toolName = 't') => ({ role: 'tool_result', content, toolCallId: 'c', toolName, timestamp: 7 })
const long = (units) => 'x'.repeat(units)
/** Which of the messages were pruned. */
const gone = (messages, options) => {
  const pruned = createContextPruner(options).prune(messages)
  return pruned === messages ? 'same' : pruned.flatMap((each, i) => (each === messages[i] ? [] : [i]))
}

test('old outputs go, and nothing else', () => {
  const messages = [user(), output('ä😀'.repeat(100)), user(), output(long(300)), user(), output(long(300)), user()]
  const pruned = createContextPruner().prune(messages)
  assert.deepEqual(pruned[1], { ...messages[1], content: '[OUTPUT PRUNED — 300 chars]' })
  assert.deepEqual(gone(messages), [1, 3])
  assert.ok(Object.isFrozen(pruned))
  assert.equal(createContextPruner().prune(pruned), pruned, 'nothing is left to prune')
  const image = { type: 'image', mediaType: 'image/png', data: 'AAAA' }
  const shown = [{ ...output(long(300)), parts: [image] }, output('n'), user(), user()]
  assert.equal(createContextPruner().prune(shown)[0].parts, undefined)
})

test('what is spared', () => {
  const turns = (...outputs) => outputs.flatMap((each) => [user(), each])
  const three = turns(output(long(300)), output(long(300)), output(long(300)), output(long(300)))
  for (const [messages, options, want] of [
    // With fewer turns than are spared, nothing goes.
    [turns(output(long(300)), output(long(300))), {}, 'same'],
    [three, {}, [1, 3]],
    [three, { protectRecentTurns: 0 }, [1, 3, 5]],
    [three, { protectRecentTurns: 9 }, 'same'],
    [three, { pruneMinimumTokens: 151 }, 'same'],
    [three, { pruneMinimumTokens: 150 }, [1, 3]],
    [three, { pruneProtectTokens: 75 }, [1]],
    [turns(output(long(199)), output('n'), output('n')), {}, 'same'],
    [
      turns(output(long(300), 'keep'), output(long(300)), output('n'), output('n')),
      { pruneProtectedTools: ['keep'] },
      [3],
    ],
    // Nothing before a summary, whatever its mark.
    [[output(long(300)), user('[SUMMARY] a'), output(long(300)), user(), user(), output('n')], {}, [2]],
    [[output(long(300)), user('[Conversation summary]\na'), output(long(300)), user(), user(), output('n')], {}, [2]],
    [[], {}, 'same'],
  ])
    assert.deepEqual(gone(messages, options), want, JSON.stringify(options))
  assert.throws(() => createContextPruner({ protect: 1 }), refused('options.protect'))
  assert.throws(() => createContextPruner().prune([{ role: 'user' }]), refused('messages.0.content'))
})

test('a pruner of a conversation that grows says what a new one says', () => {
  const options = { pruneProtectTokens: 500, pruneMinimumTokens: 300, pruneProtectedTools: ['keep'] }
  const pruner = createContextPruner(options)
  // A fixed mix of all that matters; every message is frozen, so what was seen is not looked at again.
  const next = (n) => {
    const at = (n * 7919) % 23
    if (at < 5) return user()
    if (at === 5) return n % 3 === 0 ? user('[SUMMARY] all') : { role: 'assistant', content: '[Conversation summary]' }
    if (at < 8) return { role: 'assistant', content: 'so' }
    if (at === 8) return output(long(900), 'keep')
    if (at === 9) return output('[OUTPUT PRUNED — 900 chars]')
    return output(long((n * 131) % 900))
  }
  let [all, pruned] = [[], 0]
  for (let n = 0; n < 400; n++) {
    all = [...all, Object.freeze(next(n))]
    const [grown, anew] = [pruner.prune(all), createContextPruner(options).prune(all)]
    assert.deepEqual(grown, anew, `after ${n}`)
    assert.equal(grown === all, anew === all)
    if (grown !== all) pruned++
    // Another conversation in between, a shorter one, and one whose messages somebody changed.
    if (n % 50 === 0) assert.equal(pruner.prune([user()]).length, 1)
  }
  assert.ok(pruned > 50, `${pruned}`)
  const open = [user(), output(long(900)), user(), output('n'), user()]
  assert.notEqual(createContextPruner().prune(open), open)
  const changing = createContextPruner()
  assert.notEqual(changing.prune(open), open)
  open[1].content = 'short'
  assert.equal(changing.prune(open), open, 'what is not frozen is looked at again')
})

test('tokens as the model counts them', () => {
  const code = 'fn main() {\n    println!("{}", 12345 + x);\n}\n'
  for (const [text, model, want] of [
    ['hello world', 'openai/gpt-5', 2],
    ['', 'openai/gpt-5', 0],
    [code, 'gpt-4o', 14],
    [code, 'openai/gpt-4', 14],
    [code, 'ollama/qwen3-coder', 17],
    ['Straße 東京 🙂', 'o3', 4],
    ['12345678', 'demo/scripted', 2],
  ])
    assert.equal(countTokens(text, { model }), want, `${model} ${text}`)
  const counted = createConversation({
    tokenEstimator: (text) => countTokens(text, { model: 'openai/gpt-5' }),
    contextWindowTokens: 20,
  })
  counted.addUser('hello world')
  assert.deepEqual([counted.estimatedTokens, counted.contextUsagePercent], [2, 10])
  assert.throws(() => countTokens(5, { model: 'a' }), refused('text'))
  assert.throws(() => countTokens('a', { modell: 'a' }), refused('options.modell'))
  assert.throws(() => countTokens('a', { model: '' }), refused('options.model'))
})

// ── Prompts and instructions ────────────────────────────────────────────────────────────────────

test('the first pattern that fits a model wins', () => {
  const prompts = { 'openai/gpt-?': 'short', 'openai/*': 'any', 'openai/gpt-5': 'never' }
  const { resolve } = createProviderPromptResolver({ prompts, defaultPrompt: 'default' })
  assert.deepEqual(['openai/gpt-5', 'openai/gpt-55', 'a/b', 'xopenai/gpt-5'].map(resolve), [
    'short',
    'any',
    'default',
    'default',
  ])
  assert.equal(createProviderPromptResolver({}).resolve('a/b'), '')
  assert.throws(() => createProviderPromptResolver({ prompt: 'a' }), refused('config.prompt'))
})

test('instruction files of one directory, in the order of the patterns, never from outside', async () => {
  const rootDir = join(room, 'project')
  mkdirSync(join(rootDir, '.simse'), { recursive: true })
  mkdirSync(join(rootDir, 'sub'))
  writeFileSync(join(room, 'AGENTS.md'), 'above')
  writeFileSync(join(rootDir, 'AGENTS.md'), 'agents')
  writeFileSync(join(rootDir, '.simse/instructions.md'), 'own')
  writeFileSync(join(rootDir, 'sub/AGENTS.md'), 'deep')
  symlinkSync(join(room, 'AGENTS.md'), join(rootDir, 'LINK.md'))
  const found = await discoverInstructions({ rootDir })
  assert.deepEqual(found, [
    { path: join(rootDir, 'AGENTS.md'), content: 'agents' },
    { path: join(rootDir, '.simse/instructions.md'), content: 'own' },
  ])
  assert.ok(Object.isFrozen(found) && found.every(Object.isFrozen))
  const patterns = ['sub/AGENTS.md', '../AGENTS.md', 'LINK.md', 'none.md', 'AGENTS.md']
  const named = await discoverInstructions({ rootDir, patterns, autoInject: false })
  assert.deepEqual(
    named.map(({ content }) => content),
    ['deep', 'agents'],
  )
  assert.deepEqual(await discoverInstructions({ rootDir: join(room, 'none') }), [])
  writeFileSync(join(rootDir, 'sub/style.md'), 'style\n@AGENTS.md\n@../../AGENTS.md\n')
  writeFileSync(join(rootDir, 'AGENTS.md'), 'agents\n@sub/style.md\n')
  const [importing] = await discoverInstructions({ rootDir })
  assert.equal(importing.content, 'agents\nstyle\ndeep\n@../../AGENTS.md\n')
  await assert.rejects(discoverInstructions({}), refused('options.rootDir'))
})
