//! A model's vocabulary, and how a word is cut into pieces of it (`model` in `tokenizer.json`): greedily (WordPiece), or
//! so that the pieces are most likely (Unigram).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// How much less likely than the least likely piece a character is that is none.
const UNKNOWN_PENALTY: f64 = 10.0;

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Given {
    WordPiece {
        vocab: HashMap<Box<str>, u32>,
        unk_token: String,
        continuing_subword_prefix: String,
        max_input_chars_per_word: usize,
    },
    Unigram {
        vocab: Vec<(Box<str>, f64)>,
        unk_id: Option<u32>,
        #[serde(default)]
        byte_fallback: bool,
    },
}

/// Pieces of words, and their numbers.
pub(super) struct Pieces {
    numbers: HashMap<Box<str>, u32>,
    cut: Cut,
    /// The largest number, and one.
    count: usize,
}

enum Cut {
    /// The longest piece that fits, again and again; pieces inside a word begin with `prefix`.
    Greedy { prefix: String, word_chars_max: usize },
    /// The pieces whose scores are most together.
    Likely { scores: Vec<f64>, piece_bytes_max: usize, unknown: f64 },
}

/// The best way to a place in a word.
#[derive(Clone, Copy)]
struct Way {
    score: f64,
    /// Where its last piece begins, and which that is. None: what no piece is.
    last: Option<(usize, Option<u32>)>,
}

impl Pieces {
    /// Reads the vocabulary. Tokens that are not known are left out of what a text is cut into: they have no meaning.
    pub(super) fn read(given: &Value) -> Result<Self, String> {
        let read: Given = Deserialize::deserialize(given).map_err(|error| format!("`model`: {error}"))?;
        let (mut numbers, cut, unknown) = match read {
            Given::WordPiece { vocab, unk_token, continuing_subword_prefix, max_input_chars_per_word } => {
                let (prefix, word_chars_max) = (continuing_subword_prefix, max_input_chars_per_word);
                let unknown = vocab.get(unk_token.as_str()).copied();
                (vocab, Cut::Greedy { prefix, word_chars_max }, unknown)
            }
            Given::Unigram { byte_fallback: true, .. } => {
                return Err("`model.byte_fallback`: expected false".to_owned());
            }
            Given::Unigram { vocab, unk_id, .. } => {
                let scores: Vec<f64> = vocab.iter().map(|(_, score)| *score).collect();
                let unknown = scores.iter().copied().fold(f64::INFINITY, f64::min) - UNKNOWN_PENALTY;
                let piece_bytes_max = vocab.iter().map(|(piece, _)| piece.len()).max().unwrap_or(0);
                let numbers = vocab.into_iter().zip(0..).map(|((piece, _), number)| (piece, number)).collect();
                (numbers, Cut::Likely { scores, piece_bytes_max, unknown }, unk_id)
            }
        };
        if numbers.is_empty() {
            return Err("`model.vocab`: expected pieces, got none".to_owned());
        }
        let count = numbers.values().max().map_or(0, |most| *most as usize + 1);
        if matches!(cut, Cut::Greedy { .. }) {
            numbers.retain(|_, number| Some(*number) != unknown);
        }
        Ok(Self { numbers, cut, count })
    }

    /// How many numbers there can be.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The numbers of a word's pieces.
    pub(super) fn of(&self, word: &str, out: &mut Vec<u32>) {
        match &self.cut {
            Cut::Greedy { prefix, word_chars_max } => self.greedy(word, (prefix, *word_chars_max), out),
            Cut::Likely { scores, piece_bytes_max, unknown } => {
                self.likely(word, (scores, *piece_bytes_max, *unknown), out);
            }
        }
    }

    /// A word that has a part which is no piece is not known at all.
    fn greedy(&self, word: &str, (prefix, word_chars_max): (&str, usize), out: &mut Vec<u32>) {
        if word.chars().count() > word_chars_max {
            return;
        }
        let (before, mut rest, mut piece) = (out.len(), word, String::new());
        while !rest.is_empty() {
            let mut ends = rest.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
            let found = ends.find_map(|end| {
                piece.clear();
                if out.len() > before {
                    piece.push_str(prefix);
                }
                piece.push_str(&rest[..end]);
                Some((end, *self.numbers.get(piece.as_str())?))
            });
            let Some((end, number)) = found else {
                out.truncate(before);
                return;
            };
            out.push(number);
            rest = &rest[end..];
        }
    }

    fn likely(&self, word: &str, (scores, piece_bytes_max, unknown): (&[f64], usize, f64), out: &mut Vec<u32>) {
        let mut ways = vec![Way { score: 0.0, last: None }; word.len() + 1];
        for (start, c) in word.char_indices() {
            let here = ways[start].score;
            let mut step = |end: usize, (score, number): (f64, Option<u32>)| {
                let way = &mut ways[end];
                if way.last.is_none() || here + score > way.score {
                    *way = Way { score: here + score, last: Some((start, number)) };
                }
            };
            let mut is_piece = false;
            let ends = word[start..].char_indices().map(|(at, c)| at + c.len_utf8());
            for length in ends.take_while(|length| *length <= piece_bytes_max) {
                let Some(number) = self.numbers.get(&word[start..start + length]) else { continue };
                is_piece |= length == c.len_utf8();
                step(start + length, (scores[*number as usize], Some(*number)));
            }
            if !is_piece {
                step(start + c.len_utf8(), (unknown, None));
            }
        }
        let (before, mut end) = (out.len(), word.len());
        while let Some((start, number)) = ways[end].last {
            out.extend(number);
            end = start;
        }
        out[before..].reverse();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cut(given: &Value, word: &str) -> Vec<u32> {
        let mut out = vec![99];
        Pieces::read(given).expect("read").of(word, &mut out);
        out.split_off(1)
    }

    #[test]
    fn words_are_cut_into_pieces() {
        let greedy = json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 8,
            "vocab": {"[UNK]": 0, "un": 1, "##known": 2, "unk": 3, "##now": 4, "##n": 5, "é": 6}});
        let likely = json!({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -1.5], ["ab", -2.0], ["abc", -9.0], ["é", -3.0]]});
        #[rustfmt::skip]
        let table: &[(&Value, &str, &[u32])] = &[
            (&greedy, "unknown", &[3, 4, 5]), (&greedy, "unk", &[3]), (&greedy, "unx", &[]), (&greedy, "é", &[6]),
            (&greedy, "unknownun", &[]), (&greedy, "[UNK]", &[]), (&greedy, "", &[]),
            (&likely, "ab", &[3]), (&likely, "abc", &[5 - 1]), (&likely, "abxa", &[3, 1]), (&likely, "bé", &[2, 5]), (&likely, "猫", &[]),
        ];
        for (given, word, want) in table {
            assert_eq!(cut(given, word), *want, "{word}");
        }
        for (given, want) in [
            (json!({"type": "BPE", "vocab": {}, "merges": []}), "unknown variant `BPE`"),
            (json!({"type": "Unigram", "vocab": [], "unk_id": null}), "got none"),
            (json!({"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0, "byte_fallback": true}), "byte_fallback"),
            (json!({"type": "WordPiece"}), "missing field"),
        ] {
            let said = Pieces::read(&given).err().expect("refused");
            assert!(said.contains(want), "{said}");
        }
    }
}
