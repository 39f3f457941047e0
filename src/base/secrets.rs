//! Values of the configuration that nobody is to read, taken out of what programs and servers say.
//!
//! Whoever is given a secret may repeat it: in an error, on its error stream, in an answer. What comes from there passes
//! through here before it is shown, logged or kept.
//!
//! Invariant: what is taken for a secret never stands in what [`Secrets::hide`] gives, neither as it is, nor as it stands in an
//! address or in JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::http::{is_key, secrets_of_address as of_address};
use super::process::{is_secret_name, is_secret_value};
use super::text::percent_encoded;

/// What stands for a secret.
const HIDDEN: &str = "***";
/// Bytes from which on a value that is named as a secret, or lies where secrets do, is one: a shorter one would be met by chance.
const BYTES_MIN: usize = 4;
/// Bytes from which on a value of a variable is one whatever its name.
const UNNAMED_BYTES_MIN: usize = 8;
/// Bytes from which on a value is met by nobody by chance, even a word.
const DISTINCT_BYTES_MIN: usize = 16;
/// Headers whose values are none.
const PLAIN_HEADERS: [&str; 5] = ["accept", "accept-language", "content-type", "mcp-protocol-version", "user-agent"];

/// Values that are taken out of texts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The longest first: one may lie in another.
    values: Arc<[String]>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("values", &self.values.len()).finish()
    }
}

impl Secrets {
    /// One that is a secret, however short.
    pub fn of_key(key: &str) -> Self {
        Self::new(Some(key.to_owned()).filter(|key| !key.is_empty()).into_iter().collect())
    }

    /// Those of a program: of its arguments those that are given to options named like credentials, or look like credentials; of
    /// its variables all that might be one.
    pub fn of_program(arguments: &[String], variables: &BTreeMap<String, String>) -> Self {
        let mut values = Vec::new();
        let mut before = "";
        for argument in arguments {
            let (name, value) = argument.split_once('=').unwrap_or((before, argument));
            let named = is_secret_name(&as_variable(name)) && value.len() >= BYTES_MIN;
            if named && (argument.contains('=') || before.starts_with('-')) || looks_secret(value) {
                values.push(value.to_owned());
            }
            values.extend(of_address(argument));
            before = argument;
        }
        for (name, value) in variables {
            let is_named = is_secret_name(&as_variable(name)) && value.len() >= BYTES_MIN;
            if is_named || looks_secret(value) || (value.len() >= UNNAMED_BYTES_MIN && !is_plain(value)) {
                values.push(value.clone());
            }
            values.extend(of_address(value));
        }
        Self::new(values)
    }

    /// Those of an address and of what is sent with each request.
    pub fn of_server(url: &str, headers: &BTreeMap<String, String>) -> Self {
        let mut values = of_address(url);
        let secret = headers.iter().filter(|(name, _)| !PLAIN_HEADERS.contains(&name.to_ascii_lowercase().as_str()));
        for (_, value) in secret {
            let value = value.trim();
            // `Bearer` and the like are told apart from what they announce.
            let bare = value.split_once(' ').map_or("", |(_, bare)| bare.trim());
            values.extend([value, bare].into_iter().filter(|value| value.len() >= BYTES_MIN).map(str::to_owned));
        }
        Self::new(values)
    }

    /// These and those.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self::sorted(self.values.iter().chain(others.values.iter()).cloned().collect())
    }

    fn new(plain: Vec<String>) -> Self {
        let mut values = Vec::with_capacity(plain.len() * 2);
        for value in plain {
            let json = serde_json::Value::from(value.as_str()).to_string();
            let json = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default().to_owned();
            let encoded = percent_encoded(&value);
            let form = encoded.replace("%20", "+");
            values.extend([json, form, encoded, value].into_iter().filter(|form| !form.is_empty()));
        }
        Self::sorted(values)
    }

    fn sorted(mut values: Vec<String>) -> Self {
        values.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        values.dedup();
        Self { values: values.into() }
    }

    /// Those that no text has by chance, and no format in its structure: long ones, and what is neither a word nor a number.
    #[must_use]
    pub fn distinct(&self) -> Self {
        let is_distinct =
            |value: &&String| value.len() >= DISTINCT_BYTES_MIN || value.len() >= UNNAMED_BYTES_MIN && !is_plain(value);
        Self { values: self.values.iter().filter(is_distinct).cloned().collect() }
    }

    /// The text without them.
    pub fn hide<'t>(&self, text: impl Into<Cow<'t, str>>) -> Cow<'t, str> {
        let mut text = text.into();
        for value in self.values.iter() {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), HIDDEN));
            }
        }
        text
    }

    /// The same for what is kept.
    pub fn hidden(&self, text: String) -> String {
        self.hide(text).into_owned()
    }

    /// The value without them, in texts and in names. Where a number is one, it is a text then.
    #[must_use]
    pub fn hidden_in(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.hidden(text).into(),
            Value::Array(values) => values.into_iter().map(|value| self.hidden_in(value)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (self.hidden(name), self.hidden_in(value))).collect()
            }
            Value::Number(number) => match self.hide(number.to_string()) {
                told if told.contains(HIDDEN) => told.into_owned().into(),
                _ => number.into(),
            },
            Value::Null | Value::Bool(_) => value,
        }
    }
}

/// The name of an option as that of a variable.
fn as_variable(name: &str) -> String {
    name.trim_start_matches('-').replace('-', "_").to_ascii_uppercase()
}

fn looks_secret(value: &str) -> bool {
    is_secret_value(value) || value.split(|c: char| !c.is_ascii_alphanumeric()).any(is_key)
}

/// A path, a number, a word.
fn is_plain(value: &str) -> bool {
    value.starts_with(['/', '.', '~'])
        || value.bytes().all(|b| b.is_ascii_digit())
        || value.bytes().all(|b| b.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn arguments(all: &[&str]) -> Vec<String> {
        all.iter().map(|argument| (*argument).to_owned()).collect()
    }

    #[test]
    fn what_a_program_was_given_is_taken_out_of_what_it_says() {
        let given =
            [("API_KEY", "k3yk3y"), ("SETTING", "Some Value"), ("MODE", "production"), ("HOME", "/home/someone")];
        let secrets = Secrets::of_program(
            &arguments(&[
                "serve",
                "--token=t0ken",
                "--password",
                "hunter22",
                "--port",
                "8080",
                "s9Kq2Lm4Nz7Xw1Vb",
                "-v",
            ]),
            &variables(&given),
        );
        #[rustfmt::skip]
        let table = [
            ("key k3yk3y is bad", "key *** is bad"), ("with Some Value", "with ***"), ("at ?s=Some%20Value&t=Some+Value", "at ?s=***&t=***"),
            ("--token=t0ken", "--token=***"), ("hunter22 s9Kq2Lm4Nz7Xw1Vb", "*** ***"), ("in production on 8080 at /home/someone", "in production on 8080 at /home/someone"),
            ("serve -v --port", "serve -v --port"), ("", ""),
        ];
        for (said, want) in table {
            assert_eq!(secrets.hide(said), want);
        }
        assert_eq!(format!("{secrets:?}"), format!("Secrets {{ values: {} }}", secrets.values.len()));
    }

    #[test]
    fn what_a_server_was_sent_is_taken_out_of_its_answers() {
        let headers =
            variables(&[("Authorization", "Bearer a\"b c"), ("X-Key", "xyz1"), ("Accept", "text/html"), ("X-N", "1")]);
        let secrets = Secrets::of_server("https://me:pa%24s@h.example/v1?key=s%26cret&a=b", &headers);
        #[rustfmt::skip]
        let table = [
            ("GET /v1?key=s%26cret&a=b", "GET /v1?***"), ("key s&cret", "key ***"), ("pa%24s", "***"),
            (r#"{"authorization":"Bearer a\"b c"}"#, r#"{"authorization":"***"}"#), ("a\"b c", "***"), ("xyz1 1", "*** 1"),
            ("text/html of h.example/v1", "text/html of h.example/v1"),
        ];
        for (said, want) in table {
            assert_eq!(secrets.hide(said), want);
        }
    }

    #[test]
    fn whatever_stands_in_an_answer_is_looked_at() {
        let secrets = Secrets::of_key("12345678").and(&Secrets::of_key("a\"key"));
        let said = serde_json::json!({ "x": ["the a\"key", 12_345_678, 1.5, null, true], "a\"key": { "y": "12345678" }, "z": 7 });
        let want = serde_json::json!({ "x": ["the ***", "***", 1.5, null, true], "***": { "y": "***" }, "z": 7 });
        assert_eq!(secrets.hidden_in(said), want);
    }

    #[test]
    fn words_and_numbers_that_any_text_may_have_are_not_distinct() {
        let table = [
            ("x", false),
            ("null", false),
            ("1234", false),
            ("assistant", false),
            ("12345678", false),
            ("hunter2", false),
            ("lm-studio", true),
            ("sk-12345", true),
            ("correcthorsebattery", true),
            ("1234567890123456", true),
        ];
        for (key, distinct) in table {
            let hidden = Secrets::of_key(key).distinct().hide(format!("a {key} b")).contains(HIDDEN);
            assert_eq!(hidden, distinct, "{key}");
        }
    }

    #[test]
    fn one_that_lies_in_another_goes_with_it() {
        let both = Secrets::of_key("abc").and(&Secrets::of_key("abcdef"));
        assert_eq!(both.hide("abcdef abc"), "*** ***");
        assert_eq!(Secrets::of_key("").hide("anything"), "anything");
    }
}
