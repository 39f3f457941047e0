//! TLS and the Unix socket (contract.md, Doors), on the real server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use simse::server::{ListenError, ListenOptions, Server, TlsFiles};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::binary::{Serving, ended, simse};
use crate::support::house::House;
use crate::support::http::{PATIENCE, within};

/// Certificates for `localhost` and 127.0.0.1, each of an authority of its own, made for these tests.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tls").join(name)
}

fn trusting(authority: &str) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(fixture(authority)).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

async fn secured(port: u16, authority: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(("127.0.0.1", port)).await?;
    trusting(authority).connect(ServerName::try_from("localhost").unwrap(), socket).await
}

/// Sends, and reads to the end.
async fn told<T: AsyncRead + AsyncWrite + Unpin>(mut socket: T, request: &str) -> String {
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    // An end without TLS's own last word is an end here.
    drop(tokio::time::timeout(PATIENCE, socket.read_to_end(&mut all)).await.expect("the connection stays open"));
    String::from_utf8(all).unwrap()
}

fn get(path: &str, host: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn the_program_attaches_over_tls_to_whom_it_trusts() {
    let home = tempfile::tempdir().unwrap();
    for (from, to) in [("one.pem", "c.pem"), ("one.key", "k.pem")] {
        std::fs::copy(fixture(from), home.path().join(to)).unwrap();
    }
    let serving = Serving::start(&home, &["--tls-cert", "c.pem", "--tls-key", "k.pem"]).await;
    let (port, token) = (serving.address.port(), serving.token().unwrap());
    let elsewhere = tempfile::tempdir().unwrap();
    let attach = async |authority: Option<&str>| {
        let mut program = simse(elsewhere.path());
        // A session works under a root of the server.
        program.current_dir(home.path());
        program
            .args(["run", "--attach", &format!("https://localhost:{port}"), "what is here?"])
            .env("SIMSE_TOKEN", &token);
        if let Some(authority) = authority {
            program.env("SSL_CERT_FILE", fixture(authority));
        }
        ended(program.spawn().unwrap()).await
    };
    let (code, out, err) = attach(Some("ca-one.pem")).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(!out.trim().is_empty(), "{err}");
    for authority in [None, Some("ca-two.pem")] {
        let (code, _, err) = attach(authority).await;
        assert_eq!(code, Some(3), "{err}");
        assert!(err.contains("invalid peer certificate") && err.contains("SSL_CERT_FILE"), "{err}");
    }
}

#[tokio::test]
async fn with_a_certificate_all_is_as_without_and_secret() {
    let home = tempfile::tempdir().unwrap();
    for (from, to) in [("one.pem", "c.pem"), ("one.key", "k.pem")] {
        std::fs::copy(fixture(from), home.path().join(to)).unwrap();
    }
    let arguments = ["--tls-cert", "c.pem", "--tls-key", "k.pem", "--head-timeout-ms", "1000", "--socket", "s"];
    let serving = Serving::start(&home, &arguments).await;
    let (port, token) = (serving.address.port(), serving.token().unwrap());
    let host = format!("localhost:{port}");
    let said = std::fs::read_to_string(home.path().join(".local/share/simse/server.json")).unwrap();
    assert!(said.contains(&format!("https://127.0.0.1:{port}")), "{said}");
    let with = format!("Authorization: Bearer {token}\r\n");
    let answer = told(secured(port, "ca-one.pem").await.unwrap(), &get("/sessions", &host, &with)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    for (what, headers, status) in [("no token", "", "401"), ("another page", "Origin: http://localhost:1\r\n", "403")]
    {
        let answer = told(secured(port, "ca-one.pem").await.unwrap(), &get("/sessions", &host, headers)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{what}: {answer}");
    }
    // What is no HTTP, and a head that does not come, are answered inside as outside.
    let nonsense = told(secured(port, "ca-one.pem").await.unwrap(), "nonsense\r\n\r\n").await;
    assert!(nonsense.starts_with("HTTP/1.1 400") && nonsense.contains("INVALID_ARGUMENT"), "{nonsense}");
    let coded = told(secured(port, "ca-one.pem").await.unwrap(), CODED).await;
    assert!(coded.starts_with("HTTP/1.1 400") && coded.contains("Transfer-Encoding"), "{coded}");
    let slow = told(secured(port, "ca-one.pem").await.unwrap(), "GET /health HTTP/1.1\r\nX: ").await;
    assert!(slow.starts_with("HTTP/1.1 408"), "{slow}");
    // Who begins no TLS, or never finishes with it, gets no answer in the clear, and an end.
    for outside in [get("/health", &host, ""), "\x16\x03\x01".to_owned(), String::new()] {
        let answer = told(TcpStream::connect(("127.0.0.1", port)).await.unwrap(), &outside).await;
        assert!(!answer.contains("HTTP"), "{answer}");
    }
    // Another authority's certificate is not ours; a renewed one is served without a restart.
    assert!(secured(port, "ca-two.pem").await.is_err());
    for (from, to) in [("two.pem", "c.pem"), ("two.key", "k.pem")] {
        let beside = home.path().join("new");
        std::fs::copy(fixture(from), &beside).unwrap();
        std::fs::rename(beside, home.path().join(to)).unwrap();
    }
    let renewed = async {
        loop {
            if let Ok(socket) = secured(port, "ca-two.pem").await {
                break socket;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let renewed = tokio::time::timeout(PATIENCE, renewed).await.expect("the new certificate is not served");
    assert!(told(renewed, &get("/health", &host, "")).await.starts_with("HTTP/1.1 200 OK"));
    // One that cannot be used changes nothing.
    std::fs::write(home.path().join("c.pem"), "nonsense").unwrap();
    let local = UnixStream::connect(home.path().join("s")).await.unwrap();
    assert!(told(local, &get("/sessions", "localhost", "")).await.starts_with("HTTP/1.1 200 OK"));
    assert!(secured(port, "ca-two.pem").await.is_ok());
    let (code, _, err) = serving.stop().await;
    assert_eq!(code, Some(0), "{err}");
}

#[tokio::test]
async fn files_that_are_no_certificate_are_named() {
    let house = House::open().await;
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let key = std::fs::read_to_string(fixture("one.key")).unwrap();
    let (secret, rest) = key.split_at(key.len() / 2);
    #[rustfmt::skip]
    let table = [
        (home.path().join("none"), fixture("one.key"), "none", "No such file"),
        (fixture("one.pem"), home.path().join("none"), "none", "No such file"),
        (fixture("one.key"), fixture("one.key"), "one.key", "expected certificates in PEM; it holds none"),
        (fixture("one.pem"), fixture("one.pem"), "one.pem", "expected a private key in PEM, without a password; it holds none"),
        (fixture("one.pem"), fixture("two.key"), "two.key", "expected the key of the certificate; it is another's"),
        (fixture("one.pem"), file("half", secret), "half", "a section has a beginning and no end"),
        (fixture("one.pem"), file("dirt", &format!("{secret}?!{rest}")), "dirt", "not Base64"),
        (file("empty", ""), fixture("one.key"), "empty", "it holds none"),
    ];
    for (certificate, key, name, says) in table {
        let options = ListenOptions { tls: Some(TlsFiles { certificate, key }), ..Default::default() };
        let error = Server::start(house.app.clone(), options).await.unwrap_err();
        assert!(matches!(error, ListenError::Tls { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains(name) && error.contains(says), "{error}\nshould say {says}");
        assert!(!secret.lines().nth(1).is_some_and(|line| error.contains(&line[..10])), "{error}");
    }
    house.close().await;
}

/// The chunks are there, and something else before them.
const CODED: &str = "POST /sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n";

async fn local(home: &TempDir, request: &str) -> String {
    told(UnixStream::connect(home.path().join("s")).await.unwrap(), request).await
}

#[tokio::test]
async fn the_socket_knows_its_callers() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--socket", "s"]).await;
    let path = home.path().join("s");
    let found = std::fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket() && found.permissions().mode() & 0o777 == 0o600, "{found:?}");
    let said = std::fs::read_to_string(home.path().join(".local/share/simse/server.json")).unwrap();
    assert!(said.contains("\"socket\"") && said.contains("/s\""), "{said}");
    #[rustfmt::skip]
    let table = [
        ("the owner", get("/sessions", "localhost", ""), "200"),
        ("a token that is none", get("/sessions", "localhost", "Authorization: Bearer wrong\r\n"), "401"),
        ("another name", get("/sessions", "attacker.example", ""), "403"),
        ("a page", get("/sessions", "localhost", "Origin: http://attacker.example\r\n"), "403"),
        ("no HTTP", "nonsense\r\n\r\n".to_owned(), "400"),
        ("two lengths", "POST /sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), "400"),
        ("another coding", CODED.to_owned(), "400"),
    ];
    for (what, request, status) in table {
        let answer = local(&home, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{what}: {answer}");
    }
    let body = json!({ "sessionId": "s" }).to_string();
    let create = format!(
        "POST /sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(local(&home, &create).await.starts_with("HTTP/1.1 201"));
    let reply = serving.request("GET", "/sessions/s").send(serving.address).await;
    assert_eq!(reply.status, 200, "one owner, whichever door");
    // Somebody else is refused by the kernel, and by us where the file's mode would let him in.
    if rustix::process::geteuid().is_root() {
        assert_eq!(as_nobody(&home, &path).await, None);
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        if let Some(answer) = as_nobody(&home, &path).await {
            assert!(answer.contains("FORBIDDEN") && !answer.contains("\"items\""), "{answer}");
        }
    }
    let second =
        simse(home.path()).args(["serve", "--port", "0", "--data-dir", "d2", "--socket", "s"]).spawn().unwrap();
    let (code, _, err) = ended(second).await;
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("another program listens there"), "{err}");
    let (code, _, err) = serving.stop().await;
    assert_eq!(code, Some(0), "{err}");
    assert!(!path.exists(), "it goes with the server");
    // A crash leaves it behind, and the next start takes its place.
    let mut killed = Serving::start(&home, &["--socket", "s"]).await;
    killed.child.kill().await.unwrap();
    assert!(path.exists());
    let next = Serving::start(&home, &["--socket", "s"]).await;
    assert!(local(&home, &get("/sessions/s", "localhost", "")).await.starts_with("HTTP/1.1 200"));
    next.stop().await;
}

/// What another user is told. None: he does not get there.
async fn as_nobody(home: &TempDir, path: &Path) -> Option<String> {
    let mut curl = tokio::process::Command::new("curl");
    curl.args(["-sS", "--unix-socket"])
        .arg(path)
        .arg("http://localhost/sessions")
        .current_dir(home.path())
        .uid(65_534)
        .gid(65_534);
    let ran = within(curl.kill_on_drop(true).output()).await.ok().filter(|ran| ran.status.success())?;
    Some(String::from_utf8(ran.stdout).unwrap())
}

#[tokio::test]
async fn a_public_server_in_the_clear_says_so() {
    let home = tempfile::tempdir().unwrap();
    for (from, to) in [("one.pem", "c.pem"), ("one.key", "k.pem")] {
        std::fs::copy(fixture(from), home.path().join(to)).unwrap();
    }
    let tls = ["--tls-cert", "c.pem", "--tls-key", "k.pem"];
    let public = ["--host", "0.0.0.0", "--allow-public"];
    for (arguments, clear) in [(public.to_vec(), true), ([&public[..], &tls[..]].concat(), false), (vec![], false)] {
        for format in [&[][..], &["--log-format", "json"]] {
            let serving = Serving::start(&home, &[&arguments[..], format].concat()).await;
            let (_, _, err) = serving.stop().await;
            assert_eq!(err.contains("travel in the clear"), clear, "{arguments:?}: {err}");
        }
    }
}
