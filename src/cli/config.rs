//! `simse config`: the schema of the configuration file, what is wrong with one, and what is in force. stdout carries that
//! and nothing else.

use std::path::PathBuf;

use clap::Args as _;

use super::arguments::{Config, ConfigCommand};
use super::rehearsal::rehearse;
use super::{Exit, screen};
use crate::config::{Launch, Options, Origin, schema, strange_variables};

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
    let said = launch.said.shown();
    for (name, default) in defaults() {
        let value = said.iter().find(|(said, _)| *said == name).map(|(_, value)| value.to_string());
        let origin = launch.origins.iter().find(|(of, _)| *of == name).map(|(_, origin)| origin);
        let line = match (value, origin) {
            (Some(value), Some(origin)) => format!("{name} = {value}  # {}", words(origin, &launch)),
            _ => default
                .map_or_else(|| format!("# {name} is not set"), |default| format!("# {name} is not set: {default}")),
        };
        screen::line(&screen::clean(&line));
    }
    Exit::Ok
}

fn words(origin: &Origin, launch: &Launch) -> String {
    match origin {
        Origin::Flag => "argument".to_owned(),
        Origin::Variable(name) => name.clone(),
        Origin::File => {
            launch.config_file.as_ref().map_or_else(|| "file".to_owned(), |file| file.display().to_string())
        }
        Origin::Program => "this program's own default".to_owned(),
    }
}

/// Every setting, and its default as `--help` has it.
fn defaults() -> Vec<(&'static str, Option<String>)> {
    let command = Options::augment_args(clap::Command::new("simse"));
    let default = |name: &str| {
        let help = command.get_arguments().find(|argument| argument.get_id() == name)?.get_help()?.to_string();
        let (_, rest) = help.rsplit_once("[default: ")?;
        Some(rest.split_once(']').map_or(rest, |(default, _)| default).to_owned())
    };
    Options::NAMES.iter().map(|name| (*name, default(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_help() {
        let all = defaults();
        let of = |wanted: &str| all.iter().find(|(name, _)| *name == wanted).and_then(|(_, default)| default.clone());
        assert_eq!(of("port").as_deref(), Some("4100"));
        assert_eq!(of("otlp_service_name").as_deref(), Some("simse"));
        assert!(all.iter().flat_map(|(_, default)| default).all(|default| !default.contains(['[', ']'])), "{all:?}");
        assert_eq!(of("permissions"), None);
        assert_eq!(all.len(), Options::NAMES.len());
    }
}
