//! What a request of 2026-07-28 says of itself: its version, what its client can, and the headers that must say the same.

use axum::http::{HeaderMap, HeaderName};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{HEADER_MISMATCH, MODERN, UNSUPPORTED, VERSION, meta};
use crate::server::headers::single;
use crate::server::mcp::hello::Hello;
use crate::server::mcp::peer::{LEVELS, Peer};
use crate::server::mcp::wire::{Request, RpcError, VERSIONS};
use crate::server::mcp::{fixtures, tools};

const NAMED_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// How a value is written that is no plain text for a header.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// What it says.
pub(super) struct Said {
    /// The version that it wants.
    version: String,
    pub(super) hello: Hello,
    /// How much it wants to hear. None: nothing.
    pub(super) level: Option<usize>,
}

/// Whether it names a version.
pub(super) fn names_version(request: &Request) -> bool {
    meta(request, NAMED_VERSION).is_some()
}

impl Said {
    /// What a request says.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn read(request: &Request) -> Result<Self, RpcError> {
        let missing = |name: &str, what: &str| RpcError::params(format!("`_meta.{name}`: expected {what}"));
        let version = meta(request, NAMED_VERSION).and_then(Value::as_str);
        let version = version.ok_or_else(|| missing(NAMED_VERSION, "the version of the protocol"))?.to_owned();
        let can = meta(request, CAPABILITIES).and_then(Value::as_object);
        let can = can.ok_or_else(|| missing(CAPABILITIES, "an object"))?;
        let nothing = Map::new();
        let about = meta(request, CLIENT).and_then(Value::as_object).unwrap_or(&nothing);
        let level = meta(request, LEVEL).and_then(Value::as_str);
        let level = level.and_then(|wanted| LEVELS.iter().position(|level| *level == wanted));
        Ok(Self { version, hello: Hello::of(MODERN, (can, about)), level })
    }

    /// Whether its version is spoken in requests that say all by themselves.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn check_version(&self) -> Result<(), RpcError> {
        if self.version == MODERN {
            return Ok(());
        }
        let supported: Vec<&str> = std::iter::once(MODERN).chain(VERSIONS).collect();
        let mut error = RpcError::new(UNSUPPORTED, format!("version `{}` is not spoken", self.version));
        error.data = Some(json!({ "supported": supported, "requested": self.version }));
        Err(error)
    }

    /// Holds the headers against it: they are there for those on the way, who read no bodies.
    ///
    /// # Errors
    /// Which does not say the same, or that the version is not spoken.
    pub(super) fn check_headers(&self, headers: &HeaderMap, request: &Request) -> Result<(), RpcError> {
        same(headers, &VERSION, &self.version)?;
        self.check_version()?;
        same(headers, &METHOD, &request.method)?;
        match named(request) {
            Some(name) => same(headers, &NAME, name),
            None => Ok(()),
        }
    }
}

/// What a request names that proxies route by.
fn named(request: &Request) -> Option<&str> {
    let member = match request.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return None,
    };
    request.params.get(member).and_then(Value::as_str)
}

/// The headers with which a request has to be sent, but for those of single arguments.
pub(in crate::server::mcp) fn headers(request: &Request) -> Vec<(String, String)> {
    let version = meta(request, NAMED_VERSION).and_then(Value::as_str).unwrap_or(MODERN);
    let all = [(VERSION, Some(version)), (METHOD, Some(&request.method)), (NAME, named(request))];
    all.into_iter().filter_map(|(name, value)| Some((name.to_string(), encoded(value?)))).collect()
}

/// The arguments that a tool's schema wants repeated in headers, with the names of these.
pub(in crate::server::mcp) fn repeated(schema: &Value) -> Vec<(String, String)> {
    let all = schema["properties"].as_object().into_iter().flatten();
    let named = all.filter_map(|(argument, property)| Some((argument, property["x-mcp-header"].as_str()?)));
    named.map(|(argument, suffix)| (argument.clone(), format!("mcp-param-{suffix}"))).collect()
}

/// What an argument is as the value of a header. None: it has none.
pub(in crate::server::mcp) fn repeat(request: &Request, argument: &str) -> Option<String> {
    match request.params.get("arguments")?.get(argument)? {
        Value::Null => None,
        Value::String(text) => Some(encoded(text)),
        other => Some(encoded(&other.to_string())),
    }
}

fn mismatch(message: String) -> RpcError {
    RpcError::new(HEADER_MISMATCH, message)
}

/// A header that has to be there, and say this.
fn same(headers: &HeaderMap, name: &HeaderName, want: &str) -> Result<(), RpcError> {
    let given = single(headers, name).map_err(|error| mismatch(error.to_string()))?;
    let given = given.ok_or_else(|| mismatch(format!("`{name}`: expected what the message says")))?;
    match decoded(given) {
        Some(given) if given == want => Ok(()),
        _ => Err(mismatch(format!("`{name}`: expected the same as in the message"))),
    }
}

/// What a header says. None: it is encoded, and cannot be decoded.
fn decoded(value: &str) -> Option<String> {
    let inner = value.strip_prefix(ENCODED.0).and_then(|rest| rest.strip_suffix(ENCODED.1));
    let Some(inner) = inner else { return Some(value.to_owned()) };
    String::from_utf8(STANDARD.decode(inner).ok()?).ok()
}

/// A text as the value of a header.
fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text;
    let looks_encoded = text.starts_with(ENCODED.0) && text.ends_with(ENCODED.1);
    if is_plain && !looks_encoded {
        return text.to_owned();
    }
    format!("{}{}{}", ENCODED.0, STANDARD.encode(text), ENCODED.1)
}

/// Holds the headers of single arguments (`x-mcp-header` in a tool's schema) against a call.
///
/// # Errors
/// Which does not say the same.
pub(super) fn check_parameters(peer: &Peer, headers: &HeaderMap, request: &Request) -> Result<(), RpcError> {
    let Some(name) = request.params.get("name").and_then(Value::as_str).filter(|_| request.method == "tools/call")
    else {
        return Ok(());
    };
    let schema = tools::schema_of(peer, name).or_else(|| fixtures::schema_of(peer, name)).unwrap_or_default();
    for (argument, header) in &repeated(&schema) {
        let Ok(header) = HeaderName::try_from(header) else { continue };
        let value = request.params.get("arguments").and_then(|given| given.get(argument));
        match value.filter(|value| !value.is_null()) {
            Some(Value::String(text)) => same(headers, &header, text)?,
            Some(other) => same(headers, &header, &other.to_string())?,
            None if headers.contains_key(&header) => {
                return Err(mismatch(format!("`{header}`: expected none, as the call has no `{argument}`")));
            }
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_encoded_is_read_and_any_other_is_itself() {
        #[rustfmt::skip]
        let table = [
            ("Hello", Some("Hello")), ("=?base64?SGVsbG8=?=", Some("Hello")), ("=?base64?SGVsbG8?=", None),
            ("=?base64?SGVs!!!bG8=?=", None), ("=?base64?SGVsbG8=", Some("=?base64?SGVsbG8=")), ("", Some("")),
            ("=?base64?/w==?=", None), ("=?base64??=", Some("")),
        ];
        for (value, want) in table {
            assert_eq!(decoded(value).as_deref(), want, "{value}");
        }
        for text in ["fs_list", "", " a", "a ", "é", "a\nb", "\t", "=?base64?SGVsbG8=?=", "=?base64?", "a b"] {
            let value = encoded(text);
            assert!(axum::http::HeaderValue::from_str(&value).is_ok() && value.trim() == value, "{value}");
            assert_eq!(decoded(&value).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_request_says_its_version_and_what_its_client_can() {
        let read = |meta: Value| {
            let params = json!({ "_meta": meta }).as_object().unwrap().clone();
            Said::read(&Request { id: 1.into(), method: "m".into(), params })
        };
        let all = json!({ NAMED_VERSION: MODERN, CAPABILITIES: { "elicitation": {} }, LEVEL: "warning" });
        let said = read(all.clone()).unwrap();
        assert!(said.hello.fills_forms && !said.hello.samples && said.hello.client == "unknown");
        assert_eq!((said.version.as_str(), said.level), (MODERN, Some(3)));
        for left_out in [NAMED_VERSION, CAPABILITIES] {
            let mut less = all.clone();
            less.as_object_mut().unwrap().remove(left_out);
            assert_eq!(read(less).err().unwrap().code, -32602, "{left_out}");
        }
        assert_eq!(read(json!({ NAMED_VERSION: MODERN, CAPABILITIES: {} })).unwrap().level, None);
    }
}
