/** Over a session: its title, who answers with what, how much it does by itself, how full its context is, and what can be done with all of it. */

import type { PermissionMode } from 'simse/client'
import { createResource, createSignal, For, type JSX, Show } from 'solid-js'
import { client } from '../connection.ts'
import { MODES } from '../NewSession.tsx'
import { short } from '../parts/screen.ts'
import { attempt, toast } from '../parts/toasts.tsx'
import { go } from '../place.ts'
import { titleOf } from '../Sidebar.tsx'
import { forget, look } from '../sessions.ts'
import type { SessionModel } from './model.ts'

const LINES = { opening: 'opening', live: 'live', broken: 'reconnecting', gone: 'gone' } as const

/** How much of the model's window the last request took. */
function Meter(props: { model: SessionModel; window: number | undefined }): JSX.Element {
  const agent = () => props.model.side.agentUsage()
  const used = () => agent()?.used ?? props.model.side.usage()?.totalTokens
  const size = () => agent()?.size ?? props.window
  const share = () => {
    const [taken, all] = [used(), size()]
    return taken === undefined || all === undefined || all === 0 ? undefined : Math.min(1, taken / all)
  }
  const total = () => props.model.view()?.usage
  const cost = () => agent()?.cost?.amount ?? total()?.costUsd
  return (
    <span class="meter" title={`${short(total()?.totalTokens ?? 0)} tokens in all`}>
      <Show when={share() !== undefined}>
        <meter min="0" max="1" high="0.8" value={share() ?? 0} aria-label="Context">
          {Math.round((share() ?? 0) * 100)} %
        </meter>
        <span>{Math.round((share() ?? 0) * 100)} %</span>
      </Show>
      <span class="faint">{short(total()?.totalTokens ?? 0)} tokens</span>
      <Show when={cost()}>{(amount) => <span class="faint">${amount().toFixed(amount() < 1 ? 4 : 2)}</span>}</Show>
    </span>
  )
}

export function Header(props: {
  model: SessionModel
  onMenu: () => void
  onPanels: () => void
  panels: boolean
}): JSX.Element {
  const [models] = createResource(async () => (await client.models()).models)
  const [agents] = createResource(
    async () => (await client.agents({ workingDirectory: props.model.view()?.workingDirectory })).agents,
  )
  const [menu, setMenu] = createSignal(false)
  const view = () => props.model.view()
  const id = props.model.sessionId
  const set = (body: Parameters<typeof client.sessions.configure>[1]) =>
    void attempt(async () => {
      await client.sessions.configure(id, body)
      look(id)
      await props.model.refresh()
    })
  const rename = (value: string) => {
    if (value.trim() !== '' && value !== view()?.title) set({ title: value.trim() })
  }
  const compact = () =>
    void attempt(async () => {
      await client.sessions.compact(id)
      toast('info', 'The conversation is summed up behind what runs.')
    })
  const remove = () => {
    if (!confirm('Delete this session and all of its history?')) return
    void attempt(async () => {
      await client.sessions.delete(id)
      forget(id)
      go(undefined)
    })
  }
  const paused = () => view()?.turn?.status === 'paused'
  const window = () => models()?.find((model) => model.id === view()?.model)?.contextTokens
  return (
    <header class="session">
      <button type="button" class="quiet menu" aria-label="Sessions" onClick={() => props.onMenu()}>
        ☰
      </button>
      <Show when={view()}>
        {(now) => (
          <>
            <Show when={now().lineage?.path.at(-1)}>
              {(parent) => (
                <a class="quiet" href={`#/s/${encodeURIComponent(parent())}`} title="The session above">
                  ↑<span class="unseen">The session above</span>
                </a>
              )}
            </Show>
            <input
              class="title"
              aria-label="Title"
              value={now().title ?? ''}
              placeholder={titleOf(now())}
              onChange={(event) => rename(event.currentTarget.value)}
            />
            <select
              aria-label="Agent"
              value={now().agent}
              onChange={(event) => set({ agent: event.currentTarget.value })}
            >
              <For
                each={[
                  ...new Set([
                    now().agent,
                    ...(agents() ?? [])
                      .filter((one) => one.available && one.kind !== 'subagent')
                      .map((one) => one.name),
                  ]),
                ]}
              >
                {(name) => <option value={name}>{name}</option>}
              </For>
            </select>
            <select
              aria-label="Model"
              value={now().model}
              onChange={(event) => set({ model: event.currentTarget.value })}
            >
              <For
                each={[
                  ...new Set([now().model, ...(models() ?? []).filter((one) => one.available).map((one) => one.id)]),
                ]}
              >
                {(name) => <option value={name}>{name}</option>}
              </For>
            </select>
            <select
              aria-label="What it may do"
              value={now().permissionMode}
              onChange={(event) => set({ permissionMode: event.currentTarget.value as PermissionMode })}
            >
              <For each={MODES}>
                {([mode, words]) => (
                  <option value={mode} title={words}>
                    {mode}
                  </option>
                )}
              </For>
            </select>
          </>
        )}
      </Show>
      <Meter model={props.model} window={window()} />
      <span class={`line-state ${props.model.line()}`} role="status">
        {LINES[props.model.line()]}
      </span>
      <div class="more">
        <button type="button" class="quiet" aria-label="More" aria-expanded={menu()} onClick={() => setMenu(!menu())}>
          ⋯
        </button>
        <Show when={menu()}>
          <div
            class="popup"
            onClick={() => setMenu(false)}
            onKeyDown={(event) => event.key === 'Escape' && setMenu(false)}
            role="menu"
            tabindex="-1"
          >
            <Show when={view()?.turn !== undefined}>
              <button
                type="button"
                role="menuitem"
                onClick={() => void attempt(() => (paused() ? client.sessions.resume(id) : client.sessions.pause(id)))}
              >
                {paused() ? 'Go on' : 'Pause'}
              </button>
              <button type="button" role="menuitem" onClick={() => void attempt(() => client.sessions.interrupt(id))}>
                End at the next step
              </button>
            </Show>
            <button type="button" role="menuitem" onClick={() => void attempt(() => client.sessions.undo(id))}>
              Undo the last changes
            </button>
            <button type="button" role="menuitem" onClick={() => void attempt(() => client.sessions.redo(id))}>
              Redo
            </button>
            <button
              type="button"
              role="menuitem"
              onClick={() =>
                void attempt(async () => {
                  go((await client.sessions.fork(id)).sessionId)
                })
              }
            >
              Fork
            </button>
            <button type="button" role="menuitem" onClick={compact}>
              Sum up
            </button>
            <button type="button" role="menuitem" class="deny" onClick={remove}>
              Delete
            </button>
          </div>
        </Show>
      </div>
      <button type="button" class="quiet" aria-pressed={props.panels} onClick={() => props.onPanels()}>
        Panels
      </button>
    </header>
  )
}
