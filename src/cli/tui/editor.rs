//! The lines that a person writes: a text, a place in it, what was written before, and long pastes as one word.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::base::text::counted;

/// A paste is a word of its own from so many lines or bytes on.
const PASTE_LINES: usize = 8;
const PASTE_BYTES: usize = 1_000;
/// Prompts that are remembered.
const REMEMBERED: usize = 500;
/// Largest file of them that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A text that is being written.
#[derive(Debug, Default)]
pub(super) struct Editor {
    text: String,
    /// Where the next letter goes, in bytes.
    at: usize,
    /// Long pastes, by the words that stand for them.
    pastes: Vec<(String, String)>,
    history: Vec<String>,
    /// Which one of it is shown.
    shown: Option<usize>,
    /// What was written before somebody looked back.
    draft: String,
    file: Option<PathBuf>,
}

impl Editor {
    /// An editor that remembers in a file.
    pub(super) fn remembering(file: PathBuf) -> Self {
        let small = fs::metadata(&file).is_ok_and(|found| found.len() <= FILE_BYTES_MAX);
        let text = if small { fs::read_to_string(&file).unwrap_or_default() } else { String::new() };
        let mut history: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let old = history.len().saturating_sub(REMEMBERED);
        history.drain(..old);
        Self { history, file: Some(file), ..Self::default() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What was written before, the oldest first.
    pub(super) fn history(&self) -> &[String] {
        &self.history
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Puts another text in its place.
    pub(super) fn set(&mut self, text: &str) {
        text.clone_into(&mut self.text);
        self.at = self.text.len();
    }

    pub(super) fn insert(&mut self, text: &str) {
        self.text.insert_str(self.at, text);
        self.at += text.len();
        self.shown = None;
    }

    /// Takes what was pasted.
    pub(super) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let lines = text.lines().count();
        if lines < PASTE_LINES && text.len() < PASTE_BYTES {
            return self.insert(&text);
        }
        let name = format!("[paste {}: {}]", self.pastes.len() + 1, counted(lines, "line"));
        self.insert(&name);
        self.pastes.push((name, text));
    }

    /// The whole text, pastes and all.
    pub(super) fn whole(&self) -> String {
        // Names that stand in a paste are its own words.
        let mut named: Vec<(usize, &(String, String))> =
            self.pastes.iter().filter_map(|paste| Some((self.text.find(&paste.0)?, paste))).collect();
        named.sort_unstable_by_key(|(at, _)| *at);
        let (mut whole, mut from) = (String::new(), 0);
        for (at, (name, text)) in named {
            whole.push_str(self.text.get(from..at).unwrap_or_default());
            whole.push_str(text);
            from = at + name.len();
        }
        whole + self.text.get(from..).unwrap_or_default()
    }

    /// The same; the editor is empty then, and remembers it.
    pub(super) fn take(&mut self) -> String {
        let whole = self.whole().trim().to_owned();
        self.text.clear();
        self.pastes.clear();
        (self.at, self.shown) = (0, None);
        if !whole.is_empty() && self.history.last() != Some(&whole) {
            self.history.push(whole.clone());
            self.remember();
        }
        whole
    }

    /// Writes the history down. It is a comfort: what fails is forgotten.
    fn remember(&mut self) {
        if self.history.len() > REMEMBERED {
            self.history.remove(0);
        }
        let Some(file) = &self.file else { return };
        let lines: String =
            self.history.iter().filter_map(|one| serde_json::to_string(one).ok()).map(|one| one + "\n").collect();
        let _ = written(file, &lines);
    }

    fn before(&self) -> &str {
        self.text.get(..self.at).unwrap_or_default()
    }

    fn behind(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn line_start(&self) -> usize {
        self.before().rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.behind().find('\n').map_or(self.text.len(), |at| self.at + at)
    }

    pub(super) fn left(&mut self) {
        self.at -= self.before().chars().next_back().map_or(0, char::len_utf8);
    }

    pub(super) fn right(&mut self) {
        self.at += self.behind().chars().next().map_or(0, char::len_utf8);
    }

    pub(super) fn word_left(&mut self) {
        let bare = self.before().trim_end();
        self.at =
            bare.rfind(char::is_whitespace).map_or(0, |at| at + bare[at..].chars().next().map_or(1, char::len_utf8));
    }

    pub(super) fn word_right(&mut self) {
        let behind = self.behind();
        let gap = behind.len() - behind.trim_start().len();
        let word = behind[gap..].find(char::is_whitespace).unwrap_or(behind.len() - gap);
        self.at += gap + word;
    }

    pub(super) fn home(&mut self) {
        self.at = self.line_start();
    }

    pub(super) fn end(&mut self) {
        self.at = self.line_end();
    }

    pub(super) fn backspace(&mut self) {
        let end = self.at;
        self.left();
        self.text.replace_range(self.at..end, "");
    }

    pub(super) fn delete(&mut self) {
        let wide = self.behind().chars().next().map_or(0, char::len_utf8);
        self.text.replace_range(self.at..self.at + wide, "");
    }

    pub(super) fn delete_word(&mut self) {
        let end = self.at;
        self.word_left();
        self.text.replace_range(self.at..end, "");
    }

    pub(super) fn delete_to_start(&mut self) {
        let start = self.line_start();
        self.text.replace_range(start..self.at, "");
        self.at = start;
    }

    pub(super) fn delete_to_end(&mut self) {
        let end = self.line_end();
        self.text.replace_range(self.at..end, "");
    }

    /// A line up; from the first one to what was written before.
    pub(super) fn up(&mut self) {
        let start = self.line_start();
        if start == 0 {
            return self.earlier();
        }
        let column = self.text[start..self.at].chars().count();
        let above = self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1);
        self.at = above + bytes_of(&self.text[above..start - 1], column);
    }

    /// A line down; from the last one to what was written later.
    pub(super) fn down(&mut self) {
        let (start, end) = (self.line_start(), self.line_end());
        if end == self.text.len() {
            return self.later();
        }
        let column = self.text[start..self.at].chars().count();
        let below = self.text[end + 1..].find('\n').map_or(self.text.len(), |at| end + 1 + at);
        self.at = end + 1 + bytes_of(&self.text[end + 1..below], column);
    }

    fn earlier(&mut self) {
        let next = match self.shown {
            Some(0) => return,
            Some(at) => at - 1,
            None if self.history.is_empty() => return,
            None => {
                self.draft = std::mem::take(&mut self.text);
                self.history.len() - 1
            }
        };
        let text = self.history.get(next).cloned().unwrap_or_default();
        self.set(&text);
        self.shown = Some(next);
    }

    fn later(&mut self) {
        let Some(at) = self.shown else { return };
        let text = self.history.get(at + 1).cloned();
        self.shown = text.is_some().then_some(at + 1);
        let text = text.unwrap_or_else(|| std::mem::take(&mut self.draft));
        self.set(&text);
    }

    /// The word that ends at the cursor, if it begins with that sign at the beginning of a word.
    pub(super) fn word_with(&self, sign: char) -> Option<&str> {
        let before = self.before();
        let start = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        before[start..].strip_prefix(sign)
    }

    /// Puts a word in the place of the one that ends at the cursor.
    pub(super) fn complete(&mut self, word: &str) {
        let before = self.before();
        let start = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        self.text.replace_range(start..self.at, "");
        self.at = start;
        self.insert(word);
    }
}

fn bytes_of(line: &str, column: usize) -> usize {
    line.char_indices().nth(column).map_or(line.len(), |(at, _)| at)
}

fn written(file: &Path, lines: &str) -> std::io::Result<()> {
    // Its owner's alone: prompts may be private.
    let mut opened = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    opened.write_all(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_move_and_change_what_they_should() {
        let mut editor = Editor::default();
        editor.insert("äb cd\nefg");
        editor.up();
        editor.insert("|");
        assert_eq!(editor.text(), "äb |cd\nefg");
        editor.backspace();
        editor.delete_word();
        assert_eq!(editor.text(), "cd\nefg");
        editor.delete();
        editor.down();
        editor.delete_to_end();
        assert_eq!(editor.text(), "d\n");
        editor.set("one two");
        editor.word_left();
        editor.delete_to_end();
        assert_eq!(editor.text(), "one ");
        editor.delete_to_start();
        assert!(editor.is_empty());
        for key in [
            Editor::left,
            Editor::right,
            Editor::up,
            Editor::down,
            Editor::backspace,
            Editor::delete,
            Editor::word_left,
            Editor::word_right,
        ] {
            key(&mut editor);
        }
        assert!(editor.is_empty(), "nothing happens where nothing is");
    }

    #[test]
    fn what_was_written_comes_back_and_is_remembered() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("history");
        let mut editor = Editor::remembering(file.clone());
        for text in ["first", "second\nline", "second\nline"] {
            editor.insert(text);
            assert_eq!(editor.take(), text);
        }
        let mut editor = Editor::remembering(file);
        editor.insert("draft");
        editor.up();
        assert_eq!(editor.text(), "second\nline");
        editor.up();
        editor.up();
        assert_eq!(editor.text(), "first");
        editor.down();
        editor.down();
        assert_eq!(editor.text(), "draft");
    }

    #[test]
    fn a_long_paste_is_one_word_and_sent_whole() {
        let mut editor = Editor::default();
        let long = "line\r\n".repeat(20);
        editor.insert("look: ");
        editor.paste(&long);
        assert_eq!(editor.text(), "look: [paste 1: 20 lines]");
        assert_eq!(editor.take(), format!("look: {}", "line\n".repeat(20).trim()));
        editor.paste("a\rb");
        assert_eq!(editor.text(), "a\nb");
    }

    #[test]
    fn words_are_completed_where_they_begin() {
        let mut editor = Editor::default();
        editor.insert("see @src/m");
        assert_eq!(editor.word_with('@'), Some("src/m"));
        assert_eq!(editor.word_with('/'), None);
        editor.complete("@src/main.rs ");
        assert_eq!(editor.text(), "see @src/main.rs ");
        editor.set("a@b");
        assert_eq!(editor.word_with('@'), None);
    }
}
