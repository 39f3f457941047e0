//! Where in a trace a request stands, as the header `traceparent` says it.

use std::fmt;
use std::str::FromStr;

/// A place in a trace (W3C Trace Context, level 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: u128,
    /// The span.
    pub span: u64,
    /// Whether whoever began the trace keeps it.
    pub sampled: bool,
}

/// A text that is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 00-TRACE-SPAN-FLAGS in hexadecimal")]
pub struct BadContext;

impl FromStr for TraceContext {
    type Err = BadContext;

    fn from_str(text: &str) -> Result<Self, BadContext> {
        let mut parts = text.split('-');
        let mut hex = |digits: usize| {
            let plain = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            parts.next().filter(|part| part.len() == digits && part.bytes().all(plain)).ok_or(BadContext)
        };
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        // A later version may have more behind it.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(BadContext);
        }
        let trace = u128::from_str_radix(trace, 16).map_err(|_| BadContext)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| BadContext)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| BadContext)?;
        if trace == 0 || span == 0 {
            return Err(BadContext);
        }
        Ok(Self { trace, span, sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_and_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context: TraceContext = text.parse().unwrap();
        assert_eq!((context.to_string().as_str(), context.sampled), (text, true));
        #[rustfmt::skip]
        let table = [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", true), ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", false), ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false), ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false), ("00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", false),
            ("", false), ("00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
        ];
        for (text, want) in table {
            assert_eq!(text.parse::<TraceContext>().is_ok(), want, "{text}");
        }
    }
}
