//! A login at a server for which somebody else vouches, without a browser: a company's identity provider (enterprise-managed
//! authorization), or whatever runs this program and gives it a token that says which workload it is.
//!
//! The provider exchanges the user's ID token for a statement that is good for one authorization server and one server (an ID-JAG,
//! RFC 8693), and that authorization server gives a token for it (RFC 7523). The provider stands in the configuration; the
//! authorization server is the one that the server names. A workload's token is such a statement already.
//!
//! Invariant: the ID token goes to the configured provider alone, and a statement to the authorization server that it is for: a server
//! could name one that collects them.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rmcp::transport::auth::{AuthError, AuthorizationMetadata, OAuthTokenResponse};
use serde::Deserialize;
use serde_json::Value;

use super::exchange::Exchanges;
use super::key::{ask_for_token, secret_of};
use crate::config::{IdentityProvider, OAuth};

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const STATEMENT: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// What the provider answers with.
#[derive(Deserialize)]
struct Vouched {
    access_token: String,
    issued_token_type: String,
}

/// Asks for a token for the server at `resource`.
pub(super) async fn token_by_provider(
    (metadata, exchanges): (&AuthorizationMetadata, &Exchanges),
    (oauth, provider): (&OAuth, &IdentityProvider),
    (resource, scopes): (&str, &[String]),
) -> Result<OAuthTokenResponse, AuthError> {
    let failed = |why: &str| AuthError::ClientCredentialsError(why.to_owned());
    let Some(issuer) = metadata.issuer.as_deref() else {
        return Err(failed("its authorization server does not say what it is called"));
    };
    let id_token = secret_of(&provider.id_token_file).await?;
    let scopes = scopes.join(" ");
    let mut fields = vec![
        ("grant_type", EXCHANGE),
        ("requested_token_type", STATEMENT),
        ("audience", issuer),
        ("resource", resource),
        ("subject_token", id_token.trim()),
        ("subject_token_type", ID_TOKEN),
        ("client_id", provider.client_id.as_str()),
    ];
    fields.extend(provider.client_secret.as_deref().map(|secret| ("client_secret", secret)));
    fields.extend((!scopes.is_empty()).then_some(("scope", scopes.as_str())));
    let vouched: Vouched = ask_for_token(exchanges, &provider.token_endpoint, &fields, None).await?;
    if vouched.issued_token_type != STATEMENT {
        return Err(failed("the identity provider gave a token of another kind"));
    }
    token_for((metadata, exchanges), oauth, (&vouched.access_token, resource, &scopes)).await
}

/// The same with the token of a workload, which is read anew each time: whatever runs this program keeps it fresh.
pub(super) async fn token_by_workload(
    (metadata, exchanges): (&AuthorizationMetadata, &Exchanges),
    (oauth, token_file): (&OAuth, &Path),
    (resource, scopes): (&str, &[String]),
) -> Result<OAuthTokenResponse, AuthError> {
    let failed = |why: &str| AuthError::ClientCredentialsError(why.to_owned());
    let statement = secret_of(token_file).await?;
    let audiences = audiences(statement.trim()).ok_or_else(|| {
        failed(
            "`oauth.workloadTokenFile`: expected a JSON Web Token that names its audience, without anything beside it",
        )
    })?;
    let bare = |name: &str| name.trim_end_matches('/').to_owned();
    let is_meant = |name: &str| audiences.iter().any(|audience| bare(audience) == bare(name));
    if !metadata.issuer.as_deref().is_some_and(is_meant) && !is_meant(&metadata.token_endpoint) {
        return Err(failed(
            "the token in `oauth.workloadTokenFile` is for another than the authorization server that it names",
        ));
    }
    token_for((metadata, exchanges), oauth, (statement.trim(), resource, &scopes.join(" "))).await
}

/// For whom a statement is. None: it does not say so, or is none.
fn audiences(statement: &str) -> Option<Vec<String>> {
    let mut parts = statement.split('.');
    let (claims, is_whole) = (parts.nth(1)?, parts.next().is_some() && parts.next().is_none());
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let audiences = match &claims["aud"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(some) => some.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => return None,
    };
    (is_whole && !audiences.is_empty()).then_some(audiences)
}

/// Asks an authorization server for a token for a statement that is for it.
async fn token_for(
    (metadata, exchanges): (&AuthorizationMetadata, &Exchanges),
    oauth: &OAuth,
    (statement, resource, scopes): (&str, &str, &str),
) -> Result<OAuthTokenResponse, AuthError> {
    let client = oauth.client_id.as_deref().unwrap_or_default();
    let mut fields = vec![("grant_type", BEARER), ("assertion", statement), ("resource", resource)];
    fields.extend((!scopes.is_empty()).then_some(("scope", scopes)));
    // Where the server does not say how it is told who asks, it is told in the header (RFC 8414, 2).
    let ways = metadata.additional_fields.get("token_endpoint_auth_methods_supported");
    let ways = ways.and_then(|ways| ways.as_array()).map(|ways| ways.iter().any(|way| way == "client_secret_basic"));
    let basic = oauth.client_secret.as_deref().filter(|_| ways.unwrap_or(true)).map(|secret| (client, secret));
    if basic.is_none() {
        fields.extend((!client.is_empty()).then_some(("client_id", client)));
        fields.extend(oauth.client_secret.as_deref().map(|secret| ("client_secret", secret)));
    }
    ask_for_token(exchanges, &metadata.token_endpoint, &fields, basic).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_statement_says_for_whom_it_is() {
        let token = |claims: Value| format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()));
        let some = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        for (statement, want) in [
            (token(json!({ "aud": "https://as" })), some(&["https://as"])),
            (token(json!({ "aud": ["https://as", "b"] })), some(&["https://as", "b"])),
            (token(json!({ "aud": [] })), None),
            (token(json!({ "sub": "w" })), None),
            (format!("{}.x", token(json!({ "aud": "a" }))), None),
            ("s3cret".into(), None),
            ("a.b.c".into(), None),
            (String::new(), None),
        ] {
            assert_eq!(audiences(&statement), want, "{statement}");
        }
    }
}
