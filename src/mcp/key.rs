//! A login at a server without a person, with a private key (RFC 7523): the request for a token that `rmcp` makes with another
//! crate of cryptography only.

use std::path::Path;
use std::time::Duration;

use rmcp::transport::auth::{AuthError, AuthorizationMetadata, OAuthTokenResponse};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::exchange::Exchanges;
use crate::base::assertion::StatementKey;
use crate::base::panics::broken;
use crate::base::{clock, file, http, limit};

/// How long a statement counts, in seconds.
const STATEMENT_SECONDS: u64 = 300;
const STATEMENT_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Who asks, with which key, for what.
pub(super) struct Applicant<'a> {
    pub(super) client_id: &'a str,
    pub(super) key_file: &'a std::path::Path,
    pub(super) scopes: &'a [String],
    pub(super) resource: &'a str,
}

/// Asks for a token.
pub(super) async fn token_by_key(
    (metadata, exchanges): (&AuthorizationMetadata, &Exchanges),
    applicant: Applicant<'_>,
) -> Result<OAuthTokenResponse, AuthError> {
    let failed = |why: String| AuthError::ClientCredentialsError(why);
    let pem = secret_of(applicant.key_file).await?;
    let key = StatementKey::from_pem(&pem).map_err(|bad| failed(bad.to_string()))?;
    let now = clock::machine_ms() / 1_000;
    let audience = metadata.issuer.as_deref().unwrap_or(&metadata.token_endpoint);
    let statement = json!({
        "iss": applicant.client_id, "sub": applicant.client_id, "aud": audience,
        "jti": uuid::Uuid::new_v4().to_string(), "iat": now, "exp": now + STATEMENT_SECONDS,
    });
    let statement = key.sign(&statement).map_err(|bad| failed(bad.to_string()))?;
    let scopes = applicant.scopes.join(" ");
    let mut fields = vec![
        ("grant_type", "client_credentials"),
        ("client_assertion_type", STATEMENT_TYPE),
        ("client_assertion", statement.as_str()),
        ("resource", applicant.resource),
    ];
    if !scopes.is_empty() {
        fields.push(("scope", scopes.as_str()));
    }
    ask_for_token(exchanges, &metadata.token_endpoint, &fields, None).await
}

/// Asks for a token with a form; `basic`: who asks, where that goes into a header.
pub(super) async fn ask_for_token<T: DeserializeOwned>(
    exchanges: &Exchanges,
    endpoint: &str,
    fields: &[(&str, &str)],
    basic: Option<(&str, &str)>,
) -> Result<T, AuthError> {
    let failed = |why: String| AuthError::ClientCredentialsError(why);
    let request = http::form(endpoint, fields, basic).map_err(|error| failed(error.to_string()))?;
    let answer = timeout(Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS), exchanges.send(request, false)).await;
    let answer = answer.map_err(|_| failed("no answer in time".into()))?.map_err(|error| failed(error.to_string()))?;
    if answer.status() != 200 {
        let said: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        let said = said["error"].as_str().unwrap_or("no reason").to_owned();
        return Err(failed(format!("status {}: {}", answer.status().as_u16(), said.escape_debug())));
    }
    serde_json::from_slice(answer.body()).map_err(|error| failed(error.to_string()))
}

/// What a small file with a secret says.
pub(super) async fn secret_of(path: &Path) -> Result<String, AuthError> {
    let path = path.to_owned();
    let read = move || {
        file::read_small(&path, limit::MCP_LOGIN_BYTES_MAX).map_err(|cause| format!("{}: {cause}", path.display()))
    };
    let read = tokio::task::spawn_blocking(read).await.unwrap_or_else(|panic| Err(broken(panic)));
    let (bytes, _) = read.map_err(AuthError::ClientCredentialsError)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
