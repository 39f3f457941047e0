//! Signs in a program's output that the sandbox was in its way. A guess, and told as one.
//!
//! One that failed is believed readily. Of one that did not, as behind a pipe or before another command, only what looks
//! like a message of the operating system's counts: commands show texts about denials, too.

/// What a confined program seems to have tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// To change or read what it may not.
    Files,
    /// To reach the network.
    Network,
    /// To signal a process.
    Signals,
}

/// Why a program seems to have been denied something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sign {
    /// What it seems to have tried.
    pub denial: Denial,
    /// The line of its output that says so.
    pub line: String,
}

/// In lower case.
const NETWORK: [&str; 17] = [
    "network is unreachable",
    "enetunreach",
    "could not resolve host",
    "temporary failure in name resolution",
    "name or service not known",
    "eai_again",
    "enotfound",
    "no route to host",
    "dns error",
    "connection refused",
    "econnrefused",
    "docker daemon",
    "unix://",
    "couldn't connect to server",
    "could not connect to server",
    "failed to connect to",
    "unable to resolve",
];

/// In lower case: what a line that says so speaks of, where the network is refused as files are.
const SOCKETS: [&str; 4] = ["socket", "curl: (", "connect", "bind"];
/// In lower case: so it begins, or so says the line before it, where a process was to be signalled.
const KILLS: [&str; 4] = ["kill: ", "killall: ", "pkill: ", "os.kill("];
/// Lines of a report of an error before the one that names it.
const REPORT_LINES: usize = 8;
/// Characters of a line that are repeated.
const LINE_CHARS_MAX: usize = 200;

/// In lower case.
const FILES: [&str; 7] = [
    "permission denied",
    "read-only file system",
    "operation not permitted",
    "eacces",
    "eperm",
    "erofs",
    "device or resource busy",
];

/// In lower case; the end of a line that begins with who says it.
const NETWORK_ENDS: [&str; 4] = [
    ": network is unreachable",
    ": temporary failure in name resolution",
    ": name or service not known",
    ": connection refused",
];
/// In lower case; so too.
const FILES_ENDS: [&str; 3] = [": permission denied", ": read-only file system", ": operation not permitted"];
/// In lower case; how programs say it that give the error's name or number.
const NETWORK_FORMS: [&str; 6] = [
    "curl: (7) ",
    "curl: (6) could not resolve",
    "connect enetunreach",
    "connect econnrefused",
    "[errno 101]",
    "getaddrinfo eai_again",
];
/// In lower case; so too.
const FILES_FORMS: [&str; 6] = [
    "error: eacces: ",
    "error: erofs: ",
    "error: eperm: ",
    "permissionerror: [errno 13]",
    "permissionerror: [errno 1]",
    "oserror: [errno 30]",
];

/// What the output of a program tells. `passed`: it ended with success. None: nothing that points here.
pub fn denial(output: &str, passed: bool) -> Option<Sign> {
    let lower = output.to_ascii_lowercase();
    let lines: Vec<&str> = lower.lines().collect();
    let says = |signs: &[&str]| lines.iter().position(|line| signs.iter().any(|sign| line.contains(sign)));
    let ends = |signs: &[&str]| {
        let ends = |line: &&str| !is_found(line) && signs.iter().any(|sign| line.ends_with(sign));
        lines.iter().position(ends)
    };
    let (network, files) = match passed {
        false => (says(&NETWORK), says(&FILES)),
        true => (says(&NETWORK_FORMS).or(ends(&NETWORK_ENDS)), says(&FILES_FORMS).or(ends(&FILES_ENDS))),
    };
    let (denial, at) = match (network, files) {
        (Some(at), _) => (Denial::Network, at),
        (None, Some(at)) => (refused(&lines[..=at]), at),
        (None, None) => return None,
    };
    let line = output.lines().nth(at).unwrap_or_default().trim().chars().take(LINE_CHARS_MAX).collect();
    Some(Sign { denial, line })
}

/// What a refusal is about that the last of these lines tells of: its own words say it, or those of the report that it ends.
fn refused(lines: &[&str]) -> Denial {
    let Some((line, before)) = lines.split_last() else { return Denial::Files };
    let report = before[before.len().saturating_sub(REPORT_LINES)..].iter().rev();
    // Lines of a report are moved in.
    let report = report.take_while(|line| line.starts_with([' ', '\t'])).chain([line]);
    let names = |signs: &[&str]| report.clone().any(|line| signs.iter().any(|sign| line.contains(sign)));
    if names(&KILLS) {
        Denial::Signals
    } else if names(&SOCKETS) {
        Denial::Network
    } else {
        Denial::Files
    }
}

/// A line of a file that a search has found: `path:12:text`, `12:text`.
fn is_found(line: &str) -> bool {
    line.split(':').take(2).any(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_read() {
        let table = [
            ("touch: cannot touch '/etc/x': Permission denied", Some(Denial::Files)),
            ("error: could not lock config file .git/config: Read-only file system", Some(Denial::Files)),
            ("curl: (6) Could not resolve host: example.org", Some(Denial::Network)),
            ("Error: connect ENETUNREACH 1.1.1.1:443", Some(Denial::Network)),
            ("connect ECONNREFUSED 127.0.0.1:5432", Some(Denial::Network)),
            ("permission denied while trying to connect to the Docker daemon socket", Some(Denial::Network)),
            (
                "curl: (7) Failed to connect to 1.1.1.1 port 80 after 0 ms: Couldn't connect to server",
                Some(Denial::Network),
            ),
            (
                "Traceback (most recent call last):\n  File \"/usr/lib/python3/socket.py\", line 8, in connect\nPermissionError: [Errno 13] Permission denied",
                Some(Denial::Network),
            ),
            ("sh: 1: kill: Operation not permitted", Some(Denial::Signals)),
            ("  os.kill(1, 9)\nPermissionError: [Errno 1] Operation not permitted", Some(Denial::Signals)),
            ("opened a socket\ntouch: cannot touch '/etc/x': Permission denied", Some(Denial::Files)),
            ("AssertionError: 1 == 2", None),
            ("", None),
        ];
        for (output, want) in table {
            assert_eq!(denial(output, false).map(|sign| sign.denial), want, "{output}");
        }
        let sign = denial("one\n  touch: cannot touch '/etc/x': Permission denied\nafter", false).unwrap();
        assert_eq!(sign.line, "touch: cannot touch '/etc/x': Permission denied", "what was tried");
        let passed = [
            ("touch: cannot touch '/etc/x': Permission denied\n", Some(Denial::Files)),
            ("sh: 1: cannot create /etc/x: Read-only file system\ndone\n", Some(Denial::Files)),
            ("chmod: changing permissions of '/etc': Operation not permitted\n", Some(Denial::Files)),
            ("PermissionError: [Errno 13] Permission denied: '/etc/x'\n", Some(Denial::Files)),
            ("Error: EROFS: read-only file system, open '/etc/x'\n", Some(Denial::Files)),
            ("bash: connect: Network is unreachable\n", Some(Denial::Network)),
            ("curl: (6) Could not resolve host: example.org\n", Some(Denial::Network)),
            ("src/a.rs:12:    // says: permission denied\n", None),
            ("12: permission denied\n", None),
            ("The server answers permission denied, or EACCES.\n", None),
            ("ok\n", None),
        ];
        for (output, want) in passed {
            assert_eq!(denial(output, true).map(|sign| sign.denial), want, "{output}");
        }
    }
}
