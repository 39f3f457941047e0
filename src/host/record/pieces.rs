//! What one call does is added to the record piece by piece: in memory is never more than one piece, and one large file.
//!
//! A crash between two pieces leaves a part of it in the record; that the call had begun and has not ended stands there already.

use std::path::PathBuf;

use parking_lot::MutexGuard;

use super::Recorder;
use super::look::{Content, Found};
use crate::base::limit;
use crate::host::alone::LARGE_BYTES;
use crate::store::snapshots::{Addition, PathChange};

/// Contents of one piece, in bytes; its last one comes on top of that.
const PIECE_BYTES: u64 = LARGE_BYTES;

/// The pieces of one call.
pub(super) struct Pieces<'r> {
    recorder: &'r Recorder,
    piece: Addition,
    bytes: u64,
    /// Bytes that may still be kept.
    left: u64,
    /// Held by a large content in the piece.
    alone: Option<MutexGuard<'static, ()>>,
}

impl<'r> Pieces<'r> {
    pub(super) fn new(recorder: &'r Recorder) -> Self {
        let left = limit::SNAPSHOT_CALL_BYTES_MAX;
        Self { recorder, piece: Addition::default(), bytes: 0, left, alone: None }
    }

    /// Bytes that may still be kept of this call.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Adds one change, with its contents.
    pub(super) fn put(&mut self, path: PathBuf, (before, after): (Found, Found)) {
        let change = PathChange { path, before: before.state, after: after.state, mixed: false };
        for (state, content) in [(&change.before, before.content), (&change.after, after.content)] {
            let (Some(id), Some(Content { bytes, alone })) = (state.content(), content) else { continue };
            self.bytes += bytes.len() as u64;
            self.left = self.left.saturating_sub(bytes.len() as u64);
            self.piece.contents.push((*id, bytes));
            self.alone = self.alone.take().or(alone);
        }
        self.piece.changes.push(change);
        // Who holds a large one waits for no other: it goes at once.
        if self.bytes >= PIECE_BYTES || self.alone.is_some() {
            self.recorder.add(std::mem::take(&mut self.piece));
            (self.bytes, self.alone) = (0, None);
        }
    }

    /// What is not added yet.
    pub(super) fn into_rest(self) -> Addition {
        self.piece
    }
}
