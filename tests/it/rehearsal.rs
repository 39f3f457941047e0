//! `simse config check` and `simse serve` refuse the same: each wrong configuration is held against both, and so is each sound one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Map, Value};
use simse::config::schema;
use simse::protocol::ToolDefinition;
use simse::tool::validate;
use tempfile::TempDir;

use crate::support::binary::{Serving, ended, simse};

const DATA: &str = ".local/share/simse";
const PATIENCE: Duration = Duration::from_secs(60);

fn tls(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tls").join(name).display().to_string()
}

/// What a home is made of before the programs run.
type Prepare = fn(&Path);

fn nothing(_: &Path) {}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn open_token(home: &Path) {
    std::fs::create_dir_all(home.join(DATA)).unwrap();
    std::fs::write(home.join(DATA).join("token"), "sesame").unwrap();
    mode(&home.join(DATA).join("token"), 0o644);
}

fn writable_data(home: &Path) {
    std::fs::create_dir_all(home.join(DATA)).unwrap();
    std::fs::write(home.join(DATA).join("notes.txt"), "").unwrap();
    mode(&home.join(DATA), 0o777);
}

fn no_socket(home: &Path) {
    std::fs::write(home.join("taken"), "").unwrap();
}

fn no_certificates(home: &Path) {
    std::fs::write(home.join("empty.pem"), "").unwrap();
    std::fs::write(home.join("odd.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
}

fn data_in_a_file(home: &Path) {
    std::fs::create_dir_all(home.join(".local/share")).unwrap();
    std::fs::write(home.join(DATA), "").unwrap();
}

/// What both say of a configuration: exit codes and words.
async fn told(home: &TempDir, configuration: &str) -> ((Option<i32>, String), (Option<i32>, String)) {
    std::fs::write(home.path().join("c.toml"), configuration).unwrap();
    let (code, out, err) = ended(simse(home.path()).args(["config", "check", "c.toml"]).spawn().unwrap()).await;
    let checked = (code, format!("{out}{err}"));
    let serve = simse(home.path()).args(["serve", "--port", "0", "--config", "c.toml"]).spawn().unwrap();
    let (code, out, err) = ended(serve).await;
    (checked, (code, format!("{out}{err}")))
}

#[tokio::test]
async fn what_a_start_refuses_the_check_refuses_with_its_line() {
    let (certificate, key, other) = (tls("one.pem"), tls("one.key"), tls("two.key"));
    let long = "s".repeat(120);
    #[rustfmt::skip]
    let table: Vec<(Prepare, String, &str)> = vec![
        // (what is there, the file, what the check says)
        (nothing, "\nprot = 1".into(), "c.toml:2: `prot` is not known; did you mean `port`?"),
        (nothing, "\n\nheartbeat_ms = 0".into(), "c.toml:3: `heartbeat_ms`: expected a whole number from 1"),
        (nothing, "\ncwd = 'nowhere'".into(), "c.toml:2: --cwd (SIMSE_CWD, cwd): expected a directory;"),
        (nothing, "root = ['.', 'nowhere']".into(), "c.toml:1: --root (SIMSE_ROOT, root): expected a directory;"),
        (nothing, "\nmodel = 'no/such'".into(), "c.toml:2: --model (SIMSE_MODEL, model): expected a model that is configured"),
        (nothing, "memory = true\nmemory_embedding_model = 'x'".into(), "c.toml:2: --memory-embedding-model"),
        (nothing, "\notlp_endpoint = 'ftp://h/'".into(), "c.toml:2: --otlp-endpoint (SIMSE_OTLP_ENDPOINT, otlp_endpoint): expected an address"),
        (nothing, "otlp_endpoint = 'http://h/'\notlp_headers = 'a'".into(), "c.toml:2: --otlp-headers"),
        (nothing, "\ninterrupt_grace_ms = 30000".into(), "c.toml:2: `interrupt_grace_ms`: expected a whole number from 0 to 24000; got 30000"),
        (nothing, "\nopenai_base_url = 'ftp://h/'".into(), "c.toml:2: --openai-base-url (SIMSE_OPENAI_BASE_URL, openai_base_url): expected an address"),
        (nothing, "\nopenai_base_url = '127.0.0.1:1/v1'".into(), "c.toml:2: --openai-base-url"),
        (nothing, "\nopenai_base_url = 'https://u:s3cret@h/'".into(), "c.toml:2: --openai-base-url (SIMSE_OPENAI_BASE_URL, openai_base_url): expected an address such as https://host/path: it must not carry"),
        (nothing, "\ndata_dir = '/proc/x'".into(), "c.toml:2: cannot use the data directory"),
        (nothing, "\nhost = '0.0.0.0'".into(), "c.toml:2: 0.0.0.0 can be reached from other machines: that needs --allow-public"),
        (nothing, "\nhost = '0.0.0.0'\nallow_public = true\nno_auth = true".into(), "c.toml:2: 0.0.0.0 can be reached from other machines: that needs a token"),
        (nothing, "\nhost = 'no.such.host.invalid'".into(), "c.toml:2: cannot listen on no.such.host.invalid"),
        (nothing, "allow_public = true\nhost = '203.0.113.7'".into(), "c.toml:2: cannot listen on 203.0.113.7"),
        (nothing, format!("\ntls_cert = '{certificate}'"), "--tls-key (SIMSE_TLS_KEY, tls_key): expected a file, because --tls-cert is there"),
        (nothing, format!("tls_cert = '{certificate}'\ntls_key = 'nowhere'"), "c.toml:2: TLS, "),
        (nothing, format!("tls_cert = '{certificate}'\ntls_key = '{other}'"), "expected the key of the certificate; it is another's"),
        (no_certificates, format!("tls_key = '{key}'\ntls_cert = 'empty.pem'"), "expected certificates in PEM; it holds none"),
        (no_certificates, format!("tls_key = '{key}'\ntls_cert = 'odd.pem'"), "c.toml:2: TLS, "),
        (nothing, "\nnode_url = 'http://h/x'".into(), "c.toml:2: `node_url`: expected http:// or https://, a host and a port, and nothing behind it"),
        (nothing, "\nnode_url = 'http://h:1'\nnode_labels = ['a']".into(), "c.toml:2: --node-url (SIMSE_NODE_URL, node_url): expected to stand beside a `store` that begins with postgres://"),
        (nothing, "store = 'postgres://h/d'\nnode_labels = ['a']".into(), "c.toml:2: --node-labels (SIMSE_NODE_LABELS, node_labels): expected to stand beside --node-url"),
        (nothing, format!("\nsocket = '{long}'"), "c.toml:2: cannot listen on the socket"),
        (nothing, "\nsocket = 'nowhere/socket'".into(), "c.toml:2: cannot listen on the socket"),
        (no_socket, "\nsocket = 'taken'".into(), "there is something that is no socket"),
        (nothing, "\nport_file = 'nowhere/port'".into(), "c.toml:2: cannot write"),
        (open_token, String::new(), "expected mode 0600, found 0644"),
        (writable_data, String::new(), "mode 0777"),
        (data_in_a_file, String::new(), "cannot use the data directory"),
        (data_in_a_file, "\n\ndata_dir = '.local/share/simse'".into(), "c.toml:3: cannot use the data directory"),
        (nothing, "[[mcp_servers]]\nname = 'a'\nurl = 'ftp://x/'".into(), "c.toml:3: `mcp_servers[0].url`: expected an http or https address"),
        (nothing, "[[mcp_servers]]\nname = 'a'\ncommand = 'x'\n[[mcp_servers]]\nname = 'a'\ncommand = 'y'".into(), "c.toml:5: `mcp_servers[1].name`: expected a name of its own"),
        (nothing, "[[acp_servers]]\nname = 'simse'\ncommand = 'x'".into(), "c.toml:2: `acp_servers[0].name`: expected a name other than `simse`"),
        (nothing, "[[hooks]]\nevent = 'Stop'\ncommand = 'x'".into(), "c.toml:2: `hooks[0].event`: expected tool.execute.before"),
        (nothing, "[[hooks]]\nevent = 'turn.stop'\ncommand = 'x'\nmatcher = 'bash'".into(), "c.toml:4: `hooks[0].matcher`: expected nothing"),
    ];
    for (prepare, configuration, says) in table {
        let home = tempfile::tempdir().unwrap();
        prepare(home.path());
        let ((code, said), (serves, refused)) = told(&home, &configuration).await;
        assert_eq!(code, Some(2), "{configuration}\n{said}\nserve: {refused}");
        assert!(said.contains(says), "{configuration}\n{said}\nshould say {says}");
        assert!(matches!(serves, Some(2 | 3)), "{configuration}\nthe check refuses it, serve does not: {refused}");
    }
}

#[tokio::test]
async fn a_number_that_is_too_large_is_refused_wherever_it_stands() {
    let home = tempfile::tempdir().unwrap();
    // More than a semaphore counts, more than there is room for, and longer than a timer runs.
    #[rustfmt::skip]
    let table = [
        ("connections_max", "2305843009213693952", "from 1 to 1000000"),
        ("turns_max", "9223372036854775807", "from 1 to 1000000"),
        ("body_bytes_max", "268435457", "from 1 to 268435456"),
        ("permission_timeout_ms", "9223372036854775807", "from 1 to 31536000000"),
        ("heartbeat_ms", "31536000001", "from 1 to 31536000000"),
    ];
    for (name, number, range) in table {
        let (flag, variable) = (format!("--{}", name.replace('_', "-")), format!("SIMSE_{}", name.to_uppercase()));
        let says = format!("expected a whole number {range}; got {number}");
        let serve = || {
            let mut serve = simse(home.path());
            serve.args(["serve", "--port", "0"]);
            serve
        };
        let (code, _, err) = ended(serve().args([&flag, number]).spawn().unwrap()).await;
        assert!(code == Some(2) && err.contains(&flag) && err.contains(&says), "{code:?} {err}");
        let (code, _, err) = ended(serve().env(&variable, number).spawn().unwrap()).await;
        assert!(code == Some(2) && err.contains(&variable) && err.contains(&says), "{code:?} {err}");
        let ((code, said), (serves, refused)) = told(&home, &format!("{name} = {number}")).await;
        assert!(code == Some(2) && said.contains(&format!("c.toml:1: `{name}`: {says}")), "{code:?} {said}");
        assert!(serves == Some(2) && refused.contains(&says), "{serves:?} {refused}");
    }
}

/// What the schema says of a file.
fn fits(configuration: &str) -> bool {
    let definition = ToolDefinition::new("file", "", schema().as_object().unwrap().clone());
    match toml::from_str::<Map<String, Value>>(configuration) {
        Ok(members) => validate(&definition, &members).is_ok(),
        Err(_) => false,
    }
}

/// What is read all the same where serde takes more than the schema says: arrays for tables, numbers that TOML does not know.
#[tokio::test]
async fn a_start_the_check_the_schema_and_a_reload_refuse_the_same_form() {
    #[rustfmt::skip]
    let table = [
        ("permissions = []", "line 1: `permissions`: expected a table; got an array"),
        ("permissions = [[{tool='bash',policy='allow'}]]", "line 1: `permissions`: expected a table; got an array"),
        ("[permissions]\nrules = [['bash', '*', 'allow']]", "line 2: `permissions.rules[0]`: expected a table; got an array"),
        ("[[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\nannotations = ['t']", "line 4: `permissions.rules[0].annotations`: expected a table; got an array"),
        ("[[permissions.rules]]\ntool = 'x'\npolicy = {ask = 1}", "line 3: `permissions.rules[0].policy`: expected allow, ask or deny; got a table"),
        ("[[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\npattern = ''", "line 4: `permissions.rules[0].pattern`: expected a text that is not empty; got a string"),
        ("[[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\ncategory = []", "line 4: `permissions.rules[0].category`: expected at least one"),
        ("acp_servers = [['a', 'true']]", "line 1: `acp_servers[0]`: expected a table; got an array"),
        ("mcp_servers = [['a', 'stdio', 'true']]", "line 1: `mcp_servers[0]`: expected a table; got an array"),
        ("\npermission_timeout_ms = 9223372036854775808", "line 2: `permission_timeout_ms`: expected a whole number from 1 to 31536000000; got 9223372036854775808"),
        ("sessions_max = 18446744073709551615", "line 1: `sessions_max`: expected a whole number from 1 to 1000000000; got 18446744073709551615"),
        ("max_iterations = 5.5", "line 1: `max_iterations`: expected a whole number from 1 to 1000000; got 5.5"),
        ("memory_similarity_threshold = nan", "line 1: `memory_similarity_threshold`: expected a number from 0 to 1; got nan"),
        ("model = 2020-01-01", "line 1: `model`: expected a text; got a datetime"),
        ("default_policy = {allow = 1}", "line 1: `default_policy`: expected allow, ask or deny; got a table"),
    ];
    let running = tempfile::tempdir().unwrap();
    let file = running.path().join("c.toml");
    std::fs::write(&file, "").unwrap();
    let serving = Serving::start(&running, &["--config", "c.toml"]).await;
    for (configuration, says) in table {
        let home = tempfile::tempdir().unwrap();
        let ((code, said), (serves, refused)) = told(&home, configuration).await;
        let (line, problem) = says.strip_prefix("line ").and_then(|rest| rest.split_once(": ")).unwrap();
        assert_eq!((code, said.trim_end()), (Some(2), format!("c.toml:{line}: {problem}").as_str()), "{configuration}");
        assert_eq!(serves, Some(2), "{configuration}\n{refused}");
        assert!(refused.contains(&format!("c.toml: {says}\n")), "{configuration}\n{refused}");
        assert!(!fits(configuration), "{configuration}");
        std::fs::write(running.path().join("beside"), configuration).unwrap();
        std::fs::rename(running.path().join("beside"), &file).unwrap();
        serving.signal(Signal::HUP);
        let begun = Instant::now();
        while reason(&serving).await != says {
            assert!(begun.elapsed() < PATIENCE, "{configuration}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for sound in ["", "port = 0\n[[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\nannotations = { readOnly = true }"]
    {
        assert!(fits(sound), "{sound}");
    }
    serving.stop_well().await;
}

/// Why a server does not take its file.
async fn reason(serving: &Serving) -> String {
    let told = serving.request("GET", "/health?verbose=true").send(serving.address).await.json();
    told["checks"]["configuration"]["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn what_the_check_lets_through_starts() {
    let (certificate, key) = (tls("one.pem"), tls("one.key"));
    #[rustfmt::skip]
    let table: Vec<(Prepare, String)> = vec![
        (nothing, String::new()),
        (nothing, "socket = 'socket'\nroot = ['.']\nmodel = 'demo/scripted'\nmemory = true".into()),
        (nothing, format!("tls_cert = '{certificate}'\ntls_key = '{key}'\nport = 0")),
        (nothing, "openai_base_url = 'https://h/v1?key=s3cret'\nmodel = 'openai/x'".into()),
        // What starts and does not work is told by the health of the server.
        (nothing, "[[mcp_servers]]\nname = 'a'\ncommand = '/nowhere/server'\n[[acp_servers]]\nname = 'a'\ncommand = '/nowhere/agent'".into()),
        (nothing, "host = '0.0.0.0'\nallow_public = true\nport_file = 'p'".into()),
    ];
    for (prepare, configuration) in table {
        let home = tempfile::tempdir().unwrap();
        prepare(home.path());
        std::fs::write(home.path().join("c.toml"), &configuration).unwrap();
        let (code, out, err) = ended(simse(home.path()).args(["config", "check", "c.toml"]).spawn().unwrap()).await;
        assert_eq!((code, out.as_str()), (Some(0), "c.toml: nothing is wrong\n"), "{configuration}\n{err}");
        assert!(!home.path().join(".local").exists(), "the check makes nothing");
        let serving = Serving::start(&home, &["--config", "c.toml"]).await;
        // It says the same of what a server runs with.
        let (code, out, err) = ended(simse(home.path()).args(["config", "check", "c.toml"]).spawn().unwrap()).await;
        assert_eq!(code, Some(0), "{configuration}\n{out}{err}");
        serving.stop_well().await;
    }
}

/// All the greatest numbers of the schema together are no trouble; one more of each is refused, by the check and by a start.
#[tokio::test]
async fn the_greatest_numbers_of_the_schema_start() {
    let schema = schema();
    let properties = schema["properties"].as_object().unwrap();
    let whole = properties.iter().filter(|(name, property)| property["type"] == "integer" && *name != "port");
    let numbers: Vec<(&str, u64)> =
        whole.map(|(name, property)| (name.as_str(), property["maximum"].as_u64().unwrap())).collect();
    assert!(numbers.iter().any(|(name, _)| *name == "connections_max"), "{numbers:?}");
    let lines = |more| numbers.iter().map(|(name, most)| format!("{name} = {}\n", most + more)).collect::<String>();
    let home = tempfile::tempdir().unwrap();
    let ((code, said), (serves, refused)) = told(&home, &lines(1)).await;
    assert_eq!((code, serves, said.lines().count()), (Some(2), Some(2), numbers.len()), "{said}\n{refused}");
    std::fs::write(home.path().join("c.toml"), lines(0)).unwrap();
    let (code, out, err) = ended(simse(home.path()).args(["config", "check", "c.toml"]).spawn().unwrap()).await;
    assert_eq!(code, Some(0), "{out}{err}");
    let serving = Serving::start(&home, &["--config", "c.toml", "--model", "demo/scripted"]).await;
    let create = serving.request("POST", "/sessions").json(&serde_json::json!({ "sessionId": "a" }));
    assert_eq!(create.send(serving.address).await.status, 201);
    let prompt =
        serving.request("POST", "/sessions/a/prompt?wait=true").json(&serde_json::json!({ "prompt": "hello" }));
    assert_eq!(prompt.send(serving.address).await.json()["status"], "completed");
    serving.stop_well().await;
}

#[tokio::test]
async fn all_of_it_is_said_at_once() {
    let home = tempfile::tempdir().unwrap();
    writable_data(home.path());
    let configuration = "prot = 1\ncwd = 'nowhere'\nhost = '0.0.0.0'\nsocket = 'nowhere/s'\nmodel = 'no/such'\nport = 'x'\n\
        otlp_endpoint = 's3cret'\n[[mcp_servers]]\nname = 'a b'\n[[mcp_servers]]\nname = 'c'\nurl = 's3cret'\n";
    std::fs::write(home.path().join("c.toml"), configuration).unwrap();
    let check = simse(home.path()).args(["config", "check", "c.toml"]).env("SIMSE_NO_AUTH", "perhaps").spawn().unwrap();
    let (code, out, _) = ended(check).await;
    assert_eq!(code, Some(2));
    let begins = [
        "c.toml:1: `prot`",
        "c.toml:2: --cwd",
        "c.toml:3: 0.0.0.0",
        "c.toml:4: cannot listen on the socket",
        "c.toml:5: --model",
        "c.toml:6: `port`",
        "c.toml:7: --otlp-endpoint",
        "c.toml:8: `mcp_servers[0].command`",
        "c.toml:9: `mcp_servers[0].name`",
        "c.toml:12: `mcp_servers[1].url`",
        "SIMSE_NO_AUTH: expected true",
        "cannot use the data directory",
    ];
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), begins.len(), "{out}");
    for (line, begins) in lines.iter().zip(begins) {
        assert!(line.starts_with(begins), "{line}\nshould begin with {begins}\n{out}");
    }
    assert!(!out.contains("s3cret"), "{out}");
}
