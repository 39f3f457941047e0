//! What stands in a session's timeline, and how the items of its history and its events become that. Nothing here knows of the
//! terminal: events go in, entries come out.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::live::{Live, pieces};
use crate::base::text::tail;
use crate::protocol::{
    Event, EventBody, FileChange, Item, ItemBody, NoticeLevel, OpenCall, Part, Role, Snapshot, TurnId,
};

/// Longest preview of a call that is kept, in bytes.
const PREVIEW_MAX: usize = 60_000;

/// How a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    Running,
    Done,
    Failed,
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) state: CallState,
    pub(super) output: String,
    pub(super) findings: Vec<String>,
    pub(super) duration_ms: Option<u64>,
    /// Bytes of the preview that were left out.
    pub(super) skipped_bytes: u64,
    pub(super) pictures: usize,
}

/// What is shown.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    /// Somebody said something; into a turn that ran, where it `steers`.
    User {
        text: String,
        pictures: usize,
        steers: bool,
    },
    Assistant {
        text: String,
        reasoning: String,
    },
    Call(Box<Call>),
    Summary(String),
    Changes {
        files: Vec<FileChange>,
        count: u64,
    },
    Note {
        level: NoticeLevel,
        text: String,
    },
}

/// An entry of the timeline.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The event that it stands for; a fork begins there.
    pub(super) seq: u64,
    pub(super) turn: Option<TurnId>,
    pub(super) shown: Shown,
    /// Counts up when it changes: what was drawn of it is old then.
    pub(super) edition: u32,
}

/// The timeline of a session.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) entries: Vec<Entry>,
    /// Where calls stand that have not ended.
    open: HashMap<String, usize>,
    /// What the model says now.
    pub(super) live: Option<Live>,
    /// Asks for what lies further back.
    pub(super) before: Option<String>,
}

fn text_of(parts: &[Part]) -> String {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| if let Part::Text { text } = part { Some(text.as_str()) } else { None })
        .collect();
    texts.join("\n")
}

fn pictures_of(parts: &[Part]) -> usize {
    parts.iter().filter(|part| matches!(part, Part::Image { .. })).count()
}

fn opened(id: &str, name: &str, arguments: &Map<String, Value>) -> Call {
    Call {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.clone(),
        state: CallState::Running,
        output: String::new(),
        findings: Vec::new(),
        duration_ms: None,
        skipped_bytes: 0,
        pictures: 0,
    }
}

/// Entries of items of the history, the oldest first. A result whose call lies further back stands alone.
fn entries_of(items: &[Item]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::with_capacity(items.len());
    let mut calls: HashMap<&str, (usize, u64)> = HashMap::new();
    for item in items {
        let shown = match &item.body {
            ItemBody::Message { role: Role::User, content } => {
                Shown::User { text: text_of(content), pictures: pictures_of(content), steers: false }
            }
            ItemBody::Message { content, .. } => {
                let text = text_of(content);
                if text.is_empty() {
                    continue;
                }
                let mut pieces = pieces(&text);
                let last = pieces.pop().unwrap_or_default();
                for text in pieces {
                    let shown = Shown::Assistant { text, reasoning: String::new() };
                    entries.push(Entry { seq: item.seq, turn: item.turn_id.clone(), shown, edition: 0 });
                }
                Shown::Assistant { text: last, reasoning: String::new() }
            }
            ItemBody::ToolCall { call_id, name, arguments } => {
                calls.insert(call_id, (entries.len(), item.at));
                Shown::Call(Box::new(opened(call_id, name, arguments)))
            }
            ItemBody::ToolResult { call_id, name, output, is_error, parts, findings } => {
                let known = calls.get(call_id.as_str()).copied();
                let before = known.and_then(|(at, _)| entries.get(at)).and_then(|entry| match &entry.shown {
                    Shown::Call(call) => Some(call.as_ref().clone()),
                    _ => None,
                });
                let call = Call {
                    state: if *is_error { CallState::Failed } else { CallState::Done },
                    output: output.clone(),
                    findings: findings.clone(),
                    duration_ms: known.map(|(_, began)| item.at.saturating_sub(began)),
                    pictures: pictures_of(parts),
                    ..before.unwrap_or_else(|| opened(call_id, name, &Map::new()))
                };
                let shown = Shown::Call(Box::new(call));
                if let Some(entry) = known.and_then(|(at, _)| entries.get_mut(at)) {
                    entry.shown = shown;
                    continue;
                }
                shown
            }
            ItemBody::Summary { text, .. } => Shown::Summary(text.clone()),
        };
        entries.push(Entry { seq: item.seq, turn: item.turn_id.clone(), shown, edition: 0 });
    }
    entries
}

impl Timeline {
    /// What there is to draw: entries, and the parts of what the model says now.
    pub(super) fn parts(&self) -> usize {
        self.entries.len() + self.live.as_ref().filter(|live| !live.is_empty()).map_or(0, Live::parts)
    }

    /// The text of an answer, of which an entry may be a piece.
    pub(super) fn answer(&self, seq: u64) -> String {
        let pieces = self.entries.iter().filter(|entry| entry.seq == seq).filter_map(|entry| match &entry.shown {
            Shown::Assistant { text, .. } => Some(text.as_str()),
            _ => None,
        });
        pieces.collect()
    }

    /// The timeline as a snapshot has it.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut timeline =
            Self { entries: entries_of(&snapshot.items), before: snapshot.before.clone(), ..Self::default() };
        if let Some(underway) = &snapshot.open {
            for call in &underway.calls {
                timeline.resume(&underway.turn_id, call);
            }
            if underway.text.is_some() || underway.reasoning.is_some() {
                let (text, thought) = (underway.text.as_deref(), underway.reasoning.as_deref());
                timeline.live = Some(Live::begun(text.unwrap_or_default(), thought.unwrap_or_default()));
            }
        }
        timeline
    }

    /// A call of a turn that ran when we came.
    fn resume(&mut self, turn: &TurnId, open: &OpenCall) {
        let is_it = |entry: &Entry| matches!(&entry.shown, Shown::Call(call) if call.id == open.call_id);
        let at = self.entries.iter().rposition(is_it).unwrap_or_else(|| {
            let call = opened(&open.call_id, &open.name, &open.arguments);
            self.push(0, Some(turn.clone()), Shown::Call(Box::new(call)));
            self.entries.len() - 1
        });
        self.open.insert(open.call_id.clone(), at);
        self.change(&open.call_id, |call| {
            call.output.clone_from(&open.output);
            call.skipped_bytes = open.skipped_bytes;
        });
    }

    /// Puts what lies further back in front. How many entries there are more.
    pub(super) fn prepend(&mut self, mut items: Vec<Item>, before: Option<String>) -> usize {
        items.sort_by_key(|item| item.seq);
        let mut older = entries_of(&items);
        // A call whose result lies on the newer page is one entry.
        for entry in &mut older {
            let Shown::Call(call) = &mut entry.shown else { continue };
            if call.state != CallState::Running {
                continue;
            }
            let later = self.entries.iter().position(|e| matches!(&e.shown, Shown::Call(later) if later.id == call.id));
            if let Some(at) = later {
                let arguments = std::mem::take(&mut call.arguments);
                if let Shown::Call(later) = self.entries.remove(at).shown {
                    *call = later;
                    call.arguments = arguments;
                }
            }
        }
        let more = older.len();
        older.append(&mut self.entries);
        self.entries = older;
        self.before = before;
        self.open.clear();
        for (at, entry) in self.entries.iter().enumerate() {
            if let Shown::Call(call) = &entry.shown
                && call.state == CallState::Running
            {
                self.open.insert(call.id.clone(), at);
            }
        }
        more
    }

    fn push(&mut self, seq: u64, turn: Option<TurnId>, shown: Shown) {
        self.entries.push(Entry { seq, turn, shown, edition: 0 });
    }

    fn change(&mut self, id: &str, to: impl FnOnce(&mut Call)) {
        let entry = self.open.get(id).and_then(|at| self.entries.get_mut(*at));
        if let Some(Entry { shown: Shown::Call(call), edition, .. }) = entry {
            to(call);
            *edition += 1;
        }
    }

    /// Takes an event that is only about what the model says: those come in thousands. Whether it was one.
    pub(super) fn take_piece(&mut self, event: &Event) -> bool {
        #[derive(serde::Deserialize)]
        struct Piece {
            text: String,
        }
        let speaks = event.kind == "stream.delta";
        if !speaks && event.kind != "stream.reasoning" {
            return false;
        }
        if let Ok(piece) = serde_json::from_str::<Piece>(event.payload.get()) {
            let live = self.live.get_or_insert_default();
            if speaks { live.add(&piece.text) } else { live.reasoning.push_str(&piece.text) }
        }
        true
    }

    /// Takes an event.
    pub(super) fn take(&mut self, event: &Event, body: &EventBody) {
        let (seq, turn) = (event.seq, event.turn_id.clone());
        let note =
            |timeline: &mut Self, level, text: String| timeline.push(seq, turn.clone(), Shown::Note { level, text });
        match body {
            EventBody::SessionPrompt { task: Some(_), .. } => {}
            EventBody::SessionPrompt { prompt, parts, .. } | EventBody::SessionSteer { prompt, parts, .. } => {
                let steers = matches!(body, EventBody::SessionSteer { .. });
                let pictures = parts.as_deref().map_or(0, pictures_of);
                self.push(seq, turn, Shown::User { text: prompt.clone(), pictures, steers });
            }
            EventBody::StreamStart {} => self.live = Some(Live::default()),
            EventBody::StreamRetry { attempt, error, model, .. } => {
                self.live = Some(Live::default());
                let with = model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
                note(self, NoticeLevel::Warning, format!("Try {attempt}{with}: {error}"));
            }
            EventBody::StreamComplete { text, .. } => self.said((seq, turn), text),
            EventBody::ToolCallStart { call_id, name, args } => {
                self.open.insert(call_id.clone(), self.entries.len());
                self.push(seq, turn, Shown::Call(Box::new(opened(call_id, name, args))));
            }
            EventBody::ToolCallOutput { call_id, text, skipped_bytes, .. } => self.change(call_id, |call| {
                call.output.push_str(text);
                if call.output.len() > 2 * PREVIEW_MAX {
                    call.output = tail(&call.output, PREVIEW_MAX).to_owned();
                }
                call.skipped_bytes += skipped_bytes;
            }),
            EventBody::ToolCallEnd { call_id, output, is_error, duration_ms, parts, findings, .. } => {
                self.change(call_id, |call| {
                    call.state = if *is_error { CallState::Failed } else { CallState::Done };
                    call.output.clone_from(output);
                    call.findings.clone_from(findings);
                    call.duration_ms = Some(*duration_ms);
                    call.pictures = pictures_of(parts);
                    call.skipped_bytes = 0;
                });
                self.open.remove(call_id);
            }
            EventBody::TurnChanges(report) if report.file_count > 0 => {
                let (files, count) = (report.files.clone(), report.file_count);
                self.push(seq, turn, Shown::Changes { files, count });
            }
            EventBody::CompactionComplete { compaction, .. } => {
                self.push(seq, turn, Shown::Summary(compaction.summary.clone()));
            }
            EventBody::SessionError { error, .. } => {
                self.ended();
                note(self, NoticeLevel::Error, error.message.clone());
            }
            EventBody::Abort { reason, .. } => {
                self.ended();
                note(self, NoticeLevel::Info, format!("Stopped: {reason}"));
            }
            _ => {
                if let Some((level, text)) = told(body) {
                    note(self, level, text);
                }
            }
        }
    }

    /// The model has said all of it.
    fn said(&mut self, (seq, turn): (u64, Option<TurnId>), text: &str) {
        let mut reasoning = self.live.take().map(|live| live.reasoning).unwrap_or_default();
        if text.is_empty() && reasoning.is_empty() {
            return;
        }
        for text in pieces(text) {
            let reasoning = std::mem::take(&mut reasoning);
            self.push(seq, turn.clone(), Shown::Assistant { text, reasoning });
        }
    }

    /// A turn ended with what it had begun.
    fn ended(&mut self) {
        self.live = None;
        let open: Vec<String> = self.open.keys().cloned().collect();
        for id in open {
            self.change(&id, |call| call.state = CallState::Failed);
        }
        self.open.clear();
    }
}

/// Events that are told in a line.
fn told(body: &EventBody) -> Option<(NoticeLevel, String)> {
    let paths = |paths: &[String]| paths.join(", ");
    Some(match body {
        EventBody::ClientNotice { level, text, .. } => (*level, text.clone()),
        EventBody::CompactionFailed { error, .. } => {
            (NoticeLevel::Warning, format!("The conversation could not be summed up: {}", error.message))
        }
        EventBody::LoopDoomLoop { tool_name, call_count, .. } => {
            (NoticeLevel::Warning, format!("The same call of {tool_name} came {call_count} times."))
        }
        EventBody::BudgetWarning(notice) | EventBody::BudgetExceeded(notice) => (NoticeLevel::Warning, notice.words()),
        EventBody::ChangesUndone { paths: undone, .. } => (NoticeLevel::Info, format!("Undone: {}", paths(undone))),
        EventBody::ChangesRedone { paths: redone, .. } => (NoticeLevel::Info, format!("Done again: {}", paths(redone))),
        EventBody::TurnPaused { reason, .. } => (NoticeLevel::Info, format!("Paused. {reason}")),
        EventBody::TurnContinued { texts } => (NoticeLevel::Info, format!("Goes on: {}", texts.join(" "))),
        EventBody::SubagentStart(start) => {
            let who = start.name.as_deref().or(start.agent.as_deref()).unwrap_or("sub-agent");
            (NoticeLevel::Info, format!("Sub-agent {who} begins: {}", start.task))
        }
        EventBody::SubagentComplete(end) => {
            (NoticeLevel::Info, format!("Sub-agent {} is done after {} ms.", end.session_id, end.duration_ms))
        }
        EventBody::SubagentError(end) => {
            let why = end.error.as_ref().map_or("stopped", |error| error.message.as_str());
            (NoticeLevel::Warning, format!("Sub-agent {} failed: {why}", end.session_id))
        }
        _ => return None,
    })
}
