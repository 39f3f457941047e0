//! Short signed statements (JSON Web Tokens) by which a program shows who it is, with a private key of its own.
//!
//! Only what that needs: keys in PEM (PKCS #8) of the curve P-256 or of RSA, or ones that are made here, and the algorithms that go with
//! them. Nothing is verified here.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

/// A key that statements are signed with.
pub struct StatementKey(Kind);

enum Kind {
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// What is no such key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a private key in PEM (PKCS #8) of the curve P-256 or of RSA")]
pub struct BadKey;

impl StatementKey {
    /// The key of a PEM text.
    ///
    /// # Errors
    /// [`BadKey`]; nothing of the text is repeated.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let inside = pem.split("-----BEGIN PRIVATE KEY-----").nth(1).ok_or(BadKey)?;
        let inside = inside.split("-----END PRIVATE KEY-----").next().ok_or(BadKey)?;
        Self::from_text(&inside.split_ascii_whitespace().collect::<String>())
    }

    /// A new key of the curve P-256, and the text that it can be read from again. That is the whole secret.
    ///
    /// # Errors
    /// [`BadKey`] when there is no chance to be had.
    pub fn made() -> Result<(Self, String), BadKey> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let text = BASE64_STANDARD.encode(made.map_err(|_| BadKey)?.as_ref());
        Ok((Self::from_text(&text)?, text))
    }

    /// The key of such a text (PKCS #8 in base64).
    ///
    /// # Errors
    /// [`BadKey`]; nothing of the text is repeated.
    pub fn from_text(text: &str) -> Result<Self, BadKey> {
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| BadKey)?;
        let random = SystemRandom::new();
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, &random).map(Kind::P256);
        let key = p256.or_else(|_| RsaKeyPair::from_pkcs8(&bytes).map(Kind::Rsa));
        key.map(Self).map_err(|_| BadKey)
    }

    /// What others may know of it (JWK). None: not of the curve P-256.
    pub fn shown(&self) -> Option<Value> {
        let Kind::P256(key) = &self.0 else { return None };
        // Uncompressed: a byte that says so, and two numbers of the same length.
        let (x, y) = key.public_key().as_ref().get(1..)?.split_at_checked(32)?;
        let part = |number: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(number);
        Some(json!({ "kty": "EC", "crv": "P-256", "x": part(x), "y": part(y) }))
    }

    /// A statement with these claims.
    ///
    /// # Errors
    /// [`BadKey`] when the key cannot sign.
    pub fn sign(&self, claims: &Value) -> Result<String, BadKey> {
        self.sign_as(json!({ "typ": "JWT" }), claims)
    }

    /// The same of a kind of its own: what its head says beside the algorithm.
    ///
    /// # Errors
    /// [`BadKey`] when the key cannot sign.
    pub fn sign_as(&self, mut head: Value, claims: &Value) -> Result<String, BadKey> {
        head["alg"] = match &self.0 {
            Kind::P256(_) => "ES256".into(),
            Kind::Rsa(_) => "RS256".into(),
        };
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let said = format!("{}.{}", part(&head), part(claims));
        let random = SystemRandom::new();
        let signature = match &self.0 {
            Kind::P256(key) => key.sign(&random, said.as_bytes()).map_err(|_| BadKey)?.as_ref().to_vec(),
            Kind::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, said.as_bytes(), &mut signature).map_err(|_| BadKey)?;
                signature
            }
        };
        Ok(format!("{said}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Nothing of it.
impl std::fmt::Debug for StatementKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatementKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_statement_is_signed_with_its_key() {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            BASE64_STANDARD.encode(made.as_ref())
        );
        let public = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap();
        let token = StatementKey::from_pem(&pem).unwrap().sign(&json!({ "iss": "me" })).unwrap();
        let (said, signature) = token.rsplit_once('.').unwrap();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public.public_key().as_ref());
        assert!(key.verify(said.as_bytes(), &signature).is_ok());
        let parts: Vec<Value> = said
            .split('.')
            .map(|part| serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
            .collect();
        assert_eq!(parts, [json!({ "alg": "ES256", "typ": "JWT" }), json!({ "iss": "me" })]);
        for bad in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "s3cret"] {
            assert_eq!(StatementKey::from_pem(bad).unwrap_err(), BadKey);
        }
    }

    #[test]
    fn a_key_that_was_made_shows_its_public_half_alone() {
        let (key, text) = StatementKey::made().unwrap();
        let shown = key.shown().unwrap();
        assert_eq!(StatementKey::from_text(&text).unwrap().shown().unwrap(), shown);
        assert_eq!(shown.as_object().unwrap().len(), 4, "no private number: {shown}");
        let number = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(shown[name].as_str().unwrap()).unwrap();
        let point = [vec![4], number("x"), number("y")].concat();
        let token = key.sign_as(json!({ "typ": "a+jwt" }), &json!({})).unwrap();
        let (said, signature) = token.rsplit_once('.').unwrap();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert!(UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(said.as_bytes(), &signature).is_ok());
        assert_ne!(StatementKey::made().unwrap().0.shown(), Some(shown));
    }
}
