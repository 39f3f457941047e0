//! `skill`: the text of a skill, when a model is about to do what it is for; and the files beside it.
//!
//! What a skill's file names as its tools is all that may be used from then on, until the turn ends, another skill is used, or the
//! model says that it is done with it: a skill takes away and never adds.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::fs_common::{blocking, definition, optional_text, text_argument};
use crate::base::BoxFuture;
use crate::config::{Finder, LoadedSkill, load_skill, skill_file};
use crate::protocol::{SkillView, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, SKILL_TOOL, SkillInUse, Tool, ToolContext, ToolError, ToolOutput};

/// Names that are told of to who asked for another one.
const NAMED_MAX: usize = 50;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "name": {"type": "string", "description": "The skill", "required": true},
        "arguments": {"type": "string", "description": "What it is to be used on, where its text has a place for that"},
        "file": {"type": "string", "description": "A file of its folder to read, instead of its text"},
        "done": {"type": "boolean", "description": "You are done with it: all tools may be used again"},
    });
    let description =
        "Loads a skill: a text that says how to do something well. Load one before you do such work, and follow it.";
    definition(SKILL_TOOL, ToolCategory::Read, description, parameters)
});

/// Whose skills are used.
#[derive(Debug, Clone)]
pub struct SkillPlace {
    /// Finds them.
    pub finder: Arc<Finder<SkillView>>,
    /// The directories that they are looked for in, the working directory last.
    pub directories: Vec<PathBuf>,
    /// Those that may be used. None: all.
    pub only: Option<Vec<String>>,
}

impl SkillPlace {
    /// The skills that a model may use. Blocking.
    pub fn usable(&self) -> Vec<Arc<SkillView>> {
        let mut all = self.finder.look(&self.directories).all;
        let named = |skill: &Arc<SkillView>| self.only.as_ref().is_none_or(|only| only.contains(&skill.name));
        all.retain(|skill| skill.model_invocable && named(skill));
        all
    }
}

/// The tool.
#[derive(Debug)]
pub struct Skill {
    place: SkillPlace,
}

impl Skill {
    /// The tool for these skills.
    pub fn new(place: SkillPlace) -> Self {
        Self { place }
    }
}

impl Tool for Skill {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[("skill", "name"), ("command", "name"), ("args", "arguments"), ("path", "file")]
    }

    fn may_repeat(&self, _: &Arguments) -> bool {
        true
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let name = text_argument(&arguments, "name")?;
            if arguments.get("done") == Some(&true.into()) {
                context.scope.skill.lock().take();
                return Ok(format!("The skill `{name}` is no longer in use.").into());
            }
            let (given, file) = (optional_text(&arguments, "arguments")?, optional_text(&arguments, "file")?);
            let place = self.place.clone();
            let (told, skill) = blocking(move || {
                let skill = found(&place.usable(), &name)?;
                let told = match file {
                    Some(file) => skill_file(&skill, &file).map_err(ToolError::Failed)?,
                    None => {
                        let loaded = load_skill(&skill, &given.unwrap_or_default()).map_err(ToolError::Failed)?;
                        told(&loaded, &skill)
                    }
                };
                Ok((told, skill))
            })
            .await?;
            let allowed = skill.allowed_tools.clone();
            let directory = self.place.directories.last().cloned().unwrap_or_default();
            *context.scope.skill.lock() = allowed.map(|tools| SkillInUse::new(skill.name.clone(), &tools, directory));
            Ok(told.into())
        })
    }
}

fn found(usable: &[Arc<SkillView>], name: &str) -> Result<Arc<SkillView>, ToolError> {
    let name = name.trim_start_matches('/');
    usable.iter().find(|skill| skill.name == name).map(Arc::clone).ok_or_else(|| {
        let names: Vec<&str> = usable.iter().take(NAMED_MAX).map(|skill| skill.name.as_str()).collect();
        ToolError::failed(format!("there is no skill `{name}`; there are: {}", names.join(", ")))
    })
}

fn told(loaded: &LoadedSkill, skill: &SkillView) -> String {
    let LoadedSkill { text, folder, files, more } = loaded;
    let mut told = format!("{text}\n\n(The skill `{}`; its folder is {}.", skill.name, folder.display());
    if !files.is_empty() {
        told.push_str(" Files in it, which this tool reads by `file`: ");
        told.push_str(&files.join(", "));
        told.push_str(if *more { ", and more." } else { "." });
    }
    if let Some(tools) = &skill.allowed_tools {
        let tools = tools.join(", ");
        told.push_str(&format!(" While it is in use only these tools may be: {tools}. Call this tool with `done` when you are done with it."));
    }
    told.push(')');
    told
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::fs_common::testing::context;
    use super::*;
    use crate::config::{DefinitionFolders, skills};

    #[tokio::test]
    async fn a_skill_is_loaded_and_narrows_the_tools_until_it_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("pdf/SKILL.md", "---\ndescription: d\nallowed-tools: Read\n---\nRead $1.");
        write("pdf/ref.md", "More.");
        write("own/SKILL.md", "---\ndescription: d\ndisable-model-invocation: true\n---\nNo.");
        write("other/SKILL.md", "---\ndescription: d\n---\nOther.");
        let folders = DefinitionFolders { skills: vec![directory.path().to_owned()], ..DefinitionFolders::default() };
        let finder = Arc::new(skills(&folders));
        let place = SkillPlace { finder, directories: vec!["/nowhere".into()], only: None };
        let tool = Skill::new(place.clone());
        let context = context();
        let run = async |arguments: serde_json::Value| {
            let serde_json::Value::Object(arguments) = arguments else { panic!("an object") };
            tool.run(arguments, &context).await.map(|output| output.text).map_err(|error| error.to_string())
        };
        let told = run(json!({"name": "pdf", "arguments": "a.pdf"})).await.unwrap();
        assert!(told.starts_with("Read a.pdf.\n\n(The skill `pdf`"), "{told}");
        assert!(told.contains("by `file`: ref.md.") && told.contains("only these tools may be: Read."), "{told}");
        assert!(context.scope.why_narrowed("bash").is_some_and(|why| why.contains("the skill `pdf` is in use")));
        assert_eq!((context.scope.why_narrowed("fs_read"), context.scope.why_narrowed("skill")), (None, None));
        assert_eq!(run(json!({"name": "pdf", "file": "ref.md"})).await.as_deref(), Ok("More."));
        assert!(run(json!({"name": "pdf", "file": "../other/SKILL.md"})).await.is_err());
        run(json!({"name": "pdf", "done": true})).await.unwrap();
        assert_eq!(context.scope.why_narrowed("bash"), None);
        let missing = run(json!({"name": "own"})).await.unwrap_err();
        assert_eq!(missing, "there is no skill `own`; there are: other, pdf");
        let one = SkillPlace { only: Some(vec!["other".into()]), ..place };
        assert_eq!(one.usable().len(), 1);
    }
}
