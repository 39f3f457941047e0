/** Files that are to be named in the prompt: who shows one says so here, and where one writes hears it. */

import { cell } from '../parts/cell.ts'

/** The last one. */
export const mentioned = cell<{ readonly sessionId: string; readonly path: string } | undefined>(undefined, true)
