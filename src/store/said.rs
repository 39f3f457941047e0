//! What was said to a turn that waits for it, or to one that runs: small in its row, large apart from it.
//!
//! Rows are read, held and written whole: of a turn that waits, when the process begins; of one that runs, with each
//! message for it. What is large stands in a place of its own, under the number of an event of the session, and is read when it is its
//! turn. The row says where it is, how large, and how it begins.

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::TurnRow;
use crate::base::limit::{SAID_BYTES_MAX, TURN_PROMPT_BYTES_MAX};
use crate::protocol::{Configure, PromptContent};

/// What a turn begins with, or a message for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// What is said.
    pub content: PromptContent,
    /// Settings that change with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configure: Option<Configure>,
}

/// What waits, in the row of its turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Waiting {
    /// It is small.
    Here(PromptContent),
    /// It is large, and kept elsewhere.
    Apart(Apart),
}

/// Where something large is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apart {
    /// The number of an event of the session, under which it is kept.
    pub at: u64,
    /// Its bytes.
    pub bytes: usize,
    /// The beginning of its text, where nobody else has that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// By hand, so that what is wrong with a text or with parts is told as ever.
impl<'de> Deserialize<'de> for Waiting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Waiting;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text, or a list of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Waiting, E> {
                Ok(Waiting::Here(PromptContent::Text(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Waiting, E> {
                Ok(Waiting::Here(PromptContent::Text(text)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Waiting, A::Error> {
                PromptContent::deserialize(SeqAccessDeserializer::new(parts)).map(Waiting::Here)
            }

            fn visit_map<A: MapAccess<'de>>(self, apart: A) -> Result<Waiting, A::Error> {
                Apart::deserialize(MapAccessDeserializer::new(apart)).map(Waiting::Apart)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl Waiting {
    /// What was said, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Here(content) => content.bytes(),
            Self::Apart(apart) => apart.bytes,
        }
    }

    /// What of that is in memory, in bytes.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Here(content) => content.bytes(),
            Self::Apart(apart) => apart.text.len(),
        }
    }

    /// The beginning of its text.
    pub fn shown(&self) -> String {
        match self {
            Self::Here(content) => shown(content.text()),
            Self::Apart(apart) => apart.text.clone(),
        }
    }

    /// Where it is kept. None: here.
    pub fn place(&self) -> Option<u64> {
        match self {
            Self::Here(_) => None,
            Self::Apart(apart) => Some(apart.at),
        }
    }

    /// Puts a message that is large aside: what is to be kept under number `at`. None: it is small.
    pub fn put_apart(&mut self, at: u64) -> Option<Said> {
        let bytes = self.bytes();
        if self.place().is_some() || bytes <= SAID_BYTES_MAX {
            return None;
        }
        let apart = Self::Apart(Apart { at, bytes, text: self.shown() });
        match std::mem::replace(self, apart) {
            Self::Here(content) => Some(Said { content, configure: None }),
            Self::Apart(_) => None,
        }
    }
}

impl TurnRow {
    /// Puts what it begins with aside, and the settings that change with that, where they are large: what is to be kept under
    /// number `at`. None: they are small.
    pub fn put_apart(&mut self, at: u64) -> Option<Said> {
        let bytes = self.waiting_bytes();
        let is_large = matches!(self.prompt, Some(Waiting::Here(_))) && bytes > SAID_BYTES_MAX;
        let prompt = self.prompt.take_if(|_| is_large)?;
        // Its record has the beginning of the text.
        self.prompt = Some(Waiting::Apart(Apart { at, bytes, text: String::new() }));
        match prompt {
            Waiting::Here(content) => Some(Said { content, configure: self.configure.take() }),
            Waiting::Apart(_) => None,
        }
    }

    /// Puts all that is large in it aside: what is to be kept, under numbers from `next` on, which grows.
    pub fn put_all_apart(&mut self, next: &mut u64) -> Vec<(u64, Said)> {
        let mut kept = Vec::new();
        if let Some(said) = self.put_apart(*next) {
            kept.push((*next, said));
            *next += 1;
        }
        for message in &mut self.steers.waiting {
            if let Some(said) = message.put_apart(*next) {
                kept.push((*next, said));
                *next += 1;
            }
        }
        kept
    }

    /// What it begins with, in bytes, and the settings that change with that.
    pub fn waiting_bytes(&self) -> usize {
        self.prompt.as_ref().map_or(0, Waiting::bytes)
            + settings_bytes(self.configure.as_ref())
            + settings_bytes(self.only.as_ref())
    }

    /// What of that is in memory, in bytes.
    pub fn held_bytes(&self) -> usize {
        let prompt = self.prompt.as_ref().map_or(0, Waiting::held_bytes);
        let settings = settings_bytes(self.configure.as_ref()) + settings_bytes(self.only.as_ref());
        prompt + self.record.prompt.len() + settings
    }

    /// Under which numbers something of it is kept.
    pub fn places(&self) -> impl Iterator<Item = u64> {
        self.prompt.iter().chain(&self.steers.waiting).filter_map(Waiting::place)
    }
}

/// What settings weigh, in bytes.
pub fn settings_bytes<T: Serialize>(settings: Option<&T>) -> usize {
    settings.and_then(|changes| serde_json::to_vec(changes).ok()).map_or(0, |changes| changes.len())
}

/// What a turn's record shows of the text of its prompt.
pub fn shown(mut prompt: String) -> String {
    prompt.truncate(prompt.floor_char_boundary(TURN_PROMPT_BYTES_MAX));
    // It may be kept for as long as the turn waits.
    prompt.shrink_to_fit();
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_shown_no_more_is_held() {
        let long = "\u{e8}".repeat(1 << 20);
        let text = shown(long.clone());
        assert_eq!((text.len(), long.starts_with(&text)), (TURN_PROMPT_BYTES_MAX, true));
        assert!(text.capacity() < 2 * TURN_PROMPT_BYTES_MAX, "{}", text.capacity());
        assert_eq!(shown("short".to_owned()), "short");
    }
}
