//! Where the requests of a connection begin and end, by what their heads say: looked at before hyper sees them.
//!
//! A head with a `Content-Length` and a `Transfer-Encoding` can be read in two ways: what is a body to us may be a
//! request to a proxy before us, and the other way round. hyper takes the chunks and forgets the length, so that
//! nothing behind it can tell; therefore such a head is found here, and never reaches it.
//!
//! Invariants: a few bytes are held, whatever comes. Only that one fault is judged; who cannot be followed is left
//! to hyper, which refuses what is malformed and ends the connection.

/// Bytes of a line that are looked at: a header's name and a length fit.
const LINE_BYTES_MAX: usize = 64;

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    at: Place,
    line: Line,
}

#[derive(Debug)]
enum Place {
    Head(Head),
    /// In a body, or in a chunk of one.
    Body {
        left: u64,
        chunk: bool,
    },
    ChunkSize,
    ChunkEnd,
    Trailers,
    /// Whatever it is, it is not followed.
    Lost,
}

impl Default for Place {
    fn default() -> Self {
        Self::Head(Head::default())
    }
}

#[derive(Debug, Default)]
struct Head {
    /// The first line has come; blank ones may stand before it.
    begun: bool,
    /// What `Content-Length` says; None inside: it is no number.
    length: Option<Option<u64>>,
    coded: bool,
}

/// The beginning of a line, without blanks.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    /// Its whole length.
    length: usize,
}

impl Line {
    fn push(&mut self, data: &[u8]) {
        self.length = self.length.saturating_add(data.len());
        let room = LINE_BYTES_MAX - self.bytes.len();
        self.bytes.extend(data.iter().filter(|byte| !matches!(byte, b' ' | b'\t')).take(room));
    }

    fn is_blank(&self) -> bool {
        self.length == 0 || (self.length == 1 && self.bytes == b"\r")
    }

    /// The name and the value of a header.
    fn header(&self) -> Option<(&[u8], &[u8])> {
        let colon = memchr::memchr(b':', &self.bytes)?;
        Some((&self.bytes[..colon], &self.bytes[colon + 1..]))
    }
}

impl Framing {
    /// Looks at what comes next. Some: up to there, the line end of a head with two lengths, which must not be read.
    pub(super) fn follow(&mut self, data: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < data.len() {
            let rest = &data[at..];
            match &mut self.at {
                Place::Lost => return None,
                Place::Body { left, chunk } => {
                    let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    *left -= taken as u64;
                    at += taken;
                    if *left == 0 {
                        self.at = if *chunk { Place::ChunkEnd } else { Place::default() };
                    }
                }
                Place::Head(_) | Place::ChunkSize | Place::ChunkEnd | Place::Trailers => {
                    let end = memchr::memchr(b'\n', rest);
                    self.line.push(&rest[..end.unwrap_or(rest.len())]);
                    let end = end?;
                    let line = std::mem::take(&mut self.line);
                    if self.end_line(&line) {
                        self.at = Place::Lost;
                        return Some(at + end);
                    }
                    at += end + 1;
                }
            }
        }
        None
    }

    /// Takes a whole line. True: it ends a head with two lengths.
    fn end_line(&mut self, line: &Line) -> bool {
        let blank = line.is_blank();
        let next = match &mut self.at {
            Place::Head(head) if blank && head.begun => match (head.length, head.coded) {
                (Some(_), true) => return true,
                (None, true) => Place::ChunkSize,
                (Some(Some(left @ 1..)), false) => Place::Body { left, chunk: false },
                (Some(Some(0)) | None, false) => Place::default(),
                (Some(None), false) => Place::Lost,
            },
            Place::Head(head) => {
                head.take(line);
                return false;
            }
            Place::ChunkSize => match chunk_size(&line.bytes) {
                Some(0) => Place::Trailers,
                Some(left) => Place::Body { left, chunk: true },
                None => Place::Lost,
            },
            Place::ChunkEnd if blank => Place::ChunkSize,
            Place::Trailers if blank => Place::default(),
            Place::Trailers => return false,
            Place::ChunkEnd | Place::Body { .. } | Place::Lost => Place::Lost,
        };
        self.at = next;
        false
    }
}

impl Head {
    fn take(&mut self, line: &Line) {
        if !self.begun {
            self.begun = !line.is_blank();
            return;
        }
        let Some((name, value)) = line.header() else { return };
        if name.eq_ignore_ascii_case(b"content-length") {
            let whole = line.bytes.len() < LINE_BYTES_MAX;
            let text = std::str::from_utf8(value.trim_ascii_end()).ok();
            self.length = Some(text.filter(|_| whole).and_then(|text| text.parse().ok()));
        }
        self.coded |= name.eq_ignore_ascii_case(b"transfer-encoding");
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| matches!(byte, b';' | b'\r')).next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Where it is found, whichever way the bytes come.
    fn found(text: &str) -> Option<usize> {
        let whole = Framing::default().follow(text.as_bytes());
        for piece in [1, 3] {
            let mut framing = Framing::default();
            let pieces = text.as_bytes().chunks(piece).enumerate();
            let at = pieces.filter_map(|(n, bytes)| Some(n * piece + framing.follow(bytes)?)).next();
            assert_eq!(at, whole, "in pieces of {piece}: {text}");
            assert!(framing.line.bytes.capacity() <= 2 * LINE_BYTES_MAX);
        }
        whole
    }

    #[test]
    fn two_lengths_are_found_behind_everything_that_may_stand_before() {
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(5_000));
        #[rustfmt::skip]
        let before = [
            "", "\r\n\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\nHost: x\n\n", long.as_str(),
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length:5\r\nContent-Length:\t 5 \r\n\r\nTrans",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n\r\n\r\r\n0B\r\nX: y\r\nX: y\n\r\n0\r\nX: y\r\n\r\n",
        ];
        for text in before {
            assert_eq!(found(text), None, "{text}");
            let both = format!("{text}{BOTH}");
            assert_eq!(found(&both), Some(both.len() - 1), "{both}");
            let more = format!("{both}5\r\nhello\r\n0\r\n\r\n");
            assert_eq!(found(&more), Some(both.len() - 1), "{more}");
        }
    }

    #[test]
    fn every_way_to_say_it_twice_is_found_and_nothing_else() {
        #[rustfmt::skip]
        let table = [
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", true),
            ("TRANSFER-ENCODING:chunked\ncontent-length:5\n", true),
            ("Transfer-Encoding: gzip, chunked\r\nX: y\r\nContent-Length: five\r\n", true),
            ("Content-Length:                                                                     5\r\nTransfer-Encoding: x\r\n", true),
            ("X: Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", false),
            ("X-Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", false),
            ("Content-Length: 99999999999999999999\r\n", false),
            ("Content-Length\r\nTransfer-Encoding: chunked\r\n", false),
        ];
        for (headers, want) in table {
            assert_eq!(found(&format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n")).is_some(), want, "{headers}");
        }
    }

    #[test]
    fn bodies_are_not_heads() {
        let body = format!("Content-Length: {}\r\n\r\n{BOTH}", BOTH.len());
        assert_eq!(found(&format!("POST / HTTP/1.1\r\n{body}")), None);
        let chunks = format!("{:x}\r\n{BOTH}\r\n0\r\n\r\n", BOTH.len());
        assert_eq!(found(&format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")), None);
        // What is broken is hyper's to refuse.
        for lost in ["zz\r\n", "1\r\nab\r\n", "fffffffffffffffff\r\n"] {
            assert_eq!(found(&format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{lost}{BOTH}")), None);
        }
    }
}
