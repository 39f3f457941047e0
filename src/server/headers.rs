//! What stands in headers of requests: each is given once, in its form, or the request is refused.

use axum::http::header::IF_MATCH;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::query::number;
use crate::protocol::ApiError;

/// Where a stream goes on.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// A request's id.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// The header's value. None when it is absent.
///
/// # Errors
/// When there are several, or when it is no text.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::invalid(name.as_str(), "one such header, not several"));
    }
    value.to_str().map(Some).map_err(|_| ApiError::invalid(name.as_str(), "visible ASCII characters"))
}

/// `Last-Event-ID`: the number of the event behind which a stream goes on.
///
/// # Errors
/// When it is no whole number, or there are several.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    single(headers, &LAST_EVENT_ID)?.map(|text| number("Last-Event-ID", text)).transpose()
}

/// What is wrong with the place of a stream, where it came in [`last_event_id`].
pub(super) fn of_the_header(error: ApiError) -> ApiError {
    error.in_field("after", "Last-Event-ID")
}

/// The id that the caller gave the request, where it is a plain word.
pub(super) fn request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(REQUEST_ID).filter(|value| {
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        (1..=128).contains(&value.len()) && value.as_bytes().iter().all(plain)
    })
}

/// A session's version, as a header says it.
pub(super) fn etag(version: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("*"))
}

/// `If-Match`: the version that the session must have. `*` asks for none.
///
/// # Errors
/// When it is neither, or there are several.
pub(super) fn expected_version(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(text) = single(headers, &IF_MATCH)? else { return Ok(None) };
    let bare = text.strip_prefix("W/").unwrap_or(text);
    let bare = bare.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(bare);
    match number("If-Match", bare) {
        Ok(version) => Ok(Some(version)),
        Err(_) if text == "*" => Ok(None),
        Err(_) => Err(ApiError::invalid("If-Match", "the version of a session, such as \"3\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_in_every_form_that_headers_have() {
        let table = [("3", Ok(Some(3))), ("\"3\"", Ok(Some(3))), ("W/\"3\"", Ok(Some(3))), ("*", Ok(None))];
        let refused = ["", "x", "\"x\"", "-1", "\"3", "3, 4", "+3", "\"+3\""].map(|text| (text, Err(())));
        for (text, want) in table.into_iter().chain(refused) {
            let headers = HeaderMap::from_iter([(IF_MATCH, HeaderValue::from_str(text).expect("visible"))]);
            assert_eq!(expected_version(&headers).map_err(drop), want, "{text}");
        }
        assert_eq!(expected_version(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn a_place_in_the_log_is_named_once() {
        let of = |texts: &[&'static str]| {
            let pairs = texts.iter().map(|text| (LAST_EVENT_ID, HeaderValue::from_static(text)));
            last_event_id(&pairs.collect()).map_err(drop)
        };
        assert_eq!((of(&[]), of(&["7"])), (Ok(None), Ok(Some(7))));
        assert_eq!((of(&["+7"]), of(&[""]), of(&["7", "7"])), (Err(()), Err(()), Err(())));
    }
}
