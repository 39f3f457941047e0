//! What a session under another one may do: at most what that one may, and the one above it. Pure.
//!
//! It is held against how those are set when its turn begins, whatever it was given when it was made and whatever a client
//! made of it since: their tools, their modes, their rules, their directories.

use std::path::Path;
use std::sync::Arc;

use crate::host::SUBAGENT_TOOLS;
use crate::protocol::{
    ApiError, ErrorBody, ErrorCode, Isolation, Lineage, PermissionConfig, PermissionMode, Reasoning, ToolCategory,
    ToolDefinition,
};
use crate::session::Terms;
use crate::session::policy::Policy;
use crate::session::settings::ALL_TOOLS;
use crate::store::{SessionRow, SessionSettings};
use crate::tool::Spawn;

/// What a sub-agent of a name is, unless whoever starts it says something else.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentRole {
    /// Its model. None: that of the session above.
    pub model: Option<String>,
    /// How much it thinks. None: as much as the session above.
    pub reasoning: Option<Reasoning>,
    /// Added to its system text. None: what the session above has.
    pub instructions: Option<String>,
    /// Its tools, of those of the session above; `*`: all. None: those that only look.
    pub tools: Option<Vec<String>>,
    /// How much it does without asking, at most.
    pub permission_mode: Option<PermissionMode>,
    /// Its rules. None: those of the session above, which count in any case.
    pub permissions: Option<PermissionConfig>,
    /// The agents that it may start. None: any.
    pub delegates_to: Option<Vec<String>>,
    /// The agent of a file that it works as, where that file is found; its text is that of `instructions`.
    pub works_as: Option<String>,
}

/// The rules and the mode of a session above.
pub(in crate::session) struct Ceiling {
    pub(in crate::session) policy: Arc<Policy>,
    pub(in crate::session) mode: PermissionMode,
}

/// Those of all sessions above.
pub(in crate::session) fn ceilings(terms: &Terms, above: &[SessionRow]) -> Vec<Ceiling> {
    let of =
        |row: &SessionRow| Ceiling { policy: Arc::new(Policy::new(terms, row)), mode: row.settings.permission_mode };
    above.iter().map(of).collect()
}

/// How much a mode lets through.
fn reach(mode: PermissionMode) -> u8 {
    match mode {
        PermissionMode::Plan => 0,
        PermissionMode::Ask => 1,
        PermissionMode::AcceptEdits => 2,
        PermissionMode::Auto => 3,
    }
}

/// The mode of the two that lets less through.
fn lower(one: PermissionMode, other: PermissionMode) -> PermissionMode {
    if reach(one) <= reach(other) { one } else { other }
}

/// What a turn works with, held to what the sessions above have now.
///
/// # Errors
/// It works where they may not.
pub(in crate::session) fn narrowed(
    settings: &SessionSettings,
    lineage: &Lineage,
    above: &[SessionRow],
) -> Result<SessionSettings, ErrorBody> {
    let mut own = settings.clone();
    for row in above {
        let theirs = &row.settings;
        match (&mut own.tools, &theirs.tools) {
            (Some(names), _) => names.retain(|name| theirs.has_tool(name)),
            (None, Some(names)) => {
                own.tools = Some(names.iter().filter(|name| theirs.has_tool(name)).cloned().collect())
            }
            (None, None) => {}
        }
        for name in &theirs.without_tools {
            if !own.without_tools.contains(name) {
                own.without_tools.push(name.clone());
            }
        }
        own.permission_mode = lower(own.permission_mode, theirs.permission_mode);
    }
    let Some(parent) = above.last() else { return Ok(own) };
    let within = |place: &Path| may_work_in(place, lineage, &parent.settings);
    if !within(&own.working_directory) {
        let message = format!(
            "the session works in {}, where its parent {} does not",
            own.working_directory.display(),
            parent.id
        );
        let details = Some(serde_json::json!({ "field": "workingDirectory", "why": "outside_of_parent" }));
        return Err(ErrorBody { code: ErrorCode::Forbidden, message, details });
    }
    own.additional_directories.retain(|place| within(place));
    Ok(own)
}

/// Whether a session may work there: where the one above may, or in the working tree that it has for itself.
pub fn may_work_in(place: &Path, lineage: &Lineage, parent: &SessionSettings) -> bool {
    let tree = lineage.worktree.as_ref().map(|tree| tree.directory.as_path());
    let theirs = std::iter::once(&parent.working_directory).chain(&parent.additional_directories);
    theirs.map(std::path::PathBuf::as_path).chain(tree).any(|root| place.starts_with(root))
}

/// The settings of a session that another one starts. `tools`: those that the turn above has.
///
/// # Errors
/// `INVALID_ARGUMENT` that names what does not fit.
pub(super) fn settings_of(
    parent: &SessionSettings,
    (spawn, role): (&Spawn, &AgentRole),
    (tools, may_spawn): (&[ToolDefinition], bool),
) -> Result<SessionSettings, ApiError> {
    let own = |tool: &ToolDefinition| may_spawn || !SUBAGENT_TOOLS.contains(&tool.name.as_str());
    let given = spawn.tools.as_ref().or(role.tools.as_ref());
    let names: Vec<String> = match given {
        None => tools.iter().filter(|tool| own(tool) && only_looks(tool)).map(|tool| tool.name.clone()).collect(),
        Some(names) if names.iter().any(|name| name == ALL_TOOLS) => {
            tools.iter().filter(|tool| own(tool)).map(|tool| tool.name.clone()).collect()
        }
        Some(names) => {
            let known = |name: &str| tools.iter().find(|tool| tool.name == name);
            // Who starts it is told of a tool that it does not have; a definition may name some that are not here.
            let asked = spawn.tools.iter().flatten().enumerate();
            if let Some((at, name)) = asked.into_iter().find(|(_, name)| known(name).is_none()) {
                return Err(ApiError::unfit(&format!("tools[{at}]"), "a tool of your own", format!("`{name}`")));
            }
            names.iter().filter(|name| known(name).is_some_and(own)).cloned().collect()
        }
    };
    // In a working tree of its own it may not be there.
    let works_as = role.works_as.clone().filter(|_| spawn.isolation == Isolation::None);
    let instructions = role.instructions.clone().or_else(|| parent.instructions.clone());
    let model = spawn.model.clone().or_else(|| role.model.clone()).unwrap_or_else(|| parent.model.clone());
    let same = crate::protocol::agent_of(&model) == crate::protocol::agent_of(&parent.model);
    Ok(SessionSettings {
        agent_options: if same { parent.agent_options.clone() } else { Default::default() },
        model,
        reasoning: spawn.reasoning.or(role.reasoning).unwrap_or(parent.reasoning),
        // A text of its own takes the place of that of its parent's agent; what that one may not do counts all the same.
        agent: match &role.instructions {
            _ if works_as.is_some() => works_as.clone(),
            Some(_) => None,
            None => parent.agent.clone(),
        },
        interaction_mode: parent.interaction_mode.filter(|_| works_as.is_none()),
        instructions: instructions.filter(|_| works_as.is_none()),
        title: spawn.name.clone(),
        tools: Some(names),
        permissions: role.permissions.clone().or_else(|| parent.permissions.clone()),
        without_tools: Vec::new(),
        permission_mode: role
            .permission_mode
            .map_or(parent.permission_mode, |mode| lower(mode, parent.permission_mode)),
        grants: Vec::new(),
        // What it spends is its parent's.
        budget: None,
        ..parent.clone()
    })
}

fn only_looks(tool: &ToolDefinition) -> bool {
    let by_category = matches!(tool.category, Some(ToolCategory::Read | ToolCategory::Search));
    by_category || tool.annotations.as_ref().is_some_and(|hints| hints.read_only == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{SessionId, SessionStatus, Usage};

    fn settings(tools: Option<&[&str]>, mode: PermissionMode) -> SessionSettings {
        let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        SessionSettings {
            working_directory: "/w/sub".into(),
            additional_directories: vec!["/m".into()],
            agent: None,
            interaction_mode: None,
            model: "m/m".into(),
            title: None,
            instructions: Some("i".into()),
            tools: tools.map(listed),
            without_tools: Vec::new(),
            reasoning: Reasoning::High,
            agent_options: Default::default(),
            model_fallbacks: None,
            budget: None,
            permissions: None,
            permission_mode: mode,
            grants: Vec::new(),
        }
    }

    fn row(settings: SessionSettings) -> SessionRow {
        SessionRow {
            id: SessionId::generate(),
            client: None,
            status: SessionStatus::Created,
            version: 0,
            created_at: 0,
            updated_at: 0,
            message_count: 0,
            spent: Default::default(),
            usage: Usage::default(),
            settings,
            lineage: None,
            children: Vec::new(),
            shared: Default::default(),
        }
    }

    #[test]
    fn nobody_has_more_than_those_above() {
        use PermissionMode::{AcceptEdits, Ask, Auto, Plan};
        let all = ["a", "b", "c"];
        let left = |own: SessionSettings, above: &[SessionRow]| {
            let now = narrowed(&own, &Lineage::default(), above).expect("fits");
            let has: String = all.into_iter().filter(|name| now.has_tool(name)).collect();
            (has, now.permission_mode)
        };
        let without =
            |name: &str, mode| row(SessionSettings { without_tools: vec![name.into()], ..settings(None, mode) });
        #[rustfmt::skip]
        let table = [
            (settings(None, Auto), vec![row(settings(None, Ask))], "abc", Ask),
            (settings(None, Auto), vec![row(settings(Some(&["a", "b"]), Auto))], "ab", Auto),
            (settings(Some(&["a", "c"]), AcceptEdits), vec![row(settings(Some(&["a", "b"]), Auto))], "a", AcceptEdits),
            (settings(Some(&["a", "c"]), Ask), vec![without("a", Plan)], "c", Plan),
            (settings(None, Auto), vec![without("a", Auto), row(settings(Some(&["a", "b"]), Ask))], "b", Ask),
        ];
        for (own, above, tools, mode) in table {
            assert_eq!(left(own.clone(), &above), (tools.to_owned(), mode), "{own:?} {above:?}");
        }
    }

    #[test]
    fn a_session_works_where_its_parent_may_or_in_a_tree_of_its_own() {
        let parent = row(settings(None, PermissionMode::Ask));
        let tree = crate::protocol::Worktree {
            directory: "/trees/x".into(),
            repository: "/w".into(),
            branch: "b".into(),
            base: "c".into(),
        };
        let with_tree = Lineage { worktree: Some(tree), ..Lineage::default() };
        let in_place = |place: &str| SessionSettings {
            working_directory: place.into(),
            additional_directories: vec!["/m/deep".into(), "/elsewhere".into()],
            ..settings(None, PermissionMode::Ask)
        };
        #[rustfmt::skip]
        let table = [
            ("/w/sub", false, true), ("/w/sub/deep", false, true), ("/m/x", false, true),
            ("/w", false, false), ("/w/subway", false, false), ("/trees/x/sub", false, false), ("/trees/x/sub", true, true), ("/trees/y", true, false),
        ];
        for (place, own_tree, fits) in table {
            let lineage = if own_tree { with_tree.clone() } else { Lineage::default() };
            let found = narrowed(&in_place(place), &lineage, std::slice::from_ref(&parent));
            assert_eq!(found.is_ok(), fits, "{place}");
            if let Ok(found) = found {
                assert_eq!(found.additional_directories, [std::path::PathBuf::from("/m/deep")], "{place}");
            }
        }
    }

    fn tool(name: &str, category: &str) -> ToolDefinition {
        serde_json::from_value(serde_json::json!({ "name": name, "description": "", "category": category }))
            .expect("one")
    }

    #[test]
    fn what_is_said_goes_before_the_role_and_that_before_the_parent() {
        let tools = [tool("look", "read"), tool("write", "edit"), tool("spawn_agent", "subagent")];
        let parent = settings(None, PermissionMode::AcceptEdits);
        let role = AgentRole {
            model: Some("r/r".into()),
            reasoning: Some(Reasoning::Low),
            instructions: Some("role".into()),
            tools: None,
            permission_mode: Some(PermissionMode::Auto),
            permissions: None,
            delegates_to: None,
            works_as: None,
        };
        let made = settings_of(&parent, (&Spawn::default(), &AgentRole::default()), (&tools[..], false)).expect("fits");
        assert_eq!((made.model.as_str(), made.reasoning), ("m/m", Reasoning::High));
        assert_eq!((made.tools, made.instructions.as_deref()), (Some(vec!["look".to_owned()]), Some("i")));
        let made = settings_of(&parent, (&Spawn::default(), &role), (&tools[..], false)).expect("fits");
        assert_eq!((made.model.as_str(), made.reasoning), ("r/r", Reasoning::Low));
        assert_eq!((made.permission_mode, made.instructions.as_deref()), (PermissionMode::AcceptEdits, Some("role")));
        // Who works as an agent of a file has its text from there, where that file is found.
        let own = AgentRole { works_as: Some("own".into()), ..role.clone() };
        let led = SessionSettings { agent: Some("lead".into()), ..parent.clone() };
        let agent_of = |role: &AgentRole, isolation: Isolation| {
            let spawn = Spawn { isolation, ..Spawn::default() };
            let made = settings_of(&led, (&spawn, role), (&tools[..], false)).expect("fits");
            (made.agent, made.instructions)
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(agent_of(&own, Isolation::None), (text("own"), None));
        assert_eq!(agent_of(&own, Isolation::Worktree), (None, text("role")));
        assert_eq!(agent_of(&role, Isolation::None), (None, text("role")));
        assert_eq!(agent_of(&AgentRole::default(), Isolation::None), (text("lead"), text("i")));
        let spawn = Spawn {
            model: Some("s/s".into()),
            reasoning: Some(Reasoning::Xhigh),
            tools: Some(vec!["*".into()]),
            ..Spawn::default()
        };
        let made = settings_of(&parent, (&spawn, &role), (&tools[..], false)).expect("fits");
        assert_eq!((made.model.as_str(), made.reasoning), ("s/s", Reasoning::Xhigh));
        assert_eq!(made.tools, Some(vec!["look".to_owned(), "write".to_owned()]), "no more spawning");
        let made = settings_of(&parent, (&spawn, &role), (&tools[..], true)).expect("fits");
        assert_eq!(made.tools.map(|names| names.len()), Some(3));
        let strange = Spawn { tools: Some(vec!["look".into(), "fly".into()]), ..Spawn::default() };
        let refused = settings_of(&parent, (&strange, &role), (&tools[..], true)).expect_err("no such tool");
        assert!(refused.to_string().starts_with("`tools[1]`: expected a tool of your own"), "{refused}");
    }
}
