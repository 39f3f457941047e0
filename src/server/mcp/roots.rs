//! Where an MCP client works (`roots/list`): its first directory that the server's policy allows becomes that of its session.
//!
//! A session has one directory. What a client says beyond it, or where it may not work, changes nothing and is told to it. Nothing
//! here allows anything: the session is made, or moved, as by any other client.

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::peer::Peer;
use super::stream::Stream;
use crate::protocol::{ApiError, Configure, CreateSession, ErrorCode, SessionView};

/// How long a client has to say where it works.
const WAIT: Duration = Duration::from_secs(5);
/// Directories that are looked at.
const ROOTS_MAX: usize = 32;

/// The directory of a `file:` address.
fn directory(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let mut bytes = Vec::new();
    let mut letters = path.bytes();
    while let Some(byte) = letters.next() {
        bytes.push(match byte {
            b'%' => {
                let pair = [letters.next()?, letters.next()?];
                u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?
            }
            b'?' | b'#' => return None,
            plain => plain,
        });
    }
    let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
    path.is_absolute().then_some(path)
}

/// Where the client works, as it says. Empty: it does not say.
async fn asked(peer: &Arc<Peer>, stream: &Arc<Stream>) -> Vec<PathBuf> {
    if !peer.hello().is_some_and(|hello| hello.has_roots) {
        return Vec::new();
    }
    let (_question, answer) = peer.question(stream, ("roots/list", &json!({})));
    let Ok(Ok(Ok(answer))) = tokio::time::timeout(WAIT, answer).await else { return Vec::new() };
    let roots = answer["roots"].as_array().cloned().unwrap_or_default();
    let uris = roots.iter().take(ROOTS_MAX).filter_map(|root| root["uri"].as_str());
    uris.filter_map(directory).collect()
}

/// Whether an error says that nobody may work there, or that there is nothing.
fn is_about_place(error: &ApiError) -> bool {
    matches!(error.code(), ErrorCode::InvalidArgument | ErrorCode::Forbidden | ErrorCode::NotFound)
}

/// A session for the client's calls, where the client works as far as it may; else where the server does.
///
/// # Errors
/// As [`crate::app::App::create_call_session`].
pub(super) async fn session(
    peer: &Arc<Peer>,
    stream: &Arc<Stream>,
    body: CreateSession,
) -> Result<SessionView, ApiError> {
    let wanted = asked(peer, stream).await;
    for directory in &wanted {
        let there = CreateSession { working_directory: Some(directory.clone()), ..body.clone() };
        match peer.app.create_call_session(&peer.caller, there).await {
            Err(error) if is_about_place(&error) => tracing::debug!(%error, "an MCP client may not work there"),
            made => return made,
        }
    }
    if !wanted.is_empty() {
        let words = "none of the client's roots may be worked in: the session works in the server's directory";
        peer.log(stream, "warning", words);
    }
    peer.app.create_call_session(&peer.caller, body).await
}

/// The client works elsewhere now: so does its session, where it may.
pub(super) async fn moved(peer: Arc<Peer>) {
    let Some(place) = peer.workplace.get().filter(|_| peer.bound.is_none()) else { return };
    for directory in asked(&peer, &peer.standing).await {
        let changes = Configure { working_directory: Some(directory), ..Configure::default() };
        match peer.app.configure(&peer.caller, &place.session, (changes, None)).await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "an MCP client may not work there"),
        }
    }
}

/// Takes word that the client's roots are others.
pub(super) fn changed(peer: &Arc<Peer>) {
    let over = peer.over.clone();
    let moving = moved(Arc::clone(peer));
    tokio::spawn(async move { over.run_until_cancelled(moving).await });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_address_names_a_directory() {
        #[rustfmt::skip]
        let table = [
            ("file:///w", Some("/w")), ("file:///a%20b/%C3%BC%25", Some("/a b/ü%")), ("file://localhost/w", Some("/w")),
            ("file://w", None), ("http://h/w", None), ("file:///w?x", None), ("file:///%zz", None), ("file:///%2", None),
            ("/w", None), ("", None),
        ];
        for (uri, want) in table {
            assert_eq!(directory(uri), want.map(PathBuf::from), "{uri}");
        }
    }
}
