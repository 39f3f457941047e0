//! Our own commands behind `/`. Those of projects and agents go to the server as prompts do.

use std::path::Path;

use base64::Engine as _;
use serde_json::{Value, json};

use super::app::App;
use super::dialog::{Choice, Dialog, List, Pick};
use super::entry::faint;
use super::offers::Offer;
use super::timeline::Shown;
use super::work::{Message, words};
use crate::base::text::percent_encoded;
use crate::protocol::{DiffView, Part, PermissionMode, SessionView};

/// Largest picture, in bytes.
const PICTURE_BYTES_MAX: u64 = 5_000_000;

/// Our commands, with what they do.
const OWN: [(&str, &str); 23] = [
    ("help", "say what keys and commands do"),
    ("new", "begin a new session"),
    ("sessions", "go to another session"),
    ("subagents", "look at what a sub-agent does, or go back to who started it"),
    ("find", "look for words in what was said and done"),
    ("edit", "write the prompt in your own editor"),
    ("model", "choose the model"),
    ("agent", "choose the agent"),
    ("mode", "how much is done without asking: plan, ask, accept-edits, auto"),
    ("diff", "show what the session changed in files"),
    ("undo", "undo what the last turn changed in files"),
    ("redo", "do again what was undone"),
    ("fork", "go on in a copy of this session"),
    ("compact", "sum the conversation up"),
    ("title", "give the session a title"),
    ("attach", "put a picture with the next prompt: a path"),
    ("queue", "take a prompt back that waits"),
    ("copy", "copy the last answer"),
    ("history", "look through what you wrote"),
    ("unfold", "show all that calls wrote, or fold it"),
    ("stop", "stop the turn"),
    ("session", "say which session this is"),
    ("exit", "leave; the session stays"),
];

const HELP: &str = "Enter          send; while a turn runs it waits behind it
Ctrl-S         say it into the turn that runs (steer)
Alt-Enter, Ctrl-J   a new line
Esc Esc        stop the turn
Ctrl-C         clear what is written; twice leaves
Shift-Tab      ask, accept edits, or plan
PageUp, PageDown, wheel   look back and forward; End at the newest
Ctrl-Up, Ctrl-Down   choose an entry: Enter unfolds it, y copies it, f forks there, u undoes its turn
Ctrl-F         look for words; n goes further back, N forward
Ctrl-G         write the prompt in your own editor (VISUAL, EDITOR)
Ctrl-O         unfold everything, or fold it
Ctrl-P         sessions      Ctrl-L  draw anew      Ctrl-Z  to the shell
Up, Down       what you wrote before
Shift and the mouse   select text, as without an interface
@              files and agents      /  commands

When something is asked: y allows, a always, n denies, w denies with words; Tab goes to the prompt and back.
";

/// Our commands, as they are offered.
pub(super) fn own_commands() -> Vec<Offer> {
    OWN.iter().map(|(word, hint)| Offer { word: (*word).to_owned(), hint: (*hint).to_owned() }).collect()
}

const MODES: [(PermissionMode, &str, &str); 4] = [
    (PermissionMode::Plan, "plan", "looks and changes nothing"),
    (PermissionMode::Ask, "ask", "asks before what changes something"),
    (PermissionMode::AcceptEdits, "accept-edits", "edits files without asking"),
    (PermissionMode::Auto, "auto", "asks nothing that the rules do not want asked"),
];

impl App {
    /// Runs what is written, if it is a command of ours. Whether it was one.
    pub(super) fn command(&mut self) -> bool {
        let text = self.editor.text().trim().to_owned();
        let Some((name, rest)) = text.strip_prefix('/').map(|text| text.split_once(' ').unwrap_or((text, ""))) else {
            return false;
        };
        if !OWN.iter().any(|(own, _)| *own == name) {
            return false;
        }
        let rest = rest.trim();
        // It is remembered like all that is sent.
        drop(self.editor.take());
        self.offers.look(&self.editor);
        match name {
            "help" => {
                let lines = HELP.lines().map(|line| ratatui::text::Line::raw(line.to_owned()));
                let own = OWN.iter().map(|(name, what)| ratatui::text::Line::raw(format!("/{name:<13} {what}")));
                self.dialog = Some(Dialog::Text { title: "Help".into(), lines: lines.chain(own).collect(), from: 0 });
            }
            "new" => self.fresh(),
            "sessions" => self.list_sessions(),
            "subagents" => self.list_subagents(),
            "find" => self.find(rest),
            "edit" => self.writes = true,
            "model" => self.choose(Pick::Model, "Model", rest),
            "agent" => self.choose(Pick::Agent, "Agent", rest),
            "mode" => self.mode(rest),
            "diff" => self.diff(),
            "undo" => self.work.order("POST", self.path("/undo"), Some(json!({})), "undone"),
            "redo" => self.work.order("POST", self.path("/redo"), Some(json!({})), "done again"),
            "fork" => self.fork(None),
            "compact" => self.work.order("POST", self.path("/compact"), Some(json!({})), ""),
            "title" if rest.is_empty() => self.tell(false, "/title: expected some text"),
            "title" => self.configure(json!({ "title": rest }), "the title is set"),
            "attach" => self.attach(rest),
            "queue" => self.list_queue(),
            "copy" => self.copy_last(),
            "history" => self.list_history(),
            "unfold" => self.view.all_unfolded = !self.view.all_unfolded,
            "stop" => self.stop(),
            "session" => self.tell(true, self.session_id()),
            _ => self.left = true,
        }
        true
    }

    /// Stops the turn that runs.
    pub(super) fn stop(&mut self) {
        let body = json!({ "reason": "stopped at the terminal" });
        self.work.order("POST", self.path("/abort"), Some(body), "");
    }

    /// Begins a new session like this one.
    fn fresh(&self) {
        let mut wanted = self.wanted.clone();
        if let Some(wanted) = wanted.as_object_mut() {
            wanted.insert("workingDirectory".to_owned(), json!(self.session.working_directory));
            wanted.insert("model".to_owned(), json!(self.session.model));
            wanted.insert("permissionMode".to_owned(), json!(self.session.permission_mode));
        }
        self.visit("POST", "/sessions".to_owned(), Some(wanted));
    }

    /// Calls what answers with a session's id, and goes there.
    fn visit(&self, method: &'static str, path: String, body: Option<Value>) {
        let work = self.work.clone();
        tokio::spawn(async move {
            let gone = async {
                let answer = work.client.call(method, &path, body.as_ref()).await?;
                let id = answer["sessionId"].as_str().unwrap_or_default().to_owned();
                work.client.read::<SessionView>(&format!("/sessions/{id}")).await
            };
            let message = match gone.await {
                Ok(view) => Message::GoTo(Box::new(view)),
                Err(error) => Message::Told(false, words(&error)),
            };
            let _ = work.tell.send(message).await;
        });
    }

    /// Goes to a session.
    pub(super) fn go_by_id(&self, id: &str) {
        self.visit("GET", format!("/sessions/{id}"), None);
    }

    /// Goes on in a copy that begins behind an event.
    pub(super) fn fork(&self, at: Option<u64>) {
        let body = at.map_or_else(|| json!({}), |at| json!({ "at": at }));
        self.visit("POST", self.path("/fork"), Some(body));
    }

    /// Undoes what a turn and those after it changed.
    pub(super) fn undo_turn(&self, turn: &str) {
        self.work.order("POST", self.path("/undo"), Some(json!({ "turnId": turn })), "undone");
    }

    fn configure(&self, body: Value, done: &'static str) {
        self.work.order("PATCH", self.path(""), Some(body), done);
    }

    fn mode(&mut self, name: &str) {
        if name.is_empty() {
            let choice = |(_, name, hint): &(PermissionMode, &str, &str)| Choice {
                id: (*name).to_owned(),
                label: (*name).to_owned(),
                hint: (*hint).to_owned(),
                usable: true,
            };
            let mut list = List::waiting(Pick::Mode, "Permission mode");
            list.fill(MODES.iter().map(choice).collect());
            self.dialog = Some(Dialog::List(list));
        } else if MODES.iter().any(|(_, known, _)| *known == name) {
            self.configure(json!({ "permissionMode": name }), "");
        } else {
            self.tell(false, format!("/mode: expected plan, ask, accept-edits or auto, got `{name}`"));
        }
    }

    /// The next mode; never the one that asks nothing, which has to be named.
    pub(super) fn next_mode(&mut self) {
        let next = match self.session.permission_mode {
            PermissionMode::Ask => "accept-edits",
            PermissionMode::AcceptEdits => "plan",
            PermissionMode::Plan | PermissionMode::Auto => "ask",
        };
        self.mode(next);
    }

    /// The name of the mode.
    pub(super) fn mode_name(&self) -> &'static str {
        let found = MODES.iter().find(|(mode, ..)| *mode == self.session.permission_mode);
        found.map_or("", |(_, name, _)| name)
    }

    fn choose(&mut self, pick: Pick, title: &str, name: &str) {
        let member = if pick == Pick::Model { "model" } else { "agent" };
        if !name.is_empty() {
            return self.configure(json!({ member: name }), "");
        }
        self.dialog = Some(Dialog::List(List::waiting(pick, title)));
        let path = if pick == Pick::Model { "/models".to_owned() } else { self.agents_path() };
        self.work.call(("GET", path), None, move |answer| match answer {
            Ok(answer) => {
                let list = answer[if pick == Pick::Model { "models" } else { "agents" }].as_array().cloned();
                Some(Message::Listed(pick, list.unwrap_or_default().iter().map(choice_of).collect()))
            }
            Err(error) => Some(Message::Told(false, words(&error))),
        });
    }

    fn agents_path(&self) -> String {
        let place = self.directory().display().to_string();
        format!("/agents?workingDirectory={}", percent_encoded(&place))
    }

    /// Which agents a prompt can begin with, as `@name`.
    pub(super) fn ask_agents(&self) {
        self.work.call(("GET", self.agents_path()), None, |answer| {
            let answer = answer.ok()?;
            // Those of files: to them a single prompt can go, and to a sub-agent only other agents delegate.
            let named = answer["agents"].as_array()?.iter().filter(|one| one["kind"] == "main");
            Some(Message::Agents(named.filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect()))
        });
    }

    /// What was chosen in a list.
    pub(super) fn chosen(&mut self, pick: Pick, id: &str) {
        match pick {
            Pick::Session => self.go_by_id(id),
            Pick::Model => self.configure(json!({ "model": id }), ""),
            Pick::Agent => self.configure(json!({ "agent": id }), ""),
            Pick::Mode => self.configure(json!({ "permissionMode": id }), ""),
            Pick::History => self.editor.set(id),
            Pick::Queued => {
                let body = json!({ "turnId": id, "reason": "taken back" });
                self.work.order("POST", self.path("/abort"), Some(body), "taken back");
            }
        }
    }

    /// Lists the sessions to go to.
    pub(super) fn list_sessions(&mut self) {
        self.dialog = Some(Dialog::List(List::waiting(Pick::Session, "Sessions")));
        self.work.call(("GET", "/sessions?limit=200".to_owned()), None, |answer| match answer {
            Ok(answer) => {
                let views: Vec<SessionView> = serde_json::from_value(answer["items"].clone()).unwrap_or_default();
                Some(Message::Listed(Pick::Session, views.iter().map(choice_of_session).collect()))
            }
            Err(error) => Some(Message::Told(false, words(&error))),
        });
    }

    fn list_queue(&mut self) {
        if self.queue.is_empty() {
            return self.tell(true, "no prompt waits");
        }
        let mut list = List::waiting(Pick::Queued, "Take back");
        let choice = |turn: &crate::protocol::TurnRecord| Choice {
            id: turn.turn_id.to_string(),
            label: turn.prompt.clone(),
            hint: String::new(),
            usable: true,
        };
        list.fill(self.queue.iter().map(choice).collect());
        self.dialog = Some(Dialog::List(list));
    }

    fn list_history(&mut self) {
        let mut list = List::waiting(Pick::History, "What you wrote");
        let choice =
            |text: &String| Choice { id: text.clone(), label: text.clone(), hint: String::new(), usable: true };
        list.fill(self.editor.history().iter().rev().map(choice).collect());
        self.dialog = Some(Dialog::List(list));
    }

    fn diff(&self) {
        self.work.call(("GET", self.path("/diff")), None, |answer| {
            let diff = answer.and_then(|answer| {
                serde_json::from_value::<DiffView>(answer).map_err(|cause| super::super::client::ClientError::Broken {
                    call: "GET diff".to_owned(),
                    cause: cause.into(),
                })
            });
            Some(match diff {
                Err(error) => Message::Told(false, words(&error)),
                Ok(diff) if diff.report.files.is_empty() => Message::Told(true, "nothing is changed".to_owned()),
                Ok(diff) => {
                    let files = diff.report.files.iter().map(|file| {
                        let head = format!("{} +{} −{}\n", file.path, file.added, file.removed);
                        head + file.diff.as_deref().unwrap_or_default() + "\n"
                    });
                    Message::Read(crate::base::text::counted(diff.report.files.len(), "file"), files.collect())
                }
            })
        });
    }

    fn attach(&mut self, path: &str) {
        match picture(&self.directory().join(path)) {
            Ok(part) => {
                self.pictures.push(part);
                self.tell(true, "it goes with the next prompt");
            }
            Err(why) => self.tell(false, format!("/attach: {why}")),
        }
    }

    fn copy_last(&mut self) {
        let texts = self.timeline.entries.iter().rev();
        let last = texts.into_iter().find_map(|entry| match &entry.shown {
            Shown::Assistant { .. } => Some(self.timeline.answer(entry.seq)),
            _ => None,
        });
        match last {
            Some(text) => {
                self.copied = Some(text);
                self.tell(true, "copied");
            }
            None => self.tell(false, "there is no answer yet"),
        }
    }
}

/// A picture in a file, as a part of a prompt.
fn picture(path: &Path) -> Result<Part, String> {
    let said = |cause: &dyn std::fmt::Display| format!("{}: {cause}", path.display());
    let kind = path.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    let media_type = match kind.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => return Err(said(&"expected a file .png, .jpg, .gif or .webp")),
    };
    let found = std::fs::metadata(path).map_err(|cause| said(&cause))?;
    if !found.is_file() || found.len() > PICTURE_BYTES_MAX {
        return Err(said(&format!("expected a file of at most {PICTURE_BYTES_MAX} bytes")));
    }
    let data = std::fs::read(path).map_err(|cause| said(&cause))?;
    let data = base64::engine::general_purpose::STANDARD.encode(data);
    Ok(Part::Image { media_type: media_type.to_owned(), data })
}

fn choice_of(one: &Value) -> Choice {
    let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let id = if one["id"].is_string() { text("id") } else { text("name") };
    let hint = [text("label"), text("description"), text("reason")].into_iter().find(|hint| !hint.is_empty());
    let usable = one["available"].as_bool().unwrap_or(true);
    Choice { label: id.clone(), id, hint: hint.unwrap_or_default(), usable }
}

fn choice_of_session(view: &SessionView) -> Choice {
    let at = crate::base::clock::text_of_ms(view.updated_at);
    let at = at.get(..16).unwrap_or(&at).replace('T', " ");
    let runs = if view.turn.is_some() { "runs · " } else { "" };
    let title = view.title.clone().unwrap_or_else(|| format!("(no title) {}", view.session_id));
    let hint = format!("{runs}{at} · {}", view.working_directory.display());
    Choice { id: view.session_id.to_string(), label: title, hint, usable: true }
}

/// A line for what is empty.
pub(super) fn nothing() -> ratatui::text::Line<'static> {
    faint("nothing fits")
}
