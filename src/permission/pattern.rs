//! One rule's pattern, held against a simple command or a path.

use std::path::{Component, Path, PathBuf};

use super::PathSubject;
use super::shell::{GIT_VALUE_OPTIONS, Part, Redirect, Spot, UNKNOWN};
use crate::base::glob;

/// More files than this that one command is given to read are not all held against a rule together, but each alone.
const READS_MAX: usize = 2;

/// A pattern, taken apart once.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    raw: String,
    /// What every match of the whole begins with, blanks at its end left out.
    front: String,
    /// `git` of `git *`: it matches the bare command too.
    bare: Option<String>,
    /// Assignments that it names in front.
    assignments: Vec<(String, String)>,
    /// Without the assignments and the redirections.
    command: String,
    command_front: String,
    command_bare: Option<String>,
    /// Redirections that it names at the end.
    redirects: Vec<Redirect>,
}

/// How sure it is that a rule is about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hit {
    No,
    /// It depends on what only the shell will know.
    Possible,
    Certain,
}

/// A command in every spelling that a deny rule may mean.
#[derive(Debug)]
pub(super) struct Judged<'a> {
    part: &'a Part,
    text: String,
    /// As it stands in the line, when not all of it is known.
    typed: Option<String>,
    forms: Vec<String>,
    has_unknown: bool,
    /// The heads of its forms; None: only the shell will know one of them.
    heads: Option<Vec<Head>>,
}

/// The first word of a pattern or a command, as a number; 0: it is not known beforehand. Nearly all rules are about
/// another program, and this tells so without looking at their texts.
pub(super) type Head = u64;

fn head_of(text: &str) -> Head {
    let word = text.split(' ').next().unwrap_or("");
    if word.is_empty() || word.contains(['*', '?']) {
        return 0;
    }
    // FNV-1a. That two words have one number costs a look at the texts, and no more.
    let hash =
        word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    hash.max(1)
}

impl<'a> Judged<'a> {
    pub(super) fn new(part: &'a Part) -> Self {
        let text = part.text();
        let mut forms = vec![text.clone()];
        if let (Some(name), Some(first)) = (part.program(), part.words.first()) {
            let mut words = vec![name];
            words.extend(part.words[1..].iter().map(String::as_str));
            if first != name {
                forms.push(words.join(" "));
            }
            if let Some(rest) = (name == "git").then(|| without_git_options(&words)).filter(|r| r.len() < words.len()) {
                forms.push(rest.join(" "));
            }
        }
        // The unknown in `/bin/r?` or `.$X` may hold the last slash: then all before it names a directory.
        if let Some((_, rest)) = text.split_once(UNKNOWN).filter(|_| part.program().is_none()) {
            forms.push(format!("{UNKNOWN}{rest}"));
        }
        if !part.assignments.is_empty() {
            let front: String = part.assignments.iter().map(|(name, value)| format!("{name}={value} ")).collect();
            forms.extend(forms.clone().iter().map(|form| format!("{front}{form}").trim_end().to_owned()));
        }
        for redirect in &part.redirects {
            let plain = if redirect.operator.contains('>') { ">" } else { "<" };
            for form in forms.clone() {
                forms.push(format!("{form} {} {}", redirect.operator, redirect.target));
                if redirect.operator != plain {
                    forms.push(format!("{form} {plain} {}", redirect.target));
                }
            }
            if forms.len() > 64 {
                break;
            }
        }
        let given = forms.len();
        for (at, target) in part.reads.iter().enumerate() {
            let of = if at < READS_MAX { forms.len() } else { given };
            let with = |form: &String| format!("{form} < {target}").trim_start().to_owned();
            forms.extend(forms[..of].iter().map(with).collect::<Vec<_>>());
        }
        let has_unknown = part.has_unknown();
        let hidden = |form: &String| has_unknown && form.split(' ').next().is_some_and(|word| word.contains(UNKNOWN));
        // In a command a `*` is a character like any other.
        let known =
            !forms.iter().any(|form| hidden(form) || form.split(' ').next().is_some_and(|w| w.contains(['*', '?'])));
        let heads = known.then(|| {
            let mut heads: Vec<Head> = forms.iter().map(|form| head_of(form)).collect();
            heads.dedup();
            heads
        });
        Self { part, text, typed: part.typed_text(), forms, has_unknown, heads }
    }

    /// Whether a rule with this head can be about it.
    pub(super) fn may_be(&self, head: Head) -> bool {
        head == 0 || self.heads.as_ref().is_none_or(|heads| heads.contains(&head))
    }
}

impl Pattern {
    pub(super) fn new(pattern: &str) -> Self {
        let mut rest = pattern;
        let mut assignments = Vec::new();
        while let Some((name, value, after)) = leading_assignment(rest) {
            assignments.push((name.to_owned(), value.to_owned()));
            rest = after;
        }
        let (command, redirects) = trailing_redirects(rest);
        let bare = |text: &str| text.strip_suffix(" *").map(str::to_owned);
        Self {
            raw: pattern.to_owned(),
            front: front(pattern),
            bare: bare(pattern),
            assignments,
            command_bare: bare(command),
            command: command.to_owned(),
            command_front: front(command),
            redirects,
        }
    }

    /// The first word of what it matches. `allows`: of the command alone, without assignments in front.
    pub(super) fn head(&self, allows: bool) -> Head {
        head_of(if allows { &self.command } else { &self.raw })
    }

    /// As it was written.
    pub(super) fn raw(&self) -> &str {
        &self.raw
    }

    /// Whether it is about everything.
    pub(super) fn is_everything(pattern: &str) -> bool {
        !pattern.is_empty() && pattern.bytes().all(|b| b == b'*')
    }

    /// Whether an allow rule covers the whole of a command.
    pub(super) fn covers(&self, judged: &Judged<'_>) -> bool {
        let part = judged.part;
        let covered = self.covers_text(judged) || judged.typed.as_ref().is_some_and(|typed| self.covers_typed(typed));
        let in_one = part.typed_at(Spot::Word(0)).is_some_and(|program| program.contains(char::is_whitespace));
        if !covered || in_one || part.opaque || (part.spell > 0 && !self.spells(part)) {
            return false;
        }
        let assigned = self.assignments.len() == part.assignments.len()
            && self.assignments.iter().zip(&part.assignments).enumerate().all(
                |(at, ((name, glob), (given, value)))| {
                    let said = part.typed_at(Spot::Value(at)) == Some(glob);
                    name == given && (said || glob::matches(glob, value))
                },
            );
        assigned && self.covers_redirects(part)
    }

    fn covers_text(&self, judged: &Judged<'_>) -> bool {
        let unknown_program = |program: &String| program.contains(|c: char| c == UNKNOWN || c.is_whitespace());
        judged.text.starts_with(&self.command_front)
            && !judged.part.words.first().is_some_and(unknown_program)
            // `?` stands for one character, an unknown for any number of them.
            && !(judged.has_unknown && self.raw.contains('?'))
            && (glob::matches(&self.command, &judged.text) || self.command_bare.as_ref() == Some(&judged.text))
    }

    /// Whether it says a command as that stands in the line: with the signs by which the shell will know more. At least
    /// the program it has to say in full.
    fn covers_typed(&self, typed: &str) -> bool {
        let front = self.command.split(WILD).next().unwrap_or("");
        let program = typed.split(' ').next().unwrap_or("");
        let said = self.command == typed || front.strip_prefix(program).is_some_and(|rest| rest.starts_with(' '));
        said && (says(&self.command, typed) || self.command_bare.as_deref() == Some(typed))
    }

    /// Whether it says, without a wildcard, what of a command has to be said to cover what that runs.
    fn spells(&self, part: &Part) -> bool {
        let needed = part.words[..part.spell.min(part.words.len())].join(" ");
        if part.spell >= part.words.len() {
            return self.command == needed;
        }
        let front = self.command.split(WILD).next().unwrap_or("");
        front.strip_prefix(&needed).is_some_and(|rest| rest.starts_with(' '))
    }

    fn covers_redirects(&self, part: &Part) -> bool {
        let climbs = |target: &str| Path::new(target).components().any(|c| c == Component::ParentDir);
        self.redirects.len() == part.redirects.len()
            && self.redirects.iter().zip(&part.redirects).enumerate().all(|(at, (named, given))| {
                let said = named.target == given.target || part.typed_at(Spot::Target(at)) == Some(&named.target);
                named.operator == given.operator
                    && (said || (glob::matches(&named.target, &given.target) && !climbs(&given.target)))
            })
    }

    /// Whether a deny or ask rule is about a command.
    pub(super) fn hits(&self, judged: &Judged<'_>) -> Hit {
        // `?` stands for one character, an unknown for none or for many.
        let one = judged.has_unknown && self.raw.contains('?');
        let fits = |form: &String| match one {
            false => glob::matches(&self.raw, form),
            true => {
                ["", "\u{F8FF}\u{F8FF}"].iter().all(|value| glob::matches(&self.raw, &form.replace(UNKNOWN, value)))
            }
        };
        let certain = |form: &String| form.starts_with(&self.front) && (fits(form) || self.bare.as_ref() == Some(form));
        let typed = |typed: &String| says(&self.raw, typed) || self.bare.as_ref() == Some(typed);
        if judged.forms.iter().any(certain) || judged.typed.as_ref().is_some_and(typed) {
            return Hit::Certain;
        }
        // No value of a variable becomes a redirection or an assignment.
        let part = judged.part;
        let elsewhere = (!self.redirects.is_empty() && part.redirects.is_empty())
            || (!self.assignments.is_empty() && part.assignments.is_empty());
        let possible = judged.has_unknown
            && (part.is_unreadable() || !elsewhere)
            && judged.forms.iter().any(|form| could_match(&self.raw, form));
        if possible { Hit::Possible } else { Hit::No }
    }

    /// Whether an allow rule covers a path: as it resolves, absolute or relative to the working directory.
    pub(super) fn covers_path(&self, path: &PathSubject, working_directory: Option<&Path>) -> bool {
        let Some(resolved) = path.resolved.as_deref() else { return false };
        self.is_about(resolved) || self.is_about_relative(resolved, working_directory)
    }

    /// Whether a deny or ask rule is about a path: as given, by name, or as it resolves. It may be about something
    /// below a directory.
    pub(super) fn hits_path(&self, path: &PathSubject, working_directory: Option<&Path>) -> Hit {
        let given = Path::new(&path.given);
        let by_name = by_name(given);
        let absolute = working_directory.map(|directory| self::by_name(&directory.join(given)));
        let all = [Some(given), Some(&by_name), absolute.as_deref(), path.resolved.as_deref()];
        let mut all = all.into_iter().flatten();
        if all.clone().any(|p| self.is_about(p) || self.is_about_relative(p, working_directory)) {
            return Hit::Certain;
        }
        let relative = |p: &Path| working_directory.and_then(|d| p.strip_prefix(d).ok()).map(Path::to_owned);
        let may_be =
            path.below && all.any(|p| self.may_be_below(p) || relative(p).is_some_and(|p| self.may_be_below(&p)));
        if may_be { Hit::Possible } else { Hit::No }
    }

    /// Whether it may be about something below a directory. The directory may be the empty path.
    fn may_be_below(&self, directory: &Path) -> bool {
        let pattern = self.raw.strip_prefix("./").unwrap_or(&self.raw);
        let front = pattern.split(['*', '?']).next().unwrap_or("");
        let directory = match directory.to_string_lossy() {
            text if text.is_empty() || text.ends_with('/') => text.into_owned(),
            text => format!("{text}/"),
        };
        let both = front.starts_with(&directory) || directory.starts_with(front);
        both && (front.len() < pattern.len() || front.len() > directory.len())
    }

    fn is_about_relative(&self, path: &Path, working_directory: Option<&Path>) -> bool {
        working_directory.and_then(|directory| path.strip_prefix(directory).ok()).is_some_and(|p| self.is_about(p))
    }

    fn is_about(&self, path: &Path) -> bool {
        glob::matches(self.raw.strip_prefix("./").unwrap_or(&self.raw), &path.to_string_lossy())
    }
}

/// The wildcards.
const WILD: [char; 2] = ['*', '?'];

/// Whether a pattern says a text in which `?` is a sign of the shell's own: there it stands for nothing but itself.
fn says(pattern: &str, typed: &str) -> bool {
    const ITSELF: &str = "\u{F8FE}";
    match (pattern.contains('?'), typed.contains('?')) {
        (false, _) => glob::matches(pattern, typed),
        (true, false) => false,
        (true, true) => glob::matches(&pattern.replace('?', ITSELF), &typed.replace('?', ITSELF)),
    }
}

/// The text before the first wildcard, without blanks at its end.
fn front(pattern: &str) -> String {
    pattern.split(['*', '?']).next().unwrap_or("").trim_end().to_owned()
}

/// `.` and `..` taken out by name.
pub(super) fn by_name(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            // Above the root is the root.
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::RootDir)) => {}
            Component::ParentDir | Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                out.push(component);
            }
        }
    }
    out
}

/// Whether some value of the unknown parts of `text` could make `pattern` match. May say yes too often, never no.
fn could_match(pattern: &str, text: &str) -> bool {
    let Some((front, _)) = text.split_once(UNKNOWN) else { return false };
    let (_, back) = text.rsplit_once(UNKNOWN).unwrap_or(("", ""));
    let wild: &[char] = &['*', '?'];
    let pattern_front = pattern.split(wild).next().unwrap_or("");
    let pattern_back = pattern.rsplit(wild).next().unwrap_or("");
    (pattern_front.starts_with(front) || front.starts_with(pattern_front))
        && (pattern_back.ends_with(back) || back.ends_with(pattern_back))
}

/// `NAME=glob` at the start of a pattern, and what follows it.
fn leading_assignment(pattern: &str) -> Option<(&str, &str, &str)> {
    let (word, rest) = pattern.split_once(' ').unwrap_or((pattern, ""));
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then_some((name, value, rest.trim_start()))
}

/// The redirections at the end of a pattern: ` > out/*`, each an operator and a target with a space between.
fn trailing_redirects(pattern: &str) -> (&str, Vec<Redirect>) {
    let mut redirects = Vec::new();
    let mut command = pattern;
    while let Some((before, target)) = command.trim_end().rsplit_once(' ') {
        let (front, operator) = before.trim_end().rsplit_once(' ').unwrap_or(("", before.trim_end()));
        if !is_redirect(operator) {
            break;
        }
        redirects.insert(0, Redirect { operator: operator.to_owned(), target: target.to_owned() });
        command = front;
    }
    if redirects.is_empty() { (pattern, redirects) } else { (command.trim_end(), redirects) }
}

fn is_redirect(word: &str) -> bool {
    let sign = word.trim_start_matches(|c: char| c.is_ascii_digit());
    matches!(sign, ">" | ">>" | ">|" | "<>" | "<" | "<&" | ">&") || matches!(word, "&>" | "&>>")
}

/// `git push` of `git -C elsewhere --no-pager push`.
fn without_git_options<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let mut at = 1;
    while let Some(option) = words.get(at).filter(|word| word.starts_with('-')) {
        at += if GIT_VALUE_OPTIONS.contains(option) { 2 } else { 1 };
    }
    words[..1].iter().chain(words.get(at..).unwrap_or_default()).copied().collect()
}
