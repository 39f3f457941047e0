//! A file without a name, for what a program says beside its output.
//!
//! Promises: only the program it was given to, and what inherits it from there, can write to it; nobody finds it by a path of
//! his own. It holds no more than it was made for, and costs memory only for what is written.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Numbers below are what shells and scripts use for themselves.
const NUMBER_MIN: i32 = 20;

/// A file that a program inherits under the number that it has here.
#[derive(Debug, Clone)]
pub struct Slate {
    file: Arc<File>,
}

impl Slate {
    /// An empty one, with room for so many bytes.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let file = nameless(bytes)?;
        // Above what a shell would use, and never inherited but where it is meant to be.
        let file = rustix::io::fcntl_dupfd_cloexec(&file, NUMBER_MIN)?;
        Ok(Self { file: Arc::new(file.into()) })
    }

    /// By which name the program that inherits it can open it. Whoever else opens that name opens something else.
    pub fn path(&self) -> String {
        let number = self.file.as_raw_fd();
        if cfg!(target_os = "linux") { format!("/proc/self/fd/{number}") } else { format!("/dev/fd/{number}") }
    }

    /// What is on it, from its beginning: wherever those who hold it have got to.
    pub fn read(&self) -> impl Read + use<> {
        FromStart { file: Arc::clone(&self.file), at: 0 }
    }

    /// The file, to be handed on.
    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }
}

/// Its size is fixed: what would go beyond it is refused to the writer.
#[cfg(target_os = "linux")]
fn nameless(bytes: u64) -> io::Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // An older kernel does not know that nothing here is ever executed.
    let made = memfd_create(c"simse", flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(c"simse", flags))?;
    let file = File::from(made);
    file.set_len(bytes)?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Where memory has no files, a file on disk whose name is gone.
#[cfg(not(target_os = "linux"))]
fn nameless(_bytes: u64) -> io::Result<File> {
    tempfile::tempfile()
}

struct FromStart {
    file: Arc<File>,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(chunk, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_bounded_and_read_from_its_start() {
        let slate = Slate::new(8).unwrap();
        let mut writer = std::fs::OpenOptions::new().write(true).open(slate.path()).unwrap();
        writer.write_all(b"12345678").unwrap();
        assert!(writer.write_all(b"9").is_err() && writer.set_len(0).is_err(), "neither more nor less");
        let mut text = String::new();
        slate.read().read_to_string(&mut text).unwrap();
        assert_eq!(text, "12345678");
        assert!(slate.file.as_raw_fd() >= NUMBER_MIN);
    }
}
