//! The rule of pruning, carried along a conversation that grows: each message is looked at once.
//!
//! What was pruned stays so, and what stands before it is sent as it was: a provider that keeps the beginning of a prompt
//! finds it again. For that the rule is held against the conversation as it was left, and never against the one that was
//! said: [`Pruner::prune`] does what [`prune_plan`](super::prune_plan) says of the very messages that it is given, and a
//! test holds the two against each other.
//!
//! Why a sum will do: an output is spared while it and what is newer have few tokens, and messages only come at the
//! end. So who is out of that window never comes back into it, unless a summary ends all of it.

use std::collections::VecDeque;

use super::{Entry, PRUNED_MARK, PRUNED_UNITS_MIN, PruneOptions, entry_of, placeholder, units};
use crate::protocol::Message;

/// An output that may go one day.
#[derive(Debug, Clone, Copy)]
struct Output {
    /// Which message it is.
    at: usize,
    tokens: usize,
    /// Whether a placeholder would be shorter.
    long: bool,
    /// Users' messages before it.
    turn: usize,
}

/// One message, as far as the rule looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The user's: begins a turn.
    User,
    /// It sums up all before it.
    Summary,
    /// Somebody else's.
    Other,
    /// A tool's output.
    Output {
        /// Its length in UTF-16 units.
        units: usize,
        /// It stays, whatever happens: its tool is protected, or it is blank already.
        stays: bool,
    },
}

/// Where the rule stands in a conversation.
#[derive(Debug, Clone, Default)]
pub struct Pruner {
    options: PruneOptions,
    /// Messages that were looked at.
    seen: usize,
    /// Users' messages among them.
    turns: usize,
    /// The newest output, of whichever tool.
    newest: Option<usize>,
    /// Those of the newest turns, and the newest of all.
    young: VecDeque<Output>,
    /// Older ones, as far as the newest tokens are spared.
    spared: VecDeque<Output>,
    spared_tokens: usize,
    /// Those that go once it is worth it.
    due: Vec<usize>,
    due_tokens: usize,
}

impl Pruner {
    /// One that spares this, at the beginning of a conversation.
    pub fn new(options: PruneOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Looks at the messages that are new. They have to be the ones of before, with more behind them.
    pub fn advance(&mut self, messages: &[Message]) {
        for message in messages.iter().skip(self.seen) {
            self.take(self.look_at(entry_of(message)));
        }
        self.settle();
    }

    /// Looks at one more message, of which this is all that matters.
    pub fn push(&mut self, look: Look) {
        self.take(look);
        self.settle();
    }

    fn look_at(&self, entry: Entry<'_>) -> Look {
        match entry {
            // A summary stands in front of all, where nothing is left to prune; what only begins like one is a text as any other.
            Entry::User(_) => Look::User,
            Entry::Other(_) => Look::Other,
            Entry::Output { tool, text } => {
                let stays =
                    text.starts_with(PRUNED_MARK) || self.options.protected_tools.iter().any(|name| name == tool);
                // The length of one that stays does not matter.
                Look::Output { units: if stays { 0 } else { units(text) }, stays }
            }
        }
    }

    fn take(&mut self, look: Look) {
        let at = self.seen;
        self.seen += 1;
        match look {
            Look::Summary => {
                self.young.clear();
                self.spared.clear();
                self.due.clear();
                (self.spared_tokens, self.due_tokens) = (0, 0);
            }
            Look::User => self.turns += 1,
            Look::Other => {}
            Look::Output { units, stays } => {
                self.newest = Some(at);
                if !stays {
                    let (tokens, long) = (units.div_ceil(4), units >= PRUNED_UNITS_MIN);
                    self.young.push_back(Output { at, tokens, long, turn: self.turns });
                }
            }
        }
    }

    /// Lets those grow old that are.
    fn settle(&mut self) {
        while let Some(output) = self.young.pop_front() {
            let old = self.turns - output.turn >= self.options.protected_turns;
            if !old || self.newest == Some(output.at) {
                self.young.push_front(output);
                return;
            }
            self.spared_tokens += output.tokens;
            self.spared.push_back(output);
            while self.options.protected_tokens.is_none_or(|spared| self.spared_tokens > spared)
                && let Some(output) = self.spared.pop_front()
            {
                self.spared_tokens -= output.tokens;
                if output.long {
                    self.due_tokens += output.tokens;
                    self.due.push(output.at);
                }
            }
        }
    }

    /// Whether there is something to prune.
    pub fn is_due(&self) -> bool {
        !self.due.is_empty() && self.options.minimum_tokens.is_none_or(|minimum| self.due_tokens >= minimum)
    }

    /// Those that go once it is worth it: indexes, oldest first. They only become more, until they are pruned or summed up.
    pub fn due(&self) -> &[usize] {
        &self.due
    }

    /// Blanks what is due, once the new ones were looked at. Which ones it was: indexes, oldest first.
    pub fn prune(&mut self, messages: &mut [Message]) -> Vec<usize> {
        self.advance(messages);
        if !self.is_due() {
            return Vec::new();
        }
        self.due_tokens = 0;
        let due = std::mem::take(&mut self.due);
        for at in &due {
            if let Some(Message::ToolResult { output, parts, .. }) = messages.get_mut(*at) {
                *output = placeholder(output);
                parts.clear();
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{prune, prune_plan};
    use crate::protocol::Part;
    use proptest::prelude::*;

    fn message((kind, hundreds): (u8, usize)) -> Message {
        let user = |text: &str| Message::User(vec![Part::Text { text: text.into() }]);
        let output = |name: &str, output: String| Message::ToolResult {
            call_id: "c".into(),
            name: name.into(),
            output,
            is_error: false,
            parts: Vec::new(),
        };
        match kind {
            0..=3 => user("go on"),
            4 => Message::assistant("so", Vec::new()),
            7 => output("keep", "x".repeat(hundreds * 400)),
            8 => output("t", "[OUTPUT PRUNED — 999 chars]".into()),
            9 => output("t", "ä".repeat(hundreds * 19)),
            _ => output("t", "x".repeat(hundreds * 400)),
        }
    }

    fn kinds() -> impl Strategy<Value = u8> {
        prop_oneof![40 => 0..=4_u8, 10 => 7..=9_u8, 50 => 10..=11_u8]
    }

    proptest! {
        #[test]
        fn it_does_what_the_rule_says_of_the_conversation_as_it_was_left(
            story in prop::collection::vec((kinds(), 0..12_usize), 0..60),
            looks in prop::collection::vec(any::<bool>(), 60),
            (protected_turns, protected, minimum) in (0..4_usize, prop::option::of(0..2_000_usize), prop::option::of(0..2_000_usize)),
        ) {
            let options = PruneOptions {
                protected_turns,
                protected_tools: vec!["keep".into()],
                protected_tokens: protected,
                minimum_tokens: minimum,
            };
            let mut pruner = Pruner::new(options.clone());
            let (mut carried, mut ruled) = (Vec::new(), Vec::new());
            for (one, looks) in story.into_iter().zip(looks) {
                carried.push(message(one));
                ruled.push(message(one));
                // As in a session: several messages may come between two requests.
                if looks {
                    let want = prune_plan(&ruled.iter().map(entry_of).collect::<Vec<_>>(), &options);
                    prune(&mut ruled, &options);
                    prop_assert_eq!(pruner.prune(&mut carried), want);
                    prop_assert_eq!(&carried, &ruled);
                    prop_assert!(pruner.prune(&mut carried).is_empty(), "once is enough");
                }
            }
        }
    }

    #[test]
    fn a_summary_ends_what_was_due_and_a_text_that_begins_like_one_does_not() {
        let options = PruneOptions { protected_tokens: None, minimum_tokens: None, ..PruneOptions::default() };
        let mut pruner = Pruner::new(options.clone());
        let output = Look::Output { units: 4_000, stays: false };
        for look in [Look::User, output, Look::User, output, Look::User] {
            pruner.push(look);
        }
        assert_eq!(pruner.due(), [1]);
        pruner.push(Look::Summary);
        assert!(!pruner.is_due());

        let said = |text: &str| Message::User(vec![Part::Text { text: text.into() }]);
        for mark in crate::context::SUMMARY_MARKS {
            let marked = Message::assistant(format!("{mark} of it"), Vec::new());
            let mut messages = vec![message((0, 0)), message((10, 9)), message((0, 0)), message((10, 9)), marked];
            messages.push(said(&format!("{mark} of the ticket")));
            assert_eq!(Pruner::new(options.clone()).prune(&mut messages), [1], "{mark}");
        }
    }

    #[test]
    fn one_that_begins_late_goes_on_alike() {
        let story = |n: usize| message((if n.is_multiple_of(5) { 0 } else { 10 }, n % 7));
        let options =
            PruneOptions { protected_tokens: Some(1_000), minimum_tokens: Some(2_000), ..PruneOptions::default() };
        let (mut early, mut messages) = (Pruner::new(options.clone()), Vec::new());
        for n in 0..200 {
            messages.push(story(n));
            early.prune(&mut messages);
        }
        let (mut late, mut other) = (Pruner::new(options), messages.clone());
        for n in 200..400 {
            messages.push(story(n));
            other.push(story(n));
            assert_eq!(late.prune(&mut other), early.prune(&mut messages), "{n}");
        }
        assert!(
            messages
                .iter()
                .filter(|one| matches!(entry_of(one), Entry::Output { text, .. } if text.starts_with(PRUNED_MARK)))
                .count()
                > 100
        );
    }
}
