/** All that the session did to files, turn by turn, with what undoes it and brings it back; and the files as a tree. */

import type { FileChange } from 'simse/client'
import { createMemo, createResource, For, type JSX, Show } from 'solid-js'
import { client } from '../connection.ts'
import { attempt, toast } from '../parts/toasts.tsx'
import type { SessionModel } from '../session/model.ts'
import { DiffStyle, FileDiff } from '../text/Diff.tsx'

interface Folder {
  readonly name: string
  readonly folders: Folder[]
  readonly files: FileChange[]
}

/** Files by their folders; a folder with nothing but one folder is told in one line with it. */
export function treeOf(files: readonly FileChange[]): Folder {
  const root: Folder = { name: '', folders: [], files: [] }
  for (const file of files) {
    let folder = root
    for (const name of file.path.split('/').slice(0, -1)) {
      let next = folder.folders.find((one) => one.name === name)
      if (next === undefined) {
        next = { name, folders: [], files: [] }
        folder.folders.push(next)
      }
      folder = next
    }
    folder.files.push(file)
  }
  return root
}

function shortened(folder: Folder): Folder {
  const only = folder.folders[0]
  if (folder.files.length > 0 || folder.folders.length !== 1 || only === undefined) return folder
  const next = shortened(only)
  return { ...next, name: `${folder.name}/${next.name}` }
}

function Tree(props: { folder: Folder; onFile: (path: string) => void }): JSX.Element {
  return (
    <ul class="tree">
      <For each={props.folder.folders.map(shortened)}>
        {(folder) => (
          <li>
            <details open>
              <summary>{folder.name}/</summary>
              <Tree folder={folder} onFile={props.onFile} />
            </details>
          </li>
        )}
      </For>
      <For each={props.folder.files}>
        {(file) => (
          <li>
            <button type="button" class="quiet" onClick={() => props.onFile(file.path)}>
              <span class={`kind ${file.kind}`}>{file.kind}</span> {file.path.split('/').at(-1)}{' '}
              <span class="count added">+{file.added}</span> <span class="count removed">−{file.removed}</span>
            </button>
          </li>
        )}
      </For>
    </ul>
  )
}

export function Changes(props: { model: SessionModel }): JSX.Element {
  let list!: HTMLDivElement
  const [view] = createResource(
    () => [props.model.sessionId, props.model.side.changed()] as const,
    ([sessionId]) => client.sessions.diff(sessionId),
  )
  const latest = () => view.latest
  const tree = createMemo(() => treeOf(latest()?.files ?? []))
  const show = (path: string) => {
    const file = [...list.querySelectorAll('details.file')].find(
      (one) => one.querySelector('.path')?.textContent === path,
    )
    if (file instanceof HTMLDetailsElement) {
      file.open = true
      file.scrollIntoView({ block: 'start' })
    }
  }
  const change = async (what: 'undo' | 'redo', turnId?: string) => {
    await attempt(async () => {
      const done = await client.sessions[what](props.model.sessionId, turnId === undefined ? {} : { turnId })
      toast(
        'info',
        `${what === 'undo' ? 'Undone' : 'Done again'}: ${done.files.length} ${done.files.length === 1 ? 'file' : 'files'}`,
      )
    })
  }
  return (
    <Show when={(latest()?.turns.length ?? 0) > 0} fallback={<p class="faint">No file was changed.</p>}>
      <div class="bar">
        <button type="button" class="quiet" onClick={() => void change('undo')}>
          Undo the last turn
        </button>
        <button type="button" class="quiet" onClick={() => void change('redo')}>
          Redo
        </button>
        <DiffStyle />
      </div>
      <ul class="plain turns">
        <For each={latest()?.turns ?? []}>
          {(turn) => (
            <li>
              <span classList={{ undone: turn.undone }}>
                {new Date(turn.at).toLocaleTimeString()}: {turn.fileCount} {turn.fileCount === 1 ? 'file' : 'files'}
              </span>
              <Show when={!turn.dropped} fallback={<span class="faint">too old to undo</span>}>
                <button
                  type="button"
                  class="quiet"
                  onClick={() => void change(turn.undone ? 'redo' : 'undo', turn.turnId)}
                >
                  {turn.undone ? 'Redo' : 'Undo'}
                </button>
              </Show>
            </li>
          )}
        </For>
      </ul>
      <Tree folder={tree()} onFile={show} />
      <div ref={list}>
        <For each={latest()?.files ?? []}>{(file) => <FileDiff file={file} />}</For>
      </div>
      <Show when={latest()?.diffTruncated}>
        <p class="faint">Not all of it is shown: it is too long.</p>
      </Show>
    </Show>
  )
}
