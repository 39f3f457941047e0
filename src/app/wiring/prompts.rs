//! What a turn's model or agent is told before the conversation.

use super::Wardrobe;
use crate::config::{PLATFORM, ProviderPrompts};
use crate::prompt::{SystemParts, family_prompt, provider_prompt, system_text};
use crate::protocol::{AgentDefinition, SessionId};
use crate::store::SessionSettings;

/// Who an agent is, in its own words, where it has some.
fn text_of(agent: Option<&AgentDefinition>) -> Option<&str> {
    agent.map(|agent| agent.prompt.as_str()).filter(|text| !text.is_empty())
}

impl Wardrobe {
    /// What an agent is told before its first prompt: only what was written for it or for the session. It has a
    /// system text of its own, and reads instruction files itself.
    pub(super) fn agent_prompt(&self, settings: &SessionSettings, agent: Option<&AgentDefinition>) -> String {
        let patterns = ProviderPrompts { default_prompt: None, ..self.provider_prompts.clone() };
        let own = text_of(agent).or_else(|| provider_prompt(&patterns, &settings.model));
        let parts =
            [own, settings.instructions.as_deref()].into_iter().flatten().filter(|text| !text.trim().is_empty());
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// The system text of a session's next turn.
    pub(super) async fn system_prompt(
        &self,
        session: &SessionId,
        (settings, agent): (&SessionSettings, Option<&AgentDefinition>),
    ) -> String {
        let directory = &settings.working_directory;
        let (found, surroundings) =
            tokio::join!(self.lore.files(directory), self.lore.surroundings(session, directory));
        system_text(&SystemParts {
            prompt: text_of(agent)
                .or_else(|| provider_prompt(&self.provider_prompts, &settings.model))
                .unwrap_or_else(|| family_prompt(&settings.model)),
            working_directory: directory,
            additional_directories: &settings.additional_directories,
            platform: PLATFORM,
            date: &surroundings.date,
            branch: surroundings.branch.as_deref(),
            instructions: &found.files,
            session: settings.instructions.as_deref(),
        })
    }
}
