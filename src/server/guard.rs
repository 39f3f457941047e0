//! Who may come in (contract.md, Doors): the names a request may call us by, the pages it may come
//! from, the token, and what its role allows.
//!
//! Invariant: nothing behind the guard runs for a request that the guard refused, and no body is read.

use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method, request};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::headers::single;
use super::keys::{Bearer, Keys};
use super::page;
use super::peer::Peer;
use crate::app::{Answers, COMMAND_PATH, Caller, CallerPassed, NodeKey};
use crate::protocol::{Access, ApiError, ClientId, ErrorCode, SessionId, TokenName, TokenRole};

const CLIENT: HeaderName = HeaderName::from_static("x-client-id");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What every server may be called by a program of its own machine.
const OWN_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
/// Wrong tokens that are answered at once before the slowing begins.
const WRONG_FREE: u32 = 3;
/// First pause; doubles with each further wrong token.
const PAUSE_MS: u64 = 50;
/// Longest pause between two wrong tokens.
const PAUSE_MS_MAX: u64 = 2_000;
/// Longest wait of one wrong token behind others; past it they are refused at once.
const WAIT_MS_MAX: u64 = 10_000;
/// After so long without a wrong token all is forgotten.
const FORGET_MS: u64 = 60_000;

/// The checks before every route.
#[derive(Debug)]
pub(crate) struct Guard {
    /// `Host` values that are ours. None: any (public, and then a token is there).
    hosts: Option<Vec<String>>,
    /// How the server's own pages begin.
    scheme: &'static str,
    keys: Keys,
    wrong: Mutex<Wrong>,
    /// Whether the metrics are for everybody.
    metrics_open: bool,
    /// By what the servers of the store know one another.
    node_key: Option<NodeKey>,
}

/// Somebody whose request goes on.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Who calls.
    pub(crate) caller: Caller,
    /// Fires when the token that was shown no longer counts: what it opened ends then. None: it always will.
    pub(crate) ends: Option<CancellationToken>,
    /// Nobody has said who calls, where a token would.
    pub(crate) is_nobody: bool,
    /// The name of the token that was shown, where it is a named one.
    pub(crate) token: Option<TokenName>,
    /// Another server of the store has handed it on: by that it knows the answer.
    pub(crate) answers: Option<Answers>,
}

/// With which named token a request was made. None: with the owner's, or none.
#[derive(Debug, Clone)]
pub(crate) struct Shown(pub(crate) Option<TokenName>);

/// Marks a request of which nobody has said who calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nobody;

#[derive(Debug, Default)]
struct Wrong {
    count: u32,
    last: Option<Instant>,
    /// When the next one gets its answer, at the earliest.
    next: Option<Instant>,
}

impl Guard {
    /// The guard of a server on `host` and `port`. `any_host`: requests may call it by any name.
    pub(crate) fn new(host: &str, port: u16, any_host: bool, keys: Keys) -> Self {
        let hosts = (!any_host).then(|| own_hosts(host, port));
        Self { hosts, scheme: "http://", keys, wrong: Mutex::default(), metrics_open: false, node_key: None }
    }

    /// The same behind TLS.
    pub(crate) fn secured(self) -> Self {
        Self { scheme: "https://", ..self }
    }

    /// The same, where `GET /metrics` may need no token.
    pub(crate) fn with_open_metrics(self, metrics_open: bool) -> Self {
        Self { metrics_open, ..self }
    }

    /// The same, where other servers share the store.
    pub(crate) fn among_nodes(self, node_key: Option<NodeKey>) -> Self {
        Self { node_key, ..self }
    }

    /// The tokens that open it.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Lets a request in and says who calls.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `FORBIDDEN`, `UNAUTHORIZED`, or `RESOURCE_EXHAUSTED` for too many wrong tokens.
    pub(crate) async fn admit(&self, head: &request::Parts, peer: Peer) -> Result<Admitted, ApiError> {
        if let Some((passed, answers)) = self.passed_on(head)? {
            let (caller, token) = passed.into_caller();
            // The server that was asked has looked at that; what it has not looked at is refused here.
            if head.uri.path() != COMMAND_PATH {
                check_role(caller.role, access(&head.method, head.uri.path()))?;
                confined(&caller, head)?;
            }
            return Ok(Admitted { caller, ends: None, is_nobody: false, token, answers: Some(answers) });
        }
        if peer == Peer::Letter {
            return Err(unauthorized("a request through the database is one of another server of the store"));
        }
        let host = self.check_host(head, peer)?;
        self.check_origin(head, (&host, peer))?;
        let within = client(&head.headers)?;
        if self.is_open(head) && self.is_nobody(head, peer) {
            // Whoever it is learns no more than that it runs.
            let caller = Caller { client: within, role: TokenRole::ReadOnly, only: None };
            return Ok(Admitted { caller, ends: None, is_nobody: true, token: None, answers: None });
        }
        let bearer = self.check_token(&head.headers, peer).await?;
        check_role(bearer.role(), access(&head.method, head.uri.path()))?;
        let (caller, token) = (bearer.caller(within), bearer.name().cloned());
        confined(&caller, head)?;
        Ok(Admitted { caller, ends: bearer.ends, is_nobody: false, token, answers: None })
    }

    /// Who calls through another server of the store, which has looked at who it is.
    fn passed_on(&self, head: &request::Parts) -> Result<Option<(CallerPassed, Answers)>, ApiError> {
        let Some(key) = &self.node_key else { return Ok(None) };
        key.admit(&head.headers, (&head.method, &head.uri))
    }

    /// The `Host` of the request, in lower case.
    fn check_host(&self, head: &request::Parts, peer: Peer) -> Result<String, ApiError> {
        let host = single(&head.headers, &HOST)?
            .ok_or_else(|| ApiError::invalid("Host", "the host and port that the server listens on"))?
            .to_ascii_lowercase();
        let in_line = head.uri.authority().map(|a| a.as_str().to_ascii_lowercase());
        // Over the Unix socket there is no port to name.
        let bare = |name: &str| peer == Peer::Local && OWN_NAMES.contains(&name);
        let strange = |name: &String| self.hosts.as_ref().is_some_and(|own| !own.contains(name)) && !bare(name);
        match [Some(host.clone()), in_line].into_iter().flatten().find(strange) {
            None => Ok(host),
            Some(name) => Err(forbidden("Host", &format!("`{name}` is not a name of this server"), &self.expected())),
        }
    }

    fn check_origin(&self, head: &request::Parts, (host, peer): (&str, Peer)) -> Result<(), ApiError> {
        let Some(origin) = single(&head.headers, &ORIGIN)? else {
            return self.check_fetch_site(head);
        };
        let origin = origin.to_ascii_lowercase();
        let own = match &self.hosts {
            // No browser speaks to it: whoever says so must at least say the same twice.
            _ if peer == Peer::Local => origin.strip_prefix("http://") == Some(host),
            Some(hosts) => origin.strip_prefix(self.scheme).is_some_and(|o| hosts.iter().any(|h| h == o)),
            // What stands before it may have taken the TLS off.
            None => ["http://", "https://"].iter().any(|s| origin.strip_prefix(s) == Some(host)),
        };
        if own {
            return Ok(());
        }
        Err(forbidden(
            "Origin",
            &format!("pages of `{origin}` may not call this server"),
            "the server's own origin, or none",
        ))
    }

    /// A browser that sends no `Origin` with a write still says where the page is from.
    fn check_fetch_site(&self, head: &request::Parts) -> Result<(), ApiError> {
        let reads = head.method == Method::GET || head.method == Method::HEAD;
        match single(&head.headers, &FETCH_SITE)? {
            Some("cross-site" | "same-site") if !reads => {
                Err(forbidden("Sec-Fetch-Site", "pages of other sites may not write here", "same-origin or none"))
            }
            _ => Ok(()),
        }
    }

    async fn check_token(&self, headers: &HeaderMap, peer: Peer) -> Result<Bearer, ApiError> {
        let given = single(headers, &AUTHORIZATION)?;
        // The kernel has said who is at the socket; who shows a token there all the same wants to be its bearer.
        if !self.keys.wanted() || (peer == Peer::Local && given.is_none()) {
            return Ok(Bearer::owner());
        }
        let Some(given) = given else {
            return Err(unauthorized("this server wants its token: `Authorization: Bearer <token>`"));
        };
        let bearer = given.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("bearer "));
        let given = bearer.and_then(|_| given.get(7..)).map_or("", str::trim);
        if let Some(bearer) = self.keys.find_fresh(given).await {
            return Ok(bearer);
        }
        let pause = self.wrong.lock().note(Instant::now());
        match pause {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(ApiError::new(ErrorCode::ResourceExhausted, "too many wrong tokens; wait a little")),
        }
        Err(unauthorized("the token is wrong"))
    }

    /// Whether a request needs no token: how the server is, in one word, and which one, is for everybody.
    fn is_open(&self, head: &request::Parts) -> bool {
        let reads = head.method == Method::GET || head.method == Method::HEAD;
        let path = head.uri.path();
        let in_a_word = path == "/health" || (path == "/metrics" && self.metrics_open);
        let told = head.uri.query().is_none() && (in_a_word || path.starts_with("/proof/"));
        reads && (told || page::is_page(path))
    }

    /// Whether nobody says who calls, where somebody could: a token that is shown is looked at, also where none is needed.
    fn is_nobody(&self, head: &request::Parts, peer: Peer) -> bool {
        self.keys.wanted() && peer != Peer::Local && !head.headers.contains_key(AUTHORIZATION)
    }

    fn expected(&self) -> String {
        self.hosts.as_ref().map_or_else(String::new, |hosts| format!("one of {}", hosts.join(", ")))
    }
}

impl Wrong {
    /// Counts one. How long its answer waits; None when too many wait already.
    fn note(&mut self, now: Instant) -> Option<Duration> {
        if self.last.is_some_and(|last| now.duration_since(last) > Duration::from_millis(FORGET_MS)) {
            *self = Self::default();
        }
        let from = self.next.filter(|next| *next > now).unwrap_or(now);
        if from.duration_since(now) > Duration::from_millis(WAIT_MS_MAX) {
            return None;
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
        let pause_ms = match self.count.checked_sub(WRONG_FREE + 1) {
            None => 0,
            Some(doublings) => (PAUSE_MS << doublings.min(16)).min(PAUSE_MS_MAX),
        };
        let at = from + Duration::from_millis(pause_ms);
        self.next = Some(at);
        Some(at.duration_since(now))
    }
}

/// What a request is about, by its first line alone. What is not known here to be harmless is work.
fn access(method: &Method, path: &str) -> Access {
    match (method.as_str(), path) {
        ("GET" | "HEAD", _) | ("POST", "/permissions/explain") => Access::Read,
        // What each message wants is seen there (`mcp`).
        ("POST" | "DELETE", "/mcp") => Access::Read,
        _ => Access::Work,
    }
}

/// Whether who reaches one session alone may go this way. What is not known here to lead to that session and no further is closed.
fn reaches(method: &Method, path: &str, session: &SessionId) -> bool {
    if path == "/mcp" {
        // Bound to the session there.
        return matches!(method.as_str(), "GET" | "HEAD" | "POST" | "DELETE");
    }
    let within = path.strip_prefix("/sessions/").and_then(|rest| rest.strip_prefix(session.as_str()));
    let Some(within) = within else { return false };
    // One thing of a list, and nothing further.
    let one_of = |list: &str| within.strip_prefix(list).is_some_and(|one| !one.is_empty() && !one.contains('/'));
    match method.as_str() {
        "GET" | "HEAD" => {
            one_of("/turns/")
                || one_of("/blackboard/")
                || matches!(
                    within,
                    "" | "/events"
                        | "/history"
                        | "/turns"
                        | "/files"
                        | "/diff"
                        | "/agent"
                        | "/mcp"
                        | "/blackboard"
                        | "/tasks"
                )
        }
        "POST" => matches!(
            within,
            "/prompt" | "/compact" | "/abort" | "/interrupt" | "/pause" | "/resume" | "/undo" | "/redo" | "/tasks"
        ),
        "PUT" => one_of("/blackboard/"),
        "PATCH" => one_of("/tasks/"),
        "DELETE" => within == "/blackboard" || one_of("/blackboard/") || one_of("/tasks/"),
        _ => false,
    }
}

/// Holds the bearer of a token of one session to it.
fn confined(caller: &Caller, head: &request::Parts) -> Result<(), ApiError> {
    match caller.only.as_ref().filter(|id| !reaches(&head.method, head.uri.path(), id)) {
        Some(id) => Err(ApiError::confined(id)),
        None => Ok(()),
    }
}

/// The one place where routes are held against roles. What only the application can tell apart asks [`Caller::needs`].
fn check_role(role: TokenRole, access: Access) -> Result<(), ApiError> {
    if role.may(access) { Ok(()) } else { Err(ApiError::role_needed(role, TokenRole::least(access))) }
}

fn own_hosts(host: &str, port: u16) -> Vec<String> {
    let configured = if host.contains(':') { format!("[{host}]") } else { host.to_ascii_lowercase() };
    let mut names = OWN_NAMES.map(str::to_owned).to_vec();
    if !names.contains(&configured) {
        names.push(configured);
    }
    let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
    if port == 80 {
        hosts.extend(names);
    }
    hosts
}

fn client(headers: &HeaderMap) -> Result<Option<ClientId>, ApiError> {
    let Some(text) = single(headers, &CLIENT)? else { return Ok(None) };
    ClientId::plain(text).map(Some).map_err(|cause| ApiError::unread("X-Client-ID", &cause))
}

fn forbidden(field: &str, message: &str, expected: &str) -> ApiError {
    ApiError::new(ErrorCode::Forbidden, message)
        .with_details(serde_json::json!({ "field": field, "expected": expected }))
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, message)
        .with_details(serde_json::json!({ "field": "Authorization", "expected": "Bearer <token>" }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> request::Parts {
        let mut builder = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    fn network() -> Peer {
        Peer::Network(([127, 0, 0, 1], 5).into())
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_at_the_socket_is_the_owner_unless_it_shows_a_token() {
        let guard = guard("127.0.0.1", false, Some("sesame"));
        #[rustfmt::skip]
        let table: &[(&[(&str, &str)], Result<(), ErrorCode>)] = &[
            (&[("host", "localhost")], Ok(())),
            (&[("host", "localhost:4100")], Ok(())),
            (&[("host", "localhost"), ("authorization", "Bearer sesame")], Ok(())),
            (&[("host", "localhost"), ("authorization", "Bearer wrong")], Err(ErrorCode::Unauthorized)),
            (&[("host", "localhost:4101")], Err(ErrorCode::Forbidden)),
            (&[("host", "attacker.example")], Err(ErrorCode::Forbidden)),
            (&[], Err(ErrorCode::InvalidArgument)),
            (&[("host", "localhost"), ("origin", "http://localhost")], Ok(())),
            (&[("host", "localhost"), ("origin", "http://localhost:4100")], Err(ErrorCode::Forbidden)),
        ];
        for (headers, want) in table {
            let told = guard.admit(&head("POST", "/sessions", headers), Peer::Local).await;
            let told = told.map(|admitted| assert_eq!(admitted.caller, Caller::default())).map_err(|e| e.code());
            assert_eq!(told, *want, "{headers:?}");
        }
        let bare = head("GET", "/tools", &[("host", "localhost")]);
        assert!(guard.admit(&bare, network()).await.is_err(), "over the network the port is part of the name");
    }

    #[tokio::test]
    async fn behind_tls_our_pages_are_secure_ones() {
        let guard = guard("127.0.0.1", false, None).secured();
        for (origin, ok) in [("https://127.0.0.1:4100", true), ("http://127.0.0.1:4100", false)] {
            let head = head("POST", "/sessions", &[("host", "127.0.0.1:4100"), ("origin", origin)]);
            assert_eq!(guard.admit(&head, network()).await.is_ok(), ok, "{origin}");
        }
    }

    fn guard(host: &str, any_host: bool, token: Option<&str>) -> Guard {
        Guard::new(host, 4100, any_host, Keys::new(token.map(|token| token.to_owned().into()), None))
    }

    fn code(result: Result<Admitted, ApiError>) -> Option<ErrorCode> {
        result.err().map(|error| error.code())
    }

    #[tokio::test]
    async fn only_our_own_names_and_pages_come_in() {
        use ErrorCode::{Forbidden, InvalidArgument};
        let guard = guard("127.0.0.1", false, None);
        #[rustfmt::skip]
        let table: &[(&str, &str, &[(&str, &str)], Option<ErrorCode>)] = &[
            ("GET", "/tools", &[("host", "127.0.0.1:4100")], None),
            ("GET", "/tools", &[("host", "LocalHost:4100")], None),
            ("GET", "/tools", &[("host", "[::1]:4100")], None),
            ("GET", "/tools", &[], Some(InvalidArgument)),
            ("GET", "/tools", &[("host", "127.0.0.1")], Some(Forbidden)),
            ("GET", "/tools", &[("host", "127.0.0.1:4101")], Some(Forbidden)),
            ("GET", "/tools", &[("host", "attacker.example:4100")], Some(Forbidden)),
            ("GET", "/health", &[("host", "attacker.example:4100")], Some(Forbidden)),
            ("GET", "/tools", &[("host", "127.0.0.1:4100"), ("host", "localhost:4100")], Some(InvalidArgument)),
            ("GET", "http://attacker.example:4100/tools", &[("host", "127.0.0.1:4100")], Some(Forbidden)),
            ("POST", "/sessions", &[("host", "127.0.0.1:4100"), ("origin", "http://127.0.0.1:4100")], None),
            ("POST", "/sessions", &[("host", "127.0.0.1:4100"), ("origin", "http://localhost:4100")], None),
            ("POST", "/sessions", &[("host", "127.0.0.1:4100"), ("origin", "http://localhost:9999")], Some(Forbidden)),
            ("POST", "/sessions", &[("host", "127.0.0.1:4100"), ("origin", "https://127.0.0.1:4100")], Some(Forbidden)),
            ("POST", "/sessions", &[("host", "127.0.0.1:4100"), ("origin", "null")], Some(Forbidden)),
            ("GET", "/tools", &[("host", "127.0.0.1:4100"), ("origin", "https://attacker.example")], Some(Forbidden)),
            ("POST", "/sessions", &[("host", "127.0.0.1:4100"), ("sec-fetch-site", "cross-site")], Some(Forbidden)),
            ("POST", "/sessions", &[("host", "127.0.0.1:4100"), ("sec-fetch-site", "same-origin")], None),
            ("GET", "/tools", &[("host", "127.0.0.1:4100"), ("x-client-id", "a b")], Some(InvalidArgument)),
        ];
        for (method, uri, headers, want) in table {
            assert_eq!(
                code(guard.admit(&head(method, uri, headers), network()).await),
                *want,
                "{method} {uri} {headers:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_token_is_wanted_everywhere_but_for_health() {
        let guard = guard("0.0.0.0", true, Some("sesame"));
        let table = [
            ("/health", None, true),
            ("/health", Some("Bearer sesame"), true),
            ("/health", Some("Bearer sesam"), false),
            ("/health?verbose=true", None, false),
            ("/health?verbose=true", Some("Bearer sesame"), true),
            ("/proof/0", None, true),
            ("/proof", None, false),
            ("/healthy", None, false),
            ("/tools", None, false),
            ("/tools", Some("Bearer sesame"), true),
            ("/tools", Some("bearer sesame"), true),
            ("/tools", Some("Bearer sesam"), false),
            ("/tools", Some("Bearer sesame2"), false),
            ("/tools", Some("Bearer "), false),
            ("/tools", Some("Basic sesame"), false),
            ("/tools", Some("sesame"), false),
        ];
        for (path, token, ok) in table {
            let mut headers = vec![("host", "shop.example")];
            headers.extend(token.map(|t| ("authorization", t)));
            let result = guard.admit(&head("GET", path, &headers), network()).await;
            assert_eq!(result.is_ok(), ok, "{path} {token:?}");
            let is_nobody = result.is_ok_and(|admitted| admitted.is_nobody);
            assert_eq!(is_nobody, token.is_none() && ok, "{path} {token:?}");
        }
    }

    #[test]
    fn every_route_has_its_role() {
        use Access::{Read, Work};
        #[rustfmt::skip]
        let table = [
            ("GET", "/sessions", Read), ("HEAD", "/sessions", Read), ("GET", "/sessions/s/events", Read),
            ("GET", "/sessions/s/turns/t", Read), ("GET", "/nowhere", Read), ("GET", "/metrics", Read), ("GET", "/nodes", Read), ("POST", "/drain", Work),
            ("POST", "/permissions/explain", Read), ("POST", "/permissions/explain/", Work),
            ("POST", "/mcp", Read), ("DELETE", "/mcp", Read), ("PUT", "/mcp", Work), ("GET", "/ws", Read), ("POST", "/sessions", Work), ("POST", "/sessions/s/prompt", Work),
            ("PATCH", "/sessions/s", Work), ("DELETE", "/sessions/s", Work), ("BREW", "/sessions", Work),
            ("POST", "/sessions/s/feedback", Work), ("DELETE", "/permissions/grants/g", Work), ("POST", "/nowhere", Work),
            ("OPTIONS", "/sessions", Work), ("get", "/sessions", Work),
        ];
        for (method, path, want) in table {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(access(&method, path), want, "{method} {path}");
        }
        let refused = check_role(TokenRole::ReadOnly, Work).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Forbidden);
        assert!(refused.to_string().contains("operator"), "{refused}");
    }

    #[test]
    fn who_reaches_one_session_goes_nowhere_else() {
        #[rustfmt::skip]
        let table = [
            ("GET", "/sessions/s", true), ("GET", "/sessions/s/events", true), ("GET", "/sessions/s/turns/t", true),
            ("POST", "/sessions/s/prompt", true), ("POST", "/mcp", true), ("DELETE", "/mcp", true),
            ("GET", "/sessions/s2", false), ("GET", "/sessions/s2/events", false), ("GET", "/sessions/", false), ("GET", "/sessions", false),
            ("POST", "/sessions", false), ("PATCH", "/sessions/s", false), ("DELETE", "/sessions/s", false), ("POST", "/sessions/s/fork", false),
            ("POST", "/sessions/s/feedback", false), ("POST", "/sessions/s/tokens", false), ("GET", "/sessions/s/tokens", false),
            ("POST", "/sessions/s/mcp/trust", false), ("POST", "/sessions/s/mcp/ask", false), ("GET", "/sessions/s/nowhere", false), ("GET", "/sessions/s/", false),
            ("GET", "/sessions/s/turns/t/x", false), ("GET", "/sessions/%73", false), ("GET", "//sessions/s", false),
            ("GET", "/events", false), ("GET", "/ws", false), ("POST", "/acp", false), ("GET", "/acp", false), ("GET", "/models", false),
            ("GET", "/permissions/grants", false), ("POST", "/permissions/explain", false), ("GET", "/metrics", false), ("GET", "/health", false), ("GET", "/config", false),
            ("GET", "/nodes", false), ("POST", "/drain", false),
            ("PUT", "/mcp", false), ("POST", "/mcp/", false), ("POST", "/sessions/s/prompt/", false),
        ];
        for (method, path, want) in table {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(reaches(&method, path, &"s".parse().unwrap()), want, "{method} {path}");
        }
    }

    #[test]
    fn wrong_tokens_are_slowed_down_and_then_refused() {
        let mut wrong = Wrong::default();
        let now = Instant::now();
        let waits: Vec<Option<u128>> = (0..20).map(|_| wrong.note(now).map(|d| d.as_millis())).collect();
        assert_eq!(waits[..6], [Some(0), Some(0), Some(0), Some(50), Some(150), Some(350)]);
        assert_eq!(waits.last(), Some(&None));
        let later = now + Duration::from_millis(FORGET_MS + WAIT_MS_MAX * 2);
        assert_eq!(wrong.note(later), Some(Duration::ZERO));
    }
}
