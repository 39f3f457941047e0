//! Outgoing HTTP: one client a kind of address, made when it is first needed.
//!
//! A request waits a bounded time for its connection, its headers and each further piece of its body,
//! and never for the whole: a model may talk for an hour. Redirects are not followed. Root certificates
//! are read on the first `https` request, off the async workers. Errors name the host and never the
//! path, query or headers: a key may stand there.

mod ahead;
mod handed;
mod packed;
mod protocol;
mod shown;
mod way;

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, Sleep};

use super::clock;
use super::panics::broken;
use super::trace::Origin;
use ahead::Ahead;
use packed::{Coding, Packed};

pub use handed::{Coming, hand_on, target_of, whole, without_connection};
pub use protocol::{bare_address, exchange, form, header_pairs, protocol_client, secret_header, without_address};
pub use shown::{is_key, secrets_of_address, shown_address};
pub use way::Way;

/// What a stream of events calls itself.
const EVENT_STREAM: &str = "text/event-stream";
/// The header of W3C Trace Context.
const TRACEPARENT: &str = "traceparent";
/// Largest text that is fetched.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longest wait for a short text, such as an error's: who sends it in drops says no more.
pub const TEXT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of a body is waited for when nobody needs it any more.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an unused connection is kept.
const POOL_IDLE: Duration = Duration::from_secs(60);

/// A request with a JSON body whose answer is read piece by piece.
#[derive(Debug, Clone)]
pub struct Post {
    /// Where to.
    pub url: String,
    /// `Authorization: Bearer`, when there is a token.
    pub bearer: Option<SecretString>,
    /// Further headers.
    pub headers: Vec<(String, SecretString)>,
    /// What the caller wants back, such as `text/event-stream`.
    pub accept: &'static str,
    /// The body, in JSON.
    pub body: Bytes,
    /// Longest silence: before the headers, and between two pieces of the body.
    pub idle_timeout: Duration,
}

/// A request failed below the level of its status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The address is none. Report it.
    #[error("{0}")]
    BadUrl(String),
    /// A header cannot be sent. Report it.
    #[error("{0}")]
    BadHeader(String),
    /// The client could not be made: no certificates, for one. Report it.
    #[error("cannot set up the HTTP client: {0}")]
    Setup(String),
    /// No connection. Try again later.
    #[error("cannot reach {host}: {cause}")]
    Connect {
        /// Host and port.
        host: String,
        /// The system's words.
        cause: String,
    },
    /// The connection broke in the middle. Try again.
    #[error("the connection to {host} broke: {cause}")]
    Cut {
        /// Host and port.
        host: String,
        /// The system's words.
        cause: String,
    },
    /// Nothing came for too long. Try again.
    #[error("{host} sent nothing for {after_ms} ms")]
    Silent {
        /// Host and port.
        host: String,
        /// The limit.
        after_ms: u128,
    },
}

/// An answer whose body is still coming.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// `Content-Type` without its parameters, in lower case; empty when there is none.
    pub content_type: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
    /// How its body is packed, where that cannot be read here.
    pub coding: Option<String>,
    headers: HeaderMap,
    body: Body,
    host: String,
    idle_timeout: Duration,
    /// Wakes when the silence may have lasted too long. It is not set anew for each piece: of those there are thousands.
    silence: Option<Pin<Box<Sleep>>>,
}

/// Where the rest of a body comes from.
#[derive(Debug)]
enum Body {
    /// From the connection, when it is asked for.
    Asked(Response),
    /// From a task that reads it ahead: a stream of events, in many small pieces.
    Ahead(Ahead),
    /// From the connection, packed.
    Packed(Box<Packed>),
}

/// Sends a request and waits for the headers of its answer, whatever its status.
///
/// # Errors
/// [`HttpError`] when there is no answer.
pub async fn post(request: Post) -> Result<Answer, HttpError> {
    let url = parse_url(&request.url)?;
    let host = host_of(&url);
    let client = client_for(Kind::of(&url)).await?;
    let mut builder = client
        .post(url)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(reqwest::header::ACCEPT, HeaderValue::from_static(request.accept))
        .body(request.body);
    if let Some(token) = &request.bearer {
        builder = builder.bearer_auth(token.expose_secret());
    }
    for (name, value) in &request.headers {
        let (name, value) = header(name, value.expose_secret())?;
        builder = builder.header(name, value);
    }
    // Whose work it is, for whoever follows it on the other side.
    if let Some(context) = Origin::current().context {
        builder = builder.header(TRACEPARENT, context.to_string());
    }
    let response = sent(builder, &host, request.idle_timeout).await?;
    Ok(Answer::of(response, host, request.idle_timeout))
}

/// Fetches a small text: at most 1 MiB of the body of a good answer.
///
/// # Errors
/// [`HttpError`] when there is no answer, or none that is good.
pub async fn get_text(url: &str, idle_timeout: Duration) -> Result<String, HttpError> {
    let url = parse_url(url)?;
    let host = host_of(&url);
    let response = sent(client_for(Kind::of(&url)).await?.get(url), &host, idle_timeout).await?;
    let status = response.status();
    let mut answer = Answer::of(response, host, idle_timeout);
    if !status.is_success() {
        return Err(HttpError::Cut { host: answer.host, cause: format!("status {status}") });
    }
    Ok(answer.text(TEXT_BYTES_MAX).await)
}

/// Sends bytes of protobuf with these headers, and gives the status of the answer.
///
/// # Errors
/// [`HttpError`] when there is no answer.
pub async fn post_protobuf(request: Post, headers: Vec<(String, String)>) -> Result<u16, HttpError> {
    let url = parse_url(&request.url)?;
    let host = host_of(&url);
    let client = client_for(Kind::of(&url)).await?;
    let mut builder = client
        .post(url)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))
        .header(reqwest::header::ACCEPT, HeaderValue::from_static(request.accept))
        .body(request.body);
    for (name, value) in headers {
        let (name, value) = header(&name, &value)?;
        builder = builder.header(name, value);
    }
    let mut response = sent(builder, &host, request.idle_timeout).await?;
    let status = response.status().as_u16();
    // Read to its end, so that the connection can be used again.
    while let Ok(Ok(Some(_))) = within(request.idle_timeout, &host, response.chunk()).await {}
    Ok(status)
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HttpError> {
    let parsed = HeaderName::try_from(name);
    let parsed = parsed.map_err(|_| HttpError::BadHeader(format!("`{name}` is no name of a header")))?;
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| HttpError::BadHeader(format!("the header `{name}` cannot have this value")))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

/// The answer to a request, whatever its status.
async fn sent(builder: RequestBuilder, host: &str, idle_timeout: Duration) -> Result<Response, HttpError> {
    let response = within(idle_timeout, host, builder.send()).await?;
    response.map_err(|error| {
        let cause = innermost(&error);
        if error.is_builder() {
            return HttpError::Setup(cause);
        }
        // A body that could not be sent or headers that broke off: there was a connection.
        if error.is_connect() {
            HttpError::Connect { host: host.to_owned(), cause }
        } else {
            HttpError::Cut { host: host.to_owned(), cause }
        }
    })
}

impl Answer {
    fn of(mut response: Response, host: String, idle_timeout: Duration) -> Self {
        let headers = std::mem::take(response.headers_mut());
        let (status, content_type) = (response.status().as_u16(), content_type(&headers));
        let (body, coding) = match Coding::of(&headers) {
            Coding::Gzip => (Body::Packed(Box::new(Packed::of(response))), None),
            Coding::None if content_type == EVENT_STREAM => (Body::Ahead(Ahead::of(response)), None),
            Coding::None => (Body::Asked(response), None),
            Coding::Other(coding) => (Body::Asked(response), Some(coding)),
        };
        Self {
            status,
            content_type,
            retry_after: retry_after(&headers, clock::machine_ms()),
            coding,
            headers,
            body,
            host,
            idle_timeout,
            silence: None,
        }
    }

    /// A header of it, where it is a text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next piece of the body; None at its end. Cancel-safe.
    ///
    /// # Errors
    /// [`HttpError::Cut`] and [`HttpError::Silent`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        if let Some(piece) = self.there() {
            return Ok(Some(piece));
        }
        let until = Instant::now() + self.idle_timeout;
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        let piece = self.body.next();
        tokio::pin!(piece);
        loop {
            tokio::select! {
                biased;
                piece = &mut piece => {
                    return piece.map_err(|cause| HttpError::Cut { host: self.host.clone(), cause });
                }
                () = &mut *silence => {
                    if Instant::now() >= until {
                        let after_ms = self.idle_timeout.as_millis();
                        return Err(HttpError::Silent { host: self.host.clone(), after_ms });
                    }
                    // It was set for a piece that has come since.
                    silence.as_mut().reset(until);
                }
            }
        }
    }

    /// The next piece, if it has come already.
    pub fn there(&mut self) -> Option<Bytes> {
        match &mut self.body {
            Body::Ahead(ahead) => ahead.there(),
            Body::Asked(_) | Body::Packed(_) => None,
        }
    }

    /// Reads the few bytes that may be left, in the background and for a moment, so that the connection can be used
    /// again.
    pub fn finish(mut self) {
        match self.body.next().now_or_never() {
            Some(Ok(Some(_))) | None => {}
            Some(Ok(None) | Err(_)) => return,
        }
        tokio::spawn(tokio::time::timeout(CLOSING_TIMEOUT, async move {
            while let Ok(Some(_)) = self.body.next().await {}
        }));
    }

    /// The rest of the body, at most `bytes_max` of it. What is not UTF-8 is replaced. A broken end is the end.
    pub async fn text(&mut self, bytes_max: usize) -> String {
        let mut bytes = Vec::new();
        let until = Instant::now() + TEXT_TIMEOUT;
        while let Ok(Ok(Some(piece))) = tokio::time::timeout_at(until, self.chunk()).await {
            let room = bytes_max - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
            if bytes.len() == bytes_max {
                break;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Body {
    /// The next piece; None at the end. Cancel-safe.
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Asked(response) => response.chunk().await.map_err(|error| innermost(&error)),
            Self::Ahead(ahead) => ahead.next().await,
            Self::Packed(packed) => packed.next().await,
        }
    }
}

/// An address as a request would use it.
///
/// # Errors
/// [`HttpError::BadUrl`] that says what is wrong.
pub fn check_url(url: &str) -> Result<(), HttpError> {
    parse_url(url).map(drop)
}

fn parse_url(text: &str) -> Result<Url, HttpError> {
    let bad = |why: &str| HttpError::BadUrl(format!("expected an address such as https://host/path: {why}"));
    let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("it is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("it must not carry a user or password"));
    }
    Ok(url)
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Kinds of addresses. Each has a client of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// This machine: no proxy, no certificates.
    Loopback,
    /// `http`: no certificates.
    Plain,
    /// `https`.
    Secure,
}

impl Kind {
    fn of(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let loopback = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        match (url.scheme(), loopback) {
            ("https", _) => Self::Secure,
            (_, true) => Self::Loopback,
            (_, false) => Self::Plain,
        }
    }
}

async fn client_for(kind: Kind) -> Result<Client, HttpError> {
    static CLIENTS: [OnceLock<Client>; 3] = [const { OnceLock::new() }; 3];
    cached(&CLIENTS, kind, |builder| builder.pool_idle_timeout(POOL_IDLE).redirect(reqwest::redirect::Policy::none()))
        .await
}

/// The client of a kind out of `clients`; made when it is first asked for.
async fn cached(clients: &[OnceLock<Client>; 3], kind: Kind, shape: Shape) -> Result<Client, HttpError> {
    let slot = &clients[kind as usize];
    if let Some(client) = slot.get() {
        return Ok(client.clone());
    }
    let made = match kind {
        Kind::Loopback | Kind::Plain => make_client(kind, shape),
        Kind::Secure => tokio::task::spawn_blocking(move || make_client(kind, shape))
            .await
            .map_err(|error| HttpError::Setup(broken(error)))?,
    }?;
    // Two first requests at once: one client is kept, both are good.
    Ok(slot.get_or_init(|| made).clone())
}

/// What sets the clients of one purpose apart.
type Shape = fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder;

fn make_client(
    kind: Kind,
    shape: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<Client, HttpError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut headers = HeaderMap::new();
    headers.insert(reqwest::header::USER_AGENT, HeaderValue::from_static(concat!("simse/", env!("CARGO_PKG_VERSION"))));
    let builder = shape(Client::builder().default_headers(headers).connect_timeout(CONNECT_TIMEOUT));
    let builder = match kind {
        Kind::Secure => {
            // Err: another part of the program has chosen a provider already, which is as good.
            let _ = rustls::crypto::CryptoProvider::install_default(provider.as_ref().clone());
            builder
        }
        Kind::Loopback => without_certificates(builder.no_proxy(), provider)?,
        Kind::Plain => without_certificates(builder, provider)?,
    };
    builder.build().map_err(|error| HttpError::Setup(innermost(&error)))
}

/// A TLS set-up that trusts nobody: reading the root certificates takes time, and plain HTTP needs none.
fn without_certificates(
    builder: reqwest::ClientBuilder,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<reqwest::ClientBuilder, HttpError> {
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpError::Setup(error.to_string()))?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Ok(builder.tls_backend_preconfigured(config))
}

async fn within<T>(limit: Duration, host: &str, work: impl Future<Output = T>) -> Result<T, HttpError> {
    let silent = |_| HttpError::Silent { host: host.to_owned(), after_ms: limit.as_millis() };
    tokio::time::timeout(limit, work).await.map_err(silent)
}

/// The words of the error that began it; the outer ones repeat the address.
fn innermost(error: &reqwest::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(source) = at.source() {
        at = source;
    }
    if std::ptr::addr_eq(at, std::ptr::from_ref(error)) {
        return "the request failed".to_owned();
    }
    at.to_string()
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// `retry-after-ms`, or `Retry-After` in seconds or as a date.
fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && (0.0..1e9).contains(n));
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Some(Duration::from_secs_f64(ms / 1e3));
    }
    let value = text(RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(value) {
        return Some(Duration::from_secs_f64(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    let then_ms = u64::try_from(date.as_millisecond()).ok()?;
    Some(Duration::from_millis(then_ms.saturating_sub(now_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_their_clients() {
        #[rustfmt::skip]
        let table = [
            ("https://api.example.com/v1", Ok(Kind::Secure)),
            ("https://127.0.0.1/v1", Ok(Kind::Secure)),
            ("http://127.0.0.1:80/v1", Ok(Kind::Loopback)),
            ("http://[::1]:8080/v1", Ok(Kind::Loopback)),
            ("http://localhost:1/", Ok(Kind::Loopback)),
            ("http://192.168.0.5:1/", Ok(Kind::Plain)),
            ("localhost:8080", Err("it is neither http nor https")),
            ("file:///etc/passwd", Err("it is neither http nor https")),
            ("not a url", Err("expected an address")),
            ("https://me:secret@host/", Err("must not carry a user")),
        ];
        for (text, want) in table {
            match (parse_url(text), want) {
                (Ok(url), Ok(kind)) => assert_eq!(Kind::of(&url), kind, "{text}"),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().contains(words), "{error}");
                    assert!(!error.to_string().contains("secret"), "{error}");
                }
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn what_a_server_asks_to_wait() {
        // 1445412480000 is Wed, 21 Oct 2015 07:28:00 GMT.
        #[rustfmt::skip]
        let table = [
            ("retry-after", "2", Some(2000)),
            ("retry-after", " 0.5 ", Some(500)),
            ("retry-after-ms", "1500", Some(1500)),
            ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", Some(10_000)),
            ("retry-after", "Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
            ("retry-after", "soon", None),
            ("retry-after", "-1", None),
            ("retry-after", "nan", None),
            ("x-other", "1", None),
        ];
        for (name, value, want_ms) in table {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            let got = retry_after(&headers, 1_445_412_470_000);
            assert_eq!(got, want_ms.map(Duration::from_millis), "{name}: {value}");
        }
    }

    #[tokio::test]
    async fn each_kind_has_its_client() {
        for kind in [Kind::Loopback, Kind::Plain] {
            assert!(client_for(kind).await.is_ok(), "{kind:?}");
        }
        // A machine without root certificates is told so; everything else must work.
        if let Err(error) = client_for(Kind::Secure).await {
            assert!(error.to_string().contains("certificates"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_port_that_nobody_listens_on() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let request = Post {
            url: format!("http://{free}/path?key=secret"),
            bearer: Some("token".into()),
            headers: Vec::new(),
            accept: "*/*",
            body: Bytes::from_static(b"{}"),
            idle_timeout: Duration::from_secs(5),
        };
        let error = post(request).await.unwrap_err();
        assert!(matches!(&error, HttpError::Connect { host, .. } if *host == free.to_string()), "{error:?}");
        assert!(!error.to_string().contains("secret") && !error.to_string().contains("token"), "{error}");
    }

    /// A server that goes on in drops, with each drop well within the silence that is waited for.
    #[tokio::test]
    async fn a_text_in_drops_has_an_end() {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0_u8; 4096];
            assert!(stream.read(&mut asked).unwrap() > 0);
            let mut said = stream.write_all(b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndrop\r\n");
            // Until nobody listens.
            while said.is_ok() {
                std::thread::sleep(Duration::from_millis(1));
                said = stream.write_all(b"1\r\n.\r\n");
            }
        });
        let (accept, idle_timeout) = ("*/*", Duration::from_secs(60));
        let (bearer, headers, body) = (None, Vec::new(), Bytes::new());
        let mut answer = post(Post { url, bearer, headers, accept, body, idle_timeout }).await.unwrap();
        let first = answer.chunk().await.unwrap();
        assert!(first.is_some_and(|piece| piece.starts_with(b"drop")));
        // From here on time passes as soon as nothing is left to be done.
        tokio::time::pause();
        let begun = Instant::now();
        let text = answer.text(1 << 20).await;
        assert!(text.bytes().all(|byte| byte == b'.'), "{text}");
        assert!((TEXT_TIMEOUT..2 * TEXT_TIMEOUT).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        drop(answer);
        tokio::task::spawn_blocking(|| server.join()).await.unwrap().unwrap();
    }
}
