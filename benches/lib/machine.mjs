/**
 * What is said of the machine that a run was made on.
 */

import { availableParallelism, cpus, getPriority, loadavg, release } from 'node:os'
import process from 'node:process'

/** A line about the machine and the run; `load` is what the load was before. */
export function machine(load, ...more) {
  const about = [
    `${availableParallelism()} × ${cpus()[0]?.model.trim()}`,
    `Linux ${release()}`,
    `Node ${process.versions.node}`,
  ]
  const when = new Date().toISOString().slice(0, 16).replace('T', ' ')
  const busy = `load ${load.toFixed(1)} before and ${loadavg()[0].toFixed(1)} after, priority ${getPriority()}`
  return `${when} UTC, ${[...about, ...more].join(', ')}; ${busy}`
}
