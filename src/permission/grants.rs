//! What a client allowed once and for all: for a session, a project, or wherever it works.
//!
//! Narrow on purpose: a yes reaches what was shown. One simple command is granted word for word: granted `npm test`
//! and `git status`, they run again, alone or one after the other; `npm test x` asks. Any other line is
//! granted as it is written and in no other form: with several commands (what stands behind `cd build &&` was not
//! agreed to elsewhere), with something to read (`tee x <<E`), or that nobody can read beforehand. A path is granted as it resolves, for the one tool. A call that has no subject
//! has nothing narrower than its tool.
//!
//! Grants only answer what would be asked: a verdict of deny is looked at first, by who holds them.
//! A command is granted in the directory that it would have started in, and in no other: `make` in `sub` is another program
//! than `make` here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::Subject;
use super::pattern::by_name;
use super::shell::{Line, Part};
use crate::protocol::GrantId;

/// Grants of one reach: a session's, a project's, a client's.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    tools: HashMap<String, Granted>,
}

/// Which grant it was, and until when it holds.
#[derive(Debug, Clone)]
struct Mark {
    id: GrantId,
    ends_at: u64,
    /// Where a command starts. None: where the session works.
    place: Option<PathBuf>,
}

#[derive(Debug, Clone, Default)]
struct Granted {
    everything: Vec<Mark>,
    lines: HashMap<String, Vec<Mark>>,
    parts: HashMap<Part, Vec<Mark>>,
    paths: HashMap<PathBuf, Vec<Mark>>,
}

/// A tool, what it is used on, and where: see [`grant_place`].
pub type Wanted<'a> = (&'a str, &'a Subject, Option<&'a Path>);

/// Where a command starts, as grants know it: relative to the session's working directory where it lies below it, so that
/// what is granted wherever a client works means the same place in each project. None: in the working directory itself.
pub fn grant_place(place: Option<&Path>, working_directory: &Path) -> Option<PathBuf> {
    let place = by_name(&working_directory.join(place?));
    match place.strip_prefix(working_directory) {
        Ok(below) if below.as_os_str().is_empty() => None,
        Ok(below) => Some(below.to_owned()),
        Err(_) => Some(place),
    }
}

impl Grants {
    /// Takes note that a call was allowed for always, or until `ends_at` in milliseconds since 1970.
    ///
    /// A path that does not resolve is not granted.
    pub fn add(&mut self, id: &GrantId, (tool, subject, place): Wanted<'_>, ends_at: Option<u64>) {
        let place = place.map(Path::to_owned);
        let mark = || Mark { id: id.clone(), ends_at: ends_at.unwrap_or(u64::MAX), place: place.clone() };
        let granted = self.tools.entry(tool.to_owned()).or_default();
        match subject {
            Subject::None => granted.everything.push(mark()),
            Subject::Paths(paths) => {
                for path in paths.iter().filter_map(|path| path.resolved.clone()) {
                    granted.paths.entry(path).or_default().push(mark());
                }
            }
            Subject::Command(command) => {
                let mut parts = Line::parse(command).parts;
                match parts.pop() {
                    Some(part) if parts.is_empty() && is_plain(&part) && stands_alone(command) => {
                        granted.parts.entry(part).or_default().push(mark());
                    }
                    Some(_) | None => granted.lines.entry(command.clone()).or_default().push(mark()),
                }
            }
        }
    }

    /// The grant that covers a call in all its parts, all of `books` taken together; the first of them when
    /// it takes several. None: not all of it is granted at `now`.
    pub fn covering(books: &[&Self], (tool, subject, place): Wanted<'_>, now: u64) -> Option<GrantId> {
        let granted: Vec<&Granted> = books.iter().filter_map(|book| book.tools.get(tool)).collect();
        if granted.is_empty() {
            return None;
        }
        let live = |marks: &Vec<Mark>| marks.iter().find(|mark| now < mark.ends_at).map(|mark| mark.id.clone());
        let here = |marks: &Vec<Mark>| {
            let counts = |mark: &&Mark| now < mark.ends_at && mark.place.as_deref() == place;
            marks.iter().find(counts).map(|mark| mark.id.clone())
        };
        match subject {
            Subject::None => granted.iter().find_map(|g| live(&g.everything)),
            Subject::Paths(paths) => all(paths, |path| {
                let path = path.resolved.as_ref()?;
                granted.iter().find_map(|g| g.paths.get(path).and_then(live))
            }),
            Subject::Command(command) => {
                granted.iter().find_map(|g| g.lines.get(command).and_then(here)).or_else(|| {
                    if !stands_alone(command) {
                        return None;
                    }
                    all(&Line::parse(command).parts, |part| {
                        is_plain(part).then(|| granted.iter().find_map(|g| g.parts.get(part).and_then(here)))?
                    })
                })
            }
        }
    }
}

/// The first answer, when there are some and none is missing.
fn all<T>(things: &[T], find: impl Fn(&T) -> Option<GrantId>) -> Option<GrantId> {
    let found: Option<Vec<GrantId>> = things.iter().map(find).collect();
    found?.into_iter().next()
}

/// Whether the same words mean the same again, and for those behind them.
fn is_plain(part: &Part) -> bool {
    let moves = matches!(part.program(), Some("cd" | "pushd" | "popd" | "chdir" | "exec" | "exit" | "set" | "shopt"));
    !part.opaque && part.spell == 0 && !part.has_unknown() && !moves
}

/// Whether nothing in a line gives one of its commands something to read that is not among its words.
fn stands_alone(command: &str) -> bool {
    !command.contains('<') && !command.replace("||", "").contains('|')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::PathSubject;

    fn add(grants: &mut Grants, tool: &str, subject: &Subject) {
        grants.add(&GrantId::generate(), (tool, subject, None), None);
    }

    fn covers(grants: &Grants, tool: &str, subject: &Subject) -> bool {
        Grants::covering(&[grants], (tool, subject, None), 1).is_some()
    }

    #[test]
    fn grants_end_and_add_up() {
        let command = |c: &str| Subject::Command(c.to_owned());
        let ids = [GrantId::generate(), GrantId::generate()];
        let (mut session, mut project) = (Grants::default(), Grants::default());
        session.add(&ids[0], ("bash", &command("make"), None), Some(10));
        project.add(&ids[1], ("bash", &command("ls"), None), None);
        let books = [&session, &project];
        #[rustfmt::skip]
        let table = [
            ("make", 9, Some(0)), ("make", 10, None), ("ls", 99, Some(1)), ("ls; make", 9, Some(1)), ("ls; make", 10, None),
            ("make; ls", 9, Some(0)), ("make; rm x", 9, None),
        ];
        for (line, now, want) in table {
            let got = Grants::covering(&books, ("bash", &command(line), None), now);
            assert_eq!(got.as_ref(), want.map(|at: usize| &ids[at]), "{line} at {now}");
        }
    }

    #[test]
    fn a_command_is_granted_where_it_would_have_started() {
        let command = |c: &str| Subject::Command(c.to_owned());
        let mut grants = Grants::default();
        let all = [("make", None), ("npm test", Some("sub")), ("ls | wc", Some("/other")), ("cd a && ls", Some("sub"))];
        for (line, place) in all {
            grants.add(&GrantId::generate(), ("bash", &command(line), place.map(Path::new)), None);
        }
        #[rustfmt::skip]
        let table = [
            ("make", None, true), ("make", Some("sub"), false), ("npm test", Some("sub"), true), ("npm test", None, false), ("npm test", Some("sub/x"), false),
            ("npm test; npm test", Some("sub"), true), ("make; npm test", Some("sub"), false), ("make; npm test", None, false), ("ls | wc", Some("/other"), true), ("ls | wc", None, false),
            ("cd a && ls", Some("sub"), true), ("cd a && ls", None, false),
        ];
        for (line, place, want) in table {
            let got = Grants::covering(&[&grants], ("bash", &command(line), place.map(Path::new)), 1);
            assert_eq!(got.is_some(), want, "{line} in {place:?}");
        }
        #[rustfmt::skip]
        let places = [
            (None, None), (Some("/w"), None), (Some("/w/sub"), Some("sub")), (Some("sub"), Some("sub")), (Some("."), None), (Some("sub/../x"), Some("x")), (Some("/w/../o"), Some("/o")), (Some("/o"), Some("/o")), (Some(".."), Some("/")),
        ];
        for (place, want) in places {
            let got = grant_place(place.map(Path::new), Path::new("/w"));
            assert_eq!(got.as_deref(), want.map(Path::new), "{place:?}");
        }
    }

    #[test]
    fn a_command_is_granted_word_for_word() {
        let command = |c: &str| Subject::Command(c.to_owned());
        let mut grants = Grants::default();
        let whole = [
            "mkdir -p b && cd b && rm -rf o",
            "test -f x && echo no",
            "tee t <<E\nx\nE",
            "psql db < a.sql",
            "cat a | psql",
            "cd sub",
        ];
        for line in
            ["npm test", "git status", "sudo ls", "echo $HOME", "X=1 make", "git log > out"].into_iter().chain(whole)
        {
            assert!(!covers(&grants, "bash", &command(line)), "{line}");
            add(&mut grants, "bash", &command(line));
        }
        #[rustfmt::skip]
        let table = [
            ("npm test && git status", true), ("git status; npm  'test'", true), ("npm test", true), ("sudo ls", true),
            ("echo $HOME", true), ("X=1 make", true), ("git log > out", true), ("X=1 make; npm test", true), ("npm test || git status", true),
            ("X=1 make | npm test", false), ("cd sub && npm test", false), ("cd sub", true), ("mkdir -p b && cd b && rm -rf o", true), ("rm -rf o", false),
            ("mkdir -p b", false), ("test -f x || echo no", false), ("echo no", false), ("tee t <<E\nx\nE", true), ("tee t <<E\ny\nE", false), ("tee t", false),
            ("psql db < a.sql", true), ("psql db < b.sql", false), ("psql db", false), ("psql", false), ("cat a", false), ("npm test <<< x", false),
            ("npm test x", false), ("npm", false), ("npm test; rm x", false), ("sudo  ls", false), ("ls", false),
            ("echo $HOME; npm test", false), ("make", false), ("X=2 make", false), ("git log", false),
            ("git log > other", false), ("npm test $(rm x)", false), ("npm \"test git\" status", false), ("", false),
        ];
        for (line, want) in table {
            assert_eq!(covers(&grants, "bash", &command(line)), want, "{line}");
        }
        assert!(!covers(&grants, "other", &command("npm test")));
    }

    #[test]
    fn a_path_is_granted_as_it_resolves() {
        let paths = |all: &[(&str, Option<&str>)]| {
            let one = |(given, resolved): &(&str, Option<&str>)| PathSubject {
                below: false,
                given: (*given).to_owned(),
                resolved: resolved.map(PathBuf::from),
            };
            Subject::Paths(all.iter().map(one).collect())
        };
        let mut grants = Grants::default();
        add(&mut grants, "fs_write", &paths(&[("a", Some("/w/a")), ("lost", None)]));
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
            assert_eq!(covers(&grants, tool, &paths(all)), want, "{tool} {all:?}");
        }
        assert!(!covers(&grants, "fs_write", &Subject::None));
        add(&mut grants, "custom", &Subject::None);
        assert!(covers(&grants, "custom", &Subject::None));
    }
}
