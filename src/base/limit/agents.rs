//! The limits of external agents, and of sessions under others.

/// Longest name of an ACP server in characters.
pub const ACP_SERVER_NAME_CHARS_MAX: usize = 64;
/// Longest wait for an ACP agent's answer to a request that is no prompt (typescript-api.md §1).
pub const ACP_TIMEOUT_MS: u64 = 30_000;
/// Longest message of an ACP agent, in bytes: what its protocol allows.
pub const ACP_LINE_BYTES_MAX: usize = 32 << 20;
/// How long an ACP agent may take to stop a turn. Below [`TURN_STOP_GRACE_MS`](super::TURN_STOP_GRACE_MS), so that it ends in order.
pub const ACP_CANCEL_GRACE_MS: u64 = 4_000;
/// How long an ACP agent's program may take to end by itself once its input has ended.
pub const ACP_EXIT_GRACE_MS: u64 = 2_000;
/// Messages that may wait to be read by an ACP agent.
pub const ACP_UNREAD_MAX: usize = 10_000;
/// Bytes of these.
pub const ACP_UNREAD_BYTES_MAX: usize = 64 << 20;
/// Sessions that one ACP agent's program is asked to keep open.
pub const ACP_SESSIONS_MAX: usize = 1_000;
/// Text, arguments and outputs of one turn of an ACP agent, in bytes.
pub const ACP_TURN_BYTES_MAX: usize = 64 << 20;
/// The end of an ACP agent's error stream that is kept for error messages, in bytes.
pub const ACP_STDERR_BYTES_MAX: usize = 4_096;
/// Details of an ACP agent's error that are shown, in bytes.
pub const ACP_ERROR_BYTES_MAX: usize = 1_000;
/// Options of an agent's session, and how many of them can be chosen.
pub const AGENT_OPTIONS_MAX: usize = 64;
/// Longest id and value of a chosen option, in bytes.
pub const AGENT_OPTION_BYTES_MAX: usize = 1_000;
/// Values of one option.
pub const AGENT_VALUES_MAX: usize = 500;
/// Commands of an agent.
pub const AGENT_COMMANDS_MAX: usize = 500;
/// Steps of an agent's plan.
pub const AGENT_PLAN_ENTRIES_MAX: usize = 200;
/// Longest name, description or step that an agent says, in bytes.
pub const AGENT_WORD_BYTES_MAX: usize = 2_000;
/// Longest text of a plan or a summary that an agent says, in bytes.
pub const AGENT_TEXT_BYTES_MAX: usize = 100_000;
/// Terminals that a turn of an agent may have open.
pub const AGENT_TERMINALS_MAX: usize = 32;
/// Output of an agent's terminal that is kept, where the agent wants no less; its end, in bytes.
pub const AGENT_TERMINAL_BYTES_MAX: usize = 1 << 20;
/// Largest file that is read for an agent, in bytes.
pub const EXACT_READ_BYTES_MAX: u64 = 10 << 20;
/// Calls of our tools that an ACP agent's tool client has under way at once.
pub const ACP_TOOL_CALLS_MAX: usize = 32;
/// Tool clients of one ACP agent's program that are joined to us at once: an agent may start several for a session.
pub const ACP_TOOL_CLIENTS_MAX: usize = 256;
/// How long such a client may take to say which session it is for.
pub const ACP_TOOL_CLIENT_GREETING_MS: u64 = 10_000;
/// Pause between two signs of life of a call that runs on, for clients that would give it up.
pub const ACP_TOOL_PROGRESS_MS: u64 = 10_000;
/// Runs of sub-agents that are under way at once under one session above all, at each depth; more wait.
pub const SUBAGENTS_RUNNING_MAX: usize = 10;
/// Runs of sub-agents that are under way or wait under one session above all; one more is refused.
pub const SUBAGENTS_MAX: usize = 100;
/// Runs of sub-agents that are under way at once in the whole server, at each depth; more wait.
pub const SUBAGENTS_OF_SERVER_MAX: usize = 1_000;
/// How deep sessions spawn others: at 1 sub-agents spawn none; at 0 nobody does.
pub const SUBAGENT_DEPTH: usize = 1;
/// The deepest that can be set.
pub const SUBAGENT_DEPTH_MAX: usize = 8;
/// Longest task or message for a sub-agent, in bytes.
pub const SUBAGENT_TASK_BYTES_MAX: usize = 200_000;
/// Longest name of a sub-agent, in characters.
pub const SUBAGENT_NAME_CHARS_MAX: usize = 64;
/// Shortest and longest wait of one call for sub-agents, and the usual one.
pub const SUBAGENT_WAIT_MS_MIN: u64 = 10_000;
/// See [`SUBAGENT_WAIT_MS_MIN`].
pub const SUBAGENT_WAIT_MS_MAX: u64 = 300_000;
/// How often a call that waits for a sub-agent says that it goes on.
pub const SUBAGENT_BEAT_MS: u64 = 60_000;
/// Sub-agents that one call waits for.
pub const SUBAGENTS_WAITED_MAX: usize = 100;
/// Files that the end of a sub-agent with a working tree of its own names.
pub const MERGED_PATHS_MAX: usize = 50;
/// Longest patch of what a sub-agent did in a working tree of its own, in bytes.
pub const MERGE_BYTES_MAX: usize = 64 << 20;
/// Types of sub-agents that can be configured.
pub const AGENT_TYPES_MAX: usize = 64;
