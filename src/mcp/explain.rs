//! What went wrong with a server, in our words: no address beyond its host, no debug form of a message.

use rmcp::ServiceError;
use rmcp::model::ErrorData;
use rmcp::service::ClientInitializeError;

use crate::base::{http, text};

/// Of a foreign text that is repeated, in bytes.
const FOREIGN_BYTES_MAX: usize = 1_000;

/// Why there is no connection: the end of a sentence about the server.
pub(super) fn not_begun(error: &ClientInitializeError, url: Option<&str>) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection before it answered `initialize`".into(),
        ClientInitializeError::JsonRpcError(error) => format!("it refused `initialize`: {}", refusal(error)),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => not_begun(fallback, url),
        ClientInitializeError::TransportError { error, .. } => chain(error.error.as_ref(), url),
        ClientInitializeError::Cancelled => "it was stopped".into(),
        // Their forms repeat whole messages.
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
            "its answer to `initialize` is none of the protocol".into()
        }
        other => foreign(&other.to_string()),
    }
}

/// Why a request failed.
pub(super) fn request_failed(error: &ServiceError, url: Option<&str>) -> String {
    match error {
        ServiceError::McpError(error) => refusal(error),
        ServiceError::TransportSend(error) => chain(error.error.as_ref(), url),
        ServiceError::TransportClosed => "the connection is gone".into(),
        ServiceError::UnexpectedResponse => "its answer is none of the protocol".into(),
        other => foreign(&other.to_string()),
    }
}

/// An error that the server answered with.
pub(super) fn refusal(error: &ErrorData) -> String {
    format!("{} (code {})", foreign(&error.message), error.code.0)
}

/// The outermost words and, where they add something, the innermost.
pub(super) fn chain(error: &(dyn std::error::Error + 'static), url: Option<&str>) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let (outer, inner) = (error.to_string(), innermost.to_string());
    let both = if outer.contains(&inner) { outer } else { format!("{outer}: {inner}") };
    let both = url.map_or_else(|| both.clone(), |url| http::without_address(&both, url));
    foreign(&both)
}

fn foreign(said: &str) -> String {
    text::head(said, FOREIGN_BYTES_MAX).trim().to_owned()
}
