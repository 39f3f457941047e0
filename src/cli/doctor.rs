//! `simse doctor`: whether all that simse needs is here, in a line each. Looks and changes nothing but what a start would.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::arguments::Place;
use super::found::{Found, find, neighbour, with_a_door};
use super::{Exit, program, screen};
use crate::base::text::counted;
use crate::config::{Launch, LogLevel, Options, data_directory, strange_variables};

/// How a thing is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    Good,
    /// It works without, with less.
    Less,
    Bad,
}

/// Programs that tools run, and what is missing without them.
const PROGRAMS: [(&str, &str); 2] =
    [("git", "the git tools, undo of what commands do and working trees"), ("bash", "the shell tool")];

/// Says how everything is. Exit code 1: something that is needed is not here.
pub(super) async fn run(place: Place) -> Exit {
    let mut report = Report { bad: false };
    let options = Options { data_dir: place.data_dir, ..Options::default() };
    let own = Options { log_level: Some(LogLevel::Error), ..Options::default() };
    report.say(Is::Good, "version", &format!("simse {}", env!("CARGO_PKG_VERSION")));
    let launch = match Launch::resolve(options, place.config, own) {
        Ok(launch) => with_a_door(launch),
        Err(error) => {
            report.say(Is::Bad, "settings", &error.to_string());
            return Exit::Failed;
        }
    };
    let file = launch.config_file.as_deref().map_or("no configuration file".to_owned(), |f| f.display().to_string());
    report.say(Is::Good, "settings", &file);
    for said in strange_variables() {
        report.say(Is::Less, "settings", &said);
    }
    report.data_directory(&launch);
    for (name, what) in PROGRAMS {
        report.program(&launch.settings.working_directory, name, what).await;
    }
    report.server(&launch).await;
    if report.bad { Exit::Failed } else { Exit::Ok }
}

struct Report {
    bad: bool,
}

impl Report {
    fn say(&mut self, is: Is, what: &str, words: &str) {
        let sign = match is {
            Is::Good => "ok  ",
            Is::Less => "less",
            Is::Bad => "BAD ",
        };
        self.bad |= is == Is::Bad;
        screen::line(&format!("{sign}  {what:<12}  {}", screen::clean(words)));
    }

    fn data_directory(&mut self, launch: &Launch) {
        let place = launch.data_directory.display();
        let faults = data_directory::faults(&launch.data_directory, true);
        for fault in &faults {
            self.say(Is::Bad, "data", &fault.to_string());
        }
        if !launch.data_directory.exists() {
            self.say(Is::Good, "data", &format!("{place} (not there yet: a start makes it)"));
        } else if data_directory::is_open_to_others(&launch.data_directory) {
            self.say(Is::Less, "data", &format!("{place}: other users can look into it; `chmod 700` closes it"));
        } else if faults.is_empty() {
            self.say(Is::Good, "data", &place.to_string());
        }
    }

    async fn program(&mut self, directory: &Path, name: &str, what: &str) {
        match program::run(directory, name, &["--version"]).await {
            Ok(ran) if ran.succeeded => {
                self.say(Is::Good, name, ran.output.lines().next().unwrap_or_default());
            }
            Ok(_) | Err(_) => self.say(Is::Less, name, &format!("is not here: {what} do without it")),
        }
    }

    /// Asks the server of the data directory, or one that is started for that.
    async fn server(&mut self, launch: &Launch) {
        if let Some(client) = neighbour(launch).await {
            self.say(Is::Good, "server", &format!("runs on {}", client.way.shown()));
            return self.ask(&client).await;
        }
        match find(launch).await {
            Ok(Found::Other(client)) => self.ask(&client).await,
            Ok(Found::Own(own)) => {
                self.say(Is::Good, "server", "none runs; it could be started");
                let gaps = own.app.sandbox_gaps().await;
                match gaps.is_empty() {
                    true => self.say(Is::Good, "sandbox", &launch.settings.sandbox.mode.to_string()),
                    false => self.say(Is::Less, "sandbox", &format!("weakened: {}", gaps.join("; "))),
                }
                self.ask(&own.client()).await;
                if let Err(error) = own.stop().await {
                    self.say(Is::Bad, "server", &format!("not everything could be stored: {error}"));
                }
            }
            Err(error) => self.say(Is::Bad, "server", &error.to_string()),
        }
    }

    async fn ask(&mut self, client: &super::client::Client) {
        let list = async |path: &str, name: &str| {
            let asked = tokio::time::timeout(Duration::from_secs(20), client.call("GET", path, None)).await;
            let answer = asked.ok().and_then(Result::ok).unwrap_or(Value::Null);
            answer.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let models = list("/models", "models").await;
        let default = models.iter().find(|model| model["default"] == json!(true));
        match default {
            None => self.say(Is::Less, "model", "none is the default: --model names one"),
            Some(model) if text(model, "id").starts_with("demo/") => {
                let hint = "OPENAI_API_KEY, --openai-base-url or a [[providers]] entry bring a real one";
                self.say(Is::Less, "model", &format!("{} is a built-in script: {hint}", text(model, "id")));
            }
            Some(model) if model["available"] == json!(true) => self.say(Is::Good, "model", &text(model, "id")),
            Some(model) => self.say(Is::Bad, "model", &format!("{}: {}", text(model, "id"), text(model, "reason"))),
        }
        let usable = models.iter().filter(|model| model["available"] == json!(true)).count();
        self.say(Is::Good, "models", &format!("{} to be used, of {}", usable, models.len()));
        for agent in list("/agents", "agents").await {
            if agent["available"] != json!(true) {
                self.say(Is::Less, "agent", &format!("{}: {}", text(&agent, "name"), text(&agent, "reason")));
            }
        }
        let tools = list("/tools", "tools").await.len();
        self.say(Is::Good, "tools", &counted(tools, "tool"));
    }
}
