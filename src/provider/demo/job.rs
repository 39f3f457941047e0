//! What the script does next, decided from the messages alone.

use serde_json::{Map, Value, json};

use super::Step;
use super::repair::{Change, changes};
use super::report::{Report, read};
use crate::model::ModelRequest;
use crate::protocol::{Message, Part, PromptContent, ToolCallRequest};

/// Changes that are tried before it gives up.
const ATTEMPTS_MAX: usize = 16;
/// The tools of the job.
const TOOLS: [&str; 7] = ["fs_list", "fs_read", "fs_grep", "fs_edit", "bash", "git_diff", "git_commit"];
/// Lines of a program's output that are repeated.
const SHOWN_LINES_MAX: usize = 12;

const WHAT_I_AM: &str = "I am `demo/scripted`, the built-in scripted model: no language model, but a small fixed \
    program whose replies are computed from what the tools return.";

/// The next step of the turn that the messages end with.
pub(super) fn next_step(request: &ModelRequest) -> Step {
    let (prompt, rest) = this_turn(&request.messages);
    let seen = Seen::of(rest);
    let has = |name: &str| request.tools.iter().any(|tool| tool.name == name);
    if !is_job(&prompt) {
        return introduce(&seen, has("fs_list"));
    }
    let missing: Vec<&str> = TOOLS.into_iter().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        return done(format!("{WHAT_I_AM} For this job I need the tools {}, which are not here.", missing.join(", ")));
    }
    seen.next()
}

/// The prompt of the newest turn, and what came after it.
///
/// A message of the user begins a turn unless it came between tool results and the next reply: then it is a
/// word from the side, and the job goes on.
fn this_turn(messages: &[Message]) -> (String, &[Message]) {
    let mut start = None;
    for (at, message) in messages.iter().enumerate() {
        let Message::User(parts) = message else { continue };
        let aside = match at.checked_sub(1).and_then(|before| messages.get(before)) {
            Some(Message::ToolResult { output, is_error, .. }) => !(*is_error && output.ends_with(": aborted")),
            Some(Message::User(_)) => start.is_some(),
            Some(Message::Assistant { .. }) | None => false,
        };
        if !aside || start.is_none() || is_job(&words(parts)) {
            start = Some(at);
        }
    }
    match start {
        Some(at) => {
            let Message::User(parts) = &messages[at] else { return (String::new(), &[]) };
            (words(parts), &messages[at + 1..])
        }
        None => (String::new(), messages),
    }
}

fn words(parts: &[Part]) -> String {
    PromptContent::Parts(parts.to_vec()).text()
}

fn is_job(prompt: &str) -> bool {
    let prompt = prompt.to_lowercase();
    prompt.contains("test") && ["fail", "pass", "fix", "repair", "correct", "broken"].iter().any(|w| prompt.contains(w))
}

fn introduce(seen: &Seen<'_>, can_list: bool) -> Step {
    let about = format!(
        "{WHAT_I_AM} I know one job: to make a failing test of a small Node project pass (say \"make the failing \
         test pass\"). For anything else, configure a real model: set OPENAI_API_KEY, or OPENAI_BASE_URL for another \
         server that speaks the same protocol, and choose it with --model openai/NAME."
    );
    match (seen.list, &seen.failure) {
        (None, None) if can_list => call(
            format!("{about} To show that the tools are real, I look at the working directory."),
            "fs_list",
            json!({}),
        ),
        (None, Some((_, output))) => done(format!("I could not look at the working directory: {output}")),
        (None, None) => done(about),
        (Some(list), _) => {
            let entries = list.lines().filter_map(|line| line.strip_prefix("d ").or_else(|| line.strip_prefix("f ")));
            let names: Vec<&str> = entries.collect();
            let shown = names[..names.len().min(8)].join(", ");
            done(match names.len() {
                0 => "It is empty. That is all that I can do here.".into(),
                1 => format!("There is one entry in it: {shown}. That is all that I can do here."),
                count => format!("There are {count} entries in it, such as {shown}. That is all that I can do here."),
            })
        }
    }
}

/// What the tools returned in this turn.
#[derive(Default)]
struct Seen<'m> {
    list: Option<&'m str>,
    package: Option<&'m str>,
    test_source: Option<&'m str>,
    grep: Option<&'m str>,
    source: Option<(&'m str, &'m str)>,
    runs: Vec<Report>,
    last_run: &'m str,
    edits: usize,
    diff: Option<&'m str>,
    staged: bool,
    commit: Option<&'m str>,
    /// The first call that failed: its tool and what it said.
    failure: Option<(&'m str, &'m str)>,
}

impl<'m> Seen<'m> {
    fn of(messages: &'m [Message]) -> Self {
        let mut seen = Self::default();
        let calls = messages.iter().filter_map(|message| match message {
            Message::Assistant { calls, .. } => Some(calls),
            Message::User(_) | Message::ToolResult { .. } => None,
        });
        for call in calls.flatten() {
            let result = messages.iter().find_map(|message| match message {
                Message::ToolResult { call_id, output, is_error, .. } if *call_id == call.id => {
                    Some((output, *is_error))
                }
                Message::ToolResult { .. } | Message::User(_) | Message::Assistant { .. } => None,
            });
            match result {
                Some((output, false)) => seen.take(call, output),
                Some((output, true)) => seen.failure = seen.failure.or(Some((&call.name, output))),
                None => {}
            }
        }
        seen
    }

    fn take(&mut self, call: &'m ToolCallRequest, output: &'m str) {
        let argument = |name: &str| call.arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        match call.name.as_str() {
            "fs_list" => self.list = Some(output),
            "fs_read" if argument("path") == "package.json" => self.package = Some(output),
            "fs_read" if self.grep.is_none() => self.test_source = Some(output),
            "fs_read" => self.source = Some((argument("path"), output)),
            "fs_grep" => self.grep = Some(output),
            "fs_edit" => self.edits += 1,
            "bash" if argument("command").starts_with("git add") => self.staged = true,
            "bash" => {
                self.runs.push(read(output));
                self.last_run = output;
            }
            "git_diff" => self.diff = Some(output),
            "git_commit" => self.commit = Some(output),
            _ => {}
        }
    }

    fn next(&self) -> Step {
        if let Some((tool, output)) = self.failure {
            let state = if self.edits % 2 == 1 { " A change that I made is still in the files." } else { "" };
            return done(format!("I stop here: {tool} did not do what I asked. It said: {output}{state}"));
        }
        let Some(list) = self.list else {
            let text = format!("{WHAT_I_AM} I know this job. First I look at what is here.");
            return call(text, "fs_list", json!({ "depth": 2 }));
        };
        let Some(package) = self.package else {
            if !list.lines().any(|line| line == "f package.json") {
                return done("I see no package.json here, and Node projects are all that I know.".into());
            }
            return call("A Node project. How are its tests run?".into(), "fs_read", json!({ "path": "package.json" }));
        };
        let command = test_command(package);
        match self.runs.first() {
            None => call(format!("I run the tests with `{command}`."), "bash", json!({ "command": command })),
            Some(first) if first.passed => {
                done(format!("All {} tests pass already. There is nothing to repair.", first.tests))
            }
            Some(first) => self.look(first, list, command),
        }
    }

    /// From the failure to the function behind it.
    fn look(&self, first: &Report, list: &str, command: &str) -> Step {
        let Some(name) = first.failing.first() else {
            return done(format!(
                "The run failed, but names no failing test, so I do not know where to look:\n\n{}",
                tail(self.last_run)
            ));
        };
        let place = first.place.as_ref().and_then(|(path, row)| Some((listed(list, path)?, *row)));
        if let (Some((path, _)), None) = (place, self.test_source) {
            let failing = first.failing.len();
            let text = format!("{failing} of {} tests failed: `{name}`. I read the test.", first.tests);
            return call(text, "fs_read", json!({ "path": path }));
        }
        let names = function_names(name, self.test_source.unwrap_or_default(), place.map_or(1, |(_, row)| row));
        let Some(grep) = self.grep else {
            let any = names.join("|");
            let pattern = format!(r"(function|const|let|var)\s+({any})\b");
            let text = format!("It is about `{}`. Where is that defined?", names.first().map_or("", String::as_str));
            return call(text, "fs_grep", json!({ "pattern": pattern }));
        };
        let Some(definition) = definition(grep, &names) else {
            return done(format!(
                "The test `{name}` fails, and I could not find the function that it is about. Nothing was changed."
            ));
        };
        match self.source {
            None => {
                let text = format!("`{}` stands in {}, line {}.", definition.name, definition.path, definition.line);
                call(text, "fs_read", json!({ "path": definition.path }))
            }
            Some((_, source)) => self.repair(&Case { first, definition, command, test: name }, source),
        }
    }

    /// One small change after the other, and the tests after each.
    fn repair(&self, case: &Case<'_>, source: &str) -> Step {
        let lines: Vec<&str> = source.lines().filter_map(|line| Some(line.split_once('\t')?.1)).collect();
        let Definition { path, line, name } = &case.definition;
        let too_small = case.first.got_and_wanted.is_some_and(|(got, wanted)| got < wanted);
        let mut tries = if *line <= lines.len() { changes(&lines, *line, too_small) } else { Vec::new() };
        tries.truncate(ATTEMPTS_MAX);
        let at = self.edits / 2;
        let clean = self.edits.is_multiple_of(2);
        match tries.get(at) {
            None => done(give_up(case, tries.len(), self.last_run)),
            Some(change) if clean => {
                let text = format!("{} {}", reason(case, at), describe(change, name));
                call(text, "fs_edit", json!({ "path": path, "old_string": change.old, "new_string": change.new }))
            }
            Some(_) if self.runs.len() < at + 2 => {
                call("I run the tests again.".into(), "bash", json!({ "command": case.command }))
            }
            Some(change) if self.runs.last().is_some_and(|run| run.passed) => self.keep(case, change),
            Some(change) => {
                let failing = self.runs.last().and_then(|run| run.failing.first());
                let what = failing.map_or_else(|| "the run fails".to_owned(), |name| format!("`{name}` fails"));
                let text = format!("No: {what} still. That was not it; I put line {} back.", change.line);
                call(text, "fs_edit", json!({ "path": path, "old_string": change.new, "new_string": change.old }))
            }
        }
    }

    /// The tests pass: look at the change, commit it, say what was done.
    fn keep(&self, case: &Case<'_>, change: &Change) -> Step {
        let Definition { path, name, .. } = &case.definition;
        let tests = self.runs.last().map_or(0, |run| run.tests);
        let (from, to) = change.swap;
        if self.diff.is_none() {
            return call(format!("All {tests} tests pass now. This is the whole change:"), "git_diff", json!({}));
        }
        if !self.staged {
            let quoted = path.replace('\'', r"'\''");
            return call("I commit it.".into(), "bash", json!({ "command": format!("git add -- '{quoted}'") }));
        }
        let Some(commit) = self.commit else {
            let message = format!("Fix {name}: use {to} instead of {from}");
            return call(String::new(), "git_commit", json!({ "message": message }));
        };
        let commit = commit.lines().next().unwrap_or_default();
        done(format!(
            "Done. `{name}` in {path} used `{from}` on line {} where `{to}` belongs; the test `{}` told. \
             All {tests} tests pass, and the change is committed: {commit}",
            change.line, case.test,
        ))
    }
}

/// What is known once the function is found.
struct Case<'a> {
    first: &'a Report,
    definition: Definition<'a>,
    command: &'a str,
    test: &'a str,
}

/// Where a function begins.
struct Definition<'a> {
    path: &'a str,
    line: usize,
    name: &'a str,
}

fn reason(case: &Case<'_>, at: usize) -> String {
    match (at, case.first.got_and_wanted) {
        (0, Some((got, wanted))) => {
            let kind = if got < wanted { "too small" } else { "too large" };
            format!("The test wants {wanted} and gets {got}, which is {kind}.")
        }
        (0, None) => "The test says only that the result is wrong.".into(),
        (at, _) => format!("Attempt {}:", at + 1),
    }
}

fn describe(change: &Change, name: &str) -> String {
    let (from, to) = change.swap;
    format!("In `{name}`, line {}, I try `{to}` in place of `{from}`.", change.line)
}

fn give_up(case: &Case<'_>, tried: usize, last_run: &str) -> String {
    let Definition { path, name, .. } = &case.definition;
    if tried == 0 {
        return format!(
            "The test `{}` fails. I read `{name}` in {path} and know no small change to try there. Nothing was changed.",
            case.test
        );
    }
    format!(
        "I could not make it pass: the test `{}` still fails. I tried {tried} small changes of `{name}` in {path} and put \
         each of them back, so the files are as they were and nothing is committed. The last run ended with:\n\n{}",
        case.test,
        tail(last_run)
    )
}

/// The command behind `npm test`, run directly when it is Node itself.
fn test_command(package: &str) -> &'static str {
    let text: String = package.lines().filter_map(|line| Some(line.split_once('\t')?.1)).collect();
    let package: Value = serde_json::from_str(&text).unwrap_or_default();
    match package["scripts"]["test"].as_str() {
        None | Some("node --test") => "node --test",
        Some(_) => "npm test --silent",
    }
}

/// The path in a listing that another spelling of it means.
fn listed<'l>(list: &'l str, path: &str) -> Option<&'l str> {
    let files = list.lines().filter_map(|line| line.strip_prefix("f "));
    files.filter(|file| path == *file || path.ends_with(&format!("/{file}"))).max_by_key(|file| file.len())
}

/// Names of functions that a test may be about: first the words of its name, then what it calls.
fn function_names(test_name: &str, test_source: &str, row: usize) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |word: &str| {
        let fits = word.len() > 1 && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if fits && !names.iter().any(|name| name == word) && names.len() < 24 {
            names.push(word.to_owned());
        }
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    test_name.split(|c| !is_word(c)).for_each(&mut add);
    let body = test_source.lines().filter_map(|line| Some(line.split_once('\t')?.1)).skip(row.saturating_sub(1));
    for (at, line) in body.enumerate() {
        // The next test begins: what follows is not about this one.
        if at > 0 && (line.starts_with("test(") || line.starts_with("it(")) {
            break;
        }
        for (end, _) in line.match_indices('(') {
            let start = line[..end].rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
            if !line[..start].ends_with('.') && !matches!(&line[start..end], "test" | "it" | "assert" | "describe") {
                add(&line[start..end]);
            }
        }
    }
    names
}

/// The first of `names` that a line of a search, `file:line: text`, defines outside the tests.
fn definition<'g>(grep: &'g str, names: &[String]) -> Option<Definition<'g>> {
    let mut found: Vec<(usize, Definition<'g>)> = Vec::new();
    for row in grep.lines() {
        let Some((path, rest)) = row.split_once(':') else { continue };
        let Some((line, text)) = rest.split_once(": ") else { continue };
        let Ok(line) = line.parse() else { continue };
        if path.starts_with("test") || path.contains(".test.") || path.contains("node_modules/") {
            continue;
        }
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let rank = words.filter_map(|word| Some((names.iter().position(|name| name == word)?, word))).min();
        if let Some((rank, name)) = rank {
            found.push((rank, Definition { path, line, name }));
        }
    }
    found.into_iter().min_by_key(|(rank, _)| *rank).map(|(_, definition)| definition)
}

fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES_MAX)..].join("\n")
}

fn call(text: String, name: &'static str, arguments: Value) -> Step {
    let arguments: Map<String, Value> = arguments.as_object().cloned().unwrap_or_default();
    Step { text, calls: vec![(name, arguments)] }
}

fn done(text: String) -> Step {
    Step { text, calls: Vec::new() }
}
