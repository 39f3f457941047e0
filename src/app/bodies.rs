//! Checks of what callers send, beyond its form: each refusal names the field and what was expected.

mod chosen;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::permissions::grant_terms;
use super::roots::{Found, look_up, shown};
use super::{App, Caller};
use crate::base::panics::broken;
use crate::base::{clock, limit};
use crate::protocol::{
    AgentOptions, AgentSetting, ApiError, Budget, Configure, Control, CreateSession, Decision, ErrorCode, Feedback,
    OWN_AGENT, Part, PermissionConfig, PermissionRule, Prompt, PromptContent, SessionId, SessionStatus, TurnSettings,
    Usage, agent_of,
};
use crate::session::{Answer, Command, SERVERS_FALLBACKS, Says, ToolEntry, configure};
use crate::store::{SessionRow, SessionSettings, Which};
use crate::tool::check_output_schema;

impl App {
    /// A new session's facts, or why the body cannot be one.
    pub(super) async fn session_row(&self, caller: &Caller, body: CreateSession) -> Result<SessionRow, ApiError> {
        let working_directory = self.working_directory("workingDirectory", body.working_directory).await?;
        let defined = self.defined_agent("agent", body.agent.as_deref(), &working_directory).await?;
        let model = self.model_beside(defined.as_deref(), (body.agent.as_deref(), body.model))?;
        check_title("title", body.title.as_deref())?;
        if let Some(instructions) = &body.instructions {
            check_text("instructions", instructions, limit::INSTRUCTIONS_BYTES_MAX)?;
        }
        self.check_tools("tools", body.tools.as_deref(), |_| false)?;
        check_rules("toolPermissions", body.tool_permissions.as_ref())?;
        let reasoning = body.reasoning.or_else(|| defined.as_ref()?.reasoning).unwrap_or_default();
        let agent = defined.map(|agent| agent.name.clone());
        let agent_options = body.agent_options.unwrap_or_default();
        check_agent_options("agentOptions", &agent_options, &model)?;
        self.check_fallbacks("modelFallbacks", body.model_fallbacks.as_deref())?;
        check_budget("budget", body.budget.as_ref())?;
        let further = body.additional_directories.unwrap_or_default();
        let further = (working_directory.as_path(), further);
        let additional_directories = self.additional_directories("additionalDirectories", further).await?;
        let now = clock::now_ms();
        let mut settings = SessionSettings {
            working_directory,
            additional_directories,
            agent,
            interaction_mode: body.interaction_mode,
            model,
            title: body.title,
            instructions: body.instructions,
            tools: None,
            without_tools: Vec::new(),
            reasoning,
            agent_options,
            model_fallbacks: None,
            budget: None,
            permissions: body.tool_permissions,
            permission_mode: body.permission_mode.unwrap_or(self.settings().permission_mode),
            grants: Vec::new(),
        };
        configure(
            &mut settings,
            &Configure {
                tools: body.tools,
                model_fallbacks: body.model_fallbacks,
                budget: body.budget,
                ..Configure::default()
            },
        );
        Ok(SessionRow {
            id: body.session_id.unwrap_or_else(SessionId::generate),
            client: caller.client.clone(),
            status: SessionStatus::Created,
            version: 0,
            created_at: now,
            updated_at: now,
            message_count: 0,
            spent: Default::default(),
            usage: Usage::default(),
            settings,
            lineage: None,
            children: Vec::new(),
            shared: Default::default(),
        })
    }

    /// Changed settings of a session, held against what there is; `place` is where they stand in what was sent, such as
    /// `configure.`.
    pub(super) async fn checked_settings(
        &self,
        (caller, id): (&Caller, &SessionId),
        (place, changes): (&str, Configure),
    ) -> Result<Configure, ApiError> {
        let field = |name: &str| format!("{place}{name}");
        let mut changes = changes;
        if let Some(given) = changes.working_directory.take() {
            changes.working_directory = Some(self.working_directory(&field("workingDirectory"), Some(given)).await?);
        }
        if let Some(agent) = changes.agent.take() {
            let now = self.session(caller, id).await?;
            self.choose_agent((place, &agent), &now, &mut changes).await?;
        }
        if let Some(model) = &changes.model {
            self.check_model(&field("model"), model)?;
        }
        self.check_fallbacks(&field("modelFallbacks"), changes.model_fallbacks.as_deref())?;
        check_budget(&field("budget"), changes.budget.as_ref())?;
        check_title(&field("title"), changes.title.as_deref())?;
        if let Some(text) = &changes.instructions {
            check_text(&field("instructions"), text, limit::INSTRUCTIONS_BYTES_MAX)?;
        }
        if changes.agent_options.is_some() || changes.tools.is_some() {
            let now = self.session(caller, id).await?;
            let has = |name: &str| now.tools.iter().flatten().any(|tool| ToolEntry::of(tool).name() == Some(name));
            self.check_tools(&field("tools"), changes.tools.as_deref(), has)?;
            let model = changes.model.as_deref().unwrap_or(&now.model);
            if let Some(options) = &changes.agent_options {
                check_agent_options(&field("agentOptions"), options, model)?;
            }
        }
        if let Some(given) = changes.additional_directories.take() {
            let works = match &changes.working_directory {
                Some(directory) => directory.clone(),
                None => self.session(caller, id).await?.working_directory,
            };
            let real = self.additional_directories(&field("additionalDirectories"), (&works, given)).await?;
            changes.additional_directories = Some(real);
        }
        Ok(changes)
    }

    /// What is to hold for one turn alone, held against what there is. `changes` are settings that change with it.
    pub(super) async fn checked_turn(
        &self,
        (caller, id): (&Caller, &SessionId),
        mut only: TurnSettings,
        changes: Option<&Configure>,
    ) -> Result<TurnSettings, ApiError> {
        if let Some(name) = only.agent.take() {
            // Another agent may do what this one may not.
            caller.at_large()?;
            let now = self.session(caller, id).await?;
            let working_directory = changes.and_then(|changes| changes.working_directory.clone());
            let mut chosen = Configure { working_directory, ..only.as_changes() };
            self.choose_agent(("turn.", &name), &now, &mut chosen).await?;
            (only.agent, only.model, only.reasoning) = (chosen.agent, chosen.model, chosen.reasoning);
        }
        if let Some(model) = &only.model {
            self.check_model("turn.model", model)?;
        }
        self.check_fallbacks("turn.modelFallbacks", only.model_fallbacks.as_deref())?;
        if let Some(options) = &only.agent_options {
            let now = self.session(caller, id).await?.model;
            let changed = changes.and_then(|changes| changes.model.as_deref());
            check_agent_options("turn.agentOptions", options, only.model.as_deref().or(changed).unwrap_or(&now))?;
        }
        if let Some(schema) = &only.output_schema {
            check_schema("turn.outputSchema", schema)?;
            let now = self.session(caller, id).await?.model;
            let changed = changes.and_then(|changes| changes.model.as_deref());
            self.check_answers(only.model.as_deref().or(changed).unwrap_or(&now))?;
        }
        Ok(only)
    }

    /// Whether answers of a model can be held to a schema.
    fn check_answers(&self, id: &str) -> Result<(), ApiError> {
        let holds = self.models.get(id).is_some_and(|model| !model.is_agent() && model.facts().structured_output);
        if holds {
            return Ok(());
        }
        let message = format!(
            "answers of `{id}` cannot be held to a schema: leave `turn.outputSchema` out, or choose a model whose `structuredOutput` is true (`GET /models`)"
        );
        let facts = json!({ "field": "turn.outputSchema", "why": "no_structured_output", "model": id });
        Err(ApiError::conflict(message).with_details(facts))
    }

    /// Models that stand in for others are models of our own loop, and each is asked once.
    fn check_fallbacks(&self, field: &str, ids: Option<&[String]>) -> Result<(), ApiError> {
        let Some(ids) = ids.filter(|ids| !matches!(ids, [all] if all == SERVERS_FALLBACKS)) else { return Ok(()) };
        let count = limit::FALLBACKS_MAX;
        if ids.len() > count {
            return Err(ApiError::unfit(field, format!("at most {count} models"), ids.len()));
        }
        for (at, id) in ids.iter().enumerate() {
            let field = format!("{field}[{at}]");
            self.check_model(&field, id)?;
            if agent_of(id) != OWN_AGENT {
                let expected = format!("a model that the agent `{OWN_AGENT}` can drive");
                return Err(ApiError::unfit(&field, expected, format!("`{id}`")));
            }
            if ids[..at].contains(id) {
                return Err(ApiError::unfit(&field, "a model that is not listed already", format!("`{id}` once more")));
            }
        }
        Ok(())
    }

    pub(super) fn check_model(&self, field: &str, id: &str) -> Result<(), ApiError> {
        if self.models.get(id).is_some() {
            return Ok(());
        }
        let listed = self.models.list();
        let known: Vec<&str> = listed.iter().map(|model| model.id()).collect();
        Err(ApiError::unfit(field, format!("a model of GET /models ({})", known.join(", ")), format!("`{id}`")))
    }

    /// Every tool that is named is there, or is one that the session `has`: a misspelt `-name` would take nothing away.
    fn check_tools(&self, field: &str, entries: Option<&[String]>, has: impl Fn(&str) -> bool) -> Result<(), ApiError> {
        let entries = entries.unwrap_or_default();
        if entries.len() > limit::TOOL_ENTRIES_MAX {
            let expected = format!("at most {} entries", limit::TOOL_ENTRIES_MAX);
            return Err(ApiError::unfit(field, expected, entries.len()));
        }
        let known = self.tools();
        let is_known = |name: &str| known.iter().any(|tool| tool.name == name) || self.wardrobe.may_have(name);
        for (at, entry) in entries.iter().enumerate() {
            let Some(name) = ToolEntry::of(entry).name() else { continue };
            if !is_known(name) && !has(name) {
                let expected = "a tool of GET /tools, `+` or `-` and one, or `*`";
                return Err(ApiError::unfit(&format!("{field}[{at}]"), expected, format!("`{entry}`")));
            }
        }
        Ok(())
    }

    /// The canonical working directory; it exists, lies under an allowed root and not in the server's own data.
    pub(super) async fn working_directory(&self, field: &str, given: Option<PathBuf>) -> Result<PathBuf, ApiError> {
        let real = match given {
            None => self.wardrobe.working_directory().to_owned(),
            Some(given) => self.real_directory(field, (&self.settings().working_directory, given)).await?,
        };
        self.wardrobe.hold_apart(field, &real)?;
        Ok(real)
    }

    /// A directory without links, as it is called from another one; it exists and lies under an allowed root.
    async fn real_directory(&self, field: &str, (from, given): (&Path, PathBuf)) -> Result<PathBuf, ApiError> {
        let wanted = from.join(&given);
        let roots = self.roots.clone();
        let looked_up = tokio::task::spawn_blocking(move || look_up(&roots, &wanted));
        let found = looked_up.await.map_err(|error| ApiError::internal(broken(error)))?;
        let refusal = |why: &str| ApiError::unfit(field, why, given.display());
        match found {
            Found::Allowed(real) => Ok(real),
            Found::Elsewhere => Err(refusal(&format!("a directory under an allowed root ({})", shown(&self.roots)))),
            Found::Missing => Err(refusal("an existing directory")),
        }
    }
}

impl App {
    /// The canonical directories beside the working directory, from which they may be called, each once: they are held to what
    /// that one is held to.
    async fn additional_directories(
        &self,
        field: &str,
        (works, given): (&Path, Vec<PathBuf>),
    ) -> Result<Vec<PathBuf>, ApiError> {
        if given.len() > limit::DIRECTORIES_MAX {
            let expected = format!("at most {} directories", limit::DIRECTORIES_MAX);
            return Err(ApiError::unfit(field, expected, given.len()));
        }
        let mut all = Vec::with_capacity(given.len());
        for (at, directory) in given.into_iter().enumerate() {
            let field = format!("{field}[{at}]");
            // It would be the working directory, which nobody has named.
            if directory.as_os_str().is_empty() {
                return Err(ApiError::unfit(&field, "a directory", "``"));
            }
            let real = self.real_directory(&field, (works, directory)).await?;
            self.wardrobe.hold_further(&field, &real)?;
            if !all.contains(&real) {
                all.push(real);
            }
        }
        Ok(all)
    }
}

/// A budget whose limits are some.
fn check_budget(field: &str, budget: Option<&Budget>) -> Result<(), ApiError> {
    let checked = budget.map_or(Ok(()), Budget::check);
    checked.map_err(|(member, expected)| ApiError::invalid(&format!("{field}.{member}"), expected))
}

/// Rules that can match something.
fn check_rules(field: &str, permissions: Option<&PermissionConfig>) -> Result<(), ApiError> {
    let fault = permissions.and_then(|permissions| PermissionRule::fault(&permissions.rules));
    fault.map_or(Ok(()), |(at, member, expected)| {
        Err(ApiError::invalid(&format!("{field}.rules[{at}].{member}"), expected))
    })
}

/// A prompt says something, and not too much.
pub(super) fn check_prompt(body: &Prompt) -> Result<(), ApiError> {
    if let PromptContent::Parts(parts) = &body.prompt {
        for (at, part) in parts.iter().enumerate() {
            check_part(at, part)?;
        }
    }
    let has_image = matches!(&body.prompt, PromptContent::Parts(parts) if parts.iter().any(is_image));
    let text = body.prompt.text();
    if text.trim().is_empty() && !has_image {
        // Where there are parts, all of them are empty texts: the first is as good as any.
        return Err(match &body.prompt {
            PromptContent::Parts(parts) if !parts.is_empty() => {
                ApiError::invalid("prompt[0].text", "a text that is not empty, here or in another part")
            }
            PromptContent::Parts(_) | PromptContent::Text(_) => {
                ApiError::invalid("prompt", "a text that is not empty, or parts")
            }
        });
    }
    check_text("prompt", &text, limit::PROMPT_BYTES_MAX)
}

fn is_image(part: &Part) -> bool {
    matches!(part, Part::Image { .. })
}

fn check_part(at: usize, part: &Part) -> Result<(), ApiError> {
    match part {
        Part::Image { media_type, .. } if !media_type.starts_with("image/") => {
            let field = format!("prompt[{at}].mediaType");
            Err(ApiError::unfit(&field, "a type such as image/png", format!("`{media_type}`")))
        }
        Part::Image { data, .. } if data.is_empty() || !data.bytes().all(is_base64) => {
            Err(ApiError::invalid(&format!("prompt[{at}].data"), "base64 without a prefix"))
        }
        Part::Text { .. } | Part::Image { .. } => Ok(()),
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// An answer names one question and says one thing. `now_ms`: when a yes with an end begins.
pub(super) fn check_feedback(body: Feedback, now_ms: u64) -> Result<Answer, ApiError> {
    if body.call_id.is_none() && body.request_id.is_none() {
        return Err(ApiError::invalid("requestId", "`requestId`, or `callId` of a permission.request"));
    }
    check_text("message", body.message.as_deref().unwrap_or_default(), limit::REASON_BYTES_MAX)?;
    let says = match (said(&body)?, &body.cancelled) {
        (Some(decision), _) => {
            let grant = grant_terms(&body, decision == Decision::AllowAlways, now_ms)?;
            Says::Decision(decision, grant)
        }
        (None, Some(true)) => Says::Cancelled,
        (None, _) => Says::Value(body.value.clone().unwrap_or_default()),
    };
    if !matches!(says, Says::Decision(..)) {
        if body.request_id.is_none() {
            return Err(ApiError::invalid("requestId", "the `requestId` of a client.request"));
        }
        let with_permission = [("scope", body.scope.is_some()), ("expiresInMs", body.expires_in_ms.is_some())];
        if let Some((field, _)) = with_permission.iter().find(|(_, given)| *given) {
            return Err(ApiError::invalid(field, "only with an answer about permission"));
        }
    }
    if matches!(says, Says::Value(_)) && body.message.is_some() {
        return Err(ApiError::invalid("message", "none beside a `value`"));
    }
    let Feedback { call_id, request_id, message, .. } = body;
    Ok(Answer { which: Which { request_id, call_id }, says, message })
}

/// The decision, of an answer that is one. Exactly one kind of answer is there.
fn said(body: &Feedback) -> Result<Option<Decision>, ApiError> {
    let given = [
        ("decision", body.decision.is_some()),
        ("allowed", body.allowed.is_some()),
        ("value", body.value.is_some()),
        ("cancelled", body.cancelled.is_some()),
    ];
    let mut given = given.iter().filter(|(_, given)| *given);
    let first = given.next();
    if let (Some((first, _)), Some((second, _))) = (first, given.next()) {
        return Err(ApiError::invalid(second, format!("only one of `{first}` and `{second}`")));
    }
    match (body.decision, body.allowed, body.cancelled) {
        (Some(decision), ..) => Ok(Some(decision)),
        (_, Some(true), _) => Ok(Some(Decision::Allow)),
        (_, Some(false), _) => Ok(Some(Decision::Deny)),
        (_, _, Some(false)) => Err(ApiError::invalid("cancelled", "true, or a `value`")),
        _ if first.is_some() => Ok(None),
        _ => {
            let expected =
                "`allow`, `allow_always` or `deny`, or `allowed: boolean`; to a client.request `value` or `cancelled`";
            Err(ApiError::invalid("decision", expected))
        }
    }
}

/// A control, and why: `otherwise` when the client does not say.
pub(super) fn check_control(body: Control, otherwise: &str) -> Result<Command, ApiError> {
    let reason = body.reason.unwrap_or_else(|| otherwise.to_owned());
    check_text("reason", &reason, limit::REASON_BYTES_MAX)?;
    Ok(Command { turn: body.turn_id, reason, if_version: body.if_version })
}

/// Options are those of an agent. Which ones it has is known when its session is open, and not here.
fn check_agent_options(field: &str, options: &AgentOptions, model: &str) -> Result<(), ApiError> {
    let (count, bytes) = (limit::AGENT_OPTIONS_MAX, limit::AGENT_OPTION_BYTES_MAX);
    if !options.is_empty() && agent_of(model) == OWN_AGENT {
        let message = format!("`{model}` is answered by our own loop, which has no options of an agent");
        let details = serde_json::json!({ "field": field, "expected": "nothing, or a session that an agent answers" });
        return Err(ApiError::conflict(message).with_details(details));
    }
    if options.len() > count {
        return Err(ApiError::unfit(field, format!("at most {count} options"), options.len()));
    }
    let long = |(id, setting): (&String, &AgentSetting)| {
        id.len().max(if let AgentSetting::Value(value) = setting { value.len() } else { 0 })
    };
    match options.iter().map(long).find(|longest| *longest > bytes) {
        Some(longest) => Err(ApiError::unfit(field, format!("ids and values of at most {bytes} bytes"), longest)),
        None => Ok(()),
    }
}

/// What an answer is held to is a schema that can be checked here, of a bounded size.
fn check_schema(field: &str, schema: &Map<String, Value>) -> Result<(), ApiError> {
    let bytes = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
    let most = limit::OUTPUT_SCHEMA_BYTES_MAX;
    if bytes > most {
        return Err(ApiError::unfit(field, format!("at most {most} bytes of JSON"), bytes));
    }
    check_output_schema(field, schema).map_err(|(path, words)| {
        let error = ApiError::new(ErrorCode::InvalidArgument, format!("{path}: {words}"));
        error.with_details(json!({ "field": path }))
    })
}

pub(super) fn check_title(field: &str, title: Option<&str>) -> Result<(), ApiError> {
    let title = title.unwrap_or_default();
    if title.chars().count() > limit::TITLE_CHARS_MAX || title.chars().any(char::is_control) {
        let expected = format!("at most {} characters, none of them control characters", limit::TITLE_CHARS_MAX);
        return Err(ApiError::invalid(field, expected));
    }
    Ok(())
}

/// A text of at most `bytes_max` bytes.
pub(super) fn check_text(field: &str, text: &str, bytes_max: usize) -> Result<(), ApiError> {
    if text.len() > bytes_max {
        return Err(ApiError::unfit(field, format!("at most {bytes_max} bytes"), text.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_list_is_no_budget() {
        for budget in [json!([]), json!([null, null]), json!([1])] {
            let body = json!({ "budget": budget });
            assert!(serde_json::from_value::<CreateSession>(body.clone()).is_err(), "{body}");
            assert!(serde_json::from_value::<Configure>(body.clone()).is_err(), "{body}");
        }
        assert_eq!(serde_json::from_value::<CreateSession>(json!({ "budget": null })).unwrap().budget, None);
    }

    #[test]
    fn prompts_that_say_nothing_or_too_much_are_refused() {
        let long = "x".repeat(limit::PROMPT_BYTES_MAX + 1);
        let png = json!([{ "type": "image", "mediaType": "image/png", "data": "AAAA" }]);
        #[rustfmt::skip]
        let table: [(Value, Option<&str>); 10] = [
            (json!("go"), None),
            (png, None),
            (json!(" \n"), Some("prompt")),
            (json!([]), Some("prompt")),
            (json!([{ "type": "text", "text": "" }]), Some("prompt[0].text")),
            (json!([{ "type": "text", "text": " " }, { "type": "text", "text": "\n" }]), Some("prompt[0].text")),
            (json!([{ "type": "text", "text": "" }, { "type": "text", "text": "a" }]), None),
            (json!(long), Some("prompt")),
            (json!([{ "type": "image", "mediaType": "text/plain", "data": "AAAA" }]), Some("prompt[0].mediaType")),
            (json!([{ "type": "text", "text": "a" }, { "type": "image", "mediaType": "image/png", "data": "data:," }]), Some("prompt[1].data")),
        ];
        for (prompt, field) in table {
            let body: Prompt = serde_json::from_value(json!({ "prompt": prompt })).unwrap();
            let refused = check_prompt(&body).err().and_then(|e| e.0.details).map(|d| d["field"].clone());
            assert_eq!(refused, field.map(Value::from));
        }
    }

    #[test]
    fn feedback_names_one_question_and_one_answer() {
        #[rustfmt::skip]
        let table = [
            (json!({ "callId": "c", "allowed": true }), None),
            (json!({ "requestId": "r", "decision": "allow_always" }), None),
            (json!({ "allowed": true }), Some("requestId")),
            (json!({ "callId": "c" }), Some("decision")),
            (json!({ "callId": "c", "allowed": true, "decision": "deny" }), Some("allowed")),
            (json!({ "requestId": "r", "value": "a" }), None),
            (json!({ "requestId": "r", "callId": "c", "value": false }), None),
            (json!({ "requestId": "r", "cancelled": true, "message": "not now" }), None),
            (json!({ "requestId": "r", "value": null }), Some("decision")),
            (json!({ "requestId": "r", "cancelled": false }), Some("cancelled")),
            (json!({ "requestId": "r", "value": 1, "cancelled": true }), Some("cancelled")),
            (json!({ "requestId": "r", "value": 1, "decision": "allow" }), Some("value")),
            (json!({ "callId": "c", "value": 1 }), Some("requestId")),
            (json!({ "requestId": "r", "value": 1, "scope": "session" }), Some("scope")),
            (json!({ "requestId": "r", "cancelled": true, "expiresInMs": 1 }), Some("expiresInMs")),
            (json!({ "requestId": "r", "value": 1, "message": "m" }), Some("message")),
        ];
        for (body, field) in table {
            let parsed: Feedback = serde_json::from_value(body.clone()).unwrap();
            let refused = check_feedback(parsed, 0).err().and_then(|e| e.0.details).map(|d| d["field"].clone());
            assert_eq!(refused, field.map(Value::from), "{body}");
        }
    }
}
