//! The hooks of all sessions: those of the embedding program, and behind them the commands of the configuration.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::app::OpenError;
use crate::config::{HookCommand, Names, Settings};
use crate::hook::{CommandHooks, HookRow, Hooks};

/// The hooks that count now. A turn keeps those that it began with.
pub(super) struct AllHooks {
    /// Those of the embedding program.
    own: Arc<dyn Hooks>,
    now: RwLock<Arc<dyn Hooks>>,
}

impl AllHooks {
    /// # Errors
    /// As [`Self::with`].
    pub(super) fn new(settings: &Settings, own: Arc<dyn Hooks>) -> Result<Self, OpenError> {
        let now = RwLock::new(with_commands(settings, Arc::clone(&own))?);
        Ok(Self { own, now })
    }

    /// All of them.
    pub(super) fn now(&self) -> Arc<dyn Hooks> {
        Arc::clone(&self.now.read())
    }

    /// The program's with the commands of other settings. Nothing changes yet.
    ///
    /// # Errors
    /// [`OpenError::Setting`] that names the command and its member.
    pub(super) fn with(&self, settings: &Settings) -> Result<Arc<dyn Hooks>, OpenError> {
        with_commands(settings, Arc::clone(&self.own))
    }

    /// From now on these count.
    pub(super) fn set(&self, hooks: Arc<dyn Hooks>) {
        *self.now.write() = hooks;
    }
}

/// These with the commands that the settings name.
///
/// # Errors
/// [`OpenError::Setting`] that names the command and its member.
fn with_commands(settings: &Settings, own: Arc<dyn Hooks>) -> Result<Arc<dyn Hooks>, OpenError> {
    if let Some((at, member, expected)) = HookCommand::fault(&settings.hooks) {
        let field = match settings.names {
            Names::Flags => format!("hooks[{at}].{member}"),
            Names::Members => format!("hooks.{at}.{member}"),
        };
        return Err(OpenError::Setting { field, expected });
    }
    if settings.hooks.is_empty() {
        return Ok(own);
    }
    let commands = CommandHooks::new(settings.hooks.clone(), settings.working_directory.clone());
    Ok(Arc::new(HookRow::new(vec![own, Arc::new(commands)])))
}
