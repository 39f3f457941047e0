//! What a model says right now, in blocks of markdown: only the last one still changes, so that a piece costs what it is, and not
//! what was said before.

use std::rc::Rc;

use ratatui::text::Line;

use super::entry::{FRONT, thoughts};
use super::markdown;

/// A block is not longer than this, so that drawing it stays cheap.
const BLOCK_BYTES_MAX: usize = 8 << 10;
/// What has ended is drawn in pieces of about this size.
const PIECE_BYTES_MAX: usize = 32 << 10;

/// A text that grows.
#[derive(Debug, Default)]
pub(super) struct Live {
    blocks: Vec<Block>,
    /// What it thinks beside it.
    pub(super) reasoning: String,
    /// Whether the last block lies in a fence of code, and how that began.
    fence: Option<String>,
    /// Bytes of the last block that were looked at for its end.
    seen: usize,
}

#[derive(Debug, Default)]
struct Block {
    text: String,
    /// Whether it goes on with code that the one before it began.
    continued: bool,
    lines: Option<(usize, Rc<[Line<'static>]>)>,
}

impl Live {
    /// A text that has begun already.
    pub(super) fn begun(text: &str, reasoning: &str) -> Self {
        let mut live = Self { reasoning: reasoning.to_owned(), ..Self::default() };
        live.add(text);
        live
    }

    /// Whether nothing was said.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.reasoning.is_empty()
    }

    /// Adds a piece.
    pub(super) fn add(&mut self, piece: &str) {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        if let Some(last) = self.blocks.last_mut() {
            last.text.push_str(piece);
            last.lines = None;
        }
        self.split();
    }

    /// Looks at the whole lines that came, and ends blocks where they end.
    fn split(&mut self) {
        loop {
            let Some(last) = self.blocks.last() else { return };
            let Some(rest) = last.text.get(self.seen..) else { return };
            let Some(end) = rest.find('\n') else { return };
            let line = rest.get(..end).unwrap_or_default();
            let (from, to) = (self.seen, self.seen + end + 1);
            let bare = line.trim_start();
            match &self.fence {
                Some(fence) if bare.trim_end() == fence.trim_end_matches(|c: char| c != '`' && c != '~') => {
                    self.fence = None
                }
                Some(_) => {}
                None if bare.starts_with("```") || bare.starts_with("~~~") => self.fence = Some(bare.to_owned()),
                None => {}
            }
            let blank = bare.is_empty() && self.fence.is_none() && from > 0;
            self.seen = to;
            if blank || to > BLOCK_BYTES_MAX {
                self.cut(to);
            }
        }
    }

    fn cut(&mut self, at: usize) {
        let Some(last) = self.blocks.last_mut() else { return };
        let mut rest = last.text.split_off(at);
        last.lines = None;
        if let Some(fence) = &self.fence {
            // Code that goes on is still code.
            rest.insert_str(0, &format!("{fence}\n"));
            self.seen = fence.len() + 1;
        } else {
            self.seen = 0;
        }
        let continued = self.fence.is_some();
        self.blocks.push(Block { text: rest, continued, lines: None });
    }

    /// How many parts there are: what it thinks, and its blocks.
    pub(super) fn parts(&self) -> usize {
        1 + self.blocks.len()
    }

    /// The lines of a part, at that width.
    pub(super) fn lines(&mut self, part: usize, columns: usize, unfolded: bool) -> Rc<[Line<'static>]> {
        let Some(at) = part.checked_sub(1) else { return thoughts(&self.reasoning, columns, unfolded).into() };
        let Some(block) = self.blocks.get_mut(at) else { return Rc::from([]) };
        if let Some((_, lines)) = block.lines.as_ref().filter(|(at, _)| *at == columns) {
            return Rc::clone(lines);
        }
        let mut lines = markdown::lines(&block.text, columns, FRONT);
        if block.text.ends_with("\n\n") && !lines.is_empty() {
            lines.push(Line::raw(FRONT));
        }
        let lines: Rc<[Line<'static>]> = lines.into();
        block.lines = Some((columns, Rc::clone(&lines)));
        lines
    }
}

/// A text in pieces that are drawn one by one, none of them long.
pub(super) fn pieces(text: &str) -> Vec<String> {
    if text.len() <= PIECE_BYTES_MAX {
        return vec![text.to_owned()];
    }
    let mut pieces: Vec<String> = Vec::new();
    for block in Live::begun(text, "").blocks {
        match pieces.last_mut().filter(|last| !block.continued && last.len() + block.text.len() <= PIECE_BYTES_MAX) {
            Some(last) => last.push_str(&block.text),
            None => pieces.push(block.text),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(live: &Live) -> Vec<&str> {
        live.blocks.iter().map(|block| block.text.as_str()).collect()
    }

    #[test]
    fn blocks_end_at_blank_lines_and_not_in_code() {
        let text = "one\n\ntwo\n```rust\na\n\nb\n```\n\nthree";
        let wanted = ["one\n\n", "two\n```rust\na\n\nb\n```\n\n", "three"];
        // However it is cut into pieces.
        for size in [1, 2, 3, 7, 100] {
            let mut live = Live::default();
            let bytes = text.as_bytes();
            for piece in bytes.chunks(size) {
                live.add(std::str::from_utf8(piece).expect("ASCII"));
            }
            assert_eq!(texts(&live), wanted, "pieces of {size}");
        }
    }

    #[test]
    fn a_long_block_is_cut_and_nothing_is_lost() {
        let mut live = Live::default();
        live.add("```js\n");
        for n in 0..4_000 {
            live.add(&format!("line {n}\n"));
        }
        assert!(live.blocks.len() > 2 && live.blocks.iter().all(|block| block.text.len() < BLOCK_BYTES_MAX + 100));
        let parts = live.parts();
        let lines = |part| live.lines(part, 80, false).iter().map(ToString::to_string).collect::<Vec<_>>();
        let shown: Vec<String> = (0..parts).flat_map(lines).collect();
        let numbers: Vec<&String> = shown.iter().filter(|line| line.contains("line ")).collect();
        assert_eq!(numbers.len(), 4_000);
    }

    #[test]
    fn a_long_text_that_has_ended_is_drawn_in_pieces() {
        assert_eq!(pieces("short\n\ntext"), ["short\n\ntext"]);
        let text: String = (0..20_000).map(|n| format!("paragraph {n}\n\n")).collect();
        let pieces = pieces(&text);
        assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX + BLOCK_BYTES_MAX));
        assert_eq!(pieces.concat(), text);
    }
}
