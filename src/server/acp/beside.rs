//! What is told beside the conversation: plans, commands and fill levels of agents, and how full a model's window is. Pure.
//!
//! Of each only the newest counts, so that a log that is told again tells it as well.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::params::Client;
use crate::protocol::Event;

/// What was told last.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Steps, by the plan's id; an agent may have several.
    plans: BTreeMap<String, Vec<Value>>,
    /// Tokens of the model's window, where that is known.
    pub(super) window: Option<u64>,
    /// Tokens of the last round.
    used: u64,
}

impl Beside {
    /// The update that an event is, if it is about any of this.
    pub(super) fn take(&mut self, client: Client, event: &Event) -> Option<Value> {
        let kind = event.kind.as_ref();
        if kind != "turn.complete" && !kind.starts_with("agent.") {
            return None;
        }
        let payload: Value = serde_json::from_str(event.payload.get()).ok()?;
        match kind {
            "turn.complete" => {
                self.used = payload["usage"]["totalTokens"].as_u64()?;
                self.usage(None)
            }
            "agent.plan" => Some(self.plan(&payload)),
            "agent.commands" => Some(commands(&payload)),
            "agent.usage" => {
                let (used, size) = (payload["used"].as_u64()?, payload["size"].as_u64()?);
                Some(usage(used, size, payload.get("cost").cloned()))
            }
            "agent.compaction" if client.compactions => Some(compaction(&payload)),
            "agent.compaction" => note(client, "The agent makes its context shorter."),
            _ => None,
        }
    }

    /// How full the model's window is; with what the session has cost, where that is known.
    pub(super) fn usage(&self, cost_usd: Option<f64>) -> Option<Value> {
        let size = self.window.filter(|_| self.used > 0)?;
        let cost = cost_usd.map(|amount| json!({ "amount": amount, "currency": "USD" }));
        Some(usage(self.used, size, cost))
    }

    fn plan(&mut self, payload: &Value) -> Value {
        let id = payload["planId"].as_str().unwrap_or_default().to_owned();
        let mut steps: Vec<Value> = payload["entries"].as_array().into_iter().flatten().map(step).collect();
        if let Some(text) = payload["text"].as_str().filter(|_| steps.is_empty()) {
            steps.push(json!({ "content": text, "priority": "medium", "status": "in_progress" }));
        }
        self.plans.insert(id, steps);
        self.plans.retain(|_, steps| !steps.is_empty());
        let all: Vec<&Value> = self.plans.values().flatten().collect();
        json!({ "sessionUpdate": "plan", "entries": all })
    }
}

/// A step of a plan; what the protocol has no word for is in the middle, and waits.
fn step(step: &Value) -> Value {
    let one_of = |name: &str, known: [&'static str; 3], else_: &'static str| {
        let word = step[name].as_str().unwrap_or_default();
        known.into_iter().find(|known| *known == word).unwrap_or(else_)
    };
    json!({
        "content": step["content"].as_str().unwrap_or_default(),
        "priority": one_of("priority", ["high", "medium", "low"], "medium"),
        "status": one_of("status", ["pending", "in_progress", "completed"], "pending"),
    })
}

fn commands(payload: &Value) -> Value {
    let commands = payload["commands"].as_array().into_iter().flatten().map(|command| {
        let text = |name: &str| command[name].as_str().unwrap_or_default();
        let mut told = json!({ "name": text("name"), "description": text("description") });
        if let Some(hint) = command["hint"].as_str() {
            told["input"] = json!({ "hint": hint });
        }
        told
    });
    json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands.collect::<Vec<_>>() })
}

fn usage(used: u64, size: u64, cost: Option<Value>) -> Value {
    let mut update = json!({ "sessionUpdate": "usage_update", "used": used, "size": size });
    if let Some(cost) = cost.filter(Value::is_object) {
        update["cost"] = cost;
    }
    update
}

fn compaction(payload: &Value) -> Value {
    let mut update = json!({
        "sessionUpdate": "compaction_update",
        "compactionId": payload["compactionId"].as_str().unwrap_or_default(),
        "status": payload["status"].as_str().unwrap_or("in_progress"),
    });
    if let Some(summary) = payload["summary"].as_str() {
        update["summary"] = json!([{ "type": "text", "text": summary }]);
    }
    if let Some(error) = payload["error"].as_str() {
        update["error"] = error.into();
    }
    update
}

fn note(client: Client, title: &str) -> Option<Value> {
    client.notices.then(|| json!({ "sessionUpdate": "notice", "severity": "info", "title": title }))
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn event(kind: &'static str, payload: &Value) -> Event {
        Event {
            seq: 1,
            kind: kind.into(),
            payload: to_raw_value(payload).expect("JSON"),
            session_id: "ses_1".parse().expect("an id"),
            turn_id: None,
            at: 0,
        }
    }

    #[test]
    fn what_stands_beside_the_conversation_is_told() {
        let all = Client { notices: true, compactions: true, ..Client::default() };
        let mut beside = Beside { window: Some(100), ..Beside::default() };
        let step = json!({ "content": "a", "priority": "urgent", "status": "in_progress" });
        #[rustfmt::skip]
        let table = [
            ("agent.plan", json!({ "entries": [step] }), json!({ "sessionUpdate": "plan", "entries": [{ "content": "a", "priority": "medium", "status": "in_progress" }] })),
            ("agent.plan", json!({ "planId": "b", "entries": [], "text": "t" }), json!({ "sessionUpdate": "plan", "entries": [{ "content": "a", "priority": "medium", "status": "in_progress" }, { "content": "t", "priority": "medium", "status": "in_progress" }] })),
            ("agent.plan", json!({ "entries": [] }), json!({ "sessionUpdate": "plan", "entries": [{ "content": "t", "priority": "medium", "status": "in_progress" }] })),
            ("agent.commands", json!({ "commands": [{ "name": "n", "description": "d", "hint": "h" }, { "name": "m", "description": "" }] }), json!({ "sessionUpdate": "available_commands_update", "availableCommands": [{ "name": "n", "description": "d", "input": { "hint": "h" } }, { "name": "m", "description": "" }] })),
            ("agent.usage", json!({ "used": 1, "size": 2, "cost": { "amount": 0.5, "currency": "USD" } }), json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": { "amount": 0.5, "currency": "USD" } })),
            ("agent.compaction", json!({ "compactionId": "c", "status": "completed", "summary": "s" }), json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed", "summary": [{ "type": "text", "text": "s" }] })),
            ("turn.complete", json!({ "turn": 1, "type": "text", "usage": { "totalTokens": 7 } }), json!({ "sessionUpdate": "usage_update", "used": 7, "size": 100 })),
        ];
        for (kind, payload, want) in table {
            assert_eq!(beside.take(all, &event(kind, &payload)), Some(want), "{kind} {payload}");
        }
        assert_eq!(beside.usage(Some(0.25)).expect("known")["cost"], json!({ "amount": 0.25, "currency": "USD" }));
        let shorter = event("agent.compaction", &json!({ "compactionId": "c", "status": "in_progress" }));
        let notices = Client { notices: true, ..Client::default() };
        assert_eq!(beside.take(notices, &shorter).expect("a notice")["sessionUpdate"], "notice");
        assert_eq!(beside.take(Client::default(), &shorter), None);
        assert_eq!(beside.take(all, &event("agent.session", &json!({}))), None);
        let unknown = event("turn.complete", &json!({ "usage": { "totalTokens": 7 } }));
        assert_eq!(Beside::default().take(all, &unknown), None, "nobody knows how large the window is");
    }
}
