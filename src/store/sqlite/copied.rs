//! All that the tables have, handed out row by row, and put into empty ones: see `store::copy`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::write::{key_of, split_key};
use super::{FILE, chained, fork, fresh, read, schema};
use crate::store::StoreError;
use crate::store::copy::{Kept, KeptListed, KeptRow, KeptSession};
use crate::store::directory::{self, Lock};

/// The largest number of a session that a key has room for.
const NUMBER_MAX: i64 = i64::MAX >> 32;

/// The database of a directory that no server has, as long as this lives.
pub(in crate::store) struct Held {
    connection: Connection,
    path: PathBuf,
    _lock: Lock,
}

/// Why something could not be read or taken.
#[derive(Debug)]
pub(in crate::store) enum CopyFault {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for CopyFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for CopyFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

type Take<'a> = &'a mut dyn FnMut(Kept) -> Result<(), StoreError>;

impl Held {
    /// Takes a directory. `new`: it may be without a database.
    pub(in crate::store) fn take(directory: &Path, new: bool) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        if !new && !path.is_file() {
            let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(directory::failure("find the database", &path, &cause));
        }
        let lock = directory::hold_directory(directory)?;
        schema::check_whole(&path)?;
        directory::make_private_file(&path)?;
        let (connection, _) = schema::open(&path)?;
        Ok(Self { connection, path, _lock: lock })
    }

    fn told(&self, doing: &str, fault: CopyFault) -> StoreError {
        match fault {
            CopyFault::Sqlite(cause) => schema::failure(doing, &self.path, &cause),
            CopyFault::Store(error) => error,
        }
    }

    /// Hands out everything.
    pub(in crate::store) fn read_all(&self, take: Take<'_>) -> Result<(), StoreError> {
        read_all(&self.connection, take).map_err(|fault| self.told("read the database", fault))
    }

    /// Begins to take what comes. All of it or nothing.
    pub(in crate::store) fn load(&self) -> Result<Loading<'_>, StoreError> {
        let begin = || -> Result<(), CopyFault> {
            let tables = ["session", "doomed", "outcome", "lifecycle", "saved_grant", "client_spending"];
            let sql = format!("SELECT {}", tables.map(|table| format!("EXISTS (SELECT 1 FROM {table})")).join(" OR "));
            if self.connection.query_row(&sql, [], |row| row.get(0))? {
                let cause = format!("{}: expected none, or one that has nothing yet", self.path.display());
                return Err(StoreError::Io { doing: "copy into a database".into(), cause }.into());
            }
            Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?)
        };
        begin().map_err(|fault| self.told("copy into the database", fault))?;
        let (number, turns, ends) = (0, HashMap::new(), BTreeMap::new());
        Ok(Loading { held: self, number, turns, forks: Vec::new(), ends, newest: BTreeMap::new(), done: false })
    }
}

fn session_of(row: &Row<'_>) -> rusqlite::Result<KeptSession> {
    let head = match (row.get::<_, Option<i64>>(15)?, row.get::<_, Option<Vec<u8>>>(16)?) {
        (Some(seq), Some(head)) => Some((seq, head)),
        _ => None,
    };
    Ok(KeptSession {
        number: row.get(0)?,
        id: row.get(1)?,
        client: row.get(2)?,
        status: row.get(3)?,
        version: row.get(4)?,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
        message_count: row.get(7)?,
        usage: row.get(8)?,
        settings: row.get(9)?,
        root: row.get(10)?,
        lineage: row.get(11)?,
        children: row.get(12)?,
        spent: row.get(13)?,
        shared: row.get(14)?,
        head,
    })
}

fn read_all(connection: &Connection, take: Take<'_>) -> Result<(), CopyFault> {
    let next =
        "SELECT 1 + max(coalesce((SELECT max(number) FROM session), 0), coalesce((SELECT max(number) FROM doomed), 0))";
    take(Kept::Next(connection.query_row(next, [], |row| row.get(0))?))?;
    let ghosts = forks(connection, take)?;
    let mut numbers = connection.prepare("SELECT number FROM session ORDER BY number")?;
    let mut numbers: BTreeSet<i64> = numbers.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    numbers.extend(&ghosts);
    let mut find = connection.prepare(
        "SELECT number, id, client, status, version, created_at, updated_at, message_count, usage, settings, root, lineage,
            children, spent, shared, head_seq, head FROM session WHERE number = ?",
    )?;
    for number in numbers {
        match find.query_row([number], session_of).optional()? {
            Some(session) => take(Kept::Session(Box::new(session)))?,
            None => take(Kept::Ghost(number))?,
        }
        under(connection, number, ghosts.contains(&number), take)?;
    }
    rest(connection, take)
}

/// Hands out the forks of sessions that are there, and of those whose log they read. Gives those that are gone.
fn forks(connection: &Connection, take: Take<'_>) -> Result<BTreeSet<i64>, CopyFault> {
    let mut list = connection.prepare(
        "WITH RECURSIVE read (number) AS (
            SELECT number FROM session
            UNION
            SELECT doomed.parent FROM read JOIN doomed ON doomed.number = read.number WHERE doomed.parent IS NOT NULL
        )
        SELECT read.number, doomed.parent, doomed.at, EXISTS (SELECT 1 FROM session WHERE session.number = read.number)
        FROM read LEFT JOIN doomed ON doomed.number = read.number ORDER BY read.number",
    )?;
    let mut rows = list.query([])?;
    let mut ghosts = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let session: i64 = row.get(0)?;
        if let (Some(parent), Some(at)) = (row.get(1)?, row.get(2)?) {
            take(Kept::Fork { session, parent, at })?;
        }
        if !row.get::<_, bool>(3)? {
            ghosts.insert(session);
        }
    }
    Ok(ghosts)
}

/// Hands out what stands under a number.
fn under(connection: &Connection, number: i64, is_ghost: bool, take: Take<'_>) -> Result<(), CopyFault> {
    let keys = (key_of(number, 0), key_of(number, u32::MAX.into()));
    let mut turns = connection.prepare_cached(
        "SELECT id, open, body FROM turn WHERE key BETWEEN ? AND ? AND body IS NOT NULL ORDER BY key",
    )?;
    let mut rows = turns.query(keys)?;
    while let Some(row) = rows.next()? {
        take(Kept::Turn { id: row.get(0)?, open: row.get(1)?, body: row.get(2)? })?;
    }
    // Nobody asks whose events they are.
    let nobody = "ses_any".parse().map_err(|_| no_id())?;
    let mut failed = Ok(());
    let mut row = |stored: &chained::Stored<'_>| {
        if failed.is_ok() {
            failed = take(Kept::Row(KeptRow {
                first: i64::try_from(stored.row.first_seq).unwrap_or(i64::MAX),
                count: i64::try_from(stored.count).unwrap_or(i64::MAX),
                turn: stored.row.turn.as_ref().map(ToString::to_string),
                at: i64::try_from(stored.row.at).unwrap_or(i64::MAX),
                body: stored.row.body.to_vec(),
            }));
        }
        Ok(())
    };
    chained::each_row_from::<rusqlite::Error>(connection, (&nobody, number), (keys.0 - 1, keys.1), &mut row)?;
    fresh::each_row(connection, (&nobody, number), read::last_logged(connection, number)?, &mut row)?;
    failed?;
    if is_ghost {
        return Ok(());
    }
    let mut said = connection.prepare_cached("SELECT key, body FROM said WHERE key BETWEEN ? AND ? ORDER BY key")?;
    let mut rows = said.query(keys)?;
    while let Some(row) = rows.next()? {
        let (_, at) = split_key(row.get(0)?);
        take(Kept::Said { at: i64::try_from(at).unwrap_or(i64::MAX), body: row.get(1)? })?;
    }
    drop(rows);
    questions(connection, keys, take)
}

fn questions(connection: &Connection, keys: (i64, i64), take: Take<'_>) -> Result<(), CopyFault> {
    let mut list =
        connection.prepare_cached("SELECT key, id, call FROM question WHERE key BETWEEN ? AND ? ORDER BY key")?;
    let mut rows = list.query(keys)?;
    while let Some(row) = rows.next()? {
        let (_, seq) = split_key(row.get(0)?);
        let seq = i64::try_from(seq).unwrap_or(i64::MAX);
        take(Kept::Question { seq, id: row.get(1)?, call: row.get(2)? })?;
    }
    Ok(())
}

/// Hands out what belongs to no session.
fn rest(connection: &Connection, take: Take<'_>) -> Result<(), CopyFault> {
    let mut list = connection.prepare(
        "SELECT client, place, key, gone FROM lifecycle WHERE gone IS NOT NULL OR (key >> 32) IN (SELECT number FROM session)
        ORDER BY client, place",
    )?;
    let mut rows = list.query([])?;
    while let Some(row) = rows.next()? {
        let of = match row.get::<_, Option<String>>(3)? {
            Some(words) => {
                let event = serde_json::from_str::<crate::protocol::Event>(&words);
                let at = event.map_or(0, |event| i64::try_from(event.at).unwrap_or(i64::MAX));
                KeptListed::Gone { words, at }
            }
            None => {
                let (session, seq) = split_key(row.get(2)?);
                KeptListed::Event { session, seq: i64::try_from(seq).unwrap_or(i64::MAX) }
            }
        };
        take(Kept::Listed { client: row.get(0)?, place: row.get(1)?, of })?;
    }
    let mut list = connection.prepare("SELECT client, max(place) FROM lifecycle GROUP BY client ORDER BY client")?;
    let mut rows = list.query([])?;
    while let Some(row) = rows.next()? {
        take(Kept::Newest { client: row.get(0)?, place: row.get(1)? })?;
    }
    let forgotten = connection
        .query_row("SELECT place, at FROM forgotten", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .unwrap_or_default();
    take(Kept::Forgotten { place: forgotten.0, at: forgotten.1 })?;
    let mut list = connection.prepare("SELECT id, body FROM saved_grant ORDER BY id")?;
    let mut rows = list.query([])?;
    while let Some(row) = rows.next()? {
        take(Kept::Grant { id: row.get(0)?, body: row.get(1)? })?;
    }
    let mut list = connection.prepare("SELECT client, began, body FROM client_spending ORDER BY client")?;
    let mut rows = list.query([])?;
    while let Some(row) = rows.next()? {
        take(Kept::Spending { client: row.get(0)?, began: row.get(1)?, body: row.get(2)? })?;
    }
    let mut list = connection.prepare("SELECT name, at, fingerprint, body FROM outcome ORDER BY number")?;
    let mut rows = list.query([])?;
    while let Some(row) = rows.next()? {
        let (name, at, fingerprint, body) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        take(Kept::Outcome { name, at, fingerprint, body })?;
    }
    Ok(())
}

fn no_id() -> StoreError {
    StoreError::Io { doing: "read the database".into(), cause: "an id cannot be made".into() }
}

/// Takes what another store had. Dropped before it is done, nothing of it is there.
pub(in crate::store) struct Loading<'a> {
    held: &'a Held,
    /// The session that comes.
    number: i64,
    /// Places of its turns.
    turns: HashMap<String, i64>,
    forks: Vec<(i64, i64, i64)>,
    /// Ends of sessions: by their time, client and place.
    ends: BTreeMap<(i64, String, i64), String>,
    newest: BTreeMap<String, i64>,
    done: bool,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.done {
            // Closing does it all the same.
            let _ = self.held.connection.execute_batch("ROLLBACK");
        }
    }
}

impl Loading<'_> {
    /// Takes the next thing.
    pub(in crate::store) fn put(&mut self, kept: Kept) -> Result<(), StoreError> {
        self.put_one(kept).map_err(|fault| self.held.told("copy into the database", fault))
    }

    fn put_one(&mut self, kept: Kept) -> Result<(), CopyFault> {
        let connection = &self.held.connection;
        match kept {
            Kept::Next(next) if next > NUMBER_MAX => {
                let cause = format!("there is no room for session number {next}: expected {NUMBER_MAX} at most");
                return Err(StoreError::Io { doing: "copy into SQLite".into(), cause }.into());
            }
            Kept::Next(_) => {}
            Kept::Fork { session, parent, at } => self.forks.push((session, parent, at)),
            Kept::Session(session) => {
                (self.number, self.turns) = (session.number, HashMap::new());
                put_session(connection, &session)?;
            }
            Kept::Ghost(number) => {
                (self.number, self.turns) = (number, HashMap::new());
                connection.prepare_cached("INSERT INTO doomed (number, dead) VALUES (?, 1)")?.execute([number])?;
            }
            Kept::Turn { id, open, body } => {
                let key = self.turn_key(&id)?;
                let mut put = connection.prepare_cached("UPDATE turn SET open = ?2, body = ?3 WHERE key = ?1")?;
                put.execute((key, open, body))?;
            }
            Kept::Row(row) => self.put_row(row)?,
            Kept::End { seq, head } => {
                let sql = "UPDATE session SET head_seq = ?2, head = ?3 WHERE number = ?1 AND ?2 > 0";
                connection.prepare_cached(sql)?.execute((self.number, seq, head))?;
            }
            Kept::Said { at, body } => {
                let mut put = connection.prepare_cached("INSERT INTO said (key, body) VALUES (?, ?)")?;
                put.execute((self.key(at)?, body))?;
            }
            Kept::Question { seq, id, call } => {
                let mut put = connection.prepare_cached("INSERT INTO question (key, id, call) VALUES (?, ?, ?)")?;
                put.execute((self.key(seq)?, id, call))?;
            }
            Kept::Listed { client, place, of: KeptListed::Event { session, seq } } => {
                let seq = u64::try_from(seq).unwrap_or_default();
                let mut put =
                    connection.prepare_cached("INSERT INTO lifecycle (client, place, key) VALUES (?, ?, ?)")?;
                put.execute((client, place, key_of(session, seq)))?;
            }
            Kept::Listed { client, place, of: KeptListed::Gone { words, at } } => {
                self.ends.insert((at, client, place), words);
            }
            Kept::Newest { client, place } => drop(self.newest.insert(client, place)),
            Kept::Forgotten { place, at } => {
                if (place, at) != (0, 0) {
                    connection.execute("INSERT INTO forgotten (one, place, at) VALUES (1, ?, ?)", (place, at))?;
                }
            }
            Kept::Grant { id, body } => {
                connection.prepare_cached("INSERT INTO saved_grant (id, body) VALUES (?, ?)")?.execute((id, body))?;
            }
            Kept::Spending { client, began, body } => {
                let sql = "INSERT INTO client_spending (client, began, body) VALUES (?, ?, ?)";
                connection.prepare_cached(sql)?.execute((client, began, body))?;
            }
            Kept::Outcome { name, at, fingerprint, body } => {
                let sql = "INSERT INTO outcome (name, at, fingerprint, body) VALUES (?, ?, ?, ?)";
                connection.prepare_cached(sql)?.execute((name, at, fingerprint, body))?;
            }
        }
        Ok(())
    }

    fn key(&self, low: i64) -> Result<i64, StoreError> {
        let low = u64::try_from(low).ok().filter(|low| *low < u64::from(u32::MAX)).ok_or_else(|| {
            let cause = format!("there is no room for number {low} of session number {}", self.number);
            StoreError::Io { doing: "copy into SQLite".into(), cause }
        })?;
        Ok(key_of(self.number, low))
    }

    /// The key of a turn of the session; one that is new gets the next.
    fn turn_key(&mut self, id: &str) -> Result<i64, CopyFault> {
        let next = i64::try_from(self.turns.len()).unwrap_or(i64::MAX) + 1;
        let place = match self.turns.get(id) {
            Some(place) => *place,
            None => {
                let mut put =
                    self.held.connection.prepare_cached("INSERT INTO turn (key, id, open) VALUES (?, ?, 0)")?;
                put.execute((self.key(next)?, id))?;
                self.turns.insert(id.to_owned(), next);
                next
            }
        };
        Ok(self.key(place)?)
    }

    fn put_row(&mut self, row: KeptRow) -> Result<(), CopyFault> {
        let turn = row.turn.as_deref().map(|turn| self.turn_key(turn)).transpose()?;
        let turn = turn.map(|key| key & i64::from(u32::MAX));
        let sql = "INSERT INTO log (key, count, turn, at, body) VALUES (?, ?, ?, ?, ?)";
        let key = self.key(row.first)?;
        self.held.connection.prepare_cached(sql)?.execute((key, row.count, turn, row.at, row.body))?;
        Ok(())
    }

    /// All has come. Before anybody can see it `compare` is given all that is there now.
    pub(in crate::store) fn finish(
        mut self,
        compare: impl FnOnce(&Held) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let told = |fault| self.held.told("copy into the database", fault);
        self.join().map_err(told)?;
        compare(self.held)?;
        let commit = || Ok(self.held.connection.execute_batch("COMMIT")?);
        commit().map_err(told)?;
        self.done = true;
        Ok(())
    }

    /// What can be written when all is there.
    fn join(&self) -> Result<(), CopyFault> {
        let connection = &self.held.connection;
        for (session, parent, at) in &self.forks {
            fork::split(connection, *parent, u64::try_from(*at).unwrap_or_default())?;
            let sql = "INSERT INTO doomed (number, dead, parent, at) VALUES (?1, 0, ?2, ?3)
                ON CONFLICT (number) DO UPDATE SET parent = ?2, at = ?3";
            connection.prepare_cached(sql)?.execute((session, parent, at))?;
        }
        for (((_, client, place), words), number) in self.ends.iter().zip(1_i64..) {
            let sql = "INSERT INTO lifecycle (client, place, gone, number) VALUES (?, ?, ?, ?)";
            connection.prepare_cached(sql)?.execute((client, place, words, number))?;
        }
        for (client, place) in &self.newest {
            // Where the newest is no longer told of, its place stays.
            let sql = "INSERT INTO lifecycle (client, place) VALUES (?, ?) ON CONFLICT DO NOTHING";
            connection.prepare_cached(sql)?.execute((client, place))?;
        }
        Ok(())
    }
}

fn put_session(connection: &Connection, session: &KeptSession) -> Result<(), CopyFault> {
    if session.number > NUMBER_MAX {
        let cause = format!("there is no room for session number {}", session.number);
        return Err(StoreError::Io { doing: "copy into SQLite".into(), cause }.into());
    }
    let mut put = connection.prepare_cached(
        "INSERT INTO session (number, id, client, status, version, created_at, updated_at, message_count, usage, settings, root,
            lineage, children, spent, shared)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?;
    let columns: [&dyn rusqlite::ToSql; 15] = [
        &session.number,
        &session.id,
        &session.client,
        &session.status,
        &session.version,
        &session.created_at,
        &session.updated_at,
        &session.message_count,
        &session.usage,
        &session.settings,
        &session.root,
        &session.lineage,
        &session.children,
        &session.spent,
        &session.shared,
    ];
    put.execute(columns)?;
    Ok(())
}
