//! Tier 5: first and last line are found (trimmed), and the block between is nearly the same.
//!
//! Near means a Levenshtein distance of at most 0.3 of the longer block's length, over trimmed lines.
//! The best candidate wins only by a clear margin: a guess between two likely places is not an edit. Blank lines
//! at the ends are no anchors; they must stand there all the same. A block that differs in blank lines alone is
//! nearer than any other.
//!
//! Blocks that begin at the same line are measured in one run along the text, the likeliest first, each no farther
//! than it could still matter. Everything is bounded: long blocks, many candidates and much work make the tier give
//! up, which is a miss and never a wrong place.

use std::collections::{HashMap, HashSet};

use super::distance::{Class, End, Exhausted, Table, Target};
use super::lines::{Text, places};

/// Largest part of a block that may differ.
const DISTANCE_RATIO_MAX: f64 = 0.3;
/// How much nearer the best candidate must be than any other.
const MARGIN_RATIO: f64 = 0.1;
/// Longest block that is compared, in characters.
const BLOCK_CHARS_MAX: usize = 64 * 1024;
/// Most candidates of a fitting length that are looked at.
const CANDIDATES_MAX: usize = 20_000;
/// Most work of all comparisons together, in words of 64 rows of a column. It takes some 15 milliseconds.
const WORK_MAX: usize = 4_000_000;
/// What a comparison costs at least, in the same unit.
const WORK_MIN: usize = 100;
/// Most memory of a prepared block, in words.
const BLOCK_WORDS_MAX: usize = 1 << 20;
/// Blocks from this length on are first looked for very near: a miss there costs little, and a hit makes all others cheap.
const CLOSE_LOOK_CHARS: usize = 512;

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
    let (lines, all) = (content.trimmed(), old.trimmed());
    let full = |line: &&str| !line.is_empty();
    let (first, last) = (all.iter().position(full)?, all.iter().rposition(full)?);
    let wanted = &all[first..=last];
    if wanted.len() < 2 {
        return None;
    }
    let found = match but_for_blank_lines(lines, wanted).as_slice() {
        [] => nearest(lines, wanted)?,
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

/// The nearest block between the anchors.
fn nearest(lines: &[&str], wanted: &[&str]) -> Option<Block> {
    let search = Search::new(lines, wanted);
    // Anchors with nothing between were looked for before.
    if search.length == 0 || search.length > BLOCK_CHARS_MAX {
        return None;
    }
    let groups = search.groups()?;
    let inner = wanted[1..wanted.len() - 1].iter().enumerate();
    let middle = inner.flat_map(|(at, line)| (at > 0).then_some('\n').into_iter().chain(line.chars()));
    let run = Run::new(&search, &groups, Target::new(middle, BLOCK_WORDS_MAX)?)?;
    run.nearest(&groups).ok().flatten()
}

/// Blocks that begin at the same line, by their last lines, which ascend.
#[derive(Debug)]
struct Group {
    start: usize,
    ends: Vec<usize>,
}

impl Group {
    fn block(&self, end: usize) -> Block {
        Block { start: self.start, count: end - self.start + 1 }
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        self.ends.iter().map(|&end| self.block(end))
    }
}

/// The lines of the content, and where each begins when they are one run of characters with line ends between.
struct Search<'t> {
    lines: &'t [&'t str],
    wanted: &'t [&'t str],
    /// One more than there are lines.
    starts: Vec<usize>,
    /// Characters between the anchors that are looked for.
    length: usize,
}

impl<'t> Search<'t> {
    fn new(lines: &'t [&'t str], wanted: &'t [&'t str]) -> Self {
        let chars = |line: &str| if line.is_ascii() { line.len() } else { line.chars().count() };
        let mut starts = Vec::with_capacity(lines.len() + 1);
        let mut at = 0;
        starts.push(at);
        for line in lines {
            at += chars(line) + 1;
            starts.push(at);
        }
        let inner = &wanted[1..wanted.len() - 1];
        let length = inner.iter().map(|line| chars(line) + 1).sum::<usize>().saturating_sub(1);
        Self { lines, wanted, starts, length }
    }

    /// Characters between the anchors of a block.
    fn between(&self, block: Block) -> usize {
        (self.starts[block.start + block.count - 1] - self.starts[block.start + 1]).saturating_sub(1)
    }

    /// The pairs of anchors whose blocks have a fitting length, the likeliest group first. None when there are too many.
    fn groups(&self) -> Option<Vec<Group>> {
        let (first, last) = (self.wanted[0], self.wanted[self.wanted.len() - 1]);
        let most = DISTANCE_RATIO_MAX + MARGIN_RATIO;
        let length = self.length;
        let least = length - allowed(length, most);
        let lines_that_are =
            |line: &str| -> Vec<usize> { (0..self.lines.len()).filter(|&index| self.lines[index] == line).collect() };
        let ends = lines_that_are(last);
        let (mut groups, mut count) = (Vec::new(), 0);
        for start in lines_that_are(first) {
            let from = self.starts[start + 1];
            let near = ends.partition_point(|&end| end <= start || self.starts[end] < from + least);
            let fitting = ends[near..].iter().copied().take_while(|&end| {
                let between = self.between(Block { start, count: end - start + 1 });
                between <= length || between - length <= allowed(between, most)
            });
            let group = Group { start, ends: fitting.collect() };
            count += group.ends.len();
            if count > CANDIDATES_MAX {
                return None;
            }
            if !group.ends.is_empty() {
                groups.push(group);
            }
        }
        if groups.len() > 1 {
            self.likeliest_first(&mut groups);
        }
        Some(groups)
    }

    /// The groups that share most lines with what is looked for first: a near one soon makes the others cheap.
    fn likeliest_first(&self, groups: &mut [Group]) {
        let wanted: HashSet<&str> = self.wanted.iter().copied().collect();
        let longest = wanted.iter().map(|line| line.len()).max().unwrap_or(0);
        // Most lines are told apart by their length alone.
        let mut lengths = vec![false; longest + 1];
        wanted.iter().for_each(|line| lengths[line.len()] = true);
        let is_wanted = |line: &str| lengths.get(line.len()).copied().unwrap_or(false) && wanted.contains(line);
        let mut shared = vec![0_usize; self.lines.len() + 1];
        for (index, line) in self.lines.iter().enumerate() {
            shared[index + 1] = shared[index] + usize::from(is_wanted(line));
        }
        let unlike = |block: Block| {
            let same = shared[block.start + block.count] - shared[block.start];
            block.count.max(self.wanted.len()) - same.min(block.count)
        };
        groups.sort_by_cached_key(|group| (group.blocks().map(unlike).min(), group.start));
    }
}

/// The measuring of one search.
struct Run<'s> {
    search: &'s Search<'s>,
    target: Target,
    /// The characters from the first block on, as they are compared.
    text: Vec<Class>,
    /// Where they begin among all.
    offset: usize,
    table: Table,
    /// What was near enough, some of it more than once.
    near: Vec<Measured>,
    /// The least ratio among it.
    best: Option<f64>,
}

impl<'s> Run<'s> {
    /// None without groups.
    fn new(search: &'s Search<'s>, groups: &[Group], target: Target) -> Option<Self> {
        let first = groups.iter().map(|group| group.start + 1).min()?;
        let last = groups.iter().filter_map(|group| group.ends.last()).max().copied()?;
        let offset = search.starts[first];
        let mut text = Vec::with_capacity(search.starts[last] - offset);
        for line in &search.lines[first..last] {
            target.encode(line, &mut text);
            text.push(target.class('\n'));
        }
        Some(Self { search, target, text, offset, table: Table::new(WORK_MAX), near: Vec::new(), best: None })
    }

    fn nearest(mut self, groups: &[Group]) -> Result<Option<Block>, Exhausted> {
        let mut cutoffs = Vec::with_capacity(groups.len());
        for group in groups {
            cutoffs.push(self.look(group)?);
        }
        let Some(best) = self.best else { return Ok(None) };
        // Those that were measured before the best was known may hide a rival that is farther than was asked for.
        let rivals = best + MARGIN_RATIO;
        for (group, _) in groups.iter().zip(cutoffs).filter(|(_, cutoff)| *cutoff < rivals) {
            self.measure(group, rivals)?;
        }
        Ok(clear_winner(&self.near, self.search.wanted.len()))
    }

    /// Measures a group as far as it matters now, and says how far that is.
    fn look(&mut self, group: &Group) -> Result<f64, Exhausted> {
        let closely = self.best.is_none();
        if closely {
            let steps: &[f64] = if self.search.length < CLOSE_LOOK_CHARS { &[1.0] } else { &[1.0 / 16.0, 0.25, 1.0] };
            for step in steps {
                self.measure(group, DISTANCE_RATIO_MAX * step)?;
                if self.best.is_some() {
                    break;
                }
            }
        }
        // What is farther than this from the best is no rival to it.
        let Some(best) = self.best else { return Ok(DISTANCE_RATIO_MAX) };
        let cutoff = best + MARGIN_RATIO;
        if !(closely && group.ends.len() == 1) {
            self.measure(group, cutoff)?;
        }
        Ok(cutoff)
    }

    /// Measures a group's blocks, and keeps those that are no farther than this.
    fn measure(&mut self, group: &Group, cutoff: f64) -> Result<(), Exhausted> {
        let Self { search, target, text, offset, table, near, best } = self;
        let longer = |len: usize| len.max(search.length);
        let ends: Vec<End> = group
            .blocks()
            .map(|block| search.between(block))
            .map(|len| End { len, most: allowed(longer(len), cutoff) })
            .collect();
        table.pay(WORK_MIN)?;
        let from = search.starts[group.start + 1] - *offset;
        target.distances(&text[from..], &ends, table, |end, distance| {
            let ratio = ratio(distance, longer(ends[end].len));
            near.push(Measured { block: group.block(group.ends[end]), ratio });
            *best = Some(best.map_or(ratio, |best| best.min(ratio)));
        })
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
}
