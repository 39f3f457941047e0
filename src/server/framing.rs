//! Where the requests of a connection begin and end, by what their heads say: looked at before hyper sees them.
//!
//! A head whose body can be read in two ways is a request that hides another one: what is a body to us may be a request to
//! a proxy before us, and the other way round. hyper takes the chunks where a `Content-Length` stands beside them or another
//! coding before them, and nothing behind it can tell; therefore such a head is found here, and never reaches it.
//! Of codings, `chunked` alone is known, once, in HTTP/1.1 (RFC 9112, 6.1).
//!
//! Invariants: a few bytes are held, whatever comes. Who cannot be followed exactly is read no further: what comes behind a
//! length or a chunk that two readers may see in two ways is nobody's request.

/// Bytes of a line that are looked at: a header's name and a length fit.
const LINE_BYTES_MAX: usize = 64;

/// Why it cannot be told where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unclear {
    /// A `Content-Length` and a `Transfer-Encoding`.
    TwoLengths,
    /// A `Transfer-Encoding` that is not `chunked`, once.
    Coding,
    /// A `Transfer-Encoding` in HTTP/1.0, which has none.
    OldVersion,
    /// A `Content-Length` that is no plain number.
    Length,
    /// Something else than chunks, in the middle of a body.
    Chunks,
}

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
    /// Nothing more is read.
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
    coding: Option<Coding>,
    /// Of HTTP/1.0.
    old: bool,
}

/// What `Transfer-Encoding` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    /// Anything else, or more than one header.
    Other,
}

/// How the first line of a request of HTTP/1.0 ends.
const OLD: [u8; 8] = *b"HTTP/1.0";

/// The beginning of a line, without blanks.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    /// Its last ones without a carriage return.
    last: [u8; OLD.len()],
    /// Something stands in the value of a header, and then blanks, and then something again.
    parted: bool,
    value: Value,
    /// Its whole length.
    length: usize,
    /// A carriage return is its end so far.
    returned: bool,
}

/// How far the value of a header has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Value {
    /// The colon has not.
    #[default]
    Name,
    Before,
    Within,
    Behind,
}

impl Line {
    fn push(&mut self, data: &[u8]) {
        self.length = self.length.saturating_add(data.len());
        self.returned = data.last().map_or(self.returned, |last| *last == b'\r');
        let room = LINE_BYTES_MAX - self.bytes.len();
        self.bytes.extend(data.iter().filter(|byte| !is_blank(**byte)).take(room));
        for byte in data.iter().filter(|byte| **byte != b'\r') {
            self.value = match (self.value, *byte) {
                (Value::Name, b':') => Value::Before,
                (Value::Name | Value::Before, byte) if self.value == Value::Name || is_blank(byte) => self.value,
                (Value::Within | Value::Behind, byte) if is_blank(byte) => Value::Behind,
                (before, _) => {
                    self.parted |= before == Value::Behind;
                    Value::Within
                }
            };
        }
        for byte in data.iter().filter(|byte| !is_blank(**byte) && **byte != b'\r') {
            self.last.rotate_left(1);
            self.last[OLD.len() - 1] = *byte;
        }
    }

    fn is_blank(&self) -> bool {
        self.length == 0 || (self.length == 1 && self.bytes == b"\r")
    }

    /// Nothing but its end, as chunks have it.
    fn is_end(&self) -> bool {
        self.length == 1 && self.returned
    }

    /// The name and the value of a header.
    fn header(&self) -> Option<(&[u8], &[u8])> {
        // A carriage return that something stands behind, be it a blank, ends no line.
        let line = self.bytes.strip_suffix(b"\r").filter(|_| self.returned).unwrap_or(&self.bytes);
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], &line[colon + 1..]))
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

impl Framing {
    /// Looks at what comes next. Some: up to there, the line end of an unclear head, which must not be read.
    pub(super) fn follow(&mut self, data: &[u8]) -> Option<(usize, Unclear)> {
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
                    if let Some(unclear) = self.end_line(&line) {
                        self.at = Place::Lost;
                        return Some((at + end, unclear));
                    }
                    at += end + 1;
                }
            }
        }
        None
    }

    /// Takes a whole line. Some: it ends an unclear head, or is no line of a body in chunks.
    fn end_line(&mut self, line: &Line) -> Option<Unclear> {
        let next = match &mut self.at {
            Place::Head(head) if line.is_blank() && head.begun => match (head.length, head.coding) {
                (Some(_), Some(_)) => return Some(Unclear::TwoLengths),
                (None, Some(Coding::Other)) => return Some(Unclear::Coding),
                (None, Some(Coding::Chunked)) if head.old => return Some(Unclear::OldVersion),
                (None, Some(Coding::Chunked)) => Place::ChunkSize,
                (Some(Some(left @ 1..)), None) => Place::Body { left, chunk: false },
                (Some(Some(0)) | None, None) => Place::default(),
                (Some(None), None) => return Some(Unclear::Length),
            },
            Place::Head(head) => {
                head.take(line);
                return None;
            }
            // hyper ends the lines of chunks with both characters alone.
            Place::ChunkSize if line.returned => match chunk_size(&line.bytes) {
                Some(0) => Place::Trailers,
                Some(left) => Place::Body { left, chunk: true },
                None => return Some(Unclear::Chunks),
            },
            Place::ChunkEnd if line.is_end() => Place::ChunkSize,
            Place::Trailers if line.is_end() => Place::default(),
            Place::Trailers if line.returned => return None,
            Place::ChunkSize | Place::ChunkEnd | Place::Trailers => return Some(Unclear::Chunks),
            Place::Body { .. } | Place::Lost => Place::Lost,
        };
        self.at = next;
        None
    }
}

impl Head {
    fn take(&mut self, line: &Line) {
        if !self.begun {
            self.begun = !line.is_blank();
            self.old = line.last == OLD;
            return;
        }
        let Some((name, value)) = line.header() else { return };
        if name.eq_ignore_ascii_case(b"content-length") {
            let whole = line.bytes.len() < LINE_BYTES_MAX;
            self.length = Some(if whole && !line.parted { number(value, 10) } else { None });
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let plain = value.eq_ignore_ascii_case(b"chunked") && !line.parted;
            self.coding = Some(if plain && self.coding.is_none() { Coding::Chunked } else { Coding::Other });
        }
    }
}

/// None: there is none, or not all of it is here.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| matches!(byte, b';' | b'\r'))?;
    number(line.get(..end)?, 16)
}

/// Without a sign.
fn number(digits: &[u8], base: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.chars().all(|digit| digit.is_digit(base)))?;
    u64::from_str_radix(text, base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Where it is found, whichever way the bytes come.
    fn found(text: &str) -> Option<usize> {
        unclear(text).map(|(at, _)| at)
    }

    fn unclear(text: &str) -> Option<(usize, Unclear)> {
        let whole = Framing::default().follow(text.as_bytes());
        for piece in [1, 3] {
            let mut framing = Framing::default();
            let pieces = text.as_bytes().chunks(piece).enumerate();
            let at =
                pieces.filter_map(|(n, bytes)| framing.follow(bytes).map(|(at, why)| (n * piece + at, why))).next();
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
            ("Content-Length: 5\r\n", false),
            ("Content-Length: 000000000000000000000000000000000000000000000000000000000000000005\r\nTransfer-Encoding: x\r\n", true),
            ("Content-Length\r\nTransfer-Encoding: chunked\r\n", false),
        ];
        for (headers, want) in table {
            assert_eq!(found(&format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n")).is_some(), want, "{headers}");
        }
    }

    #[test]
    fn one_coding_is_known_once_in_one_version() {
        use Unclear::{Coding, OldVersion};
        #[rustfmt::skip]
        let table = [
            ("HTTP/1.1", "Transfer-Encoding: chunked\r\n", None),
            ("HTTP/1.1", "transfer-encoding:chunked\n", None),
            ("HTTP/1.1", "TRANSFER-ENCODING: \t CHUNKED \t \r\n", None),
            ("HTTP/1.1", "X-Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", None),
            ("HTTP/1.1", "Transfer-Encoding: gzip, chunked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: gzip\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: chunked, gzip\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: identity\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: chunked, chunked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: chunked\r\ntransfer-encoding: gzip\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: gzip\r\ntransfer-encoding: chunked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: chunked;q=1\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: chunked,\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: ,chunked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: chun ked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: \"chunked\"\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: xchunked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: \x0bchunked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding: chunked\r \r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding:\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding:\r\n chunked\r\n", Some(Coding)),
            ("HTTP/1.1", "Transfer-Encoding : gzip\r\n", Some(Coding)),
            ("HTTP/1.0", "Transfer-Encoding: chunked\r\n", Some(OldVersion)),
            ("HTTP/1.0 ", "Transfer-Encoding: gzip\r\n", Some(Coding)),
            ("HTTP/1.0", "X: y\r\n", None),
        ];
        for (version, headers, want) in table {
            for path in ["/", &format!("/{}", "x".repeat(500))] {
                let text = format!("POST {path} {version}\r\nHost: x\r\n{headers}\r\n");
                assert_eq!(unclear(&text).map(|(_, why)| why), want, "{version} {headers}");
            }
        }
        // Whatever comes before it, and however much.
        let long = format!("POST / HTTP/1.1\r\nTransfer-Encoding: {}gzip, chunked\r\n\r\n", " ".repeat(500));
        assert_eq!(unclear(&long), Some((long.len() - 1, Coding)));
    }

    #[test]
    fn bodies_are_not_heads() {
        let body = format!("Content-Length: {}\r\n\r\n{BOTH}", BOTH.len());
        assert_eq!(found(&format!("POST / HTTP/1.1\r\n{body}")), None);
        let chunks = format!("{:x}\r\n{BOTH}\r\n0\r\n\r\n", BOTH.len());
        assert_eq!(found(&format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")), None);
    }

    /// Behind what cannot be followed two readers may see two requests.
    #[test]
    fn what_cannot_be_followed_is_read_no_further() {
        let zeros = "0".repeat(70);
        let heads = [
            format!("{zeros}5"),
            "99999999999999999999".into(),
            "five".into(),
            "5, 5".into(),
            "-1".into(),
            "+5".into(),
            "1 5".into(),
            "5\x0c".into(),
            "5\r\t".into(),
            String::new(),
        ];
        for length in heads {
            for method in ["GET", "POST"] {
                let head = format!("{method} / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
                assert_eq!(unclear(&format!("{head}{BOTH}")), Some((head.len() - 1, Unclear::Length)), "{head}");
            }
        }
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        #[rustfmt::skip]
        let table = [
            "zz\r\n", "\r\n", ";x\r\n", "-1\r\n", "+1\r\n", "fffffffffffffffff\r\n", "1\n", "1;x\n", "1\r\nab\r\n", "1\r\na\n", "0\r\n\n", "0\r\nX: y\n",
            "0\r\nX: y\r\n\n", "0\r\nX: y\n\n", "1;\n\r\n",
        ];
        for lost in table.into_iter().map(str::to_owned).chain([format!("{zeros}1\r\n"), format!("{zeros}\r\n")]) {
            let (_, why) = unclear(&format!("{chunked}{lost}{BOTH}")).unwrap();
            assert_eq!(why, Unclear::Chunks, "{lost}");
            assert!(found(&format!("{chunked}{lost}{BOTH}")).unwrap() < chunked.len() + lost.len(), "{lost}");
        }
    }
}
