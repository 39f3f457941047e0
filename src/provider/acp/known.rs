//! What is known of an agent's session beside its turns: options, commands, plans, how full it is, its title.
//!
//! Agents say it whenever they like, also between turns and before the answer that opens the session. Each thing becomes
//! an event of the turn that runs, or of the next one; of what is said several times in between the last counts.
//! Read by hand and leniently: an unknown field or word of a later version costs nothing else.

use std::collections::HashMap;

use serde_json::Value;

use super::calls::block_text_of;
use crate::base::{limit, text};
use crate::protocol::{
    AgentChoices, AgentCommand, AgentCommands, AgentCompaction, AgentCost, AgentOption, AgentOptions, AgentPlan,
    AgentSetting, AgentUsage, AgentValue, EventBody, NoticeLevel, PlanEntry, Reasoning,
};

/// What the option is called that stands for an agent's modes.
pub(super) const MODE: &str = "mode";
/// Things that were said between two turns and wait for the next one, at most.
const UNTOLD_MAX: usize = 32;
/// Compactions whose summaries are gathered at once.
const COMPACTIONS_MAX: usize = 4;

/// Something that an agent says of itself.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "few are held at once, and almost all of them are events")]
pub(super) enum Said {
    /// An event of the log.
    Event(EventBody),
    /// A title for the session.
    Title(String),
}

/// What is known of a session.
#[derive(Debug, Default)]
pub(super) struct Known {
    options: Vec<AgentOption>,
    /// Its modes as an option, of an agent that has modes and no option for them.
    modes: Option<AgentOption>,
    /// What was last told of its commands.
    commands: Option<EventBody>,
    untold: Vec<Said>,
    summaries: HashMap<String, String>,
    /// What it was last set to. None: it was just opened.
    pub applied: Option<(AgentOptions, Reasoning)>,
    /// It has not been told the system text: its first prompt was a command of its own.
    pub uninstructed: bool,
}

impl Known {
    /// What the answer that opens a session says of its options.
    pub fn opened(&mut self, answer: &Value) {
        self.applied = None;
        self.options = options(&answer["configOptions"]);
        self.modes = modes(&answer["modes"]);
        if !self.choices().is_empty() {
            let told = self.told_choices();
            self.wait(told);
        }
    }

    /// Everything that the session can be set to.
    pub fn choices(&self) -> Vec<AgentOption> {
        let has_modes = self.options.iter().any(|option| option.category.as_deref() == Some(MODE) || option.id == MODE);
        let modes = self.modes.iter().filter(|_| !has_modes);
        modes.chain(&self.options).cloned().collect()
    }

    /// Whether the option of that id is set as a mode.
    pub fn is_mode(&self, id: &str) -> bool {
        id == MODE && self.modes.is_some() && !self.options.iter().any(|option| option.id == MODE)
    }

    /// The session was set. The answer has all options, where it has any.
    pub fn was_set(&mut self, id: &str, setting: &AgentSetting, answer: &Value) -> Said {
        if answer["configOptions"].is_array() {
            self.options = options(&answer["configOptions"]);
        } else {
            self.set(id, setting);
        }
        self.told_choices()
    }

    fn set(&mut self, id: &str, setting: &AgentSetting) {
        let all = self.options.iter_mut().chain(&mut self.modes);
        for option in all.filter(|option| option.id == id) {
            option.value = setting.clone();
        }
    }

    fn told_choices(&self) -> Said {
        Said::Event(EventBody::AgentOptions(AgentChoices { options: self.choices() }))
    }

    /// Takes an update in. None: it is none of these.
    pub fn take(&mut self, update: &Value) -> Option<Option<Said>> {
        let said = match update["sessionUpdate"].as_str()? {
            "config_option_update" => {
                self.options = options(&update["configOptions"]);
                Some(self.told_choices())
            }
            "current_mode_update" => self.mode(update),
            "available_commands_update" => {
                let event = EventBody::AgentCommands(commands(&update["availableCommands"]));
                let new = self.commands.as_ref() != Some(&event);
                self.commands = Some(event.clone());
                new.then_some(Said::Event(event))
            }
            "plan" => Some(Said::Event(EventBody::AgentPlan(plan(None, &update["entries"])))),
            "plan_update" => plan_update(&update["plan"]),
            "plan_removed" => {
                let plan_id = word(&update["planId"]);
                Some(Said::Event(EventBody::AgentPlan(AgentPlan { plan_id, ..AgentPlan::default() })))
            }
            "usage_update" => usage(update),
            "session_info_update" => title(&update["title"]).map(Said::Title),
            "notice" => notice(update),
            "compaction_update" => self.compaction(update),
            "compaction_summary_chunk" => {
                self.summary(update);
                None
            }
            _ => return None,
        };
        Some(said)
    }

    fn mode(&mut self, update: &Value) -> Option<Said> {
        let current = AgentSetting::Value(word(&update["currentModeId"])?);
        if let Some(modes) = &mut self.modes {
            modes.value = current.clone();
        }
        let is_its = |option: &&mut AgentOption| {
            option.category.as_deref() == Some(MODE)
                && option.values.iter().any(|one| AgentSetting::Value(one.value.clone()) == current)
        };
        if let Some(option) = self.options.iter_mut().find(is_its) {
            option.value = current.clone();
        }
        Some(self.told_choices())
    }

    fn compaction(&mut self, update: &Value) -> Option<Said> {
        let compaction_id = word(&update["compactionId"])?;
        let status = word(&update["status"])?;
        let said: Vec<String> = list(&update["summary"]).iter().map(block_text_of).collect();
        let gathered = if status == "in_progress" { None } else { self.summaries.remove(&compaction_id) };
        let summary = if said.is_empty() { gathered } else { Some(said.join("")) };
        let bound = |text: String| text::head(&text, limit::AGENT_TEXT_BYTES_MAX).to_owned();
        Some(Said::Event(EventBody::AgentCompaction(AgentCompaction {
            compaction_id,
            status,
            summary: summary.map(bound),
            error: word(&update["error"]),
        })))
    }

    fn summary(&mut self, update: &Value) {
        let Some(id) = word(&update["compactionId"]) else { return };
        if self.summaries.len() >= COMPACTIONS_MAX && !self.summaries.contains_key(&id) {
            return;
        }
        let summary = self.summaries.entry(id).or_default();
        if summary.len() < limit::AGENT_TEXT_BYTES_MAX {
            summary.push_str(&block_text_of(&update["content"]));
        }
    }

    /// Keeps what is said until a turn runs.
    pub fn wait(&mut self, said: Said) {
        let same = |old: &Said| match (old, &said) {
            (Said::Title(_), Said::Title(_)) => true,
            (Said::Event(EventBody::AgentPlan(old)), Said::Event(EventBody::AgentPlan(new))) => {
                old.plan_id == new.plan_id
            }
            (Said::Event(EventBody::ClientNotice { .. }), _) => false,
            (Said::Event(old), Said::Event(new)) => old.kind() == new.kind(),
            _ => false,
        };
        self.untold.retain(|old| !same(old));
        if self.untold.len() < UNTOLD_MAX {
            self.untold.push(said);
        }
    }

    /// What was said since the last turn.
    pub fn untold(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.untold)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text of a bounded length; None for none, and for an empty one.
fn word(value: &Value) -> Option<String> {
    let text = text::head(value.as_str()?, limit::AGENT_WORD_BYTES_MAX);
    (!text.is_empty()).then(|| text.to_owned())
}

fn words(value: &Value) -> String {
    word(value).unwrap_or_default()
}

/// The options of an answer or an update, those that we understand.
fn options(told: &Value) -> Vec<AgentOption> {
    list(told).iter().take(limit::AGENT_OPTIONS_MAX).filter_map(option).collect()
}

fn option(told: &Value) -> Option<AgentOption> {
    let id = word(&told["id"])?;
    let current = &told["currentValue"];
    let value = current.as_bool().map(AgentSetting::Flag).or_else(|| word(current).map(AgentSetting::Value))?;
    // Values may stand in groups.
    let all = list(&told["options"]).iter().flat_map(|one| match one["options"].as_array() {
        Some(group) => group.as_slice(),
        None => std::slice::from_ref(one),
    });
    let values = all.filter_map(|one| {
        let value = word(&one["value"])?;
        let name = word(&one["name"]).unwrap_or_else(|| value.clone());
        Some(AgentValue { value, name, description: word(&one["description"]) })
    });
    Some(AgentOption {
        name: word(&told["name"]).unwrap_or_else(|| id.clone()),
        description: word(&told["description"]),
        category: word(&told["category"]),
        values: values.take(limit::AGENT_VALUES_MAX).collect(),
        value,
        id,
    })
}

/// An agent's modes as an option.
fn modes(told: &Value) -> Option<AgentOption> {
    let values = list(&told["availableModes"]).iter().filter_map(|mode| {
        let value = word(&mode["id"])?;
        let name = word(&mode["name"]).unwrap_or_else(|| value.clone());
        Some(AgentValue { value, name, description: word(&mode["description"]) })
    });
    Some(AgentOption {
        id: MODE.to_owned(),
        name: "Mode".to_owned(),
        description: None,
        category: Some(MODE.to_owned()),
        value: AgentSetting::Value(word(&told["currentModeId"])?),
        values: values.take(limit::AGENT_VALUES_MAX).collect(),
    })
}

fn commands(told: &Value) -> AgentCommands {
    let command = |told: &Value| {
        let hint = word(&told["input"]["hint"]);
        Some(AgentCommand { name: word(&told["name"])?, description: words(&told["description"]), hint })
    };
    AgentCommands { commands: list(told).iter().take(limit::AGENT_COMMANDS_MAX).filter_map(command).collect() }
}

fn plan(plan_id: Option<String>, entries: &Value) -> AgentPlan {
    let entry = |told: &Value| {
        let or = |value: &Value, usual: &str| word(value).unwrap_or_else(|| usual.to_owned());
        Some(PlanEntry {
            content: word(&told["content"])?,
            priority: or(&told["priority"], "medium"),
            status: or(&told["status"], "pending"),
        })
    };
    let entries = list(entries).iter().take(limit::AGENT_PLAN_ENTRIES_MAX).filter_map(entry).collect();
    AgentPlan { plan_id, entries, text: None }
}

fn plan_update(told: &Value) -> Option<Said> {
    let plan_id = word(&told["planId"]).or_else(|| word(&told["id"]));
    let plan = match told["type"].as_str()? {
        "items" => plan(plan_id, &told["entries"]),
        "markdown" => {
            let text = text::head(told["content"].as_str()?, limit::AGENT_TEXT_BYTES_MAX).to_owned();
            AgentPlan { plan_id, text: Some(text), ..AgentPlan::default() }
        }
        "file" => AgentPlan { plan_id, text: word(&told["uri"]), ..AgentPlan::default() },
        _ => return None,
    };
    Some(Said::Event(EventBody::AgentPlan(plan)))
}

fn usage(told: &Value) -> Option<Said> {
    let cost =
        || Some(AgentCost { amount: told["cost"]["amount"].as_f64()?, currency: word(&told["cost"]["currency"])? });
    let usage = AgentUsage { used: told["used"].as_u64()?, size: told["size"].as_u64()?, cost: cost() };
    Some(Said::Event(EventBody::AgentUsage(usage)))
}

/// A title as one line of ours.
fn title(told: &Value) -> Option<String> {
    let line: String = told.as_str()?.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line: String = line.trim().chars().take(limit::TITLE_CHARS_MAX).collect();
    (!line.is_empty()).then_some(line)
}

fn notice(told: &Value) -> Option<Said> {
    let level = match told["severity"].as_str() {
        Some("error") => NoticeLevel::Error,
        Some("warning") => NoticeLevel::Warning,
        _ => NoticeLevel::Info,
    };
    let text = match (word(&told["title"]), word(&told["description"])) {
        (Some(title), Some(more)) => format!("{title}: {more}"),
        (title, more) => title.or(more)?,
    };
    Some(Said::Event(EventBody::ClientNotice { call_id: None, level, text }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(known: &mut Known, update: Value) -> Option<Value> {
        let said = known.take(&update).expect("one of these")?;
        Some(match said {
            Said::Event(event) => serde_json::to_value(event).unwrap(),
            Said::Title(title) => json!({ "title": title }),
        })
    }

    #[test]
    fn each_kind_is_told_in_our_words() {
        let usual = json!({"content": "c", "priority": "medium", "status": "pending"});
        #[rustfmt::skip]
        let table = [
            (json!({"sessionUpdate": "plan", "entries": [{"content": "c", "priority": "high", "status": "completed"}, {"content": "c"}, 5]}),
                json!({"type": "agent.plan", "payload": {"entries": [{"content": "c", "priority": "high", "status": "completed"}, usual]}})),
            (json!({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": [{"content": "c"}]}}),
                json!({"type": "agent.plan", "payload": {"planId": "p", "entries": [usual]}})),
            (json!({"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "p", "content": "# x"}}),
                json!({"type": "agent.plan", "payload": {"planId": "p", "entries": [], "text": "# x"}})),
            (json!({"sessionUpdate": "plan_removed", "planId": "p"}),
                json!({"type": "agent.plan", "payload": {"planId": "p", "entries": []}})),
            (json!({"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "n", "description": "d", "input": {"hint": "h"}}, {"name": "m"}]}),
                json!({"type": "agent.commands", "payload": {"commands": [{"name": "n", "description": "d", "hint": "h"}, {"name": "m", "description": ""}]}})),
            (json!({"sessionUpdate": "usage_update", "used": 5, "size": 9, "cost": {"amount": 0.5, "currency": "USD"}}),
                json!({"type": "agent.usage", "payload": {"used": 5, "size": 9, "cost": {"amount": 0.5, "currency": "USD"}}})),
            (json!({"sessionUpdate": "usage_update", "used": 5, "size": 9, "cost": {"amount": "much"}}),
                json!({"type": "agent.usage", "payload": {"used": 5, "size": 9}})),
            (json!({"sessionUpdate": "session_info_update", "title": " a\nb "}), json!({"title": "a b"})),
            (json!({"sessionUpdate": "notice", "severity": "warning", "title": "t", "description": "d"}),
                json!({"type": "client.notice", "payload": {"level": "warning", "text": "t: d"}})),
            (json!({"sessionUpdate": "compaction_update", "compactionId": "1", "status": "completed", "summary": [{"type": "text", "text": "s"}]}),
                json!({"type": "agent.compaction", "payload": {"compactionId": "1", "status": "completed", "summary": "s"}})),
        ];
        for (update, want) in table {
            assert_eq!(told(&mut Known::default(), update.clone()), Some(want), "{update}");
        }
        let empty = [
            json!({"sessionUpdate": "usage_update"}),
            json!({"sessionUpdate": "session_info_update", "title": null}),
            json!({"sessionUpdate": "compaction_update"}),
            json!({"sessionUpdate": "notice"}),
        ];
        for update in empty {
            assert_eq!(told(&mut Known::default(), update.clone()), None, "{update}");
        }
        for update in [json!({"sessionUpdate": "tool_call"}), json!({"sessionUpdate": "brand_new"}), json!(5)] {
            assert_eq!(Known::default().take(&update), None, "{update}");
        }
    }

    #[test]
    fn modes_and_options_are_one_list() {
        let modes = json!({"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "act"}]});
        let level = |value: &str| {
            json!([{"id": "effort", "name": "Effort", "category": "thought_level", "type": "select", "currentValue": value,
                "options": [{"group": "g", "name": "G", "options": [{"value": "low", "name": "Low"}]}, {"value": "high", "name": "High"}]},
                {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": false}, {"id": "odd"}])
        };
        let mut known = Known::default();
        known.opened(&json!({"modes": modes, "configOptions": level("low")}));
        let ids = |known: &Known| known.choices().iter().map(|o| format!("{}={}", o.id, o.value)).collect::<Vec<_>>();
        assert_eq!(ids(&known), ["mode=ask", "effort=low", "fast=false"]);
        assert_eq!(known.choices()[1].values.len(), 2);
        assert!(known.is_mode("mode") && !known.is_mode("effort"));
        told(&mut known, json!({"sessionUpdate": "current_mode_update", "currentModeId": "act"})).unwrap();
        told(&mut known, json!({"sessionUpdate": "config_option_update", "configOptions": level("high")})).unwrap();
        assert_eq!(ids(&known), ["mode=act", "effort=high", "fast=false"]);
        known.was_set("fast", &AgentSetting::Flag(true), &json!({}));
        assert_eq!(ids(&known)[2], "fast=true");
        assert_eq!(known.untold().len(), 1, "the options that it was opened with");
    }

    #[test]
    fn between_turns_the_last_word_counts() {
        let mut known = Known::default();
        let title = |text: &str| Said::Title(text.into());
        let notice = |text: &str| {
            Said::Event(EventBody::ClientNotice { call_id: None, level: NoticeLevel::Info, text: text.into() })
        };
        for said in [title("a"), notice("x"), notice("y"), title("b")] {
            known.wait(said);
        }
        assert_eq!(known.untold(), [notice("x"), notice("y"), title("b")]);
        assert_eq!(known.untold(), []);
        (0..1000).for_each(|_| known.wait(notice("z")));
        assert_eq!(known.untold().len(), UNTOLD_MAX);
    }

    #[test]
    fn commands_that_did_not_change_are_told_once() {
        let mut known = Known::default();
        let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "n", "description": "d"}]});
        assert!(told(&mut known, update.clone()).is_some());
        assert_eq!(told(&mut known, update), None);
    }
}
