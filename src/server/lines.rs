//! Lines of an input, none of which is kept beyond a limit.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// What stood between two line ends.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// More than was to be taken; none of it is kept.
    TooLong,
}

/// The next line; the last one needs no end. None: the input has ended.
///
/// # Errors
/// When the input cannot be read.
pub(super) async fn line<R: AsyncBufRead + Unpin>(input: &mut R, bytes_max: usize) -> io::Result<Option<Line>> {
    let (mut text, mut length) = (Vec::new(), 0_usize);
    loop {
        let piece = input.fill_buf().await?;
        if piece.is_empty() {
            return Ok(match length {
                0 => None,
                _ if length > bytes_max => Some(Line::TooLong),
                _ => Some(Line::Whole(text)),
            });
        }
        let end = memchr::memchr(b'\n', piece);
        let taken = end.unwrap_or(piece.len());
        length = length.saturating_add(taken);
        if length <= bytes_max {
            text.extend_from_slice(&piece[..taken]);
        } else {
            // What is too long is not kept.
            text = Vec::new();
        }
        input.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(Some(if length > bytes_max { Line::TooLong } else { Line::Whole(text) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[tokio::test]
    async fn lines_are_cut_at_their_ends_and_long_ones_are_not_kept() {
        let text = b"one\n\n1234567890\n12345678901\nlast";
        for piece in [1, 3, 100] {
            let mut input = BufReader::with_capacity(piece, &text[..]);
            let mut seen = Vec::new();
            while let Some(line) = line(&mut input, 10).await.expect("read") {
                seen.push(match line {
                    Line::Whole(text) => String::from_utf8(text).expect("UTF-8"),
                    Line::TooLong => "too long".to_owned(),
                });
            }
            assert_eq!(seen, ["one", "", "1234567890", "too long", "last"]);
        }
    }
}
