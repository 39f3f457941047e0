//! All that is wrong with a configuration file, each fault with its line: what it says is held against the schema.
//!
//! Invariant: no value is repeated, because it may be a secret; names are, and numbers where a number is due.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::node_settings::{LABEL_EXPECTED, LABEL_PATTERN, is_label};
use super::node_url::{NODE_URL_EXPECTED, NODE_URL_PATTERN, NodeUrl};
use super::store_address::{STORE_EXPECTED, STORE_PATTERN, StoreAddress};
use super::{LogFilter, acp, hooks, mcp, provider, schema};
use crate::base::file;
use crate::protocol::OWN_AGENT;

/// Largest configuration file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How far a name may be from one that is known to be taken for it.
const NEAR: f64 = 0.7;

/// Something that is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Fault {
    /// Its line, from 1.
    pub line: usize,
    /// The field, and what was expected.
    pub problem: String,
}

/// A file, looked at.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// What is wrong with it.
    pub(super) faults: Vec<Fault>,
    /// The settings with which something is wrong.
    pub(super) bad: Vec<String>,
    /// The line of each setting that stands there.
    pub(super) lines: BTreeMap<String, usize>,
}

/// Everything that is wrong with the text of a file. Empty: it has the form of a configuration file.
pub fn faults_of(text: &str) -> Vec<Fault> {
    look_at(text).faults
}

/// The same, with where each setting stands.
pub(super) fn look_at(text: &str) -> Looked {
    let (document, broken) = DeTable::parse_recoverable(text);
    let mut look = Look { text, faults: Vec::new() };
    for error in broken {
        let span = error.span().unwrap_or_else(|| placeless(text));
        look.add(&span, error.message().to_owned());
    }
    let mut looked = Looked::default();
    // What a broken line was meant to say nobody knows.
    if look.faults.is_empty() {
        looked.bad = look.members(document.get_ref(), &document.span(), &schema::schema(), "");
        let line = |(key, _): (&Spanned<DeString<'_>>, _)| (key.get_ref().to_string(), look.line(&key.span()));
        looked.lines = document.get_ref().iter().map(line).collect();
    }
    look.faults.sort_by_key(|fault| fault.line);
    // A line of dots is wrong at each of them.
    look.faults.dedup();
    Looked { faults: look.faults, ..looked }
}

/// Where an error stands that does not say so: in the first line without which it is not there.
fn placeless(text: &str) -> Range<usize> {
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).chain([text.len()]).collect();
    let is_there = |end: usize| {
        let (_, broken) = DeTable::parse_recoverable(text.get(..end).unwrap_or(text));
        broken.iter().any(|error| error.span().is_none())
    };
    let line = ends.partition_point(|end| !is_there(*end));
    let begin = line.checked_sub(1).and_then(|before| ends.get(before)).map_or(0, |end| end + 1);
    begin..begin
}

/// The text of a file.
///
/// # Errors
/// When it cannot be read, or is no text.
pub(super) fn text_of(path: &Path) -> io::Result<String> {
    let (bytes, _) = file::read_small(path, FILE_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "expected text in UTF-8"))
}

struct Look<'a> {
    text: &'a str,
    faults: Vec<Fault>,
}

impl Look<'_> {
    fn add(&mut self, span: &Range<usize>, problem: String) {
        self.faults.push(Fault { line: self.line(span), problem });
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.text.get(..span.start).unwrap_or_default().matches('\n').count() + 1
    }

    /// A value that is to be as `schema` says. `at`: its name.
    fn value(&mut self, value: &Spanned<DeValue<'_>>, schema: &Value, at: &str) {
        let (span, value) = (value.span(), value.get_ref());
        if let Some(choices) = schema["anyOf"].as_array() {
            return self.any(&span, value, (choices, at));
        }
        match (schema["type"].as_str().unwrap_or_default(), value) {
            ("object", DeValue::Table(table)) => drop(self.members(table, &span, schema, at)),
            ("array", DeValue::Array(items)) => {
                if items.is_empty() && schema["minItems"].as_u64().is_some_and(|least| least > 0) {
                    self.add(&span, format!("`{at}`: expected at least one"));
                }
                for (number, item) in items.iter().enumerate() {
                    let before = self.faults.len();
                    self.value(item, &schema["items"], &format!("{at}[{number}]"));
                    if self.faults.len() == before {
                        self.entry(items, number, at);
                    }
                }
            }
            (kind, value) => {
                if let Some(expected) = misfit(kind, value, schema) {
                    let number =
                        matches!((kind, value), ("integer" | "number", DeValue::Integer(_) | DeValue::Float(_)));
                    let got = self
                        .text
                        .get(span.clone())
                        .filter(|_| number)
                        .map_or_else(|| article(value.type_str()), str::to_owned);
                    self.add(&span, format!("`{at}`: expected {expected}; got {got}"));
                }
            }
        }
    }

    /// A value that may be one of several things. Said is what is wrong with it as the one that it looks like.
    fn any(&mut self, span: &Range<usize>, value: &DeValue<'_>, (choices, at): (&[Value], &str)) {
        let mut best: Option<Vec<Fault>> = None;
        for choice in choices {
            let mut look = Look { text: self.text, faults: Vec::new() };
            look.value(&Spanned::new(span.clone(), value.clone()), choice, at);
            if look.faults.is_empty() {
                return;
            }
            let like = matches!(
                (choice["type"].as_str(), value),
                (Some("array"), DeValue::Array(_)) | (Some("string"), DeValue::String(_))
            );
            if like || best.is_none() {
                best = Some(look.faults);
            }
        }
        self.faults.extend(best.unwrap_or_default());
    }

    /// What no schema says of an entry of a list that has the form of one.
    fn entry(&mut self, items: &[Spanned<DeValue<'_>>], number: usize, list: &str) {
        let Some(item) = items.get(number) else { return };
        let faults_of_entry: fn(Value) -> Option<Vec<(&'static str, String)>> = match list {
            "acp_servers" => acp::faults_of_entry,
            "mcp_servers" => mcp::faults_of_entry,
            "providers" => provider::faults_of_entry,
            "hooks" => hooks::faults_of_entry,
            _ => return,
        };
        let mut faults = faults_of_entry(plain(item.get_ref())).unwrap_or_default();
        let name = name_of(item);
        // A hook has no name.
        let same = items.iter().take(number).position(|other| name_of(other) == name).filter(|_| list != "hooks");
        if let Some(first) = same {
            faults.push(("name", format!("a name of its own, because `{list}[{first}]` has it")));
        }
        if list == "acp_servers" && name == Some(OWN_AGENT) {
            faults.push(("name", format!("a name other than `{OWN_AGENT}`, which is our own agent's")));
        }
        for (field, expected) in faults {
            let span = member(item, field).map_or_else(|| item.span(), |(key, _)| key.span());
            self.add(&span, format!("`{list}[{number}].{field}`: expected {expected}"));
        }
    }

    /// The members of a table: those that are known, those that are not, those that are missing. Gives back the names of those with
    /// which something is wrong.
    fn members(&mut self, table: &DeTable<'_>, span: &Range<usize>, schema: &Value, at: &str) -> Vec<String> {
        let mut bad = Vec::new();
        let empty = Map::new();
        let known = schema["properties"].as_object().unwrap_or(&empty);
        let named = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let before = self.faults.len();
            match (known.get(name), &schema["additionalProperties"]) {
                (Some(member), _) => self.value(value, member, &named(name)),
                (None, any @ Value::Object(_)) => self.value(value, any, &named(name)),
                (None, Value::Bool(true)) => {}
                (None, _) => self.add(&key.span(), unknown(&named(name), name, known)),
            }
            if self.faults.len() > before {
                bad.push(name.to_owned());
            }
        }
        for missing in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !table.iter().any(|(key, _)| key.get_ref() == missing) {
                self.add(span, format!("`{}` is missing", named(missing)));
            }
        }
        bad
    }
}

type Member<'a, 'i> = (&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>);

fn member<'a, 'i>(entry: &'a Spanned<DeValue<'i>>, name: &str) -> Option<Member<'a, 'i>> {
    entry.get_ref().as_table()?.iter().find(|(key, _)| key.get_ref() == name)
}

fn name_of<'a>(entry: &'a Spanned<DeValue<'_>>) -> Option<&'a str> {
    member(entry, "name")?.1.get_ref().as_str()
}

/// A value as JSON has it: to be read as an entry, whatever file it came from.
fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(moment) => moment.to_string().into(),
        DeValue::Array(items) => items.iter().map(|item| plain(item.get_ref())).collect(),
        DeValue::Table(table) => Value::Object(
            table.iter().map(|(key, value)| (key.get_ref().to_string(), plain(value.get_ref()))).collect(),
        ),
    }
}

fn unknown(at: &str, name: &str, known: &Map<String, Value>) -> String {
    // A name in another spelling is as good as the right one.
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let near = |other: &&String| strsim::jaro_winkler(&plain(name), &plain(other));
    let nearest = known.keys().max_by(|a, b| near(a).total_cmp(&near(b)));
    match nearest.filter(|other| near(other) >= NEAR) {
        Some(other) => format!("`{at}` is not known; did you mean `{other}`?"),
        None => format!("`{at}` is not known"),
    }
}

/// What was expected of a value that is no table and no array where one is to be. None: it fits.
fn misfit(kind: &str, value: &DeValue<'_>, schema: &Value) -> Option<String> {
    match (kind, value) {
        ("string", DeValue::String(text)) => {
            if let Some(words) = schema["enum"].as_array() {
                let fits = words.iter().any(|word| word == text.as_ref());
                return (!fits).then(|| alternatives(words));
            }
            if let Some(pattern) = schema["pattern"].as_str() {
                return misfit_of_text(text, pattern);
            }
            let short = schema["minLength"].as_u64().is_some_and(|least| (text.chars().count() as u64) < least);
            short.then(|| "a text that is not empty".to_owned())
        }
        ("boolean", DeValue::Boolean(_)) => None,
        ("integer", DeValue::Integer(number)) => {
            let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
            let bound = |keyword: &str| schema[keyword].as_i64().map(i128::from);
            let low = bound("minimum").unwrap_or(i128::MIN);
            let high = bound("maximum").unwrap_or(i128::from(i64::MAX));
            let fits = number.is_some_and(|number| (low..=high).contains(&number));
            (!fits).then(|| range(schema, "a whole number"))
        }
        ("number", DeValue::Integer(_) | DeValue::Float(_)) => {
            let text = match value {
                DeValue::Integer(number) => number.as_str(),
                DeValue::Float(number) => number.as_str(),
                _ => "",
            };
            let number: f64 = text.parse().unwrap_or(f64::NAN);
            let fits = number >= schema["minimum"].as_f64().unwrap_or(f64::MIN)
                && number <= schema["maximum"].as_f64().unwrap_or(f64::MAX);
            (!fits).then(|| range(schema, "a number"))
        }
        ("string", _) if schema["enum"].is_array() => schema["enum"].as_array().map(|words| alternatives(words)),
        ("string", _) => Some("a text".to_owned()),
        ("boolean", _) => Some("true or false".to_owned()),
        ("integer", _) => Some(range(schema, "a whole number")),
        ("number", _) => Some(range(schema, "a number")),
        ("array", _) => Some("an array".to_owned()),
        ("object", _) => Some("a table".to_owned()),
        _ => None,
    }
}

/// The same of a text that a pattern is there for.
fn misfit_of_text(text: &str, pattern: &str) -> Option<String> {
    match pattern {
        STORE_PATTERN => text.parse::<StoreAddress>().is_err().then(|| STORE_EXPECTED.to_owned()),
        NODE_URL_PATTERN => text.parse::<NodeUrl>().is_err().then(|| NODE_URL_EXPECTED.to_owned()),
        LABEL_PATTERN => (!is_label(text)).then(|| LABEL_EXPECTED.to_owned()),
        // The other pattern that there is.
        _ => text.parse::<LogFilter>().err().map(|said| said.trim_start_matches("expected ").to_owned()),
    }
}

fn range(schema: &Value, what: &str) -> String {
    match (&schema["minimum"], &schema["maximum"]) {
        (Value::Number(low), Value::Number(high)) => format!("{what} from {low} to {high}"),
        (Value::Number(low), _) => format!("{what}, {low} or more"),
        _ => what.to_owned(),
    }
}

fn alternatives(words: &[Value]) -> String {
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

fn article(kind: &str) -> String {
    match kind.chars().next() {
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;

    #[test]
    fn every_fault_is_told_with_its_line() {
        let file = "prot = 3\nport = 70000\nhost = ''\nlog-level = 'loud'\nlog_format = 'xml'\nmax_iterations = 0\n\
            memory_similarity_threshold = 1.5\nno_auth = 'yes'\nroot = 'x'\nallowed_path = ['a', 2]\nzzz = 1\n\
            [permissions]\nrule = []\n[[permissions.rules]]\npolicy = 'maybe'\ncategory = []\n\
            [[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\npattern = ''\ncategory = ['read', 'reed']\nannotations = { read_only = true }\n\
            [[acp_servers]]\nname = 'a'\ncomand = 'x'\nenv = { KEY = 1 }\n[[mcp_servers]]\nname = 'b'\ntransport = 'carrier pigeon'\n";
        let found: Vec<String> = faults_of(file).iter().map(ToString::to_string).collect();
        #[rustfmt::skip]
        let want = [
            "line 1: `prot` is not known; did you mean `port`?",
            "line 2: `port`: expected a whole number from 0 to 65535; got 70000",
            "line 3: `host`: expected a text that is not empty; got a string",
            "line 4: `log-level` is not known; did you mean `log_level`?",
            "line 5: `log_format`: expected text or json; got a string",
            "line 6: `max_iterations`: expected a whole number from 1 to 1000000; got 0",
            "line 7: `memory_similarity_threshold`: expected a number from 0 to 1; got 1.5",
            "line 8: `no_auth`: expected true or false; got a string",
            "line 9: `root`: expected an array; got a string",
            "line 10: `allowed_path[1]`: expected a text; got an integer",
            "line 11: `zzz` is not known",
            "line 13: `permissions.rule` is not known; did you mean `rules`?",
            "line 14: `permissions.rules[0].tool` is missing",
            "line 15: `permissions.rules[0].policy`: expected allow, ask or deny; got a string",
            "line 16: `permissions.rules[0].category`: expected at least one",
            "line 20: `permissions.rules[1].pattern`: expected a text that is not empty; got a string",
            "line 21: `permissions.rules[1].category[1]`: expected read, edit, search, execute, memory, vfs, task, subagent or other; got a string",
            "line 22: `permissions.rules[1].annotations.read_only` is not known; did you mean `readOnly`?",
            "line 25: `acp_servers[0].comand` is not known; did you mean `command`?",
            "line 26: `acp_servers[0].env.KEY`: expected a text; got an integer",
            "line 29: `mcp_servers[0].transport`: expected stdio or http; got a string",
        ];
        assert_eq!(found, want, "{found:#?}");
    }

    #[test]
    fn all_that_is_wrong_with_servers_and_agents_is_told() {
        let file = "[[mcp_servers]]\nname = 'a b'\nargs = [\"\\u0000\"]\nenv = { 'A=' = 's3cret' }\nurl = 's3cret'\ntransport = 'stdio'\n\
            [[mcp_servers]]\nname = 'web'\nurl = 'https://u:s3cret@h/'\nheaders = { Accept = 's3cret' }\n\
            [[mcp_servers]]\nname = 'web'\ncommand = 'x'\n\
            [[acp_servers]]\nname = 'simse'\ncommand = ''\nargs = [\"\\u0000\"]\n\
            [[acp_servers]]\nname = 'simse'\ncommand = 'x'\n";
        let found: Vec<String> = faults_of(file).iter().map(ToString::to_string).collect();
        let names = "1 to 64 characters, none of them a blank, a control character, a quote, `/`, `*` or `?`";
        #[rustfmt::skip]
        let want = [
            "line 1: `mcp_servers[0].command`: expected a program, because the transport is `stdio`".to_owned(),
            format!("line 2: `mcp_servers[0].name`: expected {names}"),
            "line 3: `mcp_servers[0].args`: expected texts without a zero byte".to_owned(),
            "line 4: `mcp_servers[0].env`: expected names without `=` and values, neither with a zero byte".to_owned(),
            "line 5: `mcp_servers[0].url`: expected nothing: it belongs to the transport `http`".to_owned(),
            "line 9: `mcp_servers[1].url`: expected an http or https address without a user or password".to_owned(),
            "line 10: `mcp_servers[1].headers`: expected none that the protocol sets itself, such as `Accept`".to_owned(),
            "line 12: `mcp_servers[2].name`: expected a name of its own, because `mcp_servers[1]` has it".to_owned(),
            "line 15: `acp_servers[0].name`: expected a name other than `simse`, which is our own agent's".to_owned(),
            "line 16: `acp_servers[0].command`: expected a program".to_owned(),
            "line 17: `acp_servers[0].args`: expected texts without a zero byte".to_owned(),
            "line 19: `acp_servers[1].name`: expected a name of its own, because `acp_servers[0]` has it".to_owned(),
            "line 19: `acp_servers[1].name`: expected a name other than `simse`, which is our own agent's".to_owned(),
        ];
        assert_eq!(found, want, "{found:#?}");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_told_once_and_where_it_stands() {
        let told = |text: &str| faults_of(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        let dots = told(&format!("port = 1\nmax{}rest = 0\n", ".".repeat(120)));
        assert!(dots.len() <= 3 && dots.iter().all(|fault| fault.starts_with("line 2: ")), "{dots:#?}");
        let deep = told(&format!("port = 1\n\nroot = {}\nhost = 'a'\n", "[".repeat(500)));
        assert!(deep.first().is_some_and(|fault| fault.starts_with("line 3: ")), "{deep:#?}");
    }

    #[test]
    fn a_broken_file_says_where_and_not_what() {
        let found = faults_of("port = 1\nopenai_api_key = sk-secret\nhost = [\n");
        assert!(!found.is_empty() && found[0].line == 2, "{found:?}");
        assert!(!format!("{found:?}").contains("sk-secret"), "{found:?}");
    }

    /// What has no fault here is read, and what has one is not.
    #[test]
    fn the_check_and_the_reader_agree() {
        #[rustfmt::skip]
        let table = [
            ("", true), ("port = 0", true), ("port = -1", false), ("port = 0x10", true), ("port = 1_000", true), ("port = '1'", false), ("port = 1.0", false),
            ("memory_similarity_threshold = 0.5", true), ("memory_similarity_threshold = 1", true), ("memory_similarity_threshold = 'x'", false),
            ("root = []", true), ("root = ['a']", true), ("root = [1]", false), ("no_auth = true", true), ("no_auth = 1", false),
            ("log_level = 'debug'", true), ("log_level = 'Debug'", false), ("sandbox = 'off'", true), ("sandbox = 'on'", false),
            ("stale_check = 'strict'", true), ("stale_check = 'x'", false), ("permission_mode = 'accept-edits'", true), ("permission_mode = 'x'", false),
            ("default_policy = 'deny'", true), ("default_policy = 'x'", false), ("openai_api_key = 'k'", true), ("openai_api_key = 1", false),
            ("a.b = 1", false), ("port = 1979-05-27", false), ("port = 1\nport = 2", false),
            ("store = 'postgres://h/d'", true), ("store = 'x'", false), ("node_url = 'http://h:1/'", true), ("node_url = 'http://h/x'", false), ("node_url = 1", false),
            ("node_labels = ['a', 'b']", true), ("node_labels = 'a'", false), ("node_labels = [1]", false),
            ("[[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\ncategory = 'read'", true),
            ("[[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\ncategory = ['read', 'task']\nannotations = { readOnly = false, title = 't' }", true),
            ("[[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\ncategory = 'reed'", false), ("[permissions]\nrules = 1", false),
            ("[[acp_servers]]\nname = 'a'\ncommand = 'x'\nargs = ['y']\ntimeoutMs = 5\npermissionPolicy = 'deny'\nenv = { A = 'b' }", true),
            ("[[acp_servers]]\nname = 'a'", false), ("[[acp_servers]]\nname = 'a'\ncommand = 'x'\npermissionPolicy = 'x'", false),
            ("[[mcp_servers]]\nname = 'a'\nurl = 'http://127.0.0.1:1/'\nheaders = { a = 'b' }", true), ("[[mcp_servers]]\nname = 1\ncommand = 'x'", false),
        ];
        for (file, want) in table {
            assert_eq!((faults_of(file).is_empty(), toml::from_str::<Options>(file).is_ok()), (want, want), "{file}");
        }
    }

    #[test]
    fn what_goes_into_requests_may_be_anything() {
        let file = "[[providers]]\nname = 'groq'\nbody = { temperature = 0.2, nested = { list = [1, 'a'] } }\n\
            models = [{ name = 'm', body = { top_k = 3 } }]\n";
        assert_eq!(faults_of(file), []);
    }
}
