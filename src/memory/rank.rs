//! Decides which remembered texts answer a question, and how well. Pure.
//!
//! Two opinions are brought together. *Words*: what BM25 makes of the words in common, as a share of the best text of
//! this search; so the best text in words always has 1. *Nearness*: the cosine between the vectors, from 0 up.
//!
//! The score is the nearness, moved towards 1 by half of what the words say: `near + (1 - near) × words / 2`. A text
//! without words in common keeps its nearness; a name that no embedding model knows is found all the same. Where there
//! is no nearness (no embedding model, or no vector of this model yet) the words alone are the score.

use std::collections::HashMap;

use crate::store::recall::WordHits;

/// How much the words can move a nearness towards 1.
const WORDS_WEIGHT: f64 = 0.5;

/// A place, and how well its text answers: from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranked {
    pub key: i64,
    pub score: f64,
    /// What the words alone say; decides between equal scores.
    words: f64,
}

/// The best answers, best first (of equal ones the one with more words, then the newest): those with a score of at least `threshold`, at most `max`.
pub(super) fn rank(words: &WordHits, near: &HashMap<i64, f32>, (threshold, max): (f64, usize)) -> Vec<Ranked> {
    let best = words.values().copied().fold(0.0, f64::max);
    let share = |key: &i64| words.get(key).filter(|_| best > 0.0).map_or(0.0, |found| found / best);
    let with_vector = near.iter().map(|(key, cosine)| {
        let near = f64::from(*cosine).clamp(0.0, 1.0);
        let words = share(key);
        Ranked { key: *key, score: near + (1.0 - near) * WORDS_WEIGHT * words, words }
    });
    let words_alone = words.keys().filter(|key| !near.contains_key(key));
    let words_alone = words_alone.map(|key| Ranked { key: *key, score: share(key), words: share(key) });
    let mut ranked: Vec<Ranked> =
        with_vector.chain(words_alone).filter(|one| one.score > 0.0 && one.score >= threshold).collect();
    let order =
        |a: &Ranked, b: &Ranked| b.score.total_cmp(&a.score).then(b.words.total_cmp(&a.words)).then(b.key.cmp(&a.key));
    if ranked.len() > max {
        ranked.select_nth_unstable_by(max, order);
        ranked.truncate(max);
    }
    ranked.sort_unstable_by(order);
    ranked
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
            (&[(2, 3.0)],            &[(1, 0.75), (2, 0.5)], 0.0, 9, &[(2, 0.75), (1, 0.75)]),
            (&[(2, 3.0)],            &[(1, 0.75), (2, 0.25)], 0.0, 9, &[(1, 0.75), (2, 0.625)]),
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
}
