//! Bytes made smaller where that is cheap, and made whole again.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// The bytes in fewer, by the fastest means. None: it would not make them fewer.
pub fn deflated(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    // Writing into memory cannot fail.
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
}
