//! Tier 5: first and last line are found (trimmed), and the block between is nearly the same.
//!
//! Near means a Levenshtein distance of at most 0.3 of the longer block's length, over trimmed lines.
//! The best candidate wins only by a clear margin: a guess between two likely places is not an edit. Blank lines
//! at the ends are no anchors; they must stand there all the same. A block that differs in blank lines alone is
//! nearer than any other.
//!
//! Everything is bounded: long blocks, many candidates and much work make the tier give up, which is a
//! miss and never a wrong place.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use rapidfuzz::HashableChar;
use rapidfuzz::distance::levenshtein;

use super::lines::{Text, places};

/// Largest part of a block that may differ.
const DISTANCE_RATIO_MAX: f64 = 0.3;
/// How much nearer the best candidate must be than any other.
const MARGIN_RATIO: f64 = 0.1;
/// Longest block that is compared, in characters.
const BLOCK_CHARS_MAX: usize = 64 * 1024;
/// Most candidates of a fitting length that are looked at.
const CANDIDATES_MAX: usize = 20_000;
/// Most work of all comparisons together: characters times those that each is compared with.
const WORK_MAX: usize = 1_500_000_000;
/// What a comparison costs at least, in the same unit.
const WORK_MIN: usize = 20_000;

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
    let all: Vec<&str> = old.iter().map(str::trim).collect();
    let full = |line: &&str| !line.is_empty();
    let (first, last) = (all.iter().position(full)?, all.iter().rposition(full)?);
    let wanted = &all[first..=last];
    if wanted.len() < 2 {
        return None;
    }
    let lines: Vec<&str> = content.iter().map(str::trim).collect();
    let found = match but_for_blank_lines(&lines, wanted).as_slice() {
        [] => nearest(&lines, wanted)?,
        [one] => *one,
        [_, _, ..] => return None,
    };
    // The blank lines at the ends stand there too.
    let (start, end) = (found.start.checked_sub(first)?, found.start + found.count + (all.len() - 1 - last));
    let blank =
        |range: std::ops::Range<usize>| lines.get(range).is_some_and(|lines| lines.iter().all(|l| l.is_empty()));
    let stand = blank(start..found.start) && blank(found.start + found.count..end);
    stand.then_some(Block { start, count: end - start })
}

/// The blocks with the same lines when blank ones do not count; at most two.
fn but_for_blank_lines(lines: &[&str], wanted: &[&str]) -> Vec<Block> {
    let full = |line: &&&str| !line.is_empty();
    let needle: Vec<&str> = wanted.iter().filter(full).copied().collect();
    let hay: Vec<(usize, &str)> = lines.iter().copied().enumerate().filter(|(_, line)| !line.is_empty()).collect();
    let keys: Vec<&str> = hay.iter().map(|(_, line)| *line).collect();
    let block = |at: usize| {
        let (start, end) = (hay[at].0, hay[at + needle.len() - 1].0);
        Block { start, count: end - start + 1 }
    };
    places(&keys, &needle, 2).into_iter().map(block).collect()
}

/// The nearest block between the anchors, by characters; by bytes, where those are the same.
fn nearest(lines: &[&str], wanted: &[&str]) -> Option<Block> {
    let ascii = |lines: &[&str]| lines.iter().all(|line| line.is_ascii());
    if ascii(lines) && ascii(wanted) {
        return Search::new(lines, wanted, |line| line.bytes().collect(), b'\n').nearest();
    }
    Search::new(lines, wanted, |line| line.chars().collect(), '\n').nearest()
}

/// The lines of the content as one run of characters, with line ends between.
struct Search<'t, C> {
    lines: &'t [&'t str],
    wanted: &'t [&'t str],
    chars: Vec<C>,
    /// Where each line begins in it; one more than there are lines.
    starts: Vec<usize>,
    middle: Vec<C>,
}

impl<'t, C: Copy + Hash + Eq + HashableChar> Search<'t, C> {
    fn new(lines: &'t [&'t str], wanted: &'t [&'t str], split: fn(&str) -> Vec<C>, end: C) -> Self {
        let join = |lines: &[&str]| {
            let (mut chars, mut starts) = (Vec::new(), vec![0]);
            for line in lines {
                chars.extend(split(line));
                chars.push(end);
                starts.push(chars.len());
            }
            (chars, starts)
        };
        let (chars, starts) = join(lines);
        let (mut middle, _) = join(&wanted[1..wanted.len() - 1]);
        middle.pop();
        Self { lines, wanted, chars, starts, middle }
    }

    /// The characters between the anchors of a block.
    fn between(&self, block: Block) -> &[C] {
        let (from, to) = (self.starts[block.start + 1], self.starts[block.start + block.count - 1]);
        &self.chars[from..to.saturating_sub(1).max(from)]
    }

    fn nearest(&self) -> Option<Block> {
        if self.middle.len() > BLOCK_CHARS_MAX {
            return None;
        }
        let candidates = self.likeliest_first(self.candidates()?);
        let comparator = levenshtein::BatchComparator::new(self.middle.iter().copied());
        let (mut work, mut best) = (0_usize, DISTANCE_RATIO_MAX);
        let mut near: Vec<Measured> = Vec::new();
        for block in candidates {
            let between = self.between(block);
            let longer = between.len().max(self.middle.len());
            // What is farther than this from the best is no rival to it.
            let cutoff = allowed(longer, best + MARGIN_RATIO);
            let band = (2 * cutoff + 1).min(self.middle.len());
            work = work.saturating_add(between.len().saturating_mul(band).max(WORK_MIN));
            if work > WORK_MAX {
                return None;
            }
            let args = levenshtein::Args::default().score_cutoff(cutoff);
            if let Some(distance) = comparator.distance_with_args(between.iter().copied(), &args) {
                let ratio = ratio(distance, longer);
                best = best.min(ratio);
                near.push(Measured { block, ratio });
            }
        }
        clear_winner(&near, self.wanted.len())
    }

    /// The pairs of anchors whose blocks have a fitting length. None when there are too many to look at.
    fn candidates(&self) -> Option<Vec<Block>> {
        let (first, last) = (self.wanted[0], self.wanted[self.wanted.len() - 1]);
        let most = DISTANCE_RATIO_MAX + MARGIN_RATIO;
        let length = self.middle.len();
        let least = length - allowed(length, most);
        let ends: Vec<usize> = (0..self.lines.len()).filter(|&index| self.lines[index] == last).collect();
        let mut out = Vec::new();
        for start in (0..self.lines.len()).filter(|&index| self.lines[index] == first) {
            let from = self.starts[start + 1];
            let near = ends.partition_point(|&end| end <= start || self.starts[end] < from + least);
            for &end in &ends[near..] {
                let block = Block { start, count: end - start + 1 };
                let between = self.between(block).len();
                let longer = between.max(length);
                if between > length && between - length > allowed(longer, most) {
                    break;
                }
                if between.abs_diff(length) <= allowed(longer, most) {
                    out.push(block);
                }
                if out.len() > CANDIDATES_MAX {
                    return None;
                }
            }
        }
        Some(out)
    }

    /// The candidates that share most lines with what is looked for first: a near one soon makes the others cheap.
    fn likeliest_first(&self, mut candidates: Vec<Block>) -> Vec<Block> {
        let wanted: HashSet<&str> = self.wanted.iter().copied().collect();
        let mut shared = vec![0_usize; self.lines.len() + 1];
        for (index, line) in self.lines.iter().enumerate() {
            shared[index + 1] = shared[index] + usize::from(wanted.contains(line));
        }
        let unlike = |block: &Block| {
            let same = shared[block.start + block.count] - shared[block.start];
            block.count.max(self.wanted.len()) - same.min(block.count)
        };
        candidates.sort_by_key(|block| (unlike(block), block.start));
        candidates
    }
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
            ("blank lines at the ends", "\nx\nabcdefgh\ny\n\n".to_owned(), "\nx\nabcdefgi\ny\n\n".to_owned(), Some((0, 5))),
            ("blank lines that are not there", "x\nabcdefgh\ny\n".to_owned(), "\nx\nabcdefgi\ny\n".to_owned(), None),
            ("blank lines lost", f("a;\n\n\nb;\n\n"), f("a;\nb;\n"), Some((0, 7))),
            ("blank lines lost at two places", f("a;\n\nb;\n") + &f("a;\nb;\n\n"), f("a;\nb;\n"), None),
            ("blank lines lost and a nested end", f("a;\n\nb;\n") + "}\n", f("a;\nb;\n"), Some((0, 5))),
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
