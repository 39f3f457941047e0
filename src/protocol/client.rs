//! Who calls, and how much of a server is theirs: clients, tokens, roles.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::id::{BadId, check};

/// Longest name of a token in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Before the name of a token in a [`ClientId`]. No header can say it, so no client can pass for another token's.
const TOKEN_SIGN: char = '@';
/// The name by which the token of the file `token` is spoken of.
const OWNER: &str = "owner";

/// How much the bearer of a token may do. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenRole {
    /// Looks at sessions and their streams, and changes nothing.
    ReadOnly,
    /// Works with sessions.
    Operator,
    /// Whatever the server can be asked: what holds beyond a session too.
    Owner,
}

/// What a request is about, as far as roles go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Looking.
    Read,
    /// Changing sessions, and answering their questions.
    Work,
    /// Changing what holds beyond a session.
    Administer,
}

impl TokenRole {
    /// All roles, the smallest first.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::Operator, Self::Owner];

    /// Its name, as in the file and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }

    /// Whether it may do this.
    pub fn may(self, access: Access) -> bool {
        self >= Self::least(access)
    }

    /// The smallest role that may do this.
    pub fn least(access: Access) -> Self {
        match access {
            Access::Read => Self::ReadOnly,
            Access::Work => Self::Operator,
            Access::Administer => Self::Owner,
        }
    }
}

impl fmt::Display for TokenRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that is no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected read-only, operator or owner")]
pub struct BadRole;

impl FromStr for TokenRole {
    type Err = BadRole;

    fn from_str(text: &str) -> Result<Self, BadRole> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or(BadRole)
    }
}

/// Names one token beside that of the file `token`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenName(String);

/// A text that cannot name a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-` or `.`, and neither `.`, `..` nor `{OWNER}`")]
pub struct BadTokenName;

impl TokenName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name that the token of the file `token` goes by, and no other.
    pub fn owner() -> &'static str {
        OWNER
    }
}

impl FromStr for TokenName {
    type Err = BadTokenName;

    fn from_str(text: &str) -> Result<Self, BadTokenName> {
        let fits = text.len() <= NAME_BYTES_MAX && text != OWNER && check(text).is_ok();
        if fits { Ok(Self(text.to_owned())) } else { Err(BadTokenName) }
    }
}

impl TryFrom<String> for TokenName {
    type Error = BadTokenName;

    fn try_from(text: String) -> Result<Self, BadTokenName> {
        text.parse()
    }
}

impl From<TokenName> for String {
    fn from(name: TokenName) -> Self {
        name.0
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names who calls: a token, a client within it (`X-Client-ID`), or both. The server keeps each one's sessions apart.
///
/// Invariant: what a header says and what a token's name says never meet, so no two callers share an id by chance.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClientId(String);

impl ClientId {
    /// The client that a header names. None of these is a token's.
    ///
    /// # Errors
    /// [`BadId`].
    pub fn plain(text: &str) -> Result<Self, BadId> {
        check(text).map(|()| Self(text.to_owned()))
    }

    /// The client `within` a token; without one, the token's own.
    pub fn of_token(name: &TokenName, within: Option<&Self>) -> Self {
        match within {
            None => Self(format!("{TOKEN_SIGN}{name}")),
            Some(client) => Self(format!("{TOKEN_SIGN}{name}/{client}")),
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClientId {
    type Err = BadId;

    /// Any of them, a token's included: for what the server itself has written down.
    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { len: text.len() };
        let Some(rest) = text.strip_prefix(TOKEN_SIGN) else { return Self::plain(text) };
        let (name, client) = rest.split_once('/').map_or((rest, None), |(name, client)| (name, Some(client)));
        name.parse::<TokenName>().map_err(|_| bad())?;
        client.map_or(Ok(()), |client| check(client).map_err(|_| bad()))?;
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ClientId {
    type Error = BadId;

    fn try_from(text: String) -> Result<Self, BadId> {
        text.parse()
    }
}

impl From<ClientId> for String {
    fn from(id: ClientId) -> Self {
        id.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_role_and_access_is_decided() {
        use Access::{Administer, Read, Work};
        let table = [
            (TokenRole::ReadOnly, [true, false, false]),
            (TokenRole::Operator, [true, true, false]),
            (TokenRole::Owner, [true, true, true]),
        ];
        for (role, may) in table {
            assert_eq!([Read, Work, Administer].map(|access| role.may(access)), may, "{role}");
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
        for none in ["", "Owner", "readonly", "admin"] {
            assert_eq!(none.parse::<TokenRole>(), Err(BadRole), "{none}");
        }
    }

    #[test]
    fn a_token_has_a_name_of_its_own() {
        let long = "n".repeat(65);
        let table = [("ci", true), ("a.b-c_9", true), ("owner", false), ("", false), ("..", false), ("a/b", false)];
        for (text, ok) in table.into_iter().chain([(long.as_str(), false), ("@a", false), ("a b", false)]) {
            assert_eq!(text.parse::<TokenName>().is_ok(), ok, "{text:?}");
        }
    }

    #[test]
    fn no_header_names_a_tokens_client() {
        let name: TokenName = "ci".parse().unwrap();
        let plain = ClientId::plain("ci").unwrap();
        let own = ClientId::of_token(&name, None);
        let within = ClientId::of_token(&name, Some(&plain));
        assert_eq!([plain.as_str(), own.as_str(), within.as_str()], ["ci", "@ci", "@ci/ci"]);
        for id in [&plain, &own, &within] {
            assert_eq!(id.as_str().parse(), Ok(id.clone()));
            assert_eq!(ClientId::plain(id.as_str()).is_ok(), *id == plain, "{id}");
        }
        for bad in ["@", "@owner", "@ci/", "@ci/a/b", "@/a", "@ci/@ci", "a/b", ""] {
            assert!(bad.parse::<ClientId>().is_err(), "{bad}");
        }
    }
}
