//! Images by their first bytes: format and size. Nothing is decoded. [`whole`] says whether one is whole.

mod whole;

pub use whole::{Flaw, whole};

/// An image's format and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Such as `image/png`.
    pub media_type: &'static str,
    /// Width and height in pixels. None when the header is cut or odd.
    pub size: Option<(u32, u32)>,
}

impl Image {
    /// The size in words.
    pub fn pixels(self) -> String {
        self.size.map_or_else(|| "size unknown".to_owned(), |(width, height)| format!("{width}x{height} pixels"))
    }
}

/// The image that `bytes` start with. None when it is none of PNG, JPEG, GIF, WebP, BMP.
///
/// A JPEG tells its size within its first 64 KiB, the others within 32 bytes.
pub fn image(bytes: &[u8]) -> Option<Image> {
    let known = |media_type, size| Some(Image { media_type, size });
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        let size = || Some((be32(bytes, 16)?, be32(bytes, 20)?));
        return known("image/png", if bytes.get(12..16) == Some(b"IHDR") { size() } else { None });
    }
    if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        return known("image/gif", le16(bytes, 6).zip(le16(bytes, 8)));
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return known("image/webp", webp_size(bytes));
    }
    if bytes.starts_with(b"\xff\xd8\xff") {
        return known("image/jpeg", jpeg_size(bytes));
    }
    // "BM" alone begins many a text: the size of the header behind it has to be one of those in use.
    let header = le16(bytes, 14).filter(|size| matches!(size, 12 | 40 | 52 | 56 | 64 | 108 | 124));
    if bytes.starts_with(b"BM") && header.is_some() && bytes.get(6..10) == Some(&[0; 4]) {
        return known("image/bmp", bmp_size(bytes));
    }
    None
}

/// Walks the markers up to the start of frame.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        let marker = *bytes.get(at + 1)?;
        match marker {
            // Fill bytes, and markers without a body.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // Starts of frame, all but the tables that share their range.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return be16(bytes, at + 7).zip(be16(bytes, at + 5));
            }
            _ => at += 2 + usize::try_from(be16(bytes, at + 2)?.max(2)).ok()?,
        }
    }
}

fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => le16(bytes, 26).zip(le16(bytes, 28)).map(|(w, h)| (w & 0x3fff, h & 0x3fff)),
        b"VP8L" => {
            let bits = u32::from_le_bytes(bytes.get(21..25)?.try_into().ok()?);
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => {
            let three = |at: usize| Some(le16(bytes, at)? | u32::from(*bytes.get(at + 2)?) << 16);
            Some((three(24)? + 1, three(27)? + 1))
        }
        _ => None,
    }
}

fn bmp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    if le16(bytes, 14)? == 12 {
        return le16(bytes, 18).zip(le16(bytes, 20));
    }
    let four = |at: usize| Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?).unsigned_abs());
    // A negative height says that the rows begin at the top.
    four(18).zip(four(22))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_tell_their_size() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x06\0\0\0";
        let jpeg = b"\xff\xd8\xff\xe0\0\x04JF\xff\xc4\0\x03x\xff\xff\xc2\0\x0b\x08\x01\xe0\x02\x80\x03\x01\x22\0";
        let vp8 = b"RIFF\x1a\0\0\0WEBPVP8 \x0e\0\0\0\x10\x02\0\x9d\x01\x2a\x80\x02\xe0\x01";
        let vp8l = b"RIFF\x1a\0\0\0WEBPVP8L\x0e\0\0\0\x2f\x7f\xc2\x77\0";
        let vp8x = b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x7f\x02\0\xdf\x01\0";
        let bmp = b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x80\x02\0\0\x20\xfe\xff\xff\x01\0\x18\0";
        type Row = (&'static [u8], &'static str, Option<(u32, u32)>);
        #[rustfmt::skip]
        let table: &[Row] = &[
            (png, "image/png", Some((640, 480))), (b"GIF89a\x80\x02\xe0\x01\0", "image/gif", Some((640, 480))),
            (jpeg, "image/jpeg", Some((640, 480))), (vp8, "image/webp", Some((640, 480))),
            (vp8l, "image/webp", Some((640, 480))), (vp8x, "image/webp", Some((640, 480))),
            (bmp, "image/bmp", Some((640, 480))), (&bmp[..20], "image/bmp", None),
            (&png[..20], "image/png", None), (b"\xff\xd8\xff\xe0", "image/jpeg", None), (&vp8[..14], "image/webp", None),
        ];
        for (bytes, media_type, size) in table {
            assert_eq!(image(bytes), Some(Image { media_type, size: *size }), "{media_type}");
        }
        for other in [&b"BM is no image"[..], b"", b"GIF88a", b"RIFF0000WAVE"] {
            assert_eq!(image(other), None, "{other:?}");
        }
    }
}
