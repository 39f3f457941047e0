//! What callers may ask about permission: why a call would be allowed, and what was granted for always.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{App, Caller, store_failure};
use crate::base::panics::broken;
use crate::base::{clock, limit};
use crate::protocol::{
    Access, ApiError, Deleted, ExplainCall, Feedback, GrantId, GrantScope, GrantView, Page, PermissionExplanation,
    PermissionPolicy, SessionId, ToolDefinition,
};
use crate::session::{ExplainedCall, GrantTerms};
use crate::store::{Grant, GrantRow, GrantSubject, StoreError};
use crate::tool::{
    Arguments, Scope, Subject, Tool, ToolContext, ToolEvents, canonical, unreachable_path, validate_call,
};

impl App {
    /// What would happen to a call, and why. Nobody is asked, and nothing runs.
    ///
    /// # Errors
    /// `NOT_FOUND` for the session or the tool.
    pub async fn explain(&self, caller: &Caller, call: ExplainCall) -> Result<PermissionExplanation, ApiError> {
        caller.at_large()?;
        let ExplainCall { session_id, tool, arguments, .. } = call;
        let subject_of = async |row: &crate::store::SessionRow, context: ToolContext| {
            let agent = self.wardrobe.definition(&row.settings).await.map_err(ApiError)?;
            let registry = self.wardrobe.registry(&row.id, (&row.settings, agent.as_ref())).await;
            let missing = || match registry.why_withheld(&tool) {
                Some(why) => ApiError::not_found(format!("tool {tool}: {why}")),
                None => ApiError::not_found(format!("tool {tool}")),
            };
            let found = registry.get(&tool).ok_or_else(missing)?;
            // It may look at the file system to resolve a path.
            let looked = tokio::task::spawn_blocking(move || Looked::at(found.as_ref(), arguments, &context)).await;
            looked.map_err(|e| ApiError::internal(broken(e))).map(|looked| (looked, agent))
        };
        if let Some(id) = session_id {
            let live = self.live(caller, &id).await?;
            let row = self.store.session(&id).await.map_err(|e| store_failure(&e))?;
            let row = row.ok_or_else(|| ApiError::not_found(format!("session {id}")))?;
            let scope = self.sessions.scope(&id).unwrap_or_default();
            let (looked, agent) = subject_of(&row, imagined(Some(id), scope)).await?;
            let Looked { definition, subject, place, insists, problem, arguments } = looked;
            let called = (definition.name.clone(), Some(definition.clone()));
            let told = live.explain(called, (subject.clone(), place.clone())).await?;
            let call = ExplainedCall {
                definition: &definition,
                subject: &subject,
                place: place.as_deref(),
                arguments: &arguments,
            };
            let told = self.sessions.held_to_others((&row, agent), self.wardrobe.as_ref(), call, told).await?;
            return Ok(PermissionExplanation { problem, ..insisted(told, insists) });
        }
        let row = self.session_row(caller, crate::protocol::CreateSession::default()).await?;
        let (looked, _) = subject_of(&row, imagined(None, Arc::default())).await?;
        let Looked { definition, subject, place, insists, problem, .. } = looked;
        let told = insisted(self.sessions.explain(&row, &definition, (&subject, place.as_deref())), insists);
        Ok(PermissionExplanation { problem, ..told })
    }

    /// What was granted beyond one call: what outlives sessions, oldest first, then what was granted for sessions; with a
    /// session only for that one. `after` is the cursor of the page before.
    ///
    /// # Errors
    /// `NOT_FOUND` for the session; a cursor that is none.
    pub async fn grants(
        &self,
        caller: &Caller,
        (session, after): (Option<&SessionId>, Option<&str>),
    ) -> Result<Page<GrantView>, ApiError> {
        caller.at_large()?;
        let saved = || self.saved.list(caller.client.as_ref()).into_iter().map(saved_view);
        match (session, after) {
            (Some(_), Some(_)) => Err(ApiError::invalid("cursor", "nothing with `sessionId`")),
            (Some(id), None) => {
                let own = self.live(caller, id).await?.grants().await?;
                Ok(Page { items: saved().chain(session_views(id, own)).collect(), next_cursor: None })
            }
            (None, None) => self.grants_of_sessions(caller, None, saved().collect()).await,
            (None, Some(after)) => {
                let bad = |_| ApiError::invalid("cursor", "the `nextCursor` of the page before");
                self.grants_of_sessions(caller, Some(after.parse().map_err(bad)?), Vec::new()).await
            }
        }
    }

    /// What was granted for sessions, those behind `last`, the newest first. The page ends behind some thousand of them.
    async fn grants_of_sessions(
        &self,
        caller: &Caller,
        mut last: Option<SessionId>,
        mut items: Vec<GrantView>,
    ) -> Result<Page<GrantView>, ApiError> {
        const LOOKS_MAX: usize = 10;
        for _ in 0..LOOKS_MAX {
            let rows = self.store.sessions(caller.client.as_ref(), last.as_ref(), limit::PAGE_ITEMS_MAX + 1).await;
            let mut rows = rows.map_err(|error| match error {
                StoreError::NoSession(id) => {
                    let expected = format!("the `nextCursor` of the page before; `{id}` is none (any more)");
                    ApiError::invalid("cursor", expected)
                }
                other => store_failure(&other),
            })?;
            let more = rows.len() > limit::PAGE_ITEMS_MAX;
            rows.truncate(limit::PAGE_ITEMS_MAX);
            for row in rows {
                items.extend(session_views(&row.id, row.settings.grants));
                last = Some(row.id);
            }
            if !more {
                return Ok(Page { items, next_cursor: None });
            }
            if items.len() >= limit::PAGE_ITEMS_MAX {
                break;
            }
        }
        Ok(Page { items, next_cursor: last.map(|id| id.to_string()) })
    }

    /// Takes a grant back; from now on it is asked again. One for a session is found with its session.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included.
    pub async fn revoke_grant(
        &self,
        caller: &Caller,
        (id, session): (GrantId, Option<&SessionId>),
    ) -> Result<Deleted, ApiError> {
        caller.at_large()?;
        // What outlives sessions is the owner's to take back; without a session it can be nothing else.
        if session.is_none() {
            caller.needs(Access::Administer)?;
        }
        let saved = match caller.needs(Access::Administer) {
            Ok(()) => self.saved.revoke(caller.client.as_ref(), &id).await.map_err(|e| store_failure(&e))?,
            Err(_) => false,
        };
        let deleted = match session {
            _ if saved => true,
            Some(session) => self.live(caller, session).await?.revoke(id.clone()).await?,
            None => false,
        };
        if deleted { Ok(Deleted { deleted }) } else { Err(ApiError::not_found(format!("grant {id}"))) }
    }
}

/// What permission looks at in a call, and why the call could not run at all.
pub(super) struct Looked {
    pub definition: ToolDefinition,
    pub subject: Subject,
    pub place: Option<PathBuf>,
    pub insists: bool,
    pub problem: Option<String>,
    pub arguments: Arguments,
}

impl Looked {
    pub(super) fn at(tool: &dyn Tool, arguments: Arguments, context: &ToolContext) -> Self {
        let arguments = canonical(tool, arguments);
        let subject = tool.subject_in(&arguments, context);
        let bad = validate_call(tool, &arguments).err().map(|bad| bad.0);
        Self {
            definition: tool.judged_as(&arguments).clone(),
            insists: tool.insists(&arguments),
            place: tool.place(&arguments, context),
            problem: bad.or_else(|| unreachable_path(&subject)),
            subject,
            arguments,
        }
    }
}

/// What a call that only is talked about would be told.
pub(super) fn imagined(session: Option<SessionId>, scope: Arc<Scope>) -> ToolContext {
    ToolContext {
        call_id: "explain".to_owned(),
        session,
        cancel: CancellationToken::new(),
        scope,
        events: ToolEvents::default(),
        veil: None,
        previewed: Default::default(),
        judged: Default::default(),
        clients: Default::default(),
    }
}

/// A call that wants more than its tool usually may (such as to leave the sandbox) is asked about each time.
pub(super) fn insisted(told: PermissionExplanation, insists: bool) -> PermissionExplanation {
    if !insists || told.decision != PermissionPolicy::Allow {
        return told;
    }
    let reason =
        format!("the call itself asks for more than is usual, which is asked each time; otherwise {}", told.reason);
    PermissionExplanation { decision: PermissionPolicy::Ask, reason, ..told }
}

/// Those that hold of what was granted for a session.
fn session_views(id: &SessionId, grants: Vec<Grant>) -> impl Iterator<Item = GrantView> {
    let now = clock::now_ms();
    grants.into_iter().filter(move |grant| grant.holds(now)).map(move |grant| {
        let view = view(grant, GrantScope::Session);
        GrantView { session_id: Some(id.clone()), ..view }
    })
}

fn saved_view(row: GrantRow) -> GrantView {
    let scope = if row.project.is_some() { GrantScope::Project } else { GrantScope::Always };
    GrantView { working_directory: row.project, ..view(row.grant, scope) }
}

fn view(grant: Grant, scope: GrantScope) -> GrantView {
    let (command, cwd, paths) = match grant.on {
        GrantSubject::Any => (None, None, None),
        GrantSubject::Command(command) => (Some(command), None, None),
        GrantSubject::CommandIn { command, directory } => (Some(command), Some(directory), None),
        GrantSubject::Paths(paths) => (None, None, Some(paths)),
    };
    GrantView {
        grant_id: grant.id,
        scope,
        tool: grant.tool,
        command,
        cwd,
        paths,
        session_id: None,
        working_directory: None,
        created_at: grant.created_at,
        expires_at: grant.expires_at,
    }
}

/// How far a yes reaches; None: no further than the call.
pub(super) fn grant_terms(body: &Feedback, always: bool, now_ms: u64) -> Result<Option<GrantTerms>, ApiError> {
    let allowed = always || body.allowed == Some(true) || body.decision == Some(crate::protocol::Decision::Allow);
    if body.scope.is_some() && !allowed {
        return Err(ApiError::invalid("scope", "none with a no"));
    }
    let scope = match (body.scope, always) {
        (Some(GrantScope::Once), true) => {
            return Err(ApiError::invalid("scope", "`session`, `project` or `always` with `allow_always`"));
        }
        (Some(GrantScope::Once) | None, false) => None,
        (None, true) => Some(GrantScope::Session),
        (Some(scope @ (GrantScope::Session | GrantScope::Project | GrantScope::Always)), _) => Some(scope),
    };
    match (scope, body.expires_in_ms) {
        (None, Some(_)) => Err(ApiError::invalid("expiresInMs", "only with a yes that reaches further than the call")),
        (Some(_), Some(0)) => Err(ApiError::invalid("expiresInMs", "1 or more, got 0")),
        (scope, expires) => {
            let expires_at = expires.map(|ms| now_ms.saturating_add(ms));
            Ok(scope.map(|scope| GrantTerms { scope, expires_at }))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn how_far_an_answer_reaches() {
        let terms = |scope, expires_at| Ok(Some(GrantTerms { scope, expires_at }));
        #[rustfmt::skip]
        let table: [(Value, Result<Option<GrantTerms>, &str>); 13] = [
            (json!({"decision": "allow"}), Ok(None)),
            (json!({"allowed": true}), Ok(None)),
            (json!({"decision": "deny"}), Ok(None)),
            (json!({"decision": "allow_always"}), terms(GrantScope::Session, None)),
            (json!({"decision": "allow", "scope": "once"}), Ok(None)),
            (json!({"decision": "allow", "scope": "project"}), terms(GrantScope::Project, None)),
            (json!({"allowed": true, "scope": "always", "expiresInMs": 5}), terms(GrantScope::Always, Some(105))),
            (json!({"decision": "allow_always", "scope": "session", "expiresInMs": 1}), terms(GrantScope::Session, Some(101))),
            (json!({"decision": "allow_always", "scope": "once"}), Err("scope")),
            (json!({"decision": "deny", "scope": "session"}), Err("scope")),
            (json!({"allowed": false, "scope": "always"}), Err("scope")),
            (json!({"decision": "allow", "expiresInMs": 5}), Err("expiresInMs")),
            (json!({"decision": "allow_always", "expiresInMs": 0}), Err("expiresInMs")),
        ];
        for (body, want) in table {
            let parsed: Feedback = serde_json::from_value(body.clone()).expect("a body");
            let always = parsed.decision == Some(crate::protocol::Decision::AllowAlways);
            let got = grant_terms(&parsed, always, 100);
            let field = got.map_err(|e| e.0.details.map(|d| d["field"].as_str().unwrap_or_default().to_owned()));
            assert_eq!(field, want.map_err(|f| Some(f.to_owned())), "{body}");
        }
    }
}
