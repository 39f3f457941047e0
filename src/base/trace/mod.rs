//! What happens on behalf of whom: ids of requests, W3C trace contexts, and spans that go to a collector (`export`).
//!
//! A span is made from its parent and told when it is dropped. Without a collector nothing is told, and a context that came
//! with a request is handed on as it came.
//!
//! Invariant: a span holds names, numbers and ids; never what somebody said, and never a secret.

mod export;
mod proto;

use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;

use super::clock;

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

/// A place in a trace (W3C Trace Context, level 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: u128,
    /// The span.
    pub span: u64,
    /// Whether whoever began the trace keeps it.
    pub sampled: bool,
}

/// A text that is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 00-TRACE-SPAN-FLAGS in hexadecimal")]
pub struct BadContext;

impl FromStr for TraceContext {
    type Err = BadContext;

    fn from_str(text: &str) -> Result<Self, BadContext> {
        let mut parts = text.split('-');
        let mut hex = |digits: usize| {
            let plain = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            parts.next().filter(|part| part.len() == digits && part.bytes().all(plain)).ok_or(BadContext)
        };
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        // A later version may have more behind it.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(BadContext);
        }
        let trace = u128::from_str_radix(trace, 16).map_err(|_| BadContext)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| BadContext)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| BadContext)?;
        if trace == 0 || span == 0 {
            return Err(BadContext);
        }
        Ok(Self { trace, span, sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
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
    fn a_traceparent_is_read_and_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context: TraceContext = text.parse().unwrap();
        assert_eq!((context.to_string().as_str(), context.sampled), (text, true));
        #[rustfmt::skip]
        let table = [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", true), ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", false), ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false), ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false), ("00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", false),
            ("", false), ("00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
        ];
        for (text, want) in table {
            assert_eq!(text.parse::<TraceContext>().is_ok(), want, "{text}");
        }
    }

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
