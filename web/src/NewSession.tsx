/** Where a session is made: its directory, who answers, with which model, and how much it does without asking. */

import type { CreateSession, PermissionMode } from 'simse/client'
import { createResource, createSignal, For, type JSX, Show } from 'solid-js'
import { client } from './connection.ts'
import { Dialog } from './parts/Dialog.tsx'
import { attempt } from './parts/toasts.tsx'
import { go } from './place.ts'

export const MODES: readonly (readonly [PermissionMode, string])[] = [
  ['ask', 'Asks before it changes anything'],
  ['accept-edits', 'Edits files, asks for the rest'],
  ['auto', 'Does what no rule forbids'],
  ['plan', 'Only plans'],
]

export function NewSession(props: { onClose: () => void }): JSX.Element {
  const [models] = createResource(async () => (await client.models()).models)
  const [agents] = createResource(async () => (await client.agents()).agents)
  const [directory, setDirectory] = createSignal('')
  const [title, setTitle] = createSignal('')
  const [model, setModel] = createSignal('')
  const [agent, setAgent] = createSignal('')
  const [mode, setMode] = createSignal<PermissionMode | ''>('')
  const [busy, setBusy] = createSignal(false)
  const create = async () => {
    setBusy(true)
    const body: CreateSession = {
      ...(directory() === '' ? {} : { workingDirectory: directory() }),
      ...(title() === '' ? {} : { title: title() }),
      ...(model() === '' ? {} : { model: model() }),
      ...(agent() === '' ? {} : { agent: agent() }),
      ...(mode() === '' ? {} : { permissionMode: mode() as PermissionMode }),
    }
    await attempt(async () => {
      const made = await client.sessions.create(body)
      props.onClose()
      go(made.sessionId)
    })
    setBusy(false)
  }
  return (
    <Dialog title="New session" onClose={props.onClose}>
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault()
          void create()
        }}
      >
        <label>
          Title
          <input
            value={title()}
            placeholder="From the first prompt"
            onInput={(event) => setTitle(event.currentTarget.value)}
          />
        </label>
        <label>
          Working directory
          <input
            value={directory()}
            placeholder="Where the server works"
            onInput={(event) => setDirectory(event.currentTarget.value)}
          />
        </label>
        <label>
          Agent
          <select value={agent()} onChange={(event) => setAgent(event.currentTarget.value)}>
            <option value="">Default</option>
            <For each={(agents() ?? []).filter((one) => one.kind !== 'subagent')}>
              {(one) => (
                <option value={one.name} disabled={!one.available}>
                  {one.name}
                  {one.available ? '' : ` (${one.reason ?? 'not available'})`}
                </option>
              )}
            </For>
          </select>
        </label>
        <label>
          Model
          <select value={model()} onChange={(event) => setModel(event.currentTarget.value)}>
            <option value="">Default</option>
            <For each={models() ?? []}>
              {(one) => (
                <option value={one.id} disabled={!one.available}>
                  {one.label ?? one.id}
                  {one.available ? '' : ` (${one.reason ?? 'not available'})`}
                </option>
              )}
            </For>
          </select>
        </label>
        <label>
          What it may do
          <select value={mode()} onChange={(event) => setMode(event.currentTarget.value as PermissionMode | '')}>
            <option value="">As the server has it</option>
            <For each={MODES}>{([value, words]) => <option value={value}>{words}</option>}</For>
          </select>
        </label>
        <Show when={models.error ?? agents.error}>
          <p class="note error">The models could not be listed.</p>
        </Show>
        <button type="submit" disabled={busy()}>
          Create
        </button>
      </form>
    </Dialog>
  )
}
