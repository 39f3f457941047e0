/** The files of the directory that the session works in, as a tree and by some letters; what the session changed is marked. */

import type { FileChange, FileEntry } from 'simse/client'
import { createMemo, createResource, createSignal, For, type JSX, type Resource, Show } from 'solid-js'
import { client } from '../connection.ts'
import { mentioned } from '../session/mention.ts'
import type { SessionModel } from '../session/model.ts'
import { FileDiff } from '../text/Diff.tsx'

/** Entries of a directory that are shown. */
const SHOWN = 1_000
/** Files that letters find. */
const FOUND = 100

type Changes = ReadonlyMap<string, FileChange>
interface Shown {
  readonly model: SessionModel
  readonly changes: Changes
}

/** What was answered last; nothing where that was a failure, which must not be read. */
const answerOf = <T,>(resource: Resource<T>): T | undefined =>
  resource.error === undefined ? resource.latest : undefined
/** By what an entry is known again: lines stay, and what is open in them, when all of it is asked for anew. */
const keyOf = (entry: FileEntry) => `${entry.kind === 'directory' ? 'd' : 'f'}${entry.path}`
const nameOf = (path: string) => path.split('/').at(-1) ?? path

function File(props: Shown & { entry: FileEntry; name: string }): JSX.Element {
  const change = () => props.changes.get(props.entry.path)
  return (
    <li>
      <button
        type="button"
        class="quiet"
        classList={{ ignored: props.entry.ignored ?? false }}
        title="Name it in the prompt"
        onClick={() => mentioned.set({ sessionId: props.model.sessionId, path: props.entry.path })}
      >
        <Show when={change()}>{(change) => <span class={`kind ${change().kind}`}>{change().kind} </span>}</Show>
        {props.name}
      </button>
      <Show when={change()}>{(change) => <FileDiff file={change()} />}</Show>
    </li>
  )
}

function Folder(props: Shown & { path: string }): JSX.Element {
  const [view] = createResource(
    () => [props.path, props.model.side.changed()] as const,
    ([path]) => client.sessions.files(props.model.sessionId, { path, limit: SHOWN }),
  )
  const answer = () => answerOf(view)
  const entries = createMemo(() => new Map((answer()?.entries ?? []).map((entry) => [keyOf(entry), entry])))
  return (
    <Show
      when={view.latest}
      fallback={<p class="faint">{view.error === undefined ? 'Looking…' : 'It cannot be looked at.'}</p>}
    >
      {(view) => (
        <ul class="tree">
          <For each={view().entries.map(keyOf)}>
            {(key) => {
              const entry = () => entries().get(key) ?? { path: key.slice(1), kind: 'file' as const }
              return key.startsWith('d') ? (
                <Directory entry={entry()} model={props.model} changes={props.changes} />
              ) : (
                <File entry={entry()} name={nameOf(entry().path)} model={props.model} changes={props.changes} />
              )
            }}
          </For>
          <Show when={view().truncated}>
            <li class="faint">and more</li>
          </Show>
        </ul>
      )}
    </Show>
  )
}

function Directory(props: Shown & { entry: FileEntry }): JSX.Element {
  const [open, setOpen] = createSignal(false)
  const changed = () => [...props.changes.keys()].filter((path) => path.startsWith(`${props.entry.path}/`)).length
  return (
    <li>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary classList={{ ignored: props.entry.ignored ?? false }}>
          {nameOf(props.entry.path)}/{' '}
          <Show when={changed() > 0}>
            <span class="kind M">{changed()} changed</span>
          </Show>
        </summary>
        <Show when={open()}>
          <Folder path={props.entry.path} model={props.model} changes={props.changes} />
        </Show>
      </details>
    </li>
  )
}

export function Files(props: { model: SessionModel }): JSX.Element {
  const [letters, setLetters] = createSignal('')
  const [diff] = createResource(
    () => [props.model.sessionId, props.model.side.changed()] as const,
    // A server that keeps no record has nothing to mark.
    ([sessionId]) => client.sessions.diff(sessionId).catch(() => undefined),
  )
  const changes = (): Changes => new Map((diff.latest?.files ?? []).map((file) => [file.path, file]))
  const [found] = createResource(
    () => letters().trim() || undefined,
    (query) => client.sessions.files(props.model.sessionId, { query, limit: FOUND }),
  )
  return (
    <>
      <input
        type="search"
        class="wide-field"
        aria-label="Find files"
        placeholder="Find files by some letters"
        value={letters()}
        onInput={(event) => setLetters(event.currentTarget.value)}
      />
      <Show when={letters().trim() !== ''} fallback={<Folder path="." model={props.model} changes={changes()} />}>
        <ul class="tree">
          <For
            each={answerOf(found)?.entries ?? []}
            fallback={<li class="faint">{found.error === undefined ? 'None.' : 'They cannot be looked for.'}</li>}
          >
            {(entry) => <File entry={entry} name={entry.path} model={props.model} changes={changes()} />}
          </For>
          <Show when={answerOf(found)?.truncated}>
            <li class="faint">and more</li>
          </Show>
        </ul>
      </Show>
    </>
  )
}
