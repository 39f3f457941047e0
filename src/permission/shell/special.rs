//! Programs whose arguments take more than a table to judge: git, sed, awk, tar, make.

use super::script::{awk_only_prints, sed_only_edits};
use super::sign::When::{self, Inside, Letter, Long, Word};
use super::sign::fits;
use super::{Part, Redirect, UNKNOWN};

/// Keys of git's configuration whose value it runs, or by which it finds something to run. Lower case.
const GIT_KEYS: [&str; 37] = [
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
    "driver",
    "editor",
    "external",
    "filter.",
    "fsmonitor",
    "gpg",
    "helper",
    "hookspath",
    "include",
    "interactive.",
    "man.",
    "mergetool",
    "pager",
    "process",
    "program",
    "protocol.",
    "proxy",
    "receivepack",
    "sshcommand",
    "submodule.",
    "templatedir",
    "textconv",
    "uploadpack",
    "url.",
    "vcs",
    "web.",
];

/// Options in front of git's subcommand that take the next word.
pub(in crate::permission) const GIT_VALUE_OPTIONS: [&str; 9] = [
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--exec-path",
    "--config-env",
    "--attr-source",
    "--super-prefix",
];

/// Subcommands that do git's own work. Whatever else stands there may be an alias, or a program of its own.
const GIT_COMMANDS: &str = " add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap \
    check-ref-format checkout cherry cherry-pick citool clean clone column commit commit-graph commit-tree config count-objects describe diff \
    diff-files diff-index diff-tree fetch fetch-pack fmt-merge-msg for-each-ref format-patch fsck gc get-tar-commit-id grep hash-object help \
    init interpret-trailers log ls-files ls-remote ls-tree mailinfo mailsplit merge merge-base merge-file merge-tree mktag mktree \
    multi-pack-index mv name-rev notes pack-objects pack-refs patch-id prune prune-packed pull push range-diff read-tree rebase reflog remote \
    repack replace rerere reset restore rev-list rev-parse revert rm send-pack shortlog show show-branch show-index show-ref \
    sparse-checkout stage stash status stripspace submodule switch symbolic-ref tag update-index update-ref update-server-info var \
    verify-commit verify-pack verify-tag version whatchanged worktree write-tree ";

/// git, when it is told what to run: by configuration, by options, by subcommands that are launchers themselves.
pub(super) fn git(arguments: &[String]) -> bool {
    let mut at = 0;
    while let Some(option) = arguments.get(at).filter(|a| a.starts_with('-')) {
        let value = arguments.get(at + 1).map_or("", String::as_str);
        match option.as_str() {
            "-c" | "--config-env" if names_git_program(value) => return true,
            // Another repository's configuration names programs too.
            "-p" | "--paginate" | "--git-dir" => return true,
            _ if ["--exec-path=", "--config-env=", "--git-dir="].iter().any(|sign| option.starts_with(sign)) => {
                return true;
            }
            _ if GIT_VALUE_OPTIONS.contains(&option.as_str()) => at += 2,
            _ => at += 1,
        }
    }
    let Some((command, rest)) = arguments.get(at..).and_then(<[String]>::split_first) else { return false };
    !GIT_COMMANDS.contains(&format!(" {command} ")) || git_command(command, rest)
}

/// One of [`GIT_COMMANDS`], when its arguments name a program.
fn git_command(command: &str, rest: &[String]) -> bool {
    let has = |sign: When| fits(sign, rest);
    match command {
        "grep" => has(Letter('O')) || has(Long("--open-files-in-pager")),
        "rebase" => has(Letter('x')) || has(Long("--exec")),
        "bisect" => has(Word("run")) || has(Word("visualize")) || has(Word("view")),
        "submodule" => has(Word("foreach")) || has(Inside("ext::")),
        "apply" | "am" => has(Long("--unsafe-paths")),
        "fetch" | "pull" | "ls-remote" | "clone" | "push" | "archive" | "fetch-pack" | "send-pack" | "remote" => {
            has(Long("--upload-pack"))
                || has(Long("--receive-pack"))
                || has(Long("--exec"))
                || has(Inside("ext::"))
                || has(Long("--template"))
                || (command == "clone" && (has(Letter('u')) || has(Letter('c')) || has(Long("--config"))))
        }
        "init" => has(Long("--template")),
        "config" if config_looks(rest) => false,
        "config" => {
            rest.iter().any(|word| names_git_program(word) || word.contains(UNKNOWN) || word.starts_with('!'))
                || has(Letter('e'))
                || has(Long("--edit"))
                || has(Word("edit"))
                || rest.iter().any(|word| word.trim_start_matches('-').starts_with("rename"))
        }
        "diff" | "log" | "show" | "format-patch" | "stash" | "whatchanged" => has(Long("--ext-diff")),
        _ => false,
    }
}

/// The files that a program writes because an option says so, where nobody would look for it: the same as behind a `>`.
pub(super) fn writes(part: &Part) -> Vec<Redirect> {
    let arguments = &*part.arguments();
    let letter = match part.program() {
        Some("git") => {
            let mut words = arguments.iter();
            while let Some(option) = words.clone().next().filter(|word| word.starts_with('-')) {
                words.nth(usize::from(GIT_VALUE_OPTIONS.contains(&option.as_str())));
            }
            match words.next().map(String::as_str) {
                Some("archive" | "format-patch") => Some('o'),
                Some("bundle") if words.next().is_some_and(|word| word == "create") => {
                    let target = words.find(|word| !word.starts_with('-')).cloned();
                    return target.map(written).into_iter().collect();
                }
                Some("diff" | "diff-files" | "diff-index" | "diff-tree" | "log" | "range-diff" | "reflog" | "show")
                | Some("shortlog" | "stash" | "whatchanged") => None,
                Some(_) | None => return Vec::new(),
            }
        }
        Some("sort" | "gsort") => Some('o'),
        Some("uniq" | "guniq") => return second_operand(arguments, "fsw"),
        Some("xxd") => return second_operand(arguments, "cglosnR"),
        Some(_) | None => return Vec::new(),
    };
    let mut found = Vec::new();
    let mut words = arguments.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        let long = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        let is_long = long.0.len() > 4 && ("--output".starts_with(long.0) || long.0 == "--output-directory");
        let short = letter.and_then(|letter| {
            let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
            letters.split_once(letter).map(|(_, attached)| attached)
        });
        match (is_long, long.1, short) {
            (true, Some(value), _) => found.push(written(value.to_owned())),
            (false, _, Some(attached)) if !attached.is_empty() => found.push(written(attached.to_owned())),
            (true, None, _) | (false, _, Some(_)) => found.extend(words.next().cloned().map(written)),
            // Only the shell will know whether it is such an option.
            (false, _, None) if may_write(word, letter) => found.push(written(UNKNOWN.to_string())),
            (false, _, None) => {}
        }
    }
    found
}

/// Whether a word may turn out to be `--output`, or `-o`.
fn may_write(word: &str, letter: Option<char>) -> bool {
    word.split_once(UNKNOWN).is_some_and(|(front, _)| {
        "--output".starts_with(front) || (letter.is_some() && front.starts_with('-') && !front.starts_with("--"))
    })
}

/// The second file that a program names: it writes that one. `letters`: its options that take the next word.
fn second_operand(words: &[String], letters: &str) -> Vec<Redirect> {
    let mut operands = Vec::new();
    let mut rest = words.iter();
    let mut options = true;
    while let Some(word) = rest.next() {
        match word.strip_prefix('-').filter(|option| options && !option.is_empty()) {
            Some("-") => options = false,
            Some(option) if option.len() == 1 && letters.contains(option) => drop(rest.next()),
            Some(_) => {}
            None => operands.push(word),
        }
    }
    operands.get(1).map(|target| written((*target).clone())).into_iter().collect()
}

fn written(target: String) -> Redirect {
    Redirect { operator: ">".to_owned(), target }
}

/// Whether a script comes from where nobody here has seen it: standard input, or what a device gives.
fn is_fed(file: &str) -> bool {
    file == "-" || file.starts_with("/dev/") || file.starts_with("/proc/") || file.contains(UNKNOWN)
}

/// `make` when its rules come from standard input.
pub(super) fn make(arguments: &[String]) -> bool {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let file = match argument.split_once('=') {
            Some(("--file" | "--makefile", file)) => Some(file),
            _ if matches!(argument.as_str(), "--file" | "--makefile") => rest.next().map(String::as_str),
            _ => match argument.strip_prefix('-').filter(|letters| !letters.starts_with('-')) {
                Some(letters) => letters.split_once('f').and_then(|(_, attached)| match attached {
                    "" => rest.next().map(String::as_str),
                    attached => Some(attached),
                }),
                None => None,
            },
        };
        if file.is_some_and(is_fed) {
            return true;
        }
    }
    false
}

/// `tar` when its first word, a bundle of letters without a dash, names a program.
pub(super) fn tar(arguments: &[String]) -> bool {
    arguments.first().is_some_and(|bundle| !bundle.starts_with('-') && bundle.contains(['I', 'F']))
}

/// Builtins that evaluate what they take for the name of a variable: the index of an element is an expression, and that can
/// run commands. Whether a word may name an element.
fn is_element(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    name.contains(['[', UNKNOWN])
}

/// `unset` and its kind.
pub(super) fn names_element(arguments: &[String]) -> bool {
    arguments.iter().any(|word| is_element(word))
}

/// `wait -p NAME`. What only the shell will know is nearly always the number of a process.
pub(super) fn waits_into(arguments: &[String]) -> bool {
    let takes_name = |word: &String| word.starts_with('-') && word.contains(['p', UNKNOWN]);
    arguments.iter().any(takes_name) && names_element(arguments)
}

/// `test`, when it asks for a variable: by the option, or by a word that only the shell will know where one can stand, or
/// that it may make several of.
pub(super) fn tests_element(arguments: &[String]) -> bool {
    const JOINTS: [&str; 4] = ["!", "(", "-a", "-o"];
    const BINARY: [&str; 15] =
        ["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef", "]"];
    let is = |at: usize, names: &[&str]| arguments.get(at).is_some_and(|word| names.contains(&word.as_str()));
    arguments.iter().enumerate().any(|(at, word)| {
        let begins = at == 0 || is(at - 1, &JOINTS);
        let compared = at + 1 == arguments.len() || is(at + 1, &BINARY) || is(at + 1, &JOINTS[2..]);
        let further = at > 0 && word.starts_with(UNKNOWN) && arguments[at - 1].contains(UNKNOWN);
        matches!(word.as_str(), "-v" | "-R") || further || (word.starts_with(UNKNOWN) && begins && !compared)
    })
}

/// `declare` and its kind, which may also say that a value is an expression (`-i`), a list of them (`-a`, `-A`) or
/// another name (`-n`). The value of what is a list already is expanded once more when it is put in parentheses.
pub(super) fn declares(arguments: &[String]) -> bool {
    let unknown = |word: &String| word.split_once('=').is_some_and(|(_, value)| value.starts_with(UNKNOWN));
    exports(arguments) || arguments.iter().any(unknown)
}

/// The same of those that hand on and keep plain values all the time: `local a=$1`, `export A=$B`.
pub(super) fn exports(arguments: &[String]) -> bool {
    let listed = |word: &String| word.split_once('=').is_some_and(|(_, value)| value.trim_start().starts_with('('));
    let marked = |word: &String| {
        let letters = word.strip_prefix(['-', '+']).filter(|letters| !letters.starts_with('-'));
        letters.is_some_and(|letters| letters.contains(['i', 'a', 'A', 'n', UNKNOWN]))
    };
    names_element(arguments) || arguments.iter().any(|word| marked(word) || listed(word))
}

/// `let`, when it looks at a variable: its value is an expression again.
pub(super) fn evaluates(arguments: &[String]) -> bool {
    arguments.iter().any(|word| {
        let value = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
        is_element(word) || value.contains(|c: char| c.is_alphabetic() || matches!(c, '_' | '[' | UNKNOWN))
    })
}

/// `printf -v NAME`.
pub(super) fn prints_into(arguments: &[String]) -> bool {
    let first = arguments.first().map_or("", String::as_str);
    first.contains(UNKNOWN)
        || first.strip_prefix("-v").is_some_and(|attached| match attached {
            "" => arguments.get(1).is_none_or(|name| is_element(name)),
            attached => is_element(attached),
        })
}

/// `read` into an element; what it asks with is no name.
pub(super) fn reads_into(arguments: &[String]) -> bool {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.strip_prefix('-') {
            Some(letters) if letters.ends_with(['p', 'd', 'n', 'N', 't', 'u', 'i']) => drop(rest.next()),
            Some(letters) if letters.contains(['p', 'd', 'i']) => {}
            Some(_) | None if is_element(word) => return true,
            Some(_) | None => {}
        }
    }
    false
}

/// The commands that aliases in the arguments of git stand for.
pub(super) fn git_aliases(part: &Part) -> Vec<String> {
    if part.program() != Some("git") {
        return Vec::new();
    }
    let words = part.words.iter().skip(1);
    let pairs = words.clone().zip(words.skip(1));
    let alias = |key: &str| key.len() > 6 && key.as_bytes()[..6].eq_ignore_ascii_case(b"alias.");
    let given = pairs.filter_map(|(before, word)| match word.split_once('=') {
        Some((key, value)) if alias(key) => Some(value),
        Some(_) | None => Some(word.as_str()).filter(|_| alias(before)),
    });
    given.map(|value| value.strip_prefix('!').map_or_else(|| format!("git {value}"), str::to_owned)).collect()
}

/// Whether `git config` is only asked for what it knows.
fn config_looks(rest: &[String]) -> bool {
    let mut words = rest.iter().map(String::as_str);
    let mut looks = matches!(rest.first().map(String::as_str), Some("get" | "list"));
    while let Some(word) = words.next().filter(|word| word.starts_with('-')) {
        match word {
            "-f" | "--file" | "--blob" | "--type" | "--default" => drop(words.next()),
            "-e" | "--edit" | "--replace-all" | "--add" => return false,
            "-l" | "--list" | "--get" | "--get-all" | "--get-regexp" | "--get-urlmatch" => looks = true,
            _ => {}
        }
    }
    looks && !rest.iter().any(|word| word.contains(UNKNOWN))
}

fn names_git_program(word: &str) -> bool {
    let key = word.split('=').next().unwrap_or(word).to_ascii_lowercase();
    let named = key.contains(UNKNOWN) || (key.contains('.') && GIT_KEYS.iter().any(|part| key.contains(part)));
    named || word.contains("ext::") || word.contains("=!")
}

/// `sed` when a script of its runs commands or writes files, or may.
pub(super) fn sed(arguments: &[String]) -> bool {
    let mut given = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let script = if let Some(long) = argument.strip_prefix("--") {
            // A long option can be shortened.
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let is = |option: &str| !name.is_empty() && option.starts_with(name);
            let value =
                if is("expression") || is("file") { value.or_else(|| rest.next().map(String::as_str)) } else { None };
            if is("file") {
                given = true;
                if value.is_some_and(is_fed) {
                    return true;
                }
            }
            value.filter(|_| is("expression"))
        } else if let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            // `-ne SCRIPT` and `-eSCRIPT`; `-f FILE` is a script by name.
            match letters.split_once('e') {
                Some((before, "")) if !before.contains(['f', 'i']) => rest.next().map(String::as_str),
                Some((before, after)) if !before.contains(['f', 'i']) => Some(after),
                Some(_) | None => {
                    if let Some((_, attached)) = letters.split_once('f').filter(|(before, _)| !before.contains('i')) {
                        given = true;
                        let file = if attached.is_empty() { rest.next().map(String::as_str) } else { Some(attached) };
                        if file.is_none_or(is_fed) {
                            return true;
                        }
                    }
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
    let mut given = false;
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        match argument {
            "--" => {
                // Behind it stand the program, unless there is one, and operands.
                return !given && rest.next().is_some_and(|program| !awk_only_prints(program));
            }
            "-F" | "-v" | "--field-separator" | "--assign" => drop(rest.next()),
            "-f" | "--file" => {
                given = true;
                if rest.next().is_none_or(is_fed) {
                    return true;
                }
            }
            "-e" | "--source" => {
                given = true;
                if rest.next().is_none_or(|program| !awk_only_prints(program)) {
                    return true;
                }
            }
            "-P" | "-S" | "-c" | "-k" | "-b" | "-n" | "-N" | "-O" | "-s" | "--posix" | "--csv" | "--re-interval" => {}
            "--sandbox" | "--traditional" | "--characters-as-bytes" | "--optimize" | "--version" | "--help" => {}
            _ if argument.starts_with("-F") || argument.starts_with("-v") => {}
            _ if argument.starts_with("--field-separator=") || argument.starts_with("--assign=") => {}
            _ if argument.len() > 1 && argument.starts_with('-') => return true,
            _ if given => {}
            program => {
                given = true;
                if !awk_only_prints(program) {
                    return true;
                }
            }
        }
    }
    false
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
            ("x", true), ("submodule--helper foreach x", true), ("merge-index x -a", true), ("--git-dir=x status", true), ("--git-dir x status", true),
            ("--attr-source HEAD log", false), ("-c merge.x.driver=y merge b", true), ("config submodule.s.update x", true), ("config foo.x !y", true),
            ("config --rename-section foo alias", true), ("-c man.man.path=x help log", true), ("send-pack --receive-pack=x", true), ("apply --unsafe-paths x", true),
            ("push", false), ("config user.email x", false), ("config --get core.pager", false), ("config get alias.x", false), ("config -f x --get-all alias.x", false), ("config --list", false), ("config alias.x !y --get", true),
            ("config --get -e", true), ("config --add alias.x !y", true), ("config set core.pager x", true), ("worktree add ../x", false),
        ];
        for (line, want) in table {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(git(&arguments), want, "git {line}");
        }
    }

    #[test]
    fn files_that_options_name_are_written() {
        #[rustfmt::skip]
        let table: [(&str, &[&str]); 14] = [
            ("git log --output=x", &["x"]), ("git -C d --attr-source HEAD show --output x", &["x"]), ("git diff --no-index --outp=../x a b", &["../x"]),
            ("git log --output-indicator-new=x", &[]), ("git archive -o x main", &["x"]), ("git archive -ox main", &["x"]), ("git format-patch --output-directory d", &["d"]),
            ("git bundle create -q x main", &["x"]), ("git bundle verify x", &[]), ("git status", &[]), ("git log -- --output=x", &[]),
            ("sort -uo x y", &["x"]), ("sort --output=x y", &["x"]), ("sort x", &[]),
        ];
        for (line, want) in table {
            let found = writes(&Part::of(line.split(' ').map(str::to_owned).collect()));
            let found: Vec<&str> = found.iter().map(|redirect| redirect.target.as_str()).collect();
            assert_eq!(found, want, "{line}");
        }
    }

    #[test]
    fn scripts_from_standard_input_may_be_anything() {
        #[rustfmt::skip]
        let table: [(fn(&[String]) -> bool, &str, bool); 20] = [
            (sed, "-f- f", true), (sed, "-n -f /dev/stdin f", true), (sed, "--file=- f", true), (sed, "-f x.sed f", false), (sed, "-nf x.sed f", false), (sed, "-f", true),
            (awk, "-f - f", true), (awk, "-f/dev/stdin", true), (awk, "-f x.awk f", false), (awk, "-F: {print} /etc/passwd", false), (awk, "-v a=1 {print} f", false),
            (awk, "{print} -f - f", true), (awk, "-W exec=x", true), (awk, "-- {system(x)}", true), (make, "-f- all", true), (make, "--file=-", true), (make, "-f x.mk all", false),
            (make, "-sf -", true), (tar, "cIf x a.tar f", true), (tar, "czf a.tar f", false),
        ];
        for (judge, line, want) in table {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(judge(&arguments), want, "{line}");
        }
    }
}
