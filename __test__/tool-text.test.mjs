/** Tool calls as text: typescript-api.md §2. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createToolRegistry } from '../js/index.js'

const registry = createToolRegistry({})
const block = (body) => `<tool_use>${typeof body === 'string' ? body : JSON.stringify(body)}</tool_use>`

test('the prompt: empty without tools; else a sample, a note, a heading, and each tool', () => {
  const tools = createToolRegistry({})
  assert.equal(tools.formatForSystemPrompt(), '')
  const parameters = { k: { type: 'string', description: '', required: true }, k2: { type: 'number', description: '' } }
  tools.register({ name: 'one', description: 'Does one.', parameters }, async () => '')
  tools.register({ name: 'two', description: 'Does two.', parameters: {} }, async () => '')
  const text = tools.formatForSystemPrompt()
  const sample = /<tool_use>\s*(\{.*\})\s*<\/tool_use>/.exec(text)
  assert.deepEqual(Object.keys(JSON.parse(sample[1])), ['id', 'name', 'arguments'])
  assert.match(text, /several/)
  const list = text.slice(text.indexOf('Available tools:'))
  assert.equal(
    list,
    'Available tools:\n- one: Does one.\n  Parameters: k (string, required), k2 (number)\n\n- two: Does two.\n',
  )
})

test('no block: all text, trimmed, inner blank lines kept', () => {
  assert.deepEqual(registry.parseToolCalls('  a\n\n\nb \n'), { text: 'a\n\n\nb', toolCalls: [] })
})

test('blocks are calls; the text is what is left', () => {
  const first = { id: '1', name: 'a', arguments: { x: '</tool_use> "inside" a string \\' } }
  const second = { id: '2', name: 'b', arguments: {} }
  const { text, toolCalls } = registry.parseToolCalls(`Before.\n${block(first)}\n\nBetween.\n${block(second)} After.`)
  assert.deepEqual(toolCalls, [first, second])
  assert.equal(text, 'Before.\n\n\nBetween.\n After.')
  assert.ok(Object.isFrozen(toolCalls))
})

test('an id and arguments are made where they are missing', () => {
  const { toolCalls } = registry.parseToolCalls(block({ name: 'a' }) + block({ name: 'a', id: 5, arguments: null }))
  assert.equal(toolCalls.length, 2)
  for (const made of toolCalls) assert.deepEqual([/^call_\w{10,}$/.test(made.id), made.arguments], [true, {}])
  assert.notEqual(toolCalls[0].id, toolCalls[1].id)
})

test('a block with a name is a call, whatever its arguments are: it fails with words about them', async () => {
  const of = (args) => registry.parseToolCalls(block({ id: '1', name: 'a', arguments: args })).toolCalls[0]
  assert.deepEqual(of('{"q": 1}').arguments, { q: 1 }, 'JSON in a text')
  for (const args of ['q', '[1]', [1], 5, false]) {
    const made = of(args)
    assert.deepEqual(made.arguments, args)
    const { output, isError } = await registry.execute(made)
    assert.ok(isError)
    assert.match(output, /^Tool "a" execution failed: arguments: expected an object, got /)
  }
})

test('a reply that repeats itself is read about as often as it is long', () => {
  const calls = block({ id: '1', name: 'a', arguments: { x: '</tool_use>' } })
  const table = [
    ['<tool_use>\\"</tool_use>', ''],
    ['<tool_use>\\"""</tool_use>', '"</tool_use>'],
    ['<tool_use>{"a":"</tool_use>', ''],
    ['<tool_use>', ''],
    ['<tool_use>x', ''],
    ['<tool_use>x', '</tool_use>'],
    ['<tool_use>{"a":1}', ''],
    ['<tool_use><tool_use>{</tool_use></tool_use>', ''],
  ]
  for (const [block, end] of table) {
    const { toolCalls } = registry.parseToolCalls(calls + block.repeat(40_000) + end)
    assert.equal(toolCalls.length, 1)
  }
})

const MALFORMED = ['{', 'null', '[]', '"text"', '{}', '{"name": 5}', '{"name": ""}', '{"name": "a\nb"}']
for (const body of MALFORMED) {
  test(`a malformed block is in neither, and the next one counts: ${JSON.stringify(body)}`, () => {
    const { text, toolCalls } = registry.parseToolCalls(`x${block(body)}y${block({ id: '1', name: 'good' })}z`)
    assert.deepEqual(
      toolCalls.map((c) => c.name),
      ['good'],
    )
    assert.equal(text, 'xyz')
  })
}

test('a block that nothing closes is in neither, up to the end of its object or of the reply', () => {
  const good = block({ id: '1', name: 'good' })
  const table = [
    ['x <tool_use>{"name": "a"}', 'x', []],
    ['x <tool_use>{"name": "a", "arguments": {"text": "}', 'x', []],
    ['x <tool_use>{"name": "a", "arguments": {"text": "{ } \\" <tool_use>"}} y', 'x  y', []],
    ['x <tool_use>{"name": "a"} y <tool_use>\n {"na', 'x  y', []],
    ['x <tool_use>', 'x', []],
    ['x <tool_use> \n', 'x', []],
    [`${good}x <tool_use>{"name": "a"`, 'x', ['good']],
    // Where a tag opens no object, it is only spoken of.
    ['the tag <tool_use> opens a block', 'the tag <tool_use> opens a block', []],
    [`the tag <tool_use> opens a block: ${good}`, 'the tag <tool_use> opens a block:', ['good']],
    // What stands inside a broken block is no block: it may be a text that the call was to write.
    [`x <tool_use>{"name": "a", "content": "an example: ${good}"} y`, 'x "} y', []],
  ]
  for (const [reply, text, names] of table) {
    const read = registry.parseToolCalls(reply)
    assert.deepEqual([read.text, read.toolCalls.map((c) => c.name)], [text, names], reply)
  }
})

test('tags that are written twice open and close one block', () => {
  const body = '{"id": "1", "name": "a"}'
  const close = '</tool_use>'
  const table = [
    [`x <tool_use><tool_use>${body}${close}${close} y`, 'x  y'],
    [`x <tool_use>\n<tool_use>\n<tool_use>${body}\n${close}\n${close}\n${close}y`, 'x y'],
    [`x <tool_use><tool_use>${body}${close} y`, 'x  y'],
    [`x <tool_use>${body}${close} ${close}`, `x  ${close}`],
  ]
  for (const [reply, text] of table) {
    const read = registry.parseToolCalls(reply)
    assert.deepEqual([read.text, read.toolCalls.map((c) => c.name)], [text, ['a']], reply)
  }
  const broken = registry.parseToolCalls(`x <tool_use><tool_use>{${close}${close} y`)
  assert.deepEqual([broken.text, broken.toolCalls], ['x  y', []])
})

test('a quote that never closes cannot swallow the next block', () => {
  const { toolCalls } = registry.parseToolCalls(`<tool_use>{"name: "a"}</tool_use> ${block({ id: '1', name: 'good' })}`)
  assert.deepEqual(
    toolCalls.map((c) => c.name),
    ['good'],
  )
})

test('a long reply full of open tags is read in time that grows with its length', () => {
  const from = process.hrtime.bigint()
  const { toolCalls } = registry.parseToolCalls(`${'<tool_use>{"a'.repeat(20_000)}\n${block({ id: '1', name: 'x' })}`)
  const ms = Number(process.hrtime.bigint() - from) / 1e6
  assert.ok(toolCalls.length <= 1)
  assert.ok(ms < 1000, `${ms} ms`)
})
