//! Named tokens (contract.md, Doors): made, listed and revoked on the command line while the server runs; what each may
//! do, and whose sessions it sees.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::binary::{Serving, ended, simse};
use crate::support::house::House;
use crate::support::http::{PATIENCE, Reply, Request, request};
use crate::support::socket::Socket;

/// `simse token …`: exit code, stdout, stderr.
async fn token(home: &TempDir, arguments: &[&str]) -> (Option<i32>, String, String) {
    ended(simse(home.path()).arg("token").args(arguments).spawn().unwrap()).await
}

/// Makes a token; only it stands on stdout.
async fn made(home: &TempDir, arguments: &[&str]) -> String {
    let (code, out, err) = token(home, &[&["create"], arguments].concat()).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(!err.contains(out.trim()), "{err}");
    out.trim().to_owned()
}

/// The routes of the server, out of its document: path, and the methods that it takes.
pub fn routes() -> Vec<(String, Vec<&'static str>)> {
    let document: Value = serde_json::from_str(&simse::server::openapi_document()).unwrap();
    let table = document["paths"].as_object().unwrap().iter().map(|(path, operations)| {
        let named = |name: &&'static str| operations.get(*name).is_some();
        (path.clone(), ["get", "post", "put", "patch", "delete"].into_iter().filter(named).collect::<Vec<_>>())
    });
    let table: Vec<_> = table.collect();
    assert!(table.len() >= 15 && table.iter().all(|(_, methods)| !methods.is_empty()), "{table:?}");
    table
}

/// A body that the route would take.
fn body_of(path: &str) -> Value {
    match path.rsplit('/').next().unwrap() {
        "prompt" | "steer" => json!({ "prompt": "x" }),
        "feedback" => json!({ "requestId": "req_1", "decision": "allow" }),
        "explain" => json!({ "tool": "fs_read", "arguments": { "path": "a" } }),
        _ => json!({}),
    }
}

fn filled(path: &str, session: &str, turn: &str) -> String {
    let path = path.replace("{sessionId}", session).replace("{turnId}", turn).replace("{grantId}", "grant_1");
    path.split('/').map(|part| if part.starts_with('{') { "x_1" } else { part }).collect::<Vec<_>>().join("/")
}

struct Door<'a> {
    serving: &'a Serving,
    token: &'a str,
    client: Option<&'a str>,
}

impl Door<'_> {
    fn request(&self, method: &str, path: &str) -> Request {
        let request = request(self.serving.address, &method.to_uppercase(), path);
        let request = request.header("Authorization", &format!("Bearer {}", self.token));
        self.client.map_or(request.clone(), |client| request.header("X-Client-ID", client))
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Reply {
        let request = self.request(method, path);
        let request = if method == "get" { request } else { request.json(&body) };
        request.send(self.serving.address).await
    }

    async fn session(&self, id: &str) -> Reply {
        self.call("post", "/sessions", json!({ "sessionId": id })).await
    }

    async fn sessions(&self) -> Vec<String> {
        let list = self.call("get", "/sessions", json!({})).await.json();
        list["items"].as_array().unwrap().iter().map(|s| s["sessionId"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn each_token_has_its_own_sessions_and_anothers_are_not_there() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let owner = std::fs::read_to_string(home.path().join(".local/share/simse/token")).unwrap();
    let (ci, cd) = (made(&home, &["ci", "--role", "operator"]).await, made(&home, &["cd", "--role", "owner"]).await);
    let look = made(&home, &["look", "--role", "read-only", "--sessions-of", "ci"]).await;
    let door = |token, client| Door { serving: &serving, token, client };
    // What the server was set to is its owner's to know.
    for (token, status) in [(&ci, 403), (&look, 403), (&cd, 200)] {
        assert_eq!(door(token, None).call("get", "/config", json!({})).await.status, status);
    }
    let (of_ci, of_cd, of_owner) = (door(&ci, None), door(&cd, None), door(owner.trim(), None));
    assert_eq!(of_ci.session("theirs").await.status, 201);
    let turn = of_ci.call("post", "/sessions/theirs/prompt?wait=true", json!({ "prompt": "hello" })).await.json();
    let turn = turn["turnId"].as_str().unwrap();
    let before = of_ci.call("get", "/sessions/theirs", json!({})).await.json();
    // Who would be let in by a name alone.
    let strangers = [
        door(&cd, None),
        door(owner.trim(), None),
        door(owner.trim(), Some("ci")),
        door(&ci, Some("ci")),
        door(&cd, Some("ci")),
        door(&look, Some("x")),
    ];
    for (who, stranger) in strangers.iter().enumerate() {
        assert_eq!(stranger.sessions().await, Vec::<String>::new(), "{who}");
        for (path, methods) in routes().iter().filter(|(path, _)| path.contains("{sessionId}")) {
            for method in methods {
                let (theirs, none) = (filled(path, "theirs", turn), filled(path, "nothing", turn));
                let mut told = stranger.call(method, &theirs, body_of(path)).await;
                let mut missing = stranger.call(method, &none, body_of(path)).await;
                for reply in [&mut told, &mut missing] {
                    let text = String::from_utf8(reply.body.clone()).unwrap();
                    reply.body = text.replace("theirs", "nothing").into_bytes();
                }
                assert_eq!(
                    (told.status, told.code(), told.json()),
                    (missing.status, missing.code(), missing.json()),
                    "{who} {method} {path}"
                );
                assert!(
                    told.status == 404 || (told.status != 200 && *method != "get"),
                    "{who} {method} {path}: {told:?}"
                );
            }
        }
        let strange = "/permissions/grants?sessionId=theirs";
        assert_eq!(stranger.call("get", strange, json!({})).await.status, 404, "{who}");
        assert_eq!(stranger.call("get", "/sessions?cursor=theirs", json!({})).await.status, 400, "{who}");
    }
    for known in ["prompt", "abort", "feedback", "events", "history"] {
        let method = if matches!(known, "events" | "history") { "get" } else { "post" };
        let reply = of_cd.call(method, &format!("/sessions/theirs/{known}"), body_of(known)).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "NOT_FOUND"), "{known}");
    }
    assert_eq!(of_cd.call("delete", "/sessions/theirs", json!({})).await.status, 404);
    // And it is still there for those whose it is.
    for own in [&of_ci, &door(&look, None)] {
        assert_eq!(own.sessions().await, ["theirs"]);
        assert_eq!(own.call("get", "/sessions/theirs", json!({})).await.json(), before);
    }
    assert_eq!(of_owner.session("own").await.status, 201);
    assert_eq!(of_owner.sessions().await, ["own"]);
    serving.stop().await;
}

#[tokio::test]
async fn a_role_is_what_a_token_may_do() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let owner = std::fs::read_to_string(home.path().join(".local/share/simse/token")).unwrap();
    let look = made(&home, &["look", "--role", "read-only", "--sessions-of", "owner"]).await;
    let ops = made(&home, &["ops", "--role", "operator", "--sessions-of", "owner"]).await;
    let door = |token| Door { serving: &serving, token, client: None };
    let (owner, ops, look) = (door(owner.trim()), door(&ops), door(&look));
    assert_eq!(owner.session("s").await.status, 201);
    for (path, methods) in routes() {
        for method in methods {
            if method == "get" && path.ends_with("/events") {
                continue;
            }
            let reply = look.call(method, &filled(&path, "s", "t"), body_of(&path)).await;
            // What a message of MCP wants is seen behind the door.
            // What the server was set to, and which others there are, is its owner's to know.
            let owners = path == "/config" || path == "/nodes";
            let looks = method == "get" && !owners || path == "/permissions/explain" || path == "/mcp";
            assert_eq!(reply.status == 403, !looks, "{method} {path}: {reply:?}");
            if owners {
                assert_eq!(reply.json()["error"]["details"]["expected"], "a token whose role is owner");
            } else if !looks {
                assert_eq!(reply.json()["error"]["details"]["expected"], "a token whose role is operator or owner");
            }
        }
    }
    let mut stream = look.request("GET", "/sessions/s/events").open(serving.address).await;
    assert_eq!((stream.status, stream.event().await.kind()), (200, "ready"));
    assert_eq!(look.sessions().await, ["s"], "nothing has happened");
    // An operator works, but changes nothing that outlives its sessions.
    assert_eq!(ops.session("o").await.status, 201);
    let always = json!({ "requestId": "req_1", "decision": "allow", "scope": "always" });
    #[rustfmt::skip]
    let table = [
        ("post", "/sessions/s/feedback", always.clone(), 403, 404),
        ("post", "/sessions/s/feedback", json!({ "requestId": "req_1", "decision": "allow_always" }), 404, 404),
        ("delete", "/permissions/grants/grant_1", json!({}), 403, 404),
        ("delete", "/permissions/grants/grant_1?sessionId=s", json!({}), 404, 404),
        ("get", "/permissions/grants", json!({}), 200, 200),
        ("get", "/nodes", json!({}), 403, 200),
        ("post", "/drain", json!({}), 403, 409),
        ("delete", "/sessions/o", json!({}), 200, 404),
    ];
    for (method, path, body, of_ops, of_owner) in table {
        for (whose, door, want) in [("ops", &ops, of_ops), ("owner", &owner, of_owner)] {
            let reply = door.call(method, path, body.clone()).await;
            assert_eq!(reply.status, want, "{whose} {method} {path}: {reply:?}");
        }
    }
    serving.stop().await;
}

#[tokio::test]
async fn tokens_come_and_go_while_the_server_runs() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--model", "demo/scripted"]).await;
    let secret = made(&home, &["ci", "--role", "operator"]).await;
    let door = Door { serving: &serving, token: &secret, client: None };
    assert_eq!(door.session("s").await.status, 201, "at once");
    let mut stream = door.request("GET", "/sessions/s/events").open(serving.address).await;
    assert_eq!(stream.event().await.kind(), "ready");
    let (code, out, _) = token(&home, &["list"]).await;
    assert_eq!(code, Some(0));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(
        (lines[0][..2].to_vec(), lines[1][..3].to_vec(), lines.len()),
        (vec!["owner", "owner"], vec!["ci", "operator", "-"], 2)
    );
    assert!(!out.contains(&secret));
    #[rustfmt::skip]
    let refused: [(&[&str], i32, &str); 6] = [
        (&["create", "ci", "--role", "operator"], 1, "a token named ci is there already"),
        (&["create", "owner", "--role", "operator"], 2, "nor `owner`"),
        (&["create", "x", "--role", "admin"], 2, "expected read-only, operator or owner"),
        (&["create", "x", "--role", "read-only"], 2, "--sessions-of"),
        (&["create", "x", "--role", "operator", "--sessions-of", "y"], 1, "no token is named y"),
        (&["revoke", "x"], 1, "no token is named x"),
    ];
    for (arguments, want, says) in refused {
        let (code, out, err) = token(&home, arguments).await;
        assert_eq!((code, out.as_str()), (Some(want), ""), "{arguments:?}");
        assert!(err.contains(says), "{err}");
    }
    let (code, out, err) = token(&home, &["revoke", "ci"]).await;
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    // What it had opened ends, though nobody has called since.
    while stream.frame().await.is_some() {}
    let reply = door.call("get", "/sessions", json!({})).await;
    assert_eq!((reply.status, reply.code().as_str()), (401, "UNAUTHORIZED"));
    // Whoever comes after it under its name does not see what it left.
    let (code, out, err) = token(&home, &["create", "ci", "--role", "operator"]).await;
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("--sessions-of ci"), "{err}");
    let heir = made(&home, &["ci-2", "--role", "operator", "--sessions-of", "ci"]).await;
    assert_eq!(Door { serving: &serving, token: &heir, client: None }.sessions().await, ["s"]);
    let (_, out, _) = token(&home, &["list"]).await;
    assert!(out.lines().last().unwrap().starts_with("ci\trevoked\t-\t"), "{out}");
    let (code, _, err) = tokio::time::timeout(PATIENCE, serving.stop()).await.unwrap();
    assert_eq!(code, Some(0), "{err}");
    assert!(!err.contains(&secret), "{err}");
    // And `simse check` looks at the file.
    let check = async || ended(simse(home.path()).arg("check").spawn().unwrap()).await;
    assert_eq!(check().await.0, Some(0));
    let file = home.path().join(".local/share/simse/tokens.json");
    std::fs::write(&file, "{ \"tokens\": [] , \"x\": 1 }").unwrap();
    let (code, out, err) = check().await;
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("tokens.json") && out.contains("unknown field `x`") && out.contains("1 faults"), "{out}");
}

/// Fields that a command of this type would be taken with.
fn fields_of(kind: &str) -> Value {
    match kind {
        "prompt" | "steer" => json!({ "prompt": "x" }),
        "configure" => json!({ "title": "x" }),
        "feedback" => json!({ "requestId": "req_1", "decision": "allow" }),
        "explain_permission" => json!({ "tool": "fs_read", "arguments": { "path": "a" } }),
        "revoke_grant" => json!({ "grantId": "grant_1" }),
        "put_board_entry" => json!({ "key": "k", "value": 1 }),
        "delete_board_entry" => json!({ "key": "k" }),
        "create_task" => json!({ "subject": "s" }),
        "update_task" => json!({ "taskId": "1", "status": "completed" }),
        "delete_task" => json!({ "taskId": "1" }),
        "get_turn" => json!({ "turnId": "turn_1" }),
        "fork" => json!({ "at": 1 }),
        _ => json!({}),
    }
}

/// All frames to the answer, without what is new each time.
async fn answered(house: &House, command: Value) -> Vec<Value> {
    let mut socket = Socket::open(house, "X-Client-ID: b\r\n").await.unwrap();
    assert_eq!(socket.next().await["type"], "server_ready");
    let session = command["sessionId"].as_str().unwrap_or("-").to_owned();
    socket.say(&command).await;
    let mut frames = Vec::new();
    loop {
        let frame = socket.next().await;
        let over = frame["type"] == "response";
        frames.push(serde_json::from_str(&frame.to_string().replace(&session, "free")).unwrap());
        if over {
            return frames;
        }
    }
}

/// Whether an id is free or somebody else's nobody can tell who only names it.
#[tokio::test]
async fn over_a_socket_anothers_session_is_as_one_that_is_not_there() {
    let house = House::open().await;
    let of_a = |method: &str, path: &str| request(house.address, method, path).header("X-Client-ID", "a");
    let made = of_a("POST", "/sessions").json(&json!({ "sessionId": "theirs" })).send(house.address).await;
    assert_eq!(made.status, 201);
    let turn = of_a("POST", "/sessions/theirs/prompt?wait=true").json(&json!({ "prompt": "hello" }));
    assert_eq!(turn.send(house.address).await.status, 200);
    let before = of_a("GET", "/sessions/theirs").send(house.address).await.json();
    for kind in simse::app::KINDS {
        if kind.name == "create_session" || matches!(kind.names, simse::app::Names::Never) {
            continue;
        }
        let mut told = Vec::new();
        for session in ["theirs", "free"] {
            let mut command = fields_of(kind.name);
            let own = json!({ "id": format!("{}-{session}", kind.name), "type": kind.name, "sessionId": session });
            command.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            told.push(answered(&house, command).await);
        }
        assert_eq!(told[0], told[1], "{}", kind.name);
        let last = told[0].last().unwrap();
        let code = last["error"]["code"].as_str().unwrap_or_default();
        assert!(code == "NOT_FOUND" || kind.name == "unsubscribe", "{}: {last}", kind.name);
    }
    // What they have sent nobody else can build on, or replay.
    let sent = json!({ "id": "theirs", "type": "list_tools" });
    let mut socket = Socket::open(&house, "X-Client-ID: a\r\n").await.unwrap();
    socket.next().await;
    socket.say(&sent).await;
    while socket.next().await["type"] != "response" {}
    let mut told = Vec::new();
    for id in ["theirs", "free"] {
        let frames =
            answered(&house, json!({ "id": format!("on-{id}"), "type": "list_models", "dependsOn": [id] })).await;
        told.push(serde_json::to_string(&frames).unwrap().replace("theirs", "free"));
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(of_a("GET", "/sessions/theirs").send(house.address).await.json(), before);
    // Of a session that is to be made the words are the same, whoever has the id (ADR 0059).
    let create = async |client: &str| {
        let create = request(house.address, "POST", "/sessions").header("X-Client-ID", client);
        create.json(&json!({ "sessionId": "theirs" })).send(house.address).await
    };
    let (own, strange) = (create("a").await, create("b").await);
    assert_eq!((own.status, own.json()), (strange.status, strange.json()));
    assert_eq!((own.status, own.code().as_str()), (409, "CONFLICT"));
    assert_eq!(own.json()["error"]["details"]["field"], "sessionId");
    let fork = of_a("POST", "/sessions/theirs/fork").json(&json!({ "newSessionId": "theirs" }));
    let fork = fork.send(house.address).await;
    assert_eq!((fork.status, &fork.json()["error"]["details"]["field"]), (409, &json!("newSessionId")));
    // A version has the name by which the caller said it.
    let patch = of_a("PATCH", "/sessions/theirs").header("If-Match", "\"99\"").json(&json!({ "title": "t" }));
    assert_eq!(patch.send(house.address).await.json()["error"]["details"]["field"], "If-Match");
    let prompt = of_a("POST", "/sessions/theirs/prompt").json(&json!({ "prompt": "x", "ifVersion": 99 }));
    assert_eq!(prompt.send(house.address).await.json()["error"]["details"]["field"], "ifVersion");
    for kind in ["configure", "prompt", "delete_session", "undo"] {
        let mut command = fields_of(kind);
        let own = json!({ "type": kind, "sessionId": "theirs", "ifSessionVersion": 99 });
        command.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let refused = socket.response(&command).await;
        assert_eq!(refused["error"]["details"]["field"], "ifSessionVersion", "{refused}");
    }
    house.close().await;
}

/// What cannot be printed is not done, or at least not said to have gone well; a reader that has gone is another matter.
#[tokio::test]
async fn a_stdout_that_takes_nothing_is_told() {
    let home = tempfile::tempdir().unwrap();
    let make = ["token", "create", "ci", "--role", "operator"];
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    std::fs::write(home.path().join("c.toml"), "").unwrap();
    let into_nothing: [&[&str]; 8] = [
        &make,
        &["openapi"],
        &["config", "check", "c.toml"],
        &["config", "show"],
        &["config", "schema"],
        &["--version"],
        &["--help"],
        &["token", "list"],
    ];
    for arguments in into_nothing {
        if arguments == ["token", "list"] {
            // The name is free: nobody has seen the token that had it.
            let (code, out, err) = ended(simse(home.path()).args(make).spawn().unwrap()).await;
            assert!(code == Some(0) && !out.is_empty(), "{err}");
        }
        let (code, _, err) = ended(simse(home.path()).args(arguments).stdout(full()).spawn().unwrap()).await;
        assert!(
            code == Some(1) && err.contains("stdout") && err.contains("No space left"),
            "{arguments:?}: {code:?} {err}"
        );
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (code, _, err) = ended(simse(home.path()).arg("openapi").stdout(writer).spawn().unwrap()).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
}

/// What the file says counts for as long as nobody else could have written it, and again as soon as that is mended.
#[tokio::test]
async fn a_file_that_others_can_read_counts_for_nothing_until_it_is_closed() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let token = made(&home, &["ci", "--role", "operator"]).await;
    let door = Door { serving: &serving, token: &token, client: None };
    let file = home.path().join(".local/share/simse/tokens.json");
    let opened =
        |mode: u32| std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    let becomes = async |status: u16| {
        let looking = async {
            while door.call("get", "/sessions", json!({})).await.status != status {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never {status}"));
    };
    becomes(200).await;
    for _ in 0..2 {
        opened(0o666);
        becomes(401).await;
        opened(0o600);
        becomes(200).await;
    }
    serving.stop().await;
}
