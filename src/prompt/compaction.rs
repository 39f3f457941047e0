//! What a model is told that sums up a conversation.

/// The system text for one that is shown a transcript.
const SYSTEM: &str = include_str!("text/compaction_system.md");
/// What it is to do.
const TASK: &str = include_str!("text/compaction_task.md");

/// The system text of a model that sums up what it is shown as a transcript.
pub fn compaction_system() -> &'static str {
    SYSTEM.trim_end()
}

/// What it is to do. `focus`: what the summary is to keep above all.
pub fn compaction_task(focus: Option<&str>) -> String {
    let task = TASK.trim_end();
    match focus.map(str::trim).filter(|focus| !focus.is_empty()) {
        Some(focus) => format!("{task}\n\nThe user asks you to keep above all: {focus}"),
        None => task.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_its_sections_and_its_focus() {
        let plain = compaction_task(Some(" "));
        for heading in ["Goal", "State", "Decisions", "Files", "Next steps", "Open questions"] {
            assert!(plain.contains(&format!("\n## {heading}\n")), "{heading}");
        }
        assert_eq!(compaction_task(None), plain);
        assert!(compaction_task(Some("the tests\n")).ends_with("keep above all: the tests"));
        assert!(!compaction_system().is_empty() && compaction_system().trim_end() == compaction_system());
    }
}
