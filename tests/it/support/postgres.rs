//! A real PostgreSQL for a test: see `tests/postgres.sh`.
//!
//! `SIMSE_TEST_POSTGRES` names the directory of `initdb` and `postgres`; without it the newest below /usr/lib/postgresql is taken. Where
//! there is none these tests say so and pass; `.ci/run` installs it, and names what it could not.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// A PostgreSQL of this test alone.
pub struct Postgres {
    _child: Child,
    input: Mutex<ChildStdin>,
    output: Mutex<BufReader<ChildStdout>>,
    port: u16,
    home: PathBuf,
}

fn programs() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("SIMSE_TEST_POSTGRES") {
        return Some(named.into());
    }
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|e| e.path()).collect();
    found.retain(|version| version.join("bin/initdb").exists());
    found.sort_by_key(|version| version.file_name()?.to_str()?.parse::<u32>().ok());
    Some(found.pop()?.join("bin"))
}

impl Postgres {
    /// Starts one. None: there is no PostgreSQL on this machine.
    pub fn start() -> Option<Self> {
        Self::start_with(None, |_| Vec::new())
    }

    /// The same with files in its directory, and settings that may name them.
    pub fn start_with(files: Option<&Path>, settings: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        let Some(programs) = programs() else {
            let _ = writeln!(
                std::io::stderr(),
                "left out: there is no PostgreSQL below /usr/lib/postgresql, and SIMSE_TEST_POSTGRES names none"
            );
            return None;
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("simse-pg-{}-{nth}", std::process::id()));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres.sh");
        let mut child = Command::new("sh")
            .args([script.as_os_str(), programs.as_os_str(), home.as_os_str()])
            .arg(port.to_string())
            .args(settings(&home))
            .env("FILES", files.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let started =
            Self { _child: child, input: Mutex::new(input), output: Mutex::new(BufReader::new(output)), port, home };
        assert_eq!(started.line(), "ready");
        Some(started)
    }

    fn line(&self) -> String {
        let mut line = String::new();
        self.output.lock().read_line(&mut line).expect("its output");
        line.trim_end().to_owned()
    }

    /// `restart` (as by a crash), `stop` or `start`, `freeze` or `thaw`.
    pub fn tell(&self, word: &str) {
        writeln!(self.input.lock(), "{word}").expect("its input");
        assert_eq!(self.line(), "done");
    }

    /// Where it is, over its socket alone.
    pub fn socket_url(&self) -> String {
        let home = self.home.display().to_string().replace('/', "%2F");
        format!("postgres://simse@{home}:{}/postgres?sslmode=disable", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("postgres://simse@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
}
