//! Options of the host tools as JavaScript gives them, and the tools they make.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::error::envelope;
use crate::base::sandbox::Mode;
use crate::base::workspace::{StaleCheck, Workspace};
use crate::host::{
    BashOptions as HostBashOptions, ExecOptions as HostExecOptions, GitOptions as HostGitOptions, Sandbox, bash_tool,
    exec_tools, git_tools,
};
use crate::tool::Tool;

/// `FilesystemToolOptions`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FilesystemOptions {
    working_directory: PathBuf,
    #[serde(default)]
    allowed_paths: Vec<PathBuf>,
    #[serde(default)]
    stale_check: StaleCheck,
}

/// `BashToolOptions`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BashOptions {
    working_directory: PathBuf,
    default_timeout_ms: Option<u64>,
    max_output_bytes: Option<usize>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    shell: Option<PathBuf>,
    #[serde(default)]
    sandbox: Mode,
    #[serde(default)]
    sandbox_network: bool,
}

/// `ExecToolOptions`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExecOptions {
    working_directory: PathBuf,
    max_output_tokens: Option<usize>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    shell: Option<PathBuf>,
    #[serde(default)]
    sandbox: Mode,
    #[serde(default)]
    sandbox_network: bool,
}

/// `GitToolOptions`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GitOptions {
    working_directory: PathBuf,
    #[serde(default)]
    sandbox: Mode,
    #[serde(default)]
    sandbox_network: bool,
}

type Tools = napi::Result<Vec<Arc<dyn Tool>>>;

/// The roots of a family of tools. They may come into being later: until then each call says that they are missing.
fn workspace(working_directory: &Path, allowed: &[PathBuf]) -> napi::Result<Workspace> {
    let refused = |why: String| {
        let issues = json!({ "issues": [{ "path": "options.workingDirectory", "message": why }] });
        envelope("CONFIG_VALIDATION", format!("options.workingDirectory: {why}"), issues)
    };
    let in_the_way = match std::fs::metadata(working_directory) {
        Ok(found) => !found.is_dir(),
        Err(e) => e.kind() == std::io::ErrorKind::NotADirectory,
    };
    if in_the_way {
        let expected = "expected a directory, or a path where one can be made";
        return Err(refused(format!("{expected}, got what is none: {working_directory:?}")));
    }
    Workspace::lenient(working_directory, allowed).map_err(|e| refused(e.to_string()))
}

impl FilesystemOptions {
    pub(super) fn workspace(&self) -> napi::Result<Arc<Workspace>> {
        let workspace = workspace(&self.working_directory, &self.allowed_paths)?;
        Ok(Arc::new(workspace.with_stale_check(self.stale_check)))
    }
}

impl BashOptions {
    pub(super) fn tools(self) -> Tools {
        let workspace = Arc::new(workspace(&self.working_directory, &[])?);
        let defaults = HostBashOptions::default();
        let options = HostBashOptions {
            default_timeout_ms: self.default_timeout_ms.unwrap_or(defaults.default_timeout_ms),
            output_bytes_max: self.max_output_bytes.unwrap_or(defaults.output_bytes_max),
            env: self.env,
            shell: self.shell.unwrap_or(defaults.shell),
            sandbox: Sandbox { mode: self.sandbox, network: self.sandbox_network, ..Sandbox::default() },
        };
        Ok(vec![bash_tool(&workspace, options)])
    }
}

impl ExecOptions {
    pub(super) fn tools(self) -> Tools {
        let workspace = Arc::new(workspace(&self.working_directory, &[])?);
        let defaults = HostExecOptions::default();
        let options = HostExecOptions {
            env: self.env,
            shell: self.shell.unwrap_or(defaults.shell),
            output_tokens: self.max_output_tokens.unwrap_or(defaults.output_tokens),
            sandbox: Sandbox { mode: self.sandbox, network: self.sandbox_network, ..Sandbox::default() },
        };
        Ok(exec_tools(&workspace, options))
    }
}

impl GitOptions {
    pub(super) fn tools(self) -> Tools {
        let sandbox = Sandbox { mode: self.sandbox, network: self.sandbox_network, ..Sandbox::default() };
        Ok(git_tools(&Arc::new(workspace(&self.working_directory, &[])?), &HostGitOptions { sandbox }))
    }
}
