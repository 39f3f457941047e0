/** The entries of a timeline, each as it is drawn. */
import { For, type JSX, Match, Show, Switch } from 'solid-js'
import { client } from '../connection.ts'
import { attempt, toast } from '../parts/toasts.tsx'
import { go } from '../place.ts'
import { FileDiff } from '../text/Diff.tsx'
import { Markdown } from '../text/Markdown.tsx'
import { CallCard } from './Calls.tsx'
import type { AssistantEntry, CallEntry, ChangesEntry, Entry, NoteEntry, SummaryEntry, UserEntry } from './entries.ts'
import type { SessionModel } from './model.ts'
import { Pictures } from './Pictures.tsx'

/** Which cards somebody opened or closed; they stay so while the list scrolls. */
export type Opened = Map<string, boolean>

interface Shown<E> {
  readonly entry: E
  readonly model: SessionModel
}

async function fork(model: SessionModel, at: number): Promise<void> {
  await attempt(async () => {
    const made = await client.sessions.fork(model.sessionId, at > 0 ? { at } : {})
    toast('info', 'A new session goes on from there.')
    go(made.sessionId)
  })
}

function Actions(props: Shown<Entry> & { text?: string }): JSX.Element {
  return (
    <div class="actions">
      <Show when={props.text}>
        {(text) => (
          <button
            type="button"
            class="quiet"
            onClick={() => void navigator.clipboard?.writeText(text()).then(() => toast('info', 'Copied.'))}
          >
            Copy
          </button>
        )}
      </Show>
      <Show when={props.entry.seq > 0}>
        <button
          type="button"
          class="quiet"
          title="A new session that goes on from here"
          onClick={() => void fork(props.model, props.entry.seq)}
        >
          Fork
        </button>
      </Show>
    </div>
  )
}

function User(props: Shown<UserEntry>): JSX.Element {
  return (
    <article class="user" aria-label={props.entry.steers ? 'You, into the turn' : 'You'}>
      <Show when={props.entry.steers}>
        <span class="badge">steered</span>
      </Show>
      <div class="said">{props.entry.text}</div>
      <Pictures pictures={props.entry.pictures} />
      <Actions {...props} text={props.entry.text} />
    </article>
  )
}

export function Reasoning(props: { text: string; open?: boolean }): JSX.Element {
  return (
    <Show when={props.text !== ''}>
      <details class="reasoning" open={props.open ?? false}>
        <summary>Thoughts</summary>
        <div class="said">{props.text}</div>
      </details>
    </Show>
  )
}

function Assistant(props: Shown<AssistantEntry>): JSX.Element {
  return (
    <article class="assistant" aria-label="Answer">
      <Reasoning text={props.entry.reasoning} />
      <Show when={props.entry.text !== ''}>
        <Markdown text={props.entry.text} />
      </Show>
      <Show when={props.entry.text !== ''}>
        <Actions {...props} text={props.entry.text} />
      </Show>
    </article>
  )
}

function Changes(props: Shown<ChangesEntry>): JSX.Element {
  const state = () => props.model.side.turns().find((turn) => turn.turnId === props.entry.turnId)
  const change = (what: 'undo' | 'redo') => {
    const turnId = props.entry.turnId
    if (turnId !== undefined) void attempt(() => client.sessions[what](props.model.sessionId, { turnId }))
  }
  return (
    <article class="changes" aria-label="Changes to files">
      <header>
        <h2>
          {props.entry.fileCount} {props.entry.fileCount === 1 ? 'file' : 'files'} changed
        </h2>
        <Show when={!(state()?.dropped ?? false)}>
          <Show
            when={state()?.undone}
            fallback={
              <button type="button" class="quiet" onClick={() => change('undo')}>
                Undo
              </button>
            }
          >
            <button type="button" class="quiet" onClick={() => change('redo')}>
              Redo
            </button>
          </Show>
        </Show>
      </header>
      <For each={props.entry.files}>{(file) => <FileDiff file={file} />}</For>
    </article>
  )
}

function Summary(props: Shown<SummaryEntry>): JSX.Element {
  return (
    <details class="summary">
      <summary>The conversation before this was summed up</summary>
      <Markdown text={props.entry.text} />
    </details>
  )
}

function Note(props: Shown<NoteEntry>): JSX.Element {
  return (
    <p class={`note ${props.entry.level}`} role={props.entry.level === 'error' ? 'alert' : undefined}>
      {props.entry.text}
    </p>
  )
}

export function EntryView(props: Shown<Entry> & { opened: Opened }): JSX.Element {
  const of = <K extends Entry['kind']>(kind: K) =>
    props.entry.kind === kind ? (props.entry as Extract<Entry, { kind: K }>) : undefined
  return (
    <Switch>
      <Match when={of('user')}>{(entry) => <User entry={entry()} model={props.model} />}</Match>
      <Match when={of('assistant')}>{(entry) => <Assistant entry={entry()} model={props.model} />}</Match>
      <Match when={of('call')}>
        {(entry) => (
          <CallCard
            call={entry() as CallEntry}
            kept={props.opened.get(entry().key)}
            onToggle={(open) => props.opened.set(entry().key, open)}
          />
        )}
      </Match>
      <Match when={of('changes')}>{(entry) => <Changes entry={entry()} model={props.model} />}</Match>
      <Match when={of('summary')}>{(entry) => <Summary entry={entry()} model={props.model} />}</Match>
      <Match when={of('note')}>{(entry) => <Note entry={entry()} model={props.model} />}</Match>
    </Switch>
  )
}
