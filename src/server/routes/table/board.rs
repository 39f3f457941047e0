//! The routes of what the sessions of a tree share.

use super::{DELETE, GET, PATCH, POST, PUT, Row, row};
use crate::protocol::{BoardEntry, ChangeTask, Deleted, NewTask, Page, PutBoardEntry, TaskView};
use crate::server::openapi::{cursor, if_match, limit, operation, position, query};
use crate::server::routes::board;

pub(super) fn rows() -> Vec<Row> {
    let prefix = serde_json::json!({ "type": "string" });
    let list =
        operation("blackboard.list", "What the sessions of a tree share, by key. Any session of the tree leads there.")
            .more("Each change is an event in the log of the session above all: `blackboard.set`, `blackboard.delete`.")
            .takes(query("prefix", "Only entries whose keys begin so.", prefix))
            .takes(cursor("BoardKey"))
            .takes(limit())
            .gives::<Page<BoardEntry>>(200, "A page of entries.");
    let show = operation("blackboard.get", "An entry of what the sessions of a tree share.")
        .gives::<BoardEntry>(200, "The entry.")
        .headers(&["ETag"]);
    let version =
        || if_match("The version that the entry must have, such as `\"3\"`; `\"0\"`: there must be none. `*`: any.");
    let put = operation("blackboard.put", "Puts a value on the board that the sessions of a tree share.")
        .takes(version())
        .full_body(|schemas| schemas.incoming::<PutBoardEntry>())
        .example(serde_json::json!({ "value": { "found": 3 } }))
        .gives::<BoardEntry>(200, "The entry.")
        .headers(&["ETag"])
        .command();
    let delete = operation("blackboard.delete", "Takes an entry off the board.")
        .takes(version())
        .gives::<Deleted>(200, "It is gone.")
        .command();
    let clear = operation("blackboard.clear", "Takes everything off the board.")
        .gives::<Deleted>(200, "It is empty.")
        .command();
    let tasks = operation(
        "sessions.tasks",
        "The tasks that the sessions of a tree share, in the order in which they were created.",
    )
    .more("Each change is an event in the log of the session above all: `task.create`, `task.update`, `task.delete`.")
    .takes(position("cursor", "The `nextCursor` of the page before. Default: the first page."))
    .takes(limit())
    .gives::<Page<TaskView>>(200, "A page of tasks.");
    let mut rows = vec![
        row(GET, "/sessions/{sessionId}/blackboard", board::list, list),
        row(DELETE, "/sessions/{sessionId}/blackboard", board::clear, clear),
        row(GET, "/sessions/{sessionId}/blackboard/{key}", board::show, show),
        row(PUT, "/sessions/{sessionId}/blackboard/{key}", board::put, put),
        row(DELETE, "/sessions/{sessionId}/blackboard/{key}", board::delete, delete),
        row(GET, "/sessions/{sessionId}/tasks", board::tasks, tasks),
    ];
    rows.extend(changes_of_tasks());
    rows
}

fn changes_of_tasks() -> Vec<Row> {
    let create = operation("tasks.create", "Adds a task to those that the sessions of a tree share.")
        .full_body(|schemas| schemas.incoming::<NewTask>())
        .example(serde_json::json!({ "subject": "Write the tests", "blockedBy": ["1"] }))
        .gives::<TaskView>(201, "The task.")
        .command();
    let update = operation("tasks.update", "Changes a task: where it stands, its words, its owner, what it waits for.")
        .more("What somebody has in progress is not given to somebody else: set it back first.")
        .full_body(|schemas| schemas.incoming::<ChangeTask>())
        .example(serde_json::json!({ "status": "in_progress", "owner": "me" }))
        .gives::<TaskView>(200, "The task.")
        .command();
    let delete = operation("tasks.delete", "Takes a task off the list: nobody waits for it any more.")
        .gives::<Deleted>(200, "It is gone.")
        .command();
    vec![
        row(POST, "/sessions/{sessionId}/tasks", board::create_task, create),
        row(PATCH, "/sessions/{sessionId}/tasks/{taskId}", board::update_task, update),
        row(DELETE, "/sessions/{sessionId}/tasks/{taskId}", board::delete_task, delete),
    ]
}
