/** Frames of an event stream, out of bytes as they come. */

import { SimseError } from './errors.js'

/** Longest frame in UTF-16 units: nothing that the server writes comes near it. */
const FRAME_UNITS_MAX = 64 << 20

/** Holds what came and was not taken yet: one piece of the network's, and the beginning of a frame. */
export class Frames {
  #decoder = new TextDecoder()
  /** Pieces of a line whose end has not come. */
  #open = []
  #openUnits = 0
  /** Whole lines that were not read yet, and how far they were. */
  #text = ''
  #at = 0
  #data = []
  #dataUnits = 0
  #id

  /** Takes a piece of the stream. Only once `next` has given all that was there. */
  push(bytes) {
    const text = this.#decoder.decode(bytes, { stream: true })
    const end = text.lastIndexOf('\n') + 1
    if (end === 0) return this.#keep(text)
    this.#text = this.#text.slice(this.#at) + this.#open.join('') + text.slice(0, end)
    this.#at = 0
    this.#open = []
    this.#openUnits = 0
    this.#keep(text.slice(end))
  }

  #keep(text) {
    if (text === '') return
    this.#open.push(text)
    this.#openUnits += text.length
    this.#check()
  }

  #check() {
    if (this.#openUnits + this.#dataUnits > FRAME_UNITS_MAX)
      throw new SimseError('BAD_ANSWER', `an event of more than ${FRAME_UNITS_MAX} characters`)
  }

  /** The next whole frame that has data: `{ id, data }`. Undefined: more has to come first. Comments are passed over. */
  next() {
    for (;;) {
      const end = this.#text.indexOf('\n', this.#at)
      if (end < 0) return undefined
      let line = this.#text.slice(this.#at, end)
      this.#at = end + 1
      if (line.endsWith('\r')) line = line.slice(0, -1)
      if (line !== '') this.#field(line)
      else if (this.#data.length > 0) return this.#take()
    }
  }

  #field(line) {
    const colon = line.indexOf(':')
    if (colon === 0) return
    const name = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    if (name === 'id' && !value.includes('\0')) this.#id = value
    if (name !== 'data') return
    this.#data.push(value)
    this.#dataUnits += value.length
    this.#check()
  }

  #take() {
    const frame = { id: this.#id, data: this.#data.join('\n') }
    this.#data = []
    this.#dataUnits = 0
    this.#id = undefined
    return frame
  }
}
