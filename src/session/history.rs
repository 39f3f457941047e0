//! The history as a view of the log: items for readers, messages for the model.
//!
//! Pure: events in, views out. The log is the truth, so nothing here is stored:
//! `session.prompt` and `session.steer` are what the user said, `turn.continued` what hooks said at the end of a turn, `stream.complete` what the model
//! said, `tool.call.start` and `tool.call.end` its calls, what came of them and what hooks found in that.
//! `compaction.complete` puts a summary in the place of what the model is no longer shown; readers see all of it.
//! Deltas are previews and are passed over.
//!
//! Invariant of [`Rebuild::finish`]: each call has exactly one result, behind the message that made
//! it and in the order of the calls; what a crash left open gets a synthetic one. Old outputs are blanked at the places where they
//! were when the turns ran: before each request, which `stream.start` marks, and each summary (`compaction.start`).

use std::collections::HashMap;
use std::sync::Arc;

use crate::context::{Pruner, bound_images, has_too_many_images, heard_of, shorten_to};
use crate::model::{AgentSession, ERRANDS_MODEL_ID, Messages};
use crate::protocol::{
    Event, EventBody, HeldCall, Item, ItemBody, Message, Original, Part, Role, ToolCallRequest, TurnSettings,
};

/// What the model is told of a call that has no result.
const INTERRUPTED: &str = "The call was interrupted and has no result.";

/// Whether an event of this type is part of the history.
pub fn is_item(kind: &str) -> bool {
    matches!(
        kind,
        "session.prompt"
            | "session.steer"
            | "turn.continued"
            | "stream.complete"
            | "tool.call.start"
            | "tool.call.end"
            | "compaction.complete"
    )
}

/// The history entries among events, in their order.
pub fn items(events: &[Event]) -> Vec<Item> {
    let bodies = events.iter().filter(|event| is_item(&event.kind)).filter_map(|event| Some((event, event.body()?)));
    bodies
        .filter_map(|(event, body)| {
            let body = item_body(body)?;
            Some(Item { seq: event.seq, turn_id: event.turn_id.clone(), at: event.at, body })
        })
        .collect()
}

fn item_body(body: EventBody) -> Option<ItemBody> {
    match body {
        EventBody::SessionPrompt { task: Some(_), .. } => None,
        EventBody::CompactionComplete { compaction, .. } => {
            Some(ItemBody::Summary { text: compaction.summary, kept: compaction.kept })
        }
        EventBody::SessionPrompt { prompt, parts, .. } | EventBody::SessionSteer { prompt, parts, .. } => {
            Some(ItemBody::Message { role: Role::User, content: content(prompt, parts) })
        }
        EventBody::TurnContinued { texts } => Some(ItemBody::Message { role: Role::User, content: text_parts(texts) }),
        EventBody::StreamComplete { text, .. } if text.is_empty() => None,
        EventBody::StreamComplete { text, .. } => {
            Some(ItemBody::Message { role: Role::Assistant, content: vec![Part::Text { text }] })
        }
        EventBody::ToolCallStart { call_id, name, args } => Some(ItemBody::ToolCall { call_id, name, arguments: args }),
        EventBody::ToolCallEnd { call_id, name, output, is_error, parts, findings, .. } => {
            Some(ItemBody::ToolResult { call_id, name, output, is_error, parts, findings })
        }
        _ => None,
    }
}

fn content(prompt: String, parts: Option<Vec<Part>>) -> Vec<Part> {
    parts.unwrap_or_else(|| vec![Part::Text { text: prompt }])
}

fn text_parts(texts: Vec<String>) -> Vec<Part> {
    texts.into_iter().map(|text| Part::Text { text }).collect()
}

/// What a turn starts from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// What was said and done, oldest first.
    pub messages: Messages,
    /// The session that an agent keeps for this one.
    pub agent: Option<AgentSession>,
}

/// Builds the conversation of a session from its log, event by event.
#[derive(Debug, Default)]
pub struct Rebuild {
    messages: Vec<Message>,
    pruner: Pruner,
    /// What a turn of a client's calls is about: said when there is one in it.
    about: Option<Message>,
    round: Option<Round>,
    agent: Option<AgentSession>,
    /// The turn that is read was answered by that agent: it has heard all of it.
    agents_turn: bool,
}

/// What the model said in one round, and what came of its calls so far.
#[derive(Debug, Default)]
struct Round {
    text: String,
    original: Option<Arc<Original>>,
    calls: Vec<ToolCallRequest>,
    results: HashMap<String, Outcome>,
}

/// What came of a call.
#[derive(Debug)]
struct Outcome {
    output: String,
    is_error: bool,
    parts: Vec<Part>,
    findings: Vec<String>,
}

impl Outcome {
    fn interrupted() -> Self {
        Self { output: INTERRUPTED.to_owned(), is_error: true, parts: Vec::new(), findings: Vec::new() }
    }

    /// Adds the result of a call, and gives what hooks found about it.
    fn into_message(self, call: ToolCallRequest, messages: &mut Vec<Message>) -> impl Iterator<Item = Part> + use<> {
        let Self { output, is_error, parts, findings } = self;
        messages.push(Message::ToolResult { call_id: call.id, name: call.name, output, is_error, parts });
        findings.into_iter().map(|text| Part::Text { text })
    }
}

impl Rebuild {
    /// Takes in the next event of the log.
    pub fn push(&mut self, event: &Event) {
        let told = matches!(
            event.kind.as_ref(),
            "agent.session"
                | "changes.undone"
                | "changes.redone"
                | "session.forked"
                | "stream.start"
                | "compaction.start"
        );
        if (is_item(&event.kind) || told)
            && let Some(body) = event.body()
        {
            self.take(body);
        }
    }

    fn take(&mut self, body: EventBody) {
        if matches!(body, EventBody::SessionPrompt { .. }) {
            self.close_turn();
        }
        match body {
            EventBody::AgentSession { model, agent_session_id } => {
                self.agent = Some(AgentSession { agent: model, id: agent_session_id, messages: 0, fork_of: None });
                self.agents_turn = true;
            }
            // It does something else than to answer a prompt.
            EventBody::SessionPrompt { task: Some(_), .. } => {}
            EventBody::CompactionComplete { compaction, .. } => {
                self.close_round();
                if let Some(agent) = &mut self.agent {
                    agent.messages = heard_of(&compaction, (agent.messages, self.messages.len()));
                }
                shorten_to(&mut self.messages, &compaction);
                self.pruner = Pruner::default();
            }
            EventBody::SessionPrompt { prompt, parts, turn: Some(only), .. } if is_of_calls(&only) => {
                self.about = Some(Message::User(content(prompt, parts)));
            }
            EventBody::SessionPrompt { prompt, parts, .. } | EventBody::SessionSteer { prompt, parts, .. } => {
                self.close_round();
                self.messages.push(Message::User(content(prompt, parts)));
            }
            EventBody::TurnContinued { texts } => {
                self.close_round();
                self.messages.push(Message::User(text_parts(texts)));
            }
            EventBody::SessionForked { parent_session_id, at, .. } => {
                self.close_turn();
                // The agent's session is the other one's. Where the other has said more in it, the fork would hear that.
                let whole = self.messages.len();
                let agent = self.agent.take().filter(|agent| agent.messages == whole);
                self.agent = agent.map(|agent| {
                    let fork_of = agent.fork_of.or(Some((parent_session_id, at)));
                    AgentSession { fork_of, ..agent }
                });
            }
            EventBody::ChangesUndone { paths, path_count, .. } => {
                self.close_turn();
                self.messages.push(told_of("undid", (&paths, path_count)));
            }
            EventBody::ChangesRedone { paths, path_count, .. } => {
                self.close_turn();
                self.messages.push(told_of("redid", (&paths, path_count)));
            }
            EventBody::StreamStart {} | EventBody::CompactionStart { .. } => self.prune(),
            EventBody::StreamComplete { text, original } => {
                self.close_round();
                self.round = Some(Round { text, original, ..Round::default() });
            }
            EventBody::ToolCallStart { call_id, name, args } => {
                self.messages.extend(self.about.take());
                let call = ToolCallRequest { id: call_id, name, arguments: args };
                self.round.get_or_insert_default().calls.push(call);
            }
            EventBody::ToolCallEnd { call_id, output, is_error, parts, findings, .. } => {
                let round = self.round.as_mut().filter(|round| round.calls.iter().any(|call| call.id == call_id));
                match round {
                    Some(round) => drop(round.results.insert(call_id, Outcome { output, is_error, parts, findings })),
                    None => self.late_result(&call_id, output, is_error),
                }
            }
            _ => {}
        }
    }

    fn close_round(&mut self) {
        let Some(Round { text, original, calls, mut results }) = self.round.take() else { return };
        let paused = original.as_ref().is_some_and(|original| original.paused);
        if text.trim().is_empty() && calls.is_empty() && !paused {
            return;
        }
        self.messages.push(Message::Assistant { text, calls: calls.clone(), original });
        let mut found = Vec::new();
        for call in calls {
            let outcome = results.remove(&call.id).unwrap_or_else(Outcome::interrupted);
            found.extend(outcome.into_message(call, &mut self.messages));
        }
        if has_too_many_images(&self.messages) {
            bound_images(&mut self.messages);
            self.pruner = Pruner::default();
        }
        if !found.is_empty() {
            self.messages.push(Message::User(found));
        }
    }

    /// The result of a call whose round is closed: an agent's calls may outlast it.
    fn late_result(&mut self, id: &str, text: String, failed: bool) {
        let turn = self.messages.iter_mut().rev().take_while(|message| !matches!(message, Message::User(_)));
        for message in turn {
            if let Message::ToolResult { call_id, output, is_error, .. } = message
                && call_id == id
            {
                (*output, *is_error) = (text, failed);
                self.pruner = Pruner::default();
                return;
            }
        }
    }

    /// Blanks old outputs, as the turn did before it asked the model. An agent is not asked so, and its calls may still be open.
    fn prune(&mut self) {
        let is_open = |round: &Round| round.calls.iter().any(|call| !round.results.contains_key(&call.id));
        if !self.agents_turn && !self.round.as_ref().is_some_and(is_open) {
            self.close_round();
            self.pruner.prune(&mut self.messages);
        }
    }

    fn close_turn(&mut self) {
        self.close_round();
        self.about = None;
        if let Some(agent) = self.agent.as_mut().filter(|_| self.agents_turn) {
            agent.messages = self.messages.len();
        }
        self.agents_turn = false;
    }

    /// The conversation.
    pub fn finish(mut self) -> Conversation {
        self.close_turn();
        Conversation { messages: self.messages.into(), agent: self.agent }
    }

    /// The conversation of a turn that was paused before these calls of its last reply: they stand in it, without results.
    /// Also what hooks found about the calls before them; it comes behind the last result.
    pub fn finish_held(mut self, held: &[HeldCall]) -> (Conversation, Vec<Part>) {
        if held.is_empty() {
            return (self.finish(), Vec::new());
        }
        let Round { text, original, calls, mut results } = self.round.take().unwrap_or_default();
        let all = calls.iter().chain(held.iter().map(|call| &call.request)).cloned().collect();
        self.messages.push(Message::Assistant { text, calls: all, original });
        let mut found = Vec::new();
        for call in calls {
            let outcome = results.remove(&call.id).unwrap_or_else(Outcome::interrupted);
            found.extend(outcome.into_message(call, &mut self.messages));
        }
        (self.finish(), found)
    }
}

/// Whether a turn with these settings of its own only runs calls of clients.
fn is_of_calls(only: &TurnSettings) -> bool {
    only.model.as_deref() == Some(ERRANDS_MODEL_ID)
}

/// What the model is told of an undo or a redo.
fn told_of(did: &str, (paths, count): (&[String], u64)) -> Message {
    let more = count.saturating_sub(paths.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!(
        "[The user {did} changes that you made to files, so these are no longer as you left them: {}{more}. Read a file \
         again before you change it.]",
        paths.join(", ")
    );
    Message::User(vec![Part::Text { text }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::SessionId;
    use serde_json::Map;

    fn events(bodies: &[EventBody]) -> Vec<Event> {
        let session: SessionId = "s".parse().unwrap();
        let number = |(at, body): (usize, &EventBody)| {
            let (kind, payload) = body.encode();
            Event { seq: at as u64 + 1, kind: kind.into(), payload, session_id: session.clone(), turn_id: None, at: 0 }
        };
        bodies.iter().enumerate().map(number).collect()
    }

    fn prompt(text: &str) -> EventBody {
        EventBody::SessionPrompt {
            session_id: "s".parse().unwrap(),
            prompt: text.into(),
            parts: None,
            turn: None,
            task: None,
            version: None,
        }
    }

    fn said(text: &str) -> EventBody {
        EventBody::StreamComplete { text: text.into(), original: None }
    }

    fn start(id: &str) -> EventBody {
        EventBody::ToolCallStart { call_id: id.into(), name: "t".into(), args: Map::new() }
    }

    fn end(id: &str, output: &str) -> EventBody {
        let (call_id, output) = (id.into(), output.into());
        EventBody::ToolCallEnd {
            call_id,
            name: "t".into(),
            output,
            is_error: false,
            duration_ms: 1,
            parts: Vec::new(),
            details: None,
            findings: Vec::new(),
        }
    }

    fn found(id: &str, text: &str) -> EventBody {
        match end(id, "o") {
            EventBody::ToolCallEnd { call_id, name, output, is_error, duration_ms, parts, details, .. } => {
                let findings = vec![text.to_owned()];
                EventBody::ToolCallEnd { call_id, name, output, is_error, duration_ms, parts, details, findings }
            }
            other => other,
        }
    }

    fn rebuilt(bodies: &[EventBody]) -> Vec<Message> {
        let mut rebuild = Rebuild::default();
        events(bodies).iter().for_each(|event| rebuild.push(event));
        rebuild.finish().messages.into()
    }

    fn user(text: &str) -> Message {
        Message::User(vec![Part::Text { text: text.into() }])
    }

    fn assistant(text: &str, ids: &[&str]) -> Message {
        let call = |id: &&str| ToolCallRequest { id: (*id).into(), name: "t".into(), arguments: Map::new() };
        Message::assistant(text, ids.iter().map(call).collect())
    }

    fn result(id: &str, output: &str, is_error: bool) -> Message {
        Message::ToolResult { call_id: id.into(), name: "t".into(), output: output.into(), is_error, parts: Vec::new() }
    }

    #[test]
    fn results_stand_in_the_order_of_their_calls() {
        let log = [
            prompt("p"),
            said(""),
            start("a"),
            end("a", "1"),
            start("c"),
            start("b"),
            end("b", "2"),
            end("c", "3"),
            said("x"),
        ];
        let want = vec![
            user("p"),
            assistant("", &["a", "c", "b"]),
            result("a", "1", false),
            result("c", "3", false),
            result("b", "2", false),
            assistant("x", &[]),
        ];
        assert_eq!(rebuilt(&log), want);
    }

    #[test]
    fn a_turn_of_a_client_s_calls_is_told_of_when_there_was_one() {
        let calls = |about: &str| match prompt(about) {
            EventBody::SessionPrompt { session_id, prompt, .. } => {
                let only = TurnSettings { model: Some(ERRANDS_MODEL_ID.to_owned()), ..TurnSettings::default() };
                EventBody::SessionPrompt {
                    session_id,
                    prompt,
                    parts: None,
                    turn: Some(Box::new(only)),
                    task: None,
                    version: None,
                }
            }
            other => other,
        };
        let log =
            [prompt("p"), said("x"), calls("[gone]"), said(""), calls("[one]"), said(""), start("a"), end("a", "1")];
        let log = [&log[..], &[calls("[gone too]"), prompt("q")]].concat();
        let want =
            [user("p"), assistant("x", &[]), user("[one]"), assistant("", &["a"]), result("a", "1", false), user("q")];
        assert_eq!(rebuilt(&log), want);
    }

    #[test]
    fn a_call_may_outlast_its_round() {
        let log =
            [prompt("p"), said("so"), start("a"), start("b"), said("on"), end("b", "2"), said("x"), end("a", "1")];
        let results = [result("a", "1", false), result("b", "2", false)];
        let want = [user("p"), assistant("so", &["a", "b"])].into_iter().chain(results);
        let want: Vec<Message> = want.chain([assistant("on", &[]), assistant("x", &[])]).collect();
        assert_eq!(rebuilt(&log), want);
    }

    #[test]
    fn an_agent_has_heard_the_turns_that_it_answered() {
        let bound = |id: &str| EventBody::AgentSession { model: "acp/a".into(), agent_session_id: id.into() };
        let first = [prompt("p"), bound("s1"), said("x")];
        let others = [prompt("q"), said("y")];
        let third = [prompt("r"), bound("s1"), said("z"), prompt("s")];
        let heard = |log: &[EventBody]| {
            let mut rebuild = Rebuild::default();
            events(log).iter().for_each(|event| rebuild.push(event));
            rebuild.finish().agent.map(|agent| (agent.id, agent.messages))
        };
        let all = [&first[..], &others, &third].concat();
        assert_eq!(heard(&others), None);
        assert_eq!(heard(&all[..3]), Some(("s1".into(), 2)));
        assert_eq!(heard(&all[..4]), Some(("s1".into(), 2)), "the new prompt is not heard yet");
        assert_eq!(heard(&all[..5]), Some(("s1".into(), 2)), "another model's turn is not heard");
        assert_eq!(heard(&all), Some(("s1".into(), 6)));
    }

    #[test]
    fn a_fork_has_the_agent_s_session_of_the_other_as_far_as_that_has_heard_all() {
        let bound = |id: &str| EventBody::AgentSession { model: "acp/a".into(), agent_session_id: id.into() };
        let forked = |parent: &SessionId, at| EventBody::SessionForked {
            session_id: SessionId::generate(),
            parent_session_id: parent.clone(),
            at,
            beginning: Default::default(),
        };
        let agent = |log: &[EventBody]| {
            let mut rebuild = Rebuild::default();
            events(log).iter().for_each(|event| rebuild.push(event));
            rebuild.finish().agent.map(|agent| (agent.id, agent.messages, agent.fork_of))
        };
        let (one, two) = (SessionId::generate(), SessionId::generate());
        let turn = [prompt("p"), bound("s1"), said("x")];
        let fork = [&turn[..], &[forked(&one, 3)]].concat();
        assert_eq!(agent(&fork), Some(("s1".into(), 2, Some((one.clone(), 3)))));
        let of_fork = [&fork[..], &[forked(&two, 4)]].concat();
        assert_eq!(agent(&of_fork), Some(("s1".into(), 2, Some((one.clone(), 3)))), "it is still the first one's");
        let on = [&fork[..], &[prompt("q"), bound("s2"), said("y")]].concat();
        assert_eq!(agent(&on), Some(("s2".into(), 4, None)));
        let others = [&turn[..], &[prompt("q"), said("y"), forked(&one, 5)]].concat();
        assert_eq!(agent(&others), None, "another model answered since");
    }

    #[test]
    fn a_call_without_a_result_gets_one() {
        let log = [prompt("p"), said("so"), start("a"), prompt("q")];
        assert_eq!(rebuilt(&log), vec![user("p"), assistant("so", &["a"]), result("a", INTERRUPTED, true), user("q")]);
    }

    #[test]
    fn findings_stand_behind_the_results_in_the_order_of_the_calls() {
        let log = [prompt("p"), said("so"), start("a"), start("b"), start("c"), found("c", "3"), end("b", "o")];
        let log = [&log[..], &[found("a", "1"), said("x")]].concat();
        let parts = ["1", "3"].map(|text| Part::Text { text: text.into() }).to_vec();
        let want = vec![
            user("p"),
            assistant("so", &["a", "b", "c"]),
            result("a", "o", false),
            result("b", "o", false),
            result("c", "o", false),
            Message::User(parts),
            assistant("x", &[]),
        ];
        assert_eq!(rebuilt(&log), want);
        let items = items(&events(&log));
        let shown = items.iter().filter_map(|item| match &item.body {
            ItemBody::ToolResult { findings, .. } => Some(findings.join(",")),
            _ => None,
        });
        assert_eq!(shown.collect::<Vec<_>>(), ["3", "", "1"]);
    }

    #[test]
    fn old_outputs_are_blanked_where_they_were_when_it_ran() {
        let long = "x".repeat(4 * 50_000);
        let turn = |id: &str| {
            let first = [prompt("p"), EventBody::StreamStart {}, said("so"), start(id), end(id, &long)];
            [&first[..], &[EventBody::StreamStart {}, said("x")]].concat()
        };
        let three = [turn("a"), turn("b"), turn("c")].concat();
        let pruned = |log: &[EventBody]| {
            let all = rebuilt(log);
            let is = |one: &&Message| matches!(one, Message::ToolResult { output, .. } if output == "[OUTPUT PRUNED — 200000 chars]");
            all.iter().filter(is).count()
        };
        assert_eq!(pruned(&three), 1, "two turns are spared");
        assert_eq!(pruned(&[&three[..], &[prompt("q"), prompt("r")]].concat()), 1, "no request was made since");
        assert_eq!(pruned(&[&three[..], &turn("d")].concat()), 2);
        assert_eq!(pruned(&[&three[..], &turn("d"), &turn("e")].concat()), 3);
    }

    #[test]
    fn deltas_and_empty_texts_are_no_items() {
        let log = events(&[
            prompt("p"),
            EventBody::StreamStart {},
            EventBody::StreamDelta { text: "d".into() },
            said(""),
            start("a"),
            end("a", "1"),
            said("x"),
        ]);
        let numbers: Vec<u64> = items(&log).iter().map(|item| item.seq).collect();
        assert_eq!(numbers, [1, 5, 6, 7]);
    }

    #[test]
    fn a_held_call_stands_in_its_reply_and_waits_for_its_result() {
        let held = |id: &str| HeldCall {
            request: ToolCallRequest { id: id.into(), name: "t".into(), arguments: Map::new() },
            refusal: None,
        };
        let shape = |bodies: &[EventBody], held: &[HeldCall]| {
            let mut rebuild = Rebuild::default();
            events(bodies).iter().for_each(|event| rebuild.push(event));
            let (conversation, _) = rebuild.finish_held(held);
            let words = conversation.messages.iter().map(|message| match message {
                Message::User(_) => "user".to_owned(),
                Message::Assistant { text, calls, .. } => {
                    format!("{text}[{}]", calls.iter().map(|c| c.id.as_str()).collect::<Vec<_>>().join(" "))
                }
                Message::ToolResult { call_id, .. } => format!("={call_id}"),
            });
            words.collect::<Vec<_>>().join(" ")
        };
        let first = [prompt("p"), said("x"), start("1"), end("1", "o")];
        let second = [prompt("p"), said("x"), start("1"), end("1", "o"), said("")];
        #[rustfmt::skip]
        let table = [
            (&first[..], vec![], "user x[1] =1"),
            (&first[..], vec![held("2"), held("3")], "user x[1 2 3] =1"),
            (&second[..], vec![held("2")], "user x[1] =1 [2]"),
            (&first[..2], vec![held("2")], "user x[2]"),
        ];
        for (bodies, held, want) in table {
            assert_eq!(shape(bodies, &held), want);
        }
    }
}
