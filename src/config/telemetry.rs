//! The collector of traces and logs (OTLP over HTTP), as settings and the standard variables name it.

use secrecy::ExposeSecret as _;

use super::ConfigError;
use super::names::spellings;
use super::options::Options;
use crate::base::http;
use crate::base::trace::{Collector, secret};

/// The collector. None: none is named.
pub(super) fn collector(all: &Options) -> Result<Option<Collector>, ConfigError> {
    let Some(endpoint) = all.otlp_endpoint.as_ref().map(|given| given.expose().to_owned()) else { return Ok(None) };
    let refused = |name: &str, expected: String| ConfigError::Value { place: spellings(name), expected };
    http::check_url(&endpoint).map_err(|error| {
        let expected = error.to_string();
        refused("otlp_endpoint", expected.strip_prefix("expected ").map_or(expected.clone(), str::to_owned))
    })?;
    let headers = all.otlp_headers.as_ref().map_or("", |headers| headers.expose_secret());
    let headers = headers.split(',').filter(|pair| !pair.trim().is_empty()).map(header);
    let headers = headers.collect::<Option<Vec<_>>>();
    let expected = "NAME=VALUE, several joined by `,`";
    let headers = headers.ok_or_else(|| refused("otlp_headers", expected.to_owned()))?;
    let name = all.otlp_service_name.clone().unwrap_or_else(|| "simse".to_owned());
    let resource = vec![
        ("service.name".to_owned(), name),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("process.pid".to_owned(), std::process::id().to_string()),
    ];
    Ok(Some(Collector { endpoint, headers, resource }))
}

/// A pair as the standard variable has it: the value may be percent-encoded.
fn header(pair: &str) -> Option<(String, secret::Text)> {
    let (name, value) = pair.split_once('=')?;
    let name = name.trim();
    let word = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let sound = !name.is_empty() && name.chars().all(word);
    let value = decoded(value.trim())?;
    (sound && value.chars().all(|c| c.is_ascii_graphic() || c == ' ')).then(|| (name.to_owned(), secret::Text(value)))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_makes_a_collector_and_headers_are_hidden() {
        let options = |endpoint: &str, headers: &str| Options {
            otlp_endpoint: Some(endpoint.to_owned().into()),
            otlp_headers: Some(headers.to_owned().into()),
            ..Options::default()
        };
        assert_eq!(collector(&Options::default()).unwrap(), None);
        let made = collector(&options("http://127.0.0.1:4318", "Authorization=Bearer%20x, x-a=b")).unwrap().unwrap();
        let pairs: Vec<_> = made.headers.iter().map(|(name, value)| (name.as_str(), value.0.as_str())).collect();
        assert_eq!(pairs, [("Authorization", "Bearer x"), ("x-a", "b")]);
        assert!(!format!("{made:?}").contains("Bearer"));
        for (endpoint, headers, place) in [
            ("127.0.0.1:4318", "", "otlp_endpoint"),
            ("ftp://x/", "", "otlp_endpoint"),
            ("http://x", "a", "otlp_headers"),
            ("http://x", "a b=c", "otlp_headers"),
            ("http://x", "a=%zz", "otlp_headers"),
            ("http://x", "a=%0a", "otlp_headers"),
        ] {
            let error = collector(&options(endpoint, headers)).unwrap_err().to_string();
            assert!(error.contains(place), "{endpoint} {headers}: {error}");
        }
    }
}
