//! A turn of the loop with everything around it: a sink that keeps its events, a gate that says yes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use simse::agent::{CallEnvironment, Compacting, Gate, GateQuestion, Progress, Sink, SinkError, Steering, TurnInput};
use simse::base::BoxFuture;
use simse::base::workspace::Workspace;
use simse::hook::NoHooks;
use simse::host::filesystem_tools;
use simse::model::Model;
use simse::model::retry::RetryPolicy;
use simse::protocol::{EventBody, Message, Part, PermissionVerdict, Reasoning, VerdictSource};
use simse::tool::{Registry, Scope, Tool};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::http::PATIENCE;

/// Keeps events.
#[derive(Default)]
pub struct Log(pub Mutex<Vec<EventBody>>, Notify);

impl Sink for Log {
    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        self.0.lock().push(event);
        self.1.notify_waiters();
        Ok(())
    }
    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Log {
    /// One word for each event, runs of the same word once.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.0.lock().iter().map(|event| event.encode().0.to_owned()).collect();
        words.dedup();
        words
    }

    /// Waits until an event of that name has come.
    pub async fn has(&self, word: &str) {
        loop {
            let more = self.1.notified();
            if self.0.lock().iter().any(|event| event.encode().0 == word) {
                return;
            }
            tokio::time::timeout(PATIENCE, more).await.expect(word);
        }
    }
}

struct Yes;

impl Gate for Yes {
    fn check<'a>(&'a self, _: GateQuestion<'a>, _: &'a CancellationToken) -> BoxFuture<'a, PermissionVerdict> {
        let verdict = PermissionVerdict { allowed: true, by: VerdictSource::Policy, reason: String::new() };
        Box::pin(std::future::ready(verdict))
    }
}

struct NoSteering;

impl Steering for NoSteering {
    fn take(&self) -> BoxFuture<'_, Result<Vec<Vec<Part>>, SinkError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    fn waits(&self) -> bool {
        false
    }
}

/// A message of the user.
pub fn user(text: &str) -> Message {
    Message::User(vec![Part::Text { text: text.into() }])
}

/// A turn in a directory, with the file tools and `more`.
pub fn turn(model: Arc<dyn Model>, log: &Arc<Log>, directory: &Path, more: Vec<Arc<dyn Tool>>) -> TurnInput {
    let workspace = Arc::new(Workspace::new(directory, &[]).unwrap());
    let registry = Registry::default();
    for tool in filesystem_tools(workspace).into_iter().chain(more) {
        registry.register(tool).unwrap();
    }
    TurnInput {
        model,
        system: String::new(),
        messages: vec![user("hello")].into(),
        directory: directory.to_owned(),
        directories: Vec::new(),
        agent: None,
        reasoning: Reasoning::Auto,
        agent_options: Default::default(),
        agent_servers: Default::default(),
        environment: CallEnvironment {
            untold: Arc::default(),
            registry: Arc::new(registry),
            gate: Arc::new(Yes),
            hooks: Arc::new(NoHooks),
            sink: None,
            session: None,
            scope: Arc::new(Scope::default()),
            clients: Default::default(),
            ear: None,
        },
        sink: Arc::clone(log) as Arc<dyn Sink>,
        progress: Progress::default(),
        steering: Arc::new(NoSteering),
        iterations_max: 100,
        fallbacks: Vec::new(),
        output_schema: None,
        task: None,
        compacting: Compacting::default(),
        mode: Default::default(),
        works_as: None,
        retry: RetryPolicy {
            attempts_max: 3,
            base_delay: Duration::from_millis(1),
            delay_max: Duration::from_millis(50),
        },
    }
}
