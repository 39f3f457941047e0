//! How a session under another one comes to be: held against depth, delegation and limits, then written down in one commit with
//! its first turn and with what the log above says of it, then woken.

use std::sync::Arc;

use super::coordination::coordinate;
use super::{AgentRole, NewChild, TurnChildren, rights};
use crate::base::clock;
use crate::host::{SUBAGENT_TOOLS, discard_tree, make_tree, tree_of, trees_in};
use crate::protocol::{
    ANY_TOOL, AgentDefinition, AgentGate, AgentKind, ApiError, ErrorCode, EventBody, Isolation, Lineage, PromptContent,
    RunId, SessionId, SessionStatus, SubagentQueued, SubagentStart, ToolCategory, TurnStatus, Usage, Worktree,
};
use crate::session::actor::{ChildOrder, queued_turn};
use crate::session::live::Live;
use crate::session::manager::event_of;
use crate::session::settings::beginning_of;
use crate::session::store_failure;
use crate::store::{OpenRun, SessionRow, SessionSettings, Waiting, Write, shown};
use crate::tool::{ChildState, Spawn};

/// The type of sub-agents of which nobody says what they are.
pub(super) const DEFAULT_TYPE: &str = "default";

impl TurnChildren {
    /// Starts a session under this one.
    pub(super) async fn start(&self, spawn: Spawn) -> Result<ChildState, ApiError> {
        let live = self.live()?;
        let parent = self.row(&live).await?;
        let (root, depth) = self.check_depth(&parent)?;
        let agent = spawn.agent.clone().unwrap_or_else(|| DEFAULT_TYPE.to_owned());
        self.check_delegation(&parent, &agent).await?;
        let role = match &spawn.agent {
            // As whoever starts it is.
            None => AgentRole::default(),
            Some(name) => self.role_of(name).await?.ok_or_else(|| self.is_unknown(name))?,
        };
        let depth_max = self.terms.limits.read().subagent_depth;
        let tools = self.registry.definitions();
        let mut settings = rights::settings_of(&self.settings, (&spawn, &role), (&tools[..], depth < depth_max))?;
        coordinate(&mut settings, spawn.coordination, &tools);
        self.bench.check_model(&settings.model)?;
        let open_max = self.terms.limits.read().subagents_max;
        let unfinished = self.shelf.lanes.open((&root, depth), open_max).ok_or_else(|| too_many(open_max))?;
        let id = SessionId::generate();
        let shelf = Arc::clone(&self.shelf);
        // What lies there and is nobody's is somebody's that is being made.
        let alone = match spawn.isolation {
            Isolation::None => None,
            Isolation::Worktree => Some(shelf.trees.lock().await),
        };
        let counted = self.shelf.admit_session(self.terms.limits.read().sessions_max)?;
        let worktree = if alone.is_some() { Some(self.worktree(&id, &mut settings).await?) } else { None };
        let mut path = parent.lineage.as_ref().map(|lineage| lineage.path.clone()).unwrap_or_default();
        path.push(parent.id.clone());
        let lineage = Lineage {
            path,
            turn_id: Some(self.turn.clone()),
            name: spawn.name.clone(),
            agent: spawn.agent.clone(),
            worktree,
            coordination: spawn.coordination,
        };
        let now = clock::now_ms();
        let row = SessionRow {
            id,
            client: parent.client.clone(),
            status: SessionStatus::Active,
            version: 1,
            created_at: now,
            updated_at: now,
            message_count: 0,
            spent: Default::default(),
            usage: Usage::default(),
            settings,
            lineage: Some(Box::new(lineage)),
            children: Vec::new(),
            shared: Default::default(),
        };
        let added = self.add(&live, &row, &spawn).await;
        if let (Err(_), Some(tree)) = (&added, row.lineage.as_ref().and_then(|lineage| lineage.worktree.as_ref()))
            && let Ok(grounds) = self.bench.grounds(&self.settings)
        {
            // Nobody will work in it.
            discard_tree(&grounds, tree).await;
        }
        drop(alone);
        let run = added?;
        counted.keep();
        let state = queued(spawn.name, &run);
        self.shelf.follow((&live.id, live.client.as_ref()), run, Some(unfinished));
        Ok(state)
    }

    /// Writes it down.
    async fn add(&self, live: &Arc<Live>, row: &SessionRow, spawn: &Spawn) -> Result<OpenRun, ApiError> {
        let task = PromptContent::Text(spawn.task.clone());
        let mut turn = queued_turn(&row.id, Waiting::Here(task), None);
        let turn_id = turn.record.turn_id.clone();
        let kept = turn.put_apart(2).map(|said| Write::Said(row.id.clone(), 2, Some(Arc::new(said))));
        let created = EventBody::SessionCreated { session_id: row.id.clone(), beginning: beginning_of(row) };
        let waits = EventBody::TurnQueued { position: 0, version: Some(row.version) };
        let log = vec![event_of(&row.id, 1, None, &created), event_of(&row.id, 2, Some(&turn_id), &waits)];
        let mut writes =
            vec![Write::CreateSession(Box::new(row.clone())), Write::Append(row.id.clone(), Arc::new(log))];
        writes.push(Write::SaveTurn(Box::new(turn)));
        writes.extend(kept);
        let run = OpenRun {
            session: row.id.clone(),
            turn: turn_id,
            by: self.turn.clone(),
            background: spawn.background,
            ended: false,
            merge: None,
        };
        let mut events = vec![start_event((&live.id, row), &run, (&spawn.call_id, shown(spawn.task.clone())))];
        let running_max = self.terms.limits.read().subagents_running_max;
        let waiting = row.lineage.as_ref().and_then(|lineage| self.shelf.lanes.queued(lineage, running_max));
        events.extend(waiting.map(|waiting| {
            let run_id = RunId { session: run.session.clone(), turn: run.turn.clone() };
            let position = u32::try_from(waiting).unwrap_or(u32::MAX);
            EventBody::SubagentQueued(SubagentQueued { run_id, session_id: run.session.clone(), position })
        }));
        let child = NewChild { run: run.clone(), writes, events };
        live.tell_of_child(|reply| ChildOrder::Add(Box::new(child), reply)).await??;
        Ok(run)
    }

    /// A working tree for it, and where in that it works. What was left there by an earlier process is removed.
    async fn worktree(&self, id: &SessionId, settings: &mut SessionSettings) -> Result<Worktree, ApiError> {
        let grounds = self.bench.grounds(&self.settings)?;
        let directory = grounds.workspace.working_directory();
        for left in trees_in(directory).await {
            let known = self.shelf.store.session(&left).await.map_err(|error| store_failure(&error))?;
            if known.is_none() {
                discard_tree(&grounds, &tree_of(directory, &left)).await;
            }
        }
        let (tree, works) = make_tree(&grounds, id).await?;
        settings.working_directory = works;
        settings.additional_directories.clear();
        Ok(tree)
    }

    /// What a sub-agent of that name is: as a file defines it where the session works, or as a type.
    async fn role_of(&self, name: &str) -> Result<Option<AgentRole>, ApiError> {
        let catalog = self.bench.agents(&self.settings.working_directory).await;
        let defined = catalog.get(name).map(|definition| self.defined(definition));
        Ok(defined.or_else(|| self.bench.role(&self.settings, name)))
    }

    /// A defined agent as a sub-agent: what its gates shut is not among its tools.
    fn defined(&self, definition: &AgentDefinition) -> AgentRole {
        let own =
            |name: &String| self.registry.get(name).map_or_else(|| name.clone(), |tool| tool.definition().name.clone());
        let all = definition.tools.as_ref().is_none_or(|names| names.iter().any(|name| name == ANY_TOOL));
        let named: Vec<String> =
            if all { self.registry.names() } else { definition.tools.iter().flatten().map(own).collect() };
        let edits = |name: &str| {
            self.registry.get(name).is_some_and(|tool| tool.definition().category == Some(ToolCategory::Edit))
        };
        let (patches, delegates) = (definition.opens(AgentGate::Patch), definition.opens(AgentGate::Delegate));
        let starts = delegates && definition.kind == AgentKind::Main;
        let is_open = |name: &String| (patches || !edits(name)) && (starts || !SUBAGENT_TOOLS.contains(&name.as_str()));
        let targets = if starts { definition.delegate_targets.clone() } else { Some(Vec::new()) };
        AgentRole {
            model: definition.model.clone(),
            reasoning: definition.reasoning,
            instructions: Some(definition.prompt.clone()).filter(|text| !text.is_empty()),
            tools: Some(named.into_iter().filter(is_open).collect()),
            permission_mode: None,
            permissions: definition.permissions.clone(),
            delegates_to: targets,
            works_as: Some(definition.name.clone()),
        }
    }

    fn is_unknown(&self, name: &str) -> ApiError {
        let known = self.bench.roles(&self.settings).join(", ");
        ApiError::unfit("agent_type", format!("a type of agent or a defined agent ({known})"), format!("`{name}`"))
    }

    /// How deep a session under this one would be, and what is above all.
    fn check_depth(&self, parent: &SessionRow) -> Result<(SessionId, usize), ApiError> {
        let (root, depth) = place_under(parent);
        let depth_max = self.terms.limits.read().subagent_depth;
        if depth > depth_max {
            let message = format!("a session {} deep starts no others: the limit is {depth_max}", depth - 1);
            let details = serde_json::json!({ "why": "too_deep", "limit": "subagent_depth", "value": depth_max });
            return Err(ApiError::new(ErrorCode::Forbidden, message).with_details(details));
        }
        Ok((root, depth))
    }

    /// Whether this agent may give work to that one.
    async fn check_delegation(&self, parent: &SessionRow, agent: &str) -> Result<(), ApiError> {
        let Some(own) = parent.lineage.as_ref().and_then(|lineage| lineage.agent.as_deref()) else { return Ok(()) };
        let Some(role) = self.role_of(own).await? else { return Ok(()) };
        let Some(targets) = role.delegates_to.filter(|targets| !targets.iter().any(|target| target == agent)) else {
            return Ok(());
        };
        let message = format!("this agent gives work to {} only, not to `{agent}`", shown_list(&targets));
        let details = serde_json::json!({ "why": "delegate_targets", "value": targets });
        Err(ApiError::new(ErrorCode::Forbidden, message).with_details(details))
    }
}

fn shown_list(names: &[String]) -> String {
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

/// What is above all that a session starts, and how deep that is.
pub(super) fn place_under(parent: &SessionRow) -> (SessionId, usize) {
    let lineage = parent.lineage.as_deref();
    let root = lineage.and_then(|lineage| lineage.root()).unwrap_or(&parent.id);
    (root.clone(), lineage.map_or(0, |lineage| lineage.depth()) + 1)
}

pub(super) fn too_many(open_max: usize) -> ApiError {
    let message = format!("{open_max} sub-agents are under way or wait already; wait for some, or end them");
    let details = serde_json::json!({ "why": "max_subagents_reached", "limit": "subagents_max", "value": open_max });
    ApiError::new(ErrorCode::ResourceExhausted, message).with_details(details)
}

/// What the log above says of a run that begins.
pub(super) fn start_event(
    (parent, row): (&SessionId, &SessionRow),
    run: &OpenRun,
    (call, task): (&str, String),
) -> EventBody {
    let lineage = row.lineage.as_deref().cloned().unwrap_or_default();
    EventBody::SubagentStart(Box::new(SubagentStart {
        run_id: RunId { session: run.session.clone(), turn: run.turn.clone() },
        session_id: run.session.clone(),
        parent_run_id: RunId { session: parent.clone(), turn: run.by.clone() },
        call_id: call.to_owned(),
        name: lineage.name,
        agent: lineage.agent,
        model: row.settings.model.clone(),
        task,
        background: run.background,
        branch: lineage.worktree.map(|tree| tree.branch),
        coordination: lineage.coordination,
    }))
}

/// A run that has not begun yet.
fn queued(name: Option<String>, run: &OpenRun) -> ChildState {
    ChildState {
        session: run.session.clone(),
        name,
        run: Some(RunId { session: run.session.clone(), turn: run.turn.clone() }),
        status: TurnStatus::Queued,
        text: String::new(),
        merge: None,
    }
}
