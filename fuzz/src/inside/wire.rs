//! Requests before anybody knows what they ask for: where each ends, and what stands in its query and its headers.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use futures_util::FutureExt as _;
use tokio::io::BufReader;

use super::framing::{Framing, Unclear};
use super::headers::{etag, expected_version, last_event_id, request_id, single};
use super::lines::{Line, line};
use super::query::{Query, number};
use crate::base::limit;
use crate::base::trace::TraceContext;
use crate::protocol::{ApiError, ClientId, SessionId, TurnId};

/// The property of the target `wire`. The first letter says of what: (f)raming, a (q)uery, a (n)umber, a
/// place in a (t)race, (h)eaders, an (i)d, (l)ines of a pipe.
pub fn holds(data: &[u8]) {
    match data.split_first() {
        Some((b'f', [size, stream @ ..])) => framing(usize::from(*size % 9) + 1, stream),
        Some((b'q', text)) => query(text),
        Some((b'n', text)) => whole_number(text),
        Some((b't', text)) => trace(text),
        Some((b'h', values)) => headers(values),
        Some((b'i', text)) => id(text),
        Some((b'l', [size, stream @ ..])) => lines(usize::from(*size % 9) + 1, stream),
        Some(_) | None => {}
    }
}

/// How the bytes are cut into pieces changes nothing, and a first head that is unclear is found where it ends.
fn framing(size: usize, stream: &[u8]) {
    let mut whole = Framing::default();
    let found = whole.follow(stream);
    let mut pieces = Framing::default();
    let mut cut = stream.chunks(size).enumerate();
    let at = cut.find_map(|(n, piece)| pieces.follow(piece).map(|(at, why)| (n * size + at, why)));
    assert_eq!(found, at, "{:?} in pieces of {size}", String::from_utf8_lossy(stream));
    if let Some((at, _)) = found {
        assert_eq!(stream[at], b'\n');
        assert_eq!(whole.follow(stream), None, "what comes behind such a head is not followed");
    }
    match first_head(stream) {
        Some((end, Some(why))) => assert_eq!(found, Some((end, why)), "{:?}", String::from_utf8_lossy(stream)),
        Some((end, None)) => assert!(found.is_none_or(|(at, _)| at > end), "{:?}", String::from_utf8_lossy(stream)),
        None => assert_eq!(found, None),
    }
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Without blanks at its ends.
fn bare(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Where the first head ends, and whether it is unclear where its body does.
fn first_head(stream: &[u8]) -> Option<(usize, Option<Unclear>)> {
    let (mut at, mut begun, mut old, mut length) = (0, false, false, None);
    let mut codings = Vec::new();
    for line in stream.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        let line = line.strip_suffix(b"\n")?;
        match (line.is_empty() || line == b"\r", begun) {
            (true, true) => {
                let unclear = match codings.as_slice() {
                    [_, ..] if length.is_some() => Some(Unclear::TwoLengths),
                    [true] => old.then_some(Unclear::OldVersion),
                    [_, ..] => Some(Unclear::Coding),
                    [] => (length == Some(false)).then_some(Unclear::Length),
                };
                return Some((at - 1, unclear));
            }
            (true, false) => {}
            (false, false) => {
                begun = true;
                let plain: Vec<u8> = line.iter().copied().filter(|byte| !is_blank(byte) && *byte != b'\r').collect();
                old = plain.ends_with(b"HTTP/1.0");
            }
            (false, true) => {
                let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
                let mut name: Vec<u8> = line[..colon].iter().copied().filter(|byte| !is_blank(byte)).collect();
                name.make_ascii_lowercase();
                let value = &line[colon + 1..];
                let value = bare(value.strip_suffix(b"\r").unwrap_or(value));
                if name == b"content-length" {
                    let number = std::str::from_utf8(value).ok().and_then(plain_number);
                    // Of a longer line it is not all seen.
                    let shown = line.iter().filter(|byte| !is_blank(byte)).count() < 64;
                    length = Some(number.is_some() && shown);
                }
                if name == b"transfer-encoding" {
                    codings.push(value.eq_ignore_ascii_case(b"chunked"));
                }
            }
        }
    }
    None
}

/// The parameters of the event routes, as one after the other is asked for.
const NAMES: [&str; 4] = ["after", "limit", "wait", "types"];

fn query(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(uri) = format!("/x?{text}").parse::<Uri>() else { return };
    let mut given = match Query::of(&uri) {
        Ok(query) => query,
        Err(error) => return named(&error, None),
    };
    let values = NAMES.map(|name| given.text(name));
    let others = given.finish(&NAMES).err();
    if let Some(error) = &others {
        named(error, None);
    }
    // Each of them is read as what it is, or refused by its name.
    let read = || Query::of(&uri).expect("it was read above");
    match (read().number("after"), &values[0]) {
        (Ok(number), text) => assert_eq!(number, text.as_deref().and_then(plain_number), "{text:?}"),
        (Err(error), text) => {
            assert_eq!(text.as_deref().and_then(plain_number), None);
            named(&error, Some("after"));
        }
    }
    match read().limit() {
        Ok(limit) => assert!((1..=limit::PAGE_ITEMS_MAX).contains(&limit)),
        Err(error) => named(&error, Some("limit")),
    }
    if let Err(error) = read().flag("wait") {
        named(&error, Some("wait"));
    }
    // Written again, with every byte told by its number, they are the same.
    let pairs =
        NAMES.iter().zip(&values).filter_map(|(name, value)| Some(format!("{name}={}", coded(value.as_ref()?))));
    let again: Uri = format!("/x?{}", pairs.collect::<Vec<_>>().join("&")).parse().expect("plain signs");
    let mut again = Query::of(&again).expect("names once each");
    assert_eq!(NAMES.map(|name| again.text(name)), values, "{text:?}");
    // And said twice they are refused.
    if values.iter().any(Option::is_some) && !text.contains('#') {
        let twice: Result<Uri, _> = format!("/x?{text}&{text}").parse();
        if let Ok(twice) = twice {
            named(&Query::of(&twice).expect_err("each is there twice"), None);
        }
    }
}

fn coded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn whole_number(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    match number("Last-Event-ID", text) {
        Ok(number) => {
            assert_eq!(Some(number), plain_number(text), "{text:?}");
            assert_eq!(super::query::number("x", &number.to_string()).ok(), Some(number));
        }
        Err(error) => {
            assert_eq!(plain_number(text), None, "{text:?}");
            named(&error, Some("Last-Event-ID"));
        }
    }
}

/// What is taken is written again in the form of version 00, of which the text is a longer one at most in its version,
/// its other flags, and what stands behind.
fn trace(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(context) = text.parse::<TraceContext>() else { return };
    assert!(context.trace != 0 && context.span != 0, "{text:?}");
    let written = context.to_string();
    assert_eq!(written.parse::<TraceContext>().ok(), Some(context), "{text:?}");
    assert_eq!(text.get(2..53), written.get(2..53), "{text:?}");
    assert!(text.len() == written.len() || (!text.starts_with("00") && text[written.len()..].starts_with('-')));
}

/// The same values, a line each, as each of the headers that are read here.
fn headers(values: &[u8]) {
    let values: Vec<HeaderValue> =
        values.split(|byte| *byte == b'\n').filter_map(|value| HeaderValue::from_bytes(value).ok()).collect();
    let under = |name: &'static str| {
        let name = HeaderName::from_static(name);
        values.iter().map(|value| (name.clone(), value.clone())).collect::<HeaderMap>()
    };
    let text = match (&values[..], single(&under("idempotency-key"), &HeaderName::from_static("idempotency-key"))) {
        ([], Ok(None)) => None,
        ([one], Ok(Some(text))) => {
            assert_eq!(text.as_bytes(), one.as_bytes());
            Some(text.to_owned())
        }
        ([_, _, ..], Err(error)) => return named(&error, Some("idempotency-key")),
        ([one], Err(error)) => {
            assert!(one.as_bytes().iter().any(|byte| !(32..127).contains(byte) && *byte != b'\t'), "{one:?}");
            return named(&error, Some("idempotency-key"));
        }
        (values, other) => panic!("{values:?}: {other:?}"),
    };
    match last_event_id(&under("last-event-id")) {
        Ok(place) => assert_eq!(place, text.as_deref().and_then(plain_number)),
        Err(error) => {
            assert!(text.as_deref().is_some_and(|text| plain_number(text).is_none()), "{text:?}");
            named(&error, Some("Last-Event-ID"));
        }
    }
    match expected_version(&under("if-match")) {
        Ok(Some(version)) => {
            let plain = text.as_deref().expect("it was there").trim_start_matches("W/");
            assert_eq!(plain_number(plain.trim_matches('"')), Some(version), "{text:?}");
            let written = HeaderMap::from_iter([(axum::http::header::IF_MATCH, etag(version))]);
            assert_eq!(expected_version(&written), Ok(Some(version)));
        }
        Ok(None) => assert!(text.as_deref().is_none_or(|text| text == "*"), "{text:?}"),
        Err(error) => named(&error, Some("If-Match")),
    }
    if let Some(given) = request_id(&under("x-request-id")) {
        assert_eq!(Some(given.as_bytes()), text.as_deref().map(str::as_bytes));
        assert!((1..=128).contains(&given.len()) && !given.as_bytes().iter().any(u8::is_ascii_whitespace));
    }
}

/// What is an id is a plain word, and no place that a path could lead to.
fn id(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let word = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let plain = (1..=256).contains(&text.len()) && text.chars().all(word) && text != "." && text != "..";
    assert_eq!(text.parse::<SessionId>().ok().map(|id| id.to_string()), plain.then(|| text.to_owned()));
    assert_eq!(text.parse::<TurnId>().is_ok(), plain, "{text:?}");
    if let Ok(client) = ClientId::plain(text) {
        assert!(plain && client.as_str() == text, "{text:?}");
    }
    let json = serde_json::to_string(text).expect("a text");
    assert_eq!(serde_json::from_str::<SessionId>(&json).is_ok(), plain, "{text:?}");
}

/// The longest line of a pipe here.
const LINE_BYTES_MAX: usize = 24;

/// How the bytes come changes nothing; a line that is too long is told, and those behind it are whole.
fn lines(size: usize, stream: &[u8]) {
    let mut input = BufReader::with_capacity(size, stream);
    let mut wanted = stream.split(|byte| *byte == b'\n').collect::<Vec<_>>();
    wanted.pop_if(|last| last.is_empty());
    for want in wanted {
        let read = line(&mut input, LINE_BYTES_MAX).now_or_never().expect("all of it is there").expect("it is memory");
        let long = want.len() > LINE_BYTES_MAX;
        assert_eq!(read, Some(if long { Line::TooLong } else { Line::Whole(want.to_vec()) }));
    }
    let end = line(&mut input, LINE_BYTES_MAX).now_or_never().expect("all of it is there").expect("it is memory");
    assert_eq!(end, None);
}

/// A number in decimal digits, by the plain definition.
fn plain_number(text: &str) -> Option<u64> {
    let digits = text.chars().map(|sign| sign.to_digit(10)).collect::<Option<Vec<_>>>()?;
    let add = |sum: u64, digit: &u32| sum.checked_mul(10)?.checked_add(u64::from(*digit));
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// A refusal names the field, and what was expected.
fn named(error: &ApiError, field: Option<&str>) {
    let details = error.0.details.as_ref().expect("a refusal has details");
    let told = details["field"].as_str().expect("it names a field");
    assert!(!told.is_empty() && field.is_none_or(|field| field == told), "{details}");
    assert!(details["expected"].as_str().is_some_and(|text| !text.is_empty()), "{details}");
}

#[test]
fn every_input_holds() {
    crate::base::replay::replay("wire", b"fqnthil", holds);
}
