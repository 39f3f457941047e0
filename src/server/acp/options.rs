//! What of a session can be set: its permission modes, and the options that stand in a client's menus. Pure.

use serde_json::{Value, json};

use crate::protocol::{
    ACP_PREFIX, AgentOption, AgentOptions, AgentSetting, AgentValue, AgentView, ApiError, Configure, ModelView,
    OWN_AGENT, PermissionMode, Reasoning, SessionView, agent_of,
};

/// Modes, with what they are called and mean.
const MODES: [(PermissionMode, &str, &str, &str); 4] = [
    (PermissionMode::Plan, "plan", "Plan", "Only looks: whatever may change something is refused"),
    (PermissionMode::Ask, "ask", "Ask", "Asks as the rules say"),
    (PermissionMode::AcceptEdits, "accept-edits", "Accept edits", "Edits files in the directory without asking"),
    (PermissionMode::Auto, "auto", "Auto", "Asks for nothing that no rule denies"),
];

/// Levels of thinking.
const LEVELS: [(Reasoning, &str, &str); 7] = [
    (Reasoning::Auto, "auto", "As the model decides"),
    (Reasoning::None, "none", "None"),
    (Reasoning::Minimal, "minimal", "Minimal"),
    (Reasoning::Low, "low", "Low"),
    (Reasoning::Medium, "medium", "Medium"),
    (Reasoning::High, "high", "High"),
    (Reasoning::Xhigh, "xhigh", "Extra high"),
];

/// What can be chosen from.
#[derive(Debug)]
pub(super) struct Choice {
    /// The models.
    pub(super) models: Vec<ModelView>,
    /// The agents, our own first.
    pub(super) agents: Vec<AgentView>,
    /// What the agent of the session has told that it can be set to, where that is not our own.
    pub(super) own: Vec<AgentOption>,
    /// What of these was chosen for the session.
    pub(super) chosen: AgentOptions,
}

/// What the id of an agent's own option begins with: ours have none of these names.
const OWN: &str = "agent:";
/// The category of modes. An agent's own stand beside ours, and are no mode of the session.
const MODE: &str = "mode";

/// Tokens of the window of a session's model, where that is known.
pub(super) fn window(view: &SessionView, choice: &Choice) -> Option<u64> {
    choice.models.iter().find(|model| model.id == view.model)?.context_tokens
}

/// The mode's name.
pub(super) fn mode_id(mode: PermissionMode) -> &'static str {
    MODES.iter().find(|(one, ..)| *one == mode).map_or("ask", |(_, id, ..)| id)
}

/// The mode of that name.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the field.
pub(super) fn mode_of(field: &str, id: &str) -> Result<PermissionMode, ApiError> {
    let found = MODES.iter().find(|(_, name, ..)| *name == id).map(|(mode, ..)| *mode);
    found.ok_or_else(|| ApiError::unfit(field, "one of plan, ask, accept-edits, auto", format!("`{id}`")))
}

/// The modes, and which one it is.
pub(super) fn modes(view: &SessionView) -> Value {
    let all = MODES.map(|(_, id, name, words)| json!({ "id": id, "name": name, "description": words }));
    json!({ "currentModeId": mode_id(view.permission_mode), "availableModes": all })
}

/// All options of a session as they are.
pub(super) fn options(view: &SessionView, choice: &Choice) -> Value {
    let modes = MODES.map(|(_, id, name, words)| json!({ "value": id, "name": name, "description": words }));
    let mut all = vec![select(("mode", "Mode", "mode"), mode_id(view.permission_mode), modes.to_vec())];
    // An agent chooses its model and its thinking itself.
    if agent_of(&view.model) == OWN_AGENT {
        all.push(select(("model", "Model", "model"), &view.model, models(view, choice)));
        let level = LEVELS.iter().find(|(level, ..)| *level == view.reasoning).map_or("auto", |(_, id, _)| id);
        let levels = LEVELS.map(|(_, id, name)| json!({ "value": id, "name": name }));
        all.push(select(("thought_level", "Thinking", "thought_level"), level, levels.to_vec()));
    }
    if choice.agents.len() > 1 {
        let usable = |agent: &&AgentView| agent.available || agent.name == view.agent;
        let agents = choice
            .agents
            .iter()
            .filter(usable)
            .map(|agent| json!({ "value": agent.name, "name": agent.name, "description": agent.description }));
        all.push(select(("agent", "Agent", "_agent"), &view.agent, agents.collect()));
    }
    if agent_of(&view.model) != OWN_AGENT {
        all.extend(choice.own.iter().map(|option| own(option, choice)));
    }
    all.into()
}

/// An option of the agent's own. What was chosen counts, also before the agent has heard of it.
fn own(option: &AgentOption, choice: &Choice) -> Value {
    let AgentOption { id, name, description, category, value, values } = option;
    let mut told = json!({ "id": format!("{OWN}{id}"), "name": name });
    match choice.chosen.get(id).unwrap_or(value) {
        AgentSetting::Flag(flag) => (told["type"], told["currentValue"]) = ("boolean".into(), (*flag).into()),
        AgentSetting::Value(now) => {
            let one = |one: &AgentValue| {
                let mut told = json!({ "value": one.value, "name": one.name });
                if let Some(description) = &one.description {
                    told["description"] = description.as_str().into();
                }
                told
            };
            (told["type"], told["currentValue"]) = ("select".into(), now.as_str().into());
            told["options"] = values.iter().map(one).collect();
        }
    }
    if let Some(description) = description {
        told["description"] = description.as_str().into();
    }
    if let Some(category) = category.as_deref().filter(|category| *category != MODE) {
        told["category"] = category.into();
    }
    told
}

/// What the session's agent is set to once that option of its own is.
fn change_own((id, value): (&str, &Value), choice: &Choice) -> Result<Configure, ApiError> {
    let Some(option) = choice.own.iter().find(|option| option.id == id) else {
        let names: Vec<String> = choice.own.iter().map(|option| format!("{OWN}{}", option.id)).collect();
        let expected = format!("an option of the session's agent: {}", names.join(", "));
        return Err(ApiError::unfit("configId", expected, format!("`{OWN}{id}`")));
    };
    let setting = match (&option.value, value) {
        (AgentSetting::Flag(_), Value::Bool(flag)) => AgentSetting::Flag(*flag),
        (AgentSetting::Flag(_), _) => return Err(ApiError::unfit("value", "true or false", value)),
        (AgentSetting::Value(_), Value::String(word)) if option.values.iter().any(|one| one.value == *word) => {
            AgentSetting::Value(word.clone())
        }
        (AgentSetting::Value(_), _) => {
            let names: Vec<&str> = option.values.iter().map(|one| one.value.as_str()).collect();
            return Err(ApiError::unfit("value", format!("one of {}", names.join(", ")), value));
        }
    };
    let mut chosen = choice.chosen.clone();
    chosen.insert(id.to_owned(), setting);
    Ok(Configure { agent_options: Some(chosen), ..Configure::default() })
}

fn models(view: &SessionView, choice: &Choice) -> Vec<Value> {
    let usable = |model: &&ModelView| {
        (model.available && agent_of(&model.id) == OWN_AGENT && !model.id.starts_with(ACP_PREFIX))
            || model.id == view.model
    };
    let mut all: Vec<Value> =
        choice.models.iter().filter(usable).map(|model| json!({ "value": model.id, "name": model.id })).collect();
    // It may be one that is made when it is named.
    if !choice.models.iter().any(|model| model.id == view.model) {
        all.insert(0, json!({ "value": view.model, "name": view.model }));
    }
    all
}

fn select((id, name, category): (&str, &str, &str), now: &str, options: Vec<Value>) -> Value {
    json!({
        "type": "select", "id": id, "name": name, "category": category, "currentValue": now, "options": options,
    })
}

/// The change that an option's new value is.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the field and what was expected.
pub(super) fn change((id, value): (&str, &Value), choice: &Choice) -> Result<Configure, ApiError> {
    if let Some(id) = id.strip_prefix(OWN) {
        return change_own((id, value), choice);
    }
    let Some(value) = value.as_str() else {
        return Err(ApiError::invalid("value", "a text: it is a choice"));
    };
    let none = Configure::default();
    match id {
        "mode" => Ok(Configure { permission_mode: Some(mode_of("value", value)?), ..none }),
        "model" if agent_of(value) == OWN_AGENT => Ok(Configure { model: Some(value.to_owned()), ..none }),
        "model" => Err(ApiError::unfit("value", "a model; an agent is the option `agent`", format!("`{value}`"))),
        "thought_level" => {
            let found = LEVELS.iter().find(|(_, name, _)| *name == value).map(|(level, ..)| *level);
            let names = LEVELS.map(|(_, name, _)| name).join(", ");
            let level =
                found.ok_or_else(|| ApiError::unfit("value", format!("one of {names}"), format!("`{value}`")))?;
            Ok(Configure { reasoning: Some(level), ..none })
        }
        "agent" => {
            if let Some(agent) = choice.agents.iter().find(|agent| agent.name == value) {
                return Ok(Configure { agent: Some(agent.name.clone()), ..none });
            }
            let names: Vec<&str> = choice.agents.iter().map(|agent| agent.name.as_str()).collect();
            Err(ApiError::unfit("value", format!("one of {}", names.join(", ")), format!("`{value}`")))
        }
        other => {
            let expected = "one of mode, model, thought_level, agent";
            Err(ApiError::unfit("configId", expected, format!("`{other}`")))
        }
    }
}
