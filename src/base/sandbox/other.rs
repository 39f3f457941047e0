//! Where nothing of this is known: programs run as they are, and [`super::support`] says so.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Policy, Program, Started, Support};

/// Nothing.
#[derive(Debug)]
pub struct Cage;

impl Cage {
    pub(super) fn probe() -> Support {
        Support { landlock: 0, namespaces: false, processes: false, seccomp: false }
    }

    /// Nothing to prepare.
    ///
    /// # Errors
    /// None.
    pub fn prepare(
        _policy: &Policy,
        _directory: &Path,
        _extra: &[PathBuf],
        _loopback: Option<Arc<Loopback>>,
    ) -> io::Result<Self> {
        Ok(Self)
    }

    /// It cannot.
    pub fn can_start(&self) -> bool {
        false
    }

    /// Cannot.
    ///
    /// # Errors
    /// Always.
    pub fn start(&self, _program: &Program) -> io::Result<Started> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Leaves the command as it is.
    pub fn put_on(self, _command: &mut tokio::process::Command) {}
}

/// Never made.
#[derive(Debug)]
pub struct Loopback;

impl Loopback {
    /// None.
    pub fn make() -> Option<Arc<Self>> {
        None
    }

    /// Nothing to make.
    ///
    /// # Errors
    /// None.
    pub fn furnish(self: &Arc<Self>, _policy: &Policy) -> io::Result<()> {
        Ok(())
    }

    /// Nothing to take away.
    pub fn tidy(&self) {}
}
