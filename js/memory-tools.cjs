/** The memory tools over any memory manager: the same names, parameters, words and events as those of the server. */
'use strict'

const { publishTo } = require('./bus.cjs')
const { assertFits, describe, having, plain } = require('./check.cjs')

const manager = having('search', 'add', 'delete')
const RESULTS_MAX = 100

const DEFINITIONS = [
  {
    name: 'memory_search',
    description: 'Searches the long-term memory of this project: what earlier sessions have noted. Best answers first.',
    parameters: {
      query: { type: 'string', description: 'What is looked for, in words', required: true },
      maxResults: { type: 'number', description: 'How many answers at most, 1 to 100' },
    },
    category: 'memory',
    annotations: { readOnly: true },
  },
  {
    name: 'memory_add',
    description:
      'Notes something in the long-term memory of this project, for later sessions: a decision, a convention, how something is done here. One fact, in words that stand for themselves; never a secret.',
    parameters: {
      text: { type: 'string', description: 'What to remember', required: true },
      topic: { type: 'string', description: 'What it is about, in one or two words' },
    },
    category: 'memory',
    annotations: {},
  },
  {
    name: 'memory_delete',
    description: 'Takes a note out of the long-term memory of this project, when it is wrong or out of date.',
    parameters: {
      id: { type: 'string', description: "The note's id, as memory_search gives it", required: true },
    },
    category: 'memory',
    annotations: { destructive: true },
  },
]

/** Answers as a model reads them. */
function told(found) {
  if (found.length === 0) return 'Nothing is remembered about that.'
  return found
    .map(({ entry, score }, i) => {
      const topic = entry.metadata?.topic ? `[${entry.metadata.topic}] ` : ''
      return `${i + 1}. ${topic}(score: ${score.toFixed(2)}, id: ${entry.id})\n   ${entry.text.replaceAll('\n', '\n   ')}`
    })
    .join('\n\n')
}

/** What a manager answered, or why it cannot be used. */
function checked(found) {
  const usable =
    Array.isArray(found) &&
    found.every(({ entry, score } = {}) => plain(entry) && typeof entry.text === 'string' && typeof score === 'number')
  if (!usable)
    throw new Error(`expected the memory manager to answer with a list of {entry, score}, got ${describe(found)}`)
  return found
}

function filled(text, name) {
  if (text.trim() === '') throw new Error(`\`${name}\`: expected a text that is not empty`)
  return text
}

/** Name → handler. */
function handlers(memory, bus) {
  return {
    async memory_search({ query, maxResults }) {
      filled(query, 'query')
      if (maxResults != null && !(Number.isInteger(maxResults) && maxResults >= 1 && maxResults <= RESULTS_MAX))
        throw new Error(`\`maxResults\`: expected a whole number from 1 to ${RESULTS_MAX}, got ${describe(maxResults)}`)
      const from = performance.now()
      const found = checked(await memory.search(query, maxResults ?? undefined))
      const durationMs = Math.round(performance.now() - from)
      publishTo(bus, 'memory.search', { query, resultCount: found.length, durationMs })
      return told(found)
    },
    async memory_add({ text, topic }) {
      const about = topic?.trim()
      const id = await memory.add(filled(text, 'text').trim(), about ? { topic: about } : {})
      publishTo(bus, 'memory.add', { id, contentLength: text.trim().length })
      return `Remembered: ${id}`
    },
    async memory_delete({ id }) {
      if ((await memory.delete(id)) !== true)
        throw new Error(`no note with the id "${id}" in the memory of this project`)
      publishTo(bus, 'memory.delete', { id })
      return `Forgotten: ${id}`
    },
  }
}

/** Registers the tools with the state of a registry. */
function addMemoryTools(state, memory) {
  const run = handlers(memory, state.options.eventBus)
  for (const definition of DEFINITIONS) state.add(definition, run[definition.name], 'custom')
}

/** `registerMemoryTools`; `stateOf` finds what is behind a registry. */
const registrar = (stateOf) => (registry, memory) => {
  const state = stateOf(registry, 'registerMemoryTools')
  assertFits('registerMemoryTools', manager, memory, 'memoryManager')
  addMemoryTools(state, memory)
}

module.exports = { addMemoryTools, manager, registrar }
