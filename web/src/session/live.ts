/** What a model says right now. It is taken piece by piece, and shown when the page is drawn. */
import { cell } from '../parts/cell.ts'
import { Blocks } from '../text/blocks.ts'

export class Live {
  readonly #blocks = new Blocks()
  #reasoning = ''
  #speaks = false

  /** The text in blocks of markdown; only the last one still changes. */
  readonly blocks = cell<readonly string[]>([], true)
  readonly reasoning = cell('')
  /** Whether there is anything. */
  readonly speaks = cell(false)

  begin(text: string, reasoning: string): void {
    this.clear()
    this.#speaks = true
    this.#blocks.add(text)
    this.#reasoning = reasoning
  }

  add(text: string): void {
    this.#speaks = true
    this.#blocks.add(text)
  }

  think(text: string): void {
    this.#speaks = true
    this.#reasoning += text
  }

  /** What it thought so far. */
  thoughts(): string {
    return this.#reasoning
  }

  clear(): void {
    this.#speaks = false
    this.#blocks.clear()
    this.#reasoning = ''
  }

  /** Shows what there is. */
  show(): void {
    this.speaks.set(this.#speaks)
    this.reasoning.set(this.#reasoning)
    if (this.#blocks.changed()) this.blocks.set(this.#blocks.all())
  }
}
