//! Requests of 2026-07-28 over a pipe: without headers, side by side with those of older versions.
//!
//! Invariants: what a client says of itself is told apart as over HTTP; a request that is taken back says no more, and nothing is
//! kept of it; with the end of the input nobody listens any more, and what waits for an answer waits no longer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::exchange::Exchange;
use super::listen::Ear;
use super::said::{self, Said};
use super::{refuse_removed, told};
use crate::app::{App, Caller};
use crate::server::mcp::Peers;
use crate::server::mcp::peer::Peer;
use crate::server::mcp::stream::Stream;
use crate::server::mcp::wire::{self, INVALID_REQUEST, Request, RpcError};

/// Somebody who listens. Nobody else has this client: it ends with that.
struct Listening<'a> {
    peers: &'a Peers,
    peer: Arc<Peer>,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.peers.remove(&self.peer);
    }
}

/// The clients of a pipe that speak this version: one program, as a rule, which says the same of itself each time.
pub(in crate::server::mcp) struct Piped {
    app: Arc<App>,
    peers: Peers,
    /// By the ids of their requests.
    open: Mutex<HashMap<String, CancellationToken>>,
    listening: CancellationToken,
}

impl Piped {
    /// Nobody yet; with what the conformance suite looks for, or without.
    pub(in crate::server::mcp) fn new(app: &Arc<App>, fixtures: bool) -> Arc<Self> {
        let (open, listening) = (Mutex::default(), CancellationToken::new());
        Arc::new(Self { app: Arc::clone(app), peers: Peers::new(fixtures), open, listening })
    }

    /// Whether a request is one of this version, or of one that nobody knows.
    pub(in crate::server::mcp) fn is_meant(request: &Request) -> bool {
        said::names_version(request)
    }

    /// Answers a request, unless it is taken back.
    pub(in crate::server::mcp) async fn answer(self: Arc<Self>, request: Request, said: Arc<Stream>) {
        let (id, method) = (request.id.clone(), request.method.clone());
        let taken = CancellationToken::new();
        if !self.admit(&id.to_string(), &taken) {
            let error = RpcError::new(INVALID_REQUEST, format!("`id`: {id} is worked on already"));
            return said.say(wire::response(&id, &Err(error)));
        }
        let begun = tokio::select! {
            biased;
            () = taken.cancelled() => None,
            begun = self.work(request, &said) => Some(begun),
        };
        self.open.lock().remove(&id.to_string());
        match begun {
            Some(Err(error)) => said.say(wire::response(&id, &Err(told::error(error)))),
            Some(Ok(Some(result))) => said.say(wire::response(&id, &Ok(told::result(&method, result)))),
            Some(Ok(None)) | None => {}
        }
    }

    /// False: one of that id is worked on.
    fn admit(&self, id: &str, taken: &CancellationToken) -> bool {
        let mut open = self.open.lock();
        let is_new = !open.contains_key(id);
        if is_new {
            open.insert(id.to_owned(), taken.clone());
        }
        is_new
    }

    /// Works on a request. A result: what is to be said yet.
    async fn work(&self, request: Request, said: &Arc<Stream>) -> Result<Option<serde_json::Value>, RpcError> {
        let about = Said::read(&request)?;
        about.check_version()?;
        refuse_removed(&request)?;
        let caller = Caller::default();
        if request.method == "subscriptions/listen" {
            let peer = self.peers.make(&self.app, (&caller, None))?;
            let listening = Listening { peers: &self.peers, peer };
            let ear = Ear::open(&listening.peer, (&about, &request)).await?;
            self.listen(ear, said).await;
            return Ok(None);
        }
        let peer = self.peers.stateless(&self.app, (&caller, None), (&about.hello, about.level))?;
        if request.method == "server/discover" {
            return Ok(Some(told::discovered(&peer)));
        }
        Exchange::open(peer, request)?.tell(said).await;
        Ok(None)
    }

    async fn listen(&self, mut ear: Ear, said: &Arc<Stream>) {
        loop {
            let news = tokio::select! {
                biased;
                () = self.listening.cancelled() => None,
                news = ear.next() => news,
            };
            match news {
                Some(news) => said.say(news.to_string()),
                None => return said.say(ear.end().to_string()),
            }
        }
    }

    /// Takes a request back. False: there is none of that id.
    pub(in crate::server::mcp) fn take_back(&self, id: &str) -> bool {
        let found = self.open.lock().get(id).cloned();
        found.inspect(CancellationToken::cancel).is_some()
    }

    /// Nobody says anything more.
    pub(in crate::server::mcp) fn fall_silent(&self) {
        self.listening.cancel();
        self.peers.fall_silent();
    }

    /// All is over.
    pub(in crate::server::mcp) fn end(&self) {
        self.peers.end();
    }
}
