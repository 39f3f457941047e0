/** A terminal that is really one: tmux, with a program in it, keys that are pressed and a screen that is read. */

import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Whether tmux is here. */
export async function hasTmux() {
  return run('tmux', ['-V']).then(
    () => true,
    () => false,
  )
}

const quoted = (word) => `'${String(word).replaceAll("'", "'\\''")}'`

/**
 * Starts a program in a terminal of its own. `keys` presses named keys (`Enter`, `C-c`), `type` writes text as it is, `paste` pastes
 * it, `until` waits for what is on the screen, `text` is the screen.
 */
export async function screen({ program, args = [], env = {}, cwd, columns = 100, rows = 30 }) {
  const socket = `simse-${randomUUID()}`
  // What is on the screen is told as it is only where the terminal's texts are UTF-8.
  const locale = { ...process.env, LC_ALL: 'C.UTF-8' }
  const tmux = async (...words) =>
    (await run('tmux', ['-L', socket, '-f', '/dev/null', ...words], { env: locale })).stdout
  const variables = Object.entries({ TERM: 'screen-256color', ...env }).map(
    ([name, value]) => `${name}=${quoted(value)}`,
  )
  const command = ['env', ...variables, ...[program, ...args].map(quoted)].join(' ')
  const shell = `cd ${quoted(cwd)} && ${command}; echo "ended with $?"; exec sleep 600`
  await tmux('new-session', '-d', '-x', String(columns), '-y', String(rows), shell)
  const text = () => tmux('capture-pane', '-p')
  const until = async (what, { within = 15_000 } = {}) => {
    const fits = typeof what === 'string' ? (shown) => shown.includes(what) : (shown) => what.test(shown)
    const end = Date.now() + within
    for (;;) {
      const shown = await text()
      if (fits(shown)) return shown
      if (Date.now() > end) throw new Error(`${what} did not come onto the screen:\n${shown}`)
      await sleep(50)
    }
  }
  return {
    text,
    until,
    keys: (...names) => tmux('send-keys', ...names),
    type: (words) => tmux('send-keys', '-l', words),
    paste: async (words) => {
      await tmux('set-buffer', words)
      await tmux('paste-buffer', '-p')
    },
    resize: (x, y) => tmux('resize-window', '-x', String(x), '-y', String(y)),
    raw: () => tmux('capture-pane', '-p', '-e'),
    buffer: () => tmux('show-buffer'),
    mouse: async (row, button = 0) => {
      // What a terminal says for a click, as SGR mouse events have it.
      await tmux('send-keys', '-l', `\u001b[<${button};5;${row}M`)
    },
    close: () => tmux('kill-server').catch(() => {}),
  }
}
