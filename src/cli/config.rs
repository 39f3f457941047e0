//! `simse config`: the schema of the configuration file, what is wrong with one, and what is in force. stdout carries that
//! and nothing else.

use std::path::PathBuf;

use super::arguments::{Config, ConfigCommand};
use super::rehearsal::rehearse;
use super::{Exit, screen};
use crate::config::{Launch, Options, schema, strange_variables};
use crate::protocol::SettingView;

/// Does it.
pub(super) async fn run(arguments: Config) -> Exit {
    match arguments.command {
        ConfigCommand::Schema => {
            screen::line(&format!("{:#}", schema()));
            Exit::Ok
        }
        ConfigCommand::Check { file } => check(file).await,
        ConfigCommand::Show { config } => show(config),
    }
}

/// Says all that a start would refuse, one line each.
async fn check(file: Option<PathBuf>) -> Exit {
    let rehearsal = rehearse(file).await;
    for said in strange_variables() {
        screen::note(&screen::clean(&said));
    }
    let faults = rehearsal.faults();
    for fault in &faults {
        screen::line(&screen::clean(fault));
    }
    if !faults.is_empty() {
        return Exit::Usage;
    }
    screen::line(&match &rehearsal.file {
        Some(path) => format!("{}: nothing is wrong", path.display()),
        None => "there is no configuration file; with the variables nothing is wrong".to_owned(),
    });
    Exit::Ok
}

/// Says what is in force, each with where it comes from.
fn show(file: Option<PathBuf>) -> Exit {
    let launch = match Launch::resolve(Options::default(), file, Options::default()) {
        Ok(launch) => launch,
        Err(error) => {
            screen::problem(error);
            return Exit::Usage;
        }
    };
    for setting in launch.shown().settings {
        let SettingView { name, value, default, origin, .. } = setting;
        let line = match (value, origin.as_deref()) {
            (Some(value), Some("program")) => format!("{name} = {value}  # this program's own default"),
            (Some(value), Some(origin)) => format!("{name} = {value}  # {origin}"),
            _ => default
                .map_or_else(|| format!("# {name} is not set"), |default| format!("# {name} is not set: {default}")),
        };
        screen::line(&screen::clean(&line));
    }
    Exit::Ok
}
