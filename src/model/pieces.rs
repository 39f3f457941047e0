//! Pieces of text that are there at once become one.
//!
//! A model that is fast, or that is read late, has many pieces waiting, of a few bytes each. Each that goes on costs an event, a row
//! of the log and a line for each client. What they say together is the same, and nobody gets it later: a piece never waits for one
//! that is still to come (ADR 0117).

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;

use super::{ModelError, ModelEvent, ModelStream};
use crate::base::limit;

/// Pieces that become one, at most. The first goes on by itself, with the next one more goes on, and so forth, each time twice as
/// many: who waits for the first has it at once, and a flood is few events all the same.
const PIECES_MAX: usize = 1_024;

impl ModelEvent {
    /// Puts a piece of the same kind behind this one. What comes back is none, or too much for one.
    pub fn join(&mut self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Text(before), Self::Text(piece)) | (Self::Reasoning(before), Self::Reasoning(piece))
                if before.len() + piece.len() <= limit::JOINED_BYTES_MAX =>
            {
                before.push_str(&piece);
                None
            }
            (_, next) => Some(next),
        }
    }
}

/// Adds a piece of text behind these: to the last one, where that is a text.
pub fn add_text(events: &mut Vec<ModelEvent>, piece: &str) {
    match events.last_mut() {
        Some(ModelEvent::Text(before)) if before.len() + piece.len() <= limit::JOINED_BYTES_MAX => {
            before.push_str(piece)
        }
        _ => events.push(ModelEvent::Text(piece.to_owned())),
    }
}

/// The same for a piece of reasoning.
pub fn add_reasoning(events: &mut Vec<ModelEvent>, piece: &str) {
    match events.last_mut() {
        Some(ModelEvent::Reasoning(before)) if before.len() + piece.len() <= limit::JOINED_BYTES_MAX => {
            before.push_str(piece);
        }
        _ => events.push(ModelEvent::Reasoning(piece.to_owned())),
    }
}

/// A model's events, with pieces that are there at once as one.
pub struct Pieces {
    inner: ModelStream,
    /// So many become one this time.
    joined_max: usize,
    /// What was found behind the last pieces: an event that is none, or the end.
    behind: Option<Option<Result<ModelEvent, ModelError>>>,
}

impl Pieces {
    /// Of these events.
    pub fn of(inner: ModelStream) -> Self {
        Self { inner, joined_max: 1, behind: None }
    }
}

impl Stream for Pieces {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let first = match self.behind.take() {
            Some(behind) => behind,
            None => std::task::ready!(self.inner.as_mut().poll_next(cx)),
        };
        let mut said = match first {
            Some(Ok(said @ (ModelEvent::Text(_) | ModelEvent::Reasoning(_)))) => said,
            other => return Poll::Ready(other),
        };
        // Who is told that nothing is there is woken when something is: the waker of this call stands until the next.
        // Empty ones make no end by their length.
        let joined_max = self.joined_max;
        self.joined_max = (2 * joined_max).min(PIECES_MAX);
        for _ in 1..joined_max {
            let Poll::Ready(next) = self.inner.as_mut().poll_next(cx) else { break };
            let behind = match next {
                Some(Ok(event)) => match said.join(event) {
                    None => continue,
                    Some(event) => Some(Ok(event)),
                },
                other => other,
            };
            self.behind = Some(behind);
            break;
        }
        Poll::Ready(Some(Ok(said)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _, stream};

    use super::*;
    use crate::model::StopReason;

    fn text(text: &str) -> Result<ModelEvent, ModelError> {
        Ok(ModelEvent::Text(text.to_owned()))
    }

    fn thought(text: &str) -> Result<ModelEvent, ModelError> {
        Ok(ModelEvent::Reasoning(text.to_owned()))
    }

    fn end() -> Result<ModelEvent, ModelError> {
        Ok(ModelEvent::Finished(StopReason::EndTurn))
    }

    #[test]
    fn what_is_there_at_once_is_one_and_keeps_its_order() {
        let long = "x".repeat(limit::JOINED_BYTES_MAX - 1);
        let cut = || Err(ModelError::Aborted);
        let cases = [
            (vec![], vec![]),
            (vec![end()], vec![end()]),
            (vec![text("a"), text("b"), text(""), text("c"), end()], vec![text("abc"), end()]),
            (
                vec![thought("a"), thought("b"), text("c"), thought("d"), end()],
                vec![thought("ab"), text("c"), thought("d"), end()],
            ),
            (vec![text(""); 2 * PIECES_MAX], vec![text(""), text("")]),
            (vec![text("a"), text("b"), cut()], vec![text("ab"), cut()]),
            (vec![text("a"), text("b")], vec![text("ab")]),
            (
                vec![text(&long), text("a"), text("b"), text("c"), end()],
                vec![text(&format!("{long}a")), text("bc"), end()],
            ),
        ];
        for (given, want) in cases {
            let mut pieces = Pieces::of(Box::pin(stream::iter(given)));
            pieces.joined_max = PIECES_MAX;
            assert_eq!(pieces.collect::<Vec<_>>().now_or_never(), Some(want));
        }
    }

    #[test]
    fn the_first_goes_on_by_itself_and_more_and_more_do_together() {
        let given: Vec<_> = std::iter::repeat_n(text("a"), 5_000).chain([end()]).collect();
        let seen = Pieces::of(Box::pin(stream::iter(given))).collect::<Vec<_>>().now_or_never().unwrap();
        let lengths: Vec<usize> =
            seen.iter().map(|it| if let Ok(ModelEvent::Text(text)) = it { text.len() } else { 0 }).collect();
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024, 905, 0]);
    }

    #[tokio::test]
    async fn no_piece_waits_for_the_next() {
        let (give, given) = tokio::sync::mpsc::unbounded_channel();
        let given = stream::unfold(given, |mut given| async move { Some((given.recv().await?, given)) });
        let mut pieces = Pieces::of(Box::pin(given));
        assert_eq!(pieces.next().now_or_never(), None, "nothing is there");
        give.send(text("a")).unwrap();
        assert_eq!(pieces.next().await, Some(text("a")));
        assert_eq!(pieces.next().now_or_never(), None);
        give.send(text("b")).unwrap();
        give.send(text("c")).unwrap();
        give.send(end()).unwrap();
        drop(give);
        assert_eq!(pieces.next().await, Some(text("bc")));
        assert_eq!(pieces.next().await, Some(end()));
        assert_eq!(pieces.next().await, None);
    }
}
