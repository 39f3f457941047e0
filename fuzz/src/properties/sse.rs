//! Event streams: how the bytes are cut into pieces changes nothing, and nothing grows beyond its limit.

use arbitrary::{Result, Unstructured};
use simse::base::sse::{SseReader, TooLong};

/// The longest line and event of these streams.
const BYTES_MAX: usize = 48;

/// The property of the target `sse`.
pub fn holds(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(sizes) = sizes(&mut u) else { return };
    let stream = u.take_rest();
    let (whole, pieces) = (read([stream]), read(cut(stream, &sizes)));
    assert_eq!(whole, pieces, "{:?} in pieces of {sizes:?}", String::from_utf8_lossy(stream));
    let (events, _) = whole;
    for (_, data) in &events {
        // A byte that is no character is told by one of three.
        assert!(data.len() <= 4 * BYTES_MAX, "{} bytes", data.len());
    }
    let ends = stream.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    assert!(events.len() <= ends, "more events than lines: {events:?}");
}

fn sizes(u: &mut Unstructured<'_>) -> Result<Vec<usize>> {
    (0..u.int_in_range(1..=4)?).map(|_| u.int_in_range(1..=9)).collect()
}

/// The stream in pieces of these sizes, again and again.
fn cut<'s>(mut stream: &'s [u8], sizes: &[usize]) -> Vec<&'s [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if stream.is_empty() {
            break;
        }
        let (piece, rest) = stream.split_at((*size).min(stream.len()));
        pieces.push(piece);
        stream = rest;
    }
    pieces
}

/// The events of a stream, and whether it broke off.
fn read<'s>(pieces: impl IntoIterator<Item = &'s [u8]>) -> (Vec<(String, String)>, bool) {
    let mut reader = SseReader::new(BYTES_MAX);
    let mut events = Vec::new();
    for piece in pieces {
        let pushed = reader.push(piece, |event, data| events.push((event.to_owned(), data.to_owned())));
        if let Err(TooLong(most)) = pushed {
            assert_eq!(most, BYTES_MAX);
            return (events, true);
        }
    }
    (events, false)
}
