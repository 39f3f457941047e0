//! A command line as the floor sees it: with the values that the line itself gives its variables, with its braces
//! spread, and its paths from where it stands by then. Pure.
//!
//! Invariant: nothing is guessed. What is not certain stays as it was written.

use std::borrow::Cow;
use std::path::Path;

use super::super::pattern::by_name;
use super::super::shell::{Line, Part, Spot, UNKNOWN};

/// Values of one variable that are tried, and words that one word may become.
const VALUES_MAX: usize = 16;
/// A line that climbs so many directories further than the working directory is deep has reached the root, wherever a
/// shell in it may stand.
const CLIMB_FURTHER: usize = 4;
/// Programs whose operands are paths that the floor looks at.
const ON_PATHS: [&str; 9] = ["rm", "mv", "find", "chmod", "chown", "chgrp", "chattr", "setfacl", "rsync"];

/// The line with the values of its variables in their place: once for each value that a loop gives one. Empty: it
/// would be the same.
pub(super) fn with_values(command: &str, line: &Line) -> Vec<String> {
    if !command.contains('$') {
        return Vec::new();
    }
    let spelt = spelt(command);
    let mut given: Vec<(&str, Vec<&str>)> = line.loops.iter().map(|(name, all)| (&**name, texts(all))).collect();
    for part in &line.parts {
        for (name, value) in assigned(part) {
            match given.iter_mut().find(|(other, _)| *other == name) {
                // Which of them it is by then depends on what ran.
                Some((_, values)) => values.clear(),
                None => given.push((name, vec![value])),
            }
        }
    }
    given.iter_mut().for_each(|(_, values)| values.retain(|value| is_plain(value)));
    let rounds = given.iter().map(|(_, values)| values.len()).max().unwrap_or(0).clamp(1, VALUES_MAX);
    let value_of = |name: &str, round: usize| match given.iter().find(|(other, _)| *other == name) {
        Some((_, values)) => values.get(round).or(values.last()).copied(),
        None => (name == "HOME").then_some("~"),
    };
    let variants = (0..rounds).map(|round| {
        // A value may name another variable: `a=/; b=$a`.
        let once = replaced(&spelt, |name| value_of(name, round));
        if once.contains('$') { replaced(&once, |name| value_of(name, round)) } else { once }
    });
    variants.filter(|variant| variant != command).collect()
}

fn texts(values: &[String]) -> Vec<&str> {
    values.iter().take(VALUES_MAX).map(String::as_str).collect()
}

/// The variables that a command sets for those behind it.
fn assigned(part: &Part) -> impl Iterator<Item = (&str, &str)> {
    let alone = part.assignments.iter().enumerate().filter(|_| part.words.is_empty());
    let alone = alone.map(|(at, (name, value))| (&**name, part.typed_at(Spot::Value(at)).unwrap_or(value)));
    let sets = matches!(part.program(), Some("export" | "declare" | "local" | "readonly" | "typeset"));
    let by_words = part.words.iter().skip(1).filter(move |_| sets).filter_map(|word| word.split_once('='));
    alone.chain(by_words)
}

/// Whether a value means the same wherever it is put.
fn is_plain(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "_./~+,:@%-* $".contains(c))
}

/// The text with `$'…'` as `'…'`, its escapes taken out, wherever that says something plain.
fn spelt(command: &str) -> String {
    let mut out = String::with_capacity(command.len());
    let mut rest = command;
    while let Some((before, after)) = rest.split_once("$'") {
        let text = after.split_once('\'').and_then(|(text, behind)| Some((unescaped(text)?, behind)));
        let (quoted, behind) = match text.filter(|(text, _)| is_plain(text)) {
            Some((text, behind)) => (format!("'{text}'"), behind),
            None => ("$'".to_owned(), after),
        };
        out.push_str(before);
        out.push_str(&quoted);
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// `\x2f` and `\57` as the characters that they stand for. None: there is something else behind a backslash.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        let (digits, radix, most) = match after.strip_prefix('x') {
            Some(digits) => (digits, 16, 2),
            None => (after, 8, 3),
        };
        let length = digits.chars().take(most).take_while(|c| c.is_digit(radix)).count();
        out.push_str(before);
        out.push(char::from(u8::from_str_radix(&digits[..length], radix).ok().filter(u8::is_ascii)?));
        rest = &digits[length..];
    }
    out.push_str(rest);
    Some(out)
}

/// The text with `$NAME` and `${NAME}` replaced where the value is known, and with what `${NAME:-…}` names for want of one.
fn replaced<'v>(text: &str, value_of: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let braced = after.strip_prefix('{');
        let name_at = braced.unwrap_or(after);
        let length = name_at.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name_at.len());
        let (name, behind) = name_at.split_at(length);
        let tail = match braced {
            // `${x:?}` and its kind are the value where there is one; what cuts it is not followed.
            Some(_) if behind.starts_with(['}', ':', '?', '-', '=']) || name == "HOME" => {
                behind.split_once('}').map(|s| s.1)
            }
            Some(_) => None,
            None => Some(behind),
        };
        let default = behind.trim_start_matches(':').strip_prefix(['-', '=']).filter(|_| braced.is_some());
        let default = default.and_then(|text| text.split_once('}')).map(|(text, _)| text);
        let default = default.filter(|text| !text.is_empty() && is_plain(text) && !text.contains('$'));
        match (value_of(name).or(default), tail) {
            (Some(value), Some(tail)) => {
                out.push_str(value);
                rest = tail;
            }
            (_, _) => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The command with its braces spread (`/{a,b}` is `/a /b`), and globs of which one is all there is in a directory told
/// from other unknown things.
pub(super) fn spread(part: &Part) -> Cow<'_, Part> {
    if part.typed.is_empty() {
        return Cow::Borrowed(part);
    }
    let words = part.words.iter().enumerate().flat_map(|(at, word)| match part.typed_at(Spot::Word(at)) {
        Some(typed) => braces(typed).iter().map(|word| globbed(word)).collect(),
        None => vec![word.clone()],
    });
    Cow::Owned(Part { words: words.collect(), typed: Vec::new(), hides: Vec::new(), ..part.clone() })
}

/// The words that a word with braces becomes.
fn braces(word: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![word.to_owned()];
    while let Some(word) = open.pop() {
        match first_braces(&word) {
            Some((front, choices, back)) if done.len() + open.len() < VALUES_MAX => {
                open.extend(choices.iter().map(|choice| format!("{front}{choice}{back}")));
            }
            Some(_) | None => done.push(word),
        }
    }
    done
}

/// The first `{…,…}` that holds no other one before its end: what stands before, in, and behind it.
fn first_braces(word: &str) -> Option<(&str, Vec<&str>, &str)> {
    let mut from = 0;
    while let Some(close) = word[from..].find('}').map(|at| at + from) {
        if let Some(at) = word[..close].rfind('{')
            && word[at..close].contains(',')
            && !word[..at].ends_with('$')
        {
            return Some((&word[..at], word[at + 1..close].split(',').collect(), &word[close + 1..]));
        }
        from = close + 1;
    }
    None
}

/// A word in which a glob that matches every name is [`UNKNOWN`].
fn globbed(word: &str) -> String {
    let is_all = |name: &str| {
        let stars = name.trim_matches('?');
        let class = name.strip_prefix('[').and_then(|rest| rest.strip_suffix("]*")).is_some_and(|c| !c.contains(']'));
        class || (!stars.is_empty() && stars.chars().all(|c| c == '*'))
    };
    let all = UNKNOWN.to_string();
    word.split('/').map(|name| if is_all(name) { all.as_str() } else { name }).collect::<Vec<_>>().join("/")
}

/// What `xargs` makes of what the command before it in a pipeline names.
pub(super) fn fed(before: Option<&Part>, part: &Part) -> Option<Part> {
    let before = before?;
    if let Some(said) = said(before, part) {
        return Some(said);
    }
    let base = |word: &String, names: &[&str]| word.rsplit('/').next().is_some_and(|name| names.contains(&name));
    let runner = match part.program() {
        Some("xargs" | "parallel") => 0,
        Some("sudo" | "doas" | "env" | "nohup" | "time" | "nice") => {
            part.words.iter().position(|word| base(word, &["xargs", "parallel"]))?
        }
        Some(_) | None => return None,
    };
    let at = part.words[runner..].iter().position(|word| base(word, &ON_PATHS))? + runner;
    let named: Vec<String> = match before.program() {
        Some("echo" | "printf") => before.words[1..].iter().filter(|w| !w.starts_with('-')).cloned().collect(),
        Some("find") if before.words[1..].iter().all(|word| is_everything(word)) => {
            before.words[1..].iter().take_while(|word| !word.starts_with('-')).cloned().collect()
        }
        Some(_) | None => return None,
    };
    // All below is named as well.
    let below = (before.program() == Some("find") && part.words[at..].first().is_some_and(|word| base(word, &["rm"])))
        .then_some("-r");
    let named = named.iter().flat_map(|words| words.split_whitespace().map(|word| word.trim_end_matches("\\n")));
    let words = part.words[at..].iter().map(String::as_str).chain(below).chain(named);
    Some(Part { words: words.map(str::to_owned).collect(), ..Part::default() })
}

/// What a shell does that reads what the command before it says: `reboot` of `echo reboot | sudo sh`.
fn said(before: &Part, part: &Part) -> Option<Part> {
    const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
    let name = |word: &String| word.rsplit('/').next().unwrap_or("").to_owned();
    let is_shell = |word: &String| SHELLS.contains(&&*name(word));
    let runs = |word: &String| is_shell(word) || matches!(&*name(word), "sudo" | "doas" | "-s" | "-e" | "-x" | "-");
    let shell = part.words.iter().any(is_shell) && part.words.iter().all(runs);
    let text = matches!(before.program(), Some("echo" | "printf")).then(|| before.words[1..].join(" "));
    let text = text.filter(|_| shell)?;
    let words = text.trim_end_matches("\\n").split_whitespace().filter(|word| !word.starts_with("-e"));
    Some(Part { words: words.map(str::to_owned).collect(), ..Part::default() })
}

/// Whether a word of `find` leaves nothing out.
fn is_everything(word: &str) -> bool {
    !word.starts_with('-') || matches!(word, "-print" | "-print0" | "-depth" | "-xdev")
}

/// Where a line stands.
#[derive(Debug)]
pub(super) struct Here {
    /// As a path, `~` for a home. None: nobody knows.
    at: Option<String>,
    sure: bool,
    moved: bool,
}

impl Here {
    /// `sure`: the line does start in `directory`. Else it starts there or somewhere below.
    pub(super) fn new(directory: Option<&Path>, sure: bool) -> Self {
        Self { at: directory.map(|path| path.display().to_string()), sure: sure && directory.is_some(), moved: false }
    }

    /// Follows a `cd`.
    pub(super) fn follow(&mut self, part: &Part) {
        if !matches!(part.program(), Some("cd" | "pushd" | "popd" | "chdir")) {
            return;
        }
        let to = part.words.iter().skip(1).find(|word| !word.starts_with('-') || *word == "-");
        let to = match (part.program(), to.map(String::as_str)) {
            (Some("popd"), _) | (_, Some("-")) => None,
            (_, None) => Some("~".to_owned()),
            (_, Some(to)) if to.contains(UNKNOWN) => None,
            (_, Some(to)) if to.starts_with(['/', '~']) => Some(to.to_owned()),
            (_, Some(to)) => match self.climbed(to) {
                Some(path) => Some(path),
                None if self.sure => self.at.as_ref().map(|at| joined(at, to)),
                None => None,
            },
        };
        *self = Self { sure: to.is_some(), moved: true, at: to };
    }

    /// Where it stands, where that is known; else the directory that it started in.
    pub(super) fn or<'d>(&'d self, directory: Option<&'d Path>) -> Option<&'d Path> {
        match &self.at {
            Some(at) if self.moved && at.starts_with('/') => Some(Path::new(at)),
            Some(_) | None => directory,
        }
    }

    /// A command with its relative paths as they lead from here, where that is certain.
    pub(super) fn see<'p>(&self, part: &'p Part) -> Cow<'p, Part> {
        let relative = |word: &str| !word.is_empty() && !word.starts_with(['/', '~', '-']);
        if !part.program().is_some_and(|name| ON_PATHS.contains(&name)) {
            return Cow::Borrowed(part);
        }
        let seen = |word: &String| match &self.at {
            _ if !relative(word) => word.clone(),
            Some(at) if self.sure && (self.moved || climbs(word) > 0) => joined(at, word),
            Some(_) | None => self.climbed(word).unwrap_or_else(|| word.clone()),
        };
        let words = part.words.iter().take(1).cloned().chain(part.words.iter().skip(1).map(seen));
        Cow::Owned(Part { words: words.collect(), ..part.clone() })
    }

    /// A path that climbs to the root from wherever this may be.
    fn climbed(&self, word: &str) -> Option<String> {
        let depth =
            self.at.as_ref().map_or(2 * CLIMB_FURTHER, |at| at.split('/').filter(|name| !name.is_empty()).count());
        (climbs(word) >= depth + CLIMB_FURTHER)
            .then(|| format!("/{}", word.trim_start_matches("./").trim_start_matches("../").trim_start_matches("..")))
    }
}

/// How many directories a path goes up before it names one.
fn climbs(word: &str) -> usize {
    word.split('/').filter(|name| !matches!(*name, "" | ".")).take_while(|name| *name == "..").count()
}

fn joined(at: &str, word: &str) -> String {
    let path = format!("{}/{word}", at.trim_end_matches('/'));
    // By name, where no home has to be known for it.
    if at.starts_with('/') && !path.contains(UNKNOWN) { by_name(Path::new(&path)).display().to_string() } else { path }
}
