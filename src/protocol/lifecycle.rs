//! The events that tell how sessions come and go, and that one of them waits for somebody: what a client sees of all
//! its sessions in one stream.

/// Types of the events of a session's log that are lifecycle events, and `session.deleted`, which no log has.
pub const LIFECYCLE_TYPES: &[&str] = &[
    "session.created",
    "session.forked",
    "session.prompt",
    "session.completed",
    "session.error",
    "session.deleted",
    "turn.queued",
    "turn.paused",
    "turn.resumed",
    "permission.request",
    "permission.response",
    "client.request",
    "client.response",
    "abort",
];

/// Those that servers before them left out of the stream over all sessions: where it was written then, it is without them.
pub const LATER_LIFECYCLE_TYPES: &[&str] = &["client.request", "client.response"];

/// The end of a session. It stands only in the stream over all sessions: the session's own log is gone.
pub const SESSION_DELETED: &str = "session.deleted";

/// Whether events of this type are lifecycle events.
pub fn is_lifecycle(kind: &str) -> bool {
    LIFECYCLE_TYPES.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::EVENT_TYPES;

    #[test]
    fn all_but_the_end_stand_in_logs() {
        for kind in LIFECYCLE_TYPES {
            assert_eq!(EVENT_TYPES.contains(kind), *kind != SESSION_DELETED, "{kind}");
        }
        assert!(!is_lifecycle("stream.delta"));
        assert!(LATER_LIFECYCLE_TYPES.iter().all(|kind| is_lifecycle(kind)));
    }
}
