//! The compiled half of the benchmarks: a scripted model server, and clients that cost little beside what they measure.
//!
//! Standard library only, one thread a connection, so that `benches/run.mjs` can build it in seconds with rustc
//! alone. It knows nothing of simse: addresses, paths and markers come from the caller, so that the same program
//! measures every server in the same way. Each command prints one JSON document on stdout. Not a library of HTTP:
//! it reads what the servers under test send, and ends with a clear error at anything else.

mod crowd;
mod http;
mod load;
mod model;
mod pace;
mod recordings;
mod streams;

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "usage:
  server model  --port-file FILE
  server recordings --directory DIR --port-file FILE
  server create --address HOST:PORT --path PATH[,PATH] --body JSON --connections N --count N [--warm N]
  server turns  --address HOST:PORT --events PATH --prompt PATH --body JSON --count N --terminal TEXT
                [--failure TEXT] [--delta TEXT] [--keep TEXT] [--limit-ms N]
  server crowd  --address HOST:PORT --events PATH --prompt PATH --body JSON --clients N --terminal TEXT --delta TEXT
  server resume --address HOST:PORT --events PATH --until N
  server many   --address HOST:PORT --list FILE --body JSON --terminal TEXT --delta TEXT
In a body, {n} is the number of the turn. Markers (--terminal, --failure, --delta, --keep) are searched in each event.";

/// `--name value` pairs.
pub struct Options(HashMap<String, String>);

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut pairs = HashMap::new();
        let mut words = words;
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or(format!("expected an option, found `{word}`"))?;
            let value = words.next().ok_or(format!("--{name} needs a value"))?;
            pairs.insert(name.to_owned(), value);
        }
        Ok(Self(pairs))
    }

    /// The value of `--name`.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        self.0.get(name).map(String::as_str).ok_or(format!("--{name} is missing\n{USAGE}"))
    }

    /// The value of `--name`, or nothing.
    pub fn optional(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of `--name` as a number; `default` when it is not there and there is a default.
    pub fn number(&self, name: &str, default: Option<usize>) -> Result<usize, String> {
        match (self.0.get(name), default) {
            (Some(text), _) => text.parse().map_err(|_| format!("--{name}: expected a number, found `{text}`")),
            (None, Some(number)) => Ok(number),
            (None, None) => Err(format!("--{name} is missing\n{USAGE}")),
        }
    }
}

fn run() -> Result<String, String> {
    // cargo passes `--bench` to what it runs as a benchmark.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let command = words.next().unwrap_or_default();
    let options = Options::parse(words)?;
    match command.as_str() {
        "model" => model::serve(&options),
        "recordings" => recordings::serve(&options),
        "create" => load::create(&options),
        "turns" => load::turns(&options),
        "crowd" => crowd::crowd(&options),
        "resume" => crowd::resume(&options),
        "many" => crowd::many(&options),
        // Nothing asked: `cargo bench` and `cargo test --all-targets` start it so.
        "" => Ok(USAGE.to_owned()),
        _ => Err(USAGE.to_owned()),
    }
}

fn main() -> ExitCode {
    let (text, code) = match run() {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(problem) => (format!("{{\"error\":{}}}", json_string(&problem)), ExitCode::FAILURE),
    };
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// `text` as a JSON string.
pub fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if u32::from(c) < 0x20 => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

/// Microseconds since 1970: one clock for all processes of a run.
pub fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
