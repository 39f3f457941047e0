/**
 * The timeline: only what is on the screen, and a little around it, is in the page, however long the session is. It follows its end
 * until somebody scrolls up, and loads what lies further back when its beginning comes into sight.
 */
import { createVirtualizer } from '@tanstack/solid-virtual'
import { createEffect, createSignal, For, type JSX, on, onCleanup, onMount, Show } from 'solid-js'
import { LiveMarkdown } from '../text/Markdown.tsx'
import { EntryView, type Opened, Reasoning } from './Entries.tsx'
import type { Entry } from './entries.ts'
import type { SessionModel } from './model.ts'

/** How near the end counts as the end, in pixels. */
const NEAR = 60

function estimate(entry: Entry | undefined): number {
  if (entry === undefined) return 80
  if (entry.kind === 'call') return 44
  if (entry.kind === 'assistant' || entry.kind === 'user')
    return 60 + Math.min(Math.ceil(entry.text.length / 90) * 22, 2_000)
  return 60
}

export function Timeline(props: { model: SessionModel }): JSX.Element {
  let scroller!: HTMLDivElement
  let inner!: HTMLDivElement
  const opened: Opened = new Map()
  const [follows, setFollows] = createSignal(true)
  const entries = () => props.model.entries()
  const virtualizer = createVirtualizer<HTMLDivElement, HTMLDivElement>({
    get count() {
      return entries().length
    },
    getScrollElement: () => scroller,
    estimateSize: (index) => estimate(entries()[index]),
    getItemKey: (index) => entries()[index]?.key ?? index,
    overscan: 6,
    gap: 10,
  })

  const toEnd = () => {
    scroller.scrollTop = scroller.scrollHeight
  }
  let before = 0
  const scrolled = () => {
    const distance = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight
    // What grows pushes the end away; only somebody who scrolls up leaves it.
    if (distance < NEAR) setFollows(true)
    else if (scroller.scrollTop < before - 4) setFollows(false)
    before = scroller.scrollTop
    if (scroller.scrollTop < 400 && props.model.hasOlder()) void older()
  }

  /** What comes in above must not move what is read. */
  const older = async () => {
    const anchor = virtualizer.getVirtualItems().find((item) => item.end > scroller.scrollTop)
    const key = anchor?.key
    const offset = anchor === undefined ? 0 : anchor.start - scroller.scrollTop
    await props.model.loadOlder()
    const index = entries().findIndex((entry) => entry.key === key)
    if (index < 0) return
    const target = virtualizer.getOffsetForIndex(index, 'start')?.[0] ?? 0
    scroller.scrollTop = target - offset
  }

  onMount(() => {
    const watch = new ResizeObserver(() => {
      if (follows()) toEnd()
    })
    watch.observe(inner)
    watch.observe(scroller)
    onCleanup(() => watch.disconnect())
  })
  createEffect(
    on(
      () => props.model.line(),
      (line) => {
        if (line === 'live' && follows()) queueMicrotask(toEnd)
      },
    ),
  )
  createEffect(
    on(
      () => entries().length,
      () => {
        if (follows()) requestAnimationFrame(toEnd)
      },
    ),
  )

  return (
    <div class="timeline-frame">
      <div
        class="timeline"
        ref={scroller}
        onScroll={scrolled}
        tabindex="0"
        role="log"
        aria-live="off"
        aria-label="Conversation"
      >
        <div ref={inner} class="inner">
          <Show when={props.model.hasOlder()}>
            <p class="faint older">Loading what lies further back…</p>
          </Show>
          <div class="whole" style={{ height: `${virtualizer.getTotalSize()}px` }}>
            <For each={virtualizer.getVirtualItems()}>
              {(item) => (
                <div
                  class="row"
                  data-index={item.index}
                  ref={(element) => queueMicrotask(() => virtualizer.measureElement(element))}
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  <Show when={entries()[item.index]}>
                    {(entry) => <EntryView entry={entry()} model={props.model} opened={opened} />}
                  </Show>
                </div>
              )}
            </For>
          </div>
          <Show when={props.model.live.speaks()}>
            <article class="assistant live" aria-label="Answer, in the making">
              <Reasoning text={props.model.live.reasoning()} open={props.model.live.blocks().length === 0} />
              <LiveMarkdown blocks={props.model.live.blocks()} />
              <span class="cursor" aria-hidden="true" />
            </article>
          </Show>
        </div>
      </div>
      <Show when={!follows()}>
        <button
          type="button"
          class="to-end"
          onClick={() => {
            setFollows(true)
            toEnd()
          }}
        >
          ↓ To the end
        </button>
      </Show>
    </div>
  )
}
