//! simse as an MCP server: the host tools, sessions as tools and resources, over HTTP and over a pipe.
//!
//! What a client calls runs in a session of its own (`calls`), as a model's call would; here is nothing but the protocol. The
//! wire is our own (`docs/adr/0089`): rmcp stays the client's.
//!
//! Invariants: whoever speaks has come past the guard, or holds the pipe; all that is kept of a client has a bound, and goes with it.

mod bridge;
mod calls;
mod fixtures;
mod hello;
pub(super) mod http;
mod methods;
mod modern;
mod peer;
mod pipe;
mod questions;
mod resources;
mod roots;
mod sessions;
mod stream;
mod tools;
mod watch;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub use bridge::{Attachment, bridge_mcp};
pub use pipe::serve_mcp;

use self::hello::Hello;
use self::peer::Peer;
use crate::app::{App, Caller};
use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode, SessionId};

/// The clients that speak over HTTP.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// By the ids that they were told.
    open: Mutex<HashMap<String, Arc<Peer>>>,
    fixtures: bool,
}

impl Peers {
    /// None yet; with what the conformance suite looks for, or without.
    pub(super) fn new(fixtures: bool) -> Self {
        Self { open: Mutex::default(), fixtures }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// A session for a client that begins.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`.
    fn make(&self, app: &Arc<App>, (caller, bound): (&Caller, Option<SessionId>)) -> Result<Arc<Peer>, ApiError> {
        // Nobody guesses it; and who knew it would still have to be the same caller.
        let id = app.named_here(&format!("mcp_{}", uuid::Uuid::new_v4().simple()));
        self.admit(id, (app, caller), bound)
    }

    /// What is kept of the clients of requests that say all by themselves, and say the same of them; they hear so much.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`.
    fn stateless(
        &self,
        app: &Arc<App>,
        (caller, bound): (&Caller, Option<SessionId>),
        (hello, level): (&Hello, Option<usize>),
    ) -> Result<Arc<Peer>, ApiError> {
        // With a sign that no header has.
        let id = format!("\0{caller:?} {bound:?} {hello:?} {level:?}");
        let peer = self.admit(id, (app, caller), bound)?;
        // Said already, and the same.
        let _again = peer.greet(hello.clone());
        peer.set_level(level.unwrap_or(peer::LEVELS.len()));
        peer.touch();
        Ok(peer)
    }

    fn admit(
        &self,
        id: String,
        (app, caller): (&Arc<App>, &Caller),
        bound: Option<SessionId>,
    ) -> Result<Arc<Peer>, ApiError> {
        let mut open = self.open.lock();
        if let Some(peer) = open.get(&id) {
            return Ok(Arc::clone(peer));
        }
        if open.len() >= limit::MCP_SESSIONS_MAX {
            open.retain(|_, peer| {
                let idle = peer.is_idle();
                if idle {
                    peer.end();
                }
                !idle
            });
        }
        if open.len() >= limit::MCP_SESSIONS_MAX {
            let message = format!("{} MCP clients are connected already", limit::MCP_SESSIONS_MAX);
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        let peer = Peer::new(id.clone(), (Arc::clone(app), caller.clone()), (bound, self.fixtures));
        open.insert(id, Arc::clone(&peer));
        Ok(peer)
    }

    /// The session of that id, if it is this caller's, and its calls run where he says.
    fn find(&self, id: &str, (caller, bound): (&Caller, Option<&SessionId>)) -> Option<Arc<Peer>> {
        let is = |peer: &&Arc<Peer>| peer.caller == *caller && peer.bound.as_ref() == bound;
        self.open.lock().get(id).filter(is).cloned()
    }

    /// It has ended.
    fn remove(&self, peer: &Peer) {
        self.open.lock().remove(&peer.id);
        peer.end();
    }

    /// Nobody answers what they are asked any more.
    fn fall_silent(&self) {
        let open: Vec<Arc<Peer>> = self.open.lock().values().cloned().collect();
        open.iter().for_each(|peer| peer.fall_silent());
    }

    /// All of them have.
    pub(super) fn end(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        open.values().for_each(|peer| peer.end());
    }
}
