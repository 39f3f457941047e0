//! Small files of the house's own (settings, tokens): read whole and within bounds, or refused by name.
//!
//! Never hangs: what is no regular file (a named pipe, a device, a directory) is not opened for long.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a regular file of at most `bytes_max` bytes, links followed. Blocking, for as long as a disk takes.
///
/// # Errors
/// The system's words; `InvalidInput` for what is no regular file, `FileTooLarge` for more bytes.
pub fn read_small(path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Metadata)> {
    // A look before the open: opening a device can have effects, and a socket cannot be opened.
    check_regular(&fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    check_regular(&found)?;
    Ok((within(file, bytes_max)?, found))
}

fn within(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let problem = format!("expected at most {bytes_max} bytes, found more");
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// Whether a file can be put at `path`: nothing is there, or a regular file.
///
/// # Errors
/// As [`read_small`]; that nothing is there is none.
pub fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) => check_regular(&found),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(cause),
    }
}

fn check_regular(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let table = [
        (kind.is_dir(), "a directory"),
        (kind.is_fifo(), "a named pipe"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
        (kind.is_socket(), "a socket"),
    ];
    let word = table.iter().find(|(is, _)| *is).map_or("something else", |(_, word)| *word);
    Err(io::Error::new(ErrorKind::InvalidInput, format!("expected a regular file, found {word}")))
}

/// Room that this user has on the file system of a path, in bytes.
///
/// # Errors
/// What the system says.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let facts = rustix::fs::statvfs(path)?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_no_small_regular_file_is_named_and_never_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        fs::create_dir(at("directory")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink("pipe", at("link")).unwrap();
        std::os::unix::fs::symlink("file", at("good")).unwrap();
        #[rustfmt::skip]
        let table = [
            (at("file"), 5, Ok("12345")),
            (at("good"), 5, Ok("12345")),
            (at("file"), 4, Err("expected at most 4 bytes, found more")),
            (at("directory"), 5, Err("expected a regular file, found a directory")),
            (at("pipe"), 5, Err("expected a regular file, found a named pipe")),
            (at("link"), 5, Err("expected a regular file, found a named pipe")),
            (at("socket"), 5, Err("expected a regular file, found a socket")),
            ("/dev/zero".into(), 5, Err("expected a regular file, found a device")),
            (at("nothing"), 5, Err("No such file or directory (os error 2)")),
        ];
        for (path, bytes_max, want) in table {
            let read = read_small(&path, bytes_max).map_err(|cause| cause.to_string());
            let text = read.map(|(bytes, _)| String::from_utf8(bytes).unwrap());
            assert_eq!(text.as_deref().map_err(String::as_str), want, "{}", path.display());
            let replaceable = want.is_ok() || bytes_max == 4 || path == at("nothing");
            assert_eq!(check_replaceable(&path).is_ok(), replaceable, "{}", path.display());
        }
    }
}
