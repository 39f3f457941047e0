//! An agent's tool calls in our terms: names, arguments, outputs, and what a question about one is about.
//!
//! A call comes in pieces that are merged by its id. It is announced once there is something to tell: its
//! arguments, its start, or a question about it. Invariant: one start for each call, and at most one end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use agent_client_protocol::v1::schema as acp;
use serde_json::{Map, Value, json};

use super::terminals::Terminals;
use crate::base::limit;
use crate::base::workspace::Workspace;
use crate::edit::unified_diff;
use crate::model::{AgentEvent, Question};
use crate::permission::{PathSubject, Subject};
use crate::protocol::{Part, ToolAnnotations, ToolCallRequest, ToolCallResult, ToolCategory, ToolDefinition};
use crate::tool::bound_output;

/// Longest name of a tool that an agent gives, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Where the argument of a call that is a path may stand.
const PATH_KEYS: [&str; 9] = [
    "path",
    "file_path",
    "filePath",
    "filepath",
    "abs_path",
    "absolute_path",
    "notebook_path",
    "source",
    "destination",
];
/// A command that nobody here knows: no pattern allows it, and one that forbids may be about it.
const UNKNOWN_COMMAND: &str = "$UNKNOWN";

/// The calls of one prompt.
#[derive(Debug)]
pub(super) struct Calls {
    server: String,
    directory: PathBuf,
    terminals: Terminals,
    calls: HashMap<String, Call>,
}

#[derive(Debug)]
struct Call {
    merged: acp::ToolCall,
    started: Option<Instant>,
    ended: bool,
    /// Bytes of its output that were shown while it ran.
    shown: usize,
    /// What a terminal of the agent's own has shown, which comes beside the call (`_meta`); its end.
    own: String,
}

impl Calls {
    pub fn new(server: &str, directory: &Path, terminals: Terminals) -> Self {
        Self { server: server.to_owned(), directory: directory.to_owned(), terminals, calls: HashMap::new() }
    }

    /// Where the session works.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Takes a new call; one whose id is known already is an update of it.
    pub fn begin(&mut self, call: acp::ToolCall) -> Vec<AgentEvent> {
        let id = call.tool_call_id.to_string();
        if self.calls.contains_key(&id) {
            return self.update(call.into());
        }
        let shown = call.meta.as_ref().and_then(shown_beside);
        self.calls.insert(id.clone(), Call { merged: call, started: None, ended: false, shown: 0, own: String::new() });
        self.show(&id, shown, false)
    }

    /// Takes what has changed of a call; an unknown one begins with it.
    pub fn update(&mut self, update: acp::ToolCallUpdate) -> Vec<AgentEvent> {
        let shown = update.meta.as_ref().and_then(shown_beside);
        let id = self.merge(update);
        self.show(&id, shown, false)
    }

    /// Tells a call, and what came beside it from a terminal of the agent's own.
    fn show(&mut self, id: &str, shown: Option<String>, must: bool) -> Vec<AgentEvent> {
        let Some(call) = self.calls.get_mut(id).filter(|call| !call.ended) else { return self.advance(id, must) };
        let Some(text) = shown else { return self.advance(id, must) };
        call.own.push_str(&text);
        if call.own.len() > 2 * limit::AGENT_TERMINAL_BYTES_MAX {
            call.own = crate::base::text::tail(&call.own, limit::AGENT_TERMINAL_BYTES_MAX).to_owned();
        }
        // The end of the call comes behind what it has shown.
        let mut events = self.advance(id, true);
        let piece = crate::base::text::head(&text, limit::LIVE_OUTPUT_BYTES_MAX).to_owned();
        let at = usize::from(matches!(events.first(), Some(AgentEvent::CallStarted(_))));
        events.insert(at, AgentEvent::CallOutput { id: id.to_owned(), text: piece });
        events
    }

    fn merge(&mut self, update: acp::ToolCallUpdate) -> String {
        let id = update.tool_call_id.to_string();
        let call = self.calls.entry(id.clone()).or_insert_with(|| {
            let title = update.fields.title.clone().unwrap_or_default();
            let merged = acp::ToolCall::new(update.tool_call_id.clone(), title);
            Call { merged, started: None, ended: false, shown: 0, own: String::new() }
        });
        if !call.ended {
            call.merged.update(update.fields);
        }
        id
    }

    /// Takes a question about a call: what is to be told before it, and the question itself.
    pub fn ask(&mut self, update: acp::ToolCallUpdate) -> (Vec<AgentEvent>, Option<acp::ToolCall>) {
        let id = self.merge(update);
        let events = self.advance(&id, true);
        (events, self.calls.get(&id).map(|call| call.merged.clone()))
    }

    /// Announces what was held back: something else follows.
    pub fn announce_all(&mut self) -> Vec<AgentEvent> {
        let held: Vec<String> =
            self.calls.iter().filter(|(_, call)| call.started.is_none()).map(|(id, _)| id.clone()).collect();
        held.iter().flat_map(|id| self.advance(id, true)).collect()
    }

    /// What is to be told of a call now.
    fn advance(&mut self, id: &str, must: bool) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        let Some(call) = self.calls.get_mut(id) else { return events };
        let (over, failed) = match call.merged.status {
            acp::ToolCallStatus::Completed => (true, false),
            acp::ToolCallStatus::Failed => (true, true),
            _ => (false, false),
        };
        let told = call.merged.status != acp::ToolCallStatus::Pending || has_input(&call.merged);
        if call.started.is_none() && (must || told) {
            call.started = Some(Instant::now());
            events.push(AgentEvent::CallStarted(request(&self.server, &call.merged)));
        }
        if call.started.is_some() && !over && !call.ended {
            events.extend(call.preview());
        }
        if let Some(started) = call.started.filter(|_| over && !call.ended) {
            call.ended = true;
            let elapsed = started.elapsed().as_millis();
            events.push(AgentEvent::CallEnded(ToolCallResult {
                id: id.to_owned(),
                name: name(&self.server, &call.merged),
                output: output(call, &self.terminals),
                is_error: failed,
                duration_ms: Some(u64::try_from(elapsed).unwrap_or(u64::MAX)),
                parts: images(&call.merged),
                details: changes(&call.merged),
            }));
            // What it held is told: of a long turn only the ids stay.
            call.merged.content = Vec::new();
            call.merged.raw_input = None;
            call.merged.raw_output = None;
            call.own = String::new();
        }
        events
    }

    /// The question about a call, in the terms of our rules. Looks at the file system.
    pub fn question(server: &str, directory: &Path, call: &acp::ToolCall) -> Question {
        let subject = subject(call, directory);
        let outside = match &subject {
            Subject::Paths(paths) => {
                paths.iter().any(|p| !p.resolved.as_ref().is_some_and(|r| r.starts_with(directory)))
            }
            Subject::None | Subject::Command(_) => false,
        };
        let kind = kind_of(call.kind);
        let looks = matches!(kind.category, ToolCategory::Read | ToolCategory::Search);
        // To look around outside is not what a rule about looking means.
        let category = if looks && outside { ToolCategory::Other } else { kind.category };
        let request = request(server, call);
        let definition = ToolDefinition {
            name: request.name.clone(),
            description: call.title.clone(),
            parameters: Map::new(),
            category: Some(category),
            annotations: Some(ToolAnnotations {
                title: None,
                destructive: Some(kind.destructive),
                read_only: Some(looks && !outside),
            }),
            timeout_ms: None,
            max_output_chars: None,
        };
        Question { request, like: kind.like, definition, subject, preview: Some(preview(call)) }
    }
}

impl Call {
    /// What it has put out since the last time, while it runs.
    fn preview(&mut self) -> Option<AgentEvent> {
        let text = self.merged.content.iter().filter_map(said).collect::<Vec<_>>().join("\n");
        // What does not go on where it was is told at the end.
        let piece = text.get(self.shown..).filter(|piece| !piece.is_empty())?;
        let piece = crate::base::text::head(piece, limit::LIVE_OUTPUT_BYTES_MAX).to_owned();
        self.shown = text.len();
        Some(AgentEvent::CallOutput { id: self.merged.tool_call_id.to_string(), text: piece })
    }
}

/// What a terminal of the agent's own has shown since the last time: a habit of several agents, beside the protocol.
fn shown_beside(meta: &acp::Meta) -> Option<String> {
    let output = meta.get("terminal_output").or_else(|| meta.get("terminal_output_delta"))?;
    output["data"].as_str().filter(|data| !data.is_empty()).map(str::to_owned)
}

/// The text of a piece of content that is one.
fn said(content: &acp::ToolCallContent) -> Option<String> {
    match content {
        acp::ToolCallContent::Content(content) => match &content.content {
            acp::ContentBlock::Text(text) => Some(text.text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// What a kind of call means to us.
struct Kind {
    word: &'static str,
    like: &'static [&'static str],
    category: ToolCategory,
    destructive: bool,
}

fn kind_of(kind: acp::ToolKind) -> Kind {
    let of = |word, like, category, destructive| Kind { word, like, category, destructive };
    match kind {
        acp::ToolKind::Read => of("read", &["fs_read"], ToolCategory::Read, false),
        acp::ToolKind::Edit => of("edit", &["fs_edit", "fs_write"], ToolCategory::Edit, true),
        acp::ToolKind::Delete => of("delete", &["fs_delete"], ToolCategory::Edit, true),
        acp::ToolKind::Move => of("move", &["fs_move"], ToolCategory::Edit, true),
        acp::ToolKind::Search => of("search", &["fs_grep", "fs_glob"], ToolCategory::Search, false),
        acp::ToolKind::Execute => of("execute", &["bash"], ToolCategory::Execute, true),
        acp::ToolKind::Think => of("think", &[], ToolCategory::Other, false),
        acp::ToolKind::Fetch => of("fetch", &[], ToolCategory::Other, false),
        acp::ToolKind::SwitchMode => of("switch_mode", &[], ToolCategory::Other, false),
        // The kinds of later versions, too.
        _ => of("other", &[], ToolCategory::Other, false),
    }
}

/// `acp:SERVER/TOOL`: the agent's own name for it, or the kind that it says.
fn name(server: &str, call: &acp::ToolCall) -> String {
    let own: String = call.name.iter().flat_map(|name| name.chars()).filter(|c| !c.is_control()).collect();
    let own = crate::base::text::head(own.trim(), NAME_BYTES_MAX);
    format!("acp:{server}/{}", if own.is_empty() { kind_of(call.kind).word } else { own })
}

fn has_input(call: &acp::ToolCall) -> bool {
    match &call.raw_input {
        None | Some(Value::Null) => false,
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(_) => true,
    }
}

/// The call as one of ours: its own arguments, or else its title and places.
fn request(server: &str, call: &acp::ToolCall) -> ToolCallRequest {
    let arguments = match &call.raw_input {
        Some(Value::Object(fields)) if !fields.is_empty() => fields.clone(),
        input => {
            let mut told = Map::new();
            told.insert("title".into(), call.title.clone().into());
            let places: Vec<Value> = call.locations.iter().map(|at| at.path.display().to_string().into()).collect();
            if !places.is_empty() {
                told.insert("locations".into(), places.into());
            }
            if let Some(input) = input.as_ref().filter(|input| !input.is_null() && !input.is_object()) {
                told.insert("input".into(), input.clone());
            }
            told
        }
    };
    ToolCallRequest { id: call.tool_call_id.to_string(), name: name(server, call), arguments }
}

/// What a call came to, as text.
fn output(call: &Call, terminals: &Terminals) -> String {
    let (own, call) = (&call.own, &call.merged);
    let text = |content| content_text(content, terminals);
    let mut texts: Vec<String> = call.content.iter().filter_map(text).collect();
    texts.extend(Some(own.clone()).filter(|own| !own.is_empty()));
    if texts.is_empty() {
        texts.extend(call.raw_output.as_ref().filter(|raw| !raw.is_null()).map(|raw| match raw {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }));
    }
    bound_output(texts.join("\n"), limit::OUTPUT_CHARS_MAX)
}

fn content_text(content: &acp::ToolCallContent, terminals: &Terminals) -> Option<String> {
    match content {
        acp::ToolCallContent::Content(content) => Some(block_text(&content.content)),
        acp::ToolCallContent::Diff(diff) => Some(change(diff).0),
        acp::ToolCallContent::Terminal(terminal) => terminals.text(&terminal.terminal_id.to_string()),
        // What later versions know is not told as text.
        _ => None,
    }
}

/// A content block as text; what is none is named.
pub(super) fn block_text(block: &acp::ContentBlock) -> String {
    match block {
        acp::ContentBlock::Text(text) => text.text.clone(),
        acp::ContentBlock::Image(image) => format!("[image, {}]", image.mime_type),
        acp::ContentBlock::Audio(audio) => format!("[audio, {}]", audio.mime_type),
        acp::ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        acp::ContentBlock::Resource(_) => "[resource]".to_owned(),
        _ => "[content]".to_owned(),
    }
}

/// The same of a block as it came.
pub(super) fn block_text_of(block: &Value) -> String {
    serde_json::from_value(block.clone()).map(|block| block_text(&block)).unwrap_or_default()
}

/// A diff as text, and what it counts.
fn change(diff: &acp::Diff) -> (String, Value) {
    let path = diff.path.display().to_string();
    let shown = path.trim_start_matches('/');
    let made = unified_diff(shown, diff.old_text.as_deref(), &diff.new_text, limit::DIFF_BYTES_MAX);
    let facts = json!({
        "path": path,
        "isNew": diff.old_text.is_none(),
        "diff": made.text,
        "added": made.added,
        "removed": made.removed,
        "truncated": made.truncated,
    });
    (made.text, facts)
}

/// What a call changes: one change in the form that our own tools tell it in, or a list of them.
fn changes(call: &acp::ToolCall) -> Option<Value> {
    let diffs = call.content.iter().filter_map(|content| match content {
        acp::ToolCallContent::Diff(diff) => Some(change(diff).1),
        _ => None,
    });
    let mut all: Vec<Value> = diffs.collect();
    if all.len() > 1 { Some(json!({ "changes": all })) } else { all.pop() }
}

/// The images among what a call came to, as far as one call may hand them on.
fn images(call: &acp::ToolCall) -> Vec<Part> {
    let mut room = limit::CALL_IMAGES_BYTES_MAX;
    let images = call.content.iter().filter_map(|content| match content {
        acp::ToolCallContent::Content(content) => match &content.content {
            acp::ContentBlock::Image(image) => {
                room = room.checked_sub(image.data.len())?;
                Some(Part::Image { media_type: image.mime_type.clone(), data: image.data.clone() })
            }
            _ => None,
        },
        _ => None,
    });
    images.collect()
}

/// What would happen, for the person who is asked.
fn preview(call: &acp::ToolCall) -> Value {
    let mut preview = changes(call).unwrap_or_else(|| json!({}));
    preview["title"] = call.title.clone().into();
    preview["kind"] = kind_of(call.kind).word.into();
    if let Some(text) = said_of(call) {
        preview["text"] = bound_output(text, limit::LIVE_OUTPUT_BYTES_MAX).into();
    }
    preview
}

/// What a call that has not run yet says of itself in words: some agents tell its arguments there, and some why they ask.
pub(super) fn said_of(call: &acp::ToolCall) -> Option<String> {
    let texts = call.content.iter().filter_map(|content| match content {
        acp::ToolCallContent::Content(content) => Some(block_text(&content.content)),
        _ => None,
    });
    let all: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

/// What a call touches: what patterns are held against.
fn subject(call: &acp::ToolCall, directory: &Path) -> Subject {
    match call.kind {
        acp::ToolKind::Execute => {
            let command = call.raw_input.as_ref().and_then(command);
            Subject::Command(command.unwrap_or_else(|| UNKNOWN_COMMAND.to_owned()))
        }
        acp::ToolKind::Read
        | acp::ToolKind::Edit
        | acp::ToolKind::Delete
        | acp::ToolKind::Move
        | acp::ToolKind::Search => paths(call, directory),
        _ => Subject::None,
    }
}

/// The shell command of a call's arguments: a text, or the words of one.
fn command(input: &Value) -> Option<String> {
    let given = input.get("command").or_else(|| input.get("cmd"))?;
    if let Some(text) = given.as_str() {
        return Some(text.to_owned()).filter(|text| !text.trim().is_empty());
    }
    let words: Vec<&str> = given.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    if words.len() == 1 { Some(quoted(words[0])) } else { line_of(&words) }
}

/// The command line of some words; a single one is a line already.
pub(super) fn line_of(words: &[&str]) -> Option<String> {
    match words {
        [] => None,
        [line] => Some((*line).to_owned()).filter(|line| !line.trim().is_empty()),
        // `bash -lc SCRIPT` is its script.
        [shell, flag, script] if is_shell(shell) && flag.starts_with('-') && flag.ends_with('c') => {
            Some((*script).to_owned())
        }
        words => Some(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")),
    }
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(name, "sh" | "bash" | "zsh" | "dash")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '=' | '+' | ',' | '@');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn paths(call: &acp::ToolCall, directory: &Path) -> Subject {
    let mut given: Vec<String> = call.locations.iter().map(|at| at.path.display().to_string()).collect();
    for content in &call.content {
        if let acp::ToolCallContent::Diff(diff) = content {
            given.push(diff.path.display().to_string());
        }
    }
    if let Some(input) = &call.raw_input {
        given.extend(PATH_KEYS.iter().filter_map(|key| input.get(key)?.as_str().map(str::to_owned)));
    }
    given.sort();
    given.dedup();
    // A workspace that reaches everywhere only says where a path really leads.
    let everywhere = Workspace::lenient(directory, &[PathBuf::from("/")]).ok();
    let resolve = |given: String| PathSubject {
        below: false,
        resolved: everywhere.as_ref().and_then(|all| all.resolve(&given).ok()),
        given,
    };
    Subject::Paths(given.into_iter().map(resolve).collect())
}
