//! `simse serve` as a service: a supervisor hears how it is, its configuration is read again while it runs, and `simse config`
//! says what is wrong with one.

use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::{Serving, ended, simse};
use crate::support::http::{PATIENCE, within};

/// A supervisor's socket: what is said there, one message after the other.
struct Ear(UnixDatagram);

impl Ear {
    /// The next message that holds this line.
    fn hears(&self, line: &str) -> String {
        let mut message = [0; 4096];
        loop {
            let length = match self.0.recv(&mut message) {
                // The end of another test's child comes as a signal.
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => continue,
                received => received.unwrap_or_else(|cause| panic!("waiting for {line}: {cause}")),
            };
            let text = String::from_utf8(message[..length].to_vec()).unwrap();
            if text.lines().any(|said| said == line) {
                return text;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_hears_how_it_is() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let name = format!("simse-service-{}", uuid::Uuid::now_v7());
    let sockets = [
        (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
        (UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(), format!("@{name}")),
    ];
    for (socket, address) in sockets {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let ear = Ear(socket);
        let variables = [("NOTIFY_SOCKET", address), ("WATCHDOG_USEC", "200000".to_owned())];
        let serving = Serving::start_with(&home, &[], &variables).await;
        let pid = serving.child.id().unwrap();
        let ready = ear.hears("READY=1");
        assert!(ready.contains(&format!("MAINPID={pid}\n")) && ready.contains(&serving.address.to_string()), "{ready}");
        ear.hears("WATCHDOG=1");
        serving.signal(Signal::HUP);
        ear.hears("RELOADING=1");
        assert!(ear.hears("READY=1").contains("STATUS=the configuration was read again"));
        let (code, ..) = serving.stop().await;
        assert_eq!(code, Some(0));
        assert!(ear.hears("STOPPING=1").contains("EXTEND_TIMEOUT_USEC="));
    }
}

async fn health(serving: &Serving) -> Value {
    serving.request("GET", "/health?verbose=true").send(serving.address).await.json()
}

/// The health once it says so of the configuration.
async fn until(serving: &Serving, status: &str) -> Value {
    let begun = Instant::now();
    loop {
        let told = health(serving).await;
        if told["checks"]["configuration"]["status"] == status {
            return told;
        }
        assert!(begun.elapsed() < PATIENCE, "not {status}: {told}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn limits(told: &Value) -> BTreeMap<String, u64> {
    let one = |one: &Value| (one["name"].as_str().unwrap().to_owned(), one["limit"].as_u64().unwrap());
    told["limits"].as_array().unwrap().iter().map(one).collect()
}

/// Written beside and moved there, as editors do.
fn write(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, file).unwrap();
}

#[tokio::test]
async fn a_changed_configuration_counts_at_once_where_it_can() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("simse.toml");
    write(&file, "sessions_max = 10\n");
    let mut serving = Serving::start(&home, &["--config", "simse.toml"]).await;
    assert_eq!(health(&serving).await["checks"].get("configuration"), None);
    let session = serving.request("POST", "/sessions").json(&json!({})).send(serving.address).await.json();
    let explain = async |serving: &Serving| {
        let body = json!({ "sessionId": session["sessionId"], "tool": "bash", "arguments": { "command": "ls" } });
        serving.request("POST", "/permissions/explain").json(&body).send(serving.address).await.json()["decision"]
            .clone()
    };
    assert_eq!(explain(&serving).await, "ask");

    write(
        &file,
        "sessions_max = 11\nlog_level = 'debug'\nlog_filter = 'simse::store=off'\n[[permissions.rules]]\ntool = 'bash'\npattern = 'ls'\npolicy = 'deny'\n",
    );
    let told = until(&serving, "ok").await;
    assert_eq!(limits(&told)["sessions"], 11);
    assert_eq!(explain(&serving).await, "deny", "a session that is awake follows");

    // What is broken changes nothing, and is told with its line.
    write(&file, "sessions_max = 12\nlog_levle = 'off'\n");
    let told = until(&serving, "broken").await;
    let reason = told["checks"]["configuration"]["reason"].as_str().unwrap();
    assert_eq!(reason, "line 2: `log_levle` is not known; did you mean `log_level`?");
    assert_eq!(limits(&told)["sessions"], 11);
    write(&file, "sessions_max = 12\nmodel = 'no/such'\n");
    let begun = Instant::now();
    while !health(&serving).await["checks"]["configuration"]["reason"].to_string().contains("no/such") {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(limits(&health(&serving).await)["sessions"], 11);

    // Hooks come, are refused where they are wrong, and go.
    let prompt = async |serving: &Serving| {
        let path = format!("/sessions/{}/prompt", session["sessionId"].as_str().unwrap());
        serving.request("POST", &path).json(&json!({ "prompt": "hello" })).send(serving.address).await.status
    };
    let hook = |event: &str| format!("[[hooks]]\nevent = '{event}'\ncommand = 'echo no >&2; exit 2'\n");
    let types = "[[agent_types]]\nname = 'quick'\nmodel = 'demo/scripted'\ndescription = 'Q'\n";
    write(&file, &format!("sessions_max = 11\n{types}{}", hook("prompt.submit")));
    until(&serving, "ok").await;
    assert_eq!(prompt(&serving).await, 403);
    write(&file, &hook("no.such"));
    let told = until(&serving, "broken").await;
    assert!(told["checks"]["configuration"]["reason"].to_string().contains("hooks[0].event"), "{told}");
    assert_eq!(prompt(&serving).await, 403, "the one before counts still");
    write(&file, "sessions_max = 11\n");
    until(&serving, "ok").await;
    assert_eq!(prompt(&serving).await, 202);

    // What cannot count yet is told, the rest counts.
    write(&file, "sessions_max = 12\nport = 1\nconnections_max = 5\n");
    let told = until(&serving, "needs-restart").await;
    assert_eq!(told["checks"]["configuration"]["needsRestart"], json!(["connections_max"]), "the port is a flag's");
    assert_eq!(limits(&told)["sessions"], 12);
    assert!(limits(&told)["connections"] > 5);
    assert_eq!(told["status"], "ok");
    let config = serving.request("GET", "/config").send(serving.address).await.json();
    assert_eq!(config["file"], file.display().to_string());
    let setting = |name: &str| {
        let setting = config["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap();
        ["value", "default", "origin", "atOnce"].map(|field| setting[field].clone())
    };
    let path = || json!(file.display().to_string());
    assert_eq!(setting("sessions_max")[0..1], [json!(12)]);
    assert_eq!(setting("sessions_max")[2..], [path(), json!(true)]);
    assert_eq!(setting("port"), [json!(0), json!("4100"), json!("argument"), json!(false)]);
    assert_eq!(setting("connections_max")[0], Value::Null, "what is in force, not what waits for a restart");
    assert_eq!(setting("connections_max")[2], Value::Null);
    write(&file, "sessions_max = 12\n");
    until(&serving, "ok").await;
    assert!(serving.child.try_wait().unwrap().is_none());
    let (code, _, err) = serving.stop().await;
    assert_eq!(code, Some(0));
    assert!(err.contains("needs a restart") && err.contains("connections_max"), "{err}");
}

#[tokio::test]
async fn what_is_wrong_is_said_all_at_once() {
    let home = tempfile::tempdir().unwrap();
    let run = async |arguments: &[&str], variables: &[(&str, &str)]| {
        ended(simse(home.path()).args(arguments).envs(variables.iter().copied()).spawn().unwrap()).await
    };
    std::fs::write(home.path().join("bad.toml"), "prot = 1\nport = 'x'\nopenai_api_key = 7\n").unwrap();
    let (code, out, _) = run(&["config", "check", "bad.toml"], &[]).await;
    let want = "bad.toml:1: `prot` is not known; did you mean `port`?\n\
        bad.toml:2: `port`: expected a whole number from 0 to 65535; got a string\n\
        bad.toml:3: `openai_api_key`: expected a text; got an integer\n";
    assert_eq!((code, out.as_str()), (Some(2), want));
    std::fs::write(home.path().join("odd.toml"), "cwd = 'nowhere'\nroot = ['a', 'b']\ntls_cert = 'c'\n").unwrap();
    let (code, out, _) = run(&["config", "check", "odd.toml"], &[]).await;
    assert_eq!((code, out.lines().count()), (Some(2), 4), "{out}");
    let (code, out, _) = run(&["config", "check"], &[("SIMSE_PORT", "x"), ("SIMSE_NO_AUTH", "perhaps")]).await;
    assert_eq!((code, out.lines().count()), (Some(2), 2), "{out}");
    std::fs::write(
        home.path().join("good.toml"),
        "port = 7\nopenai_api_key = 'sk-secret'\n[[mcp_servers]]\nname = 'm'\ncommand = 'x'\nenv = { K = 'sk-more' }\n",
    )
    .unwrap();
    let (code, out, _) = run(&["config", "check", "good.toml"], &[]).await;
    assert_eq!((code, out.as_str()), (Some(0), "good.toml: nothing is wrong\n"));

    let (code, out, err) = run(
        &["config", "show", "--config", "good.toml"],
        &[("SIMSE_MODEL", "openai/x"), ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")],
    )
    .await;
    assert_eq!(code, Some(0), "{err}");
    let file = home.path().join("good.toml");
    for line in [
        format!("port = 7  # {}", file.display()),
        format!("openai_api_key = \"(hidden)\"  # {}", file.display()),
        "model = \"openai/x\"  # SIMSE_MODEL".to_owned(),
        "openai_base_url = \"http://127.0.0.1:1/v1\"  # OPENAI_BASE_URL".to_owned(),
        "# max_iterations is not set: 200".to_owned(),
    ] {
        assert!(out.lines().any(|said| said == line), "{line}\n{out}");
    }
    assert!(!out.contains("sk-"), "{out}");
    // An address is shown by where it leads to when there may be a secret in the rest of it.
    let (code, out, err) = run(
        &["config", "show", "--config", "good.toml"],
        &[
            ("SIMSE_OPENAI_BASE_URL", "https://h.example/v1?key=s3cret"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318/?key=s3cret"),
        ],
    )
    .await;
    assert_eq!(code, Some(0), "{err}");
    for line in [
        "openai_base_url = \"https://h.example/(hidden)\"  # SIMSE_OPENAI_BASE_URL",
        "otlp_endpoint = \"http://h:4318/(hidden)\"  # OTEL_EXPORTER_OTLP_ENDPOINT",
    ] {
        assert!(out.lines().any(|said| said == line), "{line}\n{out}");
    }
    assert!(!format!("{out}{err}").contains("s3cret"), "{out}{err}");

    let (code, out, _) = run(&["config", "schema"], &[]).await;
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &schema["properties"]["port"]["maximum"]), (Some(0), &json!(65535)));
}

/// The same under `--stdio`: the file is looked at, and SIGHUP has it read at once.
#[tokio::test]
async fn a_changed_configuration_counts_over_the_standard_streams_too() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("simse.toml");
    write(&file, "default_policy = 'ask'\n");
    let mut command = simse(home.path());
    let mut child = command
        .args(["serve", "--stdio", "--config", "simse.toml"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut decided = async || {
        let ask = json!({ "type": "explain_permission", "tool": "bash", "arguments": { "command": "make" } });
        input.write_all(format!("{ask}\n").as_bytes()).await.unwrap();
        loop {
            let frame: Value =
                serde_json::from_str(&within(output.next_line()).await.unwrap().expect("a line")).unwrap();
            if frame["type"] == "response" {
                return frame["data"]["decision"].clone();
            }
        }
    };
    let mut read_again = async || {
        let said = "the configuration was read again";
        while !within(log.next_line()).await.unwrap().expect("the log goes on").contains(said) {}
    };
    assert_eq!(decided().await, "ask");
    write(&file, "default_policy = 'deny'\n");
    read_again().await;
    assert_eq!(decided().await, "deny");
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    read_again().await;
    assert_eq!(decided().await, "deny", "and it lives");
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(within(child.wait()).await.unwrap().code(), Some(0));
}

/// The unit starts what there is, and systemd takes it, where it is here.
#[test]
fn the_unit_is_one() {
    let unit = include_str!("../../docs/simse.service");
    let line = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap();
    let mut words = line("ExecStart").split_whitespace();
    assert_eq!((words.next(), words.next()), (Some("/usr/local/bin/simse"), Some("serve")));
    for flag in words.filter_map(|word| word.strip_prefix("--")) {
        let name = flag.replace('-', "_");
        assert!(name == "config" || simse::config::Options::NAMES.contains(&name.as_str()), "{flag}");
    }
    assert_eq!((line("Type"), line("ExecReload")), ("notify", "/bin/kill -HUP $MAINPID"));
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("simse.service");
    std::fs::write(&file, unit.replace("/usr/local/bin/simse", "/bin/true")).unwrap();
    let verify = std::process::Command::new("systemd-analyze").arg("verify").arg(&file).output();
    let Ok(told) = verify else { return };
    let words = String::from_utf8_lossy(&told.stderr).into_owned();
    let ours: Vec<&str> = words.lines().filter(|line| line.contains("simse.service")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
    // Its sockets, beside it: they are for a unit of this name.
    let sockets = home.path().join("simse.socket");
    std::fs::write(&sockets, include_str!("../../docs/simse.socket")).unwrap();
    let told = std::process::Command::new("systemd-analyze").arg("verify").arg(&sockets).output().unwrap();
    let words = String::from_utf8_lossy(&told.stderr).into_owned();
    let ours: Vec<&str> = words.lines().filter(|line| line.contains("simse.socket")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

/// Fills a pipe that the process has as this descriptor, by a way of our own that does not wait.
fn fill(process: u32, descriptor: u32) {
    use std::io::{ErrorKind, Write as _};
    use std::os::unix::fs::OpenOptionsExt as _;
    let way = format!("/proc/{process}/fd/{descriptor}");
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut pipe = std::fs::File::options().write(true).custom_flags(flags).open(way).unwrap();
    for size in [4096, 1] {
        while match pipe.write(&vec![b' '; size]) {
            Ok(_) => true,
            Err(full) => {
                assert_eq!(full.kind(), ErrorKind::WouldBlock);
                false
            }
        } {}
    }
}

/// A server that cannot start ends though nobody reads why, and a job when it is told to (of one that serves: `serve.rs`).
#[tokio::test]
async fn a_start_and_a_job_end_though_nobody_reads_what_they_say() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let (_unread, full) = std::io::pipe().unwrap();
    fill(std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&full).cast_unsigned());
    let mut second = simse(home.path());
    let mut second = second.args(["serve", "--port", "0"]).stderr(full).spawn().unwrap();
    let ended = tokio::time::timeout(PATIENCE, second.wait()).await.expect("it ends");
    assert_eq!(ended.unwrap().code(), Some(3), "the directory is in use");
    serving.stop_well().await;

    let mut job = simse(home.path());
    let mut job = job.args(["start", "--prompt", "look around", "--cwd", "."]).spawn().unwrap();
    let mut said = job.stdout.take().unwrap();
    let mut first = [0];
    tokio::io::AsyncReadExt::read_exact(&mut said, &mut first).await.unwrap();
    fill(job.id().unwrap(), 1);
    fill(job.id().unwrap(), 2);
    let pid = rustix::process::Pid::from_raw(job.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let ended = tokio::time::timeout(PATIENCE, job.wait()).await.expect("it ends").unwrap();
    assert!(ended.code().is_some(), "by itself: {ended}");
}
