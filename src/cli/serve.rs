//! `simse serve`: the server alone, until it is stopped. stdout stays empty.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::activation::activate;
use super::arguments::Serve;
use super::log::Log;
use super::reload::Reloader;
use super::running::{Running, StartError};
use super::supervised::Supervised;
use super::{Exit, screen, signal, stdio};
use crate::base::beneath::{Way, way};
use crate::base::passed::Passed;
use crate::base::sandbox::Mode;
use crate::config::{Launch, LogFormat, Options, Supervision, data_directory, strange_variables};

/// Said at the start of a server that other machines reach without TLS.
const CLEAR: &str = "tokens and all else travel in the clear: --tls-cert and --tls-key encrypt";

/// Serves until a signal.
pub(super) async fn run(arguments: Serve) -> Exit {
    // Before anything can print.
    let streams = match arguments.stdio.then(stdio::take_streams).transpose() {
        Ok(streams) => streams,
        Err(cause) => return refuse(LogFormat::Text, Exit::CannotStart, format!("stdout cannot be used: {cause}")),
    };
    let given = (arguments.options.clone(), arguments.config.clone());
    let mut launch = match Launch::resolve(arguments.options, arguments.config, Options::default()) {
        Ok(launch) => launch,
        Err(error) => return refuse(LogFormat::Text, Exit::Usage, error),
    };
    launch.listen.mcp_fixtures = arguments.mcp_fixtures;
    let passed = match activate(&mut launch, arguments.stdio) {
        Ok(passed) => passed,
        Err(error) => return refuse(launch.log_format, Exit::CannotStart, error),
    };
    let log = Log::start(&launch);
    for said in strange_variables() {
        tracing::warn!("{said}");
    }
    let exit = match streams {
        Some(streams) => stdio::run(&launch, streams, (given, &log)).await,
        None => serve(&launch, passed, (given, &log)).await,
    };
    log.deliver().await;
    log.flush();
    exit
}

/// What was said when the program was started, and its log.
pub(super) type Told<'a> = ((Options, Option<PathBuf>), &'a Log);

async fn serve(launch: &Launch, passed: Passed, (given, log): Told<'_>) -> Exit {
    let stop = match signal::stop_requested() {
        Ok(stop) => stop,
        Err(cause) => return refuse(launch.log_format, Exit::CannotStart, format!("no signals: {cause}")),
    };
    let mut running = match Running::start_on(launch, passed).await {
        Ok(running) => running,
        Err(error) => return refuse(launch.log_format, exit_of(&error), error),
    };
    log.copy_to(running.app.tracer());
    let supervised = Supervised::new(Supervision::of_this_process());
    let with = (Arc::clone(&running.app), log.clone(), supervised.clone());
    // Who hears that the server is ready, or finds its port, may send SIGHUP at once.
    let reloader = Reloader::new(given, launch.clone(), with);
    if let Err(error) = running.write_port_file().await {
        drop(running.stop().await);
        return refuse(launch.log_format, Exit::CannotStart, error);
    }
    match launch.log_format {
        LogFormat::Text => screen::note(&summary(&running, launch).await),
        LogFormat::Json => {
            if running.talks_in_the_clear() {
                tracing::warn!("{CLEAR}");
            }
            if data_directory::is_open_to_others(&launch.data_directory) {
                tracing::warn!("other users can look into the data directory; `chmod 700` closes it");
            }
            tracing::info!(url = running.url, pid = std::process::id(), data = %launch.data_directory.display(), "listening");
        }
    }
    supervised.ready(&format!("listening on {}", running.url));
    let over = running.app.taken_over();
    let (ended, followed) = (stop.clone(), CancellationToken::new());
    let is_followed = followed.clone();
    let _watch = AbortOnDropHandle::new(tokio::spawn(async move {
        over.await;
        followed.cancel();
        ended.cancel();
    }));
    let launch = reloader.run(stop).await;
    // What it does is another server's by now.
    let grace_ms = if is_followed.is_cancelled() { 0 } else { launch.shutdown_grace_ms };
    running.set_grace(grace_ms);
    supervised.stopping(Duration::from_millis(grace_ms));
    tracing::info!(grace_ms, "stopping; a second signal ends at once");
    match running.stop().await {
        // Whoever starts it again starts another node.
        Ok(()) if is_followed.is_cancelled() => {
            log.problem("another server has taken over from this one, which was silent for too long");
            Exit::Failed
        }
        Ok(()) => {
            tracing::info!("stopped");
            Exit::Ok
        }
        Err(error) => {
            log.problem(format_args!("not everything could be stored: {error}"));
            Exit::Failed
        }
    }
}

/// The exit code of a start that failed.
pub(super) fn exit_of(error: &StartError) -> Exit {
    match error {
        StartError::Setting(_) => Exit::Usage,
        StartError::Store(_) | StartError::Data(_) | StartError::Listen(_) => Exit::CannotStart,
    }
}

pub(super) fn refuse(format: LogFormat, exit: Exit, problem: impl std::fmt::Display) -> Exit {
    screen::last_as(format, problem);
    exit
}

/// What a person wants to know after a start.
async fn summary(running: &Running, launch: &Launch) -> String {
    let data = launch.data_directory.display();
    let mut lines = vec![format!("simse {}", env!("CARGO_PKG_VERSION")), format!("  listening  {}", running.url)];
    if running.talks_in_the_clear() {
        lines.push(format!("             {CLEAR}"));
    }
    if let Some(socket) = running.socket() {
        lines.push(format!("  socket     {}", socket.display()));
    }
    lines.extend([
        format!("  page       {}/ in a browser", running.url),
        format!("  model      {}", model(running)),
        format!("  directory  {}", launch.settings.working_directory.display()),
        format!("  data       {data}"),
    ]);
    lines.extend(missing_agents(running));
    lines.push(format!("  sandbox    {}", sandbox(running, launch).await));
    if way() == Way::Names {
        lines.push("             no openat2 here: paths are followed name by name".to_owned());
    }
    if data_directory::is_open_to_others(&launch.data_directory) {
        lines.push("             other users can look into it; `chmod 700` closes it".to_owned());
    }
    if let Some(file) = &launch.config_file {
        lines.push(format!("  settings   {}", file.display()));
    }
    let token = data_directory::token_file(&launch.data_directory);
    match running.token.as_ref().map(ExposeSecret::expose_secret) {
        Some(_) => lines.push(format!("  token      {}", token.display())),
        None => lines.push("  token      none: every program of this machine may use it (--no-auth)".to_owned()),
    }
    lines.push(format!("  try        {}", super::curl(running, launch, "", "/sessions")));
    lines.push("  stop       Ctrl-C, or SIGTERM".to_owned());
    lines.join("\n")
}

/// The agents that are configured and cannot be used, each with the reason.
fn missing_agents(running: &Running) -> impl Iterator<Item = String> {
    let missing = running.app.agents().into_iter().filter(|agent| !agent.available);
    missing.map(|agent| {
        let reason = agent.reason.as_deref().unwrap_or("no reason given");
        format!("  agent      {} is not available: {reason}", agent.name)
    })
}

/// What commands are held to, in words.
async fn sandbox(running: &Running, launch: &Launch) -> String {
    let settings = &launch.settings.sandbox;
    let network = if settings.network { "with the network" } else { "without the network" };
    let gaps = running.app.sandbox_gaps().await;
    match (settings.mode, gaps.is_empty()) {
        (Mode::Off, _) => "off: commands may do what this user may do".to_owned(),
        (mode, true) => format!("{mode}, {network}"),
        (mode, false) => format!("{mode}, {network}, but WEAKENED: {}", gaps.join("; ")),
    }
}

/// The model of new sessions, in words.
fn model(running: &Running) -> String {
    let models = running.app.listed_models();
    match models.iter().find(|model| model.default) {
        Some(model) if model.id.starts_with("demo/") => {
            format!("{} (a built-in script; OPENAI_API_KEY, --openai-base-url or --model bring a real one)", model.id)
        }
        Some(model) if !model.available => {
            format!("{} (not available: {})", model.id, model.reason.as_deref().unwrap_or("no reason given"))
        }
        Some(model) => model.id.clone(),
        None => "none".to_owned(),
    }
}
