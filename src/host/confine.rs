//! How far the sandbox lets the programs of a session go: the server's settings and a workspace become a policy.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::fs_common::blocking;
use crate::base::process::Confinement;
use crate::base::sandbox::{Denial, Level, Loopback, Mode, Policy, Sign};
use crate::base::workspace::Workspace;
use crate::tool::{Scope, ToolError};

/// How far a program goes, where that differs from a shell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Reach {
    /// It writes nowhere, at any level.
    pub looks: bool,
    /// It talks to the network.
    pub network: bool,
    /// Directories beside the roots that it may write to.
    pub places: Vec<PathBuf>,
    /// It may change hooks and configuration of git repositories.
    pub git_settings: bool,
    /// Files that it may write besides; they exist.
    pub files: Vec<PathBuf>,
}

/// What the sandbox of a session's programs is like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    /// How far they may go.
    pub mode: Mode,
    /// Whether they may talk to the network.
    pub network: bool,
    /// What they may not see, absolute: the server's own data.
    pub hidden: Vec<PathBuf>,
    /// Files, absolute and without links, that say what the server does at its next start. Not seen; but where they lie in a
    /// session's roots seen and not changed.
    pub settings: Vec<PathBuf>,
}

impl Sandbox {
    /// None where it is off.
    pub(super) fn level(&self) -> Option<Level> {
        match self.mode {
            Mode::ReadOnly => Some(Level::ReadOnly),
            Mode::WorkspaceWrite => Some(Level::WorkspaceWrite),
            Mode::Off => None,
        }
    }

    /// What a program is held to that works on `workspace` and may write `files` besides; None where the sandbox is off.
    ///
    /// `environment` is one that no call can change: where it says that temporary files lie may be written to.
    pub(super) async fn confinement(
        &self,
        place: (&Workspace, &Scope),
        environment: &[(OsString, OsString)],
        files: Vec<PathBuf>,
    ) -> Result<Option<Confinement>, ToolError> {
        let reach = Reach { files, ..Reach::default() };
        self.confine(place, environment, reach).await
    }

    /// The same for a program that goes further, or less far, than a shell.
    pub(super) async fn confine(
        &self,
        (workspace, scope): (&Workspace, &Scope),
        environment: &[(OsString, OsString)],
        reach: Reach,
    ) -> Result<Option<Confinement>, ToolError> {
        let Some(level) = self.level() else { return Ok(None) };
        let level = if reach.looks { Level::ReadOnly } else { level };
        let temporary = environment.iter().find(|(name, _)| name == "TMPDIR").map(|(_, place)| PathBuf::from(place));
        let temporary = temporary.filter(|place| place.is_absolute());
        // Roots have no links. Of the others, what a link leads to now is meant.
        let named: Vec<PathBuf> = reach.places.into_iter().chain(temporary).collect();
        let follow = move || Ok(named.into_iter().filter_map(|place| place.canonicalize().ok()).collect::<Vec<_>>());
        let further = blocking(follow).await?;
        // What other sessions were shown, and this one.
        let outputs = scope.share().outputs_home().await;
        let (kept, away): (Vec<PathBuf>, Vec<PathBuf>) =
            self.settings.iter().cloned().partition(|file| workspace.contains(file));
        let policy = Policy {
            level,
            network: self.network || reach.network,
            writable: workspace.roots().iter().cloned().chain(further).collect(),
            hidden: self.hidden.iter().cloned().chain(away).chain(outputs).collect(),
            kept,
            git_settings: reach.git_settings,
        };
        Ok(Some(Confinement { policy: Arc::new(policy), files: reach.files, loopback: loopback(scope).await? }))
    }

    /// What a model is told when a confined program of `tool` failed and the sandbox may be why. Empty: nothing.
    pub(super) fn explain(&self, tool: &str, sign: Option<Sign>, workspace: &Workspace) -> String {
        let (Some(level), Some(sign)) = (self.level(), sign) else { return String::new() };
        let what = match (sign.denial, level) {
            (Denial::Network, _) if self.network => return String::new(),
            (Denial::Network, _) => {
                "there is no network but this session's own loopback: neither other machines, nor what listens on this \
                 one outside the session, nor sockets of other programs"
                    .to_owned()
            }
            (Denial::Signals, _) => "no process outside of it can be signalled".to_owned(),
            (Denial::Files, Level::ReadOnly) => "nothing can be written".to_owned(),
            (Denial::Files, Level::WorkspaceWrite) => {
                let roots: Vec<String> = workspace.roots().iter().map(|root| root.display().to_string()).collect();
                format!(
                    "only {} and temporary directories can be written, and no git hooks or git configuration",
                    roots.join(", ")
                )
            }
        };
        format!(
            "\n[The command ran in a sandbox ({}): {what}. What looks like it: {}. If that is why something failed and it is needed, call {tool} again with \
             `outside_sandbox` and a `justification`; the user is asked.]",
            self.mode, sign.line
        )
    }
}

/// Where the session's programs meet; made once.
async fn loopback(scope: &Scope) -> Result<Option<Arc<Loopback>>, ToolError> {
    let make = || async { tokio::task::spawn_blocking(Loopback::make).await };
    let kept = scope.loopback.get_or_try_init(make).await;
    kept.cloned().map_err(|cause| ToolError::failed(format!("the sandbox has no loopback network: {cause}")))
}
