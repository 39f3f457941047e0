/**
 * The vectors of `cargo bench --bench memory` (`VECTORS_FILE=…`), searched one after the other in JavaScript: `node benches/memory-scan.mjs FILE
 * [QUESTIONS]`. The first questions of the same ones, 100 if nothing is said: all 500 take more than a minute.
 */

import { readFileSync } from 'node:fs'

const RESULTS = 10
const bytes = readFileSync(process.argv[2])
const [dimensions, texts, all] = new Uint32Array(bytes.buffer, bytes.byteOffset, 3)
const questions = Math.min(all, Number(process.argv[3] ?? 100))
const numbers = new Float32Array(bytes.buffer, bytes.byteOffset + 12, (texts + all) * dimensions)

/** The nearest texts of all. */
function nearest(asked) {
  const best = []
  for (let text = 0; text < texts; text++) {
    const at = text * dimensions
    let sum = 0
    for (let n = 0; n < dimensions; n++) sum += numbers[at + n] * asked[n]
    if (best.length === RESULTS && sum <= best[RESULTS - 1].sum) continue
    const place = best.findIndex((other) => other.sum < sum)
    best.splice(place < 0 ? best.length : place, 0, { sum, text })
    best.length = Math.min(best.length, RESULTS)
  }
  return best
}

const times = []
for (let question = 0; question < questions; question++) {
  const from = (texts + question) * dimensions
  const asked = numbers.subarray(from, from + dimensions)
  const started = performance.now()
  nearest(asked)
  times.push(performance.now() - started)
}
times.sort((a, b) => a - b)
const at = (share) => times[Math.round((times.length - 1) * share)].toFixed(2)
console.log(
  `a scan of ${texts} vectors in JavaScript, ${questions} questions: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, at most ${at(1)} ms`,
)
