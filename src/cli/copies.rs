//! The log's lines, once more, for the collector: our own ones, with the trace that they belong to.

use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::base::clock;
use crate::base::trace::{LogRecord, Origin, Tracer, Value};

/// Where our modules are.
const OURS: &str = "simse";
/// What tells of the way to the collector itself goes there not.
const THE_WAY: &str = "simse::base::trace";

/// Hands lines to the collector.
pub(super) struct Copies(pub(super) Arc<OnceLock<Tracer>>);

impl<S: Subscriber> Layer<S> for Copies {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(tracer) = self.0.get() else { return };
        let target = event.metadata().target();
        if !target.starts_with(OURS) || target.starts_with(THE_WAY) {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let origin = Origin::current();
        if let Some(request) = origin.request_id {
            fields.attributes.push(("simse.request_id", request.as_ref().into()));
        }
        fields.attributes.push(("code.namespace", target.into()));
        let (severity, level) = match *event.metadata().level() {
            Level::ERROR => (17, "ERROR"),
            Level::WARN => (13, "WARN"),
            Level::INFO => (9, "INFO"),
            Level::DEBUG => (5, "DEBUG"),
            Level::TRACE => (1, "TRACE"),
        };
        let Fields { text, attributes } = fields;
        tracer.tell_log(LogRecord {
            at_ns: clock::now_ns(),
            severity,
            level,
            text,
            attributes,
            context: origin.context,
        });
    }
}

#[derive(Default)]
struct Fields {
    text: String,
    attributes: Vec<(&'static str, Value)>,
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.attributes.push((field.name(), Value::Number(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.attributes.push((field.name(), value.into()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing into a string cannot fail.
            let _ = write!(self.text, "{value:?}");
        } else {
            self.attributes.push((field.name(), format!("{value:?}").into()));
        }
    }
}
