//! An agent's tool calls in our terms: names, arguments, outputs, and what a question about one is about.
//!
//! A call comes in pieces that are merged by its id. It is announced once there is something to tell: its
//! arguments, its start, or a question about it. Invariant: one start for each call, and at most one end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use agent_client_protocol::v1::schema as acp;
use serde_json::{Map, Value, json};

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
    calls: HashMap<String, Call>,
}

#[derive(Debug)]
struct Call {
    merged: acp::ToolCall,
    started: Option<Instant>,
    ended: bool,
}

impl Calls {
    pub fn new(server: &str, directory: &Path) -> Self {
        Self { server: server.to_owned(), directory: directory.to_owned(), calls: HashMap::new() }
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
        self.calls.insert(id.clone(), Call { merged: call, started: None, ended: false });
        self.advance(&id, false)
    }

    /// Takes what has changed of a call; an unknown one begins with it.
    pub fn update(&mut self, update: acp::ToolCallUpdate) -> Vec<AgentEvent> {
        let id = self.merge(update);
        self.advance(&id, false)
    }

    fn merge(&mut self, update: acp::ToolCallUpdate) -> String {
        let id = update.tool_call_id.to_string();
        let call = self.calls.entry(id.clone()).or_insert_with(|| {
            let title = update.fields.title.clone().unwrap_or_default();
            Call { merged: acp::ToolCall::new(update.tool_call_id.clone(), title), started: None, ended: false }
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
        if let Some(started) = call.started.filter(|_| over && !call.ended) {
            call.ended = true;
            let elapsed = started.elapsed().as_millis();
            events.push(AgentEvent::CallEnded(ToolCallResult {
                id: id.to_owned(),
                name: name(&self.server, &call.merged),
                output: output(&call.merged),
                is_error: failed,
                duration_ms: Some(u64::try_from(elapsed).unwrap_or(u64::MAX)),
                parts: images(&call.merged),
                details: changes(&call.merged),
            }));
            // What it held is told: of a long turn only the ids stay.
            call.merged.content = Vec::new();
            call.merged.raw_input = None;
            call.merged.raw_output = None;
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
fn output(call: &acp::ToolCall) -> String {
    let mut texts: Vec<String> = call.content.iter().filter_map(content_text).collect();
    if texts.is_empty() {
        texts.extend(call.raw_output.as_ref().filter(|raw| !raw.is_null()).map(|raw| match raw {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }));
    }
    bound_output(texts.join("\n"), limit::OUTPUT_CHARS_MAX)
}

fn content_text(content: &acp::ToolCallContent) -> Option<String> {
    match content {
        acp::ToolCallContent::Content(content) => Some(block_text(&content.content)),
        acp::ToolCallContent::Diff(diff) => Some(change(diff).0),
        // Terminals are not offered to agents, and what later versions know is not told as text.
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
    preview
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
    match words.as_slice() {
        [] => None,
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
