//! The store on a disk that fails: full, read-only, broken, slow, slow to be sure, and with the last pages torn off.
//!
//! SQLite's own unix layer lets a program replace the system calls that it writes with, so the faults come at each single
//! write of a real file, whichever thread does it; `fsync` is this binary's own. The calls are the process's, so this is a
//! test binary of its own, and its tests take turns.

#![allow(clippy::unwrap_used, reason = "in tests an unwrap is an assertion")]
#![allow(unsafe_code, reason = "replacing a system call is telling SQLite the address of another function")]
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use rusqlite::ffi;
use serde_json::json;
use serde_json::value::RawValue;
use simse::config::{Settings, Storage};
use simse::protocol::{Event, PermissionMode, Reasoning, SessionId, SessionStatus, Usage};
use simse::server::ListenOptions;
use simse::store::inspect::Fault;
use simse::store::{Inspection, SessionRow, SessionSettings, SqliteStore, Store, StoreError, Write, commit};

#[path = "it/support/mod.rs"]
#[allow(dead_code, reason = "of what the integration tests share only the server is wanted")]
mod support;

use support::house::{Does, House};

/// What a write that is not done says; 0: all are done.
static ERRNO: AtomicI32 = AtomicI32::new(0);
/// Writes that are still done before the first that is not.
static LEFT: AtomicI64 = AtomicI64::new(0);
/// Half of the first write that fails is done.
static HALF: AtomicBool = AtomicBool::new(false);
/// Writes since the last look.
static WRITES: AtomicU64 = AtomicU64::new(0);
/// How long each write takes, in microseconds.
static SLOW_US: AtomicU64 = AtomicU64::new(0);

/// How long it takes until what was written is on the disk for sure, in milliseconds; below 0: it never is (EIO).
static SYNC_MS: AtomicI64 = AtomicI64::new(0);
/// Waits for that since the last look.
static SYNCS: AtomicU64 = AtomicU64::new(0);

/// Stands in the place of the C library's, for everything in this process.
///
/// # Safety
/// None is needed: any number may be asked for, and one that is no file is refused.
// SAFETY: the name, the argument and the result are those of the function whose place it takes.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(file: c_int) -> c_int {
    SYNCS.fetch_add(1, Ordering::SeqCst);
    match u64::try_from(SYNC_MS.load(Ordering::SeqCst)) {
        Ok(slow) => std::thread::sleep(Duration::from_millis(slow)),
        Err(_) => {
            refuse(libc::EIO);
            return -1;
        }
    }
    // SAFETY: the call takes a number and touches no memory of ours.
    c_int::try_from(unsafe { libc::syscall(libc::SYS_fsync, file) }).unwrap_or(-1)
}

/// As [`fsync`].
// SAFETY: as of `fsync`.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(file: c_int) -> c_int {
    fsync(file)
}

/// One test at a time.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn refuse(errno: c_int) {
    // SAFETY: the address is this thread's own errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Whether this write is done whole, in half, or not at all.
fn share(bytes: usize) -> Result<usize, c_int> {
    WRITES.fetch_add(1, Ordering::SeqCst);
    let slow = SLOW_US.load(Ordering::SeqCst);
    if slow > 0 {
        std::thread::sleep(Duration::from_micros(slow));
    }
    let errno = ERRNO.load(Ordering::SeqCst);
    if errno == 0 || LEFT.fetch_sub(1, Ordering::SeqCst) > 0 {
        return Ok(bytes);
    }
    match HALF.swap(false, Ordering::SeqCst) {
        true => Ok(bytes / 2),
        false => Err(errno),
    }
}

extern "C" fn write(fd: c_int, buffer: *const c_void, bytes: usize) -> isize {
    match share(bytes) {
        // SAFETY: what SQLite handed in for this very call, and never more of it.
        Ok(some) => unsafe { libc::write(fd, buffer, some) },
        Err(errno) => {
            refuse(errno);
            -1
        }
    }
}

extern "C" fn pwrite(fd: c_int, buffer: *const c_void, bytes: usize, at: i64) -> isize {
    match share(bytes) {
        // SAFETY: as in `write`.
        Ok(some) => unsafe { libc::pwrite64(fd, buffer, some, at) },
        Err(errno) => {
            refuse(errno);
            -1
        }
    }
}

/// Puts the two in the place of the system's.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let write = write as extern "C" fn(c_int, *const c_void, usize) -> isize;
        let pwrite = pwrite as extern "C" fn(c_int, *const c_void, usize, i64) -> isize;
        // SAFETY: the default layer lives as long as the process; each function has the form of the call that it replaces,
        // and SQLite casts it back to that form before it calls it. No database is open yet.
        unsafe {
            ffi::sqlite3_initialize();
            let layer = ffi::sqlite3_vfs_find(std::ptr::null());
            let set = (*layer).xSetSystemCall.expect("the unix layer has it");
            let write: unsafe extern "C" fn() = std::mem::transmute(write);
            let pwrite: unsafe extern "C" fn() = std::mem::transmute(pwrite);
            assert_eq!(set(layer, c"write".as_ptr(), Some(write)), ffi::SQLITE_OK);
            assert_eq!(set(layer, c"pwrite64".as_ptr(), Some(pwrite)), ffi::SQLITE_OK);
            assert_eq!(set(layer, c"pwrite".as_ptr(), Some(pwrite)), ffi::SQLITE_OK);
        }
    });
}

fn fail(errno: c_int, after: i64, half: bool) {
    LEFT.store(after, Ordering::SeqCst);
    HALF.store(half, Ordering::SeqCst);
    ERRNO.store(errno, Ordering::SeqCst);
}

fn heal() {
    ERRNO.store(0, Ordering::SeqCst);
    HALF.store(false, Ordering::SeqCst);
}

fn id(name: &str) -> SessionId {
    name.parse().unwrap()
}

fn row(name: &str, version: u64) -> SessionRow {
    SessionRow {
        id: id(name),
        client: None,
        status: if version == 0 { SessionStatus::Created } else { SessionStatus::Active },
        version,
        created_at: 1,
        updated_at: 1,
        message_count: 0,
        spent: Default::default(),
        usage: Usage::default(),
        settings: SessionSettings {
            working_directory: "/w".into(),
            additional_directories: Vec::new(),
            agent: None,
            interaction_mode: None,
            model: "m/m".into(),
            title: None,
            instructions: None,
            tools: None,
            without_tools: Vec::new(),
            reasoning: Reasoning::default(),
            agent_options: Default::default(),
            model_fallbacks: None,
            budget: None,
            permissions: None,
            permission_mode: PermissionMode::default(),
            grants: Vec::new(),
        },
        lineage: None,
        children: Vec::new(),
        shared: Default::default(),
    }
}

fn event(seq: u64, text: &str) -> Event {
    let payload = RawValue::from_string(serde_json::json!({ "text": text }).to_string()).unwrap();
    Event { seq, kind: "stream.delta".into(), payload, session_id: id("s"), turn_id: None, at: seq }
}

/// Commit number `n` of a session: its row's version becomes `n`, and its log gets two events, some of them large.
fn change(n: u64, last: u64) -> Vec<Write> {
    let large = "x".repeat(usize::try_from(n % 5).unwrap() * 3_000);
    let events = vec![event(last + 1, &large), event(last + 2, &format!("n{n}"))];
    let mut writes = vec![Write::UpdateSession(Box::new(row("s", n))), Write::Append(id("s"), Arc::new(events))];
    if n.is_multiple_of(3) {
        writes.push(Write::CreateSession(Box::new(row(&format!("s{n}"), 0))));
    }
    writes
}

fn open(directory: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(directory).unwrap())
}

async fn fresh(directory: &Path) -> Arc<dyn Store> {
    install();
    let store = open(directory);
    commit(&store, vec![Write::CreateSession(Box::new(row("s", 0)))]).await.unwrap();
    store
}

/// What a look at the directory says of the session: its version, its events; and that nothing is wrong anywhere.
fn looked(directory: &Path) -> (u64, Vec<u64>) {
    let inspection = Inspection::open(directory).unwrap();
    let mut faults: Vec<Fault> = inspection.database().unwrap();
    let (mut number, mut found) = (0, None);
    while let Some(next) = inspection.next_session(number).unwrap() {
        number = next;
        let mut seqs = Vec::new();
        let (inspected, wrong) = inspection.session(number, &mut |event| seqs.push(event.seq)).unwrap();
        faults.extend(wrong);
        let row = inspected.unwrap().row;
        if row.id == id("s") {
            found = Some((row.version, seqs));
        }
    }
    assert_eq!(faults, []);
    found.unwrap()
}

#[tokio::test]
async fn at_whichever_write_the_disk_fails_commits_are_whole_and_it_goes_on_afterwards() {
    let _turn = TURN.lock().await;
    // A full disk at each write; the others, which SQLite treats alike, at each fifth.
    let kinds = [(libc::ENOSPC, false, 1), (libc::ENOSPC, true, 5), (libc::EIO, false, 5), (libc::EROFS, false, 5)];
    for (errno, half, step) in kinds {
        let mut after = 0;
        loop {
            let directory = tempfile::tempdir().unwrap();
            let store = fresh(directory.path()).await;
            commit(&store, change(1, 0)).await.unwrap();
            fail(errno, after, half);
            let (mut acknowledged, mut failed) = (1, 0);
            for _ in 0..4 {
                match commit(&store, change(acknowledged + 1, acknowledged * 2)).await {
                    Ok(()) => acknowledged += 1,
                    Err(StoreError::Io { doing, cause }) => {
                        failed += 1;
                        assert!(cause.contains("simse.db"), "{doing}: {cause}");
                    }
                    Err(other) => panic!("{other:?}"),
                }
                // Readers go on, whatever the disk does.
                assert_eq!(store.last_seq(&id("s")).await, Ok(acknowledged * 2), "errno {errno} after {after}");
                assert_eq!(store.session(&id("s")).await.unwrap().unwrap().version, acknowledged);
            }
            heal();
            commit(&store, change(acknowledged + 1, acknowledged * 2)).await.unwrap();
            let want = (acknowledged + 1, (1..=acknowledged * 2 + 2).collect::<Vec<_>>());
            assert_eq!(looked(directory.path()), want, "errno {errno} after {after}");
            store.close().await.unwrap();
            assert_eq!(looked(directory.path()), want, "errno {errno} after {after}, closed");
            if failed == 0 {
                break;
            }
            after += step;
        }
        println!("errno {errno}: failed at each {step}. of {after} writes");
        assert!(after >= 10, "only {after} writes were tried");
    }
}

/// What turns say is gathered between commits: a disk that is full then takes nothing away, and what it refused is gathered later.
#[tokio::test]
async fn a_disk_that_is_full_while_it_is_gathered_loses_nothing() {
    const COMMITS: u64 = 60;
    let _turn = TURN.lock().await;
    let said = |seq| Event { turn_id: Some("turn".parse().unwrap()), ..event(seq, &"x".repeat(800)) };
    let mut after = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        let store = fresh(directory.path()).await;
        fail(libc::ENOSPC, after, after % 2 == 0);
        let (mut last, mut failed) = (0, 0);
        for _ in 0..COMMITS {
            match commit(&store, vec![Write::Append(id("s"), Arc::new(vec![said(last + 1)]))]).await {
                Ok(()) => last += 1,
                Err(_) => failed += 1,
            }
        }
        assert_eq!(store.last_seq(&id("s")).await, Ok(last), "after {after}");
        assert_eq!(looked(directory.path()), (0, (1..=last).collect::<Vec<_>>()), "after {after}");
        heal();
        commit(&store, vec![Write::Append(id("s"), Arc::new(vec![said(last + 1)]))]).await.unwrap();
        assert_eq!(store.last_seq(&id("s")).await, Ok(last + 1), "after {after}");
        store.close().await.unwrap();
        assert_eq!(looked(directory.path()), (0, (1..=last + 1).collect::<Vec<_>>()), "after {after}, closed");
        if failed == 0 {
            break;
        }
        after += 9;
    }
    println!("a disk became full at each ninth of {after} writes");
    assert!(after > 50, "only {after} writes were tried");
}

#[tokio::test]
async fn a_disk_that_fails_at_the_opening_is_told_and_harms_nothing() {
    let _turn = TURN.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let store = fresh(directory.path()).await;
    commit(&store, change(1, 0)).await.unwrap();
    store.close().await.unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/databases/v4.db");
    for errno in [libc::ENOSPC, libc::EROFS] {
        let old = tempfile::tempdir().unwrap();
        std::fs::copy(&fixture, old.path().join("simse.db")).unwrap();
        let mut after = 0;
        loop {
            fail(errno, after, false);
            let opened = SqliteStore::open(old.path());
            heal();
            match opened {
                Ok(_) => break,
                Err(StoreError::Io { cause, .. }) => assert!(cause.contains("simse.db"), "{cause}"),
                Err(other) => panic!("{other:?}"),
            }
            assert!(!old.path().join("simse.db.v4.partial").exists(), "half a copy is no copy");
            after += 7;
        }
        println!("errno {errno}: a migration was cut off at each seventh of {after} writes");
        assert!(after > 7);
        let inspection = Inspection::open(old.path()).unwrap();
        assert_eq!(inspection.versions().0, inspection.versions().1);
        assert_eq!(inspection.database().unwrap(), []);
    }
    assert_eq!(looked(directory.path()), (1, vec![1, 2]));
}

#[tokio::test]
async fn a_slow_disk_delays_acknowledgements_and_not_readers() {
    let _turn = TURN.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let store = fresh(directory.path()).await;
    SLOW_US.store(20_000, Ordering::SeqCst);
    let began = Instant::now();
    let acknowledged = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&acknowledged);
    store.commit(change(1, 0), Box::new(move |done| told.store(done.is_ok(), Ordering::SeqCst)));
    let mut reads = 0;
    while !acknowledged.load(Ordering::SeqCst) {
        assert_eq!(store.session(&id("s")).await.unwrap().unwrap().version / 2, 0);
        reads += 1;
        tokio::task::yield_now().await;
    }
    let took = began.elapsed();
    SLOW_US.store(0, Ordering::SeqCst);
    assert!(took >= Duration::from_millis(60), "several writes of 20 ms each, {took:?}");
    assert!(reads >= 5, "{reads} reads in {took:?}");
    store.close().await.unwrap();
}

/// A write-ahead log whose end did not reach the disk: whole commits are missing, newest first, and nothing else.
#[tokio::test]
async fn of_a_torn_write_ahead_log_whole_commits_are_left() {
    const COMMITS: u64 = 24;
    let _turn = TURN.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let store = fresh(directory.path()).await;
    for n in 1..=COMMITS {
        commit(&store, change(n, (n - 1) * 2)).await.unwrap();
    }
    // As the end of the process leaves it.
    let database = std::fs::read(directory.path().join("simse.db")).unwrap();
    let log = std::fs::read(directory.path().join("simse.db-wal")).unwrap();
    store.close().await.unwrap();
    assert!(log.len() > 100_000, "the log was emptied already: {} bytes", log.len());
    let mut versions = std::collections::BTreeSet::new();
    // At every 512 bytes of the end, then at every page of the commits before.
    let places = (0..=20_usize).map(|n| n * 512).chain((6..=26_usize).map(|n| n * 2072));
    for back in places {
        let cut = log.len() - back;
        let garbage: Vec<u8> = (0..back).map(|n| (n * 31 % 251) as u8).collect();
        let mut flipped = log.clone();
        if let Some(byte) = flipped.get_mut(cut) {
            *byte ^= 0x40;
        }
        let ends = [
            log[..cut].to_vec(),
            [&log[..cut], &garbage].concat(),
            [&log[..cut], &vec![0; back][..]].concat(),
            flipped,
        ];
        for (kind, torn) in ends.into_iter().enumerate() {
            let place = tempfile::tempdir().unwrap();
            std::fs::write(place.path().join("simse.db"), &database).unwrap();
            std::fs::write(place.path().join("simse.db-wal"), torn).unwrap();
            let store = open(place.path());
            let version = store.session(&id("s")).await.unwrap().unwrap().version;
            assert!(version <= COMMITS && (back > 0 || version == COMMITS), "{version} with {back} bytes torn off");
            assert_eq!(store.last_seq(&id("s")).await, Ok(version * 2), "{back} bytes, kind {kind}");
            // Sessions that came with a commit came with it or not at all.
            assert_eq!(store.session_count().await, Ok(1 + version / 3), "{back} bytes, kind {kind}");
            commit(&store, change(version + 1, version * 2)).await.unwrap();
            store.close().await.unwrap();
            assert_eq!(looked(place.path()), (version + 1, (1..=version * 2 + 2).collect()));
            versions.insert(version);
        }
    }
    assert!(versions.len() >= 3, "the cuts reached {versions:?}");
}

/// While more is written than the write-ahead log may hold, on a disk that takes its time to be sure, or never is: commits
/// and readers go on, the log stays bounded where it can be, and nothing is missing afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_slow_to_be_sure_holds_up_little_and_loses_nothing() {
    const COMMITS: u64 = 140;
    let _turn = TURN.lock().await;
    for (sync_ms, most) in [(20, 48 << 20), (-1, u64::MAX)] {
        let directory = tempfile::tempdir().unwrap();
        let store = fresh(directory.path()).await;
        SYNCS.store(0, Ordering::SeqCst);
        SYNC_MS.store(sync_ms, Ordering::SeqCst);
        let (text, done) = ("x".repeat(160_000), Arc::new(AtomicBool::new(false)));
        let reader = tokio::spawn({
            let (store, done) = (Arc::clone(&store), Arc::clone(&done));
            async move {
                let mut reads = 0_u64;
                while !done.load(Ordering::SeqCst) {
                    assert!(store.session(&id("s")).await.unwrap().is_some());
                    reads += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                reads
            }
        });
        let (mut slowest, mut log) = (Duration::ZERO, 0);
        for n in 1..=COMMITS {
            let began = Instant::now();
            commit(&store, vec![Write::Append(id("s"), Arc::new(vec![event(n, &text)]))]).await.unwrap();
            slowest = slowest.max(began.elapsed());
            log = log.max(std::fs::metadata(directory.path().join("simse.db-wal")).unwrap().len());
        }
        done.store(true, Ordering::SeqCst);
        let reads = reader.await.unwrap();
        let syncs = SYNCS.load(Ordering::SeqCst);
        SYNC_MS.store(0, Ordering::SeqCst);
        assert!(syncs > 0, "the disk was never asked");
        assert!(log <= most, "{} MiB of log, with {sync_ms} ms", log >> 20);
        // The writer itself waits for the disk only where the log begins anew: not for each of its passes.
        assert!(slowest < Duration::from_secs(5), "{slowest:?} for a commit, {syncs} waits of {sync_ms} ms");
        assert!(reads >= 20, "{reads} reads meanwhile");
        store.close().await.unwrap();
        assert_eq!(looked(directory.path()), (0, (1..=COMMITS).collect()), "{sync_ms} ms");
    }
}

/// A server that is killed while the end of its write-ahead log has not reached the disk: the next one has a state that
/// was, with whole commits, and works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_goes_on_with_what_a_torn_log_has_left() {
    let _turn = TURN.lock().await;
    let home = tempfile::tempdir().unwrap();
    let first = house(home.path()).await;
    for n in 0..4 {
        let session = format!("s{n}");
        first.session(json!({ "sessionId": session })).await;
        assert_eq!(first.prompt(&session, "one").await["status"], "completed");
    }
    first.round(&[Does::Says("so far"), Does::Waits]);
    let mut events = first.events("s", "").await;
    let going = first.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "two" }))).await;
    assert_eq!(going.status, 202, "{going:?}");
    events.until("stream.delta").await;
    let of_now = |name: &str| std::fs::read(home.path().join("data").join(name)).unwrap();
    let (database, log) = (of_now("simse.db"), of_now("simse.db-wal"));
    assert!(log.len() > 40_000, "the log was emptied already: {} bytes", log.len());
    let mut left = std::collections::BTreeSet::new();
    for back in [0, 700, 2_072, 5_000, 9_000, 17_000, 33_000] {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("simse.db"), &database).unwrap();
        let garbage: Vec<u8> = (0..back).map(|n| (n * 31 % 251) as u8).collect();
        std::fs::write(data.join("simse.db-wal"), [&log[..log.len() - back], &garbage].concat()).unwrap();
        let storage = Storage::Directory(data.clone());
        let second = House::with(ListenOptions::default(), |settings| taken_over(settings, storage)).await;
        let list = second.call("GET", "/sessions", None).await.json();
        let sessions = list["items"].as_array().unwrap().clone();
        let mut events = 0;
        for session in &sessions {
            let name = session["sessionId"].as_str().unwrap();
            assert_eq!(second.prompt(name, "go on").await["status"], "completed", "{back} bytes: {name}");
            let turns = second.call("GET", &format!("/sessions/{name}/turns"), None).await.json();
            for turn in turns["items"].as_array().unwrap() {
                assert!(["completed", "failed"].contains(&turn["status"].as_str().unwrap()), "{back} bytes: {turn}");
            }
            let last = second.call("GET", &format!("/sessions/{name}"), None).await.json()["lastSeq"].as_u64().unwrap();
            let mut whole = second.events(name, "").await;
            let mut next = 1;
            while next <= last {
                let frame = whole.event().await;
                if let Some(seq) = frame.id {
                    assert_eq!(seq, next, "{back} bytes: {name}");
                    next += 1;
                }
            }
            events += last;
        }
        left.insert((sessions.len(), events));
        second.close().await;
        let inspection = Inspection::open(&data).unwrap();
        assert_eq!(inspection.database().unwrap(), [], "{back} bytes");
    }
    assert!(left.len() >= 3, "the cuts reached {left:?}");
    first.go_on();
    first.close().await;
}

/// As a process that was killed leaves it, on a disk without any room: not even the index of the write-ahead log can be made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_on_a_full_disk_serves_what_is_read_and_goes_on_when_there_is_room() {
    let _turn = TURN.lock().await;
    let home = tempfile::tempdir().unwrap();
    let first = house(home.path()).await;
    first.session(json!({ "sessionId": "t" })).await;
    assert_eq!(first.prompt("t", "one").await["status"], "completed");
    first.round(&[Does::Says("so far"), Does::Waits]);
    let mut events = first.events("s", "").await;
    let going = first.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "two" }))).await;
    let waiting = first.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "three" }))).await;
    assert_eq!((going.status, waiting.status), (202, 202));
    events.until("stream.delta").await;
    let left = tempfile::tempdir().unwrap();
    let data = left.path().join("data");
    std::fs::create_dir(&data).unwrap();
    for name in ["simse.db", "simse.db-wal", "lock"] {
        std::fs::copy(home.path().join("data").join(name), data.join(name)).unwrap();
    }
    fail(libc::ENOSPC, 0, false);
    let storage = Storage::Directory(data.clone());
    let second = House::with(ListenOptions::default(), |settings| taken_over(settings, storage)).await;
    assert_eq!(store_status(&second).await, (503, "unhealthy".to_owned()));
    let reads = ["", "/s", "/s?snapshot=true", "/s/history", "/s/turns", "/t", "/t?snapshot=true"];
    for path in reads {
        assert_eq!(second.call("GET", &format!("/sessions{path}"), None).await.status, 200, "{path}");
    }
    second.events("t", "").await.until("session.completed").await;
    second.events("s", "").await.until("stream.delta").await;
    // All say the same of the turn that was cut off, and of the one behind it.
    let seen = second.call("GET", "/sessions/s", None).await.json();
    assert_eq!((&seen["queued"], seen.get("turn")), (&json!(1), None), "{seen}");
    let turns = second.call("GET", "/sessions/s/turns", None).await.json();
    let statuses: Vec<_> = turns["items"].as_array().unwrap().iter().map(|turn| &turn["status"]).collect();
    assert_eq!(statuses, ["queued", "failed", "completed"], "{turns}");
    for body in [json!({}), json!({ "turnId": turns["items"][1]["turnId"] })] {
        let late = second.call("POST", "/sessions/s/abort", Some(body)).await;
        assert_eq!((late.status, &late.json()["error"]["details"]["status"]), (409, &json!("failed")), "{late:?}");
    }
    // What has to be written is refused: a new turn, and whatever comes behind one that is not ended yet.
    for session in ["s", "t"] {
        let refused =
            second.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "no" }))).await;
        assert_eq!((refused.status, refused.code().as_str()), (500, "INTERNAL"), "{refused:?}");
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains("simse.db"), "{refused:?}");
    }
    // Nothing is lost by a stop now, and none is told.
    let third = tempfile::tempdir().unwrap();
    for name in ["simse.db", "simse.db-wal", "lock"] {
        std::fs::copy(data.join(name), third.path().join(name)).unwrap();
    }
    let storage = Storage::Directory(third.path().to_owned());
    let stopped = House::with(ListenOptions::default(), |settings| taken_over(settings, storage)).await;
    stopped.events("s", "").await.until("stream.delta").await;
    stopped.app.shutdown(Duration::ZERO).await.unwrap();
    heal();
    // By itself: nobody asks for anything.
    let turn = |told: &support::http::Reply| told.json()["turnId"].as_str().unwrap().to_owned();
    let mut ended = Vec::new();
    for turn in [turn(&going), turn(&waiting)] {
        ended.push(loop {
            let record = second.call("GET", &format!("/sessions/s/turns/{turn}"), None).await.json();
            if ["completed", "failed"].contains(&record["status"].as_str().unwrap()) {
                break record;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        });
    }
    assert_eq!(ended[0]["error"]["message"], "interrupted by restart", "{ended:?}");
    assert_eq!(ended[1]["status"], "completed", "{ended:?}");
    assert_eq!(store_status(&second).await, (200, "ok".to_owned()));
    assert_eq!(second.prompt("t", "yes").await["status"], "completed");
    second.close().await;
    let inspection = Inspection::open(&data).unwrap();
    assert_eq!(inspection.database().unwrap(), []);
    first.go_on();
    first.close().await;
}

/// What is written to a database that nobody can find any more would be lost: it is refused, and told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_that_is_taken_away_takes_nothing_until_it_is_back() {
    let _turn = TURN.lock().await;
    let home = tempfile::tempdir().unwrap();
    let house = house(home.path()).await;
    let (data, away) = (home.path().join("data"), home.path().join("away"));
    let status = async |wanted: u16| {
        while store_status(&house).await.0 != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    std::fs::rename(&data, &away).unwrap();
    status(503).await;
    let refused = house.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "no" }))).await;
    assert_eq!((refused.status, refused.code().as_str()), (500, "INTERNAL"), "{refused:?}");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("taken away"), "{refused:?}");
    assert_eq!(house.call("GET", "/sessions/s/history", None).await.status, 200);
    std::fs::rename(&away, &data).unwrap();
    status(200).await;
    assert_eq!(house.prompt("s", "yes").await["status"], "completed");
    house.close().await;
}

/// A whole server over a directory, with a session that has a finished turn.
async fn house(data: &Path) -> House {
    install();
    let storage = Storage::Directory(data.join("data"));
    let house = House::with(ListenOptions::default(), |settings| settings.storage = storage).await;
    house.session(json!({ "sessionId": "s" })).await;
    assert_eq!(house.prompt("s", "one").await["status"], "completed");
    house
}

/// A server whose sessions another one made, in a directory of its own.
fn taken_over(settings: &mut Settings, storage: Storage) {
    settings.storage = storage;
    settings.allowed_roots = vec![std::env::temp_dir()];
}

async fn store_status(house: &House) -> (u16, String) {
    let health = house.call("GET", "/health", None).await;
    (health.status, health.json()["checks"]["store"]["status"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_disk_fails_says_so_loses_nothing_and_comes_back() {
    let _turn = TURN.lock().await;
    for errno in [libc::ENOSPC, libc::EIO, libc::EROFS] {
        let home = tempfile::tempdir().unwrap();
        let house = house(home.path()).await;
        house.session(json!({ "sessionId": "t" })).await;
        let mut events = house.events("s", "").await;
        events.until("session.completed").await;
        house.round(&[Does::Says("so far"), Does::Waits, Does::Says(" and further")]);
        let going = house.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "two" }))).await;
        assert_eq!(going.status, 202, "{going:?}");
        events.until("stream.delta").await;
        fail(errno, 0, false);

        // What has to be written is refused, in the form that all errors have, and nothing of it happens.
        for (path, body) in
            [("/sessions", json!({ "sessionId": "u" })), ("/sessions/t/prompt", json!({ "prompt": "no" }))]
        {
            let refused = house.call("POST", path, Some(body)).await;
            let said = refused.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert_eq!((refused.status, refused.code().as_str()), (500, "INTERNAL"), "{errno} {path}: {refused:?}");
            assert!(said.contains("simse.db"), "{errno} {path}: {said}");
        }
        assert_eq!(store_status(&house).await, (503, "unhealthy".to_owned()), "errno {errno}");
        // Who reads goes on.
        for path in ["/sessions", "/sessions/s", "/sessions/s/history", "/sessions/s/turns", "/tools"] {
            assert_eq!(house.call("GET", path, None).await.status, 200, "errno {errno}: {path}");
        }
        let mut second = house.events("s", "").await;
        second.until("stream.delta").await;
        // The turn under way comes to its end, which cannot be written down.
        house.go_on();
        heal();
        assert_eq!(store_status(&house).await, (200, "ok".to_owned()), "errno {errno}");

        // It ends in the log all the same, once; and the session goes on.
        let path = format!("/sessions/s/turns/{}", going.json()["turnId"].as_str().unwrap());
        let ended = loop {
            let record = house.call("GET", &path, None).await.json();
            if ["completed", "failed"].contains(&record["status"].as_str().unwrap()) {
                break record;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(house.prompt("s", "three").await["status"], "completed", "errno {errno}: {ended}");
        assert_eq!(house.prompt("t", "yes").await["status"], "completed", "errno {errno}");
        let list = house.call("GET", "/sessions", None).await.json();
        let ids: Vec<&str> =
            list["items"].as_array().unwrap().iter().map(|s| s["sessionId"].as_str().unwrap()).collect();
        assert_eq!(ids, ["t", "s"], "errno {errno}: what was refused is not there");
        // Whoever watched all along and whoever came in between saw the same, without a gap.
        let last = house.call("GET", "/sessions/s", None).await.json()["lastSeq"].as_u64().unwrap();
        let mut whole = house.events("s", "").await;
        let (mut seqs, mut ends) = (Vec::new(), 0);
        while seqs.len() as u64 != last {
            let frame = whole.event().await;
            if frame.id.is_some() {
                seqs.push(frame.data["seq"].as_u64().unwrap());
                let own = frame.data["turnId"] == ended["turnId"];
                ends += usize::from(own && ["session.completed", "session.error"].contains(&frame.kind()));
            }
        }
        assert_eq!((seqs, ends), ((1..=last).collect(), 1), "errno {errno}: {ended}");
        house.close().await;
        let inspection = Inspection::open(&home.path().join("data")).unwrap();
        assert_eq!(inspection.database().unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_a_slow_disk_answers_whoever_writes_nothing() {
    let _turn = TURN.lock().await;
    let home = tempfile::tempdir().unwrap();
    let house = house(home.path()).await;
    SLOW_US.store(100_000, Ordering::SeqCst);
    let mut write = Box::pin(house.call("POST", "/sessions", Some(json!({ "sessionId": "t" }))));
    let mut reads = 0;
    let made = loop {
        // Each read is answered while the write waits for the disk.
        let read = house.call("GET", "/sessions/s/history", None);
        match futures_util::future::select(write.as_mut(), std::pin::pin!(read)).await {
            futures_util::future::Either::Left((made, _)) => break made,
            futures_util::future::Either::Right((read, _)) => {
                assert_eq!(read.status, 200);
                reads += 1;
            }
        }
    };
    SLOW_US.store(0, Ordering::SeqCst);
    assert_eq!(made.status, 201, "{made:?}");
    drop(write);
    assert!(reads >= 3, "{reads} reads beside a write that takes some tenths of a second");
    house.close().await;
}
