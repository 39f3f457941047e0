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
}

/// In lower case.
const NETWORK: [&str; 13] = [
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
];

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
const NETWORK_FORMS: [&str; 5] = [
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
pub fn denial(output: &str, passed: bool) -> Option<Denial> {
    let output = output.to_ascii_lowercase();
    let says = |signs: &[&str]| signs.iter().any(|sign| output.contains(sign));
    if !passed {
        return if says(&NETWORK) { Some(Denial::Network) } else { says(&FILES).then_some(Denial::Files) };
    }
    let ends =
        |signs: &[&str]| output.lines().filter(|line| !is_found(line)).any(|l| signs.iter().any(|s| l.ends_with(s)));
    if says(&NETWORK_FORMS) || ends(&NETWORK_ENDS) {
        return Some(Denial::Network);
    }
    (says(&FILES_FORMS) || ends(&FILES_ENDS)).then_some(Denial::Files)
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
            ("AssertionError: 1 == 2", None),
            ("", None),
        ];
        for (output, want) in table {
            assert_eq!(denial(output, false), want, "{output}");
        }
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
            assert_eq!(denial(output, true), want, "{output}");
        }
    }
}
