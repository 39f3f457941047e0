//! Bytes made smaller where that is cheap, and made whole again.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::{DeflateEncoder, GzEncoder, MultiGzDecoder};

/// Packed bytes that are unpacked before it is looked at how many they have become.
const UNZIPPED_AT_ONCE: usize = 4 << 10;

/// The bytes in fewer, by the fastest means. None: it would not make them fewer.
pub fn deflated(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    // Writing into memory cannot fail.
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().filter(|packed| packed.len() < bytes.len())
}

/// The bytes as a gzip stream, as small as it gets. None: that would not make them fewer.
pub fn zipped(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().filter(|packed| packed.len() < bytes.len())
}

/// The bytes that were made smaller; there are `len` of them.
///
/// # Errors
/// They are not what they were.
pub fn inflated(packed: &[u8], len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    DeflateDecoder::new(packed).take(len + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != len {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packed text has another length than it had"));
    }
    Ok(bytes)
}

/// Takes a gzip stream in whatever pieces it comes.
#[derive(Debug)]
pub struct Unzipper {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Something has come.
    begun: bool,
}

impl Default for Unzipper {
    fn default() -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), begun: false }
    }
}

impl Unzipper {
    /// What a piece says that has come. Not more than about so many bytes: few may become very many.
    ///
    /// # Errors
    /// It is no gzip stream, or becomes too much.
    pub fn push(&mut self, piece: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
        self.begun |= !piece.is_empty();
        for part in piece.chunks(UNZIPPED_AT_ONCE) {
            self.decoder.write_all(part)?;
            if self.decoder.get_ref().len() > bytes_max {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too much unpacked"));
            }
        }
        self.decoder.flush()?;
        Ok(std::mem::take(self.decoder.get_mut()))
    }

    /// What is left at the end.
    ///
    /// # Errors
    /// It is not whole.
    pub fn end(self) -> io::Result<Vec<u8>> {
        if self.begun { self.decoder.finish() } else { Ok(Vec::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_out_again() {
        let text = b"the same again and again, the same again and again".repeat(20);
        let packed = deflated(&text).expect("it repeats itself");
        assert!(packed.len() < text.len() / 4);
        assert_eq!(inflated(&packed, text.len() as u64).expect("whole"), text);
        assert!(inflated(&packed, text.len() as u64 - 1).is_err() && inflated(&packed, text.len() as u64 + 1).is_err());
        assert_eq!(deflated(b"ab"), None, "nothing to gain");
        assert!(inflated(b"\xff\xff\xff", 3).is_err());
    }

    #[test]
    fn a_gzip_stream_comes_in_pieces_and_is_bounded() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"first, ").unwrap();
        encoder.flush().unwrap();
        let begun = encoder.get_ref().len();
        encoder.write_all(b"second").unwrap();
        let packed = encoder.finish().unwrap();
        let mut unzipper = Unzipper::default();
        assert_eq!(unzipper.push(&packed[..begun], 100).unwrap(), b"first, ", "what has come is there at once");
        let mut rest = unzipper.push(&packed[begun..], 100).unwrap();
        rest.extend(unzipper.end().unwrap());
        assert_eq!(rest, b"second");
        // Nothing at all, one that is cut, and none.
        assert!(Unzipper::default().end().unwrap().is_empty());
        let mut cut = Unzipper::default();
        cut.push(&packed[..packed.len() - 9], 100).unwrap();
        assert!(cut.end().is_err());
        assert!(Unzipper::default().push(b"no gzip at all", 100).is_err());
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&vec![0; 64 << 20]).unwrap();
        assert!(Unzipper::default().push(&bomb.finish().unwrap(), 1 << 20).is_err());
    }
}
