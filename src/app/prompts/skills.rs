//! Skills and slash commands: what there is, and what a prompt becomes that begins with one.
//!
//! A prompt for an external agent is never changed: `/name` is that agent's own there. Where nothing is called so, the text goes on
//! as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::app::bodies::check_text;
use crate::app::{App, Caller};
use crate::base::limit;
use crate::base::panics::broken;
use crate::config::{expand, fill, load_skill};
use crate::protocol::{
    ApiError, CommandKind, CommandList, CommandView, Configure, OWN_AGENT, Part, PromptContent, SessionId, SkillList,
    SkillView, TurnSettings, agent_of,
};

/// For whom a list is.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// For this session: where it works, and what its agent is told of.
    pub session: Option<SessionId>,
    /// For sessions that work there.
    pub directory: Option<PathBuf>,
}

impl App {
    /// The skills that a session has.
    ///
    /// # Errors
    /// `NOT_FOUND` for the session; `INVALID_ARGUMENT` for the directory.
    pub async fn skills(&self, caller: &Caller, listing: Listing) -> Result<SkillList, ApiError> {
        let (directory, only) = self.listed_for(caller, listing).await?;
        let catalog = self.wardrobe.skill_catalog(&directory).await;
        let named = |skill: &&Arc<SkillView>| only.as_ref().is_none_or(|only| only.contains(&skill.name));
        let skills = catalog.all.iter().filter(named).map(|skill| skill.as_ref().clone()).collect();
        Ok(SkillList { skills, faults: catalog.faults })
    }

    /// What a prompt of a session may begin with.
    ///
    /// # Errors
    /// As [`App::skills`].
    pub async fn slash_commands(&self, caller: &Caller, listing: Listing) -> Result<CommandList, ApiError> {
        let (directory, only) = self.listed_for(caller, listing).await?;
        let (commands, skills) =
            tokio::join!(self.wardrobe.command_catalog(&directory), self.wardrobe.skill_catalog(&directory));
        let mut all: Vec<CommandView> = commands.all.iter().map(|command| command.view.clone()).collect();
        for skill in &skills.all {
            let named = only.as_ref().is_none_or(|only| only.contains(&skill.name));
            if skill.user_invocable && named && commands.get(&skill.name).is_none() {
                all.push(as_command(skill));
            }
        }
        let faults = commands.faults.into_iter().chain(skills.faults).take(limit::DEFINITION_FAULTS_MAX).collect();
        Ok(CommandList { commands: all, faults })
    }

    /// Where a list is for, and the skills that its agent is told of.
    async fn listed_for(
        &self,
        caller: &Caller,
        Listing { session, directory }: Listing,
    ) -> Result<(PathBuf, Option<Vec<String>>), ApiError> {
        let Some(id) = session else { return Ok((self.working_directory("workingDirectory", directory).await?, None)) };
        if directory.is_some() {
            return Err(ApiError::invalid("workingDirectory", "nothing with `sessionId`"));
        }
        let view = self.session(caller, &id).await?;
        let only = self.skills_of(&view.agent, &view.working_directory).await;
        Ok((view.working_directory, only))
    }

    /// The skills that an agent is told of. None: all.
    async fn skills_of(&self, agent: &str, directory: &Path) -> Option<Vec<String>> {
        self.wardrobe.agent_catalog(directory).await.get(agent).and_then(|agent| agent.skills.clone())
    }

    /// What a prompt says once the command is filled in that it begins with.
    pub(super) async fn filled_in(
        &self,
        (caller, id): (&Caller, &SessionId),
        content: PromptContent,
        (configure, turn): (Option<&Configure>, Option<&TurnSettings>),
    ) -> Result<PromptContent, ApiError> {
        let Some((name, arguments)) = first_text(&content).and_then(expand) else { return Ok(content) };
        let view = self.session(caller, id).await?;
        let model = configure.and_then(|changes| changes.model.as_deref()).unwrap_or(&view.model);
        let model = turn.and_then(|turn| turn.model.as_deref()).unwrap_or(model);
        if agent_of(model) != OWN_AGENT {
            return Ok(content);
        }
        let directory = configure.and_then(|changes| changes.working_directory.as_ref());
        let directory = directory.unwrap_or(&view.working_directory);
        let command = self.wardrobe.command_catalog(directory).await.get(name).cloned();
        let text = match command {
            Some(command) => fill(&command.template, arguments),
            None => {
                let agent = configure.and_then(|changes| changes.agent.as_deref()).unwrap_or(&view.agent);
                let agent = turn.and_then(|turn| turn.agent.as_deref()).unwrap_or(agent);
                let only = self.skills_of(agent, directory).await;
                let may = |skill: &Arc<SkillView>| {
                    skill.user_invocable && only.as_ref().is_none_or(|only| only.contains(&skill.name))
                };
                let skill = self.wardrobe.skill_catalog(directory).await.get(name).cloned().filter(may);
                let Some(skill) = skill else { return Ok(content) };
                used(skill, arguments).await?
            }
        };
        check_text("prompt", &text, limit::PROMPT_BYTES_MAX)?;
        Ok(match content {
            PromptContent::Text(_) => PromptContent::Text(text),
            PromptContent::Parts(parts) => {
                let rest = parts.into_iter().skip(1);
                PromptContent::Parts(std::iter::once(Part::Text { text }).chain(rest).collect())
            }
        })
    }
}

/// The text that a prompt begins with.
pub(super) fn first_text(content: &PromptContent) -> Option<&str> {
    match content {
        PromptContent::Text(text) => Some(text),
        PromptContent::Parts(parts) => match parts.first()? {
            Part::Text { text } => Some(text),
            Part::Image { .. } => None,
        },
    }
}

/// What a prompt says that uses a skill.
async fn used(skill: Arc<SkillView>, arguments: &str) -> Result<String, ApiError> {
    let (name, arguments) = (skill.name.clone(), arguments.to_owned());
    let loaded = tokio::task::spawn_blocking(move || load_skill(&skill, &arguments));
    let loaded = loaded.await.map_err(|error| ApiError::internal(broken(error)))?;
    let loaded =
        loaded.map_err(|why| ApiError::unfit("prompt", "a skill that can be read", format!("`/{name}`: {why}")))?;
    Ok(format!("{}\n\n(The skill `{name}`; its folder is {}.)", loaded.text, loaded.folder.display()))
}

fn as_command(skill: &SkillView) -> CommandView {
    CommandView {
        name: skill.name.clone(),
        description: skill.description.clone(),
        kind: CommandKind::Skill,
        source: skill.source,
        path: skill.path.clone(),
        argument_hint: skill.argument_hint.clone(),
    }
}
