//! `simse mcp`: the tools and sessions as an MCP server, for the program that started it, over its standard streams.
//!
//! Invariant: stdout carries the protocol and nothing else, as with `simse serve --stdio`.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::arguments::Mcp;
use super::attach::{self, Wanted};
use super::log::Log;
use super::reload::Reloader;
use super::running::open;
use super::serve::{Told, exit_of, refuse};
use super::stdio::{Streams, take_streams};
use super::supervised::Supervised;
use super::{Exit, descriptors, signal};
use crate::config::{Launch, LogFormat, Options, Origin, Storage, embedded_data_directory, strange_variables};
use crate::server::{Pipe, serve_mcp};

/// Serves until the input ends, or a signal.
pub(super) async fn run(arguments: Mcp) -> Exit {
    // Before anything can print.
    let streams = match take_streams() {
        Ok(streams) => streams,
        Err(cause) => return refuse(LogFormat::Text, Exit::CannotStart, format!("stdout cannot be used: {cause}")),
    };
    let given = (arguments.options.clone(), arguments.config.clone());
    let mut launch = match Launch::resolve(arguments.options, arguments.config, Options::default()) {
        Ok(launch) => launch,
        Err(error) => return refuse(LogFormat::Text, Exit::Usage, error),
    };
    if let Some(url) = arguments.attach {
        let wanted = Wanted { url, session: arguments.session, token_file: arguments.token_file };
        return attach::run(&launch, streams, wanted).await;
    }
    launch.listen.mcp_fixtures = arguments.mcp_fixtures;
    find_place(&mut launch);
    let log = Log::start(&launch);
    for said in strange_variables() {
        tracing::warn!("{said}");
    }
    let exit = serve(&launch, streams, (given, &log)).await;
    log.deliver().await;
    log.flush();
    exit
}

/// Where nobody says where, it keeps its sessions as an embedded server does: clients start one each, often several at once.
fn find_place(launch: &mut Launch) {
    // It has no door for others.
    launch.settings.stand_alone();
    if launch.said.data_dir.is_some() {
        return;
    }
    if let Some(place) = embedded_data_directory(&launch.settings.working_directory) {
        launch.data_directory.clone_from(&place);
        launch.settings.storage = Storage::FirstFreeUnder(place);
    }
    // A database has one server: that of the configuration is for `serve`, and several of these run at once.
    let named = launch.origins.iter().any(|(name, origin)| *name == "store" && *origin == Origin::Flag);
    if !named {
        launch.settings.database = None;
    }
}

async fn serve(launch: &Launch, streams: Streams, (given, log): Told<'_>) -> Exit {
    let stop = match signal::stop_requested() {
        Ok(stop) => stop,
        Err(cause) => return refuse(launch.log_format, Exit::CannotStart, format!("no signals: {cause}")),
    };
    let launch = &descriptors::fit(launch);
    let app = match open(launch).await {
        Ok(app) => app,
        Err(error) => return refuse(launch.log_format, exit_of(&error), error),
    };
    log.copy_to(app.tracer());
    let end = CancellationToken::new();
    let reloader = Reloader::new(given, launch.clone(), (Arc::clone(&app), log.clone(), Supervised::default()));
    let grace = reloader.grace();
    let reloading = AbortOnDropHandle::new(tokio::spawn(reloader.run(end.clone())));
    let pipe = Pipe {
        input: tokio::fs::File::from_std(streams.input),
        output: tokio::fs::File::from_std(streams.output),
        line_bytes_max: launch.listen.body_bytes_max,
        grace,
    };
    let served = serve_mcp(app, pipe, (stop, launch.listen.mcp_fixtures)).await;
    end.cancel();
    drop(reloading.await);
    match served {
        Ok(()) => Exit::Ok,
        Err(error) => {
            log.problem(format_args!("not everything could be stored: {error}"));
            Exit::Failed
        }
    }
}
