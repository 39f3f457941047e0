//! An entry of the timeline as lines.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use serde_json::{Map, Value};

use super::markdown;
use super::text::{cut, difference, harmless, plain};
use super::timeline::{Call, CallState, Entry, Shown};
use crate::protocol::NoticeLevel;

/// In front of what an entry says.
pub(super) const FRONT: &str = "  ";
/// In front of what a call wrote.
const OUTPUT: &str = "    ";
/// Lines of a call's output that are shown before somebody asks for more.
const LINES_SHOWN: usize = 6;
/// Lines of an entry that is unfolded, at most; the whole lies in the history.
const LINES_MAX: usize = 4_000;
/// Arguments that say what a call is about, the first one that is there.
const SUBJECTS: [&str; 11] =
    ["command", "cmd", "path", "file_path", "pattern", "query", "url", "task", "name", "subject", "key"];

/// What a call is about, in a line.
pub(super) fn subject(arguments: &Map<String, Value>) -> String {
    for name in SUBJECTS {
        match arguments.get(name) {
            Some(Value::String(text)) if !text.is_empty() => return text.lines().next().unwrap_or_default().to_owned(),
            Some(Value::Array(list)) if !list.is_empty() => {
                return list
                    .iter()
                    .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
                    .collect::<Vec<_>>()
                    .join(" ");
            }
            _ => {}
        }
    }
    if arguments.is_empty() { String::new() } else { Value::Object(arguments.clone()).to_string() }
}

/// The lines of an entry. `unfolded`: all that there is of it.
pub(super) fn lines(entry: &Entry, columns: usize, unfolded: bool) -> Vec<Line<'static>> {
    let mut lines = match &entry.shown {
        Shown::User { text, pictures, steers } => {
            let style = Style::new().fg(Color::Blue).add_modifier(Modifier::BOLD);
            let mut lines = plain(text, Style::new().add_modifier(Modifier::BOLD), columns, FRONT);
            if let Some(first) = lines.first_mut() {
                let sign = if *steers { "» " } else { "> " };
                first.spans.retain(|span| span.content != FRONT);
                first.spans.insert(0, Span::styled(sign, style));
            }
            if *pictures > 0 {
                lines.push(faint(&format!("{FRONT}[{}]", crate::base::text::counted(*pictures, "picture"))));
            }
            lines
        }
        Shown::Assistant { text, reasoning } => {
            let mut lines = thoughts(reasoning, columns, unfolded);
            lines.extend(markdown::lines(text, columns, FRONT));
            lines
        }
        Shown::Call(call) => called(call, columns, unfolded),
        Shown::Summary(text) => {
            let mut lines = vec![faint("── what came before was summed up ──")];
            if unfolded {
                lines.extend(markdown::lines(text, columns, FRONT));
            }
            lines
        }
        Shown::Changes { files, count } => {
            let mut lines = vec![Line::from(Span::styled(
                format!(
                    "{FRONT}{} changed",
                    crate::base::text::counted(usize::try_from(*count).unwrap_or(usize::MAX), "file")
                ),
                Style::new().fg(Color::Green),
            ))];
            for file in files {
                let words = format!("{OUTPUT}{} +{} −{}", file.path, file.added, file.removed);
                lines.push(faint(&cut(&words, columns)));
                if let Some(diff) = file.diff.as_deref().filter(|_| unfolded) {
                    lines.extend(difference(diff, columns, OUTPUT));
                }
            }
            lines
        }
        Shown::Note { level, text } => {
            let colour = match level {
                NoticeLevel::Info => Color::DarkGray,
                NoticeLevel::Warning => Color::Yellow,
                NoticeLevel::Error => Color::Red,
            };
            plain(text, Style::new().fg(colour), columns, FRONT)
        }
    };
    if lines.len() > LINES_MAX {
        let left = lines.len() - LINES_MAX;
        lines.truncate(LINES_MAX);
        lines.push(faint(&format!("{OUTPUT}… {left} more lines")));
    }
    lines.push(Line::raw(""));
    lines
}

/// Words that matter less.
pub(super) fn faint(text: &str) -> Line<'static> {
    Line::from(Span::styled(harmless(text), Style::new().fg(Color::DarkGray)))
}

/// What the model thought, folded to its end.
pub(super) fn thoughts(reasoning: &str, columns: usize, unfolded: bool) -> Vec<Line<'static>> {
    if reasoning.trim().is_empty() {
        return Vec::new();
    }
    let style = Style::new().fg(Color::DarkGray).add_modifier(Modifier::ITALIC);
    let shown = if unfolded { reasoning } else { crate::base::text::tail(reasoning, 2_000) };
    let mut lines = plain(shown, style, columns, FRONT);
    if !unfolded && lines.len() > 2 {
        lines.drain(..lines.len() - 2);
        lines.insert(0, faint(&format!("{FRONT}(thinking …)")));
    }
    lines
}

fn called(call: &Call, columns: usize, unfolded: bool) -> Vec<Line<'static>> {
    let (sign, colour) = match call.state {
        CallState::Running => ("◌ ", Color::Yellow),
        CallState::Done => ("● ", Color::Green),
        CallState::Failed => ("✗ ", Color::Red),
    };
    let took = call.duration_ms.map(|ms| format!("  {}", span(ms))).unwrap_or_default();
    let about = cut(&subject(&call.arguments), columns.saturating_sub(call.name.len() + took.len() + 5));
    let mut lines = vec![Line::from(vec![
        Span::styled(sign, Style::new().fg(colour)),
        Span::styled(harmless(&call.name), Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("  {about}")),
        Span::styled(took, Style::new().fg(Color::DarkGray)),
    ])];
    if unfolded {
        for (name, value) in &call.arguments {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if name != "old_string" && name != "new_string" && name != "content" {
                lines.extend(plain(&format!("{name}: {text}"), Style::new().fg(Color::DarkGray), columns, OUTPUT));
            }
        }
    }
    lines.extend(replaced(&call.arguments, columns, unfolded));
    if call.skipped_bytes > 0 {
        lines.push(faint(&format!("{OUTPUT}… {} bytes before this", call.skipped_bytes)));
    }
    lines.extend(output(call, columns, unfolded));
    for finding in &call.findings {
        lines.extend(plain(finding, Style::new().fg(Color::Yellow), columns, OUTPUT));
    }
    if call.pictures > 0 {
        lines.push(faint(&format!("{OUTPUT}[{}]", crate::base::text::counted(call.pictures, "picture"))));
    }
    lines
}

/// What an edit puts in the place of what.
fn replaced(arguments: &Map<String, Value>, columns: usize, unfolded: bool) -> Vec<Line<'static>> {
    let text = |names: &[&str]| names.iter().find_map(|name| arguments.get(*name)?.as_str()).unwrap_or_default();
    let signed = |text: &str, sign: char| text.lines().map(|line| format!("{sign}{line}")).collect::<Vec<_>>();
    let mut rows = signed(text(&["old_string", "oldText"]), '-');
    rows.extend(signed(text(&["new_string", "newText", "content"]), '+'));
    if rows.is_empty() {
        rows = text(&["patch", "input"]).lines().map(str::to_owned).collect();
    }
    let all = rows.len();
    if !unfolded && all > 2 * LINES_SHOWN {
        rows.truncate(2 * LINES_SHOWN);
    }
    let mut lines = if rows.is_empty() { Vec::new() } else { difference(&rows.join("\n"), columns, OUTPUT) };
    if rows.len() < all {
        lines.push(faint(&format!("{OUTPUT}… {} more lines", all - rows.len())));
    }
    lines
}

fn output(call: &Call, columns: usize, unfolded: bool) -> Vec<Line<'static>> {
    let text = call.output.trim_end();
    if text.is_empty() {
        return Vec::new();
    }
    let style =
        if call.state == CallState::Failed { Style::new().fg(Color::Red) } else { Style::new().fg(Color::Gray) };
    let rows: Vec<&str> = text.lines().collect();
    if unfolded || rows.len() <= LINES_SHOWN {
        return plain(text, style, columns, OUTPUT);
    }
    // Of what runs the newest lines matter, of what has ended both ends.
    let (head, tail) = if call.state == CallState::Running { (0, LINES_SHOWN) } else { (2, LINES_SHOWN - 2) };
    let mut lines = Vec::new();
    for row in rows.iter().take(head) {
        lines.push(Line::from(Span::styled(format!("{OUTPUT}{}", cut(row, columns - OUTPUT.len())), style)));
    }
    lines.push(faint(&format!("{OUTPUT}… {} more lines", rows.len() - head - tail)));
    for row in rows.iter().skip(rows.len() - tail) {
        lines.push(Line::from(Span::styled(format!("{OUTPUT}{}", cut(row, columns - OUTPUT.len())), style)));
    }
    lines
}

/// A span of time, in words.
pub(super) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(arguments: Value, output: &str, state: CallState) -> Entry {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let call = Call {
            id: "1".into(),
            name: "bash".into(),
            arguments,
            state,
            output: output.into(),
            findings: Vec::new(),
            duration_ms: Some(1_250),
            skipped_bytes: 0,
            pictures: 0,
        };
        Entry { seq: 1, turn: None, shown: Shown::Call(Box::new(call)), edition: 0 }
    }

    fn shown(entry: &Entry, unfolded: bool) -> String {
        lines(entry, 60, unfolded).iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn a_call_is_folded_until_somebody_wants_it_whole() {
        let long: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let entry = call(json!({ "command": "make\ntest" }), &long, CallState::Done);
        let folded = shown(&entry, false);
        assert!(folded.starts_with("● bash  make  1.2 s\n    line 1\n    line 2\n    … 14 more lines\n"), "{folded}");
        assert!(folded.contains("line 20") && !folded.contains("line 10"));
        let whole = shown(&entry, true);
        assert!(whole.contains("line 10") && whole.contains("command: make"), "{whole}");
    }

    #[test]
    fn an_edit_shows_what_it_replaces() {
        let entry = call(json!({ "path": "a.rs", "old_string": "one", "new_string": "two" }), "ok", CallState::Done);
        assert!(shown(&entry, false).contains("    -one\n    +two\n    ok"), "{}", shown(&entry, false));
    }

    #[test]
    fn control_characters_stay_out() {
        let entry = call(json!({ "command": "\u{1b}[2J" }), "\u{1b}]0;x\u{7}", CallState::Failed);
        assert!(!shown(&entry, true).contains(['\u{1b}', '\u{7}']));
    }
}
