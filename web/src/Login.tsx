/** Where a token is asked for. */
import { createSignal, type JSX, Show } from 'solid-js'
import { trouble, unlock } from './connection.ts'

export function Login(): JSX.Element {
  const [token, setToken] = createSignal('')
  const [keep, setKeep] = createSignal(false)
  const [busy, setBusy] = createSignal(false)
  return (
    <main class="login">
      <form
        onSubmit={async (event) => {
          event.preventDefault()
          setBusy(true)
          await unlock(token(), keep())
          setBusy(false)
        }}
      >
        <h1>simse</h1>
        <p>
          This server asks for a token. It stands in the file that the server wrote when it started, or you were given
          one.
        </p>
        <label>
          Token
          <input
            type="password"
            autocomplete="current-password"
            required
            value={token()}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <label class="check">
          <input type="checkbox" checked={keep()} onChange={(event) => setKeep(event.currentTarget.checked)} /> Keep it
          on this machine
        </label>
        <Show when={trouble()}>
          <p class="note error" role="alert">
            {trouble()}
          </p>
        </Show>
        <button type="submit" disabled={busy()}>
          Open
        </button>
      </form>
    </main>
  )
}
