//! `@agent` in front of a prompt: its turn alone is the named agent's.
//!
//! Only what is an agent's name there is a mention: `@types/node`, `@someone` whom nobody knows, and a name with nothing behind it
//! stay what they are. The agent is told what follows its name; who it was stands in the `turn` of `session.prompt`.

use crate::app::{App, Caller};
use crate::protocol::{
    AgentKind, ApiError, Configure, OWN_AGENT, Part, PromptContent, PromptMode, SessionId, TurnSettings, agent_of,
};

impl App {
    /// The agent that a prompt names, as a setting of its turn, and what is left of the prompt. Prompts that go into a turn that
    /// runs name nobody: it goes on as what it is.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that only other agents can delegate to.
    pub(super) async fn mentioned(
        &self,
        (caller, id): (&Caller, &SessionId),
        (content, mode): (PromptContent, PromptMode),
        (turn, configure): (Option<TurnSettings>, Option<&Configure>),
    ) -> Result<(PromptContent, Option<TurnSettings>), ApiError> {
        let as_it_is = |content, turn| Ok((content, turn));
        let told = turn.as_ref().is_some_and(|turn| turn.agent.is_some());
        let Some((name, rest)) = super::skills::first_text(&content).and_then(mention) else {
            return as_it_is(content, turn);
        };
        if told || mode == PromptMode::Steer || caller.at_large().is_err() {
            return as_it_is(content, turn);
        }
        let view = self.session(caller, id).await?;
        let model = configure.and_then(|changes| changes.model.as_deref()).unwrap_or(&view.model);
        let model = turn.as_ref().and_then(|turn| turn.model.as_deref()).unwrap_or(model);
        if agent_of(model) != OWN_AGENT {
            return as_it_is(content, turn);
        }
        let directory = configure.and_then(|changes| changes.working_directory.as_ref());
        let catalog = self.wardrobe.agent_catalog(directory.unwrap_or(&view.working_directory)).await;
        let Some(found) = catalog.get(name) else { return as_it_is(content, turn) };
        if found.kind == AgentKind::Subagent {
            let came = format!("`@{name}`, to which only other agents can delegate");
            return Err(ApiError::unfit("prompt", "an agent that is no sub-agent", came));
        }
        let turn = TurnSettings { agent: Some(name.to_owned()), ..turn.unwrap_or_default() };
        let rest = rest.to_owned();
        let content = match content {
            PromptContent::Text(_) => PromptContent::Text(rest),
            PromptContent::Parts(parts) => {
                let others = parts.into_iter().skip(1);
                PromptContent::Parts(std::iter::once(Part::Text { text: rest }).chain(others).collect())
            }
        };
        Ok((content, Some(turn)))
    }
}

/// The name that a text begins with, as `@name`, and what follows it; both there.
fn mention(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.trim_start().strip_prefix('@')?.split_once(char::is_whitespace)?;
    let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let rest = rest.trim_start();
    (fits && !rest.is_empty()).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::mention;

    #[test]
    fn a_mention_is_a_name_in_front_with_something_behind_it() {
        let cases: &[(&str, Option<(&str, &str)>)] = &[
            ("@reviewer look at this", Some(("reviewer", "look at this"))),
            ("  @code-reviewer_2\n\n/review now", Some(("code-reviewer_2", "/review now"))),
            ("@reviewer", None),
            ("@reviewer  \n ", None),
            ("@ reviewer look", None),
            ("@types/node is old", None),
            ("@reviewer: look", None),
            ("@rev\u{e9} look", None),
            ("look, @reviewer this", None),
            ("reviewer look", None),
            ("@@reviewer look", None),
            ("", None),
        ];
        for (text, want) in cases {
            assert_eq!(mention(text), *want, "{text:?}");
        }
    }
}
