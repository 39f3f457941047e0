//! The sandbox as a session meets it: what a command may do, what the model is told, and the way out.

use serde_json::{Value, json};
use simse::base::sandbox::support;
use simse::config::Storage;
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;

use crate::support::house::{Does, House};

/// A directory that the sandbox does not hold for temporary; this checkout may lie in one that is.
pub(super) fn beside_temporary() -> Option<tempfile::TempDir> {
    let temporary = ["/tmp", "/var/tmp", "/dev/shm"];
    // Where cargo builds, wherever that is.
    let built = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let places = ["/var/lib", "/opt", "/srv", env!("CARGO_MANIFEST_DIR")].map(std::path::PathBuf::from);
    let outside = built.into_iter().chain(places).filter(|place| !temporary.iter().any(|t| place.starts_with(t)));
    outside.filter_map(|place| tempfile::tempdir_in(place).ok()).next()
}

/// Whether this machine has all that is tested here; says so when not.
#[allow(clippy::print_stderr, reason = "a test that does not test says so")]
pub(super) fn all_there() -> bool {
    let mut missing = support().missing();
    if beside_temporary().is_none() {
        missing.push("there is no place beside the temporary directories");
    }
    if !missing.is_empty() {
        eprintln!("not tested here, because {}", missing.join("; "));
    }
    missing.is_empty()
}

/// Bash may run without a question; the data lies outside of where temporary files are.
async fn house(data: &std::path::Path) -> House {
    let data = data.to_owned();
    House::with(ListenOptions::default(), |settings| {
        settings.permissions.default_policy = PermissionPolicy::Allow;
        settings.storage = Storage::Directory(data);
    })
    .await
}

fn room() -> tempfile::TempDir {
    beside_temporary().unwrap()
}

fn bash(command: &str) -> Does {
    Does::Calls("bash", json!({ "command": command }))
}

/// Runs one prompt, and gives the outputs of its calls.
async fn outputs(house: &House, session: &str) -> Vec<String> {
    let mut stream = house.events(session, "").await;
    house.prompt(session, "go").await;
    let seen = stream.until("session.completed").await;
    let ends = seen.iter().filter(|frame| frame.kind() == "tool.call.end");
    ends.map(|frame| frame.data["payload"]["output"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn commands_stay_inside_and_are_told_why() {
    if !all_there() {
        return;
    }
    let (data, outside) = (room(), room());
    let house = house(data.path()).await;
    let session = house.session(json!({})).await;
    std::fs::write(data.path().join("token"), "secret").unwrap();
    let target = outside.path().join("x").display().to_string();
    house.round(&[bash("echo hi > inside && cat inside")]);
    house.round(&[bash(&format!("echo hi > {target}"))]);
    // By its name the floor refuses it already; what only the shell knows is left to the sandbox.
    house.round(&[bash(&format!("d=$(echo {}= | tr -d =); cat \"$d/token\"", data.path().display()))]);
    house.round(&[bash("python3 -m http.server 8123 --bind 127.0.0.1 >log 2>&1 &")]);
    let fetch = "import urllib.request; print(urllib.request.urlopen(\"http://127.0.0.1:8123\").status)";
    house.round(&[bash(&format!("until python3 -c '{fetch}' 2>/dev/null; do sleep 0.1; done"))]);
    let address = house.address.port();
    house.round(&[bash(&format!(
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {address}), 5)'"
    ))]);
    house.round(&[bash(&format!("touch {target} 2>&1 | cat; echo after"))]);
    let outputs = outputs(&house, &session).await;
    assert_eq!(outputs[0], "hi\n");
    assert!(outputs[1].contains("[The command ran in a sandbox (workspace-write): only "), "{}", outputs[1]);
    assert!(!outside.path().join("x").exists());
    assert!(outputs[2].starts_with("[exit code 1]\n") && !outputs[2].contains("secret"), "{}", outputs[2]);
    assert_eq!(outputs[4], "200\n", "calls of one session meet on its loopback");
    assert!(outputs[5].contains("ConnectionRefusedError"), "the server itself is not there: {}", outputs[5]);
    assert!(outputs[6].contains("\nafter\n\n[The command ran in a sandbox (workspace-write): only "), "{}", outputs[6]);
    let health = house.call("GET", "/health", None).await.json();
    assert_eq!(health["checks"]["paths"]["status"], "ok");
    assert_eq!(health["checks"]["sandbox"], json!({ "status": "ok", "mode": "workspace-write", "network": false }));
    house.close().await;
}

#[tokio::test]
async fn leaving_the_sandbox_asks_whatever_the_rules_say() {
    if !all_there() {
        return;
    }
    let (data, outside) = (room(), room());
    let house = house(data.path()).await;
    let session = house.session(json!({})).await;
    let command = format!("echo hi > {}", outside.path().join("x").display());
    let leave =
        |why: Value| Does::Calls("bash", json!({ "command": command, "outside_sandbox": true, "justification": why }));
    // Without a reason it is refused, and nobody is asked.
    house.round(&[leave(json!(" "))]);
    house.round(&[Does::Says("done")]);
    house.prompt(&session, "go").await;
    let seen = house.events(&session, "").await.until("session.completed").await;
    assert!(seen.iter().all(|frame| frame.kind() != "permission.request"));
    assert!(seen.iter().any(|frame| frame.kind() == "tool.call.error"));
    for (number, (decision, why, wrote)) in
        [("deny", json!("needed"), false), ("allow_always", json!("needed"), true), ("deny", json!("again"), true)]
            .into_iter()
            .enumerate()
    {
        house.round(&[leave(why)]);
        let mut stream = house.events(&session, "").await;
        let prompt = json!({ "prompt": "go" });
        assert_eq!(house.call("POST", &format!("/sessions/{session}/prompt"), Some(prompt)).await.status, 202);
        let mut asked = Vec::new();
        for _ in 0..=number {
            asked = stream.until("permission.request").await;
        }
        let request = asked.last().unwrap().data["payload"]["requestId"].clone();
        let feedback = json!({ "requestId": request, "decision": decision });
        let answered = house.call("POST", &format!("/sessions/{session}/feedback"), Some(feedback)).await;
        assert_eq!(answered.status, 200, "{number}: {answered:?}");
        stream.until("session.completed").await;
        assert_eq!(outside.path().join("x").exists(), wrote, "{number}");
    }
    house.close().await;
}

/// With the data directory inside the root, every tool refuses it or passes it over.
#[tokio::test]
async fn what_the_server_keeps_in_a_root_is_seen_by_no_tool() {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.permissions.default_policy = PermissionPolicy::Allow;
        settings.storage = Storage::Directory(settings.working_directory.join("deep/data"));
    })
    .await;
    let at = |path: &str| house.work.path().join(path);
    std::fs::write(at("deep/data/canary"), "sung\n").unwrap();
    std::fs::write(at("deep/seen"), "sung\n").unwrap();
    std::os::unix::fs::symlink("deep/data", at("link")).unwrap();
    let git = |arguments: &[&str]| {
        let run = std::process::Command::new("git").arg("-C").arg(house.work.path()).args(arguments).output().unwrap();
        assert!(run.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    git(&["init", "-q"]);
    for (key, value) in [("user.name", "T"), ("user.email", "t@example.org")] {
        git(&["config", key, value]);
    }
    let session = house.session(json!({})).await;
    #[rustfmt::skip]
    let calls = [
        ("fs_grep", json!({"pattern": "sung", "hidden": true, "no_ignore": true})), ("fs_grep", json!({"pattern": "sung", "path": "deep"})),
        ("fs_glob", json!({"pattern": "**/*", "hidden": true, "no_ignore": true})), ("fs_list", json!({"depth": 5})),
        ("fs_grep", json!({"pattern": "sung", "path": "link"})), ("fs_list", json!({"path": "deep/data"})), ("fs_read", json!({"path": "link/canary"})),
        ("fs_stat", json!({"path": "deep/data/canary"})), ("fs_write", json!({"path": "deep/data/new", "content": "x"})),
        ("fs_move", json!({"source": "deep", "destination": "elsewhere"})), ("fs_delete", json!({"path": "deep", "recursive": true})),
        ("apply_patch", json!({"patch": "*** Begin Patch\n*** Delete File: link/canary\n*** End Patch"})),
        ("git_add", json!({})), ("git_add", json!({"path": "deep"})), ("git_status", json!({})), ("git_commit", json!({"message": "all"})),
        ("git_stash", json!({})),
    ];
    for (tool, arguments) in calls.clone() {
        house.round(&[Does::Calls(tool, arguments)]);
    }
    let outputs = outputs(&house, &session).await;
    for ((tool, arguments), output) in calls.iter().zip(&outputs) {
        assert!(
            !output.contains("canary") || output.contains("denied") || output.contains("own data"),
            "{tool} {arguments}: {output}"
        );
    }
    assert_eq!(outputs[0], "deep/seen:1: sung");
    assert_eq!(outputs[1], "deep/seen:1: sung");
    for refused in &outputs[4..12] {
        assert!(refused.contains("own data") || refused.contains("denied"), "{refused}");
    }
    assert_eq!(git(&["ls-files"]), "deep/seen\nlink\n");
    assert_eq!(std::fs::read_to_string(at("deep/data/canary")).unwrap(), "sung\n");
    assert!(!at("deep/data/new").exists());
    house.close().await;
}

/// Hooks that a repository brings along run where bash does.
#[tokio::test]
async fn what_git_starts_is_held_to_the_sandbox() {
    if !all_there() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let (data, outside) = (room(), room());
    let house = house(data.path()).await;
    let target = outside.path().join("x");
    let hook = house.work.path().join(".git/hooks/pre-commit");
    for arguments in [&["init", "-q"][..], &["config", "user.name", "T"], &["config", "user.email", "t@example.org"]] {
        let run = std::process::Command::new("git").arg("-C").arg(house.work.path()).args(arguments).output().unwrap();
        assert!(run.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    }
    std::fs::write(house.work.path().join("a"), "1\n").unwrap();
    let session = house.session(json!({})).await;
    let text = format!("#!/bin/sh\ntouch ran && echo x > {} || exit 1\n", target.display());
    std::fs::write(&hook, text).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let commit = json!({"message": "m"});
    house.round(&[Does::Calls("git_commit", commit)]);
    // Once it is there, neither the shell nor a file tool changes it without a person.
    house.round(&[bash("echo true > .git/hooks/pre-commit")]);
    let outputs = outputs(&house, &session).await;
    assert!(outputs[0].contains("[The command ran in a sandbox (workspace-write): only "), "{}", outputs[0]);
    assert!(outputs[0].contains("call this tool again with `outside_sandbox`"), "{}", outputs[0]);
    assert!(house.work.path().join("ran").exists() && !target.exists());
    assert!(outputs[1].starts_with("[exit code") && outputs[1].contains("git hooks"), "{}", outputs[1]);
    let write = json!({ "path": ".git/hooks/pre-commit", "content": "true" });
    for (number, (tool, arguments, done)) in [
        ("fs_write", write, false),
        ("git_commit", json!({"message": "m", "outside_sandbox": true, "justification": "the hook"}), true),
    ]
    .into_iter()
    .enumerate()
    {
        house.round(&[Does::Calls(tool, arguments)]);
        let mut stream = house.events(&session, "").await;
        let prompt = json!({ "prompt": "go" });
        assert_eq!(house.call("POST", &format!("/sessions/{session}/prompt"), Some(prompt)).await.status, 202);
        let mut asked = Vec::new();
        for _ in 0..=number {
            asked = stream.until("permission.request").await;
        }
        let request = asked.last().unwrap().data["payload"]["requestId"].clone();
        let decision = if done { "allow" } else { "deny" };
        let feedback = json!({ "requestId": request, "decision": decision });
        let answered = house.call("POST", &format!("/sessions/{session}/feedback"), Some(feedback)).await;
        assert_eq!(answered.status, 200, "{tool}: {answered:?}");
        stream.until("session.completed").await;
        assert_eq!(target.exists(), done, "{tool}");
    }
    house.close().await;
}

#[tokio::test]
async fn no_variable_of_a_call_opens_a_place() {
    if !all_there() {
        return;
    }
    let (data, outside) = (room(), room());
    let house = house(data.path()).await;
    let session = house.session(json!({})).await;
    let place = outside.path().display().to_string();
    let write = format!("echo x > {place}/x");
    house.round(&[Does::Calls("bash", json!({ "command": write, "env": { "TMPDIR": place } }))]);
    house.round(&[Does::Calls("bash", json!({ "command": format!("export TMPDIR={place}"), "persist_env": true }))]);
    house.round(&[bash(&write)]);
    let outputs = outputs(&house, &session).await;
    assert!(outputs[0].starts_with("[exit code") && outputs[2].starts_with("[exit code"), "{outputs:?}");
    assert!(!outside.path().join("x").exists());
    house.close().await;
}
