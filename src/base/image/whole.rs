//! Whether an image is whole, by the structure of its file: every part where its format says, none cut, none damaged.
//!
//! What one broken image costs is high: it is sent again with each request of a conversation, and each of them is then refused.
//! Pixels are not decoded. Of a PNG, whose parts carry checksums, the compressed data is unpacked and thrown away, up to the
//! size that its header promises and no further.
//!
//! Invariant: reads inside `bytes` alone, in time that grows with them and with the promised size, in constant memory.

use flate2::{Decompress, FlushDecompress, Status};

use super::{be32, le16};

/// What stands against an image: what was found where, and what was expected.
pub type Flaw = String;

/// Checks an image of one of the formats that models take.
///
/// # Errors
/// The first thing that is wrong with it. For any other format, that it is none of them.
pub fn whole(media_type: &str, bytes: &[u8]) -> Result<(), Flaw> {
    match media_type {
        "image/png" => png(bytes),
        "image/jpeg" => jpeg(bytes),
        "image/gif" => gif(bytes),
        "image/webp" => webp(bytes),
        other => Err(format!("{other} is not looked into: expected PNG, JPEG, GIF or WebP")),
    }
}

/// The file ends too early.
fn cut(bytes: &[u8], expected: &str) -> Flaw {
    format!("it ends at byte {}, in the middle: expected {expected}", bytes.len())
}

/// `len` bytes from `at` on.
fn part<'b>(bytes: &'b [u8], at: usize, len: usize, expected: &str) -> Result<&'b [u8], Flaw> {
    at.checked_add(len).and_then(|end| bytes.get(at..end)).ok_or_else(|| cut(bytes, expected))
}

/// What the first chunk of a PNG says.
struct PngHeader {
    width: u64,
    height: u64,
    bits: u64,
    interlaced: bool,
}

impl PngHeader {
    fn read(body: &[u8]) -> Result<Self, Flaw> {
        let fields: [u8; 13] =
            body.try_into().map_err(|_| format!("its IHDR chunk has {} bytes: expected 13", body.len()))?;
        let (depth, color, [packing, filter, interlace]) = (fields[8], fields[9], [fields[10], fields[11], fields[12]]);
        let samples = match (color, depth) {
            (0, 1 | 2 | 4 | 8 | 16) | (3, 1 | 2 | 4 | 8) => 1,
            (4, 8 | 16) => 2,
            (2, 8 | 16) => 3,
            (6, 8 | 16) => 4,
            _ => return Err(format!("its IHDR chunk names color type {color} with {depth} bits, which no PNG has")),
        };
        if (packing, filter) != (0, 0) || interlace > 1 {
            return Err("its IHDR chunk names a packing that no PNG has".to_owned());
        }
        let size = |at| be32(body, at).filter(|size| (1..=0x7fff_ffff).contains(size)).map(u64::from);
        let (Some(width), Some(height)) = (size(0), size(4)) else {
            return Err("its IHDR chunk names a width or height of 0, or one that no PNG has".to_owned());
        };
        Ok(Self { width, height, bits: u64::from(depth) * samples, interlaced: interlace == 1 })
    }

    /// Bytes of its pixels, unpacked, with a byte in front of each row.
    fn unpacked_bytes(&self) -> u64 {
        /// First column and row of each pass, and the steps to the next.
        const PASSES: [[u64; 4]; 7] =
            [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]];
        let rows = |width: u64, height: u64| match width {
            0 => 0,
            _ => height.saturating_mul(1 + (width * self.bits).div_ceil(8)),
        };
        if !self.interlaced {
            return rows(self.width, self.height);
        }
        let pass = |[x, y, dx, dy]: [u64; 4]| {
            rows(self.width.saturating_sub(x).div_ceil(dx), self.height.saturating_sub(y).div_ceil(dy))
        };
        PASSES.into_iter().map(pass).fold(0, u64::saturating_add)
    }
}

/// Unpacks the pixels of a PNG as they come, and counts them.
struct Pixels {
    inflater: Decompress,
    expected_bytes: u64,
    ended: bool,
    scratch: Box<[u8]>,
}

impl Pixels {
    fn new(expected_bytes: u64) -> Self {
        let scratch = vec![0; 32 * 1024].into_boxed_slice();
        Self { inflater: Decompress::new(true), expected_bytes, ended: false, scratch }
    }

    fn is_full(&self) -> bool {
        self.ended || self.inflater.total_out() >= self.expected_bytes
    }

    fn feed(&mut self, mut packed: &[u8]) -> Result<(), Flaw> {
        while !packed.is_empty() && !self.is_full() {
            let (read, made) = (self.inflater.total_in(), self.inflater.total_out());
            let status = self
                .inflater
                .decompress(packed, &mut self.scratch, FlushDecompress::None)
                .map_err(|_| "its pixel data cannot be unpacked: expected zlib data in the IDAT chunks".to_owned())?;
            self.ended = status == Status::StreamEnd;
            let read = self.inflater.total_in() - read;
            packed = &packed[usize::try_from(read).unwrap_or(packed.len()).min(packed.len())..];
            if read == 0 && self.inflater.total_out() == made {
                break;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Flaw> {
        // What is left in the inflater comes out with nothing more put in.
        while !self.is_full() {
            let before = self.inflater.total_out();
            let status = self.inflater.decompress(&[], &mut self.scratch, FlushDecompress::None);
            self.ended = matches!(status, Ok(Status::StreamEnd));
            if self.inflater.total_out() == before {
                break;
            }
        }
        let (made, expected) = (self.inflater.total_out(), self.expected_bytes);
        if made >= expected {
            return Ok(());
        }
        Err(format!("its pixel data has {made} bytes, unpacked: expected {expected} by its width and height"))
    }
}

fn png(bytes: &[u8]) -> Result<(), Flaw> {
    let (mut at, mut pixels, mut data_seen) = (8, None, false);
    loop {
        let head = part(bytes, at, 8, "a PNG that goes on to its IEND chunk")?;
        let (size, name) = (be32(head, 0).unwrap_or(0), &head[4..]);
        let shown = String::from_utf8_lossy(name).into_owned();
        if !name.iter().all(u8::is_ascii_alphabetic) {
            return Err(format!("at byte {at} begins no chunk of a PNG"));
        }
        let size = usize::try_from(size).map_err(|_| cut(bytes, "a smaller chunk"))?;
        let tail = format!("{size} bytes of the {shown} chunk that begins at byte {at}");
        let body = part(bytes, at + 8, size, &tail)?;
        let sum = part(bytes, at + 8 + size, 4, &tail)?;
        if be32(sum, 0) != Some(crc32fast::hash(&bytes[at + 4..at + 8 + size])) {
            return Err(format!("the {shown} chunk at byte {at} is damaged: its checksum is not that of its bytes"));
        }
        match (name, &mut pixels) {
            (b"IHDR", None) => pixels = Some(Pixels::new(PngHeader::read(body)?.unpacked_bytes())),
            (_, None) => return Err(format!("it begins with the chunk {shown}: expected IHDR")),
            (b"IDAT", Some(pixels)) => {
                data_seen = true;
                pixels.feed(body)?;
            }
            (b"IEND", Some(_)) => break,
            (_, Some(_)) => {}
        }
        at += 12 + size;
    }
    match pixels {
        Some(pixels) if data_seen => pixels.finish(),
        Some(_) | None => Err("it has no pixels: expected an IDAT chunk".to_owned()),
    }
}

/// Walks the markers; what is packed between them is passed over.
fn jpeg(bytes: &[u8]) -> Result<(), Flaw> {
    const END: &str = "a JPEG that goes on to its end marker (FF D9)";
    let (mut at, mut framed, mut scanned) = (2, false, false);
    loop {
        let next = |at: usize| bytes.get(at).copied().ok_or_else(|| cut(bytes, END));
        if next(at)? != 0xff {
            return Err(format!("at byte {at} stands no marker of a JPEG"));
        }
        while next(at + 1)? == 0xff {
            at += 1;
        }
        let marker = next(at + 1)?;
        at += 2;
        match marker {
            0xd9 if scanned => return Ok(()),
            0xd9 => return Err("it ends without pixels: expected a scan (FF DA)".to_owned()),
            0x01 | 0xd0..=0xd8 => continue,
            0x00 => return Err(format!("at byte {} stands no marker of a JPEG", at - 2)),
            _ => {}
        }
        let two = part(bytes, at, 2, END)?;
        let len = usize::from(u16::from_be_bytes([two[0], two[1]]));
        if len < 2 {
            return Err(format!("the segment FF {marker:02X} at byte {} has no length", at - 2));
        }
        let body = part(bytes, at, len, END)?;
        at += len;
        match marker {
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                framed = body.len() >= 8 && body[3..5] != [0, 0] && body[5..7] != [0, 0];
                if !framed {
                    return Err("its frame names a width or height of 0".to_owned());
                }
            }
            0xda if !framed => return Err("its pixels come before their size: expected a frame (FF C0)".to_owned()),
            0xda => {
                scanned = true;
                at = scan_end(bytes, at).ok_or_else(|| cut(bytes, END))?;
            }
            _ => {}
        }
    }
}

/// Where the packed pixels that begin at `at` end: at a marker that is no part of them.
fn scan_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr(0xff, bytes.get(at..)?)?;
        match bytes.get(at + 1)? {
            0x00 | 0xd0..=0xd7 => at += 2,
            0xff => at += 1,
            _ => return Some(at),
        }
    }
}

/// Walks the blocks up to the trailer.
fn gif(bytes: &[u8]) -> Result<(), Flaw> {
    const END: &str = "a GIF that goes on to its trailer (3B)";
    /// Bytes of the color table that a block's flags tell of.
    fn colors(flags: u8) -> usize {
        if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
    }
    let header = part(bytes, 0, 13, END)?;
    let (mut at, mut drawn) = (13 + colors(header[10]), false);
    loop {
        match part(bytes, at, 1, END)?[0] {
            0x3b if drawn => return Ok(()),
            0x3b => return Err("it has no pixels: expected an image block (2C)".to_owned()),
            0x21 => at += 2,
            0x2c => {
                let block = part(bytes, at, 10, END)?;
                let sized = |at| le16(block, at).is_some_and(|size| size > 0);
                if !sized(5) || !sized(7) {
                    return Err(format!("its image block at byte {at} names a width or height of 0"));
                }
                drawn = true;
                // The color table and the size of the first codes stand before the pixels.
                at += 10 + colors(block[9]) + 1;
            }
            _ => return Err(format!("at byte {at} begins no block of a GIF")),
        }
        loop {
            let len = usize::from(part(bytes, at, 1, END)?[0]);
            at += 1 + len;
            if len == 0 {
                break;
            }
        }
    }
}

/// Walks the chunks of the container.
fn webp(bytes: &[u8]) -> Result<(), Flaw> {
    let promised = |at| bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
    let end = promised(4).and_then(|size| usize::try_from(size).ok()).and_then(|size| size.checked_add(8));
    let end = end.filter(|end| *end <= bytes.len()).ok_or_else(|| {
        cut(bytes, &format!("{} bytes, as its RIFF header says", u64::from(promised(4).unwrap_or(0)) + 8))
    })?;
    let (mut at, mut drawn) = (12, false);
    while at < end {
        let name = part(&bytes[..end], at, 4, "the name of a chunk")?;
        let shown = String::from_utf8_lossy(name).into_owned();
        let size = promised(at + 4).and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
        let expected = format!("{size} bytes of the chunk {shown} that begins at byte {at}");
        let body = part(&bytes[..end], at + 8, size, &expected)?;
        let fits = match name {
            b"VP8 " => body.get(3..6) == Some(b"\x9d\x01\x2a") && body.len() >= 10,
            b"VP8L" => body.first() == Some(&0x2f) && body.len() >= 5,
            // A frame of an animation: its place and time, and then its own chunks.
            b"ANMF" => body.len() > 24,
            _ => {
                at += 8 + size + size % 2;
                continue;
            }
        };
        if !fits {
            return Err(format!("its chunk {shown} at byte {at} holds no picture"));
        }
        drawn = true;
        at += 8 + size + size % 2;
    }
    if drawn { Ok(()) } else { Err("it has no pixels: expected a chunk VP8, VP8L or ANMF".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let named = [&name[..], body].concat();
        let size = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&size[..], &named, &crc32fast::hash(&named).to_be_bytes()].concat()
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn header(width: u32, height: u32, last: [u8; 5]) -> Vec<u8> {
        chunk(b"IHDR", &[&width.to_be_bytes()[..], &height.to_be_bytes(), &last].concat())
    }

    fn png_of(chunks: &[Vec<u8>]) -> Vec<u8> {
        [b"\x89PNG\r\n\x1a\n".to_vec(), chunks.concat()].concat()
    }

    /// 5 by 3 pixels of three bytes, in two chunks of data.
    fn good_png() -> Vec<u8> {
        let data = packed(&[7; 3 * 16]);
        let (one, two) = data.split_at(5);
        png_of(&[
            header(5, 3, [8, 2, 0, 0, 0]),
            chunk(b"tEXt", b"a\0b"),
            chunk(b"IDAT", one),
            chunk(b"IDAT", two),
            chunk(b"IEND", b""),
        ])
    }

    const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x04JF\xff\xc0\0\x0b\x08\0\x02\0\x03\x01\x01\x22\0\xff\xda\0\x03xab\xff\0c\xff\xd0d\xff\xff\xd9";
    const GIF: &[u8] =
        b"GIF89a\x01\0\x01\0\x80\0\0abcdef\x21\xf9\x04\0\0\0\0\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0\x3b";
    const VP8: &[u8] = b"RIFF\x16\0\0\0WEBPVP8 \x0a\0\0\0\x10\x02\0\x9d\x01\x2a\x01\0\x01\0";

    #[test]
    fn whole_images_pass_and_no_start_of_one_does() {
        let interlaced =
            png_of(&[header(9, 9, [1, 0, 0, 0, 1]), chunk(b"IDAT", &packed(&[0; 64])), chunk(b"IEND", b"")]);
        #[rustfmt::skip]
        let table: [(&str, &[u8]); 5] = [
            ("image/png", &good_png()), ("image/png", &interlaced), ("image/jpeg", JPEG), ("image/gif", GIF), ("image/webp", VP8),
        ];
        for (media_type, bytes) in table {
            assert_eq!(whole(media_type, bytes), Ok(()), "{media_type}");
            let more = [bytes, b"\n"].concat();
            assert_eq!(whole(media_type, &more), Ok(()), "{media_type}: what follows is not looked at");
            for len in 12..bytes.len() {
                let flaw = whole(media_type, &bytes[..len]).unwrap_err();
                assert!(flaw.contains("expected"), "{media_type}, {len} bytes: {flaw}");
            }
        }
        assert!(whole("image/bmp", b"BM").is_err());
    }

    #[test]
    fn a_damaged_png_is_told_from_a_whole_one() {
        let good = good_png();
        for at in 8..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(whole("image/png", &bad).is_err(), "byte {at}");
        }
        let (end, data) = (chunk(b"IEND", b""), chunk(b"IDAT", &packed(&[0; 48])));
        let rgb = |width, height| header(width, height, [8, 2, 0, 0, 0]);
        #[rustfmt::skip]
        let table: [(Vec<Vec<u8>>, &str); 9] = [
            (vec![rgb(5, 3), end.clone()], "it has no pixels: expected an IDAT chunk"),
            (vec![data.clone(), end.clone()], "it begins with the chunk IDAT: expected IHDR"),
            (vec![rgb(5, 4), data.clone(), end.clone()], "its pixel data has 48 bytes, unpacked: expected 64 by its width and height"),
            (vec![rgb(0, 4), data.clone(), end.clone()], "its IHDR chunk names a width or height of 0"),
            (vec![rgb(5, 1 << 31), data.clone(), end.clone()], "its IHDR chunk names a width or height of 0, or one that no PNG has"),
            (vec![header(5, 3, [3, 2, 0, 0, 0]), data.clone(), end.clone()], "its IHDR chunk names color type 2 with 3 bits"),
            (vec![header(5, 3, [8, 2, 1, 0, 0]), data.clone(), end.clone()], "its IHDR chunk names a packing that no PNG has"),
            (vec![chunk(b"IHDR", b"short"), end.clone()], "its IHDR chunk has 5 bytes: expected 13"),
            (vec![rgb(5, 3), chunk(b"IDAT", b"no zlib data"), end], "its pixel data cannot be unpacked"),
        ];
        for (chunks, want) in table {
            let flaw = whole("image/png", &png_of(&chunks)).unwrap_err();
            assert!(flaw.starts_with(want), "{want}: {flaw}");
        }
    }

    #[test]
    fn broken_structures_say_where() {
        let replaced = |bytes: &[u8], at: usize, with: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = with;
            bytes
        };
        #[rustfmt::skip]
        let table: [(&str, Vec<u8>, &str); 8] = [
            ("image/jpeg", replaced(JPEG, 2, b'x'), "at byte 2 stands no marker of a JPEG"),
            ("image/jpeg", replaced(JPEG, 14, 0), "its frame names a width or height of 0"),
            ("image/jpeg", replaced(JPEG, 9, 0xd9), "it ends without pixels"),
            ("image/jpeg", replaced(JPEG, 9, 0xc4), "its pixels come before their size"),
            ("image/gif", replaced(GIF, 19, 0x20), "at byte 19 begins no block of a GIF"),
            ("image/gif", replaced(GIF, 32, 0), "its image block at byte 27 names a width or height of 0"),
            ("image/webp", replaced(VP8, 23, 0), "its chunk VP8  at byte 12 holds no picture"),
            ("image/webp", replaced(VP8, 14, b'9'), "it has no pixels"),
        ];
        for (media_type, bytes, want) in table {
            let flaw = whole(media_type, &bytes).unwrap_err();
            assert!(flaw.starts_with(want), "{want}: {flaw}");
        }
    }

    /// A few bytes that promise much: nothing is unpacked beyond what there is.
    #[test]
    fn what_is_promised_costs_nothing() {
        let huge = png_of(&[
            header(0x7fff_ffff, 0x7fff_ffff, [16, 6, 0, 0, 1]),
            chunk(b"IDAT", &packed(&[0; 100_000])),
            chunk(b"IEND", b""),
        ]);
        let flaw = whole("image/png", &huge).unwrap_err();
        assert!(flaw.starts_with("its pixel data has 100000 bytes"), "{flaw}");
        let bomb = png_of(&[
            header(1, 1, [8, 0, 0, 0, 0]),
            chunk(b"IDAT", &packed(&vec![0; 10_000_000])),
            chunk(b"IEND", b""),
        ]);
        assert_eq!(whole("image/png", &bomb), Ok(()), "more than two bytes are not asked for");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(start in 0..4_usize, bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let types = ["image/png", "image/jpeg", "image/gif", "image/webp"];
            let good = [good_png(), JPEG.to_vec(), GIF.to_vec(), VP8.to_vec()];
            for len in [0, 8, 12, good[start].len() / 2] {
                let all = [&good[start][..len.min(good[start].len())], &bytes].concat();
                let _judged = whole(types[start], &all);
            }
        }
    }
}
