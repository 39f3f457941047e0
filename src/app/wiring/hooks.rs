//! The hooks of all sessions: those of the embedding program, and behind them the commands of the configuration.

use std::sync::Arc;

use crate::app::OpenError;
use crate::config::{HookCommand, Names, Settings};
use crate::hook::{CommandHooks, HookRow, Hooks};

/// These with the commands that the settings name.
///
/// # Errors
/// [`OpenError::Setting`] that names the command and its member.
pub(super) fn with_commands(settings: &Settings, own: Arc<dyn Hooks>) -> Result<Arc<dyn Hooks>, OpenError> {
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
