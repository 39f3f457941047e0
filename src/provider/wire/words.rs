//! Texts as servers send them: mostly a string.

use std::borrow::Cow;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A text. Some send a list of parts in its place, of which some are thoughts, and some an object where JSON in a string belongs.
#[derive(Debug, Default)]
pub(in crate::provider) struct Words<'a> {
    /// What is said; without a copy where it is a string that has no escapes.
    pub(in crate::provider) text: Cow<'a, str>,
    /// What is thought.
    pub(in crate::provider) thoughts: String,
}

/// A string that is only looked at.
#[derive(Deserialize)]
pub(in crate::provider) struct Shared<'a>(#[serde(borrow)] pub(in crate::provider) Cow<'a, str>);

/// A text, without a copy where it has no escapes; empty where there is none.
#[derive(Debug, Default)]
pub(in crate::provider) struct Text<'a>(pub(in crate::provider) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Words<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordsVisitor)
    }
}

struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = Words<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Words<'de>, E> {
        Ok(Words { text: Cow::Borrowed(text), ..Words::default() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Words<'de>, E> {
        Ok(Words { text: Cow::Owned(text.to_owned()), ..Words::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Words<'de>, A::Error> {
        let (mut text, mut thoughts) = (String::new(), String::new());
        while let Some(part) = parts.next_element::<Value>()? {
            text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
            match part.get("thinking") {
                Some(Value::String(thought)) => thoughts.push_str(thought),
                Some(Value::Array(all)) => all.iter().for_each(|thought| {
                    thoughts.push_str(thought.get("text").and_then(Value::as_str).unwrap_or_default());
                }),
                _ => {}
            }
        }
        Ok(Words { text: Cow::Owned(text), thoughts })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Words<'de>, A::Error> {
        let object = Map::<String, Value>::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Words { text: Cow::Owned(Value::Object(object).to_string()), ..Words::default() })
    }
}
