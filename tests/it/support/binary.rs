//! The program as it is shipped, started in surroundings of its own.

#![allow(dead_code, reason = "each user takes the parts that it needs")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::http::{PATIENCE, Request, request};

/// The program with a clean environment: a home of its own, nothing configured.
pub fn simse(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simse"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// How a run ended: code, stdout, stderr.
pub async fn ended(child: Child) -> (Option<i32>, String, String) {
    let output = tokio::time::timeout(Duration::from_secs(120), child.wait_with_output()).await;
    let output = output.expect("the program does not end").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A server that runs.
pub struct Serving {
    /// Its process.
    pub child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    token: Option<String>,
}

impl Serving {
    /// `simse serve` in a home, with more arguments, once it answers.
    pub async fn start(home: &TempDir, arguments: &[&str]) -> Self {
        Self::start_with(home, arguments, &[]).await
    }

    /// The same, with variables of its environment.
    pub async fn start_with(home: &TempDir, arguments: &[&str], environment: &[(&str, String)]) -> Self {
        Self::up(Self::command(home, arguments, environment), home).await
    }

    /// The same where it may have no more than so many files open, whatever it asks for.
    pub async fn start_with_files(home: &TempDir, arguments: &[&str], files: u32) -> Self {
        let server = Self::command(home, arguments, &[]);
        let server = server.as_std();
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("ulimit -n {files} && exec \"$@\"")).arg("bash");
        command.arg(server.get_program()).args(server.get_args()).current_dir(home.path()).env_clear();
        command.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Self::up(command, home).await
    }

    /// The same; what it says goes into files in its home, however much it is: nobody reads a pipe while it runs.
    pub async fn start_into_files(home: &TempDir, arguments: &[&str], environment: &[(&str, String)]) -> Self {
        let mut command = Self::command(home, arguments, environment);
        let said =
            |name: &str| std::fs::File::options().append(true).create(true).open(home.path().join(name)).unwrap();
        command.stdout(said("said.stdout")).stderr(said("said.stderr"));
        Self::up(command, home).await
    }

    fn command(home: &TempDir, arguments: &[&str], environment: &[(&str, String)]) -> Command {
        let mut command = simse(home.path());
        command.args(["serve", "--port", "0", "--port-file", "port"]).args(arguments);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command
    }

    async fn up(mut command: Command, home: &TempDir) -> Self {
        let port_file = home.path().join("port");
        // One from before is not this one's.
        drop(std::fs::remove_file(&port_file));
        let mut child = command.spawn().unwrap();
        let started = Instant::now();
        let port: u16 = loop {
            if let Ok(text) = std::fs::read_to_string(&port_file) {
                break text.trim().parse().unwrap();
            }
            if child.try_wait().unwrap().is_some() {
                panic!("the server ended: {:?}", ended(child).await);
            }
            assert!(started.elapsed() < PATIENCE, "the server does not come up");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let token = std::fs::read_to_string(home.path().join(".local/share/simse/token")).ok();
        Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)), token }
    }

    /// The owner's token.
    pub fn token(&self) -> Option<String> {
        self.token.as_ref().map(|token| token.trim().to_owned())
    }

    /// A request that carries the token.
    pub fn request(&self, method: &str, path: &str) -> Request {
        let request = request(self.address, method, path);
        match &self.token {
            Some(token) => request.header("Authorization", &format!("Bearer {}", token.trim())),
            None => request,
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Asks it to stop and waits for its end.
    pub async fn stop(self) -> (Option<i32>, String, String) {
        self.signal(rustix::process::Signal::TERM);
        ended(self.child).await
    }

    /// The same of one that ends as it should; else what it said.
    pub async fn stop_well(self) {
        let (code, _, said) = self.stop().await;
        assert_eq!(code, Some(0), "it said: {said}");
    }
}
