//! The configuration is read again while the server runs: when its file changes, and at SIGHUP. What can count at once does;
//! what cannot is told, and so is a file that is wrong, which changes nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::log::Log;
use super::signal::hangup_is_ours;
use super::supervised::Supervised;
use crate::app::{App, Configuration};
use crate::base::panics::broken;
use crate::base::{clock, limit};
use crate::config::tokens::Stamp;
use crate::config::{AT_ONCE, ConfigError, Launch, Options};

/// Reads the configuration again.
pub(super) struct Reloader {
    /// What was said when the program was started.
    flags: Options,
    /// What `--config` named.
    file: Option<PathBuf>,
    /// What is in force.
    launch: Launch,
    app: Arc<App>,
    log: Log,
    supervised: Supervised,
    /// How long a stop waits for running turns, as it is now.
    grace: watch::Sender<Duration>,
    /// SIGHUP, where it is ours. None: it is not.
    hangup: Option<Signal>,
    /// How the file looked from outside when it was read last.
    known: Option<Stamp>,
}

impl Reloader {
    /// One for a server that was started so. From now on nothing that happens to the file is missed, nor is SIGHUP.
    pub(super) fn new(
        (flags, file): (Options, Option<PathBuf>),
        launch: Launch,
        (app, log, supervised): (Arc<App>, Log, Supervised),
    ) -> Self {
        let grace = watch::Sender::new(Duration::from_millis(launch.shutdown_grace_ms));
        let hangup = if hangup_is_ours() { signal(SignalKind::hangup()).ok() } else { None };
        let known = file_of(&launch).map(|path| Stamp::of(&path));
        Self { flags, file, launch, app, log, supervised, grace, hangup, known }
    }

    /// How long a stop waits for running turns, whenever it is asked.
    pub(super) fn grace(&self) -> watch::Receiver<Duration> {
        self.grace.subscribe()
    }

    /// Reads it whenever it is asked to, until `end`. Gives back what is in force then.
    pub(super) async fn run(mut self, end: CancellationToken) -> Launch {
        let (mut hangup, mut known) = (self.hangup.take(), self.known);
        loop {
            tokio::select! {
                biased;
                () = end.cancelled() => return self.launch,
                () = next(&mut hangup) => {
                    known = self.stamp().await;
                    self.supervised.reloading();
                    let outcome = self.read().await;
                    self.supervised.reloaded(&outcome);
                }
                () = tokio::time::sleep(Duration::from_millis(limit::RELOAD_MS)) => {
                    let now = self.stamp().await;
                    if now != known {
                        known = now;
                        self.read().await;
                    }
                }
            }
        }
    }

    /// How the file looks from outside.
    async fn stamp(&self) -> Option<Stamp> {
        let path = file_of(&self.launch)?;
        tokio::task::spawn_blocking(move || Stamp::of(&path)).await.ok()
    }

    /// Reads it and takes what it can. Gives back what came of it, in a sentence.
    async fn read(&mut self) -> String {
        let (flags, file) = (self.flags.clone(), self.file.clone());
        let resolved = tokio::task::spawn_blocking(move || resolve(flags, file));
        let problem = match resolved.await {
            Ok(Ok(next)) => match self.app.adopt(&next.settings) {
                Ok(()) => return self.took(next),
                Err(error) => error.to_string(),
            },
            Ok(Err(problem)) => problem,
            Err(cause) => broken(cause),
        };
        tracing::error!(problem, "the configuration is not taken: everything stays as it is");
        self.note(Vec::new(), Some(problem.clone()));
        format!("the configuration was not taken: {problem}")
    }

    fn took(&mut self, next: Launch) -> String {
        let changed = self.launch.said.changed(&next.said);
        let (at_once, later): (Vec<&str>, Vec<&str>) = changed.into_iter().partition(|name| AT_ONCE.contains(name));
        self.log.set(next.log_level, next.log_filter.as_ref());
        // What needs a restart stays what it was in the launch too: the next reading finds it again.
        let (in_force, mut said) = (self.launch.clone(), next.said.clone());
        said.restore(&in_force.said, &later);
        self.launch = Launch { said, ..in_force };
        self.launch.settings = next.settings;
        self.launch.shutdown_grace_ms = next.shutdown_grace_ms;
        self.grace.send_replace(Duration::from_millis(next.shutdown_grace_ms));
        self.launch.config_file = next.config_file;
        self.launch.origins = next.origins;
        self.app.tell_config(self.launch.shown());
        if !at_once.is_empty() || later.is_empty() {
            tracing::info!(changed = at_once.join(" "), "the configuration was read again");
        }
        if !later.is_empty() {
            tracing::warn!(
                settings = later.join(" "),
                "needs a restart: the server goes on with what it was started with"
            );
        }
        let outcome = match later.is_empty() {
            true => "the configuration was read again".to_owned(),
            false => format!("the configuration was read again; needs a restart: {}", later.join(" ")),
        };
        self.note(later, None);
        outcome
    }

    fn note(&self, needs_restart: Vec<&'static str>, problem: Option<String>) {
        self.app.note_configuration(Configuration { read_at: clock::now_text(), needs_restart, problem });
    }
}

/// The file that is read, or would be if it were there.
fn file_of(launch: &Launch) -> Option<PathBuf> {
    launch.config_file.clone().or_else(|| Launch::config_path().ok().flatten())
}

/// The next SIGHUP; never, where it is not ours.
async fn next(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

fn resolve(flags: Options, file: Option<PathBuf>) -> Result<Launch, String> {
    Launch::resolve(flags, file, Options::default()).map_err(|error| match error {
        // Who runs the server knows which file it is.
        ConfigError::File { problem, .. } => problem,
        error => error.to_string(),
    })
}
