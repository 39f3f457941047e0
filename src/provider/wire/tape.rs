//! Answers of models that are kept in a file, and given again byte for byte, offline, as fast as one likes: for tests of tools
//! and hooks that want the same replies each time.
//!
//! A file has one exchange a line, in JSON: what was asked, and the answer with the time of each piece. Keys and what is secret
//! in addresses and headers are taken out of it before it is written, but for what is a short word or number: requests have keys in
//! their headers alone, which are not kept, and taken out of a body such a one would take its structure along (`null`, `x`). An exchange is written when it ends, whole or not at all.
//!
//! A replay gives each request the answer to the very same request, where there is one that was not given yet; else the next one
//! of its model. So a prompt in which only a date has changed is still answered, and so are turns side by side. A recording that
//! is compiled in has answers that are given as often as they are asked for; what it knows nothing of gets its last one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::failure::Redactor;
use crate::base::http::HttpError;
use crate::base::limit;

/// The version of the lines.
const VERSION: u32 = 1;
/// How an exchange ended that was whole.
const WHOLE: &str = "end";
/// How one ended that was not.
const CUT: &str = "cut";

/// A recording cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the recording {path}: {cause}")]
pub struct TapeError {
    /// The file.
    pub path: String,
    /// Why.
    pub cause: String,
}

/// One exchange.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exchange {
    v: u32,
    /// `provider/name`.
    model: String,
    wire: String,
    /// SHA-256 of the request's body, in hexadecimal digits.
    sha256: String,
    /// The request's body.
    request: Box<RawValue>,
    status: u16,
    content_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    pieces: Vec<Piece>,
    /// [`WHOLE`] or [`CUT`].
    ended: String,
}

impl Exchange {
    /// A line of a file, or what is wrong with it.
    fn read(line: &str) -> Result<Self, String> {
        let exchange: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if exchange.v != VERSION {
            return Err(format!("expected version {VERSION} (`v`), found {}", exchange.v));
        }
        if exchange.pieces.iter().any(|piece| piece.bytes().is_none()) {
            return Err("expected base64 in the pieces that are no text".to_owned());
        }
        Ok(exchange)
    }
}

/// A piece of an answer: milliseconds since the request, and the text, or bytes in base64 where they are none.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Piece {
    Text(u64, String),
    Bytes(u64, (String,)),
}

impl Piece {
    fn of(at_ms: u64, bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(at_ms, text.to_owned()),
            Err(_) => Self::Bytes(at_ms, (STANDARD.encode(bytes),)),
        }
    }

    fn at_ms(&self) -> u64 {
        match self {
            Self::Text(at, _) | Self::Bytes(at, _) => *at,
        }
    }

    fn bytes(&self) -> Option<Bytes> {
        match self {
            Self::Text(_, text) => Some(Bytes::copy_from_slice(text.as_bytes())),
            Self::Bytes(_, (text,)) => STANDARD.decode(text).ok().map(Bytes::from),
        }
    }
}

/// A recording, to be made or to be played.
#[derive(Debug)]
pub struct Tape(Kind);

#[derive(Debug)]
enum Kind {
    Records(Arc<Mutex<File>>),
    Plays { path: PathBuf, speed: f64, all: Vec<Arc<Exchange>>, left: Mutex<HashMap<String, Vec<usize>>> },
    Holds { speed: f64, all: Vec<Arc<Exchange>> },
}

impl Tape {
    /// A recording that goes on at the end of a file, which is made for its owner alone where there is none. Blocking.
    ///
    /// # Errors
    /// [`TapeError`].
    pub fn record(path: &Path) -> Result<Self, TapeError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let file = file.map_err(|error| fault(path, error.to_string()))?;
        Ok(Self(Kind::Records(Arc::new(Mutex::new(file)))))
    }

    /// A recording that is played: 1 is its own speed, 2 twice that, 0 at once. Blocking.
    ///
    /// # Errors
    /// [`TapeError`] that names the line.
    pub fn play(path: &Path, speed: f64) -> Result<Self, TapeError> {
        let file = File::open(path).map_err(|error| fault(path, error.to_string()))?;
        let length = file.metadata().map_err(|error| fault(path, error.to_string()))?.len();
        if length > limit::TAPE_BYTES_MAX {
            return Err(fault(path, format!("expected at most {} bytes, found {length}", limit::TAPE_BYTES_MAX)));
        }
        let (mut all, mut left) = (Vec::new(), HashMap::<String, Vec<usize>>::new());
        for (number, line) in BufReader::new(file).lines().enumerate() {
            let wrong = |cause: String| fault(path, format!("line {}: {cause}", number + 1));
            let line = line.map_err(|error| wrong(error.to_string()))?;
            if line.trim().is_empty() {
                continue;
            }
            let exchange = Exchange::read(&line).map_err(wrong)?;
            left.entry(exchange.model.clone()).or_default().push(all.len());
            all.push(Arc::new(exchange));
        }
        Ok(Self(Kind::Plays { path: path.to_owned(), speed, all, left: Mutex::new(left) }))
    }

    /// A recording that is compiled in: lines of a file. Those that cannot be read are none.
    pub(in crate::provider) fn compiled_in(lines: &str, speed: f64) -> Self {
        let all = lines.lines().filter_map(|line| Exchange::read(line).ok()).map(Arc::new).collect();
        Self(Kind::Holds { speed, all })
    }

    /// Whether answers come from it, and none from the network.
    pub fn plays(&self) -> bool {
        matches!(self.0, Kind::Plays { .. } | Kind::Holds { .. })
    }

    /// The models that it has answers of, with the name of their wire, in the order of their first answers.
    pub fn models(&self) -> Vec<(String, String)> {
        let Kind::Plays { all, .. } = &self.0 else { return Vec::new() };
        let mut models: Vec<(String, String)> = Vec::new();
        for exchange in all {
            if !models.iter().any(|(model, _)| *model == exchange.model) {
                models.push((exchange.model.clone(), exchange.wire.clone()));
            }
        }
        models
    }

    /// Begins to record an exchange. None: this recording is played.
    pub(super) fn begin(&self, asked: Asked<'_>) -> Option<Recording> {
        let Kind::Records(file) = &self.0 else { return None };
        let request = asked.redact.kept(String::from_utf8_lossy(asked.body).into_owned());
        Some(Recording {
            file: Arc::clone(file),
            redact: asked.redact.clone(),
            since: Instant::now(),
            model: asked.model.to_owned(),
            wire: asked.wire.to_owned(),
            request,
            answer: None,
            pieces: Vec::new(),
            bytes: 0,
            ended: CUT,
        })
    }

    /// The answer to a request. None: this recording is not played.
    ///
    /// # Errors
    /// [`TapeError`]: there is none left for the model.
    pub(super) fn answer(&self, asked: Asked<'_>) -> Option<Result<Played, TapeError>> {
        let sha256 = || digest(asked.redact.kept(String::from_utf8_lossy(asked.body).into_owned()).as_bytes());
        let (path, speed, all, left) = match &self.0 {
            Kind::Records(_) => return None,
            Kind::Plays { path, speed, all, left } => (path, speed, all, left),
            Kind::Holds { speed, all } => {
                let sha256 = sha256();
                let found = all.iter().find(|exchange| exchange.sha256 == sha256).or(all.last()).map(Arc::clone);
                let none = || fault(Path::new("compiled in"), "it has no answer".to_owned());
                return Some(found.ok_or_else(none).map(|exchange| Played::of(exchange, *speed)));
            }
        };
        let sha256 = sha256();
        let mut left = left.lock();
        let of_model = left.get_mut(asked.model).filter(|left| !left.is_empty());
        let Some(of_model) = of_model else {
            let has = all.iter().filter(|exchange| exchange.model == asked.model).count();
            return Some(Err(fault(path, format!("no further answer of `{}` (it has {has})", asked.model))));
        };
        let same = of_model.iter().position(|at| all.get(*at).is_some_and(|exchange| exchange.sha256 == sha256));
        let at = of_model.remove(same.unwrap_or(0));
        let exchange = all.get(at).map(Arc::clone)?;
        Some(Ok(Played::of(exchange, *speed)))
    }
}

/// What is asked.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// `provider/name`.
    pub(super) model: &'a str,
    /// The wire's name.
    pub(super) wire: &'a str,
    /// The request's body.
    pub(super) body: &'a [u8],
    /// Takes secrets out.
    pub(super) redact: &'a Redactor,
}

/// An exchange that is being recorded. It is written when it is dropped, if there was an answer.
pub(super) struct Recording {
    file: Arc<Mutex<File>>,
    redact: Redactor,
    since: Instant,
    model: String,
    wire: String,
    request: String,
    answer: Option<(u16, String, Option<Duration>)>,
    pieces: Vec<(u64, Bytes)>,
    bytes: usize,
    ended: &'static str,
}

impl Recording {
    /// The headers have come.
    pub(super) fn answered(&mut self, (status, content_type): (u16, &str), retry_after: Option<Duration>) {
        self.answer = Some((status, content_type.to_owned(), retry_after));
    }

    /// A piece has come.
    pub(super) fn take(&mut self, bytes: &Bytes) {
        self.bytes += bytes.len();
        if self.bytes <= 2 * limit::MODEL_REPLY_BYTES_MAX {
            self.pieces.push((millis(self.since.elapsed()), bytes.clone()));
        }
    }

    /// It is whole.
    pub(super) fn end(&mut self) {
        self.ended = WHOLE;
    }

    fn exchange(&mut self) -> Option<Exchange> {
        let (status, content_type, retry_after) = self.answer.take()?;
        let whole: Vec<u8> = self.pieces.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        let text = String::from_utf8_lossy(&whole);
        let hidden = self.redact.kept(text.clone().into_owned());
        // A secret may be cut in two: then the pieces become one.
        let pieces = if hidden == text {
            self.pieces.iter().map(|(at, bytes)| Piece::of(*at, bytes)).collect()
        } else {
            vec![Piece::Text(self.pieces.first().map_or(0, |(at, _)| *at), hidden)]
        };
        let request = std::mem::take(&mut self.request);
        let sha256 = digest(request.as_bytes());
        Some(Exchange {
            v: VERSION,
            model: std::mem::take(&mut self.model),
            wire: std::mem::take(&mut self.wire),
            sha256,
            request: RawValue::from_string(request).ok()?,
            status,
            content_type,
            retry_after_ms: retry_after.map(millis),
            pieces,
            ended: self.ended.to_owned(),
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange() else { return };
        let file = Arc::clone(&self.file);
        let write = move || {
            let mut line = serde_json::to_vec(&exchange).unwrap_or_default();
            line.push(b'\n');
            if let Err(error) = file.lock().write_all(&line) {
                tracing::error!(%error, "a model's answer cannot be recorded");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(write)),
            Err(_) => write(),
        }
    }
}

/// A recorded answer as it is given.
pub(super) struct Played {
    exchange: Arc<Exchange>,
    speed: f64,
    begun: Instant,
    next: usize,
}

impl Played {
    fn of(exchange: Arc<Exchange>, speed: f64) -> Self {
        Self { exchange, speed, begun: Instant::now(), next: 0 }
    }

    pub(super) fn status(&self) -> u16 {
        self.exchange.status
    }

    pub(super) fn content_type(&self) -> &str {
        &self.exchange.content_type
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.exchange.retry_after_ms.map(Duration::from_millis)
    }

    /// The next piece, when its time has come. Cancel-safe.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        let Some(piece) = self.exchange.pieces.get(self.next) else {
            if self.exchange.ended == WHOLE {
                return Ok(None);
            }
            return Err(HttpError::Cut { host: "the recording".into(), cause: "it ends here".into() });
        };
        if self.speed > 0.0 {
            let after = Duration::from_millis(piece.at_ms()).div_f64(self.speed);
            tokio::time::sleep_until(self.begun + after).await;
        } else {
            // What never waits must not keep this worker from its other tasks.
            tokio::task::consume_budget().await;
        }
        self.next += 1;
        Ok(piece.bytes())
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn fault(path: &Path, cause: String) -> TapeError {
    TapeError { path: path.display().to_string(), cause }
}
