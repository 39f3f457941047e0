//! What a command asks for, as a number: the same for the same, whatever the order of its keys and however it came.

use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

use crate::protocol::whole::EXACT_MAX;
use crate::store::Fingerprint;

/// The settings of a prompt are read as the fields around them are.
const SETTINGS: [&str; 2] = ["configure", "turn"];

/// The fingerprint of an object's fields. Objects count by their names, in whatever order they stand. A field that is `null` is
/// read as one that is left out, and counts as one; deeper inside, `null` may be what a caller means.
pub(super) fn of<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Fingerprint {
    let mut fields: Vec<_> = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
    fields.sort_by_key(|(name, _)| *name);
    for (_, value) in fields.iter_mut().filter(|(name, _)| SETTINGS.contains(name)) {
        if let Value::Object(settings) = value {
            settings.retain(|_, setting| !setting.is_null());
        }
    }
    let mut hash = Sha256::new();
    for (name, value) in &fields {
        text(&mut hash, name);
        follow(&mut hash, value);
    }
    hash.finalize().into()
}

/// A kind and a length go before everything, so that two values never make the same bytes.
fn follow(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(yes) => hash.update(if *yes { b"t" } else { b"f" }),
        Value::Number(number) => {
            hash.update(b"d");
            text(hash, &plain(number));
        }
        Value::String(words) => {
            hash.update(b"s");
            text(hash, words);
        }
        Value::Array(items) => {
            hash.update(b"a");
            hash.update((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| follow(hash, item));
        }
        Value::Object(fields) => {
            hash.update(b"o");
            hash.update((fields.len() as u64).to_le_bytes());
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            for (name, value) in fields {
                text(hash, name);
                follow(hash, value);
            }
        }
    }
}

/// `3` and `3.0` are the same number, and are read as the same.
fn plain(number: &Number) -> String {
    match number.as_f64() {
        // A zero in front takes the sign from another one.
        Some(value) if number.is_f64() && value.fract() == 0.0 && value.abs() <= EXACT_MAX => {
            format!("{:.0}", value + 0.0)
        }
        Some(_) | None => number.to_string(),
    }
}

fn text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn print(value: &Value) -> Fingerprint {
        let fields = value.as_object().expect("an object");
        of(fields.iter().map(|(name, value)| (name.as_str(), value.clone())))
    }

    #[test]
    fn the_order_of_keys_does_not_count_and_everything_else_does() {
        let base = json!({ "a": 1, "b": { "c": [1, "2"], "d": null } });
        assert_eq!(print(&base), print(&json!({ "b": { "d": null, "c": [1, "2"] }, "a": 1 })));
        assert_eq!(print(&base), print(&json!({ "a": 1.0, "b": { "c": [1.0, "2"], "d": null } })), "the same number");
        assert_eq!(print(&json!({ "a": 0 })), print(&json!({ "a": -0.0 })));
        #[rustfmt::skip]
        let others = [
            json!({}), json!({ "a": 1 }), json!({ "a": "1", "b": { "c": [1, "2"], "d": null } }),
            json!({ "a": 1, "b": { "c": ["2", 1], "d": null } }), json!({ "a": 1, "b": { "c": [1, "2"] } }),
            json!({ "a": 1, "b": { "c": [1, "2"], "d": false } }), json!({ "a": 1, "b": { "c": [[1], "2"], "d": null } }),
            json!({ "a": 1.5, "b": { "c": [1, "2"], "d": null } }),
            json!({ "a": "", "bb": "" }), json!({ "ab": "", "b": "" }),
        ];
        let mut seen = std::collections::HashSet::from([print(&base)]);
        for other in &others {
            assert!(seen.insert(print(other)), "{other}");
        }
    }
}
