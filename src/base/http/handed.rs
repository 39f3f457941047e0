//! A request that is handed to another server of our own as it came, and its answer as it comes.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_LENGTH, HOST, HeaderMap};
use reqwest::{Body, Client, ClientBuilder};

use super::{HttpError, Kind, cached, host_of, parse_url};

/// Longest wait for a connection: our servers are near each other, and there is another way to them.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// After so much silence the other machine is asked whether it is still there, and so often a further one; and how long what was sent may
/// stay without a sign that it arrived. An answer may take as long as it wants.
const ASKED_AFTER: Duration = Duration::from_secs(2);
const ASKED_AGAIN: Duration = Duration::from_secs(1);
const ASKED_TIMES: u32 = 3;
#[cfg(target_os = "linux")]
const ARRIVED_MAX: Duration = Duration::from_secs(3);

/// An answer's body, of which more may be coming.
pub use reqwest::Body as Coming;

/// What is said of one connection, and not of what goes over it.
const OF_THE_CONNECTION: [&str; 9] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Takes out what is said of one connection.
pub fn without_connection(headers: &mut HeaderMap) {
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
}

/// What arrives of an address: its path and its query, as they are sent.
///
/// # Errors
/// When it is no address.
pub fn target_of(url: &str) -> Result<String, HttpError> {
    let url = parse_url(url)?;
    let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
    Ok(format!("{}{query}", url.path()))
}

/// All of an answer's body, up to so many bytes.
///
/// # Errors
/// [`HttpError::Cut`] when it is longer, or does not come whole.
pub async fn whole(answer: http::Response<Body>, (host, bytes_max): (&str, usize)) -> Result<Vec<u8>, HttpError> {
    let cut = |cause| HttpError::Cut { host: host.to_owned(), cause };
    let (mut answer, mut body) = (reqwest::Response::from(answer), Vec::new());
    while let Some(piece) = answer.chunk().await.map_err(|cause| cut(super::innermost(&cause.without_url())))? {
        if body.len() + piece.len() > bytes_max {
            return Err(cut(format!("its answer has more than {bytes_max} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Hands it on. The answer's head has nothing of the connection that it came over; its body is still coming, for as long as it takes.
///
/// # Errors
/// [`HttpError::Connect`] when nothing was sent; [`HttpError::Cut`] when it may have arrived.
pub async fn hand_on(request: http::Request<Bytes>) -> Result<http::Response<Body>, HttpError> {
    static CLIENTS: [OnceLock<Client>; 3] = [const { OnceLock::new() }; 3];
    let url = parse_url(&request.uri().to_string())?;
    let host = host_of(&url);
    let client = cached(&CLIENTS, Kind::of(&url), between_servers).await?;
    let (mut head, body) = request.into_parts();
    without_connection(&mut head.headers);
    head.headers.remove(HOST);
    head.headers.remove(CONTENT_LENGTH);
    let sent = client.request(head.method, url).headers(head.headers).body(body).send().await;
    let answer = sent.map_err(|cause| {
        let (is_connect, cause) = (cause.is_connect(), super::innermost(&cause.without_url()));
        let host = host.clone();
        if is_connect { HttpError::Connect { host, cause } } else { HttpError::Cut { host, cause } }
    })?;
    let mut answer = http::Response::from(answer);
    without_connection(answer.headers_mut());
    Ok(answer)
}

/// A connection of its own for each request, over which it is noticed soon that nothing arrives any more.
fn between_servers(builder: ClientBuilder) -> ClientBuilder {
    let builder = super::protocol::no_redirects(builder).connect_timeout(CONNECT_TIMEOUT).tcp_keepalive(ASKED_AFTER);
    let builder = builder.tcp_keepalive_interval(ASKED_AGAIN).tcp_keepalive_retries(ASKED_TIMES);
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout(ARRIVED_MAX);
    builder
}
