//! Requests of 2026-07-28 through the bridge: each is a request of HTTP by itself, with the headers that repeat what it says.
//!
//! Nothing is kept of one for the next, but which arguments a tool's schema wants repeated: a client at a pipe need not know.
//! Who listens goes on listening over a restart of the server, and hears then that all may be another.
//!
//! Invariants: a request has one answer, the server's or an error that says why there is none; one that is taken back ends its
//! request of HTTP, and says no more; a call that may have been done is not sent again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::line::{Lost, Messages, Pauses, Posted};
use super::{Bridge, NO_ANSWER};
use crate::base::http::Answer;
use crate::server::mcp::modern::{self, HEADER_MISMATCH, SUBSCRIPTION};
use crate::server::mcp::wire::{self, INTERNAL, INVALID_REQUEST, Request, RpcError};

/// Pages of tools that are read to know which arguments to repeat.
const PAGES_MAX: usize = 50;
/// Tools that are kept of those that want something repeated.
const REPEATED_MAX: usize = 1_000;
const LISTEN: &str = "subscriptions/listen";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The requests that are on their way.
#[derive(Default)]
pub(super) struct Alone {
    /// By their ids as text; the token takes one back.
    open: Mutex<HashMap<String, (Value, CancellationToken)>>,
    /// Of tools that want some arguments repeated in headers: those, with the headers' names.
    repeated: Mutex<HashMap<String, Vec<(String, String)>>>,
}

impl Alone {
    /// False: one of that id is worked on.
    fn admit(&self, id: &Value, taken: &CancellationToken) -> bool {
        let mut open = self.open.lock();
        let is_new = !open.contains_key(&id.to_string());
        if is_new {
            open.insert(id.to_string(), (id.clone(), taken.clone()));
        }
        is_new
    }

    /// Takes a request back. False: there is none of that id.
    pub(super) fn take_back(&self, id: &str) -> bool {
        let found = self.open.lock().remove(id);
        found.inspect(|(_, taken)| taken.cancel()).is_some()
    }

    /// Takes back all that there are, and gives their ids.
    pub(super) fn give_up(&self) -> Vec<Value> {
        let open = std::mem::take(&mut *self.open.lock());
        open.into_values().map(|(id, taken)| (id, taken.cancel()).0).collect()
    }

    fn headers(&self, request: &Request) -> Vec<(String, String)> {
        let mut headers = modern::headers(request);
        if request.method == "tools/call"
            && let Some(name) = request.params.get("name").and_then(Value::as_str)
            && let Some(repeated) = self.repeated.lock().get(name)
        {
            let all = repeated.iter();
            headers.extend(all.filter_map(|(argument, name)| Some((name.clone(), modern::repeat(request, argument)?))));
        }
        headers
    }

    /// Notes what the tools of a list want repeated.
    fn note(&self, tools: &Value) {
        for tool in tools.as_array().into_iter().flatten() {
            let Some(name) = tool["name"].as_str() else { continue };
            let repeated = modern::repeated(&tool["inputSchema"]);
            let mut known = self.repeated.lock();
            known.remove(name);
            if !repeated.is_empty() && known.len() < REPEATED_MAX {
                known.insert(name.to_owned(), repeated);
            }
        }
    }
}

impl Bridge {
    /// Hands a request on, beside the rest.
    pub(super) async fn begin_alone(self: &Arc<Self>, request: Request, text: Vec<u8>) {
        let taken = CancellationToken::new();
        if !self.alone.admit(&request.id, &taken) {
            let error = RpcError::new(INVALID_REQUEST, format!("`id`: {} is worked on already", request.id));
            return self.refuse(&request.id, error).await;
        }
        let bridge = Arc::clone(self);
        self.work.spawn(async move {
            let id = request.id.clone();
            let outcome = tokio::select! {
                biased;
                () = taken.cancelled() => return,
                outcome = bridge.alone(&request, text) => outcome,
            };
            let was_open = bridge.alone.open.lock().remove(&id.to_string()).is_some();
            if let Some(error) = outcome.err().filter(|_| was_open) {
                bridge.refuse(&id, error).await;
            }
        });
    }

    async fn alone(&self, request: &Request, text: Vec<u8>) -> Result<(), RpcError> {
        if request.method == LISTEN {
            return tokio::select! {
                biased;
                // Nobody takes anything back any more, nor wants to hear.
                () = self.silent.cancelled() => {
                    drop(self.said.send(modern::over(&request.id)).await);
                    Ok(())
                }
                outcome = self.listen_alone(request, text) => outcome,
            };
        }
        let answer = self.post_alone(request, text).await?;
        let mut news = Messages::of(answer).await.map_err(|lost| self.said_of(lost))?;
        while let Some(message) = news.next().await.map_err(|lost| self.said_of(lost))? {
            if self.pass(request, message).await {
                return Ok(());
            }
        }
        Err(RpcError::new(INTERNAL, NO_ANSWER))
    }

    /// Sends a request; where its headers lack what the tool wants repeated, that is asked for.
    async fn post_alone(&self, request: &Request, text: Vec<u8>) -> Result<Answer, RpcError> {
        let again = request.method != "tools/call";
        let posted = |bridge: &Self| Posted::alone(text.clone(), again, bridge.alone.headers(request));
        let refused = match self.server.post(&posted(self)).await {
            Err(Lost::Said(error)) if error.code == HEADER_MISMATCH && !again => error,
            done => return done.map_err(|lost| self.said_of(lost)),
        };
        if !self.learn(request).await {
            return Err(refused);
        }
        self.server.post(&posted(self)).await.map_err(|lost| self.said_of(lost))
    }

    /// Asks what the tools want repeated. False: that is not to be known.
    async fn learn(&self, request: &Request) -> bool {
        let mut params = Map::new();
        let mut meta = request.params.get("_meta").cloned().unwrap_or_default();
        meta.as_object_mut().map(|meta| meta.remove("progressToken"));
        params.insert("_meta".to_owned(), meta);
        for _ in 0..PAGES_MAX {
            let list = Request { id: "simse-tools".into(), method: "tools/list".to_owned(), params: params.clone() };
            let body = json!({ "jsonrpc": "2.0", "id": list.id, "method": list.method, "params": list.params });
            let posted = Posted::alone(body.to_string(), true, modern::headers(&list));
            let Ok(answer) = self.server.post(&posted).await else { return false };
            let Ok(mut news) = Messages::of(answer).await else { return false };
            let result = loop {
                match news.next().await {
                    Ok(Some(mut message)) if message["id"] == list.id => break message["result"].take(),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return false,
                }
            };
            self.alone.note(&result["tools"]);
            match result.get("nextCursor") {
                Some(cursor) => drop(params.insert("cursor".to_owned(), cursor.clone())),
                None => return true,
            }
        }
        true
    }

    /// Hands on what is heard, until the server says that this is all; a line that breaks is opened again.
    async fn listen_alone(&self, request: &Request, text: Vec<u8>) -> Result<(), RpcError> {
        let (mut given, mut pauses) = (None, Pauses::default());
        loop {
            let answer = self.post_alone(request, text.clone()).await?;
            let mut news = Messages::of(answer).await.map_err(|lost| self.said_of(lost))?;
            loop {
                let mut message = match news.next().await {
                    Ok(Some(message)) => message,
                    // The server has gone without a word: it is looked for again.
                    Ok(None) | Err(_) => break,
                };
                if message["method"] == ACKNOWLEDGED {
                    pauses = Pauses::default();
                    let told = message["params"]["notifications"].take();
                    if given.is_some() {
                        self.tell_of_all(&request.id, &told).await;
                        continue;
                    }
                    message["params"]["notifications"] = told.clone();
                    given = Some(told);
                }
                if self.pass(request, message).await {
                    return Ok(());
                }
            }
            pauses.wait().await;
        }
    }

    /// Of a server that was started anew all may be another.
    async fn tell_of_all(&self, id: &Value, given: &Value) {
        let lists = [("toolsListChanged", "tools"), ("resourcesListChanged", "resources")];
        let lists = lists.into_iter().filter(|(asked, _)| given[*asked] == true);
        let lists = lists.map(|(_, what)| (format!("notifications/{what}/list_changed"), json!({})));
        let read = given["resourceSubscriptions"].as_array().into_iter().flatten();
        let read = read.map(|uri| ("notifications/resources/updated".to_owned(), json!({ "uri": uri })));
        for (method, mut params) in lists.chain(read) {
            params["_meta"][SUBSCRIPTION] = id.clone();
            drop(self.said.send(wire::notification(&method, &params)).await);
        }
    }

    /// Hands on what an answer has. True: it was the last.
    async fn pass(&self, request: &Request, message: Value) -> bool {
        let is_named = message.get("method").is_some();
        let is_last = !is_named && message["id"] == request.id;
        if !is_last && (!is_named || message.get("id").is_some()) {
            tracing::debug!(method = request.method, "the server says what does not belong to this request");
            return false;
        }
        if request.method == "tools/list" && is_last {
            self.alone.note(&message["result"]["tools"]);
        }
        drop(self.said.send(message.to_string()).await);
        is_last
    }

    /// Why there is no answer, for the client.
    fn said_of(&self, lost: Lost) -> RpcError {
        match lost {
            Lost::Said(error) => error,
            lost => self.unreachable(&lost).into(),
        }
    }
}
