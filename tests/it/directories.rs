//! Directories beside the working directory: what a session may do there, who says so, and that nothing else is opened by it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use simse::config::{Settings, Storage};
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;
use tempfile::TempDir;

use super::acp::facts;
use super::sandbox::{all_there, beside_temporary};
use super::support::agent::settings;
use super::support::house::{Does, House};

/// A root with a place to work, two more directories, the server's data, and one that lies outside.
struct Ground {
    home: TempDir,
    outside: TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { home: tempfile::tempdir().unwrap(), outside: tempfile::tempdir().unwrap() };
        for name in ["work", "more", "other", "data"] {
            std::fs::create_dir(ground.at(name)).unwrap();
        }
        ground
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().canonicalize().unwrap().join(name)
    }

    async fn open(&self, change: impl FnOnce(&mut Settings)) -> House {
        House::with(ListenOptions::default(), |settings| {
            settings.working_directory = self.at("work");
            settings.allowed_roots = vec![self.at("")];
            settings.storage = Storage::Directory(self.at("data"));
            settings.permissions.default_policy = PermissionPolicy::Allow;
            change(settings);
        })
        .await
    }
}

/// Whether a call of each tool that changes a file may do so there: `fs_write`, and `bash` in its sandbox.
async fn writes(house: &House, session: &str, directory: &Path) -> [bool; 2] {
    let (one, two) = (directory.join("by-a-tool"), directory.join("by-a-command"));
    for file in [&one, &two] {
        let _ = std::fs::remove_file(file);
    }
    house.round(&[
        Does::Calls("fs_write", json!({ "path": one, "content": "x" })),
        Does::Calls("bash", json!({ "command": format!("echo x > {}", two.display()) })),
    ]);
    house.round(&[Does::Says("done")]);
    let turn = house.prompt(session, "write").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    [one.exists(), two.exists()]
}

async fn view(house: &House, session: &str) -> Value {
    house.call("GET", &format!("/sessions/{session}"), None).await.json()
}

#[tokio::test]
async fn a_session_works_in_further_directories_and_in_no_others() {
    let ground = Ground::new();
    let house = ground.open(|_| {}).await;
    let session = house.session(json!({ "additionalDirectories": [ground.at("more"), "../more"] })).await;
    let shown = view(&house, &session).await;
    assert_eq!(shown["additionalDirectories"], json!([ground.at("more")]), "each once, and where it really is");
    assert_eq!(writes(&house, &session, &ground.at("work")).await, [true, true]);
    assert_eq!(writes(&house, &session, &ground.at("more")).await, [true, true]);
    // A sandbox needs what not every machine gives; where there is none the second says nothing.
    assert!(!writes(&house, &session, &ground.at("other")).await[0]);
    let diff = house.call("GET", &format!("/sessions/{session}/diff"), None).await.json();
    assert!(diff.to_string().contains("more/by-a-tool") && diff.to_string().contains("more/by-a-command"), "{diff}");
    // They outlive the server, are those of a fork, and are changed as a whole.
    house.close().await;
    let house = ground.open(|_| {}).await;
    assert_eq!(view(&house, &session).await["additionalDirectories"], json!([ground.at("more")]));
    let fork = house.call("POST", &format!("/sessions/{session}/fork"), Some(json!({}))).await.json();
    assert_eq!(fork["additionalDirectories"], json!([ground.at("more")]));
    assert_eq!(writes(&house, &session, &ground.at("more")).await, [true, true]);
    let changed = json!({ "additionalDirectories": [ground.at("other")] });
    let changed = house.call("PATCH", &format!("/sessions/{session}"), Some(changed)).await;
    assert_eq!((changed.status, &changed.json()["additionalDirectories"]), (200, &json!([ground.at("other")])));
    assert_eq!(writes(&house, &session, &ground.at("other")).await, [true, true]);
    assert!(!writes(&house, &session, &ground.at("more")).await[0]);
    let none = house.call("PATCH", &format!("/sessions/{session}"), Some(json!({ "additionalDirectories": [] }))).await;
    assert_eq!((none.status, none.json().get("additionalDirectories")), (200, None));
    assert!(!writes(&house, &session, &ground.at("other")).await[0]);
    house.close().await;
}

#[tokio::test]
async fn what_is_no_directory_for_it_is_refused_by_its_place_in_the_list() {
    let ground = Ground::new();
    let house = ground.open(|_| {}).await;
    std::fs::write(ground.at("file"), "").unwrap();
    std::fs::create_dir(ground.at("data/within")).unwrap();
    let many: Vec<PathBuf> = (0..33).map(|_| ground.at("more")).collect();
    #[rustfmt::skip]
    let table = [
        (json!([ground.at("more"), ground.outside.path()]), "additionalDirectories[1]", "under an allowed root"),
        (json!([""]), "additionalDirectories[0]", "a directory"),
        (json!([ground.at("nothing")]), "additionalDirectories[0]", "an existing directory"),
        (json!([ground.at("file")]), "additionalDirectories[0]", "an existing directory"),
        (json!([ground.at("data")]), "additionalDirectories[0]", "server's own data"),
        (json!([ground.at("data/within")]), "additionalDirectories[0]", "server's own data"),
        (json!(many), "additionalDirectories", "at most 32 directories"),
        (json!(["more", "../nothing"]), "additionalDirectories[0]", "an existing directory"),
        (json!("x"), "additionalDirectories", "expected"),
        (json!([1]), "additionalDirectories[0]", "expected"),
    ];
    let session = house.session(json!({})).await;
    for (given, field, words) in table {
        let body = json!({ "additionalDirectories": given });
        for (method, path) in [("POST", "/sessions".to_owned()), ("PATCH", format!("/sessions/{session}"))] {
            let refused = house.call(method, &path, Some(body.clone())).await;
            let error = refused.json()["error"].clone();
            assert_eq!((refused.status, &error["details"]["field"]), (400, &json!(field)), "{method} {given}: {error}");
            assert!(error["message"].as_str().unwrap().contains(words), "{error}");
        }
    }
    // A root above the data does not lead into it.
    let session = house.session(json!({ "additionalDirectories": [ground.at("")] })).await;
    assert!(!writes(&house, &session, &ground.at("data")).await[0]);
    house.close().await;
}

#[tokio::test]
async fn a_directory_that_has_become_a_link_is_nobodys_place_to_work() {
    let ground = Ground::new();
    let house = ground.open(|_| {}).await;
    let session = house.session(json!({ "additionalDirectories": [ground.at("more")] })).await;
    for leads_to in [ground.outside.path().canonicalize().unwrap(), ground.at("other"), ground.at("data")] {
        let _ = std::fs::remove_file(ground.at("more"));
        let _ = std::fs::remove_dir_all(ground.at("more"));
        std::os::unix::fs::symlink(&leads_to, ground.at("more")).unwrap();
        house.round(&[Does::Calls("bash", json!({ "command": format!("touch {}/x", ground.at("more").display()) }))]);
        let turn = house.prompt(&session, "go").await;
        let error = (&turn["status"], &turn["error"]["details"]["field"]);
        assert_eq!(error, (&json!("failed"), &json!("additionalDirectories[0]")), "{turn}");
        assert!(!leads_to.join("x").exists());
    }
    house.close().await;
}

/// The notices of a session's newest turn.
async fn notices(house: &House, session: &str) -> Vec<Value> {
    let seen = house.events(session, "").await.until("session.completed").await;
    let notices = seen.iter().filter(|frame| frame.kind() == "client.notice");
    notices.map(|frame| frame.data["payload"].clone()).collect()
}

/// One that is gone has nothing in it: the session goes on, and whoever looks on is told. What is no directory is none to work in.
#[tokio::test]
async fn a_directory_that_is_gone_is_told_and_one_that_became_a_file_fails_the_turn() {
    let ground = Ground::new();
    let house = ground.open(|_| {}).await;
    let session = house.session(json!({ "additionalDirectories": [ground.at("other"), ground.at("more")] })).await;
    std::fs::remove_dir(ground.at("more")).unwrap();
    let turn = house.prompt(&session, "go").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let told = notices(&house, &session).await;
    let text = format!("`additionalDirectories[1]`: {} is not there", ground.at("more").display());
    assert_eq!(told, [json!({ "level": "warning", "text": text })]);
    std::fs::write(ground.at("more"), "mine").unwrap();
    house.round(&[Does::Calls("bash", json!({ "command": format!("echo x > {}", ground.at("more").display()) }))]);
    let turn = house.prompt(&session, "go").await;
    let error = &turn["error"];
    assert_eq!((&turn["status"], &error["code"]), (&json!("failed"), &json!("INVALID_ARGUMENT")), "{turn}");
    assert_eq!(error["details"]["field"], "additionalDirectories[1]");
    let said = error["message"].as_str().unwrap();
    assert!(
        said.contains("an existing directory") && said.contains(&ground.at("more").display().to_string()),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(ground.at("more")).unwrap(), "mine");
    // It comes back: nothing is wrong any more.
    std::fs::remove_file(ground.at("more")).unwrap();
    std::fs::create_dir(ground.at("more")).unwrap();
    assert_eq!(writes(&house, &session, &ground.at("more")).await, [true, true]);
    house.close().await;
}

/// A path that is not absolute is meant from where the session works, which may be told beside it.
#[tokio::test]
async fn a_relative_directory_is_one_of_the_sessions_own() {
    let ground = Ground::new();
    for directory in ["other/more", "other/deep/er"] {
        std::fs::create_dir_all(ground.at(directory)).unwrap();
    }
    let house = ground.open(|_| {}).await;
    let body = json!({ "workingDirectory": "../other", "additionalDirectories": ["more", "../more", "."] });
    let session = house.session(body).await;
    let want = json!([ground.at("other/more"), ground.at("more"), ground.at("other")]);
    assert_eq!(view(&house, &session).await["additionalDirectories"], want);
    let path = format!("/sessions/{session}");
    let changed = house.call("PATCH", &path, Some(json!({ "additionalDirectories": ["deep"] }))).await.json();
    assert_eq!(changed["additionalDirectories"], json!([ground.at("other/deep")]));
    let both = json!({ "workingDirectory": ground.at("other/deep"), "additionalDirectories": ["er", "../more"] });
    let changed = house.call("PATCH", &path, Some(both)).await.json();
    assert_eq!(changed["additionalDirectories"], json!([ground.at("other/deep/er"), ground.at("other/more")]));
    let prompt = json!({ "prompt": "go", "configure": { "additionalDirectories": ["er/.."] } });
    assert_eq!(house.call("POST", &format!("{path}/prompt"), Some(prompt)).await.status, 202);
    house.events(&session, "").await.until("session.completed").await;
    assert_eq!(view(&house, &session).await["additionalDirectories"], json!([ground.at("other/deep")]));
    let refused = house.call("PATCH", &path, Some(json!({ "additionalDirectories": ["../../../.."] }))).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["details"]["field"]),
        (400, &json!("additionalDirectories[0]"))
    );
    house.close().await;
}

/// The server's own data is nobody's place to work, by whichever name and whoever is asked to work there.
#[tokio::test]
async fn nobody_works_in_the_servers_own_data() {
    let ground = Ground::new();
    std::fs::create_dir_all(ground.at("data/within")).unwrap();
    std::os::unix::fs::symlink(ground.at("data"), ground.at("link")).unwrap();
    let house = ground.open(|_| {}).await;
    let session = house.session(json!({})).await;
    let (create, change) = ("/sessions".to_owned(), format!("/sessions/{session}"));
    for directory in [ground.at("data"), ground.at("data/within"), ground.at("link"), "../link/within".into()] {
        for (method, path) in [("POST", &create), ("PATCH", &change)] {
            let refused = house.call(method, path, Some(json!({ "workingDirectory": directory }))).await;
            let error = refused.json()["error"].clone();
            assert_eq!((refused.status, &error["details"]["field"]), (400, &json!("workingDirectory")), "{error}");
            assert!(error["message"].as_str().unwrap().contains("server's own data"), "{error}");
        }
        let prompt = json!({ "prompt": "go", "configure": { "workingDirectory": directory } });
        let refused = house.call("POST", &format!("{change}/prompt"), Some(prompt)).await;
        let field = refused.json()["error"]["details"]["field"].clone();
        assert_eq!((refused.status, field), (400, json!("configure.workingDirectory")));
    }
    house.close().await;
    // One that was made when the data lay elsewhere does not work there either.
    let open = async |data: &str| {
        let storage = Storage::Directory(ground.at(data));
        ground.open(|all| (all.working_directory, all.storage) = (ground.at("more"), storage)).await
    };
    let house = open("data").await;
    let session = house.session(json!({ "workingDirectory": ground.at("work") })).await;
    house.close().await;
    std::fs::remove_dir(ground.at("work")).unwrap();
    std::fs::rename(ground.at("data"), ground.at("work")).unwrap();
    let house = open("work").await;
    let turn = house.prompt(&session, "go").await;
    let error = (&turn["status"], &turn["error"]["details"]["field"]);
    assert_eq!(error, (&json!("failed"), &json!("workingDirectory")), "{turn}");
    house.close().await;
    // Nor one that names no directory, where the server itself was started in there.
    std::fs::create_dir_all(ground.at("data/inner")).unwrap();
    let house = ground.open(|all| all.working_directory = ground.at("data/inner")).await;
    let refused = house.call("POST", "/sessions", Some(json!({}))).await;
    assert_eq!((refused.status, &refused.json()["error"]["details"]["field"]), (400, &json!("workingDirectory")));
    house.close().await;
}

/// Where the sandbox holds: what lies beside a session's directories is not written to, whoever tries.
#[tokio::test]
async fn commands_are_held_to_the_directories_of_their_session() {
    if !all_there() {
        return;
    }
    let home = beside_temporary().unwrap();
    let ground = Ground { home, ..Ground::new() };
    for name in ["work", "more", "other", "data"] {
        std::fs::create_dir(ground.at(name)).unwrap();
    }
    let house = ground.open(|_| {}).await;
    let session = house.session(json!({ "additionalDirectories": ["../more"] })).await;
    for (directory, may) in [("work", true), ("more", true), ("other", false), ("data", false), ("", false)] {
        assert_eq!(writes(&house, &session, &ground.at(directory)).await, [may, may], "{directory}");
    }
    let changed = json!({ "additionalDirectories": ["../other"] });
    assert_eq!(house.call("PATCH", &format!("/sessions/{session}"), Some(changed)).await.status, 200);
    for (directory, may) in [("work", true), ("more", false), ("other", true)] {
        assert_eq!(writes(&house, &session, &ground.at(directory)).await, [may, may], "{directory}, changed");
    }
    house.close().await;
}

#[tokio::test]
async fn an_agent_is_told_of_them_where_it_says_that_it_takes_some() {
    for (how, told) in [("directories", true), ("", false)] {
        let ground = Ground::new();
        let loads = format!("{how} load={}", ground.home.path().display());
        let open = async || ground.open(|all| all.acp_servers = vec![settings("a", &loads)]).await;
        let house = open().await;
        let session = house.session(json!({ "agent": "a", "additionalDirectories": [ground.at("more")] })).await;
        let want = if told { json!([ground.at("more")]) } else { Value::Null };
        assert_eq!(facts(&house.prompt(&session, "facts").await)["further"], want, "{how}");
        house.close().await;
        let house = open().await;
        assert_eq!(facts(&house.prompt(&session, "facts").await)["further"], want, "{how}: opened again");
        // What it asks of us there is served in any case.
        let file = ground.at("more").join("by-an-agent");
        let params = json!({ "sessionId": "$session", "path": file, "content": "x" });
        house.prompt(&session, &format!("call fs/write_text_file {params}")).await;
        assert!(file.exists());
        house.close().await;
    }
}
