//! SentencePiece's table of what stands for what (`Precompiled` in `tokenizer.json`): a trie of bytes (Darts), whose leaves
//! are places in a text of replacements.

use base64::Engine as _;
use unicode_segmentation::UnicodeSegmentation as _;

/// Longest character, as a person sees it, that is looked up whole.
const WHOLE_BYTES_MAX: usize = 6;

/// The table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Charsmap {
    trie: Vec<u32>,
    replacements: Vec<u8>,
}

impl Charsmap {
    pub(super) fn read(encoded: &str) -> Result<Self, String> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|error| error.to_string())?;
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or("it is empty")?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, replacements) = rest.split_at_checked(size).ok_or("its trie is cut off")?;
        let (units, _) = trie.as_chunks::<4>();
        Ok(Self {
            trie: units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(),
            replacements: replacements.to_vec(),
        })
    }

    /// What stands for a piece. None: it stands for itself. The shortest beginning that has a replacement decides, as it
    /// does for whom these models were made.
    fn replacement(&self, piece: &str) -> Option<&str> {
        let unit = |at: usize| self.trie.get(at).copied();
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = offset(unit(0)?);
        for byte in piece.bytes().take_while(|byte| *byte != 0) {
            at ^= usize::from(byte);
            let here = unit(at)?;
            // The label of a unit; a leaf has none that is a byte.
            if here & (1 << 31 | 0xFF) != u32::from(byte) {
                return None;
            }
            at ^= offset(here);
            if here >> 8 & 1 == 1 {
                let from = (unit(at)? & !(1 << 31)) as usize;
                let text = self.replacements.get(from..)?.split(|byte| *byte == 0).next()?;
                return std::str::from_utf8(text).ok();
            }
        }
        None
    }

    pub(super) fn normalize(&self, text: &str) -> String {
        let mut normalized = String::with_capacity(text.len());
        let mut letter = [0; 4];
        for seen in text.graphemes(true) {
            if seen.len() < WHOLE_BYTES_MAX
                && let Some(replacement) = self.replacement(seen)
            {
                normalized.push_str(replacement);
                continue;
            }
            for c in seen.chars() {
                let one = &*c.encode_utf8(&mut letter);
                normalized.push_str(self.replacement(one).unwrap_or(one));
            }
        }
        normalized
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_refused_or_finds_nothing() {
        for wrong in ["", "*", "AAA=", "/////w=="] {
            assert!(Charsmap::read(wrong).is_err(), "{wrong:?}");
        }
        let empty = Charsmap::read("AAAAAA==").expect("read");
        assert_eq!(empty.normalize("a\u{301}é"), "a\u{301}é");
    }
}
