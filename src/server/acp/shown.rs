//! A call as a client shows it: its title, kind, places and changes. Pure.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::content::{fenced, text_block};
use crate::protocol::{ToolCategory, ToolDefinition};

/// Longest title, in characters.
const TITLE_CHARS_MAX: usize = 200;
/// Members in which a call names a place.
const PLACES: [&str; 5] = ["path", "file_path", "from", "to", "cwd"];

/// What our own tools are called before a person.
const NAMES: [(&str, &str); 14] = [
    ("fs_read", "Read"),
    ("fs_write", "Write"),
    ("fs_edit", "Edit"),
    ("fs_multi_edit", "Edit"),
    ("apply_patch", "Apply a patch"),
    ("fs_glob", "Find files"),
    ("fs_grep", "Search"),
    ("fs_list", "List"),
    ("fs_stat", "Look at"),
    ("fs_delete", "Delete"),
    ("fs_move", "Move"),
    ("view_image", "View"),
    ("memory_search", "Search the memory"),
    ("memory_add", "Remember"),
];

/// What is known of the tools.
#[derive(Debug, Default)]
pub(super) struct Tools(HashMap<String, (Option<ToolCategory>, Option<String>)>);

impl Tools {
    /// Out of their definitions.
    pub(super) fn new(definitions: Vec<ToolDefinition>) -> Self {
        let known = |tool: ToolDefinition| (tool.name, (tool.category, tool.annotations.and_then(|hints| hints.title)));
        Self(definitions.into_iter().map(known).collect())
    }

    /// What kind of call it is, in the words of the protocol.
    pub(super) fn kind(&self, tool: &str) -> &'static str {
        match tool {
            "fs_delete" => return "delete",
            "fs_move" => return "move",
            _ => {}
        }
        match self.0.get(tool).and_then(|(category, _)| *category) {
            Some(ToolCategory::Read) => "read",
            Some(ToolCategory::Edit) => "edit",
            Some(ToolCategory::Search) => "search",
            Some(ToolCategory::Execute) => "execute",
            Some(ToolCategory::Task) => "think",
            Some(ToolCategory::Memory | ToolCategory::Vfs | ToolCategory::Subagent | ToolCategory::Other) | None => {
                "other"
            }
        }
    }

    /// A line about a call.
    pub(super) fn title(&self, tool: &str, args: &Map<String, Value>) -> String {
        let text = |name: &str| args.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let own = NAMES.iter().find(|(name, _)| *name == tool).map(|(_, words)| *words);
        let name = own.or_else(|| self.0.get(tool)?.1.as_deref()).unwrap_or(tool);
        let subject = ["command", "pattern", "query", "path", "file_path", "from", "url"].into_iter().find_map(text);
        let line = match (tool, subject) {
            // A command says more than the name of what runs it.
            ("bash" | "exec_command", Some(command)) => command.to_owned(),
            (_, Some(subject)) => format!("{name}: {subject}"),
            (_, None) => name.to_owned(),
        };
        clipped(line.trim())
    }
}

fn clipped(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TITLE_CHARS_MAX).collect();
    if text.chars().nth(TITLE_CHARS_MAX).is_some() { format!("{line}…") } else { line }
}

/// The places that a call is about, absolute.
pub(super) fn locations(directory: &Path, args: &Map<String, Value>) -> Vec<Value> {
    let mut found = Vec::new();
    for path in PLACES.into_iter().filter_map(|name| args.get(name)?.as_str()).filter(|path| !path.is_empty()) {
        let mut place = json!({ "path": absolute(directory, path) });
        let line = args.get("offset").and_then(Value::as_u64).and_then(|line| u32::try_from(line).ok());
        if let Some(line) = line {
            place["line"] = line.into();
        }
        found.push(place);
    }
    found
}

fn absolute(directory: &Path, path: &str) -> String {
    directory.join(path).display().to_string()
}

/// The changes of files that are told of a call, as blocks: one for each hunk of their diff.
pub(super) fn changes(directory: &Path, told: &Value) -> Vec<Value> {
    let Some(diff) = told["diff"].as_str() else { return Vec::new() };
    let mut blocks = hunks(directory, diff);
    if told["truncated"] == true {
        blocks.push(content(text_block("The diff is longer than what is shown.")));
    }
    blocks
}

/// What a block of a call's content is in the protocol.
pub(super) fn content(block: Value) -> Value {
    json!({ "type": "content", "content": block })
}

/// What a call has printed.
pub(super) fn printed(text: &str) -> Value {
    content(text_block(&fenced(text)))
}

/// One side of a hunk.
#[derive(Debug, Default)]
struct Hunk {
    path: String,
    /// None: there was no file.
    old: Option<String>,
    new: String,
    open: bool,
}

impl Hunk {
    fn push(&mut self, line: &str) {
        let (tag, text) = line.split_at_checked(1).unwrap_or((" ", ""));
        if tag != "+"
            && let Some(old) = &mut self.old
        {
            old.push_str(text);
            old.push('\n');
        }
        if tag != "-" {
            self.new.push_str(text);
            self.new.push('\n');
        }
        self.open = true;
    }

    /// The line before it has no end.
    fn without_end(&mut self, before: &str) {
        let sides = [(self.old.as_mut(), "-"), (Some(&mut self.new), "+")];
        for (side, tag) in sides {
            let own = before.starts_with(tag) || before.starts_with(' ');
            if let Some(side) = side.filter(|side| own && side.ends_with('\n')) {
                side.pop();
            }
        }
    }

    fn told(&mut self) -> Option<Value> {
        let was_there = self.old.is_some();
        let fresh = Self { path: self.path.clone(), old: was_there.then(String::new), ..Self::default() };
        let Self { path, old, new, open } = std::mem::replace(self, fresh);
        open.then(|| json!({ "type": "diff", "path": path, "oldText": old, "newText": new }))
    }
}

/// Takes a unified diff of ours apart.
fn hunks(directory: &Path, diff: &str) -> Vec<Value> {
    let (mut all, mut hunk, mut before, mut left) = (Vec::new(), Hunk::default(), "", (0_u64, 0_u64));
    for line in diff.split('\n') {
        let inside = left != (0, 0);
        if inside {
            let (old, new) = left;
            match line.as_bytes().first() {
                Some(b'-') => left = (old.saturating_sub(1), new),
                Some(b'+') => left = (old, new.saturating_sub(1)),
                Some(b'\\') => {}
                _ => left = (old.saturating_sub(1), new.saturating_sub(1)),
            }
        }
        match line {
            _ if line.starts_with('\\') => hunk.without_end(before),
            // Behind the end of a diff that was cut.
            "" if inside => {}
            _ if inside => hunk.push(line),
            _ if line.starts_with("@@ ") => {
                all.extend(hunk.told());
                left = counts(line);
            }
            _ => {
                all.extend(hunk.told());
                if let Some(name) = line.strip_prefix("--- ") {
                    hunk.old = (name != "/dev/null").then(String::new);
                    hunk.path = named(directory, name, "a/").unwrap_or_default();
                } else if let Some(path) = line.strip_prefix("+++ ").and_then(|name| named(directory, name, "b/")) {
                    hunk.path = path;
                }
            }
        }
        before = line;
    }
    all.extend(hunk.told());
    all
}

fn named(directory: &Path, name: &str, side: &str) -> Option<String> {
    name.strip_prefix(side).map(|path| absolute(directory, path))
}

/// Lines of both sides that a hunk's head announces.
fn counts(head: &str) -> (u64, u64) {
    let mut sides = head.split(' ').skip(1).map(|side| {
        let count = side.get(1..).and_then(|side| side.split_once(',')).map_or(Ok(1), |(_, count)| count.parse());
        count.unwrap_or(0)
    });
    (sides.next().unwrap_or(0), sides.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Tools {
        let tool = |name: &str, category| ToolDefinition { category, ..ToolDefinition::new(name, "", Map::new()) };
        let all = [
            ("bash", Some(ToolCategory::Execute)),
            ("fs_edit", Some(ToolCategory::Edit)),
            ("fs_delete", Some(ToolCategory::Edit)),
            ("fs_grep", Some(ToolCategory::Search)),
            ("other", None),
        ];
        Tools::new(all.into_iter().map(|(name, category)| tool(name, category)).collect())
    }

    #[test]
    fn a_call_has_a_title_and_a_kind() {
        #[rustfmt::skip]
        let table = [
            ("bash", json!({ "command": "ls\n-l" }), "execute", "ls -l"),
            ("fs_edit", json!({ "path": "a" }), "edit", "Edit: a"),
            ("fs_delete", json!({ "path": "a" }), "delete", "Delete: a"),
            ("fs_grep", json!({ "pattern": "x", "path": "a" }), "search", "Search: x"),
            ("other", json!({}), "other", "other"),
            ("mcp:x/y", json!({ "query": " " }), "other", "mcp:x/y"),
        ];
        for (tool, args, kind, title) in table {
            let args = args.as_object().unwrap();
            assert_eq!((tools().kind(tool), tools().title(tool, args).as_str()), (kind, title));
        }
        let long = json!({ "command": "x".repeat(500) });
        assert_eq!(tools().title("bash", long.as_object().unwrap()).chars().count(), TITLE_CHARS_MAX + 1);
    }

    #[test]
    fn a_diff_becomes_what_was_and_what_is() {
        let diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9 +9 @@\n--- a\n+++ b\n--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+1\n+2\n\\ No newline at end of file\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n\\ No newline at end of file\nrename from p\nrename to q\n";
        let block = |path: &str, old: Option<&str>, new: &str| json!({ "type": "diff", "path": path, "oldText": old, "newText": new });
        let want = [
            block("/w/x", Some("a\nb\n"), "a\nc\n"),
            block("/w/x", Some("-- a\n"), "++ b\n"),
            block("/w/new", None, "1\n2"),
            block("/w/gone", Some("z"), ""),
        ];
        assert_eq!(changes(Path::new("/w"), &json!({ "diff": diff })), want);
        let cut = changes(
            Path::new("/w"),
            &json!({ "diff": "--- a//v/x\n+++ b//v/x\n@@ -1,9 +1,9 @@\n a\n-b\n", "truncated": true }),
        );
        assert_eq!(cut[0], block("/v/x", Some("a\nb\n"), "a\n"));
        assert_eq!(cut.len(), 2);
        assert!(changes(Path::new("/w"), &json!({ "path": "x" })).is_empty());
    }

    #[test]
    fn places_are_absolute() {
        let args = json!({ "path": "a", "to": "/b", "offset": 7, "cwd": "" });
        let want = [json!({ "path": "/w/a", "line": 7 }), json!({ "path": "/b", "line": 7 })];
        assert_eq!(locations(Path::new("/w"), args.as_object().unwrap()), want);
    }
}
