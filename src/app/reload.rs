//! Other settings while the application runs: what of them can count at once, does.

use serde_json::json;
use std::sync::Arc;

use super::{App, Caller, OpenError, agents, providers};
use crate::config::Settings;
use crate::protocol::{Access, ApiError, ConfigView, Health};

/// What is known of the configuration since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// When it was last read, RFC 3339.
    pub read_at: String,
    /// Settings that differ from what is in force, and count after a restart.
    pub needs_restart: Vec<&'static str>,
    /// Why it was not taken, the last time that it was read.
    pub problem: Option<String>,
}

impl App {
    /// Takes the models, limits, rules, hooks and the mode of new sessions from other settings; the rest stays as it was. Turns that
    /// run keep their model, their hooks and their number of rounds; all else counts from the next time that it is asked for.
    ///
    /// # Errors
    /// [`OpenError`] that names the setting; then nothing has changed.
    pub fn adopt(&self, next: &Settings) -> Result<(), OpenError> {
        let mut settings = self.settings().as_ref().clone();
        settings.model.clone_from(&next.model);
        settings.openai = next.openai.clone();
        settings.providers.clone_from(&next.providers);
        settings.model_fallbacks.clone_from(&next.model_fallbacks);
        settings.small_model.clone_from(&next.small_model);
        settings.compaction_model.clone_from(&next.compaction_model);
        settings.agent_types.clone_from(&next.agent_types);
        settings.limits.clone_from(&next.limits);
        settings.permissions = next.permissions.clone();
        settings.permission_mode = next.permission_mode;
        settings.hooks.clone_from(&next.hooks);
        // What is kept for undoing was opened with its size.
        settings.limits.snapshot_bytes_max = self.settings().limits.snapshot_bytes_max;
        // Tools are made ready with it.
        settings.limits.mcp_told_bytes_max = self.settings().limits.mcp_told_bytes_max;
        let tape = self.tape.as_ref();
        let agents = agents::beside(&self.agents, &self.errands);
        let models = providers::models(&settings, self.own_models.clone(), &agents, tape)?;
        let types = super::wiring::roles::agent_types(&settings)?;
        let hooks = self.wardrobe.hooks_of(&settings)?;
        self.models.adopt(&models);
        self.wardrobe.set_hooks(hooks);
        self.wardrobe.set_agent_types(types);
        self.sessions.adopt(&settings.limits, &settings.permissions);
        self.commands.set_rate(settings.limits.commands_per_minute);
        *self.settings.write() = Arc::new(settings);
        Ok(())
    }

    /// Remembers what is in force, for `GET /config`. Secrets must not be in it.
    pub fn tell_config(&self, view: ConfigView) {
        *self.config.lock() = Arc::new(view);
    }

    /// What the server was set to.
    ///
    /// # Errors
    /// `FORBIDDEN` for who reaches one session alone, and who may not administer: rules and addresses say much.
    pub fn config(&self, caller: &Caller) -> Result<Arc<ConfigView>, ApiError> {
        caller.at_large()?;
        caller.needs(Access::Administer)?;
        Ok(Arc::clone(&self.config.lock()))
    }

    /// Remembers what came of reading the configuration, for `GET /health?verbose=true`.
    pub fn note_configuration(&self, configuration: Configuration) {
        *self.configuration.lock() = Some(configuration);
    }

    /// Adds what came of it, if it was read again since the start.
    pub fn add_configuration(&self, health: &mut Health) {
        let Some(configuration) = self.configuration.lock().clone() else { return };
        let Configuration { read_at, needs_restart, problem } = configuration;
        let status = match (&problem, needs_restart.is_empty()) {
            (Some(_), _) => "broken",
            (None, false) => "needs-restart",
            (None, true) => "ok",
        };
        let mut check = json!({ "status": status, "readAt": read_at, "needsRestart": needs_restart });
        if let Some(problem) = problem {
            check["reason"] = problem.into();
        }
        health.checks.insert("configuration".to_owned(), check);
    }
}
