//! What is in force, told to people: every setting with its words, its value, its default and where the value comes from.

use super::{Launch, Options, Origin};
use crate::protocol::{ConfigView, SettingView};

/// Settings whose change in the file counts at once. All others need a restart.
pub const AT_ONCE: [&str; 31] = [
    "default_policy",
    "permission_mode",
    "permissions",
    "model",
    "openai_base_url",
    "openai_api_key",
    "openai_images",
    "openai_api",
    "providers",
    "model_fallbacks",
    "small_model",
    "compaction_model",
    "model_idle_timeout_ms",
    "permission_timeout_ms",
    "client_grace_ms",
    "interrupt_grace_ms",
    "shutdown_grace_ms",
    "max_iterations",
    "compact_percent",
    "queued_prompts_max",
    "queued_bytes_max",
    "sessions_max",
    "streams_per_session_max",
    "commands_per_minute",
    "session_budget",
    "client_budget",
    "budget_window_ms",
    "hooks",
    "agent_types",
    "log_level",
    "log_filter",
];

impl Launch {
    /// What is in force. Secrets are not in it.
    pub fn shown(&self) -> ConfigView {
        let mut values = self.said.shown();
        let mut value = |name: &str| {
            let place = values.iter().position(|(said, _)| *said == name)?;
            Some(values.swap_remove(place).1)
        };
        let setting = |(name, words): (&&str, &&str)| {
            let (value, (description, default)) = (value(name), split(words));
            let origin = self.origins.iter().find(|(of, _)| of == name).map(|(_, origin)| self.words(origin));
            SettingView {
                name: (*name).to_owned(),
                description,
                default,
                origin: value.as_ref().and(origin),
                value,
                at_once: AT_ONCE.contains(name),
            }
        };
        let settings = Options::NAMES.iter().zip(Options::WORDS).map(setting).collect();
        ConfigView { file: self.config_file.as_ref().map(|file| file.display().to_string()), settings }
    }

    fn words(&self, origin: &Origin) -> String {
        match origin {
            Origin::Flag => "argument".to_owned(),
            Origin::Variable(name) => name.clone(),
            Origin::File => {
                self.config_file.as_ref().map_or_else(|| "file".to_owned(), |file| file.display().to_string())
            }
            Origin::Program => "program".to_owned(),
        }
    }
}

/// The words, and the default behind them.
fn split(help: &str) -> (String, Option<String>) {
    let default = help.rsplit_once("[default: ").and_then(|(words, rest)| Some((words, rest.split_once(']')?)));
    match default {
        Some((words, (default, behind))) => {
            (format!("{}{behind}", words.trim_end()).trim().to_owned(), Some(default.to_owned()))
        }
        None => (help.trim().to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_at_once_are_settings() {
        let strange: Vec<_> = AT_ONCE.iter().filter(|name| !Options::NAMES.contains(name)).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }

    #[test]
    fn words_and_defaults_stand_apart() {
        let table = [
            ("Port to listen on; 0: any [default: 4100]", "Port to listen on; 0: any", Some("4100")),
            (" Rules; in the file only", "Rules; in the file only", None),
            ("Search [default: 5], at most 100", "Search, at most 100", Some("5")),
        ];
        for (help, words, default) in table {
            assert_eq!(split(help), (words.to_owned(), default.map(str::to_owned)), "{help}");
        }
        let all: Vec<_> = Options::WORDS.iter().map(|help| split(help)).collect();
        assert_eq!(all.len(), Options::NAMES.len());
        let strange = |(words, default): &&(String, Option<String>)| {
            words.is_empty() || default.as_ref().is_some_and(|default| default.contains(['[', ']']))
        };
        assert_eq!(all.iter().find(strange), None);
    }
}
