//! Databases of earlier versions and databases that somebody has changed: all is kept, and every change is found.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use super::chain::Chain;
use super::conformance::{append, create, event, put, question, row, save, session_id, sqlite};
use super::inspect::{Fault, Inspected};
use super::{Inspection, SessionRow, SqliteStore, StoreError, TurnRow, Waiting, Write};
use crate::protocol::{Event, PromptContent, TurnId, TurnStatus};

/// What is in a database, by way of the store.
#[derive(Debug, PartialEq)]
struct Content {
    session: SessionRow,
    turns: Vec<TurnRow>,
    events: Vec<String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/databases")
}

/// The version that this program makes.
fn newest() -> u64 {
    let directory = tempfile::tempdir().expect("a directory");
    drop(SqliteStore::open(directory.path()).expect("opens"));
    count(&raw(directory.path()), "PRAGMA user_version")
}

/// Those of which there is a database; of all that came before this one, there is.
fn versions() -> Vec<u64> {
    let there = |version: &u64| fixtures().join(format!("v{version}.db")).exists();
    let missing: Vec<u64> = (1..newest()).filter(|version| !there(version)).collect();
    assert!(
        missing.is_empty(),
        "{missing:?}: a database of each version before this one belongs in {}",
        fixtures().display()
    );
    (1..=newest()).filter(there).collect()
}

fn json(event: &Event) -> String {
    serde_json::to_string(event).expect("json")
}

/// Everything in a data directory, and what is wrong with it.
fn look(directory: &Path) -> (Vec<Content>, Vec<Fault>) {
    let inspection = Inspection::open(directory).expect("opens");
    let mut faults = inspection.database().expect("read");
    let (mut contents, mut number) = (Vec::new(), 0);
    while let Some(next) = inspection.next_session(number).expect("read") {
        number = next;
        let mut events = Vec::new();
        let (inspected, found) = inspection.session(number, &mut |event| events.push(json(event))).expect("read");
        faults.extend(found);
        if let Some(Inspected { row: session, turns, .. }) = inspected {
            contents.push(Content { session, turns, events });
        }
    }
    (contents, faults)
}

fn raw(directory: &Path) -> Connection {
    Connection::open(directory.join("simse.db")).expect("opens")
}

fn count(connection: &Connection, sql: &str) -> u64 {
    connection.query_row(sql, [], |row| row.get(0)).expect("counted")
}

#[tokio::test]
async fn a_database_of_every_earlier_version_opens_and_nothing_is_lost() {
    let plain = std::fs::read_to_string(fixtures().join("plain.events.jsonl")).expect("there");
    for version in versions() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("simse.db");
        std::fs::copy(fixtures().join(format!("v{version}.db")), &path).expect("copied");
        let before = raw(directory.path());
        let sql = ["SELECT count(*) FROM session", "SELECT count(*) FROM turn", "SELECT sum(count) FROM log"];
        let counts = sql.map(|sql| count(&before, sql));
        let bodies = count(&before, "SELECT sum(length(body)) FROM log");
        drop(before);

        let store = sqlite(directory.path());
        let events = store.events(&session_id("plain"), 0, 1_000).await.expect("read");
        let lines: Vec<String> = events.iter().map(json).collect();
        assert_eq!(lines, plain.lines().collect::<Vec<_>>(), "version {version}: the stream is what it was");
        let open = store.open_turns().await.expect("read");
        let open: Vec<_> = open.iter().map(|turn| (turn.record.status, turn.prompt.is_some())).collect();
        assert_eq!(open, [(TurnStatus::Running, false), (TurnStatus::Queued, true)], "version {version}");
        // It goes on behind what was there.
        let last = store.last_seq(&session_id("asks")).await.expect("read");
        put(&store, vec![append("asks", None, last + 1..=last + 1)]).await;
        assert_eq!(store.grants().await.map(|grants| grants.len()), Ok(usize::from(version >= 4)));
        let outcome = store.outcome("/k/fourth").await.expect("read");
        assert_eq!(outcome.is_some_and(|row| row.body.is_some()), version >= 6, "version {version}");
        // A session that was forked from it begins with its events.
        let branch = store.events(&session_id("branch"), 0, 1_000).await.expect("read");
        let shared = branch.iter().zip(&events).take_while(|(one, other)| one.kind == other.kind).count();
        assert_eq!((branch.len(), shared), if version >= 7 { (108, 107) } else { (0, 0) }, "version {version}");
        store.close().await.expect("closes");

        let (contents, faults) = look(directory.path());
        assert_eq!(faults, [], "version {version}");
        let sums = |f: fn(&Content) -> usize| contents.iter().map(|c| f(c) as u64).sum::<u64>();
        // A fork has its parent's turns and events without rows of its own.
        let [turns, events] = if version >= 7 { [2, 107] } else { [0, 0] };
        let found = [contents.len() as u64, sums(|c| c.turns.len()) - turns, sums(|c| c.events.len()) - 1 - events];
        assert_eq!(found, counts);
        let asks = contents.iter().find(|c| c.session.id == session_id("asks")).expect("there");
        assert_eq!(asks.turns.iter().map(|t| t.record.status).collect::<Vec<_>>()[0], TurnStatus::Aborted);

        if version == newest() {
            continue;
        }
        // What was there before is kept beside it, as it was.
        let backup = directory.path().join(format!("simse.db.v{version}.bak"));
        let kept = Connection::open(&backup).expect("opens");
        assert_eq!(count(&kept, "PRAGMA user_version"), version);
        assert_eq!(
            (sql.map(|sql| count(&kept, sql)), count(&kept, "SELECT sum(length(body)) FROM log")),
            (counts, bodies)
        );
        assert!(!directory.path().join("simse.db.v1.partial").exists());
        #[cfg(unix)]
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&backup.metadata().expect("there").permissions()) & 0o777,
            0o600
        );
    }
}

/// What waits and is large goes out of its row when a database comes to the newest version, and not a word of it is lost.
#[tokio::test]
async fn what_waited_before_is_kept_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::copy(fixtures().join("v10.db"), directory.path().join("simse.db")).expect("copied");
    let (long, longer) = ("\u{e8} ".repeat(50_000), "x".repeat(100_000));
    let database = raw(directory.path());
    let parts = serde_json::json!([[{ "type": "text", "text": "short" }], [{ "type": "text", "text": long }]]);
    let waits = "UPDATE turn SET body = json_set(body, '$.p', ?1) WHERE json_extract(body, '$.s') = 'queued'";
    assert_eq!(database.execute(waits, [&longer]).expect("changed"), 1);
    let runs = "UPDATE turn SET body = json_set(body, '$.m', json_object('waiting', json(?1), 'reached', 0))
        WHERE json_extract(body, '$.s') = 'running'";
    assert_eq!(database.execute(runs, [parts.to_string()]).expect("changed"), 1);
    drop(database);
    let store = sqlite(directory.path());
    let open = store.open_turns().await.expect("read");
    let held: usize = open.iter().map(TurnRow::held_bytes).sum();
    assert!(held < 10_000, "{held}");
    let id = session_id("asks");
    let mut said = Vec::new();
    for at in open.iter().flat_map(TurnRow::places) {
        said.push(store.said(&id, at).await.expect("read").expect("there").content.text());
    }
    assert_eq!(said, [long, longer.clone()]);
    assert_eq!(open.iter().map(|turn| turn.steers.waiting.len()).collect::<Vec<_>>(), [2, 0]);
    store.close().await.expect("closes");
    let (contents, faults) = look(directory.path());
    assert_eq!(faults, []);
    let asks = contents.into_iter().find(|content| content.session.id == id).expect("there");
    let last = asks.turns.last().and_then(|turn| turn.prompt.clone());
    assert_eq!(last, Some(Waiting::Here(PromptContent::Text(longer))), "who looks sees it whole");
    for (sql, want) in [
        ("DELETE FROM said WHERE key = (SELECT max(key) FROM said)", "it is not there"),
        ("UPDATE said SET body = '{}' WHERE key = (SELECT max(key) FROM said)", "missing field"),
        (
            "UPDATE said SET key = key + 9 WHERE key = (SELECT max(key) FROM said)",
            "was said to no turn that waits for it",
        ),
        ("UPDATE said SET key = key + (99 << 32)", "table said: 2 rows of session number"),
    ] {
        let found = faults_after(directory.path(), sql);
        assert!(found.iter().any(|said| said.contains(want)), "{sql}: {found:#?}");
    }
}

#[test]
fn without_a_backup_nothing_is_migrated() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::copy(fixtures().join("v4.db"), directory.path().join("simse.db")).expect("copied");
    // Something that cannot be removed is in the way of the copy.
    std::fs::create_dir_all(directory.path().join("simse.db.v4.partial/x")).expect("made");
    let said = SqliteStore::open(directory.path()).expect_err("no backup").to_string();
    assert!(said.contains("keep a copy of the database") && said.contains("v4.partial"), "{said}");
    assert_eq!(count(&raw(directory.path()), "PRAGMA user_version"), 4);
    std::fs::remove_dir_all(directory.path().join("simse.db.v4.partial")).expect("removed");
    SqliteStore::open(directory.path()).expect("opens");
    assert!(count(&raw(directory.path()), "PRAGMA user_version") > 4);
}

#[test]
fn an_old_database_is_looked_at_as_far_as_it_goes() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::copy(fixtures().join("v4.db"), directory.path().join("simse.db")).expect("copied");
    let inspection = Inspection::open(directory.path()).expect("opens");
    let (version, newest) = inspection.versions();
    assert!(version == 4 && newest > 4, "{version} {newest}");
    assert_eq!(inspection.database(), Ok(vec![]));
    let nothing = tempfile::tempdir().expect("a directory");
    let said = Inspection::open(nothing.path()).expect_err("nothing there").to_string();
    assert!(said.contains("simse.db"), "{said}");
    assert_eq!(std::fs::read_dir(nothing.path()).expect("read").count(), 0, "looking makes nothing");
}

/// Two sessions, with turns, a question, rows of one and of many events.
async fn filled(directory: &Path) {
    let store = sqlite(directory);
    // Always the same: a tag has two bytes, and one of 65,536 changes shows an event later only.
    let turn: TurnId = "turn-of-a".parse().expect("an id");
    put(&store, vec![create("a"), append("a", None, 1..=1), create("b"), append("b", None, 1..=3)]).await;
    put(&store, vec![save("a", &turn, TurnStatus::Running), append("a", Some(&turn), 2..=6)]).await;
    let asked = Write::Append(session_id("a"), Arc::new(vec![question("a", 7, ("r", "c"))]));
    put(&store, vec![asked]).await;
    let mut changed = row("a");
    changed.version = 1;
    let end = vec![
        Write::UpdateSession(Box::new(changed)),
        save("a", &turn, TurnStatus::Completed),
        append("a", Some(&turn), 8..=9),
    ];
    put(&store, end).await;
    put(&store, vec![append("a", None, 10..=12)]).await;
    store.close().await.expect("closes");
}

fn faults_after(directory: &Path, sql: &str) -> Vec<String> {
    let path = directory.join("simse.db");
    let before = std::fs::read(&path).expect("read");
    let database = raw(directory);
    // A session's number is in the upper half of a key.
    database.execute_batch(&sql.replace("A+", "(SELECT number << 32 FROM session WHERE id = 'a') + ")).expect(sql);
    drop(database);
    let faults = look(directory).1.iter().map(ToString::to_string).collect();
    std::fs::write(&path, before).expect("put back");
    faults
}

/// Bodies are blobs; this changes a text in one.
fn changed(seq: u64, from: &str, to: &str) -> String {
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!(
        "UPDATE log SET body = unhex(replace(hex(body), upper('{}'), upper('{}'))) WHERE key = A+{seq}",
        hex(from),
        hex(to)
    )
}

#[tokio::test]
async fn whatever_is_changed_shows_with_the_first_event_that_is_wrong() {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path()).await;
    assert_eq!(look(directory.path()).1, []);
    #[rustfmt::skip]
    let table: [(String, &[&str]); 18] = [
        (changed(1, "t1", "u1"),                                          &["event 1: it is not what was written"]),
        (changed(2, "t4", "u4"),                                          &["event 4: it is not what was written"]),
        (changed(2, "t6", "u6"),                                          &["event 6: it is not what was written"]),
        (changed(10, "t12", "t13"),                                       &["event 12: it is not what was written"]),
        (changed(8, "t8", "t8\n"),                                        &["event 8: it cannot be read"]),
        ("UPDATE log SET at = at + 1 WHERE key = A+2".into(),             &["event 2: it is not what was written"]),
        ("UPDATE log SET turn = NULL WHERE key = A+8".into(),             &["event 8: it is not what was written"]),
        ("UPDATE log SET turn = 9 WHERE key = A+8".into(),                &["event 8: its turn is not there", "event 8: it is not what was written"]),
        ("UPDATE log SET count = count - 1 WHERE key = A+8".into(),       &["it cannot be read", "event 9: it is not there; the next is 10"]),
        ("DELETE FROM log WHERE key = A+1".into(),                        &["event 1: it is not there; the next is 2"]),
        ("DELETE FROM log WHERE key = A+2".into(),                        &["event 2: it is not there; the next is 7"]),
        ("DELETE FROM log WHERE key >= A+8 AND key <= A+10".into(),       &["event 8: the log ends before it, and went on to event 9"]),
        ("DELETE FROM log WHERE key BETWEEN A+1 AND A+12".into(),         &["event 1: the log ends before it, and went on to event 9"]),
        ("DELETE FROM question".into(),                                   &["event 7: a question of the log is not in the list"]),
        ("DELETE FROM lifecycle".into(),                                  &["event 7: a lifecycle event of the log is not in the list"]),
        ("UPDATE lifecycle SET key = A+2".into(),                         &["event 7: a lifecycle event of the log", "event 2: the list of lifecycle events has one"]),
        ("UPDATE session SET head = zeroblob(32) WHERE id = 'a'".into(),  &["something up to event 9 is not what was written"]),
        ("DELETE FROM session WHERE id = 'a'".into(),                     &["table log: 5 rows of session number 1", "table turn: 1 rows of session number 1", "table question: 1 rows"]),
    ];
    for (sql, want) in table {
        let found = faults_after(directory.path(), &sql);
        let fits = found.len() >= want.len() && want.iter().all(|want| found.iter().any(|said| said.contains(want)));
        assert!(fits, "{sql}: {found:#?}");
    }
    // Another session's row under this one's number.
    let swapped = faults_after(
        directory.path(),
        "DELETE FROM log WHERE key = A+1; UPDATE log SET key = A+1 WHERE key = (SELECT number << 32 FROM session WHERE id = 'b') + 1",
    );
    assert!(swapped.iter().any(|said| said.contains("session a, event")), "{swapped:?}");
}

/// What was not gathered yet is held against the chain like the rest.
#[tokio::test]
async fn whatever_is_changed_in_what_turns_have_just_said_shows() {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path()).await;
    let moved = "INSERT INTO fresh (key, count, turn, at, body) SELECT key, count, turn, at, body FROM log
            WHERE key BETWEEN A+8 AND A+99 ORDER BY key;
        DELETE FROM log WHERE key BETWEEN A+8 AND A+99;";
    assert_eq!(faults_after(directory.path(), moved), Vec::<String>::new());
    let fresh = |(seq, from, to)| changed(seq, from, to).replace("UPDATE log", "UPDATE fresh");
    #[rustfmt::skip]
    let table = [
        (fresh((8, "t9", "u9")),                                                  "event 9: it is not what was written"),
        (fresh((8, "t8", "t8\n")),                                                "event 8: it cannot be read"),
        ("UPDATE fresh SET at = at + 1 WHERE key = A+8".into(),                   "event 8: it is not what was written"),
        ("DELETE FROM fresh WHERE key = A+8".into(),                              "event 8: it is not there; the next is 10"),
        ("DELETE FROM fresh".into(),                                              "event 8: the log ends before it, and went on to event 9"),
        ("DELETE FROM session WHERE id = 'a'".into(),                             "table fresh: 2 rows of session number 1"),
    ];
    for (sql, want) in table {
        let found = faults_after(directory.path(), &format!("{moved}{sql}"));
        assert!(found.iter().any(|said| said.contains(want)), "{sql}: {found:#?}");
    }
}

/// SQLite keeps what it is given: a column that is wrong costs its session alone, and is named.
#[tokio::test]
async fn a_column_of_another_kind_is_named_and_the_other_sessions_are_looked_at() {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path()).await;
    let number: &[&str] = &["'x'", "x'00'", "1.5", "-1"];
    #[rustfmt::skip]
    let columns: [(&str, &str, &[&str]); 26] = [
        ("session", "id", &["x'00'"]), ("session", "client", &["x'00'"]), ("session", "status", number), ("session", "version", number),
        ("session", "created_at", number), ("session", "updated_at", number), ("session", "message_count", number),
        ("session", "usage", &["x'00'"]), ("session", "settings", &["x'00'"]), ("session", "head_seq", number), ("session", "head", &["'x'", "5"]),
        ("turn", "id", &["x'00'"]), ("turn", "open", number), ("turn", "body", &["x'00'"]),
        ("log", "count", number), ("log", "turn", number), ("log", "at", number), ("log", "body", &["'x'", "5"]),
        ("fresh", "count", number), ("fresh", "turn", number), ("fresh", "at", number), ("fresh", "body", &["'x'", "5"]),
        ("question", "id", &["x'00'"]), ("question", "call", &["x'00'"]),
        ("doomed", "parent", &["'x'", "x'00'", "-1"]), ("doomed", "at", number),
    ];
    let rows = |table: &str| match table {
        "session" => "id = 'a'".to_owned(),
        "doomed" => "number = A+0 >> 32".to_owned(),
        _ => "key BETWEEN A+0 AND A+4294967295".to_owned(),
    };
    let before =
        "INSERT INTO fresh (key, count, turn, at, body) SELECT key, count, turn, at, body FROM log WHERE key = A+10;
        INSERT INTO doomed (number, dead, parent, at) SELECT number, 0, 0, 0 FROM session WHERE id = 'a';";
    for (table, column, values) in columns {
        for value in values {
            let prepared = if ["fresh", "doomed"].contains(&table) { before } else { "" };
            let sql = format!("{prepared} UPDATE {table} SET {column} = {value} WHERE {}", rows(table));
            let found = faults_after(directory.path(), &sql);
            let want = format!("column {column} of table {table}: expected ");
            assert!(found.iter().any(|said| said.contains(&want)), "{sql}: {found:#?}");
            let session = if column == "id" && table == "session" { "session number 1" } else { "session a" };
            assert!(found.iter().any(|said| said.starts_with(session)), "{sql}: {found:#?}");
            assert!(!found.iter().any(|said| said.starts_with("session b")), "{sql}: {found:#?}");
        }
    }
}

#[tokio::test]
async fn a_damaged_page_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path()).await;
    let path = directory.path().join("simse.db");
    let mut bytes = std::fs::read(&path).expect("read");
    // The head of the second page.
    bytes[2048..2048 + 600].fill(0xa5);
    std::fs::write(&path, bytes).expect("written");
    let inspection = Inspection::open(directory.path()).expect("opens");
    match inspection.database() {
        Ok(faults) => assert!(faults.iter().any(|f| matches!(f, Fault::Database { .. })), "{faults:?}"),
        Err(error) => assert!(matches!(error, StoreError::Broken { .. }), "{error:?}"),
    }
}

/// The chain goes on over restarts, failed commits and its own anchors, and is one over the events alone.
#[tokio::test]
async fn the_chain_is_one_however_the_events_came() {
    let directory = tempfile::tempdir().expect("a directory");
    let turn = TurnId::generate();
    let mut wanted = Chain::default();
    let mut seq = 0;
    for round in 0..3_u64 {
        let store = Arc::new(SqliteStore::open(directory.path()).expect("opens"));
        let shared: Arc<dyn super::Store> = Arc::clone(&store) as _;
        if round == 0 {
            put(&shared, vec![create("a")]).await;
        }
        for batch in [1, 7, 1_500, 2] {
            let events: Vec<Event> =
                (seq + 1..=seq + batch).map(|seq| event("a", (batch != 7).then_some(&turn), seq, "x")).collect();
            events.iter().for_each(|event| wanted.push(event));
            seq += batch;
            put(&shared, vec![Write::Append(session_id("a"), Arc::new(events))]).await;
            store.refuse_writes(true);
            super::commit(&shared, vec![append("a", None, seq + 1..=seq + 1)]).await.expect_err("refused");
            store.refuse_writes(false);
        }
        // While it runs it can be looked at, too.
        let inspection = Inspection::open(directory.path()).expect("opens");
        assert!(inspection.is_served());
        let number = inspection.session_number(&session_id("a")).expect("read").expect("there");
        let (inspected, faults) = inspection.session(number, &mut |_| {}).expect("read");
        assert_eq!((faults, inspected.map(|i| i.chain)), (vec![], Some(wanted)));
        drop(inspection);
        shared.close().await.expect("closes");
    }
    let files = std::fs::read_dir(directory.path()).expect("read").count();
    look(directory.path());
    assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), files, "looking makes no files");
}
