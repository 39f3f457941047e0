//! `simse mcp-login` and `simse trust`: what the user decides about tool servers. A server that runs needs no restart.

use std::path::PathBuf;

use super::arguments::{McpLogin, Trust};
use super::{Exit, screen};
use crate::config::projects::{ProjectFile, Trusted};
use crate::config::{Launch, Options, data_directory};
use crate::mcp::{Logins, log_in};

fn launch(config: Option<PathBuf>, data_dir: Option<PathBuf>) -> Result<Launch, Exit> {
    let options = Options { data_dir, ..Options::default() };
    Launch::resolve(options, config, Options::default()).map_err(|error| {
        screen::problem(error);
        Exit::Usage
    })
}

/// Logs in at an MCP server, with a browser.
pub(super) async fn log_in_at(arguments: McpLogin) -> Exit {
    let launch = match launch(arguments.place.config, arguments.place.data_dir) {
        Ok(launch) => launch,
        Err(exit) => return exit,
    };
    let servers = &launch.settings.mcp_servers;
    let Some(server) = servers.iter().find(|server| server.name == arguments.name) else {
        let known: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        screen::problem(format_args!(
            "there is no MCP server `{}` in the configuration; known are {known}",
            arguments.name
        ));
        return Exit::Usage;
    };
    if let Err(error) = data_directory::prepare(&launch.data_directory) {
        screen::problem(error);
        return Exit::CannotStart;
    }
    let logins = Logins::within(&launch.data_directory);
    let show = |address: String| -> crate::base::BoxFuture<'static, ()> {
        screen::note("open this address in a browser on this machine, and log in there:");
        screen::line(&address);
        Box::pin(std::future::ready(()))
    };
    match log_in(server, &logins, show).await {
        Ok(()) => {
            screen::note(&format!("logged in at {}", server.name));
            Exit::Ok
        }
        Err(why) => {
            screen::problem(why);
            Exit::Failed
        }
    }
}

/// Trusts the `.mcp.json` of a project, shows what is trusted, or takes that back.
pub(super) fn trust(arguments: Trust) -> Exit {
    let launch = match launch(arguments.place.config, arguments.place.data_dir) {
        Ok(launch) => launch,
        Err(exit) => return exit,
    };
    match decide(&launch, arguments.project, (arguments.list, arguments.revoke)) {
        Ok(()) => Exit::Ok,
        Err(why) => {
            screen::problem(why);
            Exit::Failed
        }
    }
}

fn decide(launch: &Launch, project: Option<PathBuf>, (list, revoke): (bool, bool)) -> Result<(), String> {
    let data = &launch.data_directory;
    if list {
        for (path, hash) in Trusted::read(data).map_err(|error| error.to_string())?.files() {
            screen::line(&format!("{}\t{hash}", path.display()));
        }
        return Ok(());
    }
    let directory = project.unwrap_or_else(|| launch.settings.working_directory.clone());
    let directory = std::fs::canonicalize(&directory).map_err(|cause| format!("{}: {cause}", directory.display()))?;
    // Here the user says where to look: any directory above may be the project's.
    let found = ProjectFile::find(&directory, &[PathBuf::from("/")]);
    let file = found.ok_or_else(|| format!("there is no .mcp.json in {} or above it", directory.display()))?;
    let file = file.map_err(|bad| bad.to_string())?;
    data_directory::prepare(data).map_err(|error| error.to_string())?;
    let hash = (!revoke).then_some(file.hash.as_str());
    Trusted::keep(data, &file.path, hash).map_err(|error| error.to_string())?;
    if revoke {
        screen::note(&format!("{} is no longer trusted", file.path.display()));
        return Ok(());
    }
    screen::note(&format!("{} is trusted as it is now; sessions that work there may start:", file.path.display()));
    for server in file.shown() {
        let given =
            if server.given.is_empty() { String::new() } else { format!(" (with {})", server.given.join(", ")) };
        screen::line(&format!("{}: {}{given}", server.name, server.runs));
    }
    Ok(())
}
