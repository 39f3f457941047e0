//! Titles: a session that nobody has named gets one after its first turn, from the small model, where one is configured.
//!
//! It is made behind the turn's back, and what goes wrong with it goes wrong quietly: the session has no title then. A title that
//! somebody gave meanwhile stays.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::actor::NewSettings;
use super::live::Live;
use crate::base::{limit, text};
use crate::model::{Messages, Model, ModelEvent, ModelRequest};
use crate::protocol::{Configure, Message, Part, Reasoning};

/// What the small model is told.
const TASK: &str = "You name conversations. Answer with a title of at most six words for the conversation that you are shown: plain text \
                    on one line, in the language of the user, without quotes and without a full stop at its end.";
/// Bytes of what was asked and of what was answered that it is shown.
const SHOWN_BYTES_MAX: usize = 2_000;
/// Longest wait for it.
const WAIT: Duration = Duration::from_secs(30);

/// Whether the conversation is one turn long, so that its session may want a title; what was asked, if it was said in words.
fn first_prompt(messages: &Messages) -> Option<String> {
    let mut prompts = messages.iter().filter_map(|message| match message {
        Message::User(parts) => Some(parts),
        Message::Assistant { .. } | Message::ToolResult { .. } => None,
    });
    let (first, more) = (prompts.next()?, prompts.next());
    let said = first.iter().find_map(|part| match part {
        Part::Text { text } if !text.trim().is_empty() => Some(text.clone()),
        Part::Text { .. } | Part::Image { .. } => None,
    });
    said.filter(|_| more.is_none())
}

/// Finds a title for a session whose first turn this was, in the background.
pub(super) fn begin(live: Arc<Live>, small: Arc<dyn Model>, (messages, answered): (&Messages, &str)) {
    let Some(asked) = first_prompt(messages) else { return };
    let answered = answered.to_owned();
    tokio::spawn(async move {
        let Ok(Some(title)) = tokio::time::timeout(WAIT, title(small.as_ref(), &asked, &answered)).await else {
            tracing::debug!(session = %live.id, model = small.id(), "no title was found for a session");
            return;
        };
        let Ok(view) = live.view().await else { return };
        if view.title.is_some() {
            return;
        }
        let changes = Configure { title: Some(title), ..Configure::default() };
        // Whoever changed it in between knows better.
        let settings = NewSettings { changes, if_version: Some(view.version), receipt: None };
        if let Err(error) = live.configure(settings).await {
            tracing::debug!(session = %live.id, error = error.0.message, "a title was found too late");
        }
    });
}

async fn title(small: &dyn Model, asked: &str, answered: &str) -> Option<String> {
    let shown = format!(
        "[User]\n{}\n\n[Assistant]\n{}",
        text::head(asked, SHOWN_BYTES_MAX),
        text::head(answered, SHOWN_BYTES_MAX)
    );
    let request = ModelRequest {
        system: TASK.to_owned(),
        messages: vec![Message::User(vec![Part::Text { text: shown }])].into(),
        reasoning: Reasoning::Auto,
        ..ModelRequest::default()
    };
    let cancel = CancellationToken::new();
    let _ends = cancel.clone().drop_guard();
    let mut stream = small.stream(request, cancel);
    let mut said = String::new();
    while let Some(event) = stream.next().await {
        match event.ok()? {
            ModelEvent::Text(text) if said.len() < SHOWN_BYTES_MAX => said.push_str(&text),
            ModelEvent::Retrying { .. } => said.clear(),
            ModelEvent::Finished(_) => return tidied(&said),
            _ => {}
        }
    }
    None
}

/// The first line of an answer as a title. None: there is nothing in it.
fn tidied(said: &str) -> Option<String> {
    let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
    let line = line.strip_prefix("Title:").unwrap_or(line);
    let bare =
        line.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '“' | '”' | '*' | '#' | '`' | '.'));
    let title: String = bare.chars().filter(|c| !c.is_control()).take(limit::TITLE_CHARS_MAX).collect();
    (!title.is_empty()).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_titles() {
        #[rustfmt::skip]
        let table = [
            ("Fix the build", Some("Fix the build")), ("\n  \"Fix the build.\"\nand more", Some("Fix the build")),
            ("Title: **Fix the build**", Some("Fix the build")), ("# Größe ändern\u{7}", Some("Größe ändern")), ("", None), (" \n ", None), ("\"\"", None),
        ];
        for (said, want) in table {
            assert_eq!(tidied(said).as_deref(), want, "{said:?}");
        }
        assert_eq!(tidied(&"x".repeat(5_000)).unwrap().chars().count(), limit::TITLE_CHARS_MAX);
    }

    #[test]
    fn only_a_first_turn_that_says_something_wants_a_title() {
        let user = |text: &str| Message::User(vec![Part::Text { text: text.into() }]);
        let said = |messages: Vec<Message>| first_prompt(&messages.into());
        assert_eq!(said(vec![user("do"), Message::assistant("done", vec![])]).as_deref(), Some("do"));
        assert_eq!(said(vec![user("do"), Message::assistant("done", vec![]), user("more")]), None);
        assert_eq!(said(vec![user(" ")]), None);
        assert_eq!(said(Vec::new()), None);
    }
}
