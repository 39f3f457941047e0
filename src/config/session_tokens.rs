//! Tokens that reach one session each: `session-tokens.json` of the data directory, 0600, which the server alone writes.
//!
//! Invariants: no token stands in the file, only its SHA-256; a file that others could have read, or that holds something else, is an
//! error and opens nothing.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::data_directory::{DataDirectoryError, error, place, read_private};
use super::tokens::Fingerprint;
use crate::protocol::{ClientId, SessionId, SessionTokenId, TokenName, TokenRole};

/// What these tokens begin with, so that those who look for leaked secrets know them.
const PREFIX: &str = "simse_one_";
const FILE: &str = "session-tokens.json";

/// One of them, as far as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionTokenEntry {
    /// Its name.
    pub id: SessionTokenId,
    /// What it reaches.
    pub session: SessionId,
    /// Whose session that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// What its bearer may do there.
    pub role: TokenRole,
    /// The named token with which it was made, and with which it goes. None: the owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<TokenName>,
    /// SHA-256 of the token.
    pub sha256: Fingerprint,
    /// When it was made: milliseconds since 1970.
    pub created_at: u64,
    /// When it ends: milliseconds since 1970. None: with its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    tokens: Vec<SessionTokenEntry>,
}

/// A new token, and what is written down of it. This is the only time that it is seen.
pub fn mint() -> (SecretString, Fingerprint) {
    let token = format!("{PREFIX}{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let print = Fingerprint::of(&token);
    (token.into(), print)
}

/// The hash of what somebody shows. None: it is none of these tokens.
pub fn print_of(given: &SecretString) -> Option<Fingerprint> {
    let given = given.expose_secret();
    given.starts_with(PREFIX).then(|| Fingerprint::of(given))
}

fn file(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// Those of a data directory; none where there is no file.
///
/// # Errors
/// [`DataDirectoryError`] when others can read the file, or it holds something else.
pub fn read(directory: &Path) -> Result<Vec<SessionTokenEntry>, DataDirectoryError> {
    let path = file(directory);
    let advice = "whoever could read it could have changed it; delete it, and make the tokens anew";
    let Some(bytes) = read_private(&path, "read the sessions' tokens", advice)? else { return Ok(Vec::new()) };
    let read: Result<Entries, _> = serde_json::from_slice(&bytes);
    read.map(|entries| entries.tokens).map_err(|cause| error("read the sessions' tokens", &path, cause.into()))
}

/// Writes all of them.
///
/// # Errors
/// [`DataDirectoryError`]; then the file is as it was.
pub fn write(directory: &Path, tokens: Vec<SessionTokenEntry>) -> Result<(), DataDirectoryError> {
    let path = file(directory);
    let doing = "write the sessions' tokens";
    let text = serde_json::to_vec(&Entries { tokens }).map_err(|cause| error(doing, &path, cause.into()))?;
    place(&path, &text, true).map_err(|cause| error(doing, &path, cause))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_a_hash_is_kept_and_only_for_its_owner() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(read(home.path()).unwrap(), []);
        let (token, sha256) = mint();
        let entry = SessionTokenEntry {
            id: SessionTokenId::generate(),
            session: "s".parse().unwrap(),
            client: Some("@ci/x".parse().unwrap()),
            role: TokenRole::Operator,
            by: None,
            sha256,
            created_at: 1,
            expires_at: None,
        };
        write(home.path(), vec![entry.clone()]).unwrap();
        assert_eq!(read(home.path()).unwrap(), [entry]);
        let path = file(home.path());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&token.expose_secret()[PREFIX.len()..]), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(print_of(&token), Some(sha256));
        assert_eq!(print_of(&"simse_other".to_owned().into()), None);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(home.path()).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, b"{}").unwrap();
        assert!(read(home.path()).is_err());
    }
}
