//! Skills: folders with a file `SKILL.md`. Only its head is kept; the text behind it is read when the skill is used.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::catalog::Finder;
use super::command::fill;
use super::fields::{Fields, list, unfit};
use super::frontmatter::{Unfit, parts};
use super::shelf::{Layout, Place, Taken};
use super::{DefinitionFolders, SKILLS};
use crate::base::{file, limit};
use crate::protocol::{ANY_TOOL, DefinitionSource, SkillView};

/// Finds skills in these folders.
pub fn skills(folders: &DefinitionFolders) -> Finder<SkillView> {
    Finder::new(folders, (&SKILLS, &folders.skills), (Layout::Folders, read))
}

fn read(text: &str, path: &Path, place: &Place) -> Taken<SkillView> {
    match skill(text, path, place.source) {
        Ok(skill) => Taken::One(Arc::new(skill)),
        Err(why) => Taken::Fault(why.into()),
    }
}

fn skill(text: &str, path: &Path, source: DefinitionSource) -> Result<SkillView, String> {
    let found = parts(text).map_err(|unfit| match unfit {
        Unfit::Headless => "expected frontmatter: a first line `---`".to_owned(),
        Unfit::Unreadable(why) => why,
    })?;
    let fields = Fields(&found.fields);
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
    let description = fields.description()?;
    if description.is_empty() {
        return Err("`description`: expected a text: models choose a skill by it".into());
    }
    Ok(SkillView {
        name: fields.name(folder)?,
        description,
        source,
        path: path.to_owned(),
        allowed_tools: allowed(&fields)?,
        argument_hint: fields.text(&["argument-hint", "argument_hint"])?,
        user_invocable: flag(&fields, &["user-invocable", "user_invocable"])?.unwrap_or(true),
        model_invocable: !flag(&fields, &["disable-model-invocation", "disable_model_invocation"])?.unwrap_or(false),
    })
}

fn flag(fields: &Fields<'_>, names: &[&'static str]) -> Result<Option<bool>, String> {
    match fields.value(names) {
        None => Ok(None),
        Some((_, Value::Bool(flag))) => Ok(Some(*flag)),
        Some((name, other)) => Err(unfit(name, "`true` or `false`", other)),
    }
}

/// The tools of a skill: a list, or one text with blanks or commas. A name may have a pattern in parentheses behind it, or several with
/// commas between them, which its calls have to be about; each is an entry of its own then.
fn allowed(fields: &Fields<'_>) -> Result<Option<Vec<String>>, String> {
    let Some((field, value)) = fields.value(&["allowed-tools", "allowed_tools"]) else { return Ok(None) };
    let entries = match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(_) | Value::Object(_) | Value::Number(_) | Value::Bool(_) | Value::Null => list(field, value)?,
    };
    let mut tools = Vec::new();
    for entry in &entries {
        let words = words(entry).ok_or_else(|| {
            format!("`{field}`: expected names of tools, each with patterns in parentheses or none, not `{entry}`")
        })?;
        tools.extend(words);
    }
    tools.dedup();
    Ok(Some(tools).filter(|tools| !tools.is_empty() && !tools.iter().any(|tool| tool == ANY_TOOL)))
}

/// The entries of a text. None: its parentheses are none, or one has nothing in front or inside.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut entries, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        let end = rest.find(|c: char| c.is_whitespace() || c == ',' || c == '(' || c == ')').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if name.is_empty() {
            return behind.is_empty().then_some(entries);
        }
        let Some(inside) = behind.strip_prefix('(') else {
            entries.push(name.to_owned());
            rest = behind;
            continue;
        };
        let close = closing(inside)?;
        for pattern in inside[..close].split(',').map(str::trim) {
            if pattern.is_empty() {
                return None;
            }
            entries.push(format!("{name}({pattern})"));
        }
        rest = &inside[close + 1..];
    }
}

/// Where the parenthesis ends that was open at the beginning.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// A skill that is used: its text, and what lies beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedSkill {
    /// Its text, with the arguments in their places.
    pub text: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Other files in it, relative to it.
    pub files: Vec<String>,
    /// There are more of them.
    pub more: bool,
}

/// The text of a skill, and what lies in its folder. Blocking.
///
/// # Errors
/// Why it cannot be read, in words.
pub fn load_skill(skill: &SkillView, arguments: &str) -> Result<LoadedSkill, String> {
    let text = text_of(&skill.path)?;
    let body = parts(&text).map(|found| found.body.to_owned()).unwrap_or_default();
    let folder = skill.path.parent().unwrap_or(Path::new("/")).to_owned();
    let (mut files, mut more) = (Vec::new(), false);
    list_files(&folder, (&folder, 0), &mut files, &mut more);
    files.sort();
    Ok(LoadedSkill { text: fill(&body, arguments), folder, files, more })
}

/// A file in a skill's folder: its text. Blocking.
///
/// # Errors
/// Why it cannot be read, in words; one that lies elsewhere is refused.
pub fn skill_file(skill: &SkillView, name: &str) -> Result<String, String> {
    let folder = skill.path.parent().unwrap_or(Path::new("/"));
    let stays = Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let real = |path: &Path| fs::canonicalize(path).map_err(|cause| format!("{name}: {cause}"));
    if !stays || !real(&folder.join(name))?.starts_with(real(folder)?) {
        return Err(format!("{name}: expected a file in the skill's folder"));
    }
    text_of(&folder.join(name))
}

fn text_of(path: &Path) -> Result<String, String> {
    let (bytes, _) = file::read_small(path, limit::DEFINITION_FILE_BYTES_MAX).map_err(|cause| cause.to_string())?;
    String::from_utf8(bytes).map_err(|_| "expected text in UTF-8".to_owned())
}

fn list_files(top: &Path, (folder, depth): (&Path, usize), files: &mut Vec<String>, more: &mut bool) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        if files.len() >= limit::SKILL_FILES_TOLD_MAX {
            *more = true;
            return;
        }
        let (path, kind) = (entry.path(), entry.file_type());
        if entry.file_name().as_encoded_bytes().starts_with(b".") || path == top.join(super::shelf::SKILL_FILE) {
            continue;
        }
        match kind {
            Ok(kind) if kind.is_dir() && depth < limit::SKILL_FOLDERS_DEPTH_MAX => {
                list_files(top, (&path, depth + 1), files, more)
            }
            Ok(kind) if kind.is_file() => {
                files.extend(path.strip_prefix(top).ok().map(|inside| inside.display().to_string()));
            }
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Result<SkillView, String> {
        skill(&format!("---\n{head}\n---\nBody"), Path::new("/s/pdf/SKILL.md"), DefinitionSource::User)
    }

    #[test]
    fn the_head_of_a_skill_is_read() {
        let found = parsed(
            "description: Reads PDFs\nallowed-tools: Bash(git:*, x) Read, fs_grep\nargument-hint: FILE\ndisable-model-invocation: true\nlicense: MIT",
        );
        let want = SkillView {
            name: "pdf".into(),
            description: "Reads PDFs".into(),
            source: DefinitionSource::User,
            path: "/s/pdf/SKILL.md".into(),
            allowed_tools: Some(["Bash(git:*)", "Bash(x)", "Read", "fs_grep"].map(str::to_owned).to_vec()),
            argument_hint: Some("FILE".into()),
            user_invocable: true,
            model_invocable: false,
        };
        assert_eq!(found, Ok(want));
        let all = parsed("description: d\nallowed-tools: ['*']\nname: other\nuser-invocable: false").expect("a skill");
        assert_eq!((all.name.as_str(), all.allowed_tools, all.user_invocable), ("other", None, false));
        for (head, want) in [
            ("name: a", "`description`: expected a text"),
            ("description: d\nname: a b", "`name`"),
            ("description: d\nuser-invocable: perhaps", "`user-invocable`: expected `true` or `false`"),
            ("description: d\nallowed-tools: 7", "`allowed-tools`: expected a list of names"),
            (
                "description: d\nallowed-tools: Bash(git:* Read",
                "`allowed-tools`: expected names of tools, each with patterns",
            ),
            ("description: d\nallowed-tools: Bash() Read", "not `Bash() Read`"),
            ("description: d\nallowed-tools: ['Read', '(git *)']", "not `(git *)`"),
            ("description: d\nallowed-tools: Bash(a)) Read", "not `Bash(a)) Read`"),
        ] {
            assert!(parsed(head).is_err_and(|why| why.contains(want)), "{head}");
        }
    }

    #[test]
    fn a_skill_is_loaded_with_its_arguments_and_its_files_stay_inside() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join("pdf").join(name);
        fs::create_dir_all(at("scripts")).unwrap();
        fs::write(at("SKILL.md"), "---\ndescription: d\n---\nRead $1, then $ARGUMENTS.\n").unwrap();
        fs::write(at("scripts/a.py"), "print()").unwrap();
        fs::write(at(".hidden"), "").unwrap();
        fs::write(directory.path().join("outside"), "secret").unwrap();
        std::os::unix::fs::symlink(directory.path().join("outside"), at("link")).unwrap();
        let found =
            skills(&DefinitionFolders { skills: vec![directory.path().to_owned()], ..DefinitionFolders::default() });
        let catalog = found.look(&["/nowhere".into()]);
        let skill = catalog.get("pdf").expect("it is there");
        let loaded = load_skill(skill, "x \"y z\"").expect("it loads");
        assert_eq!(loaded.text, "Read x, then x \"y z\".");
        assert_eq!((loaded.files, loaded.more), (vec!["scripts/a.py".to_owned()], false));
        assert_eq!(skill_file(skill, "scripts/a.py").as_deref(), Ok("print()"));
        for outside in ["../outside", "link", "/etc/passwd", "gone"] {
            assert!(skill_file(skill, outside).is_err(), "{outside}");
        }
    }
}
