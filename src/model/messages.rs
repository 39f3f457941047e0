//! A conversation as a model is given it: it is shared, it grows at its end, and what was made of it can stay with it.
//!
//! A turn of a long session adds a message or two to thousands. So handing a conversation on copies nothing, and a
//! provider may leave with it what it has encoded of it ([`Messages::keep`]): whoever only adds to it finds that again.
//! Any other change ([`Messages::edit`]) and every copy begins without.
//!
//! For the same reason more is carried along: which old outputs are to go ([`Messages::prune`]), how many
//! tokens there are ([`Messages::tokens`]), and the conversation in the words of a model that calls tools another way ([`Messages::retold`]). What either costs depends on what is new, and not on how long the conversation is.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::limit;
use crate::context::tokens::{Counter, counter, estimate_message};
use crate::context::{Correction, Pruner, conversation_chars};
use crate::protocol::Message;

/// Messages, oldest first. A clone shares them; who changes a shared one gets a copy of its own.
#[derive(Clone, Default)]
pub struct Messages(Arc<Inner>);

#[derive(Default)]
struct Inner {
    list: Vec<Message>,
    chars: u64,
    /// The UTF-16 units that were sent of it, and how many tokens its provider has counted then.
    measured: Mutex<Option<(u64, u64)>>,
    kept: Mutex<Option<Box<dyn Any + Send>>>,
    pruner: Mutex<Pruner>,
    /// Tokens by length.
    estimate: Mutex<Sums>,
    /// Tokens as the model counts them that was asked about last.
    counted: Mutex<Option<(Counter, Sums)>>,
    correction: Mutex<Correction>,
    retold: Mutex<Option<Retold>>,
}

/// The same conversation in other words.
#[derive(Clone)]
struct Retold {
    /// What says in which ones.
    by: u64,
    /// How many messages were looked at.
    seen: usize,
    /// All of these. None: none of them is put in other words.
    told: Option<Messages>,
}

/// A figure of each message, and of all of them.
#[derive(Debug, Clone, Default)]
struct Sums {
    each: Vec<u32>,
    all: u64,
}

impl Sums {
    /// Looks at what is new.
    fn advance(&mut self, messages: &[Message], of: impl Fn(&Message) -> u64) {
        for message in &messages[self.each.len().min(messages.len())..] {
            let one = u32::try_from(of(message)).unwrap_or(u32::MAX);
            self.each.push(one);
            self.all += u64::from(one);
        }
    }

    /// One has changed.
    fn again(&mut self, at: usize, message: &Message, of: impl Fn(&Message) -> u64) {
        if let Some(one) = self.each.get_mut(at) {
            self.all -= u64::from(*one);
            *one = u32::try_from(of(message)).unwrap_or(u32::MAX);
            self.all += u64::from(*one);
        }
    }
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self {
            list: self.list.clone(),
            chars: self.chars,
            measured: Mutex::new(*self.measured.lock()),
            kept: Mutex::default(),
            pruner: Mutex::new(self.pruner.lock().clone()),
            estimate: Mutex::new(self.estimate.lock().clone()),
            counted: Mutex::new(self.counted.lock().clone()),
            correction: Mutex::new(*self.correction.lock()),
            retold: Mutex::new(self.retold.lock().clone()),
        }
    }
}

impl Messages {
    /// Adds one at the end.
    pub fn push(&mut self, message: Message) {
        let inner = Arc::make_mut(&mut self.0);
        inner.chars = inner.chars.saturating_add(conversation_chars(std::slice::from_ref(&message)));
        inner.list.push(message);
    }

    /// Changes what is there. What was kept of it goes.
    pub fn edit(&mut self, change: impl FnOnce(&mut Vec<Message>)) {
        let inner = Arc::make_mut(&mut self.0);
        change(&mut inner.list);
        inner.chars = conversation_chars(&inner.list);
        *inner.kept.get_mut() = None;
        *inner.pruner.get_mut() = Pruner::default();
        *inner.estimate.get_mut() = Sums::default();
        *inner.counted.get_mut() = None;
        *inner.retold.get_mut() = None;
    }

    /// Blanks old outputs of tools, where it is worth it. How many: what was sent of the conversation so far stays the beginning
    /// of what is sent next exactly when it is none.
    pub fn prune(&mut self) -> usize {
        let mut pruner = self.0.pruner.lock();
        pruner.advance(&self.0.list);
        if !pruner.is_due() {
            return 0;
        }
        drop(pruner);
        let inner = Arc::make_mut(&mut self.0);
        let of = |list: &[Message], places: &[usize]| -> u64 {
            places.iter().filter_map(|at| list.get(*at)).map(|one| conversation_chars(std::slice::from_ref(one))).sum()
        };
        let before = of(&inner.list, inner.pruner.get_mut().due());
        let pruned = inner.pruner.get_mut().prune(&mut inner.list);
        inner.chars = inner.chars.saturating_sub(before).saturating_add(of(&inner.list, &pruned));
        *inner.kept.get_mut() = None;
        *inner.retold.get_mut() = None;
        for at in &pruned {
            let message = &inner.list[*at];
            inner.estimate.get_mut().again(*at, message, estimate_message);
            if let Some((counter, sums)) = inner.counted.get_mut() {
                let counter = *counter;
                sums.again(*at, message, |message| counter.message(message));
            }
        }
        pruned.len()
    }

    /// The conversation in other words, of which `by` says which ones: the very same where `has` finds no message that is put in
    /// them, and otherwise each as `put` leaves it. Each is looked at once.
    pub fn retold(&self, by: u64, has: impl Fn(&Message) -> bool, put: impl Fn(&mut Message)) -> Self {
        let mut slot = self.0.retold.lock();
        let known = slot.take().filter(|known| known.by == by);
        let mut retold = known.unwrap_or(Retold { by, seen: 0, told: None });
        let list = &self.0.list;
        let new = &list[retold.seen.min(list.len())..];
        if retold.told.is_none() && new.iter().any(&has) {
            retold.told = Some(Self::from(list[..list.len() - new.len()].to_vec()));
        }
        if let Some(told) = &mut retold.told {
            for message in new {
                let mut message = message.clone();
                put(&mut message);
                told.push(message);
            }
        }
        retold.seen = list.len();
        let told = retold.told.clone();
        *slot = Some(retold);
        told.unwrap_or_else(|| self.clone())
    }

    /// About how many tokens they have, by their length: quick, whoever reads them.
    pub fn estimated_tokens(&self) -> u64 {
        let mut sums = self.0.estimate.lock();
        sums.advance(&self.0.list, estimate_message);
        sums.all
    }

    /// How many tokens they have for a model, as far as that is known; what its provider said so far corrects it
    /// ([`Self::learn`]). Those of short conversations are estimated by their length. What is new is counted, which may take a
    /// while ([`Self::counts_soon`]).
    pub fn tokens(&self, model_id: &str) -> u64 {
        self.0.correction.lock().apply(self.raw_tokens(model_id))
    }

    /// The same, together with what stands before them: so many tokens of the system text and the tools.
    pub fn context_tokens(&self, model_id: &str, beside: u64) -> u64 {
        self.0.correction.lock().apply(self.raw_tokens(model_id).saturating_add(beside))
    }

    fn raw_tokens(&self, model_id: &str) -> u64 {
        let estimated = self.estimated_tokens();
        if estimated < limit::COUNTED_TOKENS_MIN {
            return estimated;
        }
        let counter = counter(model_id);
        let mut counted = self.0.counted.lock();
        let (of, sums) = counted.get_or_insert_with(|| (counter, Sums::default()));
        if *of != counter {
            (*of, *sums) = (counter, Sums::default());
        }
        sums.advance(&self.0.list, |message| counter.message(message));
        sums.all
    }

    /// Whether counting takes no time to speak of. If not, it belongs on the blocking pool: a clone counts for all.
    pub fn counts_soon(&self, model_id: &str) -> bool {
        let estimated = self.estimated_tokens();
        if estimated < limit::COUNTED_TOKENS_MIN {
            return true;
        }
        let counter = counter(model_id);
        let known = self.0.counted.lock().as_ref().filter(|(of, _)| *of == counter).map_or(0, |(_, sums)| sums.all);
        counter.is_ready() && estimated.saturating_sub(known) < limit::COUNTED_AT_ONCE_TOKENS
    }

    /// Learns from a request of these messages of which the provider said how many tokens it had. `beside`: those of the system
    /// text and the tools, as we count them.
    pub fn learn(&self, model_id: &str, beside: u64, reported: u64) {
        let counted = self.raw_tokens(model_id).saturating_add(beside);
        self.0.correction.lock().learn(counted, reported);
    }

    /// About how long they are, in UTF-16 units.
    pub fn chars(&self) -> u64 {
        self.0.chars
    }

    /// A request that had so many UTF-16 units of it had so many tokens in all, as its provider has counted.
    pub fn measure(&self, chars: u64, tokens: u64) {
        *self.0.measured.lock() = Some((chars, tokens));
    }

    /// The UTF-16 units and the tokens of the last request, if its provider said.
    pub fn measured(&self) -> Option<(u64, u64)> {
        *self.0.measured.lock()
    }

    /// Takes what was kept of the messages that were there then: they still are, and are the first ones.
    pub fn kept<T: Any>(&self) -> Option<T> {
        let kept = self.0.kept.lock().take()?;
        kept.downcast().ok().map(|kept| *kept)
    }

    /// Keeps something that was made of the messages, until they are gone or changed.
    pub fn keep<T: Any + Send>(&self, made: T) {
        *self.0.kept.lock() = Some(Box::new(made));
    }
}

impl Deref for Messages {
    type Target = [Message];
    fn deref(&self) -> &[Message] {
        &self.0.list
    }
}

impl From<Vec<Message>> for Messages {
    fn from(list: Vec<Message>) -> Self {
        let chars = conversation_chars(&list);
        Self(Arc::new(Inner { list, chars, ..Inner::default() }))
    }
}

impl From<Messages> for Vec<Message> {
    fn from(messages: Messages) -> Self {
        Arc::try_unwrap(messages.0).map_or_else(|shared| shared.list.clone(), |inner| inner.list)
    }
}

impl<'m> IntoIterator for &'m Messages {
    type Item = &'m Message;
    type IntoIter = std::slice::Iter<'m, Message>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.list.fmt(f)
    }
}

impl<List: AsRef<[Message]> + ?Sized> PartialEq<List> for Messages {
    fn eq(&self, other: &List) -> bool {
        self.0.list == other.as_ref()
    }
}

impl AsRef<[Message]> for Messages {
    fn as_ref(&self) -> &[Message] {
        &self.0.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Part;

    fn user(text: &str) -> Message {
        Message::User(vec![Part::Text { text: text.into() }])
    }

    fn output(text: &str) -> Message {
        let (call_id, name) = ("c".into(), "t".into());
        Message::ToolResult { call_id, name, output: text.into(), is_error: false, parts: Vec::new() }
    }

    #[test]
    fn what_is_kept_stays_while_it_only_grows() {
        let mut messages = Messages::from(vec![user("a")]);
        messages.keep(1_usize);
        messages.push(user("b"));
        assert_eq!((messages.kept::<usize>(), messages.kept::<usize>()), (Some(1), None), "it is taken out");
        messages.keep(2_usize);
        assert_eq!(messages.kept::<String>(), None, "somebody else's");
        messages.keep(2_usize);
        messages.edit(|list| list.truncate(1));
        assert_eq!(messages.kept::<usize>(), None, "they are no longer the first ones");
        assert_eq!(messages, vec![user("a")]);
    }

    #[test]
    fn who_changes_a_shared_one_has_a_copy() {
        let mut messages = Messages::from(vec![user("a")]);
        messages.keep(1_usize);
        let other = messages.clone();
        assert!(std::ptr::eq(&messages[0], &other[0]), "nothing is copied");
        messages.push(user("b"));
        assert_eq!((messages.len(), other.len()), (2, 1));
        assert_eq!((messages.kept::<usize>(), other.kept::<usize>()), (None, Some(1)));
    }

    #[test]
    fn old_outputs_go_in_place_and_what_was_kept_goes_with_them() {
        let long = "x".repeat(4 * 30_000);
        let mut messages = Messages::default();
        for _ in 0..3 {
            messages.push(user("go on"));
            messages.push(output(&long));
        }
        messages.keep(1_usize);
        assert_eq!(messages.prune(), 0, "two turns are spared, and 40,000 tokens");
        assert_eq!(messages.kept::<usize>(), Some(1));
        messages.push(user("go on"));
        messages.push(user("go on"));
        let before = (messages.clone(), messages.tokens("openai/gpt-5"), messages.estimated_tokens());
        assert_eq!(messages.prune(), 1);
        assert_eq!(before.0[1], output(&long), "who has it still sees it");
        assert_eq!(messages[1], output("[OUTPUT PRUNED — 120000 chars]"));
        assert_eq!((&messages[3], &messages[5]), (&output(&long), &output(&long)));
        assert_eq!((messages.prune(), messages.kept::<usize>()), (0, None));
        // What is carried along is what a new look finds.
        let anew = Messages::from(messages.to_vec());
        let both = |all: &Messages| (all.tokens("openai/gpt-5"), all.estimated_tokens());
        assert_eq!(messages.chars(), anew.chars());
        assert_eq!(both(&messages), both(&anew));
        assert!(both(&messages).0 < before.1 && both(&messages).1 < before.2);
    }

    #[test]
    fn what_is_told_in_other_words_grows_too() {
        let mut messages = Messages::from(vec![user("a")]);
        let loud = |messages: &Messages, by| {
            let has = |message: &Message| *message == user("b");
            let put = |message: &mut Message| {
                if has(message) {
                    *message = user("B");
                }
            };
            messages.retold(by, has, put)
        };
        assert!(
            std::ptr::eq(&loud(&messages, 1)[0], &messages[0]),
            "nothing is copied where nothing is put in other words"
        );
        messages.push(user("b"));
        let told = loud(&messages, 1);
        assert_eq!(told, vec![user("a"), user("B")]);
        told.keep(1_usize);
        drop(told);
        messages.push(user("b"));
        messages.push(user("c"));
        let told = loud(&messages, 1);
        assert_eq!(told, vec![user("a"), user("B"), user("B"), user("c")]);
        assert_eq!(told.kept::<usize>(), Some(1), "what a provider has made of it stays");
        assert_eq!(messages.retold(2, |_| false, |_| {}), messages, "other words");
        loud(&messages, 1);
        messages.edit(|list| list.truncate(2));
        assert_eq!(loud(&messages, 1), vec![user("a"), user("B")]);
    }

    #[test]
    fn tokens_are_counted_once_and_corrected() {
        let mut messages = Messages::from(vec![user("12345678")]);
        assert_eq!(messages.tokens("openai/gpt-5"), 2 + limit::MESSAGE_TOKENS, "a short one is estimated");
        messages.push(output(&"let x = 1;\n".repeat(10_000)));
        let counted = messages.tokens("openai/gpt-5");
        assert_eq!(counted, crate::context::tokens_of(&messages, "openai/gpt-5", Correction::default()));
        assert_ne!(counted, messages.estimated_tokens());
        assert_eq!(
            messages.tokens("anthropic/claude-opus-5"),
            crate::context::tokens_of(&messages, "anthropic/claude-opus-5", Correction::default())
        );
        let raw = messages.tokens("openai/gpt-5");
        messages.learn("openai/gpt-5", 1_000, 2 * (raw + 1_000));
        assert_eq!(messages.tokens("openai/gpt-5"), 2 * raw);
        assert_eq!(messages.context_tokens("openai/gpt-5", 10), 2 * raw + 20);
        let other = messages.clone();
        messages.push(user("more"));
        assert!(messages.tokens("openai/gpt-5") > 2 * raw && other.tokens("openai/gpt-5") == 2 * raw);
        messages.edit(|list| list.truncate(2));
        assert_eq!(messages.tokens("openai/gpt-5"), 2 * raw, "what was learnt stays");
        assert!(messages.counts_soon("openai/gpt-5"));
    }
}
