//! An address among the settings.
//!
//! Invariant: however it is printed, what may be a key or a password in it is not.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::base::http::shown_address;

/// An address as somebody wrote it. Whether it is one is for its user to say.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// All of it. Not for logs and errors.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Address {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl FromStr for Address {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_address(&self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&shown_address(&self.0), f)
    }
}
