//! The texts that a model is given before the conversation: who it is, where it is, what the project asks.
//!
//! [`system_text`] and [`provider_prompt`] are pure. [`discover`] reads files and belongs on the blocking pool.

mod compaction;
mod instructions;

use std::path::{Path, PathBuf};

use crate::base::glob;
use crate::config::ProviderPrompts;

pub use compaction::{compaction_system, compaction_task};
pub use instructions::{Instructions, directories_up, discover};

/// What the system text is made of.
#[derive(Debug, Clone, Copy)]
pub struct SystemParts<'a> {
    /// The text for this model. None: our own.
    pub prompt: Option<&'a str>,
    /// Where the tools work.
    pub working_directory: &'a Path,
    /// Where they may work beside that.
    pub additional_directories: &'a [PathBuf],
    /// Such as `linux`.
    pub platform: &'a str,
    /// Such as `2026-11-21`.
    pub date: &'a str,
    /// Instruction files, the most general first.
    pub instructions: &'a [Instructions],
    /// What the session was created with.
    pub session: Option<&'a str>,
}

/// Our own prompt.
const PROMPT: &str = "\
You are a coding agent. You work in a directory of the user's machine with the tools you are given, and you carry \
a task through to its end by yourself: look, change, check, report.

How you work:
- Look before you change. Read the files that matter and search for names; do not guess what a file contains or how a \
command behaves.
- Make the smallest change that does the whole job, in the style of the code around it. Leave unrelated code alone.
- After a change, check it: run the tests, the build or the program. If a check fails, say so, find out why, and go on \
until it passes or you know why it cannot.
- Call several tools at once when none needs the result of another.
- When a call fails or is denied, read the reason. Do not repeat the same call; find another way, or say what you need.
- Never throw away work that you did not make: no deleting, resetting, force-pushing or overwriting unless the user \
asked for it.
- Commit only when you were asked to.

How you speak:
- Plainly and briefly. No preamble, no praise, no repetition of what the tools have shown already.
- Say what you did, what you found and what is left open. What you did not check, you do not claim.
- Name places in code as path:line.
- At the end of a task, sum it up in a few sentences.";

/// The system text of a turn.
pub fn system_text(parts: &SystemParts<'_>) -> String {
    let mut text = parts.prompt.unwrap_or(PROMPT).trim_end().to_owned();
    let further = if parts.additional_directories.is_empty() {
        String::new()
    } else {
        let shown: Vec<String> = parts.additional_directories.iter().map(|more| more.display().to_string()).collect();
        format!("\nFurther directories you may work in, by absolute paths: {}", shown.join(", "))
    };
    text.push_str(&format!(
        "\n\nWorking directory: {}{further}\nPlatform: {}\nDate: {}",
        parts.working_directory.display(),
        parts.platform,
        parts.date
    ));
    for file in parts.instructions {
        text.push_str(&format!("\n\nInstructions from {}:\n\n{}", file.path.display(), file.content.trim_end()));
    }
    if let Some(session) = parts.session.filter(|s| !s.trim().is_empty()) {
        text.push_str(&format!("\n\nInstructions for this session:\n\n{}", session.trim_end()));
    }
    text
}

/// The prompt for a model, `provider/name`: the first pattern that matches, else the default. None: our own.
pub fn provider_prompt<'p>(prompts: &'p ProviderPrompts, model_id: &str) -> Option<&'p str> {
    let found = prompts.prompts.iter().find(|(pattern, _)| glob::matches(pattern, model_id));
    found.map(|(_, prompt)| prompt.as_str()).or(prompts.default_prompt.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_wins() {
        let own = |p: &[(&str, &str)]| p.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>();
        let prompts = ProviderPrompts {
            prompts: own(&[("openai/gpt-?", "short"), ("openai/*", "any"), ("openai/gpt-5", "never")]),
            default_prompt: Some("default".into()),
        };
        #[rustfmt::skip]
        let table = [
            ("openai/gpt-5", Some("short")), ("openai/gpt-55", Some("any")), ("demo/scripted", Some("default")),
        ];
        for (model, want) in table {
            assert_eq!(provider_prompt(&prompts, model), want, "{model}");
        }
        assert_eq!(provider_prompt(&ProviderPrompts::default(), "a/b"), None);
    }

    #[test]
    fn the_parts_of_the_system_text_in_their_order() {
        let instructions = [Instructions { path: "/w/AGENTS.md".into(), content: "Use tabs.\n".into() }];
        let more = ["/m".into(), "/n".into()];
        let parts = SystemParts {
            additional_directories: &[],
            prompt: Some("Be a poet.\n"),
            working_directory: Path::new("/w"),
            platform: "linux",
            date: "2026-11-21",
            instructions: &instructions,
            session: Some("Rhyme."),
        };
        let want = "Be a poet.\n\nWorking directory: /w\nPlatform: linux\nDate: 2026-11-21\n\n\
            Instructions from /w/AGENTS.md:\n\nUse tabs.\n\nInstructions for this session:\n\nRhyme.";
        assert_eq!(system_text(&parts), want);
        let further = system_text(&SystemParts { additional_directories: &more, ..parts });
        assert!(
            further.contains("\nFurther directories you may work in, by absolute paths: /m, /n\nPlatform"),
            "{further}"
        );
        let own = system_text(&SystemParts { prompt: None, instructions: &[], session: Some(" "), ..parts });
        assert!(own.starts_with("You are a coding agent.") && own.ends_with("Date: 2026-11-21"), "{own}");
    }
}
