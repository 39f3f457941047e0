/** The server behind the page: how it is, what it has, and the choices of this page. */
import { createResource, createSignal, For, type JSX, Show } from 'solid-js'
import { client } from './connection.ts'
import { Dialog } from './parts/Dialog.tsx'
import { chooseTheme, short, type Theme, theme } from './parts/screen.ts'
import { attempt } from './parts/toasts.tsx'

/** What a request answers with, or why it did not. */
function answerOf<T>(ask: () => Promise<T>) {
  const [answer, { refetch }] = createResource(() =>
    ask().then(
      (value) => ({ value, problem: undefined }),
      (error: unknown) => ({ value: undefined, problem: error instanceof Error ? error.message : String(error) }),
    ),
  )
  return { value: () => answer()?.value, problem: () => answer()?.problem, again: () => void refetch() }
}

/** Says why something is not there, and asks again. */
function Unread(props: { of: { problem: () => string | undefined; again: () => void } }): JSX.Element {
  return (
    <Show when={props.of.problem()}>
      {(problem) => (
        <p class="note error">
          It could not be read: {problem()}{' '}
          <button type="button" class="quiet" onClick={() => props.of.again()}>
            Again
          </button>
        </p>
      )}
    </Show>
  )
}

export function Server(props: { onClose: () => void }): JSX.Element {
  const health = answerOf(() => client.health({ verbose: true }).catch(() => client.health()))
  const models = answerOf(async () => (await client.models()).models)
  const agents = answerOf(() => client.agents())
  const tools = answerOf(async () => (await client.tools()).tools)
  const grants = answerOf(async () => (await client.permissions.grants().page()).items)
  const revoke = async (grantId: string) => {
    await attempt(() => client.permissions.revoke(grantId))
    grants.again()
  }
  return (
    <Dialog title="Server and settings" onClose={props.onClose}>
      <section>
        <h3>This page</h3>
        <label>
          Colours{' '}
          <select value={theme()} onChange={(event) => chooseTheme(event.currentTarget.value as Theme)}>
            <option value="system">As the system has them</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        <p>
          <a href="./licenses.md">Licences of what stands in it</a>
        </p>
      </section>
      <section>
        <h3>Server</h3>
        <Unread of={health} />
        <Show when={health.value()}>
          {(all) => (
            <>
              <p>
                <span class={`badge ${all().status === 'ok' ? 'done' : 'failed'}`}>{all().status}</span> version{' '}
                {all().version}
              </p>
              <Show when={all().limits}>
                {(limits) => (
                  <details>
                    <summary>How full what is bounded is</summary>
                    <table class="facts">
                      <thead>
                        <tr>
                          <th>What is bounded</th>
                          <th>Taken</th>
                          <th>Limit</th>
                        </tr>
                      </thead>
                      <tbody>
                        <For each={limits()}>
                          {(limit) => (
                            <tr>
                              <td>{limit.name}</td>
                              <td class="right">{short(limit.used)}</td>
                              <td class="right">{short(limit.limit)}</td>
                            </tr>
                          )}
                        </For>
                      </tbody>
                    </table>
                  </details>
                )}
              </Show>
            </>
          )}
        </Show>
      </section>
      <Settings />
      <section>
        <h3>Models</h3>
        <Unread of={models} />
        <ul class="plain">
          <For
            each={models.value() ?? []}
            fallback={<li class="faint">{models.problem() === undefined ? 'None.' : ''}</li>}
          >
            {(model) => (
              <li>
                <span class={`badge ${model.available ? 'done' : 'failed'}`}>
                  {model.available ? 'there' : 'not there'}
                </span>{' '}
                <code>{model.id}</code>{' '}
                <span class="faint">
                  {model.contextTokens === undefined ? '' : `${short(model.contextTokens)} tokens`} {model.reason}
                </span>
              </li>
            )}
          </For>
        </ul>
      </section>
      <section>
        <h3>Agents</h3>
        <Unread of={agents} />
        <ul class="plain">
          <For each={agents.value()?.agents ?? []}>
            {(agent) => (
              <li>
                <code>{agent.name}</code> <span class="badge">{agent.kind}</span> {agent.description}{' '}
                <span class="faint">{agent.reason}</span>
              </li>
            )}
          </For>
          <For each={agents.value()?.faults ?? []}>
            {(fault) => (
              <li class="note error">
                {fault.path}: {fault.reason}
              </li>
            )}
          </For>
        </ul>
      </section>
      <section>
        <h3>Granted for longer than one call</h3>
        <Unread of={grants} />
        <ul class="plain">
          <For
            each={grants.value() ?? []}
            fallback={<li class="faint">{grants.problem() === undefined ? 'Nothing.' : ''}</li>}
          >
            {(grant) => (
              <li>
                <code>{grant.command ?? grant.paths?.join(', ') ?? grant.tool}</code>{' '}
                <span class="badge">{grant.scope}</span>
                <button type="button" class="quiet" onClick={() => void revoke(grant.grantId)}>
                  Take back
                </button>
              </li>
            )}
          </For>
        </ul>
      </section>
      <section>
        <h3>Tools</h3>
        <Unread of={tools} />
        <ul class="plain tools">
          <For each={tools.value() ?? []}>
            {(tool) => (
              <li>
                <code>{tool.name}</code> <span class="faint">{tool.category}</span>
              </li>
            )}
          </For>
        </ul>
      </section>
    </Dialog>
  )
}

/** What the server was set to: what differs from the defaults first, the rest on demand, all of it by letters. */
function Settings(): JSX.Element {
  const config = answerOf(() => client.config())
  const [all, setAll] = createSignal(false)
  const [letters, setLetters] = createSignal('')
  const shown = () => {
    const wanted = plain(letters()).replace(/^simse_/, '')
    const settings = config.value()?.settings ?? []
    if (wanted !== '')
      return settings.filter(({ name, description, value, origin }) =>
        plain([name, description, inWords(value), origin].join(' ')).includes(wanted),
      )
    return all() ? settings : settings.filter(({ value }) => value !== undefined)
  }
  return (
    <section class="settings">
      <h3>Settings of the server</h3>
      <Unread of={config} />
      <Show when={config.value()}>
        {(read) => (
          <>
            <Show
              when={read().settings.length > 0}
              fallback={<p class="faint">The program that this server is a part of has them.</p>}
            >
              <p class="faint">
                {read().file === undefined ? 'There is no configuration file.' : <code>{read().file}</code>} They are
                changed there, by arguments and by variables; what is marked with a restart counts after one.
              </p>
              <p>
                <input
                  type="search"
                  aria-label="Search the settings"
                  placeholder="Search the settings"
                  value={letters()}
                  onInput={(event) => setLetters(event.currentTarget.value)}
                />{' '}
                <label>
                  <input type="checkbox" checked={all()} onChange={(event) => setAll(event.currentTarget.checked)} />{' '}
                  Defaults too
                </label>
              </p>
              <table class="facts">
                <thead>
                  <tr>
                    <th>Setting</th>
                    <th>Value</th>
                  </tr>
                </thead>
                <tbody>
                  <For
                    each={shown()}
                    fallback={
                      <tr>
                        <td colspan="2" class="faint">
                          Nothing.
                        </td>
                      </tr>
                    }
                  >
                    {(setting) => (
                      <tr>
                        <td>
                          <code>{setting.name}</code>{' '}
                          <Show when={!setting.atOnce}>
                            <span class="badge" title="A change counts after a restart">
                              restart
                            </span>
                          </Show>
                          <br />
                          <span class="faint">{setting.description}</span>
                        </td>
                        <td>
                          <Show
                            when={setting.value !== undefined}
                            fallback={<span class="faint">{setting.default ?? 'not set'}</span>}
                          >
                            <code>{inWords(setting.value)}</code>
                          </Show>
                          <br />
                          <span class="faint">
                            {setting.origin ?? (setting.default === undefined ? '' : 'default')}
                          </span>
                        </td>
                      </tr>
                    )}
                  </For>
                </tbody>
              </table>
            </Show>
          </>
        )}
      </Show>
    </section>
  )
}

/** Letters as they are searched: the three spellings of a name are one. */
function plain(text: string): string {
  return text
    .trim()
    .toLowerCase()
    .replaceAll(/[\s_-]+/g, '_')
    .replace(/^_+/, '')
}

function inWords(value: unknown): string {
  if (value === undefined) return ''
  return typeof value === 'string' ? value : JSON.stringify(value, undefined, 1)
}
