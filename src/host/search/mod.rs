//! The engine of `fs_grep`, `fs_glob` and `fs_list`: a parallel walk by open handles, ignore rules, and filters.
//!
//! Faster than a general walker where it counts: ignore files are looked for in the listing that is read anyway,
//! each name is opened relative to its directory's handle, and nothing is allocated for a file that does not fit.
//!
//! Invariant: no walk leaves the directory that it began in. Every step is an `openat` that follows no link, so
//! neither a link nor a rename while walking can lead out.

mod choice;
mod content;
mod decoded;
mod entries;
mod lines;
mod listed;
mod order;
mod pattern;
mod rules;
mod shelf;
mod stop;
mod tally;
mod walk;

pub(super) use choice::{FileChoice, TypeChoice, alternatives, names_hidden};
pub(super) use content::{FileSearch, Outcome, Source};
pub(super) use entries::{Entries, Kind, as_path, join, open_below, open_file};
pub(super) use lines::{Count, Lines, Room};
pub(super) use order::by_path;
pub(super) use pattern::Pattern;
pub(super) use rules::{Rules, Verdict, prefix};
pub(super) use shelf::SHELVES;
pub use shelf::shelved;
pub(super) use stop::{Stop, Stopped, searching};
pub(super) use tally::{Found, Hit, Tally};
pub(super) use walk::{Place, Visit, Walk};
