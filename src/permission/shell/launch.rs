//! Which programs run other programs, and when: the tables behind `wrap`.
//!
//! Three kinds. A *shell* and an *interpreter* run a script: one that stands in an argument (`-c`, `-e`), one by
//! name, which is a program like any other, or one that they read and nobody here knows. A *launcher* runs
//! what its arguments say, always (`sudo`) or with certain of them (`tar --to-command`).
//!
//! Invariant: when in doubt the answer is yes. It costs a question, and no more.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::sign::When::{self, Always, Arguments, Check, Inside, Letter, Long, Start, Word};
use super::sign::{any_unknown, fits, maybe_option};
use super::special::{
    awk, declares, evaluates, exports, git, make, names_element, prints_into, reads_into, sed, tar, tests_element,
    waits_into,
};
use super::{Part, Spot, UNKNOWN};

/// They read the language that `shell` reads.
const SHELLS: [&str; 14] =
    ["ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "posh", "rbash", "sh", "tcsh", "xonsh", "yash", "zsh"];

/// Interpreters of other languages: names without versions, the letters and the long options whose value
/// (or next argument) is code.
const INTERPRETERS: [(&[&str], &str, &[&str]); 12] = [
    (&["python", "pypy", "ipython", "bpython", "micropython"], "c", &[]),
    (&["node", "nodejs"], "ep", &["--eval", "--print", "--import", "--require"]),
    (&["bun"], "ep", &["--eval", "--print", "eval"]),
    (&["deno"], "", &["eval"]),
    (&["perl"], "eE", &[]),
    (&["ruby", "irb"], "e", &[]),
    (&["php"], "rBRE", &["--run"]),
    (&["lua", "luajit", "elixir", "julia", "osascript", "swift", "ghc", "groovy", "scala"], "eE", &["--eval"]),
    (&["Rscript", "R"], "e", &[]),
    (&["tclsh", "wish", "expect"], "c", &[]),
    (&["pwsh", "powershell", "nu", "elvish", "rc", "es"], "cC", &["-Command", "-EncodedCommand", "--commands"]),
    (&["guile", "racket", "sbcl", "clisp", "ocaml", "gforth"], "ec", &["--eval"]),
];

/// Options of interpreters that take no word behind them; others may, and then what follows is not the script's name.
const FLAGS: [(&[&str], &str, &[&str]); 3] = [
    (&["python", "pypy"], "bBdEiIOPqsSuvxtR3", &[]),
    (
        &["node", "nodejs", "bun", "deno"],
        "ci",
        &["--check", "--watch", "--no-warnings", "--enable-source-maps", "--trace-warnings", "--expose-gc", "--silent"],
    ),
    (&["perl", "ruby", "php"], "wWcnlaptTsSuUvfq", &[]),
];

/// Modules of python whose arguments are code, or which read it.
const CODE_MODULES: [&str; 7] = ["asyncio", "bdb", "code", "idlelib", "pdb", "profile", "timeit"];

/// They say what they are, and run nothing.
const ABOUT_ITSELF: [&str; 7] = ["--version", "-V", "-v", "-version", "--help", "-h", "-help"];

/// Their arguments are commands, or hold them.
#[rustfmt::skip]
const LAUNCHERS: [(&[&str], &[When]); 34] = [
    (&[".", "alias", "at", "batch", "bind", "bwrap", "builtin", "busybox", "bunx", "capsh", "cgexec", "chronic", "chroot", "chrt", "complete",
       "compgen", "coproc", "dbus-run-session", "doas", "dtach", "dumb-init", "enable", "entr", "eval", "exec", "faketime", "fakeroot",
       "firejail", "flock", "gdb", "gosu", "hyperfine", "ifne", "ionice", "linux32", "linux64", "ltrace", "mosh", "nice", "nohup",
       "npx", "nsenter", "numactl", "parallel", "pipx", "pkexec", "prlimit", "proxychains", "proxychains4", "rlwrap", "run0", "runuser",
       "screen", "script", "setarch", "setpriv", "setsid", "sg", "source", "ssh", "start-stop-daemon", "stdbuf", "strace", "su",
       "sudo", "sudoedit", "systemd-run", "taskset", "time", "timeout", "tini", "tmux", "torify", "torsocks", "toybox", "trap", "tsp",
       "unbuffer", "unshare", "uvx", "valgrind", "visudo", "watch", "xargs", "xvfb-run", "xterm",
       "autossh", "aws-vault", "caffeinate", "chpst", "concurrently", "cpulimit", "cross-env", "dotenv", "eatmydata", "envdir", "genv", "gnice",
       "gnohup", "gstdbuf", "gtimeout", "gxargs", "nix-shell", "nodemon", "pee", "proot", "rsh", "schroot", "sem", "softlimit", "ssh-agent",
       "sshpass", "su-exec", "systemd-nspawn", "tsocks", "watchexec", "choom", "run-parts", "coresched", "uclampset"], &[Always]),
    (&["env", "crontab"], &[Arguments]),
    (&["command"], &[Check(|arguments| !matches!(arguments.first().map(String::as_str), Some("-v" | "-V")))]),
    (&["find", "gfind", "bfs"], &[Word("-exec"), Word("-execdir"), Word("-ok"), Word("-okdir"), Word("-delete"), Word("-fprint"),
                         Word("-fprint0"), Word("-fprintf"), Word("-fls"), Check(any_unknown)]),
    (&["fd", "fdfind"], &[Letter('x'), Letter('X'), Long("--exec"), Long("--exec-batch"), Check(maybe_option)]),
    (&["git"], &[Check(git)]),
    (&["man"], &[Letter('P'), Letter('H'), Letter('C'), Long("--pager"), Long("--html"), Long("--config-file")]),
    (&["npm"], &[Word("exec"), Word("x"), Word("explore"), Word("edit"), Word("init"), Word("create"), Long("--script-shell"), Long("--node-options")]),
    (&["pnpm", "yarn", "bundle", "pipenv", "poetry", "rye", "hatch", "pdm", "mise", "asdf", "direnv", "nix", "conda",
       "rbenv", "pyenv", "nvm", "nodenv", "volta", "stack", "opam", "cabal", "composer", "op", "doppler", "guix", "micromamba", "mamba", "pixi", "rustup", "flatpak"],
        &[Word("exec"), Word("dlx"), Word("run"), Word("shell"), Word("develop"), Long("--script-shell")]),
    (&["uv"], &[Word("run"), Word("tool")]),
    (&["cargo"], &[Long("--config"), Word("watch")]),
    (&["[", "test"], &[Check(tests_element), Inside("$("), Inside("`")]),
    (&["sdiff", "diff3"], &[Long("--diff-program")]),
    (&["go"], &[Start("-toolexec"), Start("--toolexec"), Start("-exec"), Start("--exec"), Word("generate")]),
    (&["docker", "podman", "nerdctl", "lxc", "incus", "machinectl", "kubectl", "oc", "vagrant", "docker-compose"], &[Word("exec"), Word("run"), Word("ssh"), Word("debug")]),
    (&["rsync"], &[Letter('e'), Long("--rsh"), Long("--rsync-path")]),
    (&["scp"], &[Letter('S'), Letter('o'), Letter('F')]),
    (&["sort", "gsort"], &[Long("--compress-program")]),
    (&["split", "gsplit"], &[Long("--filter")]),
    (&["rg", "rga"], &[Long("--pre"), Long("--hostname-bin")]),
    (&["ag", "ack"], &[Long("--pager")]),
    (&["bat", "batcat", "delta"], &[Long("--pager"), Long("--diff-args")]),
    (&["tcpdump"], &[Letter('z')]),
    (&["ip"], &[Word("exec")]),
    (&["apt", "apt-get", "aptitude", "dpkg"], &[Letter('o'), Long("--option"), Long("--config-file"), Start("--pre-invoke"), Start("--post-invoke")]),
    (&["systemctl", "journalctl", "loginctl"], &[Word("edit")]),
    (&["perf"], &[Word("record"), Word("stat"), Word("trace")]),
    (&["wget"], &[Long("--use-askpass"), Letter('e'), Long("--execute")]),
    (&["hash"], &[Letter('p')]),
    (&["mapfile", "readarray"], &[Letter('C'), Check(names_element)]),
    (&["fc"], &[Letter('s'), Letter('e')]),
    (&["pip", "pip3"], &[Start("--editor")]),
    (&["gh"], &[Word("alias"), Word("extension"), Word("codespace")]),
    (&["ld.so", "ld-linux.so", "ld-linux-x86-64.so", "ld-linux-aarch64.so", "ld-musl-x86_64.so", "ld-musl-aarch64.so"], &[Always]),
];

/// Their arguments are code of a language of their own, and that can run commands or write files.
#[rustfmt::skip]
const CODE: [(&[&str], &[When]); 26] = [
    (&["tar", "gtar", "bsdtar"], &[Long("--to-command"), Long("--checkpoint-action"), Long("--use-compress-program"), Letter('I'), Letter('F'),
                         Long("--info-script"), Long("--new-volume-script"), Long("--rsh-command"), Long("--rmt-command"), Check(tar), Check(maybe_option)]),
    (&["sed", "gsed"], &[Check(sed), Check(maybe_option)]),
    (&["awk", "gawk", "mawk", "nawk", "original-awk"], &[Check(awk), Check(maybe_option)]),
    (&["vi", "vim", "nvim", "view", "vimdiff", "ex", "rvim", "gvim"], &[Letter('c'), Letter('S'), Letter('u'), Letter('s'), Long("--cmd"), Start("+"), Check(maybe_option)]),
    (&["emacs", "emacsclient"], &[Long("--eval"), Long("--execute"), Long("--funcall"), Long("--load"), Long("--script"), Letter('e'), Letter('f'), Letter('l')]),
    (&["ed", "red", "dc", "ftp", "sftp", "m4", "nano", "pico", "joe"], &[Always]),
    (&["less", "more", "most"], &[Start("+"), Letter('k'), Long("--lesskey-file"), Long("--lesskey-src")]),
    (&["make", "gmake", "bmake"], &[Start("SHELL="), Start(".SHELLFLAGS="), Start("MAKEFLAGS="), Letter('E'), Long("--eval"), Inside("$(shell"), Word("-"), Check(make)]),
    (&["nc", "ncat", "netcat"], &[Letter('e'), Letter('c'), Long("--exec"), Long("--sh-exec"), Long("--lua-exec")]),
    (&["socat"], &[Inside("EXEC"), Inside("exec"), Inside("SYSTEM"), Inside("system"), Inside("SHELL"), Inside("shell")]),
    (&["openssl"], &[Word("-engine"), Word("-provider"), Word("-provider-path"), Word("engine")]),
    (&["zip"], &[Start("-TT"), Long("--unzip-command")]),
    (&["cpio"], &[Long("--rsh-command")]),
    (&["sqlite3"], &[Inside(".sh"), Inside(".sy"), Inside(".lo"), Inside(".ou"), Inside(".im"), Inside(".onc"), Inside("load_extension"), Inside("edit("), Long("--init"), Word("-init"), Word("-cmd")]),
    (&["psql"], &[Inside("\\!"), Inside("\\o"), Inside("\\g"), Inside("PROGRAM"), Inside("program"), Letter('f')]),
    (&["mysql", "mariadb"], &[Inside("\\!"), Inside("system"), Inside("source"), Inside("\\.")]),
    (&["jrunscript", "jshell"], &[Always]),
    (&["let"], &[Check(evaluates)]),
    (&["declare", "typeset", "readonly"], &[Check(declares)]),
    (&["local", "export"], &[Check(exports)]),
    (&["printf"], &[Check(prints_into)]),
    (&["read"], &[Check(reads_into)]),
    (&["unset", "getopts"], &[Check(names_element)]),
    (&["wait"], &[Check(waits_into)]),
    (&["gcc", "g++", "cc", "c++", "clang"], &[Start("-wrapper"), Start("-fplugin"), Start("-B"), Start("-specs")]),
    (&["ffmpeg", "convert", "magick"], &[Inside("ephemeral:"), Inside("msl:"), Inside("|")]),
];

/// A program's name without its version: `python3.12` is `python`.
fn unversioned(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if bare.is_empty() { name } else { bare }
}

/// What is known of a program.
#[derive(Debug, Clone, Copy)]
enum Known {
    Shell,
    /// The letters and the long options before code.
    Interpreter(&'static str, &'static [&'static str]),
    Launcher(&'static [When]),
    Code(&'static [When]),
}

static KNOWN: LazyLock<HashMap<&'static str, Known>> = LazyLock::new(|| {
    let shells = SHELLS.iter().map(|name| (*name, Known::Shell));
    let interpreters = INTERPRETERS
        .iter()
        .flat_map(|(names, letters, longs)| names.iter().map(|name| (*name, Known::Interpreter(letters, longs))));
    let launchers = LAUNCHERS.iter().flat_map(|(names, when)| names.iter().map(|name| (*name, Known::Launcher(when))));
    let codes = CODE.iter().flat_map(|(names, when)| names.iter().map(|name| (*name, Known::Code(when))));
    shells.chain(interpreters).chain(launchers).chain(codes).collect()
});

/// Whether it reads the language that `shell` reads.
pub(super) fn is_shell(name: &str) -> bool {
    matches!(known(name), Some(Known::Shell))
        || matches!(name, "." | "source" | "ssh" | "su" | "sudo" | "doas" | "at" | "batch" | "env")
}

/// Launchers whose command stands behind their options: the options' letters that take the next word, and how
/// many further words come before the command.
const RUNNERS: [(&[&str], &str, usize); 12] = [
    (&["sudo"], "ugpCDhRTUrt", 0),
    (&["doas", "pkexec", "runuser", "systemd-run", "setpriv", "gosu"], "uCgGptEM", 0),
    (&["env"], "uC", 0),
    (
        &[
            "nohup",
            "setsid",
            "exec",
            "command",
            "builtin",
            "busybox",
            "toybox",
            "tini",
            "dumb-init",
            "unbuffer",
            "chronic",
            "rlwrap",
        ],
        "a",
        0,
    ),
    (
        &[
            "fakeroot",
            "dbus-run-session",
            "torify",
            "torsocks",
            "proxychains",
            "proxychains4",
            "xvfb-run",
            "unshare",
            "nsenter",
        ],
        "lsibfnetSG",
        0,
    ),
    (&["timeout"], "sk", 1),
    (&["nice", "ionice"], "ncpPu", 0),
    (&["time", "stdbuf", "watch"], "fonied", 0),
    (&["strace", "ltrace", "perf", "valgrind"], "eoEpsSuPOXaI", 0),
    (&["chroot", "taskset", "chrt", "numactl"], "", 1),
    (&["flock"], "wE", 1),
    (&["ssh"], "BbcDEeFIiJLlmOopQRSWw", 1),
];

/// Where the command of a launcher begins, when it begins at one place.
pub(super) fn inner_start(part: &Part) -> Option<usize> {
    let name = part.program()?;
    let (_, letters, further) = RUNNERS.iter().find(|(names, ..)| names.contains(&name))?;
    let mut further = *further;
    let mut at = 1;
    loop {
        let word = part.words.get(at)?;
        if word == "--" {
            return Some(at + 1 + further);
        }
        if let Some(option) = word.strip_prefix('-') {
            at += if option.len() == 1 && letters.contains(option) { 2 } else { 1 };
        } else if word.contains('=') && matches!(name, "env" | "sudo" | "doas") {
            at += 1;
        } else if further > 0 {
            further -= 1;
            at += 1;
        } else {
            return Some(at);
        }
    }
}

/// Whether its arguments are code of another language.
pub(super) fn is_code(name: &str) -> bool {
    matches!(known(name), Some(Known::Code(_)))
}

/// Where in the words of a program that is fed with names (`find`, `xargs`) a command begins.
pub(super) fn command_starts(part: &Part) -> Vec<usize> {
    let behind = |signs: &[&str]| {
        let at = |(at, word): (usize, &String)| signs.contains(&word.as_str()).then_some(at + 1);
        part.words.iter().enumerate().filter_map(at).collect()
    };
    match part.program() {
        Some("find" | "gfind" | "bfs") => behind(&["-exec", "-execdir", "-ok", "-okdir"]),
        Some("fd" | "fdfind") => behind(&["-x", "-X", "--exec", "--exec-batch"]),
        Some("xargs" | "parallel") => {
            let mut at = 1;
            while let Some(option) = part.words.get(at).filter(|word| word.starts_with('-')) {
                at += if option.len() == 2 && "InLPsdEajNS".contains(&option[1..]) { 2 } else { 1 };
            }
            vec![at]
        }
        Some(_) | None => Vec::new(),
    }
}

fn known(name: &str) -> Option<Known> {
    KNOWN.get(name).or_else(|| KNOWN.get(unversioned(name))).copied()
}

/// Whether a program runs what it reads from its standard input, or may.
pub(super) fn runs_input(part: &Part) -> bool {
    part.program().is_none_or(|name| {
        matches!(known(name), Some(Known::Shell | Known::Interpreter(..)))
            || matches!(
                name,
                "." | "source"
                    | "ssh"
                    | "xargs"
                    | "parallel"
                    | "at"
                    | "batch"
                    | "crontab"
                    | "sudo"
                    | "su"
                    | "doas"
                    | "env"
            )
            || matches!(
                name,
                "psql" | "mysql" | "sqlite3" | "ed" | "dc" | "make" | "gdb" | "patch" | "docker" | "podman"
            )
    })
}

/// The script that a shell or an interpreter runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Script<'a> {
    /// None: it is neither, or it only tells its version.
    None,
    /// In an argument.
    Inline(Vec<&'a str>),
    /// A file, by name: a program like any other.
    File,
    /// Who knows.
    Unknown,
}

/// A shell of somebody else's, or elsewhere, that is given no command: it reads them.
fn is_login(name: &str, arguments: &[String]) -> bool {
    let short =
        |letters: &[char]| arguments.iter().any(|a| a.starts_with('-') && !a.starts_with("--") && a.contains(letters));
    match name {
        "ssh" | "mosh" => {
            // Of the options, these take the next word.
            let takes = |a: &str| a.len() == 2 && "BbcDEeFIiJLlmOopQRSWw".contains(&a[1..]);
            let mut operands = 0;
            let mut rest = arguments.iter();
            while let Some(argument) = rest.next() {
                match argument.starts_with('-') {
                    true if takes(argument) => drop(rest.next()),
                    true => {}
                    false => operands += 1,
                }
            }
            operands < 2
        }
        "su" => !short(&['c']) && !arguments.iter().any(|a| a.starts_with("--command")),
        "sudo" => short(&['i', 's']) && arguments.iter().all(|a| a.starts_with('-')),
        _ => false,
    }
}

/// Whether an option of an interpreter may take the next word, for all that is known of it.
fn may_take_a_word(name: &str, option: &str, longs: &[&str]) -> bool {
    let Some(letters) = option.strip_prefix('-').filter(|letters| !letters.is_empty()) else { return false };
    if option.contains('=') || longs.contains(&option) || ABOUT_ITSELF.contains(&option) {
        return false;
    }
    let flags = FLAGS.iter().find(|(names, ..)| names.contains(&unversioned(name)));
    let is_flag = flags.is_some_and(|(_, short, long)| match letters.strip_prefix('-') {
        Some("test") => true,
        Some(_) => long.contains(&option),
        None => letters.chars().all(|letter| short.contains(letter)),
    });
    !is_flag
}

/// What script a simple command runs.
pub(super) fn script(part: &Part) -> Script<'_> {
    let Some(name) = part.program() else { return Script::None };
    let (shell, letters, longs) = match known(name) {
        Some(Known::Shell) => (true, "c", &[][..]),
        Some(Known::Interpreter(letters, longs)) => (false, letters, longs),
        Some(Known::Launcher(_)) if matches!(name, "." | "source") => (true, "", &[][..]),
        Some(Known::Launcher(_)) if is_login(name, &part.words[1..]) => return Script::Unknown,
        Some(Known::Launcher(_) | Known::Code(_)) | None => return Script::None,
    };
    let arguments = &part.words[1..];
    if !arguments.is_empty() && arguments.iter().all(|a| ABOUT_ITSELF.contains(&a.as_str())) && !shell {
        return Script::None;
    }
    let mut inline = Vec::new();
    let mut file = None;
    // Whether the word before may be an option that this one belongs to.
    let mut uncertain = false;
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        let is_short = argument.len() > 1 && argument.starts_with(['-', '+']) && !argument.starts_with("--");
        if longs.contains(&argument) {
            inline.extend(rest.next());
        } else if let Some((_, code)) = argument.split_once('=').filter(|(name, _)| longs.contains(name)) {
            inline.push(code);
        } else if let Some(at) = argument.find(|c| letters.contains(c)).filter(|_| is_short) {
            // The code is the rest of the word, or the next one; a shell takes the next one always.
            if !shell && at + 1 < argument.len() {
                inline.push(&argument[at + 1..]);
            }
            inline.extend(rest.next());
        } else if shell && is_short && argument.contains('s') {
            return Script::Unknown;
        } else if !shell && argument == "-m" {
            file = rest.next();
            let module = file.and_then(|module| module.split('.').next()).unwrap_or("-");
            if CODE_MODULES.contains(&module) {
                inline.extend(rest.by_ref());
                file = None;
            }
            break;
        } else if argument == "--test" && unversioned(name).starts_with("node") {
            // It looks for the scripts itself, by name.
            file = file.or(Some(argument));
        } else if !is_short && !argument.starts_with("--") {
            file = file.or(Some(argument));
            if !uncertain {
                break;
            }
        }
        uncertain = !shell && may_take_a_word(name, argument, longs);
    }
    match file {
        _ if !inline.is_empty() => Script::Inline(inline),
        Some(file)
            if file != "-" && !file.starts_with("/dev/") && !file.starts_with("/proc/") && !file.contains(UNKNOWN) =>
        {
            Script::File
        }
        Some(_) | None => Script::Unknown,
    }
}

/// How many of its words a pattern has to spell to cover a command that runs others: those before the code that an
/// interpreter is given, else all. None: not even then is it known what runs.
pub(super) fn known_up_to(part: &Part) -> Option<usize> {
    if part.program().is_none() {
        // A program that is said as it stands in the line.
        return part.typed_at(Spot::Word(0)).map(|_| 0);
    }
    match (part.program().and_then(known), script(part)) {
        (Some(Known::Interpreter(..)), Script::Inline(codes)) => {
            let first = *codes.first()?;
            part.words.iter().position(|word| word.as_str() == first).filter(|&at| at > 1)
        }
        (_, Script::Unknown) => None,
        (_, Script::None | Script::Inline(_) | Script::File) => (!part.has_unknown()).then_some(part.words.len()),
    }
}

/// Whether a command may run commands that are not its own words.
pub(super) fn runs_others(part: &Part) -> bool {
    let Some(name) = part.program() else { return true };
    let arguments = &*part.arguments();
    match known(name) {
        None => false,
        // With any option at all it may read more than the script.
        Some(Known::Shell) => {
            script(part) != Script::File || arguments.first().is_some_and(|a| a.starts_with(['-', '+']))
        }
        Some(Known::Interpreter(..)) => !matches!(script(part), Script::None | Script::File),
        Some(Known::Launcher(when) | Known::Code(when)) => when.iter().any(|when| fits(*when, arguments)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_once() {
        let interpreters = INTERPRETERS.iter().flat_map(|(names, ..)| *names);
        let launchers = LAUNCHERS.iter().chain(&CODE).flat_map(|(names, _)| *names);
        assert_eq!(KNOWN.len(), SHELLS.iter().chain(interpreters).chain(launchers).count());
    }

    #[test]
    fn scripts_are_told_apart() {
        let unknown = UNKNOWN.to_string();
        let inline = |code: &'static [&'static str]| Script::Inline(code.to_vec());
        #[rustfmt::skip]
        let table: [(&[&str], Script<'_>); 33] = [
            (&["ls"], Script::None), (&["sh"], Script::Unknown), (&["sh", "x.sh"], Script::File), (&["sh", "-"], Script::Unknown),
            (&["bash", "-lc", "ls"], inline(&["ls"])), (&["bash", "-s", "x"], Script::Unknown), (&["sh", "/dev/stdin"], Script::Unknown),
            (&["/usr/bin/python3.12", "-c", "x"], inline(&["x"])), (&["python3", "-m", "http.server"], Script::File),
            (&["python", "--version"], Script::None), (&["python"], Script::Unknown), (&["python", "-"], Script::Unknown),
            (&["node", "-e", "x"], inline(&["x"])), (&["node", "--eval=x"], inline(&["x"])), (&["node", "a.js", "-e"], Script::File),
            (&["perl", "-ne", "x"], inline(&["x"])), (&["perl", "-ex"], inline(&["x"])), (&["ruby", "a.rb"], Script::File),
            (&["php", "-r", "x"], inline(&["x"])), (&["sh", &unknown], Script::Unknown), (&["deno", "eval", "x"], inline(&["x"])),
            (&["python3", "-W", "ignore", "-c", "x"], inline(&["x"])), (&["python3", "-u", "a.py", "-c", "x"], Script::File), (&["node", "-r", "fs", "-e", "x"], inline(&["x"])),
            (&["node", "--title", "x", "-e", "y"], inline(&["y"])), (&["node", "-C", "dev", "-e", "x"], inline(&["x"])), (&["perl", "-I", "lib", "-e", "x"], inline(&["x"])),
            (&["ruby", "-I", "lib", "a.rb"], Script::File), (&["python3", "-m", "timeit", "x"], inline(&["x"])), (&["python3", "-m", "pdb"], Script::Unknown),
            (&["node", "--test"], Script::File), (&["node", "--check", "a.js", "-e"], Script::File), (&["perl", "-w", "a.pl", "-e", "x"], Script::File),
        ];
        for (words, want) in table {
            let part = Part { words: words.iter().map(|w| (*w).to_owned()).collect(), ..Part::default() };
            assert_eq!(script(&part), want, "{words:?}");
        }
    }
}
