//! What is told of a patch: one line a file, however many sections changed it.

use std::path::{Path, PathBuf};

use crate::edit::patch::Form;

/// One side of a change: a file's name in the patch, where it lies, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Side {
    /// As the patch names it.
    pub given: String,
    /// Where that leads.
    pub path: PathBuf,
    /// Its text.
    pub bytes: Vec<u8>,
}

impl Side {
    /// A file at a place.
    pub(super) fn new(given: &str, path: &Path, bytes: Vec<u8>) -> Self {
        Self { given: given.to_owned(), path: path.to_owned(), bytes }
    }
}

/// What is told about one file of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// It is a copy, whose source stays.
    pub copied: bool,
    /// What was not minded when its changes were placed. Empty: nothing.
    pub leniency: String,
    /// What was there before, where there was something.
    pub before: Option<Side>,
    /// What is there after, where there is something.
    pub after: Option<Side>,
}

impl Told {
    /// `A`, `M`, `D`, `R` or `C`.
    pub(super) fn letter(&self) -> char {
        match (&self.before, &self.after) {
            (Some(_), Some(_)) if self.copied => 'C',
            (Some(before), Some(after)) if before.path != after.path => 'R',
            (Some(_), Some(_)) => 'M',
            (None, Some(_) | None) => 'A',
            (Some(_), None) => 'D',
        }
    }

    /// The path, or `old → new`.
    pub(super) fn name(&self) -> String {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) if self.copied || before.path != after.path => {
                format!("{} → {}", before.given, after.given)
            }
            (_, Some(side)) | (Some(side), None) => side.given.clone(),
            (None, None) => String::new(),
        }
    }

    /// Adds what a later section made of the same file. Gives that section back when it is about another one.
    fn take(&mut self, next: Told, form: Form) -> Option<Told> {
        let in_place = |told: &Told| told.letter() == 'M';
        if form == Form::Unified && !(in_place(self) && in_place(&next)) {
            // Its moves all begin at one state: `a → b` and `b → a` exchange two files.
            return Some(next);
        }
        let at = |side: &Option<Side>| side.as_ref().map(|side| side.path.clone());
        let goes_on = !next.copied && next.before.is_some() && at(&self.after) == at(&next.before);
        let comes_back = self.after.is_none() && next.before.is_none() && at(&self.before) == at(&next.after);
        if !goes_on && !comes_back {
            return Some(next);
        }
        if self.leniency.is_empty() {
            self.leniency = next.leniency;
        } else if !next.leniency.is_empty() && self.leniency != next.leniency {
            self.leniency = format!("{}, {}", self.leniency, next.leniency);
        }
        // It keeps the name that it was given first.
        let known = self.after.take().or_else(|| self.before.clone());
        self.after = next.after.map(|after| match known {
            Some(known) if known.path == after.path => Side { given: known.given, ..after },
            Some(_) | None => after,
        });
        None
    }
}

/// The sections of a patch, in its order, with those about one file as one. A file that came and went again is left out.
pub(super) fn merged(sections: Vec<Told>, form: Form) -> Vec<Told> {
    let mut merged: Vec<Told> = Vec::new();
    for section in sections {
        let mut left = Some(section);
        for earlier in merged.iter_mut().rev() {
            let Some(next) = left else { break };
            left = earlier.take(next, form);
        }
        merged.extend(left);
    }
    merged.retain(|told| told.before.is_some() || told.after.is_some());
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `old>new`, either of them empty; a name with its text behind it.
    fn told(change: &str, copied: bool) -> Told {
        let side = |text: &str| {
            (!text.is_empty()).then(|| Side::new(&text[..1], Path::new(&text[..1]), text.as_bytes()[1..].to_vec()))
        };
        let (before, after) = change.split_once('>').unwrap();
        Told { copied, leniency: String::new(), before: side(before), after: side(after) }
    }

    fn lines(sections: &[&str], form: Form) -> String {
        let all = merged(sections.iter().map(|section| told(section, false)).collect(), form);
        all.iter().map(|told| format!("{} {}", told.letter(), told.name())).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn sections_about_one_file_are_one_line() {
        #[rustfmt::skip]
        let table: &[(&[&str], &str)] = &[
            (&["a1>a2", "b1>b2"], "M a, M b"), (&["a1>a2", "b1>b2", "a2>a3"], "M a, M b"), (&[">a1", "a1>a2"], "A a"),
            (&[">a1", "a1>"], ""), (&["a1>", ">a2"], "M a"), (&["a1>a2", "a2>"], "D a"), (&["a1>b1", "b1>b2"], "R a → b"),
            (&["a1>a2", "a2>b2"], "R a → b"), (&["a1>b1", "b1>c1"], "R a → c"), (&["a1>b1", "b1>a1"], "M a"),
            (&["a1>b1", "c1>a1"], "R a → b, R c → a"), (&["a1>", ">a2", "a2>a3"], "M a"), (&["a1>b1", ">a9"], "R a → b, A a"),
        ];
        for (sections, want) in table {
            assert_eq!(lines(sections, Form::Begin), *want, "{sections:?}");
        }
        assert_eq!(lines(&["a1>b1", "b1>a1", "c1>c2", "c2>c3"], Form::Unified), "R a → b, R b → a, M c");
        let copied = [("a1>a2", false), ("a2>b2", true), ("b2>b3", false), ("a2>a4", false)];
        let copies = merged(copied.into_iter().map(|(change, copied)| told(change, copied)).collect(), Form::Begin);
        let letters: Vec<char> = copies.iter().map(Told::letter).collect();
        assert_eq!(letters, ['M', 'C']);
        assert_eq!(copies[1].after.as_ref().unwrap().bytes, b"3");
    }
}
