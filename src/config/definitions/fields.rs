//! The fields of a definition, read leniently in their form and strictly in their meaning: a fault names the field and what was
//! expected.

use serde_json::{Map, Value};

use crate::base::limit;

/// What a head says, by name.
pub(super) struct Fields<'f>(pub &'f Map<String, Value>);

/// A fault of a field, in words.
pub(super) fn unfit(name: &str, expected: &str, came: &Value) -> String {
    let mut came = came.to_string();
    if came.len() > 100 {
        came.truncate(came.floor_char_boundary(100));
        came.push('…');
    }
    format!("`{name}`: expected {expected}, got {came}")
}

impl<'f> Fields<'f> {
    /// What is said under the first of these names that is there; nothing counts as not said.
    pub fn value(&self, names: &[&'static str]) -> Option<(&'static str, &'f Value)> {
        let found = names.iter().find_map(|name| Some((*name, self.0.get(*name)?)));
        found.filter(|(_, value)| !value.is_null())
    }

    /// A text without blanks around it; an empty one counts as not said.
    pub fn text(&self, names: &[&'static str]) -> Result<Option<String>, String> {
        let Some((name, value)) = self.value(names) else { return Ok(None) };
        match value {
            Value::String(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Value::Number(_) | Value::Bool(_) => Ok(Some(value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(unfit(name, "a text", value)),
        }
    }

    /// What it is for, within its limit.
    pub fn description(&self) -> Result<String, String> {
        let text = self.text(&["description"])?.unwrap_or_default();
        if text.len() > limit::DEFINITION_DESCRIPTION_BYTES_MAX {
            let max = limit::DEFINITION_DESCRIPTION_BYTES_MAX;
            return Err(format!("`description`: expected at most {max} bytes, got {}", text.len()));
        }
        Ok(text)
    }

    /// The name, or else that of the file.
    pub fn name(&self, file: &str) -> Result<String, String> {
        let name = self.text(&["name"])?.unwrap_or_else(|| file.to_owned());
        if is_name(&name) {
            return Ok(name);
        }
        let max = limit::DEFINITION_NAME_CHARS_MAX;
        Err(unfit("name", &format!("1 to {max} letters, digits, `_`, `-`"), &name.into()))
    }

    /// A list of names: a list of texts, or one text with commas.
    pub fn names(&self, names: &[&'static str]) -> Result<Option<Vec<String>>, String> {
        self.value(names).map(|(name, value)| list(name, value)).transpose()
    }

    /// A whole number within bounds.
    pub fn number(&self, names: &[&'static str], bounds: (u32, u32)) -> Result<Option<u32>, String> {
        let Some((name, value)) = self.value(names) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let (least, most) = bounds;
        let fits = number.filter(|number| (least..=most).contains(number));
        fits.map(Some).ok_or_else(|| unfit(name, &format!("a whole number from {least} to {most}"), value))
    }
}

/// A list of names under this name.
pub(super) fn list(name: &str, value: &Value) -> Result<Vec<String>, String> {
    let refused = || unfit(name, "a list of names", value);
    let texts: Vec<&str> = match value {
        Value::String(text) => text.split(',').collect(),
        Value::Array(entries) => entries.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(refused)?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return Err(refused()),
    };
    let names: Vec<String> = texts.iter().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect();
    if names.len() > limit::DEFINITION_NAMES_MAX {
        let max = limit::DEFINITION_NAMES_MAX;
        return Err(format!("`{name}`: expected at most {max} names, got {}", names.len()));
    }
    Ok(names)
}

/// Whether a text can be the name of an agent, a skill or a command: what `@name` and `/name` can address.
pub(super) fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=limit::DEFINITION_NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_read_leniently_and_refused_by_name() {
        let Value::Object(map) = json!({
            "text": " a ", "number": 7, "empty": "", "null": null, "list": ["a", " b ", ""], "commas": "a, b,,c",
            "object": {}, "numbers": [1], "description": "x".repeat(limit::DEFINITION_DESCRIPTION_BYTES_MAX + 1),
        }) else {
            panic!("an object")
        };
        let fields = Fields(&map);
        let owned = |text: &str| Some(text.to_owned());
        assert_eq!(fields.text(&["text"]), Ok(owned("a")));
        assert_eq!(fields.text(&["number"]), Ok(owned("7")));
        assert_eq!(
            (fields.text(&["empty"]), fields.text(&["null"]), fields.text(&["none"])),
            (Ok(None), Ok(None), Ok(None))
        );
        assert!(fields.text(&["list"]).is_err_and(|why| why.starts_with("`list`: expected a text, got [")));
        let names = |name: &'static str| fields.names(&[name]).map(|found| found.map(|names| names.join(" ")));
        assert_eq!((names("list"), names("commas"), names("none")), (Ok(owned("a b")), Ok(owned("a b c")), Ok(None)));
        assert_eq!((names("numbers").is_err(), names("object").is_err()), (true, true));
        assert_eq!(fields.number(&["none", "number"], (1, 7)), Ok(Some(7)));
        assert!(fields.number(&["number"], (1, 6)).is_err_and(|why| why.contains("from 1 to 6, got 7")));
        assert!(fields.description().is_err_and(|why| why.contains("at most 4000 bytes")));
        let long = "x".repeat(limit::DEFINITION_NAME_CHARS_MAX + 1);
        for (name, fits) in
            [("a-B_9", true), ("", false), ("a b", false), ("../x", false), ("ä", false), (&long, false)]
        {
            assert_eq!(is_name(name), fits, "{name}");
        }
    }
}
