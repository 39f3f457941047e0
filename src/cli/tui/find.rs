//! Finding one's way: words in the timeline, also further back than it is loaded; and the sessions of sub-agents.

use super::app::App;
use super::dialog::{Choice, Dialog, List, Pick};
use super::timeline::{Shown, Timeline};
use super::work::{Message, words};
use crate::base::letters::small;
use crate::protocol::{Page, SessionView};

/// What is looked for in the timeline.
#[derive(Debug, Default)]
pub(super) struct Search {
    words: String,
    /// It goes on when what lies further back is there.
    waits: bool,
}

impl Timeline {
    /// All text of an entry. Nothing for one that is not there.
    pub(super) fn text(&self, at: usize) -> String {
        let Some(entry) = self.entries.get(at) else { return String::new() };
        match &entry.shown {
            Shown::Assistant { .. } => self.answer(entry.seq),
            Shown::User { text, .. } | Shown::Summary(text) | Shown::Note { text, .. } => text.clone(),
            Shown::Call(call) => call.output.clone(),
            Shown::Changes { files, .. } => files.iter().filter_map(|file| file.diff.clone()).collect(),
        }
    }

    /// Whether an entry has these words, which are in small letters ([`small`]): in what it shows, folded or not.
    fn has(&self, at: usize, words: &str) -> bool {
        let has = |text: &str| small(text).contains(words);
        self.entries.get(at).is_some_and(|entry| match &entry.shown {
            Shown::Assistant { text, reasoning } => has(text) || has(reasoning),
            Shown::User { text, .. } | Shown::Summary(text) | Shown::Note { text, .. } => has(text),
            Shown::Call(call) => {
                has(&call.name)
                    || has(&call.output)
                    || call.arguments.values().any(|value| value.as_str().map_or_else(|| has(&value.to_string()), has))
            }
            Shown::Changes { files, .. } => {
                files.iter().any(|file| has(&file.path) || file.diff.as_deref().is_some_and(has))
            }
        })
    }

    /// The nearest entry before `from` (or behind it, where `back` is false) that has these words.
    fn find(&self, words: &str, from: Option<usize>, back: bool) -> Option<usize> {
        let (from, count) = (from.unwrap_or(self.entries.len()), self.entries.len());
        if back {
            (0..from.min(count)).rev().find(|at| self.has(*at, words))
        } else {
            (from.saturating_add(1)..count).find(|at| self.has(*at, words))
        }
    }
}

impl App {
    /// Begins to look for words, from the newest entry back.
    pub(super) fn find(&mut self, words: &str) {
        if words.is_empty() {
            return self.tell(false, "/find: expected the words to look for");
        }
        self.search = Search { words: words.to_owned(), waits: false };
        self.view.chosen = None;
        self.find_next(true);
    }

    /// The next place further back, or forward.
    pub(super) fn find_next(&mut self, back: bool) {
        if self.search.words.is_empty() {
            return self.tell(false, "/find looks for words");
        }
        match self.timeline.find(&small(&self.search.words), self.view.chosen, back) {
            Some(at) => {
                self.view.go_to(&mut self.timeline, at);
                self.tell(true, "n further back, N forward, Esc leaves");
            }
            None if back && self.timeline.before.is_some() => {
                self.search.waits = true;
                self.tell(true, "looking further back");
                self.want_older();
            }
            None => {
                let where_to = if back { "further back" } else { "further forward" };
                self.tell(false, format!("`{}` is not {where_to}", self.search.words));
            }
        }
    }

    /// Looks no further back.
    pub(super) fn search_no_more(&mut self) {
        self.search.waits = false;
    }

    /// Goes on where a search waits for what has come now.
    pub(super) fn search_on(&mut self) {
        if std::mem::take(&mut self.search.waits) {
            // Nothing is chosen, or what was: the newer entries are looked through already.
            self.find_next(true);
        }
    }

    /// Lists the sessions that this one has started, and the one above it.
    pub(super) fn list_subagents(&mut self) {
        self.dialog = Some(Dialog::List(List::waiting(Pick::Session, "Sub-agents")));
        let parent = self.session.lineage.as_ref().and_then(|lineage| lineage.parent()).map(|id| Choice {
            id: id.to_string(),
            label: "↑ the session above".to_owned(),
            hint: id.to_string(),
            usable: true,
        });
        self.work.call(("GET", self.path("/children?limit=200")), None, move |answer| {
            let page = answer.and_then(|answer| {
                serde_json::from_value::<Page<SessionView>>(answer).map_err(|cause| {
                    super::super::client::ClientError::Broken { call: "GET children".to_owned(), cause: cause.into() }
                })
            });
            Some(match page {
                Ok(page) => {
                    let children = page.items.iter().map(choice_of_child);
                    Message::Listed(Pick::Session, parent.into_iter().chain(children).collect())
                }
                Err(error) => Message::Told(false, words(&error)),
            })
        });
    }
}

fn choice_of_child(view: &SessionView) -> Choice {
    let lineage = view.lineage.as_deref();
    let name = lineage.and_then(|lineage| lineage.name.clone().or_else(|| lineage.agent.clone()));
    let state = if view.requests.is_empty() { if view.turn.is_some() { "runs" } else { "has ended" } } else { "asks" };
    let label = [name, view.title.clone()].into_iter().flatten().collect::<Vec<_>>().join(": ");
    let label = if label.is_empty() { view.session_id.to_string() } else { label };
    Choice { id: view.session_id.to_string(), label, hint: format!("{state} · {}", view.model), usable: true }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Entry;
    use super::*;
    use crate::protocol::NoticeLevel;

    #[test]
    fn words_are_found_back_and_forward() {
        let note = |text: &str| Shown::Note { level: NoticeLevel::Info, text: text.to_owned() };
        let said = |text: &str| Shown::Assistant { text: text.to_owned(), reasoning: String::new() };
        let shown = [note("Begin here"), said("the Answer"), note("begin again"), said("nothing")];
        let mut timeline = Timeline::default();
        for (seq, shown) in (1_u64..).zip(shown) {
            timeline.entries.push(Entry { seq, turn: None, shown, edition: 0 });
        }
        assert_eq!(timeline.find("begin", None, true), Some(2));
        assert_eq!(timeline.find("begin", Some(2), true), Some(0));
        assert_eq!(timeline.find("begin", Some(0), true), None);
        assert_eq!(timeline.find("begin", Some(0), false), Some(2));
        assert_eq!(timeline.find("begin", None, false), None);
        assert_eq!(timeline.find("answer", None, true), Some(1));
        assert_eq!((timeline.text(1), timeline.text(9)), ("the Answer".to_owned(), String::new()));
    }
}
