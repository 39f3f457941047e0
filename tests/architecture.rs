//! Keeps the order of the modules: who may name whom, where outside crates are at home, how paths are written.
//!
//! It reads the sources (comments and strings left out) and checks itself on tables of made-up faults. What a breach
//! looks like: `src/bus/mod.rs:6: bus -> server: looks up`. ARCHITECTURE.md says why the order is what it is.

#[allow(dead_code, reason = "each check uses its part")]
mod sources;

use sources::{Source, is_word, line_of};

/// Lowest first. Modules in one row may not name each other.
const LAYERS: &[&[&str]] = &[
    &["protocol", "base"],
    &["bus", "store", "config"],
    &["edit", "permission", "context", "prompt", "hook"],
    &["tool", "model"],
    &["host", "mcp", "provider", "memory", "agent"],
    &["session"],
    &["app"],
    &["server"],
    &["cli", "node"],
];

/// Doors that see less than their rank would allow.
const NARROW: &[(&str, &[&str])] =
    &[("server", &["app", "protocol", "config", "base"]), ("main", &["cli"]), ("launcher", &[])];

/// Where a thing from outside may be named: the words, then the files or folders.
const HOMES: &[(&[&str], &[&str])] = &[
    // A setting's name, type and words for --help stand in one place, beside its other two spellings.
    (&["clap"], &["src/cli/", "src/main.rs", "src/config/options"]),
    (&["axum", "hyper", "hyper_util", "http_body", "http_body_util", "tower"], &["src/server/"]),
    (&["reqwest"], &["src/base/http"]),
    (&["rustls"], &["src/base/http", "src/server/tls", "src/store/postgres/"]),
    (&["tokio_rustls"], &["src/server/tls", "src/server/listen"]),
    (
        &["std::process::Command", "std::process::Child", "std::process::Stdio", "tokio::process"],
        &["src/base/process", "src/base/sandbox"],
    ),
    (&["landlock", "seccompiler", "libc"], &["src/base/sandbox"]),
    (&["rusqlite"], &["src/store/"]),
    (
        &["tokio_postgres", "deadpool_postgres", "tokio_postgres_rustls", "rustls_platform_verifier"],
        &["src/store/postgres/"],
    ),
    (&["ring"], &["src/store/", "src/server/tls", "src/base/proof", "src/base/assertion"]),
    (&["agent_client_protocol"], &["src/provider/acp"]),
    (&["rmcp"], &["src/mcp/"]),
    // Schemas of what crosses the wire, and of the configuration.
    (&["schemars"], &["src/protocol/", "src/config/", "src/session/", "src/app/", "src/server/openapi/"]),
    (&["lopdf"], &["src/host/fs_read/"]),
    // What local embedding models have in their vocabularies.
    (&["unicode_normalization", "unicode_segmentation"], &["src/provider/local/"]),
    (&["tiktoken"], &["src/context/tokens"]),
    (&["flate2", "crc32fast"], &["src/base/image/", "src/base/deflate"]),
    (&["rust_embed"], &["src/server/page"]),
    (&["ratatui", "crossterm", "pulldown_cmark", "unicode_width"], &["src/cli/tui/"]),
    (&["clap_complete"], &["src/cli/"]),
    (&["std::env", "tokio::env"], &["src/config/", "src/launcher.rs"]),
    (
        &["print!", "println!", "eprint!", "eprintln!", "io::stdout", "io::stderr", "io::stdin"],
        &["src/cli/", "src/main.rs", "src/launcher.rs"],
    ),
    (&["mimalloc"], &["src/main.rs", "src/node/allocator"]),
    (&["napi", "napi_derive"], &["src/node/"]),
    (
        &["unsafe"],
        &[
            "src/node/",
            "src/cli/exported",
            "src/launcher.rs",
            "src/base/sandbox",
            "src/base/process/pty",
            "src/base/process/leader",
            "src/base/passed",
        ],
    ),
    (&["SystemTime::now", "Timestamp::now", "Zoned::now"], &["src/base/clock"]),
];

fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

fn fault(owner: &str, target: &str) -> Option<&'static str> {
    if owner == target {
        return None;
    }
    if let Some((_, allowed)) = NARROW.iter().find(|(door, _)| *door == owner) {
        return (!allowed.contains(&target)).then_some("is not among the modules that this door may name");
    }
    match (rank(owner), rank(target)) {
        (Some(o), Some(t)) if t < o => None,
        (Some(o), Some(t)) if t == o => Some("peers may not name each other"),
        (Some(_), Some(_)) => Some("looks up"),
        _ => Some("not in LAYERS"),
    }
}

/// What the paths that start at the crate's root name first, with the offset: `crate::a`, `crate::{a::X, b}`, `simse::a`.
fn crate_names(code: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for root in ["crate::", "simse::"] {
        for (at, _) in code.match_indices(root) {
            if at > 0 && is_word(code.as_bytes()[at - 1]) {
                continue;
            }
            for name in first_names(&code[at + root.len()..]) {
                names.push((at, name));
            }
        }
    }
    names
}

/// The first segment of a path or, for a group, of each of its members.
fn first_names(rest: &str) -> Vec<String> {
    let word =
        |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = rest.strip_prefix('{') else {
        return vec![if rest.starts_with('*') { "*".into() } else { word(rest) }];
    };
    let mut names = vec![word(group)];
    let mut depth = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(word(&group[at + 1..])),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Paths into other modules that `crate_names` would not see: the root under another name, or climbed to by `super`.
fn hidden_paths(path: &str, code: &str) -> Vec<(usize, &'static str)> {
    let mut found: Vec<(usize, &'static str)> = code
        .match_indices("use crate as ")
        .chain(code.match_indices("use crate;"))
        .map(|(at, _)| (at, "the crate's root under another name"))
        .collect();
    let depth = module_depth(path);
    let mut open_modules = Vec::new();
    let mut braces = 0_usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => {
                braces += 1;
                let head = code[..at].rsplit(['{', '}', ';']).next().unwrap_or("");
                if head.split_whitespace().any(|word| word == "mod") {
                    open_modules.push(braces);
                }
            }
            b'}' => {
                if open_modules.last() == Some(&braces) {
                    open_modules.pop();
                }
                braces = braces.saturating_sub(1);
            }
            b's' if code[at..].starts_with("super::") && !code[..at].ends_with("super::") && starts_word(code, at) => {
                let climbs = code[at..].split("::").take_while(|&segment| segment == "super").count();
                if climbs >= depth + open_modules.len() {
                    found.push((at, "`super::` leaves the top-level module: write `crate::…`"));
                }
            }
            _ => {}
        }
    }
    found
}

fn starts_word(code: &str, at: usize) -> bool {
    at == 0 || !is_word(code.as_bytes()[at - 1])
}

/// How deep below the crate's root a file's module lies: 1 for `src/bus/mod.rs`, 2 for `src/bus/fan.rs`.
fn module_depth(path: &str) -> usize {
    let segments = path.trim_start_matches("src/").split('/').count();
    if path.ends_with("/mod.rs") { segments - 1 } else { segments }
}

/// What is named away from its home: offset and word.
fn strays(path: &str, code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (words, homes) in HOMES {
        if homes.iter().any(|home| path.starts_with(home)) {
            continue;
        }
        for word in *words {
            found.extend(uses(code, word).into_iter().map(|at| (at, (*word).to_owned())));
        }
    }
    found
}

/// Where a word is used: a macro (`x!`), a path (`a::b`, also out of a group `a::{b}`) or a crate's name before `::`.
fn uses(code: &str, word: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let whole = |at: usize, end: usize| {
        (at == 0 || !is_word(bytes[at - 1]))
            && (word.ends_with('!') || bytes.get(end).is_none_or(|byte| !is_word(*byte)))
    };
    let places = code.match_indices(word).filter(|&(at, _)| whole(at, at + word.len()));
    if let Some((head, tail)) = word.rsplit_once("::") {
        let group = format!("{head}::{{");
        let grouped = code.match_indices(&group).filter(|&(at, _)| {
            starts_word(code, at) && first_names(&code[at + group.len() - 1..]).iter().any(|name| name == tail)
        });
        return places.map(|(at, _)| at).chain(grouped.map(|(at, _)| at)).collect();
    }
    let is_crate = word != "unsafe" && !word.ends_with('!');
    places.filter(|&(at, _)| !is_crate || names_crate(code, at, word)).map(|(at, _)| at).collect()
}

/// Tells the crate `tower` from a variable or a member of that name: `tower::…` with nothing before it, or `use tower`.
fn names_crate(code: &str, at: usize, word: &str) -> bool {
    let before = code[..at].trim_end();
    let path = code[at + word.len()..].starts_with("::") && (!before.ends_with("::") || before.ends_with("(::"));
    path || before.ends_with("use") || code[..at].ends_with("#[")
}

#[test]
fn every_module_names_lower_ranks_only() {
    let mut faults = Vec::new();
    for source in sources::read(&["src"]) {
        if source.path == "src/lib.rs" {
            continue;
        }
        for (at, target) in crate_names(&source.code) {
            if let Some(reason) = fault(source.owner(), &target) {
                faults.push(place(&source, at, &format!("{} -> {target}: {reason}", source.owner())));
            }
        }
    }
    none(&faults);
}

#[test]
fn paths_that_ship_start_at_the_root() {
    let mut faults = Vec::new();
    for source in sources::read(&["src"]) {
        for (at, reason) in hidden_paths(&source.path, &source.production) {
            faults.push(place(&source, at, reason));
        }
    }
    none(&faults);
}

#[test]
fn outside_crates_stay_at_home() {
    let mut faults = Vec::new();
    for source in sources::read(&["src"]) {
        for (at, word) in strays(&source.path, &source.production) {
            faults.push(place(&source, at, &format!("`{word}` is not at home here")));
        }
    }
    none(&faults);
}

#[test]
fn every_folder_has_a_rank_and_lib_rs_names_them_in_order() {
    let sources = sources::read(&["src"]);
    let lib = sources.iter().find(|source| source.path == "src/lib.rs").expect("the crate has a root");
    let named: Vec<&str> = lib
        .code
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')))
        .collect();
    let ranks: Vec<usize> =
        named.iter().map(|module| rank(module).unwrap_or_else(|| panic!("{module} is not in LAYERS"))).collect();
    assert!(ranks.is_sorted(), "the `mod` lines of src/lib.rs do not stand in the order of their ranks: {named:?}");
    for source in &sources {
        let owner = source.owner();
        assert!(
            ["lib", "main", "launcher"].contains(&owner) || named.contains(&owner),
            "{}: not named in src/lib.rs",
            source.path
        );
    }
}

fn place(source: &Source, at: usize, what: &str) -> String {
    format!("{}:{}: {what}", source.path, line_of(&source.text, at))
}

fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// The checks, held against made-up faults.
mod self_test {
    use super::*;

    #[test]
    fn ranks() {
        let cases: &[(&str, &str, bool)] = &[
            ("bus", "use crate::protocol::Health;", false),
            ("bus", "use crate::{protocol::{A, B}, bus::C};", false),
            ("bus", "use crate::{protocol::{A, B}, server::C};", true),
            ("bus", "use crate::{\n    protocol::A,\n    app,\n};", true),
            ("bus", "use crate::server;", true),
            ("bus", "use crate::*;", true),
            ("host", "use crate::agent;", true),
            ("store", "use crate::bus::Bus;", true),
            ("bus", "let x = crate::server::router();", true),
            ("bus", "macro_rules! m { () => { $crate::server::f() } }", true),
            ("bus", "pub(crate) struct S;", false),
            ("bus", "use my_crate::server;", false),
            ("bus", "// crate::server is mentioned in prose only", false),
            ("bus", "/* crate::server */ let x = \"crate::server\";", false),
            ("bus", "use crate::unheard_of;", true),
            ("server", "use crate::app::App;", false),
            ("server", "use crate::store::Store;", true),
            ("node", "use crate::edit::replace;", false),
            ("node", "use crate::cli::run;", true),
            ("main", "simse::cli::main()", false),
            ("main", "simse::server::Server::start()", true),
        ];
        for &(owner, text, faulty) in cases {
            let code = sources::blank_prose(text);
            let found = crate_names(&code).iter().any(|(_, target)| fault(owner, target).is_some());
            assert_eq!(found, faulty, "{owner}: {text}");
        }
    }

    #[test]
    fn hidden() {
        let cases: &[(&str, &str, bool)] = &[
            ("src/bus/mod.rs", "use crate as c;", true),
            ("src/bus/mod.rs", "use super::server;", true),
            ("src/bus/mod.rs", "mod inner { use super::Bus; }", false),
            ("src/bus/mod.rs", "mod inner { use super::super::server; }", true),
            ("src/bus/mod.rs", "mod inner { fn f() {} } use super::server;", true),
            ("src/bus/fan.rs", "use super::Bus;", false),
            ("src/bus/fan.rs", "use super::super::server;", true),
            ("src/bus/fan.rs", "pub(super) fn f() {}", false),
        ];
        for &(path, text, faulty) in cases {
            assert_eq!(!hidden_paths(path, text).is_empty(), faulty, "{path}: {text}");
        }
    }

    #[test]
    fn homes() {
        let cases: &[(&str, &str, bool)] = &[
            ("src/server/mod.rs", "use axum::Router;", false),
            ("src/app/mod.rs", "use axum::Router;", true),
            ("src/app/mod.rs", "let tower = build(tower);", false),
            ("src/app/mod.rs", "crate::app::tower::x()", false),
            ("src/provider/mod.rs", "reqwest::Client::new()", true),
            ("src/base/http.rs", "reqwest::Client::new()", false),
            ("src/host/bash.rs", "std::process::Command::new(x)", true),
            ("src/host/bash.rs", "use std::process::{Command, Stdio};", true),
            ("src/host/bash.rs", "use tokio::process::Command;", true),
            ("src/main.rs", "use std::process::ExitCode;", false),
            ("src/session/mod.rs", "use rusqlite::Connection;", true),
            ("src/session/mod.rs", "std::env::var(x)", true),
            ("src/session/mod.rs", "use std::{env, fs};", true),
            ("src/session/mod.rs", "env!(CARGO_PKG_VERSION)", false),
            ("src/session/mod.rs", "println!(x)", true),
            ("src/session/mod.rs", "eprintln!(x)", true),
            ("src/session/mod.rs", "std::io::stdout()", true),
            ("src/session/mod.rs", "#[napi]", true),
            ("src/session/mod.rs", "unsafe { x() }", true),
            ("src/session/mod.rs", "SystemTime::now()", true),
            ("src/session/mod.rs", "use std::time::SystemTime;", false),
        ];
        for &(path, text, faulty) in cases {
            assert_eq!(!strays(path, text).is_empty(), faulty, "{path}: {text}");
        }
    }
}
