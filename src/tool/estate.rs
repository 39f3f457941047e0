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
use crate::base::file::read_small;
use crate::base::process::{Family, Kin};
use crate::config::data_directory::write_file;

/// The file in a data directory that says whose programs are.
const PROGRAMS: &str = "programs";
/// Its largest size.
const PROGRAMS_BYTES_MAX: u64 = 200;

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

    /// Takes over where an earlier process kept its data: ends what that one left running when it was killed, removes outputs
    /// that it kept, and notes what the next one has to know. Blocking. Nobody else has the directory.
    pub fn succeed(&self, directory: &Path) {
        self.outputs.remove_forsaken();
        let note = directory.join(PROGRAMS);
        let ended = match read_small(&note, PROGRAMS_BYTES_MAX) {
            Ok((record, _)) => Family::end_forsaken(&String::from_utf8_lossy(&record)),
            Err(_) => 0,
        };
        if ended > 0 {
            tracing::info!(programs = ended, "ended what an earlier server had left running when it was killed");
        }
        if let Err(error) = write_file(&note, self.family.record().as_bytes()) {
            tracing::warn!(%error, "what commands leave running would go on, should this process be killed");
        }
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

    /// Ends all of its estate at once, the shares of others too: for an estate whose only share this is. Blocking.
    pub fn end_estate(&self) {
        if self.estate.used.get().is_some() {
            self.estate.family.end_now();
            self.estate.outputs.clear();
        }
    }

    /// Ends what the session left running, and removes what was kept of it.
    pub async fn end(&self) {
        self.kin.end().await;
        let (outputs, member) = (Arc::clone(&self.estate.outputs), self.member.clone());
        // A removal that panicked is made up for by the next process.
        drop(tokio::task::spawn_blocking(move || outputs.forget(&member)).await);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::base::process::{Invocation, RunLimits, run};

    #[tokio::test]
    async fn a_data_directory_says_whose_programs_are() {
        if !cfg!(target_os = "linux") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(PROGRAMS);
        let note = || std::fs::read_to_string(&file).unwrap();
        let (first, second) = (Arc::new(Estate::default()), Arc::new(Estate::default()));
        first.succeed(directory.path());
        let before = note();
        let path = (OsString::from("PATH"), OsString::from("/usr/bin:/bin"));
        let left = Invocation {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "sleep 600 >/dev/null 2>&1 & echo $!".into()],
            directory: directory.path().to_owned(),
            environment: vec![path, first.share("s").mark()],
            confinement: None,
        };
        let limits = RunLimits { timeout: Duration::from_secs(60), output_bytes_max: 100 };
        let said = run(&left, limits, &CancellationToken::new()).await.unwrap().output.text();
        let process = Path::new("/proc").join(said.trim()).join("exe");
        assert!(process.exists(), "{said}");
        second.succeed(directory.path());
        assert!(process.exists(), "who started it lives");
        // As if this process were another: its number is taken, and not by the one that wrote this.
        let words: Vec<&str> = before.split_whitespace().collect();
        std::fs::write(&file, format!("{} {} 1", words[0], words[1])).unwrap();
        second.succeed(directory.path());
        // Once it is killed nothing of it can be looked at; who inherited it may be slow to see to the rest.
        let gone = async {
            while process.read_link().is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), gone).await.expect("it was ended");
        // Whatever stands there, a start goes on.
        std::fs::write(&file, "x".repeat(9999)).unwrap();
        second.succeed(directory.path());
        assert_eq!(note().split_whitespace().count(), 3);
    }
}
