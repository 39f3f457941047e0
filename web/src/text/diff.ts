/** Unified diffs taken apart into the rows that are shown, below each other or side by side. */

/** A row of a diff: a line that stays, goes or comes, or the head of a hunk. */
export interface Row {
  readonly kind: 'same' | 'removed' | 'added' | 'hunk' | 'note'
  readonly before: number | undefined
  readonly after: number | undefined
  readonly text: string
}

/** Two rows that stand side by side. */
export interface Pair {
  readonly left: Row | undefined
  readonly right: Row | undefined
}

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/

/** The rows of a unified diff; what stands before the first hunk is left out. */
export function rowsOf(diff: string): Row[] {
  const rows: Row[] = []
  let [before, after, inside] = [0, 0, false]
  for (const line of diff.replace(/\n$/, '').split('\n')) {
    const hunk = HUNK.exec(line)
    if (hunk !== null) {
      before = Number(hunk[1])
      after = Number(hunk[2])
      inside = true
      rows.push({ kind: 'hunk', before: undefined, after: undefined, text: line })
    } else if (inside) {
      const text = line.slice(1)
      if (line.startsWith('+')) rows.push({ kind: 'added', before: undefined, after: after++, text })
      else if (line.startsWith('-')) rows.push({ kind: 'removed', before: before++, after: undefined, text })
      else if (line.startsWith('\\')) rows.push({ kind: 'note', before: undefined, after: undefined, text: line })
      else rows.push({ kind: 'same', before: before++, after: after++, text })
    }
  }
  return rows
}

/** The same rows side by side: what goes stands beside what comes in its place. */
export function pairsOf(rows: readonly Row[]): Pair[] {
  const pairs: Pair[] = []
  let [removed, added]: [Row[], Row[]] = [[], []]
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++)
      pairs.push({ left: removed[at], right: added[at] })
    removed = []
    added = []
  }
  for (const row of rows) {
    if (row.kind === 'removed') removed.push(row)
    else if (row.kind === 'added') added.push(row)
    else {
      flush()
      pairs.push({ left: row, right: row })
    }
  }
  flush()
  return pairs
}
