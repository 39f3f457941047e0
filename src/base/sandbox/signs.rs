//! Signs in a failed program's output that the sandbox was in its way. A guess, and told as one.

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

/// What the output of a program that failed tells. None: nothing that points here.
pub fn denial(output: &str) -> Option<Denial> {
    let output = output.to_ascii_lowercase();
    let says = |signs: &[&str]| signs.iter().any(|sign| output.contains(sign));
    if says(&NETWORK) {
        return Some(Denial::Network);
    }
    says(&FILES).then_some(Denial::Files)
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
            assert_eq!(denial(output), want, "{output}");
        }
    }
}
