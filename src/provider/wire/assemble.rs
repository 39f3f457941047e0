//! How an answer is read, whatever its wire: text in, events out.

use serde_json::Value;

use super::failure::cut_short;
use crate::base::limit;
use crate::model::{ModelError, ModelEvent};

/// Reads one answer: text in, events out.
pub(in crate::provider) trait Assemble: Send {
    /// Takes one event of the stream: its name, which may be empty, and its data.
    ///
    /// # Errors
    /// What the event says, or what is wrong with it. Nothing more is to be taken then.
    fn take(&mut self, event: &str, data: &str) -> Result<(), ModelError>;

    /// Takes an answer that is not streamed.
    ///
    /// # Errors
    /// As [`Assemble::take`].
    fn take_whole(&mut self, body: &str) -> Result<(), ModelError>;

    /// The stream ended.
    ///
    /// # Errors
    /// [`ModelError::Transient`] when the reply is not whole.
    fn close(&mut self) -> Result<(), ModelError> {
        match self.state() {
            State::Done => Ok(()),
            State::Stopped => self.finish(),
            State::Talking => Err(cut_short()),
        }
    }

    /// Gives out what waited for the end: the model has stopped. One that is never [`State::Stopped`] has nothing of the kind.
    ///
    /// # Errors
    /// What is wrong with the whole.
    fn finish(&mut self) -> Result<(), ModelError> {
        Err(cut_short())
    }

    /// The events that are whole, in order. Tools have the names of the wire.
    fn drain(&mut self) -> std::vec::Drain<'_, ModelEvent>;

    /// How far it is.
    fn state(&self) -> State;
}

/// How far a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::provider) enum State {
    /// More will come.
    Talking,
    /// The model has given its reason to stop; tokens may follow.
    Stopped,
    /// The last event was given out.
    Done,
}

impl State {
    /// Of a stream that is done, or of which a reason to stop has come.
    pub(in crate::provider) fn of(done: bool, stopped: bool) -> Self {
        match (done, stopped) {
            (true, _) => Self::Done,
            (false, true) => Self::Stopped,
            (false, false) => Self::Talking,
        }
    }
}

/// How long a reply is so far.
#[derive(Debug, Default)]
pub(in crate::provider) struct Length(usize);

impl Length {
    /// Something was said.
    ///
    /// # Errors
    /// [`ModelError::Malformed`]: it is too much.
    pub(in crate::provider) fn add(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.0 = self.0.saturating_add(bytes);
        let max = limit::MODEL_REPLY_BYTES_MAX;
        if self.0 <= max {
            return Ok(());
        }
        Err(ModelError::Malformed(format!("the model's reply is longer than {max} bytes")))
    }
}

/// About how many bytes a value has.
pub(in crate::provider) fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(size).sum(),
        Value::Object(all) => all.iter().map(|(name, value)| name.len() + size(value)).sum(),
    }
}
