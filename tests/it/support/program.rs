//! The built program as a child, and a client that speaks just enough HTTP to it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program that is tested: a run of hours wants one that nobody builds anew meanwhile.
pub fn built() -> OsString {
    std::env::var_os("SIMSE_TEST_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_simse").into())
}

/// That of an earlier release, where one is named (the release workflow does); otherwise the one that is tested.
pub fn older() -> OsString {
    std::env::var_os("SIMSE_TEST_OLDER_PROGRAM").filter(|named| !named.is_empty()).unwrap_or_else(built)
}

/// `simse serve`, killed when it is dropped.
pub struct Program {
    /// Where it listens.
    pub port: u16,
    child: Child,
}

impl Program {
    /// Starts it over a data directory, with a model behind `base_url`, and waits until it listens.
    pub async fn serve(data: &Path, work: &Path, base_url: &str) -> Self {
        Self::serve_as(data, work, base_url, None).await
    }

    /// The same with a file of settings.
    pub async fn serve_as(data: &Path, work: &Path, base_url: &str, config: Option<&Path>) -> Self {
        let port_file = data.with_extension("port");
        let _ = std::fs::remove_file(&port_file);
        let mut command = Command::new(built());
        command.args([
            "serve",
            "--port",
            "0",
            "--no-auth",
            "--model",
            "openai/m",
            "--log-level",
            "error",
            "--data-dir",
        ]);
        command.arg(data).arg("--cwd").arg(work).arg("--port-file").arg(&port_file);
        command.args(["--openai-base-url", base_url]).env_remove("OPENAI_API_KEY");
        command.env("SIMSE_INTERRUPT_GRACE_MS", "300");
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
        let listens = async {
            loop {
                let port = std::fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse().ok());
                if let Some(port) = port {
                    return port;
                }
                if let Some(status) = child.try_wait().expect("its status") {
                    let mut said = String::new();
                    child.stderr.take().expect("piped").read_to_string(&mut said).await.expect("read");
                    panic!("it ended with {status}: {said}");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let port = tokio::time::timeout(PATIENCE, listens).await.expect("it listens in time");
        Self { port, child }
    }

    /// `kill -9`, without waiting for the end.
    pub fn signal_kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    /// Any signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process(id, signal).expect("it is ours");
        }
    }

    /// Waits for its end: the exit code, and what it has said on stderr.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        let read = async {
            self.child.stderr.take().expect("piped").read_to_string(&mut said).await.expect("read");
            self.child.wait().await.expect("its status").code()
        };
        let code = tokio::time::timeout(PATIENCE, read).await.expect("it ends in time");
        (code, said)
    }

    /// The most memory that it has had so far.
    pub fn most_resident_mb(&self) -> u64 {
        most_resident_mb(self.child.id().expect("it runs"))
    }

    /// `kill -9`.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// One request, and its answer.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let (status, text) = self.text(method, path, body).await;
        (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{method} {path}: {e}: {text}")))
    }

    /// The same, its body as it came.
    pub async fn text(&self, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n{kind}content-length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await.expect("an answer in time").expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, body.to_owned())
    }

    /// A prompt that says its own key. None: the program ended before it had answered.
    pub async fn try_prompt(&self, session: &str, key: &str) -> Option<Value> {
        let body = serde_json::json!({ "prompt": key }).to_string();
        let head = format!(
            "POST /sessions/{session}/prompt HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n\
             idempotency-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all((head + &body).as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await.expect("an end in time").ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let body = serde_json::from_str(body).ok()?;
        assert!(head.contains(" 202 "), "{answer}");
        Some(body)
    }

    /// A session's events behind number `after`.
    pub async fn events(&self, session: &str, after: u64) -> Events {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens");
        let head = format!(
            "GET /sessions/{session}/events HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nlast-event-id: {after}\r\n\r\n",
            self.port
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut lines = BufReader::new(stream);
        let mut status = String::new();
        lines.read_line(&mut status).await.expect("a status");
        assert!(status.contains(" 200 "), "{status}");
        Events { lines }
    }
}

/// An event stream.
pub struct Events {
    lines: BufReader<TcpStream>,
}

impl Events {
    /// The next event: its number and its data as they came. None: the connection has ended.
    pub async fn next(&mut self) -> Option<(u64, String)> {
        // Comments come for as long as the connection is open: what does not come at all has an end here too.
        tokio::time::timeout(PATIENCE, self.read()).await.expect("an event in time")
    }

    async fn read(&mut self) -> Option<(u64, String)> {
        let mut seq = None;
        loop {
            let mut line = String::new();
            // A connection that breaks in the middle of a frame shows nothing of it.
            let read = self.lines.read_line(&mut line).await;
            if read.unwrap_or(0) == 0 || !line.ends_with('\n') {
                return None;
            }
            // Chunk sizes and blank lines stand between the fields.
            if let Some(text) = line.strip_prefix("id: ") {
                seq = text.trim().parse().ok();
            }
            if let (Some(data), Some(seq)) = (line.strip_prefix("data: "), seq) {
                return Some((seq, data.trim_end().to_owned()));
            }
        }
    }
}

/// The most memory that a process has had so far.
pub fn most_resident_mb(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") / 1024
}
