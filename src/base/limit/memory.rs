//! Defaults of long-term memory.

/// Longest text that is remembered, in bytes.
pub const MEMORY_TEXT_BYTES_MAX: usize = 16 << 10;
/// Longest metadata of a remembered text, in bytes of JSON.
pub const MEMORY_METADATA_BYTES_MAX: usize = 4 << 10;
/// Texts that are remembered for one project.
pub const MEMORY_ENTRIES_MAX: usize = 100_000;
/// Texts that one call may hand in.
pub const MEMORY_BATCH_MAX: usize = 1_000;
/// Longest question to memory, in bytes.
pub const MEMORY_QUERY_BYTES_MAX: usize = 16 << 10;
/// Words of a question that count.
pub const MEMORY_QUERY_WORDS_MAX: usize = 64;
/// Answers that one search of memory gives (typescript-api.md §7: 1–100).
pub const MEMORY_RESULTS_MAX: usize = 100;
/// Answers that one search of memory gives, when nobody says.
pub const MEMORY_RESULTS: usize = 5;
/// Similarity from which on an answer counts, when nobody says.
pub const MEMORY_SIMILARITY: f64 = 0.3;
/// Longest time after which something is forgotten, in days: a hundred years.
pub const MEMORY_DAYS_MAX: u64 = 36_500;
/// Largest file of JSON of an embedding model in a directory.
pub const LOCAL_MODEL_JSON_BYTES_MAX: u64 = 128 << 20;
/// Largest file of vectors of an embedding model in a directory.
pub const LOCAL_MODEL_BYTES_MAX: u64 = 1 << 30;
/// Bytes of projects' words and coded vectors that are in memory for searching; a project that needs more is searched
/// in its file.
pub const MEMORY_INDEX_BYTES_MAX: usize = 256 << 20;
