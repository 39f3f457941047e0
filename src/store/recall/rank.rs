//! Decides which remembered texts answer a question, and how well. Pure.
//!
//! Two opinions are brought together. *Words*: what BM25 makes of the words in common, as a share of the best text of
//! this search; so the best text in words always has 1. *Nearness*: the cosine between the vectors, from 0 up.
//!
//! The score is the nearness, moved towards 1 by seven tenths of what the words say: `near + (1 - near) × words × 0.7`
//! (that share is measured, see docs/benchmarks.md). A text without words in common keeps its nearness; a name that no
//! embedding model knows is found all the same. Where there is no nearness (no embedding model, or no vector of this
//! model yet) the words alone are the score.

use std::collections::HashMap;

use super::search::WordHits;

/// How much the words can move a nearness towards 1.
const WORDS_WEIGHT: f64 = 0.7;

/// A place, and how well its text answers: from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// The place.
    pub key: i64,
    /// How well its text answers.
    pub score: f64,
    /// What the words alone say; decides between equal scores.
    pub(super) words: f64,
}

/// How well a text answers by its cosine (None: it has no vector) and by what its words say, as a share of the best
/// text's. It grows with both.
pub(super) fn score(near: Option<f32>, words: f64) -> f64 {
    let Some(near) = near else { return words };
    let near = f64::from(near).clamp(0.0, 1.0);
    near + (1.0 - near) * WORDS_WEIGHT * words
}

/// The best ones, best first (of equal ones the one with more words, then the newest), at most `max`.
pub(super) fn best(mut ranked: Vec<Ranked>, max: usize) -> Vec<Ranked> {
    let order =
        |a: &Ranked, b: &Ranked| b.score.total_cmp(&a.score).then(b.words.total_cmp(&a.words)).then(b.key.cmp(&a.key));
    if ranked.len() > max {
        ranked.select_nth_unstable_by(max, order);
        ranked.truncate(max);
    }
    ranked.sort_unstable_by(order);
    ranked
}

/// The best answers: those with a score of at least `threshold`, at most `max`.
pub(super) fn rank(words: &WordHits, near: &HashMap<i64, f32>, (threshold, max): (f64, usize)) -> Vec<Ranked> {
    let most = words.values().copied().fold(0.0, f64::max);
    let share = |key: &i64| words.get(key).filter(|_| most > 0.0).map_or(0.0, |found| found / most);
    let with_vector = near.iter().map(|(key, cosine)| (key, Some(*cosine)));
    let words_alone = words.keys().filter(|key| !near.contains_key(key)).map(|key| (key, None));
    let ranked = with_vector.chain(words_alone).map(|(key, near)| {
        let words = share(key);
        Ranked { key: *key, score: score(near, words), words }
    });
    best(ranked.filter(|one| one.score > 0.0 && one.score >= threshold).collect(), max)
}

/// The score that an answer must have at least, while scores come in.
pub(super) struct Bounds {
    /// The best so far, lowest first.
    scores: Vec<f64>,
    max: usize,
    threshold: f64,
}

impl Bounds {
    /// With `max` answers wanted, and none under `threshold`.
    pub(super) fn new(max: usize, threshold: f64) -> Self {
        Self { scores: Vec::with_capacity(max), max, threshold }
    }

    /// A text answers at least so well.
    pub(super) fn see(&mut self, score: f64) {
        if self.scores.len() == self.max {
            if self.scores.first().is_none_or(|least| score <= *least) {
                return;
            }
            self.scores.remove(0);
        }
        let at = self.scores.partition_point(|other| *other < score);
        self.scores.insert(at, score);
    }

    /// Who answers less well is not among the answers.
    pub(super) fn least(&self) -> f64 {
        let least = if self.scores.len() == self.max { self.scores.first().copied() } else { None };
        least.map_or(self.threshold, |least| least.max(self.threshold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_opinions_come_together() {
        #[rustfmt::skip]
        let table: &[(&[(i64, f64)], &[(i64, f32)], f64, usize, &[(i64, f64)])] = &[
            // words,                near,                   threshold, max, answers
            (&[(1, 4.0), (2, 2.0)],  &[],                    0.0, 9, &[(1, 1.0), (2, 0.5)]),
            (&[(1, 4.0), (2, 2.0)],  &[],                    0.6, 9, &[(1, 1.0)]),
            (&[(1, 0.1)],            &[],                    1.0, 9, &[(1, 1.0)]),
            (&[],                    &[(1, 0.75), (2, 0.5)], 0.6, 9, &[(1, 0.75)]),
            (&[(2, 3.0)],            &[(1, 0.75), (2, 0.5)], 0.0, 9, &[(2, 0.5 + 0.5 * 0.7), (1, 0.75)]),
            (&[(2, 3.0)],            &[(1, 0.75), (2, 0.25)], 0.0, 9, &[(2, 0.25 + 0.75 * 0.7), (1, 0.75)]),
            (&[(1, 3.0)],            &[(1, 1.0), (2, 1.0)],  0.0, 9, &[(1, 1.0), (2, 1.0)]),
            (&[(3, 3.0)],            &[(1, 0.75)],           0.0, 9, &[(3, 1.0), (1, 0.75)]),
            (&[],                    &[(1, -0.5), (2, 0.0)], 0.0, 9, &[]),
            (&[(1, 1.0), (2, 1.0), (3, 1.0)], &[],           0.0, 2, &[(3, 1.0), (2, 1.0)]),
            (&[],                    &[],                    0.0, 9, &[]),
        ];
        for (words, near, threshold, max, want) in table {
            let words = words.iter().copied().collect();
            let near = near.iter().copied().collect();
            let got: Vec<(i64, f64)> =
                rank(&words, &near, (*threshold, *max)).into_iter().map(|one| (one.key, one.score)).collect();
            assert_eq!(got, *want, "{words:?} {near:?} {threshold} {max}");
        }
    }

    #[test]
    fn the_bound_rises_with_the_answers() {
        let mut bounds = Bounds::new(2, 0.3);
        let mut seen = Vec::new();
        for score in [0.1, 0.5, 0.4, 0.2, 0.9] {
            bounds.see(score);
            seen.push(bounds.least());
        }
        assert_eq!(seen, [0.3, 0.3, 0.4, 0.4, 0.5]);
    }
}
