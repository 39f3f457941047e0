//! What a session in memory is about, for who counts and lists them.

/// What a session does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Doing {
    /// Nothing.
    #[default]
    Nothing,
    /// A turn runs.
    Runs,
    /// A turn waits for an answer.
    Waits,
    /// A turn is paused.
    Rests,
}
