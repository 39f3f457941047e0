//! A whole server in the test's own process, driven by a model that does what the test says.

#![allow(dead_code, reason = "each user takes the parts that it needs")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use simse::app::{App, Extras};
use simse::config::Settings;
use simse::model::{Model, ModelError, ModelEvent, ModelRequest, ModelStream, StopReason};
use simse::protocol::{Message, Part, ToolCallRequest, Usage};
use simse::server::{ListenOptions, Server};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::http::{Reply, Stream, request};

/// What the model does next in a round.
#[derive(Debug, Clone)]
pub enum Does {
    /// Says something.
    Says(&'static str),
    /// Says something many times.
    Floods(&'static str, usize),
    /// Calls a tool.
    Calls(&'static str, Value),
    /// Waits until the test opens the gate once.
    Waits,
    /// Fails.
    Fails(&'static str),
    /// Takes so many tokens, which cost so many dollars.
    Takes(u64, f64),
}

/// A model whose rounds are told in advance; `done` when nothing is told.
pub struct Puppet {
    rounds: Mutex<VecDeque<Vec<Does>>>,
    gate: Arc<Semaphore>,
}

impl Model for Puppet {
    fn id(&self) -> &str {
        "test/puppet"
    }

    fn stream(&self, _request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let round = self.rounds.lock().pop_front().unwrap_or_else(|| vec![Does::Says("done")]);
        play(round, &self.gate, cancel)
    }
}

/// What a director is asked: what the user said last, and what has come of the calls since.
pub struct Ask {
    /// The user's last message.
    pub said: String,
    /// Results of tools behind it.
    pub results: Vec<String>,
}

/// What a director does about it.
pub type Directs = Arc<dyn Fn(&Ask) -> Vec<Does> + Send + Sync>;

/// A model that goes by what it is told: many sessions at once can each have their own part.
pub struct Director {
    directs: Directs,
    gate: Arc<Semaphore>,
}

impl Director {
    /// A director, and the gate at which its rounds wait.
    pub fn held(directs: impl Fn(&Ask) -> Vec<Does> + Send + Sync + 'static) -> (Arc<dyn Model>, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        (Arc::new(Self { directs: Arc::new(directs), gate: Arc::clone(&gate) }), gate)
    }
}

impl Model for Director {
    fn id(&self) -> &str {
        "test/director"
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let mut ask = Ask { said: String::new(), results: Vec::new() };
        for message in request.messages.iter() {
            match message {
                Message::User(parts) => {
                    let texts = parts.iter().filter_map(|part| match part {
                        Part::Text { text } => Some(text.as_str()),
                        Part::Image { .. } => None,
                    });
                    ask = Ask { said: texts.collect(), results: Vec::new() };
                }
                Message::ToolResult { output, .. } => ask.results.push(output.clone()),
                Message::Assistant { .. } => {}
            }
        }
        play((self.directs)(&ask), &self.gate, cancel)
    }
}

/// Plays one round.
fn play(round: Vec<Does>, gate: &Arc<Semaphore>, cancel: CancellationToken) -> ModelStream {
    let calls = round.iter().any(|does| matches!(does, Does::Calls(..)));
    let mut items: VecDeque<Does> = VecDeque::new();
    for does in round {
        match does {
            Does::Floods(text, count) => items.extend((0..count).map(|_| Does::Says(text))),
            other => items.push_back(other),
        }
    }
    let gate = Arc::clone(gate);
    let state = (items, false, gate, cancel, calls, 0);
    Box::pin(stream::unfold(state, |(mut items, over, gate, cancel, calls, number)| async move {
        if over {
            return None;
        }
        let mut over = false;
        let item = loop {
            match items.pop_front() {
                Some(Does::Says(text)) => break Ok(ModelEvent::Text(text.to_owned())),
                Some(Does::Calls(name, arguments)) => {
                    let arguments = arguments.as_object().unwrap().clone();
                    let id = format!("call_{}", uuid::Uuid::now_v7().simple());
                    break Ok(ModelEvent::Call(ToolCallRequest { id, name: name.to_owned(), arguments }));
                }
                Some(Does::Waits) => tokio::select! {
                    permit = gate.acquire() => permit.unwrap().forget(),
                    () = cancel.cancelled() => { over = true; break Err(ModelError::Aborted) }
                },
                Some(Does::Fails(why)) => {
                    over = true;
                    break Err(ModelError::Refused(why.to_owned()));
                }
                Some(Does::Takes(tokens, dollars)) => {
                    let cost = simse::protocol::Cost::of_dollars(dollars);
                    break Ok(ModelEvent::Usage(Usage { output_tokens: tokens, cost, ..Usage::default() }));
                }
                Some(Does::Floods(..)) => unreachable!("unfolded above"),
                None => {
                    over = true;
                    break Ok(ModelEvent::Finished(if calls { StopReason::ToolUse } else { StopReason::EndTurn }));
                }
            }
        };
        Some((item, (items, over, gate, cancel, calls, number + 1)))
    }))
}

/// A server, its directory and its model.
pub struct House {
    /// Where it listens.
    pub address: SocketAddr,
    /// The working directory of its sessions.
    pub work: TempDir,
    /// The application.
    pub app: Arc<App>,
    /// The door.
    pub server: Server,
    puppet: Arc<Puppet>,
}

impl House {
    /// A server with defaults.
    pub async fn open() -> Self {
        Self::with(ListenOptions::default(), |_| {}).await
    }

    /// A server with settings of the test's own.
    pub async fn with(options: ListenOptions, change: impl FnOnce(&mut Settings)) -> Self {
        Self::fitted(options, change, Extras::default()).await
    }

    /// The same in a program that brings something of its own.
    pub async fn fitted(options: ListenOptions, change: impl FnOnce(&mut Settings), extras: Extras) -> Self {
        let work = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(work.path().canonicalize().unwrap());
        change(&mut settings);
        let puppet = Arc::new(Puppet { rounds: Mutex::default(), gate: Arc::new(Semaphore::new(0)) });
        let models = std::iter::once(Arc::clone(&puppet) as Arc<dyn Model>).chain(extras.models).collect();
        let extras = Extras { models, ..extras };
        let app = App::open(settings, extras).await.unwrap();
        let server = Server::start(Arc::clone(&app), options).await.unwrap();
        Self { address: server.address(), work, app, server, puppet }
    }

    /// Tells the model its next round.
    pub fn round(&self, does: &[Does]) {
        self.puppet.rounds.lock().push_back(does.to_vec());
    }

    /// Waits until the model has begun all rounds that were told but so many.
    pub async fn until_left(&self, rounds: usize) {
        let begun = async {
            while self.puppet.rounds.lock().len() > rounds {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), begun).await.expect("the model is asked");
    }

    /// Lets one waiting round go on.
    pub fn go_on(&self) {
        self.puppet.gate.add_permits(1);
    }

    /// Calls a route.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        let request = request(self.address, method, path);
        let request = body.map_or(request.clone(), |body| request.json(&body));
        request.send(self.address).await
    }

    /// Opens a session and answers with its id.
    pub async fn session(&self, body: Value) -> String {
        let reply = self.call("POST", "/sessions", Some(body)).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt, waits for its turn, and answers with it.
    pub async fn prompt(&self, session: &str, text: &str) -> Value {
        let body = json!({ "prompt": text });
        let reply = self.call("POST", &format!("/sessions/{session}/prompt?wait=true"), Some(body)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// Opens a session's event stream.
    pub async fn events(&self, session: &str, query: &str) -> Stream {
        let stream =
            request(self.address, "GET", &format!("/sessions/{session}/events{query}")).open(self.address).await;
        assert_eq!(stream.status, 200);
        stream
    }

    /// Stops everything.
    pub async fn close(self) {
        self.app.shutdown(Duration::ZERO).await.unwrap();
        self.server.stop(Duration::from_secs(5)).await;
    }
}
