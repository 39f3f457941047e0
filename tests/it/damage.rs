//! Data directories that are not whole: `simse check` says so, and no server begins anew in silence where there was something.

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::json;

use crate::log::{prompt, script, simse};
use crate::support::model_server::ModelServer;
use crate::support::program::Program;

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn token(data: &Path, text: &str, mode: u32) {
    std::fs::write(data.join("token"), text).unwrap();
    std::fs::set_permissions(data.join("token"), std::fs::Permissions::from_mode(mode)).unwrap();
}

/// What is done to a copy, and what the check says of it.
type Case = (&'static str, fn(&Path), &'static str);

#[tokio::test]
async fn what_is_damaged_is_found_and_nothing_begins_anew_in_silence() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(script()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    prompt(&program, "s", "hi").await;
    program.kill().await;
    #[rustfmt::skip]
    let cases: [Case; 8] = [
        ("cut to nothing", |data| drop(std::fs::write(data.join("simse.db"), "")), "is empty, and simse.db-wal"),
        ("cut to nothing, log too", |data| {
            std::fs::write(data.join("simse.db"), "").unwrap();
            std::fs::remove_file(data.join("simse.db-wal")).unwrap();
        }, "is empty, and programs"),
        ("taken away", |data| std::fs::remove_file(data.join("simse.db")).unwrap(), "it is gone"),
        ("without tables", |data| {
            std::fs::remove_file(data.join("simse.db-wal")).unwrap();
            let file = std::fs::File::options().write(true).open(data.join("simse.db")).unwrap();
            file.write_all_at(&[0; 4], 60).unwrap();
        }, "it has no tables"),
        ("no database", |data| std::fs::write(data.join("simse.db"), "x".repeat(9_000)).unwrap(), "not a database"),
        ("no record of changes", |data| std::fs::write(data.join("snapshots.db"), "x".repeat(9_000)).unwrap(), "snapshots.db: file is not a database"),
        ("an empty token", |data| token(data, "", 0o600), "token"),
        ("an open token", |data| token(data, "sesame", 0o644), "expected mode 0600"),
    ];
    for (name, damage, words) in cases {
        let place = home.path().join(name.replace(' ', "-"));
        copied(&data, &place);
        damage(&place);
        let (code, said, why) = simse(&["check"], &place).await;
        assert!(code == 1 && said.contains(words) && said.contains("1 faults"), "{name}: {code} {said} {why}");
        let (code, _, why) = simse(&["serve", "--port", "0"], &place).await;
        assert_eq!(code, 3, "{name}: {why}");
    }
    // A crash in the first moment leaves an empty file, and no more: that is where a server begins.
    let young = home.path().join("young");
    std::fs::create_dir(&young).unwrap();
    std::fs::set_permissions(&young, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(young.join("simse.db"), "").unwrap();
    Program::serve(&young, &work, &model.base_url()).await.kill().await;
    assert_eq!(simse(&["check"], &young).await.0, 0);
    // Whoever takes it all away begins anew.
    for name in ["simse.db", "simse.db-wal", "simse.db-shm"] {
        drop(std::fs::remove_file(data.join(name)));
    }
    Program::serve(&data, &work, &model.base_url()).await.kill().await;
}

/// Any page may be damaged: what is wrong with the file is a fault, and never a check that could not be made.
#[tokio::test]
async fn a_damaged_page_is_a_fault() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(script()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    for session in ["a", "b", "c"] {
        program.call("POST", "/sessions", Some(json!({ "sessionId": session }))).await;
        prompt(&program, session, "call").await;
    }
    program.kill().await;
    // Opened and closed, the database is one file.
    rusqlite::Connection::open(data.join("simse.db"))
        .unwrap()
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    let pages = std::fs::metadata(data.join("simse.db")).unwrap().len() / 2_048;
    assert!(pages > 10);
    for page in 1..=pages {
        let place = home.path().join(format!("page-{page}"));
        copied(&data, &place);
        let file = std::fs::File::options().write(true).open(place.join("simse.db")).unwrap();
        // Behind the file's own head, which says what it is.
        let at = if page == 1 { 100 } else { (page - 1) * 2_048 };
        file.write_all_at(&[0xa5; 600], at).unwrap();
        let (code, said, why) = simse(&["check"], &place).await;
        assert!(
            code == 0 && said.contains("nothing is wrong") || code == 1 && said.contains("faults"),
            "{page}: {code} {said} {why}"
        );
        std::fs::remove_dir_all(&place).unwrap();
    }
}
