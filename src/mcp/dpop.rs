//! Keys that tokens are bound to (DPoP, RFC 9449): who stole such a token cannot use it without the key.
//!
//! A key belongs to one login and is kept with it. With each request goes a proof, which counts for that request alone.
//!
//! Invariant: a proof says nothing of the key but its public half, and of an address nothing behind its path.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rmcp::transport::auth::AuthorizationMetadata;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::base::assertion::{BadKey, StatementKey};
use crate::base::{clock, http};

/// The only algorithm that our keys have.
const ALGORITHM: &str = "ES256";

/// The key of a login.
pub(super) struct ProofKey {
    key: StatementKey,
    text: String,
}

/// What a proof is for.
#[derive(Clone, Copy)]
pub(super) struct Proven<'a> {
    pub(super) method: &'a str,
    pub(super) url: &'a str,
    /// The token that goes with it.
    pub(super) token: Option<&'a str>,
    /// What the other side wants repeated.
    pub(super) nonce: Option<&'a str>,
}

impl ProofKey {
    /// A new one, where an authorization server says that it binds tokens to such keys.
    pub(super) fn for_server(metadata: &AuthorizationMetadata) -> Result<Option<Self>, BadKey> {
        let algorithms = metadata.additional_fields.get("dpop_signing_alg_values_supported");
        let algorithms = algorithms.and_then(|algorithms| algorithms.as_array());
        if !algorithms.is_some_and(|algorithms| algorithms.iter().any(|algorithm| algorithm == ALGORITHM)) {
            return Ok(None);
        }
        let (key, text) = StatementKey::made()?;
        Ok(Some(Self { key, text }))
    }

    /// One that was kept.
    pub(super) fn kept(text: &str) -> Result<Self, BadKey> {
        Ok(Self { key: StatementKey::from_text(text)?, text: text.to_owned() })
    }

    /// As it is kept.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// A proof for one request.
    pub(super) fn proof(&self, proven: Proven<'_>) -> Result<String, BadKey> {
        let head = json!({ "typ": "dpop+jwt", "jwk": self.key.shown().ok_or(BadKey)? });
        let mut claims = json!({
            "jti": uuid::Uuid::new_v4().to_string(), "iat": clock::machine_ms() / 1_000,
            "htm": proven.method, "htu": http::bare_address(proven.url).ok_or(BadKey)?,
        });
        if let Some(token) = proven.token {
            claims["ath"] = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(token)).into();
        }
        if let Some(nonce) = proven.nonce {
            claims["nonce"] = nonce.into();
        }
        self.key.sign_as(head, &claims)
    }
}

/// Nothing of it.
impl std::fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProofKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_proof_is_for_one_request_and_shows_no_more_than_it_must() {
        let metadata = |algorithms: Value| -> AuthorizationMetadata {
            serde_json::from_value(json!({
                "authorization_endpoint": "https://as/a", "token_endpoint": "https://as/t",
                "dpop_signing_alg_values_supported": algorithms,
            }))
            .unwrap()
        };
        for none in [json!(null), json!([]), json!(["RS256"]), json!("ES256")] {
            assert!(ProofKey::for_server(&metadata(none)).unwrap().is_none());
        }
        let key = ProofKey::for_server(&metadata(json!(["RS256", "ES256"]))).unwrap().unwrap();
        let parts = |proof: &str| -> Vec<Value> {
            let read = |part: &str| serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
            proof.split('.').take(2).map(read).collect()
        };
        let url = "https://rs:8443/mcp?key=s3cret#f";
        let proven = Proven { method: "POST", url, token: Some("token"), nonce: Some("n") };
        let first = parts(&key.proof(proven).unwrap());
        assert_eq!((&first[0]["typ"], &first[0]["alg"]), (&json!("dpop+jwt"), &json!("ES256")));
        assert_eq!((&first[1]["htm"], &first[1]["htu"]), (&json!("POST"), &json!("https://rs:8443/mcp")));
        assert_eq!(
            (&first[1]["ath"], &first[1]["nonce"]),
            (&json!("PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A"), &json!("n"))
        );
        let again = ProofKey::kept(key.text()).unwrap();
        let second = parts(&again.proof(Proven { token: None, nonce: None, ..proven }).unwrap());
        assert_eq!(first[0], second[0], "the same key");
        assert_ne!(first[1]["jti"], second[1]["jti"]);
        assert!(second[1].get("ath").is_none() && second[1].get("nonce").is_none());
        assert!(ProofKey::kept("s3cret").is_err());
    }
}
