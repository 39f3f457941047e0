//! The way to a collector: OTLP over HTTP, in protobuf, in batches.
//!
//! What is told waits in a bounded queue; what finds it full is dropped and counted, and nobody waits. A collector that cannot
//! be reached is told of once, until it can be again; what was meant for it meanwhile is lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{SpanRecord, TraceContext, Value, proto};
use crate::base::http::{self, Post, shown_address};
use crate::base::limit;

/// Records of one request to the collector, at most.
const BATCH_MAX: usize = 512;
/// How long a record waits for others.
const BATCH_WAIT: Duration = Duration::from_secs(2);
/// Longest wait for the collector's answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long an end waits for the collector, all in all.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// Where spans and logs go.
#[derive(Clone, PartialEq, Eq)]
pub struct Collector {
    /// Such as `http://127.0.0.1:4318`; `/v1/traces` and `/v1/logs` are added.
    pub endpoint: String,
    /// Sent with each request. May hold secrets.
    pub headers: Vec<(String, secret::Text)>,
    /// What is said of this server, such as `service.name`.
    pub resource: Vec<(String, String)>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = shown_address(&self.endpoint);
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Collector").field("endpoint", &endpoint).field("headers", &names).finish_non_exhaustive()
    }
}

/// Texts that are not shown.
pub mod secret {
    /// A text that is not shown.
    #[derive(Clone, PartialEq, Eq)]
    pub struct Text(pub String);

    impl std::fmt::Debug for Text {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("(hidden)")
        }
    }
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
    /// How bad it is, 1 to 24 (OpenTelemetry's numbers).
    pub severity: u8,
    /// The same, in a word.
    pub level: &'static str,
    /// The sentence.
    pub text: String,
    /// The fields beside it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Where it belongs.
    pub context: Option<TraceContext>,
}

enum Told {
    Span(Box<SpanRecord>),
    Log(Box<LogRecord>),
    Flush(oneshot::Sender<()>),
}

/// Tells a collector, if there is one.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<Way>>);

#[derive(Debug)]
struct Way {
    queue: mpsc::Sender<Told>,
    lost: Arc<AtomicU64>,
    /// What is left of [`FLUSH_WAIT`].
    patience: Mutex<Duration>,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Span(_) => "Span",
            Self::Log(_) => "Log",
            Self::Flush(_) => "Flush",
        })
    }
}

impl Tracer {
    /// Tells this collector, from a task of its own that ends with the last of those who tell.
    pub fn start(collector: Collector) -> Self {
        let (queue, told) = mpsc::channel(limit::SPANS_WAITING_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let sender = Sender { collector, told, lost: Arc::clone(&lost), away: AtomicBool::new(false) };
        tokio::spawn(sender.run());
        Self(Some(Arc::new(Way { queue, lost, patience: Mutex::new(FLUSH_WAIT) })))
    }

    /// Whether there is a collector.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// What waits to be told. None: there is no collector.
    pub fn waiting(&self) -> Option<usize> {
        self.0.as_ref().map(|way| way.queue.max_capacity() - way.queue.capacity())
    }

    pub(super) fn tell_span(&self, span: SpanRecord) {
        self.tell(Told::Span(Box::new(span)));
    }

    /// Hands in a line of the log. Never waits.
    pub fn tell_log(&self, log: LogRecord) {
        self.tell(Told::Log(Box::new(log)));
    }

    fn tell(&self, told: Told) {
        if let Some(way) = &self.0
            && way.queue.try_send(told).is_err()
        {
            way.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what was told so far is with the collector, or a little while: two seconds at most, in sum over all calls.
    pub async fn flush(&self) {
        let Some(way) = &self.0 else { return };
        let (patience, began) = (*way.patience.lock(), Instant::now());
        let (done, wait) = oneshot::channel();
        let flushing = async {
            if way.queue.send(Told::Flush(done)).await.is_ok() {
                let _ = wait.await;
            }
        };
        let _ = tokio::time::timeout(patience, flushing).await;
        let mut left = way.patience.lock();
        *left = left.saturating_sub(began.elapsed());
    }
}

struct Sender {
    collector: Collector,
    told: mpsc::Receiver<Told>,
    lost: Arc<AtomicU64>,
    /// The collector could not be reached the last time.
    away: AtomicBool,
}

impl Sender {
    async fn run(mut self) {
        let (mut spans, mut logs) = (Vec::new(), Vec::new());
        let mut due: Option<Instant> = None;
        loop {
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let done = tokio::select! {
                told = self.told.recv() => match told {
                    Some(Told::Span(span)) => { spans.push(*span); None }
                    Some(Told::Log(log)) => { logs.push(*log); None }
                    Some(Told::Flush(done)) => Some(Some(done)),
                    None => {
                        self.send(&mut spans, &mut logs).await;
                        return;
                    }
                },
                () = wait => Some(None),
            };
            if done.is_some() || spans.len() >= BATCH_MAX || logs.len() >= BATCH_MAX {
                self.send(&mut spans, &mut logs).await;
                due = None;
            } else {
                due.get_or_insert_with(|| Instant::now() + BATCH_WAIT);
            }
            if let Some(Some(done)) = done {
                let _ = done.send(());
            }
        }
    }

    async fn send(&self, spans: &mut Vec<SpanRecord>, logs: &mut Vec<LogRecord>) {
        if !spans.is_empty() {
            let body = proto::spans(&self.collector.resource, spans);
            self.post("/v1/traces", body).await;
            spans.clear();
        }
        if !logs.is_empty() {
            let body = proto::logs(&self.collector.resource, logs);
            self.post("/v1/logs", body).await;
            logs.clear();
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "spans and lines for the collector were dropped: more came than it takes");
        }
    }

    async fn post(&self, path: &str, body: Vec<u8>) {
        let request = Post {
            url: format!("{}{path}", self.collector.endpoint.trim_end_matches('/')),
            bearer: None,
            headers: Vec::new(),
            accept: "application/x-protobuf",
            body: body.into(),
            idle_timeout: ANSWER_WAIT,
        };
        let headers = self.collector.headers.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
        let problem = match http::post_protobuf(request, headers).await {
            Ok(status) if status < 300 => None,
            Ok(status) => Some(format!("it answered {status}")),
            Err(error) => Some(error.to_string()),
        };
        let was_away = self.away.swap(problem.is_some(), Ordering::Relaxed);
        match (problem, was_away) {
            (Some(problem), false) => {
                tracing::warn!(problem, "the collector takes nothing: spans and lines are dropped until it does again");
            }
            (None, true) => tracing::info!("the collector takes spans and lines again"),
            (Some(_), true) | (None, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_collector_that_does_not_answer_is_waited_for_two_seconds_in_all() {
        let (queue, _never_read) = mpsc::channel(8);
        let way = Way { queue, lost: Arc::default(), patience: Mutex::new(FLUSH_WAIT) };
        let tracer = Tracer(Some(Arc::new(way)));
        let began = Instant::now();
        for _ in 0..3 {
            tracer.flush().await;
        }
        let waited = began.elapsed();
        assert!((FLUSH_WAIT..FLUSH_WAIT + Duration::from_millis(100)).contains(&waited), "{waited:?}");
    }
}
