//! What a model wants back of a reply beside its text and its calls: reasoning that is signed, encrypted or only needed while it
//! works with tools, and signatures of calls. Kept as the members that its message has more than ours.
//!
//! Invariants: only the model that it came from is given it; nothing is given back under another name than it came under, and
//! thoughts in plain text (`reasoning_content`) only with the calls that they led to.

use serde_json::{Map, Value, json};

use super::NAME;
use crate::model::{ModelError, is_named};
use crate::protocol::{Original, ToolCallRequest};

/// Pieces of reasoning in one reply, at most.
const DETAILS_MAX: usize = 10_000;
/// Members of a piece whose text goes on in the next one.
const GROWING: [&str; 2] = ["text", "summary"];

/// What has come so far.
#[derive(Debug, Default)]
pub(super) struct Own {
    model: String,
    thoughts: String,
    details: Vec<Map<String, Value>>,
}

impl Own {
    /// Of that model.
    pub(super) fn of(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// A piece of `reasoning_content`.
    pub(super) fn thinks(&mut self, text: &str) {
        self.thoughts.push_str(text);
    }

    /// An entry of `reasoning_details`, or a piece of one. How many bytes it has, about.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when there are too many.
    pub(super) fn details(&mut self, detail: Value) -> Result<usize, ModelError> {
        let Value::Object(detail) = detail else { return Ok(0) };
        let bytes = detail.values().map(|value| value.as_str().map_or(8, str::len)).sum();
        if let Some(last) = self.details.last_mut().filter(|last| goes_on(last, &detail)) {
            for (name, value) in detail {
                match (last.get_mut(&name), &value) {
                    (Some(Value::String(known)), Value::String(more)) if GROWING.contains(&name.as_str()) => {
                        known.push_str(more);
                    }
                    (Some(known), more) if !more.is_null() => *known = value,
                    (Some(_), _) => {}
                    (None, _) => drop(last.insert(name, value)),
                }
            }
            return Ok(bytes);
        }
        if self.details.len() >= DETAILS_MAX {
            let message = format!("the model's reply has more than {DETAILS_MAX} pieces of reasoning");
            return Err(ModelError::Malformed(message));
        }
        self.details.push(detail);
        Ok(bytes)
    }

    /// The members, if there are any. `calls`: their ids, and what each has beside ours.
    pub(super) fn finish<'c>(
        self,
        calls: impl Iterator<Item = (&'c str, Option<&'c Value>)> + Clone,
    ) -> Option<Original> {
        let mut members = Map::new();
        if !self.thoughts.is_empty() && calls.clone().next().is_some() {
            members.insert("reasoning_content".to_owned(), self.thoughts.into());
        }
        if !self.details.is_empty() {
            members.insert("reasoning_details".to_owned(), self.details.into());
        }
        let extras = calls.enumerate();
        let extras =
            extras.filter_map(|(at, (id, extra))| Some(json!({ "index": at, "id": id, "extra_content": extra? })));
        let extras: Vec<Value> = extras.collect();
        if !extras.is_empty() {
            members.insert("tool_calls".to_owned(), extras.into());
        }
        let items = vec![Value::Object(members)];
        let any = items.iter().any(|item| item.as_object().is_some_and(|members| !members.is_empty()));
        any.then(|| Original { wire: NAME.to_owned(), model: self.model, items, paused: false })
    }
}

/// Whether a piece belongs to the entry before it: plain text of the same kind, number and id.
fn goes_on(last: &Map<String, Value>, next: &Map<String, Value>) -> bool {
    let same = |name: &str| match (last.get(name), next.get(name)) {
        (Some(a), Some(b)) => a == b || a.is_null() || b.is_null(),
        (None, _) | (_, None) => true,
    };
    let growing = |detail: &Map<String, Value>| GROWING.iter().any(|name| detail.contains_key(*name));
    let only_signs = next.contains_key("signature") && !next.contains_key("data");
    last.get("type") == next.get("type")
        && growing(last)
        && (growing(next) || only_signs)
        && same("index")
        && same("id")
}

/// What one reply has to be given back with.
#[derive(Clone, Copy)]
pub(super) struct Back<'m>(&'m Map<String, Value>);

impl<'m> Back<'m> {
    /// What a reply of that very model has.
    pub(super) fn of(original: Option<&'m Original>, model: &str) -> Option<Self> {
        let original = original.filter(|original| original.wire == NAME && original.model == model)?;
        original.items.first()?.as_object().map(Self)
    }

    /// A member of its message.
    pub(super) fn member(self, name: &str) -> Option<&'m Value> {
        self.0.get(name)
    }

    /// What a call has beside ours: the one at that place in its reply, under any name that the loop gave it.
    pub(super) fn extra(self, at: usize, call: &ToolCallRequest) -> Option<&'m Value> {
        let is_it = |known: &&Value| {
            // Older logs have no places.
            let place = known.get("index").and_then(Value::as_u64).and_then(|place| usize::try_from(place).ok());
            let given = known.get("id").and_then(Value::as_str).unwrap_or_default();
            place.is_none_or(|place| place == at) && is_named(given, &call.id)
        };
        self.0.get("tool_calls")?.as_array()?.iter().find(is_it)?.get("extra_content")
    }
}
