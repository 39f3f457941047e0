//! What a client allowed once and for all, for as long as a session lives.
//!
//! Narrow on purpose. Of a command line, each simple command in it is granted, word for word: granted
//! `npm test && git status`, both run again, alone or together with other granted ones; `npm test x` asks.
//! A line that cannot be read, or whose words only the shell will know, is granted as it is written and in
//! no other form. A path is granted as it resolves, for the one tool. A call that has no subject
//! has nothing narrower than its tool.
//!
//! Grants only answer what would be asked: a verdict of deny is looked at first, by who holds them.
//! They know nothing of the directory that a command runs in.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::Subject;
use super::shell::{Line, Part};

/// The grants of one session.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    tools: HashMap<String, Granted>,
}

#[derive(Debug, Clone, Default)]
struct Granted {
    everything: bool,
    lines: HashSet<String>,
    parts: HashSet<Part>,
    paths: HashSet<PathBuf>,
}

impl Grants {
    /// Takes note that a call was allowed for always.
    ///
    /// A path that does not resolve is not granted.
    pub fn add(&mut self, tool: &str, subject: &Subject) {
        let granted = self.tools.entry(tool.to_owned()).or_default();
        match subject {
            Subject::None => granted.everything = true,
            Subject::Paths(paths) => granted.paths.extend(paths.iter().filter_map(|path| path.resolved.clone())),
            Subject::Command(command) => {
                let parts = Line::parse(command).parts;
                if !parts.is_empty() && parts.iter().all(is_plain) {
                    granted.parts.extend(parts);
                } else {
                    granted.lines.insert(command.clone());
                }
            }
        }
    }

    /// Whether a call was granted in all its parts.
    pub fn covers(&self, tool: &str, subject: &Subject) -> bool {
        let Some(granted) = self.tools.get(tool) else { return false };
        match subject {
            Subject::None => granted.everything,
            Subject::Paths(paths) => {
                !paths.is_empty()
                    && paths.iter().all(|path| path.resolved.as_ref().is_some_and(|p| granted.paths.contains(p)))
            }
            Subject::Command(command) => {
                granted.lines.contains(command) || {
                    let parts = Line::parse(command).parts;
                    !parts.is_empty() && parts.iter().all(|part| is_plain(part) && granted.parts.contains(part))
                }
            }
        }
    }
}

/// Whether the same words mean the same again.
fn is_plain(part: &Part) -> bool {
    !part.opaque && !part.has_unknown()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::PathSubject;

    #[test]
    fn a_command_is_granted_word_for_word() {
        let command = |c: &str| Subject::Command(c.to_owned());
        let mut grants = Grants::default();
        for line in ["npm test && git status", "sudo ls", "echo $HOME", "X=1 make", "git log > out"] {
            assert!(!grants.covers("bash", &command(line)), "{line}");
            grants.add("bash", &command(line));
        }
        #[rustfmt::skip]
        let table = [
            ("npm test && git status", true), ("git status; npm  'test'", true), ("npm test", true), ("sudo ls", true),
            ("echo $HOME", true), ("X=1 make", true), ("git log > out", true), ("X=1 make | npm test", true),
            ("npm test x", false), ("npm", false), ("npm test; rm x", false), ("sudo  ls", false), ("ls", false),
            ("echo $HOME; npm test", false), ("make", false), ("X=2 make", false), ("git log", false),
            ("git log > other", false), ("npm test $(rm x)", false), ("npm \"test git\" status", false), ("", false),
        ];
        for (line, want) in table {
            assert_eq!(grants.covers("bash", &command(line)), want, "{line}");
        }
        assert!(!grants.covers("other", &command("npm test")));
    }

    #[test]
    fn a_path_is_granted_as_it_resolves() {
        let paths = |all: &[(&str, Option<&str>)]| {
            let one = |(given, resolved): &(&str, Option<&str>)| PathSubject {
                given: (*given).to_owned(),
                resolved: resolved.map(PathBuf::from),
            };
            Subject::Paths(all.iter().map(one).collect())
        };
        let mut grants = Grants::default();
        grants.add("fs_write", &paths(&[("a", Some("/w/a")), ("lost", None)]));
        #[rustfmt::skip]
        let table: [(&str, &[(&str, Option<&str>)], bool); 7] = [
            ("fs_write", &[("a", Some("/w/a"))], true),
            ("fs_write", &[("./x/../a", Some("/w/a"))], true),
            ("fs_write", &[("a", Some("/w/b"))], false),
            ("fs_write", &[("a", Some("/w/a")), ("b", Some("/w/b"))], false),
            ("fs_write", &[("lost", None)], false),
            ("fs_write", &[], false),
            ("fs_edit", &[("a", Some("/w/a"))], false),
        ];
        for (tool, all, want) in table {
            assert_eq!(grants.covers(tool, &paths(all)), want, "{tool} {all:?}");
        }
        assert!(!grants.covers("fs_write", &Subject::None));
        grants.add("custom", &Subject::None);
        assert!(grants.covers("custom", &Subject::None));
    }
}
