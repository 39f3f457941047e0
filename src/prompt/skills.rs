//! What a model is told of skills before it uses one: their names and what they are for, within a limit.

use crate::base::limit;
use crate::protocol::SkillView;

/// The part of the system text that tells of skills. Empty where there are none. What lies behind the limit is counted.
pub fn skills_text<'s>(skills: impl IntoIterator<Item = &'s SkillView>) -> String {
    let (mut lines, mut bytes, mut more) = (String::new(), 0, 0_usize);
    for skill in skills {
        let line =
            format!("\n- {}: {}", skill.name, skill.description.split_whitespace().collect::<Vec<_>>().join(" "));
        bytes += line.len();
        if bytes > limit::SKILLS_TOLD_BYTES_MAX {
            more += 1;
        } else {
            lines.push_str(&line);
        }
    }
    if lines.is_empty() && more == 0 {
        return String::new();
    }
    let rest = if more > 0 {
        format!("\n- and {more} more, which the tool names when it is asked for one that is not there")
    } else {
        String::new()
    };
    format!(
        "\n\nSkills: texts that say how to do something well. Load one with the tool `skill` before you do such work.\n{lines}{rest}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::DefinitionSource;

    #[test]
    fn names_and_purposes_are_told_within_a_limit() {
        let skill = |name: &str, description: String| SkillView {
            name: name.into(),
            description,
            source: DefinitionSource::Project,
            path: "/s".into(),
            allowed_tools: None,
            argument_hint: None,
            user_invocable: true,
            model_invocable: true,
        };
        assert_eq!(skills_text(&[]), "");
        let told = skills_text(&[skill("a", "one\n  two".into()), skill("b", "three".into())]);
        assert!(told.ends_with("\n- a: one two\n- b: three"), "{told}");
        let many: Vec<SkillView> = (0..10).map(|at| skill(&at.to_string(), "x".repeat(4_000))).collect();
        let told = skills_text(&many);
        assert!(told.len() < limit::SKILLS_TOLD_BYTES_MAX + 300 && told.contains("and 6 more"), "{}", told.len());
    }
}
