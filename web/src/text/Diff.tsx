/** What changed in files: below each other, or side by side. */
import type { FileChange } from 'simse/client'
import { createMemo, createSignal, For, type JSX, Show } from 'solid-js'
import { wide } from '../parts/screen.ts'
import { Code } from './Code.tsx'
import { pairsOf, type Row, rowsOf } from './diff.ts'
import { languageOf } from './highlight.ts'

/** Rows that are shown before somebody asks for more. */
const ROWS = 400

const [beside, setBeside] = createSignal(false)

const SIGNS = { same: ' ', removed: '−', added: '+', hunk: '', note: '' } as const
const WORDS = { A: 'added', M: 'changed', D: 'deleted' } as const

function Line(props: { row: Row | undefined; language: string; side: 'before' | 'after' | 'both' }): JSX.Element {
  return (
    <Show when={props.row} fallback={<td class="none" colspan="2" />}>
      {(row) => (
        <Show
          when={row().kind !== 'hunk' && row().kind !== 'note'}
          fallback={
            <td class={row().kind} colspan={props.side === 'both' ? 3 : 2}>
              {row().text}
            </td>
          }
        >
          <Show when={props.side !== 'after'}>
            <td class="number">{row().before}</td>
          </Show>
          <Show when={props.side !== 'before'}>
            <td class="number">{row().after}</td>
          </Show>
          <td class={`line ${row().kind}`}>
            <span class="sign">{SIGNS[row().kind]}</span>
            <Code code={row().text} language={props.language} />
          </td>
        </Show>
      )}
    </Show>
  )
}

function Rows(props: { diff: string; language: string }): JSX.Element {
  const [all, setAll] = createSignal(false)
  const rows = createMemo(() => rowsOf(props.diff))
  const shown = () => (all() ? rows() : rows().slice(0, ROWS))
  const split = () => beside() && wide()
  return (
    <>
      <div class="wide" tabindex="0">
        <table class="diff" classList={{ split: split() }}>
          <Show when={split()}>
            <colgroup>
              <col class="number" />
              <col />
              <col class="number" />
              <col />
            </colgroup>
          </Show>
          <tbody>
            <Show
              when={split()}
              fallback={
                <For each={shown()}>
                  {(row) => (
                    <tr>
                      <Line row={row} language={props.language} side="both" />
                    </tr>
                  )}
                </For>
              }
            >
              <For each={pairsOf(shown())}>
                {(pair) => (
                  <tr>
                    <Line row={pair.left} language={props.language} side="before" />
                    <Line row={pair.right} language={props.language} side="after" />
                  </tr>
                )}
              </For>
            </Show>
          </tbody>
        </table>
      </div>
      <Show when={!all() && rows().length > ROWS}>
        <button type="button" class="quiet" onClick={() => setAll(true)}>
          {rows().length - ROWS} more lines
        </button>
      </Show>
    </>
  )
}

/** One file. */
export function FileDiff(props: { file: FileChange; open?: boolean }): JSX.Element {
  return (
    <details class="file" open={props.open ?? false}>
      <summary>
        <span class={`badge ${WORDS[props.file.kind]}`}>{WORDS[props.file.kind]}</span>
        <span class="path">{props.file.path}</span>
        <span class="count added">+{props.file.added}</span>
        <span class="count removed">−{props.file.removed}</span>
      </summary>
      <Show when={props.file.diff} fallback={<p class="faint">{props.file.note ?? 'No text to show.'}</p>}>
        {(diff) => <Rows diff={diff()} language={languageOf(props.file.path)} />}
      </Show>
      <Show when={props.file.notUndoable}>{(why) => <p class="faint">Cannot be undone: {why()}</p>}</Show>
    </details>
  )
}

/** Whether diffs stand side by side, where there is room. */
export function DiffStyle(): JSX.Element {
  return (
    <button type="button" class="quiet" aria-pressed={beside()} onClick={() => setBeside(!beside())}>
      {beside() ? 'Side by side' : 'Inline'}
    </button>
  )
}
