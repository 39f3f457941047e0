/** Lists that come in pages. */

import { SimseError } from './errors.js'

/** All entries, one page in memory at a time. Nothing is asked for before it is iterated. */
export class PagedList {
  #fetch
  #first
  #operation

  /** `fetch(cursor)` gets a page; `first` is the cursor of the first one, undefined for the list's beginning. */
  constructor(operation, first, fetch) {
    this.#operation = operation
    this.#first = first
    this.#fetch = fetch
  }

  /** One page: the first one, or that of a cursor. */
  page(cursor = this.#first) {
    return this.#fetch(cursor)
  }

  async *pages() {
    let cursor = this.#first
    for (;;) {
      const page = await this.#fetch(cursor)
      yield page
      const next = page.nextCursor ?? undefined
      if (next === undefined) return
      if (next === cursor) throw new SimseError('BAD_ANSWER', `${this.#operation}: a page leads to itself`)
      cursor = next
    }
  }

  async *[Symbol.asyncIterator]() {
    for await (const { items } of this.pages()) yield* items
  }
}
