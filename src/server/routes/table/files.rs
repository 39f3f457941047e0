//! Routes about files: what there is, what turns did to them, and sessions that go on from before.

use serde_json::json;

use super::{GET, POST, Row, row};
use crate::base::limit;
use crate::protocol::{DiffView, FilesView, Fork, SessionView, Undo, Undone};
use crate::server::openapi::{id, operation, query};
use crate::server::routes::changes;

pub(super) fn rows() -> Vec<Row> {
    let diff = operation("sessions.diff", "What turns did to files.")
        .takes(id("turn", "TurnId", "Only this turn. Default: all that are not undone."))
        .takes(query(
            "cursor",
            "The `nextCursor` of the page before. Default: the first page.",
            json!({ "type": "string" }),
        ))
        .takes(query("path", "Only this path, with more of its diff.", json!({ "type": "string" })))
        .gives::<DiffView>(200, "What changed.")
        .refuses(&[409]);
    let files = operation("sessions.files", "The files of the directory that a session works in: names alone.")
        .more("What ignore files leave out is marked in a directory, and not among what letters mean.")
        .takes(query(
            "path",
            "A directory, relative to the session's. Default: that itself.",
            json!({ "type": "string" }),
        ))
        .takes(query(
            "query",
            "Instead of what is in the directory: the files below it whose path has these letters in this order, the best first.",
            json!({ "type": "string", "maxLength": limit::FILES_QUERY_BYTES_MAX }),
        ))
        .takes(query(
            "limit",
            "At most so many.",
            json!({ "type": "integer", "minimum": 1, "maximum": limit::FILES_TOLD_MAX, "default": limit::FILES_TOLD }),
        ))
        .gives::<FilesView>(200, "The entries.")
        .refuses(&[409]);
    let fork = operation("sessions.fork", "A new session that goes on from an event of this one.")
        .body::<Fork>()
        .gives::<SessionView>(201, "The new session.")
        .headers(&["Location"])
        .versioned();
    let undo = operation("sessions.undo", "Undoes what turns did to files: all of it or nothing.")
        .body::<Undo>()
        .gives::<Undone>(200, "What was undone.")
        .versioned();
    let redo = operation("sessions.redo", "Does again what was undone.")
        .body::<Undo>()
        .gives::<Undone>(200, "What was done again.")
        .versioned();
    vec![
        row(GET, "/sessions/{sessionId}/files", changes::files, files),
        row(GET, "/sessions/{sessionId}/diff", changes::diff, diff),
        row(POST, "/sessions/{sessionId}/fork", changes::fork, fork),
        row(POST, "/sessions/{sessionId}/undo", changes::undo, undo),
        row(POST, "/sessions/{sessionId}/redo", changes::redo, redo),
    ]
}
