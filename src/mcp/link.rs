//! One server's life: started, listed, noticed when it ends, started again when it is needed and its pause is over.
//!
//! A task of its own ([`Link::supervise`]) is the only one that changes the status; everybody else reads it, and
//! says that the server is needed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use rmcp::{ErrorData, Peer, RoleClient};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Place;
use super::connection::{Connection, Tending};
use super::elicit::Calls;
use super::explain::refusal;
use super::listing::{Listed, list_tools};
use super::pipe::without_last_words;
use super::tool::McpTool;
use crate::base::limit;
use crate::base::secrets::Secrets;
use crate::config::{McpServer, McpTransport};
use crate::tool::Tool;

/// How long a call whose connection is gone waits to learn why.
const REASON_WAIT: Duration = Duration::from_secs(3);

/// The longest pause of a server that a call waits out.
const PAUSE_WAITED_OUT_MAX: Duration = Duration::from_secs(5);

/// One server.
pub(super) struct Link {
    spec: McpServer,
    /// Never repeated when it says them.
    secrets: Secrets,
    place: Arc<Place>,
    /// `mcp:<name>/`.
    prefix: String,
    status: watch::Sender<Status>,
    /// Those of the last list, kept while the server is down: a call starts it again, or says why it cannot be.
    tools: Mutex<Arc<[Arc<dyn Tool>]>>,
    /// Somebody needs the server while it is down.
    demand: Notify,
    /// The calls that it works on.
    calls: Arc<Calls>,
    /// A request could not be sent: it may be gone, and nobody sends another before that is known.
    doubt: Notify,
    in_doubt: AtomicBool,
    /// Whether it is asked anything, and since when not.
    used: watch::Sender<Used>,
    /// No start has succeeded or been waited out, and at most one has failed.
    is_new: AtomicBool,
}

/// Where the server stands.
#[derive(Clone)]
pub(super) enum Status {
    Idle,
    Connecting,
    Ready(Peer<RoleClient>),
    /// Its program was ended, because nobody asked it anything for long. The next request starts it again.
    Resting,
    Down(Arc<Down>),
    Closed,
}

/// Why there is no connection, and from when on another start may be tried.
pub(super) struct Down {
    pub(super) reason: String,
    retry_at: Instant,
    /// Starts so far.
    starts: u64,
}

/// Requests that are under way, and since when that many are.
#[derive(Clone, Copy)]
struct Used {
    requests: usize,
    since: Instant,
}

/// A request that is under way: as long as there is one, the server does not rest.
pub(super) struct InUse<'a>(&'a watch::Sender<Used>);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|used| *used = Used { requests: used.requests - 1, since: Instant::now() });
    }
}

/// How one run of the server ended.
enum Life {
    Stopped,
    Rested,
    NeverBegan(String),
    Ended { reason: String, after: Duration },
}

impl Link {
    pub(super) fn new(spec: McpServer, place: Arc<Place>) -> Self {
        Self {
            prefix: format!("mcp:{}/", spec.name),
            secrets: spec.secrets(),
            spec,
            place,
            status: watch::Sender::new(Status::Idle),
            tools: Mutex::new(Arc::new([])),
            demand: Notify::new(),
            calls: Arc::default(),
            doubt: Notify::new(),
            in_doubt: AtomicBool::new(false),
            used: watch::Sender::new(Used { requests: 0, since: Instant::now() }),
            is_new: AtomicBool::new(true),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn spec(&self) -> &McpServer {
        &self.spec
    }

    /// What it says, without what it was given in confidence.
    pub(super) fn told(&self, said: String) -> String {
        self.secrets.hidden(said)
    }

    /// The same of what is no plain text.
    pub(super) fn told_in(&self, said: Value) -> Value {
        self.secrets.hidden_in(said)
    }

    /// The same of a schema: only its texts may become others.
    fn told_in_texts(&self, said: Value) -> Value {
        match said {
            Value::String(text) => self.told(text).into(),
            Value::Array(values) => values.into_iter().map(|value| self.told_in_texts(value)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(word, value)| (word, self.told_in_texts(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => said,
        }
    }

    /// An error that it answered with.
    pub(super) fn refusal(&self, error: &ErrorData) -> String {
        self.told(refusal(error))
    }

    pub(super) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Where a program of it starts.
    pub(super) fn directory(&self) -> &Path {
        &self.place.directory
    }

    /// What the names of its tools begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn tools(&self) -> Arc<[Arc<dyn Tool>]> {
        Arc::clone(&self.tools.lock())
    }

    /// Connected, or resting until it is asked something.
    pub(super) fn is_ready(&self) -> bool {
        matches!(*self.status.borrow(), Status::Ready(_) | Status::Resting)
    }

    /// Whether it is a program, and one that runs or is being started.
    pub(super) fn runs_a_program(&self) -> bool {
        let runs = matches!(*self.status.borrow(), Status::Connecting | Status::Ready(_));
        runs && matches!(self.spec.transport, McpTransport::Stdio { .. })
    }

    /// Notes that it is asked something, before it is looked how it is.
    pub(super) fn in_use(&self) -> InUse<'_> {
        self.used.send_modify(|used| *used = Used { requests: used.requests + 1, since: Instant::now() });
        InUse(&self.used)
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(*self.status.borrow(), Status::Down(_) | Status::Closed)
    }

    /// How it is, in a word or a sentence without anything that the server said itself.
    pub(super) fn state(&self) -> String {
        match &*self.status.borrow() {
            Status::Idle | Status::Connecting => "starting".into(),
            Status::Ready(_) => "connected".into(),
            Status::Resting => "resting".into(),
            Status::Down(down) => format!("down: {}", without_last_words(&down.reason)),
            Status::Closed => "stopped".into(),
        }
    }

    /// Waits for the end of a start, good or bad, as long as there is hope that it helps. Of a server that failed
    /// more often it only says that it is needed.
    pub(super) async fn settled(&self) {
        if self.is_new.load(Ordering::Acquire) {
            self.outcome(|_| false).await;
        } else if matches!(*self.status.borrow(), Status::Down(_)) {
            self.demand.notify_one();
        }
    }

    /// It had its time: the next turns no longer wait for its first start.
    pub(super) fn wait_no_longer(&self) {
        if self.is_new.swap(false, Ordering::AcqRel) {
            tracing::warn!(server = self.name(), "an MCP server is slow to start; turns no longer wait for it");
        }
    }

    /// The connection; a server that is down is started again, and waited for unless it has to rest for long.
    ///
    /// # Errors
    /// Why there is none, as a sentence about the server.
    pub(super) async fn ready(&self) -> Result<Peer<RoleClient>, String> {
        let rests = |down: &Down| down.retry_at > Instant::now() + PAUSE_WAITED_OUT_MAX;
        let most = Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS);
        match timeout(most, self.outcome(rests)).await {
            Ok(Status::Ready(peer)) => Ok(peer),
            Ok(Status::Down(down)) => Err(self.down_sentence(&down)),
            Ok(Status::Closed) => Err(self.sentence("was stopped")),
            Ok(Status::Idle | Status::Connecting | Status::Resting) | Err(_) => Err(self.sentence("is still starting")),
        }
    }

    /// What has come of the start that is under way, or else of the next one, which is asked for; at once where there
    /// is a connection, or where somebody who sees why there is none gives up.
    pub(super) async fn outcome(&self, gives_up: impl Fn(&Down) -> bool) -> Status {
        let mut status = self.status.subscribe();
        let mut starts_before = None;
        loop {
            let now = status.borrow_and_update().clone();
            match &now {
                Status::Ready(_) if self.in_doubt.load(Ordering::Acquire) => {}
                Status::Ready(_) | Status::Closed => return now,
                Status::Down(down) => {
                    let before = *starts_before.get_or_insert(down.starts);
                    if down.starts > before {
                        return now;
                    }
                    self.demand.notify_one();
                    if gives_up(down) {
                        return now;
                    }
                }
                Status::Resting => self.demand.notify_one(),
                Status::Idle | Status::Connecting => starts_before = Some(starts_before.unwrap_or(0)),
            }
            // The sender lives as long as `self`.
            let _ = status.changed().await;
        }
    }

    /// Why the connection that a call was on is gone.
    pub(super) async fn why_it_ended(&self) -> String {
        let mut status = self.status.subscribe();
        let ended = status.wait_for(|status| matches!(status, Status::Down(_) | Status::Closed));
        match timeout(REASON_WAIT, ended).await {
            Ok(Ok(status)) => match &*status {
                Status::Down(down) => self.sentence(&format!("went away during the call: {}", down.reason)),
                Status::Idle | Status::Connecting | Status::Ready(_) | Status::Resting | Status::Closed => {
                    self.sentence("was stopped")
                }
            },
            Ok(Err(_)) | Err(_) => self.sentence("went away during the call"),
        }
    }

    /// A request could not be sent. Whether the server is gone is looked into.
    pub(super) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Release);
        self.doubt.notify_one();
    }

    fn no_doubt(&self) {
        self.in_doubt.store(false, Ordering::Release);
        // Wakes who waits.
        self.status.send_modify(|_| {});
    }

    pub(super) fn sentence(&self, what: &str) -> String {
        format!("the MCP server `{}` {what}", self.name())
    }

    fn down_sentence(&self, down: &Down) -> String {
        let pause = down.retry_at.saturating_duration_since(Instant::now());
        let text = self.sentence(&format!("is down: {}", down.reason));
        if pause < Duration::from_secs(1) {
            text
        } else {
            format!("{text} (not tried again for {} s)", pause.as_secs())
        }
    }

    /// Keeps the server until `stop`.
    pub(super) async fn supervise(self: Arc<Self>, stop: CancellationToken) {
        let (mut starts, mut failures) = (0, 0);
        loop {
            starts += 1;
            self.status.send_replace(Status::Connecting);
            let reason = match self.live(&stop).await {
                Life::Stopped => break,
                Life::Rested => {
                    failures = 0;
                    let is_wanted = tokio::select! {
                        () = stop.cancelled() => false,
                        () = self.demand.notified() => true,
                    };
                    if is_wanted {
                        continue;
                    }
                    break;
                }
                Life::NeverBegan(reason) => {
                    let reason = self.told(reason);
                    failures += 1;
                    tracing::warn!(server = self.name(), reason, "an MCP server could not be started");
                    reason
                }
                Life::Ended { reason, after } => {
                    let reason = self.told(reason);
                    failures = if after >= Duration::from_millis(limit::MCP_STABLE_MS) { 1 } else { failures + 1 };
                    tracing::warn!(server = self.name(), reason, "an MCP server ended");
                    reason
                }
            };
            // Who asked for this start has its answer.
            let _ = self.demand.notified().now_or_never();
            let retry_at = Instant::now() + pause(failures);
            if failures > 1 {
                self.is_new.store(false, Ordering::Release);
            }
            self.status.send_replace(Status::Down(Arc::new(Down { reason, retry_at, starts })));
            let next = async {
                self.demand.notified().await;
                sleep_until(retry_at).await;
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = next => {}
            }
        }
        self.list(Vec::new());
        self.is_new.store(false, Ordering::Release);
        self.status.send_replace(Status::Closed);
    }

    /// One run: start, tools, end.
    async fn live(self: &Arc<Self>, stop: &CancellationToken) -> Life {
        let most = Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS);
        self.calls.begin_anew();
        let opening = timeout(most, Connection::open(&self.spec, &self.place, &self.calls));
        let opened = tokio::select! {
            biased;
            () = stop.cancelled() => return Life::Stopped,
            opened = opening => opened,
        };
        let (mut connection, listed) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(reason)) => return Life::NeverBegan(reason),
            Err(_) => return Life::NeverBegan(format!("it did not get ready within {} s", most.as_secs())),
        };
        let began = Instant::now();
        tracing::info!(server = self.name(), tools = listed.len(), "an MCP server is connected");
        self.list(listed);
        self.is_new.store(false, Ordering::Release);
        self.in_doubt.store(false, Ordering::Release);
        self.status.send_replace(Status::Ready(connection.peer().clone()));
        self.used.send_modify(|used| used.since = Instant::now());
        let tending = connection.tending();
        let gone = tokio::select! {
            biased;
            () = stop.cancelled() => {
                connection.close(None).await;
                return Life::Stopped;
            }
            () = connection.ended() => None,
            reason = self.tend(tending) => Some(reason),
            () = self.rests() => {
                connection.close(None).await;
                tracing::info!(server = self.name(), "an MCP server rests until it is needed");
                return Life::Rested;
            }
        };
        Life::Ended { reason: connection.close(gone).await, after: began.elapsed() }
    }

    /// Waits until nobody has asked a program anything for as long as it may idle, and says that it rests. Whoever asks
    /// from then on sees that; whoever asked before keeps it.
    async fn rests(&self) {
        let idle = match self.spec.transport {
            McpTransport::Stdio { .. } => self.place.idle,
            // There is nothing of it in our memory that would be worth a session lost.
            McpTransport::Http { .. } => None,
        };
        let Some(idle) = idle else { return std::future::pending().await };
        let mut changes = self.used.subscribe();
        loop {
            let Used { requests, since } = *changes.borrow_and_update();
            if requests == 0 {
                // The sender lives as long as `self`.
                tokio::select! {
                    () = sleep_until(since + idle) => {}
                    _ = changes.changed() => continue,
                }
            } else {
                let _ = changes.changed().await;
                continue;
            }
            let mut now_rests = false;
            self.used.send_if_modified(|used| {
                now_rests = used.requests == 0 && used.since + idle <= Instant::now();
                if now_rests {
                    // What was demanded earlier has been had.
                    let _ = self.demand.notified().now_or_never();
                    self.status.send_replace(Status::Resting);
                }
                false
            });
            if now_rests {
                return;
            }
        }
    }

    /// Lists again what has changed. Ends with a reason when the server no longer answers.
    async fn tend(self: &Arc<Self>, tending: Tending) -> String {
        loop {
            tokio::select! {
                () = tending.tools_changed() => {
                    let most = Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS);
                    match timeout(most, list_tools(tending.peer(), self.name())).await {
                        Ok(Ok(listed)) => {
                            self.list(listed);
                            self.place.tools_changed.as_ref().inspect(|tell| tell(self.name()));
                        }
                        Ok(Err(reason)) => self.keep_old_list(&reason),
                        Err(_) => self.keep_old_list("it did not answer in time"),
                    }
                }
                () = self.doubt.notified() => {
                    let most = Duration::from_millis(limit::MCP_PING_TIMEOUT_MS);
                    match timeout(most, tending.ping()).await {
                        Ok(Ok(())) => self.no_doubt(),
                        Ok(Err(reason)) => return reason,
                        Err(_) => return "it no longer answers".to_owned(),
                    }
                }
            }
        }
    }

    fn keep_old_list(&self, reason: &str) {
        let reason = self.secrets.hide(reason);
        tracing::warn!(server = self.name(), %reason, "an MCP server did not list its tools again; the old list stays");
    }

    fn list(self: &Arc<Self>, listed: Vec<Listed>) {
        let tools = listed.into_iter().map(|mut one| {
            one.definition.description = self.told(one.definition.description);
            let parameters = std::mem::take(&mut one.definition.parameters);
            one.definition.parameters = parameters.into_iter().map(|(word, v)| (word, self.told_in_texts(v))).collect();
            Arc::new(McpTool::new(one, Arc::clone(self))) as Arc<dyn Tool>
        });
        *self.tools.lock() = tools.collect();
    }
}

/// The pause after that many failures in a row.
fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    let ms = limit::MCP_RETRY_MS.saturating_mul(1 << doublings).min(limit::MCP_RETRY_MS_MAX);
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_up_to_a_limit() {
        let seconds: Vec<u128> = [1, 2, 3, 8, 9, u32::MAX].map(|failures| pause(failures).as_millis()).into();
        assert_eq!(seconds, [500, 1_000, 2_000, 60_000, 60_000, 60_000]);
    }
}
