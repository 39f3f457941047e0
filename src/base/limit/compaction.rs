//! Defaults of summing conversations up.

/// Bytes of a summary that stands in the place of a conversation.
pub const SUMMARY_BYTES_MAX: usize = 48 << 10;
/// Tokens of a window that is not known: few current models have a smaller one.
pub const CONTEXT_TOKENS_ASSUMED: u64 = 128_000;
/// Hundredths of its window that a conversation fills when it is made shorter.
pub const COMPACT_PERCENT: u32 = 85;
/// Tokens of the newest messages that stay when it is.
pub const COMPACT_KEPT_TOKENS: u64 = 20_000;
/// Tokens of what the user said before those that stay word for word.
pub const COMPACT_SAID_TOKENS: u64 = 8_000;
/// Files that are shown again after it.
pub const COMPACT_FILES_MAX: usize = 5;
/// Bytes of each of them.
pub const COMPACT_FILE_BYTES_MAX: usize = 16 << 10;
/// Bytes of all of them.
pub const COMPACT_FILES_BYTES_MAX: usize = 40 << 10;
/// Paths of each kind that a summary lists.
pub const COMPACT_PATHS_MAX: usize = 200;
/// Characters of what a summary is to keep above all.
pub const COMPACT_FOCUS_CHARS_MAX: usize = 4_000;
