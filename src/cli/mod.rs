//! The command line: the outermost face of the program, and the only place that prints.
//!
//! stdout carries results, stderr everything about them. Exit codes stand in `Exit`.

pub mod example_repository;

mod acp;
mod activation;
mod arguments;
mod attach;
mod bridge;
mod chat;
mod check;
mod client;
mod config;
mod copies;
mod descriptors;
mod doctor;
#[cfg(feature = "node")]
mod exported;
mod follow;
mod found;
mod job;
mod log;
mod mcp;
mod nodes;
mod panics;
mod program;
mod reach;
mod rehearsal;
mod reload;
mod run;
mod running;
mod screen;
mod serve;
mod sessions;
mod show;
mod signal;
mod start;
mod stdio;
mod store;
mod supervised;
mod token;
mod tool_servers;
mod transfer;
mod tui;
mod typed;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

use self::arguments::{Arguments, Command};
use self::running::Running;
use crate::base::process::hide_own;
use crate::config::{HIDDEN, Launch, data_directory, own_arguments};
use crate::server::openapi_document;

/// Threads that serve, at most. What blocks runs on others.
const WORKERS_MAX: usize = 8;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// It went well.
    Ok,
    /// The job failed, a check found something, or a stop could not save everything.
    Failed,
    /// The arguments, the environment or the configuration file are wrong.
    Usage,
    /// The server cannot start or be reached.
    CannotStart,
    /// A turn was stopped before it was done: by somebody, a limit or a budget.
    Stopped,
}

impl Exit {
    const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::CannotStart => 3,
            Self::Stopped => 4,
        }
    }
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    ExitCode::from(run_with(own_arguments()).code())
}

/// Runs it with these, the first of them its own name.
fn run_with(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    // Wrong arguments, --help and --version end here, with clap's own words and codes 2 and 0.
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(words) => return told(&unspoken(words)),
    };
    hide_own();
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, WORKERS_MAX);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => {
            screen::problem(format_args!("cannot start its threads: {cause}"));
            return Exit::CannotStart;
        }
    };
    let command = arguments.command.unwrap_or_else(|| Command::Here(Box::new(arguments.reach)));
    let serves = matches!(command, Command::Serve(_) | Command::Acp(_) | Command::Mcp(_) | Command::Start(_));
    let exit = runtime.block_on(async {
        match command {
            Command::Here(reach) => tui::run(*reach).await,
            Command::Attach(arguments) => tui::run(arguments.reach()).await,
            Command::Run(arguments) => run::run(*arguments).await,
            Command::Chat(arguments) => chat::run(*arguments).await,
            Command::Sessions(arguments) => sessions::run(arguments).await,
            Command::Doctor(place) => doctor::run(place).await,
            Command::Completions { shell } => completions(shell),
            Command::Serve(arguments) => serve::run(arguments).await,
            Command::Acp(arguments) => acp::run(arguments).await,
            Command::Mcp(arguments) => mcp::run(arguments).await,
            Command::Start(arguments) => start::run(arguments).await,
            Command::Token(arguments) => token::run(arguments),
            Command::Config(arguments) => config::run(arguments).await,
            Command::Check(arguments) => check::run(arguments),
            Command::Export(arguments) => transfer::export(arguments),
            Command::Import(arguments) => transfer::import(arguments).await,
            Command::Store(arguments) => store::run(arguments.verb).await,
            Command::Nodes(arguments) => nodes::list(arguments).await,
            Command::Drain(arguments) => nodes::drain(arguments).await,
            Command::McpLogin(arguments) => tool_servers::log_in_at(arguments).await,
            Command::Trust(arguments) => tool_servers::trust(arguments),
            Command::Bridge => bridge::run(),
            Command::Openapi => openapi(),
        }
    });
    // A thread may wait for a line on the terminal that will never come.
    runtime.shutdown_background();
    match screen::unprinted() {
        // What a server has to say there, it has said in its log, too.
        Some(cause) if !serves && exit == Exit::Ok => unprinted(cause),
        _ => exit,
    }
}

/// Without the address of a store or of a server: a password may stand in it.
fn unspoken(mut words: clap::Error) -> clap::Error {
    let is_address = |of: &str| of.ends_with("<STORE>") || of.starts_with("--node-url ");
    if matches!(words.get(ContextKind::InvalidArg), Some(ContextValue::String(of)) if is_address(of)) {
        words.insert(ContextKind::InvalidValue, ContextValue::String(HIDDEN.to_owned()));
    }
    words
}

/// Ends with what clap has to say.
fn told(words: &clap::Error) -> Exit {
    match words.print() {
        Err(cause) if cause.kind() != std::io::ErrorKind::BrokenPipe => unprinted(&cause.to_string()),
        Ok(()) | Err(_) if words.use_stderr() => Exit::Usage,
        Ok(()) | Err(_) => Exit::Ok,
    }
}

fn unprinted(cause: &str) -> Exit {
    screen::problem(format_args!("stdout cannot be written: {cause}"));
    Exit::Failed
}

/// Prints what makes a shell complete our commands.
fn completions(shell: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "simse", &mut script);
    screen::piece(&String::from_utf8_lossy(&script));
    Exit::Ok
}

/// Prints the OpenAPI document.
fn openapi() -> Exit {
    screen::line(openapi_document().trim_end());
    Exit::Ok
}

/// A curl command that works as printed. `flags` come before the address.
fn curl(running: &Running, launch: &Launch, flags: &str, path: &str) -> String {
    // The certificate may be for other names, or be one of one's own: the socket needs neither it nor a token.
    if let (Some(_), Some(socket)) = (&launch.listen.tls, &launch.listen.socket) {
        let socket = quoted(&socket.display().to_string());
        return format!("curl -sS --unix-socket {socket} {flags}{}", quoted(&format!("http://localhost{path}")));
    }
    let token = data_directory::token_file(&launch.data_directory);
    let auth = match &running.token {
        Some(_) => format!("-H \"Authorization: Bearer $(cat {})\" ", quoted(&token.display().to_string())),
        None => String::new(),
    };
    format!("curl -sS {flags}{auth}{}", quoted(&format!("{}{path}", running.url)))
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=@%+".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
