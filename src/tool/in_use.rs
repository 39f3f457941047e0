//! The skill that a turn uses, as far as it takes tools away.

use super::aliases::means;

/// The name of the tool that loads skills.
pub const SKILL_TOOL: &str = "skill";

/// A skill that names its tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillInUse {
    /// Its name.
    pub name: String,
    /// The tools that may be used, by names that models use.
    pub tools: Vec<String>,
}

impl SkillInUse {
    /// Why a tool may not be used meanwhile. None: it may.
    pub fn why_not(&self, tool: &str) -> Option<String> {
        let may = tool == SKILL_TOOL || self.tools.iter().any(|entry| means(entry, tool));
        (!may).then(|| {
            let tools = self.tools.join(", ");
            format!(
                "the skill `{}` is in use, which allows only {tools}; call `{SKILL_TOOL}` with `done` when you are done with it",
                self.name
            )
        })
    }
}
