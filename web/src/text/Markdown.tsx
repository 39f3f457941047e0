/**
 * Markdown as elements. The text of a model or a tool is never read as HTML: what looks like it is shown as it stands, pictures from
 * elsewhere are links, and links go to http, https and mailto only.
 */
import { lexer, type Token, type Tokens } from 'marked'
import { createMemo, For, Index, type JSX, Match, Show, Switch } from 'solid-js'
import { CodeBlock } from './Code.tsx'

/** Longer texts are shown as they are. */
const MARKDOWN_MAX = 200_000

/** The marks that marked leaves in texts. */
const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
}
const plain = (text: string): string =>
  text.replace(/&(?:amp|lt|gt|quot|#39);/g, (entity) => ENTITIES[entity] ?? entity)

/** A link that may be followed; undefined for any other. */
export function allowedLink(href: string): string | undefined {
  try {
    const url = new URL(href)
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : undefined
  } catch {
    return undefined
  }
}

function Link(props: { href: string; children: JSX.Element }): JSX.Element {
  return (
    <Show when={allowedLink(props.href)} fallback={<span title={props.href}>{props.children}</span>}>
      {(href) => (
        <a href={href()} target="_blank" rel="noopener noreferrer">
          {props.children}
        </a>
      )}
    </Show>
  )
}

function Inline(props: { tokens: readonly Token[] | undefined }): JSX.Element {
  return <For each={props.tokens ?? []}>{(token) => inline(token)}</For>
}

function inline(token: Token): JSX.Element {
  switch (token.type) {
    case 'strong':
      return (
        <strong>
          <Inline tokens={token.tokens} />
        </strong>
      )
    case 'em':
      return (
        <em>
          <Inline tokens={token.tokens} />
        </em>
      )
    case 'del':
      return (
        <del>
          <Inline tokens={token.tokens} />
        </del>
      )
    case 'codespan':
      return <code>{plain((token as Tokens.Codespan).text)}</code>
    case 'br':
      return <br />
    case 'link':
      return (
        <Link href={(token as Tokens.Link).href}>
          <Inline tokens={token.tokens} />
        </Link>
      )
    case 'image':
      return (
        <Link
          href={(token as Tokens.Image).href}
        >{`[picture: ${(token as Tokens.Image).text || (token as Tokens.Image).href}]`}</Link>
      )
    case 'text':
      return token.tokens === undefined ? plain((token as Tokens.Text).text) : <Inline tokens={token.tokens} />
    case 'escape':
      return plain((token as Tokens.Escape).text)
    default:
      return token.raw
  }
}

function List(props: { list: Tokens.List }): JSX.Element {
  const items = () => (
    <For each={props.list.items}>
      {(item) => (
        <li class={item.task ? 'task' : ''}>
          <Show when={item.task}>
            <span role="img" aria-label={item.checked ? 'done' : 'not done'}>
              {item.checked ? '☑' : '☐'}{' '}
            </span>
          </Show>
          <Blocks tokens={item.tokens.filter((token) => token.type !== 'checkbox')} />
        </li>
      )}
    </For>
  )
  return (
    <Show when={props.list.ordered} fallback={<ul>{items()}</ul>}>
      <ol start={Number(props.list.start) || 1}>{items()}</ol>
    </Show>
  )
}

function Table(props: { table: Tokens.Table }): JSX.Element {
  const row = (cells: readonly Tokens.TableCell[], cell: (content: JSX.Element, align: string) => JSX.Element) => (
    <tr>
      <For each={cells}>{(one) => cell(<Inline tokens={one.tokens} />, one.align ?? '')}</For>
    </tr>
  )
  return (
    <div class="wide">
      <table>
        <thead>
          {row(props.table.header, (content, align) => (
            <th class={align}>{content}</th>
          ))}
        </thead>
        <tbody>
          <For each={props.table.rows}>
            {(cells) => row(cells, (content, align) => <td class={align}>{content}</td>)}
          </For>
        </tbody>
      </table>
    </div>
  )
}

function Heading(props: { token: Tokens.Heading }): JSX.Element {
  const content = () => <Inline tokens={props.token.tokens} />
  // The page has its own headings above these.
  return (
    <Switch fallback={<h5>{content()}</h5>}>
      <Match when={props.token.depth === 1}>
        <h2>{content()}</h2>
      </Match>
      <Match when={props.token.depth === 2}>
        <h3>{content()}</h3>
      </Match>
      <Match when={props.token.depth === 3}>
        <h4>{content()}</h4>
      </Match>
    </Switch>
  )
}

function block(token: Token): JSX.Element {
  switch (token.type) {
    case 'space':
    case 'def':
      return null
    case 'paragraph':
      return (
        <p>
          <Inline tokens={token.tokens} />
        </p>
      )
    case 'text':
      return <Inline tokens={token.tokens ?? [{ ...token, tokens: undefined } as Token]} />
    case 'heading':
      return <Heading token={token as Tokens.Heading} />
    case 'code':
      return (
        <CodeBlock
          code={(token as Tokens.Code).text}
          language={((token as Tokens.Code).lang ?? '').split(/\s/)[0] ?? ''}
        />
      )
    case 'blockquote':
      return (
        <blockquote>
          <Blocks tokens={token.tokens ?? []} />
        </blockquote>
      )
    case 'list':
      return <List list={token as Tokens.List} />
    case 'table':
      return <Table table={token as Tokens.Table} />
    case 'hr':
      return <hr />
    default:
      return <p class="raw">{token.raw}</p>
  }
}

function Blocks(props: { tokens: readonly Token[] }): JSX.Element {
  return <For each={props.tokens}>{(token) => block(token)}</For>
}

function tokensOf(text: string): readonly Token[] {
  try {
    return lexer(text, { gfm: true, breaks: true })
  } catch {
    return [{ type: 'paragraph', raw: text, text, tokens: [{ type: 'text', raw: text, text }] } as Token]
  }
}

/** A whole text. */
export function Markdown(props: { text: string }): JSX.Element {
  const tokens = createMemo(() => tokensOf(props.text))
  return (
    <Show when={props.text.length <= MARKDOWN_MAX} fallback={<pre class="long">{props.text}</pre>}>
      <div class="markdown">
        <Blocks tokens={tokens()} />
      </div>
    </Show>
  )
}

/** A text that grows, cut into blocks of which only the last one changes. */
export function LiveMarkdown(props: { blocks: readonly string[] }): JSX.Element {
  return (
    <div class="markdown">
      <Index each={props.blocks}>
        {(text) => {
          const tokens = createMemo(() => tokensOf(text()))
          return (
            <div class="block">
              <Blocks tokens={tokens()} />
            </div>
          )
        }}
      </Index>
    </div>
  )
}
