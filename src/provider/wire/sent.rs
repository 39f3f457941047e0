//! Bodies of requests. Nearly all of one was sent before: a turn adds a message or two to a conversation, and the tools are the
//! same for days. So a long conversation keeps the words of its last request, and the next one adds to them. What is sent is
//! the same, byte for byte, as if all of it were written anew.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::Told;
use crate::model::{Messages, ModelError};
use crate::protocol::Message;

/// Shorter conversations are written anew each time.
const KEPT_BYTES_MIN: usize = 8 << 10;
/// Of shorter ones a copy is kept, without what stands behind the messages; longer ones are never copied.
const COPIED_BYTES_MAX: usize = 128 << 10;
/// Nothing longer is kept.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// The last request of a conversation, which stays with it.
struct Sent {
    body: Bytes,
    told: Arc<Told>,
    /// Bytes before the first message of the conversation.
    head: usize,
    /// How many messages stand in the first `upto` bytes.
    count: usize,
    upto: usize,
}

/// A body whose list of messages is open.
pub(in crate::provider) struct Draft<'m> {
    /// What stands before the first message; the list is open.
    pub(in crate::provider) head: Vec<u8>,
    /// The conversation.
    pub(in crate::provider) messages: &'m Messages,
    /// The tools' words.
    pub(in crate::provider) told: &'m Arc<Told>,
    /// How many of the messages are written as they will be in the next request too.
    pub(in crate::provider) settled: usize,
}

/// Adds messages to an open list: those that are settled, and the rest as they are sent this time.
pub(in crate::provider) type Add<'a> = &'a dyn Fn(&mut Vec<u8>, &[Message]) -> Result<(), ModelError>;

impl Draft<'_> {
    /// The body. `settled` and `rest` add messages to the list, `end` closes it and adds what stands behind it.
    ///
    /// # Errors
    /// What these say.
    pub(in crate::provider) fn finish(
        self,
        settled: Add<'_>,
        rest: Add<'_>,
        end: impl FnOnce(&mut Vec<u8>) -> Result<(), ModelError>,
    ) -> Result<Bytes, ModelError> {
        let Self { head, messages, told, settled: until } = self;
        let head_bytes = head.len();
        let sent = messages.kept::<Sent>().and_then(|sent| sent.again(&head, told, messages.len()));
        let (mut body, count) = sent.unwrap_or((head, 0));
        let until = until.min(messages.len()).max(count);
        settled(&mut body, messages.get(count..until).unwrap_or_default())?;
        let upto = body.len();
        rest(&mut body, messages.get(until..).unwrap_or_default())?;
        end(&mut body)?;
        let body = Bytes::from(body);
        if (KEPT_BYTES_MIN..=KEPT_BYTES_MAX).contains(&upto) {
            let copied = upto <= COPIED_BYTES_MAX;
            let body = if copied { Bytes::copy_from_slice(body.get(..upto).unwrap_or_default()) } else { body.clone() };
            messages.keep(Sent { body, told: Arc::clone(told), head: head_bytes, count: until, upto });
        }
        Ok(body)
    }
}

impl Sent {
    /// The words that can be sent again, and of how many messages. None: something before them is different.
    fn again(self, head: &[u8], told: &Arc<Told>, messages: usize) -> Option<(Vec<u8>, usize)> {
        let same = self.head == head.len() && self.body.starts_with(head) && Arc::ptr_eq(&self.told, told);
        if !same || self.count > messages {
            return None;
        }
        if self.upto <= COPIED_BYTES_MAX {
            let mut body = Vec::with_capacity(self.upto + told.list.len() + COPIED_BYTES_MAX / 8);
            body.extend_from_slice(&self.body);
            return Some((body, self.count));
        }
        // Without a copy, unless the last request is still on its way.
        let mut body = Vec::from(self.body);
        body.truncate(self.upto);
        Some((body, self.count))
    }
}

/// Writes a value as JSON.
///
/// # Errors
/// [`ModelError::Malformed`].
pub(in crate::provider) fn write<T: Serialize + ?Sized>(body: &mut Vec<u8>, value: &T) -> Result<(), ModelError> {
    serde_json::to_writer(body, value).map_err(|error| ModelError::Malformed(format!("the request: {error}")))
}
