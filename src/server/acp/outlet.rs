//! Where messages to a client go: all on one line, or to the streams of an HTTP connection.
//!
//! Invariant: who has something to say waits until there is room.

use std::sync::Arc;

use super::streams::Streams;
use crate::server::out::Out;

/// The way to a client.
#[derive(Debug, Clone)]
pub(super) enum Outlet {
    /// All on one line.
    Line(Out),
    /// What belongs to a session on its own stream.
    Streams(Arc<Streams>),
}

impl Outlet {
    /// Says something that belongs to a session, or to none. False: nobody takes anything any more.
    pub(super) async fn say(&self, session: Option<&str>, text: String) -> bool {
        match self {
            Self::Line(out) => out.say(text).await,
            Self::Streams(streams) => streams.say(session, text).await,
        }
    }

    /// Waits until what belongs to a session has gone out before anything that is on another way.
    pub(super) async fn settle(&self, session: &str) {
        match self {
            Self::Line(_) => {}
            Self::Streams(streams) => streams.taken(session).await,
        }
    }
}
