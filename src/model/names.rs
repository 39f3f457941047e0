//! Tools' names as providers take them: letters, digits, `_` and `-`, at most 64 of them.
//!
//! A name of ours that fits is sent as it is. Another, such as `mcp:files/read`, is spelt `mcp__files__read`, with a
//! mark of its own behind it where that is too long or another tool's spelling already. The spelling depends on the
//! names alone, so that it is the same in each request, and what a provider keeps of a prompt stays good.

use std::borrow::Cow;
use std::collections::HashMap;

use super::ModelEvent;
use crate::base::text::fnv1a;
use crate::protocol::ToolDefinition;

/// The longest name that all providers take.
const BYTES_MAX: usize = 64;
/// `_` and eight hexadecimal digits.
const MARK_BYTES: usize = 9;

/// The spellings of one request. Empty, and free, where all names fit.
#[derive(Debug, Default)]
pub struct WireNames {
    to_wire: HashMap<String, String>,
    to_ours: HashMap<String, String>,
}

impl WireNames {
    /// The spellings of these tools.
    pub fn of(tools: &[ToolDefinition]) -> Self {
        Self::of_names(tools.iter().map(|tool| tool.name.as_str()))
    }

    /// The spellings of tools of these names.
    pub fn of_names<'n>(all: impl Iterator<Item = &'n str> + Clone) -> Self {
        let mut names = Self::default();
        let misfits: Vec<&str> = all.clone().filter(|name| !fits(name)).collect();
        if misfits.is_empty() {
            return names;
        }
        let mut taken: HashMap<String, usize> = HashMap::new();
        let plain = all.map(|name| spelt(name).into_owned());
        plain.for_each(|spelling| *taken.entry(spelling).or_default() += 1);
        for name in misfits {
            let plain = spelt(name);
            let alone = taken.get(plain.as_ref()).is_none_or(|count| *count < 2);
            let spelling = if alone { plain.into_owned() } else { marked(name) };
            names.to_ours.insert(spelling.clone(), name.to_owned());
            names.to_wire.insert(name.to_owned(), spelling);
        }
        names
    }

    /// A name as it is sent; one that is none of the tools' (any more) gets its plain spelling.
    pub fn wire<'n>(&'n self, name: &'n str) -> Cow<'n, str> {
        self.to_wire.get(name).map_or_else(|| spelt(name), |spelling| Cow::Borrowed(spelling.as_str()))
    }

    /// What came from a model, with our names in it.
    pub fn restore(&self, mut event: ModelEvent) -> ModelEvent {
        let name = match &mut event {
            ModelEvent::Call(call) => &mut call.name,
            ModelEvent::BadCall { name, .. } => name,
            _ => return event,
        };
        if let Some(ours) = self.to_ours.get(name) {
            name.clone_from(ours);
        }
        event
    }
}

fn fits(name: &str) -> bool {
    (1..=BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The plain spelling.
fn spelt(name: &str) -> Cow<'_, str> {
    if fits(name) {
        return Cow::Borrowed(name);
    }
    let spelling = replaced(name);
    if fits(&spelling) { Cow::Owned(spelling) } else { Cow::Owned(marked(name)) }
}

/// The start of the spelling, and a mark that belongs to this name.
fn marked(name: &str) -> String {
    let mut spelling = replaced(name);
    spelling.truncate(BYTES_MAX - MARK_BYTES);
    let [.., a, b, c, d] = fnv1a(name.as_bytes()).to_be_bytes();
    format!("{spelling}_{:08x}", u32::from_be_bytes([a, b, c, d]))
}

/// In ASCII.
fn replaced(name: &str) -> String {
    let mut spelling = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        match c {
            ':' | '/' => spelling.push_str("__"),
            c if c.is_ascii_alphanumeric() || c == '-' => spelling.push(c),
            _ => spelling.push('_'),
        }
    }
    spelling
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::ToolCallRequest;

    fn names(names: &[&str]) -> WireNames {
        let tool = |name: &&str| serde_json::from_value(json!({ "name": name, "description": "" })).unwrap();
        WireNames::of(&names.iter().map(tool).collect::<Vec<ToolDefinition>>())
    }

    fn ours(names: &WireNames, wire: &str) -> String {
        let call = ToolCallRequest { id: "c".into(), name: wire.into(), arguments: serde_json::Map::new() };
        match names.restore(ModelEvent::Call(call)) {
            ModelEvent::Call(call) => call.name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_name_goes_out_in_a_form_that_is_taken_and_comes_back() {
        let long = format!("mcp:files/{}", "n".repeat(100));
        let other = format!("mcp:files/{}2", "n".repeat(100));
        let all = ["bash", "mcp:a/read", "mcp__a__read", "mcp:a/b.c", "mcp:a/b:c", "mcp:ä/x", &long, &other, ""];
        let names = names(&all);
        let mut seen = std::collections::HashSet::new();
        for name in all {
            let wire = names.wire(name).into_owned();
            assert!(fits(&wire), "{name} as {wire}");
            assert!(seen.insert(wire.clone()), "{wire} stands for two");
            assert_eq!(ours(&names, &wire), name);
        }
        assert_eq!(names.wire("mcp__a__read"), "mcp__a__read");
        assert_eq!(names.wire("mcp:a/b.c"), "mcp__a__b_c");
    }

    #[test]
    fn names_that_fit_cost_nothing_and_unknown_ones_are_spelt_too() {
        let names = names(&["bash", "fs_read"]);
        assert!(names.to_wire.is_empty() && names.to_ours.is_empty());
        assert_eq!((names.wire("bash"), names.wire("mcp:gone/x")), ("bash".into(), "mcp__gone__x".into()));
        assert_eq!(ours(&names, "mcp:as/is"), "mcp:as/is");
    }
}
