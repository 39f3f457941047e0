//! Where the other servers of a database reach this one, among the settings.
//!
//! Invariant: there is a scheme, a host and perhaps a port, and nothing else: it can be shown, and a path can be put behind it.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::Deserialize;

use crate::base::http;

/// Where other servers reach this one, without a `/` at its end.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeUrl(String);

/// What is expected where a text is no such address.
pub const NODE_URL_EXPECTED: &str = "http:// or https://, a host and a port, and nothing behind it";

/// The same as a schema says it.
pub(super) const NODE_URL_PATTERN: &str = r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[1-9][0-9]{0,4})?/?$";

impl FromStr for NodeUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let text = text.strip_suffix('/').unwrap_or(text);
        let place = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        if place.is_some_and(is_place) && http::check_url(text).is_ok() {
            return Ok(Self(text.to_owned()));
        }
        // What was given may have a password in it.
        Err(format!("expected {NODE_URL_EXPECTED}"))
    }
}

impl TryFrom<String> for NodeUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text is a host and perhaps a port.
fn is_place(text: &str) -> bool {
    let (is_host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port),
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_name(host), port)
        }
    };
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

fn is_name(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0') && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port_and_nothing_else() {
        let refused = Err(format!("expected {NODE_URL_EXPECTED}"));
        #[rustfmt::skip]
        let table = [
            ("http://10.0.0.7:4000", Some("http://10.0.0.7:4000")), ("http://10.0.0.7:4000/", Some("http://10.0.0.7:4000")),
            (" https://node-1.example.org ", Some("https://node-1.example.org")), ("http://node_1:65535", Some("http://node_1:65535")),
            ("http://[::1]:4000/", Some("http://[::1]:4000")), ("https://[2001:db8::7]", Some("https://[2001:db8::7]")),
            ("", None), ("10.0.0.7:4000", None), ("ftp://h", None), ("postgres://h", None), ("HTTP://h", None), ("http:/h", None), ("http:///", None),
            ("http://", None), ("http://:4000", None), ("http://h:", None), ("http://h:0", None), ("http://h:080", None), ("http://h:+80", None),
            ("http://h:65536", None), ("http://h:80:80", None), ("http://[::1", None), ("http://[h]", None), ("http://[::1]h", None), ("http://::1", None),
            ("http://1.2.3.999", None), ("http://a b", None), ("http://a,b", None), ("http://hä", None), ("http://h%20", None), ("http://*:1", None),
            ("http://h//", None), ("http://h/x", None), ("http://h/?", None), ("http://h?a", None), ("http://h#a", None), ("http://h/#", None),
            ("http://u@h", None), ("http://u:s3cret@h:1", None), ("http://@h", None), ("http://h:1/@h", None), ("http://h\\x", None),
        ];
        for (text, want) in table {
            let read = text.parse::<NodeUrl>();
            assert_eq!(
                read.clone().map(|url| url.to_string()),
                want.map(str::to_owned).map_or(refused.clone(), Ok),
                "{text}"
            );
            assert!(!format!("{read:?}").contains("s3"), "{text}");
        }
    }
}
