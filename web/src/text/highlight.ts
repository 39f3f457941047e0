/** Colours code. The grammars come with the first code that is shown; text is never read as HTML. */
import type { createLowlight } from 'lowlight'

type Lowlight = ReturnType<typeof createLowlight>
/** A piece of text with the classes that it is drawn with. */
export interface Piece {
  readonly text: string
  readonly classes: string
}

/** Longer code is shown as it is. */
const HIGHLIGHT_MAX = 40_000
/** A line so long is no code that anybody wrote. */
const LINE_MAX = 2_000

let loading: Promise<Lowlight> | undefined

async function load(): Promise<Lowlight> {
  const { common, createLowlight } = await import('lowlight')
  return createLowlight(common)
}

interface Node {
  readonly type: string
  readonly value?: string
  readonly children?: readonly Node[]
  readonly properties?: { readonly className?: readonly (string | number)[] }
}

function flatten(nodes: readonly Node[], classes: string, into: Piece[]): Piece[] {
  for (const node of nodes) {
    if (node.type === 'text') into.push({ text: node.value ?? '', classes })
    else flatten(node.children ?? [], [classes, ...(node.properties?.className ?? [])].join(' ').trim(), into)
  }
  return into
}

/** The pieces of a code in a language; undefined where it is not coloured. */
export async function highlight(code: string, language: string): Promise<readonly Piece[] | undefined> {
  if (code.length > HIGHLIGHT_MAX || language === '') return undefined
  if (code.split('\n').some((line) => line.length > LINE_MAX)) return undefined
  loading ??= load()
  const lowlight = await loading
  if (!lowlight.registered(language)) return undefined
  return flatten(lowlight.highlight(language, code).children as readonly Node[], '', [])
}

const BY_ENDING: Readonly<Record<string, string>> = {
  c: 'c',
  h: 'c',
  cc: 'cpp',
  cpp: 'cpp',
  hpp: 'cpp',
  cs: 'csharp',
  css: 'css',
  go: 'go',
  html: 'xml',
  java: 'java',
  js: 'javascript',
  mjs: 'javascript',
  cjs: 'javascript',
  jsx: 'javascript',
  json: 'json',
  kt: 'kotlin',
  lua: 'lua',
  md: 'markdown',
  php: 'php',
  pl: 'perl',
  py: 'python',
  r: 'r',
  rb: 'ruby',
  rs: 'rust',
  scss: 'scss',
  sh: 'bash',
  sql: 'sql',
  svg: 'xml',
  swift: 'swift',
  toml: 'ini',
  ts: 'typescript',
  mts: 'typescript',
  tsx: 'typescript',
  vb: 'vbnet',
  xml: 'xml',
  yaml: 'yaml',
  yml: 'yaml',
}

/** The language of a file, by its name's ending; '' for an unknown one. */
export function languageOf(path: string): string {
  return BY_ENDING[/\.([A-Za-z0-9]+)$/.exec(path)?.[1]?.toLowerCase() ?? ''] ?? ''
}
