//! What a model's context is made of.

/// Longest instruction file that is read whole, in bytes.
pub const INSTRUCTION_FILE_BYTES_MAX: usize = 64 << 10;
/// All instruction files of a turn together, in bytes.
pub const INSTRUCTION_FILES_BYTES_MAX: usize = 256 << 10;
/// Tokens of the newest tool outputs that pruning spares (typescript-api.md §7).
pub const PRUNE_PROTECTED_TOKENS: usize = 40_000;
/// Tokens that pruning must save to be done at all (typescript-api.md §7).
pub const PRUNE_MINIMUM_TOKENS: usize = 20_000;
/// Tokens that a wire writes around a message or a call, about.
pub const MESSAGE_TOKENS: u64 = 4;
/// Tokens of an image, about: a large one has so many with most providers.
pub const IMAGE_TOKENS: u64 = 1_500;
/// Shorter conversations are not counted: their length says enough, and no table need be unpacked.
pub const COUNTED_TOKENS_MIN: u64 = 16_000;
/// Tokens, about, that are counted at once: more is counted on the blocking pool.
pub const COUNTED_AT_ONCE_TOKENS: u64 = 50_000;
/// Files that instruction files of one look import, at most.
pub const IMPORTS_MAX: usize = 50;
/// How deep imports import.
pub const IMPORT_DEPTH_MAX: usize = 5;
/// Sets of instruction files that are kept for the next turn.
pub const INSTRUCTION_SETS_MAX: usize = 64;
/// Directories below the working directory that a session has looked for instruction files in, at most.
pub const GUIDED_DIRECTORIES_MAX: usize = 10_000;
/// Earlier conversation that an agent is told of which knows nothing of it, and what the user says now, in characters (E4).
pub const STATELESS_CHARS_MAX: usize = 20_000;
/// Earlier turns that it is told of (E4).
pub const STATELESS_TURNS_MAX: usize = 10;
/// Longest that a session keeps what it was told of its surroundings: the date, the branch. Nothing keeps a prompt's beginning longer.
pub const SURROUNDINGS_KEPT_MS: u64 = 86_400_000;
/// The same without a turn in between.
pub const SURROUNDINGS_IDLE_MS: u64 = 3_600_000;
/// Sessions whose surroundings are kept.
pub const SURROUNDINGS_MAX: usize = 1_000;
