//! Small changes of a function that may be what is wrong with it: one operator for another.

/// A change of one line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    /// Its line, from 1.
    pub line: usize,
    /// What stands there, with as many lines before it as make it unique in the file.
    pub old: String,
    /// What shall stand there.
    pub new: String,
    /// The operator that goes, and the one that comes.
    pub swap: (&'static str, &'static str),
}

/// Operators and what is tried in their place. `grows`: the first of a pair when the result was too small.
struct Swap {
    from: &'static str,
    to: &'static [&'static str],
    to_when_too_small: &'static [&'static str],
}

const fn swap(from: &'static str, to: &'static [&'static str], to_when_too_small: &'static [&'static str]) -> Swap {
    Swap { from, to, to_when_too_small }
}

/// Longer operators stand before those that are a part of them; blanks on both sides keep apart the rest.
const SWAPS: &[Swap] = &[
    swap(" + ", &[" - ", " * "], &[" * ", " - "]),
    swap(" - ", &[" + "], &[" + "]),
    swap(" * ", &[" / ", " + "], &[" + ", " / "]),
    swap(" / ", &[" * "], &[" * "]),
    swap(" % ", &[" / "], &[" / "]),
    swap(" += ", &[" -= "], &[" -= "]),
    swap(" -= ", &[" += "], &[" += "]),
    swap(" < ", &[" <= ", " > "], &[" <= ", " > "]),
    swap(" <= ", &[" < ", " >= "], &[" < ", " >= "]),
    swap(" > ", &[" >= ", " < "], &[" >= ", " < "]),
    swap(" >= ", &[" > ", " <= "], &[" > ", " <= "]),
    swap(" === ", &[" !== "], &[" !== "]),
    swap(" !== ", &[" === "], &[" === "]),
    swap(" && ", &[" || "], &[" || "]),
    swap(" || ", &[" && "], &[" && "]),
    swap("Math.floor(", &["Math.ceil("], &["Math.ceil("]),
    swap("Math.ceil(", &["Math.floor("], &["Math.floor("]),
    swap("Math.min(", &["Math.max("], &["Math.max("]),
    swap("Math.max(", &["Math.min("], &["Math.min("]),
];

/// The changes worth a try in the function that begins on line `start` (from 1), best first.
///
/// Arithmetic comes before comparisons, in the order of the lines. `too_small`: what the test got was less
/// than what it wanted.
pub(super) fn changes(lines: &[&str], start: usize, too_small: bool) -> Vec<Change> {
    let end = function_end(lines, start);
    let mut found = Vec::new();
    for swap in SWAPS {
        let to = if too_small { swap.to_when_too_small } else { swap.to };
        for line in start..=end {
            let text = lines[line - 1];
            let code = text.split("//").next().unwrap_or(text);
            if text.trim_start().starts_with(['*', '/']) {
                continue;
            }
            for (at, _) in code.match_indices(swap.from) {
                for to in to {
                    let changed = format!("{}{to}{}", &text[..at], &text[at + swap.from.len()..]);
                    let (old, new) = unique(lines, line, &changed);
                    found.push(Change { line, old, new, swap: (swap.from.trim(), to.trim()) });
                }
            }
        }
    }
    found
}

/// The last line of the function that begins on line `start`: where its braces are even again.
fn function_end(lines: &[&str], start: usize) -> usize {
    let mut depth = 0_i32;
    let mut opened = false;
    for (at, text) in lines.iter().enumerate().skip(start - 1) {
        for c in text.chars() {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            opened |= c == '{';
        }
        if opened && depth <= 0 {
            return at + 1;
        }
    }
    lines.len()
}

/// A line and its new form, both with as many lines before them as make the old one unique in the file.
fn unique(lines: &[&str], line: usize, changed: &str) -> (String, String) {
    let whole = lines.join("\n");
    let mut from = line - 1;
    loop {
        let old = lines[from..line].join("\n");
        if from == 0 || whole.matches(&old).count() == 1 {
            let mut new: Vec<&str> = lines[from..line - 1].to_vec();
            new.push(changed);
            return (old, new.join("\n"));
        }
        from -= 1;
    }
}
