/**
 * Where a prompt is written. While a turn runs it waits behind it, or is put into it. Pictures come by drag, paste or choice, text
 * files as their text; `/` lists commands, `@` agents and files. What was written stays when it could not be sent, and when another session is looked at.
 */

import type { PartInput, PromptMode } from 'simse/client'
import { createEffect, createMemo, createSignal, For, type JSX, on, onMount, Show } from 'solid-js'
import { client } from '../connection.ts'
import { short } from '../parts/screen.ts'
import { attempt, toast } from '../parts/toasts.tsx'
import type { Picture } from './entries.ts'
import { mentioned } from './mention.ts'
import type { SessionModel } from './model.ts'
import { type Offer, offersFor } from './offers.ts'
import { Pictures } from './Pictures.tsx'

const PICTURE_KINDS = ['image/png', 'image/jpeg', 'image/gif', 'image/webp']
/** Largest picture, in bytes. */
const PICTURE_MAX = 5_000_000
/** Largest file that is put into a prompt as text, in bytes. */
const TEXT_MAX = 200_000

const drafts = new Map<string, string>()

async function base64(file: Blob): Promise<string> {
  const url = await new Promise<string>((done, failed) => {
    const reader = new FileReader()
    reader.onload = () => done(String(reader.result))
    reader.onerror = () => failed(reader.error)
    reader.readAsDataURL(file)
  })
  return url.slice(url.indexOf(',') + 1)
}

export function Composer(props: { model: SessionModel }): JSX.Element {
  let area!: HTMLTextAreaElement
  let chooser!: HTMLInputElement
  const sessionId = props.model.sessionId
  const [text, setText] = createSignal(drafts.get(sessionId) ?? '')
  const [pictures, setPictures] = createSignal<readonly Picture[]>([])
  const [mode, setMode] = createSignal<Exclude<PromptMode, 'reject'>>('queue')
  const [sending, setSending] = createSignal(false)
  const [over, setOver] = createSignal(false)
  const [chosen, setChosen] = createSignal(0)
  const [closed, setClosed] = createSignal(false)
  const runs = () => props.model.view()?.turn !== undefined

  /** Where one writes. */
  const [place, setPlace] = createSignal(text().length)
  const before = createMemo(() => text().slice(0, place()))
  const found = offersFor(sessionId, before)
  const offers = () => (closed() ? [] : found())

  const write = (value: string, at = value.length) => {
    setText(value)
    setPlace(at)
    setClosed(false)
    setChosen(0)
    drafts.set(sessionId, value)
    queueMicrotask(grow)
  }
  /** Where one writes is moved by keys and the mouse as well. */
  const look = () => setPlace(area.selectionStart)
  const grow = () => {
    area.style.height = 'auto'
    area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`
  }
  onMount(() => {
    grow()
    area.focus()
  })

  const take = (offer: Offer) => {
    const start = before().length - (/\S*$/.exec(before())?.[0].length ?? 0)
    const front = `${text().slice(0, start)}${offer.word} `
    write(`${front}${text().slice(place()).replace(/^ /, '')}`, front.length)
    area.focus()
    area.setSelectionRange(front.length, front.length)
  }
  createEffect(
    on(
      mentioned,
      (file) => {
        if (file?.sessionId !== sessionId) return
        const front = `${before()}${before() === '' || /\s$/.test(before()) ? '' : ' '}@${file.path} `
        write(`${front}${text().slice(place()).replace(/^ /, '')}`, front.length)
        area.focus()
        area.setSelectionRange(front.length, front.length)
      },
      { defer: true },
    ),
  )

  const attach = async (files: Iterable<File>) => {
    for (const file of files) {
      if (PICTURE_KINDS.includes(file.type)) {
        if (file.size > PICTURE_MAX) toast('error', `${file.name}: larger than ${short(PICTURE_MAX)} bytes`)
        else setPictures([...pictures(), { mediaType: file.type, data: await base64(file) }])
      } else if (file.size > TEXT_MAX) toast('error', `${file.name}: larger than ${short(TEXT_MAX)} bytes`)
      else {
        const content = await file.text()
        if (content.includes('\0')) toast('error', `${file.name}: neither a picture nor a text`)
        else write(`${text()}${text() === '' ? '' : '\n\n'}${file.name}:\n\`\`\`\n${content}\n\`\`\`\n`)
      }
    }
  }

  const send = async () => {
    const words = text().trim()
    if ((words === '' && pictures().length === 0) || sending()) return
    setSending(true)
    const sentPictures = pictures()
    // Who writes on while it is on its way writes the next one.
    setPictures([])
    write('')
    const parts: PartInput[] = [
      ...(words === '' ? [] : [{ type: 'text' as const, text: words }]),
      ...sentPictures.map((picture) => ({ type: 'image' as const, ...picture })),
    ]
    const sent = await attempt(() =>
      client.sessions.prompt(sessionId, {
        prompt: sentPictures.length === 0 ? words : parts,
        mode: runs() ? mode() : 'queue',
      }),
    )
    setSending(false)
    if (sent) return
    setPictures([...sentPictures, ...pictures()])
    write(text() === '' ? words : `${words}\n${text()}`)
  }

  const press = (event: KeyboardEvent) => {
    // The keys of an input method are its own.
    if (event.isComposing) return
    const list = offers()
    if (list.length > 0) {
      const move = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
      if (move !== 0) {
        event.preventDefault()
        setChosen((chosen() + move + list.length) % list.length)
        return
      }
      const offer = list[chosen()]
      if ((event.key === 'Tab' || event.key === 'Enter') && offer !== undefined) {
        event.preventDefault()
        take(offer)
        return
      }
      if (event.key === 'Escape') {
        event.stopPropagation()
        setClosed(true)
        return
      }
    }
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault()
      void send()
    }
  }

  const stop = () => void attempt(() => client.sessions.abort(sessionId, { reason: 'stopped on the page' }))
  const takeBack = (turnId: string) =>
    void attempt(() => client.sessions.abort(sessionId, { turnId, reason: 'taken back' }))

  return (
    <form
      class="composer"
      classList={{ over: over() }}
      onSubmit={(event) => {
        event.preventDefault()
        void send()
      }}
      onDragOver={(event) => {
        event.preventDefault()
        setOver(true)
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault()
        setOver(false)
        void attach(event.dataTransfer?.files ?? [])
      }}
    >
      <Show when={props.model.queue().length > 0}>
        <ol class="queue" aria-label="Prompts that wait">
          <For each={props.model.queue()}>
            {(turn) => (
              <li>
                <span class="subject">{turn.prompt}</span>
                <button type="button" class="quiet" aria-label="Take back" onClick={() => takeBack(turn.turnId)}>
                  ✕
                </button>
              </li>
            )}
          </For>
        </ol>
      </Show>
      <Show when={offers().length > 0}>
        <div class="offers" role="listbox" id="offers" aria-label="Commands, agents and files">
          <For each={offers()}>
            {(offer, at) => (
              // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the text field
              // biome-ignore lint/a11y/useFocusableInteractive: the focus stays in the text field
              <div role="option" id={`offer-${at()}`} aria-selected={at() === chosen()} onClick={() => take(offer)}>
                <strong>{offer.word}</strong> <span class="faint">{offer.hint}</span>
              </div>
            )}
          </For>
        </div>
      </Show>
      <Pictures pictures={pictures()} />
      <Show when={pictures().length > 0}>
        <button type="button" class="quiet" onClick={() => setPictures([])}>
          Leave the pictures out
        </button>
      </Show>
      <textarea
        ref={area}
        id="prompt"
        rows="1"
        aria-label="Prompt"
        aria-autocomplete="list"
        aria-controls={offers().length > 0 ? 'offers' : undefined}
        aria-activedescendant={offers().length > 0 ? `offer-${chosen()}` : undefined}
        placeholder={runs() ? 'Say more: it waits, or is put into the turn' : 'What is to be done?'}
        value={text()}
        onInput={(event) => write(event.currentTarget.value, event.currentTarget.selectionStart)}
        onSelect={look}
        onKeyUp={look}
        onClick={look}
        onKeyDown={press}
        onPaste={(event) => {
          const files = event.clipboardData?.files
          if (files !== undefined && files.length > 0) {
            event.preventDefault()
            void attach(files)
          }
        }}
      />
      <div class="buttons">
        <button type="button" class="quiet" title="Attach pictures and texts" onClick={() => chooser.click()}>
          + File
        </button>
        <input
          ref={chooser}
          type="file"
          multiple
          hidden
          onChange={(event) => void attach(event.currentTarget.files ?? [])}
        />
        <Show when={runs()}>
          <label class="mode">
            <span class="unseen">While it runs</span>
            <select value={mode()} onChange={(event) => setMode(event.currentTarget.value as 'queue' | 'steer')}>
              <option value="queue">Behind this turn</option>
              <option value="steer">Into this turn</option>
            </select>
          </label>
          <button type="button" class="deny stop" onClick={stop}>
            Stop
          </button>
        </Show>
        <button type="submit" class="send" disabled={sending() || (text().trim() === '' && pictures().length === 0)}>
          {runs() ? (mode() === 'steer' ? 'Steer' : 'Queue') : 'Send'}
        </button>
      </div>
    </form>
  )
}
