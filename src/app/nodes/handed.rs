//! The two ways to another node: to its address, and through the database where it is not reached there.
//!
//! What is handed on is the same on both ways, and so are its signature and that of the answer: whoever has the letter in hand can do no
//! more with it than whoever listens at the address. A node that was not reached is not tried directly again for a while, so only one
//! request in that time waits for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Answers, CallerPassed, HERE_PATH, Holder, PATIENCE};
use crate::app::App;
use crate::base::http::{Coming, HttpError, hand_on, target_of, without_connection};
use crate::protocol::{LimitView, TokenRole};
use crate::store::{BoxFuture, Replied};

/// Requests that a node has on their way through the database at a time, and those that it works on, of those that may wait for a turn.
pub const LETTERS_MAX: usize = 256;
/// The same of all others: an interrupt does not wait behind what it is to interrupt.
pub const URGENT_LETTERS_MAX: usize = 64;
/// Longest answer that goes through the database, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// A node that was not reached directly is asked through the database alone for so long.
const UNREACHED: Duration = Duration::from_secs(10);
/// A node that has answered directly is known to be there for so long; then it is asked for a sign first.
const KNOWN: Duration = Duration::from_secs(10);
/// Longest wait for that sign. A request itself may take as long as it wants.
const SIGN_MAX: Duration = Duration::from_secs(2);
/// A node that has a request and has not answered any for so long is asked for a sign, too: what lies on the way to it may take everything
/// that is sent, and let nothing through.
const SIGN_EVERY: Duration = Duration::from_secs(3);
/// Longest wait for the second one of two signs that do not come: then what was sent is lost.
const LAST_SIGN_MAX: Duration = Duration::from_secs(3);
/// Pause before letters are looked for again, where that could not be done.
const PAUSE: Duration = Duration::from_millis(500);

/// Why a request that was handed on has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// Nothing was done.
    Undone(String),
    /// It may have been done.
    Unknown(String),
}

/// The ways on which requests go to other nodes.
pub(in crate::app) struct Roads {
    /// Nodes that were not reached directly.
    unreached: Mutex<HashMap<i64, Unreached>>,
    /// Nodes that have answered directly, and until when that counts.
    known: Mutex<HashMap<i64, Instant>>,
    /// Places for letters, and for urgent ones.
    letters: [Semaphore; 2],
    /// Nodes that have requests: who of those that wait asks for a sign, and when none came.
    asked: Mutex<HashMap<i64, Arc<AsyncMutex<Option<Instant>>>>>,
}

/// How a request is handed on.
#[derive(Debug, Clone, Copy)]
pub struct Handing {
    /// It may be done twice: it reads, or has a name.
    pub repeats: bool,
    /// It may take as long as a turn.
    pub waits: bool,
}

/// A node that was not reached directly.
struct Unreached {
    /// For the first time then.
    since: Instant,
    /// When it is tried again.
    until: Instant,
}

impl Default for Roads {
    fn default() -> Self {
        let letters = [LETTERS_MAX, URGENT_LETTERS_MAX].map(Semaphore::new);
        Self { unreached: Mutex::default(), known: Mutex::default(), letters, asked: Mutex::default() }
    }
}

impl Roads {
    /// Whether the direct way is to be tried. Where it failed before, one request tries it and others do not wait for that.
    fn tries(&self, node: i64) -> bool {
        let now = Instant::now();
        let mut unreached = self.unreached.lock();
        unreached.get_mut(&node).is_none_or(|unreached| {
            let is_due = unreached.until <= now;
            if is_due {
                unreached.until = now + UNREACHED;
            }
            is_due
        })
    }

    /// Since when a node was not reached.
    fn unreached_since(&self, node: i64) -> Instant {
        self.unreached.lock().get(&node).map_or_else(Instant::now, |unreached| unreached.since)
    }

    fn is_known(&self, node: i64) -> bool {
        self.known.lock().get(&node).is_some_and(|until| *until > Instant::now())
    }

    /// Whether it has answered anything since then.
    fn was_heard(&self, node: i64, since: Instant) -> bool {
        self.known.lock().get(&node).is_some_and(|until| *until >= since + KNOWN)
    }

    fn asked(&self, node: i64) -> Arc<AsyncMutex<Option<Instant>>> {
        let mut asked = self.asked.lock();
        asked.retain(|_, one| Arc::strong_count(one) > 1);
        Arc::clone(asked.entry(node).or_default())
    }

    fn note(&self, node: i64, is_reached: bool) {
        let mut known = self.known.lock();
        known.retain(|_, until| *until > Instant::now());
        if is_reached {
            known.insert(node, Instant::now() + KNOWN);
        } else {
            known.remove(&node);
        }
        drop(known);
        let mut unreached = self.unreached.lock();
        if is_reached {
            unreached.remove(&node);
        } else {
            let now = Instant::now();
            // Those that are over are tried by nobody.
            unreached.retain(|_, one| one.until > now);
            unreached.entry(node).or_insert(Unreached { since: now, until: now }).until = now + UNREACHED;
        }
    }

    /// How many requests are on their way through the database.
    pub(in crate::app) fn limit(&self) -> LimitView {
        let most = LETTERS_MAX + URGENT_LETTERS_MAX;
        let free: usize = self.letters.iter().map(Semaphore::available_permits).sum();
        LimitView::new("letters", most - free, most)
    }
}

/// A letter, for who answers it.
#[derive(Debug, Clone, Copy)]
pub struct LetterId(i64);

/// A request of another node that came through the database.
#[derive(Debug)]
pub struct Arrived {
    /// By what it is answered.
    pub id: LetterId,
    /// As it would have come over the network.
    pub request: Request<Bytes>,
    /// Fires when nobody waits for its answer any more.
    pub gone: CancellationToken,
}

/// What stands before a request's body in a letter.
#[derive(Serialize, Deserialize)]
struct Asks {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

/// What stands before an answer's body.
#[derive(Serialize, Deserialize)]
struct Says {
    status: u16,
    headers: Vec<(String, String)>,
}

/// A head, the end of its line, and the body.
fn written(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
    // Numbers and texts: they can be written. A line's end in them is not one.
    let mut text = serde_json::to_vec(head).unwrap_or_default();
    text.reserve_exact(body.len() + 1);
    text.push(b'\n');
    text.extend_from_slice(body);
    text
}

fn read<T: DeserializeOwned>(mut text: Vec<u8>) -> Option<(T, Bytes)> {
    let end = memchr::memchr(b'\n', &text)?;
    let body = text.split_off(end + 1);
    Some((serde_json::from_slice(&text[..end]).ok()?, body.into()))
}

/// Headers as texts: each byte of a value is a character.
fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

fn headers(texts: &[(String, String)]) -> Option<HeaderMap> {
    let bytes = |text: &str| text.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>().ok();
    let header = |(name, text): &(String, String)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(bytes(text)?).ok()?))
    };
    let mut all = HeaderMap::new();
    for text in texts {
        let (name, value) = header(text)?;
        all.append(name, value);
    }
    Some(all)
}

fn request_written(request: Request<Bytes>) -> Option<Vec<u8>> {
    let (mut head, body) = request.into_parts();
    let target = target_of(&head.uri.to_string()).ok()?;
    without_connection(&mut head.headers);
    head.headers.remove(HOST);
    head.headers.remove(CONTENT_LENGTH);
    Some(written(&Asks { method: head.method.to_string(), target, headers: texts(&head.headers) }, &body))
}

fn request_read(text: Vec<u8>) -> Option<Request<Bytes>> {
    let (asks, body): (Asks, Bytes) = read(text)?;
    let mut request = Request::builder().method(asks.method.as_str()).uri(asks.target).body(body).ok()?;
    *request.headers_mut() = headers(&asks.headers)?;
    Some(request)
}

fn answer_written(answer: Response<Bytes>) -> Vec<u8> {
    let (mut head, body) = answer.into_parts();
    without_connection(&mut head.headers);
    written(&Says { status: head.status.as_u16(), headers: texts(&head.headers) }, &body)
}

fn answer_read(text: Vec<u8>) -> Option<Response<Bytes>> {
    let (says, body): (Says, Bytes) = read(text)?;
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(says.status).ok()?;
    *answer.headers_mut() = headers(&says.headers)?;
    Some(answer)
}

/// A failed attempt on the direct way.
fn failed(error: &HttpError) -> Unanswered {
    match error {
        HttpError::Cut { .. } | HttpError::Silent { .. } => Unanswered::Unknown(error.to_string()),
        HttpError::Connect { .. } | HttpError::BadUrl(_) | HttpError::BadHeader(_) | HttpError::Setup(_) => {
            Unanswered::Undone(error.to_string())
        }
    }
}

impl App {
    /// Hands a signed request to another node, directly, or else through the database; `repeats`: also where it may have arrived. `lost`
    /// ends when that node has no say in it any more.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn hand_to(
        &self,
        (holder, lost): (&Holder, impl Future<Output = ()> + Send),
        (request, answers): (Request<Bytes>, &Answers),
        handing: Handing,
    ) -> Result<Response<Coming>, Unanswered> {
        let mut lost: BoxFuture<'_, ()> = Box::pin(lost);
        let mut why = None;
        if self.ways.roads.tries(holder.number) {
            let sent = tokio::select! {
                sent = self.directly(holder, (request.clone(), answers)) => sent,
                () = &mut lost => return Err(follows(holder)),
            };
            self.ways.roads.note(holder.number, sent.is_ok());
            match sent {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::Unknown(cause)) if !handing.repeats => return Err(Unanswered::Unknown(cause)),
                Err(Unanswered::Undone(cause) | Unanswered::Unknown(cause)) => why = Some(cause),
            }
        }
        let answer = self.by_letter((holder, lost), (request, handing)).await;
        let answer = answer.and_then(|answer| self.its_own(holder, answer.map(Coming::from), answers));
        // Why the direct way failed tells more.
        answer.map_err(|unanswered| match (unanswered, why) {
            (Unanswered::Undone(cause), Some(why)) => Unanswered::Undone(format!("{why}; {cause}")),
            (Unanswered::Unknown(cause), Some(why)) => Unanswered::Unknown(format!("{why}; {cause}")),
            (unanswered, None) => unanswered,
        })
    }

    async fn directly(
        &self,
        holder: &Holder,
        (request, answers): (Request<Bytes>, &Answers),
    ) -> Result<Response<Coming>, Unanswered> {
        if !self.ways.roads.is_known(holder.number) {
            self.sign_of(holder, SIGN_MAX).await?;
        }
        let answer = tokio::select! {
            answer = hand_on(request) => answer.map_err(|error| failed(&error))?,
            why = self.until_silent(holder) => return Err(Unanswered::Unknown(why)),
        };
        self.its_own(holder, answer, answers)
    }

    /// Waits until a node that has a request, or whose answer is still coming, does not even say that it is there, and says why.
    pub async fn until_silent(&self, holder: &Holder) -> String {
        let roads = &self.ways.roads;
        loop {
            let since = Instant::now();
            tokio::time::sleep(SIGN_EVERY).await;
            let asked = roads.asked(holder.number);
            // One asks, for all that wait.
            let mut silent = asked.lock().await;
            if silent.is_some_and(|at| at >= since) {
                return format!("what listens at {} says nothing any more", holder.url);
            }
            if roads.was_heard(holder.number, since) {
                continue;
            }
            let mut sign = self.sign_of(holder, SIGN_MAX).await;
            if sign.is_err() {
                // What comes now goes round it. What it has is not given up for one sign that was slow.
                roads.note(holder.number, false);
                sign = self.sign_of(holder, LAST_SIGN_MAX).await;
            }
            match sign {
                Ok(()) => roads.note(holder.number, true),
                Err(Unanswered::Undone(why) | Unanswered::Unknown(why)) => {
                    *silent = Some(Instant::now());
                    return why;
                }
            }
        }
    }

    /// Asks a node for a sign that it is what listens at its address: whatever else does may take a request, and never answer.
    async fn sign_of(&self, holder: &Holder, within: Duration) -> Result<(), Unanswered> {
        let undone = |cause: String| Unanswered::Undone(cause);
        let Some(key) = self.node_key() else { return Err(undone("nobody else has the store".into())) };
        let request = Request::get(format!("{}{HERE_PATH}", holder.url)).body(Bytes::new());
        let mut request = request.map_err(|cause| undone(cause.to_string()))?;
        let nobody = CallerPassed { client: None, role: TokenRole::ReadOnly, only: None, token: None };
        let answers = key.sign(request.headers_mut(), (&Method::GET, HERE_PATH), (holder.number, &nobody));
        let answers = answers.map_err(|error| undone(error.to_string()))?;
        let silent = |_| undone(format!("what listens at {} says nothing", holder.url));
        let answer = tokio::time::timeout(within, hand_on(request)).await.map_err(silent)?;
        let answer = answer.map_err(|error| undone(error.to_string()))?;
        self.its_own(holder, answer, &answers).map(drop).map_err(|unanswered| match unanswered {
            Unanswered::Undone(why) | Unanswered::Unknown(why) => undone(why),
        })
    }

    /// Whatever answers has to be the node that was asked.
    fn its_own<T>(
        &self,
        holder: &Holder,
        mut answer: Response<T>,
        answers: &Answers,
    ) -> Result<Response<T>, Unanswered> {
        let key = self.node_key();
        if key.is_some_and(|key| key.is_answer(answer.headers_mut(), answers)) {
            return Ok(answer);
        }
        let (url, name) = (&holder.url, &holder.name);
        let why = format!("what answers at {url} is not {name}: is its `--node-url` right, and its own?");
        Err(Unanswered::Unknown(why))
    }

    async fn by_letter(
        &self,
        (holder, mut lost): (&Holder, BoxFuture<'_, ()>),
        (request, Handing { waits, .. }): (Request<Bytes>, Handing),
    ) -> Result<Response<Bytes>, Unanswered> {
        let undone = |why: &str| Unanswered::Undone(why.to_owned());
        let cluster = self.store.cluster().ok_or_else(|| undone("nobody else has the store"))?;
        // Most of those that are not reached are gone: nothing is written for them.
        let since = self.ways.roads.unreached_since(holder.number).into_std();
        tokio::select! {
            () = cluster.hears(holder.number, since) => {}
            () = &mut lost => return Err(undone("it is not there any more")),
            () = tokio::time::sleep(PATIENCE) => return Err(undone("nor is it heard of through the database")),
        }
        let Ok(_on_its_way) = self.ways.roads.letters[usize::from(!waits)].try_acquire() else {
            let most = if waits { LETTERS_MAX } else { URGENT_LETTERS_MAX };
            let why = format!("{most} such requests are on their way through the database already");
            return Err(Unanswered::Undone(why));
        };
        let text = request_written(request).ok_or_else(|| undone("it cannot be written into a letter"))?;
        match cluster.letters().exchange((holder.number, !waits), text, lost).await {
            Ok(Replied::With(text)) => {
                let unread = || Unanswered::Unknown("its answer through the database cannot be read".to_owned());
                answer_read(text).ok_or_else(unread)
            }
            Ok(Replied::Never) => Err(undone("it has not taken it from the database either")),
            Ok(Replied::Lost) => {
                let why = "it is gone, or the database has lost what was on its way through it";
                Err(Unanswered::Unknown(why.to_owned()))
            }
            Err(error) => Err(Unanswered::Unknown(error.to_string())),
        }
    }

    /// Waits for a request of another node that comes through the database; for ever, where nobody else has the store.
    pub async fn next_letter(&self, is_urgent: bool) -> Arrived {
        let Some(cluster) = self.store.cluster() else { return std::future::pending().await };
        loop {
            match cluster.letters().next(is_urgent).await {
                Ok(letter) => match request_read(letter.request) {
                    Some(request) => return Arrived { id: LetterId(letter.id), request, gone: letter.gone },
                    None => drop(cluster.letters().answer(letter.id, None).await),
                },
                Err(error) => {
                    tracing::debug!(%error, "letters of other servers could not be looked for");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Answers such a request. None: it has no answer.
    pub async fn answer_letter(&self, id: LetterId, answer: Option<Response<Bytes>>) {
        let Some(cluster) = self.store.cluster() else { return };
        if let Err(error) = cluster.letters().answer(id.0, answer.map(answer_written)).await {
            tracing::warn!(%error, "a request that came through the database could not be answered");
        }
    }
}

fn follows(holder: &Holder) -> Unanswered {
    Unanswered::Unknown(format!("another server follows {}", holder.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_says_what_the_network_would() {
        let body = Bytes::from_static(b"{\"prompt\":\"\n\0\xff\"}");
        let mut request =
            Request::post("http://h:1/sessions/s/prompt?wait=true").body(body.clone()).expect("a request");
        let headers = request.headers_mut();
        headers.append("x-a", HeaderValue::from_bytes(b"caf\xe9").expect("a value"));
        headers.append("x-a", HeaderValue::from_static("two"));
        headers.append("connection", HeaderValue::from_static("upgrade"));
        headers.append("host", HeaderValue::from_static("elsewhere"));
        let read = request_read(request_written(request).expect("written")).expect("read");
        assert_eq!((read.method().as_str(), read.uri().to_string().as_str()), ("POST", "/sessions/s/prompt?wait=true"));
        let values: Vec<&[u8]> = read.headers().iter().map(|(_, value)| value.as_bytes()).collect();
        assert_eq!((read.body(), values), (&body, vec![&b"caf\xe9"[..], b"two"]));
        let mut answer = Response::new(body.clone());
        *answer.status_mut() = StatusCode::CONFLICT;
        answer.headers_mut().append("etag", HeaderValue::from_static("\"1\""));
        let read = answer_read(answer_written(answer)).expect("read");
        assert_eq!((read.status(), read.headers().len(), read.body()), (StatusCode::CONFLICT, 1, &body));
        for text in [&b""[..], b"\n", b"{}\n", b"{\"status\":200,\"headers\":[]}", b"{\"status\":7,\"headers\":[]}\n"] {
            assert!(request_read(text.to_vec()).is_none() && answer_read(text.to_vec()).is_none(), "{text:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_not_reached_is_tried_by_one_request_at_a_time() {
        let roads = Roads::default();
        assert!(roads.tries(1) && roads.tries(1));
        roads.note(1, false);
        assert!(!roads.tries(1) && roads.tries(2));
        tokio::time::advance(UNREACHED).await;
        assert_eq!([roads.tries(1), roads.tries(1)], [true, false]);
        roads.note(1, true);
        assert!(roads.tries(1) && roads.tries(1));
    }
}
