//! Text and bytes: cuts that never split a character, what a file holds, and what its name may have meant.

/// Bytes at the start of a file that tell what it holds.
pub const SNIFF_BYTES: usize = 8192;

/// The longest start of `text` that is at most `bytes_max` long.
pub fn head(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The longest end of `text` that is at most `bytes_max` long.
pub fn tail(text: &str, bytes_max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..]
}

/// What a file's first bytes say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Valid UTF-8 as far as it was looked at, without NUL.
    Text,
    /// Text in some older encoding: no NUL, few control characters, not UTF-8.
    OtherText,
    /// An image.
    Image(Image),
    /// Anything else.
    Binary,
}

/// An image's format and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Such as `image/png`.
    pub media_type: &'static str,
    /// Width and height in pixels. None when the header is cut or odd.
    pub size: Option<(u32, u32)>,
}

/// What a file holds, by its first bytes (as many as there are, at most [`SNIFF_BYTES`] matter, except for JPEG).
///
/// A character cut at the end of `start` is no fault.
pub fn sniff(start: &[u8]) -> Content {
    if let Some(image) = image(start) {
        return Content::Image(image);
    }
    if start.contains(&0) {
        return Content::Binary;
    }
    match std::str::from_utf8(start) {
        Ok(_) => Content::Text,
        Err(e) if e.error_len().is_none() => Content::Text,
        Err(_) => {
            let odd = start.iter().filter(|&&b| b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b)).count();
            if odd * 20 > start.len() { Content::Binary } else { Content::OtherText }
        }
    }
}

/// The image that `bytes` start with. None when it is none of PNG, JPEG, GIF, WebP.
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

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

/// The names that `wrong` may have meant, nearest first, at most three. Letter case does not count.
pub fn near_misses<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let wrong = wrong.to_lowercase();
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (strsim::normalized_damerau_levenshtein(&wrong, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness >= 0.6)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// `1 line`, `2 lines`: for sentences with counts.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_keep_characters_whole() {
        let table = [
            ("aäb", 0, "", ""),
            ("aäb", 1, "a", "b"),
            ("aäb", 2, "a", "b"),
            ("aäb", 3, "aä", "äb"),
            ("aäb", 9, "aäb", "aäb"),
        ];
        for (text, max, start, end) in table {
            assert_eq!((head(text, max), tail(text, max)), (start, end), "{text} {max}");
        }
    }

    #[test]
    fn contents_are_recognised() {
        #[rustfmt::skip]
        let table: &[(&[u8], Content)] = &[
            (b"", Content::Text), (b"abc\n", Content::Text), ("ä".as_bytes(), Content::Text), (b"ab\xc3", Content::Text),
            (b"caf\xe9 au lait\n", Content::OtherText), (b"a\0b", Content::Binary),
            (b"\xfe\x01\x02\x03\x04\xff\x05", Content::Binary), (b"\x7fELF\x02\x01\x01\0", Content::Binary),
        ];
        for (bytes, want) in table {
            assert_eq!(sniff(bytes), *want, "{bytes:?}");
        }
    }

    #[test]
    fn images_tell_their_size() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x06\0\0\0";
        let jpeg = b"\xff\xd8\xff\xe0\0\x04JF\xff\xc4\0\x03x\xff\xff\xc2\0\x0b\x08\x01\xe0\x02\x80\x03\x01\x22\0";
        let vp8 = b"RIFF\x1a\0\0\0WEBPVP8 \x0e\0\0\0\x10\x02\0\x9d\x01\x2a\x80\x02\xe0\x01";
        let vp8l = b"RIFF\x1a\0\0\0WEBPVP8L\x0e\0\0\0\x2f\x7f\xc2\x77\0";
        let vp8x = b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x7f\x02\0\xdf\x01\0";
        type Row = (&'static [u8], &'static str, Option<(u32, u32)>);
        #[rustfmt::skip]
        let table: &[Row] = &[
            (png, "image/png", Some((640, 480))), (b"GIF89a\x80\x02\xe0\x01\0", "image/gif", Some((640, 480))),
            (jpeg, "image/jpeg", Some((640, 480))), (vp8, "image/webp", Some((640, 480))),
            (vp8l, "image/webp", Some((640, 480))), (vp8x, "image/webp", Some((640, 480))),
            (&png[..20], "image/png", None), (b"\xff\xd8\xff\xe0", "image/jpeg", None), (&vp8[..14], "image/webp", None),
        ];
        for (bytes, media_type, size) in table {
            assert_eq!(sniff(bytes), Content::Image(Image { media_type, size: *size }), "{media_type}");
        }
    }

    #[test]
    fn near_names() {
        let names = ["main.rs", "lib.rs", "README.md", "mian.rb"];
        assert_eq!(near_misses("mian.rs", names), ["main.rs", "mian.rb"]);
        assert_eq!(near_misses("readme", ["README.md", "x"]), ["README.md"]);
        assert!(near_misses("zzz", names).is_empty());
    }
}
