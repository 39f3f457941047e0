//! Where in a log the things stand that the sessions of a tree share. Pure.

use crate::protocol::EventBody;
use crate::store::SharedPlaces;

/// Follows where in the log things stand: what this event, of this number, changes of it.
pub(super) fn follow(places: &mut SharedPlaces, seq: u64, body: &EventBody) {
    match body {
        EventBody::BlackboardSet(entry) => drop(places.board.insert(entry.key.clone(), seq)),
        EventBody::BlackboardDelete(deletion) => drop(places.board.remove(&deletion.key)),
        EventBody::TaskCreate(change) | EventBody::TaskUpdate(change) => {
            let Ok(number) = change.task.id.parse() else { return };
            places.tasks.insert(number, seq);
            places.last_task = places.last_task.max(number);
        }
        EventBody::TaskDelete(deletion) => {
            let Ok(number) = deletion.id.parse() else { return };
            places.tasks.remove(&number);
        }
        _ => {}
    }
}
