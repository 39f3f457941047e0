/**
 * What waits for an answer: a call that may run or not, with what would happen, or a question with its choices. Each has the time
 * that is left; when it is over the answer is no. `y`, `a` and `n` answer the first one while nothing is written.
 */

import type { Decision, EventOf } from 'simse/client'
import { createSignal, For, type JSX, Match, onCleanup, onMount, Show, Switch } from 'solid-js'
import { client } from '../connection.ts'
import { announce, now } from '../parts/screen.ts'
import { attempt } from '../parts/toasts.tsx'
import { rowsOf } from '../text/diff.ts'
import { Arguments, kindOf, subject } from './Calls.tsx'
import type { Question, SessionModel } from './model.ts'

const LABELS: Readonly<Record<Decision, string>> = { allow: 'Allow once', allow_always: 'Allow always', deny: 'Deny' }
const KEYS: Readonly<Record<Decision, string>> = { allow: 'y', allow_always: 'a', deny: 'n' }

function Countdown(props: { deadline: number }): JSX.Element {
  const left = () => Math.max(0, Math.ceil((props.deadline - now()) / 1_000))
  return (
    <span class="countdown" classList={{ soon: left() <= 10 }} role="timer" aria-label={`${left()} seconds left`}>
      {left()} s
    </span>
  )
}

/** What a call would do, as the server worked it out. */
function Preview(props: { preview: unknown }): JSX.Element {
  const diff = () => {
    const value = props.preview
    if (typeof value === 'string') return value
    if (typeof value === 'object' && value !== null && 'diff' in value && typeof value.diff === 'string')
      return value.diff
    return undefined
  }
  return (
    <Show when={props.preview !== undefined && props.preview !== null}>
      <Show when={diff()} fallback={<pre class="preview">{JSON.stringify(props.preview, null, 2)}</pre>}>
        {(text) => (
          <pre class="preview">
            <Show when={rowsOf(text()).length > 0} fallback={text()}>
              <For each={rowsOf(text())}>
                {(row) => (
                  <span
                    class={`line ${row.kind}`}
                  >{`${row.kind === 'added' ? '+ ' : row.kind === 'removed' ? '− ' : '  '}${row.text}\n`}</span>
                )}
              </For>
            </Show>
          </pre>
        )}
      </Show>
    </Show>
  )
}

/** Whether a preview says all that the arguments do. */
function shows({ toolName, preview }: PermissionPayload): boolean {
  return kindOf(toolName) === 'edit' && preview !== undefined && preview !== null
}

type PermissionPayload = EventOf<'permission.request'>['payload']
type ClientPayload = EventOf<'client.request'>['payload']

function Permission(props: {
  sessionId: string
  payload: PermissionPayload
  child: boolean
  first: boolean
}): JSX.Element {
  const [message, setMessage] = createSignal('')
  const [sent, setSent] = createSignal(false)
  const answer = async (decision: Decision) => {
    if (sent()) return
    setSent(true)
    const words = message().trim()
    const body = { requestId: props.payload.requestId, decision, ...(words === '' ? {} : { message: words }) }
    if (!(await attempt(() => client.sessions.feedback(props.sessionId, body)))) setSent(false)
  }
  onMount(() => {
    announce(`${props.payload.toolName} waits for permission: ${subject(props.payload.args)}`)
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement
      if (
        !props.first ||
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        target.closest('input, textarea, select, dialog')
      )
        return
      const decision = props.payload.options.find((option) => KEYS[option] === event.key)
      if (decision === undefined) return
      event.preventDefault()
      void answer(decision)
    }
    addEventListener('keydown', press)
    onCleanup(() => removeEventListener('keydown', press))
  })
  return (
    <section class="question permission" aria-label={`Permission for ${props.payload.toolName}`}>
      <header>
        <h2>
          May <strong>{props.payload.toolName}</strong> run?
        </h2>
        <Show when={props.child}>
          <span class="badge">asked by a sub-agent</span>
        </Show>
        <Countdown deadline={props.payload.deadline} />
      </header>
      <div class="would">
        <Show when={!shows(props.payload)}>
          <Arguments name={props.payload.toolName} args={props.payload.args} />
        </Show>
        <Show when={shows(props.payload)}>
          <p class="path">{subject(props.payload.args)}</p>
        </Show>
        <Preview preview={props.payload.preview} />
      </div>
      <div class="answers">
        <For each={props.payload.options}>
          {(option) => (
            <button type="button" class={option} disabled={sent()} onClick={() => void answer(option)}>
              {LABELS[option]}
              <Show when={props.first}>
                <kbd>{KEYS[option]}</kbd>
              </Show>
            </button>
          )}
        </For>
        <input
          aria-label="Words for the model"
          placeholder="Words for the model (optional)"
          value={message()}
          onInput={(event) => setMessage(event.currentTarget.value)}
        />
      </div>
    </section>
  )
}

function Asked(props: { sessionId: string; payload: ClientPayload; child: boolean }): JSX.Element {
  const [text, setText] = createSignal(
    props.payload.question.kind === 'editor' ? (props.payload.question.text ?? '') : '',
  )
  const [chosen, setChosen] = createSignal<readonly string[]>([])
  const [sent, setSent] = createSignal(false)
  const send = async (body: { value: unknown } | { cancelled: true }) => {
    setSent(true)
    if (
      !(await attempt(() => client.sessions.feedback(props.sessionId, { requestId: props.payload.requestId, ...body })))
    )
      setSent(false)
  }
  const of = <K extends ClientPayload['question']['kind']>(kind: K) =>
    props.payload.question.kind === kind
      ? (props.payload.question as Extract<ClientPayload['question'], { kind: K }>)
      : undefined
  const toggle = (option: string, on: boolean) =>
    setChosen(on ? [...chosen(), option] : chosen().filter((one) => one !== option))
  onMount(() => announce(`A question: ${props.payload.question.title}`))
  return (
    <section class="question" aria-label="A question">
      <header>
        <h2>{props.payload.question.title}</h2>
        <Show when={props.child}>
          <span class="badge">asked by a sub-agent</span>
        </Show>
        <Countdown deadline={props.payload.deadline} />
      </header>
      <Switch>
        <Match when={of('select')}>
          {(question) => (
            <Show
              when={question().several}
              fallback={
                <div class="answers">
                  <For each={question().options}>
                    {(option) => (
                      <button type="button" disabled={sent()} onClick={() => void send({ value: option })}>
                        {option}
                      </button>
                    )}
                  </For>
                </div>
              }
            >
              <fieldset>
                <legend class="unseen">Choices</legend>
                <For each={question().options}>
                  {(option) => (
                    <label>
                      <input type="checkbox" onChange={(event) => toggle(option, event.currentTarget.checked)} />{' '}
                      {option}
                    </label>
                  )}
                </For>
                <button type="button" disabled={sent()} onClick={() => void send({ value: chosen() })}>
                  Answer
                </button>
              </fieldset>
            </Show>
          )}
        </Match>
        <Match when={of('confirm')}>
          {(question) => (
            <>
              <Show when={question().message}>{(message) => <p>{message()}</p>}</Show>
              <div class="answers">
                <button type="button" class="allow" disabled={sent()} onClick={() => void send({ value: true })}>
                  Yes
                </button>
                <button type="button" class="deny" disabled={sent()} onClick={() => void send({ value: false })}>
                  No
                </button>
              </div>
            </>
          )}
        </Match>
        <Match when={of('input') ?? of('editor')}>
          <form
            class="answers"
            onSubmit={(event) => {
              event.preventDefault()
              void send({ value: text() })
            }}
          >
            <Show
              when={of('editor')}
              fallback={
                <input
                  aria-label={props.payload.question.title}
                  placeholder={of('input')?.placeholder ?? ''}
                  value={text()}
                  onInput={(event) => setText(event.currentTarget.value)}
                />
              }
            >
              <textarea
                aria-label={props.payload.question.title}
                rows="6"
                value={text()}
                onInput={(event) => setText(event.currentTarget.value)}
              />
            </Show>
            <button type="submit" disabled={sent()}>
              Answer
            </button>
          </form>
        </Match>
      </Switch>
      <button type="button" class="quiet" disabled={sent()} onClick={() => void send({ cancelled: true })}>
        No answer
      </button>
    </section>
  )
}

export function Questions(props: { model: SessionModel }): JSX.Element {
  const permission = (question: Question) =>
    question.request.type === 'permission.request' ? question.request.payload : undefined
  const asked = (question: Question) =>
    question.request.type === 'client.request' ? question.request.payload : undefined
  const first = () => props.model.questions().find((question) => question.request.type === 'permission.request')
  return (
    <Show when={props.model.questions().length > 0}>
      <div class="questions">
        <For each={props.model.questions()}>
          {(question) => {
            const child = question.sessionId !== props.model.sessionId
            return (
              <Switch>
                <Match when={permission(question)}>
                  {(payload) => (
                    <Permission
                      sessionId={question.sessionId}
                      payload={payload()}
                      child={child}
                      first={question === first()}
                    />
                  )}
                </Match>
                <Match when={asked(question)}>
                  {(payload) => <Asked sessionId={question.sessionId} payload={payload()} child={child} />}
                </Match>
              </Switch>
            )
          }}
        </For>
      </div>
    </Show>
  )
}
