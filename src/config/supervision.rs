//! What a supervisor such as systemd tells a process of itself, by variables. They are for this process alone: what it starts
//! does not get them.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

/// The variables of a supervisor.
const VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Sockets that are looked at. More than two are refused, whatever they are.
const PASSED_MAX: u64 = 16;

/// How this process is supervised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Supervision {
    /// Where it is to say how it is.
    pub socket: Option<OsString>,
    /// In which time it has to say at least once that it lives.
    pub watchdog: Option<Duration>,
    /// The names of the sockets that it opened for this process, from descriptor 3 on.
    pub passed: Vec<String>,
}

impl Supervision {
    /// As the environment says.
    pub fn of_this_process() -> Self {
        Self::of(&|name| std::env::var_os(name), std::process::id())
    }

    fn of(lookup: &dyn Fn(&str) -> Option<OsString>, pid: u32) -> Self {
        let number = |name: &str| lookup(name)?.to_str()?.parse::<u64>().ok();
        let socket = lookup("NOTIFY_SOCKET").filter(|address| !address.is_empty());
        let ours = number("WATCHDOG_PID").is_none_or(|meant| meant == u64::from(pid));
        let watchdog = number("WATCHDOG_USEC").filter(|wait_us| ours && *wait_us > 0).map(Duration::from_micros);
        // Those of another process may have been in its environment, and are not here.
        let meant = number("LISTEN_PID").is_some_and(|meant| meant == u64::from(pid));
        let count = number("LISTEN_FDS").filter(|_| meant).unwrap_or(0).min(PASSED_MAX);
        let names = lookup("LISTEN_FDNAMES").and_then(|names| names.into_string().ok()).unwrap_or_default();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let passed = (0..count).map(|_| names.next().unwrap_or("unknown").to_owned()).collect();
        Self { socket, watchdog, passed }
    }
}

/// Whether a variable is a supervisor's word to this process.
pub(super) fn is_ours_alone(name: &OsStr) -> bool {
    VARIABLES.iter().any(|variable| name == *variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_for_another_process_is_none() {
        #[rustfmt::skip]
        let table: &[(&[(&str, &str)], Option<&str>, Option<u64>)] = &[
            (&[], None, None), (&[("NOTIFY_SOCKET", "")], None, None), (&[("NOTIFY_SOCKET", "@x")], Some("@x"), None),
            (&[("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "2000000")], Some("/x"), Some(2)),
            (&[("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", "7")], Some("/x"), Some(2)),
            (&[("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", "8")], Some("/x"), None),
            (&[("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "0")], Some("/x"), None), (&[("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "soon")], Some("/x"), None),
        ];
        for (variables, socket, seconds) in table {
            let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            let watchdog = seconds.map(Duration::from_secs);
            let want = Supervision { socket: socket.map(OsString::from), watchdog, passed: Vec::new() };
            assert_eq!(Supervision::of(&lookup, 7), want, "{variables:?}");
        }
        #[rustfmt::skip]
        let table: &[(&[(&str, &str)], &[&str])] = &[
            (&[("LISTEN_FDS", "2"), ("LISTEN_PID", "7"), ("LISTEN_FDNAMES", "http:control")], &["http", "control"]),
            (&[("LISTEN_FDS", "2"), ("LISTEN_PID", "7"), ("LISTEN_FDNAMES", "http")], &["http", "unknown"]),
            (&[("LISTEN_FDS", "1"), ("LISTEN_PID", "7")], &["unknown"]), (&[("LISTEN_FDS", "0"), ("LISTEN_PID", "7")], &[]),
            (&[("LISTEN_FDS", "2"), ("LISTEN_PID", "8")], &[]), (&[("LISTEN_FDS", "2")], &[]), (&[("LISTEN_FDS", "many"), ("LISTEN_PID", "7")], &[]),
        ];
        for (variables, passed) in table {
            let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            assert_eq!(Supervision::of(&lookup, 7).passed, *passed, "{variables:?}");
        }
        assert!(is_ours_alone(OsStr::new("LISTEN_FDS")) && !is_ours_alone(OsStr::new("PATH")));
    }
}
