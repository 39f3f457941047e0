/** A call of a tool as a card: what it does in a line, what it says while it runs, and what came out. */
import { createSignal, For, type JSX, Match, Show, Switch } from 'solid-js'
import { now, short, span } from '../parts/screen.ts'
import { Code } from '../text/Code.tsx'
import { rowsOf } from '../text/diff.ts'
import { languageOf } from '../text/highlight.ts'
import type { CallEntry } from './entries.ts'
import { Pictures } from './Pictures.tsx'

/** Text that is shown before somebody asks for more. */
const SHOWN = 6_000

const SUBJECTS = [
  'command',
  'cmd',
  'path',
  'file_path',
  'pattern',
  'query',
  'url',
  'task',
  'name',
  'subject',
  'key',
] as const

/** What a call is about, in a line. */
export function subject(args: Readonly<Record<string, unknown>>): string {
  for (const name of SUBJECTS) {
    const value = args[name]
    if (typeof value === 'string' && value !== '') return value.split('\n')[0] ?? ''
    if (Array.isArray(value) && value.length > 0) return value.map(String).join(' ')
  }
  const text = JSON.stringify(args)
  return text === '{}' ? '' : text
}

/** The kind of a tool, by which its card is drawn. */
export function kindOf(name: string): 'terminal' | 'search' | 'edit' | 'read' | 'other' {
  if (/bash|exec|shell|process/.test(name)) return 'terminal'
  if (/grep|glob|search|list/.test(name)) return 'search'
  if (/edit|write|patch|delete|move/.test(name)) return 'edit'
  if (/read|view|stat/.test(name)) return 'read'
  return 'other'
}

const ICONS = { terminal: '❯', search: '⌕', edit: '✎', read: '◫', other: '◆' } as const

function Long(props: { text: string; class: string; children?: (text: string) => JSX.Element }): JSX.Element {
  const [all, setAll] = createSignal(false)
  const shown = () => (all() || props.text.length <= SHOWN ? props.text : props.text.slice(-SHOWN))
  return (
    <>
      <Show when={shown() !== props.text}>
        <button type="button" class="quiet" onClick={() => setAll(true)}>
          {short(props.text.length - SHOWN)} characters before this
        </button>
      </Show>
      <pre class={props.class} tabindex="0">
        {props.children === undefined ? shown() : props.children(shown())}
      </pre>
    </>
  )
}

/** Lines of `path:line:text` with the path apart from the text. */
function Hits(props: { text: string }): JSX.Element {
  return (
    <For each={props.text.split('\n')}>
      {(line) => {
        const found = /^([^\s:][^:]*):(\d+)[:-](.*)$/.exec(line)
        return (
          <Show when={found} fallback={<span class="hit">{`${line}\n`}</span>}>
            {(parts) => (
              <span class="hit">
                <span class="path">{parts()[1]}</span>
                <span class="number">:{parts()[2]}: </span>
                {`${parts()[3]}\n`}
              </span>
            )}
          </Show>
        )
      }}
    </For>
  )
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2)
}

/** What an edit puts in the place of what. */
function Replacement(props: { args: Readonly<Record<string, unknown>> }): JSX.Element {
  const text = (...names: string[]) =>
    names.map((name) => props.args[name]).find((value) => typeof value === 'string') as string | undefined
  const [before, after, patch] = [
    text('old_string', 'oldText', 'old'),
    text('new_string', 'newText', 'new', 'content'),
    text('patch', 'input'),
  ]
  const lines = (value: string | undefined, sign: string, kind: string) => (
    <For each={value === undefined || value === '' ? [] : value.replace(/\n$/, '').split('\n').slice(0, 300)}>
      {(line) => <span class={`line ${kind}`}>{`${sign}${line}\n`}</span>}
    </For>
  )
  return (
    <pre class="replacement">
      <Show when={patch} fallback={[lines(before, '− ', 'removed'), lines(after, '+ ', 'added')]}>
        {(whole) => (
          <Show when={rowsOf(whole()).length > 0} fallback={<span class="line">{whole()}</span>}>
            <For each={rowsOf(whole())}>
              {(row) => (
                <span
                  class={`line ${row.kind}`}
                >{`${row.kind === 'added' ? '+ ' : row.kind === 'removed' ? '− ' : '  '}${row.text}\n`}</span>
              )}
            </For>
          </Show>
        )}
      </Show>
    </pre>
  )
}

/** What a call was given, as its kind shows it best. */
export function Arguments(props: { name: string; args: Readonly<Record<string, unknown>> }): JSX.Element {
  const path = () => asText(props.args.path ?? props.args.file_path ?? '')
  return (
    <Switch
      fallback={
        <dl class="arguments">
          <For each={Object.entries(props.args)}>
            {([name, value]) => (
              <>
                <dt>{name}</dt>
                <dd>
                  <pre>{asText(value)}</pre>
                </dd>
              </>
            )}
          </For>
        </dl>
      }
    >
      <Match when={kindOf(props.name) === 'terminal' && typeof (props.args.command ?? props.args.cmd) === 'string'}>
        <pre class="command">
          <Code code={asText(props.args.command ?? props.args.cmd)} language="bash" />
        </pre>
      </Match>
      <Match when={kindOf(props.name) === 'edit'}>
        <p class="path">{path()}</p>
        <Replacement args={props.args} />
      </Match>
    </Switch>
  )
}

function Output(props: { call: CallEntry }): JSX.Element {
  const kind = () => kindOf(props.call.name)
  const path = () => asText(props.call.args.path ?? props.call.args.file_path ?? '')
  return (
    <Switch fallback={<Long text={props.call.output} class="output" />}>
      <Match when={props.call.output === ''}>
        <Show when={props.call.state !== 'running'}>
          <p class="faint">No output.</p>
        </Show>
      </Match>
      <Match when={kind() === 'search' && props.call.state === 'done'}>
        <Long text={props.call.output} class="output hits">
          {(text) => <Hits text={text} />}
        </Long>
      </Match>
      <Match when={kind() === 'read' && props.call.state === 'done'}>
        <Long text={props.call.output} class="output">
          {(text) => <Code code={text} language={languageOf(path())} />}
        </Long>
      </Match>
    </Switch>
  )
}

/** `kept`: whether somebody opened or closed it; else it is open while it says something. */
export function CallCard(props: {
  call: CallEntry
  kept: boolean | undefined
  onToggle: (open: boolean) => void
}): JSX.Element {
  const [chosen, setChosen] = createSignal(props.kept)
  const took = () => props.call.durationMs ?? (props.call.state === 'running' ? now() - props.call.at : undefined)
  const words = { running: 'running', done: 'done', failed: 'failed' } as const
  const open = () => chosen() ?? (props.call.state === 'running' && props.call.output !== '')
  const toggle = (event: Event) => {
    event.preventDefault()
    const next = !open()
    setChosen(next)
    props.onToggle(next)
  }
  return (
    <details class={`call ${props.call.state} ${kindOf(props.call.name)}`} open={open()}>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a summary is pressed, by keys too */}
      <summary onClick={toggle}>
        <span class="icon" aria-hidden="true">
          {ICONS[kindOf(props.call.name)]}
        </span>
        <span class="name">{props.call.name}</span>
        <span class="subject">{subject(props.call.args)}</span>
        <span class={`badge ${props.call.state}`}>{words[props.call.state]}</span>
        <Show when={took()}>{(ms) => <span class="faint time">{span(ms())}</span>}</Show>
      </summary>
      <Show when={open()}>
        <Arguments name={props.call.name} args={props.call.args} />
        <Show when={props.call.skippedBytes > 0}>
          <p class="faint">{short(props.call.skippedBytes)} bytes are not shown while it runs.</p>
        </Show>
        <Output call={props.call} />
        <Pictures pictures={props.call.pictures} />
        <For each={props.call.findings}>{(finding) => <pre class="finding">{finding}</pre>}</For>
      </Show>
    </details>
  )
}
