//! Tier 5: first and last line are found (trimmed), and the block between is nearly the same.
//!
//! Near means a Levenshtein distance of at most 0.3 of the longer block's length, over trimmed lines.
//! The best candidate wins only by a clear margin: a guess between two likely places is not an edit.
//!
//! Everything is bounded: long blocks, many candidates and much work make the tier give up, which is a
//! miss and never a wrong place.

use std::collections::HashMap;

use rapidfuzz::distance::levenshtein;

use super::lines::Text;

/// Largest part of a block that may differ.
const DISTANCE_RATIO_MAX: f64 = 0.3;
/// How much nearer the best candidate must be than any other.
const MARGIN_RATIO: f64 = 0.1;
/// Longest block that is compared, in characters.
const BLOCK_CHARS_MAX: usize = 64 * 1024;
/// Most pairs of a first and a last line that are looked at.
const PAIRS_MAX: usize = 100_000;
/// Most candidates of a fitting length that are compared.
const CANDIDATES_MAX: usize = 256;
/// Most work of all comparisons together: the products of the lengths.
const WORK_MAX: usize = 20_000_000_000;

/// Lines of a candidate: the first, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub start: usize,
    pub count: usize,
}

struct Measured {
    block: Block,
    ratio: f64,
}

/// The one block that `old` must mean. None: none near enough, two too close, or too much to compare.
pub(super) fn find(content: &Text<'_>, old: &Text<'_>) -> Option<Block> {
    let wanted: Vec<&str> = old.iter().map(str::trim).collect();
    let (first, last) = (*wanted.first()?, *wanted.last()?);
    if wanted.len() < 2 || first.is_empty() || last.is_empty() {
        return None;
    }
    let lines: Vec<&str> = content.iter().map(str::trim).collect();
    let middle: Vec<char> = joined(&wanted[1..wanted.len() - 1]);
    if middle.len() > BLOCK_CHARS_MAX {
        return None;
    }
    let candidates = candidates(&lines, first, last, middle.len())?;
    let mut work = 0_usize;
    let mut near: Vec<Measured> = Vec::new();
    let comparator = levenshtein::BatchComparator::new(middle.iter().copied());
    for block in candidates {
        let between = joined(&lines[block.start + 1..block.start + block.count - 1]);
        let longer = between.len().max(middle.len());
        work = work.saturating_add(between.len().saturating_mul(middle.len()));
        if work > WORK_MAX {
            return None;
        }
        let args = levenshtein::Args::default().score_cutoff(allowed(longer, DISTANCE_RATIO_MAX + MARGIN_RATIO));
        if let Some(distance) = comparator.distance_with_args(between.iter().copied(), &args) {
            near.push(Measured { block, ratio: ratio(distance, longer) });
        }
    }
    clear_winner(&near, wanted.len())
}

/// The pairs of anchors whose blocks have a fitting length. None when there are too many to look at.
fn candidates(lines: &[&str], first: &str, last: &str, length: usize) -> Option<Vec<Block>> {
    // chars[i]: characters of the lines before line i, each with its line end.
    let mut chars = vec![0_usize; lines.len() + 1];
    for (index, line) in lines.iter().enumerate() {
        chars[index + 1] = chars[index] + line.chars().count() + 1;
    }
    let ends: Vec<usize> = (0..lines.len()).filter(|&index| lines[index] == last).collect();
    let mut out = Vec::new();
    let mut pairs = 0_usize;
    for start in (0..lines.len()).filter(|&index| lines[index] == first) {
        for &end in &ends[ends.partition_point(|&end| end <= start)..] {
            pairs += 1;
            let between = (chars[end] - chars[start + 1]).saturating_sub(1);
            let longer = between.max(length);
            if between > length && between - length > allowed(longer, DISTANCE_RATIO_MAX + MARGIN_RATIO) {
                break;
            }
            if between.abs_diff(length) <= allowed(longer, DISTANCE_RATIO_MAX + MARGIN_RATIO) {
                out.push(Block { start, count: end - start + 1 });
            }
            if pairs > PAIRS_MAX || out.len() > CANDIDATES_MAX {
                return None;
            }
        }
    }
    Some(out)
}

/// The nearest block, if it is near enough and the runner-up is clearly farther.
///
/// A rival that starts at the same line with another number of lines does not count against a winner that has
/// the very number of lines asked for: nested blocks end in lines that look alike.
fn clear_winner(near: &[Measured], count: usize) -> Option<Block> {
    let best = near.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    if best.ratio > DISTANCE_RATIO_MAX {
        return None;
    }
    let nested = |other: &Measured| {
        other.block.start == best.block.start && best.block.count == count && other.ratio > best.ratio
    };
    let rival = near
        .iter()
        .filter(|other| other.block != best.block && !nested(other))
        .any(|other| other.ratio - best.ratio < MARGIN_RATIO);
    (!rival).then_some(best.block)
}

fn joined(lines: &[&str]) -> Vec<char> {
    let mut out = Vec::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        out.extend(line.chars());
    }
    out
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths are bounded far below 2^52, and the share of one is not negative"
)]
fn allowed(length: usize, ratio: f64) -> usize {
    (length as f64 * ratio).floor() as usize
}

#[allow(clippy::cast_precision_loss, reason = "lengths are bounded far below 2^52")]
fn ratio(distance: usize, length: usize) -> f64 {
    if length == 0 { 0.0 } else { distance as f64 / length as f64 }
}

/// For each old line its line in the block, where that is known: the anchors, and equal lines that are unique.
pub(super) fn correspondence<'t>(content: &Text<'t>, block: Block, old: &Text<'_>) -> Vec<Option<&'t str>> {
    let lines: Vec<&str> = (block.start..block.start + block.count).map(|index| content.line(index)).collect();
    let mut by_text: HashMap<&str, Option<&str>> = HashMap::new();
    for line in &lines {
        by_text.entry(line.trim()).and_modify(|seen| *seen = None).or_insert(Some(line));
    }
    let count = old.lines.len();
    let of = |(index, line): (usize, &str)| match index {
        0 => lines.first().copied(),
        _ if index + 1 == count => lines.last().copied(),
        _ => by_text.get(line.trim()).copied().flatten(),
    };
    old.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(content: &str, old: &str) -> Option<(usize, usize)> {
        find(&Text::new(content), &Text::new(old)).map(|block| (block.start, block.count))
    }

    #[test]
    fn near_blocks_between_anchors() {
        let body = "  let total = sum(values);\n  return total / count;\n";
        let near = "  let total = sum(value);\n  return total / counts;\n";
        let far = "  println!();\n  exit(1)\n";
        let f = |middle: &str| format!("fn f() {{\n{middle}}}\n");
        #[rustfmt::skip]
        let table = [
            ("one near place", f(near), f(body), Some((0, 4))),
            ("far", f(far), f(body), None),
            ("two near places", f(near) + &f(near), f(body), None),
            ("a near and a far one", f(far) + &f(near), f(body), Some((4, 4))),
            ("anchors alone say nothing", "a\nx\nb\n".to_owned(), "a\nb\n".to_owned(), None),
            ("one line is no block", "abc\n".to_owned(), "abd".to_owned(), None),
            ("blank anchors", "\nabcdefgh\n\n".to_owned(), "\nabcdefgi\n\n".to_owned(), None),
            ("last before first", "}\nabcdefgh\nfn f() {\n".to_owned(), f("abcdefgi\n"), None),
            ("nested ends: the asked height wins", f(&format!("{near}}}\nmore();\n")), f(body), Some((0, 4))),
        ];
        for (name, content, old, want) in table {
            assert_eq!(at(&content, &old), want, "{name}");
        }
    }

    #[test]
    fn the_threshold_is_three_tenths() {
        let block = |middle: &str| format!("begin\n{middle}\nend\n");
        assert_eq!(at(&block("aaaaaaaxxx"), &block("aaaaaaaaaa")), Some((0, 3)));
        assert_eq!(at(&block("aaaaaaxxxx"), &block("aaaaaaaaaa")), None);
    }

    #[test]
    fn a_rival_just_over_the_threshold_still_is_one() {
        let block = |middle: &str| format!("begin\n{middle}\nend\n");
        let two = block("aaaaaaaxxx") + &block("aaaaaaxxxx");
        assert_eq!(at(&two, &block("aaaaaaaaaa")), Some((0, 3)), "0.3 against 0.4 is a clear margin");
        let close = block("aaaaaaaaaaaaaaxxxxxx") + &block("aaaaaaaaaaaaaxxxxxxx");
        assert_eq!(at(&close, &block("aaaaaaaaaaaaaaaaaaaa")), None, "0.3 against 0.35 is not");
    }

    /// Inputs that once froze servers. The bound is generous; without the caps these take minutes.
    #[test]
    fn huge_inputs_end_soon() {
        let started = std::time::Instant::now();
        let long = |c: &str| format!("a\n{}\nb\n", c.repeat(20_000));
        assert_eq!(at(&long("x"), &long("y")), None);
        let line = "lorem ipsum dolor sit amet consectetur ".repeat(2);
        let block = |skip: usize| {
            let lines = (0..400).map(|n| format!("{line}{}\n", n + skip)).collect::<String>();
            format!("fn f() {{\n{lines}}}\n")
        };
        assert_eq!(at(&block(1), &block(0)), Some((0, 402)));
        let many = "{\nx\n}\n".repeat(5_000);
        assert_eq!(at(&many, "{\ny\n}\n"), None);
        let same = "x\n".repeat(20_000);
        assert_eq!(at(&same, "x\nabc\nx\n"), None);
        assert!(started.elapsed().as_secs() < 20, "took {:?}", started.elapsed());
    }

    proptest! {
        /// The library's distance against an independent one.
        #[test]
        fn the_distance_is_levenshtein(a in "[abc\n]{0,40}", b in "[abc\n]{0,40}") {
            let (x, y): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            prop_assert_eq!(levenshtein::distance(x.iter().copied(), y.iter().copied()), strsim::levenshtein(&a, &b));
        }
    }
}
