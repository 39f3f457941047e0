//! The files of the directory that a session works in, as a person looks at them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a name in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FileKind {
    /// A directory, or a link to one that may be looked into.
    Directory,
    /// A regular file, or a link to one that may be looked at.
    File,
    /// A link that leads nowhere, or to where no tool may look.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

/// Something in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Its path, relative to the session's working directory where it lies below it, else absolute.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// An ignore file (`.gitignore`, `.ignore`) leaves it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
}

/// `GET /sessions/:id/files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesView {
    /// A directory's entries, directories first, then by name; or the files that are meant, the best first. Names that cannot be shown
    /// as they are, and what is git's own, are left out.
    pub entries: Vec<FileEntry>,
    /// Whether there are more than are told.
    pub truncated: bool,
}
