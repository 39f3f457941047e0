//! Figures as servers send them: tokens are whole numbers, mostly. What is none is no reason to lose a reply that is paid for.

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A count: rounded where it is broken, read where it stands in a text. None: there is none.
///
/// # Errors
/// What is no JSON.
pub(in crate::provider) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let figure = deserializer.deserialize_any(FigureVisitor)?;
    Ok(figure.and_then(|figure| match figure {
        Figure::Whole(number) => Some(number),
        // Nothing else than a number that is not below zero has this form.
        Figure::Broken(number) => format!("{number:.0}").parse().ok(),
    }))
}

/// An amount. None: there is none.
///
/// # Errors
/// What is no JSON.
pub(in crate::provider) fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let figure = deserializer.deserialize_any(FigureVisitor)?;
    Ok(figure.and_then(|figure| match figure {
        Figure::Whole(number) => u32::try_from(number).ok().map(f64::from),
        Figure::Broken(number) => Some(number).filter(|number| number.is_finite() && *number >= 0.0),
    }))
}

/// What has this form. None: it has another one.
///
/// # Errors
/// What is no JSON.
pub(in crate::provider) fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

enum Figure {
    Whole(u64),
    Broken(f64),
}

struct FigureVisitor;

impl<'de> Visitor<'de> for FigureVisitor {
    type Value = Option<Figure>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(Figure::Whole(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(number).ok().map(Figure::Whole))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(Figure::Broken(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        let text = text.trim();
        Ok(text.parse().map(Figure::Whole).or_else(|_| text.parse().map(Figure::Broken)).ok())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        while all.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        while all.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Told {
        #[serde(default, deserialize_with = "count")]
        count: Option<u64>,
        #[serde(default, deserialize_with = "amount")]
        amount: Option<f64>,
    }

    #[derive(Deserialize)]
    struct Around {
        #[serde(default, deserialize_with = "lenient")]
        told: Option<Told>,
    }

    #[test]
    fn whatever_stands_there_harms_nothing() {
        #[rustfmt::skip]
        let table = [
            ("7", Some(7), Some(7.0)), ("2.5", Some(2), Some(2.5)), ("2.6", Some(3), Some(2.6)), ("-1", None, None), ("-1.5", None, None), ("1e3", Some(1000), Some(1000.0)),
            ("1e300", None, Some(1e300)), ("\"12\"", Some(12), Some(12.0)), ("\" 0.5 \"", Some(0), Some(0.5)), ("\"many\"", None, None), ("\"NaN\"", None, None),
            ("null", None, None), ("true", None, None), ("[1,[2]]", None, None), ("{\"a\":{}}", None, None),
        ];
        for (figure, count, amount) in table {
            let told: Around =
                serde_json::from_str(&format!("{{\"told\":{{\"count\":{figure},\"amount\":{figure}}}}}")).unwrap();
            assert_eq!(told.told, Some(Told { count, amount }), "{figure}");
        }
        for other in ["{}", "{\"told\":null}", "{\"told\":7}", "{\"told\":\"x\"}"] {
            assert_eq!(serde_json::from_str::<Around>(other).unwrap().told, None, "{other}");
        }
    }
}
