//! Where a provider is, how one shows there who one is, and how much may be asked of it at once. Its models share one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};

use super::failure::Redactor;
use super::gate::{Gate, GateOptions};
use super::reach::Reach;
use super::tape::Tape;
use crate::base::{file, http, limit};
use crate::model::ModelError;

/// Where a key comes from.
#[derive(Clone, Default)]
pub enum Key {
    /// There is none.
    #[default]
    None,
    /// It is known.
    Fixed(SecretString),
    /// It stands in a file, and may be another one later: it is read anew when it is refused.
    File(PathBuf),
}

/// Where a provider is and how it is spoken to.
pub struct Place {
    /// Its name: the first part of its models' ids.
    pub provider: String,
    /// The base address; without a path the wire's version is put behind it.
    pub base_url: String,
    /// The key.
    pub key: Key,
    /// What is said when there is no key and one is wanted. None: none is wanted.
    pub wants_key: Option<String>,
    /// Further headers of each request.
    pub headers: BTreeMap<String, String>,
    /// Longest silence, before the first byte and between any two.
    pub idle_timeout: Duration,
    /// What is known of the endpoint.
    pub reach: Reach,
    /// Where answers are kept, or come from. None: neither.
    pub tape: Option<Arc<Tape>>,
    pub(super) gate: Gate,
    now: Mutex<Option<Arc<Keyed>>>,
}

/// Who we are at the moment, and what nobody may be told of it.
#[derive(Default)]
pub(super) struct Keyed {
    pub(super) key: Option<SecretString>,
    pub(super) redact: Redactor,
}

/// The name and nothing else: a key may stand in the address.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Place {
    /// A provider at that address, without a key or bounds.
    pub fn new(provider: impl Into<String>, base_url: impl Into<String>, idle_timeout: Duration) -> Self {
        Self {
            provider: provider.into(),
            base_url: base_url.into(),
            key: Key::None,
            wants_key: None,
            headers: BTreeMap::new(),
            idle_timeout,
            reach: Reach::default(),
            tape: None,
            gate: Gate::default(),
            now: Mutex::default(),
        }
    }

    /// The same with bounds.
    #[must_use]
    pub fn bounded(mut self, options: GateOptions) -> Self {
        self.gate = Gate::new(options);
        self
    }

    /// Whether there is all that it takes to ask it.
    pub(super) fn set_up(&self, url: &str) -> Result<(), ModelError> {
        if self.tape.as_ref().is_some_and(|tape| tape.plays()) {
            return Ok(());
        }
        http::check_url(url).map_err(|error| ModelError::Unavailable(format!("the base URL of the model: {error}")))?;
        match (&self.key, &self.wants_key) {
            (Key::None, Some(words)) => Err(ModelError::Unauthorized(words.clone())),
            (Key::None, None) | (Key::Fixed(_) | Key::File(_), _) => Ok(()),
        }
    }

    /// Who we are now.
    ///
    /// # Errors
    /// [`ModelError::Unauthorized`] when the key's file cannot be read.
    pub(super) async fn keyed(&self) -> Result<Arc<Keyed>, ModelError> {
        if let Some(keyed) = self.now.lock().clone() {
            return Ok(keyed);
        }
        let keyed = self.read().await?;
        *self.now.lock() = Some(Arc::clone(&keyed));
        Ok(keyed)
    }

    /// Who we are after `refused` was refused. None: it is the same still, and asking again is of no use.
    pub(super) async fn refreshed(&self, refused: &Keyed) -> Option<Arc<Keyed>> {
        if !matches!(self.key, Key::File(_)) {
            return None;
        }
        let keyed = self.read().await.ok()?;
        let text = |keyed: &Keyed| keyed.key.as_ref().map(|key| key.expose_secret().to_owned());
        if text(&keyed) == text(refused) {
            return None;
        }
        *self.now.lock() = Some(Arc::clone(&keyed));
        Some(keyed)
    }

    async fn read(&self) -> Result<Arc<Keyed>, ModelError> {
        let key = match &self.key {
            Key::None => None,
            Key::Fixed(key) => trimmed(key.clone()),
            Key::File(path) => {
                let shown = path.display().to_string();
                let path = path.clone();
                let read =
                    tokio::task::spawn_blocking(move || file::read_small(&path, limit::KEY_FILE_BYTES_MAX)).await;
                let failed = |cause: String| ModelError::Unauthorized(format!("the key in {shown}: {cause}"));
                let read = read.map_err(|_| failed("it could not be read".into()))?;
                let (bytes, _) = read.map_err(|error| failed(error.to_string()))?;
                let text = String::from_utf8(bytes).map_err(|_| failed("it is no UTF-8".into()))?;
                let key = trimmed(SecretString::from(text));
                Some(key.ok_or_else(|| failed("the file is empty".into()))?)
            }
        };
        let redact = Redactor::with_headers(key.as_ref(), &self.base_url, &self.headers);
        Ok(Arc::new(Keyed { key, redact }))
    }
}

/// A key without the blanks and line ends that come along from files. None: nothing is left.
pub(in crate::provider) fn trimmed(key: SecretString) -> Option<SecretString> {
    let text = key.expose_secret().trim();
    if text.len() == key.expose_secret().len() && !text.is_empty() {
        return Some(key);
    }
    (!text.is_empty()).then(|| SecretString::from(text))
}
