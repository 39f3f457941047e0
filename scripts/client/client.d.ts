/** The part of client.d.ts that is written by hand: scripts/client.mjs puts the rest into its two gaps. */

/** How a call is made. */
export interface CallOptions {
  /** Gives the call up; it rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
  /** The longest that the call may take, all its attempts together. Default: the client's. */
  readonly timeoutMs?: number | undefined
  /** Further headers. */
  readonly headers?: Readonly<Record<string, string>> | undefined
}

/** How a write is made. */
export interface WriteOptions extends CallOptions {
  /**
   * The name under which the server does this once, however often it is sent. Default: a new one for each call, which all its attempts carry.
   * One of your own lets you send the same again in another process; the server knows it for ten minutes.
   */
  readonly idempotencyKey?: string | undefined
}

/** How a change of a session is made. */
export interface VersionedOptions extends WriteOptions {
  /** Refuse with `CONFLICT` unless the session has this version. */
  readonly ifVersion?: number | undefined
}

/** A line that broke. */
export interface Reconnection {
  /** Which try in a row comes next. */
  readonly attempt: number
  /** How long until then. */
  readonly delayMs: number
  /** Why. */
  readonly cause: unknown
}

/** How a stream is read. */
export interface StreamOptions {
  /** Ends the stream and its connection; the iterator is done then, and throws nothing. */
  readonly signal?: AbortSignal | undefined
  /** The longest wait for the head of an answer. Default: the client's. */
  readonly timeoutMs?: number | undefined
  /** Further headers. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** A line that says nothing for so long is dead, and another one is opened; the server says something every 15 s. Default: 45,000. */
  readonly silenceMs?: number | undefined
  /**
   * How long a server that has gone is looked for before the iterator throws, whatever it is told meanwhile by a `Retry-After`. Default: 300,000;
   * 0: not at all; `Infinity` goes on for ever.
   */
  readonly giveUpMs?: number | undefined
  /** Is told of each line that broke. */
  readonly onReconnect?: ((reconnection: Reconnection) => void) | undefined
}

/**
 * Events, in order, each once. When the line breaks or the server is started anew, it goes on exactly behind the last event that was given out.
 * It ends when the session is deleted, when the signal fires, or when the loop is left; then its connection is closed. Only the server's own word
 * ends it: what something in between answers in the server's place, such as a page that says 404, is a line that broke. What is not
 * asked for is not read: a slow reader loses nothing and holds no memory.
 */
export interface EventStream<E> extends AsyncIterableIterator<E> {
  /** The place of the last event that was given out: `after` of a stream that goes on behind it. */
  readonly lastEventId: string | undefined
  /** The next event. */
  next(): Promise<IteratorResult<E, undefined>>
  /** Ends the stream and closes its connection. */
  return(value?: undefined): Promise<IteratorResult<E, undefined>>
  /** The same as `return`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
  /** Itself: it can be iterated once. */
  [Symbol.asyncIterator](): EventStream<E>
}

/** The events of one turn; it ends behind the turn's last event. */
export interface TurnStream extends EventStream<Event> {
  /** The turn. */
  readonly turnId: string
}

/** One page of a list. */
export interface ListPage<T> {
  /** The entries. */
  readonly items: readonly T[]
  /** `cursor` of the next page; null at the end. */
  readonly nextCursor: string | null
}

/** A list that comes in pages: iterate it for all entries, with one page in memory at a time. */
export interface PagedList<T> extends AsyncIterable<T> {
  /** One page: the first one, or that of a cursor. */
  page(cursor?: string | number): Promise<ListPage<T>>
  /** All pages. */
  pages(): AsyncIterable<ListPage<T>>
}

/** What a handler of questions is told beside the question. */
export interface RequestContext {
  /** The whole event. */
  readonly event: Event
  /** Fires when the question is over: somebody else has answered it, or its turn has ended. */
  readonly signal: AbortSignal
}

/** An answer to a permission question. */
export type PermissionAnswer =
  | boolean
  | 'allow'
  | 'allow_always'
  | 'deny'
  | (Omit<Feedback, 'requestId' | 'callId' | 'allowed'> & { readonly decision: 'allow' | 'allow_always' | 'deny' })

/** A kind of event, as it stands in the union. */
export type EventOf<T extends EventType> = Extract<Event, { readonly type: T }>

/** What an event of a type carries. */
export type EventPayload<T extends EventType> = EventOf<T>['payload']

/** Who answers what a session asks. A question without a handler, or one whose handler gives back undefined, is left to others. */
export interface RequestHandlers {
  /** Whether a call may run. */
  readonly permission?: (
    request: EventPayload<'permission.request'>,
    context: RequestContext,
  ) => PermissionAnswer | undefined | Promise<PermissionAnswer | undefined>
  // Further kinds come here.
}

/** The codes of errors: the server's, and those of the client itself. */
export type SimseErrorCode =
  | ErrorCode
  /** Nothing answers there, or the connection was lost and the call cannot be sent again without harm. */
  | 'UNREACHABLE'
  /** No address was given, and no server of this user was found, or what listens there cannot show that it is that server. */
  | 'NO_SERVER'
  /** What answered is no server of this kind. */
  | 'BAD_ANSWER'
  /** The client was closed. */
  | 'CLOSED'

/** A call that failed. */
export declare class SimseError extends Error {
  private constructor()
  /** Always `SimseError`. */
  readonly name: 'SimseError'
  /** Stable, such as `NOT_FOUND`. */
  readonly code: SimseErrorCode
  /** The HTTP status; undefined when no answer came. */
  readonly status: number | undefined
  /** Facts for a program: usually `{ field, expected }`. */
  readonly details: unknown
  /** The request, as the server's log names it. */
  readonly requestId: string | undefined
  /** Seconds after which another try makes sense, when the server said. */
  readonly retryAfter: number | undefined
  /** Whether this is what an earlier request under the same key was answered. */
  readonly replayed: boolean
  /** The method, such as `sessions.prompt`. */
  readonly operation: string | undefined
  /** All of it but the cause, for logs. */
  toJSON(): Record<string, unknown>
}

// What the document says comes here.

/** What a client is told. */
export interface SimseClientOptions {
  /**
   * Where the server is, such as `http://127.0.0.1:4100`. Default: in Node, Bun and Deno the server of this user on this machine, as `server.json`
   * in its data directory says, looked at anew when the server has gone; in a browser the server that the page came from.
   */
  readonly baseUrl?: string | undefined
  /** What the server wants to see, or who makes it for each connection. Default: beside `server.json`; none with a `baseUrl`. */
  readonly token?: string | (() => string | undefined | Promise<string | undefined>) | undefined
  /** The data directory in which `server.json` and `token` are looked for. Default: the one that the program itself would take. */
  readonly dataDirectory?: string | undefined
  /** Whose sessions these are, among the programs with one token: the header `X-Client-ID`. */
  readonly clientId?: string | undefined
  /** Another `fetch`. */
  readonly fetch?: ((input: string, init: RequestInit) => Promise<Response>) | undefined
  /** Headers of all requests. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** The longest that a call may take, all its attempts together. Default: 60,000. */
  readonly timeoutMs?: number | undefined
  /** How often a call is sent again, where that does no harm: the connection was lost, 429, 503. Default: 6. */
  readonly retries?: number | undefined
}

/** A client: a method for each operation of the server. */
export interface SimseClient {
  // Groups and methods come here.
  /** Gives up all calls, which reject with `CLOSED`, and ends all streams. */
  close(): void
}

/** Creates a client. Nothing is sent before the first call. */
export declare function createSimseClient(options?: SimseClientOptions): SimseClient

/** The types of all events of sessions. */
export declare const EVENT_TYPES: readonly EventType[]
