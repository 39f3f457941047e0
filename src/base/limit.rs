//! Every default limit, in one place (those of clients of foreign protocols beside it). Units come last in the names.

mod agents;
mod budget;
mod context;
mod definitions;
mod foreign;
mod hooks;

pub use agents::*;
pub use budget::*;
pub use context::*;
pub use definitions::*;
pub use foreign::*;
pub use hooks::*;

mod compaction;

pub use compaction::*;

mod memory;
mod tree;

pub use memory::*;
pub use tree::*;

/// Longest wait that can be set: a year, which every timer can run.
pub const SET_MS_MAX: u64 = 365 * 86_400_000;
/// Largest request body in bytes (contract.md, Doors).
pub const BODY_BYTES_MAX: usize = 10_000_000;
/// What has come of messages and bodies that are not whole yet, of all clients together, in bytes beyond the first of each.
pub const UNFINISHED_BYTES_MAX: usize = 256 << 20;
/// The first bytes of each, which always have room: what is small is never refused.
pub const UNFINISHED_SMALL_BYTES: usize = 64 << 10;
/// Longest prompt text in bytes.
pub const PROMPT_BYTES_MAX: usize = 2_000_000;
/// Rounds with the model in one turn (contract.md, Doors: `max-iterations`).
pub const ITERATIONS_MAX: u32 = 200;
/// How long a permission question waits for its answer.
pub const PERMISSION_TIMEOUT_MS: u64 = 120_000;
/// Longest that a tool or a hook can let a question wait.
pub const ASK_TIMEOUT_MS_MAX: u64 = 86_400_000;
/// Questions of tools and hooks that are open in one session at once.
pub const OPEN_REQUESTS_MAX: usize = 100;
/// Notices of tools and hooks in one turn.
pub const NOTICES_MAX: usize = 1_000;
/// How long a session with nobody connected keeps a question open (contract.md, Requests).
pub const CLIENT_GRACE_MS: u64 = 5_000;
/// How long a stop waits for running turns (contract.md, Doors).
pub const SHUTDOWN_GRACE_MS: u64 = 8_000;
/// Longest silence of a model, before its first byte and between any two.
pub const MODEL_IDLE_TIMEOUT_MS: u64 = 120_000;
/// Bytes of text that pieces of a model become one of.
pub const JOINED_BYTES_MAX: usize = 4 << 10;
/// Time between two comments on a silent event stream (contract.md, The event stream).
pub const HEARTBEAT_MS: u64 = 15_000;
/// Longest wait for the head of a request, on an idle connection too.
pub const HEAD_TIMEOUT_MS: u64 = 30_000;
/// Longest wait for a whole request body, and for the rest of a WebSocket message that is begun.
pub const BODY_TIMEOUT_MS: u64 = 30_000;
/// Longest time in which a client may take nothing of what is written to it.
pub const WRITE_TIMEOUT_MS: u64 = 30_000;
/// Room on the disk of the data below which `GET /health` says that it is low, in bytes.
pub const DISK_BYTES_LOW: u64 = 256 << 20;
/// Room on the disk of the data below which the server counts as unhealthy, in bytes.
pub const DISK_BYTES_MIN: u64 = 16 << 20;
/// Spans and lines of the log that wait for the collector; one more is dropped.
pub const SPANS_WAITING_MAX: usize = 8_192;
/// Named tokens of a server.
pub const TOKENS_MAX: usize = 1_000;
/// Names of tokens that are or were: those of revoked ones are never given again.
pub const TOKEN_NAMES_MAX: usize = 4_096;
/// Pause before what could not be written at the start, for want of room, is tried again.
pub const RECOVERY_PAUSE_MS: u64 = 1_000;
/// How long a server goes on with files that were changed behind it: tokens, certificates.
pub const RELOAD_MS: u64 = 500;
/// Largest file that a session is imported from, in bytes: it is held in memory until it is written.
pub const IMPORT_BYTES_MAX: u64 = 1 << 30;
/// Entries of one page of a list, when the caller does not say.
pub const PAGE_ITEMS: usize = 50;
/// Entries of one page of a list, at most.
pub const PAGE_ITEMS_MAX: usize = 1_000;
/// Calls of one reply that run side by side (design §5).
pub const CONCURRENT_CALLS_MAX: usize = 8;
/// Longest tool output in UTF-16 units (typescript-api.md §2).
pub const OUTPUT_CHARS_MAX: usize = 50_000;
/// What hooks may find in one result; each finding is held to the length of an output.
pub const FINDINGS_MAX: usize = 100;
/// Longest run of a tool that sets none itself, in milliseconds.
pub const TOOL_TIMEOUT_MS: u64 = 600_000;
/// How often a tool's time begins anew because it says that it goes on.
pub const TOOL_TIMEOUTS_MAX: u32 = 12;
/// Prompts that may wait in one session.
pub const QUEUED_PROMPTS_MAX: usize = 100;
/// Bytes of the prompts that may wait in one session, those for a running turn among them.
pub const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Bytes of a prompt that waits in the row of its turn; a larger one is kept apart from it until its time comes.
pub const SAID_BYTES_MAX: usize = 4 << 10;
/// Bytes of memory that prompts which wait take in all sessions together.
pub const QUEUED_MEMORY_BYTES_MAX: usize = 256 << 20;
/// What a turn that waits takes in memory beside what is said in it, in bytes, about.
pub const QUEUED_TURN_BYTES: usize = 1 << 10;
/// Commands that are under way at once (capabilities I8); one more is refused.
pub const COMMANDS_IN_FLIGHT_MAX: usize = 10_000;
/// Controls that are taken beside them when there are as many.
pub const CONTROLS_IN_FLIGHT_MAX: usize = 1_000;
/// Commands under way on one socket or pipe; more wait.
pub const COMMANDS_PER_CONNECTION_MAX: usize = 100;
/// Controls under way on it beside them; of one that sends more, no more is read.
pub const CONTROLS_PER_CONNECTION_MAX: usize = 100;
/// Commands that were read from it and wait for room; of one that sends more, no more is read.
pub const COMMANDS_WAITING_MAX: usize = 100;
/// Bytes of these, or a single one that is larger.
pub const COMMANDS_WAITING_BYTES_MAX: usize = 1 << 20;
/// Commands of one client in a minute, controls counted apart; more at once, as many have not been used before.
pub const COMMANDS_PER_MINUTE: u32 = 60_000;
/// Longest run of a command, from its start (capabilities I8).
pub const COMMAND_TIMEOUT_MS: u64 = 30_000;
/// How long a command waits for those that it depends on (capabilities H6).
pub const DEPENDENCY_WAIT_MS: u64 = 30_000;
/// Commands that one command can depend on (capabilities H6).
pub const DEPENDENCIES_MAX: usize = 32;
/// Longest id or key of a command in bytes.
pub const COMMAND_ID_BYTES_MAX: usize = 256;
/// Outcomes that are remembered. With as many, commands with an id or a key are refused until the oldest has expired: what
/// cannot be remembered would be done twice. It is ten minutes of 3,300 commands a second.
pub const OUTCOMES_MAX: u64 = 2_000_000;
/// Controls that may still be remembered then.
pub const OUTCOMES_OF_CONTROLS_MAX: u64 = OUTCOMES_MAX / 10;
/// How long an outcome is remembered (capabilities I8).
pub const OUTCOME_MS: u64 = 600_000;
/// An outcome that lies ahead by more is of a clock that was set back since: it goes, as what has expired. One by less may be new.
pub const OUTCOME_AHEAD_MS: u64 = 86_400_000;
/// Answers to reads that are remembered, and the bytes of all of them.
pub const READ_OUTCOMES_MAX: usize = 2_000;
/// See [`READ_OUTCOMES_MAX`].
pub const READ_OUTCOMES_BYTES_MAX: usize = 8 << 20;
/// Clients whose share of commands is known. Who has not used any of it is not.
pub const RATED_CLIENTS_MAX: usize = 100_000;
/// Sessions that one socket or pipe can be subscribed to.
pub const SUBSCRIPTIONS_MAX: usize = 256;
/// Time between two pings on a socket (capabilities B8).
pub const PING_MS: u64 = 30_000;
/// Longest wait for the answer to a ping.
pub const PONG_MS: u64 = 10_000;
/// Frames that wait for a socket or pipe that takes them slowly.
pub const FRAMES_WAITING_MAX: usize = 64;
/// Bytes of these, or a single frame that is larger.
pub const FRAMES_WAITING_BYTES_MAX: usize = 1 << 20;
/// Sessions kept in one store.
pub const SESSIONS_MAX: u64 = 1_000_000;
/// Forks of forks in a row: each reads through the logs of those before it.
pub const FORK_DEPTH_MAX: usize = 1_000;
/// Turns that run at once, in all sessions. Each has a connection to its model.
pub const TURNS_MAX: usize = 4_000;
/// File descriptors beside those of connections and turns: databases, tools, tool servers, and what is opened for a moment.
pub const DESCRIPTORS_BESIDE: u64 = 1_024;
/// Open connections.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Open event streams of one session.
pub const STREAMS_PER_SESSION_MAX: usize = 2_000;
/// Open event streams of one client over all its sessions.
pub const LIFECYCLE_STREAMS_MAX: usize = 1_000;
/// Deleted sessions of which `GET /events` still tells, of all clients together. The oldest go first.
pub const SESSION_ENDS_MAX: u64 = 200_000;
/// How long it does.
pub const SESSION_ENDS_MS: u64 = 30 * 24 * 3_600_000;
/// Newest events of an active session that are kept in memory for its readers, in bytes.
pub const TAIL_BYTES_MAX: usize = 1 << 20;
/// The same of all active sessions together, in bytes.
pub const TAILS_BYTES_MAX: usize = 64 << 20;
/// What each keeps where those are used up: 35 deltas, more than a second of a model's.
pub const TAIL_BYTES_MIN: usize = 16 << 10;
/// Bytes of uncommitted events after which a turn waits for the disk.
pub const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Commits that wait for the store's writer; each session has one at most, and each command.
pub const COMMITS_WAITING_MAX: usize = 100_000;
/// How long a tool that was told to stop may take before its result is given without it.
pub const TOOL_STOP_GRACE_MS: u64 = 500;
/// Times that the same call may come in a row before it is no longer run.
pub const IDENTICAL_CALLS_MAX: u32 = 3;
/// Searches in a row that may find nothing before the model is told so.
pub const EMPTY_SEARCHES_MAX: u32 = 4;
/// Times that the same reply may come in a row before its calls are no longer run; at twice as many the turn ends.
pub const IDENTICAL_REPLIES_MAX: u32 = 4;
/// Replies in a row whose calls cannot be read before the turn ends.
pub const UNREADABLE_REPLIES_MAX: u32 = 4;
/// Longest run of a shell command that names no time-out itself, in milliseconds (typescript-api.md §4).
pub const BASH_TIMEOUT_MS: u64 = 120_000;
/// Longest time-out that a shell command can be given, in milliseconds.
pub const BASH_TIMEOUT_MS_MAX: u64 = 3_600_000;
/// Longest shell command in bytes: the kernel takes 128 KiB for one argument.
pub const BASH_COMMAND_BYTES_MAX: usize = 120_000;
/// Output of a started program that is kept, in bytes (typescript-api.md §4).
pub const PROCESS_OUTPUT_BYTES_MAX: usize = 50_000;
/// Largest whole output of a command that is kept in a file, in bytes; of a longer one, the first.
pub const KEPT_OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Such outputs of one server or one registry, in bytes; the oldest go first.
pub const KEPT_OUTPUTS_BYTES_MAX: u64 = 512 << 20;
/// Newest bytes of a running command's output that one event shows.
pub const LIVE_OUTPUT_BYTES_MAX: usize = 4 << 10;
/// Variables that a shell command is given or leaves behind for the next ones, in bytes of names and values.
pub const SHELL_ENVIRONMENT_BYTES_MAX: usize = 64 << 10;
/// Output of a program that goes on, since it was read last, in bytes (capabilities C7).
pub const CONSOLE_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Programs of one session that go on beside each other, those that have ended and wait to be read among them.
pub const CONSOLES_MAX: usize = 64;
/// Those looked at last, which are not ended to make room.
pub const CONSOLES_SPARED: usize = 8;
/// Programs of one session that have gone, of which is known what became of them.
pub const CONSOLES_REMEMBERED_MAX: usize = 256;
/// Longest wait for the end of a program that is being killed, in milliseconds.
pub const CONSOLE_END_MS_MAX: u64 = 4_000;
/// Shortest and longest wait of one call for a program that goes on, and the usual one, in milliseconds.
pub const YIELD_MS_MIN: u64 = 250;
/// See [`YIELD_MS_MIN`].
pub const YIELD_MS_MAX: u64 = 30_000;
/// See [`YIELD_MS_MIN`]: of a call that starts one.
pub const YIELD_MS: u64 = 10_000;
/// Shortest wait of a call that only looks at a program.
pub const YIELD_LOOK_MS_MIN: u64 = 5_000;
/// Tokens of a program's output that one call shows, when nobody says.
pub const YIELD_OUTPUT_TOKENS: usize = 10_000;
/// Text that one call types, in bytes.
pub const TYPED_BYTES_MAX: usize = 64 << 10;
/// Longest run of a git command that stays on this machine, in milliseconds.
pub const GIT_TIMEOUT_MS: u64 = 60_000;
/// Longest list of the names in a repository's configuration, in bytes.
pub const GIT_CONFIG_BYTES_MAX: usize = 4 << 20;
/// Longest run of a git command that talks to a remote, in milliseconds.
pub const GIT_REMOTE_TIMEOUT_MS: u64 = 300_000;
/// Longest event of a model's stream, in bytes.
pub const MODEL_EVENT_BYTES_MAX: usize = 8 << 20;
/// Largest reply of a model, in bytes: text, reasoning and arguments together.
pub const MODEL_REPLY_BYTES_MAX: usize = 32 << 20;
/// Levels of arrays and objects in the arguments of a model's call: a log with more in it could not be read again.
pub const CALL_LEVELS_MAX: usize = 100;
/// Requests of one provider side by side, at most.
pub const PROVIDER_CONCURRENCY_MAX: usize = 1_000_000;
/// Requests of one provider begun in a minute, at most.
pub const PROVIDER_PER_MINUTE_MAX: u32 = 1_000_000;
/// How long models on this machine are looked for.
pub const LOCAL_MODELS_WAIT_MS: u64 = 300;
/// How long it is known which there are.
pub const LOCAL_MODELS_KNOWN_MS: u64 = 5_000;
/// Models of one server on this machine.
pub const LOCAL_MODELS_MAX: usize = 200;
/// Largest file that a model's key stands in.
pub const KEY_FILE_BYTES_MAX: u64 = 64 << 10;
/// Largest recording of models' answers that is replayed.
pub const TAPE_BYTES_MAX: u64 = 1 << 30;
/// How long a server that stops waits for commands whose effect is there and whose outcome is not stored yet.
pub const COMMANDS_SETTLE_MS: u64 = 1_000;
/// Models that are asked, one behind the other, when that of a session cannot be used.
pub const FALLBACKS_MAX: usize = 16;
/// Directories in which a session may work beside its own.
pub const DIRECTORIES_MAX: usize = 32;
/// Bytes of a schema that an answer is held to.
pub const OUTPUT_SCHEMA_BYTES_MAX: usize = 32 << 10;
/// Entries of the list of tools that a session is given.
pub const TOOL_ENTRIES_MAX: usize = 1_000;
/// Longest title in characters (capabilities A5).
pub const TITLE_CHARS_MAX: usize = 256;
/// Longest reason or message that a client gives, in bytes.
pub const REASON_BYTES_MAX: usize = 10_000;
/// Longest instructions of a session in bytes.
pub const INSTRUCTIONS_BYTES_MAX: usize = 200_000;
/// Largest file that is edited, or compared for a preview, in bytes.
pub const EDIT_FILE_BYTES_MAX: u64 = 10 << 20;
/// Edits of one file in one call.
pub const EDITS_MAX: usize = 1_000;
/// Longest patch in bytes.
pub const PATCH_BYTES_MAX: usize = 4 << 20;
/// Most files that one patch touches.
pub const PATCH_FILES_MAX: usize = 1_000;
/// All files together that one patch reads, in bytes.
pub const PATCH_READ_BYTES_MAX: u64 = 64 << 20;
/// Longest diff in a preview, in bytes.
pub const DIFF_BYTES_MAX: usize = 64 * 1024;
/// Largest image that a tool hands on, in bytes of its file. In base64 it is as large as a prompt may be.
pub const IMAGE_BYTES_MAX: u64 = 1_500_000;
/// Most pixels at either side of an image that a tool hands on: providers refuse more.
pub const IMAGE_SIDE_PIXELS_MAX: u32 = 8_000;
/// Images that one call hands on, in bytes of base64.
pub const CALL_IMAGES_BYTES_MAX: usize = 2_000_000;
/// Images of tools that a conversation keeps, the newest ones, in bytes of base64.
pub const IMAGES_BYTES_MAX: usize = 8_000_000;
/// Files of which a session remembers that it read them; those read longest ago go first.
pub const FILE_MARKS_MAX: usize = 2_000;
/// Resting sessions of which is remembered what their tools knew.
pub const RESTING_SCOPES_MAX: usize = 200;
/// Resting sessions whose programs go on; of one that has rested longest they end when there are more.
pub const RESTING_PROGRAM_SCOPES_MAX: usize = 1_000;
/// Largest PDF or notebook of which text is made, in bytes.
pub const CONVERTED_FILE_BYTES_MAX: u64 = 32 << 20;
/// What one stream of a PDF may inflate to, in bytes.
pub const PDF_STREAM_BYTES_MAX: usize = 64 << 20;
/// What a page of a PDF may inflate to, in bytes.
pub const PDF_PAGE_BYTES_MAX: usize = 8 << 20;
/// Pages of a PDF that are known.
pub const PDF_PAGES_MAX: usize = 20_000;
/// How long pages of a PDF are read before the rest is left for another call.
pub const PDF_READ_MS_MAX: u64 = 20_000;
/// Bytes of a notebook's output that are shown.
pub const NOTEBOOK_OUTPUT_BYTES_MAX: usize = 20_000;
/// Lines that one read shows, when the caller does not say.
pub const READ_LINES: usize = 2_000;
/// Bytes of one line that a read shows.
pub const READ_LINE_BYTES_MAX: usize = 8_000;
/// Text that one listing of the file tools shows, in UTF-16 units. Below [`OUTPUT_CHARS_MAX`], so that what
/// is said at its end arrives.
pub const FILE_OUTPUT_CHARS_MAX: usize = 48_000;
/// Rest of a file that is gone through only to count its lines, in bytes: a matter of a millisecond.
pub const READ_AHEAD_BYTES_MAX: u64 = 4 << 20;
/// Files that one glob names.
pub const GLOB_FILES_MAX: usize = 1_000;
/// Matches that one grep shows.
pub const GREP_MATCHES_MAX: usize = 1_000;
/// Bytes of a line that a grep shows.
pub const GREP_LINE_BYTES_MAX: usize = 500;
/// Memory that a regular expression may take, in bytes.
pub const REGEX_BYTES_MAX: usize = 10 << 20;
/// Longest line that a grep can hold, in bytes, and largest file that it searches across lines; others are told.
pub const GREP_HEAP_BYTES_MAX: usize = 32 << 20;
/// Matches that a page of a grep, or files that a page of a glob, can leave out before it begins.
pub const SEARCH_OFFSET_MAX: usize = 100_000;
/// Directories whose small files' contents are kept between searches.
pub const SEARCH_SHELVES_MAX: usize = 4_096;
/// Bytes that all of them hold.
pub const SEARCH_SHELVES_BYTES_MAX: usize = 16 << 20;
/// Largest file that is kept, in bytes.
pub const SEARCH_SHELF_FILE_BYTES_MAX: u64 = 64 << 10;
/// A directory that was not searched for as long is let go, in milliseconds.
pub const SEARCH_SHELF_IDLE_MS: u64 = 120_000;
/// What the last change of a file that is kept must lie back, in milliseconds: more than the 35 seconds after which Linux
/// by its defaults has written a changed page, and notes the next change of it.
pub const SEARCH_SETTLED_MS: u64 = 60_000;
/// Longest search, in milliseconds; what was found until then is told.
pub const SEARCH_TIME_MS: u64 = 30_000;
/// Longest look at a project's files for a person, who types on meanwhile, in milliseconds.
pub const FILES_TIME_MS: u64 = 2_000;
/// Files that one such look tells, when the caller does not say.
pub const FILES_TOLD: usize = 200;
/// Files that one such look tells at most.
pub const FILES_TOLD_MAX: usize = 10_000;
/// Letters by which a file is looked for, in bytes.
pub const FILES_QUERY_BYTES_MAX: usize = 1_000;
/// Threads of one search.
pub const SEARCH_THREADS_MAX: usize = 8;
/// Places of which the tools are kept between turns, each with what sessions there may use.
pub const FITTED_MAX: usize = 64;
/// Names that are read of one directory.
pub const DIRECTORY_ENTRIES_MAX: usize = 1_000_000;
/// Ignore files whose compiled patterns are remembered.
pub const IGNORE_COMPILED_MAX: usize = 64;
/// Bytes of the texts of these.
pub const IGNORE_COMPILED_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read of one ignore file.
pub const IGNORE_FILE_BYTES_MAX: u64 = 256 << 10;
/// Longest regular expression in bytes.
pub const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Longest glob in bytes.
pub const GLOB_BYTES_MAX: usize = 4096;
/// Alternatives of a glob that are looked for one by one.
pub const GLOB_ALTERNATIVES_MAX: usize = 32;
/// Entries that one listing of a directory names.
pub const LIST_ENTRIES_MAX: usize = 2_000;
/// Levels that a listing of a directory goes down.
pub const LIST_DEPTH_MAX: usize = 32;
/// How long an aborted turn may take to stop before it is cut off (contract.md, Turn control 3).
pub const TURN_STOP_GRACE_MS: u64 = 10_000;
/// How long an interrupted turn may take to its next boundary before it is cut off there where it is (contract.md, Turn control 3).
pub const INTERRUPT_GRACE_MS: u64 = 10_000;
/// How long an interrupted turn that was cut off may take to stop before it is given up.
pub const TURN_CUT_GRACE_MS: u64 = 5_000;
/// The longest that may be set for an interrupted turn to stop in order: it is cut off before its command's own time is over.
pub const INTERRUPT_GRACE_MS_MAX: u64 = COMMAND_TIMEOUT_MS - TURN_CUT_GRACE_MS - 1_000;
/// The text of a prompt that a turn's record shows, in bytes.
pub const TURN_PROMPT_BYTES_MAX: usize = 4_000;
/// Rest after which the program of an ACP agent or an MCP server that nobody uses is ended, until it is needed again.
pub const AGENT_IDLE_MS: u64 = 600_000;
/// Rest after which a session that nobody uses is no longer kept in memory.
pub const SESSION_IDLE_MS: u64 = 30_000;
/// Longest wait for the lock of a data directory whose holder was killed, while a program that it was starting holds a copy.
pub const LEFT_LOCK_WAIT_MS: u64 = 3_000;
/// Pause before what could not be written is tried again.
pub const STORE_RETRY_MS: u64 = 1_000;
/// Answered permission requests of a session that are remembered, to tell a late answer from a wrong one.
pub const SETTLED_REQUESTS_MAX: usize = 500;
/// `allow_always` answers that a session keeps; the oldest go first.
pub const GRANTS_MAX: usize = 1_000;
/// Longest name of an MCP server in characters.
pub const MCP_SERVER_NAME_CHARS_MAX: usize = 64;
/// MCP servers that belong to one session.
pub const MCP_SERVERS_OF_SESSION_MAX: usize = 32;
/// Sessions that have MCP servers of their own.
pub const MCP_SESSIONS_WITH_SERVERS_MAX: usize = 1_000;
/// Longest start of an MCP server, in milliseconds: process or connection, negotiation and list of tools together.
/// Long, because a package runner may have to install it first.
pub const MCP_CONNECT_TIMEOUT_MS: u64 = 30_000;
/// How long a turn waits for MCP servers that are still starting.
pub const MCP_TURN_WAIT_MS: u64 = 10_000;
/// Pause before an MCP server that failed is tried again; doubles with each failure.
pub const MCP_RETRY_MS: u64 = 500;
/// The longest such pause.
pub const MCP_RETRY_MS_MAX: u64 = 60_000;
/// An MCP server that ran for this long and ends has not failed before.
pub const MCP_STABLE_MS: u64 = 60_000;
/// How long an MCP server has to go by itself once its input is closed.
pub const MCP_STOP_GRACE_MS: u64 = 1_000;
/// Longest answer of an MCP server to a question whether it is still there.
pub const MCP_PING_TIMEOUT_MS: u64 = 5_000;
/// How often a request is made that an MCP server ends with questions of its own.
pub const MCP_ROUNDS_MAX: usize = 32;
/// Questions that an MCP server may end a request with.
pub const MCP_QUESTIONS_MAX: usize = 16;
/// Longest message of an MCP server, in bytes.
pub const MCP_MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Answers of models that an MCP server may have for one call.
pub const MCP_SAMPLES_OF_CALL_MAX: usize = 32;
/// What an MCP server may ask a model at once, in bytes of JSON.
pub const MCP_SAMPLE_BYTES_MAX: usize = 4 << 20;
/// Tokens of an answer that an MCP server has of a model.
pub const MCP_SAMPLE_TOKENS_MAX: u32 = 16_384;
/// Log messages of an MCP server in ten seconds that go into our log.
pub const MCP_LOG_MESSAGES_MAX: usize = 200;
/// Largest `.mcp.json` of a project, in bytes.
pub const MCP_PROJECT_FILE_BYTES_MAX: u64 = 256 << 10;
/// Projects whose MCP servers run.
pub const MCP_PROJECTS_MAX: usize = 64;
/// A login at an MCP server as it is kept, in bytes.
pub const MCP_LOGIN_BYTES_MAX: u64 = 256 << 10;
/// What is read of an answer on the way to a login, in bytes.
pub const MCP_LOGIN_ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long a person has to log in with the browser.
pub const MCP_LOGIN_WAIT_MS: u64 = 600_000;
/// Resources of an MCP server that a program is subscribed to.
pub const MCP_SUBSCRIPTIONS_MAX: usize = 1_000;
/// Definitions of tools of MCP servers that a model is told one by one, in bytes; with more it is told how to find them.
pub const MCP_TOLD_BYTES_MAX: usize = 16 << 10;
/// What a model is told at once of servers and tools that are not told one by one, in bytes.
pub const DEFERRED_INDEX_BYTES: usize = 900;
/// Tools that a search for them shows whole.
pub const DEFERRED_FOUND_MAX: usize = 8;
/// The same in bytes.
pub const DEFERRED_FOUND_BYTES: usize = 16 << 10;
/// Of a tool's description in it, in bytes.
pub const DEFERRED_DESCRIPTION_BYTES: usize = 1_500;
/// Names of tools that a search for them tells of, in bytes.
pub const DEFERRED_NAMES_BYTES: usize = 4 << 10;
/// Tools that are taken from one MCP server.
pub const MCP_TOOLS_MAX: usize = 1_000;
/// Pages of one list of an MCP server.
pub const MCP_PAGES_MAX: usize = 100;
/// Longest name of a tool of an MCP server, in characters.
pub const MCP_TOOL_NAME_CHARS_MAX: usize = 128;
/// Longest description of a tool of an MCP server, in characters; the rest is cut.
pub const MCP_DESCRIPTION_CHARS_MAX: usize = 8_000;
/// Largest JSON Schema of a tool of an MCP server, in bytes of JSON.
pub const MCP_SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Largest structured content of a call that is kept for programs, in bytes of JSON.
pub const MCP_STRUCTURED_BYTES_MAX: usize = 64 << 10;
/// Last words of an MCP server on its error stream that go into an error, in bytes.
pub const MCP_LAST_WORDS_BYTES_MAX: usize = 600;
/// Texts that are sent to an embedding model at once.
pub const EMBEDDING_BATCH_MAX: usize = 64;
/// Numbers of one vector.
pub const EMBEDDING_DIMENSIONS_MAX: usize = 8_192;
/// Largest answer of an embedding model, in bytes.
pub const EMBEDDING_REPLY_BYTES_MAX: usize = 32 << 20;
/// Longest wait for an embedding model: a search then goes on without it.
pub const EMBEDDING_TIMEOUT_MS: u64 = 20_000;
/// Contents of files that are kept for undoing, in bytes, when nobody says; whole turns go first that are the oldest.
pub const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;
/// Largest file whose content is kept for undoing when one of our tools changes it, in bytes.
pub const SNAPSHOT_FILE_BYTES_MAX: u64 = 64 << 20;
/// Largest file whose content is kept in case a command changes it, in bytes.
pub const SNAPSHOT_COMMAND_FILE_BYTES_MAX: u64 = 1 << 20;
/// All contents that one session keeps in case a command changes them, in bytes.
pub const SNAPSHOT_TREE_BYTES_MAX: u64 = 64 << 20;
/// Names in the working directories of a session in which a command's changes are looked for.
pub const SNAPSHOT_TREE_ENTRIES_MAX: usize = 20_000;
/// Sessions whose working directories are known between their commands.
pub const SNAPSHOT_TREES_MAX: usize = 16;
/// Longest look at the working directories before or after a command, in milliseconds.
pub const SNAPSHOT_LOOK_MS_MAX: u64 = 2_000;
/// Names that are recorded of what one call of our tools moves or deletes.
pub const SNAPSHOT_CALL_ENTRIES_MAX: usize = 5_000;
/// Contents that are kept of what one call does, commands included, in bytes.
pub const SNAPSHOT_CALL_BYTES_MAX: u64 = 256 << 20;
/// Paths of a turn that are named as not recorded.
pub const UNCOVERED_MAX: usize = 20;
/// Files that one report of changes names (capabilities B11).
pub const CHANGED_FILES_MAX: usize = 20;
/// Diffs of one report of changes, in bytes (capabilities B11).
pub const CHANGES_DIFF_BYTES_MAX: usize = 12_000;
/// The diff of a single file that is asked for, in bytes.
pub const CHANGE_DIFF_BYTES_MAX: usize = 1 << 20;
/// Turns that a report of changes lists, the newest ones.
pub const CHANGED_TURNS_MAX: usize = 100;
