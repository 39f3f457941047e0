//! The events of a session as a client of the protocol is told them. Pure: events in, what is to be said out.
//!
//! The protocol adds to a message and never takes back. So when a model's stream breaks and begins anew, nothing is said as
//! long as the new text goes the way of the old one; where it leaves it, a new message begins, behind a notice that the one
//! before is void. Of a log that is told from the beginning, whole texts are told and what became void is not.
//!
//! Invariant: at the end of a round the client has been told its text exactly, the last message that is not void.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::beside::Beside;
use super::content::{block, text_block};
use super::params::Client;
use super::shown::{Tools, changes, content, locations, printed};
use crate::protocol::{ErrorBody, Event, EventBody, NoticeLevel, Part, RequestId, TurnId};

/// Of what a running call has printed so much is shown, in bytes: its end.
const PRINTED_BYTES_MAX: usize = 8 << 10;
const PRUNED: &str = "The conversation did not fit into the model's window: old outputs are no longer shown to it.";

/// What is to be said or done.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// An update of the session.
    Update(Value),
    /// A question was put.
    Asked(Box<EventBody>, Option<TurnId>),
    /// A question is over.
    Answered(RequestId),
    /// Its settings are others.
    Configured,
    /// A turn begins: what was asked, unless whoever asked knows.
    Begun(TurnId, Vec<Value>),
    /// A message was put into a turn.
    Steered(String, Vec<Value>),
    /// A turn has ended.
    Ended(TurnId, TurnEnd),
}

/// How a turn ended, as far as its last event tells.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TurnEnd {
    /// By itself.
    Completed,
    /// By an error.
    Failed(ErrorBody),
    /// By a client, or by a stop.
    Stopped,
}

/// What a message has said so far.
#[derive(Debug, Default)]
struct Message {
    id: String,
    /// What the client was shown.
    shown: String,
    /// What counts now.
    text: String,
    /// What is shown and not sent yet.
    unsent: String,
}

/// A call that runs.
#[derive(Debug, Default)]
struct Running {
    printed: String,
    is_execute: bool,
    /// Something of what it printed was shown as a terminal's.
    terminal: bool,
}

/// Tells of a session.
pub(super) struct Teller {
    client: Client,
    directory: PathBuf,
    tools: Tools,
    /// The log is told from its beginning, up to here.
    replay_until: u64,
    replaying: bool,
    answer: Message,
    thought: Message,
    calls: HashMap<String, Running>,
    /// Calls that have printed something that was not shown yet.
    printing: Vec<String>,
    /// What is told beside the conversation.
    pub(super) beside: Beside,
    out: Vec<Said>,
}

/// The question that has its end.
fn answered(response: &EventBody) -> Option<Said> {
    match response {
        EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } => {
            Some(Said::Answered(request_id.clone()))
        }
        _ => None,
    }
}

impl Teller {
    /// One that tells a log whose events up to `replay_until` are past.
    pub(super) fn new(client: Client, (directory, tools): (PathBuf, Tools), replay_until: u64) -> Self {
        Self {
            client,
            directory,
            tools,
            replay_until,
            replaying: replay_until > 0,
            answer: Message::default(),
            thought: Message::default(),
            calls: HashMap::new(),
            printing: Vec::new(),
            beside: Beside::default(),
            out: Vec::new(),
        }
    }

    /// What is to be said of some events that follow each other.
    pub(super) fn tell<'e>(&mut self, events: impl Iterator<Item = &'e Event>) -> Vec<Said> {
        for event in events {
            if self.replaying && event.seq > self.replay_until {
                self.catch_up();
            }
            if let Some(update) = self.beside.take(self.client, event) {
                self.flush();
                self.update(update);
            }
            if let Some(body) = event.body() {
                self.take(event, body);
            }
            if self.replaying && event.seq >= self.replay_until {
                self.catch_up();
            }
        }
        self.flush();
        std::mem::take(&mut self.out)
    }

    /// What is past is told: of what is under way, what there is so far.
    fn catch_up(&mut self) {
        self.replaying = false;
        for message in [&mut self.thought, &mut self.answer] {
            message.unsent = message.text.clone();
            message.shown = message.text.clone();
        }
        self.flush();
    }

    fn update(&mut self, update: Value) {
        self.out.push(Said::Update(update));
    }

    /// Says the text that waits to be said, in front of whatever comes next.
    fn flush(&mut self) {
        if self.replaying {
            return;
        }
        for (kind, message) in [("agent_thought_chunk", &mut self.thought), ("agent_message_chunk", &mut self.answer)] {
            if !message.unsent.is_empty() {
                let text = std::mem::take(&mut message.unsent);
                self.out.push(Said::Update(chunk(kind, &message.id, text_block(&text))));
            }
        }
        for id in std::mem::take(&mut self.printing) {
            self.print(&id);
        }
    }

    fn take(&mut self, event: &Event, body: EventBody) {
        let is_piece = matches!(
            body,
            EventBody::StreamDelta { .. } | EventBody::StreamReasoning { .. } | EventBody::ToolCallOutput { .. }
        );
        if !is_piece {
            self.flush();
        }
        let call = |id: &str| call_id(event.turn_id.as_ref(), id);
        match body {
            EventBody::SessionPrompt { prompt, parts, .. } => {
                if let Some(turn) = event.turn_id.clone() {
                    self.out.push(Said::Begun(turn, user(event.seq, prompt, parts)));
                }
            }
            EventBody::SessionSteer { prompt, parts, .. } => {
                self.out.push(Said::Steered(prompt.clone(), user(event.seq, prompt, parts)));
            }
            EventBody::SessionCompleted { .. } => self.ended(event, TurnEnd::Completed),
            EventBody::SessionError { error, .. } => self.ended(event, TurnEnd::Failed(error)),
            EventBody::Abort { .. } => self.ended(event, TurnEnd::Stopped),
            EventBody::SessionConfigured(_) => self.out.push(Said::Configured),
            EventBody::StreamStart {} => self.begin(event.seq),
            EventBody::StreamDelta { text } => self.text(event.seq, &text),
            EventBody::StreamReasoning { text } => self.think(&text),
            EventBody::StreamRetry { .. } => self.retry(event.seq),
            EventBody::StreamComplete { text, .. } => self.complete(event.seq, text),
            EventBody::ToolCallStart { call_id, name, args } => self.start(call(&call_id), name, args),
            EventBody::ToolCallOutput { call_id, text, .. } => self.printed(call(&call_id), &text),
            EventBody::ToolCallEnd { call_id, output, is_error, parts, details, duration_ms, .. } => {
                self.end(call(&call_id), (output, is_error), (parts, details, duration_ms));
            }
            EventBody::PermissionRequest { .. } | EventBody::ClientRequest { .. } => {
                self.out.push(Said::Asked(Box::new(body), event.turn_id.clone()));
            }
            EventBody::PermissionResponse { request_id, call_id, allowed, .. } => {
                self.out.push(Said::Answered(request_id));
                if allowed {
                    let id = call(&call_id);
                    self.update(
                        json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress" }),
                    );
                }
            }
            EventBody::ClientResponse { request_id, .. } => self.out.push(Said::Answered(request_id)),
            // It is answered here as if this session asked.
            EventBody::SubagentRequest(asked) => self.out.push(Said::Asked(asked.request, event.turn_id.clone())),
            EventBody::SubagentResponse(ended) => self.out.extend(answered(&ended.response)),
            EventBody::ClientNotice { level, text, .. } => self.notice(level, &text, None),
            EventBody::LoopDoomLoop { tool_name, call_count, .. } => {
                let words = format!("The call of {tool_name} came {call_count} times in a row and was not run again.");
                self.notice(NoticeLevel::Warning, &words, None);
            }
            EventBody::CompactionComplete { .. } => {
                let words = "The conversation was summed up: the model is shown the summary and the newest messages.";
                self.notice(NoticeLevel::Info, words, None);
            }
            EventBody::CompactionFailed { error, .. } => {
                let words = format!("The conversation could not be summed up: {}", error.message);
                self.notice(NoticeLevel::Warning, &words, None);
            }
            EventBody::TurnContinued { texts } => self.goes_on(&texts),
            EventBody::CompactionPrune { .. } => self.notice(NoticeLevel::Info, PRUNED, None),
            EventBody::ChangesUndone { paths, .. } => self.changed("Undone", &paths),
            EventBody::ChangesRedone { paths, .. } => self.changed("Done again", &paths),
            // How a session came to be, how turns wait and hold, and what stands on screens: no update is for that.
            _ => {}
        }
    }

    fn ended(&mut self, event: &Event, end: TurnEnd) {
        self.out.extend(event.turn_id.clone().map(|turn| Said::Ended(turn, end)));
    }

    /// Hooks have made the turn go on.
    fn goes_on(&mut self, texts: &[String]) {
        self.notice(NoticeLevel::Info, &format!("The turn goes on, as a hook says: {}", texts.join(" ")), None);
    }

    fn changed(&mut self, what: &str, paths: &[String]) {
        self.notice(NoticeLevel::Info, &format!("{what}: what turns did to {}.", paths.join(", ")), None);
    }

    /// Something beside the conversation. Where the client shows no notices it is a thought, or, of a message that is void,
    /// part of what comes in its place: that must not be missed.
    fn notice(&mut self, level: NoticeLevel, text: &str, voids: Option<&str>) {
        if self.replaying {
            return;
        }
        let severity = match level {
            NoticeLevel::Info => "info",
            NoticeLevel::Warning => "warning",
            NoticeLevel::Error => "error",
        };
        let mut update = match (self.client.notices, voids) {
            (true, _) => json!({ "sessionUpdate": "notice", "severity": severity, "title": text }),
            (false, None) => chunk("agent_thought_chunk", &self.thought.id, text_block(&format!("[{text}]\n"))),
            (false, Some(_)) => chunk("agent_message_chunk", &self.answer.id, text_block(&format!("[{text}]\n\n"))),
        };
        if let Some(voids) = voids {
            update["_meta"] = json!({ "simse": { "voids": voids } });
        }
        self.update(update);
    }
}

/// Rounds with the model.
impl Teller {
    fn begin(&mut self, seq: u64) {
        self.answer = Message { id: format!("message-{seq}"), ..Message::default() };
        self.thought = Message { id: format!("thought-{seq}"), ..Message::default() };
    }

    fn text(&mut self, seq: u64, piece: &str) {
        self.answer.text.push_str(piece);
        if self.replaying {
            return;
        }
        self.settle(seq);
    }

    fn think(&mut self, piece: &str) {
        // What is thought comes before what is said.
        if !self.answer.unsent.is_empty() {
            self.flush();
        }
        self.thought.text.push_str(piece);
        if !self.replaying {
            self.thought.unsent.push_str(piece);
        }
    }

    /// What came so far is void; what was shown of it stands there.
    fn retry(&mut self, seq: u64) {
        self.answer.text.clear();
        let id = format!("thought-{seq}");
        self.thought = Message { id, ..Message::default() };
    }

    /// Shows what is new of the text, or begins a new message where it is not the one that was begun.
    fn settle(&mut self, seq: u64) {
        let Message { shown, text, .. } = &self.answer;
        if shown.starts_with(text.as_str()) {
            return;
        }
        if !text.starts_with(shown.as_str()) {
            self.replace(seq);
        }
        let Message { shown, text, unsent, .. } = &mut self.answer;
        let more = text.get(shown.len()..).unwrap_or_default();
        unsent.push_str(more);
        shown.push_str(more);
    }

    fn replace(&mut self, seq: u64) {
        self.flush();
        let void = std::mem::replace(&mut self.answer.id, format!("message-{seq}"));
        self.answer.shown.clear();
        let words = "The model's answer broke off and begins anew; what stood here of it before is void.";
        self.notice(NoticeLevel::Warning, words, Some(&void));
    }

    fn complete(&mut self, seq: u64, text: String) {
        self.answer.text = text;
        if self.replaying {
            for (kind, message) in [("agent_thought_chunk", &self.thought), ("agent_message_chunk", &self.answer)] {
                if !message.text.is_empty() {
                    self.out.push(Said::Update(chunk(kind, &message.id, text_block(&message.text))));
                }
            }
        } else {
            if self.answer.text.len() < self.answer.shown.len() {
                self.replace(seq);
            }
            self.settle(seq);
            self.flush();
        }
        for message in [&mut self.answer, &mut self.thought] {
            let id = std::mem::take(&mut message.id);
            *message = Message { id, ..Message::default() };
        }
    }
}

/// Calls.
impl Teller {
    fn start(&mut self, id: String, name: String, args: Map<String, Value>) {
        let kind = self.tools.kind(&name);
        let is_execute = kind == "execute";
        let mut update = json!({
            "sessionUpdate": "tool_call",
            "toolCallId": id,
            "title": self.tools.title(&name, &args),
            "name": name,
            "kind": kind,
            "status": "in_progress",
            "locations": locations(&self.directory, &args),
            "rawInput": args,
        });
        let terminal = is_execute && self.client.terminals;
        if terminal {
            update["content"] = json!([{ "type": "terminal", "terminalId": id }]);
            update["_meta"] = json!({ "terminal_info": { "terminal_id": id, "cwd": self.directory } });
        }
        self.update(update);
        self.calls.insert(id, Running { is_execute, terminal, ..Running::default() });
    }

    fn printed(&mut self, id: String, text: &str) {
        if self.replaying {
            return;
        }
        let running = self.calls.entry(id.clone()).or_default();
        running.printed.push_str(text);
        if running.terminal {
            let data = std::mem::take(&mut running.printed);
            let meta = json!({ "terminal_output": { "terminal_id": id, "data": data } });
            self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "_meta": meta }));
            return;
        }
        if let Some(cut) = running.printed.len().checked_sub(PRINTED_BYTES_MAX) {
            let from = running.printed.ceil_char_boundary(cut);
            running.printed.drain(..from);
        }
        if !self.printing.contains(&id) {
            self.printing.push(id);
        }
    }

    fn print(&mut self, id: &str) {
        let Some(text) = self.calls.get(id).map(|running| printed(&running.printed)) else { return };
        self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "content": [text] }));
    }

    fn end(
        &mut self,
        id: String,
        (output, is_error): (String, bool),
        (parts, details, duration_ms): (Vec<Part>, Option<Value>, u64),
    ) {
        let running = self.calls.remove(&id).unwrap_or_default();
        self.printing.retain(|one| *one != id);
        let mut update = json!({
            "sessionUpdate": "tool_call_update",
            "toolCallId": id,
            "status": if is_error { "failed" } else { "completed" },
        });
        let changed = details.as_ref().map(|details| changes(&self.directory, details)).unwrap_or_default();
        let mut blocks = changed;
        if blocks.is_empty() && !output.is_empty() {
            let text = if running.is_execute { printed(&output) } else { content(text_block(&output)) };
            blocks.push(text);
        }
        blocks.extend(parts.iter().map(|part| content(block(part))));
        update["_meta"] = json!({ "simse": { "durationMs": duration_ms } });
        if running.terminal {
            // The whole is what counts; the terminal keeps what was drawn.
            let code = (!is_error).then_some(0);
            update["_meta"]["terminal_exit"] = json!({ "terminal_id": id, "exit_code": code, "signal": null });
            blocks.insert(0, json!({ "type": "terminal", "terminalId": id }));
        }
        update["content"] = blocks.into();
        self.update(update);
    }

    /// A call as a question about it shows it.
    pub(super) fn question(
        &self,
        (id, name): (&str, &str),
        args: &Map<String, Value>,
        preview: Option<&Value>,
    ) -> Value {
        let mut call = json!({
            "toolCallId": id,
            "title": self.tools.title(name, args),
            "name": name,
            "kind": self.tools.kind(name),
            "status": "pending",
            "locations": locations(&self.directory, args),
            "rawInput": args,
        });
        let blocks = preview.map(|preview| changes(&self.directory, preview)).unwrap_or_default();
        if !blocks.is_empty() {
            call["content"] = blocks.into();
        }
        call
    }
}

/// A call's id in the protocol: those of models are told apart within a turn alone.
pub(super) fn call_id(turn: Option<&TurnId>, call: &str) -> String {
    turn.map_or_else(|| call.to_owned(), |turn| format!("{turn}:{call}"))
}

fn chunk(kind: &str, id: &str, content: Value) -> Value {
    let mut chunk = json!({ "sessionUpdate": kind, "content": content });
    if !id.is_empty() {
        chunk["messageId"] = id.into();
    }
    chunk
}

/// What a person said, as updates.
fn user(seq: u64, prompt: String, parts: Option<Vec<Part>>) -> Vec<Value> {
    let parts = parts.unwrap_or_else(|| vec![Part::Text { text: prompt }]);
    let id = format!("user-{seq}");
    parts.iter().map(|part| chunk("user_message_chunk", &id, block(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bodies: &[Value]) -> Vec<Event> {
        let event = |(at, body): (usize, &Value)| {
            let body: EventBody = serde_json::from_value(body.clone()).expect("an event");
            let (kind, payload) = body.encode();
            let turn_id = Some("turn_1".parse().expect("an id"));
            let session_id = "ses_1".parse().expect("an id");
            Event { seq: at as u64 + 1, kind: kind.into(), payload, session_id, turn_id, at: 0 }
        };
        bodies.iter().enumerate().map(event).collect()
    }

    fn teller(client: Client, replay_until: u64) -> Teller {
        Teller::new(client, ("/w".into(), Tools::default()), replay_until)
    }

    /// What is told of events that come one by one, in short.
    fn told(client: Client, bodies: &[Value], replay_until: u64) -> Vec<String> {
        let mut teller = teller(client, replay_until);
        let said: Vec<Said> = events(bodies).iter().flat_map(|event| teller.tell(std::iter::once(event))).collect();
        said.iter().map(short).collect()
    }

    fn short(said: &Said) -> String {
        match said {
            Said::Update(update) => {
                let kind = update["sessionUpdate"].as_str().unwrap_or_default();
                let id = update["messageId"].as_str().or(update["toolCallId"].as_str()).unwrap_or_default();
                let text = update["content"]["text"].as_str().or(update["status"].as_str());
                let voids = update["_meta"]["simse"]["voids"].as_str().unwrap_or_default();
                [kind, id, text.unwrap_or_default(), voids].join("|").trim_end_matches('|').to_owned()
            }
            other => format!("{other:?}"),
        }
    }

    fn delta(text: &str) -> Value {
        json!({ "type": "stream.delta", "payload": { "text": text } })
    }

    fn complete(text: &str) -> Value {
        json!({ "type": "stream.complete", "payload": { "text": text } })
    }

    fn start() -> Value {
        json!({ "type": "stream.start", "payload": {} })
    }

    fn retry() -> Value {
        json!({ "type": "stream.retry", "payload": { "attempt": 2, "delayMs": 0, "error": "cut" } })
    }

    fn thought(text: &str) -> Value {
        json!({ "type": "stream.reasoning", "payload": { "text": text } })
    }

    const VOID: &str = "The model's answer broke off and begins anew; what stood here of it before is void.";

    #[test]
    fn what_became_void_is_said_where_it_was_shown() {
        let m = |n: u32, text: &str| format!("agent_message_chunk|message-{n}|{text}");
        let void = |n: u32, old: u32| format!("agent_message_chunk|message-{n}|[{VOID}]\n\n|message-{old}");
        #[rustfmt::skip]
        let table: [(&str, Vec<Value>, Vec<String>); 9] = [
            ("goes the same way", vec![start(), delta("ab"), retry(), delta("a"), delta("bc"), complete("abc")], vec![m(1, "ab"), m(1, "c")]),
            ("goes another way", vec![start(), delta("ab"), retry(), delta("a"), delta("x"), complete("ax")], vec![m(1, "ab"), void(5, 1), m(5, "ax")]),
            ("ends sooner", vec![start(), delta("ab"), retry(), delta("a"), complete("a")], vec![m(1, "ab"), void(5, 1), m(5, "a")]),
            ("says nothing more", vec![start(), delta("ab"), retry(), complete("")], vec![m(1, "ab"), void(4, 1)]),
            ("nothing was shown", vec![start(), retry(), delta("a"), complete("a")], vec![m(1, "a")]),
            ("the same again", vec![start(), delta("a"), retry(), delta("a"), complete("a")], vec![m(1, "a")]),
            ("breaks twice", vec![start(), delta("a"), retry(), delta("b"), retry(), delta("bc"), complete("bc")], vec![m(1, "a"), void(4, 1), m(4, "b"), m(4, "c")]),
            ("no pieces", vec![start(), complete("abc")], vec![m(1, "abc")]),
            ("the whole is another", vec![start(), delta("a"), complete("b")], vec![m(1, "a"), void(3, 1), m(3, "b")]),
        ];
        for (name, bodies, want) in table {
            assert_eq!(told(Client::default(), &bodies, 0), want, "{name}");
        }
        let notices = Client { notices: true, ..Client::default() };
        let seen = told(notices, &[start(), delta("a"), retry(), delta("b"), complete("b")], 0);
        assert_eq!(seen, [m(1, "a"), "notice|||message-1".to_owned(), m(4, "b")]);
    }

    #[test]
    fn a_past_that_is_told_again_has_nothing_void() {
        let bodies = [start(), thought("x"), delta("a"), retry(), thought("y"), delta("b"), complete("b")];
        let whole = ["agent_thought_chunk|thought-4|y", "agent_message_chunk|message-1|b"];
        assert_eq!(told(Client::default(), &bodies, 7), whole);
        // It is in the middle of a message, which goes on.
        let open = [start(), thought("x"), delta("a"), delta("b"), complete("ab")];
        let want =
            ["agent_thought_chunk|thought-1|x", "agent_message_chunk|message-1|a", "agent_message_chunk|message-1|b"];
        assert_eq!(told(Client::default(), &open, 3), want);
    }

    #[test]
    fn pieces_that_come_together_are_told_together() {
        let all = events(&[start(), thought("a"), thought("b"), delta("c"), delta("d"), thought("e"), complete("cd")]);
        let said: Vec<String> = teller(Client::default(), 0).tell(all.iter()).iter().map(short).collect();
        let want =
            ["agent_thought_chunk|thought-1|ab", "agent_message_chunk|message-1|cd", "agent_thought_chunk|thought-1|e"];
        assert_eq!(said, want);
    }

    #[test]
    fn why_a_turn_goes_on_is_told() {
        let goes_on = json!({ "type": "turn.continued", "payload": { "texts": ["run", "the tests"] } });
        let seen = told(Client::default(), &[start(), delta("a"), complete("a"), goes_on], 0);
        let [said, why] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!(said, "agent_message_chunk|message-1|a");
        assert!(why.contains("[The turn goes on, as a hook says: run the tests]"), "{why}");
    }

    #[test]
    fn a_command_shows_what_it_prints_until_it_has_ended() {
        let tool = crate::protocol::ToolDefinition {
            category: Some(crate::protocol::ToolCategory::Execute),
            ..crate::protocol::ToolDefinition::new("bash", "", Map::new())
        };
        let begin = json!({ "type": "tool.call.start", "payload": { "callId": "c", "name": "bash", "args": { "command": "x" } } });
        let output = |text: &str| json!({ "type": "tool.call.output", "payload": { "callId": "c", "name": "bash", "text": text } });
        let end = json!({ "type": "tool.call.end", "payload": { "callId": "c", "name": "bash", "output": "all", "isError": true, "durationMs": 1 } });
        let long = "x".repeat(PRINTED_BYTES_MAX);
        let all = events(&[begin, output("a"), output(&long), end]);
        let told = |client: Client| -> Vec<Value> {
            let mut teller = Teller::new(client, ("/w".into(), Tools::new(vec![tool.clone()])), 0);
            let said = all.iter().flat_map(|event| teller.tell(std::iter::once(event)));
            let update = |said| if let Said::Update(update) = said { Some(update) } else { None };
            said.filter_map(update).collect()
        };
        let plain = told(Client::default());
        assert_eq!(plain[1]["content"][0]["content"]["text"], "```\na\n```");
        assert_eq!(plain[2]["content"][0]["content"]["text"], format!("```\n{long}\n```"), "its end");
        assert_eq!(
            (&plain[3]["status"], &plain[3]["content"][0]["content"]["text"]),
            (&json!("failed"), &json!("```\nall\n```"))
        );
        let drawn = told(Client { terminals: true, ..Client::default() });
        assert_eq!(drawn[0]["content"][0]["type"], "terminal");
        assert_eq!(drawn[1]["_meta"]["terminal_output"]["data"], "a");
        assert_eq!(drawn[3]["_meta"]["terminal_exit"]["exit_code"], Value::Null);
    }
}
