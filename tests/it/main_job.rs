//! `simse start`: the whole way, from an empty directory to a commit, with the program as it is shipped.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use simse::cli::example_repository;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::binary::{ended, simse};

#[tokio::test]
async fn the_main_job_ends_with_a_commit() {
    let home = tempfile::tempdir().unwrap();
    let (code, out, err) = ended(simse(home.path()).args(["start", "--once"]).spawn().unwrap()).await;
    assert_eq!(code, Some(0), "{out}\n{err}");
    let mut at = 0;
    // In this order.
    for word in [
        "not ok",
        "POST /sessions",
        "demo/scripted",
        "built-in script",
        "subtotal",
        "fs_edit",
        "git_commit",
        "== The commit",
        "-    cents += line.priceCents + line.quantity",
        "+    cents += line.priceCents * line.quantity",
        "yes: the turn ended by itself",
        "yes: the tests pass",
        "yes: there is a new commit",
        "The job is done.",
    ] {
        at += out[at..].find(word).unwrap_or_else(|| panic!("{word:?} is missing behind byte {at}:\n{out}"));
    }
    // It leaves nothing behind.
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_test_that_cannot_be_mended_is_a_failed_job() {
    let home = tempfile::tempdir().unwrap();
    let shop = home.path().join("shop");
    example_repository::create(&shop).await.unwrap();
    let test = "import test from 'node:test'\ntest('nothing helps', () => { throw new Error('never') })\n";
    std::fs::write(shop.join("test/cart.test.js"), test).unwrap();
    let arguments =
        ["start", "--once", "--yes", "--cwd", "shop", "--check", "node --test", "--prompt", example_repository::PROMPT];
    let (code, out, err) = ended(simse(home.path()).args(arguments).spawn().unwrap()).await;
    assert_eq!(code, Some(1), "{out}\n{err}");
    assert!(out.contains("NO:  the tests pass") && out.contains("The job is not done."), "{out}");
}

#[tokio::test]
async fn without_a_person_or_yes_nothing_is_changed() {
    let home = tempfile::tempdir().unwrap();
    let shop = home.path().join("shop");
    example_repository::create(&shop).await.unwrap();
    let before = std::fs::read_to_string(shop.join("src/cart.js")).unwrap();
    let arguments =
        ["start", "--once", "--cwd", "shop", "--check", "node --test", "--prompt", example_repository::PROMPT];
    let (code, out, err) = ended(simse(home.path()).args(arguments).spawn().unwrap()).await;
    assert_eq!(code, Some(1), "{out}\n{err}");
    assert!(out.contains("answered: deny"), "{out}");
    assert_eq!(std::fs::read_to_string(shop.join("src/cart.js")).unwrap(), before);
    assert!(!Path::new(&shop.join("data")).exists());
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let home = tempfile::tempdir().unwrap();
    let bare = home.path().join("bin");
    std::fs::create_dir(&bare).unwrap();
    let (code, _, err) = ended(simse(home.path()).env("PATH", &bare).args(["start", "--once"]).spawn().unwrap()).await;
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("git is needed"), "{err}");
}

#[tokio::test]
async fn a_port_file_that_cannot_be_written_is_said_before_the_job() {
    let home = tempfile::tempdir().unwrap();
    let job = ["start", "--once", "--cwd", ".", "--prompt", "look", "--port-file", "missing/port"];
    let (code, out, err) = ended(simse(home.path()).args(job).spawn().unwrap()).await;
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("missing/port") && !out.contains("it listens on"), "{out}{err}");
}

#[tokio::test]
async fn the_server_stays_up_and_its_curl_lines_work_as_printed() {
    let home = tempfile::tempdir().unwrap();
    let mut child = simse(home.path()).args(["start", "--port-file", "port"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut curls = Vec::new();
    loop {
        let line =
            tokio::time::timeout(Duration::from_secs(120), lines.next_line()).await.expect("it goes on").unwrap();
        let line = line.expect("the program ended");
        curls.extend(line.trim_start().starts_with("curl ").then(|| line.trim().to_owned()));
        if line == "Ctrl-C stops it." {
            break;
        }
    }
    assert_eq!(curls.len(), 4, "{curls:?}");
    let port = std::fs::read_to_string(home.path().join("port")).unwrap();
    assert!(curls[0].contains(&format!("127.0.0.1:{}/", port.trim())), "{port} {curls:?}");
    let shell = |command: &str| Command::new("sh").args(["-c", command]).stdout(Stdio::piped()).output();
    if shell("command -v curl").await.unwrap().status.success() {
        for (curl, word) in curls.iter().zip(["\"tools\":", "\"completed\"", "session.completed", "demo/scripted"]) {
            // The stream of a session stays open: two seconds of it are enough.
            let output = shell(&curl.replacen("curl ", "curl --max-time 2 ", 1)).await.unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains(word), "{curl}\n{text}");
        }
    }
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let (code, _, err) = ended(child).await;
    assert_eq!(code, Some(0), "{err}");
}
