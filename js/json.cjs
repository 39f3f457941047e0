/** JSON for Rust, which takes Unicode only. */
'use strict'

const wellFormed = (_key, value) => (typeof value === 'string' ? value.toWellFormed() : value)

/** `JSON.stringify`, with lone surrogates replaced: Rust's texts are Unicode. */
function toJson(value) {
  const json = JSON.stringify(value)
  return json.includes('\\ud') ? JSON.stringify(value, wellFormed) : json
}

module.exports = { toJson }
