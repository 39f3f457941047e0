//! The text of a file as it is, for a program that works on the bytes: no numbers, no line is cut.

use std::fs::File;
use std::io::Read as _;

use super::super::fs_common::io_failed;
use crate::base::ear::Lines;
use crate::base::limit;
use crate::base::text::{self, Content};
use crate::tool::ToolError;

/// The lines that are wanted of a text file.
///
/// # Errors
/// It is larger than the limit, is no text, or cannot be read.
pub(super) fn text(file: File, path: &str, lines: Lines) -> Result<String, ToolError> {
    let most = limit::EXACT_READ_BYTES_MAX;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| io_failed("read", path, &e))?;
    if bytes.len() as u64 > most {
        return Err(ToolError::failed(format!("\"{path}\" is larger than the {most} bytes that are read at once")));
    }
    let content = match text::sniff(&bytes[..bytes.len().min(text::SNIFF_BYTES)]) {
        Content::Text | Content::OtherText => String::from_utf8(bytes).ok(),
        Content::Utf16(_) | Content::Image(_) | Content::Binary => None,
    };
    let content = content.ok_or_else(|| ToolError::failed(format!("\"{path}\" is no text in UTF-8")))?;
    Ok(lines.of(&content).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_as_it_is_and_nothing_else_does() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("f");
        let read = |content: &[u8], first, count| {
            std::fs::write(&path, content).unwrap();
            text(File::open(&path).unwrap(), "f", Lines { first, count }).map_err(|error| error.to_string())
        };
        assert_eq!(read("\u{feff}ä\r\nb".as_bytes(), 1, None).unwrap(), "\u{feff}ä\r\nb");
        assert_eq!(read(b"a\nb\nc\n", 2, Some(1)).unwrap(), "b\n");
        let long = format!("{}\n", "x".repeat(1 << 20));
        assert_eq!(read(long.as_bytes(), 1, None).unwrap(), long);
        for (bytes, want) in
            [(&b"\x7fELF\0\0"[..], "is no text"), (b"\xff\xfea\0", "is no text"), (b"caf\xe9", "is no text")]
        {
            let error = read(bytes, 1, None).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
        std::fs::File::create(&path).unwrap().set_len(limit::EXACT_READ_BYTES_MAX + 1).unwrap();
        let error = text(File::open(&path).unwrap(), "f", Lines { first: 1, count: None }).unwrap_err().to_string();
        assert!(error.contains("larger than"), "{error}");
    }
}
