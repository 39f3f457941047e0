/** A long-term memory over an embedding provider of the program's own; kept and ranked in Rust, as that of the server's sessions. */
'use strict'

const { resolve } = require('node:path')
const { native, bridge, addTarget, BadInput } = require('./bridge.cjs')
const {
  assertFits,
  boolean,
  describe,
  either,
  having,
  integer,
  list,
  number,
  optional,
  path,
  plain,
  record,
  shape,
  string,
  text,
} = require('./check.cjs')
const { revive, simseError } = require('./errors.cjs')
const { toJson } = require('./json.cjs')

const RESULTS_MAX = 100
const ENTRIES_MAX = 100_000
const DAYS_MAX = 36_500
/** Texts that are read at once. */
const PAGE = 1000

const configShape = shape({
  enabled: boolean,
  embeddingAgent: optional(text),
  similarityThreshold: number(0, 1),
  maxResults: integer(1, RESULTS_MAX),
})
const optionsShape = shape({
  path: optional(path),
  project: optional(text),
  maxEntries: optional(integer(1, ENTRIES_MAX)),
  forgetAfterDays: optional(integer(1, DAYS_MAX)),
  logger: optional(having('warn')),
})
const entryShape = shape({ text: string, metadata: optional(record(() => {})) })
const searchShape = shape({
  query: string,
  maxResults: optional(integer(1, RESULTS_MAX)),
  threshold: optional(number(0, 1)),
})

/** Where the models of our own providers lie: a memory reads them itself. */
const directories = new WeakMap()

/** An embedding provider over the model of a directory. It is read when it is first used. */
function createLocalEmbedder(directory) {
  assertFits('createLocalEmbedder', path, directory, 'directory')
  const lies = resolve(directory)
  const model = new native.NativeEmbedder(lies)
  const provider = Object.freeze({
    async embed(input) {
      assertFits('embed', either('a string or a list of strings', string, list(string)), input, 'input')
      return ask(() => model.embed(toJson(typeof input === 'string' ? [input] : input)))
    },
  })
  directories.set(provider, lies)
  return provider
}

/** What Rust asks for vectors. */
class Embedding {
  constructor(embedder, model) {
    this.embedder = embedder
    this.model = model
  }

  async handle(_operation, input) {
    const answer = await this.embedder.embed(input, this.model)
    const fits = plain(answer) && Array.isArray(answer.embeddings)
    if (!fits) throw new BadInput(`expected embed() to answer with {embeddings}, got ${describe(answer)}`)
    // Typed arrays are vectors, too.
    return toJson({ embeddings: answer.embeddings.map((vector) => Array.from(vector)) })
  }
}

/** Calls Rust; its errors become ours. */
async function ask(call) {
  try {
    const answer = await call()
    // What fails before there is a promise comes as a value.
    if (typeof answer !== 'string') throw answer
    return JSON.parse(answer)
  } catch (cause) {
    throw revive(cause)
  }
}

const frozenEntry = (entry) => Object.freeze({ ...entry, metadata: Object.freeze(entry.metadata) })
const frozenAnswers = (answers) =>
  Object.freeze(answers.map(({ entry, score }) => Object.freeze({ entry: frozenEntry(entry), score })))

class State {
  count = 0
  initialized = false

  constructor(embedder, config, options) {
    this.config = config
    this.logger = options.logger ?? console
    this.embedding = new Embedding(embedder, config.embeddingAgent)
    const given = {
      path: options.path === undefined ? undefined : resolve(options.path),
      project: options.project ?? 'default',
      model: config.embeddingAgent ?? 'javascript',
      directory: directories.get(embedder),
      maxEntries: options.maxEntries ?? ENTRIES_MAX,
      forgetAfterDays: options.forgetAfterDays,
      maxResults: config.maxResults,
      similarityThreshold: config.similarityThreshold,
    }
    try {
      this.native = new native.NativeMemory(bridge, toJson(given), addTarget(this.embedding))
    } catch (cause) {
      throw revive(cause)
    }
  }

  /** Says once for a row of answers that words alone decide. */
  degraded(reason) {
    if (reason !== null && reason !== this.last) this.logger.warn(`the memory finds by words alone for now: ${reason}`)
    this.last = reason
  }

  async recount() {
    this.count = await ask(() => this.native.size())
  }

  async initialize() {
    if (!this.config.enabled) throw simseError('MEMORY_ERROR', 'the memory is switched off: `enabled` is false')
    await ask(() => this.native.initialize())
    await this.recount()
    this.initialized = true
  }

  async dispose() {
    this.initialized = false
    await ask(() => this.native.dispose())
  }

  async add(entries) {
    const { ids, degraded } = await ask(() => this.native.add(toJson(entries)))
    this.degraded(degraded)
    await this.recount()
    return Object.freeze(ids)
  }

  async search({ query, maxResults, threshold }, words) {
    const { answers, degraded } = await ask(() => this.native.search(toJson({ query, maxResults, threshold, words })))
    if (!words) this.degraded(degraded)
    return frozenAnswers(answers)
  }

  async all() {
    const found = []
    for (;;) {
      const page = await ask(() => this.native.list(found.length, PAGE))
      found.push(...page.map(frozenEntry))
      if (page.length < PAGE) return Object.freeze(found)
    }
  }

  async forget(call) {
    const gone = await ask(call)
    await this.recount()
    return gone
  }
}

/** Creates a memory. It is opened by `initialize()`. */
function createMemoryManager(embedder, config, options = {}) {
  assertFits('createMemoryManager', having('embed'), embedder, 'embedder')
  assertFits('createMemoryManager', configShape, config, 'config')
  assertFits('createMemoryManager', optionsShape, options, 'options')
  const state = new State(embedder, { ...config }, options)
  return Object.freeze({
    initialize: () => state.initialize(),
    dispose: () => state.dispose(),
    async add(content, metadata = {}) {
      assertFits('add', entryShape, { text: content, metadata })
      const [id] = await state.add([{ text: content, metadata }])
      return id
    },
    async addBatch(entries) {
      assertFits('addBatch', list(entryShape), entries, 'entries')
      return state.add(entries)
    },
    async search(query, maxResults, threshold) {
      assertFits('search', searchShape, { query, maxResults, threshold })
      return state.search({ query, maxResults, threshold }, false)
    },
    async textSearch(asked) {
      assertFits('textSearch', searchShape, asked)
      return state.search(asked, true)
    },
    async getById(id) {
      assertFits('getById', string, id, 'id')
      const found = await ask(() => state.native.get(id))
      return found === null ? undefined : frozenEntry(found)
    },
    getAll: () => state.all(),
    async delete(id) {
      assertFits('delete', string, id, 'id')
      return state.forget(() => state.native.remove(id))
    },
    clear: async () => void (await state.forget(() => state.native.clear())),
    get size() {
      return state.count
    },
    get isInitialized() {
      return state.initialized
    },
  })
}

module.exports = { createLocalEmbedder, createMemoryManager }
