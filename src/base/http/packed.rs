//! Bodies that come packed. Nobody asks for that, and what stands before some servers does it all the same.
//!
//! Invariant: what was packed comes out in the pieces in which it came, and one that does not end, or is none, is an error.

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

use super::innermost;
use crate::base::deflate::Unzipper;
use crate::base::limit;

/// A packed body.
#[derive(Debug)]
pub(super) struct Packed {
    response: Response,
    /// None: it has ended.
    unzipper: Option<Unzipper>,
}

/// How a body is packed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Not at all.
    None,
    /// As it can be read here.
    Gzip,
    /// In this way, which cannot be read here.
    Other(String),
}

impl Coding {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let all = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let all = all.collect::<Vec<_>>().join(",").to_ascii_lowercase();
        let mut named = all.split(',').map(str::trim).filter(|coding| !coding.is_empty() && *coding != "identity");
        match (named.next(), named.next()) {
            (None, _) => Self::None,
            (Some("gzip" | "x-gzip"), None) => Self::Gzip,
            _ => Self::Other(all.chars().filter(|c| !c.is_control()).take(40).collect()),
        }
    }
}

impl Packed {
    pub(super) fn of(response: Response) -> Self {
        Self { response, unzipper: Some(Unzipper::default()) }
    }

    /// The next piece; None at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        let broken = |error: std::io::Error| format!("its body cannot be unpacked: {error}");
        while self.unzipper.is_some() {
            let piece = self.response.chunk().await.map_err(|error| innermost(&error))?;
            let bytes = match (piece, self.unzipper.as_mut()) {
                (Some(piece), Some(unzipper)) => unzipper.push(&piece, limit::MODEL_REPLY_BYTES_MAX).map_err(broken)?,
                _ => self.unzipper.take().map_or(Ok(Vec::new()), Unzipper::end).map_err(broken)?,
            };
            if !bytes.is_empty() {
                return Ok(Some(bytes.into()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_by_their_names() {
        let other = |name: &str| Coding::Other(name.to_owned());
        #[rustfmt::skip]
        let table = [
            (&[][..], Coding::None), (&[""], Coding::None), (&["identity"], Coding::None), (&["gzip"], Coding::Gzip), (&[" X-GZIP "], Coding::Gzip),
            (&["identity, gzip"], Coding::Gzip), (&["br"], other("br")), (&["gzip, gzip"], other("gzip, gzip")), (&["gzip", "br"], other("gzip,br")),
        ];
        for (values, want) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, value.parse().expect("a value"));
            }
            assert_eq!(Coding::of(&headers), want, "{values:?}");
        }
    }
}
