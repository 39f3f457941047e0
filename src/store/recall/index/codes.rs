//! Vectors in one byte a number, with what that takes from the truth: a search reads a quarter of what the vectors are,
//! one after the other in memory, and knows of each text between which bounds its cosine lies.
//!
//! The bounds are hard (Cauchy and Schwarz): what is lost of a vector is itself a vector, and its length is kept. So
//! whoever looks up the exact cosine of those that can be among the best finds what a comparison with all of them would.

use super::super::vector;

/// The largest number of a code.
const CODE_MAX: f32 = 127.0;
/// What the numbers of a question are multiplied with. A product of a code and a question stays below 2^31: both have
/// at most 8,192 numbers, and so lengths below 11,500 and 16,500.
const ASKED_MAX: f32 = 16_383.0;
/// What is allowed for rounding in the sums of exact cosines and of ours.
const ROUNDING: f32 = 1e-4;
/// Numbers that are multiplied side by side.
const WIDE: usize = 32;

/// What there is of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Coded {
    /// No vector of this model and length.
    No,
    /// The model does not take it.
    Refused,
    /// A number of the vector is a code's times `scale`, and all together are wrong by a vector no longer than `error`.
    Yes { scale: f32, error: f32 },
}

/// The vectors of a project's texts that are of one embedding model and one length.
pub(super) struct Codes {
    embedder: i64,
    dimensions: usize,
    numbers: Vec<i8>,
    coded: Vec<Coded>,
}

/// What is known of a cosine without reading the vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Guess {
    pub cosine: f32,
    /// It is wrong by no more than that.
    pub error: f32,
}

/// The sum of products; in 32 bits, see [`ASKED_MAX`].
fn product(code: &[i8], asked: &[i16]) -> i32 {
    // Several sums side by side: the compiler makes wide ones of them.
    let mut sums = [0_i32; WIDE];
    let ((wide_code, rest_code), (wide_asked, rest_asked)) = (code.as_chunks::<WIDE>(), asked.as_chunks::<WIDE>());
    for (code, asked) in wide_code.iter().zip(wide_asked) {
        for (sum, (x, y)) in sums.iter_mut().zip(code.iter().zip(asked)) {
            *sum += i32::from(*x) * i32::from(*y);
        }
    }
    let rest: i32 = rest_code.iter().zip(rest_asked).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum();
    sums.iter().sum::<i32>() + rest
}

fn length(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.map(|x| x * x).sum::<f32>().sqrt()
}

impl Codes {
    /// None yet, of `slots` texts.
    pub(super) fn new(embedder: i64, dimensions: usize, slots: usize) -> Self {
        Self { embedder, dimensions, numbers: vec![0; slots * dimensions], coded: vec![Coded::No; slots] }
    }

    /// Whether they are of this model and this length.
    pub(super) fn are(&self, embedder: i64, dimensions: usize) -> bool {
        (self.embedder, self.dimensions) == (embedder, dimensions)
    }

    pub(super) fn bytes(&self) -> usize {
        self.numbers.len() + self.coded.len() * size_of::<Coded>()
    }

    /// Makes room for the next slot's vector.
    pub(super) fn add(&mut self) {
        self.numbers.resize(self.numbers.len() + self.dimensions, 0);
        self.coded.push(Coded::No);
    }

    /// What a slot has from now on: a stored vector of a model. Empty: the model does not take the text. None: nothing.
    pub(super) fn put(&mut self, slot: usize, stored: Option<(i64, &[u8])>) {
        self.coded[slot] = match stored {
            Some((embedder, [])) if embedder == self.embedder => Coded::Refused,
            Some((embedder, data)) if embedder == self.embedder && data.len() == self.dimensions * size_of::<f32>() => {
                self.code(slot, &vector::decode(data))
            }
            _ => Coded::No,
        };
    }

    fn code(&mut self, slot: usize, numbers: &[f32]) -> Coded {
        let largest = numbers.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        let scale = largest / CODE_MAX;
        let code = &mut self.numbers[slot * self.dimensions..][..self.dimensions];
        for (code, x) in code.iter_mut().zip(numbers) {
            #[allow(clippy::cast_possible_truncation, reason = "the largest number becomes 127")]
            let rounded = (x / scale).round() as i8;
            *code = rounded;
        }
        Coded::Yes { scale, error: length(code.iter().zip(numbers).map(|(code, x)| x - f32::from(*code) * scale)) }
    }

    /// Whether the model has said of this slot's text what it has to say.
    pub(super) fn is_settled(&self, slot: usize) -> bool {
        self.coded[slot] != Coded::No
    }

    /// What is known of each slot's cosine with a vector of length one. None: it has no vector.
    pub(super) fn guesses(&self, wanted: &[f32]) -> impl Iterator<Item = Option<Guess>> {
        #[allow(clippy::cast_possible_truncation, reason = "the numbers of a vector of length one lie in -1..=1")]
        let asked: Vec<i16> = wanted.iter().map(|x| (x * ASKED_MAX).round() as i16).collect();
        let lost = length(asked.iter().zip(wanted).map(|(asked, x)| x - f32::from(*asked) / ASKED_MAX));
        self.numbers.chunks_exact(self.dimensions.max(1)).zip(&self.coded).map(move |(code, coded)| {
            let Coded::Yes { scale, error } = *coded else { return None };
            #[allow(clippy::cast_precision_loss, reason = "rounding is allowed for")]
            let cosine = product(code, &asked) as f32 * scale / ASKED_MAX;
            // The question is of length one; a code's vector is longer than one by no more than its error.
            Some(Guess { cosine, error: error + lost * (1.0 + error) + ROUNDING })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(numbers: &[f32]) -> Option<Vec<u8>> {
        vector::encode(numbers)
    }

    proptest! {
        #[test]
        fn the_truth_lies_within_the_bounds(
            (kept, asked) in (1_usize..200).prop_flat_map(|n| {
                let numbers = || proptest::collection::vec(-1.0_f32..1.0, n);
                (proptest::collection::vec(numbers(), 1..8), numbers())
            })
        ) {
            let Some(asked) = stored(&asked).map(|asked| vector::decode(&asked)) else { return Ok(()) };
            let mut codes = Codes::new(1, asked.len(), kept.len());
            for (slot, numbers) in kept.iter().enumerate() {
                let data = stored(numbers);
                codes.put(slot, data.as_deref().map(|data| (1, data)));
            }
            for (numbers, guess) in kept.iter().zip(codes.guesses(&asked)) {
                let Some(data) = stored(numbers) else { prop_assert_eq!(guess, None); continue };
                let guess = guess.expect("it has a vector");
                let truth = vector::cosine(&asked, &data);
                prop_assert!((guess.cosine - truth).abs() <= guess.error, "{guess:?}, {truth}");
                // And they are worth something.
                prop_assert!(guess.error < 0.1, "{guess:?}");
            }
        }
    }

    #[test]
    fn the_longest_vectors_overflow_nothing() {
        let numbers = vec![1.0_f32; 8_192];
        let data = stored(&numbers).expect("a direction");
        let mut codes = Codes::new(7, 8_192, 1);
        codes.put(0, Some((7, &data)));
        let guess = codes.guesses(&vector::decode(&data)).next().flatten().expect("a vector");
        assert!((guess.cosine - 1.0).abs() <= guess.error, "{guess:?}");
    }

    #[test]
    fn what_is_of_another_model_or_length_is_no_vector() {
        let data = stored(&[1.0, 0.0]).expect("a direction");
        let mut codes = Codes::new(1, 2, 1);
        for (put, vector, settled) in [
            (Some((1, data.as_slice())), true, true),
            (Some((2, data.as_slice())), false, false),
            (Some((1, &data[..4])), false, false),
            (Some((1, [].as_slice())), false, true),
            (None, false, false),
        ] {
            codes.put(0, put);
            let guess = codes.guesses(&[1.0, 0.0]).next().flatten();
            assert_eq!((guess.is_some(), codes.is_settled(0)), (vector, settled), "{put:?}");
        }
        codes.add();
        assert_eq!(codes.guesses(&[1.0, 0.0]).count(), 2);
    }
}
