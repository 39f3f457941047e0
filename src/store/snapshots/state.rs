//! How a path was at a moment, and the names of contents.

use std::fmt;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};

/// Names a content: equal contents have the same one (SHA-256).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentId([u8; SHA256_OUTPUT_LEN]);

impl ContentId {
    /// The name of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut id = [0; SHA256_OUTPUT_LEN];
        id.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(id)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({self})")
    }
}

impl From<ContentId> for String {
    fn from(id: ContentId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ContentId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut id = [0; SHA256_OUTPUT_LEN];
        let digits = text.as_bytes();
        if digits.len() != 2 * id.len() {
            return Err("a name of a content has 64 digits");
        }
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| "it has hexadecimal digits alone")?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| "it has hexadecimal digits alone")?;
        }
        Ok(Self(id))
    }
}

/// How a path was at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum FileState {
    /// Nothing was there.
    Absent,
    /// A regular file whose content is kept.
    File {
        /// Its permissions, without those to run as its owner or its group.
        mode: u32,
        /// Its size.
        bytes: u64,
        /// Its content.
        content: ContentId,
    },
    /// A symbolic link.
    Link {
        /// Where it leads, byte by byte.
        target: Vec<u8>,
    },
    /// A directory.
    Directory {
        /// Its permissions.
        mode: u32,
    },
    /// Something was there, and what is not kept.
    Unkept {
        /// Why.
        reason: String,
    },
    /// A tool was about to change it, and the process ended.
    Unfinished,
}

impl FileState {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }

    /// The content that it needs.
    pub fn content(&self) -> Option<&ContentId> {
        match self {
            Self::File { content, .. } => Some(content),
            Self::Absent | Self::Link { .. } | Self::Directory { .. } | Self::Unkept { .. } | Self::Unfinished => None,
        }
    }
}
