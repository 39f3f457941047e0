//! A login at a server for which a company's identity provider vouches (enterprise-managed authorization), without a browser.
//!
//! The provider exchanges the user's ID token for a statement that is good for one authorization server and one server (an ID-JAG,
//! RFC 8693), and that authorization server gives a token for it (RFC 7523). The provider stands in the configuration; the
//! authorization server is the one that the server names.
//!
//! Invariant: the ID token goes to the configured provider alone, and the statement to the authorization server that it is for.

use rmcp::transport::auth::{AuthError, AuthorizationMetadata, OAuthTokenResponse};
use serde::Deserialize;

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
    metadata: &AuthorizationMetadata,
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
    let vouched: Vouched = ask_for_token(&provider.token_endpoint, &fields, None).await?;
    if vouched.issued_token_type != STATEMENT {
        return Err(failed("the identity provider gave a token of another kind"));
    }
    let client = oauth.client_id.as_deref().unwrap_or_default();
    let mut fields = vec![("grant_type", BEARER), ("assertion", vouched.access_token.as_str()), ("resource", resource)];
    fields.extend((!scopes.is_empty()).then_some(("scope", scopes.as_str())));
    // Where the server does not say how it is told who asks, it is told in the header (RFC 8414, 2).
    let ways = metadata.additional_fields.get("token_endpoint_auth_methods_supported");
    let ways = ways.and_then(|ways| ways.as_array()).map(|ways| ways.iter().any(|way| way == "client_secret_basic"));
    let basic = oauth.client_secret.as_deref().filter(|_| ways.unwrap_or(true)).map(|secret| (client, secret));
    if basic.is_none() {
        fields.push(("client_id", client));
        fields.extend(oauth.client_secret.as_deref().map(|secret| ("client_secret", secret)));
    }
    ask_for_token(&metadata.token_endpoint, &fields, basic).await
}
