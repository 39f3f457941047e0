/** Finds the addon for this machine and loads it. */
'use strict'

const { existsSync } = require('node:fs')
const { join } = require('node:path')

/** `-gnu` or `-musl` on Linux: the loader of glibc names its version in the report's header, musl's does not. */
function libc() {
  if (process.platform !== 'linux') return ''
  process.report.excludeNetwork = true
  return process.report.getReport().header.glibcVersionRuntime ? '-gnu' : '-musl'
}

const base = `simse.${process.platform}-${process.arch}`
// Asking for the libc takes milliseconds: only when both are there.
const candidates = ['', '-gnu', '-musl'].map((suffix) => join(__dirname, `${base}${suffix}.node`)).filter(existsSync)
if (candidates.length === 0) {
  throw new Error(
    `simse has no native addon for ${process.platform}-${process.arch}: ${join(__dirname, base)}*.node is missing. In a checkout, build it with: npm run build`,
  )
}
module.exports = require(candidates.length === 1 ? candidates[0] : join(__dirname, `${base}${libc()}.node`))
