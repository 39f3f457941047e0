//! The words of a project's texts in memory, and what BM25 makes of them: the formula of FTS5 with its numbers.
//!
//! FTS5 reads the length of each text that has a word from a table, which takes with a common word more time than
//! everything else together. Here it is a number in a row.

use super::terms::Terms;

/// How soon a word that comes again stops counting.
const K1: f64 = 1.2;
/// How much a long text is held against it.
const B: f64 = 0.75;
/// What a word is worth that more than half of the texts have.
const WORTH_MIN: f64 = 1e-6;
/// The length of a text that is gone.
const GONE: u32 = u32::MAX;
/// Bits of a posting that say how often the word is in the text; the others say which text.
const OFTEN_BITS: u32 = 8;
/// Most texts that postings can tell apart.
pub(super) const SLOTS_MAX: usize = 1 << (u32::BITS - OFTEN_BITS);

/// The words of texts. A text is a slot; slots are given away in order and never again.
pub(super) struct Words {
    terms: Terms,
    /// Of each term: the slots of its texts, and how often it is there.
    postings: Vec<Vec<u32>>,
    lengths: Vec<u32>,
    texts: usize,
    /// Words of all texts together.
    length: u64,
    postings_bytes: usize,
}

impl Words {
    pub(super) fn new() -> rusqlite::Result<Self> {
        let (postings, lengths) = (Vec::new(), Vec::new());
        Ok(Self { terms: Terms::new()?, postings, lengths, texts: 0, length: 0, postings_bytes: 0 })
    }

    pub(super) fn bytes(&self) -> usize {
        self.terms.bytes() + self.postings_bytes + self.lengths.len() * size_of::<u32>()
    }

    /// Puts texts, cut into words, into the next slots.
    pub(super) fn add(&mut self, bodies: &[String]) -> rusqlite::Result<()> {
        self.terms.learn(bodies.iter().flat_map(|body| body.split(' ')))?;
        self.postings.resize_with(self.terms.len(), Vec::new);
        for body in bodies {
            let mut terms: Vec<u32> = body.split(' ').flat_map(|word| self.terms.of(word)).copied().collect();
            let slot = u32::try_from(self.lengths.len()).unwrap_or(u32::MAX);
            let length = u32::try_from(terms.len()).unwrap_or(GONE - 1);
            self.lengths.push(length);
            self.texts += 1;
            self.length += u64::from(length);
            terms.sort_unstable();
            for same in terms.chunk_by(|a, b| a == b) {
                let often = u32::try_from(same.len()).unwrap_or(u32::MAX).min((1 << OFTEN_BITS) - 1);
                let Some(postings) = self.postings.get_mut(same[0] as usize) else { continue };
                let before = postings.capacity();
                postings.push(slot << OFTEN_BITS | often);
                self.postings_bytes += (postings.capacity() - before) * size_of::<u32>();
            }
        }
        Ok(())
    }

    /// Forgets the text of a slot; its postings stay until the index is made anew.
    pub(super) fn remove(&mut self, slot: usize) {
        let length = std::mem::replace(&mut self.lengths[slot], GONE);
        if length != GONE {
            self.texts -= 1;
            self.length -= u64::from(length);
        }
    }

    /// What the words make of each slot: 0, or more, without an upper end.
    pub(super) fn scores(&self, asked: &[String]) -> rusqlite::Result<Vec<f64>> {
        let mut scores = vec![0.0; self.lengths.len()];
        #[allow(clippy::cast_precision_loss, reason = "numbers of texts and words are far below 2^52")]
        let (texts, average) = (self.texts as f64, self.length as f64 / self.texts.max(1) as f64);
        for term in self.terms.asked(asked)?.into_iter().flatten() {
            let Some(postings) = self.postings.get(term as usize) else { continue };
            let there = postings.iter().map(|posting| (posting >> OFTEN_BITS) as usize);
            let found = there.filter(|slot| self.lengths[*slot] != GONE).count();
            #[allow(clippy::cast_precision_loss, reason = "a number of texts")]
            let found = found as f64;
            let worth = ((texts - found + 0.5) / (found + 0.5)).ln();
            let worth = if worth > 0.0 { worth } else { WORTH_MIN };
            for posting in postings {
                let (slot, often) = ((posting >> OFTEN_BITS) as usize, f64::from(posting & ((1 << OFTEN_BITS) - 1)));
                let length = self.lengths[slot];
                if length != GONE {
                    let held = K1 * (1.0 - B + B * f64::from(length) / average);
                    scores[slot] += worth * (often * (K1 + 1.0)) / (often + held);
                }
            }
        }
        Ok(scores)
    }
}
