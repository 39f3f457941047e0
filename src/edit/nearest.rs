//! For a miss: the lines of the file that look most like what was looked for.

use rapidfuzz::distance::levenshtein;

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
    let Some(wanted) = old.iter().map(str::trim).find(|line| !line.is_empty()) else { return Vec::new() };
    let comparator = levenshtein::BatchComparator::new(wanted.chars().take(LINE_CHARS_MAX));
    let args = levenshtein::Args::default().score_cutoff(LIKENESS_MIN);
    let mut near: Vec<(f64, usize)> = Vec::new();
    for (index, line) in content.iter().take(LINES_MAX).enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let chars: Vec<char> = line.trim().chars().take(LINE_CHARS_MAX).collect();
        if let Some(likeness) = comparator.normalized_similarity_with_args(chars.iter().copied(), &args) {
            near.push((likeness, index));
        }
    }
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let told = |(_, index): (f64, usize)| NearLine {
        line: index + 1,
        text: content.line(index).chars().take(LINE_CHARS_MAX).collect(),
    };
    near.into_iter().take(NEAR_LINES_MAX).map(told).collect()
}

/// The end of the sentence about a miss.
pub(super) fn told(near: &[NearLine]) -> String {
    if near.is_empty() {
        return ", and no line resembles it. Read the file again before the next try".to_owned();
    }
    let lines: Vec<String> = near.iter().map(|near| format!("\n{:>6}\t{}", near.line, near.text)).collect();
    format!(". The nearest lines are:{}", lines.concat())
}
