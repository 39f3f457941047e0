//! Paths in a record, to the byte: most are text, and those that are none are a list of bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'p> {
    Text(&'p str),
    Bytes(&'p [u8]),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Read {
    Text(String),
    Bytes(Vec<u8>),
}

impl<'p> From<&'p Path> for Shown<'p> {
    fn from(path: &'p Path) -> Self {
        path.to_str().map_or_else(|| Self::Bytes(path.as_os_str().as_bytes()), Self::Text)
    }
}

impl From<Read> for PathBuf {
    fn from(read: Read) -> Self {
        match read {
            Read::Text(text) => text.into(),
            Read::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    Shown::from(path).serialize(to)
}

pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<PathBuf, D::Error> {
    Read::deserialize(from).map(PathBuf::from)
}

/// The same where there may be none.
pub(super) mod option {
    use super::{Deserialize, Deserializer, PathBuf, Read, Serialize, Serializer, Shown};

    pub(in super::super) fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Shown::from).serialize(to)
    }

    pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Option::<Read>::deserialize(from).map(|read| read.map(PathBuf::from))
    }
}

/// The same for several.
pub(super) mod list {
    use super::{Deserialize, Deserializer, Path, PathBuf, Read, Serializer, Shown};

    pub(in super::super) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| Shown::from(Path::new(path))))
    }

    pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Vec::<Read>::deserialize(from).map(|all| all.into_iter().map(PathBuf::from).collect())
    }
}
