//! Short programs that the command line itself runs: git, and the tests of the example.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::base::process::{self, Invocation, RunLimits};
use crate::config;

/// Longest run.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Output that is kept.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// What came of a run.
#[derive(Debug)]
pub(super) struct Ran {
    /// Whether it ended with code 0.
    pub(super) succeeded: bool,
    /// What it wrote.
    pub(super) output: String,
}

/// Runs a program in a directory.
///
/// # Errors
/// When it cannot be started.
pub(super) async fn run(directory: &Path, name: &str, arguments: &[&str]) -> io::Result<Ran> {
    let invocation = Invocation {
        program: name.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        directory: directory.to_owned(),
        environment: process::environment(config::inherited_environment(), &[].into()),
        confinement: None,
    };
    let limits = RunLimits { timeout: TIMEOUT, output_bytes_max: OUTPUT_BYTES_MAX };
    let finished = process::run(&invocation, limits, &CancellationToken::new()).await?;
    Ok(Ran { succeeded: finished.ending.code() == Some(0), output: finished.output.text() })
}
