//! `simse serve` as a program: what it says, where it puts what, and how it ends.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode};
use rustix::process::Signal;
use serde_json::{Value, json};
use simse::config::data_directory::ServerFile;
use tokio::io::AsyncReadExt as _;

use crate::support::binary::{Serving, ended, simse};
use crate::support::http::{PATIENCE, request};

const DATA: &str = ".local/share/simse";

async fn run(home: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    ended(simse(home).args(arguments).spawn().unwrap()).await
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn help_and_usage_have_their_codes() {
    let home = tempfile::tempdir().unwrap();
    let (code, out, _) = run(home.path(), &["--help"]).await;
    assert_eq!(code, Some(0));
    assert!(out.contains("serve") && out.contains("start") && out.contains("Exit codes"), "{out}");
    let (code, out, _) = run(home.path(), &["serve", "--help"]).await;
    assert_eq!(code, Some(0));
    for flag in ["--port", "--host", "--cwd", "--data-dir", "--model", "--config", "--port-file", "--max-iterations"] {
        assert!(out.contains(flag), "{flag}");
    }
    #[rustfmt::skip]
    let table: &[(&[&str], &str)] = &[
        (&["serve", "--prot", "1"], "--prot"),
        (&["serve", "--port", "x"], "--port"),
        (&["serve", "--cwd", "nowhere"], "--cwd"),
        (&["serve", "--config", "nowhere.toml"], "nowhere.toml"),
        (&["serve", "--max-iterations", "0"], "--max-iterations"),
        (&["serve", "--model", "no/such", "--port", "0"], "no/such"),
        (&["start", "--cwd", "."], "--prompt"),
        (&["dance"], "dance"),
    ];
    for (arguments, word) in table {
        let (code, out, err) = run(home.path(), arguments).await;
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.contains(word), "{arguments:?}: {err}");
    }
}

/// Who has read `server.json` can tell the server from what may have taken its port, and says no secret for it.
async fn shows_that_it_is_the_one(serving: &Serving, data: &Path) {
    assert_eq!(mode(&data.join("server.json")), 0o600);
    let key = ServerFile::read(data).unwrap().key.unwrap();
    for nonce in ["0123456789abcdef".repeat(4), "AB".repeat(16)] {
        let reply = request(serving.address, "GET", &format!("/proof/{nonce}")).send(serving.address).await;
        assert_eq!((reply.status, reply.json()["proof"].as_str()), (200, key.prove(&nonce).as_deref()));
    }
    for wrong in ["a", "g123456789abcdef0123456789abcdef"] {
        let reply = request(serving.address, "GET", &format!("/proof/{wrong}")).send(serving.address).await;
        assert_eq!((reply.status, reply.json()["error"]["details"]["field"].as_str()), (400, Some("nonce")));
    }
}

#[tokio::test]
async fn a_start_leaves_what_clients_need_and_a_stop_takes_it_away() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let data = home.path().join(DATA);
    assert_eq!((mode(&data), mode(&data.join("token"))), (0o700, 0o600));
    let found: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).unwrap()).unwrap();
    assert_eq!(found["url"], json!(format!("http://{}", serving.address)));
    assert_eq!(
        (found["port"].as_u64(), found["pid"].as_u64()),
        (Some(serving.address.port().into()), serving.child.id().map(u64::from))
    );
    shows_that_it_is_the_one(&serving, &data).await;
    assert_eq!(serving.request("GET", "/tools").send(serving.address).await.status, 200);
    assert_eq!(request(serving.address, "GET", "/tools").send(serving.address).await.status, 401);
    let token = std::fs::read_to_string(data.join("token")).unwrap();
    let key = ServerFile::read(&data).unwrap().key.unwrap();
    let (code, out, err) = serving.stop().await;
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    for word in ["listening", "model", "data", "token", "Ctrl-C", "GET", "/tools", "stopped"] {
        assert!(err.contains(word), "{word}: {err}");
    }
    assert!(!err.contains(token.trim()), "the token is in the log");
    assert!(!data.join("server.json").exists());
    // The token stays the same, and so do the sessions.
    let again = Serving::start(&home, &["--log-format", "json"]).await;
    assert_eq!(std::fs::read_to_string(data.join("token")).unwrap(), token);
    assert_ne!(ServerFile::read(&data).unwrap().key.unwrap(), key, "each run has its own");
    assert_eq!(again.request("GET", "/health").send(again.address).await.status, 200);
    let (_, _, err) = again.stop().await;
    let lines: Vec<Value> = err.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let request = lines.iter().find(|line| line["message"] == "request").expect("a line for the request");
    assert_eq!(
        (&request["method"], &request["path"], &request["status"]),
        (&json!("GET"), &json!("/health"), &json!(200))
    );
    assert!(request["durationMs"].is_f64() && request["bytes"].as_u64() > Some(0), "{request}");
}

#[tokio::test]
async fn a_second_process_on_the_data_is_told_so() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let (code, _, err) = run(home.path(), &["serve", "--port", "0"]).await;
    assert_eq!(code, Some(3), "{err}");
    let pid = serving.child.id().unwrap().to_string();
    assert!(err.contains("in use") && err.contains(DATA) && err.contains(&pid), "{err}");
    // The first one is as well as before.
    assert_eq!(serving.request("GET", "/health").send(serving.address).await.status, 200);
    serving.stop().await;
}

#[tokio::test]
async fn what_stands_in_the_way_of_a_start_is_named() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let port = serving.address.port().to_string();
    std::fs::write(home.path().join("file"), "x").unwrap();
    #[rustfmt::skip]
    let table: &[(&[&str], &str)] = &[
        (&["--port", &port, "--data-dir", "other"], &port),
        (&["--port", "0", "--data-dir", "file"], "file"),
        (&["--port", "0", "--data-dir", "/proc/simse"], "/proc/simse"),
        (&["--port", "0", "--data-dir", "d1", "--host", "0.0.0.0"], "--allow-public"),
        (&["--port", "0", "--data-dir", "d2", "--host", "0.0.0.0", "--allow-public", "--no-auth"], "--no-auth"),
        (&["--port", "0", "--data-dir", "d3", "--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (&["--port", "0", "--data-dir", "d4", "--port-file", "missing/port"], "missing/port"),
    ];
    for (arguments, word) in table {
        let (code, out, err) = ended(simse(home.path()).arg("serve").args(*arguments).spawn().unwrap()).await;
        assert_eq!((code, out.as_str()), (Some(3), ""), "{arguments:?}: {err}");
        assert!(err.contains(word), "{arguments:?}: {err}");
        assert!(!err.contains("panicked"), "{arguments:?}: {err}");
    }
    serving.stop().await;
}

#[tokio::test]
async fn a_data_directory_that_others_can_touch_is_closed_or_refused() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join(DATA);
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    // All that a server leaves is known as ours.
    let worked = async |arguments: &[&str]| {
        let serving = Serving::start(&home, arguments).await;
        let body = json!({ "sessionId": "s" });
        serving.request("POST", "/sessions").json(&body).send(serving.address).await;
        let body = json!({ "prompt": "x" });
        let reply = serving.request("POST", "/sessions/s/prompt?wait=true").json(&body).send(serving.address).await;
        assert_eq!(reply.status, 200);
        assert_eq!(mode(&data), 0o700);
        serving.child
    };
    std::fs::create_dir_all(&data).unwrap();
    open(&data, 0o777);
    let create = |name: &'static str| ["token", "create", name, "--role", "operator"];
    assert_eq!(run(home.path(), &create("ci")).await.0, Some(0));
    // Killed, it leaves more than one that was stopped.
    for opened in [0o755, 0o777] {
        let mut child = worked(&["--memory"]).await;
        child.kill().await.unwrap();
        open(&data, opened);
    }
    assert_eq!(run(home.path(), &create("cd")).await.0, Some(0));
    assert_eq!(mode(&data), 0o700);

    std::fs::write(data.join("notes.txt"), "mine").unwrap();
    open(&data, 0o775);
    let close = format!("chmod 700 {}", data.display());
    for arguments in [&["serve", "--port", "0"][..], &["serve", "--stdio"], &create("ce")] {
        let (code, out, err) = run(home.path(), arguments).await;
        assert_eq!((code, out.as_str()), (Some(3), ""), "{arguments:?}: {err}");
        assert!(err.contains("mode 0775") && err.contains(&close), "{arguments:?}: {err}");
    }
    // Others may look, and are told of.
    open(&data, 0o755);
    for (format, says) in [("text", "chmod 700"), ("json", "other users can look into the data directory")] {
        let serving = Serving::start(&home, &["--log-format", format]).await;
        let (code, _, err) = serving.stop().await;
        assert!(code == Some(0) && err.contains(says), "{err}");
    }
    assert_eq!(mode(&data), 0o755);
}

#[tokio::test]
async fn files_that_are_none_are_named_and_never_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("directory")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::fs::write(at("large"), "# \n".repeat(1 << 20)).unwrap();
    std::fs::write(at("bytes"), b"model = '\xff'").unwrap();
    for (data, kind) in [("data-pipe", "pipe"), ("data-directory", "directory"), ("data-device", "/dev/zero")] {
        std::fs::create_dir(at(data)).unwrap();
        std::os::unix::fs::symlink(at(kind), at(data).join("token")).unwrap();
    }
    std::fs::create_dir(at("data-open")).unwrap();
    std::fs::write(at("data-open/token"), "sesame").unwrap();
    std::fs::set_permissions(at("data-open/token"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let (pipe, directory, device) = ("found a named pipe", "found a directory", "found a device");
    #[rustfmt::skip]
    let table: &[(&str, &str, i32, &str, &str)] = &[
        ("--config", "pipe", 2, "/pipe", pipe),
        ("--config", "directory", 2, "/directory", directory),
        ("--config", "/dev/zero", 2, "/dev/zero", device),
        ("--config", "large", 2, "/large", "at most 1048576 bytes"),
        ("--config", "bytes", 2, "/bytes", "UTF-8"),
        ("--data-dir", "data-pipe", 3, "data-pipe/token", pipe),
        ("--data-dir", "data-directory", 3, "data-directory/token", directory),
        ("--data-dir", "data-device", 3, "data-device/token", device),
        ("--data-dir", "data-open", 3, "data-open/token", "chmod 600"),
        ("--port-file", "pipe", 3, "/pipe", pipe),
        ("--port-file", "directory", 3, "/directory", directory),
        ("--port-file", "/dev/null", 3, "/dev/null", device),
        ("--port-file", "missing/port", 3, "missing/port", "No such file"),
    ];
    for (flag, value, code, place, problem) in table {
        let started = Instant::now();
        let (got, out, err) = run(home.path(), &["serve", "--port", "0", flag, value]).await;
        assert_eq!((got, out.as_str()), (Some(*code), ""), "{flag} {value}: {err}");
        assert!(err.contains(place) && err.contains(problem), "{flag} {value}: {err}");
        assert!(started.elapsed() < Duration::from_secs(15), "{flag} {value}");
    }
    // A pipe in the place of what a running server leaves there is no reason to wait either.
    let serving = Serving::start(&home, &[]).await;
    let left = home.path().join(DATA).join("server.json");
    std::fs::remove_file(&left).unwrap();
    std::fs::rename(at("pipe"), &left).unwrap();
    let (code, _, err) = run(home.path(), &["serve", "--port", "0"]).await;
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("in use"), "{err}");
    serving.stop_well().await;
}

#[tokio::test]
async fn no_auth_is_open_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--no-auth"]).await;
    assert_eq!(request(serving.address, "GET", "/tools").send(serving.address).await.status, 200);
    let (_, _, err) = serving.stop().await;
    assert!(err.contains("--no-auth"), "{err}");
}

#[tokio::test]
async fn sessions_outlive_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let first = Serving::start(&home, &[]).await;
    let body = json!({ "sessionId": "s1", "title": "kept" });
    assert_eq!(first.request("POST", "/sessions").json(&body).send(first.address).await.status, 201);
    first.stop().await;
    let second = Serving::start(&home, &[]).await;
    let shown = second.request("GET", "/sessions/s1").send(second.address).await;
    assert_eq!((shown.status, &shown.json()["title"]), (200, &json!("kept")));
    let mut stream = second.request("GET", "/sessions/s1/events").open(second.address).await;
    assert_eq!(stream.until("session.created").await.last().unwrap().id, Some(1));
    second.stop().await;
}

#[tokio::test]
async fn an_interrupt_is_a_stop_too_and_a_second_signal_ends_at_once() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    serving.signal(Signal::INT);
    assert_eq!(ended(serving.child).await.0, Some(0));

    // A turn that waits for a model that never answers holds the stop up until its grace is over.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", silent.local_addr().unwrap());
    let serving = Serving::start(&home, &["--openai-base-url", &url, "--shutdown-grace-ms", "60000"]).await;
    let session = serving.request("POST", "/sessions").send(serving.address).await.json();
    let path = format!("/sessions/{}/prompt", session["sessionId"].as_str().unwrap());
    let accepted = serving.request("POST", &path).json(&json!({ "prompt": "x" })).send(serving.address).await;
    assert_eq!(accepted.status, 202, "{}", accepted.json());
    let connection = silent.accept().await.unwrap();
    serving.signal(Signal::TERM);
    // The door closes first.
    let started = Instant::now();
    while tokio::net::TcpStream::connect(serving.address).await.is_ok() {
        assert!(started.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    serving.signal(Signal::TERM);
    let (code, _, err) = ended(serving.child).await;
    assert_eq!(code, Some(128 + 15), "{err}");
    assert!(started.elapsed() < Duration::from_secs(20));
    drop(connection);
}

#[tokio::test]
async fn a_stop_ends_though_nobody_reads_what_is_logged() {
    for format in ["text", "json"] {
        let home = tempfile::tempdir().unwrap();
        let Serving { mut child, address, .. } = Serving::start(&home, &["--log-format", format]).await;
        // More lines than the pipe of stderr takes; each of them has the request's id.
        let id = "x".repeat(100);
        for _ in 0..1_000 {
            let reply = request(address, "GET", "/health").header("x-request-id", &id).send(address).await;
            assert_eq!(reply.status, 200);
        }
        let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends").unwrap();
        assert_eq!(status.code(), Some(0));
        let mut said = String::new();
        stderr.read_to_string(&mut said).await.unwrap();
        assert!(said.contains(&id) && !said.contains("stopped"), "{format}: all of it was taken, {} bytes", said.len());
    }
}

#[tokio::test]
async fn a_turn_that_does_not_end_is_aborted_by_a_stop() {
    let home = tempfile::tempdir().unwrap();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", silent.local_addr().unwrap());
    let serving = Serving::start(&home, &["--openai-base-url", &url, "--shutdown-grace-ms", "100"]).await;
    let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": "s" }));
    assert_eq!(create.send(serving.address).await.status, 201);
    let prompt = serving.request("POST", "/sessions/s/prompt").json(&json!({ "prompt": "x" }));
    assert_eq!(prompt.send(serving.address).await.status, 202);
    let connection = silent.accept().await.unwrap();
    let mut watching = serving.request("GET", "/sessions/s/events").open(serving.address).await;
    watching.until("session.prompt").await;
    // One that waits is accepted, and who waits for its end hears so.
    let queued = serving.request("POST", "/sessions/s/prompt?wait=true").json(&json!({ "prompt": "later" }));
    let address = serving.address;
    let waiting = tokio::spawn(async move { queued.send(address).await });
    watching.until("turn.queued").await;
    let (code, _, err) = serving.stop().await;
    assert_eq!(code, Some(0), "{err}");
    let reply = waiting.await.unwrap();
    assert_eq!((reply.status, &reply.json()["status"]), (202, &json!("queued")));
    // Who watched has seen the end, and then the end of the stream.
    watching.until("abort").await;
    while watching.frame().await.is_some() {}
    drop(connection);
    let again = Serving::start(&home, &[]).await;
    let mut stream = again.request("GET", "/sessions/s/events").open(again.address).await;
    let seen = stream.until("abort").await;
    assert_eq!(seen.last().unwrap().data["type"], "abort");
    again.stop().await;
}

/// A limit to the size of files (`ulimit -f`) is a full disk, and no reason to end.
#[tokio::test]
async fn a_limit_to_the_size_of_files_refuses_what_is_written() {
    use rustix::process::{Resource, Rlimit, prlimit};
    let home = tempfile::tempdir().unwrap();
    let server = Serving::start(&home, &[]).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.child.id().unwrap()).unwrap());
    let before = prlimit(pid, Resource::Fsize, Rlimit { current: Some(64 << 10), maximum: None }).unwrap();
    let create = server.request("POST", "/sessions").json(&json!({ "title": "t".repeat(200) }));
    let mut refused = None;
    for _ in 0..5_000 {
        let reply = create.send(server.address).await;
        if reply.status != 201 {
            refused = Some((reply.status, reply.code()));
            break;
        }
    }
    assert_eq!(refused, Some((500, "INTERNAL".into())), "what does not fit is refused");
    assert_eq!(server.request("GET", "/sessions").send(server.address).await.status, 200);
    prlimit(pid, Resource::Fsize, before).unwrap();
    assert_eq!(create.send(server.address).await.status, 201, "there is room again");
    server.stop_well().await;
}

/// Whoever collects JSON finds why there is no server.
#[tokio::test]
async fn a_refused_start_says_why_in_the_format_of_the_log() {
    for format in ["text", "json"] {
        for door in [&["--port", "0"][..], &["--stdio"]] {
            let home = tempfile::tempdir().unwrap();
            let data = home.path().join("data");
            std::fs::create_dir(&data).unwrap();
            std::fs::write(data.join("simse.db"), "this is no database").unwrap();
            let mut command = simse(home.path());
            command.args(["serve", "--data-dir", "data", "--log-format", format]).args(door);
            let (code, out, err) = ended(command.spawn().unwrap()).await;
            assert_eq!((code, out.as_str()), (Some(3), ""), "{err}");
            let said: Vec<String> = match format {
                "json" => err
                    .lines()
                    .map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line))
                    .filter(|line| line["level"] == "ERROR")
                    .map(|line| line["message"].as_str().unwrap().to_owned())
                    .collect(),
                _ => err.lines().filter_map(|line| line.strip_prefix("simse: ").map(str::to_owned)).collect(),
            };
            assert!(said.iter().any(|line| line.contains("simse.db")), "{format} {door:?}: {err}");
        }
    }
}
