//! Clients for crates that speak a protocol of their own over HTTP.
//!
//! They differ from ours in two ways. A redirect is followed when it keeps method, body and origin (307, 308), so
//! that no header reaches another host. No idle connection is kept: such a crate does not read every body to its
//! end, and a connection with a rest in it costs the next request tens of milliseconds.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

/// Sends a whole request and reads a whole answer of at most `bytes_max` bytes. Redirects are followed inside the same origin, and
/// only if it says so: what is sent on the way to a login is for nobody else.
///
/// # Errors
/// [`HttpError`] when there is no answer, or one that is too long.
pub async fn exchange(
    request: http::Request<Vec<u8>>,
    follows: bool,
    bytes_max: usize,
) -> Result<http::Response<Vec<u8>>, HttpError> {
    static FOLLOW: [OnceLock<Client>; 3] = [const { OnceLock::new() }; 3];
    static STOP: [OnceLock<Client>; 3] = [const { OnceLock::new() }; 3];
    let url = parse_url(&request.uri().to_string())?;
    let (host, kind) = (host_of(&url), Kind::of(&url));
    let client =
        if follows { cached(&FOLLOW, kind, same_origin).await? } else { cached(&STOP, kind, no_redirects).await? };
    let request = reqwest::Request::try_from(request).map_err(|cause| HttpError::BadUrl(cause.to_string()))?;
    let cut = |cause: reqwest::Error| HttpError::Cut { host: host.clone(), cause: cause.without_url().to_string() };
    let mut answer = client.execute(request).await.map_err(cut)?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(cut)? {
        body.extend_from_slice(&piece);
        if body.len() > bytes_max {
            return Err(HttpError::Cut { host, cause: format!("it sent more than {bytes_max} bytes") });
        }
    }
    let mut made = http::Response::new(body);
    *made.status_mut() = status;
    *made.headers_mut() = headers;
    Ok(made)
}

/// A request that sends a form, with a name and a password where they go into a header (Basic).
///
/// # Errors
/// [`HttpError`] when the address is none, or the password cannot be sent.
pub fn form(
    url: &str,
    fields: &[(&str, &str)],
    basic: Option<(&str, &str)>,
) -> Result<http::Request<Vec<u8>>, HttpError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    let spelt = |text: &str| -> String {
        text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
    };
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{}={}", spelt(name), spelt(value))).collect();
    let mut request = http::Request::post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json");
    if let Some((name, password)) = basic {
        let pair = STANDARD.encode(format!("{}:{}", spelt(name), spelt(password)));
        request = request.header("authorization", secret_header("authorization", &format!("Basic {pair}"))?);
    }
    request.body(fields.join("&").into_bytes()).map_err(|cause| HttpError::BadUrl(cause.to_string()))
}

/// A value of a header that does not show itself in logs.
///
/// # Errors
/// Names the header, and never its value.
pub fn secret_header(name: &str, value: &str) -> Result<HeaderValue, HttpError> {
    let bad = || HttpError::BadHeader(format!("a value of visible ASCII characters, in the header `{name}`"));
    let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
    value.set_sensitive(true);
    Ok(value)
}

/// An address without what comes behind its path. None: it is no address.
pub fn bare_address(url: &str) -> Option<String> {
    let mut parsed = parse_url(url).ok()?;
    parsed.set_query(None);
    parsed.set_fragment(None);
    Some(parsed.into())
}

pub(super) fn no_redirects(builder: ClientBuilder) -> ClientBuilder {
    builder.pool_max_idle_per_host(0).redirect(Policy::none())
}

fn same_origin(builder: ClientBuilder) -> ClientBuilder {
    builder.pool_max_idle_per_host(0).redirect(Policy::custom(|attempt| {
        let same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
        if same && attempt.previous().len() <= REDIRECTS_MAX { attempt.follow() } else { attempt.stop() }
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
