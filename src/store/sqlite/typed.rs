//! Columns that hold another kind of value than was written there: SQLite keeps whatever it is given, also where a table says
//! `INTEGER`, and whoever reads it then can only give up.
//!
//! Looked at before a session is read, so that a check can name the column and go on with the next session.

use rusqlite::Connection;

use super::fork;
use super::write::key_of;
use crate::store::inspect::Fault;

/// A table, which of its rows are a session's, and its columns with what may stand there.
struct Table {
    name: &'static str,
    rows: &'static str,
    columns: &'static [(&'static str, Kind)],
}

/// What may stand in a column.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Number,
    NumberOrNothing,
    Text,
    TextOrNothing,
    Bytes,
    BytesOrNothing,
}

impl Kind {
    /// For SQL, and in words.
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Number => ("'integer'", "a whole number, 0 or more"),
            Self::NumberOrNothing => ("'integer', 'null'", "a whole number, 0 or more, or nothing"),
            Self::Text => ("'text'", "a text"),
            Self::TextOrNothing => ("'text', 'null'", "a text, or nothing"),
            Self::Bytes => ("'blob'", "bytes"),
            Self::BytesOrNothing => ("'blob', 'null'", "bytes, or nothing"),
        }
    }
}

/// Of the rows under a session's number, from ?1 to ?2.
const UNDER_ITS_NUMBER: &str = "key BETWEEN ?1 AND ?2";

/// Keys that are a row's number in SQLite are whole numbers, whatever is done.
const TABLES: [Table; 8] = {
    use Kind::{Bytes, BytesOrNothing, Number, NumberOrNothing, Text, TextOrNothing};
    [
        Table {
            name: "session",
            rows: "number = ?1 >> 32 AND ?2",
            columns: &[
                ("id", Text),
                ("client", TextOrNothing),
                ("status", Number),
                ("version", Number),
                ("created_at", Number),
                ("updated_at", Number),
                ("message_count", Number),
                ("usage", Text),
                ("settings", Text),
                ("head_seq", NumberOrNothing),
                ("head", BytesOrNothing),
            ],
        },
        Table {
            name: "doomed",
            rows: "number = ?1 >> 32 AND ?2",
            columns: &[("dead", Number), ("parent", NumberOrNothing), ("at", NumberOrNothing)],
        },
        Table {
            name: "turn",
            rows: UNDER_ITS_NUMBER,
            columns: &[("id", Text), ("open", Number), ("body", TextOrNothing)],
        },
        Table {
            name: "log",
            rows: UNDER_ITS_NUMBER,
            columns: &[("count", Number), ("turn", NumberOrNothing), ("at", Number), ("body", Bytes)],
        },
        Table {
            name: "fresh",
            rows: UNDER_ITS_NUMBER,
            columns: &[("count", Number), ("turn", NumberOrNothing), ("at", Number), ("body", Bytes)],
        },
        Table { name: "said", rows: UNDER_ITS_NUMBER, columns: &[("body", Text)] },
        Table { name: "question", rows: UNDER_ITS_NUMBER, columns: &[("id", Text), ("call", Text)] },
        Table {
            name: "lifecycle",
            rows: UNDER_ITS_NUMBER,
            columns: &[("client", Text), ("place", Number), ("gone", TextOrNothing), ("number", NumberOrNothing)],
        },
    ]
};

/// The columns of a session's rows, and of those that it shares with what it was forked from, that cannot be read: each once.
pub(super) fn wrong(connection: &Connection, number: i64) -> rusqlite::Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let mut next = Some(number);
    // What it was forked from is known only where that can be read.
    while let Some(of) = next.filter(|_| faults.is_empty()) {
        for table in &TABLES {
            for (column, kind) in table.columns {
                faults.extend(wrong_in(connection, (of, number), (table, column, *kind))?);
            }
        }
        next = if faults.is_empty() { fork::parent_of(connection, of)?.map(|parent| parent.number) } else { None };
    }
    Ok(faults)
}

fn wrong_in(
    connection: &Connection,
    (of, number): (i64, i64),
    (table, column, kind): (&Table, &'static str, Kind),
) -> rusqlite::Result<Option<Fault>> {
    let (types, expected) = kind.told();
    let (name, rows) = (table.name, table.rows);
    let mut find = connection.prepare_cached(&format!(
        "SELECT CASE typeof({column}) WHEN 'integer' THEN 'the number ' || {column} ELSE typeof({column}) END FROM {name}
         WHERE {rows} AND (typeof({column}) NOT IN ({types}) OR (typeof({column}) = 'integer' AND {column} < 0)) LIMIT 1"
    ))?;
    let mut found = find.query((key_of(of, 0), key_of(of, u32::MAX.into())))?;
    let Some(row) = found.next()? else { return Ok(None) };
    let session = session_name(connection, number);
    Ok(Some(Fault::Column { session, table: name, column, expected, found: row.get(0)? }))
}

/// A session's id or, where that cannot be read either, its number.
fn session_name(connection: &Connection, number: i64) -> String {
    let id = connection.query_row("SELECT id FROM session WHERE number = ?", [number], |row| row.get::<_, String>(0));
    id.unwrap_or_else(|_| format!("number {number}"))
}

/// Whether it is what stands in a row that SQLite's caller cannot take, and not the database that cannot be read.
pub(super) fn is_in_a_row(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
    )
}
