//! What is under way: by name, so that a second one of the same is found, waits, and is answered alike.
//!
//! Invariant: a name leaves only when the outcome under it can be found elsewhere, or there is none.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::lane::{LaneKey, Place};
use super::parse::Command;
use super::{Handled, Shared, scope};
use crate::app::Caller;
use crate::app::command::parse::Class;
use crate::protocol::{ApiError, ErrorCode};
use crate::session::stopping;
use crate::store::Fingerprint;

/// A command under way.
pub(super) struct Flight {
    pub(super) fingerprint: Fingerprint,
    lane: Option<LaneKey>,
    end: watch::Sender<Option<Handled>>,
}

/// All of them, by name.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<String, Arc<Flight>>>);

impl Flights {
    /// Names that are under way.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// How a command comes in.
pub(super) enum Entry {
    /// By itself.
    Own(Box<Entered>),
    /// The same is under way: its end is this one's, also under the names that only this one has.
    Beside(Watcher, Option<Box<Entered>>),
}

/// A command that is under way.
pub(super) struct Entered {
    /// Its key, then its id.
    pub(super) names: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
    /// Its place in its lane. None: it stands in none.
    pub(super) place: Option<Place>,
    /// Its room. None: its work has it, which goes on.
    pub(super) room: Option<OwnedSemaphorePermit>,
    flight: Arc<Flight>,
    shared: Arc<Shared>,
}

/// A command that another depends on.
pub(super) struct Dependency {
    pub(super) id: String,
    /// Its name.
    pub(super) name: String,
    /// It is under way. None: its outcome, if there is one, is remembered.
    pub(super) flight: Option<Watcher>,
}

/// Sees the end of a command.
pub(super) struct Watcher(watch::Receiver<Option<Handled>>);

impl Watcher {
    /// The end of the command, for another one that asks the same.
    pub(super) async fn end(&mut self) -> Handled {
        match self.0.wait_for(Option::is_some).await {
            Ok(end) => {
                let handled = end.as_ref().map(|end| Handled { replayed: end.accepted, ..end.clone() });
                handled.unwrap_or_else(|| Handled::refused(broken()))
            }
            Err(_) => Handled::refused(broken()),
        }
    }
}

fn broken() -> ApiError {
    ApiError::internal("the command broke off")
}

/// The names of a command: its key's before its id's.
fn names(caller: &Caller, command: &Command) -> Vec<String> {
    let key = command.key.as_ref().map(|key| format!("{}{KEY}{}", scope(caller), plain(key)));
    let id = command.id.as_ref().map(|id| name_of_id(caller, id));
    key.into_iter().chain(id).collect()
}

fn name_of_id(caller: &Caller, id: &str) -> String {
    format!("{}{ID}{}", scope(caller), plain(id))
}

/// Between a client and a key of its own.
const KEY: &str = "/k/";
/// Between a client and an id of its own.
const ID: &str = "/i/";

/// A key or an id without the sign that parts a name: else that of one client could read like that of another, which the
/// same token lets in.
fn plain(text: &str) -> Cow<'_, str> {
    if text.contains(['/', '%']) { Cow::Owned(text.replace('%', "%25").replace('/', "%2F")) } else { text.into() }
}

/// The same name for something else.
pub(super) fn conflict(name: &str) -> ApiError {
    let (before, text) = name.rsplit_once('/').unwrap_or_default();
    let field = if before.ends_with(KEY.trim_end_matches('/')) { "idempotencyKey" } else { "id" };
    let text = text.replace("%2F", "/").replace("%25", "%");
    ApiError::conflict(format!("the {field} `{text}` was used for another command before"))
        .with_details(serde_json::json!({ "field": field, "expected": "a new one, or the same command" }))
}

impl Shared {
    /// Lets a command in: joins it to the same one under way, or gives it room and a place in its lane.
    pub(super) fn enter(self: &Arc<Self>, caller: &Caller, command: &Command) -> Result<Entry, ApiError> {
        let lane = lane_of(caller, command);
        let mut flights = self.flights.0.lock();
        let (mut same, mut new) = (None, Vec::new());
        for name in names(caller, command) {
            match flights.get(&name) {
                Some(flight) if flight.fingerprint != command.fingerprint => return Err(conflict(&name)),
                Some(flight) => {
                    same.get_or_insert_with(|| Arc::clone(flight));
                }
                None => new.push(name),
            }
        }
        if let Some(same) = same {
            let end = Watcher(same.end.subscribe());
            let beside = (!new.is_empty()).then(|| self.take_in(&mut flights, new, (command, same.lane.clone())));
            return Ok(Entry::Beside(end, beside.transpose()?.map(Box::new)));
        }
        let dependencies = dependencies(&flights, (caller, command), lane.as_ref())?;
        let mut entered = self.take_in(&mut flights, new, (command, lane.clone()))?;
        entered.dependencies = dependencies;
        entered.place = lane.map(|lane| self.lanes.line_up(lane));
        Ok(Entry::Own(Box::new(entered)))
    }

    /// Gives a command room, and its names to it.
    fn take_in(
        self: &Arc<Self>,
        flights: &mut HashMap<String, Arc<Flight>>,
        names: Vec<String>,
        (command, lane): (&Command, Option<LaneKey>),
    ) -> Result<Entered, ApiError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let mut room = Arc::clone(&self.room).try_acquire_owned();
        if room.is_err() && command.operation.kind().1 == Class::Control {
            room = Arc::clone(&self.controls).try_acquire_owned();
        }
        let room = room.map_err(|_| {
            let message = "the server is busy: too many commands are under way; try again";
            ApiError::new(ErrorCode::ResourceExhausted, message)
        })?;
        let flight = Arc::new(Flight { fingerprint: command.fingerprint, lane, end: watch::Sender::new(None) });
        for name in &names {
            flights.insert(name.clone(), Arc::clone(&flight));
        }
        let (dependencies, shared) = (Vec::new(), Arc::clone(self));
        Ok(Entered { names, dependencies, place: None, room: Some(room), flight, shared })
    }
}

/// What a command depends on, as far as can be told without looking at the disk.
fn dependencies(
    flights: &HashMap<String, Arc<Flight>>,
    (caller, command): (&Caller, &Command),
    lane: Option<&LaneKey>,
) -> Result<Vec<Dependency>, ApiError> {
    let look = |(at, id): (usize, &String)| {
        let field = format!("dependsOn[{at}]");
        if command.id.as_ref() == Some(id) {
            return Err(ApiError::invalid(&field, "another command, not this one itself"));
        }
        let name = name_of_id(caller, id);
        let flight = flights.get(&name);
        if lane.is_some() && flight.is_some_and(|flight| flight.lane.as_ref() == lane) {
            let message = format!("command `{id}` is under way in the same lane, and so comes before this one anyway");
            let details =
                serde_json::json!({ "field": field, "expected": "a command of another lane, or one that is over" });
            return Err(ApiError::conflict(message).with_details(details));
        }
        let flight = flight.map(|flight| Watcher(flight.end.subscribe()));
        Ok(Dependency { id: id.clone(), name, flight })
    };
    command.depends_on.iter().enumerate().map(look).collect()
}

fn lane_of(caller: &Caller, command: &Command) -> Option<LaneKey> {
    match (command.operation.kind().1, &command.session) {
        // Each client has its own: one cannot hold up another by naming its sessions.
        (Class::Change, Some(session)) => Some((scope(caller).to_owned(), session.to_string())),
        (Class::Change, None) | (Class::Control | Class::Read, _) => None,
    }
}

impl Entered {
    /// What it asks for.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.flight.fingerprint
    }

    /// Tells those beside it how it ended; its names are free.
    pub(super) fn end(&self, handled: &Handled) {
        self.flight.end.send_replace(Some(handled.clone()));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut flights = self.shared.flights.0.lock();
        for name in &self.names {
            flights.remove(name);
        }
    }
}
