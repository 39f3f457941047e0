//! The run tree: sessions under others, and their turns as runs.

use super::{App, Caller, bodies};
use crate::base::limit;
use crate::protocol::{
    AgentKind, ApiError, CancelRun, CancelledRuns, CreateSession, ErrorCode, ItemBody, Lineage, Page, Role, RunContext,
    RunId, RunSummary, RunView, SessionId, SessionView, TurnId, TurnRecord, agent_of,
};
use crate::session::{Command, is_item, items, may_work_in, store_failure};
use crate::store::{SessionRow, StoreError};

/// Why a run was ended, when the client does not say.
const CANCEL_REASON: &str = "cancelled by the client";
/// Sessions that one page of runs looks through.
const SESSIONS_SCAN_MAX: usize = 1_000;
/// Sessions that are read at once.
const SESSIONS_PAGE: usize = 50;
/// Turns of a session that are looked at for such as go on.
const OPEN_TURNS_MAX: usize = limit::PAGE_ITEMS_MAX;

/// Behind what a page of runs begins: all of a session's runs down to this one, or all of them.
struct Behind {
    session: SessionId,
    turn: Option<TurnId>,
}

impl Behind {
    fn read(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some((session, turn)) => Some(Self { session: session.parse().ok()?, turn: Some(turn.parse().ok()?) }),
            None => Some(Self { session: text.parse().ok()?, turn: None }),
        }
    }
}

fn bad_cursor() -> ApiError {
    ApiError::invalid("cursor", "the `nextCursor` of the page before")
}

impl App {
    /// The row of a new session, under another one where it names one.
    pub(super) async fn new_row(&self, caller: &Caller, body: CreateSession) -> Result<SessionRow, ApiError> {
        let (body, above) = self.inherit(caller, body).await?;
        let mut row = self.session_row(caller, body).await?;
        Self::put_under(&mut row, above)?;
        Ok(row)
    }

    /// Fills in what a new session has from the one that it is to stand under.
    async fn inherit(
        &self,
        caller: &Caller,
        mut body: CreateSession,
    ) -> Result<(CreateSession, Option<(Box<Lineage>, SessionRow)>), ApiError> {
        let Some(parent) = body.parent.clone() else { return Ok((body, None)) };
        let row = self.own_row(caller, &parent).await.map_err(|error| match error.code() {
            ErrorCode::NotFound => {
                error.with_details(serde_json::json!({ "field": "parent", "expected": "a session of yours" }))
            }
            _ => error,
        })?;
        let mut path = row.lineage.as_ref().map(|lineage| lineage.path.clone()).unwrap_or_default();
        path.push(parent);
        if path.len() > limit::SUBAGENT_DEPTH_MAX {
            let expected = format!("a session with less than {} others above it", limit::SUBAGENT_DEPTH_MAX);
            return Err(ApiError::invalid("parent", expected));
        }
        let theirs = &row.settings;
        if body.working_directory.is_none() {
            body.working_directory = Some(theirs.working_directory.clone());
            body.additional_directories.get_or_insert_with(|| theirs.additional_directories.clone());
        }
        if body.model.is_none() && body.agent.is_none() {
            body.model = Some(theirs.model.clone());
        }
        body.reasoning.get_or_insert(theirs.reasoning);
        body.permission_mode.get_or_insert(theirs.permission_mode);
        if body.tool_permissions.is_none() {
            body.tool_permissions.clone_from(&theirs.permissions);
        }
        Ok((body, Some((Box::new(Lineage { path, ..Lineage::default() }), row))))
    }

    /// Puts a new session under another one.
    fn put_under(row: &mut SessionRow, above: Option<(Box<Lineage>, SessionRow)>) -> Result<(), ApiError> {
        let Some((lineage, parent)) = above else { return Ok(()) };
        let own = std::iter::once(&row.settings.working_directory).chain(&row.settings.additional_directories);
        if let Some(place) = own.into_iter().find(|place| !may_work_in(place, &lineage, &parent.settings)) {
            let field =
                if *place == row.settings.working_directory { "workingDirectory" } else { "additionalDirectories" };
            return Err(ApiError::unfit(field, "a place in which its parent works", place.display()));
        }
        row.lineage = Some(lineage);
        Ok(())
    }

    /// The row of a session of the caller.
    pub(super) async fn own_row(&self, caller: &Caller, id: &SessionId) -> Result<SessionRow, ApiError> {
        caller.reaches(id)?;
        let row = self.store.session(id).await.map_err(|error| store_failure(&error))?;
        row.filter(|row| row.client == caller.client).ok_or_else(|| ApiError::not_found(format!("session {id}")))
    }

    /// The sessions that stand directly under one, newest first.
    ///
    /// # Errors
    /// `NOT_FOUND`; `INVALID_ARGUMENT` for a cursor that is none.
    pub async fn children(
        &self,
        caller: &Caller,
        id: &SessionId,
        (cursor, limit): (Option<&str>, usize),
    ) -> Result<Page<SessionView>, ApiError> {
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let row = self.own_row(caller, id).await?;
        caller.at_large()?;
        let mut rows = self.sessions.under(&row).await?;
        rows.retain(|row| row.lineage.as_ref().and_then(|lineage| lineage.parent()) == Some(id));
        if let Some(cursor) = cursor {
            let at = rows.iter().position(|row| row.id.as_str() == cursor).ok_or_else(bad_cursor)?;
            rows.drain(..=at);
        }
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.id.to_string());
        let mut items = Vec::with_capacity(rows.len());
        for row in rows {
            items.push(self.sessions.view_of_row(row).await?);
        }
        Ok(Page { items, next_cursor })
    }

    /// Runs of the caller, those of the newest sessions first; or those of one session and of all under it.
    ///
    /// # Errors
    /// `NOT_FOUND`; `INVALID_ARGUMENT` for a cursor that is none.
    pub async fn runs(
        &self,
        caller: &Caller,
        of: Option<&SessionId>,
        (cursor, limit): (Option<&str>, usize),
    ) -> Result<Page<RunView>, ApiError> {
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let behind = cursor.map(|text| Behind::read(text).ok_or_else(bad_cursor)).transpose()?;
        let mut page = Filling { items: Vec::new(), limit, scanned: None };
        match of.or(caller.only.as_ref()) {
            Some(of) => self.runs_under(caller, of, (behind, &mut page)).await?,
            None => self.runs_of_all(caller, behind, &mut page).await?,
        }
        Ok(page.finish())
    }

    async fn runs_under(
        &self,
        caller: &Caller,
        of: &SessionId,
        (behind, page): (Option<Behind>, &mut Filling),
    ) -> Result<(), ApiError> {
        let row = self.own_row(caller, of).await?;
        let mut rows = if caller.only.is_some() { Vec::new() } else { self.sessions.under(&row).await? };
        rows.push(row);
        let mut turn = None;
        if let Some(behind) = behind {
            let at = rows.iter().position(|row| row.id == behind.session).ok_or_else(bad_cursor)?;
            rows.drain(..at);
            if behind.turn.is_none() {
                rows.remove(0);
            }
            turn = behind.turn;
        }
        for row in rows {
            self.fill(&row, turn.take().as_ref(), page).await?;
            if page.is_full() {
                break;
            }
        }
        Ok(())
    }

    async fn runs_of_all(&self, caller: &Caller, behind: Option<Behind>, page: &mut Filling) -> Result<(), ApiError> {
        let mut after = None;
        if let Some(Behind { session, turn }) = behind {
            let row = self.own_row(caller, &session).await.map_err(|_| bad_cursor())?;
            if turn.is_some() {
                self.fill(&row, turn.as_ref(), page).await?;
            }
            after = Some(session);
        }
        let mut seen = 0;
        while !page.is_full() {
            let rows = self.store.sessions(caller.client.as_ref(), after.as_ref(), SESSIONS_PAGE).await;
            let rows = rows.map_err(|error| match error {
                StoreError::NoSession(_) => bad_cursor(),
                other => store_failure(&other),
            })?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                self.fill(&row, None, page).await?;
                if page.is_full() {
                    return Ok(());
                }
                seen += 1;
                after = Some(row.id);
            }
            if seen >= SESSIONS_SCAN_MAX {
                page.scanned = after;
                break;
            }
        }
        Ok(())
    }

    /// Adds a session's runs, newest first.
    async fn fill(&self, row: &SessionRow, after: Option<&TurnId>, page: &mut Filling) -> Result<(), ApiError> {
        let mut after = after.cloned();
        loop {
            let room = page.limit + 1 - page.items.len();
            let turns = self.store.turns(&row.id, after.as_ref(), room).await.map_err(|error| match error {
                StoreError::NoTurn(_) => bad_cursor(),
                other => store_failure(&other),
            })?;
            let more = turns.len() == room;
            for turn in turns {
                let mut record = turn.record;
                after = Some(record.turn_id.clone());
                // One that answers no prompt is no run.
                if record.task.is_some() {
                    continue;
                }
                if !record.status.is_terminal() {
                    // Of one that runs, the store does not know how far it is.
                    record = self.sessions.turn(row.client.as_ref(), &row.id, &record.turn_id).await?;
                }
                page.items.push(view(row, record));
            }
            if !more || page.is_full() {
                return Ok(());
            }
        }
    }

    async fn run_of(&self, caller: &Caller, run: &RunId) -> Result<(SessionRow, TurnRecord), ApiError> {
        let none = |error: ApiError| match error.code() {
            ErrorCode::NotFound => ApiError::not_found(format!("run {run}")),
            _ => error,
        };
        let row = self.own_row(caller, &run.session).await.map_err(none)?;
        let record = self.sessions.turn(caller.client.as_ref(), &run.session, &run.turn).await.map_err(none)?;
        Ok((row, record))
    }

    /// A run, with how often it called tools.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included.
    pub async fn run(&self, caller: &Caller, run: &RunId) -> Result<RunView, ApiError> {
        let (row, record) = self.run_of(caller, run).await?;
        let mut calls = 0;
        self.each_event(&record, 0, |event| {
            calls += u32::from(event.kind == "tool.call.start");
            true
        })
        .await?;
        Ok(RunView { tool_calls: Some(calls), ..view(&row, record) })
    }

    /// What a run's conversation adds up to, and with `raw` a page of it.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included.
    pub async fn run_context(
        &self,
        caller: &Caller,
        run: &RunId,
        (raw, after, limit): (bool, u64, usize),
    ) -> Result<RunContext, ApiError> {
        let (row, record) = self.run_of(caller, run).await?;
        let mut summary =
            RunSummary { started_at: record.started_at, ended_at: record.ended_at, ..RunSummary::default() };
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let (mut found, mut next, mut calls) = (Vec::new(), None, 0);
        self.each_event(&record, 0, |event| {
            calls += u32::from(event.kind == "tool.call.start");
            if !is_item(&event.kind) {
                return true;
            }
            for item in items(std::slice::from_ref(event)) {
                count(&mut summary, &item.body);
                if raw && event.seq > after {
                    if found.len() < limit {
                        found.push(item);
                    } else {
                        next.get_or_insert_with(|| {
                            found.last().map(|last: &crate::protocol::Item| last.seq.to_string())
                        });
                    }
                }
            }
            true
        })
        .await?;
        let run = RunView { tool_calls: Some(calls), ..view(&row, record) };
        Ok(RunContext { run, summary, items: raw.then_some(found), next_cursor: next.flatten() })
    }

    /// Each event of a turn behind number `after`, as long as it says so.
    async fn each_event(
        &self,
        record: &TurnRecord,
        after: u64,
        mut take: impl FnMut(&crate::protocol::Event) -> bool,
    ) -> Result<(), ApiError> {
        let Some(first) = record.first_seq else { return Ok(()) };
        let mut at = after.max(first.saturating_sub(1));
        while record.last_seq.is_none_or(|last| at < last) {
            let events = self.store.events(&record.session_id, at, limit::PAGE_ITEMS_MAX).await;
            let events = events.map_err(|error| store_failure(&error))?;
            let Some(last) = events.last().map(|event| event.seq) else { break };
            let of = |seq: u64| record.last_seq.is_none_or(|last| seq <= last);
            for event in events.iter().filter(|event| event.turn_id.as_ref() == Some(&record.turn_id) && of(event.seq))
            {
                if !take(event) {
                    return Ok(());
                }
            }
            at = last;
        }
        Ok(())
    }

    /// Ends a run and all under it that go on or wait.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included; `CONFLICT` when nothing of it goes on.
    pub async fn cancel_run(&self, caller: &Caller, run: &RunId, body: CancelRun) -> Result<CancelledRuns, ApiError> {
        caller.at_large()?;
        let (row, record) = self.run_of(caller, run).await?;
        let reason = body.reason.unwrap_or_else(|| CANCEL_REASON.to_owned());
        bodies::check_text("reason", &reason, limit::REASON_BYTES_MAX)?;
        let mut meant: Vec<RunId> = Vec::new();
        if !record.status.is_terminal() {
            meant.push(run.clone());
        }
        let under = self.sessions.under(&row).await?;
        let roots: Vec<&SessionId> =
            under.iter().filter(|child| is_spawned_by(child, run)).map(|child| &child.id).collect();
        for child in &under {
            let of_it = |path: &[SessionId]| roots.iter().any(|root| **root == child.id || path.contains(root));
            if !child.lineage.as_ref().is_some_and(|lineage| of_it(&lineage.path)) {
                continue;
            }
            let turns =
                self.store.turns(&child.id, None, OPEN_TURNS_MAX).await.map_err(|error| store_failure(&error))?;
            let before = meant.len();
            let open = turns.into_iter().filter(|turn| !turn.record.status.is_terminal());
            meant.extend(open.map(|turn| RunId { session: child.id.clone(), turn: turn.record.turn_id }));
            // Whoever ends the run above wants quiet there.
            if let Some(parent) =
                child.lineage.as_ref().and_then(|lineage| lineage.parent()).filter(|_| meant.len() > before)
                && let Ok(parent) = self.sessions.live(caller.client.as_ref(), parent).await
            {
                parent.hush(&child.id).await;
            }
        }
        if meant.is_empty() {
            let details = serde_json::json!({ "why": "run_over", "runId": run, "status": record.status });
            return Err(ApiError::conflict(format!("run {run} is over, and so is all under it")).with_details(details));
        }
        let mut cancelled_run_ids = Vec::with_capacity(meant.len());
        for one in meant {
            let command = Command { turn: Some(one.turn.clone()), reason: reason.clone(), if_version: None };
            let aborted = match self.sessions.live(caller.client.as_ref(), &one.session).await {
                Ok(live) => live.abort(command).await.map(drop),
                Err(error) => Err(error),
            };
            match aborted {
                // It ended with the run above it.
                Err(error) if !matches!(error.code(), ErrorCode::Conflict | ErrorCode::NotFound) => return Err(error),
                Ok(()) | Err(_) => cancelled_run_ids.push(one),
            }
        }
        Ok(CancelledRuns { cancelled_run_ids })
    }
}

/// A page that is being filled.
struct Filling {
    items: Vec<RunView>,
    limit: usize,
    /// The session up to which was looked, where there was more to look at.
    scanned: Option<SessionId>,
}

impl Filling {
    /// Whether there is one more than is wanted.
    fn is_full(&self) -> bool {
        self.items.len() > self.limit
    }

    fn finish(mut self) -> Page<RunView> {
        let more = self.is_full();
        self.items.truncate(self.limit);
        let last = self.items.last().filter(|_| more).map(|run| run.run_id.to_string());
        Page { items: self.items, next_cursor: last.or_else(|| self.scanned.map(|id| id.to_string())) }
    }
}

fn is_spawned_by(row: &SessionRow, run: &RunId) -> bool {
    row.lineage.as_ref().is_some_and(|of| of.parent() == Some(&run.session) && of.turn_id.as_ref() == Some(&run.turn))
}

fn count(summary: &mut RunSummary, body: &ItemBody) {
    match body {
        ItemBody::Message { role: Role::User, .. } => summary.user_messages += 1,
        ItemBody::Message { role: Role::Assistant, .. } => summary.assistant_messages += 1,
        ItemBody::ToolResult { .. } => summary.tool_results += 1,
        _ => return,
    }
    summary.message_count += 1;
}

fn view(row: &SessionRow, record: TurnRecord) -> RunView {
    let lineage = row.lineage.as_deref();
    let root = lineage.and_then(Lineage::root).unwrap_or(&row.id);
    let parent = lineage.and_then(Lineage::parent);
    let spawned_by = parent.zip(lineage.and_then(|of| of.turn_id.as_ref()));
    let agent = lineage.and_then(|of| of.agent.clone());
    RunView {
        run_id: RunId { session: row.id.clone(), turn: record.turn_id.clone() },
        session_id: row.id.clone(),
        root_session_id: root.clone(),
        parent_session_id: parent.cloned(),
        parent_run_id: spawned_by.map(|(session, turn)| RunId { session: session.clone(), turn: turn.clone() }),
        depth: u32::try_from(lineage.map_or(0, Lineage::depth)).unwrap_or(u32::MAX),
        agent: agent.unwrap_or_else(|| agent_of(&row.settings.model).to_owned()),
        agent_kind: if lineage.is_some() { AgentKind::Subagent } else { AgentKind::Main },
        name: lineage.and_then(|of| of.name.clone()),
        coordination: lineage.map(|of| of.coordination),
        model: row.settings.model.clone(),
        working_directory: row.settings.working_directory.clone(),
        status: record.status,
        prompt: record.prompt,
        created_at: record.created_at,
        started_at: record.started_at,
        ended_at: record.ended_at,
        result: record.result,
        error: record.error,
        detail: record.reason,
        rounds: record.rounds,
        usage: record.usage,
        tool_calls: None,
        turn_id: record.turn_id,
    }
}
