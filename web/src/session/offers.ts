/** What is offered while a prompt is written: commands behind `/` at its beginning, agents and files of the project behind `@`. */

import { createEffect, createMemo, createResource, createSignal, on } from 'solid-js'
import { client } from '../connection.ts'

/** What is offered at once. */
const OFFERED = 8
/** How long no letter has come when files are asked for, in milliseconds. */
const PAUSE = 60

export interface Offer {
  /** What stands in the prompt then. */
  readonly word: string
  readonly hint: string
}

/** The word that ends where one writes, when it begins with `@`, without that. */
export const wordAt = (before: string): string | undefined => /(?:^|\s)@(\S*)$/.exec(before)?.[1]

/** The offers for what stands before the place where one writes. */
export function offersFor(sessionId: string, before: () => string) {
  const [commands] = createResource(async (): Promise<readonly Offer[]> => {
    const list = await client.slashCommands({ sessionId }).catch(() => undefined)
    return (list?.commands ?? []).map(({ name, description, argumentHint }) => ({
      word: `/${name}`,
      hint: `${argumentHint ?? ''} ${description}`.trim(),
    }))
  })
  const [agents] = createResource(async (): Promise<readonly Offer[]> => {
    const { workingDirectory } = await client.sessions.get(sessionId)
    const list = await client.agents({ workingDirectory }).catch(() => undefined)
    // To a sub-agent only other agents delegate, and the rest is what a session works as.
    const named = (list?.agents ?? []).filter(({ kind }) => kind === 'main')
    return named.map(({ name, description }) => ({ word: `@${name}`, hint: description }))
  })
  const letters = createMemo(() => wordAt(before()))
  const [files, setFiles] = createSignal<{ letters: string; found: readonly Offer[] } | undefined>()
  let timer: ReturnType<typeof setTimeout> | undefined
  createEffect(
    on(letters, (letters) => {
      clearTimeout(timer)
      if (letters === undefined) return
      timer = setTimeout(async () => {
        const view = await client.sessions.files(sessionId, { query: letters, limit: OFFERED }).catch(() => undefined)
        // An answer to other letters comes too late.
        if (view !== undefined && wordAt(before()) === letters)
          setFiles({ letters, found: view.entries.map(({ path }) => ({ word: `@${path}`, hint: '' })) })
      }, PAUSE)
    }),
  )
  return createMemo((): readonly Offer[] => {
    const fits = (typed: string) => (offer: Offer) => offer.word.slice(1).toLowerCase().includes(typed.toLowerCase())
    const command = /^\/([^\s/]*)$/.exec(before())?.[1]
    if (command !== undefined) return (commands() ?? []).filter(fits(command)).slice(0, OFFERED)
    const typed = letters()
    if (typed === undefined) return []
    // An agent is named in front of all.
    const named = before().trimStart() === `@${typed}` ? (agents() ?? []).filter(fits(typed)) : []
    const found = files()
    return [...named, ...(found?.letters === typed ? found.found : (found?.found ?? []).filter(fits(typed)))].slice(
      0,
      OFFERED,
    )
  })
}
