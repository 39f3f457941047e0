//! A server among several that share a database: what of it is said in settings, held against each other.

use super::{Names, NodeUrl, Setting, StoreAddress};

/// Labels of one server.
pub(super) const LABELS_MAX: usize = 32;
/// Characters of a label.
const LABEL_CHARS_MAX: usize = 64;

/// What is expected where a text is no label.
pub(super) const LABEL_EXPECTED: &str = "1 to 64 letters, digits, `.`, `_` or `-`";

/// The same as a schema says it.
pub(super) const LABEL_PATTERN: &str = "^[A-Za-z0-9._-]{1,64}$";

/// A server among several that share a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Where the others reach it.
    pub url: NodeUrl,
    /// Labels of the workspaces that it reaches, each once. A session with a label lives only on servers that have it.
    pub labels: Vec<String>,
}

impl NodeSettings {
    /// What its address and its labels make of it, beside where sessions are. None: nothing is said, and this server is alone.
    ///
    /// # Errors
    /// The setting that does not fit, as its giver calls it, and what was expected.
    pub fn of(
        (url, labels): (Option<NodeUrl>, Vec<String>),
        store: &StoreAddress,
        names: Names,
    ) -> Result<Option<Self>, (String, String)> {
        let refused = |setting, expected: String| Err((names.of(setting), expected));
        let alone = *store == StoreAddress::Sqlite;
        let beside = || "to stand beside a `store` that begins with postgres://".to_owned();
        match (url, labels.is_empty()) {
            (Some(_), _) if alone => refused(Setting::NodeUrl, beside()),
            (None, false) if alone => refused(Setting::NodeLabels, beside()),
            (None, false) => refused(Setting::NodeLabels, format!("to stand beside {}", names.of(Setting::NodeUrl))),
            (Some(_), false) if !are_labels(&labels) => {
                refused(Setting::NodeLabels, format!("at most {LABELS_MAX} labels, each once, of {LABEL_EXPECTED}"))
            }
            (Some(url), _) => Ok(Some(Self { url, labels })),
            (None, true) => Ok(None),
        }
    }
}

/// Whether a text is a label.
pub(super) fn is_label(text: &str) -> bool {
    (1..=LABEL_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn are_labels(labels: &[String]) -> bool {
    let once = |(at, label): (usize, &String)| !labels.iter().take(at).any(|other| other == label);
    labels.len() <= LABELS_MAX && labels.iter().all(|label| is_label(label)) && labels.iter().enumerate().all(once)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_labels_stand_beside_a_database() {
        let (url, sqlite) = ("http://h:1".parse::<NodeUrl>().unwrap(), StoreAddress::Sqlite);
        let postgres: StoreAddress = "postgres://h/d".parse().unwrap();
        let most: Vec<String> = (0..LABELS_MAX).map(|number| number.to_string()).collect();
        let more: Vec<String> = (0..=LABELS_MAX).map(|number| number.to_string()).collect();
        let texts = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
        let given = || Some(url.clone());
        let (long, longer) = ("a".repeat(64), "a".repeat(65));
        #[rustfmt::skip]
        let table = [
            // (the address, the labels, where sessions are, the setting that is refused)
            (None, texts(&[]), &sqlite, ""), (None, texts(&[]), &postgres, ""), (given(), texts(&[]), &postgres, ""),
            (given(), texts(&["gpu", "eu-1.b_c", &long]), &postgres, ""), (given(), most, &postgres, ""),
            (given(), texts(&[]), &sqlite, "nodeUrl"), (given(), texts(&["a"]), &sqlite, "nodeUrl"),
            (None, texts(&["a"]), &sqlite, "nodeLabels"), (None, texts(&["a"]), &postgres, "nodeLabels"),
            (given(), more, &postgres, "nodeLabels"), (given(), texts(&["a", "b", "a"]), &postgres, "nodeLabels"),
            (given(), texts(&["a", ""]), &postgres, "nodeLabels"), (given(), texts(&["a b"]), &postgres, "nodeLabels"),
            (given(), texts(&["ä"]), &postgres, "nodeLabels"), (given(), texts(&[&longer]), &postgres, "nodeLabels"),
        ];
        for (url, labels, store, refused) in table {
            let want = url.clone().map(|url| NodeSettings { url, labels: labels.clone() });
            let made = NodeSettings::of((url, labels.clone()), store, Names::Members);
            let made = made.map_err(|(field, _)| field);
            assert_eq!(made, if refused.is_empty() { Ok(want) } else { Err(refused.to_owned()) }, "{labels:?}");
        }
    }

    #[test]
    fn the_words_of_a_label_say_its_length() {
        let longest = format!("1 to {LABEL_CHARS_MAX} ");
        assert!(LABEL_EXPECTED.starts_with(&longest) && LABEL_PATTERN.contains(&format!("{{1,{LABEL_CHARS_MAX}}}")));
    }
}
