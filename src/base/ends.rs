//! The start and the end of bytes that come in pieces, in bounded memory. What lies between is dropped as it comes.
//!
//! Invariant: holds at most the limit it was made with; while no more than that came, it holds all.

use std::collections::VecDeque;

/// The first and the last of the bytes that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// What came first.
    pub head: Vec<u8>,
    head_max: usize,
    /// What came last, when the head is full.
    pub tail: VecDeque<u8>,
    tail_max: usize,
}

impl Ends {
    /// Keeps at most `bytes_max`: the first half of it from the start, the rest from the end.
    pub fn new(bytes_max: usize) -> Self {
        let tail_max = bytes_max / 2;
        Self { head: Vec::new(), head_max: bytes_max - tail_max, tail: VecDeque::new(), tail_max }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_max)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many more it would hold without dropping any.
    pub fn room(&self) -> usize {
        self.head_max + self.tail_max - self.len()
    }

    /// The most of each.
    pub fn most(&self) -> (usize, usize) {
        (self.head_max, self.tail_max)
    }
}
