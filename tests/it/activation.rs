//! Sockets that a supervisor opens and passes (systemd's `LISTEN_FDS`). The parent is this test, by way of a shell: it opens them, and the
//! server gets them as descriptors 3 and 4.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

use crate::support::binary::{ended, simse};
use crate::support::http::{PATIENCE, request};

/// What a start is given: standard input and output carry the sockets to the shell, which moves them to where they belong.
struct Passing {
    first: OwnedFd,
    second: Option<OwnedFd>,
}

impl Passing {
    fn serve(self, home: &Path, pid: &str, arguments: &str) -> Child {
        let count = 1 + usize::from(self.second.is_some());
        let moved = if count == 2 { "3<&0 4<&1" } else { "3<&0" };
        let script = format!(
            "export LISTEN_PID={pid} LISTEN_FDS={count} LISTEN_FDNAMES=web:control; exec {} serve {arguments} {moved} 0</dev/null 1>/dev/null",
            env!("CARGO_BIN_EXE_simse")
        );
        let command = simse(home);
        let mut shell = tokio::process::Command::new("/bin/sh");
        shell.env_clear().current_dir(home).kill_on_drop(true).arg("-c").arg(script);
        for (name, value) in command.as_std().get_envs() {
            shell.env(name, value.unwrap());
        }
        shell.stdin(self.first).stderr(Stdio::piped());
        match self.second {
            Some(second) => shell.stdout(second),
            None => shell.stdout(Stdio::null()),
        };
        shell.spawn().unwrap()
    }
}

fn network() -> (OwnedFd, TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener.try_clone().unwrap().into(), listener, address)
}

/// What is answered to a request without a token, over a path.
async fn over(path: &Path, target: &str) -> String {
    let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn stop(child: &Child) {
    let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_listens_where_its_supervisor_does_and_the_next_one_too() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("simse.sock");
    let (_, listener, address) = network();
    let local = UnixListener::bind(&path).unwrap();
    let passing =
        || Passing { first: listener.try_clone().unwrap().into(), second: Some(local.try_clone().unwrap().into()) };
    for round in 0..2 {
        // Whoever comes before the server waits for it.
        let early = tokio::spawn(async move { request(address, "GET", "/health").send(address).await });
        let child = passing().serve(home.path(), "$$", "--log-level debug");
        assert_eq!(early.await.unwrap().status, 200, "round {round}");
        let token = std::fs::read_to_string(home.path().join(".local/share/simse/token")).unwrap();
        let bearer = format!("Bearer {}", token.trim());
        let created = request(address, "POST", "/sessions").header("Authorization", &bearer);
        let created = created.json(&json!({ "sessionId": format!("s{round}") })).send(address).await;
        assert_eq!(created.status, 201);
        // There the kernel says who calls, so it needs no token.
        let told = over(&path, "/sessions").await;
        assert!(told.starts_with("HTTP/1.1 200 ") && told.contains(&format!("\"s{round}\"")), "{told}");
        let file = std::fs::read_to_string(home.path().join(".local/share/simse/server.json")).unwrap();
        assert!(file.contains(&address.port().to_string()) && file.contains("simse.sock"), "{file}");
        stop(&child);
        let (code, _, err) = ended(child).await;
        assert_eq!(code, Some(0), "{err}");
        assert!(path.exists(), "the file is the supervisor's");
    }
}

#[tokio::test]
async fn what_cannot_be_listened_on_is_refused_and_named() {
    let home = tempfile::tempdir().unwrap();
    let file = || OwnedFd::from(std::fs::File::open(home.path()).unwrap());
    let everywhere = || OwnedFd::from(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    let datagrams = || OwnedFd::from(std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let one = || network().0;
    #[rustfmt::skip]
    let table: Vec<(Passing, &str, &str)> = vec![
        (Passing { first: file(), second: None }, "", "the socket `web` that was passed (descriptor 3): expected a socket"),
        (Passing { first: datagrams(), second: None }, "", "expected a socket of streams that listens"),
        (Passing { first: one(), second: Some(one()) }, "", "the socket `control` that was passed (descriptor 4): expected one address"),
        (Passing { first: everywhere(), second: None }, "", "0.0.0.0 can be reached from other machines"),
        (Passing { first: one(), second: None }, "--port 1", "--port says 1"),
        (Passing { first: one(), second: None }, "--host ::1", "--host says ::1"),
        (Passing { first: one(), second: None }, "--stdio", "with --stdio nobody listens"),
    ];
    for (passing, arguments, says) in table {
        let (code, _, err) = ended(passing.serve(home.path(), "$$", arguments)).await;
        assert_eq!(code, Some(3), "{arguments}: {err}");
        assert!(err.contains(says), "{arguments}: {err}\nshould say {says}");
    }
    // Sockets of another process are none of this one's.
    let (passed, _listener, _) = network();
    let child = Passing { first: passed, second: None }.serve(home.path(), "1", "--port 0 --port-file port");
    let port = home.path().join("port");
    let begun = std::time::Instant::now();
    while !port.exists() {
        assert!(begun.elapsed() < PATIENCE, "it does not come up");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    stop(&child);
    assert_eq!(ended(child).await.0, Some(0));
}
