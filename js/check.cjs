/** Validation of what callers hand in: a shape says what is expected, every mismatch becomes an issue. */
'use strict'

const { invalid } = require('./errors.cjs')

/** What a value is, for a message; long texts are cut. */
function describe(value) {
  if (value === null) return 'null'
  if (Array.isArray(value)) return value.length > 0 ? 'an array' : 'an empty array'
  switch (typeof value) {
    case 'string':
      return `string ${JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value)}`
    case 'number':
    case 'boolean':
    case 'bigint':
      return `${typeof value} ${value}`
    case 'undefined':
      return 'nothing'
    default:
      return typeof value === 'object' ? 'an object' : `a ${typeof value}`
  }
}

const plain = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)
const join = (path, key) => (path ? `${path}.${key}` : String(key))

/** A check of one kind: `test` decides, `expected` says what would fit. */
const kind = (expected, test) => (value, path, issues) => {
  if (!test(value)) issues.push({ path, message: `expected ${expected}, got ${describe(value)}` })
}

const string = kind('a string', (v) => typeof v === 'string')
const text = kind('a non-empty string', (v) => typeof v === 'string' && v.length > 0)
const path = kind(
  'a non-empty string without a zero byte',
  (v) => typeof v === 'string' && v.length > 0 && !v.includes('\0'),
)
const boolean = kind('true or false', (v) => typeof v === 'boolean')
const fn = kind('a function', (v) => typeof v === 'function')
const integer = (min, max = Number.MAX_SAFE_INTEGER) =>
  kind(
    max === Number.MAX_SAFE_INTEGER ? `an integer of at least ${min}` : `an integer from ${min} to ${max}`,
    (v) => Number.isSafeInteger(v) && v >= min && v <= max,
  )
const number = (min, max) =>
  kind(`a number from ${min} to ${max}`, (v) => typeof v === 'number' && v >= min && v <= max)
const oneOf = (...words) => kind(`one of ${words.map((w) => `"${w}"`).join(', ')}`, (v) => words.includes(v))
/** An object that has functions of these names. */
const having = (...methods) =>
  kind(
    `an object with ${methods.map((m) => `${m}()`).join(' and ')}`,
    (v) => (plain(v) || typeof v === 'function') && methods.every((m) => typeof v[m] === 'function'),
  )

/** May be left out (`undefined`). */
const optional = (check) => (value, path, issues) => {
  if (value !== undefined) check(value, path, issues)
}

const list = (check) => (value, path, issues) => {
  if (!Array.isArray(value)) return void issues.push({ path, message: `expected an array, got ${describe(value)}` })
  value.forEach((item, i) => {
    check(item, join(path, i), issues)
  })
}

/** A list with something in it. */
const filled = (check) => (value, path, issues) => {
  if (Array.isArray(value) && value.length === 0)
    return void issues.push({ path, message: 'expected at least one entry, got an empty array' })
  list(check)(value, path, issues)
}

const record = (check) => (value, path, issues) => {
  if (!plain(value)) return void issues.push({ path, message: `expected an object, got ${describe(value)}` })
  for (const key of Object.keys(value)) check(value[key], join(path, key), issues)
}

/** An environment that a program can be given. */
const environment = (value, path, issues) => {
  const before = issues.length
  record(string)(value, path, issues)
  if (issues.length > before) return
  for (const [name, text] of Object.entries(value))
    if (name === '' || /[=\0]/.test(name) || text.includes('\0'))
      issues.push({
        path: `${path}.${name}`,
        message: 'expected a name without "=" and a value, neither with a zero byte',
      })
}

/** One check or the other; the message is the whole's. */
const either = (expected, ...checks) =>
  kind(expected, (value) =>
    checks.some((check) => {
      const issues = []
      check(value, '', issues)
      return issues.length === 0
    }),
  )

/** An object with these fields and no others. */
const shape = (fields) => (value, path, issues) => {
  if (!plain(value)) return void issues.push({ path, message: `expected an object, got ${describe(value)}` })
  for (const key of Object.keys(value)) {
    if (!Object.hasOwn(fields, key))
      issues.push({ path: join(path, key), message: `unknown field; known are ${Object.keys(fields).join(', ')}` })
  }
  for (const key of Object.keys(fields)) fields[key](value[key], join(path, key), issues)
}

/** Throws `CONFIG_VALIDATION` with all issues when the value does not fit. */
function assertFits(what, check, value, path = '') {
  const issues = []
  check(value, path, issues)
  if (issues.length > 0) throw invalid(what, issues)
}

module.exports = {
  assertFits,
  describe,
  plain,
  string,
  text,
  path,
  boolean,
  fn,
  integer,
  number,
  oneOf,
  having,
  optional,
  list,
  filled,
  record,
  environment,
  either,
  shape,
}
