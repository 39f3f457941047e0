//! The named tokens of a data directory (contract.md, Doors): `tokens.json`, 0600, which the command line changes and
//! a running server reads again.
//!
//! Invariants: no token stands in the file, only its SHA-256: it is shown once, when it is made. Tokens are 244 random
//! bits, so that the hash needs neither salt nor slowness. A file that others could have read or changed is refused. A name
//! is given once: sessions belong to it, and outlive the token.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::data_directory::{DataDirectoryError, error, place, read_private};
use crate::base::{clock, limit};
use crate::protocol::{ClientId, TokenName, TokenRole};

/// What all tokens of ours begin with, so that those who look for leaked secrets know them.
const PREFIX: &str = "simse_";
const TOKENS: &str = "tokens.json";
const LOCK: &str = "tokens.lock";

/// A named token, as far as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenEntry {
    /// Its name.
    pub name: TokenName,
    /// What its bearer may do.
    pub role: TokenRole,
    /// Whose sessions its bearer sees; None: those that it opens itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions_of: Option<SessionsOf>,
    /// SHA-256 of the token in hexadecimal digits.
    sha256: Fingerprint,
    /// When it was made: milliseconds since 1970.
    pub created_at: u64,
}

/// Another token, whose sessions one sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum SessionsOf {
    /// That of the file `token`.
    Owner,
    /// A named one. It may be revoked: its sessions are still there.
    Token(String),
}

impl From<String> for SessionsOf {
    fn from(text: String) -> Self {
        if text == TokenName::owner() { Self::Owner } else { Self::Token(text) }
    }
}

impl From<SessionsOf> for String {
    fn from(whose: SessionsOf) -> Self {
        match whose {
            SessionsOf::Owner => TokenName::owner().to_owned(),
            SessionsOf::Token(name) => name,
        }
    }
}

/// The SHA-256 of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let expected = "expected a SHA-256 in 64 hexadecimal digits";
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let bytes: Vec<u8> =
            digits.ok_or(expected)?.chunks(2).map(|two| two.iter().fold(0, |b, d| b << 4 | d)).collect();
        if text.len() == 64 { bytes.try_into().map(Self).map_err(|_| expected) } else { Err(expected) }
    }
}

impl From<Fingerprint> for String {
    fn from(print: Fingerprint) -> Self {
        print.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TokenEntry {
    /// The client that its bearer is, or is `within` it.
    pub fn client(&self, within: Option<&ClientId>) -> Option<ClientId> {
        let of = |name| Some(ClientId::of_token(name, within));
        match &self.sessions_of {
            None => of(&self.name),
            Some(SessionsOf::Owner) => within.cloned(),
            // What names no token was refused when the file was read.
            Some(SessionsOf::Token(name)) => name.parse().ok().as_ref().map_or_else(|| of(&self.name), of),
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensFile {
    tokens: Vec<TokenEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<Revoked>,
}

/// A token that is no more. Its name stays: who had it still has sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Revoked {
    /// Its name.
    pub name: TokenName,
    /// When it was revoked: milliseconds since 1970.
    pub revoked_at: u64,
}

/// The named tokens, as they stood in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    entries: Vec<TokenEntry>,
    revoked: Vec<Revoked>,
}

/// Tells a version of the file from another. None: there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(Option<Seen>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    number: u64,
    bytes: u64,
    modified: (i64, i64),
    /// Also when its owner or its permissions changed.
    changed: (i64, i64),
}

/// The named tokens could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file.
    #[error(transparent)]
    Data(#[from] DataDirectoryError),
    /// A token has this name.
    #[error("a token named {0} is there already; revoke it first, or choose another name")]
    Taken(TokenName),
    /// A token had this name.
    #[error(
        "a token named {0} was revoked, and its sessions are still there; choose another name, with --sessions-of {0} if it is to \
         see them"
    )]
    Used(TokenName),
    /// There is none.
    #[error("no token is named {0}")]
    Missing(String),
    /// A role that would see nothing.
    #[error(
        "a read-only token opens no sessions, so it needs those of another: --sessions-of NAME, or --sessions-of owner"
    )]
    SeesNothing,
    /// Too many.
    #[error("{} tokens are there already; revoke some", limit::TOKENS_MAX)]
    Full,
    /// It could not be shown.
    #[error("token {name} was not made: it could not be shown on stdout: {cause}")]
    Unseen {
        /// Its name, which is free.
        name: TokenName,
        /// The operating system's own error.
        cause: io::Error,
    },
    /// Too many names, and none is given twice.
    #[error("{} tokens are or were there; no further name is given in this data directory", limit::TOKEN_NAMES_MAX)]
    NamesUsedUp,
}

/// A token to be made.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Its name.
    pub name: TokenName,
    /// What its bearer may do.
    pub role: TokenRole,
    /// Whose sessions its bearer sees.
    pub sessions_of: Option<SessionsOf>,
}

/// The path of the file.
pub fn tokens_file(directory: &Path) -> PathBuf {
    directory.join(TOKENS)
}

impl Stamp {
    /// The version of the file that is there now.
    pub fn of(path: &Path) -> Self {
        let found = std::fs::metadata(path).ok();
        Self(found.map(|found| Seen {
            number: found.ino(),
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }))
    }
}

impl Tokens {
    /// What the file says; nothing where there is none.
    ///
    /// # Errors
    /// [`DataDirectoryError`] when others can read the file, or it holds something else.
    pub fn read(path: &Path) -> Result<Self, DataDirectoryError> {
        let bad = |problem: String| error("read the tokens", path, io::Error::new(io::ErrorKind::InvalidData, problem));
        let advice =
            "whoever could read it could have changed it; look at it with `simse token list` after `chmod 600`";
        let Some(bytes) = read_private(path, "read the tokens", advice)? else { return Ok(Self::default()) };
        let file: TokensFile = serde_json::from_slice(&bytes).map_err(|cause| bad(cause.to_string()))?;
        for (at, entry) in file.tokens.iter().enumerate() {
            if file.tokens[..at].iter().any(|other| other.name == entry.name) {
                return Err(bad(format!("two tokens are named {}", entry.name)));
            }
            if let Some(SessionsOf::Token(name)) = &entry.sessions_of {
                name.parse::<TokenName>().map_err(|cause| bad(format!("sessionsOf of {}: {cause}", entry.name)))?;
            }
        }
        for (at, gone) in file.revoked.iter().enumerate() {
            let there = file.tokens.iter().map(|entry| &entry.name);
            if there.chain(file.revoked[..at].iter().map(|other| &other.name)).any(|name| *name == gone.name) {
                return Err(bad(format!("{} is revoked, and stands there a second time", gone.name)));
            }
        }
        Ok(Self { entries: file.tokens, revoked: file.revoked })
    }

    /// The entry of a token. Takes the same time whichever it is, and whether it is one.
    pub fn find(&self, token: &str) -> Option<&TokenEntry> {
        let print = Fingerprint::of(token);
        let mut found = None;
        for entry in &self.entries {
            if bool::from(entry.sha256.0.ct_eq(&print.0)) {
                found = Some(entry);
            }
        }
        found
    }

    /// All of them, in the order in which they were made.
    pub fn entries(&self) -> &[TokenEntry] {
        &self.entries
    }

    /// Those that were revoked, in that order.
    pub fn revoked(&self) -> &[Revoked] {
        &self.revoked
    }

    /// Whether a token had this name, as far as the file says: it is named as revoked, or as the one whose sessions another sees.
    fn was(&self, name: &str) -> bool {
        let seen = |entry: &TokenEntry| matches!(&entry.sessions_of, Some(SessionsOf::Token(of)) if of == name);
        self.revoked.iter().any(|gone| gone.name.as_str() == name) || self.entries.iter().any(seen)
    }
}

/// Makes a token. This is the only time that it is seen.
///
/// # Errors
/// [`TokensError`]; then nothing has changed.
pub fn create(directory: &Path, new: NewToken) -> Result<SecretString, TokensError> {
    if new.role == TokenRole::ReadOnly && new.sessions_of.is_none() {
        return Err(TokensError::SeesNothing);
    }
    let token = format!("{PREFIX}{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    change(directory, |tokens| {
        let is = |name: &str| tokens.entries.iter().any(|entry| entry.name.as_str() == name);
        if is(new.name.as_str()) {
            return Err(TokensError::Taken(new.name));
        }
        if tokens.was(new.name.as_str()) {
            return Err(TokensError::Used(new.name));
        }
        if tokens.entries.len() >= limit::TOKENS_MAX {
            return Err(TokensError::Full);
        }
        // Whatever is there can be revoked, so it counts here, too.
        if tokens.entries.len() + tokens.revoked.len() >= limit::TOKEN_NAMES_MAX {
            return Err(TokensError::NamesUsedUp);
        }
        if let Some(SessionsOf::Token(name)) = &new.sessions_of
            && !is(name)
            && !tokens.was(name)
        {
            return Err(TokensError::Missing(name.clone()));
        }
        let NewToken { name, role, sessions_of } = new;
        let sha256 = Fingerprint::of(&token);
        tokens.entries.push(TokenEntry { name, role, sessions_of, sha256, created_at: clock::now_ms() });
        Ok(())
    })?;
    Ok(token.into())
}

/// Takes a token away: a server that runs forgets it within a second, and ends what it had opened.
///
/// # Errors
/// [`TokensError`]; then nothing has changed.
pub fn revoke(directory: &Path, name: &str) -> Result<(), TokensError> {
    change(directory, |tokens| {
        let at = tokens.entries.iter().position(|entry| entry.name.as_str() == name);
        let at = at.ok_or_else(|| TokensError::Missing(name.to_owned()))?;
        let name = tokens.entries.remove(at).name;
        tokens.revoked.push(Revoked { name, revoked_at: clock::now_ms() });
        Ok(())
    })
}

/// Unmakes a token that nobody has seen: its name is free again, for no sessions can be there under it.
///
/// # Errors
/// [`TokensError`]; then nothing has changed.
pub fn take_back(directory: &Path, name: &TokenName) -> Result<(), TokensError> {
    change(directory, |tokens| {
        tokens.entries.retain(|entry| entry.name != *name);
        Ok(())
    })
}

/// Changes the file as a whole, one process after the other.
fn change(directory: &Path, edit: impl FnOnce(&mut Tokens) -> Result<(), TokensError>) -> Result<(), TokensError> {
    let path = tokens_file(directory);
    // Held until it is dropped.
    let _lock = lock(directory).map_err(|cause| error("lock the tokens", &directory.join(LOCK), cause))?;
    let mut tokens = Tokens::read(&path)?;
    edit(&mut tokens)?;
    let Tokens { entries, revoked } = tokens;
    let text = serde_json::to_vec_pretty(&TokensFile { tokens: entries, revoked });
    let text = text.map_err(|cause| error("write the tokens", &path, cause.into()))?;
    place(&path, &text, true).map_err(|cause| error("write the tokens", &path, cause).into())
}

fn lock(directory: &Path) -> io::Result<File> {
    let options = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).clone();
    let file = options.open(directory.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use secrecy::ExposeSecret as _;

    use super::*;

    fn new(name: &str, role: TokenRole, sessions_of: Option<&str>) -> NewToken {
        let sessions_of = sessions_of.map(|text| SessionsOf::from(text.to_owned()));
        NewToken { name: name.parse().unwrap(), role, sessions_of }
    }

    #[test]
    fn a_token_is_shown_once_and_kept_as_a_hash() {
        let home = tempfile::tempdir().unwrap();
        let token = create(home.path(), new("ci", TokenRole::Operator, None)).unwrap();
        let path = tokens_file(home.path());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(token.expose_secret().starts_with(PREFIX) && token.expose_secret().len() == 70);
        assert!(!text.contains(&token.expose_secret()[PREFIX.len()..]), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let tokens = Tokens::read(&path).unwrap();
        let found = tokens.find(token.expose_secret()).unwrap();
        assert_eq!((found.name.as_str(), found.role), ("ci", TokenRole::Operator));
        for wrong in ["", "ci", PREFIX, &token.expose_secret()[1..], &format!("{} ", token.expose_secret())] {
            assert_eq!(tokens.find(wrong), None, "{wrong}");
        }
        // The hash is no token.
        assert_eq!(tokens.find(&String::from(found.sha256)), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_changes_nothing() {
        let home = tempfile::tempdir().unwrap();
        create(home.path(), new("ci", TokenRole::Operator, None)).unwrap();
        let before = Stamp::of(&tokens_file(home.path()));
        let table = [
            (new("ci", TokenRole::Owner, None), "named ci is there already"),
            (new("look", TokenRole::ReadOnly, None), "--sessions-of NAME"),
            (new("look", TokenRole::ReadOnly, Some("cd")), "no token is named cd"),
        ];
        for (wrong, says) in table {
            let error = create(home.path(), wrong).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(revoke(home.path(), "cd").unwrap_err().to_string().contains("no token is named cd"));
        assert_eq!(Stamp::of(&tokens_file(home.path())), before);
        let look = create(home.path(), new("look", TokenRole::ReadOnly, Some("ci"))).unwrap();
        revoke(home.path(), "ci").unwrap();
        assert_ne!(Stamp::of(&tokens_file(home.path())), before);
        let left = Tokens::read(&tokens_file(home.path())).unwrap();
        assert_eq!(left.entries().len(), 1);
        let client = left.find(look.expose_secret()).unwrap().client(None).unwrap();
        assert_eq!(client.as_str(), "@ci", "the sessions of one that is gone are still its");
    }

    #[test]
    fn a_name_is_given_once() {
        let home = tempfile::tempdir().unwrap();
        let path = tokens_file(home.path());
        create(home.path(), new("ci", TokenRole::Operator, None)).unwrap();
        revoke(home.path(), "ci").unwrap();
        let error = create(home.path(), new("ci", TokenRole::Operator, None)).unwrap_err().to_string();
        assert!(error.contains("named ci was revoked") && error.contains("--sessions-of ci"), "{error}");
        assert!(revoke(home.path(), "ci").unwrap_err().to_string().contains("no token is named ci"));
        // Who is to see what it left is named so.
        create(home.path(), new("next", TokenRole::Operator, Some("ci"))).unwrap();
        let tokens = Tokens::read(&path).unwrap();
        assert_eq!((tokens.entries().len(), tokens.revoked()[0].name.as_str()), (1, "ci"));
        // In a file from before names were kept, the one whose sessions another sees had a token.
        let mut old: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        old.as_object_mut().unwrap().remove("revoked").unwrap();
        std::fs::write(&path, old.to_string()).unwrap();
        assert_eq!(Tokens::read(&path).unwrap().entries().len(), 1);
        assert!(matches!(create(home.path(), new("ci", TokenRole::Operator, None)), Err(TokensError::Used(_))));
    }

    #[test]
    fn what_is_there_can_always_be_revoked_and_read() {
        let home = tempfile::tempdir().unwrap();
        create(home.path(), new("ci", TokenRole::Operator, None)).unwrap();
        let long = "x".repeat(50);
        change(home.path(), |tokens| {
            let gone = |at: usize| Revoked { name: format!("{long}-{at}").parse().unwrap(), revoked_at: u64::MAX };
            tokens.revoked = (1..limit::TOKEN_NAMES_MAX).map(gone).collect();
            Ok(())
        })
        .unwrap();
        assert!(matches!(create(home.path(), new("cd", TokenRole::Operator, None)), Err(TokensError::NamesUsedUp)));
        revoke(home.path(), "ci").unwrap();
        let tokens = Tokens::read(&tokens_file(home.path())).unwrap();
        assert_eq!((tokens.entries().len(), tokens.revoked().len()), (0, limit::TOKEN_NAMES_MAX));
    }

    #[test]
    fn whose_sessions_a_token_sees() {
        let within = ClientId::plain("x").unwrap();
        let entry = |sessions_of: Option<&str>| TokenEntry {
            name: "ci".parse().unwrap(),
            role: TokenRole::Operator,
            sessions_of: sessions_of.map(|text| text.to_owned().into()),
            sha256: Fingerprint::of(""),
            created_at: 0,
        };
        let table = [(None, "@ci", "@ci/x"), (Some("cd"), "@cd", "@cd/x"), (Some("owner"), "", "x")];
        for (whose, own, inner) in table {
            let told = |within| entry(whose).client(within).map_or(String::new(), String::from);
            assert_eq!((told(None).as_str(), told(Some(&within)).as_str()), (own, inner), "{whose:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_touch_or_that_holds_something_else_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = tokens_file(home.path());
        assert_eq!(Tokens::read(&path).unwrap(), Tokens::default());
        create(home.path(), new("ci", TokenRole::Operator, None)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for open in [0o640, 0o602, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(open)).unwrap();
            let error = Tokens::read(&path).unwrap_err().to_string();
            assert!(error.contains("tokens.json") && error.contains(&format!("found {open:04o}")), "{error}");
            assert!(create(home.path(), new("cd", TokenRole::Operator, None)).is_err());
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let table = [
            ("", "EOF"),
            ("{}", "missing field `tokens`"),
            (&text.replace("operator", "admin"), "unknown variant `admin`"),
            (&text.replace("\"ci\"", "\"owner\""), "nor `owner`"),
            (&text.replace("sha256\": \"", "sha256\": \"0"), "64 hexadecimal digits"),
            (&text.replace("sha256\": \"", "sha256\": \"g"), "64 hexadecimal digits"),
            (&text.replace("\"role\"", "\"sessionsOf\": \"a/b\", \"role\""), "sessionsOf of ci"),
            (
                &text.replacen('{', "{ \"revoked\": [{ \"name\": \"ci\", \"revokedAt\": 1 }],", 1),
                "ci is revoked, and stands there",
            ),
            (&text.replacen('{', "{ \"revoked\": [\"a\"],", 1), "Revoked"),
            (
                &text
                    .replace("[", "[ {}, ")
                    .replace("{}", text[text.find("[").unwrap() + 1..text.find("]").unwrap()].trim()),
                "two tokens are named ci",
            ),
        ];
        for (content, says) in table {
            std::fs::write(&path, content).unwrap();
            let error = Tokens::read(&path).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("tokens.json"), "{error}\nshould say {says}");
        }
    }

    #[test]
    fn several_at_once_lose_nothing() {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for name in 0..16 {
                let directory = home.path();
                let name = format!("t{name}");
                scope.spawn(move || create(directory, new(&name, TokenRole::Operator, None)).unwrap());
            }
        });
        assert_eq!(Tokens::read(&tokens_file(home.path())).unwrap().entries().len(), 16);
    }
}
