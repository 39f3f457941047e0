//! The texts that a model is given before the conversation: who it is, where it is, what the project asks.
//!
//! [`system_text`] and [`provider_prompt`] are pure. [`discover`] reads files and belongs on the blocking pool.

mod compaction;
mod family;
mod imports;
mod instructions;
mod skills;

use std::path::{Path, PathBuf};

use crate::base::glob;
use crate::config::ProviderPrompts;

pub use compaction::{compaction_system, compaction_task};
pub use family::family_prompt;
pub use instructions::{Found, Instructions, branch_of, directories_up, discover, told_path};
pub use skills::skills_text;

/// What the system text is made of.
#[derive(Debug, Clone, Copy)]
pub struct SystemParts<'a> {
    /// The text for this model.
    pub prompt: &'a str,
    /// Where the tools work.
    pub working_directory: &'a Path,
    /// Where they may work beside that.
    pub additional_directories: &'a [PathBuf],
    /// Such as `linux`.
    pub platform: &'a str,
    /// Such as `2026-11-21`.
    pub date: &'a str,
    /// The branch that is checked out there. None: no repository, or none of its branches.
    pub branch: Option<&'a str>,
    /// Instruction files, the most general first.
    pub instructions: &'a [Instructions],
    /// What the session was created with.
    pub session: Option<&'a str>,
}

/// The system text of a turn.
pub fn system_text(parts: &SystemParts<'_>) -> String {
    let mut text = parts.prompt.trim_end().to_owned();
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
    if let Some(branch) = parts.branch {
        text.push_str(&format!("\nGit branch when this was written: {branch}"));
    }
    for file in parts.instructions {
        text.push_str(&format!("\n\n{}", file.told()));
    }
    if let Some(session) = parts.session.filter(|s| !s.trim().is_empty()) {
        text.push_str(&format!("\n\nInstructions for this session:\n\n{}", session.trim_end()));
    }
    text
}

/// The prompt for a model, `provider/name`: the first pattern that matches, else the default. None: ours ([`family_prompt`]).
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
            prompt: "Be a poet.\n",
            working_directory: Path::new("/w"),
            platform: "linux",
            date: "2026-11-21",
            branch: None,
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
        let prompt = family_prompt("demo/scripted");
        let own = SystemParts { prompt, branch: Some("main"), instructions: &[], session: Some(" "), ..parts };
        let own = system_text(&own);
        assert!(own.starts_with("You are a coding agent."), "{own}");
        assert!(own.ends_with("Date: 2026-11-21\nGit branch when this was written: main"), "{own}");
    }
}
