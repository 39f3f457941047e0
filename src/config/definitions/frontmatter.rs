//! The head of a markdown file, between two lines `---`: YAML, read within bounds into JSON values.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::base::limit;

/// A file taken apart.
#[derive(Debug, PartialEq)]
pub(super) struct Parts<'t> {
    /// What its head says. Keys that nobody knows stay in it.
    pub fields: Map<String, Value>,
    /// The text behind the head, without blanks around it.
    pub body: &'t str,
}

/// Why a file could not be taken apart.
#[derive(Debug, PartialEq)]
pub(super) enum Unfit {
    /// It has no head: it may be something else altogether.
    Headless,
    /// Its head cannot be read. Why, in words.
    Unreadable(String),
}

/// Takes a file apart.
pub(super) fn parts(text: &str) -> Result<Parts<'_>, Unfit> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| line.trim_end() == "---").ok_or(Unfit::Headless)?;
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            let head = &text[first.len()..end];
            return Ok(Parts { fields: fields(head)?, body: text[end + line.len()..].trim() });
        }
        end += line.len();
    }
    Err(Unfit::Unreadable("expected a line `---` behind the frontmatter".into()))
}

fn fields(head: &str) -> Result<Map<String, Value>, Unfit> {
    let unreadable = |why: String| Unfit::Unreadable(format!("frontmatter: {why}"));
    if head.len() > limit::FRONTMATTER_BYTES_MAX {
        let max = limit::FRONTMATTER_BYTES_MAX;
        return Err(unreadable(format!("expected at most {max} bytes, got {}", head.len())));
    }
    let read = yaml(head).or_else(|problem| match quoted(head) {
        // Many write a colon into a description without quoting it.
        Cow::Owned(quoted) => yaml(&quoted).map_err(|_| problem),
        Cow::Borrowed(_) => Err(problem),
    });
    match read.map_err(unreadable)? {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(unreadable("expected lines of the form `name: value`".into()))
        }
    }
}

fn yaml(head: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: limit::FRONTMATTER_DEPTH_MAX,
            flow_nesting_limit: limit::FRONTMATTER_DEPTH_MAX,
            max_nodes: limit::FRONTMATTER_NODES_MAX,
            max_events: 3 * limit::FRONTMATTER_NODES_MAX,
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
        },
        strict_booleans: true,
        with_snippet: false,
    };
    let read = serde_saphyr::from_str_with_options::<Option<Value>>(head, options);
    read.map(Option::unwrap_or_default).map_err(|error| error.to_string().replace('\n', " "))
}

/// The same with quotes around what stands behind a name in one line, where it has a colon or a hash and no quotes.
fn quoted(head: &str) -> Cow<'_, str> {
    let mut changed = false;
    let lines: Vec<Cow<'_, str>> = head
        .lines()
        .map(|line| quoted_line(line).inspect(|_| changed = true).map_or(line.into(), Cow::Owned))
        .collect();
    if changed { Cow::Owned(lines.join("\n")) } else { Cow::Borrowed(head) }
}

fn quoted_line(line: &str) -> Option<String> {
    let (name, value) = line.split_once(": ")?;
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let value = value.trim();
    let plain = !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!', '#']);
    let troubled = value.contains(": ") || value.ends_with(':') || value.contains(" #");
    (is_name(name) && plain && troubled).then(|| format!("{name}: {}", Value::from(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_head_is_what_stands_between_two_lines() {
        #[rustfmt::skip]
        let table = [
            ("---\nname: a\n---\n\nBody.\n\n---\nmore\n", json!({"name": "a"}), "Body.\n\n---\nmore"),
            ("\u{feff}---\r\nname: a\r\ntools: [x, y]\r\n---\r\nBody.\r\n", json!({"name": "a", "tools": ["x", "y"]}), "Body."),
            ("---\n---\nBody.", json!({}), "Body."),
            ("---\n# only a remark\n---", json!({}), ""),
            ("---\nname: a\npolicy:\n  allow:\n    - Patch\n---\n", json!({"name": "a", "policy": {"allow": ["Patch"]}}), ""),
            // A colon in a text that nobody quoted, as many files have it.
            ("---\nname: a\ndescription: Use it: when in doubt # really\n---\n", json!({"name": "a", "description": "Use it: when in doubt # really"}), ""),
            ("---\ndescription: |\n  one\n  two\non: yes\n---\n", json!({"description": "one\ntwo\n", "on": "yes"}), ""),
        ];
        for (text, fields, body) in table {
            let Value::Object(fields) = fields else { panic!("an object") };
            assert_eq!(parts(text), Ok(Parts { fields, body }), "{text}");
        }
    }

    #[test]
    fn what_is_no_head_says_so_and_what_is_too_much_is_refused() {
        for text in ["", "# Title\n", "--- \n", " ---\nname: a\n---\n"] {
            let headless = parts(text);
            assert!(matches!(headless, Err(Unfit::Headless | Unfit::Unreadable(_))), "{text}");
        }
        let deep = format!("---\na: {}1{}\n---\n", "[".repeat(40), "]".repeat(40));
        let many = format!("---\na: [{}]\n---\n", "1,".repeat(limit::FRONTMATTER_NODES_MAX));
        let long = format!("---\na: {}\n---\n", "x".repeat(limit::FRONTMATTER_BYTES_MAX));
        let bomb = "---\na: &a [1, 1]\nb: [*a, *a]\n---\n".to_owned();
        let table = [
            ("---\nname: a\n".to_owned(), "expected a line `---`"),
            ("---\njust words\n---\n".to_owned(), "`name: value`"),
            ("---\n- a\n---\n".to_owned(), "`name: value`"),
            ("---\nname: [a\n---\n".to_owned(), "frontmatter: "),
            ("---\nname: a\nname: b\n---\n".to_owned(), "duplicate"),
            (deep, "frontmatter: "),
            (many, "frontmatter: "),
            (long, "at most"),
            (bomb, "frontmatter: "),
        ];
        for (text, want) in table {
            let Err(Unfit::Unreadable(why)) = parts(&text) else { panic!("taken: {}", &text[..text.len().min(80)]) };
            assert!(why.contains(want), "{why}");
        }
    }
}
