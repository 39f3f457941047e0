//! Takes a patch out of what it comes wrapped in: blank lines, a code fence, a here-document, an indent.

use super::Source;

/// The lines of the patch itself, numbered as in `text`.
///
/// Carriage returns are taken off when every line has one: then they came with the transport. Otherwise
/// they belong to the files' lines.
pub(super) fn lines(text: &str) -> Vec<Source<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines: Vec<Source<'_>> =
        text.split('\n').enumerate().map(|(index, text)| Source { number: index + 1, text }).collect();
    if lines.last().is_some_and(|last| last.text.is_empty()) {
        lines.pop();
    }
    if lines.iter().rev().skip(1).all(|line| line.text.ends_with('\r')) && lines.len() > 1 {
        lines.iter_mut().for_each(|line| line.text = line.text.strip_suffix('\r').unwrap_or(line.text));
    }
    let mut lines = &mut lines[..];
    for _ in 0..2 {
        lines = without_blank_ends(lines);
        lines = without_wrapper(lines);
    }
    dedent(lines);
    lines.to_vec()
}

fn without_blank_ends<'l, 't>(lines: &'l mut [Source<'t>]) -> &'l mut [Source<'t>] {
    let full = |line: &Source<'_>| !line.text.trim().is_empty();
    let Some(first) = lines.iter().position(full) else { return &mut [] };
    let last = lines.iter().rposition(full).unwrap_or(first);
    // A blank line at the end may be one of a file's own: only the start is sure.
    let end = if lines[last].text.trim().starts_with(['*', '`']) || ends_document(lines, first, last) {
        last + 1
    } else {
        lines.len()
    };
    &mut lines[first..end]
}

/// Whether the lines from `first` to `last` are a here-document.
fn ends_document(lines: &[Source<'_>], first: usize, last: usize) -> bool {
    document_word(lines[first].text).is_some_and(|word| lines[last].text.trim() == word)
}

/// Without a first and a last line that only wrap what is between.
fn without_wrapper<'l, 't>(lines: &'l mut [Source<'t>]) -> &'l mut [Source<'t>] {
    let [first, .., last] = &lines[..] else { return lines };
    let fence = first.text.trim_start().starts_with("```") && last.text.trim() == "```";
    let document = ends_document(lines, 0, lines.len() - 1);
    if !fence && !document {
        return lines;
    }
    let end = lines.len() - 1;
    &mut lines[1..end]
}

/// The closing word that a line such as `apply_patch <<'EOF'` asks for.
fn document_word(line: &str) -> Option<&str> {
    let (before, word) = line.trim().split_once("<<")?;
    if !matches!(before.trim(), "" | "apply_patch" | "applypatch" | "cat" | "git apply" | "patch -p1") {
        return None;
    }
    let word = word.trim_start_matches('-').trim();
    let word = ['\'', '"'].iter().find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(word);
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    (!word.is_empty() && word.chars().all(plain)).then_some(word)
}

/// Takes off what every line is indented by, when the first marker is.
fn dedent(lines: &mut [Source<'_>]) {
    let Some(first) = lines.first().map(|line| line.text) else { return };
    let indent = &first[..first.len() - first.trim_start_matches([' ', '\t']).len()];
    let marker = ["*** ", "diff --git ", "--- "].iter().any(|marker| first[indent.len()..].starts_with(marker));
    let common = |line: &Source<'_>| line.text.trim().is_empty() || line.text.starts_with(indent);
    if indent.is_empty() || !marker || !lines.iter().all(common) {
        return;
    }
    lines.iter_mut().for_each(|line| line.text = line.text.get(indent.len()..).unwrap_or(""));
}
