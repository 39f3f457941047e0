//! The configuration file and the file of tokens: what the check lets through is read, and what is refused is named with
//! its place.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::LazyLock;

use crate::config::tokens::{TokenEntry, Tokens, tokens_file};
use crate::config::{Options, faults_of};

/// The property of the target `settings`. The first letter says of what: a (c)onfiguration file, or a file of (t)okens.
pub fn holds(data: &[u8]) {
    match data.split_first() {
        Some((b'c', text)) => configuration(text),
        Some((b't', text)) => tokens(text),
        Some(_) | None => {}
    }
}

/// A file without a fault is read. What is wrong in another stands on one of its lines, and is told in one.
fn configuration(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let faults = faults_of(text);
    if faults.is_empty()
        && let Err(error) = toml::from_str::<Options>(text)
    {
        panic!("no fault was found, but: {error}\n{text}");
    }
    let lines = text.split('\n').count();
    for fault in &faults {
        assert!((1..=lines).contains(&fault.line) && !fault.problem.is_empty(), "{fault:?}\n{text}");
    }
    assert!(faults.is_sorted_by_key(|fault| fault.line), "{faults:?}");
    // A line that says nothing moves them all, and adds none. But a mark of the byte order counts only in front of all.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let moved = faults_of(&format!("# moved\n{text}"));
    let was: Vec<_> = faults.iter().map(|fault| (fault.line + 1, &fault.problem)).collect();
    assert_eq!(moved.iter().map(|fault| (fault.line, &fault.problem)).collect::<Vec<_>>(), was, "{text}");
}

static HOME: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary directory"));

/// What is taken is the same when it is written again; what is refused names the file.
fn tokens(text: &[u8]) {
    let path = tokens_file(HOME.path());
    let read = |text: &[u8]| {
        fs::write(&path, text).expect("a temporary file is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        Tokens::read(&path)
    };
    let entries: Vec<TokenEntry> = match read(text) {
        Ok(tokens) => tokens.entries().to_vec(),
        Err(error) => {
            assert!(error.to_string().contains("tokens.json"), "{error}");
            return;
        }
    };
    for (at, entry) in entries.iter().enumerate() {
        assert!(entry.client(None).is_some() || entry.sessions_of.is_some(), "{entry:?}");
        assert!(entries[..at].iter().all(|other| other.name != entry.name), "{entry:?} is there twice");
    }
    let written = serde_json::json!({ "tokens": entries }).to_string();
    let again = read(written.as_bytes()).expect("what was read is written again");
    assert_eq!(again.entries(), entries);
}

#[test]
fn every_input_holds() {
    crate::base::replay::replay("settings", b"ct", holds);
}
