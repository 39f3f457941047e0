/// <reference lib="esnext.disposable" />

/**
 * simse: a headless coding-agent server, and the host tools it is made of.
 *
 * Every factory returns a frozen object; properties that change over time are getters on it.
 * Lengths count UTF-16 units, as JavaScript does; times are milliseconds.
 *
 * @packageDocumentation
 */

// ── Errors ──────────────────────────────────────────────────────────────────────────────────────

/** What an error of this package is about. Stable; messages may change. */
export type SimseErrorCode =
  /** What was handed in does not fit; `issues` says where. */
  | 'CONFIG_VALIDATION'
  /** No tool by that name. */
  | 'TOOL_NOT_FOUND'
  /** A tool failed. */
  | 'TOOL_EXECUTION_ERROR'
  /** A call was refused. */
  | 'PERMISSION_DENIED'
  /** Something took longer than it may. */
  | 'OPERATION_TIMEOUT'
  /** `start()` of a server that runs. */
  | 'SERVER_STATE'
  /** Another program listens there. */
  | 'PORT_IN_USE'
  /** The system does not let the server listen there. */
  | 'LISTEN_FAILED'
  /** Another process holds the data directory. */
  | 'DATA_DIRECTORY_IN_USE'
  /** The data directory cannot be used. */
  | 'STORAGE_ERROR'
  /** The server could not write down everything when it stopped. */
  | 'SERVER_STOP'
  /** An MCP server answered with an error. */
  | 'MCP_ERROR'
  /** An MCP server could not be reached. */
  | 'MCP_CONNECTION_ERROR'
  /** An MCP server is not connected. */
  | 'MCP_NOT_CONNECTED'
  /** A tool of an MCP server failed. */
  | 'MCP_TOOL_ERROR'
  /** A loop could not go on. */
  | 'LOOP_ERROR'
  /** A model or an agent cannot be used now. */
  | 'PROVIDER_UNAVAILABLE'
  /** A model or an agent failed. */
  | 'PROVIDER_ERROR'
  /** There is no task of that id. */
  | 'TASK_NOT_FOUND'
  /** A task would wait for itself. */
  | 'TASK_CIRCULAR_DEPENDENCY'
  /** The task list is full. */
  | 'TASK_LIMIT'

/** One place where a configuration does not fit. */
export interface ConfigIssue {
  /** The field, such as `acpServers.0.command`; empty for the whole. */
  readonly path: string
  /** What was expected, and what is there. */
  readonly message: string
}

/** What this package throws, rejects with, and publishes as `error` in events. */
export interface SimseError extends Error {
  /** What it is about. */
  readonly code: SimseErrorCode
  /** The HTTP status that goes with the code. */
  readonly statusCode: number
  /** Facts for a program. */
  readonly metadata: Readonly<Record<string, unknown>>
  /** Where a configuration does not fit; with `CONFIG_VALIDATION`. */
  readonly issues?: readonly ConfigIssue[]
  /** The error as plain data. */
  toJSON(): {
    name: string
    code: SimseErrorCode
    statusCode: number
    message: string
    metadata: Readonly<Record<string, unknown>>
    issues?: readonly ConfigIssue[]
  }
}

/** Takes warnings. */
export interface Logger {
  /** Something went wrong that the caller does not hear of otherwise. */
  warn(message: string, metadata?: Readonly<Record<string, unknown>>): void
}

// ── Tools ───────────────────────────────────────────────────────────────────────────────────────

/** What a tool does, in one word. Permission rules can name it. */
export type ToolCategory = 'read' | 'edit' | 'search' | 'execute' | 'memory' | 'vfs' | 'task' | 'subagent' | 'other'

/** One argument of a tool. */
export interface ToolParameter {
  /** `string`, `number`, `integer`, `boolean`, `object` or `array`. */
  readonly type: string
  /** What it means, for the model. */
  readonly description: string
  /** Whether it must be there; default `false`. */
  readonly required?: boolean
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

/** A JSON Schema of an object. */
export interface JsonSchemaObject {
  /** Always an object. */
  readonly type: 'object'
  /** The arguments. */
  readonly properties?: Readonly<Record<string, unknown>>
  /** Those that must be there. */
  readonly required?: readonly string[]
  /** Any other keyword of JSON Schema. */
  readonly [keyword: string]: unknown
}

/** A schema of any library that speaks Standard Schema (Zod, Valibot, ArkType …). */
export interface StandardSchema<Output = unknown> {
  /** The library's side. */
  readonly '~standard': {
    /** Version of the standard. */
    readonly version: 1
    /** The library. */
    readonly vendor: string
    /** Holds a value against the schema. */
    readonly validate: (
      value: unknown,
    ) =>
      | { readonly value: Output; readonly issues?: undefined }
      | { readonly issues: readonly { readonly message: string }[] }
      | Promise<
          | { readonly value: Output; readonly issues?: undefined }
          | { readonly issues: readonly { readonly message: string }[] }
        >
    /** The types, for TypeScript only. */
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined
  }
}

/** What the model and the client are told about a tool. */
export interface ToolDefinition {
  /** Unique in its registry. */
  readonly name: string
  /** What it does, for the model. */
  readonly description: string
  /**
   * Its arguments: by name, or as a JSON Schema of an object. By name, an optional argument that is null is left out. Of a schema, `format` is left
   * to the tool, patterns are regular expressions without look-around, and `register` refuses what is no schema and words that are not checked
   * (`unevaluatedProperties`, references to elsewhere).
   */
  readonly parameters: Readonly<Record<string, ToolParameter>> | JsonSchemaObject
  /** What it does, in one word. */
  readonly category?: ToolCategory
  /** Hints about its effect. */
  readonly annotations?: ToolAnnotations
  /** Longest run in milliseconds; default: the registry's. */
  readonly timeoutMs?: number
  /** Longest output; default: the registry's; 0: no limit. */
  readonly maxOutputChars?: number
}

/**
 * A definition as `register` takes it: `parameters` may also be a Zod schema or any other Standard Schema.
 * Arguments are held against the schema itself, and the handler gets what it made of them. Models are told as much of it as JSON Schema can say; of
 * one that has no form there (Valibot's without `toStandardJsonSchema`) they are told that any object fits, with a warning.
 */
export interface ToolRegistration extends Omit<ToolDefinition, 'parameters'> {
  /** Its arguments. */
  readonly parameters: ToolDefinition['parameters'] | StandardSchema
}

/** What a handler is told about its call. */
export interface ToolContext {
  /** The call's id. */
  readonly callId: string
  /** The session that the call belongs to; absent outside a server. */
  readonly sessionId?: string
  /** Fires when the call is aborted or runs out of time. */
  readonly signal: AbortSignal
  /** Asks the clients of the session; see {@link AskClients}. */
  readonly ask: AskClients
  /** Tells them something; see {@link NotifyClients}. */
  readonly notify: NotifyClients
  /** Puts something onto their screens; see {@link ShowClients}. */
  readonly show: ShowClients
}

// ── Questions to the client ─────────────────────────────────────────────────────────────────────

/** What a tool or a hook can ask the clients of its session. Answers stand in the session's log: ask for no secrets. */
export type ClientQuestion =
  | {
      /** One of several, or some of them. */
      readonly kind: 'select'
      /** What is asked. */
      readonly title: string
      /** What can be chosen: 1 to 1,000 texts, each once. */
      readonly options: readonly string[]
      /** Whether more than one can be, or none. Default: false. */
      readonly several?: boolean
    }
  | {
      /** Yes or no. */
      readonly kind: 'confirm'
      /** What is asked. */
      readonly title: string
      /** What there is to know. */
      readonly message?: string
    }
  | {
      /** A line of text. */
      readonly kind: 'input'
      /** What is asked. */
      readonly title: string
      /** What is shown as long as nothing is typed. */
      readonly placeholder?: string
    }
  | {
      /** A text of several lines. */
      readonly kind: 'editor'
      /** What is asked. */
      readonly title: string
      /** What the editor begins with. */
      readonly text?: string
    }

/** The value of an answer to such a question. */
export type ClientValue<Q extends ClientQuestion = ClientQuestion> = Q extends { readonly kind: 'confirm' }
  ? boolean
  : Q extends { readonly kind: 'select'; readonly several: true }
    ? readonly string[]
    : Q extends { readonly kind: 'select'; readonly several: boolean }
      ? string | readonly string[]
      : string

/** What came of a question. */
export type ClientReply<Q extends ClientQuestion = ClientQuestion> =
  | {
      /** There is an answer. */
      readonly cancelled: false
      /** It, fitting the question. */
      readonly value: ClientValue<Q>
    }
  | {
      /** There is none. */
      readonly cancelled: true
      /**
       * Who decided that: `client` would not; `timeout`: nobody answered in time; `no-client`: nobody was there, or there is no
       * session; `abort`: the call or the turn ended; `policy`: too many questions are open.
       */
      readonly by: 'client' | 'timeout' | 'no-client' | 'abort' | 'policy'
      /** Why, in words. */
      readonly reason: string
    }

/**
 * Asks the clients of the session that a call or hook belongs to, and waits for the end: every client sees the question
 * (`client.request`), the first answer counts (`client.response`). Never rejects for want of an answer: no client, no answer
 * within `timeoutMs` (default: the server's `permissionTimeoutMs`; at most a day), an abort, a restart all cancel it. Outside
 * a server there is nobody to ask. Rejects with `CONFIG_VALIDATION` for a question that cannot be put.
 */
export type AskClients = <const Q extends ClientQuestion>(question: Q, options?: AskOptions) => Promise<ClientReply<Q>>

/** How a question is asked. */
export interface AskOptions {
  /** How long it waits, in milliseconds. */
  readonly timeoutMs?: number | undefined
}

/**
 * Shows the clients of the session something (`client.notice`) and waits for nothing. Outside a server it goes to the
 * registry's `eventBus`. Of more than 1,000 in one turn the rest is left out.
 */
export type NotifyClients = (text: string, level?: 'info' | 'warning' | 'error') => void

/**
 * What stands on a client's screen while a turn runs. A later one takes the place of an earlier one of its kind and key; null
 * takes it away. Keys have 1 to 64 bytes, texts are one line, a widget has at most 200 of them, each at most 16,000 bytes in all.
 */
export type ClientDisplay =
  /** A line about one matter, beside those about others. */
  | { readonly kind: 'status'; readonly key: string; readonly text: string | null }
  /** What stands where a client says that it works, in place of its own words. */
  | { readonly kind: 'working'; readonly text: string | null }
  /** Some lines of text, which stand by themselves. */
  | { readonly kind: 'widget'; readonly key: string; readonly lines: readonly string[] | null }
  /** The title of the window, not of the session. */
  | { readonly kind: 'title'; readonly text: string | null }

/**
 * Puts something onto the screens of the session's clients (`client.display`), where it stands until it is replaced, taken away,
 * or the turn ends, and waits for nothing. A client that comes later finds it in the snapshot. Outside a server it goes to the
 * registry's `eventBus`. Counts with the notices of its turn. Throws `CONFIG_VALIDATION` for what cannot be shown.
 */
export type ShowClients = (display: ClientDisplay) => void

/** What every hook is given beside its own. Absent where a program calls `HookSystem.run` itself without it. */
export interface HookClients {
  /** Asks the clients of the session; see {@link AskClients}. */
  readonly ask?: AskClients
  /** Tells them something; see {@link NotifyClients}. */
  readonly notify?: NotifyClients
  /** Puts something onto their screens; see {@link ShowClients}. */
  readonly show?: ShowClients
}

/** What a handler gives back that is more than a text. */
export interface ToolHandlerOutput {
  /** What the model is told. */
  readonly output: string
  /** What it is shown beside that. Images are PNG, JPEG, GIF or WebP; texts join the output. */
  readonly parts?: readonly MessagePart[]
  /** What happened, for programs and people; plain JSON, the model is not told. */
  readonly details?: unknown
}

/** Does what a tool is for. What it returns goes to the model; what it throws becomes a failed result. */
export type ToolHandler<Arguments = Record<string, unknown>> = (
  args: Arguments,
  context?: ToolContext,
) => Promise<string | ToolHandlerOutput>

/** One call that a model or a program makes. */
export interface ToolCallRequest {
  /** Unique in its turn. */
  readonly id: string
  /** The tool. */
  readonly name: string
  /** The arguments by name; plain JSON. */
  readonly arguments: Record<string, unknown>
}

/** A piece of a message. */
export type MessagePart =
  | { readonly type: 'text'; readonly text: string }
  /** An image in base64, without a `data:` prefix. */
  | { readonly type: 'image'; readonly mediaType: string; readonly data: string }

/** What came of a call. There is exactly one for each call. */
export interface ToolCallResult {
  /** The call. */
  readonly id: string
  /** The tool. */
  readonly name: string
  /** What the model is told. */
  readonly output: string
  /** Whether it failed. */
  readonly isError: boolean
  /** How long the tool ran; absent when it never started. */
  readonly durationMs?: number
  /** What the model is shown beside the output; absent when that is nothing. */
  readonly parts?: readonly MessagePart[]
  /** What happened, for programs and people; the model is not told. `fs_write` and `fs_edit` give a {@link FileChange}. */
  readonly details?: unknown
  /** What `tool.result.validate` hooks found; absent when they found nothing. */
  readonly findings?: readonly string[]
}

/** Figures of one tool since its registration. */
export interface ToolMetrics {
  /** The tool. */
  readonly name: string
  /** Calls that reached the tool. */
  readonly callCount: number
  /** Of these, how many failed. */
  readonly errorCount: number
  /** Time of all calls together. */
  readonly totalDurationMs: number
  /** Mean time of a call. */
  readonly avgDurationMs: number
  /** When the last call ended, since 1970. */
  readonly lastCalledAt: number
}

/** A call that somebody is asked about. */
export interface ToolPermissionRequest extends ToolCallRequest {
  /** What it would do, where the arguments do not say it all: a {@link FileChange} of the tools that change a file, a warning of git's. */
  readonly preview?: Readonly<Record<string, unknown>>
}

/** Decides whether a call may run. */
export interface ToolPermissionResolver {
  /**
   * Only `true` is yes; an error is no. With a definition that a registry of simse gave (`getToolDefinition`), a resolver of
   * `createToolPermissionResolver` judges the call as that registry would: other names of arguments, variables, shells, the paths of
   * a patch, links. Without, it judges a name of one of simse's own tools as that tool would, in the directory of the process. What it
   * then cannot know: where another working directory lies (an absolute path outside of the process's is therefore denied where a
   * relative pattern that denies could be about it, but a relative one is taken as relative to the process's), where links lead
   * that are not there, and a line that is typed in pieces. A search or `git_show` that is allowed leaves out what rules deny only
   * when the registry runs it.
   */
  check(request: ToolPermissionRequest, definition?: ToolDefinition): Promise<boolean>
}

/** A tool of an MCP server. */
export interface MCPToolInfo {
  /** Its name on the server. */
  readonly name: string
  /** What it does. */
  readonly description?: string
  /** Its arguments. */
  readonly inputSchema?: Readonly<Record<string, unknown>>
  /** Its server; needed when the client has no `connectedServerNames`. */
  readonly serverName?: string
}

/** What a registry needs of an MCP client. */
export interface MCPToolSource {
  /** The servers whose tools are listed, each by itself. Without it `listTools()` lists all at once. */
  readonly connectedServerNames?: readonly string[]
  /** The tools of a server. */
  listTools(server?: string): Promise<readonly MCPToolInfo[]>
  /** Calls one; its answer is a text, `{content}` with a text or a list of parts, or anything that is then told as JSON. */
  callTool(server: string, tool: string, args: Record<string, unknown>): Promise<unknown>
}

/** What an MCP client is made with. */
export interface MCPClientConfig {
  /** The servers that it knows, each under a name of its own. */
  readonly servers: readonly MCPServerEntry[]
  /** What servers are told about the program; default `simse`. */
  readonly clientName?: string
  /** Its version; default that of this package. */
  readonly clientVersion?: string
  /** The directories that servers are told to work in; default the working directory of the process. */
  readonly roots?: readonly string[]
  /**
   * Answers a server that asks for a model (`sampling/createMessage`). Without it servers are told that there is none. What is thrown is told to
   * the server as a refusal: ask your user before you send anything to a model.
   */
  readonly onSampling?: (
    request: MCPSamplingRequest,
    about: MCPRequestAbout,
  ) => MCPSamplingResult | Promise<MCPSamplingResult>
  /**
   * Has a form filled in for a server, or a page opened (`elicitation/create`). Without it servers are told that there is nobody. Show a page's whole
   * address to your user, and open nothing before he has agreed: `accept` says that he has, and not that he is done there. What is thrown goes to the
   * logger, and the server hears only that nobody could be asked.
   */
  readonly onElicitation?: (
    request: MCPElicitationRequest,
    about: MCPRequestAbout,
  ) => MCPElicitationResult | Promise<MCPElicitationResult>
}

/** What a server wants of a person. */
export type MCPElicitationRequest = MCPFormRequest | MCPPageRequest

/** A form to be filled in. */
export interface MCPFormRequest {
  /** It is a form. */
  readonly mode: 'form'
  /** What it is for. */
  readonly message: string
  /** A schema of its fields. */
  readonly requestedSchema: Readonly<Record<string, unknown>>
}

/** A page to be opened in a browser, for what is not to pass through the program: a login, a secret, a payment. */
export interface MCPPageRequest {
  /** It is a page. */
  readonly mode: 'url'
  /** What it is for. */
  readonly message: string
  /** Its address, http or https. */
  readonly url: string
  /** Its name with the server. */
  readonly elicitationId: string
}

/** Whose request it is. */
export interface MCPRequestAbout {
  /** The server that asks. */
  readonly server: string
  /** Fires when it waits no longer. */
  readonly signal: AbortSignal
}

/** A conversation for which a server wants an answer, as the protocol has it. */
export interface MCPSamplingRequest {
  /** Its messages, oldest first. */
  readonly messages: readonly {
    readonly role: 'user' | 'assistant'
    readonly content: MCPContent | readonly MCPContent[]
  }[]
  /** Tokens of the answer, at most. */
  readonly maxTokens: number
  /** What the model is told before. */
  readonly systemPrompt?: string
  /** Which models it would like. */
  readonly modelPreferences?: {
    readonly hints?: readonly { readonly name?: string }[]
    readonly costPriority?: number
    readonly speedPriority?: number
    readonly intelligencePriority?: number
  }
  /** Texts before which the answer ends. */
  readonly stopSequences?: readonly string[]
  /** Whatever else the protocol has. */
  readonly [member: string]: unknown
}

/** An answer of a model. */
export interface MCPSamplingResult {
  /** Always the assistant. */
  readonly role: 'assistant'
  /** What the model said. */
  readonly content: MCPContent
  /** The model that gave it. */
  readonly model: string
  /** Such as `endTurn`, `maxTokens` or `stopSequence`. */
  readonly stopReason?: string
}

/** What came of it. */
export interface MCPElicitationResult {
  /** What the person did with the form, or whether he opens the page. */
  readonly action: 'accept' | 'decline' | 'cancel'
  /** What was filled in. Of a page nothing. */
  readonly content?: Readonly<Record<string, unknown>>
}

/** How far a call is. */
export interface MCPProgress {
  /** How far it is. */
  readonly progress: number
  /** How far it will be, where that is known. */
  readonly total?: number
  /** How far it is, in words. */
  readonly message?: string
}

/** A message of a server for a log. */
export interface MCPLogMessage {
  /** The server. */
  readonly server: string
  /** How serious it is. */
  readonly level: MCPLogLevel
  /** The part of the server that says it. */
  readonly logger?: string
  /** What it says. */
  readonly data: unknown
}

/** How much a message matters, from the least on. */
export type MCPLogLevel = 'debug' | 'info' | 'notice' | 'warning' | 'error' | 'critical' | 'alert' | 'emergency'

/** A part of what a server answers. */
export interface MCPContent {
  /** Such as `text`, `image`, `audio`, `resource` or `resource_link`. */
  readonly type: string
  /** Of a text. */
  readonly text?: string
  /** Of an image or sound, in base64. */
  readonly data?: string
  /** Of an image or sound. */
  readonly mimeType?: string
  /** Whatever else the protocol has. */
  readonly [member: string]: unknown
}

/** What a call of a tool answered. */
export interface MCPToolResult {
  /** Its parts. */
  readonly content: readonly MCPContent[]
  /** Its structured form, where the tool has one. */
  readonly structuredContent?: unknown
  /** Whether the tool says that it failed. */
  readonly isError?: boolean
}

/** A resource of an MCP server, or with `uriTemplate` a template of some. */
export interface MCPResourceInfo {
  /** Its address. */
  readonly uri?: string
  /** Of a template. */
  readonly uriTemplate?: string
  /** Its name. */
  readonly name: string
  /** What it is. */
  readonly description?: string
  /** Its type. */
  readonly mimeType?: string
  /** Its server. */
  readonly serverName: string
}

/** What a resource holds. */
export interface MCPResourceContents {
  /** One entry, or several of a collection: text, or base64 in `blob`. */
  readonly contents: readonly {
    readonly uri: string
    readonly mimeType?: string
    readonly text?: string
    readonly blob?: string
  }[]
}

/** A prompt of an MCP server. */
export interface MCPPromptInfo {
  /** Its name. */
  readonly name: string
  /** What it is for. */
  readonly description?: string
  /** What it is filled in with. */
  readonly arguments?: readonly { readonly name: string; readonly description?: string; readonly required?: boolean }[]
  /** Its server. */
  readonly serverName: string
}

/** A prompt that is filled in. */
export interface MCPPrompt {
  /** What it is for. */
  readonly description?: string
  /** Its messages. */
  readonly messages: readonly { readonly role: 'user' | 'assistant'; readonly content: MCPContent }[]
}

/** How a call is made. */
export interface MCPCallOptions {
  /** Cancels the call, on the server too. */
  readonly signal?: AbortSignal | undefined
  /** Longest wait for the answer; default 600,000 ms. It begins anew when the server says how far it is, if `onProgress` is there. */
  readonly timeoutMs?: number
  /** Is told how far the call is, if the server says so. */
  readonly onProgress?: (progress: MCPProgress) => void
}

/**
 * MCP servers in the hands of a program. Errors have the codes `MCP_CONNECTION_ERROR`, `MCP_NOT_CONNECTED`, `MCP_TOOL_ERROR`, `MCP_ERROR` and
 * `OPERATION_TIMEOUT`. A server that was connected and ends is started again by the next request. A connection keeps the process alive.
 */
export interface MCPClient extends MCPToolSource {
  /** Connects a server: starts its program, or reaches its address. Harmless when it is connected. */
  connect(name: string): Promise<void>
  /** Connects all; the names of those that could be. The others are skipped with a warning. */
  connectAll(): Promise<string[]>
  /** Disconnects a server; resolves when its processes are gone. Harmless when it is not connected. */
  disconnect(name: string): Promise<void>
  /** Disconnects all. */
  disconnectAll(): Promise<void>
  /** Whether this server is connected now; without a name, whether any is. */
  isAvailable(name?: string): boolean
  /** The tools of a server, or of all that are connected; one that does not list is then skipped with a warning. */
  listTools(name?: string): Promise<readonly MCPToolInfo[]>
  /** Calls a tool, once. A tool that says that it failed is an answer with `isError`. */
  callTool(
    server: string,
    tool: string,
    args?: Readonly<Record<string, unknown>>,
    options?: MCPCallOptions,
  ): Promise<MCPToolResult>
  /** The resources of a server, or of all that are connected. */
  listResources(name?: string): Promise<readonly MCPResourceInfo[]>
  /** The templates of resources of a server, or of all that are connected. */
  listResourceTemplates(name?: string): Promise<readonly MCPResourceInfo[]>
  /** What a resource holds. */
  readResource(server: string, uri: string): Promise<MCPResourceContents>
  /** The prompts of a server, or of all that are connected. */
  listPrompts(name?: string): Promise<readonly MCPPromptInfo[]>
  /** A prompt, filled in. */
  getPrompt(server: string, prompt: string, args?: Readonly<Record<string, string>>): Promise<MCPPrompt>
  /** What an argument of a prompt, or a variable of a resource template, may be. `context`: what the others are already. */
  complete(
    server: string,
    about: { readonly prompt: string } | { readonly resource: string },
    argument: { readonly name: string; readonly value: string },
    context?: Readonly<Record<string, string>>,
  ): Promise<{ readonly values: readonly string[]; readonly total?: number; readonly hasMore?: boolean }>
  /** Asks to be told (`onResourceUpdated`) when a resource changes. A server that is started again is asked again. */
  subscribeResource(server: string, uri: string): Promise<void>
  /** Ends that. */
  unsubscribeResource(server: string, uri: string): Promise<void>
  /** From which level on a server sends log messages. */
  setLogLevel(server: string, level: MCPLogLevel): Promise<void>
  /** Tells the servers that they work in these directories from now on. */
  setRoots(roots: readonly string[]): void
  /** Calls `handler` with a server's name when its resources are others now. Returns what ends that. */
  onResourcesChanged(handler: (server: string) => void): () => void
  /** Calls `handler` when a resource that was subscribed to is another now. Returns what ends that. */
  onResourceUpdated(handler: (server: string, uri: string) => void): () => void
  /** Calls `handler` with a server's name when its prompts are others now. Returns what ends that. */
  onPromptsChanged(handler: (server: string) => void): () => void
  /** Calls `handler` with each log message. Returns what ends that. */
  onLog(handler: (message: MCPLogMessage) => void): () => void
  /** Calls `handler` with a server's name when its tools are others now. Returns what ends that. */
  onToolsChanged(handler: (server: string) => void): () => void
  /** The servers that are connected now, in the order of the configuration. */
  readonly connectedServerNames: readonly string[]
  /** How many are connected now. */
  readonly connectionCount: number
  /** `disconnectAll()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Creates a client of MCP servers; nothing is connected before `connect()`.
 * @throws `CONFIG_VALIDATION`
 */
export declare function createMCPClient(config: MCPClientConfig, logger?: Logger): MCPClient

/** What a registry is made with. */
export interface ToolRegistryOptions {
  /** Where `discover()` finds tools. */
  readonly mcpClient?: MCPToolSource
  /** Whose memory the tools `memory_search`, `memory_add` and `memory_delete` use; without one they are not there. */
  readonly memoryManager?: MemoryManager
  /** Who gives permission; without one every call is allowed. */
  readonly permissionResolver?: ToolPermissionResolver
  /** Takes warnings; default: the console. */
  readonly logger?: Logger
  /** Where `tool.*` and `permission.*` events are published. */
  readonly eventBus?: Pick<EventBus, 'publish'>
  /** Run around each call. */
  readonly hooks?: Pick<HookSystem, 'run'>
  /** Longest run of a tool that sets none itself; default 600,000 ms. */
  readonly defaultToolTimeoutMs?: number
  /** Longest output of a tool that sets none itself; default 50,000; 0: no limit. */
  readonly maxOutputChars?: number
}

/** Tools by name, and the way of a call: hooks, permission, validation, time limit, output limit, figures. */
export interface ToolRegistry {
  /** (Re)loads the tools of the MCP client, as `mcp:<server>/<tool>`. Other tools stay. A server that cannot list is skipped with a warning, and keeps the tools that it had. */
  discover(): Promise<void>
  /**
   * Adds a tool; one of the same name is replaced in its place. A call that runs keeps the tool that it found; one in a batch finds its tool when it begins.
   * @throws {SimseError} `CONFIG_VALIDATION` for a definition or handler that does not fit.
   */
  register<Output>(
    definition: Omit<ToolRegistration, 'parameters'> & { readonly parameters: StandardSchema<Output> },
    handler: ToolHandler<Output>,
  ): void
  /** Adds a tool whose arguments a JSON Schema describes: the handler gets them as they came, once they fit. */
  register(definition: ToolRegistration, handler: ToolHandler): void
  /** Takes a tool out; `false` when there is none of that name. A call that waits or runs keeps it. */
  unregister(name: string): boolean
  /** All definitions, in the order of registration. */
  getToolDefinitions(): readonly ToolDefinition[]
  /** One definition. */
  getToolDefinition(name: string): ToolDefinition | undefined
  /** Whether there is a tool of that name. */
  isRegistered(name: string): boolean
  /** The tools as a part of a system prompt, for models without calls of their own; empty without tools. */
  formatForSystemPrompt(): string
  /** Runs a call. What goes wrong with it is a failed result, never a rejection; so is what is no call at all. */
  execute(call: ToolCallRequest, options?: { readonly signal?: AbortSignal | undefined }): Promise<ToolCallResult>
  /**
   * Runs calls side by side, each by itself. One result for each call, in the order of the calls. A call of a tool that changes something (its
   * annotations say `readOnly: false` or `destructive: true`, or they say neither and its category is `edit` or `execute`) is a barrier: it runs
   * alone, after those before it and before those behind it.
   * Rejects with a `RangeError` when `maxConcurrency` (default 8) is no integer of at least 1.
   */
  batchExecute(
    calls: readonly ToolCallRequest[],
    options?: { readonly maxConcurrency?: number | undefined; readonly signal?: AbortSignal | undefined },
  ): Promise<readonly ToolCallResult[]>
  /**
   * The calls in a model's reply, and its text without them. Malformed blocks are in neither, and so is one that is not closed, up to the end of
   * its object or of the reply; an opening tag without an object is text. Arguments that are no object are told as they came (the type
   * says what tools take): `execute` answers such a call with words about them, for the model.
   */
  parseToolCalls(response: string): { readonly text: string; readonly toolCalls: readonly ToolCallRequest[] }
  /** Figures of one tool; `undefined` before its first call. */
  getToolMetrics(name: string): ToolMetrics | undefined
  /** Figures of all tools that were called. */
  getAllToolMetrics(): readonly ToolMetrics[]
  /** Forgets all figures. */
  clearMetrics(): void
  /** How many tools there are now. */
  readonly toolCount: number
  /** Their names, in the order of registration. */
  readonly toolNames: readonly string[]
}

/**
 * Creates a tool registry.
 * @throws {SimseError} `CONFIG_VALIDATION` for options that do not fit.
 */
export function createToolRegistry(options?: ToolRegistryOptions): ToolRegistry

// ── Loop breaker ────────────────────────────────────────────────────────────────────────────────

/** How often something may come in a row before it counts as a circle; 0: as often as it likes. */
export interface LoopBreakerLimits {
  /** The same call; default 3: the third is not to be run. */
  readonly identicalCalls?: number
  /** Searches that find nothing; default 4. */
  readonly emptySearches?: number
  /** The same reply, text and calls; default 4, and at twice as many the loop is to end. */
  readonly identicalReplies?: number
  /** Replies whose calls have no readable arguments; default 4. */
  readonly unreadableReplies?: number
}

/** What to do about a model's reply. */
export type LoopAdvice =
  /** What it asks for. */
  | { readonly action: 'continue' }
  /** `tell`: run none of its calls, and answer each with the message. `stop`: end the loop with it. */
  | { readonly action: 'tell' | 'stop'; readonly message: string }

/** Notices when a loop goes in circles, as the server's own loop does. One for each turn, or `reset()` between them. */
export interface LoopBreaker {
  /** Looks at a reply before its calls are answered. `unreadable`: it has calls, and none has arguments that can be read. */
  checkReply(reply: {
    readonly text?: string
    readonly toolCalls?: readonly { readonly name: string; readonly arguments?: Record<string, unknown> }[]
    readonly unreadable?: boolean
  }): LoopAdvice
  /** Counts a call that is about to run: why it is not to be run, as the model is told; else `undefined`. */
  checkCall(call: { readonly name: string; readonly arguments?: Record<string, unknown> }): string | undefined
  /** Looks at a result: a hint for the model, when searches find nothing again and again; else `undefined`. */
  checkResult(
    result: Pick<ToolCallResult, 'name' | 'output' | 'isError'>,
    definition?: Pick<ToolDefinition, 'category' | 'annotations'>,
  ): string | undefined
  /** Does the last two at the hooks of a registry: a repeated call is blocked, a hint is a finding. What it returns ends that. */
  attach(hooks: Pick<HookSystem, 'register'>, registry: Pick<ToolRegistry, 'getToolDefinition'>): () => void
  /** Forgets everything. */
  reset(): void
}

/**
 * Creates a loop breaker.
 * @throws {SimseError} `CONFIG_VALIDATION` for limits that do not fit.
 */
export function createLoopBreaker(limits?: LoopBreakerLimits): LoopBreaker

// ── Other interfaces ────────────────────────────────────────────────────────────────────────────

/** How calls of another interface are run. */
export interface RunToolCallsOptions {
  /** Aborts them. */
  readonly signal?: AbortSignal | undefined
  /** How many at once; default 8. */
  readonly maxConcurrency?: number | undefined
  /** Whether the model can be shown images; default `true`. If not, it is told what they are. */
  readonly images?: boolean
}

/** A tool for chat completions (`openai`: `ChatCompletionFunctionTool`). */
export interface OpenAITool {
  /** Always a function. */
  type: 'function'
  /** What the model is told. */
  function: { name: string; description: string; parameters: Record<string, unknown> }
}

/** A call in a chat completion's message (`openai`: `ChatCompletionMessageToolCall`). */
export interface OpenAIToolCall {
  /** Its id. */
  readonly id: string
  /** `function`, or another kind. */
  readonly type: string
  /** What is called. */
  readonly function?: { readonly name: string; readonly arguments: string }
}

/** What answers the calls of a chat completion: a tool's message for each call, and behind them one of the user with what they show. */
export type OpenAIToolMessage =
  | { role: 'tool'; tool_call_id: string; content: string }
  | {
      role: 'user'
      content: ({ type: 'text'; text: string } | { type: 'image_url'; image_url: { url: string } })[]
    }

/** The tools of a registry for OpenAI's chat completions: `tools`. Names are spelt in letters that it takes. */
export function toOpenAITools(registry: ToolRegistry): OpenAITool[]

/**
 * Runs the `tool_calls` of a chat completion's message through the registry: the messages to send next, behind that one.
 * Calls of other kinds than functions are left to the caller. Arguments that are no JSON are a failed result.
 */
export function runOpenAIToolCalls(
  registry: ToolRegistry,
  toolCalls: readonly OpenAIToolCall[] | null | undefined,
  options?: RunToolCallsOptions,
): Promise<OpenAIToolMessage[]>

/** A tool for the Responses interface (`openai`: `FunctionTool`). */
export interface OpenAIResponsesTool {
  /** Always a function. */
  type: 'function'
  /** Its name, in letters that OpenAI takes. */
  name: string
  /** What it does. */
  description: string
  /** Its arguments as JSON Schema. */
  parameters: Record<string, unknown>
  /** The registry holds arguments against the schema, which need not be of the strict subset. */
  strict: false
}

/** What answers a function call of a response. */
export interface OpenAIFunctionCallOutput {
  /** Its kind. */
  type: 'function_call_output'
  /** The call. */
  call_id: string
  /** What came of it. */
  output: string | ({ type: 'input_text'; text: string } | { type: 'input_image'; image_url: string; detail: 'auto' })[]
}

/** The tools of a registry for OpenAI's Responses interface: `tools`. */
export function toOpenAIResponsesTools(registry: ToolRegistry): OpenAIResponsesTool[]

/** Runs the function calls among the `output` of a response: what to send as `input` next. Other items are left to the caller. */
export function runOpenAIResponsesToolCalls(
  registry: ToolRegistry,
  output: readonly { readonly type: string }[] | null | undefined,
  options?: RunToolCallsOptions,
): Promise<OpenAIFunctionCallOutput[]>

/** A tool for Anthropic's Messages interface (`@anthropic-ai/sdk`: `Tool`). */
export interface AnthropicTool {
  /** Its name, in letters that Anthropic takes. */
  name: string
  /** What it does. */
  description: string
  /** Its arguments. */
  input_schema: { type: 'object'; [keyword: string]: unknown }
}

/** What answers a `tool_use` block. */
export interface AnthropicToolResult {
  /** Its kind. */
  type: 'tool_result'
  /** The block. */
  tool_use_id: string
  /** What came of it. */
  content:
    | string
    | (
        | { type: 'text'; text: string }
        | {
            type: 'image'
            source: {
              type: 'base64'
              media_type: 'image/jpeg' | 'image/png' | 'image/gif' | 'image/webp'
              data: string
            }
          }
      )[]
  /** Whether it failed. */
  is_error?: true
}

/** The tools of a registry for Anthropic's Messages interface: `tools`. */
export function toAnthropicTools(registry: ToolRegistry): AnthropicTool[]

/** Runs the `tool_use` blocks among the `content` of a message: the `content` of the user's message to send next. */
export function runAnthropicToolCalls(
  registry: ToolRegistry,
  content: string | readonly { readonly type: string }[] | null | undefined,
  options?: RunToolCallsOptions,
): Promise<AnthropicToolResult[]>

/** A tool as an MCP server lists it (`@modelcontextprotocol/sdk`: `Tool`). */
export interface McpTool {
  /** Its name. */
  name: string
  /** What it does. */
  description: string
  /** Its arguments. */
  inputSchema: { type: 'object'; [keyword: string]: unknown }
  /** Its annotations in the protocol's words. */
  annotations: { title?: string; readOnlyHint?: boolean; destructiveHint?: boolean }
}

/** What a `tools/call` request is answered with (`@modelcontextprotocol/sdk`: `CallToolResult`). */
export interface McpToolResult {
  /** What came of it. */
  content: ({ type: 'text'; text: string } | { type: 'image'; data: string; mimeType: string })[]
  /** Whether it failed. */
  isError?: true
  /** Room for what the protocol adds. */
  [member: string]: unknown
}

/** The tools of a registry for an MCP server: what `tools/list` answers with. */
export function toMcpTools(registry: ToolRegistry): McpTool[]

/** Runs the call of a `tools/call` request, given as its `params`. What goes wrong with it is a result with `isError`. */
export function runMcpToolCall(
  registry: ToolRegistry,
  params: { readonly name: string; readonly arguments?: Readonly<Record<string, unknown>> | undefined },
  options?: RunToolCallsOptions,
): Promise<McpToolResult>

/** A tool of the Vercel AI SDK (`ai`: `Tool`), which runs it by itself. */
export interface VercelTool {
  /** What it does. */
  description: string
  /** A name for people. */
  title?: string
  /** Its arguments. The registry holds calls against them. */
  inputSchema: StandardSchema<Record<string, unknown>>
  /** Runs it. A failed result is thrown, as the SDK wants it. */
  execute(
    input: Record<string, unknown>,
    options: { readonly toolCallId: string; readonly abortSignal?: AbortSignal | undefined },
  ): Promise<ToolCallResult>
  /** What the model is told of a result. */
  toModelOutput(options: { readonly output: ToolCallResult }):
    | { type: 'text'; value: string }
    | {
        type: 'content'
        value: ({ type: 'text'; text: string } | { type: 'image-data'; data: string; mediaType: string })[]
      }
}

/**
 * The tools of a registry for the Vercel AI SDK: `tools` of `generateText` and `streamText`, by name. The SDK starts the calls of one reply by
 * itself, all at once: writers are no barriers there.
 */
export function toVercelTools(
  registry: ToolRegistry,
  options?: { readonly images?: boolean },
): Record<string, VercelTool>

// ── Permissions ─────────────────────────────────────────────────────────────────────────────────

/** What to do with a call. */
export type ToolPermissionPolicy = 'allow' | 'ask' | 'deny'

/** One rule. The last one that matches wins. */
export interface ToolPermissionRule {
  /** Glob over the tool's name: `*` and `?`, everything else literal, anchored. */
  readonly tool: string
  /** Glob over the command (shell tools: each simple command by itself) or the path (file tools); not empty. */
  readonly pattern?: string
  /** What to do when the rule matches. */
  readonly policy: ToolPermissionPolicy
  /** Only tools of this category, or of one of these; an empty list is refused. */
  readonly category?: ToolCategory | readonly ToolCategory[]
  /** Only tools that carry these annotations. */
  readonly annotations?: Partial<ToolAnnotations>
}

/** A default, the rules over it, and who is asked. */
export interface ToolPermissionConfig {
  /** What happens when no rule matches. */
  readonly defaultPolicy: ToolPermissionPolicy
  /** In order; the last one that matches wins. */
  readonly rules: readonly ToolPermissionRule[]
  /** Answers an `ask`; only `true` is yes, an error is no. Without it (and without a connected client) `ask` is no. */
  readonly onPermissionRequest?: (request: ToolPermissionRequest) => Promise<boolean>
}

/**
 * Creates a resolver that judges by rules.
 * @throws {SimseError} `CONFIG_VALIDATION` for a configuration that does not fit.
 */
export function createToolPermissionResolver(config: ToolPermissionConfig): ExplainingPermissionResolver

/**
 * A resolver that says why. Below its rules lies a floor that none of them lifts: commands that end a machine, a disk or an account
 * (`rm -rf /`, `mkfs /dev/…`, `dd of=/dev/…`, `shutdown`, fork bombs, `chmod -R … /`) are denied to tools that run commands.
 */
export interface ExplainingPermissionResolver extends ToolPermissionResolver {
  /**
   * Why a call would be allowed, asked or denied. Nobody is asked, and nothing runs. It knows what `check` knows.
   * @throws {SimseError} `CONFIG_VALIDATION` for what is no call.
   */
  explain(
    request: { readonly name: string; readonly arguments?: Record<string, unknown> },
    definition?: ToolDefinition,
  ): Promise<PermissionExplanation>
}

/** How much a session does without asking; the floor and denials stand in each. */
export type PermissionMode = 'plan' | 'ask' | 'accept-edits' | 'auto'

/** What an answer rests on: a rule, the default policy, a rule that may match what only the shell will know, the floor, the session's mode, a grant, the file of an agent. */
export type VerdictBasis = 'rule' | 'default' | 'uncertain' | 'floor' | 'mode' | 'grant' | 'agent'

/** Why a call would be allowed, asked or denied. */
export interface PermissionExplanation {
  /** What would happen. */
  readonly decision: ToolPermissionPolicy
  /** What that rests on. */
  readonly source: VerdictBasis
  /** The rule, by its place in `rules`. */
  readonly rule?: number
  /** The same in words. */
  readonly reason: string
  /** Why the call could not run at all, whatever is decided: arguments that do not fit the definition, a path that leads nowhere. */
  readonly problem?: string
  /** The session's mode, from a server. */
  readonly mode?: PermissionMode
  /** The id of the grant, from a server. */
  readonly grant?: string
  /** The session above this one whose rules or agent decide, from a server. */
  readonly sessionId?: string
  /** The agent whose file decides, from a server. */
  readonly agent?: string
  /** The commands of a command line, or the paths, each with its own answer; the strictest is the whole's. */
  readonly parts: readonly ExplainedPart[]
}

/** One part of an explained call. */
export interface ExplainedPart {
  /** A command or a path; empty for a call that has neither. */
  readonly part: string
  /** It stands inside another command's arguments, and may run. */
  readonly hidden: boolean
  /** Its own answer. */
  readonly decision: ToolPermissionPolicy
  /** What that rests on. */
  readonly source: VerdictBasis
  /** The rule, by its place in `rules`. */
  readonly rule?: number
  /** The same in words. */
  readonly reason: string
}

// ── Host tools ──────────────────────────────────────────────────────────────────────────────────

/**
 * When a file that is there may be changed, by what the session (outside a session: the registry) knows of it:
 * `strict` only when it was read and has not changed since; `warn` not when it has changed since it was read,
 * and replacing one that was never read is done and said; `off` always.
 */
export type StaleCheck = 'strict' | 'warn' | 'off'

/** A change of a file, in permission questions and in `details` of results. */
export interface FileChange {
  /** The file, as the call names it. */
  readonly path: string
  /** Whether there was none before. */
  readonly isNew: boolean
  /** In unified form; absent when what was there is no text. */
  readonly diff?: string
  /** Lines that are new. */
  readonly added?: number
  /** Lines that are gone. */
  readonly removed?: number
  /** Whether `diff` was cut. */
  readonly truncated?: boolean
  /** Why there is no diff. */
  readonly replaces?: string
  /** What to think of before it is allowed. */
  readonly warning?: string
}

/**
 * Where the file tools work. Whatever is linked or renamed while they do, nothing outside is read or changed. A change inside
 * a `.git` is asked about whatever the rules allow (`onPermissionRequest`; without one it is no): git runs what stands there.
 */
export interface FilesystemToolOptions {
  /**
   * The root, and where relative paths start. It may be made later (`fs_write` makes it): until then calls say that it is
   * missing. What is there and no directory is refused.
   */
  readonly workingDirectory: string
  /** Further roots; relative ones against `workingDirectory`. */
  readonly allowedPaths?: readonly string[]
  /** Default `warn`. */
  readonly staleCheck?: StaleCheck
}

/** How the shell tool works. */
export interface BashToolOptions {
  /** Where the shell starts. */
  readonly workingDirectory: string
  /** Longest run of a command that sets none itself; default 120,000 ms. */
  readonly defaultTimeoutMs?: number
  /** Longest output in bytes; default 50,000. The whole of a longer one is kept in a file that `fs_read` pages (`CommandDetails`). */
  readonly maxOutputBytes?: number
  /**
   * Over the inherited environment. Of that, variables that look like credentials are left out: by their names (`*_KEY`,
   * `*_PASS`, `*_PAT`, `*_AUTH`, …) or by a password in an address (`scheme://user:password@host`); name here what is needed.
   * `SSH_AUTH_SOCK` is handed on.
   */
  readonly env?: Readonly<Record<string, string>>
  /** Default `/bin/sh`. */
  readonly shell?: string
  /**
   * What the operating system holds commands to; default `off`. With another, a call may ask by `outside_sandbox` and
   * `justification` to run without it: whatever the rules allow, `onPermissionRequest` is asked, and without one it is no.
   */
  readonly sandbox?: SandboxMode
  /** Whether sandboxed commands reach the network; default no, they have a loopback of their own. */
  readonly sandboxNetwork?: boolean
}

/** How commands that go on after the call work. */
export interface ExecToolOptions {
  /** Where commands start, and the root of every `workdir`. */
  readonly workingDirectory: string
  /** Output that a call shows which does not say, at four bytes a token; default 10,000. */
  readonly maxOutputTokens?: number
  /** Over the inherited environment, and over what is set so that nothing waits for a person (`TERM`, `PAGER`, …). */
  readonly env?: Readonly<Record<string, string>>
  /** Default `/bin/sh`. */
  readonly shell?: string
  /** As for the shell tool: `exec_command` then takes `outside_sandbox` and `justification`. */
  readonly sandbox?: SandboxMode
  /** Whether sandboxed commands reach the network; default no. */
  readonly sandboxNetwork?: boolean
}

/** `details` of the results of `exec_command` and `write_stdin`. */
export interface ExecDetails {
  /** Names this piece of output. */
  readonly chunkId: string
  /** How long the call waited. */
  readonly wallTimeMs: number
  /** As a shell tells it; null while the command runs. */
  readonly exitCode: number | null
  /** What `write_stdin` asks for it by; null when it has ended. */
  readonly sessionId: string | null
  /** Of the output since the last call, at four bytes a token. */
  readonly originalTokenCount: number
  /** The same in bytes. */
  readonly outputBytes: number
  /** Bytes of it that are not shown. */
  readonly omittedBytes: number
}

/**
 * How far programs may go. `read-only`: they write nowhere; `workspace-write`: under the working directory and where
 * temporary files lie, but neither hooks nor configuration of the repositories there, their submodules and worktrees. At both they see
 * and signal the processes of their session (or registry) alone, by numbers of its own, and all of these end with it;
 * `off`: as far as this process. On a kernel that cannot do all of it (Landlock, name spaces, seccomp), `GET /health` says what is missing.
 */
export type SandboxMode = 'read-only' | 'workspace-write' | 'off'

/** Where the git tools work. */
export interface GitToolOptions {
  /** A directory in the working tree. */
  readonly workingDirectory: string
  /**
   * What the operating system holds git and all that it starts to (hooks, filters, credential helpers); default `off`. With
   * another, looking writes nowhere, changing writes in the working directory and its repository, and a call may ask to
   * leave it as one of `bash` may.
   */
  readonly sandbox?: SandboxMode
  /** Whether they reach the network; default no, but for `git_push` and `git_pull`. */
  readonly sandboxNetwork?: boolean
}

/** Registers `fs_read`, `fs_write`, `fs_edit`, `fs_multi_edit`, `apply_patch`, `fs_glob`, `fs_grep`, `fs_list`, `view_image` and the other file tools. */
export function registerFilesystemTools(registry: ToolRegistry, options: FilesystemToolOptions): void

/** The `details` of a `bash` call whose output was too long to be shown. */
export interface CommandDetails {
  /** The file with the whole output; it goes with the session or the registry, or when newer ones need the room. */
  readonly outputPath: string
  /** Its size: all of it, or the first 64 MiB. */
  readonly outputBytes: number
  /** Bytes that the command wrote. */
  readonly totalBytes: number
}

/**
 * Registers `bash`: `command`, `timeout`, `cwd`, `env` (variables for this command; null takes one out) and `persist_env` (what is exported
 * when it ends is kept for the commands after it). The directory is kept from call to call. What a command leaves
 * running (`server > log 2>&1 &`) goes on, and ends with the registry or the process. Without `sandbox` it does not end with a process that a
 * signal ends (SIGKILL, but also SIGTERM and SIGHUP where nobody handles them), and a daemon that clears its environment is not found.
 */
export function registerBashTool(registry: ToolRegistry, options: BashToolOptions): void

/**
 * Registers `exec_command` and `write_stdin`: commands that go on after the call, also on a terminal, that are looked at,
 * typed to, resized and ended. Those that still run end with the registry.
 */
export function registerExecTools(registry: ToolRegistry, options: ExecToolOptions): void

/** Registers `git_status`, `git_diff`, `git_log`, `git_commit`, `git_branch` and the other git tools. */
export function registerGitTools(registry: ToolRegistry, options: GitToolOptions): void

/** Something that is remembered. */
export interface MemoryEntry {
  /** Its name. */
  readonly id: string
  /** The text. */
  readonly text: string
  /** Facts about it; `topic` is shown. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** When it was first remembered, in milliseconds since 1970. Of {@link createMemoryManager}. */
  readonly timestamp?: number
}

/** A long-term memory of the caller's own, as far as the memory tools use it. */
export interface MemoryManager {
  /** Remembers a text; its name. */
  add(text: string, metadata?: Readonly<Record<string, string>>): Promise<string>
  /** What is remembered about a question, best answers first; `score` from 0 to 1. */
  search(
    query: string,
    maxResults?: number,
    threshold?: number,
  ): Promise<ReadonlyArray<{ readonly entry: MemoryEntry; readonly score: number }>>
  /** Forgets a text; `false` when there is none of that name. */
  delete(id: string): Promise<boolean>
}

/** Turns texts into vectors. */
export interface EmbeddingProvider {
  /** One vector for each text, in their order, all of one length. `model` is the memory's `embeddingAgent`. */
  embed(
    input: string | readonly string[],
    model?: string,
  ): Promise<{ readonly embeddings: ReadonlyArray<ArrayLike<number>> }>
}

/** How a memory of {@link createMemoryManager} works. */
export interface MemoryConfig {
  /** If not, `initialize()` is refused. */
  readonly enabled: boolean
  /** The embedding model: handed to the provider; vectors of different models are never compared. */
  readonly embeddingAgent?: string
  /** The score from which on an answer counts: 0 to 1. */
  readonly similarityThreshold: number
  /** Answers at most: 1 to 100. */
  readonly maxResults: number
}

/** Where it lies. */
export interface MemoryOptions {
  /** The file of the memory (SQLite). Default: none, and it ends with the program. */
  readonly path?: string
  /** Whose memory it is: projects in one file remember apart. Default: `default`. */
  readonly project?: string
  /** Texts of a project; of more, those that are of least use are forgotten: what was not found for long, and seldom. Default 100,000, which is the most. */
  readonly maxEntries?: number
  /** Days after which what nobody has added or found is forgotten, when something is added. Default: never. */
  readonly forgetAfterDays?: number
  /** Is told when the embedding provider fails, and words alone decide. Default: the console. */
  readonly logger?: Logger
}

/** What a search has found, best first. */
export type MemoryAnswers = ReadonlyArray<{ readonly entry: MemoryEntry; readonly score: number }>

/** A memory that the package keeps. Every call is refused with `MEMORY_ERROR` before `initialize()` and after `dispose()`. */
export interface LongTermMemory extends MemoryManager {
  /** Opens it; twice: nothing. */
  initialize(): Promise<void>
  /** Closes it. */
  dispose(): Promise<void>
  /**
   * Remembers a text; its name. One that says the same as a text that is there already, apart from blanks, quotation marks
   * and a last full stop, has that text's. With `pinned: true` in its metadata it is never forgotten by itself.
   */
  add(text: string, metadata?: Readonly<Record<string, unknown>>): Promise<string>
  /** The same for several, all or none. */
  addBatch(
    entries: readonly { readonly text: string; readonly metadata?: Readonly<Record<string, unknown>> }[],
  ): Promise<readonly string[]>
  /** By meaning and by words; by words alone while the provider fails. */
  search(query: string, maxResults?: number, threshold?: number): Promise<MemoryAnswers>
  /** By words alone. */
  textSearch(asked: {
    readonly query: string
    readonly maxResults?: number
    readonly threshold?: number
  }): Promise<MemoryAnswers>
  /** The text of that name. */
  getById(id: string): Promise<MemoryEntry | undefined>
  /** All texts, newest first. */
  getAll(): Promise<readonly MemoryEntry[]>
  /** Forgets all. */
  clear(): Promise<void>
  /** How many texts there are. */
  readonly size: number
  /** Whether it is open. */
  readonly isInitialized: boolean
}

/**
 * An embedding provider over a model in a directory, in Model2Vec's form (`tokenizer.json`, `model.safetensors`,
 * `config.json`). No network; the model is read when it is first used. What cannot be read is refused with `EMBEDDING_ERROR`.
 */
export function createLocalEmbedder(directory: string): EmbeddingProvider

/** Creates a long-term memory over an embedding provider: what the server's sessions have, for a program of its own. */
export function createMemoryManager(
  embedder: EmbeddingProvider,
  config: MemoryConfig,
  options?: MemoryOptions,
): LongTermMemory

/**
 * Registers `memory_search`, `memory_add` and `memory_delete` over a memory manager. `memory.search`, `memory.add` and
 * `memory.delete` are published on the registry's event bus.
 */
export function registerMemoryTools(registry: ToolRegistry, memoryManager: MemoryManager): void

/** Where a task stands. */
export type TaskStatus = 'pending' | 'in_progress' | 'completed'

/** A task; frozen. */
export interface TaskItem {
  /** `1`, `2`, …; never given twice. */
  readonly id: string
  /** What is to be done, in a few words. */
  readonly subject: string
  /** What belongs to it; may be empty. */
  readonly description: string
  /** What is shown while it is worked on. */
  readonly activeForm?: string
  /** Who works on it. */
  readonly owner?: string
  /** Where it stands. */
  readonly status: TaskStatus
  /** Facts about it. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** The tasks that wait for this one. */
  readonly blocks: readonly string[]
  /** The tasks that this one waits for. */
  readonly blockedBy: readonly string[]
  /** In milliseconds since 1970. */
  readonly createdAt: number
  /** When it last changed, in milliseconds since 1970. */
  readonly updatedAt: number
}

/** What a new task begins with. */
export interface TaskCreateInput {
  /** Not empty. */
  readonly subject: string
  /** What belongs to it. */
  readonly description?: string
  /** What is shown while it is worked on. */
  readonly activeForm?: string
  /** Who works on it. */
  readonly owner?: string
  /** Facts about it. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** Tasks that wait for it. */
  readonly blocks?: readonly string[]
  /** Tasks that it waits for. */
  readonly blockedBy?: readonly string[]
}

/** What changes of a task; what is left out stays. */
export interface TaskUpdateInput {
  /** What is to be done, in a few words. */
  readonly subject?: string
  /** What belongs to it. */
  readonly description?: string
  /** Empty: none. */
  readonly activeForm?: string
  /** Empty: nobody. */
  readonly owner?: string
  /** Where it stands. */
  readonly status?: TaskStatus
  /** Goes over what is there; `null` takes a fact away. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** Tasks that wait for it from now on. */
  readonly addBlocks?: readonly string[]
  /** Tasks that it waits for from now on. */
  readonly addBlockedBy?: readonly string[]
  /** Tasks that wait for it no longer. */
  readonly removeBlocks?: readonly string[]
  /** Tasks that it waits for no longer. */
  readonly removeBlockedBy?: readonly string[]
}

/** Options of {@link createTaskList}. */
export interface TaskListOptions {
  /** Tasks at most, 1 to 10,000; default 100. One more is refused with `TASK_LIMIT`. */
  readonly maxTasks?: number
  /** Hears of each change, when it is made. One that throws is logged. */
  onTaskChange?(task: TaskItem, action: 'create' | 'update' | 'delete'): void
}

/** Tasks that depend on each other. */
export interface TaskList {
  /** Adds a task. Throws `TASK_LIMIT`, `TASK_NOT_FOUND` or `TASK_CIRCULAR_DEPENDENCY`; then nothing has changed. */
  create(input: TaskCreateInput): TaskItem
  /** Changes a task, all that is named or nothing. Throws `TASK_NOT_FOUND` or `TASK_CIRCULAR_DEPENDENCY`. */
  update(id: string, input: TaskUpdateInput): TaskItem
  /** Takes a task out; nobody waits for it any more. `false` when there is none of that id. */
  delete(id: string): boolean
  /** A task; `undefined` when there is none of that id. */
  get(id: string): TaskItem | undefined
  /** All, in the order in which they were created. */
  list(): readonly TaskItem[]
  /** Those that can be begun: pending, and all that they wait for is completed. */
  listAvailable(): readonly TaskItem[]
  /** Those that wait for one that is not completed. */
  listBlocked(): readonly TaskItem[]
  /** Takes all out. */
  clear(): void
  /** How many there are. */
  readonly taskCount: number
}

/** Creates a task list. */
export function createTaskList(options?: TaskListOptions): TaskList

/**
 * Registers `task_create`, `task_update`, `task_get`, `task_list` and `task_delete` over a task list, of ours or with the same
 * methods. An id that is not known is an error of the call.
 */
export function registerTaskTools(
  registry: ToolRegistry,
  taskList: Pick<TaskList, 'create' | 'update' | 'delete' | 'get' | 'list'>,
): void

/** Which tier of the edit chain found the place. */
export type FuzzyMatchStrategy =
  | 'exact'
  | 'line-trimmed'
  | 'whitespace-normalized'
  | 'indentation-flexible'
  | 'block-anchor-levenshtein'

/**
 * Replaces the one place in `content` that `oldStr` means. `null` when no tier finds exactly one;
 * an empty `oldStr` never does.
 */
export function fuzzyMatch(
  content: string,
  oldStr: string,
  newStr: string,
): { readonly replaced: string; readonly strategy: FuzzyMatchStrategy } | null

// ── Events ──────────────────────────────────────────────────────────────────────────────────────

/** Event type → payload. */
export interface EventPayloads {
  /** A session came to be. */
  'session.created': { readonly sessionId: string }
  /** A prompt's turn begins; `turn` is what holds for it alone, instead of what its session is set to. */
  'session.prompt': {
    readonly sessionId: string
    readonly prompt: string
    readonly turn?: Readonly<Record<string, unknown>>
  }
  /** A turn ended by itself; `result` is the final text, `output` the same as data where the prompt wanted some (`turn.outputSchema`; kinds of its failures: `output_invalid`, `refusal`, `content_filter`, `max_tokens`, `blank`). */
  'session.completed': {
    readonly sessionId: string
    readonly result: string
    readonly output?: unknown
    /** What the turn has spent. */
    readonly spent?: Budget
  }
  /** A turn failed. */
  'session.error': { readonly sessionId: string; readonly error: Error; readonly spent?: Budget }
  /** A round with the model begins. */
  'stream.start': Readonly<Record<string, unknown>>
  /** A piece of the model's text. */
  'stream.delta': { readonly text: string }
  /** The model's text of one round, whole. */
  'stream.complete': { readonly text: string }
  /** The model's stream broke and is tried again. */
  'stream.retry': { readonly attempt: number; readonly delayMs: number; readonly error: string }
  /** A call was announced. */
  'tool.call.start': { readonly callId: string; readonly name: string; readonly args: Record<string, unknown> }
  /**
   * A piece of what a running call has written, some ten a second at most. A preview of `tool.call.end`: a call that ends
   * at once has none, and of a flood the newest bytes are shown.
   */
  'tool.call.output': {
    readonly callId: string
    readonly name: string
    readonly text: string
    /** Bytes left out in front of it; absent when none were. */
    readonly skippedBytes?: number
  }
  /** A call ended, well or badly. Exactly one for each start. */
  'tool.call.end': {
    readonly callId: string
    readonly name: string
    readonly output: string
    readonly isError: boolean
    readonly durationMs: number
    readonly parts?: readonly MessagePart[]
    readonly details?: unknown
    /** What `tool.result.validate` hooks found; absent when it is nothing. */
    readonly findings?: readonly string[]
  }
  /** A call failed; comes just before its end. */
  'tool.call.error': { readonly callId: string; readonly name: string; readonly error: Error }
  /** A tool ran longer than it may. */
  'tool.timeout': { readonly name: string; readonly timeoutMs: number }
  /** A round with the model ended. */
  'turn.complete': { readonly turn: number; readonly type: 'text' | 'tool_use' }
  /** The turn would have ended, and goes on with these texts: `turn.stop` hooks say that it is not done. */
  'turn.continued': { readonly texts: readonly string[] }
  /** A conversation is about to be summed up. */
  'compaction.start': {
    readonly messageCount: number
    readonly estimatedChars: number
    /** Why, in a session of a server. */
    readonly trigger?: 'manual' | 'threshold' | 'overflow'
  }
  /** It was summed up. All but `summaryLength` in a session of a server: there the model goes on with the summary and what is kept. */
  'compaction.complete': {
    readonly summaryLength: number
    readonly trigger?: 'manual' | 'threshold' | 'overflow'
    readonly summary?: string
    /** How many of the newest messages stay as they are. */
    readonly kept?: number
    /** What the user said before those that stays word for word: how far each lies in front of them. */
    readonly carried?: readonly number[]
    readonly files?: { readonly changed?: readonly string[]; readonly read?: readonly string[] }
    /** Files that the model is shown again. */
    readonly attached?: ReadonlyArray<{ readonly path: string; readonly text: string }>
    readonly tokensBefore?: number
    readonly tokensAfter?: number
    /** What the summary cost. */
    readonly usage?: { readonly inputTokens: number; readonly outputTokens: number; readonly totalTokens: number }
  }
  /** It could not be summed up, and is as it was. */
  'compaction.failed': {
    readonly error: Error
    /** What was spent on it. */
    readonly usage?: { readonly inputTokens: number; readonly outputTokens: number; readonly totalTokens: number }
  }
  /** Old tool outputs were left out. */
  'compaction.prune': { readonly messageCount: number; readonly estimatedChars: number }
  /** Somebody is asked about a call. */
  'permission.request': {
    readonly callId: string
    readonly toolName: string
    readonly args: Record<string, unknown>
    /** What the call would do; see {@link ToolPermissionRequest}. */
    readonly preview?: Readonly<Record<string, unknown>>
  }
  /** The answer. */
  'permission.response': { readonly callId: string; readonly allowed: boolean }
  /** A tool or a hook tells something. */
  'client.notice': {
    readonly callId?: string
    readonly level: 'info' | 'warning' | 'error'
    readonly text: string
  }
  /** A tool or a hook puts something onto the clients' screens. */
  'client.display': {
    readonly callId?: string
    readonly display: ClientDisplay
  }
  /** A turn was aborted. */
  abort: { readonly reason: string; readonly spent?: Budget }
  /** The loop begins a turn. */
  'loop.start': Readonly<Record<string, unknown>>
  /** The loop ended a turn. */
  'loop.complete': Readonly<Record<string, unknown>>
  /** The turn is answered by an agent, in this session of its own. */
  'agent.session': { readonly model: string; readonly agentSessionId: string }
  /** The agent's plan, whole; one of the same `planId`, or also without one, takes its place. */
  'agent.plan': {
    readonly planId?: string
    readonly entries: readonly { readonly content: string; readonly priority: string; readonly status: string }[]
    readonly text?: string
  }
  /** The commands that the agent understands, all of them. */
  'agent.commands': {
    readonly commands: readonly { readonly name: string; readonly description: string; readonly hint?: string }[]
  }
  /** What the agent's session can be set to (`agentOptions`) and is set to, all of it. */
  'agent.options': {
    readonly options: readonly {
      readonly id: string
      readonly name: string
      readonly description?: string
      readonly category?: string
      readonly value: string | boolean
      readonly values?: readonly { readonly value: string; readonly name: string; readonly description?: string }[]
    }[]
  }
  /** How full the agent's context is. */
  'agent.usage': {
    readonly used: number
    readonly size: number
    readonly cost?: { readonly amount: number; readonly currency: string }
  }
  /** The agent makes its context shorter. */
  'agent.compaction': {
    readonly compactionId: string
    readonly status: string
    readonly summary?: string
    readonly error?: string
  }
  /** The same call came again and again. */
  'loop.doom_loop': {
    readonly toolName: string
    readonly callCount: number
    readonly args: Record<string, unknown>
  }
  /** A sub-agent begins. */
  'subagent.start': Readonly<Record<string, unknown>>
  /** A sub-agent ended. */
  'subagent.complete': Readonly<Record<string, unknown>>
  /** A sub-agent failed. */
  'subagent.error': Readonly<Record<string, unknown>>
  /** A sub-agent waits until others have ended. */
  'subagent.queued': { readonly runId: string; readonly sessionId: string; readonly position: number }
  /** A session under this one asks something; it is answered here or there. */
  'subagent.request': {
    readonly sessionId: string
    readonly request: { readonly type: string; readonly payload: Readonly<Record<string, unknown>> }
  }
  /** Such a question has its end. */
  'subagent.response': {
    readonly sessionId: string
    readonly response: { readonly type: string; readonly payload: Readonly<Record<string, unknown>> }
  }
  /** Four fifths of a limit are spent. */
  'budget.warning': BudgetNotice
  /** A limit is reached: the turn ends, with the stop reason `budget`. */
  'budget.exceeded': BudgetNotice
  /** A value was put onto the board that the sessions of a tree share; told in the log of the one above all. */
  'blackboard.set': {
    readonly key: string
    readonly value: unknown
    /** The number of this event. */
    readonly version: number
    /** Who has; absent: a client. */
    readonly by?: { readonly sessionId: string; readonly name?: string }
    readonly updatedAt: number
  }
  /** A value was taken off it. */
  'blackboard.delete': {
    readonly key: string
    readonly by?: { readonly sessionId: string; readonly name?: string }
  }
  /** A task was added to the list that the sessions of a tree share; told in the log of the one above all. */
  'task.create': TaskEvent
  /** One of its tasks changed, as it is then. */
  'task.update': TaskEvent
  /** A task was taken off it: nobody waits for it any more. */
  'task.delete': { readonly id: string; readonly by?: { readonly sessionId: string; readonly name?: string } }
  /** Something was remembered. */
  'memory.add': { readonly id: string; readonly contentLength: number }
  /** Memory was searched; `degraded` says why words alone decided although an embedding model is set. */
  'memory.search': {
    readonly query: string
    readonly resultCount: number
    readonly durationMs: number
    readonly degraded?: string
  }
  /** Something was forgotten. */
  'memory.delete': { readonly id: string }
  /** What a turn of a server's session did to files; comes before the turn's end. */
  'turn.changes': {
    /** The first 20, by path. */
    readonly files: readonly {
      readonly path: string
      /** Added, modified, deleted. */
      readonly kind: 'A' | 'M' | 'D'
      readonly added: number
      readonly removed: number
      readonly diff?: string
      /** What stands instead of a diff. */
      readonly note?: string
      /** Why it cannot be undone. */
      readonly notUndoable?: string
    }[]
    readonly fileCount: number
    /** How many `files` leaves out. */
    readonly truncatedCount: number
    readonly diffTruncated: boolean
    /** What was not looked at, or could not be kept. */
    readonly uncovered?: readonly { readonly path: string; readonly reason: string }[]
  }
  /** What turns did to files was undone. */
  'changes.undone': {
    readonly turnIds: readonly string[]
    readonly paths: readonly string[]
    readonly pathCount: number
  }
  /** What was undone was done again. */
  'changes.redone': {
    readonly turnIds: readonly string[]
    readonly paths: readonly string[]
    readonly pathCount: number
  }
  /** A session was forked off from another one, whose log comes before. */
  'session.forked': { readonly sessionId: string; readonly parentSessionId: string; readonly at: number }
}

/** A task of a session's tree, and who has made or changed it. */
export interface TaskEvent {
  /** The task. */
  readonly task: {
    readonly id: string
    readonly subject: string
    readonly description?: string
    readonly activeForm?: string
    readonly owner?: string
    readonly status: 'pending' | 'in_progress' | 'completed'
    readonly blockedBy: readonly string[]
    readonly createdAt: number
    readonly updatedAt: number
  }
  /** Who has made or changed it; absent: a client. */
  readonly by?: { readonly sessionId: string; readonly name?: string }
}

/** The names of events. */
export type EventType = keyof EventPayloads

/** What an event of a type carries. */
export type EventPayload<T extends EventType> = EventPayloads[T]

/** Hands events on, at once and in order. */
export interface EventBus {
  /** Calls the handlers of the type, in the order of subscription, then those of all types. One that throws is reported and stops nobody. */
  publish<T extends EventType>(type: T, payload: EventPayload<T>): void
  /** Calls `handler` for each event of a type; what it returns ends that. The same function is called once, however often it subscribes. */
  subscribe<T extends EventType>(type: T, handler: (payload: EventPayload<T>) => void): () => void
  /** Calls `handler` for each event; what it returns ends that. */
  subscribeAll(handler: (type: EventType, payload: unknown) => void): () => void
  /** Forgets all handlers. */
  clear(): void
}

/** Creates an event bus. */
export function createEventBus(): EventBus

// ── Hooks ───────────────────────────────────────────────────────────────────────────────────────

/** Who speaks in a conversation. */
export type ConversationRole = 'system' | 'user' | 'assistant' | 'tool_result'

/** One message of a conversation, as hooks see it. Fields that a hook does not know must be handed on. */
export interface ConversationMessage {
  /** Who speaks. */
  readonly role: ConversationRole
  /** What. */
  readonly content: string
  /** The call that this is the result of. */
  readonly toolCallId?: string
  /** Its tool. */
  readonly toolName?: string
  /** When, since 1970. */
  readonly timestamp?: number
  /** Whether the call failed. */
  readonly isError?: boolean
  /** The calls that the model made with this message. */
  readonly toolCalls?: readonly ToolCallRequest[]
  /** Text and images, when a user's message is more than one text; images, when a tool gave some. */
  readonly parts?: readonly MessagePart[]
}

/** A hook's refusal of a call, a prompt or a summary. */
export interface BlockedResult {
  /** Always `true`. */
  readonly blocked: true
  /** Why, for the model; of a prompt, for the client. */
  readonly reason: string
}

/** Hook point → what its handlers are given. */
export interface HookContextMap {
  /** Before a call is judged and run. */
  'tool.execute.before': HookClients & { readonly request: ToolCallRequest }
  /** After a call. */
  'tool.execute.after': HookClients & { readonly request: ToolCallRequest; readonly result: ToolCallResult }
  /** After that: looks at the result. */
  'tool.result.validate': HookClients & { readonly request: ToolCallRequest; readonly result: ToolCallResult }
  /** Before each turn. */
  'prompt.system.transform': HookClients & { readonly prompt: string }
  /** Before each request to a model. */
  'prompt.messages.transform': HookClients & { readonly messages: readonly ConversationMessage[] }
  /** When a conversation is summed up. */
  'session.compacting': HookClients & {
    readonly messages: readonly ConversationMessage[]
    readonly summary: string
  }
  /** Before the first prompt that a session is given since it was made (`new`), or woken (`resumed`). Of servers. */
  'session.start': HookClients & HookSession & { readonly source: 'new' | 'resumed' }
  /** It leaves memory, is deleted, or the server stops; of each start one. Of servers. */
  'session.end': HookClients & HookSession & { readonly reason: 'idle' | 'deleted' | 'shutdown' }
  /** Before a client's prompt is accepted. */
  'prompt.submit': HookClients &
    Partial<HookSession> & {
      readonly prompt: string
      /** All of it, where it is more than text. */
      readonly parts?: readonly MessagePart[]
      /** What is to become of it while a turn runs. In a server. */
      readonly mode?: 'queue' | 'steer' | 'reject'
    }
  /** A turn ends by itself. Who aborts or interrupts it does not want to hear more. */
  'turn.stop': HookClients &
    Partial<HookSession> & {
      /** How. Only one that completes can go on. */
      readonly ended: 'completed' | 'iteration_limit' | 'failed'
      /** What the model said last. */
      readonly text: string
      /** Rounds with the model so far. */
      readonly rounds: number
      /** How often hooks have made it go on already. */
      readonly continued: number
      readonly error?: string
    }
  /** Before a conversation is summed up. */
  'session.compact.before': HookClients &
    Partial<HookSession> & {
      /** Why. A block does not count at `overflow`: the turn could not go on at all. */
      readonly trigger: 'manual' | 'threshold' | 'overflow'
      readonly focus?: string
      readonly messageCount: number
      readonly estimatedChars: number
    }
  /** Something that somebody may want to be fetched for. Told behind the work's back, in order. Of servers. */
  notification: HookClients & HookSession & HookNews
}

/** Whose session and turn it is. */
export interface HookSession {
  /** The session. */
  readonly sessionId: string
  /** The session above all, where it works for another one. */
  readonly rootSessionId?: string
  /** The turn, where it is about one. */
  readonly turnId?: string
  /** Where the session works. */
  readonly workingDirectory: string
}

/** What `notification` hooks hear. */
export type HookNews =
  | {
      readonly kind: 'permission_request'
      readonly requestId: string
      readonly callId: string
      readonly toolName: string
    }
  | {
      readonly kind: 'client_request'
      readonly requestId: string
      readonly callId?: string
      readonly question: Readonly<Record<string, unknown>>
    }
  | {
      readonly kind: 'turn_ended' | 'subagent_ended'
      readonly status: 'completed' | 'failed' | 'aborted' | 'interrupted'
      readonly stopReason?: string
      /** The beginning of what the model said last. */
      readonly result?: string
      readonly error?: string
    }

/** What a function gives back that gives nothing back. */
// biome-ignore lint/suspicious/noConfusingVoidType: it is what functions without `return` are declared with
type Nothing = void | undefined

/** Hook point → what comes out of it. */
export interface HookResultMap {
  /** The request to run, or a refusal. The first refusal ends the chain. */
  'tool.execute.before': ToolCallRequest | BlockedResult
  /** The result to go on with. */
  'tool.execute.after': ToolCallResult
  /** Texts for the model's next round; those of all handlers together. */
  'tool.result.validate': readonly string[]
  /** The system prompt to use. */
  'prompt.system.transform': string
  /** The messages to send. */
  'prompt.messages.transform': readonly ConversationMessage[]
  /** The summary to keep. */
  'session.compacting': string
  /** Texts that stand behind the prompt; those of all handlers together. */
  'session.start': readonly string[]
  /** Nothing. */
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler there need not return anything
  'session.end': void
  /** Another text, texts that stand behind it, or a refusal, whose reason the client is told. The first refusal ends the chain. */
  'prompt.submit': { readonly prompt?: string; readonly context?: readonly string[] } | BlockedResult
  /** Texts with which a turn that would be done goes on, at most eight times; those of all handlers together. */
  'turn.stop': readonly string[]
  /** What the summary is to look at, or a refusal. */
  'session.compact.before': { readonly focus?: string } | BlockedResult
  /** Nothing: a handler there need not return anything. */
  notification: Nothing
}

/** The hook points. */
export type HookType = keyof HookContextMap

/** Looks at something and may change it; `undefined` leaves it as it is. */
export type HookHandler<T extends HookType> = (
  context: HookContextMap[T],
) => HookResultMap[T] | undefined | Promise<HookResultMap[T] | undefined>

/** Handlers by hook point. */
export interface HookSystem {
  /** Adds a handler; what it returns takes it out. One that works longer than `timeoutMs` (ten minutes; 0: no limit) has failed. */
  register<T extends HookType>(type: T, handler: HookHandler<T>, options?: { readonly timeoutMs?: number }): () => void
  /**
   * Runs the handlers of a point in the order of registration. Without handlers the input comes back.
   * One that throws or is late: `tool.execute.before` blocks the call and `prompt.submit` the prompt; elsewhere the value before it
   * is kept, with a warning.
   */
  run<T extends HookType>(type: T, context: HookContextMap[T]): Promise<HookResultMap[T]>
}

/** Creates a hook system. */
export function createHookSystem(): HookSystem

// ── Conversation and loop ───────────────────────────────────────────────────────────────────────

/** How a conversation is kept. */
export interface ConversationOptions {
  /** The system prompt. */
  readonly systemPrompt?: string
  /** Messages at most, the oldest go first, a result never stays without the message that called for it; 0 (the default): no limit. */
  readonly maxMessages?: number
  /** Units of text beyond which `needsCompaction` is true; default 100,000. */
  readonly autoCompactChars?: number
  /** Tokens that pruning must save to be worth it; default 20,000. */
  readonly pruneMinimumTokens?: number
  /** Tokens of newest outputs that pruning spares; default 40,000. */
  readonly pruneProtectTokens?: number
  /** Newest turns whose outputs pruning spares; default 2. */
  readonly pruneProtectTurns?: number
  /** Tools whose outputs pruning spares. */
  readonly pruneProtectedTools?: readonly string[]
  /** How many tokens a text has. Default: a quarter of its units. */
  readonly tokenEstimator?: (text: string) => number
  /** Tokens that the model takes; from 80 % on `needsCompaction` is true. Default 0: not known. */
  readonly contextWindowTokens?: number
}

/** A conversation, as a loop keeps it. */
export interface Conversation {
  /** Adds what the user says. */
  addUser(content: string): void
  /** Adds what the model says. */
  addAssistant(content: string): void
  /** Adds what came of a call. */
  addToolResult(toolCallId: string, toolName: string, content: string): void
  /** Sets the system prompt. */
  setSystemPrompt(prompt: string): void
  /** The system prompt. */
  getSystemPrompt(): string | undefined
  /** All messages, the system prompt first when there is one; frozen. */
  toMessages(): readonly ConversationMessage[]
  /** Takes these messages instead; a system one among them becomes the system prompt. */
  replaceMessages(messages: readonly ConversationMessage[]): void
  /** The conversation as one text: `[System]`, `[User]`, `[Assistant]`, `[Tool Result: name]`. */
  serialize(): string
  /** Forgets all messages; the system prompt stays. */
  clear(): void
  /** Leaves one message, `[Conversation summary]` and the summary. */
  compact(summary: string): void
  /** The conversation as JSON, for {@link fromJSON}. */
  toJSON(): string
  /**
   * Takes the conversation that `toJSON` wrote.
   * @throws {SimseError} `CONFIG_VALIDATION` for anything else; the conversation stays as it was.
   */
  fromJSON(json: string): void
  /** Messages, the system prompt not counted. */
  readonly messageCount: number
  /** Units of text, the system prompt's too. */
  readonly estimatedChars: number
  /** Tokens, about. */
  readonly estimatedTokens: number
  /** Tokens as a share of the model's window, in percent; 0 where the window is not known. */
  readonly contextUsagePercent: number
  /** Whether it is too long. */
  readonly needsCompaction: boolean
}

/** Creates a conversation. */
export function createConversation(options?: ConversationOptions): Conversation

/** What a pruner spares. */
export interface ContextPrunerOptions {
  /** Newest turns whose outputs stay; default 2. */
  readonly protectRecentTurns?: number
  /** Tools whose outputs stay. */
  readonly pruneProtectedTools?: readonly string[]
  /** Tokens that pruning must save to be worth it. Default: any. */
  readonly pruneMinimumTokens?: number
  /** Tokens of newest outputs that stay besides. Default: none. */
  readonly pruneProtectTokens?: number
}

/** Takes old tool outputs out of a conversation. */
export interface ContextPruner {
  /**
   * The messages with `[OUTPUT PRUNED — n chars]` for old outputs of 200 units and more; the same array when nothing goes. The newest output,
   * the newest turns and all before the newest summary stay.
   */
  prune(messages: readonly ConversationMessage[]): readonly ConversationMessage[]
}

/**
 * Creates a pruner; the server's own loop decides the same. Of a conversation that only grows each message is looked at once, as long as its
 * messages are frozen, as those of {@link createConversation} are.
 */
export function createContextPruner(options?: ContextPrunerOptions): ContextPruner

/** For whom tokens are counted. */
export interface CountTokensOptions {
  /** The model, such as `openai/gpt-5`, or its name alone. */
  readonly model: string
}

/**
 * How many tokens a text has for a model: exactly for OpenAI's and Qwen's, by a measured factor for other known families, and by a quarter of its length for
 * anybody else's. The first count of a family unpacks its table, which takes a tenth of a second or more. Fits `tokenEstimator` of
 * {@link createConversation}.
 */
export function countTokens(text: string, options: CountTokensOptions): number

/** What a client yields that a loop can be driven by. */
export type StreamChunk =
  /** A piece of the answer. */
  | { readonly type: 'delta'; readonly text: string }
  /** The end. */
  | { readonly type: 'complete'; readonly usage?: LoopUsage | undefined }
  /** A piece of the model's thoughts, which is no part of the answer. */
  | { readonly type: 'reasoning'; readonly text: string }
  /** What an agent does by itself, which the loop leaves to it. */
  | { readonly type: 'tool_call'; readonly toolCall: unknown }
  /** How that goes on. */
  | { readonly type: 'tool_call_update'; readonly update: unknown }

/** Figures of a request, such as `{promptTokens, completionTokens, totalTokens}`; those of several requests are added by name. */
export type LoopUsage = Readonly<Record<string, number>>

/** What a client is told beside the prompt. */
export interface StreamOptions {
  /** The loop's `serverName`. */
  readonly serverName?: string | undefined
  /** The loop's `agentId`. */
  readonly agentId?: string | undefined
  /** The loop's `signal`. */
  readonly signal?: AbortSignal | undefined
  /** Always true: a prompt of the loop's is the whole conversation, and belongs to no session that has heard another. */
  readonly newSession?: boolean | undefined
}

/** A client that answers a text with a stream: that of {@link createACPClient}, or any object with this method. */
export interface StreamingClient {
  /** Answers a prompt. */
  generateStream(prompt: string, options?: StreamOptions): AsyncIterable<StreamChunk>
}

/** Answers a text with a text. */
export interface TextGenerationProvider {
  /** Answers a prompt. */
  generate(
    prompt: string,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<string | { readonly content: string } | { readonly text: string }>
}

/** How often something is tried, and the pause before the second try, which doubles with each further one. */
export interface RetryOptions {
  /** Tries in all. */
  readonly maxAttempts?: number
  /** The first pause, in milliseconds. */
  readonly baseDelayMs?: number
}

/** What a loop is made of. */
export interface AgenticLoopOptions {
  /** Who answers: an ACP client, or anything with `generateStream`. */
  readonly acpClient: StreamingClient
  /** The tools. */
  readonly toolRegistry: ToolRegistry
  /** The conversation; the loop adds to it. */
  readonly conversation: Conversation
  /** Takes warnings; default: the console. */
  readonly logger?: Logger
  /** Rounds of one run; default 10. */
  readonly maxTurns?: number
  /** Handed on to the client. */
  readonly serverName?: string
  /** Handed on to the client. */
  readonly agentId?: string
  /** In place of the conversation's. What tools there are is added to it. */
  readonly systemPrompt?: string
  /** Ends the run: the stream and the calls under way, too. */
  readonly signal?: AbortSignal
  /** Whether a conversation that is too long is summed up; default false. */
  readonly autoCompact?: boolean
  /** Who sums it up; default: `acpClient`. */
  readonly compactionProvider?: TextGenerationProvider
  /** What it is asked; the conversation follows. */
  readonly compactionPrompt?: string
  /** Takes old outputs out before each round; default: as the conversation was set up. */
  readonly contextPruner?: ContextPruner
  /** Run around prompts and, unless they are the registry's, around calls. */
  readonly hooks?: HookSystem
  /** Gets all events of the loop. */
  readonly eventBus?: EventBus
  /** The same call so often in a row is not run again, and the model is told so; default 3, 0: as often as it likes. */
  readonly maxIdenticalToolCalls?: number
  /** For a stream that breaks in a way that may pass; default 2 and 1,000 ms. Decided as {@link ModelFailure} says. */
  readonly streamRetry?: RetryOptions
  /** For a call whose handler throws an error of such a kind; default 2 and 500 ms. The words of an output never count. */
  readonly toolRetry?: RetryOptions
}

/** One round. */
export interface LoopTurn {
  /** From 1. */
  readonly turn: number
  /** Whether it was the answer, or calls. */
  readonly type: 'text' | 'tool_use'
  /** What the model said, without its calls. */
  readonly text?: string
  /** Its calls. */
  readonly toolCalls?: readonly ToolCallRequest[]
  /** What came of them, in their order. */
  readonly toolResults?: readonly ToolCallResult[]
  /** Figures of the round. */
  readonly usage?: LoopUsage
  /** How long it took. */
  readonly durationMs: number
}

/** What came of a run. */
export interface AgenticLoopResult {
  /** The model's last text; `Error: …` when the stream failed for good. */
  readonly finalText: string
  /** The rounds that ended. */
  readonly turns: readonly LoopTurn[]
  /** How many there were. */
  readonly totalTurns: number
  /** Whether it ended at `maxTurns`. */
  readonly hitTurnLimit: boolean
  /** Whether the signal ended it. */
  readonly aborted: boolean
  /** How long it took. */
  readonly totalDurationMs: number
  /** Figures of all rounds together. */
  readonly totalUsage?: LoopUsage
}

/** Heard during a run. They hang on the loop's events; one that throws is reported and stops nothing. */
export interface LoopCallbacks {
  /** A round begins. */
  onStreamStart?(): void
  /** A piece of the reply, its `<tool_use>` blocks included. */
  onStreamDelta?(text: string): void
  /** A call begins. */
  onToolCallStart?(call: ToolCallRequest): void
  /** A call has ended. */
  onToolCallEnd?(result: ToolCallResult): void
  /** A round has ended. */
  onTurnComplete?(turn: LoopTurn): void
  /** The conversation was summed up. */
  onCompaction?(summary: string): void
  /** The run fails, or the model said nothing. */
  onError?(error: Error): void
  /** Figures of the run so far. */
  onUsageUpdate?(usage: LoopUsage): void
  /** The same call came so often in a row. */
  onDoomLoop?(toolName: string, callCount: number): void
}

/** A loop. */
export interface AgenticLoop {
  /** Runs until the model calls no more tools. Resolves with failures, too; rejects when a run is under way. */
  run(userInput: string, callbacks?: LoopCallbacks): Promise<AgenticLoopResult>
}

/** Creates a loop over any client that answers a text with a stream. */
export function createAgenticLoop(options: AgenticLoopOptions): AgenticLoop

// ── Prompts and instructions ────────────────────────────────────────────────────────────────────

/** Finds the prompt of a model. */
export interface ProviderPromptResolver {
  /** The prompt of the first pattern that fits `provider/name`, else the default one, else an empty text. */
  resolve(modelId: string): string
}

/** Creates a resolver of prompts by model. */
export function createProviderPromptResolver(config: ProviderPromptConfig): ProviderPromptResolver

/** An instruction file. */
export interface InstructionFile {
  /** Absolute. */
  readonly path: string
  /** What it says; what is too long is cut, and says so. */
  readonly content: string
}

/**
 * Finds the instruction files of a directory, in the order of the patterns. What cannot be read, is empty, or lies outside of the directory is
 * left out. A line of a file that is `@path` alone stands for the text of that file, as far as it lies in the directory and is a text (`.md`, `.txt`, `.rst`,
 * `.adoc`, or without an ending). `autoInject` is the server's to heed.
 */
export function discoverInstructions(
  options: InstructionDiscoveryOptions & { readonly rootDir: string },
): Promise<readonly InstructionFile[]>

// ── ACP client ──────────────────────────────────────────────────────────────────────────────────

/** What a client of ACP agents is made with. */
export interface ACPClientConfig {
  /** The agents; none is started before it is needed. */
  readonly servers: readonly ACPServerEntry[]
  /** The one that is meant when none is named; default: the first. */
  readonly defaultServer?: string
  /** The mode or agent of its own that the default server's sessions are set to, unless its entry names one. */
  readonly defaultAgent?: string
}

/** What a client of ACP agents works with. */
export interface ACPClientOptions {
  /** Decides what agents ask under the policy `prompt`, which is the default. Without one it is a no. */
  readonly permissionResolver?: ToolPermissionResolver
  /** Gets `permission.request` and `permission.response`. */
  readonly eventBus?: EventBus
  /** Takes warnings; default: the console. */
  readonly logger?: Logger
  /** Where programs and sessions are that name no directory; default: the process's. */
  readonly workingDirectory?: string
}

/** How an agent is prompted. */
export interface ACPPromptOptions {
  /** The server; default: the client's. */
  readonly serverName?: string | undefined
  /** The mode or agent of its own that is to answer, from now on in that session. One that it does not offer is refused. */
  readonly agentId?: string | undefined
  /** Told to a session that is new. */
  readonly systemPrompt?: string | undefined
  /** The session to go on with, and from now on. Default: the one of the prompt before. */
  readonly sessionId?: string | undefined
  /** Whether this prompt gets a session of its own, which is closed behind it; such prompts run beside each other. Default: false. */
  readonly newSession?: boolean | undefined
  /** Where such a session works. */
  readonly workingDirectory?: string | undefined
  /** Cancels the turn: the agent is told, and ends it in order. */
  readonly signal?: AbortSignal | undefined
}

/** An answer. */
export interface ACPResult {
  /** Its text. */
  readonly content: string
  /** The agent or mode that gave it, as far as it is known; else the server's name. */
  readonly agentId: string
  /** The server. */
  readonly serverName: string
  /** The session that it was given in. */
  readonly sessionId: string
  /** Tokens, where the agent tells them. */
  readonly usage?: { readonly inputTokens: number; readonly outputTokens: number; readonly totalTokens: number }
  /** Why it ended. */
  readonly stopReason: 'end_turn' | 'max_tokens' | 'refusal'
}

/** What comes of a stream. */
export type ACPChunk =
  /** A piece of the answer. */
  | { readonly type: 'delta'; readonly text: string }
  /** A piece of the agent's thoughts. */
  | { readonly type: 'reasoning'; readonly text: string }
  /** The agent has begun a call of its own. */
  | { readonly type: 'tool_call'; readonly toolCall: ToolCallRequest }
  /** It has ended. */
  | {
      readonly type: 'tool_call_update'
      readonly update: ToolCallResult & { readonly status: 'completed' | 'failed' }
    }
  /** The end. */
  | {
      readonly type: 'complete'
      readonly usage?: ACPResult['usage']
      readonly stopReason: ACPResult['stopReason']
      readonly sessionId: string
    }

/** An agent or mode that a server offers. */
export interface ACPAgentInfo {
  /** What `agentId` calls it. */
  readonly id: string
  /** Its name, for people. */
  readonly name: string
  /** What it is for. */
  readonly description?: string
  /** Who offers it. */
  readonly serverName: string
}

/** A session of an agent's. */
export interface ACPSessionInfo {
  /** The agent's own id of it. */
  readonly sessionId: string
  /** Where it works. */
  readonly cwd: string
  /** What the agent calls it. */
  readonly title?: string
  /** When something happened in it, as the agent writes it. */
  readonly updatedAt?: string
}

/** How a server is. */
export interface ACPServerHealth {
  /** The server. */
  readonly serverName: string
  /** Whether its program is there to be started. */
  readonly available: boolean
  /** Why not. */
  readonly reason?: string
  /** Whether it runs. */
  readonly running: boolean
  /** Sessions that are open in it. */
  readonly openSessions?: number
  /** Messages that it has not read. */
  readonly unreadMessages?: number
}

/**
 * Drives ACP agents. What an agent's program or its protocol does wrong rejects with `PROVIDER_UNAVAILABLE` (it cannot be used now) or
 * `PROVIDER_ERROR`; a name that is none of the client's with `CONFIG_VALIDATION`.
 */
export interface ACPClient extends AsyncDisposable {
  /** Starts all programs. Rejects when none of them can be; of one among others that cannot there is a warning. */
  initialize(): Promise<void>
  /** Ends all programs with all that they have started. The client is of no use any more. */
  dispose(): Promise<void>
  /** The agents or modes that a server offers; one that offers none is itself the one. */
  listAgents(serverName?: string): Promise<readonly ACPAgentInfo[]>
  /** One of them; `undefined`: there is none of that id. */
  getAgent(id: string, serverName?: string): Promise<ACPAgentInfo | undefined>
  /** Prompts an agent and waits for the whole answer. Prompts go to one session, one after the other. */
  generate(prompt: string, options?: ACPPromptOptions): Promise<ACPResult>
  /**
   * The same with a whole conversation, its newest message of the user at the end. What the session has heard is not told again; a
   * conversation that does not go on from there gets a session of its own.
   */
  chat(
    messages: readonly Pick<ConversationMessage, 'role' | 'content'>[],
    options?: ACPPromptOptions,
  ): Promise<ACPResult>
  /** Prompts an agent and yields what comes. Who leaves it cancels the turn. */
  generateStream(prompt: string, options?: ACPPromptOptions): AsyncGenerator<ACPChunk, void, undefined>
  /** Whether a server's program is there to be started. */
  isAvailable(serverName?: string): Promise<boolean>
  /** What all servers get when they ask for permission, from now on. */
  setPermissionPolicy(policy: 'auto-approve' | 'prompt' | 'deny'): void
  /** The sessions that an agent has; of one that lists none, those that this client has opened. */
  listSessions(serverName?: string): Promise<readonly ACPSessionInfo[]>
  /** Goes on with a session, also one of an earlier program. Rejects when the agent cannot. */
  loadSession(sessionId: string, serverName?: string): Promise<{ readonly sessionId: string }>
  /** Deletes a session. Rejects when the agent deletes none. */
  deleteSession(sessionId: string, serverName?: string): Promise<void>
  /** Sets a session's mode; one that is not offered is refused. */
  setSessionMode(sessionId: string, mode: string, serverName?: string): Promise<void>
  /** Sets a session's model; one that is not offered is refused. */
  setSessionModel(sessionId: string, model: string, serverName?: string): Promise<void>
  /** How a server is; asks and starts nobody. */
  getServerHealth(serverName?: string): ACPServerHealth
  /** The servers' names, in their order. */
  readonly serverNames: readonly string[]
  /** How many there are. */
  readonly serverCount: number
  /** The one that is meant when none is named. */
  readonly defaultServerName: string
  /** The mode or agent that its sessions are set to. */
  readonly defaultAgent: string | undefined
}

/**
 * Creates a client of ACP agents.
 * @throws {SimseError} `CONFIG_VALIDATION` that names every field which does not fit.
 */
export function createACPClient(config: ACPClientConfig, options?: ACPClientOptions): ACPClient

// ── Models ──────────────────────────────────────────────────────────────────────────────────────

/** How much a model thinks before it answers; `auto`: as much as it does by itself. */
export type ModelReasoning = 'auto' | 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh'

/** Why a model stopped: it was done, it wants its calls run, it reached its limit of tokens, its provider cut it for its content, or it does not want to answer. */
export type ModelFinishReason = 'end_turn' | 'tool_use' | 'length' | 'content_filter' | 'refusal'

/** Tokens of a request. */
export interface ModelUsage {
  /** Tokens sent. */
  readonly inputTokens?: number | undefined
  /** Tokens received. */
  readonly outputTokens?: number | undefined
  /** Both together, where the provider counts otherwise. */
  readonly totalTokens?: number | undefined
  /** Of the tokens sent, those that the provider had in its cache. */
  readonly cachedInputTokens?: number | undefined
  /** Of the tokens sent, those that it put into its cache. */
  readonly cacheWriteTokens?: number | undefined
  /** Of the tokens received, those of its thoughts. */
  readonly reasoningTokens?: number | undefined
}

/** A tool, as a model is told of it. */
export interface ModelTool {
  /** In letters that every provider takes: `mcp:files/read` is `mcp__files__read` here. Calls by this name reach the tool. */
  readonly name: string
  /** What it does. */
  readonly description: string
  /** Its arguments: the JSON Schema of an object. */
  readonly parameters: JsonSchemaObject
}

/** A message as a model is told it. */
export interface ModelMessage extends ConversationMessage {
  /**
   * Of its own replies: what it has yielded as `original`. Ids of `toolCalls` are there once in a request: where a call had none, or one that
   * was there before, it has another one than in here; the calls are in the same order.
   */
  readonly original?: readonly unknown[]
}

/** What a model is asked. */
export interface ModelRequest {
  /** The model's id, `provider/name`. */
  readonly model: string
  /** The system text; empty for none. */
  readonly system: string
  /** The conversation so far, oldest first: `user`, `assistant` and `tool_result`. */
  readonly messages: readonly ModelMessage[]
  /** What it may call. */
  readonly tools: readonly ModelTool[]
  /** How much it is to think. */
  readonly reasoning: ModelReasoning
  /** What its final answer has to be (`turn.outputSchema`): the JSON Schema of an object. Absent: any text. */
  readonly outputSchema?: JsonSchemaObject
}

/**
 * What a model yields. A string is a piece of its answer. One that returns without `complete` is done, or wants its calls run when it
 * made some.
 */
export type ModelChunk =
  | string
  /** A piece of its answer. */
  | { readonly type: 'delta'; readonly text: string }
  /** A piece of its thoughts. */
  | { readonly type: 'reasoning'; readonly text: string }
  /** A whole call. Arguments may be JSON in a string; what is no JSON is told to the model, and nothing runs. */
  | {
      readonly type: 'tool_call'
      readonly toolCall: {
        readonly id?: string | undefined
        readonly name: string
        readonly arguments?: Readonly<Record<string, unknown>> | string | undefined
      }
    }
  /** A piece of a call, which belongs to the one of its `index`, else of its `id`, else to the last one. Arguments may be cut anywhere. */
  | {
      readonly type: 'tool_call_delta'
      readonly index?: number | undefined
      readonly id?: string | undefined
      readonly name?: string | undefined
      readonly arguments?: string | undefined
    }
  /** Tokens of this request so far. */
  | { readonly type: 'usage'; readonly usage: ModelUsage }
  /**
   * The whole reply in the model's own words, where it wants them back as they were, such as signed thoughts: anything that JSON has a
   * form for. It is kept with the session and stands in `original` of that message in later requests to this model, and to no other.
   */
  | { readonly type: 'original'; readonly items: readonly unknown[] }
  /** The end: nothing behind it is read. */
  | {
      readonly type: 'complete'
      readonly finishReason?: ModelFinishReason | undefined
      readonly usage?: ModelUsage | undefined
    }
  /** The same as throwing it. */
  | ({ readonly type: 'error' } & ModelFailure)

/**
 * What a model throws when it fails, of whatever class. A failure is tried again when it is `retryable`, when it has the `status` 408,
 * 425, 429 or 5xx (`statusCode` will do), or when it or a `cause` of it has the `code` of a connection that broke (`ECONNRESET` …) or the
 * name `TimeoutError`; never for its words. 401 and 403 mean a key that is refused, other 4xx a request that is. The codes `CONTEXT_OVERFLOW`,
 * `QUOTA` and `CONTENT_FILTER` say that the conversation does not fit, that nothing is left to be used, and that the content is not taken. All
 * else counts as a model that cannot be used now.
 */
export interface ModelFailure {
  /** What happened. */
  readonly message: string
  /** Such as `ECONNRESET`. */
  readonly code?: string | undefined
  /** The HTTP status. */
  readonly status?: number | undefined
  /** Whether another try may help. */
  readonly retryable?: boolean | undefined
  /** How long to wait before it; `retry-after` among `headers` or `responseHeaders` counts, too. */
  readonly retryAfterMs?: number | undefined
}

/** What is known of a model. */
export interface SimseModelFacts {
  /** Its name for people. */
  readonly label?: string | undefined
  /** Tokens of its window. */
  readonly contextTokens?: number | undefined
  /** Tokens of one reply, at most. */
  readonly outputTokens?: number | undefined
  /** Whether it can be shown images; default true. If not, it is told what the images are. */
  readonly images?: boolean | undefined
  /** Whether it can think before it answers; default true. */
  readonly reasoning?: boolean | undefined
  /**
   * Whether it holds its answer to `outputSchema` of a request by itself. Default: it is told the schema in words, too (`system`). False: prompts
   * with `turn.outputSchema` are refused. The answer is looked at all the same, and asked for once more where it does not fit.
   */
  readonly structuredOutput?: boolean | undefined
  /** Prices in US dollars for a million tokens. Of the tokens that it tells the server tells what they cost. */
  readonly prices?:
    | {
        /** Sent. */
        readonly input: number
        /** Received. */
        readonly output: number
        /** Sent, and found in the provider's cache; default: as any sent. */
        readonly cacheRead?: number | undefined
        /** Sent, and put into the provider's cache; default: as any sent. */
        readonly cacheWrite?: number | undefined
      }
    | undefined
}

/** A model that is JavaScript. */
export interface SimseModel extends SimseModelFacts {
  /** `provider/name`, or a name alone for `js/name`. `acp/` and `demo/` are ours. */
  readonly name: string
  /**
   * Answers a request: an async generator, or anything else that can be iterated. It is pulled no faster than its answer is
   * taken. `signal` fires, and the generator is returned, when the answer is not wanted any more: the turn was aborted, the
   * server stops, or nothing came for `limits.modelIdleTimeoutMs`.
   */
  stream(
    request: ModelRequest,
    signal: AbortSignal,
  ): AsyncIterable<ModelChunk> | Iterable<ModelChunk> | Promise<AsyncIterable<ModelChunk> | Iterable<ModelChunk>>
}

/** A language model of the Vercel AI SDK: `v2` of AI SDK 5, `v3` of 6, `v4` of 7. */
export interface VercelLanguageModel {
  /** The version of its interface. */
  readonly specificationVersion: 'v2' | 'v3' | 'v4'
  /** Its provider, such as `openai.responses`. */
  readonly provider: string
  /** Its name there. */
  readonly modelId: string
  /** Asks it. */
  doStream(options: never): PromiseLike<{
    readonly stream: {
      /** Takes the stream for one reader. */
      getReader(): {
        /** The next piece; `done` behind the last one. */
        read(): Promise<{ done: boolean; value?: unknown }>
        /** Wants no more of it. */
        cancel(reason?: unknown): Promise<void>
      }
    }
  }>
}

/** What the AI SDK is told with each request, beside the conversation: `temperature`, `maxOutputTokens`, `headers`, `providerOptions` … */
export type VercelCallOptions = Readonly<Record<string, unknown>>

/** How a model of the AI SDK is taken. */
export interface FromVercelModelOptions extends SimseModelFacts {
  /** Its name here. Default: `provider/modelId`. */
  readonly name?: string | undefined
  /** Options of each request, or what makes them of one. */
  readonly callOptions?: VercelCallOptions | ((request: ModelRequest) => VercelCallOptions | undefined) | undefined
}

/**
 * A language model of the Vercel AI SDK as a model of a server: `models: [fromVercelModel(openai('gpt-5'))]`. How much it is to think
 * goes to it as `reasoning` (`v4`), before that as `reasoningEffort` of its provider, which those of OpenAI's kind know; others are told
 * through `callOptions.providerOptions`. A wanted `outputSchema` goes to it as `responseFormat`. What a provider runs by itself (its own web search and the like) stays with it.
 * @throws {SimseError} `CONFIG_VALIDATION` for what is no such model.
 */
export function fromVercelModel(model: VercelLanguageModel, options?: FromVercelModelOptions): SimseModel

// ── Server ──────────────────────────────────────────────────────────────────────────────────────

/** An ACP agent: a program that answers sessions by itself. */
export interface ACPServerEntry {
  /** An agent that is known: it fills in what is left out here, `name`, `command`, `args`, `files`, `terminals`. */
  readonly profile?: 'claude' | 'codex' | 'gemini' | 'opencode' | 'qwen' | 'pi' | 'goose' | 'kimi'
  /** 1 to 64 characters without blanks and `/`, and not `simse`. Sessions name it as `agent`; their model is then `acp/<name>`. Default: the profile's. */
  readonly name?: string
  /** The program; with a slash, relative to `cwd`. Default: the profile's. */
  readonly command?: string
  /** Its arguments. */
  readonly args?: readonly string[]
  /** Where it starts, relative to `workingDirectory`, which is the default. Sessions name directories of their own. */
  readonly cwd?: string
  /** Over the inherited environment, which it gets whole (but for `SIMSE_*`), because it needs its own keys. */
  readonly env?: Readonly<Record<string, string>>
  /** The mode or agent of its own that sessions are set to. One that it does not offer fails the turn; an agent that offers none at all answers as it is, with a warning in the log. */
  readonly defaultAgent?: string
  /** Longest wait for an answer to a request, never for a prompt; default 30,000 ms. */
  readonly timeoutMs?: number
  /** What happens when it asks for permission: it gets it, our rules and clients decide (the default), or it is refused. */
  readonly permissionPolicy?: 'auto-approve' | 'prompt' | 'deny'
  /** How it is logged in to when it wants that: the id of one of its own methods. An error names those that it knows. */
  readonly authMethod?: string
  /** Whether it is offered to have files read and written by our tools. Default: true, unless its profile knows better. */
  readonly files?: boolean
  /** Whether it is offered to have commands run by our tools. Default: as with `files`. */
  readonly terminals?: boolean
  /**
   * Which of a session's tools it can call, over MCP, in its turns and under our permission: `own`, all but those for files, commands and
   * git, which agents have themselves (the default); `all`; `none`; or these.
   */
  readonly tools?: 'own' | 'all' | 'none' | readonly string[]
  /**
   * How it comes to the tools of a session's MCP servers: it connects them itself, as far as they can be told to it (`direct`, the
   * default); their tools are among ours, under our rules and in our log (`through`); or not at all.
   */
  readonly mcpServers?: 'direct' | 'through' | 'none'
}

/** An MCP server: a program that is started, or an address. */
export interface MCPServerEntry {
  /** 1 to 64 characters without blanks, quotes, `/`, `*` and `?`. Its tools are called `mcp:<name>/<tool>`. */
  readonly name: string
  /** How it is reached. Default: `stdio` when there is a `command`, `http` when there is a `url`. */
  readonly transport?: 'stdio' | 'http'
  /** The program, with `stdio`. A path with a slash is relative to `cwd`. */
  readonly command?: string
  /** Its arguments, with `stdio`. */
  readonly args?: readonly string[]
  /** Over the inherited environment, with `stdio`. Inherited variables whose names look like credentials are left out; name here what it needs. */
  readonly env?: Readonly<Record<string, string>>
  /** Its working directory, with `stdio`; relative to `workingDirectory`, which is the default. */
  readonly cwd?: string
  /** Its address, with `http` (streamable HTTP). */
  readonly url?: string
  /** Sent with each request, with `http`. With `Authorization` among them there is no other login. */
  readonly headers?: Readonly<Record<string, string>>
  /** How one logs in there (OAuth), with `http`, as far as the server does not say it itself. */
  readonly oauth?: {
    /** As whom the program is known there. */
    readonly clientId?: string
    /** The secret of that. */
    readonly clientSecret?: string
    /** An address at which the program introduces itself, for servers that take one as a client id. */
    readonly clientMetadataUrl?: string
    /** What is asked for; empty: what the server wants. */
    readonly scopes?: readonly string[]
    /** Where a browser comes back on this machine; default: any port. */
    readonly redirectPort?: number
    /** Logs in with `clientId` and `clientSecret` or `privateKeyFile` alone, without a person. */
    readonly clientCredentials?: boolean
    /** A file with a private key (PEM, PKCS #8) instead of the secret. */
    readonly privateKeyFile?: string
    /** Logs in with what a company's identity provider says of the user (enterprise-managed authorization), without a browser. */
    readonly identityProvider?: {
      /** Where it exchanges tokens. */
      readonly tokenEndpoint: string
      /** As whom the program is known there. */
      readonly clientId: string
      /** The secret of that. */
      readonly clientSecret?: string
      /** A file with the user's ID token, read anew for each login. */
      readonly idTokenFile: string
    }
    /** A file with a token that says which workload this is (workload identity), read anew each time; for a login without a person. */
    readonly workloadTokenFile?: string
  }
}

/**
 * A command at a hook point of a server. A shell runs it in the session's working directory: on its standard input it has what a
 * handler gets, as one JSON object with `event` beside it; exit code 0 makes its output the answer, 2 blocks with its error stream as the
 * reason, anything else has failed.
 */
export interface HookCommandRegistration {
  /** The hook point. */
  readonly type: HookType
  /** What a shell runs. */
  readonly command: string
  /** Which tools it is about, of the points `tool.*`: names with `|` between them, `*` and `?` as in rules. Default: all. */
  readonly matcher?: string
  /** How long it and all that it started may work. Default: a minute. */
  readonly timeoutMs?: number
}

/** A hook of a server; without a type argument, one of any point. */
export type HookRegistration<T extends HookType = HookType> = T extends HookType
  ? {
      /** The hook point. */
      readonly type: T
      /** The handler. */
      readonly handler: HookHandler<T>
      /** How long it may work: ten minutes unless said, at most an hour; 0: no limit. */
      readonly timeoutMs?: number
    }
  : never

/**
 * Long-term memory: texts that outlive sessions, kept by project (the repository around the working directory). Sessions
 * get the tools `memory_search`, `memory_add` and `memory_delete`.
 */
export interface MemoryConfig {
  /** Whether there is any. */
  readonly enabled: boolean
  /** An embedding model of the `openai` endpoint, such as `openai/text-embedding-3-small`. Without one, or while it fails, words alone decide. */
  readonly embeddingAgent?: string
  /** The directory of an embedding model that the server runs itself, in Model2Vec's form; instead of `embeddingAgent`. */
  readonly model?: string
  /**
   * From 0 to 1: answers with a lower score are left out. With an embedding model the score is the cosine, moved
   * towards 1 by up to seven tenths of the way by words in common. Without one it is what the words say (BM25), as a share of the
   * best answer of that search.
   */
  readonly similarityThreshold: number
  /** From 1 to 100: how many answers a search gives that does not say. */
  readonly maxResults: number
  /** Texts of a project; of more, those that are of least use are forgotten. Default 100,000, which is the most. */
  readonly maxEntries?: number
  /** Days after which what nobody has noted or found is forgotten, when something is noted. Default: never. */
  readonly forgetAfterDays?: number
}

/** System prompts by model. */
export interface ProviderPromptConfig {
  /** Glob over `provider/name` → prompt. The first that matches wins, in the order given. */
  readonly prompts?: Readonly<Record<string, string>>
  /** When nothing matches. */
  readonly defaultPrompt?: string
}

/** Which instruction files go into the system prompt. */
export interface InstructionDiscoveryOptions {
  /** Default `CLAUDE.md`, `AGENTS.md` and `.simse/instructions.md`. */
  readonly patterns?: readonly string[]
  /** Where the walk up from the working directory ends; default: the repository's root. */
  readonly rootDir?: string
  /** Whether they go into the system prompt; default `true`. */
  readonly autoInject?: boolean
}

/** Limits of a server; each has a default, and bounds that a refusal names: waits go up to a year, numbers of things in memory up to 1,000,000. */
export interface SimseServerLimits {
  /** How long a permission question waits for its answer; default 120,000 ms. */
  readonly permissionTimeoutMs?: number
  /** How long a session with nobody connected keeps a question open; default 5,000 ms. */
  readonly clientGraceMs?: number
  /** How long an interrupted turn may take to stop in order before it is cut off; at most 24,000 ms, default 10,000 ms. */
  readonly interruptGraceMs?: number
  /** Rest after which a session that nobody uses leaves memory; it wakes when it is needed. Default 30,000 ms. */
  readonly sessionIdleMs?: number
  /**
   * Rest after which the program of an ACP agent or an MCP server is ended until it is needed again; 0: never. Default
   * 600,000 ms.
   */
  readonly agentIdleMs?: number
  /** Longest silence of a model; default 120,000 ms. */
  readonly modelIdleTimeoutMs?: number
  /** Rounds with the model in one turn; default 200. */
  readonly maxIterations?: number
  /** Percent of its model's window that a conversation fills when it is summed up by itself; 0: only when it does not fit; default 85. */
  readonly compactPercent?: number
  /** Prompts that may wait in one session; default 100. */
  readonly queuedPrompts?: number
  /** Bytes of the prompts that may wait in one session; default 33,554,432. */
  readonly queuedBytes?: number
  /** Turns that run at once, in all sessions; default 4,000. One more is refused. */
  readonly turns?: number
  /** Sessions kept; default 1,000,000. */
  readonly sessions?: number
  /** Sub-agents that are under way at once under one session, at each depth; more wait. Default 10. */
  readonly subagentsRunning?: number
  /** Sub-agents that are under way or wait under one session; one more is refused. Default 100. */
  readonly subagents?: number
  /** How deep sessions spawn others; 1: sub-agents spawn none, 0: nobody does. Default 1. */
  readonly subagentDepth?: number
  /** Open event streams of one session; default 2,000. */
  readonly streamsPerSession?: number
  /** Bytes of files kept for undoing what turns did; 0 records nothing; default 1,073,741,824. */
  readonly snapshotBytes?: number
  /**
   * Bytes of the definitions of tools of MCP servers that a model is told one by one; with more it is told how to find them. Default 16,384.
   */
  readonly mcpToldBytes?: number
  /** Commands of one client in a minute, controls counted apart; default 60,000, 0: no limit. */
  readonly commandsPerMinute?: number
  /**
   * What each session may spend with the sessions under it: whatever a session's own `budget` says, never more. Default: as
   * much as it likes.
   */
  readonly sessionBudget?: Budget
  /** What each client may spend in `budgetWindowMs`. Default: as much as it likes. */
  readonly clientBudget?: Budget
  /** The span of time of `clientBudget`; spans begin at multiples of it since 1970. Default 86,400,000 ms: a day of UTC. */
  readonly budgetWindowMs?: number
  /** Largest request body; default 10,000,000 bytes. */
  readonly bodyBytes?: number
  /** Open connections; default 10,000. */
  readonly connections?: number
  /** Time between two comments on a silent event stream; default 15,000 ms. */
  readonly heartbeatMs?: number
  /** How long `stop()` lets turns finish before it aborts them; default 8,000 ms. */
  readonly shutdownGraceMs?: number
}

/** What may be spent, all together; what is not named has no limit. */
export interface Budget {
  /** Tokens, sent and received. A request that has begun ends, so this can be passed by what one request takes. */
  readonly tokens?: number
  /** What they cost, in US dollars, where the prices of the models are known. */
  readonly costUsd?: number
  /** How long turns run; those that run side by side count each. What runs when it is over is cut off. */
  readonly timeMs?: number
  /** Turns that answer prompts. */
  readonly turns?: number
  /** Calls of tools. */
  readonly toolCalls?: number
}

/** A budget, and what is spent of it. */
export interface BudgetState {
  /** A session's, with all that stand under it, or a client's. */
  readonly scope: 'session' | 'client'
  /** The session, where it is one's. */
  readonly sessionId?: string
  /** What may be spent. */
  readonly limits: Budget
  /** What was. */
  readonly spent: Budget
  /** When it begins anew, in milliseconds since 1970. */
  readonly resetsAt?: number
}

/** A budget of which something is gone, or nearly. */
export interface BudgetNotice extends BudgetState {
  /** What is. */
  readonly kind: keyof Budget
}

/** The wire that a model is spoken to over. */
export type ModelApi = 'openai-chat' | 'openai-responses' | 'anthropic-messages' | 'gemini'

/** What is known of a model. What is not said is taken from the catalogue of well-known models. */
export interface ProviderModel {
  /** Its name on the wire. */
  readonly name: string
  /** Its wire, where it is not that of its provider. */
  readonly api?: ModelApi
  /** Its name for people. */
  readonly label?: string
  /** Tokens of its window. */
  readonly contextTokens?: number
  /** Tokens of one reply, at most. */
  readonly outputTokens?: number
  /** Whether it can be shown images. */
  readonly images?: boolean
  /** Whether it can think before it answers. */
  readonly reasoning?: boolean
  /** Prices in US dollars for a million tokens. */
  readonly prices?: {
    /** Sent. */
    readonly input: number
    /** Received. */
    readonly output: number
    /** Sent, and found in the provider's cache; default: as any sent. */
    readonly cacheRead?: number
    /** Sent, and put into the provider's cache; default: as any sent. */
    readonly cacheWrite?: number
  }
  /** Members that go into each request's body. */
  readonly body?: Readonly<Record<string, unknown>>
}

/** A provider of models. Of a well-known one (`anthropic`, `gemini`, `openrouter`, `ollama` …) the name and the key are enough. */
export interface ModelProvider {
  /** Its models are called `<name>/<model>`. */
  readonly name: string
  /** The wire of its models. */
  readonly api?: ModelApi
  /** Its address. */
  readonly baseUrl?: string
  /** Its key. */
  readonly apiKey?: string
  /** The file that its key stands in; read anew, once, when the key is refused. */
  readonly apiKeyFile?: string
  /** Sent with each request. */
  readonly headers?: Readonly<Record<string, string>>
  /** Requests side by side, of all sessions together. */
  readonly concurrency?: number
  /** Requests begun in a minute, of all sessions together. */
  readonly requestsPerMinute?: number
  /** Members that go into each request's body. */
  readonly body?: Readonly<Record<string, unknown>>
  /** What is known of its models; any other can be named all the same. */
  readonly models?: readonly ProviderModel[]
}

/** What a server is told. */
export interface SimseServerConfig {
  /** Default 3000; 0 takes any free port. */
  readonly port?: number
  /** Default `127.0.0.1`. Another address than loopback needs `allowPublic` and `authToken`. */
  readonly host?: string
  /**
   * External agents. None of them is started by `start()`; `GET /agents` says which can be used. Without `model` and `openai` the first one answers
   * sessions that name no agent.
   */
  readonly acpServers?: readonly ACPServerEntry[]
  /**
   * Servers whose tools every session has, beside the others. `start()` starts them in the background and does not wait: one that is slow or missing
   * holds nothing up, and one that ends is started again when it is needed. A session's turn waits up to 10 s for those that start for the first time.
   * `stop()` ends them with all their processes.
   */
  readonly mcpServers?: readonly MCPServerEntry[]
  /** Where sessions work that name no directory. */
  readonly workingDirectory: string
  /** What tools may do. Default: reading and searching are allowed, everything else asks. `onPermissionRequest` is asked beside the clients; the first answer counts. */
  readonly toolPermissions?: ToolPermissionConfig
  /**
   * How much new sessions do without asking; a session can be created with another. `plan` only looks; `ask` (the default) does as the rules say;
   * `accept-edits` edits files inside the roots unasked; `auto` asks nothing that no rule denies.
   */
  readonly permissionMode?: PermissionMode
  /** Run around sessions, turns, calls and prompts: first the handlers, in this order, then the commands, in this order. */
  readonly hooks?: readonly (HookRegistration | HookCommandRegistration)[]
  /** Long-term memory of the sessions, kept in the data directory. Default: none. */
  readonly memory?: MemoryConfig
  /** System prompts by model. */
  readonly providerPrompts?: ProviderPromptConfig
  /** Which instruction files go into the system prompt. */
  readonly instructionDiscovery?: InstructionDiscoveryOptions
  /** The model of new sessions, `provider/name`. Default: the first that is configured, else the scripted `demo/scripted`. */
  readonly model?: string
  /** Models that are generators of this program. The first one answers sessions that name none, unless `model` says otherwise. */
  readonly models?: readonly SimseModel[]
  /** An endpoint that speaks chat completions. Nothing is read from the environment. */
  readonly openai?: {
    /** Such as `https://api.openai.com/v1`. */
    readonly baseUrl?: string
    /** The key; local servers often want none. */
    readonly apiKey?: string
    /** Whether the endpoint's models can be shown images; default true. If not, they are told what the images are. */
    readonly images?: boolean
    /** Its wire; default `openai-responses` for OpenAI's own address, else `openai-chat`. */
    readonly api?: 'openai-chat' | 'openai-responses'
  }
  /** Types of sub-agents, over and beside those that are always there: `default`, `explorer`, `worker`, `research`, `simple`. */
  readonly agentTypes?: readonly {
    readonly name: string
    /** What it is good for. */
    readonly description?: string
    /** Its model, `provider/name`. Default: that of whoever starts it. */
    readonly model?: string
    /** How much it thinks. */
    readonly reasoning?: 'auto' | 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh'
    /** Its tools, of those of whoever starts it; `*`: all. Default: those that only look. */
    readonly tools?: readonly string[]
  }[]
  /** Further providers of models. Nothing is read from the environment. */
  readonly providers?: readonly ModelProvider[]
  /** Models that are asked, in this order, when a session's own cannot be used: it is unreachable, refuses the key, has no quota left, is overloaded, or the conversation does not fit. */
  readonly modelFallbacks?: readonly string[]
  /** The model for small work: the titles of sessions that nobody has named. Default: they get none. */
  readonly smallModel?: string
  /** The model that sums up conversations that become too long. Default: each session's own. */
  readonly compactionModel?: string
  /** Whether the models of Ollama and llama.cpp on this machine are listed and can be named without being configured; default false. */
  readonly findLocalModels?: boolean
  /** A file in which all answers of models are recorded, without keys. */
  readonly recordModels?: string
  /** A recording that all answers of models are taken from, and none from the network. The models are those of the recording. */
  readonly replayModels?: string
  /** How fast a recording is given again: 1 as it was, 2 twice as fast, 0 (the default) at once. */
  readonly replaySpeed?: number
  /** Where sessions are kept. Default: a directory for this working directory under the user's data directory, one for each server that runs. */
  readonly dataDirectory?: string
  /**
   * Where sessions are: `sqlite` (the default), in the data directory, or `postgres://USER@HOST/DATABASE`; what turns did to files and
   * the memory stay in the data directory. `PGPASSWORD` counts where the address has no password.
   */
  readonly store?: string
  /**
   * Where the other servers of the same database reach this one, such as `http://10.0.0.7:4000`. With it, several servers share the
   * database of `store`; without it, one server has it alone.
   */
  readonly nodeUrl?: string
  /** Labels of the workspaces that this server reaches; a session with a label lives only on servers that have it. Needs `nodeUrl`. */
  readonly nodeLabels?: readonly string[]
  /**
   * The tools of all sessions, instead of the host tools: JavaScript ones are called by the server's loop.
   * Its hooks run after the server's. Its `permissionResolver` must agree before the server's own rules are asked.
   */
  readonly toolRegistry?: ToolRegistry
  /** What every request but `GET /health` must carry as `Authorization: Bearer`; default: none. */
  readonly authToken?: string
  /** Allows a `host` that is not loopback. */
  readonly allowPublic?: boolean
  /** Where working directories of sessions may lie; default: `workingDirectory`. */
  readonly allowedRoots?: readonly string[]
  /** Further roots for the file tools of every session. */
  readonly allowedPaths?: readonly string[]
  /** Folders with agents as markdown files, beside `.simse/agents` and `agents` of the project; relative ones against `workingDirectory`. */
  readonly agentsDirs?: readonly string[]
  /** Folders with skills (`NAME/SKILL.md`), beside `.simse/skills`, `.agents/skills` and `.claude/skills` of the project. */
  readonly skillsDirs?: readonly string[]
  /** Folders with slash commands as markdown files, beside `.simse/commands` and `.claude/commands` of the project. */
  readonly commandsDirs?: readonly string[]
  /** When a file may be changed that the session did not read, or that has changed since; default `warn`. */
  readonly staleCheck?: StaleCheck
  /** What the operating system holds the commands of sessions to; default `workspace-write`. */
  readonly sandbox?: SandboxMode
  /** Whether sandboxed commands reach the network; default no, a session has a loopback of its own. */
  readonly sandboxNetwork?: boolean
  /** Limits. */
  readonly limits?: SimseServerLimits
}

/** A server. While it runs it keeps the process alive, unless `unref()` says otherwise. */
export interface SimseServer extends AsyncDisposable {
  /**
   * Starts, and resolves when the server answers.
   *
   * Rejects with a {@link SimseError}: `SERVER_STATE` when it runs already, `PORT_IN_USE`,
   * `DATA_DIRECTORY_IN_USE`, `CONFIG_VALIDATION` and others.
   */
  start(): Promise<void>
  /** Lets turns finish for a while, aborts the others, writes everything down. Harmless when nothing runs. */
  stop(): Promise<void>
  /** Where it listens; 0 before the first start; the last one after a stop. */
  readonly port: number
  /** Such as `http://127.0.0.1:3000`. */
  readonly url: string
  /** Lets the running server keep the process alive (the default). */
  ref(): SimseServer
  /** Lets the process end while the server runs. */
  unref(): SimseServer
}

/**
 * Creates a server; it does nothing before `start()`.
 * @throws {SimseError} `CONFIG_VALIDATION` that names every field which does not fit.
 */
export function createSimseServer(config: SimseServerConfig): SimseServer
