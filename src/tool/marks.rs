//! What a session knows of the files it has read or written: how they were then.
//!
//! A mark says "at this time the file was so". Whether a change may go ahead is decided in `host`; nothing here
//! looks at the file system. Bounded: the marks made longest ago go first.

use std::collections::HashMap;
use std::fs::Metadata;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::limit;

/// What the file system says of a file; a changed file has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    file: (u64, u64),
}

impl FileStamp {
    /// The stamp of a file that was looked at.
    pub fn of(found: &Metadata) -> Self {
        Self {
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            file: (found.dev(), found.ino()),
        }
    }

    /// Whether only what a rename changes differs: the time of the last change of the entry.
    pub fn renamed_to(&self, other: &Self) -> bool {
        Self { changed: other.changed, ..*self } == *other
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// How a file was when the session last saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMark {
    /// What the file system said.
    pub stamp: FileStamp,
    /// Hash of the content, when the whole of it was seen.
    pub hash: Option<u64>,
}

/// A hash of a file's content, about as fast as memory is read. Its secrets make it useless to guess at, but it is no
/// protection against somebody who knows them.
#[derive(Debug)]
pub struct ContentHasher {
    state: u64,
    secrets: [u64; 2],
    /// Bytes that make no whole piece yet.
    rest: [u8; PIECE],
    len: u64,
}

/// Bytes that are mixed in at once.
const PIECE: usize = 16;

impl ContentHasher {
    fn new(seeds: &RandomState) -> Self {
        let secrets = [seeds.hash_one(1), seeds.hash_one(2)];
        Self { state: seeds.hash_one(0), secrets, rest: [0; PIECE], len: 0 }
    }

    fn mix(&mut self, piece: &[u8; PIECE]) {
        let number = u128::from_le_bytes(*piece);
        let (low, high) = halves(number);
        let (low, high) = halves(u128::from(low ^ self.secrets[0] ^ self.state) * u128::from(high ^ self.secrets[1]));
        self.state = self.state.rotate_left(23) ^ low ^ high;
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the halves are meant")]
fn halves(number: u128) -> (u64, u64) {
    (number as u64, (number >> 64) as u64)
}

impl Hasher for ContentHasher {
    fn write(&mut self, mut bytes: &[u8]) {
        let begun = usize::try_from(self.len % PIECE as u64).unwrap_or(0);
        self.len += bytes.len() as u64;
        if begun > 0 {
            let (more, after) = bytes.split_at(bytes.len().min(PIECE - begun));
            self.rest[begun..begun + more.len()].copy_from_slice(more);
            if begun + more.len() < PIECE {
                return;
            }
            self.mix(&{ self.rest });
            bytes = after;
        }
        let (pieces, after) = bytes.as_chunks::<PIECE>();
        pieces.iter().for_each(|piece| self.mix(piece));
        self.rest[..after.len()].copy_from_slice(after);
    }

    fn finish(&self) -> u64 {
        let begun = usize::try_from(self.len % PIECE as u64).unwrap_or(0);
        let mut last = Self { rest: [0; PIECE], ..*self };
        last.rest[..begun].copy_from_slice(&self.rest[..begun]);
        last.mix(&{ last.rest });
        // The length tells texts apart that end in different numbers of zeros.
        last.mix(&u128::from(self.len).to_le_bytes());
        last.state
    }
}

/// How the files of one call were when its preview was made, for a person to say yes to: None where nothing was.
#[derive(Debug, Clone, Default)]
pub struct Previewed(Arc<Mutex<HashMap<PathBuf, Option<FileStamp>>>>);

impl Previewed {
    /// Remembers how a file was. `path` names no link.
    pub fn set(&self, path: &Path, stamp: Option<FileStamp>) {
        self.0.lock().insert(path.to_owned(), stamp);
    }

    /// How it was. None: no preview spoke of it.
    pub fn get(&self, path: &Path) -> Option<Option<FileStamp>> {
        self.0.lock().get(path).copied()
    }
}

/// The marks of one session.
#[derive(Debug, Default)]
pub struct FileMarks {
    marks: Mutex<Marks>,
    hashes: RandomState,
}

#[derive(Debug, Default)]
struct Marks {
    by_path: HashMap<PathBuf, (u64, FileMark)>,
    next: u64,
}

impl FileMarks {
    /// Takes the bytes of a file, for [`FileMark::hash`]. Its hashes compare only with those of the same session.
    pub fn hasher(&self) -> ContentHasher {
        ContentHasher::new(&self.hashes)
    }

    /// Remembers how a file is now. `path` names no link.
    pub fn set(&self, path: &Path, mark: FileMark) {
        let mut marks = self.marks.lock();
        let number = marks.next;
        marks.next += 1;
        marks.by_path.insert(path.to_owned(), (number, mark));
        if marks.by_path.len() > limit::FILE_MARKS_MAX {
            // A quarter at once, so that a full table costs little.
            let oldest = number.saturating_sub(limit::FILE_MARKS_MAX as u64 / 4 * 3);
            let before = marks.by_path.len();
            marks.by_path.retain(|_, (made, _)| *made >= oldest);
            debug_assert!(marks.by_path.len() < before, "marks have different numbers");
        }
    }

    /// Of how many files it is known.
    pub fn count(&self) -> usize {
        self.marks.lock().by_path.len()
    }

    /// How the file was when it was last seen. None: never, or too long ago.
    pub fn get(&self, path: &Path) -> Option<FileMark> {
        self.marks.lock().by_path.get(path).map(|(_, mark)| *mark)
    }

    /// How the files below a directory were, as far as it is known.
    pub fn below(&self, directory: &Path) -> Vec<(PathBuf, FileMark)> {
        let marks = self.marks.lock();
        let below = marks.by_path.iter().filter(|(path, _)| path.starts_with(directory));
        below.map(|(path, (_, mark))| (path.clone(), *mark)).collect()
    }

    /// Forgets a file that is gone.
    pub fn forget(&self, path: &Path) {
        self.marks.lock().by_path.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(bytes: u64) -> FileMark {
        let stamp = FileStamp { bytes, modified: (0, 0), changed: (0, 0), file: (0, 0) };
        FileMark { stamp, hash: None }
    }

    #[test]
    fn the_newest_marks_stay() {
        let marks = FileMarks::default();
        let path = |n: usize| PathBuf::from(format!("/f{n}"));
        for n in 0..=limit::FILE_MARKS_MAX {
            marks.set(&path(n), mark(n as u64));
        }
        assert_eq!(marks.get(&path(0)), None);
        assert_eq!(marks.get(&path(limit::FILE_MARKS_MAX)), Some(mark(limit::FILE_MARKS_MAX as u64)));
        let kept = (0..=limit::FILE_MARKS_MAX).filter(|&n| marks.get(&path(n)).is_some()).count();
        assert!(kept > limit::FILE_MARKS_MAX / 2 && kept <= limit::FILE_MARKS_MAX, "{kept}");
        assert_eq!(marks.count(), kept);
        marks.forget(&path(limit::FILE_MARKS_MAX));
        assert_eq!(marks.get(&path(limit::FILE_MARKS_MAX)), None);
    }

    #[test]
    fn a_hash_does_not_depend_on_the_pieces() {
        let marks = FileMarks::default();
        let hash = |pieces: &[&[u8]]| {
            let mut hasher = marks.hasher();
            pieces.iter().for_each(|piece| hasher.write(piece));
            hasher.finish()
        };
        assert_eq!(hash(&[b"abc", b"", b"defghijklmn"]), hash(&[b"abcdefghijklmn"]));
        assert_ne!(hash(&[b"abc"]), hash(&[b"abd"]));
        assert_ne!(hash(&[b""]), hash(&[b"\0"]));
        assert_ne!(hash(&[&[0; 16]]), hash(&[&[0; 17]]));
    }

    proptest! {
        /// However a text is cut it has one hash, and a change of one bit anywhere gives another.
        #[test]
        fn a_hash_is_of_every_byte(
            mut text in proptest::collection::vec(any::<u8>(), 1..200),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let marks = FileMarks::default();
            let hash = |text: &[u8], mut cuts: Vec<usize>| {
                cuts.sort_unstable();
                let mut hasher = marks.hasher();
                let mut from = 0;
                for cut in cuts {
                    hasher.write(&text[from..cut]);
                    from = cut;
                }
                hasher.write(&text[from..]);
                hasher.finish()
            };
            let whole = hash(&text, Vec::new());
            prop_assert_eq!(hash(&text, cuts.iter().map(|cut| cut.index(text.len() + 1)).collect()), whole);
            let at = at.index(text.len());
            text[at] ^= 1 << bit;
            prop_assert_ne!(hash(&text, Vec::new()), whole);
        }
    }
}
