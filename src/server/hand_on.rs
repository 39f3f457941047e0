//! Requests for sessions of other nodes, where several servers share a store: each is handed to the node that has its session, as it came,
//! before anything was done for it. So it is done once, by one node, and whoever asks need not know which.
//!
//! Event streams are not handed on: they are read from the log, on the node that was asked.
//!
//! What was sent to a node that was lost meanwhile is sent again to the one that follows it, where that cannot do it twice: what only
//! reads, and what has a key. Of anything else its sender is told that it may have been done.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, request};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

use super::Shared;
use super::answer::Failure;
use super::call;
use super::guard::Admitted;
use super::query::Query;
use super::until::Until;
use crate::app::{
    Answers, BETWEEN_NODES, Caller, CallerPassed, HOPS, Handing, Holder, LEAVES, NodeKey, PATIENCE, PAUSE, Unanswered,
    Whereabouts,
};
use crate::base::http::{Coming, target_of};
use crate::protocol::{ApiError, ErrorCode, RunId, SessionId, TokenName};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MCP_SESSION: HeaderName = super::mcp::http::SESSION;
const ACP_CONNECTION: HeaderName = super::acp::http::CONNECTION;
/// A request goes no further.
const HOPS_MAX: u8 = 3;
/// How long answers of other servers are waited for when this one has ended: less than its connections have.
const LAST_ANSWERS: Duration = Duration::from_millis(400);

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    /// That session.
    Session(SessionId),
    /// A session that is not there yet.
    NewSession,
    /// What a node keeps of a client that it speaks MCP or ACP with, by its name.
    Kept(String),
    /// The session that its body names, if any.
    InBody,
}

/// What is looked for in a body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Naming {
    session_id: SessionId,
}

/// What a request is about that is done on one node. None: any does it.
fn about(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<About> {
    let path = uri.path();
    let kept = |name: &HeaderName| Some(About::Kept(headers.get(name)?.to_str().ok()?.to_owned()));
    let named = |field: &str| Query::of(uri).ok()?.text(field)?.parse().ok().map(About::Session);
    match path {
        "/acp" => return kept(&ACP_CONNECTION),
        // What its calls are to run in is where that is.
        "/mcp" => return kept(&MCP_SESSION).or_else(|| named("session")),
        _ => {}
    }
    if method == Method::POST && path == "/sessions" {
        return Some(About::NewSession);
    }
    if let Some(rest) = path.strip_prefix("/sessions/") {
        let (id, within) = rest.split_once('/').unwrap_or((rest, ""));
        // Read from the log.
        let streams = within == "events" && matches!(*method, Method::GET | Method::HEAD);
        return (!streams).then(|| decoded(id)?.parse().ok().map(About::Session))?;
    }
    if let Some(rest) = path.strip_prefix("/runs/") {
        let run: RunId = decoded(rest.split('/').next().unwrap_or(rest))?.parse().ok()?;
        return Some(About::Session(run.session));
    }
    if path.starts_with("/-/") {
        return None;
    }
    if method == Method::POST && path == "/permissions/explain" {
        return Some(About::InBody);
    }
    named("sessionId")
}

/// Whether it is read from a session's workspace: by a node that reaches that, and not from what another one has at the same path.
fn reads_workspace(path: &str) -> bool {
    let of_session = || path.strip_prefix("/sessions/").and_then(|rest| rest.split_once('/'));
    matches!(path, "/skills" | "/commands") || of_session().is_some_and(|(_, within)| within == "files")
}

/// A piece of a path as it is meant.
fn decoded(text: &str) -> Option<String> {
    Query::of(&format!("/?piece={text}").parse().ok()?).ok()?.text("piece")
}

/// Whether it would arrive as it came: a path with `..` or `\\` in it may be read as another one on its way.
fn keeps_its_path(uri: &Uri) -> bool {
    let climbs = |piece: &str| matches!(piece.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    !uri.path().contains('\\') && !uri.path().split('/').any(climbs)
}

/// Whether it changes nothing.
fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// How often a request was handed on already.
fn hops(headers: &HeaderMap) -> u8 {
    headers.get(HOPS).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// The refusal where this server ends before another one has answered.
fn stops_before(holder: &Holder, repeats: bool) -> String {
    let rest = if repeats { "ask again" } else { "it may have been done" };
    format!("this server is stopping, and {}, which has the session, has not answered yet: {rest}", holder.name)
}

/// A request that may have to be handed on.
pub(super) struct Passing<'a> {
    shared: &'a Shared,
    key: NodeKey,
    about: About,
    /// How often it was handed on before.
    hops: u8,
    caller: Caller,
    token: Option<TokenName>,
}

impl<'a> Passing<'a> {
    /// None: it is done here whatever comes.
    pub(super) fn of(shared: &'a Shared, head: &request::Parts, who: &Admitted) -> Option<Self> {
        let key = shared.node_key.clone()?;
        let about = about(&head.method, &head.uri, &head.headers)?;
        // Only another node says how often.
        let hops = if who.answers.is_some() { hops(&head.headers) } else { 0 };
        Some(Self { shared, key, about, hops, caller: who.caller.clone(), token: who.token.clone() })
    }

    async fn whereabouts(&self, head: &request::Parts) -> Result<Whereabouts, ApiError> {
        match &self.about {
            About::Session(id) => {
                let takes = !only_reads(&head.method) || reads_workspace(head.uri.path());
                self.shared.app.whereabouts(id, takes).await
            }
            About::NewSession => self.shared.app.place_for_new().await,
            About::Kept(name) => self.shared.app.whereabouts_of_named(name).await,
            // Whoever is asked says what is wrong with it.
            About::InBody => Ok(Whereabouts::Here),
        }
    }

    /// Answers it, here or there.
    pub(super) async fn answer(mut self, head: request::Parts, mut body: Body, router: Router) -> Response {
        if self.about == About::InBody {
            let text = match call::take_in(&head.headers, body, self.shared).await {
                Ok(text) => text,
                Err(failure) => return failure.into_response(),
            };
            if let Ok(Naming { session_id }) = serde_json::from_slice(&text) {
                self.about = About::Session(session_id);
            }
            body = Body::from(text.to_vec());
        }
        let holder = match self.whereabouts(&head).await {
            Ok(Whereabouts::Here) => {
                let Ok(response) = router.oneshot(Request::from_parts(head, body)).await;
                return response;
            }
            Ok(Whereabouts::At(holder)) if keeps_its_path(&head.uri) => holder,
            refused => {
                let path = || ApiError::invalid("path", "a path without `..`, `.` and `\\`");
                let error = refused.err().unwrap_or_else(path);
                call::drain(&head.headers, body, self.shared);
                return Failure::from(error).into_response();
            }
        };
        // Whole, so that it can be sent again.
        let body = match call::take_in(&head.headers, body, self.shared).await {
            Ok(body) => body,
            Err(failure) => return failure.into_response(),
        };
        match self.hand(&head, Bytes::copy_from_slice(&body), holder).await {
            Ok(Some(response)) => response,
            // It has come to be this node's meanwhile.
            Ok(None) => {
                let body = Body::from(body.to_vec());
                let Ok(response) = router.oneshot(Request::from_parts(head, body)).await;
                response
            }
            Err(error) => Failure::from(error).into_response(),
        }
    }

    /// Hands it to who has the session, or to who follows that one. None: this node does.
    async fn hand(&self, head: &request::Parts, body: Bytes, first: Holder) -> Result<Option<Response>, ApiError> {
        let hops = self.hops.saturating_add(1);
        if hops > HOPS_MAX {
            return Err(unavailable(format!(
                "the session went from one server to another {HOPS_MAX} times: ask again"
            )));
        }
        let repeats = only_reads(&head.method) || head.headers.contains_key(KEY);
        let handing = Handing { repeats, waits: head.method == Method::POST && head.uri.path().ends_with("/prompt") };
        let (mut deadline, mut holder) = (Instant::now() + PATIENCE, first);
        loop {
            let (request, answers) = self.request(head, (&holder, hops), body.clone())?;
            let sent = tokio::select! {
                sent = self.shared.app.hand_to((&holder, self.is_lost(&holder)), (request, &answers), handing) => sent,
                () = self.is_cut_off() => return Err(unavailable(stops_before(&holder, repeats))),
            };
            let why = match sent {
                Ok(mut answer) => match answer.headers_mut().remove(LEAVES) {
                    Some(_) if repeats => "it is stopping".to_owned(),
                    _ => return Ok(Some(self.going_on(answer, holder))),
                },
                Err(Unanswered::Undone(why)) => why,
                Err(Unanswered::Unknown(why)) if repeats => why,
                Err(Unanswered::Unknown(why)) => {
                    let message =
                        format!("{}, which has the session, was lost ({why}): it may have been done", holder.name);
                    return Err(unavailable(message));
                }
            };
            match self.whereabouts(head).await? {
                Whereabouts::Here => return Ok(None),
                // The one before may have had it for long.
                Whereabouts::At(now) if now.number != holder.number => {
                    deadline = Instant::now() + PATIENCE;
                    holder = now;
                }
                Whereabouts::At(_) => tokio::time::sleep(PAUSE).await,
            }
            if Instant::now() >= deadline {
                return Err(unavailable(format!("{}, which has the session, does not answer: {why}", holder.name)));
            }
        }
    }

    /// An answer that is still coming. One without a length ends, too, when its node does not even say any more that it is there.
    fn going_on(&self, answer: Response<Coming>, holder: Holder) -> Response {
        if answer.body().size_hint().exact().is_some() {
            return answer.map(Body::new);
        }
        let (app, silent) = (Arc::clone(&self.shared.app), CancellationToken::new());
        let ends = silent.clone();
        let listening = AbortOnDropHandle::new(tokio::spawn(async move {
            let why = app.until_silent(&holder).await;
            tracing::debug!(why, "a stream of another server breaks off");
            ends.cancel();
        }));
        answer.map(|body| {
            let body = Until::new(Body::new(body), silent);
            // Nobody listens longer than there is somebody to be told.
            Body::new(body.map_frame(move |frame| {
                let _ = &listening;
                frame
            }))
        })
    }

    /// Waits until an answer from elsewhere comes too late: this server has ended all but what is on its way.
    async fn is_cut_off(&self) {
        self.shared.streams.cancelled().await;
        tokio::time::sleep(LAST_ANSWERS).await;
    }

    async fn is_lost(&self, holder: &Holder) {
        match &self.about {
            About::Session(id) => self.shared.app.is_lost(id, holder).await,
            About::NewSession | About::InBody => std::future::pending().await,
            About::Kept(name) => self.shared.app.is_gone(name, holder).await,
        }
    }

    fn request(
        &self,
        head: &request::Parts,
        (holder, hops): (&Holder, u8),
        body: Bytes,
    ) -> Result<(Request<Bytes>, Answers), ApiError> {
        let strange =
            |cause: &dyn std::fmt::Display| ApiError::internal(format!("a request to another server: {cause}"));
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        // What is signed is what arrives.
        let target = target_of(&format!("{}{path}", holder.url)).map_err(|cause| strange(&cause))?;
        let request = Request::builder().method(head.method.clone()).uri(format!("{}{target}", holder.url)).body(body);
        let mut request = request.map_err(|cause| strange(&cause))?;
        let headers = request.headers_mut();
        headers.clone_from(&head.headers);
        for name in ["authorization", "origin", "sec-fetch-site", "x-client-id", "cookie"] {
            headers.remove(name);
        }
        for name in &BETWEEN_NODES {
            headers.remove(name);
        }
        headers.insert(HOPS, HeaderValue::from(u16::from(hops)));
        let passed = CallerPassed::of(&self.caller, self.token.clone());
        let answers = self.key.sign(headers, (&head.method, &target), (holder.number, &passed))?;
        Ok((request, answers))
    }
}

/// Does a command that another node has carried here.
pub(super) async fn take_command(shared: &Shared, caller: Caller, (head, body): (&request::Parts, Body)) -> Response {
    let done = async {
        let text = call::take_in(&head.headers, body, shared).await?;
        Ok::<_, Failure>(shared.app.carried_here(caller, &text).await?)
    };
    match done.await {
        Ok(answer) => ([(CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(failure) => failure.into_response(),
    }
}

fn unavailable(message: String) -> ApiError {
    ApiError::new(ErrorCode::UpstreamUnavailable, message).with_details(json!({ "reason": "held elsewhere" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_is_about() {
        let session = |id: &str| Some(About::Session(id.parse().expect("an id")));
        let table = [
            ("POST", "/sessions", None, Some(About::NewSession)),
            ("GET", "/sessions", None, None),
            ("GET", "/sessions/s.1", None, session("s.1")),
            ("DELETE", "/sessions/s%2E1", None, session("s.1")),
            ("POST", "/sessions/s/prompt", Some("wait=true"), session("s")),
            ("GET", "/sessions/s/events", Some("after=1"), None),
            ("GET", "/sessions/s/history", None, session("s")),
            ("GET", "/sessions/s/turns/events", None, session("s")),
            ("GET", "/sessions/%00/turns", None, None),
            ("GET", "/runs/s:t/context", None, session("s")),
            ("GET", "/runs", Some("limit=1&sessionId=s"), session("s")),
            ("GET", "/permissions/grants", None, None),
            ("POST", "/permissions/explain", None, Some(About::InBody)),
            ("GET", "/health", Some("verbose=true"), None),
            ("POST", "/-/command", Some("sessionId=s"), None),
        ];
        for (method, path, query, want) in table {
            let method = method.parse().expect("a method");
            let uri = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
            let none = HeaderMap::new();
            assert_eq!(about(&method, &uri.parse().expect("an address"), &none), want, "{method} {uri}");
        }
        let kept = || Some(About::Kept("n7-a".into()));
        let table = [
            ("/mcp", MCP_SESSION, kept()),
            ("/mcp?session=s", MCP_SESSION, kept()),
            ("/mcp?session=s", ACP_CONNECTION, session("s")),
            ("/mcp", ACP_CONNECTION, None),
            ("/acp", ACP_CONNECTION, kept()),
            ("/acp", MCP_SESSION, None),
            ("/sessions/s", MCP_SESSION, session("s")),
        ];
        for (uri, name, want) in table {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static("n7-a"))]);
            assert_eq!(about(&Method::POST, &uri.parse().expect("an address"), &headers), want, "{uri}");
        }
    }

    #[test]
    fn what_lies_in_a_workspace_is_read_where_that_is() {
        let table = [
            ("/sessions/s/files", true),
            ("/sessions/s/files/x", false),
            ("/sessions/files", false),
            ("/sessions/s/history", false),
            ("/skills", true),
            ("/commands", true),
            ("/commands/x", false),
        ];
        for (path, want) in table {
            assert_eq!(reads_workspace(path), want, "{path}");
        }
    }

    #[test]
    fn what_would_be_read_as_another_path_is_not_handed_on() {
        let table = [
            ("/sessions/s/turns/t..x/...", true),
            ("/sessions/s/blackboard/a%2Fb", true),
            ("/sessions/s/turns/../../../metrics", false),
            ("/sessions/s/turns/%2e%2E/budget", false),
            ("/sessions/s/.%2e/b", false),
            ("/sessions/s/./b", false),
            ("/sessions/s/turns/..\\..\\metrics", false),
        ];
        for (path, good) in table {
            assert_eq!(keeps_its_path(&path.parse().expect("an address")), good, "{path}");
        }
    }

    #[test]
    fn who_calls_comes_over_whole() {
        let passed = CallerPassed {
            client: Some("a".parse().expect("an id")),
            role: crate::protocol::TokenRole::Operator,
            only: Some("s".parse().expect("an id")),
            token: None,
        };
        assert_eq!(CallerPassed::of_header(passed.to_header().as_bytes()), Some(passed));
        assert_eq!(CallerPassed::of_header(b"nonsense"), None);
    }
}
