//! What happens on behalf of whom: ids of requests, W3C trace contexts, and spans that go to a collector (`export`).
//!
//! A span is made from its parent and told when it is dropped. Without a collector nothing is told, and a context that came
//! with a request is handed on as it came.
//!
//! Invariant: a span holds names, numbers and ids; never what somebody said, and never a secret.

mod context;
mod export;
mod proto;

use std::future::Future;
use std::sync::Arc;

use super::clock;

pub use context::{BadContext, TraceContext};
pub use export::{Collector, LogRecord, Tracer, secret};

tokio::task_local! {
    static CURRENT: Origin;
}

/// Where work comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The request's id.
    pub request_id: Option<Arc<str>>,
    /// The span that it belongs to.
    pub context: Option<TraceContext>,
}

impl Origin {
    /// Where the work of this task comes from.
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Does work that comes from here.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// Does something at once that comes from here.
    pub fn sync_scope<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, work)
    }
}

/// What a span is, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside the server.
    Internal = 1,
    /// The answer to a request.
    Server = 2,
    /// A request to somebody else.
    Client = 3,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A name or an id.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// Names with their values.
pub type Attributes = Vec<(&'static str, Value)>;

/// What a span tells when it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanRecord {
    /// Its own place.
    pub context: TraceContext,
    /// Its parent's span; 0: it has none.
    pub parent: u64,
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// When it was over.
    pub ended_ns: u64,
    /// What is known of it.
    pub attributes: Attributes,
    /// Whether it failed.
    pub failed: bool,
}

/// Work that takes a while. Told to the collector when it is dropped.
#[derive(Debug)]
pub struct Span {
    /// Where it came from; without a collector also its own place.
    from: Option<TraceContext>,
    open: Option<Box<(SpanRecord, Tracer)>>,
}

impl Span {
    /// A span below `parent`, or the first one of a new trace. Nothing, where no collector wants it.
    pub fn new(tracer: &Tracer, name: &str, (kind, parent): (SpanKind, Option<TraceContext>)) -> Self {
        let wanted = tracer.is_on() && parent.is_none_or(|parent| parent.sampled);
        let open = wanted.then(|| {
            let trace = parent.map_or_else(|| uuid::Uuid::new_v4().as_u128(), |parent| parent.trace);
            let (_, span) = uuid::Uuid::new_v4().as_u64_pair();
            let began_ns = clock::now_ns();
            let record = SpanRecord {
                context: TraceContext { trace, span: span.max(1), sampled: true },
                parent: parent.map_or(0, |parent| parent.span),
                name: name.to_owned(),
                kind,
                began_ns,
                ended_ns: began_ns,
                attributes: Vec::new(),
                failed: false,
            };
            Box::new((record, tracer.clone()))
        });
        Self { from: parent, open }
    }

    /// Its place, for what comes below it.
    pub fn context(&self) -> Option<TraceContext> {
        self.open.as_ref().map(|open| open.0.context).or(self.from)
    }

    /// Says what it is called, now that it is known.
    pub fn rename(&mut self, name: impl FnOnce() -> String) {
        if let Some(open) = &mut self.open {
            open.0.name = name();
        }
    }

    /// Says something about it.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.open {
            open.0.attributes.push((name, value.into()));
        }
    }

    /// Says that it failed.
    pub fn fail(&mut self) {
        if let Some(open) = &mut self.open {
            open.0.failed = true;
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let (mut record, tracer) = *open;
            record.ended_ns = clock::now_ns().max(record.began_ns);
            tracer.tell_span(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_collector_a_context_is_handed_on() {
        let parent = Some(TraceContext { trace: 1, span: 2, sampled: true });
        let mut span = Span::new(&Tracer::default(), "x", (SpanKind::Internal, parent));
        span.set("a", "b");
        assert_eq!(span.context(), parent);
        assert_eq!(Span::new(&Tracer::default(), "x", (SpanKind::Internal, None)).context(), None);
    }

    #[tokio::test]
    async fn work_knows_where_it_comes_from() {
        let origin = Origin { request_id: Some("r".into()), context: None };
        assert_eq!(Origin::current(), Origin::default());
        let inside = origin.clone().scope(async { Origin::current() }).await;
        assert_eq!(inside, origin);
        assert_eq!(origin.clone().sync_scope(Origin::current), origin);
    }
}
