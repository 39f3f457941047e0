/** `simse/client`: a client of the server, made from its OpenAPI document by scripts/client.mjs. Do not edit it. */

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

/** Answers a kind of question. null: there will be no answer; undefined: the question is left to others. */
export type Answering<K extends string, V> = (
  question: Extract<EventPayload<'client.request'>['question'], { readonly kind: K }>,
  context: RequestContext,
) => V | null | undefined | Promise<V | null | undefined>

/** Who answers what a session asks. A question without a handler, or one whose handler gives back undefined, is left to others. */
export interface RequestHandlers {
  /** Whether a call may run. */
  readonly permission?: (
    request: EventPayload<'permission.request'>,
    context: RequestContext,
  ) => PermissionAnswer | undefined | Promise<PermissionAnswer | undefined>
  /** Which of the options: one, or several where the question says so. */
  readonly select?: Answering<'select', string | readonly string[]>
  /** Yes or no. */
  readonly confirm?: Answering<'confirm', boolean>
  /** A line of text. */
  readonly input?: Answering<'input', string>
  /** A text of several lines. */
  readonly editor?: Answering<'editor', string>
  /** Is told what nobody has to answer. */
  readonly notice?: (notice: EventPayload<'client.notice'>, event: EventOf<'client.notice'>) => void | Promise<void>
  /** Is told what stands on the screen now, in place of what stood there; it is gone with the end of the turn. */
  readonly display?: (shown: EventPayload<'client.display'>, event: EventOf<'client.display'>) => void | Promise<void>
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

/** A turn was aborted or interrupted. */
export interface AbortEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'abort'
  /** What there is to know about it. */
  readonly payload: {
    /** Why. */
    readonly reason: string
    /** The session's version with it, where it changes that. */
    readonly version?: number
    /** What the turn has spent. */
    readonly spent?: Spending
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Answer to an abort. */
export interface Aborted {
  /** Always true. */
  readonly aborted: boolean
  /** The turn that was aborted. */
  readonly turnId: TurnId
}

/** Answer to a prompt. */
export interface Accepted {
  /** The turn that works on it. */
  readonly turnId: TurnId
  /** `queued` or `running`. */
  readonly status: TurnStatus
  /** The session's version now. */
  readonly version: number
}

/** What an agent's session can be set to, and is set to. */
export interface AgentChoices {
  /** All of them. The agent's modes are the option of the category `mode`. */
  readonly options: readonly AgentOption[]
}

/** A command of an agent. */
export interface AgentCommand {
  /** Its name, without the slash. */
  readonly name: string
  /** What it does. */
  readonly description: string
  /** What may follow it. */
  readonly hint?: string
}

/** The commands that an agent understands at the front of a prompt, as `/name`. */
export interface AgentCommands {
  /** All of them. */
  readonly commands: readonly AgentCommand[]
}

/** The commands that the agent understands, all of them. */
export interface AgentCommandsEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'agent.commands'
  /** The commands that an agent understands at the front of a prompt, as `/name`. */
  readonly payload: AgentCommands
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** An agent makes its context shorter. */
export interface AgentCompaction {
  /** Which time it is, in the agent's words. */
  readonly compactionId: string
  /** `in_progress`, `completed`, `failed`, or a later word. */
  readonly status: string
  /** What it keeps in the place of what it leaves out. */
  readonly summary?: string
  /** Why it failed. */
  readonly error?: string
}

/** The agent makes its context shorter. */
export interface AgentCompactionEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'agent.compaction'
  /** An agent makes its context shorter. */
  readonly payload: AgentCompaction
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** An amount of money. */
export interface AgentCost {
  /** How much. */
  readonly amount: number
  /** Of what, such as `USD`. */
  readonly currency: string
}

/** What an agent may only do when its `policy` names it. */
export type AgentGate =
  /** Changing files: the tools of the category `edit`, and the action `patch`. */
  | 'Patch'
  /** Ending its task with a packet: the action `finalize_task`. */
  | 'Finalize'
  /** Giving work to other agents: the tools of the category `subagent`. */
  | 'Delegate'

/** Who may speak to an agent. */
export type AgentKind =
  /** Sessions can have it as their agent, and other agents can delegate to it. */
  | 'main'
  /** Only other agents can delegate to it; it delegates to nobody. */
  | 'subagent'

/** Answer of `GET /agents`. */
export interface AgentList {
  /** The agents. */
  readonly agents: readonly AgentView[]
  /** The types of sub-agents. */
  readonly types: readonly AgentTypeView[]
  /** Markdown files that were left out, and why. */
  readonly faults: readonly DefinitionFault[]
}

/** An option of an agent's session. */
export interface AgentOption {
  /** What `agentOptions` calls it. */
  readonly id: string
  /** Its name, for people. */
  readonly name: string
  /** What it is. */
  readonly description?: string
  /** What it is about, such as `mode`, `model` or `thought_level`. */
  readonly category?: string
  /** What it is set to. */
  readonly value: AgentSetting
  /** What it can be set to; none of one that is true or false. */
  readonly values?: readonly AgentValue[]
}

/** What the agent's session can be set to and is set to, all of it. */
export interface AgentOptionsEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'agent.options'
  /** What an agent's session can be set to, and is set to. */
  readonly payload: AgentChoices
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The plan of an agent. A later one with the same id, or also without one, takes its place. */
export interface AgentPlan {
  /** Its id, of an agent that has several. */
  readonly planId?: string
  /** Its steps, in their order; none: there is no plan any more. */
  readonly entries: readonly PlanEntry[]
  /** The plan as a text, of an agent that tells it so. */
  readonly text?: string
}

/** The agent's plan, whole. */
export interface AgentPlanEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'agent.plan'
  /** The plan of an agent. A later one with the same id, or also without one, takes its place. */
  readonly payload: AgentPlan
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The turn is answered by an agent, in this session of its own. */
export interface AgentSessionEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'agent.session'
  /** What there is to know about it. */
  readonly payload: {
    /** The session's model: the agent. */
    readonly model: string
    /** The agent's own id of its session. */
    readonly agentSessionId: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** What an option of an agent is set to. */
export type AgentSetting =
  /** On or off. */
  | boolean
  /** The `value` of one of its values. */
  | string

/** Answer of `GET /sessions/:id/agent`: what the agent of a session has said last. */
export interface AgentState {
  /** The agent. */
  readonly agent: string
  /** The agent's own id of its session; absent before the first prompt. */
  readonly agentSessionId?: string
  /** What its session can be set to (`agentOptions`), and is set to; none before the first prompt. */
  readonly options: readonly AgentOption[]
  /** What was chosen of these for the session. Set again whenever the agent's session is opened. */
  readonly chosen: Readonly<Record<string, AgentSetting>>
  /** The commands that it understands. */
  readonly commands: readonly AgentCommand[]
  /** Its plans. */
  readonly plans: readonly AgentPlan[]
  /** How full its context is. */
  readonly usage?: AgentUsage
}

/** A type of sub-agent, as `GET /agents` shows it. */
export interface AgentTypeView {
  /** Its name. */
  readonly name: string
  /** What it is good for. */
  readonly description: string
  /** Its model. Absent: that of whoever spawns it. */
  readonly model?: string
  /** How much it thinks. Absent: as much as whoever spawns it. */
  readonly reasoning?: Reasoning
  /** Whether it has only tools that look, unless it is given others. */
  readonly readOnly: boolean
}

/** How full an agent's context is, and what its session has cost. */
export interface AgentUsage {
  /** Tokens in its context now. */
  readonly used: number
  /** Tokens that it holds. */
  readonly size: number
  /** What the session has cost so far, where the agent knows. */
  readonly cost?: AgentCost
}

/** How full the agent's context is. */
export interface AgentUsageEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'agent.usage'
  /** How full an agent's context is, and what its session has cost. */
  readonly payload: AgentUsage
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** What an option can be set to. */
export interface AgentValue {
  /** What `agentOptions` calls it. */
  readonly value: string
  /** Its name, for people. */
  readonly name: string
  /** What it is. */
  readonly description?: string
}

/** An agent that sessions can use. */
export interface AgentView {
  /** Its name. */
  readonly name: string
  /**
   * `loop` (our own, driving a model), `acp` (an external process), or one that a markdown file defines and our own
   * loop is: `main`, or `subagent`, to which only other agents can delegate.
   */
  readonly kind: string
  /** What it is, for people. */
  readonly description: string
  /** Whether it can be used now. */
  readonly available: boolean
  /** Why not. */
  readonly reason?: string
  /** Where its markdown file comes from. */
  readonly source?: DefinitionSource
  /** Its file; absent of one that is built in. */
  readonly path?: string
  /** Its own model. Absent: that of whoever uses it. */
  readonly model?: string
  /** How much its model thinks. Absent: as whoever uses it has it. */
  readonly reasoning?: Reasoning
  /** How it talks with its model about calls. Absent: as the session and the model have it. */
  readonly mode?: InteractionMode
  /** The tools that it may use. Absent: all. */
  readonly tools?: readonly string[]
  /** The gates that are open to it. Absent: all. */
  readonly policy?: readonly AgentGate[]
  /** The agents that it may delegate to. Absent: all. */
  readonly delegateTargets?: readonly string[]
  /** Its own limit of rounds in one turn. */
  readonly maxIterations?: number
  /** The skills that it is told of. Absent: all. */
  readonly skills?: readonly string[]
}

/** What a client asks a tool server itself. */
export interface AskMcp {
  /** The server. */
  readonly server: string
  /**
   * In the protocol's words: `prompts/list`, `prompts/get`, `resources/list`, `resources/templates/list`,
   * `resources/read` or `completion/complete`.
   */
  readonly method: 'prompts/list' | 'prompts/get' | 'resources/list' | 'resources/templates/list' | 'resources/read' | 'completion/complete'
  /** With what. */
  readonly params?: Readonly<Record<string, unknown>> | undefined
}

/** A file that the model is shown again, as it was then. */
export interface AttachedFile {
  /** Its path, as it was named. */
  readonly path: string
  /** What the tool that reads files said of it. */
  readonly text: string
}

/** A value was taken off it. */
export interface BlackboardDeleteEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'blackboard.delete'
  /** A value was taken off the board. */
  readonly payload: BoardDeletion
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A value was put onto the board that the sessions of the tree share. */
export interface BlackboardSetEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'blackboard.set'
  /** A value on the board. */
  readonly payload: BoardEntry
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A value was taken off the board. */
export interface BoardDeletion {
  /** Its key. */
  readonly key: BoardKey
  /** Who has. Absent: a client. */
  readonly by?: TreeMember
}

/** A value on the board. */
export interface BoardEntry {
  /** Its key. */
  readonly key: BoardKey
  /** The value: any JSON. */
  readonly value: unknown
  /** The number of the event that has put it there. */
  readonly version: number
  /** Who has. Absent: a client. */
  readonly by?: TreeMember
  /** When. */
  readonly updatedAt: number
}

/** One page of a list. */
export interface BoardEntryPage {
  /** The entries. */
  readonly items: readonly BoardEntry[]
  /** Give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null
}

/** A key of the board that the sessions of a tree share. */
export type BoardKey = string

/**
 * What may be spent, all together; what is not named has no limit. Each limit is at least 1, and the money at least
 * 0.000000001.
 */
export interface Budget {
  /** Tokens, sent and received. A request that has begun ends, so this can be passed by what one request takes. */
  readonly tokens?: number
  /** What they cost, in US dollars, where the prices of the models are known. */
  readonly costUsd?: number
  /**
   * How long turns run, in milliseconds; those that run side by side count each. What runs when it is over is cut off.
   */
  readonly timeMs?: number
  /** Turns that answer prompts. */
  readonly turns?: number
  /** Calls of tools. */
  readonly toolCalls?: number
}

/** A limit is reached: the turn ends. */
export interface BudgetExceededEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'budget.exceeded'
  /** A budget of which something is gone, or nearly. */
  readonly payload: BudgetNotice
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/**
 * What may be spent, all together; what is not named has no limit. Each limit is at least 1, and the money at least
 * 0.000000001.
 */
export interface BudgetInput {
  /** Tokens, sent and received. A request that has begun ends, so this can be passed by what one request takes. */
  readonly tokens?: number | null | undefined
  /** What they cost, in US dollars, where the prices of the models are known. */
  readonly costUsd?: number | null | undefined
  /**
   * How long turns run, in milliseconds; those that run side by side count each. What runs when it is over is cut off.
   */
  readonly timeMs?: number | null | undefined
  /** Turns that answer prompts. */
  readonly turns?: number | null | undefined
  /** Calls of tools. */
  readonly toolCalls?: number | null | undefined
}

/** A kind of what is spent: the name of its limit in a `Budget`. */
export type BudgetKind =
  /** Tokens. */
  | 'tokens'
  /** Money. */
  | 'costUsd'
  /** Time. */
  | 'timeMs'
  /** Turns. */
  | 'turns'
  /** Calls of tools. */
  | 'toolCalls'

/** A budget of which something is gone, or nearly. */
export interface BudgetNotice {
  /** What is. */
  readonly kind: BudgetKind
  /** Whose it is. */
  readonly scope: BudgetScope
  /** The session, where it is one's. */
  readonly sessionId?: SessionId
  /** What may be spent. Empty: as much as it likes. */
  readonly limits: Budget
  /** What was. */
  readonly spent: Spending
  /** When it begins anew, in milliseconds since 1970. Absent: never. */
  readonly resetsAt?: number
}

/** Whose budget it is. */
export type BudgetScope =
  /** A session's, with all that stand under it: that of the one above all is its tree's. */
  | 'session'
  /** A client's, for a span of time. */
  | 'client'

/** A budget, and what is spent of it. */
export interface BudgetState {
  /** Whose it is. */
  readonly scope: BudgetScope
  /** The session, where it is one's. */
  readonly sessionId?: SessionId
  /** What may be spent. Empty: as much as it likes. */
  readonly limits: Budget
  /** What was. */
  readonly spent: Spending
  /** When it begins anew, in milliseconds since 1970. Absent: never. */
  readonly resetsAt?: number
}

/** Four fifths of a limit are spent: of the session's budget, of one above it, or of the client's. */
export interface BudgetWarningEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'budget.warning'
  /** A budget of which something is gone, or nearly. */
  readonly payload: BudgetNotice
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** `POST /runs/:id/cancel`. */
export interface CancelRun {
  /** Why, for the record. */
  readonly reason?: string | null | undefined
}

/** Answer to it. */
export interface CancelledRuns {
  /** The run, and those under it that were not over. */
  readonly cancelledRunIds: readonly RunId[]
}

/** One category or several. */
export type CategoryFilter =
  | ToolCategory
  /** Any of these. */
  | readonly ToolCategory[]

/** One category or several. */
export type CategoryFilterInput =
  | ToolCategory
  /** Any of these. */
  | readonly ToolCategory[]

/** What became of a path. */
export type ChangeKind =
  /** It was not there. */
  | 'A'
  /** It holds something else, or has another mode. */
  | 'M'
  /** It is gone. */
  | 'D'

/** What changed, within bounds. */
export interface ChangeReport {
  /** The first of them, by path. */
  readonly files: readonly FileChange[]
  /** How many there are. */
  readonly fileCount: number
  /** How many of them `files` leaves out. */
  readonly truncatedCount: number
  /** Whether diffs were cut or left out for lack of room. */
  readonly diffTruncated: boolean
  /** What was not looked at or could not be kept: it may have changed, and is not undone. */
  readonly uncovered?: readonly PathReason[]
}

/** `PATCH /sessions/:id/tasks/:taskId`: only what is named changes. */
export type ChangeTask = {
  /** Where it stands. */
  readonly status?: TaskStatus | null | undefined
  /** Other words for what is to be done. */
  readonly subject?: string | null | undefined
  /** Another description. */
  readonly description?: string | null | undefined
  /** What is shown while it is worked on. Empty: nothing. */
  readonly activeForm?: string | null | undefined
  /** Who works on it. Empty: nobody. */
  readonly owner?: string | null | undefined
  /** Ids of tasks that wait for it from now on. */
  readonly addBlocks?: readonly string[] | null | undefined
  /** Ids of tasks that it waits for from now on. */
  readonly addBlockedBy?: readonly string[] | null | undefined
} & ({ readonly status: TaskStatus } | { readonly subject: string } | { readonly description: string } | { readonly activeForm: string } | { readonly owner: string } | { readonly addBlocks: readonly string[] } | { readonly addBlockedBy: readonly string[] })

/** What was undone was done again by a client. */
export interface ChangesRedoneEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'changes.redone'
  /** What there is to know about it. */
  readonly payload: {
    /** The turns, in the order in which they were redone. */
    readonly turnIds: readonly TurnId[]
    /** The first paths that are as they were after. */
    readonly paths: readonly string[]
    /** How many there are. */
    readonly pathCount: number
    /** The session's version with it, where it changes that. */
    readonly version?: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** What turns did to files was undone by a client. */
export interface ChangesUndoneEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'changes.undone'
  /** What there is to know about it. */
  readonly payload: {
    /** The turns, in the order in which they were undone. */
    readonly turnIds: readonly TurnId[]
    /** The first paths that are as they were before. */
    readonly paths: readonly string[]
    /** How many there are. */
    readonly pathCount: number
    /** The session's version with it, where it changes that. */
    readonly version?: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/**
 * Something that a tool or a hook puts onto the clients' screens, until it is replaced, taken away, or the turn ends.
 */
export interface ClientDisplayEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'client.display'
  /** What there is to know about it. */
  readonly payload: {
    /** The call that it belongs to, if it belongs to one. */
    readonly callId?: string
    /** What stands there now. */
    readonly display: Display
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Something that a tool, a hook or the session itself tells the clients. Nobody answers it. */
export interface ClientNoticeEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'client.notice'
  /** What there is to know about it. */
  readonly payload: {
    /** The call that it belongs to, if it belongs to one. */
    readonly callId?: string
    /** How much it matters. */
    readonly level: NoticeLevel
    /** What it says. */
    readonly text: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** What is asked. */
export type ClientQuestion =
  /** One of several, or some of them. The answer is a text, or a list of texts where `several` is set. */
  | {
      /** Which of them it is. */
      readonly kind: 'select'
      /** What is asked. */
      readonly title: string
      /** What can be chosen; not empty, each once. */
      readonly options: readonly string[]
      /** Whether more than one can be, or none. */
      readonly several?: boolean
    }
  /** Yes or no. The answer is a boolean. */
  | {
      /** Which of them it is. */
      readonly kind: 'confirm'
      /** What is asked. */
      readonly title: string
      /** What there is to know. */
      readonly message?: string
    }
  /** A line of text. */
  | {
      /** Which of them it is. */
      readonly kind: 'input'
      /** What is asked. */
      readonly title: string
      /** What is shown as long as nothing is typed. */
      readonly placeholder?: string
    }
  /** A text of several lines. */
  | {
      /** Which of them it is. */
      readonly kind: 'editor'
      /** What is asked. */
      readonly title: string
      /** What the editor begins with. */
      readonly text?: string
    }

/** A question to the client that a tool or a hook puts. */
export interface ClientRequestEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'client.request'
  /** What there is to know about it. */
  readonly payload: {
    /** The request. */
    readonly requestId: RequestId
    /** The call that it belongs to, if it belongs to one. */
    readonly callId?: string
    /** What is asked. */
    readonly question: ClientQuestion
    /** When silence becomes `cancelled`, in milliseconds since 1970. */
    readonly deadline: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The end of such a question. Exactly one for each request. */
export interface ClientResponseEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'client.response'
  /** What there is to know about it. */
  readonly payload: {
    /** The request. */
    readonly requestId: RequestId
    /** The call that it belongs to, if it belongs to one. */
    readonly callId?: string
    /** The answer; absent when there is none. */
    readonly value?: unknown
    /** Whether there is no answer. */
    readonly cancelled: boolean
    /** Who decided. */
    readonly by: VerdictSource
    /** Why. */
    readonly reason?: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** What a prompt that begins with `/name` becomes. */
export type CommandKind =
  /** The text of a command's file. */
  | 'command'
  /** The text of a skill. */
  | 'skill'

/** Answer of `GET /commands`. */
export interface CommandList {
  /** The commands. */
  readonly commands: readonly CommandView[]
  /** Files that were left out, and why. */
  readonly faults: readonly DefinitionFault[]
}

/** A slash command. */
export interface CommandView {
  /** Its name, without the slash. */
  readonly name: string
  /** What it does. */
  readonly description: string
  /** Of which kind it is. */
  readonly kind: CommandKind
  /** Where it comes from. */
  readonly source: DefinitionSource
  /** Its file. */
  readonly path: string
  /** What may follow its name, for people. */
  readonly argumentHint?: string
}

/** `POST /sessions/:id/compact`. */
export interface Compact {
  /** What the summary is to keep above all, in words: at most 4,000 characters. */
  readonly focus?: string | null | undefined
  /** Refuse unless the session has this version. */
  readonly ifVersion?: number | null | undefined
}

/**
 * The conversation is shorter: from now on the model is shown a summary and the newest messages. All of it stays in the
 * log.
 */
export interface CompactionCompleteEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'compaction.complete'
  /** A conversation that was made shorter. */
  readonly payload: {
    /** Length of the summary in UTF-16 units. */
    readonly summaryLength: number
    /** Why. */
    readonly trigger: CompactionTrigger
    /**
     * What the model is told in the place of the messages that went: goal, state, decisions, files, next steps, open
     * questions.
     */
    readonly summary: string
    /** How many of the newest messages stay as they are, behind the summary. */
    readonly kept: number
    /**
     * Which of the messages before those stay word for word behind the summary, what the user said: how far each lies
     * in front of them, 1 is the last.
     */
    readonly carried?: readonly number[]
    /** The files of the work. */
    readonly files?: TouchedFiles
    /** Files that the model is shown again. */
    readonly attached?: readonly AttachedFile[]
    /** About how many tokens the conversation had. */
    readonly tokensBefore: number
    /** About how many it has. */
    readonly tokensAfter: number
    /** What the summary cost. */
    readonly usage?: Usage
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The conversation could not be summed up, and is as it was. */
export interface CompactionFailedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'compaction.failed'
  /** What there is to know about it. */
  readonly payload: {
    /** Why. */
    readonly error: ErrorBody
    /** What was spent on it. */
    readonly usage?: Usage
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/**
 * The conversation did not fit into the model's window: old outputs, and then old messages, are no longer shown to it.
 * They stay in the log.
 */
export interface CompactionPruneEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'compaction.prune'
  /** What there is to know about it. */
  readonly payload: {
    /** Messages that are left. */
    readonly messageCount: number
    /** Their length, about. */
    readonly estimatedChars: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/**
 * The conversation is made shorter: a model sums it up. It has one end: `compaction.complete` or `compaction.failed`.
 */
export interface CompactionStartEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'compaction.start'
  /** What there is to know about it. */
  readonly payload: {
    /** Messages that there are. */
    readonly messageCount: number
    /** Their length, about. */
    readonly estimatedChars: number
    /** Why. */
    readonly trigger: CompactionTrigger
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Why a conversation is made shorter. */
export type CompactionTrigger =
  /** A client asked for it. */
  | 'manual'
  /** It was about to fill the model's window. */
  | 'threshold'
  /** The provider said that it does not fit. */
  | 'overflow'

/** `GET /config`. */
export interface ConfigView {
  /** The configuration file that was read. Absent: there is none. */
  readonly file?: string
  /**
   * Every setting there is, in the order of `--help`, as they are in force. Empty in a server that another program
   * embeds: that program has its settings.
   */
  readonly settings: readonly SettingView[]
}

/**
 * Changes to a session's settings, from the next turn on: `PATCH /sessions/:id`, or beside a prompt. What is not named
 * stays as it is.
 */
export interface Configure {
  /**
   * Another agent of `GET /agents`: one that a markdown file defines, `simse` for none of these, or an ACP agent. With
   * it come the model and the reasoning of its file, where it names some and nothing else is said beside it. Its text,
   * tools, gates, rules and rounds are those of its file when a turn begins.
   */
  readonly agent?: string
  /**
   * How the agent and its model talk about calls: `chat`, the model calls tools as its provider has it; `auto`, it
   * answers with JSON actions until it finishes its task. Default: as the agent's file says, else `auto` for a model
   * that cannot call tools.
   */
  readonly interactionMode?: InteractionMode
  /** Another model, `provider/name`, or `acp/NAME` for an agent. */
  readonly model?: string
  /** How much the model thinks before it answers. Of an agent: its option of the category `thought_level`. */
  readonly reasoning?: Reasoning
  /**
   * What the options of its agent are set to, those that are not named as the agent has them. Gone with another agent.
   */
  readonly agentOptions?: Readonly<Record<string, AgentSetting>>
  /**
   * The models that are asked, in this order, when its own cannot be used. No entry: none; `*` alone: those of the
   * server.
   */
  readonly modelFallbacks?: readonly string[]
  /**
   * What it may spend from its beginning on, with all sessions that stand under it; no limit: as much as it likes. A
   * limit that is reached ends its turns, and theirs.
   */
  readonly budget?: Budget
  /** Another title; empty: none. */
  readonly title?: string
  /** Other instructions; empty: none. */
  readonly instructions?: string
  /**
   * Names are the tools that it has from now on, `*` means all of them, no entry none. `+name` and `-name` add and take
   * away: from those that are named beside them, else from those that it has.
   */
  readonly tools?: readonly string[]
  /** Another permission mode. */
  readonly permissionMode?: PermissionMode
  /**
   * Where its tools work; must lie under an allowed root and not in the server's own data. Not absolute: from where the
   * server works.
   */
  readonly workingDirectory?: string
  /**
   * Directories beside that in which its tools may work in the same way: all of them, no entry means none. Each exists,
   * lies under an allowed root and not in the server's own data. Not absolute: from the session's working directory,
   * the new one where it changes, too.
   */
  readonly additionalDirectories?: readonly string[]
}

/**
 * Changes to a session's settings, from the next turn on: `PATCH /sessions/:id`, or beside a prompt. What is not named
 * stays as it is.
 */
export interface ConfigureInput {
  /**
   * Another agent of `GET /agents`: one that a markdown file defines, `simse` for none of these, or an ACP agent. With
   * it come the model and the reasoning of its file, where it names some and nothing else is said beside it. Its text,
   * tools, gates, rules and rounds are those of its file when a turn begins.
   */
  readonly agent?: string | null | undefined
  /**
   * How the agent and its model talk about calls: `chat`, the model calls tools as its provider has it; `auto`, it
   * answers with JSON actions until it finishes its task. Default: as the agent's file says, else `auto` for a model
   * that cannot call tools.
   */
  readonly interactionMode?: InteractionMode | null | undefined
  /** Another model, `provider/name`, or `acp/NAME` for an agent. */
  readonly model?: string | null | undefined
  /** How much the model thinks before it answers. Of an agent: its option of the category `thought_level`. */
  readonly reasoning?: Reasoning | null | undefined
  /**
   * What the options of its agent are set to, those that are not named as the agent has them. Gone with another agent.
   */
  readonly agentOptions?: Readonly<Record<string, AgentSetting>> | null | undefined
  /**
   * The models that are asked, in this order, when its own cannot be used. No entry: none; `*` alone: those of the
   * server.
   */
  readonly modelFallbacks?: readonly string[] | null | undefined
  /**
   * What it may spend from its beginning on, with all sessions that stand under it; no limit: as much as it likes. A
   * limit that is reached ends its turns, and theirs.
   */
  readonly budget?: BudgetInput | null | undefined
  /** Another title; empty: none. */
  readonly title?: string | null | undefined
  /** Other instructions; empty: none. */
  readonly instructions?: string | null | undefined
  /**
   * Names are the tools that it has from now on, `*` means all of them, no entry none. `+name` and `-name` add and take
   * away: from those that are named beside them, else from those that it has.
   */
  readonly tools?: readonly string[] | null | undefined
  /** Another permission mode. */
  readonly permissionMode?: PermissionMode | null | undefined
  /**
   * Where its tools work; must lie under an allowed root and not in the server's own data. Not absolute: from where the
   * server works.
   */
  readonly workingDirectory?: string | null | undefined
  /**
   * Directories beside that in which its tools may work in the same way: all of them, no entry means none. Each exists,
   * lies under an allowed root and not in the server's own data. Not absolute: from the session's working directory,
   * the new one where it changes, too.
   */
  readonly additionalDirectories?: readonly string[] | null | undefined
}

/** Settings that changed. */
export interface Configured {
  /**
   * Another agent of `GET /agents`: one that a markdown file defines, `simse` for none of these, or an ACP agent. With
   * it come the model and the reasoning of its file, where it names some and nothing else is said beside it. Its text,
   * tools, gates, rules and rounds are those of its file when a turn begins.
   */
  readonly agent?: string
  /**
   * How the agent and its model talk about calls: `chat`, the model calls tools as its provider has it; `auto`, it
   * answers with JSON actions until it finishes its task. Default: as the agent's file says, else `auto` for a model
   * that cannot call tools.
   */
  readonly interactionMode?: InteractionMode
  /** Another model, `provider/name`, or `acp/NAME` for an agent. */
  readonly model?: string
  /** How much the model thinks before it answers. Of an agent: its option of the category `thought_level`. */
  readonly reasoning?: Reasoning
  /**
   * What the options of its agent are set to, those that are not named as the agent has them. Gone with another agent.
   */
  readonly agentOptions?: Readonly<Record<string, AgentSetting>>
  /**
   * The models that are asked, in this order, when its own cannot be used. No entry: none; `*` alone: those of the
   * server.
   */
  readonly modelFallbacks?: readonly string[]
  /**
   * What it may spend from its beginning on, with all sessions that stand under it; no limit: as much as it likes. A
   * limit that is reached ends its turns, and theirs.
   */
  readonly budget?: Budget
  /** Another title; empty: none. */
  readonly title?: string
  /** Other instructions; empty: none. */
  readonly instructions?: string
  /**
   * Names are the tools that it has from now on, `*` means all of them, no entry none. `+name` and `-name` add and take
   * away: from those that are named beside them, else from those that it has.
   */
  readonly tools?: readonly string[]
  /** Another permission mode. */
  readonly permissionMode?: PermissionMode
  /**
   * Where its tools work; must lie under an allowed root and not in the server's own data. Not absolute: from where the
   * server works.
   */
  readonly workingDirectory?: string
  /**
   * Directories beside that in which its tools may work in the same way: all of them, no entry means none. Each exists,
   * lies under an allowed root and not in the server's own data. Not absolute: from the session's working directory,
   * the new one where it changes, too.
   */
  readonly additionalDirectories?: readonly string[]
  /** The session's version with them. */
  readonly version?: number
}

/** `POST /sessions/:id/abort`, `/interrupt`, `/pause` and `/resume`. */
export interface Control {
  /** The turn that is meant: another one is left alone. Default: the one that runs or is paused. */
  readonly turnId?: TurnId | null | undefined
  /** Why; goes into the event. */
  readonly reason?: string | null | undefined
  /** Refuse unless the session has this version. */
  readonly ifVersion?: number | null | undefined
}

/** A control of a turn that has no other event of its own when it is accepted. */
export type ControlKind =
  /** A message waits for the turn's next boundary. */
  | 'steer'
  /** It is to end at once. */
  | 'abort'
  /** It is to end at its next boundary. */
  | 'interrupt'
  /** It is to hold at its next boundary. */
  | 'pause'
  /** It is no longer to hold. */
  | 'resume'

/** How a sub-agent works with those beside it. */
export type Coordination =
  /** It answers its parent, and knows of nobody else. */
  | 'hierarchical'
  /** It shares findings and tasks with the others of its tree. */
  | 'blackboard'
  /** That, and those that the same parent has started as peers talk to each other. */
  | 'peer'

/** `POST /models/count-tokens`: what a prompt would cost, as the model's provider counts. */
export interface CountTokens {
  /** The model. None: the one that new sessions get. */
  readonly model?: string | null | undefined
  /** The prompt. */
  readonly prompt: PromptContent
  /** The system text. None: none. */
  readonly system?: string | null | undefined
  /** Whether the tools that sessions have now are counted, too. */
  readonly tools?: boolean | undefined
}

/** `POST /sessions`. Every field may be left out. */
export interface CreateSession {
  /** A chosen id; one is made otherwise. */
  readonly sessionId?: SessionId | null | undefined
  /** Where its tools work, see `Configure::working_directory`. Default: the server's own. */
  readonly workingDirectory?: string | null | undefined
  /** Where they may work beside that, see `Configure::additional_directories`. Default: nowhere. */
  readonly additionalDirectories?: readonly string[] | null | undefined
  /** The session that it stands under: it may do at most what that one may, and goes with it. */
  readonly parent?: SessionId | null | undefined
  /** A name from `GET /agents`, see `Configure::agent`. */
  readonly agent?: string | null | undefined
  /** `provider/name`, from `GET /models`. */
  readonly model?: string | null | undefined
  /** A title, at most 256 characters, none of them control characters. */
  readonly title?: string | null | undefined
  /** Text that is added to the system prompt. */
  readonly instructions?: string | null | undefined
  /** The tools it may use, see `Configure::tools`. Default: all. */
  readonly tools?: readonly string[] | null | undefined
  /** How much its model thinks before it answers. Default: `auto`. */
  readonly reasoning?: Reasoning | null | undefined
  /** What the options of its agent are set to (`GET /sessions/:id/agent`). Default: as the agent has them. */
  readonly agentOptions?: Readonly<Record<string, AgentSetting>> | null | undefined
  /**
   * The models that are asked, in this order, when its own cannot be used, see `Configure::model_fallbacks`. Default:
   * the server's.
   */
  readonly modelFallbacks?: readonly string[] | null | undefined
  /** What it may spend, see `Configure::budget`. Default: as much as it likes. */
  readonly budget?: BudgetInput | null | undefined
  /**
   * Rules of this session. A denial by the server's own rules stands; otherwise these decide (an `ask` of the server's
   * may become `allow`).
   */
  readonly toolPermissions?: PermissionConfigInput | null | undefined
  /** How much it does without asking. Default: the server's setting. */
  readonly permissionMode?: PermissionMode | null | undefined
  /** How the agent and its model talk about calls, see `Configure::interaction_mode`. */
  readonly interactionMode?: InteractionMode | null | undefined
}

/** A client's answer to a permission request. */
export type Decision =
  /** This once. */
  | 'allow'
  /** This once, and calls like it for the rest of the session, or as far as `scope` says. */
  | 'allow_always'
  /** No. */
  | 'deny'

/** A file that was left out, and why. The rest of its folder counts all the same. */
export interface DefinitionFault {
  /** The file. */
  readonly path: string
  /** What is wrong with it, in words that name the field. */
  readonly reason: string
}

/**
 * Where a definition comes from. What comes earlier in this list takes the place of what comes later under the same
 * name.
 */
export type DefinitionSource =
  /** The project's folders. */
  | 'project'
  /** A folder that the settings name. */
  | 'settings'
  /** The user's folders. */
  | 'user'
  /** It is part of this program. */
  | 'built-in'

/** Answer of `DELETE /sessions/:id`. */
export interface Deleted {
  /** Always true. */
  readonly deleted: boolean
}

/** `GET /sessions/:id/diff`. */
export interface DiffView {
  /** The session. */
  readonly sessionId: SessionId
  /** The turn that was asked for. None: all turns together that are not undone. */
  readonly turnId?: TurnId
  /** The newest turns that changed files, oldest first. */
  readonly turns: readonly TurnChanges[]
  /** The first of them, by path. */
  readonly files: readonly FileChange[]
  /** How many there are. */
  readonly fileCount: number
  /** How many of them `files` leaves out. */
  readonly truncatedCount: number
  /** Whether diffs were cut or left out for lack of room. */
  readonly diffTruncated: boolean
  /** What was not looked at or could not be kept: it may have changed, and is not undone. */
  readonly uncovered?: readonly PathReason[]
  /** Where the next page begins. None: there is none. */
  readonly nextCursor: string | null
}

/**
 * One thing that stands on a screen. Without a text, or without lines, it is taken away. A later one takes the place of
 * an earlier one of its kind and key.
 */
export type Display =
  /** A line about one matter, beside those about others. */
  | {
      /** Which of them it is. */
      readonly kind: 'status'
      /** Which matter: 1 to 64 bytes. */
      readonly key: string
      /** What it says; absent or null takes it away. */
      readonly text?: string
    }
  /** What stands where a client says that it works, in place of its own words. */
  | {
      /** Which of them it is. */
      readonly kind: 'working'
      /** What it says; absent or null takes it away. */
      readonly text?: string
    }
  /** Some lines of text, which stand by themselves. */
  | {
      /** Which of them it is. */
      readonly kind: 'widget'
      /** Which of them: 1 to 64 bytes. */
      readonly key: string
      /** What they say, at most 200; absent or null takes them away. */
      readonly lines?: readonly string[]
    }
  /** The title of the window, not of the session. */
  | {
      /** Which of them it is. */
      readonly kind: 'title'
      /** What it says; absent or null takes it away. */
      readonly text?: string
    }

/** Answer of `POST /drain`. */
export interface Drained {
  /** It takes no sessions from now on. */
  readonly draining: boolean
  /** Trees of sessions in which something still runs. */
  readonly left: number
}

/** What went wrong, in the form that crosses the wire and goes into `session.error`. */
export interface ErrorBody {
  /** Stable code. */
  readonly code: ErrorCode
  /** One sentence for a person. */
  readonly message: string
  /** Facts for a program: usually `{field, expected}`. Absent when there are none. */
  readonly details?: unknown
}

/** The stable codes (contract.md). Each has one HTTP status. */
export type ErrorCode =
  /** The request is not valid; `details` names the field and what was expected. */
  | 'INVALID_ARGUMENT'
  /** No token, or a wrong one. */
  | 'UNAUTHORIZED'
  /** Known caller, but not this. */
  | 'FORBIDDEN'
  /** Nothing by that name that this caller may see. */
  | 'NOT_FOUND'
  /** The request does not fit the present state. */
  | 'CONFLICT'
  /** A limit is reached; try again later. */
  | 'RESOURCE_EXHAUSTED'
  /** The body is larger than the limit. */
  | 'PAYLOAD_TOO_LARGE'
  /** Our fault. */
  | 'INTERNAL'
  /** Something that this server depends on is not there (a model, an agent). */
  | 'UPSTREAM_UNAVAILABLE'
  /** It took too long. */
  | 'TIMEOUT'

/** One record of a session's log. A program that meets a type that it does not know passes it over. */
export type Event =
  | SessionCreatedEvent
  | SessionPromptEvent
  | SessionSteerEvent
  | SessionCompletedEvent
  | SessionErrorEvent
  | SessionConfiguredEvent
  | TurnQueuedEvent
  | TurnControlEvent
  | TurnPausedEvent
  | TurnResumedEvent
  | LoopStartEvent
  | LoopCompleteEvent
  | LoopDoomLoopEvent
  | AgentSessionEvent
  | AgentPlanEvent
  | AgentCommandsEvent
  | AgentOptionsEvent
  | AgentUsageEvent
  | AgentCompactionEvent
  | StreamStartEvent
  | StreamDeltaEvent
  | StreamReasoningEvent
  | StreamRetryEvent
  | CompactionStartEvent
  | CompactionCompleteEvent
  | CompactionFailedEvent
  | CompactionPruneEvent
  | StreamCompleteEvent
  | ToolCallStartEvent
  | ToolCallOutputEvent
  | ToolCallEndEvent
  | ToolCallErrorEvent
  | ToolTimeoutEvent
  | TurnCompleteEvent
  | TurnContinuedEvent
  | PermissionRequestEvent
  | PermissionResponseEvent
  | PermissionGrantedEvent
  | PermissionRevokedEvent
  | ClientRequestEvent
  | ClientResponseEvent
  | ClientNoticeEvent
  | ClientDisplayEvent
  | MemoryAddEvent
  | MemorySearchEvent
  | MemoryDeleteEvent
  | TurnChangesEvent
  | ChangesUndoneEvent
  | ChangesRedoneEvent
  | SessionForkedEvent
  | SubagentStartEvent
  | SubagentQueuedEvent
  | SubagentCompleteEvent
  | SubagentErrorEvent
  | SubagentRequestEvent
  | SubagentResponseEvent
  | BudgetWarningEvent
  | BudgetExceededEvent
  | BlackboardSetEvent
  | BlackboardDeleteEvent
  | TaskCreateEvent
  | TaskUpdateEvent
  | TaskDeleteEvent
  | AbortEvent

/** What happened: `type` and `payload` of an event. */
export type EventBody =
  /** A session came to be. Always number 1. */
  | {
      /** What happened. */
      readonly type: 'session.created'
      /** What a session begins with. Logs of earlier versions do not say it. */
      readonly payload: {
        /** The session. */
        readonly sessionId: SessionId
        /** All settings; those that are not named are as for any session. */
        readonly settings?: Configure
        /** Rules of its own. */
        readonly permissions?: PermissionConfig
        /** Where it stands in its tree. Absent: above all. */
        readonly lineage?: Lineage
        /** Its log tells of every grant of the session, given or taken back. */
        readonly tellsGrants?: boolean
      }
    }
  /** A prompt's turn begins. */
  | {
      /** What happened. */
      readonly type: 'session.prompt'
      /** What there is to know about it. */
      readonly payload: {
        /** The session. */
        readonly sessionId: SessionId
        /** The text of the prompt. */
        readonly prompt: string
        /** The parts, when it is more than one text. */
        readonly parts?: readonly Part[]
        /** What holds for this turn alone, instead of what the session is set to. */
        readonly turn?: TurnSettings
        /** What the turn does, where it answers no prompt: then this is no message. */
        readonly task?: TurnTask
        /** The session's version with it, where it changes that. */
        readonly version?: number
      }
    }
  /** A message was put into the running turn. */
  | {
      /** What happened. */
      readonly type: 'session.steer'
      /** What there is to know about it. */
      readonly payload: {
        /** The session. */
        readonly sessionId: SessionId
        /** The text. */
        readonly prompt: string
        /** The parts, when it is more than one text. */
        readonly parts?: readonly Part[]
      }
    }
  /** A turn ended by itself. */
  | {
      /** What happened. */
      readonly type: 'session.completed'
      /** What there is to know about it. */
      readonly payload: {
        /** The session. */
        readonly sessionId: SessionId
        /** The final text. */
        readonly result: string
        /** The same as data, of a turn that was to answer with some. */
        readonly output?: unknown
        /** What the turn has spent. */
        readonly spent?: Spending
      }
    }
  /** A turn failed. */
  | {
      /** What happened. */
      readonly type: 'session.error'
      /** What there is to know about it. */
      readonly payload: {
        /** The session. */
        readonly sessionId: SessionId
        /** Why. */
        readonly error: ErrorBody
        /** What the turn has spent. */
        readonly spent?: Spending
      }
    }
  /** A session's settings change, from the next turn on. */
  | {
      /** What happened. */
      readonly type: 'session.configured'
      /** Settings that changed. */
      readonly payload: Configured
    }
  /** A turn waits behind the running one. */
  | {
      /** What happened. */
      readonly type: 'turn.queued'
      /** What there is to know about it. */
      readonly payload: {
        /** Turns in front of it, the running one included. */
        readonly position: number
        /** The session's version with it, where it changes that. */
        readonly version?: number
      }
    }
  /** A control of the turn was accepted: what becomes of it, other events say. */
  | {
      /** What happened. */
      readonly type: 'turn.control'
      /** What there is to know about it. */
      readonly payload: {
        /** Which one. */
        readonly kind: ControlKind
        /**
         * The session's version with it, where it changes that at once. A pause and an interrupt may still come too
         * late: they change it with `turn.paused` and `abort`.
         */
        readonly version?: number
      }
    }
  /** The turn holds between two items until it is resumed. */
  | {
      /** What happened. */
      readonly type: 'turn.paused'
      /** What there is to know about it. */
      readonly payload: {
        /** Why, when the client said. */
        readonly reason?: string
        /** The session's version with it, where it changes that. */
        readonly version?: number
      }
    }
  /** The turn that was paused goes on. */
  | {
      /** What happened. */
      readonly type: 'turn.resumed'
      /** What there is to know about it. */
      readonly payload: {
        /** Why, when the client said. */
        readonly reason?: string
        /** The session's version with it, where it changes that. */
        readonly version?: number
      }
    }
  /** The loop begins a turn. */
  | {
      /** What happened. */
      readonly type: 'loop.start'
      /** What there is to know about it. */
      readonly payload: Readonly<Record<string, unknown>>
    }
  /** The loop ended a turn. */
  | {
      /** What happened. */
      readonly type: 'loop.complete'
      /** What there is to know about it. */
      readonly payload: {
        /** Rounds with the model. */
        readonly totalTurns: number
        /** Whether it ended at the limit of rounds. */
        readonly hitTurnLimit: boolean
      }
    }
  /** The same call came again and again, and was not run again. */
  | {
      /** What happened. */
      readonly type: 'loop.doom_loop'
      /** What there is to know about it. */
      readonly payload: {
        /** The tool. */
        readonly toolName: string
        /** How often in a row. */
        readonly callCount: number
        /** With which arguments. */
        readonly args: Readonly<Record<string, unknown>>
      }
    }
  /** The turn is answered by an agent, in this session of its own. */
  | {
      /** What happened. */
      readonly type: 'agent.session'
      /** What there is to know about it. */
      readonly payload: {
        /** The session's model: the agent. */
        readonly model: string
        /** The agent's own id of its session. */
        readonly agentSessionId: string
      }
    }
  /** The agent's plan, whole. */
  | {
      /** What happened. */
      readonly type: 'agent.plan'
      /** The plan of an agent. A later one with the same id, or also without one, takes its place. */
      readonly payload: AgentPlan
    }
  /** The commands that the agent understands, all of them. */
  | {
      /** What happened. */
      readonly type: 'agent.commands'
      /** The commands that an agent understands at the front of a prompt, as `/name`. */
      readonly payload: AgentCommands
    }
  /** What the agent's session can be set to and is set to, all of it. */
  | {
      /** What happened. */
      readonly type: 'agent.options'
      /** What an agent's session can be set to, and is set to. */
      readonly payload: AgentChoices
    }
  /** How full the agent's context is. */
  | {
      /** What happened. */
      readonly type: 'agent.usage'
      /** How full an agent's context is, and what its session has cost. */
      readonly payload: AgentUsage
    }
  /** The agent makes its context shorter. */
  | {
      /** What happened. */
      readonly type: 'agent.compaction'
      /** An agent makes its context shorter. */
      readonly payload: AgentCompaction
    }
  /** A round with the model begins. */
  | {
      /** What happened. */
      readonly type: 'stream.start'
      /** What there is to know about it. */
      readonly payload: Readonly<Record<string, unknown>>
    }
  /** A piece of the model's text. A preview: `stream.complete` has the whole. */
  | {
      /** What happened. */
      readonly type: 'stream.delta'
      /** What there is to know about it. */
      readonly payload: {
        /** The piece. */
        readonly text: string
      }
    }
  /** A piece of the model's reasoning. */
  | {
      /** What happened. */
      readonly type: 'stream.reasoning'
      /** What there is to know about it. */
      readonly payload: {
        /** The piece. */
        readonly text: string
      }
    }
  /** The model's stream broke and is tried again; what it sent since `stream.start` is void. */
  | {
      /** What happened. */
      readonly type: 'stream.retry'
      /** What there is to know about it. */
      readonly payload: {
        /** Which attempt comes now; the first retry is 2. */
        readonly attempt: number
        /** How long until then. */
        readonly delayMs: number
        /** Why. */
        readonly error: string
        /** The model that is asked now, where it is another one than before: a fallback. */
        readonly model?: string
      }
    }
  /**
   * The conversation is made shorter: a model sums it up. It has one end: `compaction.complete` or `compaction.failed`.
   */
  | {
      /** What happened. */
      readonly type: 'compaction.start'
      /** What there is to know about it. */
      readonly payload: {
        /** Messages that there are. */
        readonly messageCount: number
        /** Their length, about. */
        readonly estimatedChars: number
        /** Why. */
        readonly trigger: CompactionTrigger
      }
    }
  /**
   * The conversation is shorter: from now on the model is shown a summary and the newest messages. All of it stays in
   * the log.
   */
  | {
      /** What happened. */
      readonly type: 'compaction.complete'
      /** A conversation that was made shorter. */
      readonly payload: {
        /** Length of the summary in UTF-16 units. */
        readonly summaryLength: number
        /** Why. */
        readonly trigger: CompactionTrigger
        /**
         * What the model is told in the place of the messages that went: goal, state, decisions, files, next steps,
         * open questions.
         */
        readonly summary: string
        /** How many of the newest messages stay as they are, behind the summary. */
        readonly kept: number
        /**
         * Which of the messages before those stay word for word behind the summary, what the user said: how far each
         * lies in front of them, 1 is the last.
         */
        readonly carried?: readonly number[]
        /** The files of the work. */
        readonly files?: TouchedFiles
        /** Files that the model is shown again. */
        readonly attached?: readonly AttachedFile[]
        /** About how many tokens the conversation had. */
        readonly tokensBefore: number
        /** About how many it has. */
        readonly tokensAfter: number
        /** What the summary cost. */
        readonly usage?: Usage
      }
    }
  /** The conversation could not be summed up, and is as it was. */
  | {
      /** What happened. */
      readonly type: 'compaction.failed'
      /** What there is to know about it. */
      readonly payload: {
        /** Why. */
        readonly error: ErrorBody
        /** What was spent on it. */
        readonly usage?: Usage
      }
    }
  /**
   * The conversation did not fit into the model's window: old outputs, and then old messages, are no longer shown to
   * it. They stay in the log.
   */
  | {
      /** What happened. */
      readonly type: 'compaction.prune'
      /** What there is to know about it. */
      readonly payload: {
        /** Messages that are left. */
        readonly messageCount: number
        /** Their length, about. */
        readonly estimatedChars: number
      }
    }
  /** The model's text of one round, whole. */
  | {
      /** What happened. */
      readonly type: 'stream.complete'
      /** What there is to know about it. */
      readonly payload: {
        /** The text; may be empty when it only called tools. */
        readonly text: string
        /** The reply in its provider's own words, where the model wants them back as they were. Not for people. */
        readonly original?: Original
      }
    }
  /** A call was announced. */
  | {
      /** What happened. */
      readonly type: 'tool.call.start'
      /** What there is to know about it. */
      readonly payload: {
        /** The call. */
        readonly callId: string
        /** The tool. */
        readonly name: string
        /** Its arguments. */
        readonly args: Readonly<Record<string, unknown>>
      }
    }
  /**
   * A piece of what a running call has written. A preview: `tool.call.end` has what counts. Only while somebody reads.
   */
  | {
      /** What happened. */
      readonly type: 'tool.call.output'
      /** What there is to know about it. */
      readonly payload: {
        /** The call. */
        readonly callId: string
        /** The tool. */
        readonly name: string
        /** The piece. */
        readonly text: string
        /** Bytes left out in front of it; absent when none were. */
        readonly skippedBytes?: number
      }
    }
  /** A call ended, well or badly. Exactly one for each start. */
  | {
      /** What happened. */
      readonly type: 'tool.call.end'
      /** What there is to know about it. */
      readonly payload: {
        /** The call. */
        readonly callId: string
        /** The tool. */
        readonly name: string
        /** What the model is told. */
        readonly output: string
        /** Whether it failed. */
        readonly isError: boolean
        /** How long the tool ran; 0 when it never started. */
        readonly durationMs: number
        /** What the model is shown beside the output: images. */
        readonly parts?: readonly Part[]
        /** What happened, for programs and people. The model is not told. */
        readonly details?: unknown
        /** What hooks found in the result; the model is told behind the results of its reply. */
        readonly findings?: readonly string[]
      }
    }
  /** A call failed; comes just before its end. */
  | {
      /** What happened. */
      readonly type: 'tool.call.error'
      /** What there is to know about it. */
      readonly payload: {
        /** The call. */
        readonly callId: string
        /** The tool. */
        readonly name: string
        /** Why. */
        readonly error: ErrorBody
      }
    }
  /** A tool ran longer than it may. */
  | {
      /** What happened. */
      readonly type: 'tool.timeout'
      /** What there is to know about it. */
      readonly payload: {
        /** The tool. */
        readonly name: string
        /** Its limit. */
        readonly timeoutMs: number
      }
    }
  /** A round with the model ended. */
  | {
      /** What happened. */
      readonly type: 'turn.complete'
      /** What there is to know about it. */
      readonly payload: {
        /** Which round of the turn, from 1. */
        readonly turn: number
        /** How. */
        readonly type: RoundKind
        /** Its tokens, when the provider said. */
        readonly usage?: Usage
      }
    }
  /** The turn would have ended, and goes on with these texts: hooks say that it is not done. */
  | {
      /** What happened. */
      readonly type: 'turn.continued'
      /** What there is to know about it. */
      readonly payload: {
        /** What the model is told. */
        readonly texts: readonly string[]
      }
    }
  /** A question to the client that blocks a call. */
  | {
      /** What happened. */
      readonly type: 'permission.request'
      /** What there is to know about it. */
      readonly payload: {
        /** The request. */
        readonly requestId: RequestId
        /** The call. */
        readonly callId: string
        /** The tool. */
        readonly toolName: string
        /** Its arguments. */
        readonly args: Readonly<Record<string, unknown>>
        /** What would happen, in words: the command's parts, the paths, a diff. */
        readonly preview?: unknown
        /** The answers that count. */
        readonly options: readonly Decision[]
        /** When silence becomes no, in milliseconds since 1970. */
        readonly deadline: number
      }
    }
  /** The end of such a question. Exactly one for each request. */
  | {
      /** What happened. */
      readonly type: 'permission.response'
      /** What there is to know about it. */
      readonly payload: {
        /** The request. */
        readonly requestId: RequestId
        /** The call. */
        readonly callId: string
        /** The answer. */
        readonly allowed: boolean
        /** Who decided. */
        readonly by: VerdictSource
        /** Why. */
        readonly reason?: string
      }
    }
  /** A yes that reaches further than its call was kept for the session. */
  | {
      /** What happened. */
      readonly type: 'permission.granted'
      /** A grant of the session, as it was given. */
      readonly payload: Granted
    }
  /** Such a yes is there no longer. */
  | {
      /** What happened. */
      readonly type: 'permission.revoked'
      /** What there is to know about it. */
      readonly payload: {
        /** The grant. */
        readonly grantId: GrantId
        /** Why. */
        readonly reason: RevokeReason
      }
    }
  /** A question to the client that a tool or a hook puts. */
  | {
      /** What happened. */
      readonly type: 'client.request'
      /** What there is to know about it. */
      readonly payload: {
        /** The request. */
        readonly requestId: RequestId
        /** The call that it belongs to, if it belongs to one. */
        readonly callId?: string
        /** What is asked. */
        readonly question: ClientQuestion
        /** When silence becomes `cancelled`, in milliseconds since 1970. */
        readonly deadline: number
      }
    }
  /** The end of such a question. Exactly one for each request. */
  | {
      /** What happened. */
      readonly type: 'client.response'
      /** What there is to know about it. */
      readonly payload: {
        /** The request. */
        readonly requestId: RequestId
        /** The call that it belongs to, if it belongs to one. */
        readonly callId?: string
        /** The answer; absent when there is none. */
        readonly value?: unknown
        /** Whether there is no answer. */
        readonly cancelled: boolean
        /** Who decided. */
        readonly by: VerdictSource
        /** Why. */
        readonly reason?: string
      }
    }
  /** Something that a tool, a hook or the session itself tells the clients. Nobody answers it. */
  | {
      /** What happened. */
      readonly type: 'client.notice'
      /** What there is to know about it. */
      readonly payload: {
        /** The call that it belongs to, if it belongs to one. */
        readonly callId?: string
        /** How much it matters. */
        readonly level: NoticeLevel
        /** What it says. */
        readonly text: string
      }
    }
  /**
   * Something that a tool or a hook puts onto the clients' screens, until it is replaced, taken away, or the turn ends.
   */
  | {
      /** What happened. */
      readonly type: 'client.display'
      /** What there is to know about it. */
      readonly payload: {
        /** The call that it belongs to, if it belongs to one. */
        readonly callId?: string
        /** What stands there now. */
        readonly display: Display
      }
    }
  /** Something was put into long-term memory. */
  | {
      /** What happened. */
      readonly type: 'memory.add'
      /** What there is to know about it. */
      readonly payload: {
        /** The entry. */
        readonly id: string
        /** Its text's length in UTF-16 units. */
        readonly contentLength: number
      }
    }
  /** Long-term memory was searched. */
  | {
      /** What happened. */
      readonly type: 'memory.search'
      /** What there is to know about it. */
      readonly payload: {
        /** What was looked for. */
        readonly query: string
        /** How many entries were found. */
        readonly resultCount: number
        /** How long it took. */
        readonly durationMs: number
        /** Why the meanings of texts did not count although they should have. */
        readonly degraded?: string
      }
    }
  /** Something was taken out of long-term memory. */
  | {
      /** What happened. */
      readonly type: 'memory.delete'
      /** What there is to know about it. */
      readonly payload: {
        /** The entry. */
        readonly id: string
      }
    }
  /** What a turn did to files. Comes before its end, when it did anything. */
  | {
      /** What happened. */
      readonly type: 'turn.changes'
      /** What changed, within bounds. */
      readonly payload: ChangeReport
    }
  /** What turns did to files was undone by a client. */
  | {
      /** What happened. */
      readonly type: 'changes.undone'
      /** What there is to know about it. */
      readonly payload: {
        /** The turns, in the order in which they were undone. */
        readonly turnIds: readonly TurnId[]
        /** The first paths that are as they were before. */
        readonly paths: readonly string[]
        /** How many there are. */
        readonly pathCount: number
        /** The session's version with it, where it changes that. */
        readonly version?: number
      }
    }
  /** What was undone was done again by a client. */
  | {
      /** What happened. */
      readonly type: 'changes.redone'
      /** What there is to know about it. */
      readonly payload: {
        /** The turns, in the order in which they were redone. */
        readonly turnIds: readonly TurnId[]
        /** The first paths that are as they were after. */
        readonly paths: readonly string[]
        /** How many there are. */
        readonly pathCount: number
        /** The session's version with it, where it changes that. */
        readonly version?: number
      }
    }
  /** The session was forked off from another one. What comes before is that one's log. */
  | {
      /** What happened. */
      readonly type: 'session.forked'
      /** What a session begins with. Logs of earlier versions do not say it. */
      readonly payload: {
        /** The session. */
        readonly sessionId: SessionId
        /** The other one. */
        readonly parentSessionId: SessionId
        /** Number of the last event that both have in common. */
        readonly at: number
        /** All settings; those that are not named are as for any session. */
        readonly settings?: Configure
        /** Rules of its own. */
        readonly permissions?: PermissionConfig
        /** Where it stands in its tree. Absent: above all. */
        readonly lineage?: Lineage
        /** Its log tells of every grant of the session, given or taken back. */
        readonly tellsGrants?: boolean
      }
    }
  /** A sub-agent was given something to do. */
  | {
      /** What happened. */
      readonly type: 'subagent.start'
      /** A run of a sub-agent begins, or waits for room to. */
      readonly payload: SubagentStart
    }
  /** It waits until others have ended. */
  | {
      /** What happened. */
      readonly type: 'subagent.queued'
      /** A run of a sub-agent waits until others have ended. */
      readonly payload: SubagentQueued
    }
  /** A sub-agent is done. */
  | {
      /** What happened. */
      readonly type: 'subagent.complete'
      /** How a run of a sub-agent ended. */
      readonly payload: SubagentEnd
    }
  /** A sub-agent failed, or was ended. */
  | {
      /** What happened. */
      readonly type: 'subagent.error'
      /** How a run of a sub-agent ended. */
      readonly payload: SubagentEnd
    }
  /** A session under this one asks something. */
  | {
      /** What happened. */
      readonly type: 'subagent.request'
      /** A sub-agent asks something, told to the clients of the session above all. */
      readonly payload: SubagentRequest
    }
  /** Such a question has its end. */
  | {
      /** What happened. */
      readonly type: 'subagent.response'
      /** Such a question has its end. */
      readonly payload: SubagentResponse
    }
  /** Four fifths of a limit are spent: of the session's budget, of one above it, or of the client's. */
  | {
      /** What happened. */
      readonly type: 'budget.warning'
      /** A budget of which something is gone, or nearly. */
      readonly payload: BudgetNotice
    }
  /** A limit is reached: the turn ends. */
  | {
      /** What happened. */
      readonly type: 'budget.exceeded'
      /** A budget of which something is gone, or nearly. */
      readonly payload: BudgetNotice
    }
  /** A value was put onto the board that the sessions of the tree share. */
  | {
      /** What happened. */
      readonly type: 'blackboard.set'
      /** A value on the board. */
      readonly payload: BoardEntry
    }
  /** A value was taken off it. */
  | {
      /** What happened. */
      readonly type: 'blackboard.delete'
      /** A value was taken off the board. */
      readonly payload: BoardDeletion
    }
  /** A task was added to the list that the sessions of the tree share. */
  | {
      /** What happened. */
      readonly type: 'task.create'
      /** A task came to be, or changed. */
      readonly payload: TaskChange
    }
  /** One of its tasks changed, as it is then. */
  | {
      /** What happened. */
      readonly type: 'task.update'
      /** A task came to be, or changed. */
      readonly payload: TaskChange
    }
  /** A task was taken off it: nobody waits for it any more. */
  | {
      /** What happened. */
      readonly type: 'task.delete'
      /** A task was taken off the list: nobody waits for it any more. */
      readonly payload: TaskDeletion
    }
  /** A turn was aborted or interrupted. */
  | {
      /** What happened. */
      readonly type: 'abort'
      /** What there is to know about it. */
      readonly payload: {
        /** Why. */
        readonly reason: string
        /** The session's version with it, where it changes that. */
        readonly version?: number
        /** What the turn has spent. */
        readonly spent?: Spending
      }
    }

/** One page of a list. */
export interface EventPage {
  /** The entries. */
  readonly items: readonly Event[]
  /** Give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null
}

/** The types of events. */
export type EventType = 'session.created' | 'session.prompt' | 'session.steer' | 'session.completed' | 'session.error' | 'session.configured' | 'turn.queued' | 'turn.control' | 'turn.paused' | 'turn.resumed' | 'loop.start' | 'loop.complete' | 'loop.doom_loop' | 'agent.session' | 'agent.plan' | 'agent.commands' | 'agent.options' | 'agent.usage' | 'agent.compaction' | 'stream.start' | 'stream.delta' | 'stream.reasoning' | 'stream.retry' | 'compaction.start' | 'compaction.complete' | 'compaction.failed' | 'compaction.prune' | 'stream.complete' | 'tool.call.start' | 'tool.call.output' | 'tool.call.end' | 'tool.call.error' | 'tool.timeout' | 'turn.complete' | 'turn.continued' | 'permission.request' | 'permission.response' | 'permission.granted' | 'permission.revoked' | 'client.request' | 'client.response' | 'client.notice' | 'client.display' | 'memory.add' | 'memory.search' | 'memory.delete' | 'turn.changes' | 'changes.undone' | 'changes.redone' | 'session.forked' | 'subagent.start' | 'subagent.queued' | 'subagent.complete' | 'subagent.error' | 'subagent.request' | 'subagent.response' | 'budget.warning' | 'budget.exceeded' | 'blackboard.set' | 'blackboard.delete' | 'task.create' | 'task.update' | 'task.delete' | 'abort'

/** `POST /permissions/explain`: what would happen to this call. */
export type ExplainCall = {
  /** In this session. None: in a new one. */
  readonly sessionId?: SessionId | null | undefined
  /** The call's id, where a whole call is handed in. Nothing rests on it. */
  readonly id?: string | null | undefined
  /** The tool; `name`, as in a call, says the same. */
  readonly tool?: string | undefined
  /** Its arguments. */
  readonly arguments?: Readonly<Record<string, unknown>> | undefined
  /** The tool; `name`, as in a call, says the same. */
  readonly name?: string | undefined
} & ({ readonly tool: string } | { readonly name: string })

/** One part of an explained call. */
export interface ExplainedPart {
  /** A command or a path; empty for a call that has neither. */
  readonly part: string
  /** It stands inside another command's arguments, and may run. */
  readonly hidden: boolean
  /** Its own answer. */
  readonly decision: PermissionPolicy
  /** What that rests on. */
  readonly source: VerdictBasis
  /** The rule, by its place in the configuration. */
  readonly rule?: number
  /** The same in words. */
  readonly reason: string
}

/**
 * `POST /sessions/:id/feedback`. To a question about permission: one of `callId` and `requestId`, one of `decision` and
 * `allowed`. To another question: `requestId`, and one of `value` and `cancelled`.
 */
export type Feedback = {
  /** The call that waits. */
  readonly callId?: string | null | undefined
  /** The request that waits. */
  readonly requestId?: RequestId | null | undefined
  /** The answer. */
  readonly decision?: Decision | null | undefined
  /** The answer in short form. */
  readonly allowed?: boolean | null | undefined
  /** The answer to a question that is not about permission. */
  readonly value?: unknown | undefined
  /** True: there will be no answer to such a question. */
  readonly cancelled?: true | null | undefined
  /** Words for the model, when the answer is no; why there is none, when there is none. */
  readonly message?: string | null | undefined
  /** How far a yes reaches. Default: `once` for `allow`, `session` for `allow_always`. */
  readonly scope?: GrantScope | null | undefined
  /** After how many milliseconds a yes that reaches further than this call ends. Default: never. */
  readonly expiresInMs?: number | null | undefined
} & ({ readonly callId: string } | { readonly requestId: RequestId }) & ({ readonly decision: Decision } | { readonly allowed: boolean } | { readonly value: unknown } | { readonly cancelled: true })

/** One path that changed. */
export interface FileChange {
  /** Relative to the session's working directory where it lies below it, else absolute. */
  readonly path: string
  /** What became of it. */
  readonly kind: ChangeKind
  /** Lines that are new. */
  readonly added: number
  /** Lines that are gone. */
  readonly removed: number
  /** The unified diff. None: it is no text, only its mode changed, or there was no more room. */
  readonly diff?: string
  /** What stands instead of a diff, such as `binary file, 10 bytes → 12 bytes`. */
  readonly note?: string
  /** Why it cannot be undone. None: it can. */
  readonly notUndoable?: string
}

/** Something in a directory. */
export interface FileEntry {
  /** Its path, relative to the session's working directory where it lies below it, else absolute. */
  readonly path: string
  /** What it is. */
  readonly kind: FileKind
  /** An ignore file (`.gitignore`, `.ignore`) leaves it out. */
  readonly ignored?: boolean
}

/** What a name in a directory is. */
export type FileKind =
  /** A directory, or a link to one that may be looked into. */
  | 'directory'
  /** A regular file, or a link to one that may be looked at. */
  | 'file'
  /** A link that leads nowhere, or to where no tool may look. */
  | 'link'
  /** A pipe, a socket, a device. */
  | 'other'

/** `GET /sessions/:id/files`. */
export interface FilesView {
  /**
   * A directory's entries, directories first, then by name; or the files that are meant, the best first. Names that
   * cannot be shown as they are, and what is git's own, are left out.
   */
  readonly entries: readonly FileEntry[]
  /** Whether there are more than are told. */
  readonly truncated: boolean
}

/** `POST /sessions/:id/fork`. Every field may be left out. */
export interface Fork {
  /** The last event that the fork has in common with this session. Default: its newest. */
  readonly at?: number | null | undefined
  /** A chosen id for the fork; one is made otherwise. */
  readonly newSessionId?: SessionId | null | undefined
  /** Its title. Default: this session's. */
  readonly title?: string | null | undefined
}

/** Names one saved grant. */
export type GrantId = string

/** How far an answer of a client reaches. */
export type GrantScope =
  /** This one call. */
  | 'once'
  /** Calls like it for the rest of the session. */
  | 'session'
  /** Calls like it in all sessions of the client that work in the same directory. */
  | 'project'
  /** Calls like it in all sessions of the client. */
  | 'always'

/** A saved grant, as `GET /permissions/grants` shows it. */
export interface GrantView {
  /** Its id. */
  readonly grantId: GrantId
  /** `session`, `project` or `always`. */
  readonly scope: GrantScope
  /** The tool. */
  readonly tool: string
  /** The command line that it is about. */
  readonly command?: string
  /**
   * Where that line starts: relative to the working directory of a session where it lies below it. Absent: in the
   * working directory itself.
   */
  readonly cwd?: string
  /** The paths that it is about, as they resolve. */
  readonly paths?: readonly string[]
  /** The session, of a grant for one. */
  readonly sessionId?: SessionId
  /** The working directory, of a grant for a project. */
  readonly workingDirectory?: string
  /** When it was given, in milliseconds since 1970. */
  readonly createdAt: number
  /** When it ends. Absent: never. */
  readonly expiresAt?: number
}

/** One page of a list. */
export interface GrantViewPage {
  /** The entries. */
  readonly items: readonly GrantView[]
  /** Give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null
}

/** A grant of the session, as it was given. */
export interface Granted {
  /** Its id. */
  readonly grantId: GrantId
  /** The question that was answered with it. */
  readonly requestId: RequestId
  /** The tool. */
  readonly toolName: string
  /** The command line that it is about. */
  readonly command?: string
  /**
   * Where that line starts: relative to the working directory of the session where it lies below it. Absent: in the
   * working directory itself.
   */
  readonly cwd?: string
  /** The paths that it is about, as they resolve. */
  readonly paths?: readonly string[]
  /** When it was given, in milliseconds since 1970. */
  readonly createdAt: number
  /** When it ends. Absent: never. */
  readonly expiresAt?: number
}

/** Answer of `GET /health`. */
export interface Health {
  /** `ok` or `unhealthy`. */
  readonly status: string
  /** Now, RFC 3339, UTC. */
  readonly timestamp: string
  /** This program's version. */
  readonly version: string
  /** Part → `{status, …}`. Who shows no token where one is wanted is told the status alone. */
  readonly checks: Readonly<Record<string, unknown>>
  /** What is bounded, and how full it is: `?verbose=true`. */
  readonly limits?: readonly LimitView[]
}

/** How an agent and its model talk about calls. */
export type InteractionMode =
  /** The model answers in text and calls tools the way that its provider has for it; a person is there to be asked. */
  | 'chat'
  /** The model answers with JSON actions, one after the other, until it finishes its task. */
  | 'auto'

/** Answer to an interrupt. */
export interface Interrupted {
  /** Always true. */
  readonly interrupted: boolean
  /** The turn that was interrupted. */
  readonly turnId: TurnId
}

/** One entry of the history. Each is taken from one event of the log. */
export type Item = {
  /** Number of the event that it was taken from. */
  readonly seq: number
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
} & ({
  /** What happened. */
  readonly type: 'message'
  /** Who. */
  readonly role: Role
  /** What. */
  readonly content: readonly Part[]
} | {
  /** What happened. */
  readonly type: 'tool_call'
  /** The call's id. */
  readonly callId: string
  /** The tool's name. */
  readonly name: string
  /** Its arguments. */
  readonly arguments: Readonly<Record<string, unknown>>
} | {
  /** What happened. */
  readonly type: 'tool_result'
  /** The call's id. */
  readonly callId: string
  /** The tool's name. */
  readonly name: string
  /** What the model is told. */
  readonly output: string
  /** Whether it failed. */
  readonly isError: boolean
  /** What the model is shown beside the output: images. */
  readonly parts?: readonly Part[]
  /** What hooks found in it; the model is told behind the results of its reply. */
  readonly findings?: readonly string[]
} | {
  /** What happened. */
  readonly type: 'summary'
  /** The summary. */
  readonly text: string
  /** How many of the newest messages before it the model is still shown. */
  readonly kept: number
})

/** One page of a list. */
export interface ItemPage {
  /** The entries. */
  readonly items: readonly Item[]
  /** Give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null
}

/** An event that tells how sessions come and go, or that one of them waits for somebody. */
export type LifecycleEvent =
  | SessionCreatedEvent
  | SessionPromptEvent
  | SessionCompletedEvent
  | SessionErrorEvent
  | TurnQueuedEvent
  | TurnPausedEvent
  | TurnResumedEvent
  | PermissionRequestEvent
  | PermissionResponseEvent
  | ClientRequestEvent
  | ClientResponseEvent
  | SessionForkedEvent
  | AbortEvent
  | SessionDeletedEvent

/** The types of events in the stream over all sessions. */
export type LifecycleType = 'session.created' | 'session.forked' | 'session.prompt' | 'session.completed' | 'session.error' | 'session.deleted' | 'turn.queued' | 'turn.paused' | 'turn.resumed' | 'permission.request' | 'permission.response' | 'client.request' | 'client.response' | 'abort'

/** Something that is bounded. */
export interface LimitView {
  /** Its name. */
  readonly name: string
  /** How much of it is taken now. */
  readonly used: number
  /** How much there is; at it new work is refused, or the oldest of what can be had again goes. */
  readonly limit: number
}

/** Where a session stands in its tree. */
export interface Lineage {
  /** The sessions above it: the root first, its parent last. */
  readonly path: readonly SessionId[]
  /** The turn of the parent that spawned it. Absent: a client made it. */
  readonly turnId?: TurnId
  /** What its parent calls it. */
  readonly name?: string
  /** The agent that it is, or the type of agent. */
  readonly agent?: string
  /** The working tree that it has for itself. */
  readonly worktree?: Worktree
  /** How it works with those beside it. */
  readonly coordination?: Coordination
}

/** The loop ended a turn. */
export interface LoopCompleteEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'loop.complete'
  /** What there is to know about it. */
  readonly payload: {
    /** Rounds with the model. */
    readonly totalTurns: number
    /** Whether it ended at the limit of rounds. */
    readonly hitTurnLimit: boolean
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The same call came again and again, and was not run again. */
export interface LoopDoomLoopEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'loop.doom_loop'
  /** What there is to know about it. */
  readonly payload: {
    /** The tool. */
    readonly toolName: string
    /** How often in a row. */
    readonly callCount: number
    /** With which arguments. */
    readonly args: Readonly<Record<string, unknown>>
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The loop begins a turn. */
export interface LoopStartEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'loop.start'
  /** What there is to know about it. */
  readonly payload: Readonly<Record<string, unknown>>
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A token that was made. */
export interface MadeSessionToken {
  /** The token. It is told this once, and kept nowhere. */
  readonly token: string
  /** Its id. */
  readonly tokenId: SessionTokenId
  /** What it reaches. */
  readonly sessionId: SessionId
  /** What its bearer may do there. */
  readonly role: SessionTokenRole
  /** When it was made, in milliseconds since 1970. */
  readonly createdAt: number
  /** When it ends, in milliseconds since 1970. Absent: with its session. */
  readonly expiresAt?: number
}

/** What it answered, in the protocol's words. */
export interface McpAnswer {
  /** The answer. */
  readonly result: unknown
}

/** Whose a tool server is. */
export type McpOwner =
  /** The session's alone. */
  | 'session'
  /** The project's, which was trusted. */
  | 'project'
  /** Every session's, by the configuration. */
  | 'server'

/** A server of a project's file, as it is written. */
export interface McpProjectServer {
  /** Its name. */
  readonly name: string
  /** Its program and arguments, or its address. */
  readonly runs: string
  /** The names of the variables or headers that it would be given. */
  readonly given: readonly string[]
}

/** A project's file. */
export interface McpProjectView {
  /** Where it is. */
  readonly file: string
  /** Whether anything of it may be started. */
  readonly state: McpTrust
  /** SHA-256 of its content; absent where it cannot be read. Who trusts it says this. */
  readonly hash?: string
  /** What would be started, as it is written. */
  readonly servers: readonly McpProjectServer[]
  /** What is wrong with it, or with single servers of it. */
  readonly problems?: readonly string[]
}

/** A tool server. */
export interface McpServerView {
  /** Its name; its tools are called `mcp:<name>/<tool>`. */
  readonly name: string
  /** Whose it is. */
  readonly of: McpOwner
  /** How it is: `connected`, `resting`, `starting`, `needs login`, `stopped`, `down: …`. */
  readonly state: string
  /** How many tools it has. */
  readonly tools: number
}

/** Whether a project's file is trusted. */
export type McpTrust =
  /** The user said yes to this very content. */
  | 'trusted'
  /** Nobody said yes to it: nothing of it is started. */
  | 'untrusted'
  /** It cannot be read. */
  | 'broken'

/** The tool servers of a session. */
export interface McpView {
  /** Each of them, its own first. */
  readonly servers: readonly McpServerView[]
  /** The file `.mcp.json` of the project that it works in, if there is one. */
  readonly project?: McpProjectView
}

/** Something was put into long-term memory. */
export interface MemoryAddEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'memory.add'
  /** What there is to know about it. */
  readonly payload: {
    /** The entry. */
    readonly id: string
    /** Its text's length in UTF-16 units. */
    readonly contentLength: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Something was taken out of long-term memory. */
export interface MemoryDeleteEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'memory.delete'
  /** What there is to know about it. */
  readonly payload: {
    /** The entry. */
    readonly id: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Long-term memory was searched. */
export interface MemorySearchEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'memory.search'
  /** What there is to know about it. */
  readonly payload: {
    /** What was looked for. */
    readonly query: string
    /** How many entries were found. */
    readonly resultCount: number
    /** How long it took. */
    readonly durationMs: number
    /** Why the meanings of texts did not count although they should have. */
    readonly degraded?: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** What became of what a sub-agent did in a working tree of its own. */
export interface Merge {
  /** How it went. */
  readonly outcome: MergeOutcome
  /** The branch, where it was kept. */
  readonly branch?: string
  /** Files that were changed there, the first of them. */
  readonly paths?: readonly string[]
  /** Why nothing was put back. */
  readonly reason?: string
}

/** How putting back went. */
export type MergeOutcome =
  /** It is in the parent's working tree. */
  | 'merged'
  /** There was nothing. */
  | 'unchanged'
  /** Something else has changed there meanwhile: nothing was put back, and the branch has it. */
  | 'conflict'
  /** It could not be done: nothing was put back, and the branch has what there is. */
  | 'failed'

/** Answer of `GET /models`. */
export interface ModelList {
  /** The models. */
  readonly models: readonly ModelView[]
}

/** Prices in US dollars for a million tokens. */
export interface ModelPrices {
  /** Sent. */
  readonly input: number
  /** Received, reasoning included. */
  readonly output: number
  /** Sent, and found in the provider's cache. */
  readonly cacheRead?: number
  /** Sent, and put into the provider's cache. */
  readonly cacheWrite?: number
}

/** A model that sessions can use. What is absent is not known. */
export interface ModelView {
  /** `provider/name`. */
  readonly id: string
  /** Whether it can be used now. */
  readonly available: boolean
  /** Why not. */
  readonly reason?: string
  /** Whether new sessions get it. */
  readonly default: boolean
  /** Its name for people. */
  readonly label?: string
  /** Tokens of its window: what is sent and what is received together. */
  readonly contextTokens?: number
  /** Tokens of one reply, at most. */
  readonly outputTokens?: number
  /** Whether it can be shown images. If not, it is told what they are. */
  readonly images?: boolean
  /** Whether it calls tools. */
  readonly tools?: boolean
  /** Whether it can think before it answers. */
  readonly reasoning?: boolean
  /** Whether its answer can be held to a schema. */
  readonly structuredOutput?: boolean
  /** What its tokens cost. */
  readonly prices?: ModelPrices
}

/** `POST /sessions/:id/tokens`. Every field may be left out. */
export interface NewSessionToken {
  /** What its bearer may do. Default: `operator`. */
  readonly role?: SessionTokenRole | undefined
  /** After so many milliseconds it counts no longer. Default: it counts as long as the session is there. */
  readonly expiresInMs?: number | null | undefined
}

/** `POST /sessions/:id/tasks`. */
export interface NewTask {
  /** What is to be done, in a few words. */
  readonly subject: string
  /** What belongs to it. */
  readonly description?: string | null | undefined
  /** What is shown while it is worked on. */
  readonly activeForm?: string | null | undefined
  /** Who works on it. */
  readonly owner?: string | null | undefined
  /** Where it stands. Default: nobody has begun it. */
  readonly status?: TaskStatus | null | undefined
  /** Ids of tasks that come first. */
  readonly blockedBy?: readonly string[] | null | undefined
}

/** Answer of `GET /nodes`. */
export interface NodeList {
  /** The newest first. Of a server that has its store alone: itself. */
  readonly nodes: readonly NodeView[]
}

/** How a node is. */
export type NodeState =
  /** It takes sessions. */
  | 'active'
  /** It takes none, and hands over those that it has. */
  | 'draining'
  /** It has left, or was silent for too long: it writes nothing more. */
  | 'over'

/** A server among those that share a database. */
export interface NodeView {
  /** Never given twice: who starts again is another node. */
  readonly number: number
  /** Machine and process. */
  readonly name: string
  /** Where the others reach it. None: it has the database alone. */
  readonly url?: string
  /** Its version of the program. */
  readonly version: string
  /** How it is. */
  readonly state: NodeState
  /** Whether it is the one that answers. */
  readonly isSelf: boolean
  /** Sessions that it has in memory, about. */
  readonly sessions: number
  /** Turns that run on it, about. */
  readonly running: number
  /** Labels of the workspaces that it reaches. */
  readonly labels: readonly string[]
}

/** How much a notice matters. */
export type NoticeLevel =
  /** Good to know. */
  | 'info'
  /** Worth a look. */
  | 'warning'
  /** Something failed. */
  | 'error'

/** A call that has no result yet. */
export interface OpenCall {
  /** The call's id. */
  readonly callId: string
  /** The tool's name. */
  readonly name: string
  /** Its arguments. */
  readonly arguments: Readonly<Record<string, unknown>>
  /** When it began, in milliseconds since 1970. */
  readonly at: number
  /** The end of what it has written so far: the pieces of `tool.call.output`. */
  readonly output?: string
  /** Bytes of it that are left out in front; absent when none are. */
  readonly skippedBytes?: number
}

/**
 * A model's reply in the words of the wire that it came over: what has to be given back to it as it was, such as signed
 * or encrypted reasoning. Only the model that it came from is given it; others are told the text and the calls.
 */
export interface Original {
  /** The wire, such as `anthropic-messages`. */
  readonly wire: string
  /** The model, `provider/name`. */
  readonly model: string
  /** Its parts, in their order, as they came. */
  readonly items: readonly unknown[]
  /** Its provider has paused the reply: the model goes on with it where it is the last one. */
  readonly paused?: boolean
}

/** A piece of a message's content. */
export type Part =
  /** Text. */
  | {
      /** What happened. */
      readonly type: 'text'
      /** The text. */
      readonly text: string
    }
  /** An image, inline. */
  | {
      /** What happened. */
      readonly type: 'image'
      /** Such as `image/png`. */
      readonly mediaType: string
      /** Base64, without a `data:` prefix. */
      readonly data: string
    }

/** A piece of a message's content. */
export type PartInput =
  /** Text. */
  | {
      /** What happened. */
      readonly type: 'text'
      /** The text. */
      readonly text: string
    }
  /** An image, inline. */
  | {
      /** What happened. */
      readonly type: 'image'
      /** Such as `image/png`. */
      readonly mediaType: string
      /** Base64, without a `data:` prefix. */
      readonly data: string
    }

/** Something that is not recorded, or not undone, and why. */
export interface PathReason {
  /** The path, shown as those of `FileChange`. */
  readonly path: string
  /** Why. */
  readonly reason: string
}

/** Answer to a pause. */
export interface Paused {
  /**
   * Whether the turn holds. False: it has not come to a boundary yet, and holds at the next one (`turn.paused` says
   * when).
   */
  readonly paused: boolean
  /** The turn. */
  readonly turnId: TurnId
  /** Where it is. */
  readonly status: TurnStatus
}

/** A default and the rules over it. */
export interface PermissionConfig {
  /** What happens when no rule matches. */
  readonly defaultPolicy: PermissionPolicy
  /** In order; the last one that matches wins. */
  readonly rules: readonly PermissionRule[]
}

/** A default and the rules over it. */
export interface PermissionConfigInput {
  /** What happens when no rule matches. */
  readonly defaultPolicy: PermissionPolicy
  /** In order; the last one that matches wins. */
  readonly rules?: readonly PermissionRuleInput[] | undefined
}

/** Why a call would be allowed, asked or denied. */
export interface PermissionExplanation {
  /** What would happen. */
  readonly decision: PermissionPolicy
  /** What that rests on. */
  readonly source: VerdictBasis
  /** The rule, by its place in the configuration. */
  readonly rule?: number
  /** The same in words. */
  readonly reason: string
  /** Why the call could not run at all, whatever is decided: its arguments, or a path that leads out of the roots. */
  readonly problem?: string
  /** The session's mode. */
  readonly mode?: PermissionMode
  /** The saved grant. */
  readonly grant?: GrantId
  /** The session above this one whose rules or agent decide. Absent: its own do. */
  readonly sessionId?: SessionId
  /** The agent whose file decides. */
  readonly agent?: string
  /** The parts of a command, or the paths, each with its own answer; the strictest is the whole's. */
  readonly parts: readonly ExplainedPart[]
}

/** A yes that reaches further than its call was kept for the session. */
export interface PermissionGrantedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'permission.granted'
  /** A grant of the session, as it was given. */
  readonly payload: Granted
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** How much a session does without asking. The floor and what a rule denies stand in every mode. */
export type PermissionMode =
  /** Only looks: whatever may change something is refused, and says so. */
  | 'plan'
  /** As the rules say. */
  | 'ask'
  /** Edits of files inside the roots run unasked, where no rule of their own asks. */
  | 'accept-edits'
  /** Nothing is asked that no rule denies, or may deny. */
  | 'auto'

/** What to do with a call. */
export type PermissionPolicy =
  /** Run it. */
  | 'allow'
  /** Ask the client; no answer is no. */
  | 'ask'
  /** Refuse it. */
  | 'deny'

/** A question to the client that blocks a call. */
export interface PermissionRequestEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'permission.request'
  /** What there is to know about it. */
  readonly payload: {
    /** The request. */
    readonly requestId: RequestId
    /** The call. */
    readonly callId: string
    /** The tool. */
    readonly toolName: string
    /** Its arguments. */
    readonly args: Readonly<Record<string, unknown>>
    /** What would happen, in words: the command's parts, the paths, a diff. */
    readonly preview?: unknown
    /** The answers that count. */
    readonly options: readonly Decision[]
    /** When silence becomes no, in milliseconds since 1970. */
    readonly deadline: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The end of such a question. Exactly one for each request. */
export interface PermissionResponseEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'permission.response'
  /** What there is to know about it. */
  readonly payload: {
    /** The request. */
    readonly requestId: RequestId
    /** The call. */
    readonly callId: string
    /** The answer. */
    readonly allowed: boolean
    /** Who decided. */
    readonly by: VerdictSource
    /** Why. */
    readonly reason?: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Such a yes is there no longer. */
export interface PermissionRevokedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'permission.revoked'
  /** What there is to know about it. */
  readonly payload: {
    /** The grant. */
    readonly grantId: GrantId
    /** Why. */
    readonly reason: RevokeReason
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** One rule. The last one that matches wins. */
export interface PermissionRule {
  /** Glob over the tool's name: `*` and `?`, everything else literal, anchored. */
  readonly tool: string
  /** Glob over the command (shell tools) or the path (file tools). */
  readonly pattern?: string
  /** What to do when the rule matches. */
  readonly policy: PermissionPolicy
  /** Only tools of this category. */
  readonly category?: CategoryFilter
  /** Only tools that carry these annotations. */
  readonly annotations?: ToolAnnotations
}

/** One rule. The last one that matches wins. */
export interface PermissionRuleInput {
  /** Glob over the tool's name: `*` and `?`, everything else literal, anchored. */
  readonly tool: string
  /** Glob over the command (shell tools) or the path (file tools). */
  readonly pattern?: string | null | undefined
  /** What to do when the rule matches. */
  readonly policy: PermissionPolicy
  /** Only tools of this category. */
  readonly category?: CategoryFilterInput | null | undefined
  /** Only tools that carry these annotations. */
  readonly annotations?: ToolAnnotationsInput | null | undefined
}

/**
 * `POST /sessions/:id/plan`: what is to become of the plan that a session in plan mode answered its last prompt with.
 */
export type PlanDecision = {
  /** What. */
  readonly decision: PlanVerdict
  /** The plan as it was edited; with `edit` alone, and not empty. */
  readonly plan?: string | null | undefined
  /** Words for the model: what is to be minded, or why it is rejected. */
  readonly message?: string | null | undefined
  /**
   * The permission mode in which it is carried out; not `plan`, and not with `reject`. Default: that of new sessions,
   * or `ask`.
   */
  readonly permissionMode?: PermissionMode | null | undefined
  /** Refuse unless the session has this version. */
  readonly ifVersion?: number | null | undefined
}

/** A step of a plan. */
export interface PlanEntry {
  /** What is to be done. */
  readonly content: string
  /** `high`, `medium` or `low`. */
  readonly priority: string
  /** `pending`, `in_progress` or `completed`. */
  readonly status: string
}

/** What is to become of a plan. */
export type PlanVerdict =
  /** It is carried out as it is. */
  | 'approve'
  /** It is carried out as it stands in `plan`. */
  | 'edit'
  /** Another one is wanted. */
  | 'reject'

/** `POST /sessions/:id/prompt`. */
export interface Prompt {
  /** What the user says; not empty. */
  readonly prompt: PromptContent
  /** What to do while a turn runs. */
  readonly mode?: PromptMode | undefined
  /** Settings that change with this prompt. */
  readonly configure?: ConfigureInput | null | undefined
  /**
   * What holds for its turn alone. A turn that runs keeps what it began with, so this is refused of a prompt that is
   * put into one.
   */
  readonly turn?: TurnSettingsInput | null | undefined
  /** Refuse unless the session has this version. */
  readonly ifVersion?: number | null | undefined
}

/** What a prompt says: a text, or parts. */
export type PromptContent =
  /** A text. */
  | string
  /** Text and images. */
  | readonly PartInput[]

/** What to do with a prompt while a turn runs. */
export type PromptMode =
  /** Run it after the ones before it. */
  | 'queue'
  /** Put it into the running turn at the next item boundary; a new turn when none runs. */
  | 'steer'
  /** Refuse it with `CONFLICT`. */
  | 'reject'

/** Answer of `GET /proof/:nonce`. */
export interface Proof {
  /** HMAC-SHA-256 of `simse proof ` and the nonce, by the text `key` of `server.json`, in hexadecimal digits. */
  readonly proof: string
}

/** `PUT /sessions/:id/blackboard/:key`. */
export interface PutBoardEntry {
  /** The value: any JSON. */
  readonly value: unknown
  /** Refuse unless the entry has this version; 0: unless there is none. */
  readonly ifVersion?: number | null | undefined
}

/** How much a model thinks before it answers. */
export type Reasoning =
  /** As much as it does by itself: it is told nothing. */
  | 'auto'
  /** Not at all. */
  | 'none'
  /** As little as it can. */
  | 'minimal'
  /** A little. */
  | 'low'
  /** Some. */
  | 'medium'
  /** Much. */
  | 'high'
  /** As much as it can. */
  | 'xhigh'

/** Names one question to the client, such as a permission request. */
export type RequestId = string

/** Answer to feedback: what it has settled. */
export interface Resolved {
  /** The request. */
  readonly requestId: RequestId
  /** The call. */
  readonly callId?: string
  /** The answer that counts, to a question about permission. */
  readonly allowed?: boolean
  /** Whether there is no answer, to another question. */
  readonly cancelled?: boolean
}

/** Answer to a resume. */
export interface Resumed {
  /** Always true. */
  readonly resumed: boolean
  /** The turn that goes on. */
  readonly turnId: TurnId
}

/** Why a grant of the session is there no longer. */
export type RevokeReason =
  /** A client took it back. */
  | 'client'
  /** It had ended; this is told when the next one is given. */
  | 'expired'
  /** The same was given again. */
  | 'replaced'
  /** There were too many, and it was the oldest. */
  | 'surplus'
  /** The session was imported: what was granted elsewhere is asked again here. */
  | 'imported'

/** Who speaks. */
export type Role =
  /** The person or program that prompts. */
  | 'user'
  /** The model. */
  | 'assistant'

/** How a round with the model ended. */
export type RoundKind =
  /** With an answer. */
  | 'text'
  /** With tool calls. */
  | 'tool_use'

/** `GET /runs/:id/context`. */
export interface RunContext {
  /** The run. */
  readonly run: RunView
  /** What its conversation adds up to. */
  readonly summary: RunSummary
  /** With `view=raw`: the conversation, a page of it. */
  readonly items?: readonly Item[]
  /** With `view=raw`: give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor?: string
}

/** A run: the id of a session and that of one of its turns, with `:` between them. */
export type RunId = string

/** What a run's conversation adds up to. */
export interface RunSummary {
  /** Messages: the user's, the model's, and results of tools. */
  readonly messageCount: number
  /** What the user, or the parent, said. */
  readonly userMessages: number
  /** What the model said. */
  readonly assistantMessages: number
  /** Results of tools. */
  readonly toolResults: number
  /** When work began. */
  readonly startedAt?: number
  /** When it ended. */
  readonly endedAt?: number
}

/** A run as `GET /runs` shows it. */
export interface RunView {
  /** The run. */
  readonly runId: RunId
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId: TurnId
  /** The session above all. */
  readonly rootSessionId: SessionId
  /** The session that made its session. */
  readonly parentSessionId?: SessionId
  /** The run that spawned its session. */
  readonly parentRunId?: RunId
  /** How many sessions are above its own. */
  readonly depth: number
  /** The agent: its name or type, else what answers. */
  readonly agent: string
  /** Whether it stands above all. */
  readonly agentKind: AgentKind
  /** What its parent calls it. */
  readonly name?: string
  /** How it works with those beside it. Absent: it stands above all. */
  readonly coordination?: Coordination
  /** Its model. */
  readonly model: string
  /** Where it works. */
  readonly workingDirectory: string
  /** Where it is. */
  readonly status: TurnStatus
  /** What was asked, its first 4,000 bytes. */
  readonly prompt: string
  /** When it was accepted. */
  readonly createdAt: number
  /** When work began. */
  readonly startedAt?: number
  /** When it ended. */
  readonly endedAt?: number
  /** Its final text. */
  readonly result?: string
  /** Why it failed. */
  readonly error?: ErrorBody
  /** Why it was ended by somebody. */
  readonly detail?: string
  /** Rounds with its model. */
  readonly rounds: number
  /** Its tokens. */
  readonly usage: Usage
  /** Calls of tools. Only of a single run that is asked for. */
  readonly toolCalls?: number
}

/** One page of a list. */
export interface RunViewPage {
  /** The entries. */
  readonly items: readonly RunView[]
  /** Give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null
}

/** `GET /sessions/:id/budget`: all that a session's turns are held to, its own first and its client's last. */
export interface SessionBudgets {
  /**
   * Its own with all that stand under it, those of the sessions above it that have limits, and its client's, if it has
   * limits.
   */
  readonly budgets: readonly BudgetState[]
}

/** A turn ended by itself. */
export interface SessionCompletedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'session.completed'
  /** What there is to know about it. */
  readonly payload: {
    /** The session. */
    readonly sessionId: SessionId
    /** The final text. */
    readonly result: string
    /** The same as data, of a turn that was to answer with some. */
    readonly output?: unknown
    /** What the turn has spent. */
    readonly spent?: Spending
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A session's settings change, from the next turn on. */
export interface SessionConfiguredEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'session.configured'
  /** Settings that changed. */
  readonly payload: Configured
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A session came to be. Always number 1. */
export interface SessionCreatedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'session.created'
  /** What a session begins with. Logs of earlier versions do not say it. */
  readonly payload: {
    /** The session. */
    readonly sessionId: SessionId
    /** All settings; those that are not named are as for any session. */
    readonly settings?: Configure
    /** Rules of its own. */
    readonly permissions?: PermissionConfig
    /** Where it stands in its tree. Absent: above all. */
    readonly lineage?: Lineage
    /** Its log tells of every grant of the session, given or taken back. */
    readonly tellsGrants?: boolean
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A session was deleted. The last of its events, and in no log: that is gone. */
export interface SessionDeletedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'session.deleted'
  /** What there is to know about it. */
  readonly payload: {
    /** Names one session for its whole life, across restarts. A client may choose it. */
    readonly sessionId: SessionId
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A turn failed. */
export interface SessionErrorEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'session.error'
  /** What there is to know about it. */
  readonly payload: {
    /** The session. */
    readonly sessionId: SessionId
    /** Why. */
    readonly error: ErrorBody
    /** What the turn has spent. */
    readonly spent?: Spending
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The session was forked off from another one. What comes before is that one's log. */
export interface SessionForkedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'session.forked'
  /** What a session begins with. Logs of earlier versions do not say it. */
  readonly payload: {
    /** The session. */
    readonly sessionId: SessionId
    /** The other one. */
    readonly parentSessionId: SessionId
    /** Number of the last event that both have in common. */
    readonly at: number
    /** All settings; those that are not named are as for any session. */
    readonly settings?: Configure
    /** Rules of its own. */
    readonly permissions?: PermissionConfig
    /** Where it stands in its tree. Absent: above all. */
    readonly lineage?: Lineage
    /** Its log tells of every grant of the session, given or taken back. */
    readonly tellsGrants?: boolean
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Names one session for its whole life, across restarts. A client may choose it. */
export type SessionId = string

/** A prompt's turn begins. */
export interface SessionPromptEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'session.prompt'
  /** What there is to know about it. */
  readonly payload: {
    /** The session. */
    readonly sessionId: SessionId
    /** The text of the prompt. */
    readonly prompt: string
    /** The parts, when it is more than one text. */
    readonly parts?: readonly Part[]
    /** What holds for this turn alone, instead of what the session is set to. */
    readonly turn?: TurnSettings
    /** What the turn does, where it answers no prompt: then this is no message. */
    readonly task?: TurnTask
    /** The session's version with it, where it changes that. */
    readonly version?: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Where a session is in its life. */
export type SessionStatus =
  /** No turn has run yet. */
  | 'created'
  /** A turn runs, waits or is paused. */
  | 'active'
  /** The last turn ended by itself: with an answer, or by an error (see the turn's record). */
  | 'completed'
  /** The last turn was aborted or interrupted. */
  | 'aborted'

/** A message was put into the running turn. */
export interface SessionSteerEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'session.steer'
  /** What there is to know about it. */
  readonly payload: {
    /** The session. */
    readonly sessionId: SessionId
    /** The text. */
    readonly prompt: string
    /** The parts, when it is more than one text. */
    readonly parts?: readonly Part[]
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Names one token of a session. */
export type SessionTokenId = string

/** A session's tokens, the oldest first. */
export interface SessionTokenList {
  /** Those that count. */
  readonly tokens: readonly SessionTokenView[]
}

/** What the bearer of a session's token may do there. */
export type SessionTokenRole =
  /** Looks. */
  | 'read-only'
  /** Prompts, calls tools, aborts, undoes. Answers no questions, and changes no settings. */
  | 'operator'

/** A session's token, without the token. */
export interface SessionTokenView {
  /** Its id. */
  readonly tokenId: SessionTokenId
  /** What it reaches. */
  readonly sessionId: SessionId
  /** What its bearer may do there. */
  readonly role: SessionTokenRole
  /** When it was made, in milliseconds since 1970. */
  readonly createdAt: number
  /** When it ends, in milliseconds since 1970. Absent: with its session. */
  readonly expiresAt?: number
}

/** A session as `GET /sessions/:id` shows it. */
export interface SessionView {
  /** The session. */
  readonly sessionId: SessionId
  /** Where it is. */
  readonly status: SessionStatus
  /** Successful changes so far; 0 at creation. */
  readonly version: number
  /** When it was created. */
  readonly createdAt: number
  /** When it last changed. */
  readonly updatedAt: number
  /** Messages so far: the user's, the model's, and tool results. */
  readonly messageCount: number
  /** Number of the newest event. */
  readonly lastSeq: number
  /** Where its tools work. */
  readonly workingDirectory: string
  /** Where they may work beside that. Absent: nowhere. */
  readonly additionalDirectories?: readonly string[]
  /** What answers: `simse`, our own loop with the model, or an agent of `GET /agents`. */
  readonly agent: string
  /** How the agent and its model talk about calls, as far as that was chosen here. */
  readonly interactionMode?: InteractionMode
  /** Its model, `provider/name`; `acp/NAME` of an ACP agent, which chooses its model itself. */
  readonly model: string
  /** How much its model thinks before it answers. */
  readonly reasoning: Reasoning
  /** What the options of its agent are set to, as far as that was chosen here. */
  readonly agentOptions?: Readonly<Record<string, AgentSetting>>
  /** What it may spend with all that stand under it. Absent: as much as it likes. */
  readonly budget?: Budget
  /**
   * The models that are asked when its own cannot be used, as far as that was chosen here. Absent: those of the server.
   */
  readonly modelFallbacks?: readonly string[]
  /** The tools it may use, in a form that `tools` of its settings takes. Absent: all. */
  readonly tools?: readonly string[]
  /** How much it does without asking. */
  readonly permissionMode: PermissionMode
  /** Its title. */
  readonly title?: string
  /** Where it stands in its tree. Absent: above all. */
  readonly lineage?: Lineage
  /** The turn that runs, waits for an answer or is paused now. */
  readonly turn?: TurnRecord
  /** Turns that wait behind it. */
  readonly queued: number
  /**
   * Questions to the client that wait for an answer, as they stand in the log: `permission.request`, `client.request`.
   */
  readonly requests?: readonly EventBody[]
  /** Tokens of all turns. */
  readonly usage: Usage
  /** Where it is exactly, with its newest items. Only where it was asked for. */
  readonly snapshot?: Snapshot
}

/** One page of a list. */
export interface SessionViewPage {
  /** The entries. */
  readonly items: readonly SessionView[]
  /** Give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null
}

/** One setting of the server. */
export interface SettingView {
  /** As in the configuration file; `--help` and the variables spell it their way. */
  readonly name: string
  /** What it is for. */
  readonly description: string
  /** What was said. Secrets are ``. Absent: nothing was, and the default holds. */
  readonly value?: unknown
  /** What holds when nothing is said, in words. Absent: then there is none. */
  readonly default?: string
  /**
   * Where the value comes from: `argument`, the variable's name, the path of the file, or `program`: the command that
   * was started has it by itself.
   */
  readonly origin?: string
  /** Whether a change in the file counts without a restart. */
  readonly atOnce: boolean
}

/** Answer of `GET /skills`. */
export interface SkillList {
  /** The skills. */
  readonly skills: readonly SkillView[]
  /** Files that were left out, and why. */
  readonly faults: readonly DefinitionFault[]
}

/** A skill: a folder with a text that says how to do something, which a model loads when it is about to. */
export interface SkillView {
  /** Its name. */
  readonly name: string
  /** What it is for, and when. */
  readonly description: string
  /** Where it comes from. */
  readonly source: DefinitionSource
  /** Its file `SKILL.md`. */
  readonly path: string
  /** The tools that may be used while it is. Absent: all that the session has. */
  readonly allowedTools?: readonly string[]
  /** What may follow its name, for people. */
  readonly argumentHint?: string
  /** Whether a prompt that begins with `/name` uses it. */
  readonly userInvocable: boolean
  /** Whether models are told of it. */
  readonly modelInvocable: boolean
}

/** A session as it is behind one event: its stream read with `after` = `seq` goes on without a gap or a repeat. */
export interface Snapshot {
  /** Number of the newest event that is in it. */
  readonly seq: number
  /** The newest items of the history, the oldest first. */
  readonly items: readonly Item[]
  /**
   * Give it to the history as `cursor`, with `back`, for what lies before the items; null when they begin with the
   * first.
   */
  readonly before: string | null
  /** What the turn that runs or is paused has begun and not ended. Absent when there is none. */
  readonly open?: Underway
  /** The turns that wait, in the order in which they will run. */
  readonly queue: readonly TurnRecord[]
}

/** What was spent. */
export interface Spending {
  /** Tokens, sent and received. */
  readonly tokens?: number
  /** What they cost, in US dollars, where the prices are known. */
  readonly costUsd?: number
  /** How long turns ran, in milliseconds. */
  readonly timeMs?: number
  /** Turns that answered prompts. */
  readonly turns?: number
  /** Calls of tools. */
  readonly toolCalls?: number
}

/** The model's text of one round, whole. */
export interface StreamCompleteEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'stream.complete'
  /** What there is to know about it. */
  readonly payload: {
    /** The text; may be empty when it only called tools. */
    readonly text: string
    /** The reply in its provider's own words, where the model wants them back as they were. Not for people. */
    readonly original?: Original
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A piece of the model's text. A preview: `stream.complete` has the whole. */
export interface StreamDeltaEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'stream.delta'
  /** What there is to know about it. */
  readonly payload: {
    /** The piece. */
    readonly text: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A piece of the model's reasoning. */
export interface StreamReasoningEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'stream.reasoning'
  /** What there is to know about it. */
  readonly payload: {
    /** The piece. */
    readonly text: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The model's stream broke and is tried again; what it sent since `stream.start` is void. */
export interface StreamRetryEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'stream.retry'
  /** What there is to know about it. */
  readonly payload: {
    /** Which attempt comes now; the first retry is 2. */
    readonly attempt: number
    /** How long until then. */
    readonly delayMs: number
    /** Why. */
    readonly error: string
    /** The model that is asked now, where it is another one than before: a fallback. */
    readonly model?: string
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A round with the model begins. */
export interface StreamStartEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'stream.start'
  /** What there is to know about it. */
  readonly payload: Readonly<Record<string, unknown>>
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A sub-agent is done. */
export interface SubagentCompleteEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'subagent.complete'
  /** How a run of a sub-agent ended. */
  readonly payload: SubagentEnd
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** How a run of a sub-agent ended. */
export interface SubagentEnd {
  /** The run. */
  readonly runId: RunId
  /** The sub-agent's session. */
  readonly sessionId: SessionId
  /** How: `completed`, `failed`, `aborted` or `interrupted`. */
  readonly status: TurnStatus
  /** Its final text, where it has one. */
  readonly result?: string
  /** Why it did not complete. */
  readonly error?: ErrorBody
  /** How long it took from when it was asked for. */
  readonly durationMs: number
  /** Rounds with its model. */
  readonly rounds: number
  /** Its tokens. */
  readonly usage: Usage
  /** What became of what it did in a working tree of its own. */
  readonly merge?: Merge
}

/** A sub-agent failed, or was ended. */
export interface SubagentErrorEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'subagent.error'
  /** How a run of a sub-agent ended. */
  readonly payload: SubagentEnd
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A run of a sub-agent waits until others have ended. */
export interface SubagentQueued {
  /** The run. */
  readonly runId: RunId
  /** The sub-agent's session. */
  readonly sessionId: SessionId
  /** Runs that wait with it, itself among them. */
  readonly position: number
}

/** It waits until others have ended. */
export interface SubagentQueuedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'subagent.queued'
  /** A run of a sub-agent waits until others have ended. */
  readonly payload: SubagentQueued
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A sub-agent asks something, told to the clients of the session above all. */
export interface SubagentRequest {
  /** The session that asks. */
  readonly sessionId: SessionId
  /**
   * Its question as it stands in its own log: `permission.request` or `client.request`. It is answered here or there.
   */
  readonly request: EventBody
}

/** A session under this one asks something. */
export interface SubagentRequestEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'subagent.request'
  /** A sub-agent asks something, told to the clients of the session above all. */
  readonly payload: SubagentRequest
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Such a question has its end. */
export interface SubagentResponse {
  /** The session that asked. */
  readonly sessionId: SessionId
  /** The end as it stands in its own log: `permission.response` or `client.response`. */
  readonly response: EventBody
}

/** Such a question has its end. */
export interface SubagentResponseEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'subagent.response'
  /** Such a question has its end. */
  readonly payload: SubagentResponse
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A run of a sub-agent begins, or waits for room to. */
export interface SubagentStart {
  /** The run. */
  readonly runId: RunId
  /** The sub-agent's session. */
  readonly sessionId: SessionId
  /** The run that started it. */
  readonly parentRunId: RunId
  /** The call that did. */
  readonly callId: string
  /** What its parent calls it. */
  readonly name?: string
  /** The agent that it is, or the type of agent. */
  readonly agent?: string
  /** Its model. */
  readonly model: string
  /** What it is to do, its first 4,000 bytes. */
  readonly task: string
  /** Nobody waits for it: its result comes by itself. */
  readonly background?: boolean
  /** The branch of the working tree that it has for itself. */
  readonly branch?: string
  /** How it works with those beside it. */
  readonly coordination?: Coordination
}

/** A sub-agent was given something to do. */
export interface SubagentStartEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'subagent.start'
  /** A run of a sub-agent begins, or waits for room to. */
  readonly payload: SubagentStart
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A task came to be, or changed. */
export interface TaskChange {
  /** The task as it is then. */
  readonly task: TaskItem
  /** Who has made or changed it. Absent: a client. */
  readonly by?: TreeMember
}

/** A task was added to the list that the sessions of the tree share. */
export interface TaskCreateEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'task.create'
  /** A task came to be, or changed. */
  readonly payload: TaskChange
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A task was taken off it: nobody waits for it any more. */
export interface TaskDeleteEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'task.delete'
  /** A task was taken off the list: nobody waits for it any more. */
  readonly payload: TaskDeletion
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A task was taken off the list: nobody waits for it any more. */
export interface TaskDeletion {
  /** Its id. */
  readonly id: string
  /** Who has. Absent: a client. */
  readonly by?: TreeMember
}

/** A task, as it stands in the log. */
export interface TaskItem {
  /** Its id: a number that is given once. */
  readonly id: string
  /** What is to be done, in a few words. */
  readonly subject: string
  /** What belongs to it. */
  readonly description?: string
  /** What is shown while it is worked on. */
  readonly activeForm?: string
  /** Who works on it. */
  readonly owner?: string
  /** Where it stands. */
  readonly status: TaskStatus
  /** Ids of tasks that come first. */
  readonly blockedBy: readonly string[]
  /** When it was made. */
  readonly createdAt: number
  /** When it last changed. */
  readonly updatedAt: number
}

/** Where a task stands. */
export type TaskStatus =
  /** Nobody has begun it. */
  | 'pending'
  /** Somebody works on it. */
  | 'in_progress'
  /** It is done. */
  | 'completed'

/** One of its tasks changed, as it is then. */
export interface TaskUpdateEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'task.update'
  /** A task came to be, or changed. */
  readonly payload: TaskChange
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A task as `GET /sessions/:id/tasks` shows it. */
export interface TaskView {
  /** Its id: a number that is given once. */
  readonly id: string
  /** What is to be done, in a few words. */
  readonly subject: string
  /** What belongs to it. */
  readonly description?: string
  /** What is shown while it is worked on. */
  readonly activeForm?: string
  /** Who works on it. */
  readonly owner?: string
  /** Where it stands. */
  readonly status: TaskStatus
  /** Ids of tasks that come first. */
  readonly blockedBy: readonly string[]
  /** When it was made. */
  readonly createdAt: number
  /** When it last changed. */
  readonly updatedAt: number
  /** Ids of tasks that wait for it. */
  readonly blocks: readonly string[]
}

/** One page of a list. */
export interface TaskViewPage {
  /** The entries. */
  readonly items: readonly TaskView[]
  /** Give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null
}

/** Tokens of a request, as its model's provider counts them. */
export interface TokenCount {
  /** The model. */
  readonly model: string
  /** Tokens that would be sent. */
  readonly tokens: number
}

/** Hints about a tool's effect. Absent means unknown. */
export interface ToolAnnotations {
  /** A name for people. */
  readonly title?: string
  /** May destroy something. */
  readonly destructive?: boolean
  /** Changes nothing. */
  readonly readOnly?: boolean
}

/** Hints about a tool's effect. Absent means unknown. */
export interface ToolAnnotationsInput {
  /** A name for people. */
  readonly title?: string | null | undefined
  /** May destroy something. */
  readonly destructive?: boolean | null | undefined
  /** Changes nothing. */
  readonly readOnly?: boolean | null | undefined
}

/** A call ended, well or badly. Exactly one for each start. */
export interface ToolCallEndEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'tool.call.end'
  /** What there is to know about it. */
  readonly payload: {
    /** The call. */
    readonly callId: string
    /** The tool. */
    readonly name: string
    /** What the model is told. */
    readonly output: string
    /** Whether it failed. */
    readonly isError: boolean
    /** How long the tool ran; 0 when it never started. */
    readonly durationMs: number
    /** What the model is shown beside the output: images. */
    readonly parts?: readonly Part[]
    /** What happened, for programs and people. The model is not told. */
    readonly details?: unknown
    /** What hooks found in the result; the model is told behind the results of its reply. */
    readonly findings?: readonly string[]
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A call failed; comes just before its end. */
export interface ToolCallErrorEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'tool.call.error'
  /** What there is to know about it. */
  readonly payload: {
    /** The call. */
    readonly callId: string
    /** The tool. */
    readonly name: string
    /** Why. */
    readonly error: ErrorBody
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/**
 * A piece of what a running call has written. A preview: `tool.call.end` has what counts. Only while somebody reads.
 */
export interface ToolCallOutputEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'tool.call.output'
  /** What there is to know about it. */
  readonly payload: {
    /** The call. */
    readonly callId: string
    /** The tool. */
    readonly name: string
    /** The piece. */
    readonly text: string
    /** Bytes left out in front of it; absent when none were. */
    readonly skippedBytes?: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A call was announced. */
export interface ToolCallStartEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'tool.call.start'
  /** What there is to know about it. */
  readonly payload: {
    /** The call. */
    readonly callId: string
    /** The tool. */
    readonly name: string
    /** Its arguments. */
    readonly args: Readonly<Record<string, unknown>>
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** What a tool does, in one word. Permission rules can name it. */
export type ToolCategory =
  /** Looks at something. */
  | 'read'
  /** Changes files. */
  | 'edit'
  /** Finds something. */
  | 'search'
  /** Runs a program. */
  | 'execute'
  /** Long-term memory. */
  | 'memory'
  /** A virtual file system. */
  | 'vfs'
  /** Task lists. */
  | 'task'
  /** Other agents. */
  | 'subagent'
  /** None of these. */
  | 'other'

/** What the model and the client are told about a tool. */
export interface ToolDefinition {
  /** Unique in its registry. */
  readonly name: string
  /** What it does, for the model. */
  readonly description: string
  /**
   * The arguments: name → `{type, description, required?}` (typescript-api.md §2), or a JSON Schema object (one with
   * `"type": "object"` and `properties`). Order is kept.
   */
  readonly parameters: Readonly<Record<string, unknown>>
  /** What it does, in one word. */
  readonly category?: ToolCategory
  /** Hints about its effect. */
  readonly annotations?: ToolAnnotations
  /** Longest run, in milliseconds. Absent: the registry's default. */
  readonly timeoutMs?: number
  /** Longest output in UTF-16 units. Absent: the registry's default; 0: no limit. */
  readonly maxOutputChars?: number
}

/** Answer of `GET /tools`. */
export interface ToolList {
  /** The tools. */
  readonly tools: readonly ToolDefinition[]
}

/** A tool ran longer than it may. */
export interface ToolTimeoutEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'tool.timeout'
  /** What there is to know about it. */
  readonly payload: {
    /** The tool. */
    readonly name: string
    /** Its limit. */
    readonly timeoutMs: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The files that the work was about so far, the last ones last. */
export interface TouchedFiles {
  /** Changed. */
  readonly changed?: readonly string[]
  /** Read and not changed. */
  readonly read?: readonly string[]
}

/** The session of a tree that has changed something. */
export interface TreeMember {
  /** The session. */
  readonly sessionId: SessionId
  /** What its parent calls it. */
  readonly name?: string
}

/** Whether a project's file is to be trusted. */
export interface TrustProject {
  /** The hash of the content that was seen. Another one is there: nothing changes. */
  readonly hash: string
  /** `false` takes the trust back, and ends what was started. Default: true. */
  readonly trusted?: boolean | undefined
}

/** A turn in `GET /sessions/:id/diff`. */
export interface TurnChanges {
  /** The turn. */
  readonly turnId: TurnId
  /** When its first change was recorded. */
  readonly at: number
  /** Paths that it changed. */
  readonly fileCount: number
  /** Whether its changes are undone now. */
  readonly undone: boolean
  /** Its record was dropped to make room: it can neither be shown nor undone. */
  readonly dropped: boolean
}

/** What a turn did to files. Comes before its end, when it did anything. */
export interface TurnChangesEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'turn.changes'
  /** What changed, within bounds. */
  readonly payload: ChangeReport
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A round with the model ended. */
export interface TurnCompleteEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'turn.complete'
  /** What there is to know about it. */
  readonly payload: {
    /** Which round of the turn, from 1. */
    readonly turn: number
    /** How. */
    readonly type: RoundKind
    /** Its tokens, when the provider said. */
    readonly usage?: Usage
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** The turn would have ended, and goes on with these texts: hooks say that it is not done. */
export interface TurnContinuedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'turn.continued'
  /** What there is to know about it. */
  readonly payload: {
    /** What the model is told. */
    readonly texts: readonly string[]
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A control of the turn was accepted: what becomes of it, other events say. */
export interface TurnControlEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'turn.control'
  /** What there is to know about it. */
  readonly payload: {
    /** Which one. */
    readonly kind: ControlKind
    /**
     * The session's version with it, where it changes that at once. A pause and an interrupt may still come too late:
     * they change it with `turn.paused` and `abort`.
     */
    readonly version?: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** Names one turn: one user input worked to its end. */
export type TurnId = string

/** The turn holds between two items until it is resumed. */
export interface TurnPausedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'turn.paused'
  /** What there is to know about it. */
  readonly payload: {
    /** Why, when the client said. */
    readonly reason?: string
    /** The session's version with it, where it changes that. */
    readonly version?: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A turn waits behind the running one. */
export interface TurnQueuedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'turn.queued'
  /** What there is to know about it. */
  readonly payload: {
    /** Turns in front of it, the running one included. */
    readonly position: number
    /** The session's version with it, where it changes that. */
    readonly version?: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** A turn's record. */
export interface TurnRecord {
  /** The turn. */
  readonly turnId: TurnId
  /** Its session. */
  readonly sessionId: SessionId
  /** Where it is. */
  readonly status: TurnStatus
  /** What was asked: the text of the prompt, its first 4,000 bytes. The whole is event `firstSeq`. */
  readonly prompt: string
  /** What it does, where it answers no prompt: it is hidden then. */
  readonly task?: TurnTask
  /** When it was accepted. */
  readonly createdAt: number
  /** When work began. */
  readonly startedAt?: number
  /** When it ended. */
  readonly endedAt?: number
  /** The final text of a completed turn. */
  readonly result?: string
  /** The same as data, of a turn that was to answer with some (`outputSchema`). */
  readonly output?: unknown
  /** Why a failed turn failed. */
  readonly error?: ErrorBody
  /** Why an aborted or interrupted turn was. */
  readonly reason?: string
  /** Why it stopped, once it has. */
  readonly stopReason?: TurnStop
  /** Number of its first event, `session.prompt`. Absent while it is queued. */
  readonly firstSeq?: number
  /** Number of its last event, the terminal one. Absent until it has ended. */
  readonly lastSeq?: number
  /** Rounds with the model. */
  readonly rounds: number
  /** Tokens of all rounds. */
  readonly usage: Usage
}

/** One page of a list. */
export interface TurnRecordPage {
  /** The entries. */
  readonly items: readonly TurnRecord[]
  /** Give it back as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null
}

/** The turn that was paused goes on. */
export interface TurnResumedEvent {
  /** Its number in its session, from 1. */
  readonly seq: number
  /** What happened. */
  readonly type: 'turn.resumed'
  /** What there is to know about it. */
  readonly payload: {
    /** Why, when the client said. */
    readonly reason?: string
    /** The session's version with it, where it changes that. */
    readonly version?: number
  }
  /** Its session. */
  readonly sessionId: SessionId
  /** Its turn. */
  readonly turnId?: TurnId
  /** When, in milliseconds since 1970. */
  readonly at: number
}

/** What holds for one turn alone, instead of what its session is set to. What is not named is as in the session. */
export interface TurnSettings {
  /**
   * Another agent, as `agent` of a session's settings; with it come the model and the reasoning of its file, where it
   * names some and nothing else is said beside it. A prompt that begins with `@name` and a space names it too.
   */
  readonly agent?: string
  /** Another model, `provider/name`, or `acp/NAME` for an agent. */
  readonly model?: string
  /** How much the model thinks before it answers. */
  readonly reasoning?: Reasoning
  /** What the options of its agent are set to. */
  readonly agentOptions?: Readonly<Record<string, AgentSetting>>
  /** The models that are asked, in this order, when its own cannot be used, see `Configure::model_fallbacks`. */
  readonly modelFallbacks?: readonly string[]
  /**
   * The JSON Schema of an object that the final answer has to be: the turn completes with it in `output`, or fails with
   * the kind `output_invalid`. Not of an agent, nor of a model whose `structuredOutput` is false.
   */
  readonly outputSchema?: Readonly<Record<string, unknown>>
}

/** What holds for one turn alone, instead of what its session is set to. What is not named is as in the session. */
export interface TurnSettingsInput {
  /**
   * Another agent, as `agent` of a session's settings; with it come the model and the reasoning of its file, where it
   * names some and nothing else is said beside it. A prompt that begins with `@name` and a space names it too.
   */
  readonly agent?: string | null | undefined
  /** Another model, `provider/name`, or `acp/NAME` for an agent. */
  readonly model?: string | null | undefined
  /** How much the model thinks before it answers. */
  readonly reasoning?: Reasoning | null | undefined
  /** What the options of its agent are set to. */
  readonly agentOptions?: Readonly<Record<string, AgentSetting>> | null | undefined
  /** The models that are asked, in this order, when its own cannot be used, see `Configure::model_fallbacks`. */
  readonly modelFallbacks?: readonly string[] | null | undefined
  /**
   * The JSON Schema of an object that the final answer has to be: the turn completes with it in `output`, or fails with
   * the kind `output_invalid`. Not of an agent, nor of a model whose `structuredOutput` is false.
   */
  readonly outputSchema?: Readonly<Record<string, unknown>> | null | undefined
}

/** Where a turn is in its life. */
export type TurnStatus =
  /** Waits for the turn before it. */
  | 'queued'
  /** Works. */
  | 'running'
  /** Waits for an answer of the client. */
  | 'waiting'
  /** Holds between two items until it is resumed. */
  | 'paused'
  /** Ended by itself. */
  | 'completed'
  /** Ended by an error, or by a restart of the server. */
  | 'failed'
  /** Ended by a client, at once. */
  | 'aborted'
  /** Ended by a client, between two items. */
  | 'interrupted'

/** Why a turn stopped. */
export type TurnStop =
  /** The model was done. */
  | 'end_turn'
  /** The model reached its own limit of tokens. */
  | 'max_tokens'
  /** The provider cut the answer for its content. */
  | 'content_filter'
  /** The model refused to answer. */
  | 'refusal'
  /** The limit of rounds with the model. */
  | 'max_iterations'
  /** A budget is spent: the session's, that of one above it, or the client's. */
  | 'budget'
  /** The model went in a circle, and went on when it was told. */
  | 'loop'
  /** A client aborted it. */
  | 'aborted'
  /** A client interrupted it. */
  | 'interrupted'
  /** An error. */
  | 'error'

/**
 * What a turn does that answers no prompt. It is hidden: its opening is no message, and lists of turns leave it out
 * unless asked.
 */
export type TurnTask =
  /** It makes the conversation shorter. */
  | {
      /** Which of them it is. */
      readonly kind: 'compact'
      /** What the summary is to keep above all. */
      readonly focus?: string
    }

/** What a turn has begun and not ended. */
export interface Underway {
  /** The turn. */
  readonly turnId: TurnId
  /**
   * What the model says now, so far: the pieces of `stream.delta` since `stream.start` or `stream.retry`. Absent when
   * it says nothing.
   */
  readonly text?: string
  /** What it thinks beside that, so far: the pieces of `stream.reasoning`. */
  readonly reasoning?: string
  /** Calls that run or wait for an answer, in the order in which they began. */
  readonly calls: readonly OpenCall[]
  /** What tools and hooks have put onto the clients' screens and not taken away. Absent when there is nothing. */
  readonly displays?: readonly Display[]
}

/** `POST /sessions/:id/undo` and `/redo`. Every field may be left out. */
export interface Undo {
  /** Undo: this turn and all later ones. Redo: what was undone, up to this turn. Default: one turn, the last. */
  readonly turnId?: TurnId | null | undefined
  /**
   * Do the rest although some paths cannot be undone; they are named in the answer. A path that somebody else has
   * changed stands against it all the same.
   */
  readonly partial?: boolean | undefined
  /** Refuse unless the session has this version. */
  readonly ifVersion?: number | null | undefined
}

/** Answer to an undo or a redo. */
export interface Undone {
  /** The turns, in the order in which they were undone or redone. */
  readonly turnIds: readonly TurnId[]
  /** What happened to which path. */
  readonly files: readonly FileChange[]
  /** Paths of these turns that stay as they are, and why. */
  readonly left?: readonly PathReason[]
  /** The session's version now. */
  readonly version: number
}

/** Tokens, as the provider counted them. */
export interface Usage {
  /** Tokens sent. */
  readonly inputTokens: number
  /** Tokens received. */
  readonly outputTokens: number
  /** Both together, as the provider says. */
  readonly totalTokens: number
  /** Of the tokens sent, those that the provider had in its cache. */
  readonly cachedInputTokens?: number
  /** Of the tokens sent, those that it put into its cache. */
  readonly cacheWriteTokens?: number
  /** Of the tokens received, those that nobody is shown: the model's reasoning. */
  readonly reasoningTokens?: number
  /** What they cost, where the prices are known. */
  readonly costUsd?: number
}

/** What a verdict rests on. */
export type VerdictBasis =
  /** A rule. */
  | 'rule'
  /** No rule matched. */
  | 'default'
  /** A rule that may match, depending on what only the shell will know. */
  | 'uncertain'
  /** The floor, which no rule lifts. */
  | 'floor'
  /** The session's mode. */
  | 'mode'
  /** A grant that a client gave. */
  | 'grant'
  /** The gates or the rules of an agent's file. */
  | 'agent'

/** Who decided. */
export type VerdictSource =
  /** A configured rule or the default policy. */
  | 'policy'
  /** The floor: nobody may. */
  | 'floor'
  /** The session's mode. */
  | 'mode'
  /** The agent's own gates and rules. */
  | 'agent'
  /** A client's answer. */
  | 'client'
  /** The program that embeds the server (`onPermissionRequest`). */
  | 'program'
  /** An `allow_always` that a client gave earlier. */
  | 'grant'
  /** Nobody answered in time. */
  | 'timeout'
  /** No client was there to be asked. */
  | 'no-client'
  /** The turn was aborted, or the server stopped, before an answer came. */
  | 'abort'
  /** A hook. */
  | 'hook'

/** A git working tree of a session's own. */
export interface Worktree {
  /** Where it lies. */
  readonly directory: string
  /** The top of the working tree that it was made from, and that what is done in it goes back to. */
  readonly repository: string
  /** Its branch. */
  readonly branch: string
  /** The commit that it began at. */
  readonly base: string
}

/** The methods of `client.sessions`. */
export interface SessionsClient {
  /** The caller's sessions, the newest first. */
  list(options?: CallOptions & {
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
  }): PagedList<SessionView>
  /** A new session. Nothing is spawned. */
  create(body?: CreateSession, options?: WriteOptions): Promise<SessionView>
  /** A session as it is now. */
  get(sessionId: string, options?: CallOptions & {
    /**
     * With where it is exactly (`snapshot`): its events `after` `snapshot.seq` go on from there without a gap or a
     * repeat.
     */
    readonly snapshot?: boolean | undefined
    /** With `snapshot`: at most so many items of the history. */
    readonly limit?: number | undefined
  }): Promise<SessionView>
  /** Changes settings of a session, from its next turn on. */
  configure(sessionId: string, body: ConfigureInput, options?: VersionedOptions): Promise<SessionView>
  /** Stops what runs in a session, ends its streams, and forgets it. */
  delete(sessionId: string, options?: VersionedOptions): Promise<Deleted>
  /** A prompt: its turn runs, or waits, whether or not anybody waits for it. */
  prompt(sessionId: string, body: Prompt, options?: VersionedOptions & { readonly wait?: false | undefined; readonly stream?: false | undefined }): Promise<Accepted>
  /** Waits for the end of the turn, however long that takes; `timeoutMs` limits it. */
  prompt(sessionId: string, body: Prompt, options: VersionedOptions & StreamOptions & { readonly wait: true; readonly stream?: false | undefined }): Promise<TurnRecord>
  /** The events of the turn, as soon as the prompt is accepted. Leaving the stream does not stop the turn. */
  prompt(sessionId: string, body: Prompt, options: VersionedOptions & StreamOptions & { readonly stream: true; readonly wait?: false | undefined }): Promise<TurnStream>
  /**
   * Sums the conversation up in a hidden turn: from then on the model is shown the summary. All of it stays in the
   * history.
   *
   * It waits behind the turns before it. The model keeps its old view where that fails.
   */
  compact(sessionId: string, body?: Compact, options?: VersionedOptions & {
    /** Answer when it is done, with the record of its turn: `result` is the summary. */
    readonly wait?: boolean | undefined
  }): Promise<TurnRecord | Accepted>
  /** Aborts the turn that runs or is paused, at once: model, tools, questions. */
  abort(sessionId: string, body?: Control, options?: VersionedOptions): Promise<Aborted>
  /** Ends the turn at its next boundary; one that reaches none in time is cut off. */
  interrupt(sessionId: string, body?: Control, options?: VersionedOptions): Promise<Interrupted>
  /** Lets the turn hold at its next boundary. */
  pause(sessionId: string, body?: Control, options?: VersionedOptions): Promise<Paused>
  /** Lets the paused turn go on. */
  resume(sessionId: string, body?: Control, options?: VersionedOptions): Promise<Resumed>
  /** Answers a question that waits. */
  feedback(sessionId: string, body: Feedback, options?: VersionedOptions): Promise<Resolved>
  /** A session's events as a stream, from the first on or behind one. */
  events<T extends EventType = EventType>(sessionId: string, options?: StreamOptions & {
    /** Behind this event. Default: from the first on. */
    readonly after?: number | undefined
    /** Only events of these types. */
    readonly types?: readonly T[] | undefined
  }): EventStream<Extract<Event, { readonly type: T }>>
  /** A session's history, the oldest first; or its log. */
  history(sessionId: string, options?: CallOptions & {
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
    /** From the newest item on, the newest first; `cursor` may be `before` of a snapshot too. Not with `events`. */
    readonly back?: boolean | undefined
  } & { readonly events?: false | undefined }): PagedList<Item>
  /** The events of the log as they are, instead of the items that they make. */
  history(sessionId: string, options: CallOptions & {
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
    /** With `events`: only events of these types. */
    readonly types?: readonly EventType[] | undefined
  } & { readonly events: true }): PagedList<Event>
  /** What the agent of a session has said of itself last: its options, its commands, its plans. */
  agent(sessionId: string, options?: CallOptions): Promise<AgentState>
  /** The records of a session's turns, the newest first. */
  turns(sessionId: string, options?: CallOptions & {
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
    /** With those that answer no prompt, such as compaction. */
    readonly hidden?: boolean | undefined
  }): PagedList<TurnRecord>
  /** A turn's record. */
  turn(sessionId: string, turnId: string, options?: CallOptions): Promise<TurnRecord>
  /**
   * The files of the directory that a session works in: names alone.
   *
   * What ignore files leave out is marked in a directory, and not among what letters mean.
   */
  files(sessionId: string, options?: CallOptions & {
    /** A directory, relative to the session's. Default: that itself. */
    readonly path?: string | undefined
    /**
     * Instead of what is in the directory: the files below it whose path has these letters in this order, the best
     * first.
     */
    readonly query?: string | undefined
    /** At most so many. */
    readonly limit?: number | undefined
  }): Promise<FilesView>
  /** What turns did to files. */
  diff(sessionId: string, options?: CallOptions & {
    /** Only this turn. Default: all that are not undone. */
    readonly turn?: TurnId | undefined
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** Only this path, with more of its diff. */
    readonly path?: string | undefined
  }): Promise<DiffView>
  /** A new session that goes on from an event of this one. */
  fork(sessionId: string, body?: Fork, options?: VersionedOptions): Promise<SessionView>
  /** Undoes what turns did to files: all of it or nothing. */
  undo(sessionId: string, body?: Undo, options?: VersionedOptions): Promise<Undone>
  /** Does again what was undone. */
  redo(sessionId: string, body?: Undo, options?: VersionedOptions): Promise<Undone>
  /**
   * Approves, edits or rejects the plan that a session in plan mode answered with.
   *
   * It is a prompt: approved or edited, the session leaves its plan mode and the next turn carries the plan out;
   * rejected, it stays and plans anew.
   */
  decidePlan(sessionId: string, body: PlanDecision, options?: CallOptions): Promise<Accepted>
  /** The tool servers of a session, and the `.mcp.json` of the project that it works in. */
  mcp(sessionId: string, options?: CallOptions): Promise<McpView>
  /**
   * Says yes to the `.mcp.json` of the project as it was seen, or takes that back. For owners.
   *
   * Nothing of the file is started before; when it changes, the yes no longer counts.
   */
  trustMcp(sessionId: string, body: TrustProject, options?: CallOptions): Promise<McpView>
  /** Asks a tool server of the session for prompts, resources and completions. */
  askMcp(sessionId: string, body: AskMcp, options?: CallOptions): Promise<McpAnswer>
  /** The tokens of a session that count, without the tokens themselves. */
  tokens(sessionId: string, options?: CallOptions): Promise<SessionTokenList>
  /**
   * A token that reaches this session and nothing else.
   *
   * It is told this once, and counts until it is revoked, has run out, its session is deleted, or the token that made
   * it is revoked. Its bearer answers no questions and changes no settings.
   */
  createToken(sessionId: string, body?: NewSessionToken, options?: CallOptions): Promise<MadeSessionToken>
  /** Takes a token of a session away: what it has opened ends. */
  revokeToken(sessionId: string, tokenId: string, options?: CallOptions): Promise<Deleted>
  /** The sessions that stand directly under one, the newest first. */
  children(sessionId: string, options?: CallOptions & {
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
  }): PagedList<SessionView>
  /** What a session's turns may spend, and what is spent of it. */
  budget(sessionId: string, options?: CallOptions): Promise<SessionBudgets>
  /**
   * The tasks that the sessions of a tree share, in the order in which they were created.
   *
   * Each change is an event in the log of the session above all: `task.create`, `task.update`, `task.delete`.
   */
  tasks(sessionId: string, options?: CallOptions & {
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
  }): PagedList<TaskView>
  /**
   * Answers what the session asks: each handler is called with the questions that are open now and those that come, and what it gives back is
   * the answer. Ends when the session is deleted or the signal fires; rejects when a handler does. Somebody else's answer is as good.
   */
  answer(sessionId: string, handlers: RequestHandlers, options?: StreamOptions): Promise<void>
}

/** The methods of `client.runs`. */
export interface RunsClient {
  /** Turns as runs of a tree, those of the newest sessions first. */
  list(options?: CallOptions & {
    /** Only those of this session and of all under it. */
    readonly sessionId?: SessionId | undefined
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
  }): PagedList<RunView>
  /** A run. */
  get(runId: string, options?: CallOptions): Promise<RunView>
  /** What a run's conversation adds up to, or all of it. */
  context(runId: string, options?: CallOptions & {
    /** `raw`: with the conversation, a page of it. Default: `summary`. */
    readonly view?: 'summary' | 'raw' | undefined
    /** With `raw`: the `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
  }): PagedList<Item>
  /** Ends a run, and all under it that go on or wait. */
  cancel(runId: string, body?: CancelRun, options?: CallOptions): Promise<CancelledRuns>
}

/** The methods of `client.blackboard`. */
export interface BlackboardClient {
  /**
   * What the sessions of a tree share, by key. Any session of the tree leads there.
   *
   * Each change is an event in the log of the session above all: `blackboard.set`, `blackboard.delete`.
   */
  list(sessionId: string, options?: CallOptions & {
    /** Only entries whose keys begin so. */
    readonly prefix?: string | undefined
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
    /** At most so many entries. */
    readonly limit?: number | undefined
  }): PagedList<BoardEntry>
  /** Takes everything off the board. */
  clear(sessionId: string, options?: WriteOptions): Promise<Deleted>
  /** An entry of what the sessions of a tree share. */
  get(sessionId: string, key: string, options?: CallOptions): Promise<BoardEntry>
  /** Puts a value on the board that the sessions of a tree share. */
  put(sessionId: string, key: string, body: PutBoardEntry, options?: VersionedOptions): Promise<BoardEntry>
  /** Takes an entry off the board. */
  delete(sessionId: string, key: string, options?: VersionedOptions): Promise<Deleted>
}

/** The methods of `client.tasks`. */
export interface TasksClient {
  /** Adds a task to those that the sessions of a tree share. */
  create(sessionId: string, body: NewTask, options?: WriteOptions): Promise<TaskView>
  /**
   * Changes a task: where it stands, its words, its owner, what it waits for.
   *
   * What somebody has in progress is not given to somebody else: set it back first.
   */
  update(sessionId: string, taskId: string, body: ChangeTask, options?: WriteOptions): Promise<TaskView>
  /** Takes a task off the list: nobody waits for it any more. */
  delete(sessionId: string, taskId: string, options?: WriteOptions): Promise<Deleted>
}

/** The methods of `client.permissions`. */
export interface PermissionsClient {
  /** What would happen to a call, and why. Nobody is asked, and nothing runs. */
  explain(body: ExplainCall, options?: CallOptions): Promise<PermissionExplanation>
  /** What was granted beyond one call. */
  grants(options?: CallOptions & {
    /** Only what holds in this session. */
    readonly sessionId?: SessionId | undefined
    /** The `nextCursor` of the page before. Default: the first page. */
    readonly cursor?: string | number | undefined
  }): PagedList<GrantView>
  /** Takes a grant back. */
  revoke(grantId: string, options?: VersionedOptions & {
    /** The session that it was given for, where it was given for one. */
    readonly sessionId?: SessionId | undefined
  }): Promise<Deleted>
}

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
  /** Sessions. */
  readonly sessions: SessionsClient
  /** Runs. */
  readonly runs: RunsClient
  /** Blackboard. */
  readonly blackboard: BlackboardClient
  /** Tasks. */
  readonly tasks: TasksClient
  /** Permissions. */
  readonly permissions: PermissionsClient
  /** How the caller's sessions come and go, and that one of them waits for somebody, as one stream. */
  events<T extends LifecycleType = LifecycleType>(options?: StreamOptions & {
    /** Behind this place; `newest`: only what comes from now on. Default: from the first on. */
    readonly after?: number | 'newest' | undefined
    /** Only events of these types. */
    readonly types?: readonly T[] | undefined
  }): EventStream<Extract<LifecycleEvent, { readonly type: T }>>
  /** The skills that sessions have: texts that say how to do something, loaded when they are used. */
  skills(options?: CallOptions & {
    /** As this session has them: where it works, and what its agent is told of. */
    readonly sessionId?: SessionId | undefined
    /** As a session that works there has them. Default: the server's own directory. */
    readonly workingDirectory?: string | undefined
  }): Promise<SkillList>
  /** What a prompt may begin with, as `/name`: commands of markdown files, and skills. */
  slashCommands(options?: CallOptions & {
    /** As this session has them: where it works, and what its agent is told of. */
    readonly sessionId?: SessionId | undefined
    /** As a session that works there has them. Default: the server's own directory. */
    readonly workingDirectory?: string | undefined
  }): Promise<CommandList>
  /** The tools that sessions have now. */
  tools(options?: CallOptions): Promise<ToolList>
  /**
   * The agents that sessions can name: ours, external ones, and those of markdown files; and the types of sub-agents.
   */
  agents(options?: CallOptions & {
    /** As a session that works there has them. Default: the server's own directory. */
    readonly workingDirectory?: string | undefined
  }): Promise<AgentList>
  /** The models that sessions can name. */
  models(options?: CallOptions): Promise<ModelList>
  /**
   * What a prompt would cost: its tokens, as the model's provider counts them.
   *
   * Of models whose provider has a route for it: Anthropic's Messages and Gemini. Others are a `CONFLICT` (`why:
   * "no_token_count"`).
   */
  countTokens(body: CountTokens, options?: CallOptions): Promise<TokenCount>
  /**
   * What the server was set to, and where each value comes from. Secrets are hidden.
   *
   * For the role `owner`.
   */
  config(options?: CallOptions): Promise<ConfigView>
  /** How the server is. Needs no token, unless it is asked for more. */
  health(options?: CallOptions & {
    /** What is bounded, too, and how full it is; needs a token. */
    readonly verbose?: boolean | undefined
  }): Promise<Health>
  /**
   * Shows that it is the server that `server.json` tells of. Needs no token.
   *
   * A server can have gone, and another program have taken its port: who found it by `server.json` asks this before it
   * sends a token.
   */
  proof(nonce: string, options?: CallOptions): Promise<Proof>
  /** What the server counts, for Prometheus. */
  metrics(options?: CallOptions): Promise<string>
  /** This document. */
  openapi(options?: CallOptions): Promise<Readonly<Record<string, unknown>>>
  /**
   * The servers that share the store, and how much each has to do.
   *
   * For the role `owner`.
   */
  nodes(options?: CallOptions): Promise<NodeList>
  /**
   * Hands the sessions of this server over to the others; from now on it takes none.
   *
   * For the role `owner`. What runs goes on to the end of its turn.
   */
  drain(options?: CallOptions): Promise<Drained>
  /** Gives up all calls, which reject with `CLOSED`, and ends all streams. */
  close(): void
}

/** Creates a client. Nothing is sent before the first call. */
export declare function createSimseClient(options?: SimseClientOptions): SimseClient

/** The types of all events of sessions. */
export declare const EVENT_TYPES: readonly EventType[]
