//! What tools leave behind, and whose it is: programs that go on, and outputs in files.
//!
//! A server has one estate, of which each session has a share; what a share holds goes when its session is deleted,
//! the rest when the server ends. A registry without a server has an estate of its own, with one share.
//!
//! Promise: when nobody holds an estate any more, all of it goes.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::outputs::{OutputFile, Outputs};
use crate::base::process::{Family, Kin};

/// Those that anything was left in, for [`end_estates`].
static USED: Mutex<Vec<Weak<Estate>>> = Mutex::new(Vec::new());

/// What the tools of one server, or of one registry, leave behind.
#[derive(Debug, Default)]
pub struct Estate {
    family: Arc<Family>,
    outputs: Arc<Outputs>,
    used: OnceLock<()>,
}

/// One session's part of an estate.
#[derive(Debug, Clone)]
pub struct Share {
    estate: Arc<Estate>,
    kin: Kin,
    member: String,
}

impl Default for Share {
    /// The only share of an estate of its own.
    fn default() -> Self {
        Arc::new(Estate::default()).share("registry")
    }
}

impl Estate {
    /// One that keeps outputs there.
    pub fn keeping(outputs: Outputs) -> Self {
        Self { outputs: Arc::new(outputs), ..Self::default() }
    }

    /// The share of a session.
    pub fn share(self: &Arc<Self>, member: &str) -> Share {
        Share { kin: self.family.kin(member), estate: Arc::clone(self), member: member.to_owned() }
    }

    /// Ends all that was left running, and removes all that was kept.
    pub async fn end(&self) {
        self.family.end().await;
        let outputs = Arc::clone(&self.outputs);
        // A removal that panicked is made up for by the next process.
        drop(tokio::task::spawn_blocking(move || outputs.clear()).await);
    }

    /// Takes note that there may be something to end.
    fn note(self: &Arc<Self>) {
        self.used.get_or_init(|| {
            let mut used = USED.lock();
            used.retain(|estate| estate.strong_count() > 0);
            used.push(Arc::downgrade(self));
        });
    }
}

/// Ends every estate of this process, for its end. Blocking.
pub fn end_estates() {
    let used = std::mem::take(&mut *USED.lock());
    for estate in used.iter().filter_map(Weak::upgrade) {
        estate.family.end_now();
        estate.outputs.clear();
    }
}

impl Share {
    /// What a program of this session carries in its environment, so that it is known as its own.
    pub fn mark(&self) -> (OsString, OsString) {
        self.estate.note();
        self.kin.mark()
    }

    /// Where the outputs of this user lie, those of other processes too. None: no place can be had, and nothing is kept.
    pub async fn outputs_home(&self) -> Option<PathBuf> {
        let outputs = Arc::clone(&self.estate.outputs);
        if let Some(home) = outputs.known_home() {
            return Some(home.to_owned());
        }
        // One that panicked made nothing.
        tokio::task::spawn_blocking(move || outputs.home().ok().map(Path::to_owned)).await.ok().flatten()
    }

    /// A new file for an output of this session. Blocking.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begin_output(&self) -> io::Result<OutputFile> {
        self.estate.note();
        self.estate.outputs.begin(&self.member)
    }

    /// Opens a kept output of this session. None: this is not the path of one, and never was. Blocking.
    ///
    /// # Errors
    /// As [`Outputs::open`].
    pub fn open_output(&self, path: &Path) -> Option<io::Result<File>> {
        self.estate.outputs.open(&self.member, path)
    }

    /// Ends what the session left running, and removes what was kept of it.
    pub async fn end(&self) {
        self.kin.end().await;
        let (outputs, member) = (Arc::clone(&self.estate.outputs), self.member.clone());
        // A removal that panicked is made up for by the next process.
        drop(tokio::task::spawn_blocking(move || outputs.forget(&member)).await);
    }
}
