/** Which package has the native parts for this machine, and why one may be missing. */
'use strict'

/** Platforms that there are packages for; each is named `simse-` and this. */
const PLATFORMS = [
  'linux-x64-gnu',
  'linux-x64-musl',
  'linux-arm64-gnu',
  'linux-arm64-musl',
  'darwin-x64',
  'darwin-arm64',
]

/** `-gnu` or `-musl` on Linux: the loader of glibc names its version in the report's header, musl's does not. */
function libc() {
  if (process.platform !== 'linux') return ''
  process.report.excludeNetwork = true
  return process.report.getReport().header.glibcVersionRuntime ? '-gnu' : '-musl'
}

/** This machine, such as `linux-x64-gnu`. */
const platform = () => `${process.platform}-${process.arch}${libc()}`

/** What to do where the package of this machine is not installed. */
function remedy() {
  const here = platform()
  const { version } = require('../package.json')
  if (process.platform === 'win32') return 'Windows is not supported yet; in WSL the package for Linux works.'
  if (!PLATFORMS.includes(here))
    return `There are packages for ${PLATFORMS.join(', ')}. In a checkout it can be built: npm run build.`
  return (
    `The package simse-${here} is an optional dependency that was not installed: npm was told to leave those out ` +
    `(--omit=optional, --no-optional), or the lock file or node_modules come from another machine. ` +
    `\`npm install simse-${here}@${version}\` brings it. In a checkout: npm run build.`
  )
}

module.exports = { PLATFORMS, libc, platform, remedy }
