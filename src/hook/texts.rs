//! Texts of hooks that a model is told, of bounded length.

use crate::base::{limit, text};

/// Those that say something, as far as there is room for them.
pub fn bounded(texts: Vec<String>) -> Vec<String> {
    let mut room = limit::HOOK_TEXTS_BYTES_MAX;
    let mut kept = Vec::new();
    for said in texts.into_iter().filter(|said| !said.trim().is_empty()) {
        let part = text::head(&said, room);
        room -= part.len();
        if !part.is_empty() {
            kept.push(part.to_owned());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_and_those_that_say_nothing_are_left_out() {
        let long = "ä".repeat(limit::HOOK_TEXTS_BYTES_MAX);
        let kept = bounded(vec![" \n".into(), "ab".into(), long, "xyz".into()]);
        assert_eq!(kept[0], "ab");
        assert_eq!(kept.len(), 2, "the rest has no room");
        assert_eq!(kept.iter().map(String::len).sum::<usize>(), limit::HOOK_TEXTS_BYTES_MAX);
        assert!(bounded(vec![String::new()]).is_empty());
    }
}
