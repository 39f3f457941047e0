/** The server behind the page: how it is, what it has, and the choices of this page. */
import { createResource, createSignal, For, type JSX, Show } from 'solid-js'
import { client } from './connection.ts'
import { Dialog } from './parts/Dialog.tsx'
import { chooseTheme, short, type Theme, theme } from './parts/screen.ts'
import { attempt } from './parts/toasts.tsx'

export function Server(props: { onClose: () => void }): JSX.Element {
  const [health] = createResource(() => client.health({ verbose: true }).catch(() => client.health()))
  const [models] = createResource(async () => (await client.models()).models)
  const [agents] = createResource(() => client.agents())
  const [tools] = createResource(async () => (await client.tools()).tools)
  const [grants, { refetch }] = createResource(async () => (await client.permissions.grants().page()).items)
  const revoke = async (grantId: string) => {
    await attempt(() => client.permissions.revoke(grantId))
    void refetch()
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
        <Show when={health()}>
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
        <ul class="plain">
          <For each={models() ?? []} fallback={<li class="faint">None.</li>}>
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
        <ul class="plain">
          <For each={agents()?.agents ?? []}>
            {(agent) => (
              <li>
                <code>{agent.name}</code> <span class="badge">{agent.kind}</span> {agent.description}{' '}
                <span class="faint">{agent.reason}</span>
              </li>
            )}
          </For>
          <For each={agents()?.faults ?? []}>
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
        <ul class="plain">
          <For each={grants() ?? []} fallback={<li class="faint">Nothing.</li>}>
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
        <ul class="plain tools">
          <For each={tools() ?? []}>
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
  const [config] = createResource(() => client.config().catch(() => undefined))
  const [all, setAll] = createSignal(false)
  const [letters, setLetters] = createSignal('')
  const shown = () => {
    const wanted = letters().trim().toLowerCase()
    const settings = config()?.settings ?? []
    if (wanted !== '')
      return settings.filter(({ name, description }) => `${name} ${description}`.toLowerCase().includes(wanted))
    return all() ? settings : settings.filter(({ value }) => value !== undefined)
  }
  return (
    <Show when={config()}>
      {(read) => (
        <section class="settings">
          <h3>Settings of the server</h3>
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
                  <th>Said by</th>
                </tr>
              </thead>
              <tbody>
                <For
                  each={shown()}
                  fallback={
                    <tr>
                      <td colspan="3" class="faint">
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
                      </td>
                      <td class="faint">{setting.origin ?? (setting.default === undefined ? '' : 'default')}</td>
                    </tr>
                  )}
                </For>
              </tbody>
            </table>
          </Show>
        </section>
      )}
    </Show>
  )
}

function inWords(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value, undefined, 1)
}
