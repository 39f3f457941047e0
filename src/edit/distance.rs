//! Levenshtein distances of one text to many, sixty-four rows of the table in a word of bits.
//!
//! Only cells through which a distance that is still of interest can lead are computed: Ukkonen's band, kept by words,
//! with the recurrences of Myers and Hyyrö. One run along a text measures several of its beginnings. What a run may cost
//! is bounded by its caller.
//!
//! Invariant: a distance that is told is exact; one that is not told is larger than was asked for.

use std::collections::HashMap;

/// Rows of the table in a word.
const WORD: usize = u64::BITS as usize;
/// Columns that are computed together, between two looks at what is left of the band.
const STEP: usize = 4;

/// A character as a number: its place among those of the [`Target`], 0 for any other.
pub(super) type Class = u16;

/// A beginning of a text, and the largest distance to it that is of interest.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// Its length, in characters.
    pub len: usize,
    /// The largest distance.
    pub most: usize,
}

/// The text that others are compared with, prepared once.
#[derive(Debug)]
pub(super) struct Target {
    rows: usize,
    words: usize,
    ascii: [Class; 128],
    others: HashMap<char, Class>,
    /// For each class the rows where it stands, as `words` words.
    masks: Vec<u64>,
}

/// Where runs are made, one after the other.
#[derive(Debug)]
pub(super) struct Table {
    /// The column that a run is at, by words.
    column: Vec<Cell>,
    /// What runs may still cost together, in words of the table.
    budget: usize,
}

/// Sixty-four rows of a column.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// Rows whose distance is one more than that of the row above.
    more: u64,
    /// Rows whose distance is one less.
    less: u64,
    /// The distance in the last row.
    score: usize,
}

/// The work would cost more than its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

impl Table {
    /// A table for runs that cost no more than this together, in words of 64 rows of a column.
    pub(super) fn new(budget: usize) -> Self {
        Self { column: Vec::new(), budget }
    }

    /// Takes so many words from the budget.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub(super) fn pay(&mut self, words: usize) -> Result<(), Exhausted> {
        self.budget = self.budget.checked_sub(words).ok_or(Exhausted)?;
        Ok(())
    }
}

impl Target {
    /// Prepares a text. None when it is longer, or of more different characters, than fits `words_max` words.
    pub(super) fn new(text: impl Iterator<Item = char> + Clone, words_max: usize) -> Option<Self> {
        let rows = text.clone().count();
        let words = rows.div_ceil(WORD);
        let mut target = Self { rows, words, ascii: [0; 128], others: HashMap::new(), masks: vec![0; words] };
        for (row, c) in text.enumerate() {
            let class = match target.class(c) {
                0 => target.add(c, words_max)?,
                known => known,
            };
            target.masks[usize::from(class) * words + row / WORD] |= 1 << (row % WORD);
        }
        Some(target)
    }

    fn add(&mut self, c: char, words_max: usize) -> Option<Class> {
        let class = Class::try_from(self.masks.len() / self.words).ok()?;
        self.masks.resize(self.masks.len() + self.words, 0);
        match self.ascii.get_mut(c as usize) {
            Some(place) => *place = class,
            None => drop(self.others.insert(c, class)),
        }
        (self.masks.len() <= words_max).then_some(class)
    }

    /// Its length, in characters.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// A character as it is compared.
    pub(super) fn class(&self, c: char) -> Class {
        match self.ascii.get(c as usize) {
            Some(class) => *class,
            None => self.others.get(&c).copied().unwrap_or(0),
        }
    }

    /// Adds a text, as it is compared, to `out`.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<Class>) {
        if text.is_ascii() {
            out.extend(text.bytes().map(|byte| self.ascii[usize::from(byte)]));
        } else {
            out.extend(text.chars().map(|c| self.class(c)));
        }
    }

    /// Tells the distance to each of the beginnings of `text` that is near enough, with its number. `ends` ascend by length.
    ///
    /// # Errors
    /// [`Exhausted`]: then not all was told.
    pub(super) fn distances(
        &self,
        text: &[Class],
        ends: &[End],
        table: &mut Table,
        mut found: impl FnMut(usize, usize),
    ) -> Result<(), Exhausted> {
        let mut next = 0;
        while let Some(end) = ends.get(next).filter(|end| end.len == 0 || self.rows == 0) {
            let distance = end.len.max(self.rows);
            if distance <= end.most {
                found(next, distance);
            }
            next += 1;
        }
        let (Some(first), Some(last)) = (ends.get(next), ends.last()) else { return Ok(()) };
        let most = ends[next..].iter().map(|end| end.most).max().unwrap_or(0);
        let mut band = Band { target: self, least_len: first.len, most_len: last.len, most, first: 0, last: 0 };
        band.begin(&mut table.column);
        let mut at = 0;
        while at < last.len {
            let step = STEP.min(last.len - at);
            band.extend(at + 1, &mut table.column);
            table.pay((band.last + 1 - band.first) * step)?;
            let mut scores = [usize::MAX; STEP];
            match text[at..] {
                [a, b, c, d, ..] if step == STEP => self.step([a, b, c, d], &band, &mut table.column, &mut scores),
                _ => {
                    for (class, score) in text[at..at + step].iter().zip(&mut scores) {
                        self.step([*class], &band, &mut table.column, std::slice::from_mut(score));
                    }
                }
            }
            while let Some(end) = ends.get(next).filter(|end| end.len <= at + step) {
                if scores[end.len - at - 1] <= end.most {
                    found(next, scores[end.len - at - 1]);
                }
                next += 1;
            }
            at += step;
            if !band.narrow(at, &table.column) {
                break;
            }
        }
        Ok(())
    }

    /// Goes on by some columns, in the words of the band. `scores` takes the distances in the last row, if the band has it.
    fn step<const N: usize>(&self, classes: [Class; N], band: &Band<'_>, column: &mut [Cell], scores: &mut [usize]) {
        let masks = classes.map(|class| &self.masks[usize::from(class) * self.words..][..self.words]);
        // What comes from the word above: at its top all columns differ by one from the one before.
        let (mut up, mut down) = ([1; N], [0; N]);
        for (word, cell) in column.iter_mut().enumerate().take(band.last + 1).skip(band.first) {
            let is_last = word + 1 == self.words;
            let row = if is_last { (self.rows - 1) % WORD } else { WORD - 1 };
            let Cell { mut more, mut less, mut score } = *cell;
            for at in 0..N {
                let equal = masks[at][word] | down[at];
                let same = ((equal & more).wrapping_add(more) ^ more) | equal | less;
                let (above, below) = (less | !(same | more), same & more);
                let (rises, falls) = ((above >> row) & 1, (below >> row) & 1);
                let (above, below) = (above << 1 | up[at], below << 1 | down[at]);
                more = below | !(same | above);
                less = above & same;
                (up[at], down[at]) = (rises, falls);
                // A distance never falls below nothing.
                score = score.wrapping_add(usize::from(rises == 1)).wrapping_sub(usize::from(falls == 1));
                if is_last {
                    scores[at] = score;
                }
            }
            *cell = Cell { more, less, score };
        }
    }
}

/// The words of a column that can still lead to a distance of interest.
struct Band<'t> {
    target: &'t Target,
    least_len: usize,
    most_len: usize,
    most: usize,
    first: usize,
    last: usize,
}

impl Band<'_> {
    /// The last row of a word, from 1.
    fn bottom(&self, word: usize) -> usize {
        ((word + 1) * WORD).min(self.target.rows)
    }

    /// The least that the way from a cell to an end costs.
    fn rest(&self, row: usize, column: usize) -> usize {
        let rows = self.target.rows - row;
        let (least, most) = (self.least_len.saturating_sub(column), self.most_len - column);
        rows.saturating_sub(most).max(least.saturating_sub(rows))
    }

    /// The column before the first character.
    fn begin(&mut self, column: &mut Vec<Cell>) {
        let words = self.target.words;
        column.clear();
        column.extend((0..words).map(|word| Cell { more: !0, less: 0, score: self.bottom(word) }));
        while self.last + 1 < words {
            let row = self.bottom(self.last) + 1;
            if row + self.rest(row, 0) > self.most {
                break;
            }
            self.last += 1;
        }
    }

    /// Takes the next word in when a way of interest can lead into it in this column or those of the same step.
    fn extend(&mut self, at: usize, column: &mut [Cell]) {
        if self.last + 1 == self.target.words {
            return;
        }
        let (row, score) = (self.bottom(self.last) + 1, column[self.last].score);
        // In each further column the distance and the rest of the way may be one less.
        if score + self.rest(row, at) <= self.most + 2 * (STEP - 1) {
            self.last += 1;
            // What it would be by rows that are only left out: never too little.
            let score = score + self.bottom(self.last) - (row - 1);
            column[self.last] = Cell { more: !0, less: 0, score };
        }
    }

    /// Leaves the words out that lead to nothing of interest any more. False when none is left.
    fn narrow(&mut self, at: usize, column: &[Cell]) -> bool {
        let hopeless = |word: usize| {
            // The bound is least in the first row of a word: rows differ by one at most, as the rest of the way does.
            let (top, bottom) = (word * WORD + 1, self.bottom(word));
            column[word].score + self.rest(top, at) > self.most + (bottom - top)
        };
        let (mut first, mut last) = (self.first, self.last);
        // A way may also come down from the row above the first word.
        if first > 0 || at + self.rest(0, at) > self.most {
            while first <= last && hopeless(first) {
                first += 1;
            }
            if first > last {
                return false;
            }
        }
        while last > first && hopeless(last) {
            last -= 1;
        }
        (self.first, self.last) = (first, last);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The distances to beginnings of `text` of these lengths, where they are at most `most`.
    fn told(target: &str, text: &str, lens: &[usize], most: usize) -> Vec<Option<usize>> {
        let prepared = Target::new(target.chars(), usize::MAX).unwrap();
        let mut classes = Vec::new();
        prepared.encode(text, &mut classes);
        let ends: Vec<End> = lens.iter().map(|&len| End { len, most }).collect();
        let mut out = vec![None; lens.len()];
        let told = |end: usize, distance| out[end] = Some(distance);
        let run = prepared.distances(&classes, &ends, &mut Table::new(usize::MAX), told);
        assert_eq!(run, Ok(()));
        out
    }

    fn beginning(text: &str, len: usize) -> String {
        text.chars().take(len).collect()
    }

    #[test]
    fn distances_to_beginnings() {
        assert_eq!(told("kitten", "sitting", &[0, 6, 7], 6), [Some(6), Some(2), Some(3)]);
        assert_eq!(told("kitten", "sitting", &[7], 2), [None]);
        assert_eq!(told("", "ab", &[0, 2], 1), [Some(0), None]);
        assert_eq!(told("", "", &[0], 0), [Some(0)]);
        assert_eq!(told("äöü", "äxü", &[3, 3], 1), [Some(1), Some(1)]);
        let long = "abcdefgh".repeat(100);
        assert_eq!(told(&long, &long, &[792, 800], 8), [Some(8), Some(0)]);
        assert_eq!(told(&long, &"z".repeat(800), &[800], 799), [None]);
        assert_eq!(told(&long, &"z".repeat(800), &[800], 800), [Some(800)]);
    }

    #[test]
    fn the_work_is_bounded() {
        let target = Target::new("abc".repeat(100).chars(), usize::MAX).unwrap();
        let text = vec![0; 300];
        let run = |words| {
            let ends = [End { len: 300, most: 300 }];
            target.distances(&text, &ends, &mut Table::new(words), |_, _| {})
        };
        assert_eq!(run(299), Err(Exhausted));
        assert_eq!(run(300 * 5), Ok(()));
        assert!(Target::new("abc".chars(), 3).is_none(), "three characters and those that are none");
        assert!(Target::new("abc".chars(), 4).is_some());
    }

    /// A text, and another that was made of it by changes here and there.
    fn pair() -> impl Strategy<Value = (String, String)> {
        let text = proptest::collection::vec(prop::sample::select(vec!['a', 'b', 'c', '\n', 'ü', '漢']), 0..300);
        let changes = proptest::collection::vec((any::<prop::sample::Index>(), 0_u8..3, any::<bool>()), 0..60);
        (text, changes, "[abc\n]{0,300}", any::<bool>()).prop_map(|(text, changes, other, related)| {
            let mut made = text.clone();
            for (at, change, far) in changes {
                let at = at.index(made.len() + 1);
                match change {
                    0 => made.insert(at, if far { 'x' } else { 'a' }),
                    1 if at < made.len() => drop(made.remove(at)),
                    _ if at < made.len() => made[at] = if far { 'y' } else { 'b' },
                    _ => {}
                }
            }
            let text: String = text.into_iter().collect();
            (text, if related { made.into_iter().collect() } else { other })
        })
    }

    proptest! {
        /// Against an independent one: all within the bound is told, and nothing else.
        #[test]
        fn it_is_the_distance(
            (target, text) in pair(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 1..6),
            most in 0_usize..400,
        ) {
            let len = text.chars().count();
            let mut lens: Vec<usize> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
            lens.sort_unstable();
            let want: Vec<Option<usize>> = lens
                .iter()
                .map(|&len| Some(strsim::levenshtein(&target, &beginning(&text, len))).filter(|d| *d <= most))
                .collect();
            prop_assert_eq!(told(&target, &text, &lens, most), want);
        }
    }
}
