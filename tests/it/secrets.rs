//! No secret leaves the place where it belongs: canaries are planted wherever the server is told one, a real run with its
//! errors goes by, and everything that it wrote or answered is searched for them.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::binary::{Serving, ended, simse};
use crate::support::http::request;
use crate::support::model_server::{self, Answer, ModelServer};

/// Long enough to stand nowhere by chance, each in two halves, so that this file does not hold one.
fn canary(name: &str) -> String {
    format!("canary-{name}-{}", "7f3a9c51e2d84b60")
}

/// Every file below a directory, with the names of those that must not be searched left out.
fn files(directory: &Path, but: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            if kind.is_dir() {
                todo.push(path);
            } else if kind.is_file() && !but.contains(&name.as_str()) {
                found.push((name, std::fs::read(path).unwrap()));
            }
        }
    }
    found
}

/// A collector that takes everything and keeps what came: the heads and the bodies of its requests.
async fn collector() -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
    let kept = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut bytes = [0; 16 << 10];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    kept.lock().extend_from_slice(&bytes[..read]);
                    // A body may come in pieces: an answer too many is passed over.
                    if bytes[..read].starts_with(b"POST ") {
                        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await);
                    }
                }
            });
        }
    });
    (format!("http://{address}"), heard)
}

/// What the programs say of configurations that hold secrets where they belong, and where they do not.
async fn said_of_configurations(home: &TempDir) -> Vec<(String, Vec<u8>)> {
    let (address, query, header) = (canary("address"), canary("query"), canary("header"));
    let sound = format!(
        "openai_base_url = \"https://user:{address}@h.example/v1?key={query}\"\nopenai_api_key = \"{header}\"\n\
         otlp_endpoint = \"http://h.example/?key={query}\"\notlp_headers = \"a={header}\"\n\
         [[mcp_servers]]\nname = \"m\"\nurl = \"http://h.example/?key={query}\"\nheaders = {{ A = \"{header}\" }}\n\
         [[acp_servers]]\nname = \"a\"\ncommand = \"x\"\nargs = [\"{header}\"]\nenv = {{ A = \"{header}\" }}\n"
    );
    let wrong = format!(
        "port = \"{header}\"\nlog_level = \"{header}\"\nopenai_api_key = [\"{header}\"]\notlp_endpoint = \"{query}:x\"\n\
         otlp_headers = \"{header}\"\ndefault_policy = \"{header}\"\n\
         [[mcp_servers]]\nname = \"m\"\nurl = \"https://u:{address}@h/\"\nheaders = {{ \"A B\" = \"{header}\" }}\n\
         [[mcp_servers]]\nname = \"n\"\ncommand = \"x\"\nenv = {{ \"A=\" = \"{header}\" }}\ntransport = \"{header}\"\n"
    );
    let broken = format!("openai_api_key = {header}\nport = \n");
    let mut told = Vec::new();
    for (name, text) in [("sound.toml", sound), ("wrong.toml", wrong), ("broken.toml", broken)] {
        let file = home.path().join(name);
        std::fs::write(&file, text).unwrap();
        let runs: [&[&str]; 4] = [
            &["config", "check", name],
            &["config", "show", "--config", name],
            &["token", "list", "--config", name],
            &["check", "--config", name, "--data-dir", "nowhere"],
        ];
        for arguments in runs {
            let (_, out, err) = ended(simse(home.path()).args(arguments).spawn().unwrap()).await;
            told.push((format!("{arguments:?}"), format!("{out}{err}").into_bytes()));
        }
        if name != "sound.toml" {
            let serve = simse(home.path()).args(["serve", "--config", name]).spawn().unwrap();
            let (code, out, err) = ended(serve).await;
            assert_eq!(code, Some(2), "{name}: {out}{err}");
            told.push((format!("serve {name}"), format!("{out}{err}").into_bytes()));
        }
        std::fs::remove_file(file).unwrap();
    }
    // Variables, too.
    let variables = [("SIMSE_PORT", header.clone()), ("SIMSE_OPENAI_BASE_URL", format!("https://u:{address}@h/"))];
    for arguments in [["config", "check"], ["config", "show"]] {
        let run = simse(home.path()).args(arguments).envs(variables.clone()).spawn().unwrap();
        let (_, out, err) = ended(run).await;
        told.push((format!("{arguments:?} with variables"), format!("{out}{err}").into_bytes()));
    }
    told
}

/// `collector`: where traces go. `said`: where a tool server writes what it was given; not in the workspace, where it would be a change of
/// the command that runs meanwhile.
fn configuration(endpoint: &str, collector: &str, said: &Path) -> String {
    let said = said.display();
    let (key, env, acp, header) = (canary("openai"), canary("mcp-env"), canary("acp-env"), canary("mcp-header"));
    let (argument, asked) = (canary("argument"), canary("base-query"));
    let (query, collecting) = (canary("url-query"), canary("otlp"));
    format!(
        "otlp_endpoint = \"{collector}\"\notlp_headers = \"x-key={collecting}\"\nopenai_base_url = \"{endpoint}?api-key={asked}\"\nopenai_api_key = \"{key}\"\nmodel = \"openai/m\"\ndefault_policy = \"allow\"\n\
         [[mcp_servers]]\nname = \"gone\"\ncommand = \"/nowhere/server\"\nenv = {{ API_KEY = \"{env}\" }}\n\
         [[mcp_servers]]\nname = \"loud\"\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"env > {said}.new; mv {said}.new {said}; exit 1\"]\n\
         env = {{ LOUD_KEY = \"{env}\" }}\n\
         [[mcp_servers]]\nname = \"web\"\nurl = \"http://127.0.0.1:9/mcp?token={query}\"\n\
         headers = {{ Authorization = \"Bearer {header}\" }}\n\
         [[mcp_servers]]\nname = \"echo\"\nurl = \"{endpoint}/mcp?token={query}\"\n\
         headers = {{ Authorization = \"Bearer {header}\", X-Key = \"{header}x\" }}\n\
         [[mcp_servers]]\nname = \"talks\"\ncommand = \"/bin/sh\"\n\
         args = [\"-c\", \"echo $TALKS $* >&2; echo out $TALKS; sleep 0.1; exit 1\", \"sh\", \"--key={argument}\"]\n\
         env = {{ TALKS = \"{env}\" }}\n\
         [[acp_servers]]\nname = \"agent\"\ncommand = \"/nowhere/agent\"\nenv = {{ SECRET = \"{acp}\" }}\n\
         [[acp_servers]]\nname = \"talks\"\ncommand = \"/bin/sh\"\n\
         args = [\"-c\", \"echo $TALKS $* >&2; echo out $TALKS; sleep 0.1; exit 1\", \"sh\", \"--api-key\", \"{argument}\"]\n\
         env = {{ TALKS = \"{acp}\" }}\n"
    )
}

/// All that is asked of the server: what works, what is refused, and what fails.
async fn errors_and_all(serving: &Serving, home: &TempDir) -> Vec<(String, Vec<u8>)> {
    let mut told = Vec::new();
    let wrong = canary("wrong-token");
    let bearer = format!("Bearer {wrong}");
    #[rustfmt::skip]
    let refused = [
        request(serving.address, "GET", "/sessions").header("Authorization", &bearer),
        request(serving.address, "GET", "/sessions").header("Authorization", &format!("Basic {wrong}")),
        request(serving.address, "GET", &format!("/sessions?token={wrong}")),
        serving.request("GET", &format!("/sessions?token={wrong}")).header("Cookie", &format!("session={wrong}")),
        serving.request("POST", "/sessions").header("X-Api-Key", &wrong).json(&json!({ "sessionId": "s" })),
        serving.request("POST", "/sessions").header("Origin", "http://attacker.example").header("Proxy-Authorization", &bearer).json(&json!({})),
        serving.request("POST", "/sessions").header("Content-Type", "text/plain").body(wrong.as_bytes()),
        serving.request("POST", "/sessions").json(&json!({ "agent": "acp/agent", "sessionId": "a" })),
        serving.request("POST", "/sessions").json(&json!({ "sessionId": "f" })),
        serving.request("POST", "/sessions").json(&json!({ "agent": "acp/talks", "sessionId": "t" })),
        serving.request("POST", "/sessions/t/prompt?wait=true").json(&json!({ "prompt": "x" })),
        request(serving.address, "GET", "/health"), request(serving.address, "GET", "/sessions").header("X-Client-ID", &format!("{wrong} 26!")),
        serving.request("POST", "/sessions/f/prompt?wait=true").json(&json!({ "prompt": "fail" })),
        serving.request("POST", "/sessions/s/prompt?wait=true").json(&json!({ "prompt": "call" })),
        serving.request("POST", "/sessions/a/prompt?wait=true").json(&json!({ "prompt": "x" })),
        serving.request("GET", "/sessions/s/history"), serving.request("GET", "/sessions/s"), serving.request("GET", "/sessions"),
        serving.request("GET", "/tools"), serving.request("GET", "/agents"), serving.request("GET", "/models"),
        serving.request("GET", "/health"), serving.request("GET", "/health?verbose=true"), serving.request("GET", "/permissions/grants"),
        serving.request("POST", "/permissions/explain").json(&json!({ "sessionId": "s", "tool": "bash", "arguments": { "command": "env" } })),
        serving.request("GET", "/metrics"), serving.request("GET", "/openapi.json"), serving.request("GET", "/nowhere"),
    ];
    for (at, request) in refused.into_iter().enumerate() {
        let reply = request.send(serving.address).await;
        told.push((format!("answer {at}: {}", reply.status), reply.body));
        let headers: String = reply.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        told.push((format!("headers {at}"), headers.into_bytes()));
    }
    for (session, last) in [("f", "session.error"), ("s", "session.completed")] {
        let path = format!("/sessions/{session}/events");
        let events = serving.request("GET", &path).open(serving.address).await.until(last).await;
        let called = events.iter().any(|event| event.kind() == "tool.call.end");
        assert_eq!(called, session == "s", "a command belongs to the run");
        told.extend(events.into_iter().map(|event| ("an event".to_owned(), event.data.to_string().into_bytes())));
    }
    let list = ended(simse(home.path()).args(["token", "list"]).spawn().unwrap()).await;
    told.push(("token list".to_owned(), format!("{}{}", list.1, list.2).into_bytes()));
    told
}

#[tokio::test]
async fn no_secret_is_written_or_answered() {
    let home = tempfile::tempdir().unwrap();
    let model = ModelServer::start(std::sync::Arc::new(|request: &model_server::Request| {
        if request.path.starts_with("/v1/mcp") {
            let sent: Vec<_> = request.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            return Answer::status(403, &[], &format!("no: POST {} with {}", request.path, sent.join("\n")));
        }
        let asked = request.json()["messages"].as_array().unwrap().last().unwrap().clone();
        // What the endpoint was sent comes back in its refusal, as careless ones do.
        let key = request.header("authorization").unwrap_or("none").to_owned();
        if asked["role"] == "tool" {
            Answer::text(&["done"])
        } else if !asked["content"].to_string().contains("fail") {
            let command = json!({ "command": "env; cat /proc/$PPID/environ; exit 3" });
            Answer::calls("", &[("c1", "bash", command)])
        } else {
            let path = &request.path;
            Answer::status(401, &[], &format!("{{\"error\":{{\"message\":\"bad key {key} at {path}\"}}}}"))
        }
    }))
    .await;
    let endpoint = model.base_url();
    let (collector, collected) = collector().await;
    let apart = tempfile::tempdir().unwrap();
    let said = apart.path().join("mcp-said");
    std::fs::write(home.path().join("c.toml"), configuration(&endpoint, &collector, &said)).unwrap();
    let made = ended(simse(home.path()).args(["token", "create", "ci", "--role", "operator"]).spawn().unwrap()).await.1;
    let environment = [("MY_API_KEY", canary("environment")), ("DB_URL", format!("postgres://u:{}@h/d", canary("db")))];
    for format in ["text", "json"] {
        let arguments = ["--config", "c.toml", "--log-level", "debug", "--log-format", format];
        let serving = Serving::start_into_files(&home, &arguments, &environment).await;
        let owner = serving.token().unwrap();
        let with_ci =
            request(serving.address, "GET", "/sessions").header("Authorization", &format!("Bearer {}", made.trim()));
        assert_eq!(with_ci.send(serving.address).await.status, 200);
        let mut all = if format == "text" { errors_and_all(&serving, &home).await } else { Vec::new() };
        serving.stop_well().await;
        for session in ["f", "s"] {
            let export = simse(home.path()).args(["export", session]).spawn().unwrap();
            let (code, out, err) = ended(export).await;
            assert_eq!(code, Some(0), "{err}");
            all.extend([(format!("export of {session}"), out.into_bytes()), ("export".to_owned(), err.into_bytes())]);
        }
        // The file that holds a secret by its office, and the one that it was read from. What the server said is in a file.
        // What a tool server was given is its own secret, and no other.
        let given = std::fs::read_to_string(&said).unwrap();
        let own = format!("LOUD_KEY={}\n", canary("mcp-env"));
        assert!(given.contains(&own), "the tool server ran");
        all.push(("what a tool server is given".to_owned(), given.replace(&own, "").into_bytes()));
        // The collector's key goes to the collector, in its header; nothing else does.
        let heard = String::from_utf8_lossy(&collected.lock()).into_owned();
        let key = format!("x-key: {}", canary("otlp"));
        assert!(heard.contains(&key), "something was told");
        all.push(("what the collector is told".to_owned(), heard.replace(&key, "").into_bytes()));
        if format == "text" {
            all.extend(said_of_configurations(&home).await);
        }
        let written = files(home.path(), &["c.toml", ".local/share/simse/token"]);
        for name in ["said.stderr", ".local/share/simse/simse.db"] {
            assert!(written.iter().any(|(written, bytes)| written == name && !bytes.is_empty()), "{name}");
        }
        all.extend(written);
        let secrets = [owner.as_str(), made.trim(), "canary-", "7f3a9c51e2d84b60"];
        for (place, bytes) in &all {
            let text = String::from_utf8_lossy(bytes);
            for secret in secrets {
                if let Some(at) = text.find(secret) {
                    let around: String =
                        text[..at].chars().rev().take(120).collect::<Vec<_>>().into_iter().rev().collect();
                    panic!("{place}: a secret ({}…) behind: {around}", &secret[..7]);
                }
            }
        }
    }
}
