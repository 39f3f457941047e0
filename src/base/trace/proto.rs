//! The requests of OTLP in the bytes of protobuf (opentelemetry-proto 1.x). Field numbers stand beside what they are.

use super::{LogRecord, SpanRecord, Value};

/// A message that is being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn tag(&mut self, field: u32, wire: u64) {
        self.varint((u64::from(field) << 3) | wire);
    }

    fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.tag(field, 0);
            self.varint(number);
        }
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, number: u32) {
        self.tag(field, 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// A `KeyValue`: key = 1, value = 2.
    fn attribute(&mut self, field: u32, name: &str, value: &Value) {
        self.message(field, |pair| {
            pair.bytes(1, name.as_bytes());
            pair.message(2, |any| any.value(value));
        });
    }

    /// An `AnyValue`: string_value = 1, int_value = 3. Members of a choice are written also when they are empty.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Text(text) => self.bytes(1, text.as_bytes()),
            Value::Number(number) => {
                self.tag(3, 0);
                self.varint(u64::from_le_bytes(number.to_le_bytes()));
            }
        }
    }
}

/// An `ExportTraceServiceRequest`.
pub(super) fn spans(resource: &[(String, String)], spans: &[SpanRecord]) -> Vec<u8> {
    request(resource, |scope| spans.iter().for_each(|span| scope.message(2, |message| write_span(message, span))))
}

/// An `ExportLogsServiceRequest`.
pub(super) fn logs(resource: &[(String, String)], logs: &[LogRecord]) -> Vec<u8> {
    request(resource, |scope| logs.iter().for_each(|log| scope.message(2, |message| write_log(message, log))))
}

/// Both requests have the same form: resource_spans or resource_logs = 1 { resource = 1 { attributes = 1 }, scope_… = 2 {
/// scope = 1 { name = 1, version = 2 }, … = 2 } }.
fn request(resource: &[(String, String)], records: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |message| {
            for (name, value) in resource {
                message.attribute(1, name, &Value::Text(value.clone()));
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, b"simse");
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            records(of_scope);
        });
    });
    request.0
}

/// A `Span`.
fn write_span(message: &mut Message, span: &SpanRecord) {
    message.bytes(1, &span.context.trace.to_be_bytes());
    message.bytes(2, &span.context.span.to_be_bytes());
    if span.parent != 0 {
        message.bytes(4, &span.parent.to_be_bytes());
    }
    message.bytes(5, span.name.as_bytes());
    message.number(6, span.kind as u64);
    message.fixed64(7, span.began_ns);
    message.fixed64(8, span.ended_ns);
    for (name, value) in &span.attributes {
        message.attribute(9, name, value);
    }
    // status = 15 { code = 3: 2 is an error }
    if span.failed {
        message.message(15, |status| status.number(3, 2));
    }
    // flags = 16: the W3C ones.
    message.tag(16, 5);
    message.0.extend_from_slice(&u32::from(span.context.sampled).to_le_bytes());
}

/// A `LogRecord`.
fn write_log(message: &mut Message, log: &LogRecord) {
    message.fixed64(1, log.at_ns);
    message.number(2, u64::from(log.severity));
    message.bytes(3, log.level.as_bytes());
    message.message(5, |any| any.value(&Value::Text(log.text.clone())));
    for (name, value) in &log.attributes {
        message.attribute(6, name, value);
    }
    if let Some(context) = log.context {
        message.fixed32(8, u32::from(context.sampled));
        message.bytes(9, &context.trace.to_be_bytes());
        message.bytes(10, &context.span.to_be_bytes());
    }
    message.fixed64(11, log.at_ns);
}
