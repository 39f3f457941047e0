/**
 * How long `import 'simse'` takes in this process, which does nothing else. Prints JSON.
 */

const begin = performance.now()
const names = Object.keys(await import('simse'))
const ms = performance.now() - begin
if (names.length === 0) throw new Error('simse exports nothing')
console.log(JSON.stringify({ ms }))
