//! Whose memory it is: projects remember apart.

use std::path::{Path, PathBuf};

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Project {
    /// The one that a directory belongs to: the repository around it (the nearest directory up that has a `.git`),
    /// else the directory itself.
    Around(PathBuf),
    /// One with a name of its own.
    Named(String),
}

impl Project {
    /// The name under which it is kept. Looks at the file system.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Named(name) => format!("name:{name}"),
            Self::Around(directory) => {
                let real = directory.canonicalize().unwrap_or_else(|_| directory.clone());
                let root = real.ancestors().find(|up| up.join(".git").exists()).unwrap_or(&real);
                format!("path:{}", shown(root))
            }
        }
    }
}

/// A path as text in which no two paths are the same: bytes that are no UTF-8 are written as numbers.
fn shown(path: &Path) -> String {
    path.to_str().map_or_else(|| format!("{path:?}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_the_repository_around_it() {
        let home = tempfile::tempdir().expect("a directory");
        let real = home.path().canonicalize().expect("there");
        for directory in ["repo/.git", "repo/src/deep", "plain/sub", "worktree/x"] {
            std::fs::create_dir_all(real.join(directory)).expect("made");
        }
        // A worktree's `.git` is a file.
        std::fs::write(real.join("worktree/.git"), "gitdir: elsewhere").expect("written");
        let name = |path: &str| Project::Around(real.join(path)).name();
        let of = |path: &str| format!("path:{}", real.join(path).display());
        #[rustfmt::skip]
        let table = [
            ("repo", of("repo")), ("repo/src/deep", of("repo")), ("repo/src/../src", of("repo")),
            ("plain/sub", of("plain/sub")), ("plain", of("plain")), ("worktree/x", of("worktree")), ("gone", of("gone")),
        ];
        for (path, want) in table {
            assert_eq!(name(path), want, "{path}");
        }
        assert_ne!(Project::Named(of("repo")).name(), name("repo"));
    }
}
