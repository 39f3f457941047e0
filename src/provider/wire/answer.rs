//! An answer whose body is still coming: from the network, where it may be recorded as it comes, or from a recording.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::tape::{Played, Recording};
use crate::base::http::{Answer, HttpError, TEXT_TIMEOUT};
use crate::model::ModelError;

/// An answer.
pub(super) enum Answering {
    /// Of a provider.
    Live(Box<Answer>, Option<Recording>),
    /// Of a recording.
    Taped(Played),
}

impl Answering {
    /// The HTTP status.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Live(answer, _) => answer.status,
            Self::Taped(played) => played.status(),
        }
    }

    /// `Content-Type` without its parameters.
    pub(super) fn content_type(&self) -> &str {
        match self {
            Self::Live(answer, _) => &answer.content_type,
            Self::Taped(played) => played.content_type(),
        }
    }

    /// How its body is packed, where that cannot be read.
    pub(super) fn unread(&self) -> Option<ModelError> {
        let Self::Live(answer, _) = self else { return None };
        let coding = answer.coding.as_ref()?;
        let words = format!("the model's provider answered in a coding that nobody asked for (`{coding}`)");
        Some(ModelError::Malformed(words))
    }

    /// How long the server asks to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Live(answer, _) => answer.retry_after,
            Self::Taped(played) => played.retry_after(),
        }
    }

    /// The next piece of the body; None at its end. Cancel-safe.
    ///
    /// # Errors
    /// As [`Answer::chunk`].
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        match self {
            Self::Taped(played) => played.chunk().await,
            Self::Live(answer, None) => answer.chunk().await,
            Self::Live(answer, Some(recording)) => {
                let piece = answer.chunk().await;
                match &piece {
                    Ok(Some(bytes)) => recording.take(bytes),
                    Ok(None) => recording.end(),
                    Err(_) => {}
                }
                piece
            }
        }
    }

    /// The next piece, if it has come already.
    pub(super) fn there(&mut self) -> Option<Bytes> {
        let Self::Live(answer, recording) = self else { return None };
        let piece = answer.there()?;
        if let Some(recording) = recording {
            recording.take(&piece);
        }
        Some(piece)
    }

    /// The rest of the body, at most `bytes_max` of it and for a moment: who sends it in drops says no more. What is not UTF-8 is
    /// replaced. A broken end is the end.
    pub(super) async fn text(&mut self, bytes_max: usize) -> String {
        if self.unread().is_some() {
            return String::new();
        }
        let mut bytes = Vec::new();
        let read = async {
            while let Ok(Some(piece)) = self.chunk().await
                && !fill(&mut bytes, &piece, bytes_max)
            {}
        };
        // What has come until then is what was said.
        let _ = timeout(TEXT_TIMEOUT, read).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The body to its end, of which so much was taken already, at most `bytes_max` of the rest. What is not UTF-8 is replaced.
    ///
    /// # Errors
    /// As [`Answer::chunk`]: what there is of it is not the whole.
    pub(super) async fn whole(&mut self, taken: &[u8], bytes_max: usize) -> Result<String, HttpError> {
        let (mut bytes, bytes_max) = (taken.to_vec(), taken.len().saturating_add(bytes_max));
        while let Some(piece) = self.chunk().await?
            && !fill(&mut bytes, &piece, bytes_max)
        {}
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Nothing more of it is needed.
    pub(super) fn finish(self) {
        if let Self::Live(answer, recording) = self {
            if let Some(mut recording) = recording {
                recording.end();
            }
            answer.finish();
        }
    }
}

/// Adds as much of a piece as there is room for. Whether there is no more.
fn fill(bytes: &mut Vec<u8>, piece: &[u8], bytes_max: usize) -> bool {
    let room = bytes_max - bytes.len();
    bytes.extend_from_slice(piece.get(..room).unwrap_or(piece));
    bytes.len() == bytes_max
}
