//! Instruction files of a project: found, read within bounds, never outside the tree.
//!
//! What cannot be read is left out: a project's texts never keep a turn from running.

use std::cell::OnceCell;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::base::limit;

/// One instruction file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instructions {
    /// Where it lies, absolute.
    pub path: PathBuf,
    /// What it says; what is longer than the limit is cut, and the cut is said.
    pub content: String,
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
    let real = OnceCell::new();
    let tree = || real.get_or_init(|| directories.first().and_then(|first| fs::canonicalize(first).ok())).as_deref();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut found: Vec<Instructions> = Vec::new();
    let mut room = limit::INSTRUCTION_FILES_BYTES_MAX;
    for directory in directories {
        for pattern in patterns.iter().filter(|pattern| stays_inside(pattern)) {
            let path = directory.join(pattern);
            // Most are not there, and this one call says so; following a path takes one for each name in it.
            if fs::symlink_metadata(&path).is_err() {
                continue;
            }
            let Ok(real) = fs::canonicalize(path) else { continue };
            if !tree().is_some_and(|tree| real.starts_with(tree)) || seen.contains(&real) {
                continue;
            }
            let Some(content) = read(&real, room.min(limit::INSTRUCTION_FILE_BYTES_MAX)) else { continue };
            room = room.saturating_sub(content.len());
            seen.push(real);
            found.push(Instructions { path: directory.join(pattern), content });
        }
    }
    found
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
