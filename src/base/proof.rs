//! How a server shows that it is the one that a file tells of, without either side saying a secret.
//!
//! The file holds a key of that one run of the server. Whoever has read it sends a word that was never sent before; only who has the
//! key, too, can answer it. What took the server's port since cannot, and neither can a later server.

use std::fmt;

use ring::hmac;
use serde::{Deserialize, Serialize};

/// What the answers are about: no key is used for two things.
const PURPOSE: &str = "simse proof ";
/// Characters of a word that is to be answered.
const NONCE_CHARS: std::ops::RangeInclusive<usize> = 32..=128;

/// The key of one run of a server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProofKey(String);

impl ProofKey {
    /// One that nobody else has.
    pub fn random() -> Self {
        Self(format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple()))
    }

    /// The answer to a word: 64 hexadecimal digits of HMAC-SHA-256. None: the word is no such word.
    pub fn prove(&self, nonce: &str) -> Option<String> {
        let is_word = NONCE_CHARS.contains(&nonce.len()) && nonce.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_word {
            return None;
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.0.as_bytes());
        let tag = hmac::sign(&key, format!("{PURPOSE}{nonce}").as_bytes());
        Some(tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Nothing of it.
impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_to_one_word_by_one_key() {
        let key = ProofKey("k".repeat(64));
        let nonce = "0123456789abcdef".repeat(4);
        // As `openssl dgst -sha256 -hmac` says it.
        let want = "cd453bddc0f1bbccca32d058cd19b3d11e8446b1ccaf86fd4639ea3dcc0a026b";
        assert_eq!(key.prove(&nonce).as_deref(), Some(want));
        assert_ne!(ProofKey::random().prove(&nonce), ProofKey::random().prove(&nonce));
        assert_ne!(key.prove(&nonce), key.prove(&nonce.replace('0', "1")));
        assert_eq!(format!("{key:?}"), "ProofKey(..)");
        assert_eq!(serde_json::to_value(&key).unwrap(), "k".repeat(64));
    }

    #[test]
    fn only_a_word_is_answered() {
        let key = ProofKey::random();
        let table = [
            ("a".repeat(31), false),
            ("a".repeat(32), true),
            ("a".repeat(128), true),
            ("a".repeat(129), false),
            ("g".repeat(64), false),
            (String::new(), false),
        ];
        for (nonce, want) in table {
            assert_eq!(key.prove(&nonce).is_some(), want, "{nonce}");
        }
    }
}
