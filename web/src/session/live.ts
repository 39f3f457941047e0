/** What a model says right now. It is taken piece by piece, and shown when the page is drawn. */
import { createSignal } from 'solid-js'
import { Blocks } from '../text/blocks.ts'

export class Live {
  readonly #blocks = new Blocks()
  #reasoning = ''
  #speaks = false

  /** The text in blocks of markdown; only the last one still changes. */
  readonly blocks
  readonly #setBlocks
  readonly reasoning
  readonly #setReasoning
  /** Whether there is anything. */
  readonly speaks
  readonly #setSpeaks

  constructor() {
    ;[this.blocks, this.#setBlocks] = createSignal<readonly string[]>([], { equals: false })
    ;[this.reasoning, this.#setReasoning] = createSignal('')
    ;[this.speaks, this.#setSpeaks] = createSignal(false)
  }

  begin(_turnId: string | undefined, text: string, reasoning: string): void {
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
    this.#setReasoning(this.#reasoning)
  }

  clear(): void {
    this.#speaks = false
    this.#blocks.clear()
    this.#reasoning = ''
  }

  /** Shows what there is. */
  show(): void {
    this.#setSpeaks(this.#speaks)
    this.#setReasoning(this.#reasoning)
    if (this.#blocks.changed()) this.#setBlocks(this.#blocks.all())
  }
}
