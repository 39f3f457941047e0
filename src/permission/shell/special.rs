//! Programs whose arguments take more than a table to judge: git, sed, awk.

use super::UNKNOWN;
use super::launch::When::{self, Inside, Letter, Long, Word};
use super::launch::fits;
use super::script::{awk_only_prints, sed_only_edits};

/// Keys of git's configuration whose value it runs, or by which it finds something to run. Lower case.
const GIT_KEYS: [&str; 30] = [
    "alias.",
    "askpass",
    "browser.",
    "cmd",
    "command",
    "config.",
    "core.attributesfile",
    "core.gitproxy",
    "core.worktree",
    "credential",
    "difftool",
    "editor",
    "external",
    "filter.",
    "fsmonitor",
    "gpg",
    "helper",
    "hookspath",
    "include",
    "interactive.",
    "mergetool",
    "pager",
    "process",
    "program",
    "protocol.",
    "proxy",
    "sshcommand",
    "templatedir",
    "textconv",
    "uploadpack",
];

/// git, when it is told what to run: by configuration, by options, by subcommands that are launchers themselves.
pub(super) fn git(arguments: &[String]) -> bool {
    let mut at = 0;
    while let Some(option) = arguments.get(at).filter(|a| a.starts_with('-')) {
        let value = arguments.get(at + 1).map_or("", String::as_str);
        match option.as_str() {
            "-c" | "--config-env" if names_git_program(value) => return true,
            "-p" | "--paginate" => return true,
            _ if option.starts_with("--exec-path=") || option.starts_with("--config-env=") => return true,
            "-c" | "-C" | "--config-env" | "--git-dir" | "--work-tree" | "--namespace" => at += 2,
            _ => at += 1,
        }
    }
    let Some((command, rest)) = arguments.get(at..).and_then(<[String]>::split_first) else { return false };
    let has = |sign: When| fits(sign, rest);
    match command.as_str() {
        "grep" => has(Letter('O')) || has(Long("--open-files-in-pager")),
        "rebase" => has(Letter('x')) || has(Long("--exec")),
        "bisect" => has(Word("run")) || has(Word("visualize")) || has(Word("view")),
        "submodule" => has(Word("foreach")),
        "difftool" | "mergetool" | "filter-branch" | "for-each-repo" | "send-email" | "instaweb" | "daemon"
        | "shell" | "credential" | "http-backend" | "upload-pack" | "receive-pack" | "remote-ext" | "remote-fd"
        | "p4" | "svn" | "cvsimport" => true,
        "fetch" | "pull" | "ls-remote" | "clone" | "push" | "archive" | "fetch-pack" | "send-pack" | "remote" => {
            has(Long("--upload-pack"))
                || has(Long("--receive-pack"))
                || has(Long("--exec"))
                || has(Inside("ext::"))
                || has(Long("--template"))
                || (command == "clone" && (has(Letter('u')) || has(Letter('c')) || has(Long("--config"))))
        }
        "init" => has(Long("--template")),
        "config" => {
            rest.iter().any(|word| names_git_program(word) || word.contains(UNKNOWN))
                || has(Letter('e'))
                || has(Long("--edit"))
        }
        "diff" | "log" | "show" | "format-patch" | "stash" | "whatchanged" => has(Long("--ext-diff")),
        _ => false,
    }
}

fn names_git_program(word: &str) -> bool {
    let key = word.split('=').next().unwrap_or(word).to_ascii_lowercase();
    key.contains('.') && (key.contains(UNKNOWN) || GIT_KEYS.iter().any(|part| key.contains(part)))
}

/// `sed` when a script of its runs commands or writes files, or may.
pub(super) fn sed(arguments: &[String]) -> bool {
    let mut given = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let script = if let Some(name) = argument.strip_prefix("--") {
            // A long option can be shortened.
            match name.split_once('=') {
                Some((name, script)) if "expression".starts_with(name) => Some(script),
                None if !name.is_empty() && "expression".starts_with(name) => rest.next().map(String::as_str),
                Some(_) | None => None,
            }
        } else if let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            // `-ne SCRIPT` and `-eSCRIPT`; `-f FILE` is a script by name.
            match letters.split_once('e') {
                Some((before, "")) if !before.contains(['f', 'i']) => rest.next().map(String::as_str),
                Some((before, after)) if !before.contains(['f', 'i']) => Some(after),
                Some(_) | None => {
                    given |= letters.contains('f');
                    None
                }
            }
        } else if given {
            None
        } else {
            Some(argument.as_str())
        };
        if let Some(script) = script {
            given = true;
            if !sed_only_edits(script) {
                return true;
            }
        }
    }
    false
}

/// `awk` when its program runs commands or writes files, or may.
pub(super) fn awk(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| !awk_only_prints(argument))
        || ["-l", "-i", "-E", "-D"].iter().any(|sign| arguments.iter().any(|a| a.starts_with(sign)))
        || fits(Long("--load"), arguments)
        || fits(Long("--include"), arguments)
        || fits(Long("--exec"), arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_a_launcher_when_it_is_told_to_be_one() {
        #[rustfmt::skip]
        let table = [
            ("status", false), ("log --oneline", false), ("-C x log", false), ("-c color.ui=never status", false), ("commit -m x", false),
            ("-c alias.x=!ls x", true), ("-c core.pager=less log", true), ("-c Core.SSHCommand=x fetch", true), ("--exec-path=/tmp x", true),
            ("grep -O x", true), ("grep --open-files-in-pager=sh x", true), ("grep x", false), ("rebase -x make main", true), ("rebase main", false),
            ("bisect run make", true), ("bisect good", false), ("submodule foreach ls", true), ("config user.name", false),
            ("config alias.x !ls", true), ("config core.fsmonitor x", true), ("clone ext::sh", true), ("fetch --upload-pack=x", true),
            ("push --receive-pack=x", true), ("fetch origin", false), ("diff --ext-diff", true), ("-p log", true), ("log -p", false),
        ];
        for (line, want) in table {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(git(&arguments), want, "git {line}");
        }
    }
}
