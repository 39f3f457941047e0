/**
 * Where the server of this user on this machine is: what `server.json` and `token` of its data directory say. Node, Bun and Deno.
 *
 * A server that was killed leaves `server.json` behind, and another program may have its port: nothing is sent there before it has
 * shown that it has the key that stands in that file.
 */

import { Lost, wordsOf } from './call.js'
import { makeClient } from './client.js'
import { refusal, SimseError } from './errors.js'

/** Largest file of the data directory that is read, in bytes. */
const FILE_BYTES_MAX = 1 << 20
/** How long a server may take to show that it is the one. */
const PROOF_MS = 10_000
/** How long one that has just been started may take to say where it is: it listens a little before. */
const ANNOUNCED_MS = 500
/** Pause between two looks for that. */
const LOOK_MS = 50

/** The content of a small file; undefined: there is none. */
async function read(path) {
  const { open } = await import('node:fs/promises')
  let file
  try {
    file = await open(path, 'r')
    const { size } = await file.stat()
    if (size > FILE_BYTES_MAX) throw unfound(`${path} is larger than ${FILE_BYTES_MAX} bytes`)
    return await file.readFile('utf8')
  } catch (cause) {
    if (cause.code === 'ENOENT') return undefined
    throw cause instanceof SimseError ? cause : unfound(`${path} cannot be read: ${cause.message}`, cause)
  } finally {
    await file?.close()
  }
}

function unfound(problem, cause) {
  return new SimseError('NO_SERVER', `createSimseClient: no server was found: ${problem}`, { cause })
}

/** A variable that says something. */
function variable(name) {
  const value = process.env[name]
  return value === undefined || value === '' ? undefined : value
}

/** The data directory as the program finds it: the variable, the configuration file, the usual place. */
async function dataDirectory() {
  const { dirname, isAbsolute, join, resolve } = await import('node:path')
  const { homedir } = await import('node:os')
  const named = variable('SIMSE_DATA_DIR')
  if (named !== undefined) return resolve(named)
  const base = (name, below) => {
    const given = variable(name)
    return given !== undefined && isAbsolute(given) ? given : join(variable('HOME') ?? homedir(), below)
  }
  const config = resolve(variable('SIMSE_CONFIG') ?? join(base('XDG_CONFIG_HOME', '.config'), 'simse', 'config.toml'))
  const text = await read(config)
  const said = text === undefined ? undefined : dataDirIn(text)
  return said === undefined ? join(base('XDG_DATA_HOME', '.local/share'), 'simse') : resolve(dirname(config), said)
}

/** `data_dir` of a configuration file: it stands before the first table. */
function dataDirIn(text) {
  const head = text.split(/^[ \t]*\[/m, 1)[0]
  const found = /^[ \t]*data_dir[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')/m.exec(head)
  if (found === null) return undefined
  return found[2] ?? JSON.parse(`"${found[1]}"`)
}

/** Has whoever listens at `url` show that it has the key, which is not sent. */
async function checkProof({ url, key }, send) {
  const { createHmac, randomBytes } = await import('node:crypto')
  const nonce = randomBytes(32).toString('hex')
  const strange = (cause) => unfound(`what listens at ${url} is not the server that \`server.json\` tells of`, cause)
  let response
  let text
  try {
    const signal = AbortSignal.timeout(PROOF_MS)
    const init = { method: 'GET', headers: { accept: 'application/json' }, redirect: 'error', signal }
    response = await send(`${url}/proof/${nonce}`, init)
    text = await response.text()
  } catch (cause) {
    throw new Lost(`no answer from ${url}: ${wordsOf(cause)}`, { cause })
  }
  // It may be the one, and has no time.
  if (response.status === 429 || response.status === 503) throw refusal('proof', response, text)
  let proof
  try {
    proof = JSON.parse(text).proof
  } catch (cause) {
    throw strange(cause)
  }
  if (proof !== createHmac('sha256', key).update(`simse proof ${nonce}`).digest('hex')) throw strange()
}

/** Whether another server says there that it is the one, now or in a moment. */
async function isAnnouncedAnew(directory, text) {
  const { join } = await import('node:path')
  const { setTimeout: pause } = await import('node:timers/promises')
  for (let waited = 0; waited < ANNOUNCED_MS; waited += LOOK_MS) {
    const now = await read(join(directory, 'server.json'))
    if (now !== undefined && now !== text) return true
    await pause(LOOK_MS)
  }
  return false
}

/** Address and token of the server that has the data directory. */
async function findLocal(options, send) {
  const { join } = await import('node:path')
  const directory = options.dataDirectory ?? (await dataDirectory())
  const text = await read(join(directory, 'server.json'))
  if (text === undefined) throw unfound(`no server runs on ${directory} (\`npx simse serve\` starts one)`)
  let said
  try {
    said = JSON.parse(text)
  } catch (cause) {
    throw unfound(`${join(directory, 'server.json')} is no JSON`, cause)
  }
  if (typeof said?.url !== 'string' || typeof said.key !== 'string' || said.key === '')
    throw unfound(`${join(directory, 'server.json')} does not say where a server is and how to know it`)
  try {
    await checkProof(said, send)
  } catch (failure) {
    if (failure instanceof SimseError && failure.code === 'NO_SERVER' && (await isAnnouncedAnew(directory, text)))
      throw new Lost(`a server has just been started at ${said.url}`, { cause: failure })
    throw failure
  }
  // A server that wants none has no file, or an old one that does no harm.
  const token = (await read(join(directory, 'token')))?.trim()
  return { url: said.url, token: token === '' ? undefined : token }
}

/** Creates a client; nothing is read or sent before the first call. */
export function createSimseClient(options = {}) {
  return makeClient(options, findLocal)
}
