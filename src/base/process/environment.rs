//! What a started program gets to see of our environment. Pure: variables in, variables out.
//!
//! Names that look like credentials are dropped, so are values that do (addresses with a password in them, private keys, tokens by their
//! well-known beginnings), and so are our own settings and what would point git at another repository than the one it stands in, or make
//! it talk about itself. Of git's settings in variables those go on that hold no credential, numbered anew. A few are set so
//! that nothing waits for a person. What the caller names explicitly wins over all of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// An inherited name that contains one of these, in any case, is not passed on (design D8).
const SECRET_WORDS: [&str; 15] = [
    "KEY",
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASSFILE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
    "WEBHOOK",
    "CONNECTION_STRING",
    "CONNSTR",
    "AUTH_CONFIG",
    "AUTHCONFIG",
];
/// So is one with one of these between its underscores.
const SECRET_PARTS: [&str; 11] = ["PW", "PWD", "PAT", "SK", "PSK", "PRIVATE", "CRED", "CREDS", "JWT", "BEARER", "DSN"];
/// And one that ends in one of these: what is in front of something else is an address or a socket (`SSH_AUTH_SOCK`).
const SECRET_ENDS: [&str; 2] = ["AUTH", "OAUTH"];
/// What opens a password safe.
const SECRET_STARTS: [&str; 2] = ["BW_SESSION", "OP_SESSION"];
/// Parts that end as a password does, and are none.
const NO_PASSWORDS: [&str; 3] = ["ASKPASS", "BYPASS", "COMPASS"];
/// Directories.
const NO_SECRETS: [&str; 2] = ["PWD", "OLDPWD"];

/// How well-known tokens begin; what follows is at least [`TOKEN_CHARS_MIN`] letters, digits, `_`, `-` or `.`.
const TOKEN_STARTS: [&str; 22] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-ant-",
    "sk-proj-",
    "sk-or-",
    "sk-",
    "sk_live_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "AKIA",
    "ASIA",
    "AIza",
    "npm_",
    "hf_",
    "dop_v1_",
];
const TOKEN_CHARS_MIN: usize = 16;
/// Passwords among the settings of an address or of a database connection, in small letters.
const PASSWORD_SETTINGS: [&str; 4] = ["password=", "passwd=", "pwd=", "sslpassword="];
/// Parts of the names of git's settings that hold credentials.
const SECRET_SETTINGS: [&str; 4] = ["extraheader", "password", "token", "secret"];

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
    let (settings, others): (Vec<_>, Vec<_>) = inherited.into_iter().partition(|(name, _)| is_git_setting(name));
    let mut all: BTreeMap<OsString, OsString> =
        others.into_iter().filter(|(name, value)| passes(name, value)).collect();
    all.extend(git_settings(&settings.into_iter().collect()));
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

fn passes(name: &OsStr, value: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    is_not_ours(&name)
        && !name.starts_with("GIT_TRACE")
        && !is_secret_name(&name)
        && !is_secret_value(&value.to_string_lossy())
}

/// The variables by which git is given settings: `GIT_CONFIG_COUNT` pairs of `GIT_CONFIG_KEY_n` and `GIT_CONFIG_VALUE_n`.
fn is_git_setting(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        name == "GIT_CONFIG_COUNT" || name.starts_with("GIT_CONFIG_KEY_") || name.starts_with("GIT_CONFIG_VALUE_")
    })
}

/// Those of git's settings that hold no credential, numbered anew: git refuses to run when one is missing.
fn git_settings(given: &BTreeMap<OsString, OsString>) -> Vec<(OsString, OsString)> {
    let find = |name: String| given.get(OsStr::new(&name));
    let count =
        find("GIT_CONFIG_COUNT".to_owned()).and_then(|count| count.to_str()?.parse::<usize>().ok()).unwrap_or(0);
    // There are no more than there are variables.
    let pairs = (0..count.min(given.len()))
        .filter_map(|n| Some((find(format!("GIT_CONFIG_KEY_{n}"))?, find(format!("GIT_CONFIG_VALUE_{n}"))?)));
    let open = pairs.filter(|(key, value)| {
        let key = key.to_string_lossy().to_ascii_lowercase();
        !SECRET_SETTINGS.iter().any(|part| key.contains(part))
            && !has_password(&key)
            && !is_secret_value(&value.to_string_lossy())
    });
    let mut all = Vec::new();
    for (n, (key, value)) in open.enumerate() {
        all.push((format!("GIT_CONFIG_KEY_{n}").into(), key.clone()));
        all.push((format!("GIT_CONFIG_VALUE_{n}").into(), value.clone()));
    }
    if !all.is_empty() {
        all.push(("GIT_CONFIG_COUNT".into(), (all.len() / 2).to_string().into()));
    }
    all
}

/// Whether a value looks like a credential, whatever its name.
pub fn is_secret_value(value: &str) -> bool {
    let is_token = |value: &str| {
        let rest = TOKEN_STARTS.iter().find_map(|start| value.strip_prefix(start));
        rest.is_some_and(|rest| {
            rest.len() >= TOKEN_CHARS_MIN && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        })
    };
    let is_password = |value: &str| {
        let small = value.to_ascii_lowercase();
        PASSWORD_SETTINGS.iter().any(|name| {
            small.split(name).skip(1).any(|rest| !rest.is_empty() && !rest.starts_with(['&', ';', ' ', '"', '\'']))
        })
    };
    has_password(value) || value.contains("PRIVATE KEY-----") || is_token(value.trim()) || is_password(value)
}

/// Whether a name in capitals looks like a credential's.
pub fn is_secret_name(name: &str) -> bool {
    let is_password = |part: &str| (part.ends_with("PASS") || part.ends_with("PW")) && !NO_PASSWORDS.contains(&part);
    let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    !NO_SECRETS.contains(&name)
        && (SECRET_STARTS.iter().any(|start| name.starts_with(start))
            || SECRET_WORDS.iter().any(|word| name.contains(word))
            || parts.clone().next_back().is_some_and(|last| SECRET_ENDS.contains(&last))
            || parts.any(|part| SECRET_PARTS.contains(&part) || is_password(part)))
}

/// Whether there is an address with a password in it: `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| {
        let authority = rest.split(|c: char| "/?#\"'".contains(c) || c.is_whitespace()).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
    })
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
    fn what_looks_like_a_credential_and_what_does_not() {
        let passed_on = |name: &str, value: &str| {
            environment([(name.into(), value.into())], &BTreeMap::new()).iter().any(|(got, _)| got == name)
        };
        let secret = "DB_PASS PW GH_PAT NPM_AUTH npm_config__auth BASIC_AUTH MY_OAUTH SLACK_WEBHOOK_URL SESSION_COOKIE STRIPE_SK \
            PGPASSFILE PRIVATE_PEM MYSQL_PWD DB_PWD SSHPASS PGPASS AWS_CREDS HTTP_AUTHORIZATION CI_JWT SENTRY_DSN WIFI_PSK \
            AZURE_STORAGE_CONNECTION_STRING OPENAI_API_KEY GITHUB_TOKEN client_secret GPG_PASSPHRASE DOCKER_AUTH_CONFIG BW_SESSION \
            OP_SESSION_my LDAP_BINDPW GIT_TRACE GIT_TRACE_CURL";
        for name in secret.split_whitespace() {
            assert!(!passed_on(name, "x"), "{name} is passed on");
        }
        let everyday = "PATH PWD OLDPWD HOME USER SHELL LANG LC_ALL TZ EDITOR TMPDIR DISPLAY XAUTHORITY SSH_AUTH_SOCK SSH_AGENT_PID \
            SSH_ASKPASS GIT_ASKPASS GIT_AUTHOR_NAME GOPATH GOPRIVATE CLASSPATH PYTHONPATH NODE_PATH MANPATH CARGO_HOME JAVA_HOME \
            VIRTUAL_ENV SSL_CERT_FILE NODE_EXTRA_CA_CERTS NEXTAUTH_URL AUTH_URL DBUS_SESSION_BUS_ADDRESS XDG_SESSION_ID COMPASS \
            LS_COLORS CI SKIP PATTERN DATABASE_URL HTTP_PROXY";
        for name in everyday.split_whitespace() {
            assert!(passed_on(name, "x"), "{name} is kept back");
        }
        #[rustfmt::skip]
        let values = [
            ("postgres://u:pw@h/db", false), ("redis://:pw@h:6379", false), ("http://u:p@proxy:3128", false),
            ("host=a url=mysql://u:p@h", false), ("\"amqp://u:p@h\"", false),
            ("postgres://localhost/db", true), ("https://h:443/a:b@c", true), ("ssh://git@h:22/x", true), ("ftp://u:@h", true),
            ("jdbc:postgresql://h/db?user=a&password=b", false), ("postgresql://h/db?PASSWORD=x", false),
            ("Server=h;Pwd=x;", false), ("-----BEGIN RSA PRIVATE KEY-----\nx", false),
            ("ghp_0123456789abcdefABCD", false), ("sk-ant-0123456789abcdef0123", false), ("AKIAIOSFODNN7EXAMPLE", false),
            ("postgresql://h/db?password=&x=1", true), ("sk-learn", true), ("-----BEGIN CERTIFICATE-----", true),
            ("npm_config", true), ("the sk-0123456789abcdef0123 of a text", true), ("ASIA/Tokyo", true),
            ("me@example.org", true), ("unix:path=/run/bus", true), ("a:b@c", true), ("://", true),
        ];
        for (value, want) in values {
            assert_eq!(passed_on("SOME_URL", value), want, "{value}");
        }
    }

    #[test]
    fn settings_of_git_go_on_without_credentials() {
        let got = |inherited: &[(&str, &str)]| {
            let inherited = inherited.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let mut all: Vec<_> = environment(inherited, &BTreeMap::new())
                .into_iter()
                .filter_map(|(name, value)| {
                    let rest = name.to_str()?.strip_prefix("GIT_CONFIG_")?.to_owned();
                    Some(format!("{rest}={}", value.to_string_lossy()))
                })
                .collect();
            all.sort();
            all.join(" ")
        };
        assert_eq!(
            got(&[
                ("GIT_CONFIG_COUNT", "3"),
                ("GIT_CONFIG_KEY_0", "http.https://h/.extraHeader"),
                ("GIT_CONFIG_VALUE_0", "Authorization: Basic eDp5"),
                ("GIT_CONFIG_KEY_1", "safe.directory"),
                ("GIT_CONFIG_VALUE_1", "*"),
                ("GIT_CONFIG_KEY_2", "url.https://u:p@h/.insteadOf"),
                ("GIT_CONFIG_VALUE_2", "https://h/"),
            ]),
            "COUNT=1 KEY_0=safe.directory VALUE_0=*"
        );
        assert_eq!(got(&[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "a.token"), ("GIT_CONFIG_VALUE_0", "x")]), "");
        assert_eq!(got(&[("GIT_CONFIG_COUNT", "99999999999"), ("GIT_CONFIG_KEY_0", "a.b")]), "");
        assert_eq!(got(&[("GIT_CONFIG_NOSYSTEM", "1")]), "NOSYSTEM=1");
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
