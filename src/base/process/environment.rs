//! What a started program gets to see of our environment. Pure: variables in, variables out.
//!
//! Names that look like credentials are dropped, and so are our own settings and what would point git at
//! another repository than the one it stands in. A few are set so that nothing waits for a person. What
//! the caller names explicitly wins over all of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// An inherited name that contains one of these, in any case, is not passed on (design D8).
const SECRET_WORDS: [&str; 8] =
    ["KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "MYSQL_PWD"];

/// Where git would look instead of at its directory; set while a git hook runs us.
const GIT_PLACES: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
];

/// What would make a test runner believe that it runs inside another one, and run nothing.
const INSIDE_A_TEST: [&str; 1] = ["NODE_TEST_CONTEXT"];

/// So that nothing pages, colours or prompts.
const QUIET: [(&str, &str); 5] =
    [("PAGER", "cat"), ("GIT_PAGER", "cat"), ("TERM", "dumb"), ("NO_COLOR", "1"), ("GIT_TERMINAL_PROMPT", "0")];

/// The environment of a started program: `inherited` without what it must not see, `explicit` over all.
///
/// Sorted by name; each name once. Cannot fail.
pub fn environment(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    explicit: &BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let mut all: BTreeMap<OsString, OsString> = inherited.into_iter().filter(|(name, _)| passes(name)).collect();
    all.extend(QUIET.map(|(name, value)| (name.into(), value.into())));
    all.extend(explicit.iter().map(|(name, value)| (name.into(), value.into())));
    all.into_iter().collect()
}

/// The environment of a program that the configuration names as one that answers for us, such as an agent: it
/// needs its own keys, so `inherited` goes on whole but for what is ours, and `explicit` over all.
///
/// Sorted by name; each name once. Cannot fail.
pub fn trusted_environment(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    explicit: &BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let mut all: BTreeMap<OsString, OsString> =
        inherited.into_iter().filter(|(name, _)| is_not_ours(&name.to_string_lossy().to_ascii_uppercase())).collect();
    all.extend(QUIET.map(|(name, value)| (name.into(), value.into())));
    all.extend(explicit.iter().map(|(name, value)| (name.into(), value.into())));
    all.into_iter().collect()
}

/// Keeps the environment that this process was started with from other processes of the same user, which
/// what it starts would else read from `/proc`. Root sees it all the same. For whole programs: it also
/// ends core dumps and debuggers.
#[cfg(target_os = "linux")]
pub fn hide_own() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // An old kernel that cannot leaves things as they were.
    let _unhidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Only where `/proc` shows it.
#[cfg(not(target_os = "linux"))]
pub fn hide_own() {}

fn passes(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    is_not_ours(&name) && !SECRET_WORDS.iter().any(|word| name.contains(word))
}

fn is_not_ours(name: &str) -> bool {
    !name.starts_with("SIMSE_") && !GIT_PLACES.contains(&name) && !INSIDE_A_TEST.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_here_and_the_caller_wins() {
        let inherited = [
            ("PATH", "/bin"),
            ("OPENAI_API_KEY", "sk"),
            ("aws_secret_access", "x"),
            ("GITHUB_TOKEN", "x"),
            ("Db_Password", "x"),
            ("SMTP_PASSWD", "x"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/x"),
            ("SIMSE_PORT", "1"),
            ("GIT_DIR", "/elsewhere/.git"),
            ("GIT_AUTHOR_NAME", "A"),
            ("NODE_TEST_CONTEXT", "child-v8"),
            ("PAGER", "less"),
            ("TERM", "xterm"),
        ]
        .map(|(name, value)| (name.into(), value.into()));
        let explicit = [("MY_TOKEN", "mine"), ("TERM", "vt100"), ("SIMSE_X", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let got = environment(inherited, &explicit);
        #[rustfmt::skip]
        let want = [
            ("GIT_AUTHOR_NAME", "A"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0"), ("MY_TOKEN", "mine"),
            ("NO_COLOR", "1"), ("PAGER", "cat"), ("PATH", "/bin"), ("SIMSE_X", "1"), ("TERM", "vt100"),
        ];
        assert_eq!(got, want.map(|(name, value)| (OsString::from(name), OsString::from(value))));
    }

    #[test]
    fn an_agent_keeps_its_keys_and_gets_none_of_ours() {
        let inherited = [("AGENT_API_KEY", "sk"), ("SIMSE_AUTH_TOKEN", "t"), ("GIT_DIR", "/e"), ("PATH", "/bin")];
        let inherited = inherited.map(|(name, value)| (name.into(), value.into()));
        let explicit = [("PATH".to_owned(), "/agent".to_owned())].into();
        let got = trusted_environment(inherited, &explicit);
        let named =
            |wanted: &str| got.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.to_string_lossy());
        assert_eq!(named("AGENT_API_KEY").as_deref(), Some("sk"));
        assert_eq!(named("PATH").as_deref(), Some("/agent"));
        assert_eq!((named("SIMSE_AUTH_TOKEN"), named("GIT_DIR")), (None, None));
    }
}
