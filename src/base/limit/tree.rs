//! The limits of what the sessions of a tree share.

/// Keys on the board of a tree.
pub const BOARD_KEYS_MAX: usize = 256;
/// Longest value on the board, as JSON, in bytes.
pub const BOARD_VALUE_BYTES_MAX: usize = 64 << 10;
/// All values on the board, in bytes.
pub const BOARD_BYTES_MAX: usize = 1 << 20;
/// Tasks on the list of a tree, as many as `createTaskList` keeps by itself.
pub const TASKS_MAX: usize = 100;
/// A task with all that belongs to it, as JSON, in bytes.
pub const TASK_BYTES_MAX: usize = 16 << 10;
/// Paths that the sessions of a tree hold.
pub const LOCKS_MAX: usize = 1_000;
/// How long who writes a path holds it, from its last write on.
pub const LOCK_MS: u64 = 300_000;
/// Longest time for which a path can be held.
pub const LOCK_MS_MAX: u64 = 1_800_000;
/// Paths in one call that holds some.
pub const LOCK_PATHS_MAX: usize = 100;
