//! Walks a parsed command line and collects its simple commands.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ast::{
    self, Assignment, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem, CompoundCommand,
    CompoundList, IoFileRedirectKind, IoFileRedirectTarget, IoRedirect, Pipeline, RedirectList, SimpleCommand,
};
use brush_parser::{Parser, ParserImpl, ParserOptions};

use super::launch::{is_shell, runs_input};
use super::word::{Reading, read, read_document};
use super::{Line, Part, Redirect, Spot, UNKNOWN};

/// No extended globs: what they mean is a setting of the shell.
pub(super) const OPTIONS: ParserOptions = ParserOptions {
    enable_extended_globbing: false,
    posix_mode: false,
    sh_mode: false,
    tilde_expansion_at_word_start: true,
    tilde_expansion_after_colon: false,
    parser_impl: ParserImpl::Peg,
};

/// The parser goes as deep as the line is nested. More openings than this are not followed.
const OPENINGS_MAX: usize = 60;
/// Where the parser has two ways, and the first leads nowhere, it tries all that is inside twice. More than this is not waited for.
const FORKS_MAX: usize = 12;
const OPENING_WORDS: [&str; 9] = ["if", "while", "until", "for", "case", "do", "then", "else", "function"];

/// Writing there changes nothing.
const HARMLESS_TARGETS: [&str; 5] = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"];

/// Takes a line apart that is not plain.
pub(super) fn parse(command: &str, depth: usize) -> Line {
    // Where `$'\''` ends, shells disagree: for some it is a quote in a quote, for others the end of one.
    let ends_twice = command.contains("$'") && command.contains("\\'");
    let misread = has_empty_tag(command) || has_document_in_doubt(command);
    let too_deep = openings(command) > OPENINGS_MAX || forks(command) > FORKS_MAX;
    if command.contains('\0') || ends_twice || too_deep || misread {
        return Line::unreadable(command);
    }
    let program = guarded(|| Parser::new(command.as_bytes(), &OPTIONS).parse_program().ok());
    let Some(program) = program else { return Line::unreadable(command) };
    let mut walk = Walk { line: Line::default(), depth };
    program.complete_commands.iter().for_each(|list| walk.list(list));
    walk.line
}

/// The parser is not ours: should it panic, the line is unreadable.
pub(super) fn guarded<T>(parse: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(parse)).ok().flatten()
}

/// No less than how deep the line can be nested.
fn openings(command: &str) -> usize {
    let signs = command.bytes().filter(|b| matches!(b, b'(' | b'{' | b'`' | b'!')).count();
    let words = command.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| OPENING_WORDS.contains(word)).count();
    signs + words
}

/// How often the parser may go two ways: `((`, twice over, and `case`.
fn forks(command: &str) -> usize {
    let doubled = command.as_bytes().windows(2).filter(|two| two == b"((").count();
    let cases = command.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| *word == "case").count();
    2 * doubled + cases
}

/// The words of a `[[ … ]]` that compares texts or looks at a file, written so plainly that a shell that takes `[[` for a
/// program reads the same. Numbers are not compared: what a variable holds would be evaluated.
fn plain_test(text: &str) -> Option<Vec<String>> {
    const OPERATORS: [&str; 13] = ["-e", "-f", "-d", "-h", "-L", "-s", "-r", "-w", "-x", "-n", "-z", "==", "!="];
    let inner = text.strip_prefix("[[ ")?.strip_suffix(" ]]")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/');
    let mut words = vec!["[[".to_owned()];
    for word in inner.split(' ') {
        let bare = word.strip_prefix('"').and_then(|word| word.strip_suffix('"')).unwrap_or(word);
        let name = bare.strip_prefix('$').filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        let known = OPERATORS.contains(&word) || (!bare.is_empty() && bare.chars().all(is_plain));
        words.push(if known { bare.to_owned() } else { name.map(|_| UNKNOWN.to_string())? });
    }
    words.push("]]".to_owned());
    (words.len() <= 5).then_some(words)
}

/// What stands behind each `<<` of a line that may begin a here-document. A `<<` of another kind may be taken for one; three
/// of them are a here-string, as often as there are three.
fn documents(command: &str) -> impl Iterator<Item = &str> {
    let mut rest = command;
    std::iter::from_fn(move || {
        while let Some(at) = rest.find('<') {
            let after = rest[at..].trim_start_matches('<');
            let is_document = (rest.len() - at - after.len()) % 3 == 2;
            rest = after;
            if is_document {
                return Some(after);
            }
        }
        None
    })
}

/// Whether a here-document's end may be marked by nothing (`<<""`): the parser reads such a one without end, and takes all
/// memory for it.
fn has_empty_tag(command: &str) -> bool {
    documents(command).any(|after| is_empty_tag(after.strip_prefix('-').unwrap_or(after)))
}

/// Whether there is a here-document that the parser may lose, or read without end: behind `((`, which may begin an arithmetic
/// command or two subshells, and in a substitution that ends in the line in which the document is announced.
fn has_document_in_doubt(command: &str) -> bool {
    if !command.contains("<<") {
        return false;
    }
    let joined = command.replace("\\\n", "");
    if joined.starts_with("((") || joined.as_bytes().windows(3).any(|three| &three[1..] == b"((" && three[0] != b'$') {
        return true;
    }
    let nested = ["$(", "${", "`", "<(", ">("].iter().any(|opening| joined.contains(opening));
    let ends_early = |after: &str| after.split_once('\n').is_none_or(|(line, _)| line.contains([')', '`', '}']));
    nested && documents(&joined).any(ends_early)
}

fn is_empty_tag(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '\t']);
    let end = text.find([' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')']).unwrap_or(text.len());
    text[..end].chars().all(|c| c.is_ascii_whitespace() || matches!(c, '\'' | '"' | '\\'))
}

struct Walk {
    line: Line,
    depth: usize,
}

impl Walk {
    fn list(&mut self, list: &CompoundList) {
        for item in &list.0 {
            self.pipeline(&item.0.first);
            for next in &item.0.additional {
                match next {
                    ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) => self.pipeline(pipeline),
                }
            }
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline) {
        let before = self.line.parts.len();
        pipeline.seq.iter().for_each(|command| self.command(command));
        if pipeline.timed.is_some() {
            for part in &mut self.line.parts[before..] {
                part.opaque = true;
                // `time -p -- rm x`: the parser takes what belongs to `time` for the program.
                let own = part.words.iter().take_while(|word| matches!(word.as_str(), "-p" | "--")).count();
                part.words.drain(..own);
                part.typed.clear();
            }
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                self.compound(compound);
                self.redirects(redirects.as_ref());
            }
            Command::Function(function) => {
                let before = self.line.parts.len();
                self.compound(&function.body.0);
                let name = &function.fname.value;
                let calls = self.line.parts[before..].iter().filter(|part| part.words.first() == Some(name)).count();
                self.line.bomb |= calls > 1;
                self.redirects(function.body.1.as_ref());
            }
            Command::ExtendedTest(_, redirects) => {
                let text = command.to_string();
                match plain_test(&text) {
                    Some(words) => self.line.parts.push(Part::of(words)),
                    None => self.unreadable(&text),
                }
                self.redirects(redirects.as_ref());
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.list(&subshell.list),
            CompoundCommand::ForClause(clause) => {
                let values = clause.values.iter().flatten();
                let values = values.map(|value| self.loose_word(value)).filter(|value| !value.contains(UNKNOWN));
                let values = values.collect();
                self.line.loops.push((clause.variable_name.clone(), values));
                // A loop over a variable that other programs look at sets it.
                let name = &clause.variable_name;
                if name.chars().any(|c| c.is_ascii_uppercase()) || name.contains("proxy") {
                    let assignments = vec![(name.clone(), UNKNOWN.to_string())];
                    self.line.parts.push(Part { assignments, ..Part::default() });
                }
                self.list(&clause.body.list);
            }
            CompoundCommand::CaseClause(clause) => {
                self.loose_word(&clause.value);
                for case in &clause.cases {
                    case.patterns.iter().for_each(|pattern| drop(self.loose_word(pattern)));
                    case.cmd.iter().for_each(|list| self.list(list));
                }
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for other in clause.elses.iter().flatten() {
                    other.condition.iter().for_each(|list| self.list(list));
                    self.list(&other.body);
                }
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0);
                self.list(&clause.1.list);
            }
            CompoundCommand::Arithmetic(_)
            | CompoundCommand::ArithmeticForClause(_)
            | CompoundCommand::Coprocess(_) => self.unreadable(&compound.to_string()),
        }
    }

    fn simple(&mut self, simple: &SimpleCommand) {
        let mut part = Part::default();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => self.assignment(assignment, &mut part),
                other => self.item(other, &mut part),
            }
        }
        if let Some(name) = &simple.word_or_name {
            self.word(&name.value, &mut part);
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut part);
        }
        self.line.parts.push(part);
    }

    fn item(&mut self, item: &CommandPrefixOrSuffixItem, part: &mut Part) {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect, part),
            // Behind the program an assignment is an argument like any other.
            CommandPrefixOrSuffixItem::Word(word) | CommandPrefixOrSuffixItem::AssignmentWord(_, word) => {
                self.word(&word.value, part);
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                self.list(&subshell.list);
                part.words.push(UNKNOWN.to_string());
                part.opaque = true;
            }
        }
    }

    fn word(&mut self, raw: &str, part: &mut Part) {
        let reading = read(raw, self.depth);
        if reading.apart {
            part.apart.push(part.words.len());
        }
        let text = self.keep(reading, Some(Spot::Word(part.words.len())), part);
        part.words.push(text);
    }

    /// A word that belongs to no command of its own.
    fn loose_word(&mut self, word: &ast::Word) -> String {
        let reading = read(&word.value, self.depth);
        self.line.take(reading.inner);
        reading.text
    }

    /// Takes over what a word runs, and how it stands at its place in the command; its text is left.
    fn keep(&mut self, reading: Reading, spot: Option<Spot>, part: &mut Part) -> String {
        part.opaque |= reading.opaque;
        part.typed.extend(spot.zip(reading.typed));
        self.line.take(reading.inner);
        reading.text
    }

    fn assignment(&mut self, assignment: &Assignment, part: &mut Part) {
        match (&assignment.name, &assignment.value) {
            (AssignmentName::VariableName(name), AssignmentValue::Scalar(word)) => {
                let reading = read(&word.value, self.depth);
                let spot = Some(Spot::Value(part.assignments.len())).filter(|_| !assignment.append);
                let value = self.keep(reading, spot, part);
                let value = if assignment.append { UNKNOWN.to_string() } else { value };
                part.assignments.push((name.clone(), value));
            }
            (AssignmentName::VariableName(_) | AssignmentName::ArrayElementName(..), _) => {
                part.opaque = true;
                part.assignments.push((assignment.name.to_string(), UNKNOWN.to_string()));
                self.unreadable(&assignment.to_string());
            }
        }
    }

    /// Redirections of a whole group: a part of their own.
    fn redirects(&mut self, redirects: Option<&RedirectList>) {
        let mut part = Part::default();
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect, &mut part);
        }
        if !part.redirects.is_empty() || part.opaque {
            self.line.parts.push(part);
        } else if let Some(last) = self.line.parts.last_mut() {
            // What a group is given to read, its commands read.
            last.reads.append(&mut part.reads);
        }
    }

    fn redirect(&mut self, redirect: &IoRedirect, part: &mut Part) {
        match redirect {
            IoRedirect::File(number, kind, target) => self.file_redirect(*number, kind, target, part),
            IoRedirect::OutputAndError(word, append) => {
                self.writes(if *append { "&>>" } else { "&>" }.to_owned(), &word.value, part);
            }
            IoRedirect::HereString(_, word) => {
                let reading = read(&word.value, self.depth);
                let text = self.keep(reading, None, part);
                self.input(&text, part);
            }
            IoRedirect::HereDocument(_, document) => {
                let raw = &document.doc.value;
                let mut text = raw.clone();
                if document.requires_expansion {
                    // A line joined to the next may end the document for one shell and not for another.
                    if raw.contains("\\\n") {
                        self.unreadable(raw);
                    }
                    let reading = read_document(raw, self.depth);
                    text = self.keep(reading, None, part);
                }
                self.input(&text, part);
            }
        }
    }

    /// What a program gets to read may be commands, if the program is a shell.
    fn input(&mut self, text: &str, part: &mut Part) {
        if runs_input(part) {
            // Only of a shell's own language can all be known.
            part.fed = part.program().is_some_and(is_shell) && !text.contains(UNKNOWN);
            let inner = if !part.fed {
                Line::unreadable(text)
            } else if self.depth < super::DEPTH_MAX {
                Line::parse_at(text, self.depth + 1)
            } else {
                Line::unreadable(text)
            };
            if part.fed {
                self.line.inner.extend(inner.parts.iter().chain(&inner.inner).cloned());
            }
            self.line.shadows.extend(inner.hidden());
        }
    }

    fn file_redirect(
        &mut self,
        number: Option<i32>,
        kind: &IoFileRedirectKind,
        target: &IoFileRedirectTarget,
        part: &mut Part,
    ) {
        let operator = match kind {
            IoFileRedirectKind::Read => "<",
            IoFileRedirectKind::Write => ">",
            IoFileRedirectKind::Clobber => ">|",
            IoFileRedirectKind::Append => ">>",
            IoFileRedirectKind::ReadAndWrite => "<>",
            IoFileRedirectKind::DuplicateInput => "<&",
            IoFileRedirectKind::DuplicateOutput => ">&",
        };
        let numbered = number.map_or_else(|| operator.to_owned(), |n| format!("{n}{operator}"));
        let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        match target {
            IoFileRedirectTarget::Fd(_) => {}
            IoFileRedirectTarget::Duplicate(word) if is_number(&word.value) => {}
            IoFileRedirectTarget::Filename(word) | IoFileRedirectTarget::Duplicate(word) if operator == "<" => {
                let reading = read(&word.value, self.depth);
                let typed = reading.typed.clone();
                let target = self.keep(reading, None, part);
                // A file that is read is like an argument; a connection, or who knows what, is not.
                if target.contains(UNKNOWN) || target.starts_with("/dev/tcp/") || target.starts_with("/dev/udp/") {
                    part.typed.extend(Some(Spot::Target(part.redirects.len())).zip(typed));
                    part.redirects.push(Redirect { operator: numbered, target });
                } else {
                    part.reads.push(target);
                }
            }
            IoFileRedirectTarget::Filename(word) | IoFileRedirectTarget::Duplicate(word) => {
                self.writes(numbered, &word.value, part);
            }
            IoFileRedirectTarget::ProcessSubstitution(_, subshell) => {
                self.list(&subshell.list);
                part.opaque = true;
            }
        }
    }

    fn writes(&mut self, operator: String, raw: &str, part: &mut Part) {
        let reading = read(raw, self.depth);
        let typed = reading.typed.clone();
        let target = self.keep(reading, None, part);
        if !HARMLESS_TARGETS.contains(&target.as_str()) {
            part.typed.extend(Some(Spot::Target(part.redirects.len())).zip(typed));
            part.redirects.push(Redirect { operator, target });
        }
    }

    fn unreadable(&mut self, text: &str) {
        self.line.take(Line::unreadable(text));
    }
}
