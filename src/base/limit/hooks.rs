//! Limits of hooks.

/// How long a handler of a program's own may work, where it says nothing else.
pub const HOOK_HANDLER_TIMEOUT_MS: u64 = 600_000;
/// How long a configured command may work, where it says nothing else.
pub const HOOK_COMMAND_TIMEOUT_MS: u64 = 60_000;
/// The longest that either can be given.
pub const HOOK_TIMEOUT_MS_MAX: u64 = 3_600_000;
/// Configured commands, at most.
pub const HOOK_COMMANDS_MAX: usize = 100;
/// Bytes of a command's line, at most.
pub const HOOK_COMMAND_BYTES_MAX: usize = 10_000;
/// Bytes that are kept of what a command writes, of each of its two streams.
pub const HOOK_OUTPUT_BYTES_MAX: usize = 1_000_000;
/// Bytes of all texts that hooks put beside one prompt, and of those with which they make a turn go on.
pub const HOOK_TEXTS_BYTES_MAX: usize = 100_000;
/// How often hooks can make one turn go on.
pub const HOOK_CONTINUES_MAX: u32 = 8;
/// Notices to hooks that wait, over all sessions.
pub const HOOK_NEWS_WAITING_MAX: usize = 1_000;
/// How long hooks are waited for that hear of something behind the work's back.
pub const HOOK_NEWS_TIMEOUT_MS: u64 = 60_000;
/// How long the end of the server waits for hooks that hear of the ends of its sessions.
pub const HOOK_END_WAIT_MS: u64 = 5_000;
/// Characters of an answer that a notification tells.
pub const HOOK_RESULT_CHARS_MAX: usize = 2_000;
