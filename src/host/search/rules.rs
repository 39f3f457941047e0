//! Ignore rules: `.ignore`, `.gitignore` and `.git/info/exclude` of a directory and of all above it, and git's global file.
//!
//! The nearest `.ignore` with an opinion wins; then the nearest `.gitignore` up to the root of the repository; then
//! `info/exclude`; then the global file. They count outside a repository too. A pattern that is no pattern, a line that
//! is not UTF-8, and an ignore file that is a link are as if they were not there.
//!
//! Not here: the exclude file of a linked worktree, which lies in another directory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use super::entries::{Entries, as_path, open_below, open_file};
use crate::base::limit;

/// What the rules say about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Verdict {
    /// It is left out.
    Ignored,
    /// It is named as an exception: it counts even when it is hidden.
    Wanted,
}

/// The patterns of one ignore file.
#[derive(Debug)]
struct Patterns {
    set: Gitignore,
    /// Some can match what is no directory.
    files: bool,
}

impl Patterns {
    /// What stands in a file. The same text is compiled once, as long as it is remembered.
    fn read(file: OwnedFd) -> Option<Arc<Self>> {
        let mut text = Vec::new();
        File::from(file).take(limit::IGNORE_FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        if let Some(known) = COMPILED.lock().find(&text) {
            return known;
        }
        let compiled = Self::parse(&text).map(Arc::new);
        COMPILED.lock().keep(text, compiled.clone());
        compiled
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut builder = GitignoreBuilder::new(".");
        let mut files = false;
        let lines = text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        for line in lines.map(|line| line.strip_suffix('\r').unwrap_or(line)) {
            files |= !line.starts_with('#') && !line.trim_end().is_empty() && !line.trim_end().ends_with('/');
            // What is no pattern matches nothing.
            let _ = builder.add_line(None, line);
        }
        let set = builder.build().ok().filter(|set| !set.is_empty())?;
        Some(Self { set, files })
    }

    /// What it says about a path relative to its directory.
    fn verdict(&self, path: &[u8], directory: bool) -> Option<Verdict> {
        if !directory && !self.files {
            return None;
        }
        match self.set.matched(as_path(path), directory) {
            Match::None => None,
            Match::Ignore(_) => Some(Verdict::Ignored),
            Match::Whitelist(_) => Some(Verdict::Wanted),
        }
    }
}

/// Texts of ignore files, and what they were compiled to: an agent searches the same repository again and again, and to compile
/// the patterns of a long ignore file takes longer than to search a small repository. The file is read each time.
#[derive(Debug, Default)]
struct Compiled {
    /// The one used last at the end.
    known: VecDeque<(Vec<u8>, Option<Arc<Patterns>>)>,
    /// Bytes of all texts.
    bytes: usize,
}

static COMPILED: Mutex<Compiled> = Mutex::new(Compiled { known: VecDeque::new(), bytes: 0 });

impl Compiled {
    /// What a text was compiled to. None when it is not known.
    fn find(&mut self, text: &[u8]) -> Option<Option<Arc<Patterns>>> {
        let at = self.known.iter().rposition(|(known, _)| known == text)?;
        if let Some(found) = self.known.remove(at) {
            self.known.push_back(found);
        }
        self.known.back().map(|(_, compiled)| compiled.clone())
    }

    /// Remembers it, and forgets those that were used the longest ago. A text that is too long is not remembered.
    fn keep(&mut self, text: Vec<u8>, compiled: Option<Arc<Patterns>>) {
        if text.len() > limit::IGNORE_COMPILED_BYTES_MAX || self.known.iter().any(|(known, _)| *known == text) {
            return;
        }
        self.bytes += text.len();
        self.known.push_back((text, compiled));
        while self.bytes > limit::IGNORE_COMPILED_BYTES_MAX || self.known.len() > limit::IGNORE_COMPILED_MAX {
            let Some((oldest, _)) = self.known.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

/// The rules that one directory adds to those above it.
#[derive(Debug, Default)]
pub(in crate::host) struct Rules {
    above: Option<Arc<Rules>>,
    /// Bytes of the directory's absolute path, with a slash at the end.
    prefix: usize,
    ignore: Option<Arc<Patterns>>,
    git: Option<Arc<Patterns>>,
    exclude: Option<Arc<Patterns>>,
    global: Option<Arc<Patterns>>,
    /// It is the root of a repository: the `.gitignore` files above do not count.
    repository: bool,
}

impl Rules {
    /// The rules from above `base`, which is absolute and without links; git's global file is relative to `home`.
    pub(in crate::host) fn above(base: &Path, home: &Path) -> Option<Arc<Self>> {
        let home = if base.starts_with(home) { home } else { base };
        // The user's own file may be a link, as dotfiles are.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let global = gitconfig_excludes_path().and_then(|path| rustix::fs::open(path, flags, Mode::empty()).ok());
        let mut chain = global
            .and_then(Patterns::read)
            .map(|global| Arc::new(Self { global: Some(global), prefix: prefix(home), ..Self::default() }));
        let mut parents: Vec<&Path> = base.ancestors().skip(1).collect();
        parents.reverse();
        for parent in parents {
            let read = |name: &str| Patterns::read(open_file(rustix::fs::CWD, as_bytes(&parent.join(name))).ok()?);
            let repository = rustix::fs::lstat(parent.join(".git")).is_ok();
            let exclude = if repository { read(".git/info/exclude") } else { None };
            let found = Self {
                above: chain.clone(),
                prefix: prefix(parent),
                ignore: read(".ignore"),
                git: read(".gitignore"),
                exclude,
                global: None,
                repository,
            };
            chain = found.or(chain);
        }
        chain
    }

    /// The rules in `directory`, whose absolute path is `prefix` bytes long with its slash, given those above.
    pub(in crate::host) fn within(
        above: Option<&Arc<Self>>,
        directory: BorrowedFd<'_>,
        entries: &Entries,
        prefix: usize,
    ) -> Option<Arc<Self>> {
        let mut found = Self { above: above.cloned(), prefix, ..Self::default() };
        let read = |name: &[u8]| Patterns::read(open_file(directory, name).ok()?);
        for (name, _) in entries.iter().filter(|(name, _)| name.starts_with(b".")) {
            match name {
                b".ignore" => found.ignore = read(name),
                b".gitignore" => found.git = read(name),
                b".git" => {
                    found.repository = true;
                    let info = open_below(directory, b".git/info").ok();
                    found.exclude = info.and_then(|info| Patterns::read(open_file(info.as_fd(), b"exclude").ok()?));
                }
                _ => {}
            }
        }
        found.or(above.cloned())
    }

    /// Itself when it says anything that those above do not.
    fn or(self, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let says = self.ignore.is_some() || self.git.is_some() || self.exclude.is_some();
        // A boundary matters only to rules beyond it.
        let says = says || (self.repository && above.is_some());
        if says { Some(Arc::new(self)) } else { above }
    }

    /// What the rules say about an absolute path directly in this directory.
    pub(in crate::host) fn verdict(&self, path: &[u8], directory: bool) -> Option<Verdict> {
        let ask = |patterns: &Option<Arc<Patterns>>, prefix: usize| {
            patterns.as_ref().and_then(|patterns| patterns.verdict(path.get(prefix..)?, directory))
        };
        let (mut git, mut exclude, mut global) = (None, None, None);
        let mut inside = true;
        let mut next = Some(self);
        while let Some(rules) = next {
            let ignore = ask(&rules.ignore, rules.prefix);
            if ignore.is_some() {
                return ignore;
            }
            if inside {
                git = git.or_else(|| ask(&rules.git, rules.prefix));
                exclude = exclude.or_else(|| ask(&rules.exclude, rules.prefix));
            }
            inside &= !rules.repository;
            global = global.or_else(|| ask(&rules.global, rules.prefix));
            next = rules.above.as_deref();
        }
        git.or(exclude).or(global)
    }
}

fn as_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Bytes of a directory's path, with a slash at the end.
pub(in crate::host) fn prefix(directory: &Path) -> usize {
    let bytes = as_bytes(directory);
    bytes.len() + usize::from(!bytes.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(above: Option<Arc<Rules>>, prefix: &str, files: [&str; 2], repository: bool) -> Arc<Rules> {
        let [ignore, git] = files.map(|text| Patterns::parse(text.as_bytes()).map(Arc::new));
        Arc::new(Rules { above, prefix: prefix.len(), ignore, git, repository, ..Rules::default() })
    }

    #[test]
    fn the_nearest_rule_wins_and_ignore_outranks_gitignore() {
        let top = rules(None, "/r/", ["*.tmp\n!keep.tmp", "*.log\n/only\ndir/\r\n# note\n\n!/w.log"], false);
        let inner = rules(Some(Arc::clone(&top)), "/r/in/", ["", "!a.log\nnew.*"], false);
        let own = rules(Some(Arc::clone(&top)), "/r/own/", ["", "x"], true);
        use Verdict::{Ignored, Wanted};
        #[rustfmt::skip]
        let table: &[(&Arc<Rules>, &str, bool, Option<Verdict>)] = &[
            (&top, "/r/a.log", false, Some(Ignored)), (&top, "/r/w.log", false, Some(Wanted)), (&top, "/r/a.txt", false, None),
            (&top, "/r/only", false, Some(Ignored)), (&inner, "/r/in/only", false, None), (&top, "/r/dir", true, Some(Ignored)),
            (&top, "/r/dir", false, None), (&inner, "/r/in/a.log", false, Some(Wanted)), (&inner, "/r/in/b.log", false, Some(Ignored)),
            (&inner, "/r/in/new.rs", false, Some(Ignored)), (&inner, "/r/in/b.tmp", false, Some(Ignored)),
            (&inner, "/r/in/keep.tmp", false, Some(Wanted)),
            // Beyond the root of a repository only `.ignore` counts.
            (&own, "/r/own/b.log", false, None), (&own, "/r/own/x", true, Some(Ignored)), (&own, "/r/own/b.tmp", false, Some(Ignored)),
        ];
        for (rules, path, directory, want) in table {
            assert_eq!(rules.verdict(path.as_bytes(), *directory), *want, "{path}");
        }
    }

    #[test]
    fn what_is_no_pattern_matches_nothing() {
        assert!(Patterns::parse(b"").is_none());
        assert!(Patterns::parse(b"# only\n\n   \n").is_none());
        let odd = Patterns::parse(b"\xef\xbb\xbfa\n{x\n\xff\nb/\n").unwrap();
        assert_eq!(odd.verdict(b"a", false), Some(Verdict::Ignored));
        assert_eq!(odd.verdict(b"{x", false), None);
        assert!(!Patterns::parse(b"b/\nc/ \n").unwrap().files);
    }
    #[test]
    fn the_same_text_is_compiled_once_and_not_kept_for_ever() {
        let mut compiled = Compiled::default();
        let patterns = |text: &str| Patterns::parse(text.as_bytes()).map(Arc::new);
        compiled.keep(b"a".to_vec(), patterns("a"));
        compiled.keep(b"# none".to_vec(), patterns("# none"));
        let found = compiled.find(b"a").unwrap().unwrap();
        assert_eq!(found.verdict(b"a", false), Some(Verdict::Ignored));
        assert!(compiled.find(b"# none").unwrap().is_none(), "nothing is an answer, too");
        assert!(compiled.find(b"b").is_none());
        compiled.keep(vec![b'x'; limit::IGNORE_COMPILED_BYTES_MAX + 1], None);
        assert_eq!((compiled.known.len(), compiled.bytes), (2, 7), "what is too long is not kept");
        for n in 0..limit::IGNORE_COMPILED_MAX - 1 {
            compiled.keep(n.to_string().into_bytes(), None);
            compiled.find(b"a").unwrap();
        }
        assert!(compiled.find(b"a").is_some() && compiled.find(b"# none").is_none(), "the one not used went first");
        compiled.keep(vec![b'y'; limit::IGNORE_COMPILED_BYTES_MAX], None);
        assert_eq!((compiled.known.len(), compiled.bytes), (1, limit::IGNORE_COMPILED_BYTES_MAX));
    }
}
