//! Lists to choose from and texts to read, over the timeline.

use ratatui::text::Line;

use crate::base::letters::fit;

/// What the choice of a list does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    Session,
    Model,
    Agent,
    Mode,
    History,
    /// A prompt that waits is taken back.
    Queued,
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// What it stands for.
    pub(super) id: String,
    pub(super) label: String,
    pub(super) hint: String,
    /// Whether it can be chosen.
    pub(super) usable: bool,
}

/// What stands over the timeline.
#[derive(Debug)]
pub(super) enum Dialog {
    List(List),
    Text { title: String, lines: Vec<Line<'static>>, from: usize },
}

/// A list that what is typed makes shorter.
#[derive(Debug)]
pub(super) struct List {
    pub(super) pick: Pick,
    pub(super) title: String,
    all: Vec<Choice>,
    pub(super) typed: String,
    pub(super) at: usize,
    /// Whether it is still asked for.
    pub(super) waits: bool,
}

impl List {
    /// A list whose lines are still asked for.
    pub(super) fn waiting(pick: Pick, title: &str) -> Self {
        Self { pick, title: title.to_owned(), all: Vec::new(), typed: String::new(), at: 0, waits: true }
    }

    /// Puts its lines in.
    pub(super) fn fill(&mut self, choices: Vec<Choice>) {
        (self.all, self.waits, self.at) = (choices, false, 0);
    }

    /// The lines that fit what is typed, the best first.
    pub(super) fn fitting(&self) -> Vec<&Choice> {
        let score = |choice: &Choice| {
            let label = fit(&choice.label, &self.typed);
            label.or_else(|| fit(&choice.hint, &self.typed).map(|score| score + 5_000))
        };
        let mut fitting: Vec<(usize, &Choice)> = self.all.iter().filter_map(|one| Some((score(one)?, one))).collect();
        if !self.typed.is_empty() {
            fitting.sort_by_key(|(score, _)| *score);
        }
        fitting.into_iter().map(|(_, choice)| choice).collect()
    }

    /// The line that the cursor is on.
    pub(super) fn current(&self) -> Option<&Choice> {
        self.fitting().get(self.at).copied()
    }

    /// Moves the cursor.
    pub(super) fn step(&mut self, by: isize) {
        let last = self.fitting().len().saturating_sub(1);
        self.at = self.at.saturating_add_signed(by).min(last);
    }

    /// Types a letter, or takes one back.
    pub(super) fn type_letter(&mut self, letter: Option<char>) {
        match letter {
            Some(letter) => self.typed.push(letter),
            None => drop(self.typed.pop()),
        }
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_makes_a_list_shorter() {
        let mut list = List::waiting(Pick::Model, "Model");
        let choice = |label: &str| Choice { id: label.into(), label: label.into(), hint: String::new(), usable: true };
        list.fill(["src/main.rs", "src/map/other.rs", "docs/main/a.md", "README.md"].map(choice).to_vec());
        let labels = |list: &List| list.fitting().iter().map(|choice| choice.label.clone()).collect::<Vec<_>>();
        assert_eq!(labels(&list).len(), 4);
        for letter in "main".chars() {
            list.type_letter(Some(letter));
        }
        assert_eq!(labels(&list), ["src/main.rs", "docs/main/a.md"]);
        list.step(5);
        assert_eq!(list.current().map(|choice| choice.label.as_str()), Some("docs/main/a.md"));
        for _ in 0..4 {
            list.type_letter(None);
        }
        for letter in "smr".chars() {
            list.type_letter(Some(letter));
        }
        assert_eq!(labels(&list), ["src/main.rs", "src/map/other.rs"]);
        list.type_letter(Some('ß'));
        assert!(labels(&list).is_empty() && list.current().is_none());
    }
}
