//! What can be completed: commands behind `/` at the beginning, files behind `@`.

use super::editor::Editor;
use crate::base::letters::fit;

/// Lines that are offered at once.
pub(super) const OFFERED: usize = 8;

/// Something that can be completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) word: String,
    pub(super) hint: String,
}

/// What there is to complete.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// Our own commands and those of the project.
    pub(super) commands: Vec<Offer>,
    pub(super) files: Vec<String>,
    /// Agents that can be mentioned.
    pub(super) agents: Vec<String>,
    shown: Vec<Offer>,
    pub(super) at: usize,
    /// The text for which they were put away.
    closed: Option<String>,
}

impl Offers {
    /// These commands, and no files yet.
    pub(super) fn of(commands: Vec<Offer>) -> Self {
        Self { commands, ..Self::default() }
    }

    /// What is offered now.
    pub(super) fn shown(&self) -> &[Offer] {
        &self.shown
    }

    /// Looks at what is written.
    pub(super) fn look(&mut self, editor: &Editor) {
        self.at = 0;
        self.shown.clear();
        if self.closed.as_deref() == Some(editor.text()) {
            return;
        }
        self.closed = None;
        let command = editor.text().strip_prefix('/').filter(|rest| !rest.contains(char::is_whitespace));
        if let Some(typed) = command {
            let mut fitting: Vec<(usize, &Offer)> =
                self.commands.iter().filter_map(|offer| Some((fit(&offer.word, typed)?, offer))).collect();
            fitting.sort_by_key(|(score, _)| *score);
            self.shown = fitting.into_iter().take(OFFERED).map(|(_, offer)| offer.clone()).collect();
        } else if let Some(typed) = editor.word_with('@') {
            let agents = self.agents.iter().map(|name| (name, "agent"));
            let all = agents.chain(self.files.iter().map(|path| (path, "")));
            let mut fitting: Vec<(usize, &String, &str)> =
                all.filter_map(|(word, hint)| Some((fit(word, typed)?, word, hint))).collect();
            fitting.sort_by_key(|(score, word, _)| (*score, word.len()));
            let offer = |(_, word, hint): (usize, &String, &str)| Offer { word: word.clone(), hint: hint.to_owned() };
            self.shown = fitting.into_iter().take(OFFERED).map(offer).collect();
        }
    }

    /// Moves the cursor.
    pub(super) fn step(&mut self, by: isize) {
        let count = self.shown.len();
        if count > 0 {
            self.at = (self.at + count).saturating_add_signed(by) % count;
        }
    }

    /// Puts them away until something else is written.
    pub(super) fn close(&mut self, editor: &Editor) {
        self.shown.clear();
        self.closed = Some(editor.text().to_owned());
    }

    /// Completes what is written with the line that the cursor is on. Whether there is one.
    pub(super) fn take(&mut self, editor: &mut Editor) -> bool {
        let Some(offer) = self.shown.get(self.at) else { return false };
        if editor.text().starts_with('/') && editor.word_with('@').is_none() {
            editor.set(&format!("/{} ", offer.word));
        } else {
            editor.complete(&format!("@{} ", offer.word));
        }
        self.shown.clear();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_files_are_completed_where_they_are_meant() {
        let offer = |word: &str| Offer { word: word.into(), hint: String::new() };
        let mut offers = Offers {
            commands: vec![offer("model"), offer("mode"), offer("sessions")],
            files: vec!["src/main.rs".into(), "src/mode.rs".into()],
            ..Offers::default()
        };
        let mut editor = Editor::default();
        let mut words = |editor: &Editor| {
            offers.look(editor);
            offers.shown().iter().map(|offer| offer.word.clone()).collect::<Vec<_>>()
        };
        editor.insert("/mod");
        assert_eq!(words(&editor), ["model", "mode"]);
        editor.set("/mode x");
        assert!(words(&editor).is_empty());
        editor.set("look at @mode");
        assert_eq!(words(&editor), ["src/mode.rs"]);
        editor.set("me@mode");
        assert!(words(&editor).is_empty());
        editor.set("see @mai");
        offers.look(&editor);
        offers.close(&editor);
        offers.look(&editor);
        assert!(offers.shown().is_empty() && !offers.take(&mut editor));
        editor.insert("n");
        offers.look(&editor);
        assert!(offers.take(&mut editor));
        assert_eq!(editor.text(), "see @src/main.rs ");
    }
}
