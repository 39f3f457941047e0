//! A conversation as a model is given it: it is shared, it grows at its end, and what was made of it can stay with it.
//!
//! A turn of a long session adds a message or two to thousands. So handing a conversation on copies nothing, and a
//! provider may leave with it what it has encoded of it ([`Messages::keep`]): whoever only adds to it finds that again.
//! Any other change ([`Messages::edit`]) and every copy begins without.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::context::{conversation_chars, estimate_tokens};
use crate::protocol::Message;

/// Messages, oldest first. A clone shares them; who changes a shared one gets a copy of its own.
#[derive(Clone, Default)]
pub struct Messages(Arc<Inner>);

#[derive(Default)]
struct Inner {
    list: Vec<Message>,
    output_tokens: usize,
    chars: u64,
    /// The UTF-16 units that were sent of it, and how many tokens its provider has counted then.
    measured: Mutex<Option<(u64, u64)>>,
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        let measured = Mutex::new(*self.measured.lock());
        Self {
            list: self.list.clone(),
            output_tokens: self.output_tokens,
            chars: self.chars,
            measured,
            kept: Mutex::default(),
        }
    }
}

impl Messages {
    /// Adds one at the end.
    pub fn push(&mut self, message: Message) {
        let inner = Arc::make_mut(&mut self.0);
        inner.output_tokens += output_tokens(&message);
        inner.chars = inner.chars.saturating_add(conversation_chars(std::slice::from_ref(&message)));
        inner.list.push(message);
    }

    /// Changes what is there. What was kept of it goes.
    pub fn edit(&mut self, change: impl FnOnce(&mut Vec<Message>)) {
        let inner = Arc::make_mut(&mut self.0);
        change(&mut inner.list);
        inner.output_tokens = inner.list.iter().map(output_tokens).sum();
        inner.chars = conversation_chars(&inner.list);
        *inner.kept.get_mut() = None;
    }

    /// About how many tokens the outputs of tools have.
    pub fn output_tokens(&self) -> usize {
        self.0.output_tokens
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

fn output_tokens(message: &Message) -> usize {
    match message {
        Message::ToolResult { output, .. } => estimate_tokens(output),
        Message::User(_) | Message::Assistant { .. } => 0,
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
        let output_tokens = list.iter().map(output_tokens).sum();
        let chars = conversation_chars(&list);
        Self(Arc::new(Inner { list, output_tokens, chars, measured: Mutex::default(), kept: Mutex::default() }))
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
    fn outputs_are_counted() {
        let mut messages = Messages::from(vec![user("aaaa"), output("12345678")]);
        messages.push(output("1"));
        assert_eq!(messages.output_tokens(), 3);
        messages.edit(|list| drop(list.remove(1)));
        assert_eq!(messages.output_tokens(), 1);
    }
}
