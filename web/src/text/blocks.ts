/**
 * Cuts a growing text of markdown into blocks at empty lines outside of fences, looking at each character once. All blocks but the
 * last are final, so that a page draws only the last one anew while the text grows.
 */

/** A block without an empty line is cut at a space beyond this, so that no single one grows without end. */
const BLOCK_MAX = 4_000
/** A fence is cut at the end of a line beyond this, and opened again. */
const FENCE_MAX = 8_000
/** What belongs to the block before it though an empty line stands between: lists, and what is indented. */
const GOES_ON = /^(?:[ \t]|[-*+][ \t]|\d{1,9}[.)][ \t])/
const FENCE = /^ {0,3}(`{3,}|~{3,})/

export class Blocks {
  #done: string[] = []
  /** Whole lines of the last block. */
  #tail = ''
  /** The line that has not ended. */
  #rest = ''
  /** The line that opened the fence we are in. */
  #fence: { mark: string; line: string } | undefined
  /** Empty lines that may end the block. */
  #gap = ''
  #changed = false

  add(text: string): void {
    if (text === '') return
    this.#changed = true
    let from = 0
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', from)) {
      this.#line(this.#rest + text.slice(from, end))
      this.#rest = ''
      from = end + 1
    }
    this.#rest += text.slice(from)
    this.#limit()
  }

  #line(line: string): void {
    if (this.#fence !== undefined) {
      this.#tail += `${line}\n`
      const mark = FENCE.exec(line)?.[1]
      if (mark?.startsWith(this.#fence.mark) && line.trim() === mark) this.#fence = undefined
      else if (this.#tail.length > FENCE_MAX) {
        const { mark: closing, line: opening } = this.#fence
        this.#done.push(`${this.#tail}${closing}`)
        this.#tail = `${opening}\n`
      }
      return
    }
    if (line.trim() === '') {
      if (this.#tail !== '') this.#gap += '\n'
      return
    }
    const first = this.#tail === '' ? '' : (this.#tail.match(GOES_ON)?.[0] ?? '')
    if (this.#gap !== '' && !(first !== '' && GOES_ON.test(line))) {
      this.#done.push(this.#tail)
      this.#tail = ''
    } else this.#tail += this.#gap
    this.#gap = ''
    this.#tail += `${line}\n`
    const mark = FENCE.exec(line)?.[1]
    if (mark !== undefined) this.#fence = { mark, line }
  }

  #limit(): void {
    if (this.#fence !== undefined) return
    while (this.#tail.length + this.#rest.length > BLOCK_MAX) {
      const whole = this.#tail + this.#gap + this.#rest
      const space = whole.lastIndexOf(' ', BLOCK_MAX)
      const cut = space > BLOCK_MAX / 2 ? space + 1 : BLOCK_MAX
      this.#done.push(whole.slice(0, cut))
      this.#tail = ''
      this.#gap = ''
      const lines = whole.slice(cut).split('\n')
      this.#rest = lines.pop() ?? ''
      for (const line of lines) this.#line(line)
    }
  }

  /** Whether anything came since the last time that this was asked. */
  changed(): boolean {
    const changed = this.#changed
    this.#changed = false
    return changed
  }

  all(): readonly string[] {
    const last = this.#tail + this.#gap + this.#rest
    return last === '' ? [...this.#done] : [...this.#done, last]
  }

  clear(): void {
    if (this.#done.length > 0 || this.#tail !== '' || this.#rest !== '') this.#changed = true
    this.#done = []
    this.#tail = ''
    this.#rest = ''
    this.#gap = ''
    this.#fence = undefined
  }
}
