//! For a miss: the lines of the file that look most like what was looked for.

use super::distance::{End, Table, Target};
use super::lines::Text;

/// Lines that are told.
const NEAR_LINES_MAX: usize = 3;
/// Lines that are looked at.
const LINES_MAX: usize = 50_000;
/// Characters of a line that are compared and told.
const LINE_CHARS_MAX: usize = 200;
/// Least likeness that is worth telling.
const LIKENESS_MIN: f64 = 0.5;

/// A line that resembles the first one looked for.
#[derive(Debug, Clone, PartialEq)]
pub struct NearLine {
    /// Its number, from 1.
    pub line: usize,
    /// Its text, cut when long.
    pub text: String,
}

/// The nearest lines, best first. Empty when nothing is near.
pub(super) fn find(content: &Text<'_>, old: &Text<'_>) -> Vec<NearLine> {
    let Some(wanted) = old.trimmed().iter().find(|line| !line.is_empty()) else { return Vec::new() };
    let Some(target) = Target::new(wanted.chars().take(LINE_CHARS_MAX), usize::MAX) else { return Vec::new() };
    let mut near: Vec<(f64, usize)> = Vec::with_capacity(NEAR_LINES_MAX + 1);
    // A line is short: what it costs has its bound already.
    let (mut classes, mut table) = (Vec::new(), Table::new(usize::MAX));
    for (index, line) in content.trimmed().iter().take(LINES_MAX).enumerate().filter(|(_, line)| !line.is_empty()) {
        // A line that is only as near as those before it comes after them.
        let full = near.get(NEAR_LINES_MAX - 1).map(|(likeness, _)| *likeness);
        let least = full.unwrap_or(LIKENESS_MIN);
        // Longer in bytes than in characters, it may be shorter than this.
        if likeness(target.len().saturating_sub(line.len()), target.len()) < least {
            continue;
        }
        classes.clear();
        target.encode(head(line), &mut classes);
        let longer = classes.len().max(target.len());
        let end = End { len: classes.len(), most: longest(longer, least) };
        let told = target.distances(&classes, &[end], &mut table, |_, distance| {
            let likeness = likeness(distance, longer);
            if full.is_none_or(|full| likeness > full) && likeness >= LIKENESS_MIN {
                let place = near.partition_point(|(other, _)| *other >= likeness);
                near.insert(place, (likeness, index));
                near.truncate(NEAR_LINES_MAX);
            }
        });
        debug_assert_eq!(told, Ok(()), "the budget is endless");
    }
    let told = |(_, index): (f64, usize)| NearLine {
        line: index + 1,
        text: content.line(index).chars().take(LINE_CHARS_MAX).collect(),
    };
    near.into_iter().map(told).collect()
}

/// The part of a line that is compared.
fn head(line: &str) -> &str {
    if line.len() <= LINE_CHARS_MAX {
        return line;
    }
    line.char_indices().nth(LINE_CHARS_MAX).map_or(line, |(end, _)| &line[..end])
}

#[allow(clippy::cast_precision_loss, reason = "lines are short")]
fn likeness(distance: usize, longer: usize) -> f64 {
    1.0 - distance as f64 / longer as f64
}

/// A distance that is at least the largest of such a likeness.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lines are short, and a likeness is at most one"
)]
fn longest(longer: usize, likeness: f64) -> usize {
    ((1.0 - likeness) * longer as f64).ceil() as usize
}

/// The end of the sentence about a miss.
pub(super) fn told(near: &[NearLine]) -> String {
    if near.is_empty() {
        return ", and no line resembles it. Read the file again before the next try".to_owned();
    }
    let lines: Vec<String> = near.iter().map(|near| format!("\n{:>6}\t{}", near.line, near.text)).collect();
    format!(". The nearest lines are:{}", lines.concat())
}
