//! Instruction files of a project: found, read within bounds, never outside the tree.
//!
//! What cannot be read is left out: a project's texts never keep a turn from running.

use std::cell::OnceCell;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::imports::expand;
use crate::base::limit;

/// Longest file that says which branch is checked out, in bytes.
const BRANCH_BYTES_MAX: usize = 4_096;

/// One instruction file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instructions {
    /// Where it lies, absolute.
    pub path: PathBuf,
    /// What it says; what is longer than the limit is cut, and the cut is said.
    pub content: String,
}

/// What stands before the path of a file whose text a model is told.
const TOLD: &str = "Instructions from ";

impl Instructions {
    /// As a model is told of it.
    pub fn told(&self) -> String {
        format!("{TOLD}{}:\n\n{}", self.path.display(), self.content.trim_end())
    }
}

/// The path of the file that a model is told of by a text. None: it tells of none.
pub fn told_path(text: &str) -> Option<PathBuf> {
    let (path, _) = text.strip_prefix(TOLD)?.split_once(":\n\n")?;
    (!path.contains('\n')).then(|| PathBuf::from(path))
}

/// The branch that is checked out around a directory. None: there is none. Reads one small file. Blocking.
pub fn branch_of(working_directory: &Path) -> Option<String> {
    let git = working_directory.ancestors().map(|d| d.join(".git")).find(|git| git.exists())?;
    let git = if git.is_dir() {
        git
    } else {
        // A worktree's: it says where the rest is.
        let said = read(&git, BRANCH_BYTES_MAX)?;
        git.parent()?.join(said.trim().strip_prefix("gitdir:")?.trim())
    };
    let head = read(&git.join("HEAD"), BRANCH_BYTES_MAX)?;
    let branch = head.trim().strip_prefix("ref: refs/heads/")?;
    (!branch.is_empty() && !branch.contains(char::is_control)).then(|| branch.to_owned())
}

/// The directories that are looked at for a working directory, outermost first.
///
/// They begin at `root`, or at the root of the repository (the nearest directory with a `.git`); outside of both the
/// working directory stands alone. Blocking.
pub fn directories_up(working_directory: &Path, root: Option<&Path>) -> Vec<PathBuf> {
    let top = match root {
        Some(root) => Some(root.to_owned()),
        None => working_directory.ancestors().find(|d| d.join(".git").exists()).map(Path::to_owned),
    };
    let alone = || vec![working_directory.to_owned()];
    let Some(top) = top.filter(|top| working_directory.starts_with(top)) else { return alone() };
    let mut directories: Vec<PathBuf> =
        working_directory.ancestors().take_while(|d| d.starts_with(&top)).map(Path::to_owned).collect();
    directories.reverse();
    directories
}

/// Reads the files that `patterns` name in each of `directories`, in that order. Blocking.
///
/// A pattern is a path inside a directory. Files that lie outside the first directory once links are
/// followed, and files that were read already, are left out; so is what lies behind the limit of all together.
pub fn discover(directories: &[PathBuf], patterns: &[String]) -> Vec<Instructions> {
    directories.first().map(|tree| Found::within(tree, directories, patterns).files).unwrap_or_default()
}

/// Instruction files, and what their being current hangs on.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The files.
    pub files: Vec<Instructions>,
    /// Every place that was looked at, and what was there.
    looks: Vec<(PathBuf, Option<Mark>)>,
}

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    device: u64,
    number: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let of = fs::metadata(path).ok()?;
        Some(Self {
            device: of.dev(),
            number: of.ino(),
            bytes: of.size(),
            modified: (of.mtime(), of.mtime_nsec()),
            changed: (of.ctime(), of.ctime_nsec()),
        })
    }
}

impl Found {
    /// The same as [`discover`], for files inside `tree`. Blocking.
    pub fn within(tree: &Path, directories: &[PathBuf], patterns: &[String]) -> Self {
        let mut reader = Reader::of(tree);
        let mut files = Vec::new();
        for directory in directories {
            for pattern in patterns.iter().filter(|pattern| stays_inside(pattern)) {
                let path = directory.join(pattern);
                let Some((real, text)) = reader.file(&path) else { continue };
                let content = expand(&mut reader, (&real, &text), &mut Vec::new());
                files.push(Instructions { path, content });
            }
        }
        Self { files, looks: reader.looks }
    }

    /// Whether another look would find the same. Reads no file. Blocking.
    pub fn is_current(&self) -> bool {
        self.looks.iter().all(|(path, mark)| Mark::of(path) == *mark)
    }
}

/// Reads files within bounds, each once.
pub(super) struct Reader<'a> {
    tree: &'a Path,
    /// The tree without links, once it is needed.
    real_tree: OnceCell<Option<PathBuf>>,
    seen: Vec<PathBuf>,
    room: usize,
    imports: usize,
    looks: Vec<(PathBuf, Option<Mark>)>,
}

impl<'a> Reader<'a> {
    fn of(tree: &'a Path) -> Self {
        let room = limit::INSTRUCTION_FILES_BYTES_MAX;
        Self { tree, real_tree: OnceCell::new(), seen: Vec::new(), room, imports: 0, looks: Vec::new() }
    }

    /// Where a file is without links, and what it says. None: it is not there, outside, read already, or not to be read.
    fn read_if(&mut self, path: &Path, fits: impl FnOnce(&Path) -> bool) -> Option<(PathBuf, String)> {
        // Most are not there, and this one call says so; following a path takes one for each name in it.
        let mark = Mark::of(path);
        self.looks.push((path.to_owned(), mark));
        mark?;
        let real = fs::canonicalize(path).ok()?;
        let tree = self.real_tree.get_or_init(|| fs::canonicalize(self.tree).ok()).as_deref();
        if !tree.is_some_and(|tree| real.starts_with(tree)) || self.seen.contains(&real) || !fits(&real) {
            return None;
        }
        let text = read(&real, self.room.min(limit::INSTRUCTION_FILE_BYTES_MAX))?;
        self.room = self.room.saturating_sub(text.len());
        self.seen.push(real.clone());
        Some((real, text))
    }

    fn file(&mut self, path: &Path) -> Option<(PathBuf, String)> {
        self.read_if(path, |_| true)
    }

    /// The same for one that another imports.
    pub(super) fn import(&mut self, path: &Path, fits: impl FnOnce(&Path) -> bool) -> Option<(PathBuf, String)> {
        if self.imports >= limit::IMPORTS_MAX {
            return None;
        }
        let read = self.read_if(path, fits)?;
        self.imports += 1;
        Some(read)
    }
}

/// Whether a pattern names something below the directory it is held against.
fn stays_inside(pattern: &str) -> bool {
    let mut parts = Path::new(pattern).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// A regular file's text, at most `bytes_max` of it. None: unreadable, empty, or no room left.
fn read(path: &Path, bytes_max: usize) -> Option<String> {
    let length = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len();
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(u64::try_from(bytes_max).ok()?).read_to_end(&mut bytes).ok()?;
    let cut = length > u64::try_from(bytes.len()).ok()?;
    if cut {
        // Not inside a character.
        let valid = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
        if bytes.len() - valid < 4 {
            bytes.truncate(valid);
        }
    }
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    // Some editors begin a file with the mark of its byte order, which is no part of its text.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    if text.trim().is_empty() {
        return None;
    }
    if cut {
        text.push_str(&format!("\n\n[cut: {length} bytes in all, the first {} shown]", bytes.len()));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(|p| (*p).to_owned()).collect()
    }

    /// `repo/.git`, `repo/sub/deep`, and `outside.md` beside the repository.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("repo/.git")).unwrap();
        fs::create_dir_all(top.join("repo/sub/deep/.simse")).unwrap();
        fs::write(top.join("outside.md"), "outside").unwrap();
        fs::write(top.join("repo/AGENTS.md"), "top").unwrap();
        fs::write(top.join("repo/sub/deep/AGENTS.md"), "deep").unwrap();
        fs::write(top.join("repo/sub/deep/.simse/instructions.md"), "own").unwrap();
        (directory, top)
    }

    fn contents(found: &[Instructions]) -> Vec<&str> {
        found.iter().map(|i| i.content.as_str()).collect()
    }

    #[test]
    fn the_mark_of_a_files_byte_order_is_no_text() {
        let directory = tempfile::tempdir().unwrap();
        let table = [
            ("\u{feff}Use tabs.", Some("Use tabs.")),
            ("\u{feff}", None),
            ("\u{feff} \n", None),
            ("a\u{feff}b", Some("a\u{feff}b")),
            (" \n", None),
        ];
        for (said, want) in table {
            let path = directory.path().join("AGENTS.md");
            fs::write(&path, said).unwrap();
            assert_eq!(read(&path, 1_000).as_deref(), want, "{said:?}");
        }
    }

    #[test]
    fn from_the_repository_down_to_the_working_directory() {
        let (_guard, top) = tree();
        let directories = directories_up(&top.join("repo/sub/deep"), None);
        assert_eq!(directories, [top.join("repo"), top.join("repo/sub"), top.join("repo/sub/deep")]);
        let found = discover(&directories, &names(&["CLAUDE.md", "AGENTS.md", ".simse/instructions.md"]));
        assert_eq!(contents(&found), ["top", "deep", "own"]);
        assert_eq!(found[1].path, top.join("repo/sub/deep/AGENTS.md"));
        // A root of one's own, and one that lies elsewhere.
        let deep = top.join("repo/sub/deep");
        assert_eq!(directories_up(&deep, Some(&top.join("repo/sub"))), [top.join("repo/sub"), deep.clone()]);
        assert_eq!(directories_up(&deep, Some(Path::new("/nowhere"))), [deep]);
    }

    #[test]
    fn no_pattern_and_no_link_leaves_the_tree() {
        let (_guard, top) = tree();
        let repo = top.join("repo");
        std::os::unix::fs::symlink(top.join("outside.md"), repo.join("LINK.md")).unwrap();
        std::os::unix::fs::symlink("AGENTS.md", repo.join("CLAUDE.md")).unwrap();
        let absolute = top.join("repo/AGENTS.md").display().to_string();
        let patterns =
            names(&["../outside.md", "sub/../../outside.md", "LINK.md", &absolute, "", "CLAUDE.md", "AGENTS.md"]);
        let found = discover(std::slice::from_ref(&repo), &patterns);
        // The two names of one file count once.
        assert_eq!(contents(&found), ["top"]);
        assert_eq!(found[0].path, repo.join("CLAUDE.md"));
    }

    #[test]
    fn the_branch_is_that_of_the_repository_or_the_worktree() {
        let (_guard, top) = tree();
        let repo = top.join("repo");
        let branch = || branch_of(&repo.join("sub/deep"));
        assert_eq!(branch(), None, "nothing is checked out");
        for (head, want) in [("ref: refs/heads/feat/a\n", Some("feat/a")), ("0123abcd\n", None), ("", None)] {
            fs::write(repo.join(".git/HEAD"), head).unwrap();
            assert_eq!(branch().as_deref(), want, "{head}");
        }
        fs::create_dir_all(top.join("tree")).unwrap();
        fs::create_dir_all(repo.join(".git/worktrees/tree")).unwrap();
        fs::write(top.join("tree/.git"), format!("gitdir: {}\n", repo.join(".git/worktrees/tree").display())).unwrap();
        fs::write(repo.join(".git/worktrees/tree/HEAD"), "ref: refs/heads/other\n").unwrap();
        assert_eq!(branch_of(&top.join("tree")).as_deref(), Some("other"));
    }

    #[test]
    fn what_a_model_was_told_of_is_read_off_the_words() {
        let file = Instructions { path: "/w/sub/AGENTS.md".into(), content: "Use tabs.\n".into() };
        assert_eq!(file.told(), "Instructions from /w/sub/AGENTS.md:\n\nUse tabs.");
        assert_eq!(told_path(&file.told()), Some(file.path));
        for other in ["Instructions from nobody", "Read a\nInstructions from /w:\n\nx", "Instructions from a\nb:\n\nx"]
        {
            assert_eq!(told_path(other), None, "{other}");
        }
    }

    #[test]
    fn a_look_says_whether_it_still_holds() {
        let (_guard, top) = tree();
        let repo = top.join("repo");
        fs::write(repo.join("AGENTS.md"), "top\n@more.md\n@later.md\n").unwrap();
        fs::write(repo.join("more.md"), "more").unwrap();
        let patterns = names(&["CLAUDE.md", "AGENTS.md"]);
        let look = || Found::within(&repo, std::slice::from_ref(&repo), &patterns);
        let changes: [(&str, Option<&str>); 5] = [
            ("more.md", Some("other text")),
            ("later.md", Some("at last")),
            ("CLAUDE.md", Some("new")),
            ("AGENTS.md", Some("short")),
            ("CLAUDE.md", None),
        ];
        for (name, text) in changes {
            let found = look();
            assert!(found.is_current(), "{name}");
            match text {
                Some(text) => fs::write(repo.join(name), text).unwrap(),
                None => fs::remove_file(repo.join(name)).unwrap(),
            }
            assert!(!found.is_current(), "{name}");
            fs::write(repo.join("beside.md"), "nobody looks at it").unwrap();
            assert!(look().is_current());
        }
        assert_eq!(contents(&look().files), ["short"]);
    }

    #[test]
    fn what_is_too_long_is_cut_and_what_cannot_be_read_is_skipped() {
        let (_guard, top) = tree();
        let repo = top.join("repo");
        let max = limit::INSTRUCTION_FILE_BYTES_MAX;
        fs::write(repo.join("long.md"), format!("x{}", "ä".repeat(max))).unwrap();
        fs::write(repo.join("blank.md"), " \n").unwrap();
        fs::create_dir(repo.join("dir.md")).unwrap();
        let found =
            discover(std::slice::from_ref(&repo), &names(&["dir.md", "blank.md", "gone.md", "long.md", "AGENTS.md"]));
        assert_eq!(found.len(), 2);
        let all = 2 * max + 1;
        assert!(found[0].content.ends_with(&format!("ä\n\n[cut: {all} bytes in all, the first {} shown]", max - 1)));
        for at in 0..9 {
            fs::write(repo.join(format!("{at}.md")), "y".repeat(max)).unwrap();
        }
        let patterns: Vec<String> = (0..9).map(|at| format!("{at}.md")).collect();
        let total: usize = discover(&[repo], &patterns).iter().map(|i| i.content.len()).sum();
        assert!(total <= limit::INSTRUCTION_FILES_BYTES_MAX + 100, "{total}");
    }
}
