//! A session's settings and how they change. Pure.
//!
//! Settings count from the next turn on: one that runs keeps those that it began with.

use std::path::PathBuf;

use crate::protocol::{AgentOptions, Beginning, Configure, OWN_AGENT, PermissionMode, Reasoning, agent_of};
use crate::store::{SessionRow, SessionSettings};

/// What a list of tools calls all of them.
pub const ALL_TOOLS: &str = "*";

/// What a list of fallbacks calls those of the server.
pub const SERVERS_FALLBACKS: &str = "*";

/// One entry of a list of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolEntry<'a> {
    /// All of them.
    All,
    /// One of a whole list.
    Named(&'a str),
    /// One more.
    Added(&'a str),
    /// One less.
    Removed(&'a str),
}

impl<'a> ToolEntry<'a> {
    /// Reads an entry.
    pub fn of(text: &'a str) -> Self {
        match (text, text.strip_prefix('+'), text.strip_prefix('-')) {
            (ALL_TOOLS, _, _) => Self::All,
            (_, Some(name), _) => Self::Added(name),
            (_, None, Some(name)) => Self::Removed(name),
            (name, None, None) => Self::Named(name),
        }
    }

    /// The tool that it names.
    pub fn name(self) -> Option<&'a str> {
        match self {
            Self::All => None,
            Self::Named(name) | Self::Added(name) | Self::Removed(name) => Some(name),
        }
    }
}

/// Changes what is named, and nothing else.
pub fn configure(settings: &mut SessionSettings, changes: &Configure) {
    let Configure {
        agent,
        interaction_mode,
        model,
        reasoning,
        agent_options,
        model_fallbacks,
        budget,
        title,
        instructions,
        tools,
        permission_mode,
        working_directory,
        additional_directories,
    } = changes;
    let text = |old: Option<String>, new: &Option<String>| match new {
        Some(new) => Some(new.clone()).filter(|new| !new.is_empty()),
        None => old,
    };
    settings.title = text(settings.title.take(), title);
    settings.instructions = text(settings.instructions.take(), instructions);
    if let Some(agent) = agent {
        settings.agent = Some(agent.clone()).filter(|agent| !agent.is_empty() && agent != OWN_AGENT);
    }
    settings.interaction_mode = interaction_mode.or(settings.interaction_mode);
    settings.permission_mode = permission_mode.unwrap_or(settings.permission_mode);
    settings.reasoning = reasoning.unwrap_or(settings.reasoning);
    if let Some(model) = model {
        if agent_of(model) != agent_of(&settings.model) {
            // What one agent calls its options says nothing to another.
            settings.agent_options.clear();
        }
        settings.model.clone_from(model);
    }
    if let Some(options) = agent_options {
        settings.agent_options.clone_from(options);
    }
    if let Some(models) = model_fallbacks {
        let servers = matches!(models.as_slice(), [all] if all == SERVERS_FALLBACKS);
        settings.model_fallbacks = (!servers).then(|| models.clone());
    }
    if let Some(budget) = budget {
        settings.budget = Some(*budget).filter(|budget| !budget.is_empty());
    }
    if let Some(directory) = working_directory {
        settings.working_directory.clone_from(directory);
    }
    if let Some(directories) = additional_directories {
        settings.additional_directories.clone_from(directories);
    }
    if let Some(tools) = tools {
        choose_tools(settings, tools);
    }
}

/// What the log says of a session that begins with these settings: all but the grants, which it tells one by one.
pub fn beginning(settings: &SessionSettings) -> Beginning {
    let changes = Configure {
        agent: settings.agent.clone(),
        interaction_mode: settings.interaction_mode,
        model: Some(settings.model.clone()),
        reasoning: Some(settings.reasoning),
        agent_options: Some(settings.agent_options.clone()).filter(|options| !options.is_empty()),
        model_fallbacks: settings.model_fallbacks.clone(),
        budget: settings.budget,
        title: settings.title.clone(),
        instructions: settings.instructions.clone(),
        tools: chosen_tools(settings),
        permission_mode: Some(settings.permission_mode),
        working_directory: Some(settings.working_directory.clone()),
        additional_directories: Some(settings.additional_directories.clone()).filter(|more| !more.is_empty()),
    };
    Beginning {
        settings: Some(Box::new(changes)),
        permissions: settings.permissions.clone().map(Box::new),
        lineage: None,
        tells_grants: true,
    }
}

/// The same of a session, with where it stands.
pub(super) fn beginning_of(row: &SessionRow) -> Beginning {
    Beginning { lineage: row.lineage.clone(), ..beginning(&row.settings) }
}

/// The settings that a session began with. None: its log is of a time in which that was not said.
pub fn begun(beginning: &Beginning) -> Option<SessionSettings> {
    let changes = beginning.settings.as_deref()?;
    let mut settings = SessionSettings {
        working_directory: PathBuf::new(),
        additional_directories: Vec::new(),
        agent: None,
        interaction_mode: None,
        model: String::new(),
        title: None,
        instructions: None,
        tools: None,
        without_tools: Vec::new(),
        reasoning: Reasoning::default(),
        agent_options: AgentOptions::new(),
        model_fallbacks: None,
        budget: None,
        permissions: beginning.permissions.as_deref().cloned(),
        permission_mode: PermissionMode::default(),
        grants: Vec::new(),
    };
    configure(&mut settings, changes);
    Some(settings)
}

/// Changes the tools, see [`Configure::tools`].
pub fn choose_tools(settings: &mut SessionSettings, entries: &[String]) {
    let entries: Vec<ToolEntry<'_>> = entries.iter().map(|entry| ToolEntry::of(entry)).collect();
    let is_whole = |entry: &ToolEntry<'_>| matches!(entry, ToolEntry::All | ToolEntry::Named(_));
    if entries.is_empty() || entries.iter().any(is_whole) {
        let all = entries.contains(&ToolEntry::All);
        settings.tools = (!all).then(Vec::new);
        settings.without_tools.clear();
    }
    let add = |names: &mut Vec<String>, name: &str| {
        if !names.iter().any(|n| n == name) {
            names.push(name.to_owned());
        }
    };
    for entry in entries {
        match (entry, &mut settings.tools) {
            (ToolEntry::All, _) | (ToolEntry::Named(_), None) => {}
            (ToolEntry::Named(name) | ToolEntry::Added(name), Some(tools)) => add(tools, name),
            (ToolEntry::Added(name), None) => settings.without_tools.retain(|n| n != name),
            (ToolEntry::Removed(name), Some(tools)) => tools.retain(|n| n != name),
            (ToolEntry::Removed(name), None) => add(&mut settings.without_tools, name),
        }
    }
}

/// The tools in a form that [`choose_tools`] takes. None: all.
pub fn chosen_tools(settings: &SessionSettings) -> Option<Vec<String>> {
    match &settings.tools {
        Some(tools) => Some(tools.clone()),
        None if settings.without_tools.is_empty() => None,
        None => {
            let without = settings.without_tools.iter().map(|name| format!("-{name}"));
            Some(std::iter::once(ALL_TOOLS.to_owned()).chain(without).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{AgentSetting, InteractionMode};

    fn settings() -> SessionSettings {
        SessionSettings {
            working_directory: "/w".into(),
            additional_directories: vec!["/m".into()],
            agent: Some("plan".into()),
            interaction_mode: Some(InteractionMode::Chat),
            model: "m/m".into(),
            title: Some("t".into()),
            instructions: Some("i".into()),
            tools: None,
            without_tools: Vec::new(),
            reasoning: Reasoning::High,
            agent_options: [("o".to_owned(), AgentSetting::Flag(true))].into(),
            model_fallbacks: None,
            budget: None,
            permissions: None,
            permission_mode: PermissionMode::Plan,
            grants: Vec::new(),
        }
    }

    #[test]
    fn what_is_not_named_stays() {
        let mut changed = settings();
        configure(&mut changed, &Configure::default());
        assert_eq!(changed, settings());
        let body = serde_json::json!({
            "model": "n/n", "reasoning": "low", "title": "", "instructions": "j", "permissionMode": "auto",
            "workingDirectory": "/v", "tools": ["a"], "agentOptions": { "p": "v" }, "modelFallbacks": ["o/o"],
            "additionalDirectories": ["/x", "/y"], "agent": "simse", "interactionMode": "auto",
        });
        configure(&mut changed, &serde_json::from_value(body).expect("changes"));
        let want = SessionSettings {
            working_directory: "/v".into(),
            additional_directories: vec!["/x".into(), "/y".into()],
            agent: None,
            interaction_mode: Some(InteractionMode::Auto),
            model: "n/n".into(),
            title: None,
            instructions: Some("j".into()),
            tools: Some(vec!["a".into()]),
            reasoning: Reasoning::Low,
            agent_options: [("p".to_owned(), AgentSetting::Value("v".into()))].into(),
            model_fallbacks: Some(vec!["o/o".into()]),
            permission_mode: PermissionMode::Auto,
            ..settings()
        };
        assert_eq!(changed, want);
        configure(&mut changed, &Configure { model: Some("acp/x".into()), ..Configure::default() });
        assert_eq!(changed.reasoning, Reasoning::Low, "an agent is told too");
        assert_eq!(changed.agent_options, AgentOptions::new(), "options are those of one agent");
        let listed = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        for (given, want) in
            [(listed(&[]), listed(&[])), (listed(&["a/b", "*"]), listed(&["a/b", "*"])), (listed(&["*"]), None)]
        {
            configure(&mut changed, &Configure { model_fallbacks: given, ..Configure::default() });
            assert_eq!(changed.model_fallbacks, want);
        }
    }

    #[test]
    fn what_the_log_says_of_a_beginning_is_all_of_it() {
        let tools = ["a", "b"].map(str::to_owned).to_vec();
        let permissions = crate::protocol::PermissionConfig {
            default_policy: crate::protocol::PermissionPolicy::Ask,
            rules: Vec::new(),
        };
        let table = [
            settings(),
            SessionSettings { title: None, instructions: None, tools: Some(Vec::new()), ..settings() },
            SessionSettings { additional_directories: Vec::new(), ..settings() },
            SessionSettings { model_fallbacks: Some(Vec::new()), ..settings() },
            SessionSettings { agent: None, interaction_mode: None, ..settings() },
            SessionSettings { model_fallbacks: Some(vec!["a/b".into(), "c/d".into()]), ..settings() },
            SessionSettings { tools: Some(tools.clone()), permissions: Some(permissions), ..settings() },
            SessionSettings { without_tools: tools, model: "acp/x".into(), reasoning: Reasoning::Auto, ..settings() },
        ];
        for settings in table {
            assert_eq!(begun(&beginning(&settings)), Some(settings));
        }
        assert_eq!(begun(&Beginning::default()), None);
    }

    #[test]
    fn tools_are_named_added_and_taken_away() {
        let mut now = settings();
        #[rustfmt::skip]
        let table: [(&[&str], Option<&[&str]>, &str); 11] = [
            (&["-b"],             Some(&["*", "-b"]),       "ac"),
            (&["-c", "-b"],       Some(&["*", "-b", "-c"]), "a"),
            (&["+b"],             Some(&["*", "-c"]),       "ab"),
            (&["*"],              None,                     "abc"),
            (&["*", "-a"],        Some(&["*", "-a"]),       "bc"),
            (&["a", "b", "a"],    Some(&["a", "b"]),        "ab"),
            (&["+c", "-a", "-a"], Some(&["b", "c"]),        "bc"),
            (&["-b", "-c"],       Some(&[]),                ""),
            (&["+a"],             Some(&["a"]),             "a"),
            (&["b", "+c"],        Some(&["b", "c"]),        "bc"),
            (&[],                 Some(&[]),                ""),
        ];
        for (change, shown, has) in table {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            choose_tools(&mut now, &owned(change));
            assert_eq!(chosen_tools(&now), shown.map(owned), "{change:?}");
            let had: String = ["a", "b", "c"].into_iter().filter(|name| now.has_tool(name)).collect();
            assert_eq!(had, has, "{change:?}");
            let mut again = settings();
            choose_tools(&mut again, &chosen_tools(&now).unwrap_or_else(|| owned(&["*"])));
            assert_eq!(
                (again.tools, again.without_tools),
                (now.tools.clone(), now.without_tools.clone()),
                "{change:?}"
            );
        }
    }
}
