//! What a permission pattern is held against: the part of a call that says what it touches.

use std::path::PathBuf;

/// What a permission rule's `pattern` is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Nothing: a rule with a pattern (other than `*`) never matches.
    None,
    /// A shell command line; each simple command in it is judged alone.
    Command(String),
    /// Paths, as the caller gave them, and as they resolve (absolute).
    Paths(Vec<PathSubject>),
}

/// One path of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSubject {
    /// As given, such as `src/../a.txt`.
    pub given: String,
    /// As it resolves. None when it cannot be resolved (the tool will then fail by itself).
    pub resolved: Option<PathBuf>,
    /// The call changes whatever lies below it too: a directory that is moved or deleted.
    pub below: bool,
}
