//! Clients for crates that speak a protocol of their own over HTTP.
//!
//! They differ from ours in two ways. A redirect is followed when it keeps method, body and origin (307, 308), so
//! that no header reaches another host. No idle connection is kept: such a crate does not read every body to its
//! end, and a connection with a rest in it costs the next request tens of milliseconds.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, StatusCode};

use super::{HttpError, Kind, cached, host_of, parse_url};

/// Redirects that are followed for one request.
const REDIRECTS_MAX: usize = 5;

/// A client for an address. It waits a bounded time for a connection and for nothing else.
///
/// # Errors
/// [`HttpError`] when the address is none, or the client cannot be made.
pub async fn protocol_client(url: &str) -> Result<Client, HttpError> {
    static CLIENTS: [OnceLock<Client>; 3] = [const { OnceLock::new() }; 3];
    cached(&CLIENTS, Kind::of(&parse_url(url)?), for_protocols).await
}

fn for_protocols(builder: ClientBuilder) -> ClientBuilder {
    builder.pool_max_idle_per_host(0).redirect(Policy::custom(|attempt| {
        let keeps_body = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let same_origin = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
        if keeps_body && same_origin && attempt.previous().len() <= REDIRECTS_MAX {
            attempt.follow()
        } else {
            attempt.stop()
        }
    }))
}

/// Headers as requests carry them. The values do not show themselves in logs.
///
/// # Errors
/// Names the header that cannot be sent, and never its value.
pub fn header_pairs(headers: &BTreeMap<String, String>) -> Result<HashMap<HeaderName, HeaderValue>, HttpError> {
    let pair = |(name, value): (&String, &String)| {
        let bad = |what: &str| HttpError::BadHeader(format!("{what}, in the header `{}`", name.escape_debug()));
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("a name of letters, digits and `-`"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad("a value of visible ASCII characters"))?;
        value.set_sensitive(true);
        Ok((parsed, value))
    };
    headers.iter().map(pair).collect()
}

/// `text` with the host alone wherever it repeats the address, because a key may stand in path or query.
pub fn without_address(text: &str, url: &str) -> String {
    let Ok(parsed) = parse_url(url) else { return text.to_owned() };
    let host = host_of(&parsed);
    text.replace(parsed.as_str(), &host).replace(url, &host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_can_be_sent() {
        let pairs = |name: &str, value: &str| header_pairs(&BTreeMap::from([(name.to_owned(), value.to_owned())]));
        assert_eq!(format!("{:?}", pairs("X-Key", "s3cret").unwrap()), r#"{"x-key": Sensitive}"#);
        for (name, value) in [("", "s3cret"), ("a b", "s3cret"), ("a", "s3cret\n")] {
            let error = pairs(name, value).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn an_address_is_shown_by_its_host_alone() {
        let said = "error sending request for url (http://h:8080/mcp?key=s3cret)";
        let want = "error sending request for url (h:8080)";
        assert_eq!(without_address(said, "http://h:8080/mcp?key=s3cret"), want);
        assert_eq!(without_address("at http://h/", "http://h"), "at h:80");
    }
}
