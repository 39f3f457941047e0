//! The fields of an object as they stand in its text, so that some can be taken out and the rest be read as what it is.

use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::fingerprint;
use super::parse::ANONYMOUS;
use crate::app::parse::came;
use crate::base::limit;
use crate::protocol::ApiError;
use crate::store::Fingerprint;

/// The fields of an object, as they stand there.
#[derive(Debug)]
pub(super) struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if fields.iter().any(|(other, _)| *other == name) {
                        return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
                    }
                    if fields.len() >= FIELDS_MAX {
                        return Err(A::Error::custom("more fields than any command has"));
                    }
                    fields.push((name, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(All)
    }
}

/// Fields of one object, at most: more than any command has.
const FIELDS_MAX: usize = 64;

impl Fields {
    fn take(&mut self, name: &str) -> Option<Box<RawValue>> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(at).1)
    }

    /// Takes a field out as a value of a type; `null` counts as absent.
    pub(super) fn typed<T: DeserializeOwned>(&mut self, name: &str, expected: &str) -> Result<Option<T>, ApiError> {
        let Some(raw) = self.take(name) else { return Ok(None) };
        serde_json::from_str(raw.get()).map_err(|cause| misfit(name, expected, &cause))
    }

    /// Adds a field.
    pub(super) fn push<T: Serialize>(&mut self, name: &str, value: &T) -> Result<(), ApiError> {
        let raw = to_raw_value(value).map_err(|cause| ApiError::internal(cause.to_string()))?;
        self.0.push((name.to_owned(), raw));
        Ok(())
    }

    /// As the text of an object.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut text = Vec::from(b"{");
        for (at, (name, raw)) in self.0.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            text.extend_from_slice(Value::from(name.as_str()).to_string().as_bytes());
            text.push(b':');
            text.extend_from_slice(raw.get().as_bytes());
        }
        text.push(b'}');
        text
    }

    /// The fingerprint of all of them, and of `more`.
    pub(super) fn print<'a>(
        &'a self,
        more: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Result<Fingerprint, ApiError> {
        let mut fields: Vec<(&str, Value)> = more.into_iter().collect();
        for (name, raw) in &self.0 {
            let value = serde_json::from_str(raw.get());
            fields.push((name, value.map_err(|cause| misfit(name, "plain JSON", &cause))?));
        }
        Ok(fingerprint::of(fields))
    }
}

/// What is wrong with a field, without a place in the text of that field alone.
fn misfit(name: &str, expected: &str, cause: &serde_json::Error) -> ApiError {
    let text = cause.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    // What was expected is said already.
    let text = text.rsplit_once(", expected ").map_or(text, |(came, _)| came);
    // A field without a name is told by what it stands in.
    ApiError::unfit(if name.is_empty() { "command" } else { name }, expected, came(text))
}

/// An id that a client may choose.
pub(super) fn name_of(field: &str, text: String) -> Result<String, ApiError> {
    if text.starts_with(ANONYMOUS) {
        let expected = format!("an id that does not begin with `{ANONYMOUS}`: those are of commands without one");
        return Err(ApiError::invalid(field, expected));
    }
    key_of(field, text)
}

/// A key or an id of any kind.
pub(super) fn key_of(field: &str, text: String) -> Result<String, ApiError> {
    let fits = (1..=limit::COMMAND_ID_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    let expected = format!("1 to {} bytes, none of them control characters", limit::COMMAND_ID_BYTES_MAX);
    if fits { Ok(text) } else { Err(ApiError::invalid(field, expected)) }
}
