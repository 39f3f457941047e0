//! The terminals of one turn of an agent: commands that our own tool runs for it, and what they have written.
//!
//! Invariants: of a long output the end is kept, cut between characters; what waits for a terminal's end hears of it once,
//! however it comes; a terminal that was let go is no longer there for the agent.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::base::ear::{Ear, Exit};
use crate::base::limit;
use crate::protocol::ToolCallResult;

/// One command.
#[derive(Debug)]
pub(super) struct Terminal {
    state: Mutex<State>,
    /// Counts what has changed of whether it runs.
    changes: watch::Sender<u32>,
    /// Ends it.
    pub stop: CancellationToken,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    truncated: bool,
    begun: bool,
    exit: Option<Exit>,
    over: bool,
    /// Why it never began.
    refusal: Option<String>,
}

impl Terminal {
    fn new(bytes_max: Option<u64>) -> Self {
        let most = limit::AGENT_TERMINAL_BYTES_MAX;
        let bytes_max = bytes_max.map_or(most, |wanted| usize::try_from(wanted).unwrap_or(most).min(most));
        let (changes, _) = watch::channel(0);
        Self { state: Mutex::default(), changes, stop: CancellationToken::new(), bytes_max }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// The call that runs it has its result.
    pub fn finish(&self, result: Option<ToolCallResult>) {
        let end = |state: &mut State| {
            state.over = true;
            match result {
                Some(result) if !state.begun && !result.is_error => {
                    // The tool did it by itself: it was a patch, and no command.
                    state.bytes = result.output.into_bytes();
                    state.exit = Some(Exit { code: Some(0), signal: None });
                    state.begun = true;
                }
                Some(result) if !state.begun => state.refusal = Some(result.output),
                None if !state.begun => state.refusal = Some("the turn is over".to_owned()),
                Some(_) | None => drop(state.exit.get_or_insert_default()),
            }
        };
        self.change(end);
    }

    /// Waits until it runs.
    ///
    /// # Errors
    /// Why it never will.
    pub async fn runs(&self) -> Result<(), String> {
        let mut changes = self.changes.subscribe();
        loop {
            {
                let state = self.state.lock();
                match &state.refusal {
                    Some(refusal) => return Err(refusal.clone()),
                    None if state.begun => return Ok(()),
                    None => {}
                }
            }
            if changes.changed().await.is_err() {
                return Err("the turn is over".to_owned());
            }
        }
    }

    /// Waits until it has ended.
    pub async fn exit(&self) -> Value {
        let mut changes = self.changes.subscribe();
        loop {
            let over = {
                let state = self.state.lock();
                state.over.then(|| status(state.exit))
            };
            match over {
                Some(status) => return status,
                None if changes.changed().await.is_err() => return status(None),
                None => {}
            }
        }
    }

    /// What it has written, in the protocol's words.
    pub fn output(&self) -> Value {
        let state = self.state.lock();
        let mut output = json!({ "output": text_of(&state, self.bytes_max), "truncated": self.is_cut(&state) });
        if state.over {
            output["exitStatus"] = status(state.exit);
        }
        output
    }

    /// What it has written.
    pub fn text(&self) -> String {
        text_of(&self.state.lock(), self.bytes_max)
    }

    fn is_cut(&self, state: &State) -> bool {
        state.truncated || state.bytes.len() > self.bytes_max
    }
}

fn status(exit: Option<Exit>) -> Value {
    let exit = exit.unwrap_or_default();
    json!({ "exitCode": exit.code, "signal": exit.signal.map(name_of) })
}

fn name_of(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        6 => "SIGABRT",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// The end of what was written: at most so many bytes, whole characters.
fn text_of(state: &State, bytes_max: usize) -> String {
    let mut end = &state.bytes[state.bytes.len().saturating_sub(bytes_max)..];
    if end.len() < state.bytes.len() || state.truncated {
        let orphans = end.iter().take(3).take_while(|&&byte| byte & 0xC0 == 0x80).count();
        end = &end[orphans..];
    }
    if !state.over
        && let Err(error) = std::str::from_utf8(end)
        && error.error_len().is_none()
    {
        // The rest of the character is still to come.
        end = &end[..error.valid_up_to()];
    }
    String::from_utf8_lossy(end).into_owned()
}

impl Ear for Terminal {
    fn begun(&self) {
        self.change(|state| state.begun = true);
    }

    fn wrote(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        let newest = &bytes[bytes.len().saturating_sub(self.bytes_max)..];
        state.truncated |= newest.len() < bytes.len();
        state.bytes.extend_from_slice(newest);
        // Not at each piece: that would move the whole each time.
        if state.bytes.len() > self.bytes_max.saturating_mul(2).saturating_add(4096) {
            let over = state.bytes.len() - self.bytes_max;
            state.bytes.drain(..over);
            state.truncated = true;
        }
    }

    fn ended(&self, end: Exit) {
        self.state.lock().exit = Some(end);
    }
}

/// The terminals of a turn, by their ids. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Terminals(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<String, Arc<Terminal>>,
    /// What those had written that were let go: calls may show them later.
    texts: HashMap<String, String>,
}

impl Terminals {
    /// A new one, and its id. None: there are too many.
    pub fn add(&self, bytes_max: Option<u64>) -> Option<(String, Arc<Terminal>)> {
        let mut table = self.0.lock();
        if table.open.len() >= limit::AGENT_TERMINALS_MAX {
            return None;
        }
        table.next += 1;
        let id = format!("term_{}", table.next);
        let terminal = Arc::new(Terminal::new(bytes_max));
        table.open.insert(id.clone(), Arc::clone(&terminal));
        Some((id, terminal))
    }

    /// The one of that id.
    pub fn get(&self, id: &str) -> Option<Arc<Terminal>> {
        self.0.lock().open.get(id).cloned()
    }

    /// Ends it and lets it go. False: there is none of that id.
    pub fn release(&self, id: &str) -> bool {
        let mut table = self.0.lock();
        let Some(terminal) = table.open.remove(id) else { return false };
        terminal.stop.cancel();
        if table.texts.len() < limit::AGENT_TERMINALS_MAX {
            let text = terminal.text();
            let kept = crate::base::text::tail(&text, limit::PROCESS_OUTPUT_BYTES_MAX).to_owned();
            table.texts.insert(id.to_owned(), kept);
        }
        true
    }

    /// What the one of that id has written. None: nobody knows it.
    pub fn text(&self, id: &str) -> Option<String> {
        let table = self.0.lock();
        table.open.get(id).map(|terminal| terminal.text()).or_else(|| table.texts.get(id).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(output: &str, is_error: bool) -> ToolCallResult {
        ToolCallResult {
            id: "c".into(),
            name: "bash".into(),
            output: output.into(),
            is_error,
            duration_ms: None,
            parts: Vec::new(),
            details: None,
        }
    }

    #[test]
    fn the_end_is_kept_in_whole_characters() {
        for pieces in [1, 2, 3, 5, 1000] {
            let terminal = Terminal::new(Some(4));
            terminal.begun();
            let all = "abcdä😀ä".as_bytes();
            all.chunks(pieces).for_each(|piece| terminal.wrote(piece));
            assert_eq!(terminal.output(), json!({ "output": "ä", "truncated": true }), "{pieces}");
        }
        let terminal = Terminal::new(Some(0));
        terminal.wrote(b"x");
        assert_eq!(terminal.output(), json!({ "output": "", "truncated": true }));
        let terminal = Terminal::new(None);
        terminal.wrote("ä".as_bytes());
        terminal.wrote(&"ä".as_bytes()[..1]);
        assert_eq!(terminal.output(), json!({ "output": "ä", "truncated": false }), "half a character waits");
    }

    #[test]
    fn a_flood_is_held_in_bounds() {
        let terminal = Terminal::new(Some(100));
        (0..10_000).for_each(|_| terminal.wrote(&[b'x'; 64]));
        assert!(terminal.state.lock().bytes.len() < 10_000);
        assert_eq!(terminal.text().len(), 100);
    }

    #[tokio::test]
    async fn an_end_is_told_however_it_comes() {
        let exit = |code, signal: Option<&str>| json!({ "exitCode": code, "signal": signal });
        let ended = Terminal::new(None);
        ended.begun();
        ended.ended(Exit { code: Some(3), signal: None });
        ended.finish(Some(result("[exit code 3]", false)));
        assert_eq!((ended.runs().await, ended.exit().await), (Ok(()), exit(Some(3), None)));
        assert_eq!(ended.output()["exitStatus"], exit(Some(3), None));
        let killed = Terminal::new(None);
        killed.begun();
        killed.ended(Exit { code: None, signal: Some(15) });
        killed.finish(Some(result("aborted", true)));
        assert_eq!(killed.exit().await, exit(None, Some("SIGTERM")));
        let refused = Terminal::new(None);
        refused.finish(Some(result("denied", true)));
        assert_eq!(refused.runs().await, Err("denied".to_owned()));
        let patch = Terminal::new(None);
        patch.finish(Some(result("done", false)));
        assert_eq!(
            (patch.runs().await, patch.exit().await, patch.text()),
            (Ok(()), exit(Some(0), None), "done".into())
        );
        let broken = Terminal::new(None);
        broken.begun();
        broken.finish(None);
        assert_eq!(broken.exit().await, exit(None::<i32>, None));
    }

    #[test]
    fn one_that_was_let_go_is_gone_and_its_text_is_not() {
        let terminals = Terminals::default();
        let (id, terminal) = terminals.add(None).unwrap();
        terminal.wrote(b"said");
        assert!(terminals.get(&id).is_some() && terminals.release(&id) && !terminals.release(&id));
        assert!(terminal.stop.is_cancelled() && terminals.get(&id).is_none());
        assert_eq!(terminals.text(&id).as_deref(), Some("said"));
        let all: Vec<_> = std::iter::from_fn(|| terminals.add(None)).take(1000).collect();
        assert_eq!(all.len(), limit::AGENT_TERMINALS_MAX);
    }
}
