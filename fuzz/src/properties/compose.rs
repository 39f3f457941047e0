//! Command lines that certainly run a denied command, composed of everything that a shell offers: each is denied, and none
//! is covered by patterns that allow something else.

use arbitrary::{Result, Unstructured};
use simse::permission::command_parts;
use simse::protocol::PermissionPolicy;

use super::command::{SETS, strictness, verdict};

/// Spellings of commands that `rm *` and `git push *` deny. The shell runs one of the two for each.
const DENIED: [&str; 14] = [
    "rm x",
    "rm -rf build",
    "rm",
    "r''m x",
    "\\rm x",
    "/bin/rm x",
    "\"rm\" x",
    "rm \"a b\" $X",
    "rm *",
    "git push",
    "git push origin main",
    "git -C x push",
    "git --no-pager push -f",
    "./rm x",
];
/// Commands that nothing denies.
const HARMLESS: [&str; 14] = [
    "true",
    "ls",
    "ls -la src",
    "echo a b",
    "echo 'rm y'",
    "cat file",
    "test -f x",
    "cd src",
    "X=1",
    "echo \"$HOME\"",
    "git status",
    "echo \"#\"",
    "ls 2>&1",
    "cat < file",
];
/// Programs that run the command behind them.
const RUNNERS: [&str; 14] = [
    "sudo ",
    "env ",
    "env A=1 ",
    "nohup ",
    "timeout 5 ",
    "nice -n 5 ",
    "command ",
    "exec ",
    "time ",
    "xargs ",
    "ls | xargs -0 ",
    "setsid ",
    "A=1 ",
    "sudo -u bob env ",
];
/// Deeper than this the shape of the line is more than is followed; then it is asked at least.
const LAYERS_MAX: usize = 4;
/// What a line may hold of the signs that open something.
const OPENINGS_MAX: usize = 40;

/// The property of the target `compose`.
pub fn holds(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut layers = 0;
    let Ok(line) = composed(&mut u, &mut layers) else { return };
    let denying = verdict(&SETS.not_some, &line);
    let allowing = verdict(&SETS.some, &line);
    assert!(denying.policy != PermissionPolicy::Allow, "{line:?} is allowed: {:?}", command_parts(&line));
    assert!(
        allowing.policy != PermissionPolicy::Allow || line.contains("git"),
        "{line:?} is covered by patterns for others"
    );
    let openings = line.matches(['(', '{', '`', '!']).count() + line.split(|c: char| !c.is_alphabetic()).count() / 2;
    // What the parser cannot read is asked, whatever is found in it.
    let unreadable = command_parts(&line).iter().any(|part| part == "…");
    if layers <= LAYERS_MAX && openings <= OPENINGS_MAX && !unreadable {
        let want = strictness(PermissionPolicy::Deny);
        // The same for a line in quotes inside of it.
        let asked = layers > 0 && denying.policy == PermissionPolicy::Ask && denying.may_be_denied;
        let denied = strictness(denying.policy) == want;
        assert!(denied || asked, "{line:?}: {denying:?} of {:?}", command_parts(&line));
    }
}

/// A line that runs what is denied, whole by itself. `layers` counts the command lines inside of quotes.
fn composed(u: &mut Unstructured<'_>, layers: &mut usize) -> Result<String> {
    let mut line = (*u.choose(&DENIED)?).to_owned();
    for _ in 0..u.int_in_range(0..=2)? {
        // `exec` and assignments are for the shell alone, so they stand in front of all.
        let runner = *u.choose(&RUNNERS)?;
        let shell_only = ["exec ", "A=1 ", "time ", "ls | xargs -0 "];
        let bare = !shell_only.iter().any(|own| line.starts_with(own));
        if bare && !line.starts_with(['\\', '.']) {
            line = format!("{runner}{line}");
        }
    }
    if u.ratio(1, 6)? && !line.contains('|') {
        line = format!("find . -name x -exec {line} \\;");
    }
    for _ in 0..u.int_in_range(0..=5)? {
        let other = *u.choose(&HARMLESS)?;
        line = around(u.int_in_range(0..=29)?, &line, other, layers);
    }
    Ok(line)
}

/// One more shape around a line.
fn around(shape: u8, line: &str, other: &str, layers: &mut usize) -> String {
    match shape {
        0 => format!("{other}; {line}"),
        1 => format!("{line}; {other}"),
        2 => format!("{other} && {line}"),
        3 => format!("{line} || {other}"),
        4 => format!("{other} | {{ {line}; }}"),
        5 => format!("{{ {line}; }} & {other}"),
        6 => format!("({line})"),
        7 => format!("{{ {line}; }}"),
        8 => format!("echo $({line})"),
        9 if !line.contains(['`', '\\', '$']) => format!("echo `{line}`"),
        10 => format!("echo \"a $({line}) b\""),
        11 => format!("if {other}; then {line}; fi"),
        12 => format!("if {line}; then {other}; fi"),
        13 => format!("for i in a b; do {line}; done"),
        14 => format!("while {line}; do {other}; done"),
        15 => format!("until {other}; do {line}; done"),
        16 => format!("{line}\n{other}"),
        17 => format!("{other}\n{line}"),
        18 => format!("case x in (x) {line};; esac"),
        19 => format!("f() {{ {line}; }}; f"),
        20 => format!("{{ {line}; }} > out 2>&1"),
        21 => format!("cat <({line})"),
        22 => format!("X=$({line})"),
        23 => inside(layers, "sh -c", line),
        24 => inside(layers, "bash -lc", line),
        25 => inside(layers, "eval", line),
        26 => format!("{{ # no comment\n{line}; }}"),
        27 => format!("{{ {line} # a comment\n}}"),
        28 => format!("{other} | {{ ! {{ {line}; }}; }}"),
        29 if !line.contains('\n') => format!("{{ cat <<END\n$({line})\nEND\n}}"),
        _ => format!("{other} || ({line})"),
    }
}

/// A line as the argument of a shell.
fn inside(layers: &mut usize, shell: &str, line: &str) -> String {
    *layers += 1;
    format!("{shell} '{}'", line.replace('\'', "'\\''"))
}
