//! The methods about sessions: they come to be, are opened, listed, set, closed and deleted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::desk::{Desk, How};
use super::options::{change, mode_of, modes};
use super::params::{List, Named, Open, SetMode, SetOption, SetTitle, SystemPrompt};
use super::rpc::Params;
use super::servers::servers;
use super::{Core, content, session_id};
use crate::base::{clock, limit};
use crate::config::McpServer;
use crate::protocol::{Access, ApiError, Configure, Deleted, SessionId, SessionView};

/// Sessions of one page of a list.
const PAGE: usize = 50;
/// Sessions that are looked at for one page, where only those of a directory are wanted.
const LOOKED_AT_MAX: usize = 5_000;

impl Core {
    /// `session/new`.
    pub(super) async fn new_session(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let open: Open = params.read()?;
        let directory = absolute("cwd", &open.cwd)?;
        let servers = self.servers(&open)?;
        let mut body = json!({ "workingDirectory": directory, "additionalDirectories": further(&open)? });
        if let Some(prompt) = &open.system_prompt {
            body["instructions"] = instructions(prompt)?.into();
        }
        let created: Result<SessionView, ApiError> = self.carry_out("create_session", None, &body).await;
        let created = created.map_err(|error| error.in_field("workingDirectory", "cwd"))?;
        self.give(&created.session_id, servers, true).await?;
        let (desk, view) = self.open(&created.session_id, How::Silent).await?;
        let mut state = self.state(&desk, &view).await;
        state["sessionId"] = view.session_id.as_str().into();
        Ok(state)
    }

    /// `session/load`: all that was is told before this is done.
    pub(super) async fn load(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let open: Open = params.read()?;
        self.take_up(&open, How::Replay).await
    }

    /// `session/resume`.
    pub(super) async fn resume(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let open: Open = params.read()?;
        self.take_up(&open, How::Silent).await
    }

    async fn take_up(self: &Arc<Self>, open: &Open, how: How) -> Result<Value, ApiError> {
        let id = named(open)?;
        let servers = self.servers(open)?;
        self.fit(&id, open).await?;
        self.give(&id, servers, false).await?;
        let (desk, view) = self.open(&id, how).await?;
        Ok(self.state(&desk, &view).await)
    }

    /// Brings a session to what is said of it: its directories, its instructions. Of directories beside the first all are said:
    /// where none are, it has none.
    async fn fit(self: &Arc<Self>, id: &SessionId, open: &Open) -> Result<(), ApiError> {
        let directory = absolute("cwd", &open.cwd)?;
        let view = self.app.session(&self.caller, id).await?;
        let mut changes = Configure::default();
        if !same_place(&view.working_directory, &directory).await {
            changes.working_directory = Some(directory);
        }
        let mut more = Vec::new();
        for directory in further(open)? {
            more.push(real(directory).await);
        }
        if view.additional_directories != more {
            changes.additional_directories = Some(more);
        }
        if let Some(prompt) = &open.system_prompt {
            changes.instructions = Some(instructions(prompt)?);
        }
        if changes == Configure::default() {
            return Ok(());
        }
        let fitted = self.configure(id, &changes).await;
        fitted.map(drop).map_err(|error| error.in_field("workingDirectory", "cwd"))
    }

    /// The tool servers that an editor brings along.
    fn servers(&self, open: &Open) -> Result<Vec<McpServer>, ApiError> {
        let servers = servers(open.mcp_servers.as_deref().unwrap_or_default())?;
        if !servers.is_empty() {
            self.caller.needs(Access::Administer)?;
        }
        Ok(servers)
    }

    /// Gives a session the servers of its editor. Where it brings none, those of another one stay. One that `is_new` is not left
    /// behind without them.
    async fn give(&self, id: &SessionId, servers: Vec<McpServer>, is_new: bool) -> Result<(), ApiError> {
        if servers.is_empty() {
            return Ok(());
        }
        let given = self.app.attach_servers(&self.caller, id, &servers).await;
        if given.is_err() && is_new {
            let gone: Result<Deleted, ApiError> = self.carry_out("delete_session", Some(id), &json!({})).await;
            if let Err(error) = gone {
                tracing::warn!(session = %id, %error, "a session that could not have its tool servers stays");
            }
        }
        given
    }

    async fn configure(&self, id: &SessionId, changes: &Configure) -> Result<SessionView, ApiError> {
        let body = serde_json::to_value(changes).map_err(|cause| ApiError::internal(cause.to_string()))?;
        self.carry_out("configure", Some(id), &body).await
    }

    /// What a client is told of a session when it opens it.
    async fn state(&self, desk: &Desk, view: &SessionView) -> Value {
        json!({ "modes": modes(view), "configOptions": super::options::options(view, &self.choice_at(desk, view).await) })
    }

    /// `session/fork`: a session that goes on from the newest event of another one.
    pub(super) async fn fork(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let open: Open = params.read()?;
        let id = named(&open)?;
        let servers = self.servers(&open)?;
        let forked: SessionView = self.carry_out("fork", Some(&id), &json!({})).await?;
        self.fit(&forked.session_id, &open).await?;
        self.give(&forked.session_id, servers, true).await?;
        let (desk, view) = self.open(&forked.session_id, How::Silent).await?;
        let mut state = self.state(&desk, &view).await;
        state["sessionId"] = view.session_id.as_str().into();
        Ok(state)
    }

    /// `session/list`: the newest first.
    pub(super) async fn list(&self, params: &Params) -> Result<Value, ApiError> {
        let List { cwd, mut cursor } = params.read()?;
        let wanted = match &cwd {
            Some(cwd) => Some(real(absolute("cwd", cwd)?).await),
            None => None,
        };
        let mut sessions = Vec::new();
        let mut looked_at = 0;
        loop {
            let page = self.app.sessions(&self.caller, cursor.as_deref(), PAGE - sessions.len()).await?;
            looked_at += page.items.len();
            let fits = |view: &&SessionView| wanted.as_ref().is_none_or(|wanted| view.working_directory == *wanted);
            sessions.extend(page.items.iter().filter(fits).map(shown));
            cursor = page.next_cursor;
            if cursor.is_none() || sessions.len() >= PAGE || looked_at >= LOOKED_AT_MAX {
                break;
            }
        }
        let mut answer = json!({ "sessions": sessions });
        if let Some(cursor) = cursor {
            answer["nextCursor"] = cursor.into();
        }
        Ok(answer)
    }

    /// `session/close`: what this client wanted of it is cancelled, and it is told of it no more.
    pub(super) async fn close(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let id = session_id(&params.read::<Named>()?.session_id)?;
        self.app.session(&self.caller, &id).await?;
        if self.prompts.lock().iter().any(|pending| pending.session == id) {
            Arc::clone(self).cancel_prompts(id.clone());
            let answered = async {
                while self.prompts.lock().iter().any(|pending| pending.session == id) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let patience = Duration::from_millis(limit::TURN_CUT_GRACE_MS);
            if tokio::time::timeout(patience, answered).await.is_err() {
                tracing::warn!(session = %id, "a session was closed in the middle of a turn that does not end");
            }
        }
        self.leave(&id);
        self.app.attach_servers(&self.caller, &id, &[]).await?;
        Ok(json!({}))
    }

    /// `session/delete`.
    pub(super) async fn delete(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let id = session_id(&params.read::<Named>()?.session_id)?;
        let _: Deleted = self.carry_out("delete_session", Some(&id), &json!({})).await?;
        self.leave(&id);
        Ok(json!({}))
    }

    /// `session/status`.
    pub(super) async fn status(&self, params: &Params) -> Result<Value, ApiError> {
        let id = session_id(&params.read::<Named>()?.session_id)?;
        let view = self.app.session(&self.caller, &id).await?;
        let open = self.desks.lock().contains_key(&id) || view.turn.is_some();
        Ok(json!({ "status": if open { "open" } else { "saved" } }))
    }

    /// `session/set_title`.
    pub(super) async fn set_title(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let SetTitle { session_id: id, title } = params.read()?;
        let changes = Configure { title: Some(title), ..Configure::default() };
        let view = self.configure(&session_id(&id)?, &changes).await?;
        Ok(json!({ "title": view.title.unwrap_or_default() }))
    }

    /// `session/set_mode`.
    pub(super) async fn set_mode(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let SetMode { session_id: id, mode_id } = params.read()?;
        let mode = mode_of("modeId", &mode_id)?;
        // What else changes with it, the follower of the session tells.
        let changes = Configure { permission_mode: Some(mode), ..Configure::default() };
        self.configure(&session_id(&id)?, &changes).await?;
        Ok(json!({}))
    }

    /// `session/set_config_option`: answers with all of them.
    pub(super) async fn set_option(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let SetOption { session_id: id, config_id, value } = params.read()?;
        let desk = self.desk(&session_id(&id)?).await?;
        // One after the other: a choice of an agent's options comes with all that were chosen before.
        let mut known = desk.known.lock().await;
        let view = self.app.session(&self.caller, &desk.id).await?;
        let changes = change((&config_id, &value), &self.choice_at(&desk, &view).await)?;
        let view = self.configure(&desk.id, &changes).await?;
        let updates = known.learn(&view, &self.choice_at(&desk, &view).await);
        let answer = json!({ "configOptions": known.options() });
        drop(known);
        // The options are in the answer.
        for update in updates.into_iter().filter(|update| update["sessionUpdate"] != "config_option_update") {
            self.update(&desk.id, update).await;
        }
        Ok(answer)
    }
}

fn named(open: &Open) -> Result<SessionId, ApiError> {
    let id = open.session_id.as_deref().ok_or_else(|| ApiError::invalid("sessionId", "to be there"))?;
    session_id(id)
}

fn absolute(field: &str, path: &std::path::Path) -> Result<PathBuf, ApiError> {
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    Err(ApiError::unfit(field, "an absolute path", format!("`{}`", path.display())))
}

/// The directories beside the first.
fn further(open: &Open) -> Result<Vec<PathBuf>, ApiError> {
    let given = open.additional_directories.iter().flatten().enumerate();
    given.map(|(at, path)| absolute(&format!("additionalDirectories[{at}]"), path)).collect()
}

/// Text that is added to the system text.
fn instructions(prompt: &SystemPrompt) -> Result<String, ApiError> {
    if prompt.mode != "append" {
        return Err(ApiError::unfit("systemPrompt.mode", "append", format!("`{}`", prompt.mode)));
    }
    content::text_of(&prompt.content, "systemPrompt.content")
}

async fn real(path: PathBuf) -> PathBuf {
    tokio::fs::canonicalize(&path).await.unwrap_or(path)
}

async fn same_place(one: &std::path::Path, other: &std::path::Path) -> bool {
    one == other || real(other.to_owned()).await == one
}

/// A session in a list.
fn shown(view: &SessionView) -> Value {
    let mut shown = json!({
        "sessionId": view.session_id,
        "cwd": view.working_directory,
        "title": view.title,
        "updatedAt": clock::text_of_ms(view.updated_at),
    });
    if !view.additional_directories.is_empty() {
        shown["additionalDirectories"] = json!(view.additional_directories);
    }
    shown
}
