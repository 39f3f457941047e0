/** Finds the addon for this machine and loads it: that of a checkout, else that of the package for this platform. */
'use strict'

const { existsSync } = require('node:fs')
const { join } = require('node:path')
const { libc, platform, remedy } = require('./platform.cjs')

const base = `simse.${process.platform}-${process.arch}`
// Asking for the libc takes milliseconds: only when both are there.
const candidates = ['', '-gnu', '-musl'].map((suffix) => join(__dirname, `${base}${suffix}.node`)).filter(existsSync)

/** The addon of the package for this platform. */
function packaged() {
  const name = `simse-${platform()}`
  let found
  try {
    found = require.resolve(name)
  } catch (cause) {
    throw new Error(
      `simse has no native addon for ${platform()}: ${join(__dirname, base)}*.node is missing. ${remedy()}`,
      { cause },
    )
  }
  const { version } = require('../package.json')
  const other = require(`${name}/package.json`).version
  if (other !== version)
    throw new Error(
      `simse ${version} cannot use ${name} ${other}: \`npm install ${name}@${version}\` brings the one that fits`,
    )
  return found
}

/** Loads it. What the system says of a library that does not fit is kept, and what it means is said in front. */
function load(path) {
  try {
    return require(path)
  } catch (cause) {
    const why = /GLIBC_|GLIBCXX_/.test(cause.message)
      ? 'the C library of this system is older than the one that it was built for (glibc 2.36)'
      : 'it does not fit this system'
    throw new Error(`simse cannot load ${path}: ${why}: ${cause.message}`, { cause })
  }
}

module.exports = load(
  candidates.length === 0
    ? packaged()
    : candidates.length === 1
      ? candidates[0]
      : join(__dirname, `${base}${libc()}.node`),
)
