/** JSON for Rust, which takes Unicode only. */
'use strict'

/** An escape in JSON. `JSON.stringify` writes a surrogate as one only where its other half is missing, and in small letters. */
const ESCAPE = /\\(?:ud[89a-f][0-9a-f]{2}|.)/g
const wellFormed = (escaped) => (escaped.length > 2 ? '\ufffd' : escaped)

/** `JSON.stringify`, with lone surrogates replaced, in names as in values: Rust's texts are Unicode. */
function toJson(value) {
  const json = JSON.stringify(value)
  return json.includes('\\ud') ? json.replace(ESCAPE, wellFormed) : json
}

module.exports = { toJson }
