//! Whole numbers as JSON has them: `3`, and `3.0` too, which is the same number.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// Numbers up to this are whole in a double too.
pub(crate) const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A whole number, 0 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole(pub(crate) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, 0 or more")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
                u64::try_from(number).map(Whole).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }

            #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "it was looked at")]
            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                if number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&number) {
                    return Ok(Whole(number as u64));
                }
                Err(E::invalid_value(Unexpected::Float(number), &self))
            }
        }

        deserializer.deserialize_u64(Number)
    }
}

/// Reads a whole number.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Whole::deserialize(deserializer).map(|whole| whole.0)
}

/// Reads a whole number, or `null`.
pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Whole>::deserialize(deserializer)?.map(|whole| whole.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_have_a_point() {
        let table = [
            ("3", Some(3)),
            ("3.0", Some(3)),
            ("3e2", Some(300)),
            ("18446744073709551615", Some(u64::MAX)),
            ("0.0", Some(0)),
        ];
        let refused = ["-1", "-1.0", "0.5", "1e30", "\"3\"", "null", "18446744073709551616"].map(|text| (text, None));
        for (text, want) in table.into_iter().chain(refused) {
            let mut from = serde_json::Deserializer::from_str(text);
            assert_eq!(number(&mut from).ok(), want, "{text}");
        }
    }
}
