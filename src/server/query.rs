//! The query of a request: each parameter is known, valid and given once, or the request is refused.

use axum::extract::Query as Pairs;
use axum::http::Uri;

use crate::base::limit;
use crate::protocol::ApiError;

/// Parameters that are still to be asked for.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// The query of a URI.
    ///
    /// # Errors
    /// When it is not a list of `name=value`, or names one thing twice or none.
    pub(crate) fn of(uri: &Uri) -> Result<Self, ApiError> {
        let pairs = Pairs::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| ApiError::invalid("query", "`name=value` pairs joined by `&`, percent-encoded"))?
            .0;
        for (at, (name, _)) in pairs.iter().enumerate() {
            if name.is_empty() {
                return Err(ApiError::invalid("query", "a name before each `=`"));
            }
            if pairs.iter().skip(at + 1).any(|(other, _)| other == name) {
                return Err(ApiError::invalid(name, "one value, not several"));
            }
        }
        Ok(Self(pairs))
    }

    /// Takes a parameter out.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(n, _)| n == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes a whole number out.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        number(name, &text).map(Some)
    }

    /// Takes `true` or `false` out; false when it is not there, true when it stands there by itself.
    ///
    /// # Errors
    /// When it is neither.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.text(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(other) => Err(ApiError::unfit(name, "`true` or `false`", format!("`{other}`"))),
        }
    }

    /// Takes `limit` out: the entries of a page.
    ///
    /// # Errors
    /// When it is not between 1 and the largest page.
    pub(crate) fn limit(&mut self) -> Result<usize, ApiError> {
        let wanted = self.number("limit")?.unwrap_or(limit::PAGE_ITEMS as u64);
        match usize::try_from(wanted) {
            Ok(wanted @ 1..=limit::PAGE_ITEMS_MAX) => Ok(wanted),
            _ => Err(ApiError::invalid("limit", format!("a number from 1 to {}", limit::PAGE_ITEMS_MAX))),
        }
    }

    /// Refuses what nobody asked for.
    ///
    /// # Errors
    /// Names the first unknown parameter, and those that exist.
    pub(crate) fn finish(self, known: &[&str]) -> Result<(), ApiError> {
        let Some((name, _)) = self.0.first() else { return Ok(()) };
        let expected = match known {
            [] => "no parameters here".to_owned(),
            known => format!("one of {}", known.join(", ")),
        };
        Err(ApiError::invalid(name, expected))
    }
}

/// A whole number in decimal digits.
///
/// # Errors
/// When it is none, or too large.
pub(crate) fn number(name: &str, text: &str) -> Result<u64, ApiError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parsed = if digits { text.parse().ok() } else { None };
    parsed.ok_or_else(|| ApiError::invalid(name, "a whole number, 0 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_known_valid_and_single() {
        let table: &[(&str, Option<&str>)] = &[
            ("/x", None),
            ("/x?after=3&limit=7&wait=true", None),
            ("/x?wait", None),
            ("/x?wait=false", None),
            ("/x?after=-1", Some("after")),
            ("/x?after=+1", Some("after")),
            ("/x?after=", Some("after")),
            ("/x?after=99999999999999999999", Some("after")),
            ("/x?after=1&after=2", Some("after")),
            ("/x?limit=0", Some("limit")),
            ("/x?limit=1001", Some("limit")),
            ("/x?wait=yes", Some("wait")),
            ("/x?wiat=true", Some("wiat")),
            ("/x?=true", Some("query")),
            ("/x?wait&=", Some("query")),
            ("/x?wait&", None),
        ];
        for (uri, refused) in table {
            let result = Query::of(&uri.parse().unwrap()).and_then(|mut query| {
                query.number("after")?;
                query.limit()?;
                query.flag("wait")?;
                query.finish(&["after", "limit", "wait"])
            });
            let field = result.err().map(|e| e.0.details.unwrap()["field"].as_str().unwrap().to_owned());
            assert_eq!(field.as_deref(), *refused, "{uri}");
        }
    }
}
