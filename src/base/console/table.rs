//! The consoles of one session or registry, by number.
//!
//! Numbers begin at 1000 and are not used again. There is room for so many; who wants one more gets the room of one that
//! has ended, else of the one that nobody has looked at for longest, the newest looked at excepted. What has gone is
//! remembered for a while, so that who asks for it learns what became of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Console;
use crate::base::limit;

/// The first number.
const FIRST: u64 = 1_000;

/// Consoles by number. Dropping it ends all of their programs.
#[derive(Debug, Default)]
pub struct Consoles {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Numbers given out.
    given: u64,
    /// Looks taken.
    looks: u64,
    entries: BTreeMap<u64, Entry>,
    /// The newest last.
    gone: VecDeque<(u64, Gone)>,
}

#[derive(Debug)]
struct Entry {
    console: Arc<Console>,
    /// When it was looked at last.
    look: u64,
}

/// What became of a console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Its program ended with this code, and all it wrote was read.
    Read(i32),
    /// It was ended to make room for another.
    Replaced,
}

/// There is no console of that number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct NoConsole {
    /// What was asked for.
    pub asked: String,
    /// What became of it, when that is known.
    pub gone: Option<Gone>,
    /// Those that there are, and what each runs.
    pub known: Vec<(String, String)>,
}

impl NoConsole {
    fn words(&self) -> String {
        let what = match self.gone {
            Some(Gone::Read(code)) => format!("has ended with exit code {code}, and its output was read"),
            Some(Gone::Replaced) => {
                format!("was ended to make room: at most {} are kept", limit::CONSOLES_MAX)
            }
            None => "is not known".to_owned(),
        };
        let known: Vec<String> = self.known.iter().map(|(id, command)| format!("{id} (`{command}`)")).collect();
        let known =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        format!("session {} {what}; {known}", self.asked)
    }
}

impl Consoles {
    /// Takes a console in; its number, and that of the one that had to go for it.
    pub fn add(&self, console: Arc<Console>) -> (String, Option<String>) {
        let mut table = self.table.lock();
        let replaced = (table.entries.len() >= limit::CONSOLES_MAX).then(|| table.replaceable()).flatten();
        if let Some(entry) = replaced.and_then(|number| table.entries.remove(&number)) {
            entry.console.stop();
            table.remember(replaced.unwrap_or_default(), Gone::Replaced);
        }
        let number = FIRST + table.given;
        table.given += 1;
        let look = table.next_look();
        table.entries.insert(number, Entry { console, look });
        (number.to_string(), replaced.map(|number| number.to_string()))
    }

    /// The console of a number.
    ///
    /// # Errors
    /// [`NoConsole`] that says what there is.
    pub fn get(&self, id: &str) -> Result<Arc<Console>, NoConsole> {
        let mut table = self.table.lock();
        let look = table.next_look();
        let number: Option<u64> = id.trim().parse().ok();
        if let Some(entry) = number.and_then(|number| table.entries.get_mut(&number)) {
            entry.look = look;
            return Ok(Arc::clone(&entry.console));
        }
        let gone = table.gone.iter().find(|(other, _)| Some(*other) == number).map(|(_, gone)| *gone);
        let known =
            table.entries.iter().map(|(number, entry)| (number.to_string(), entry.console.command().to_owned()));
        Err(NoConsole { asked: id.to_owned(), gone, known: known.collect() })
    }

    /// Forgets a console whose program has ended and whose output was read.
    pub fn remove(&self, id: &str, code: i32) {
        let mut table = self.table.lock();
        let Ok(number) = id.trim().parse() else { return };
        if table.entries.remove(&number).is_some() {
            table.remember(number, Gone::Read(code));
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.lock().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to end all programs and what they started.
    pub fn stop_all(&self) {
        self.table.lock().entries.values().for_each(|entry| entry.console.stop());
    }

    /// Ends all programs and what they started, waits for that, and forgets them.
    pub async fn end_all(&self) {
        let entries = std::mem::take(&mut self.table.lock().entries);
        entries.values().for_each(|entry| entry.console.stop());
        for entry in entries.into_values() {
            entry.console.end().await;
        }
    }
}

impl Table {
    fn next_look(&mut self) -> u64 {
        self.looks += 1;
        self.looks
    }

    /// The one to go: of those that have ended the one looked at longest ago, else of those that run.
    fn replaceable(&self) -> Option<u64> {
        let mut by_look: Vec<(u64, u64, bool)> = self
            .entries
            .iter()
            .map(|(number, entry)| (entry.look, *number, entry.console.ending().is_some()))
            .collect();
        by_look.sort_unstable();
        by_look.truncate(by_look.len().saturating_sub(limit::CONSOLES_SPARED));
        let ended = by_look.iter().find(|(_, _, ended)| *ended);
        ended.or(by_look.first()).map(|(_, number, _)| *number)
    }

    fn remember(&mut self, number: u64, gone: Gone) {
        self.gone.push_back((number, gone));
        if self.gone.len() > limit::CONSOLES_REMEMBERED_MAX {
            self.gone.pop_front();
        }
    }
}
