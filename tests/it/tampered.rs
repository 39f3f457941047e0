//! Files and databases in which somebody has changed one thing: an import refuses the file with the line, and a check
//! finds the database. What neither can see is listed, in docs/export.md and docs/operations.md too.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value as Cell;
use serde_json::{Value, json};
use simse::protocol::Event;
use simse::session::Views;
use simse::session::transfer::{Imported, NotRead};
use simse::store::Inspection;
use simse::store::chain::Chain;

use crate::log::{prompt, script, simse, worked};
use crate::support::model_server::ModelServer;
use crate::support::program::Program;

/// What stands in a file beside the log, and is in it nowhere.
const NOT_IN_THE_LOG: [&str; 7] = [
    "/head/program",
    "/session/client",
    "/session/created_at",
    "/session/updated_at",
    "/turn/record/createdAt",
    "/turn/record/startedAt",
    "/turn/record/endedAt",
];

/// Columns that say what the log does not say, too.
const NOT_COVERED: [&str; 11] = [
    "session.created_at",
    "session.updated_at",
    "saved_grant.body",
    "lifecycle.place",
    "lifecycle.client",
    "lifecycle.number",
    "outcome.number",
    "outcome.name",
    "outcome.at",
    "outcome.fingerprint",
    "outcome.body",
];

/// Sessions with turns of every kind, a question with a grant that outlives it, a fork in the midst of a turn, and one
/// that was deleted.
async fn all_kinds(data: &Path, work: &Path) {
    let model = ModelServer::start(script()).await;
    let program = worked(data, work, &model).await;
    asked(&program).await;
    let (_, log) = program.call("GET", "/sessions/s/history?events=true&limit=1000", None).await;
    let in_midst = log["items"].as_array().unwrap().iter().find(|event| event["type"] == "stream.delta").unwrap();
    let fork = json!({ "newSessionId": "fork", "at": in_midst["seq"] });
    let (status, forked) = program.call("POST", "/sessions/s/fork", Some(fork)).await;
    assert_eq!(status, 201, "{forked}");
    assert_eq!(prompt(&program, "fork", "hello").await["status"], "completed");
    assert_eq!(program.call("DELETE", "/sessions/other", None).await.0, 200);
    program.kill().await;
}

async fn asked(program: &Program) {
    let rules = json!({ "defaultPolicy": "ask", "rules": [] });
    let made = program.call("POST", "/sessions", Some(json!({ "sessionId": "asks", "toolPermissions": rules }))).await;
    assert_eq!(made.0, 201, "{}", made.1);
    let mut events = program.events("asks", 0).await;
    assert_eq!(program.call("POST", "/sessions/asks/prompt", Some(json!({ "prompt": "write" }))).await.0, 202);
    loop {
        let event: Value = serde_json::from_str(&events.next().await.expect("the stream goes on").1).unwrap();
        if event["type"] == "permission.request" {
            let yes =
                json!({ "requestId": event["payload"]["requestId"], "decision": "allow_always", "scope": "always" });
            let (status, answer) = program.call("POST", "/sessions/asks/feedback", Some(yes)).await;
            assert_eq!(status, 200, "{answer}");
        }
        if event["type"] == "session.completed" {
            return;
        }
    }
}

fn read(lines: &[Value]) -> Result<Imported, NotRead> {
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    Imported::read(&mut text.join("\n").as_bytes())
}

/// The line and the field that are named.
fn refused(lines: &[Value]) -> Option<(usize, String)> {
    match read(lines) {
        Ok(_) => None,
        Err(NotRead::Line { line, field, .. }) => Some((usize::try_from(line).unwrap(), field)),
        Err(NotRead::File(error)) => panic!("{error}"),
    }
}

/// With numbers, a chain and sums that fit the lines as they are.
fn sealed(mut lines: Vec<Value>) -> Vec<Value> {
    let (mut chain, mut turns) = (Chain::default(), 0);
    for line in &mut lines {
        if let Some(event) = line.get_mut("event") {
            event["seq"] = json!(chain.seq() + 1);
            chain.push(&serde_json::from_value::<Event>(event.clone()).unwrap());
        }
        turns += u64::from(line.get("turn").is_some());
        if line.get("end").is_some() {
            *line = json!({ "end": { "events": chain.seq(), "turns": turns, "chain": chain.head() } });
        }
    }
    lines
}

/// Every value in it that has no others inside, by its place.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| leaves(value, &format!("{at}/{key}"), found)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, value)| leaves(value, &format!("{at}/{n}"), found))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => found.push(at.to_owned()),
    }
}

fn other(value: &Value) -> Value {
    match value {
        Value::Null => json!("x"),
        Value::Bool(it) => json!(!it),
        Value::Number(it) => json!(it.as_u64().unwrap_or(0) + 1),
        Value::String(it) => json!(format!("{it}x")),
        Value::Array(_) | Value::Object(_) => panic!("a leaf"),
    }
}

fn of(lines: &[Value], kind: &str, nth: usize) -> usize {
    let is = |line: &Value| line["event"]["type"] == kind;
    lines.iter().enumerate().filter(|(_, line)| is(line)).nth(nth).unwrap_or_else(|| panic!("{kind} {nth}")).0
}

/// One line of each kind.
fn one_of_each(lines: &[Value]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let kind = |line: &Value| match line.get("event") {
        Some(event) => event["type"].to_string(),
        None => line.as_object().unwrap().keys().next().unwrap().clone(),
    };
    (0..lines.len()).filter(|at| seen.insert(kind(&lines[*at]))).collect()
}

fn changed_values_are_refused(lines: &[Value]) {
    let mut taken = BTreeSet::new();
    for at in one_of_each(lines) {
        let mut places = Vec::new();
        leaves(&lines[at], "", &mut places);
        for place in places {
            let mut with = lines.to_vec();
            let value = with[at].pointer_mut(&place).unwrap();
            *value = other(value);
            match refused(&with) {
                None => drop(taken.insert(place)),
                Some((line, field)) => {
                    assert!(line > at && line <= lines.len() && !field.is_empty(), "{place}: {line} {field}")
                }
            }
        }
    }
    let allowed = BTreeSet::from(NOT_IN_THE_LOG.map(str::to_owned));
    assert!(taken.is_subset(&allowed), "{:?}", taken.difference(&allowed).collect::<Vec<_>>());
}

/// What is not there is nothing that an older version has not known yet: its logs say nothing of their beginning.
fn lost_values_of_turns_are_refused(lines: &[Value]) {
    let mut taken = BTreeSet::new();
    for at in (0..lines.len()).filter(|at| lines[*at].get("turn").is_some()) {
        let record = lines[at]["turn"]["record"].as_object().unwrap();
        let ended = record["status"] != "running";
        for (name, value) in record {
            let mut with = lines.to_vec();
            with[at]["turn"]["record"].as_object_mut().unwrap().remove(name);
            // What would be there all the same is not lost.
            let none = |value: &Value| [Value::Null, json!(0), json!("")].contains(value);
            let same = value.as_object().map_or_else(|| none(value), |members| members.values().all(none));
            if ended && !same && refused(&with).is_none() {
                taken.insert(name.clone());
            }
        }
    }
    assert_eq!(taken, BTreeSet::new());
}

fn moved_lines_are_refused(lines: &[Value]) {
    let last = lines.len();
    for at in one_of_each(lines) {
        let mut without = lines.to_vec();
        without.remove(at);
        let mut twice = lines.to_vec();
        twice.insert(at, lines[at].clone());
        assert!(refused(&without).is_some_and(|(line, _)| line > at), "without line {}", at + 1);
        // Beginning and end apart, the second of two is the one that is wrong.
        assert!(refused(&twice).is_some_and(|(line, _)| line > at), "line {} twice", at + 1);
        if at + 1 < last {
            let mut swapped = lines.to_vec();
            swapped.swap(at, at + 1);
            assert!(refused(&swapped).is_some_and(|(line, _)| line > at), "lines {} and its next", at + 1);
        }
        // With a chain that fits, too: its turn, its sums or its place tell.
        if lines[at].get("event").is_some() {
            assert!(refused(&sealed(without)).is_some(), "without line {}, sealed anew: {}", at + 1, lines[at]);
        }
        assert_eq!(refused(&lines[..at]), Some((at + 1, "end".to_owned())), "cut off");
    }
    let two = [lines, lines].concat();
    assert_eq!(refused(&two).map(|(line, _)| line), Some(last + 1));
}

/// The chain is no secret: somebody can make one that fits. What is told then is that the events make no sense.
fn logs_out_of_order_are_refused(lines: &[Value]) {
    let moved = |from: usize, to: usize| {
        let mut lines = lines.to_vec();
        let line = lines.remove(from);
        lines.insert(to, line);
        sealed(lines)
    };
    let without = |at: usize| {
        let mut lines = lines.to_vec();
        lines.remove(at);
        sealed(lines)
    };
    let twice = |at: usize| {
        let mut lines = lines.to_vec();
        lines.insert(at, lines[at].clone());
        sealed(lines)
    };
    let (prompt, end) = (of(lines, "session.prompt", 0), of(lines, "session.completed", 0));
    let (call, over) = (of(lines, "tool.call.start", 0), of(lines, "tool.call.end", 0));
    let next = of(lines, "session.prompt", 1);
    let turn = lines.iter().position(|line| line.get("turn").is_some()).unwrap();
    let mut turns = lines.to_vec();
    turns.swap(turn, turn + 1);
    // The lines from 0, what is named from 1.
    #[rustfmt::skip]
    let table = [
        ("two turns' rows in another order",       turns,                      turn + 2,     "turn"),
        ("a turn's event before its beginning",    moved(prompt, prompt + 1),  prompt + 1,   "event.type"),
        ("two beginnings",                         twice(prompt),              prompt + 2,   "event.type"),
        ("two ends",                               twice(end),                 end + 2,      "event.turnId"),
        ("an event behind the end",                moved(end, end - 1),        end + 1,      "event.turnId"),
        ("no end before the next turn",            without(end),               next,         "event.turnId"),
        ("a call that ends before it starts",      moved(over, call),          call + 1,     "event.payload.callId"),
        ("a call that ends twice",                 twice(over),                over + 2,     "event.payload.callId"),
        ("a version that was before",              moved(next, prompt),        prompt + 1,   "event.payload.version"),
    ];
    for (what, lines, line, field) in table {
        assert_eq!(
            refused(&lines),
            Some((line, field.to_owned())),
            "{what}: {:?}",
            read(&lines).err().map(|e| e.to_string())
        );
    }
}

/// What `simse check` says of a data directory.
fn faults(data: &Path) -> Vec<String> {
    let inspection = Inspection::open(data).unwrap();
    let mut faults = match inspection.database() {
        Ok(faults) => faults.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
    };
    let mut number = 0;
    while let Some(next) = inspection.next_session(number).unwrap() {
        number = next;
        let (mut views, mut misplaced) = (Views::default(), None);
        let looked = inspection.session(number, &mut |event| {
            if misplaced.is_none() {
                misplaced = views.push(event).err();
            }
        });
        let (inspected, found) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                faults.push(error.to_string());
                continue;
            }
        };
        faults.extend(found.iter().map(ToString::to_string));
        faults.extend(misplaced.iter().map(ToString::to_string));
        if let Some(inspected) = inspected.filter(|_| misplaced.is_none()) {
            faults.extend(views.compare(&inspected.row, &inspected.turns).iter().map(ToString::to_string));
        }
    }
    faults
}

fn cells(cell: &Cell) -> Vec<Cell> {
    match cell {
        Cell::Null => vec![Cell::Integer(1), Cell::Text("x".into())],
        Cell::Integer(n) => vec![Cell::Integer(n + 1), Cell::Null],
        Cell::Real(n) => vec![Cell::Real(n + 1.0)],
        Cell::Text(text) => vec![Cell::Text(format!("{text}x")), Cell::Null],
        Cell::Blob(bytes) => {
            let flipped = |at: usize| {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1;
                Cell::Blob(bytes)
            };
            vec![flipped(0), flipped(bytes.len() / 2), flipped(bytes.len() - 1), Cell::Null]
        }
    }
}

/// Rows of a table that are changed one by one: some from everywhere in it.
const ROWS_MAX: usize = 5;

struct Table {
    name: String,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

fn tables(database: &Connection) -> Vec<Table> {
    let names = |sql: &str| {
        let mut list = database.prepare(sql).unwrap();
        list.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    let list = names("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name");
    list.into_iter()
        .map(|name| {
            let columns = names(&format!("SELECT name FROM pragma_table_info('{name}')"));
            let mut list = database.prepare(&format!("SELECT * FROM {name}")).unwrap();
            let count = columns.len();
            let rows = list.query_map([], |row| (0..count).map(|at| row.get(at)).collect::<Result<Vec<Cell>, _>>());
            let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
            let step = rows.len().div_ceil(ROWS_MAX).max(1);
            Table { name, columns, rows: rows.into_iter().step_by(step).collect() }
        })
        .collect()
}

/// Does it to a database that is put back afterwards. None: the database itself does not allow it.
fn found_after(data: &Path, sql: &str, cells: Vec<Cell>) -> Option<Vec<String>> {
    let path = data.join("simse.db");
    let before = std::fs::read(&path).unwrap();
    let database = Connection::open(&path).unwrap();
    let done = database.execute(sql, rusqlite::params_from_iter(cells));
    drop(database);
    let found = done.ok().map(|rows| {
        assert_eq!(rows, 1, "{sql}");
        faults(data)
    });
    std::fs::write(&path, before).unwrap();
    for beside in ["simse.db-wal", "simse.db-shm"] {
        let _ = std::fs::remove_file(data.join(beside));
    }
    found
}

/// SQL that names one row by all that is in it.
fn row_is(table: &Table) -> String {
    let columns = table.columns.iter().enumerate();
    columns.map(|(at, column)| format!("{column} IS ?{}", at + 2)).collect::<Vec<_>>().join(" AND ")
}

/// Whether it says where a deleted session was forked whose rows are not all gone yet: nobody reads that any more.
fn is_swept_soon(table: &Table, row: &[Cell], column: &str) -> bool {
    let dead = table.columns.iter().position(|name| name == "dead");
    table.name == "doomed"
        && ["at", "parent"].contains(&column)
        && dead.is_some_and(|dead| row[dead] == Cell::Integer(1))
}

fn changed_tables_are_found(data: &Path) {
    let database = Connection::open(data.join("simse.db")).unwrap();
    // One file, so that it can be put back.
    database.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(())).unwrap();
    let tables = tables(&database);
    drop(database);
    assert_eq!(faults(data), Vec::<String>::new());
    let mut unfound = BTreeSet::new();
    for table in &tables {
        for row in &table.rows {
            for (at, column) in table.columns.iter().enumerate() {
                for cell in cells(&row[at]) {
                    let sql = format!("UPDATE {} SET {column} = ?1 WHERE {}", table.name, row_is(table));
                    let found = found_after(data, &sql, [&[cell], row.as_slice()].concat());
                    if found.is_some_and(|found| found.is_empty()) && !is_swept_soon(table, row, column) {
                        unfound.insert(format!("{}.{column}", table.name));
                    }
                }
            }
            let sql = format!("DELETE FROM {} WHERE ?1 IS NULL AND {}", table.name, row_is(table));
            let found = found_after(data, &sql, [&[Cell::Null], row.as_slice()].concat()).unwrap();
            if found.is_empty() && !["outcome", "saved_grant"].contains(&table.name.as_str()) {
                let gone = table.columns.iter().position(|column| column == "gone");
                assert!(gone.is_some_and(|gone| row[gone] != Cell::Null), "{}: {row:?} is gone", table.name);
            }
        }
    }
    let filled: Vec<&str> =
        tables.iter().filter(|table| !table.rows.is_empty()).map(|table| table.name.as_str()).collect();
    for name in ["session", "turn", "log", "question", "lifecycle", "saved_grant", "doomed"] {
        assert!(filled.contains(&name), "{name} has no rows: {filled:?}");
    }
    let allowed = BTreeSet::from(NOT_COVERED.map(str::to_owned));
    assert!(unfound.is_subset(&allowed), "{:?}", unfound.difference(&allowed).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_changed_in_a_file_or_a_database_shows() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    all_kinds(&data, &work).await;
    for session in ["s", "asks", "fork"] {
        let (code, exported, why) = simse(&["export", session], &data).await;
        assert_eq!(code, 0, "{why}");
        let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let lines = sealed(lines);
        assert_eq!(refused(&lines), None, "{session}");
        changed_values_are_refused(&lines);
        lost_values_of_turns_are_refused(&lines);
        moved_lines_are_refused(&lines);
        if session == "s" {
            logs_out_of_order_are_refused(&lines);
        }
    }
    let (code, said, why) = simse(&["check"], &data).await;
    assert_eq!(code, 0, "{said} {why}");
    // What turns have just said is gathered into the log with an orderly end.
    let store = simse::store::SqliteStore::open(&data).unwrap();
    simse::store::Store::close(&store).await.unwrap();
    changed_tables_are_found(&data);
}

/// Real logs of every earlier version are in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_of_earlier_versions_are_sound() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/databases");
    for version in 1..=10 {
        let data = tempfile::tempdir().unwrap();
        std::fs::copy(fixtures.join(format!("v{version}.db")), data.path().join("simse.db")).unwrap();
        let store = simse::store::SqliteStore::open(data.path()).unwrap();
        simse::store::Store::close(&store).await.unwrap();
        let (code, said, why) = simse(&["check"], data.path()).await;
        assert_eq!(code, 0, "version {version}: {said} {why}");
    }
}
