//! How a server shows that it is the one that a file tells of, or that other servers know, without either side saying a secret.
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
        Some(digits(tag.as_ref()))
    }
}

/// What those sign with who all know one secret: HMAC-SHA-256 over pieces of text, each with its length before it.
#[derive(Clone)]
pub struct SharedKey(hmac::Key);

impl SharedKey {
    /// That of a secret.
    pub fn of(secret: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
    }

    /// The signature of pieces: 64 hexadecimal digits.
    pub fn sign(&self, pieces: &[&str]) -> String {
        digits(hmac::sign(&self.0, &joined(pieces)).as_ref())
    }

    /// Whether a text is the signature of those pieces. How long it takes tells nothing of it.
    pub fn is_signed(&self, pieces: &[&str], given: &str) -> bool {
        bytes_of(given).is_some_and(|given| hmac::verify(&self.0, &joined(pieces), &given).is_ok())
    }
}

/// Nothing of it.
impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(..)")
    }
}

/// No two lists of pieces are one text.
fn joined(pieces: &[&str]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| (piece.len() as u64).to_be_bytes().into_iter().chain(piece.bytes())).collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |two: &[u8]| Some(digit(two[0])? << 4 | digit(two[1])?);
    digits.len().is_multiple_of(2).then(|| digits.as_bytes().chunks_exact(2).map(pair).collect())?
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
    fn a_signature_is_of_those_pieces_by_one_secret() {
        let key = SharedKey::of("secret");
        // As `openssl dgst -sha256 -hmac secret` says it of the lengths and texts.
        let want = "a9fa01a71462f4eb8105e9a7c21d0c3aac3636dddc19805f03d9a47b64cdb6bd";
        assert_eq!(key.sign(&["ab", ""]), want);
        let table = [
            (vec!["ab", ""], want.to_owned(), true),
            (vec!["ab", ""], want.to_uppercase(), true),
            (vec!["a", "b"], want.to_owned(), false),
            (vec!["ab"], want.to_owned(), false),
            (vec!["ab", ""], want[1..].to_owned(), false),
            (vec!["ab", ""], want[2..].to_owned(), false),
            (vec!["ab", ""], String::new(), false),
            (vec!["ab", ""], format!("é{}", &want[2..]), false),
        ];
        for (pieces, given, good) in table {
            assert_eq!(key.is_signed(&pieces, &given), good, "{pieces:?} {given}");
        }
        assert!(!SharedKey::of("other").is_signed(&["ab", ""], want));
        assert_eq!(format!("{key:?}"), "SharedKey(..)");
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
