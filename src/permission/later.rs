//! Files that run later by themselves: at a commit, when a shell or an editor starts, when somebody pushes.
//!
//! Who may edit files unasked may not write these: nobody would ask again before what stands in them runs.

use std::path::{Component, Path};

/// Directories all of which is such, wherever they stand: their last names.
#[rustfmt::skip]
const DIRECTORIES: [&str; 17] = [
    ".git", ".husky", ".githooks", ".lefthook", ".vscode", ".idea", ".devcontainer", ".circleci", ".buildkite", ".woodpecker", ".forgejo", ".gitea",
    ".ssh", ".direnv", ".cargo", "autostart", "launchagents",
];

/// The same, below another one.
const BELOW: [(&str, &str); 6] = [
    (".github", "workflows"),
    (".github", "actions"),
    (".config", "systemd"),
    (".config", "fish"),
    (".config", "git"),
    (".config", "nvim"),
];

/// Files, by name.
#[rustfmt::skip]
const FILES: [&str; 58] = [
    // Shells, and what they read.
    ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc",
    ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".envrc", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".screenrc", ".tmux.conf",
    // Editors, debuggers and interpreters.
    ".vimrc", ".exrc", ".gvimrc", ".nvimrc", ".nvim.lua", ".emacs", ".dir-locals.el", ".gdbinit", ".lldbinit", ".rprofile", ".irbrc", ".pryrc", ".pythonrc", ".pythonrc.py",
    ".psqlrc", ".sqliterc", "sitecustomize.py", "usercustomize.py",
    // Version control and packages.
    ".gitconfig", ".hgrc", ".pre-commit-config.yaml", "lefthook.yml", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".mcp.json",
    // Servers that build what is pushed.
    ".gitlab-ci.yml", ".travis.yml", ".drone.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml", "jenkinsfile",
];

/// Whether what stands in a file may run without anybody starting it. By name: `path` is a resolved one.
pub fn runs_later(path: &Path) -> bool {
    let names: Vec<String> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy().to_ascii_lowercase()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        })
        .collect();
    let below = |two: &[String]| BELOW.iter().any(|(above, name)| two[0] == *above && two[1] == *name);
    names.iter().any(|name| DIRECTORIES.contains(&name.as_str()))
        || names.windows(2).any(below)
        || names.last().is_some_and(|name| FILES.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_by_itself() {
        #[rustfmt::skip]
        let table = [
            (".git/hooks/pre-commit", true), ("sub/.git/config", true), (".husky/pre-push", true), (".vscode/tasks.json", true), (".github/workflows/ci.yml", true), (".github/actions/x/action.yml", true),
            (".bashrc", true), ("home/.zshenv", true), (".envrc", true), ("sub/.envrc", true), (".npmrc", true), ("Jenkinsfile", true), (".GIT/config", true), (".cargo/config.toml", true), (".ssh/authorized_keys", true),
            (".config/fish/config.fish", true), (".pre-commit-config.yaml", true),
            (".github/README.md", false), ("src/main.rs", false), ("git/x", false), (".gitignore", false), ("package.json", false), ("Makefile", false), ("workflows/x", false), ("docs/.bashrc.md", false), ("config/fish/x", false), ("", false),
        ];
        for (path, want) in table {
            assert_eq!(runs_later(Path::new(path)), want, "{path}");
        }
    }
}
