//! Looks at a data directory without changing anything in it: for checks and exports.
//!
//! It reads like any other reader of the database, also while a server writes; each session is seen as it was at one
//! moment. Where no server runs, the directory is held meanwhile, and a database without a write-ahead log is read
//! without SQLite making one beside it. Memory is bounded by the longest row, not by the log.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::chained::{self, Stored};
use super::read::{self, ReadError};
use super::write::{key_of, split_key};
use super::{FILE, fork, fresh, said, schema, sound, typed};
use crate::protocol::{Event, LATER_LIFECYCLE_TYPES, SessionId, SessionStatus, is_lifecycle};
use crate::store::chain::{Chain, TAG_BYTES};
use crate::store::directory::{self, Hold, Lock};
use crate::store::inspect::{Fault, Inspected};
use crate::store::{Question, StoreError};

/// Lines of SQLite's own check that are kept.
const SAID_MAX: usize = 20;

/// A data directory that is looked at.
pub struct Inspection {
    connection: Connection,
    path: PathBuf,
    /// Held as long as this lives, where no server does.
    _lock: Option<Lock>,
    serving: bool,
    version: i64,
}

impl std::fmt::Debug for Inspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Inspection {
    /// Opens a data directory for looking.
    ///
    /// # Errors
    /// [`StoreError::TooNew`], [`StoreError::Broken`], or [`StoreError::Io`] that names the path: there is no database in it, too.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        schema::check_whole(&path)?;
        let found = std::fs::metadata(&path).and_then(|found| match found.is_file() {
            true => Ok(()),
            false => Err(io::Error::other("not a file")),
        });
        found.map_err(|e| directory::failure("find the database", &path, &e))?;
        let hold = directory::hold(directory)?;
        let serving = matches!(hold, Hold::Elsewhere);
        let at_rest = !serving && std::fs::metadata(schema::beside(&path, "-wal")).map_or(true, |wal| wal.len() == 0);
        let failed = |e: rusqlite::Error| schema::failure("open the database", &path, &e);
        let connection = connect(&path, at_rest).map_err(failed)?;
        let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
        if version > schema::newest() {
            return Err(StoreError::TooNew { path, found: version, known: schema::newest() });
        }
        let lock = match hold {
            Hold::Ours(lock) => Some(lock),
            Hold::Elsewhere | Hold::NoLock => None,
        };
        Ok(Self { connection, path, _lock: lock, serving, version })
    }

    /// Whether a server (or another program of ours) has the directory.
    pub fn is_served(&self) -> bool {
        self.serving
    }

    /// The version of its tables, and the newest that this program knows. Of an older one only [`Self::database`] can
    /// be looked at: the next start of a server brings it to the newest.
    pub fn versions(&self) -> (i64, i64) {
        (self.version, schema::newest())
    }

    /// What SQLite finds wrong with its file, and rows that belong to nothing.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn database(&self) -> Result<Vec<Fault>, StoreError> {
        let mut faults = self.sound().map_err(|e| self.failed(&e))?;
        if self.version == schema::newest() && faults.is_empty() {
            faults = sound::contradictions(&self.connection).map_err(|e| self.failed(&e))?;
        }
        Ok(faults)
    }

    fn sound(&self) -> rusqlite::Result<Vec<Fault>> {
        Ok(unsound(&self.connection)?.into_iter().map(|said| Fault::Database { said }).collect())
    }

    /// What SQLite finds wrong with a database that lies beside it, such as the record of changes; nothing where there is none.
    pub fn beside(directory: &Path, name: &str) -> Vec<String> {
        let path = directory.join(name);
        if !std::fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
            return Vec::new();
        }
        let at_rest = std::fs::metadata(schema::beside(&path, "-wal")).map_or(true, |wal| wal.len() == 0);
        let said = connect(&path, at_rest).and_then(|connection| unsound(&connection));
        let said = said.unwrap_or_else(|cause| vec![cause.to_string()]);
        said.into_iter().map(|said| format!("{}: {said}", path.display())).collect()
    }

    /// The number of the first session behind number `after`; 0 begins.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn next_session(&self, after: i64) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT min(number) FROM session WHERE number > ?";
        self.connection.query_row(sql, [after], |row| row.get(0)).map_err(|e| self.failed(&e))
    }

    /// The number of a session. None: there is none of that id.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn session_number(&self, id: &SessionId) -> Result<Option<i64>, StoreError> {
        read::number_of(&self.connection, id).map_err(|e| self.failed(&e))
    }

    /// Looks at one session as it is at this moment: hands out its events, oldest first, as far as they can be read.
    /// None: it is gone, or its row cannot be read.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn session(
        &self,
        number: i64,
        take: &mut dyn FnMut(&Event),
    ) -> Result<(Option<Inspected>, Vec<Fault>), StoreError> {
        let mut look = || -> Result<_, ReadError> {
            let moment = self.connection.unchecked_transaction()?;
            let wrong = typed::wrong(&moment, number)?;
            if !wrong.is_empty() {
                return Ok((None, wrong));
            }
            let row = match read::session_at(&moment, number) {
                Ok(Some(row)) => row,
                Ok(None) => return Ok((None, Vec::new())),
                Err(cause) => return Ok((None, vec![Fault::Row { number, cause: cause.to_string() }])),
            };
            let mut faults = Vec::new();
            let turns = turns(&moment, (&row.id, number), &mut faults)?;
            sound::open_turns(&moment, (&row.id, number), &mut faults)?;
            let changed = row.version > 0 || row.status != SessionStatus::Created;
            let chain = walk(&moment, (&row.id, number, changed), take, &mut faults)?;
            Ok((Some(Inspected { row, turns, chain }), faults))
        };
        match look() {
            Ok(looked) => Ok(looked),
            // The other sessions may well be readable.
            Err(ReadError::Sqlite(cause)) if typed::is_in_a_row(&cause) => {
                Ok((None, vec![Fault::Row { number, cause: cause.to_string() }]))
            }
            Err(ReadError::Sqlite(cause)) => Err(self.failed(&cause)),
            Err(ReadError::Store(cause)) => Err(cause),
        }
    }

    fn failed(&self, cause: &rusqlite::Error) -> StoreError {
        schema::failure("read the database", &self.path, cause)
    }
}

/// What SQLite finds wrong with a file.
fn unsound(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut check = connection.prepare(&format!("PRAGMA integrity_check({SAID_MAX})"))?;
    let mut said = check.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    said.retain(|said| said != "ok");
    Ok(said)
}

/// A connection that only reads. At rest, SQLite is told that nothing changes, so that it makes no files of its own.
fn connect(path: &Path, at_rest: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match plain(*byte) {
            true => uri.push(char::from(*byte)),
            false => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    if at_rest {
        uri.push_str("?immutable=1");
    }
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(schema::BUSY_TIMEOUT)?;
    Ok(connection)
}

fn turns(
    connection: &Connection,
    session: (&SessionId, i64),
    faults: &mut Vec<Fault>,
) -> rusqlite::Result<Vec<crate::store::TurnRow>> {
    let mut turns = Vec::new();
    for read in read::turns_of(connection, session)? {
        match read {
            Ok(turn) => turns.push(turn),
            Err((turn, cause)) => faults.push(Fault::Turn { session: session.0.clone(), turn, cause }),
        }
    }
    said::put_back(connection, session, (&mut turns, faults))?;
    Ok(turns)
}

/// What a walk through a log knows so far.
struct Walk<'a> {
    session: &'a SessionId,
    faults: &'a mut Vec<Fault>,
    chain: Chain,
    /// Whether the chain still tells anything: behind its first fault it does not.
    chained: bool,
    /// The head in the session's row.
    head: Option<Chain>,
    /// The chain has come by it.
    met: bool,
    last_seq: u64,
    /// Questions that the log puts, by the numbers of their events.
    questions: Vec<(u64, Question)>,
    /// Lifecycle events in the session's own rows.
    lifecycle: Vec<(u64, bool)>,
    number: i64,
}

/// Holds a log against its numbers, its chain and its questions. Gives the chain to its end.
fn walk(
    connection: &Connection,
    (session, number, changed): (&SessionId, i64, bool),
    take: &mut dyn FnMut(&Event),
    faults: &mut Vec<Fault>,
) -> Result<Chain, ReadError> {
    let head = chained::head_of(connection, number)?;
    let (questions_put, lifecycle) = (Vec::new(), Vec::new());
    let chain = Chain::default();
    let mut walk = Walk {
        session,
        faults,
        chain,
        chained: true,
        head,
        // One that was made before the first event stands at none.
        met: head == Some(chain),
        last_seq: 0,
        questions: questions_put,
        lifecycle,
        number,
    };
    let mut asked = Vec::new();
    for segment in fork::segments(connection, number)? {
        let keys = (key_of(segment.number, 0) - 1, key_of(segment.number, segment.upto));
        chained::each_row_from::<rusqlite::Error>(connection, (session, segment.number), keys, |stored| {
            walk.row(stored, take);
            Ok(())
        })?;
        asked.extend(sound::questions(connection, keys)?);
    }
    let logged = read::last_logged(connection, number)?;
    fresh::each_row(connection, (session, number), logged, |stored| {
        walk.row(stored, take);
        Ok(())
    })?;
    walk.end(changed);
    walk.compare_questions(&asked);
    let listed = sound::lifecycle_of(connection, (session, number), walk.faults)?;
    walk.compare_lifecycle(&listed);
    Ok(walk.chain)
}

impl Walk<'_> {
    fn row(&mut self, stored: &Stored<'_>, take: &mut dyn FnMut(&Event)) {
        let (session, first) = (self.session.clone(), stored.row.first_seq);
        if first != self.last_seq + 1 {
            self.faults.push(Fault::Missing { session: session.clone(), seq: self.last_seq + 1, found: first });
            self.chained = false;
        }
        if stored.place.is_some() && stored.row.turn.is_none() {
            self.faults.push(Fault::NoTurn { session: session.clone(), seq: first });
        }
        self.last_seq = stored.last_seq();
        match stored.events() {
            Ok((events, tags)) => {
                for (event, tag) in events.iter().zip(tags.chunks(TAG_BYTES)) {
                    self.chain.push(event);
                    if self.chained && self.chain.tag() != tag {
                        self.chained = false;
                        self.faults.push(Fault::Changed { session: session.clone(), seq: event.seq });
                    }
                    self.questions.extend(Question::of(event).map(|question| (event.seq, question)));
                    if is_lifecycle(&event.kind) && split_key(stored.key).0 == self.number {
                        let later = LATER_LIFECYCLE_TYPES.contains(&event.kind.as_ref());
                        self.lifecycle.push((event.seq, later));
                    }
                    take(event);
                }
            }
            Err(bad) => {
                self.faults.push(Fault::Unreadable { session, seq: bad.seq, cause: bad.cause });
                self.chain.skip(stored.last_seq(), stored.row.body);
                self.chained = false;
            }
        }
        // The head stands at the end of a row.
        if let Some(head) = self.head.filter(|head| self.chained && head.seq() == self.chain.seq()) {
            self.met = true;
            if head != self.chain {
                self.chained = false;
                self.faults.push(Fault::Head { session: self.session.clone(), seq: head.seq() });
            }
        }
    }

    /// `changed`: the session's row has been written since it was made, and with it the head.
    fn end(&mut self, changed: bool) {
        let (session, last) = (self.session.clone(), self.last_seq);
        match self.head {
            Some(head) if head.seq() > last => self.faults.push(Fault::CutOff { session, last, head: head.seq() }),
            Some(head) if self.chained && !self.met => self.faults.push(Fault::Head { session, seq: head.seq() }),
            None if changed => self.faults.push(Fault::Head { session, seq: last }),
            Some(_) | None => {}
        }
    }

    /// What cannot be read is told already: the list may have it.
    fn compare_lifecycle(&mut self, listed: &[u64]) {
        let session = || self.session.clone();
        // A list of an earlier server is without those that came later.
        let unlisted = self.lifecycle.iter().filter(|(seq, later)| !later && listed.binary_search(seq).is_err());
        let what = "a lifecycle event of the log is not in the list of them";
        let mut faults: Vec<_> =
            unlisted.map(|(seq, _)| Fault::Lifecycle { session: session(), seq: *seq, what }).collect();
        if self.chained {
            let strange = listed.iter().filter(|seq| self.lifecycle.binary_search_by_key(*seq, |told| told.0).is_err());
            let what = "the list of lifecycle events has one that the log does not";
            faults.extend(strange.map(|seq| Fault::Lifecycle { session: session(), seq: *seq, what }));
        }
        self.faults.append(&mut faults);
    }

    fn compare_questions(&mut self, asked: &[(u64, Option<Question>)]) {
        let session = || self.session.clone();
        for (seq, question) in &self.questions {
            let what = match asked.binary_search_by_key(seq, |asked| asked.0) {
                Ok(at) if asked[at].1.as_ref() == Some(question) => continue,
                Ok(_) => "the list of questions has another id or call for it",
                Err(_) => "a question of the log is not in the list of questions",
            };
            self.faults.push(Fault::Question { session: session(), seq: *seq, what });
        }
        let unasked = asked.iter().filter(|(seq, _)| self.questions.binary_search_by_key(seq, |put| put.0).is_err());
        let what = "the list of questions has one that the log does not put";
        self.faults.extend(unasked.map(|(seq, _)| Fault::Question { session: session(), seq: *seq, what }));
    }
}
