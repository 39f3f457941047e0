/** What tools leave running or keep in files goes with the process, however it comes to its own end. */
'use strict'

const { isMainThread } = require('node:worker_threads')
const { native } = require('./bridge.cjs')

let watching = false

/** From now on, the end of the process ends what registries and servers have left behind. */
function endAtExit() {
  // What a worker's registries have left behind ends with the worker (src/node/leftovers.rs); the others are not its own.
  if (watching || !isMainThread) return
  watching = true
  process.once('exit', () => native.endEstates())
}

module.exports = { endAtExit }
