//! Which part of a conversation is summed up, and what the model is shown instead. Pure.
//!
//! [`cut`] chooses, [`shorten_to`] puts the summary in its place, [`transcript`] is what is summed up as one text, for a model that
//! cannot be shown it as it was. Invariants: a call is never parted from its result; what stays is word for word what it was; the
//! conversation that comes of a [`Compaction`] depends on nothing but that and the messages before it, so that a reader of the log
//! makes the same one.

use super::{SUMMARY_MARKS, chars, conversation_chars, units};
use crate::base::text;
use crate::protocol::{Compaction, Message, Part, TouchedFiles};

/// What a summary begins with (typescript-api.md §7, `compact`).
pub const SUMMARY_MARK: &str = SUMMARY_MARKS[1];
/// UTF-16 units that are reckoned as one token.
pub const UNITS_PER_TOKEN: u64 = 4;
/// Lengths to which the outputs in a transcript are cut, in bytes: the first with which it fits counts.
const OUTPUT_STEPS: [usize; 4] = [2_000, 500, 120, 0];
/// What stands where a transcript lost its middle.
const LEFT_OUT: &str = "[messages are left out here: there was no room for them]";

/// Which messages stay when a conversation is summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// So many of the newest.
    pub kept: usize,
    /// Of those before them, what the user said that stays word for word: how far each lies in front of the kept ones, 1 is the
    /// one right before them; oldest first.
    pub carried: Vec<usize>,
}

/// How much stays, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// What the user said last stays in any case, where nothing has come behind it: it is to be answered.
    pub prompt: bool,
    /// Of the newest messages.
    pub newest: u64,
    /// Of what the user said before those.
    pub said: u64,
    /// Of what the user said last, where that is longer: what is worked on.
    pub last: u64,
}

/// About how many tokens a message has.
fn tokens(message: &Message) -> u64 {
    chars(message).div_ceil(UNITS_PER_TOKEN)
}

/// About how many tokens a conversation has.
pub fn conversation_tokens(messages: &[Message]) -> u64 {
    conversation_chars(messages).div_ceil(UNITS_PER_TOKEN)
}

/// Chooses what stays. None: there is nothing in front of it that could be summed up.
///
/// The newest messages stay as far as there is room for them.
pub fn cut(messages: &[Message], keep: Keep) -> Option<Cut> {
    let asks = matches!(messages.last(), Some(last @ Message::User(_)) if messages.len() > 1 || !is_summary(last));
    let (mut kept, mut room) = (usize::from(keep.prompt && asks), keep.newest);
    for (at, message) in messages.iter().enumerate().rev() {
        let Some(left) = room.checked_sub(tokens(message)) else { break };
        room = left;
        // A result stays only behind the call that it is of.
        let stands_alone = matches!(message, Message::ToolResult { .. }) || (at == 0 && is_summary(message));
        if !stands_alone {
            kept = messages.len() - at;
        }
    }
    let old = &messages[..messages.len() - kept];
    // A summary stands in front; what the user says may look like one anywhere else.
    if old.is_empty() || (old.len() == 1 && old.iter().all(is_summary)) {
        return None;
    }
    let (mut carried, mut room) = (Vec::new(), keep.said);
    // Where the user spoke in what is kept, that is what is worked on.
    let mut last =
        if messages[old.len()..].iter().any(|kept| matches!(kept, Message::User(_))) { 0 } else { keep.last };
    for (back, message) in (1..).zip(old.iter().rev()) {
        if !matches!(message, Message::User(_)) || (back == old.len() && is_summary(message)) {
            continue;
        }
        let tokens = tokens(message);
        if tokens <= std::mem::take(&mut last) {
            room = room.saturating_sub(tokens);
            carried.push(back);
            continue;
        }
        // One that is too long is not in the way of those before it.
        if let Some(left) = room.checked_sub(tokens) {
            room = left;
            carried.push(back);
        }
    }
    carried.reverse();
    Some(Cut { kept, carried })
}

/// Whether a message sums up all before it.
pub fn is_summary(message: &Message) -> bool {
    match message {
        Message::User(parts) => match parts.first() {
            Some(Part::Text { text }) => SUMMARY_MARKS.iter().any(|mark| text.starts_with(mark)),
            Some(Part::Image { .. }) | None => false,
        },
        Message::Assistant { .. } | Message::ToolResult { .. } => false,
    }
}

/// Puts a summary into the place of what it sums up.
pub fn shorten_to(messages: &mut Vec<Message>, made: &Compaction) {
    let kept = usize::try_from(made.kept).unwrap_or(usize::MAX).min(messages.len());
    let newest = messages.split_off(messages.len() - kept);
    let place = |back: &u64| messages.len().checked_sub(usize::try_from(*back).ok()?);
    let carried: Vec<Message> =
        made.carried.iter().filter_map(place).filter_map(|at| messages.get(at)).cloned().collect();
    messages.clear();
    messages.push(summary_of(made));
    messages.extend(carried);
    messages.extend(newest);
}

/// How many of the messages somebody has heard who had heard so many of `before` messages, once they are summed up.
pub fn heard_of(made: &Compaction, (heard, before): (usize, usize)) -> usize {
    let kept = usize::try_from(made.kept).unwrap_or(usize::MAX).min(before);
    let first_kept = before - kept;
    // Who has not heard all of what was summed up needs the summary.
    heard.checked_sub(first_kept).map_or(0, |newest| 1 + made.carried.len() + newest)
}

/// What the model is told in the place of what went.
fn summary_of(made: &Compaction) -> Message {
    let mut parts = vec![Part::Text { text: format!("{SUMMARY_MARK}\n{}", made.summary) }];
    if let Some(text) = told_of(&made.files) {
        parts.push(Part::Text { text });
    }
    for file in &made.attached {
        parts.push(Part::Text { text: format!("{ATTACHED}{} as it is now]\n{}", file.path, file.text) });
    }
    Message::User(parts)
}

/// What a file begins with that is shown again.
const ATTACHED: &str = "[The file ";
/// The line in which changed files stand.
const CHANGED: &str = "Files changed so far: ";
/// The line in which read ones do.
const READ: &str = "Files read so far: ";

fn told_of(files: &TouchedFiles) -> Option<String> {
    let line = |name: &str, paths: &[String]| (!paths.is_empty()).then(|| format!("{name}{}", paths.join(", ")));
    let lines = [line(CHANGED, &files.changed), line(READ, &files.read)];
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The files that a summary tells of, in the order in which it does.
pub fn files_of(message: &Message) -> TouchedFiles {
    let Message::User(parts) = message else { return TouchedFiles::default() };
    let Some(Part::Text { text }) = parts.get(1).filter(|_| is_summary(message)) else {
        return TouchedFiles::default();
    };
    let listed = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.split(", ").map(str::to_owned).collect()).unwrap_or_default()
    };
    TouchedFiles { changed: listed(CHANGED), read: listed(READ) }
}

/// A conversation as one text of at most about `units_max` UTF-16 units.
///
/// What is too long loses the middle of its outputs, and then its own middle: how it began and what was last stay.
pub fn transcript(messages: &[Message], units_max: usize) -> String {
    for step in OUTPUT_STEPS {
        let mut all: Vec<String> = messages.iter().map(|message| told(message, step)).collect();
        if let (Some(summary), Some(first)) = (messages.first().and_then(summary_alone), all.first_mut()) {
            *first = summary;
        }
        let whole = all.join("\n\n");
        if units(&whole) <= units_max {
            return whole;
        }
        if step == 0 {
            return without_middle(&all, messages.first().is_some_and(is_summary), units_max);
        }
    }
    String::new()
}

/// An earlier summary with its files, and without what was shown again.
fn summary_alone(message: &Message) -> Option<String> {
    let Message::User(parts) = message else { return None };
    let texts = parts.iter().take(2).filter_map(|part| match part {
        Part::Text { text } if !text.starts_with(ATTACHED) => Some(text.as_str()),
        Part::Text { .. } | Part::Image { .. } => None,
    });
    is_summary(message).then(|| format!("[User]\n{}", texts.collect::<Vec<_>>().join("\n")))
}

/// `summed`: the first one is an earlier summary, which stays.
fn without_middle(all: &[String], summed: bool, units_max: usize) -> String {
    let summary = all.first().filter(|_| summed).map(|summary| shown(summary, units_max / 2));
    if let Some(summary) = summary {
        let rest = without_middle(&all[1..], false, units_max.saturating_sub(units(&summary)));
        return format!("{summary}\n\n{rest}");
    }
    // What came last matters most.
    let (begin_max, end_max) = (units_max / 5, units_max - units_max / 5);
    let fitting = |texts: &mut dyn Iterator<Item = &String>, max: usize| {
        let mut used = 0;
        texts
            .take_while(|text| {
                used += units(text) + 2;
                used <= max
            })
            .count()
    };
    let first = fitting(&mut all.iter(), begin_max);
    let last = fitting(&mut all.iter().rev(), end_max).min(all.len() - first);
    let mut kept: Vec<&str> = all.iter().take(first).map(String::as_str).collect();
    kept.push(LEFT_OUT);
    let newest = all.last().filter(|_| last == 0);
    // Even the last one alone is too long: both its ends.
    let ends = newest.map(|text| shown(text, end_max / 2));
    kept.extend(ends.as_deref());
    kept.extend(all.iter().skip(all.len() - last).map(String::as_str));
    kept.join("\n\n")
}

fn told(message: &Message, output_bytes_max: usize) -> String {
    match message {
        Message::User(parts) => {
            let mut said = "[User]".to_owned();
            for part in parts {
                said.push('\n');
                match part {
                    Part::Text { text } => said.push_str(text),
                    Part::Image { media_type, .. } => said.push_str(&format!("[an image, {media_type}]")),
                }
            }
            said
        }
        Message::Assistant { text, calls, .. } => {
            let mut said = "[Assistant]".to_owned();
            if !text.trim().is_empty() {
                said.push_str(&format!("\n{text}"));
            }
            for call in calls {
                let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
                // Arguments may be whole files.
                said.push_str(&format!("\n[calls {} {}]", call.name, shown(&arguments, output_bytes_max.max(120))));
            }
            said
        }
        Message::ToolResult { name, output, is_error, .. } => {
            let fate = if *is_error { " (failed)" } else { "" };
            format!("[Tool Result: {name}{fate}]\n{}", shown(output, output_bytes_max))
        }
    }
}

/// Both ends of a text that is longer than that.
fn shown(whole: &str, bytes_max: usize) -> String {
    if whole.len() <= bytes_max {
        return whole.to_owned();
    }
    if bytes_max == 0 {
        return format!("[{} bytes]", whole.len());
    }
    let (head, tail) = (text::head(whole, bytes_max / 2), text::tail(whole, bytes_max / 2));
    format!("{head}\n[{} bytes are left out here]\n{tail}", whole.len() - head.len() - tail.len())
}

/// The headings of a summary (`prompt/text/compaction_task.md`).
const HEADINGS: [&str; 6] = ["goal", "state", "decisions", "files", "next steps", "open questions"];

/// Whether a text is a summary of the form that was asked for: a heading of it at least, and more than that.
pub fn looks_like_summary(text: &str) -> bool {
    let headings = text.lines().filter(|line| {
        let bare = line.trim().trim_matches(|c: char| c == '#' || c == '*' || c == ':' || c.is_whitespace());
        HEADINGS.iter().any(|heading| bare.eq_ignore_ascii_case(heading))
    });
    headings.count() >= 2
}

/// A summary as it is kept: without blank ends, and of at most `bytes_max`. None: it says nothing.
pub fn tidied(summary: &str, bytes_max: usize) -> Option<String> {
    let summary = summary.trim();
    let cut = text::head(summary, bytes_max);
    let tidy =
        if cut.len() < summary.len() { format!("{cut}\n[cut: the summary was too long]") } else { cut.to_owned() };
    (!tidy.is_empty()).then_some(tidy)
}

#[cfg(test)]
mod tests;
