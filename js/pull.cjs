/** Streams that are pulled: whatever can be iterated, left at once when nobody wants more. */
'use strict'

const { describe } = require('./check.cjs')
const { messageOf } = require('./errors.cjs')

/** What was given back is nothing to iterate, or breaks the rules of it. */
class NoStream extends Error {}

/** A reader as an iterator: one that is left cancels, also while it reads. */
function readerIterator(stream) {
  const reader = stream.getReader()
  return { next: () => reader.read(), return: () => reader.cancel() }
}

/** An iterator over what a function `name()` returned. */
function iteratorOf(returned, name) {
  if (typeof returned?.getReader === 'function') return readerIterator(returned)
  const make =
    returned?.[Symbol.asyncIterator] ?? (typeof returned === 'object' ? returned?.[Symbol.iterator] : undefined)
  if (typeof make !== 'function')
    throw new NoStream(`expected ${name}() to return an async iterable, got ${describe(returned)}`)
  return make.call(returned)
}

/** Tells an iterator that no more is wanted, and waits for nothing. */
function leave(iterator, who) {
  const report = (cause) => console.warn(`simse: ${who} failed while it was ended: ${messageOf(cause)}`)
  try {
    Promise.resolve(iterator.return?.()).then(undefined, report)
  } catch (cause) {
    report(cause)
  }
}

/** An iteration that ends when it is over, when `take` has enough, or when the signal fires. */
class Pull {
  #iterator
  /** It has ended by itself. */
  #ended = false
  #stopped = false

  /** `name` is the function that makes the stream, `who` whose it is. */
  constructor({ name, who }) {
    this.name = name
    this.who = who
  }

  /**
   * Iterates over what `make()` gives: `take(item, index)` answers with true when it has enough, or with a promise to wait for. Resolves
   * with false when the signal fired before the end; rejects with what was thrown.
   */
  async run(make, signal, take) {
    if (signal?.aborted) return false
    let stop
    const stopped = new Promise((resolve) => {
      stop = () => resolve(false)
    })
    signal?.addEventListener('abort', stop, { once: true })
    try {
      return await Promise.race([this.#pull(make, take).then(() => true), stopped])
    } finally {
      this.#stopped = true
      signal?.removeEventListener('abort', stop)
      if (this.#iterator !== undefined && !this.#ended) leave(this.#iterator, this.who)
    }
  }

  async #pull(make, take) {
    const iterator = iteratorOf(await make(), this.name)
    if (this.#stopped) return leave(iterator, this.who)
    this.#iterator = iterator
    for (let at = 0; !this.#stopped; at++) {
      const item = await this.#next(iterator)
      if (this.#ended || this.#stopped) return
      const taken = take(item, at)
      if (taken === true) return
      if (taken) await taken
    }
  }

  /** The next item; undefined and `#ended` when there is none. */
  async #next(iterator) {
    let step
    try {
      step = await iterator.next()
    } catch (cause) {
      this.#ended = true
      throw cause
    }
    if (typeof step !== 'object' || step === null)
      throw new NoStream(`expected next() to give {value, done}, got ${describe(step)}`)
    if (step.done) this.#ended = true
    return step.value
  }
}

module.exports = { NoStream, Pull }
