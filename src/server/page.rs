//! The web page: its files stand in the program (`web/dist`, built from `web/` by `npm run web`), so that a server needs nothing beside
//! itself.
//!
//! Promises: the files are the same for everybody and say nothing of anybody, so they need no token; the page asks for one itself. It
//! runs no script but its own files, speaks to no other server, and stands in no other page. A file whose name has its hash in it is
//! kept by browsers for ever; `/` is asked for each time, and answered with 304 while it is the same.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;

use super::answer::Answer;
use super::call::Call;
use crate::base::deflate::zipped;
use crate::base::panics::broken;
use crate::protocol::ApiError;

/// Where each file of the page is.
pub(super) const PATHS: [&str; 4] = ["/", "/icon.svg", "/licenses.md", "/assets/{name}"];

/// What the page may do (Content Security Policy, level 3). Pictures of prompts and results are `data:`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Smaller files are not worth packing.
const PACKED_MIN: usize = 1_000;

#[derive(rust_embed::Embed)]
#[folder = "web/dist"]
struct Files;

/// A file, ready to be sent.
#[derive(Debug)]
struct File {
    bytes: Bytes,
    /// The same packed with gzip, where that is shorter.
    packed: Option<Bytes>,
    kind: &'static str,
    etag: HeaderValue,
    /// Its name changes with what is in it.
    is_named_by_hash: bool,
}

/// All of them by their paths, without the first slash. Packing takes some milliseconds, once.
static FILES: LazyLock<HashMap<String, File>> = LazyLock::new(|| {
    let all = Files::iter().filter_map(|name| Some((name.clone().into_owned(), File::of(&name, &Files::get(&name)?)?)));
    all.collect()
});

impl File {
    fn of(name: &str, found: &rust_embed::EmbeddedFile) -> Option<Self> {
        let bytes = Bytes::from(found.data.clone().into_owned());
        let hash: String = found.metadata.sha256_hash().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let etag = HeaderValue::try_from(format!("\"{hash}\"")).ok()?;
        let packed = if bytes.len() < PACKED_MIN { None } else { zipped(&bytes).map(Bytes::from) };
        Some(Self { bytes, packed, kind: kind_of(name), etag, is_named_by_hash: name.starts_with("assets/") })
    }
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("md") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Whether a request is for the page, which needs no token.
pub(super) fn is_page(path: &str) -> bool {
    matches!(path, "/" | "/icon.svg" | "/licenses.md")
        || path.strip_prefix("/assets/").is_some_and(|name| !name.contains('/'))
}

/// The page, or one of its files.
pub(super) async fn show(call: Call) -> Answer {
    let path = call.head.uri.path().trim_start_matches('/');
    let name = if path.is_empty() { "index.html" } else { path }.to_owned();
    let found = tokio::task::spawn_blocking(move || FILES.get(&name));
    let found = found.await.map_err(|error| ApiError::internal(broken(error)))?;
    let file = found.ok_or_else(|| ApiError::not_found(format_args!("file {} of the page", call.head.uri.path())))?;
    Ok(respond(file, &call.head.headers, &call.head.method))
}

fn respond(file: &File, asked: &HeaderMap, method: &Method) -> Response {
    let is_known = asked.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).is_some_and(|tags| {
        let etag = file.etag.to_str().unwrap_or_default();
        tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag || tag.trim() == "*")
    });
    let (status, body) = match (is_known, takes_gzip(asked), &file.packed) {
        (true, ..) => (StatusCode::NOT_MODIFIED, None),
        (false, true, Some(packed)) => (StatusCode::OK, Some((packed.clone(), true))),
        (false, ..) => (StatusCode::OK, Some((file.bytes.clone(), false))),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(ETAG, file.etag.clone());
    let keep = if file.is_named_by_hash { "public, max-age=31536000, immutable" } else { "no-cache" };
    let fixed: [(HeaderName, &'static str); 8] = [
        (CACHE_CONTROL, keep),
        (VARY, "accept-encoding"),
        (CONTENT_TYPE, file.kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let Some((bytes, is_packed)) = body else { return response };
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if *method == Method::HEAD {
        headers.insert(axum::http::header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    } else {
        *response.body_mut() = Body::from(bytes);
    }
    response
}

/// Whether an answer may be packed with gzip (RFC 9110, 12.5.3).
fn takes_gzip(asked: &HeaderMap) -> bool {
    let codings = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    codings.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip") || name == "*");
        let refused = |part: &str| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
        };
        is_gzip && !parts.any(refused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_stands_in_the_program_and_its_files_are_those_that_it_names() {
        let index = FILES.get("index.html").expect("the page");
        let text = std::str::from_utf8(&index.bytes).expect("text");
        let named: Vec<&str> = text.split('"').filter_map(|part| part.strip_prefix("./")).collect();
        assert!(named.len() >= 3, "{text}");
        for name in named {
            assert!(FILES.contains_key(name), "{name}");
        }
        assert!(!text.contains("<style") && !text.contains("javascript:"), "{text}");
        for script in text.split("<script").skip(1) {
            assert!(script.starts_with(" type=\"module\"") && script.contains("src=\"./assets/"), "{script}");
        }
        // 300 kB is what a slow line still bears.
        let packed: usize = FILES.values().map(|file| file.packed.as_ref().unwrap_or(&file.bytes).len()).sum();
        assert!(packed < 300_000, "{packed} bytes");
    }

    #[test]
    fn packed_is_what_may_be() {
        #[rustfmt::skip]
        let table = [
            ("gzip", true), ("gzip, br", true), ("br;q=1.0, GZIP;q=0.5", true), ("*", true), ("", false), ("br", false),
            ("gzip;q=0", false), ("gzip; q=0.000", false), ("gzipped", false),
        ];
        for (value, want) in table {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(takes_gzip(&headers), want, "{value}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn only_its_files_are_the_page() {
        for (path, want) in [
            ("/", true),
            ("/icon.svg", true),
            ("/licenses.md", true),
            ("/assets/index-1.js", true),
            ("/assets/a/b", false),
            ("/assets", false),
            ("/sessions", false),
            ("//", false),
        ] {
            assert_eq!(is_page(path), want, "{path}");
        }
    }
}
