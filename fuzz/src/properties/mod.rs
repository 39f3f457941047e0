//! What must hold for whatever input: one function a target, which panics where it does not.
//!
//! The fuzz targets call them with what the fuzzer thinks up; `tests/it/properties.rs` calls the same with the committed
//! corpora and with random bytes, so that `cargo test` replays every input that once broke something.

pub mod command;
pub mod compose;
pub mod edit;
pub mod glob;
pub mod patch;
pub mod path;
pub mod sse;

/// A property: it holds for these bytes, or panics.
pub type Property = fn(&[u8]);

/// All of them, by the names of their targets.
pub const ALL: [(&str, Property); 7] = [
    ("edit", edit::holds),
    ("patch", patch::holds),
    ("glob", glob::holds),
    ("command", command::holds),
    ("compose", compose::holds),
    ("path", path::holds),
    ("sse", sse::holds),
];
