//! Keeps what is tidy from slipping: lengths, headers, reasons, and lists that must name everything.
//!
//! The budgets are aims. Where code has a good reason to stay above one, it stands in [`EXCEPTIONS`] with the reason;
//! an exception that is no longer needed is a fault too, so the list only shrinks. Every rule is held against made-up
//! faults at the end of the file.

#[allow(dead_code, reason = "each check uses its part")]
mod sources;

use std::fs;
use std::process::Command;

use sources::{Source, is_word, line_of};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;
const PARAMETERS_MAX: usize = 4;
/// Shorter than this, an `expect` does not say why it holds.
const REASON_BYTES_MIN: usize = 10;

/// Rule, place (`file` or `file: function`), reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("file length", "src/protocol/event.rs", "one enum has all events, and an enum cannot be parted"),
    ("parameters", "src/mcp/signer.rs: post_message", "the trait of `rmcp` has them"),
    ("parameters", "src/mcp/signer.rs: post_message_with_max_sse_event_size", "the trait of `rmcp` has them"),
    ("parameters", "src/store/postgres/connect.rs: verify_server_cert", "the trait of `rustls` has them"),
    ("parameters", "src/mcp/signer.rs: get_stream", "the trait of `rmcp` has them"),
    ("parameters", "src/mcp/signer.rs: get_stream_with_max_sse_event_size", "the trait of `rmcp` has them"),
];

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    rule: &'static str,
    place: String,
    line: usize,
    what: String,
}

/// A function's place in the code: its name, its parameters and the lines from `fn` to its closing brace.
struct Function {
    name: String,
    at: usize,
    parameters: usize,
    lines: usize,
}

fn faults_of(source: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |rule, at: usize, inside: &str, what: String| {
        let place = if inside.is_empty() { source.path.clone() } else { format!("{}: {inside}", source.path) };
        faults.push(Fault { rule, place, line: line_of(&source.text, at), what });
    };
    if !source.text.starts_with("//!") {
        fault("header", 0, "", "begins without `//!`: what is it, what is it not?".into());
    }
    let lines = source.shipped_lines;
    if lines > FILE_LINES_MAX {
        fault("file length", 0, "", format!("{lines} lines without tests, at most {FILE_LINES_MAX}"));
    }
    for function in functions(&source.production) {
        let Function { name, at, parameters, lines } = function;
        if lines > FUNCTION_LINES_MAX {
            fault("function length", at, &name, format!("{lines} lines, at most {FUNCTION_LINES_MAX}"));
        }
        if parameters > PARAMETERS_MAX {
            fault("parameters", at, &name, format!("{parameters} parameters, at most {PARAMETERS_MAX}"));
        }
    }
    for at in places(&source.production, ".unwrap()") {
        fault("unwrap", at, "", "`.unwrap()` outside tests: `expect(\"why it holds\")` or an error".into());
    }
    for at in places(&source.production, ".expect(") {
        if literal_bytes(source, at + ".expect(".len()).is_some_and(|bytes| bytes < REASON_BYTES_MIN) {
            fault("expect", at, "", "`expect` must say why it holds".into());
        }
    }
    for word in ["panic!(", "todo!(", "unimplemented!("] {
        for at in places(&source.production, word) {
            fault("panic", at, "", format!("`{word}…)` outside tests"));
        }
    }
    for at in places(&source.code, "#[ignore") {
        fault("ignored test", at, "", "a test that does not run".into());
    }
    for (at, attribute) in attributes(&source.code) {
        let lint = ["allow(", "expect("].iter().any(|word| !places(attribute, word).is_empty());
        if lint && !attribute.contains("reason") {
            fault("lint reason", at, "", "lints are switched off only with `reason = \"…\"`".into());
        }
        let name = function_behind(&source.code[at + attribute.len()..]);
        if attribute.starts_with("#[napi") && !attribute.contains("catch_unwind") && name.is_some() {
            fault(
                "napi panic",
                at,
                "",
                format!("{}: a synchronous export needs `catch_unwind`", name.unwrap_or_default()),
            );
        }
    }
    faults
}

/// Where a text stands in the code as a whole word.
fn places(code: &str, word: &str) -> Vec<usize> {
    let begins = |at: usize| !is_word(word.as_bytes()[0]) || at == 0 || !is_word(code.as_bytes()[at - 1]);
    code.match_indices(word).map(|(at, _)| at).filter(|&at| begins(at)).collect()
}

/// Length of the string literal at this place; None when it is something else.
fn literal_bytes(source: &Source, from: usize) -> Option<usize> {
    let code = &source.code[from..];
    let open = code.find(|c: char| !c.is_whitespace())?;
    let inside = code[open..].strip_prefix('"')?;
    inside.find('"')
}

/// All outer and inner attributes: offset and text.
fn attributes(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices('#') {
        let open = at + 1 + usize::from(code[at + 1..].starts_with('!'));
        if code[open..].starts_with('[') {
            found.push((at, &code[at..closing(code, open).min(code.len())]));
        }
    }
    found
}

/// Behind the bracket that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 1 => return at + 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    code.len()
}

/// The name of the synchronous function that the text begins with, behind other attributes.
fn function_behind(mut rest: &str) -> Option<String> {
    rest = rest.trim_start();
    while rest.starts_with("#[") {
        rest = rest[closing(rest, 1)..].trim_start();
    }
    let head = rest.split(['{', ';', '=']).next()?;
    let words: Vec<&str> =
        head.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let place = words.iter().position(|&word| word == "fn")?;
    let item = words[..place].iter().any(|word| ["impl", "struct", "enum", "mod", "trait", "type"].contains(word));
    (!item && !words[..place].contains(&"async")).then(|| words.get(place + 1).map(|name| (*name).to_owned()))?
}

fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in places(code, "fn ") {
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let after_name = at + 3 + name.len();
        let Some(open) = parameters_open(code, after_name).filter(|_| !name.is_empty()) else { continue };
        let end_of_parameters = closing(code, open);
        let Some(body) = code[end_of_parameters..].find(['{', ';']).map(|offset| end_of_parameters + offset) else {
            continue;
        };
        let end = if code[body..].starts_with('{') { closing(code, body) } else { body };
        let parameters = count_parameters(&code[open + 1..end_of_parameters - 1]);
        found.push(Function { name, at, parameters, lines: line_of(code, end) - line_of(code, at) + 1 });
    }
    found
}

/// The parenthesis behind a function's name and its generics.
fn parameters_open(code: &str, from: usize) -> Option<usize> {
    let mut angles = 0_i32;
    let bytes = code.as_bytes();
    for at in from..bytes.len() {
        match bytes[at] {
            b'<' => angles += 1,
            b'>' if bytes[at - 1] != b'-' => angles -= 1,
            b'(' if angles == 0 => return Some(at),
            b'(' => {}
            b'{' | b';' => return None,
            _ => {}
        }
    }
    None
}

/// Parameters at the top level of the list. A receiver is left out, and so is the token by which everything that takes
/// time is told to stop: it is handed along unchanged.
fn count_parameters(list: &str) -> usize {
    let mut depth = 0_i32;
    let mut parts = vec![String::new()];
    let mut before = ' ';
    for c in list.chars() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("there is always one part").push(c),
        }
        before = c;
    }
    let token = |part: &String| part.trim_end().ends_with("CancellationToken");
    let receiver = |part: &String| part.split([':', ' ']).any(|word| word.trim_start_matches('&') == "self");
    parts.iter().filter(|part| !part.trim().is_empty() && !receiver(part) && !token(part)).count()
}

#[test]
fn the_sources_hold_to_the_budgets() {
    let faults: Vec<Fault> = sources::read(&["src", "tests", "benches", "examples", "fuzz/src", "fuzz/fuzz_targets"])
        .iter()
        .flat_map(faults_of)
        .collect();
    let excused =
        |fault: &Fault| EXCEPTIONS.iter().any(|(rule, place, _)| *rule == fault.rule && *place == fault.place);
    let open: Vec<String> = faults
        .iter()
        .filter(|fault| !excused(fault))
        .map(|fault| format!("{}:{}: {}: {}", fault.place, fault.line, fault.rule, fault.what))
        .collect();
    assert!(open.is_empty(), "{} faults\n{}", open.len(), open.join("\n"));
    for (rule, place, reason) in EXCEPTIONS {
        assert!(reason.len() >= REASON_BYTES_MIN, "{rule}, {place}: give a reason");
        assert!(
            faults.iter().any(|fault| fault.rule == *rule && fault.place == *place),
            "{rule}, {place}: no longer needed, take it out of the list"
        );
    }
}

/// Files that git knows, with their text; those that are no text are left out.
fn tracked_texts() -> Vec<(String, String)> {
    let list = Command::new("git").args(["ls-files", "-z"]).current_dir(sources::root()).output().expect("git runs");
    assert!(list.status.success(), "git ls-files: {}", String::from_utf8_lossy(&list.stderr));
    let names = String::from_utf8(list.stdout).expect("file names are UTF-8");
    let text = |name: &str| Some((name.to_owned(), fs::read_to_string(sources::root().join(name)).ok()?));
    names.split_terminator('\0').filter_map(text).collect()
}

/// Where packages come from is a matter of each machine's own settings. Written in two halves, so that this file passes.
fn registry_hosts() -> Vec<String> {
    [
        ("registry.npm", "js.org"),
        ("registry.yarn", "pkg.com"),
        ("index.crates", ".io"),
        ("static.crates", ".io"),
        ("files.python", "hosted.org"),
    ]
    .iter()
    .map(|(head, tail)| format!("{head}{tail}"))
    .collect()
}

fn text_faults(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for host in registry_hosts().iter().filter(|host| text.contains(host.as_str())) {
        faults.push(format!("{name}: names the registry {host}"));
    }
    // A folder of the repository is no address.
    let address = |line: &str| line.contains("\"resolved\"") && !line.contains("\"docs/api\"");
    if name.ends_with("package-lock.json") && text.lines().any(address) {
        faults.push(format!("{name}: records addresses; .npmrc asks npm to leave them out"));
    }
    let script = [".js", ".mjs", ".cjs"].iter().any(|ending| name.ends_with(ending))
        && !["src/", "web/dist/"].iter().any(|folder| name.starts_with(folder));
    if script && !text.trim_start_matches(|c| c != '\n').trim_start().starts_with("/**") && !text.starts_with("/**") {
        faults.push(format!("{name}: begins without a `/** … */` that says what it is"));
    }
    if script {
        for skip in ["test", "it", "describe"]
            .iter()
            .flat_map(|word| [format!("{word}.only("), format!("{word}.skip("), format!("{word}.todo(")])
        {
            if !places(text, &skip).is_empty() {
                faults.push(format!("{name}: `{skip}…)` leaves tests out"));
            }
        }
    }
    faults
}

/// Channels that take whatever comes: the file, and what bounds them all the same.
const UNBOUNDED: &[(&str, &str)] = &[
    ("src/base/http/ahead.rs", "what waits in it is bounded in bytes, by permits of a semaphore"),
    (
        "src/provider/acp/connection.rs",
        "`unread` and `unread_bytes` count what waits, and at their limits the program is ended",
    ),
    ("src/store/postgres/mod.rs", "as in src/store/sqlite.rs"),
    ("src/store/sqlite.rs", "the commits in it are counted, and one more than COMMITS_WAITING_MAX is refused"),
    ("src/app/nodes/commands.rs", "each line has room for so many commands, and reads no more"),
];

/// Whether a source makes a channel without a bound: tokio's, futures' or that of the standard library.
fn makes_unbounded(production: &str) -> bool {
    production.contains("unbounded_channel")
        || production.contains("unbounded(")
        || production.contains("mpsc::channel()")
        || production.contains("mpsc::channel::<") && production.contains(">()")
}

#[test]
fn channels_have_a_bound_or_a_reason() {
    for (text, want) in [
        ("let (a, b) = mpsc::unbounded_channel();", true),
        ("let (a, b) = mpsc::channel();", true),
        ("let (a, b) = mpsc::channel::<()>();", true),
        ("let (a, b) = unbounded();", true),
        ("let (a, b) = mpsc::channel(limit::X);", false),
        ("let (a, b) = mpsc::sync_channel(1);", false),
    ] {
        assert_eq!(makes_unbounded(text), want, "{text}");
    }
    let sources = sources::read(&["src"]);
    let found: Vec<&str> = sources
        .iter()
        .filter(|source| makes_unbounded(&source.production))
        .map(|source| source.path.as_str())
        .collect();
    for path in &found {
        assert!(
            UNBOUNDED.iter().any(|(file, _)| file == path),
            "{path}: a channel without a bound, and without a reason"
        );
    }
    for (file, _) in UNBOUNDED {
        assert!(found.contains(file), "{file} has no such channel any more: take it off the list");
    }
}

#[test]
fn texts_name_no_registry_and_leave_no_test_out() {
    let faults: Vec<String> = tracked_texts().iter().flat_map(|(name, text)| text_faults(name, text)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn read(name: &str) -> String {
    fs::read_to_string(sources::root().join(name)).unwrap_or_else(|cause| panic!("{name}: {cause}"))
}

/// Keys of a TOML table, such as `[dependencies]`.
fn table_keys(toml: &str, table: &str) -> Vec<String> {
    let inside = toml
        .lines()
        .skip_while(|line| line.trim() != format!("[{table}]"))
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    inside.filter_map(|line| line.split_once(" = ")).map(|(key, _)| key.trim().to_owned()).collect()
}

#[test]
fn every_dependency_stands_in_the_list_with_its_reason() {
    let list = read("docs/dependencies.md");
    let cargo = read("Cargo.toml");
    let linux = "target.'cfg(target_os = \"linux\")'.dependencies";
    let mut names: Vec<String> = ["dependencies", linux, "build-dependencies", "dev-dependencies"]
        .iter()
        .flat_map(|table| table_keys(&cargo, table))
        .collect();
    names.extend(table_keys(&read("fuzz/Cargo.toml"), "dependencies"));
    assert!(names.len() > 20, "the tables of Cargo.toml were not found");
    for file in ["package.json", "docs/api/package.json"] {
        let package: String = read(file).lines().skip_while(|line| !line.contains("ependencies\"")).collect();
        let quoted: Vec<&str> = package.split('"').skip(1).step_by(2).collect();
        names.extend(quoted.iter().skip(1).step_by(2).map(|name| (*name).to_owned()));
    }
    for name in &names {
        assert!(list.contains(&format!("| `{name}` |")), "docs/dependencies.md has no row for `{name}`");
    }
    for row in list.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()) {
        assert!(
            names.iter().any(|name| name == row),
            "docs/dependencies.md has a row for `{row}`, which is no dependency"
        );
    }
}

#[test]
fn every_error_code_is_documented() {
    let list = read("docs/errors.md");
    for (file, open) in [("src/protocol/error.rs", "pub enum ErrorCode {")] {
        let source = sources::blank_prose(&read(file));
        let body = source.split(open).nth(1).and_then(|rest| rest.split('}').next()).expect("the codes stand there");
        let variants: Vec<&str> = body.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        assert!(variants.len() >= 10, "{variants:?}");
        for variant in variants {
            assert!(list.contains(&format!("`{}`", screaming(variant))), "docs/errors.md does not explain {variant}");
        }
    }
}

#[test]
fn every_kind_of_failed_turn_is_documented() {
    let list = read("docs/errors.md");
    for (file, least) in [("src/model/mod.rs", 9), ("src/agent/fault.rs", 7)] {
        let source = read(file);
        let body =
            source.split("fn kind(").nth(1).and_then(|rest| rest.split("\n    }\n").next()).expect("they stand there");
        let kinds: Vec<&str> = body.split('"').skip(1).step_by(2).collect();
        assert!(kinds.len() >= least, "{file}: {kinds:?}");
        for kind in kinds {
            assert!(list.contains(&format!("| `{kind}` |")), "docs/errors.md does not explain `{kind}`");
        }
    }
    // Nobody else makes one.
    for Source { path, text, .. } in sources::read(&["src/agent"]) {
        let ships = text.split("#[cfg(test)]").next().unwrap_or_default();
        let elsewhere = !path.contains("/tests") && path != "src/agent/fault.rs" && ships.contains("\"kind\":");
        assert!(!elsewhere, "{path}: kinds of failed turns stand in src/agent/fault.rs");
    }
}

/// `NotFound` → `NOT_FOUND`.
fn screaming(variant: &str) -> String {
    let mut out = String::new();
    for (at, c) in variant.char_indices() {
        if c.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}

#[test]
fn one_version_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("package.json").contains(&format!("\"version\": \"{version}\"")), "package.json is not at {version}");
    assert!(read("CHANGELOG.md").contains(&format!("## {version}")), "CHANGELOG.md has no entry for {version}");
}

/// The rules, held against made-up faults.
mod self_test {
    use super::*;

    fn rules(text: &str) -> Vec<&'static str> {
        faults_of(&Source::new("src/bus/mod.rs", text, false)).into_iter().map(|fault| fault.rule).collect()
    }

    #[test]
    fn each_rule_sees_its_fault_and_no_other() {
        let long_function = format!("//! A.\nfn f() {{\n{}}}", "    x();\n".repeat(FUNCTION_LINES_MAX));
        let long_file = format!("//! A.\n{}", "const A: u8 = 1;\n".repeat(FILE_LINES_MAX));
        let long_test =
            format!("//! A.\n#[cfg(test)]\nmod tests {{\n{}}}", "    const A: u8 = 1;\n".repeat(FILE_LINES_MAX));
        #[rustfmt::skip]
        let table: &[(&str, &[&str])] = &[
            ("fn f() {}",                                                       &["header"]),
            (&long_function,                                                    &["function length"]),
            (&long_file,                                                        &["file length"]),
            (&long_test,                                                        &[]),
            ("//! A.\nfn f(a: A, b: B, c: C, d: D, e: E) {}",                   &["parameters"]),
            ("//! A.\nfn f(a: A, b: B, c: C, d: D, cancel: &CancellationToken) {}", &[]),
            ("//! A.\nfn f(&self, a: A, b: (B, C), c: M<D, E>, d: D) {}",       &[]),
            ("//! A.\nfn f<F: Fn(A) -> B>(f: F, a: &[A; 2],) -> A<B> {}",       &[]),
            ("//! A.\nfn f() { a.unwrap() }",                                   &["unwrap"]),
            ("//! A.\nfn f() { a.unwrap_or(b) }",                               &[]),
            ("//! A.\n#[cfg(test)]\nmod tests { fn f() { a.unwrap() } }",       &[]),
            ("//! A.\nfn f() { a.expect(\"\") }",                               &["expect"]),
            ("//! A.\nfn f() { a.expect(\"checked two lines above\") }",        &[]),
            ("//! A.\nfn f() { todo!() }",                                      &["panic"]),
            ("//! A.\n// todo!()\nfn f() {}",                                   &[]),
            ("//! A.\n#[allow(dead_code)]\nfn f() {}",                          &["lint reason"]),
            ("//! A.\n#![allow(dead_code)]\n",                                  &["lint reason"]),
            ("//! A.\n#[expect(dead_code, reason = \"kept for b\")]\nfn f() {}", &[]),
            ("//! A.\n#[test]\n#[ignore]\nfn f() {}",                           &["ignored test"]),
            ("//! A.\n#[napi]\npub fn f(&self) -> u32 { 1 }",                   &["napi panic"]),
            ("//! A.\n#[napi(getter)]\n#[inline]\npub fn f() {}",               &["napi panic"]),
            ("//! A.\n#[napi(catch_unwind)]\npub fn f() {}",                    &[]),
            ("//! A.\n#[napi]\npub async fn f() {}",                            &[]),
            ("//! A.\n#[napi]\nimpl A { #[napi(catch_unwind)]\nfn f() {} }",    &[]),
        ];
        for (text, want) in table {
            assert_eq!(rules(text), *want, "{}", &text[..text.len().min(120)]);
        }
    }

    #[test]
    fn texts() {
        let host = registry_hosts().remove(0);
        #[rustfmt::skip]
        let table = [
            ("a.md",              format!("see {host}"),                      1),
            ("a.md",              "see the registry".to_owned(),              0),
            ("package-lock.json", "{\"resolved\": \"x\"}".to_owned(),         1),
            ("js/a.js",           "const a = 1".to_owned(),                   1),
            ("js/a.js",           "/** A. */\nconst a = 1".to_owned(),        0),
            ("js/a.js",           "#!/usr/bin/env node\n/** A. */".to_owned(), 0),
            ("a.test.mjs",        format!("/** A. */\ntest.{}('x')", "only"), 1),
            ("a.test.mjs",        "/** A. */\nunit.skip('x')".to_owned(),     0),
        ];
        for (name, text, want) in table {
            assert_eq!(text_faults(name, &text).len(), want, "{name}: {text}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(screaming("PayloadTooLarge"), "PAYLOAD_TOO_LARGE");
        assert_eq!(table_keys("[a]\nx = 1\ny-z = { b = 2 }\n[b]\nw = 3", "a"), ["x", "y-z"]);
    }
}
