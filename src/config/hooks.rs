//! Configured commands at hook points: `[[hooks]]` of the file, and entries with a `command` among `hooks` in JavaScript.
//!
//! They are the operator's: no file of a project names any.

use serde::Deserialize;
use serde_json::Value;

use crate::base::{glob, limit};

/// The points at which a command can stand, as they are written.
pub const HOOK_EVENTS: [&str; 12] = [
    "tool.execute.before",
    "tool.execute.after",
    "tool.result.validate",
    "prompt.system.transform",
    "prompt.messages.transform",
    "session.compacting",
    "session.start",
    "session.end",
    "prompt.submit",
    "turn.stop",
    "session.compact.before",
    "notification",
];

/// A command at a hook point.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookCommand {
    /// The point, one of [`HOOK_EVENTS`].
    pub event: String,
    /// Which tools it is about, where the point is about one: names with `|` between them, `*` and `?` as in rules. None: all.
    #[serde(default)]
    pub matcher: Option<String>,
    /// What a shell runs.
    pub command: String,
    /// How long it may work. None: a minute.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

impl HookCommand {
    /// How long it may work, in milliseconds.
    pub fn time_ms(&self) -> u64 {
        self.timeout_ms.unwrap_or(limit::HOOK_COMMAND_TIMEOUT_MS)
    }

    /// Whether it is about this tool.
    pub fn is_about(&self, tool: &str) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        matcher.split('|').any(|pattern| glob::matches(pattern.trim(), tool))
    }

    /// Everything that is wrong with it: the field, and what was expected there.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if !HOOK_EVENTS.contains(&self.event.as_str()) {
            faults.push(("event", format!("one of {}", HOOK_EVENTS.join(", "))));
        }
        if self.command.trim().is_empty() || self.command.contains('\0') {
            faults.push(("command", "a command line without a zero byte".to_owned()));
        } else if self.command.len() > limit::HOOK_COMMAND_BYTES_MAX {
            faults.push(("command", format!("at most {} bytes", limit::HOOK_COMMAND_BYTES_MAX)));
        }
        match &self.matcher {
            Some(_) if !self.event.starts_with("tool.") => {
                faults.push(("matcher", "nothing: it is about tools, and this event is not".to_owned()));
            }
            Some(matcher) if matcher.split('|').any(|pattern| pattern.trim().is_empty()) => {
                faults.push(("matcher", "names of tools with `|` between them".to_owned()));
            }
            Some(_) | None => {}
        }
        if !(1..=limit::HOOK_TIMEOUT_MS_MAX).contains(&self.time_ms()) {
            faults.push(("timeoutMs", format!("a number from 1 to {}", limit::HOOK_TIMEOUT_MS_MAX)));
        }
        faults
    }

    /// What is wrong with a list of them first: which one, its member, and what was expected.
    pub fn fault(all: &[Self]) -> Option<(usize, &'static str, String)> {
        if all.len() > limit::HOOK_COMMANDS_MAX {
            let expected = format!("at most {} commands, got {}", limit::HOOK_COMMANDS_MAX, all.len());
            return Some((limit::HOOK_COMMANDS_MAX, "event", expected));
        }
        all.iter().enumerate().find_map(|(at, one)| {
            let (member, expected) = one.faults().into_iter().next()?;
            Some((at, member, expected))
        })
    }
}

/// Everything that is wrong with an entry that has the form of one. None: it has not.
pub(super) fn faults_of_entry(entry: Value) -> Option<Vec<(&'static str, String)>> {
    Some(serde_json::from_value::<HookCommand>(entry).ok()?.faults())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> HookCommand {
        toml::from_str(text).expect("one")
    }

    #[test]
    fn a_matcher_names_tools() {
        #[rustfmt::skip]
        let table = [
            (None, "bash", true), (Some("fs_write|fs_edit"), "fs_edit", true), (Some("fs_write | fs_edit"), "fs_edit", true),
            (Some("fs_write|fs_edit"), "fs_edit_more", false), (Some("fs_*"), "fs_read", true), (Some("fs_?ead"), "fs_read", true),
            (Some("mcp:a/*"), "mcp:a/b", true), (Some("mcp:a/*"), "mcp:b/b", false), (Some("BASH"), "bash", false),
        ];
        for (matcher, tool, want) in table {
            let matcher = matcher.map(str::to_owned);
            let hook = HookCommand { matcher, ..read("event = 'tool.execute.before'\ncommand = 'true'") };
            assert_eq!(hook.is_about(tool), want, "{hook:?} {tool}");
        }
    }

    #[test]
    fn what_is_no_hook_is_named() {
        let good = "event = 'turn.stop'\ncommand = 'true'\ntimeoutMs = 5";
        assert_eq!(read(good).faults(), []);
        #[rustfmt::skip]
        let table = [
            ("event = 'Stop'\ncommand = 'true'", "event"), ("event = 'turn.stop'\ncommand = ' '", "command"),
            ("event = 'turn.stop'\ncommand = 'true'\nmatcher = 'bash'", "matcher"),
            ("event = 'tool.execute.after'\ncommand = 'true'\nmatcher = 'a||b'", "matcher"),
            ("event = 'turn.stop'\ncommand = 'true'\ntimeoutMs = 0", "timeoutMs"),
            ("event = 'turn.stop'\ncommand = 'true'\ntimeoutMs = 3600001", "timeoutMs"),
        ];
        for (text, member) in table {
            let hook = read(text);
            assert_eq!(hook.faults().iter().map(|(member, _)| *member).collect::<Vec<_>>(), [member], "{text}");
            assert_eq!(HookCommand::fault(&[read(good), hook]).map(|(at, member, _)| (at, member)), Some((1, member)));
        }
        assert!(toml::from_str::<HookCommand>(&format!("{good}\nargs = []")).is_err());
        let many = vec![read(good); limit::HOOK_COMMANDS_MAX + 1];
        assert!(HookCommand::fault(&many).is_some() && HookCommand::fault(&many[1..]).is_none());
    }
}
