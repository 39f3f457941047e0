/** The tool servers of a session and how they are; and what its project would start, which waits for a yes. */
import { createResource, For, type JSX, Show } from 'solid-js'
import { client } from '../connection.ts'
import { attempt } from '../parts/toasts.tsx'
import type { SessionModel } from '../session/model.ts'

export function Servers(props: { model: SessionModel }): JSX.Element {
  const [view, { refetch }] = createResource(
    () => props.model.sessionId,
    (sessionId) => client.sessions.mcp(sessionId),
  )
  const trust = async (hash: string, trusted: boolean) => {
    await attempt(() => client.sessions.trustMcp(props.model.sessionId, { hash, trusted }))
    void refetch()
  }
  return (
    <Show
      when={view()}
      fallback={<p class="faint">{view.error === undefined ? 'Looking…' : 'They could not be listed.'}</p>}
    >
      {(all) => (
        <>
          <ul class="plain">
            <For each={all().servers} fallback={<li class="faint">No tool servers.</li>}>
              {(server) => (
                <li>
                  <span class={`badge ${server.state}`}>{server.state}</span> <strong>{server.name}</strong>{' '}
                  <span class="faint">
                    {server.tools} tools, of the {server.of}
                  </span>
                </li>
              )}
            </For>
          </ul>
          <Show when={all().project}>
            {(project) => (
              <section>
                <h3>{project().file}</h3>
                <p>
                  <span class={`badge ${project().state}`}>{project().state}</span>
                </p>
                <ul class="plain">
                  <For each={project().servers}>
                    {(server) => (
                      <li>
                        <strong>{server.name}</strong> would run <code>{server.runs}</code>
                      </li>
                    )}
                  </For>
                  <For each={project().problems ?? []}>{(problem) => <li class="note error">{problem}</li>}</For>
                </ul>
                <Show when={project().hash}>
                  {(hash) => (
                    <button type="button" onClick={() => void trust(hash(), project().state !== 'trusted')}>
                      {project().state === 'trusted' ? 'Take the yes back' : 'Trust this file as it is'}
                    </button>
                  )}
                </Show>
              </section>
            )}
          </Show>
          <button type="button" class="quiet" onClick={() => void refetch()}>
            Look again
          </button>
        </>
      )}
    </Show>
  )
}
