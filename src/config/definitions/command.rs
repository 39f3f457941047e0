//! Slash commands: markdown files whose text a prompt becomes that begins with `/name`.

use std::path::Path;
use std::sync::Arc;

use super::catalog::Finder;
use super::fields::{Fields, is_name};
use super::frontmatter::{Parts, Unfit, parts};
use super::shelf::{Layout, Place, Taken};
use super::{COMMANDS, DefinitionFolders};
use crate::base::limit;
use crate::protocol::{CommandKind, CommandView};

/// Stands for all arguments.
const ALL: &str = "ARGUMENTS";

/// A command and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandDefinition {
    /// What callers see of it.
    pub view: CommandView,
    /// What a prompt becomes.
    pub template: String,
}

/// Finds commands in these folders.
pub fn commands(folders: &DefinitionFolders) -> Finder<CommandDefinition> {
    Finder::new(folders, (&COMMANDS, &folders.commands), (Layout::Files, read))
}

fn read(text: &str, path: &Path, place: &Place) -> Taken<CommandDefinition> {
    match command(text, path, place) {
        Ok(command) => Taken::One(Arc::new(command)),
        Err(why) => Taken::Fault(why.into()),
    }
}

fn command(text: &str, path: &Path, place: &Place) -> Result<CommandDefinition, String> {
    let found = match parts(text) {
        Ok(found) => found,
        // Many have no head.
        Err(Unfit::Headless) => Parts { fields: serde_json::Map::new(), body: text.trim() },
        Err(Unfit::Unreadable(why)) => return Err(why),
    };
    if found.body.is_empty() {
        return Err("expected a text behind the frontmatter: it is what the prompt becomes".into());
    }
    let fields = Fields(&found.fields);
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let mut description = fields.description()?;
    if description.is_empty() {
        let line = found.body.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']);
        description = line.chars().take(100).collect();
    }
    let view = CommandView {
        name: fields.name(stem)?,
        description,
        kind: CommandKind::Command,
        source: place.source,
        path: path.to_owned(),
        argument_hint: fields.text(&["argument-hint", "argument_hint", "arguments"])?,
    };
    Ok(CommandDefinition { view, template: found.body.to_owned() })
}

/// The command that a prompt begins with, and what follows it. None: it begins with none.
pub fn expand(prompt: &str) -> Option<(&str, &str)> {
    let rest = prompt.strip_prefix('/')?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, arguments) = rest.split_at(end);
    is_name(name).then(|| (name, arguments.trim()))
}

/// A text with the arguments in their places: `$ARGUMENTS` is all of them, `$1` the first one. A text without such a place has
/// them at its end. What an argument says is not looked through again.
pub fn fill(template: &str, arguments: &str) -> String {
    let single = split(arguments);
    let mut filled = String::with_capacity(template.len() + arguments.len());
    let (mut rest, mut placed) = (template, false);
    while let Some(at) = rest.find('$') {
        let (before, behind) = rest.split_at(at);
        filled.push_str(before);
        let behind = &behind[1..];
        let digits = behind.bytes().take(2).take_while(u8::is_ascii_digit).count();
        if let Some(next) = behind.strip_prefix(ALL) {
            (rest, placed) = (next, true);
            filled.push_str(arguments);
        } else if digits > 0 && !behind.starts_with('0') {
            let (number, next) = behind.split_at(digits);
            (rest, placed) = (next, true);
            let at = number.parse::<usize>().unwrap_or(usize::MAX);
            filled.push_str(single.get(at - 1).map_or("", String::as_str));
        } else {
            rest = behind;
            filled.push('$');
        }
    }
    filled.push_str(rest);
    if !placed && !arguments.is_empty() {
        filled.push_str("\n\n");
        filled.push_str(arguments);
    }
    filled
}

/// Arguments by blanks; quotes hold one together.
fn split(arguments: &str) -> Vec<String> {
    let (mut all, mut one, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in arguments.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => (quote, begun) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if std::mem::take(&mut begun) {
                    all.push(std::mem::take(&mut one));
                }
            }
            (_, c) => {
                begun = true;
                one.push(c);
            }
        }
    }
    if begun {
        all.push(one);
    }
    all.truncate(limit::DEFINITION_NAMES_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::DefinitionSource;

    #[test]
    fn a_prompt_begins_with_a_command_or_is_left_alone() {
        #[rustfmt::skip]
        let table = [
            ("/review", Some(("review", ""))), ("/review  a b ", Some(("review", "a b"))), ("/a-b_1\nmore", Some(("a-b_1", "more"))),
            ("/", None), ("//", None), ("/usr/bin", None), (" /review", None), ("review", None), ("/ä", None), ("/ x", None),
        ];
        for (prompt, want) in table {
            assert_eq!(expand(prompt), want, "{prompt}");
        }
    }

    #[test]
    fn arguments_stand_in_their_places_and_are_not_looked_through_again() {
        #[rustfmt::skip]
        let table = [
            ("Fix $ARGUMENTS now.", "a b", "Fix a b now."),
            ("Fix $1 in $2, $3.", "'a b' c", "Fix a b in c, ."),
            ("Fix $1.", "$2 $ARGUMENTS", "Fix $2."),
            ("$ARGUMENTS$ARGUMENTS", "$1", "$1$1"),
            ("Costs $0 or $ 5 and $HOME$", "", "Costs $0 or $ 5 and $HOME$"),
            ("Look.", "at a.rs", "Look.\n\nat a.rs"),
            ("Look.", "", "Look."),
            ("$12", "1 2 3 4 5 6 7 8 9 10 11 twelve", "twelve"),
            ("$1", "\"\" x", ""),
        ];
        for (template, arguments, want) in table {
            assert_eq!(fill(template, arguments), want, "{template} {arguments}");
        }
    }

    #[test]
    fn a_command_needs_a_text_and_no_head() {
        let place = Place { directory: "/c".into(), within: None, source: DefinitionSource::Project, shared: false };
        let parsed = |text: &str| command(text, Path::new("/c/review.md"), &place);
        let plain = parsed("# Review the changes\n\nLook at $1.").expect("a command");
        assert_eq!((plain.view.name.as_str(), plain.view.description.as_str()), ("review", "Review the changes"));
        assert_eq!(plain.template, "# Review the changes\n\nLook at $1.");
        let headed = parsed("---\ndescription: d\nargument-hint: '[file]'\nmodel: x\n---\nGo.").expect("a command");
        assert_eq!((headed.view.description.as_str(), headed.view.argument_hint.as_deref()), ("d", Some("[file]")));
        assert!(parsed("---\ndescription: d\n---\n").is_err_and(|why| why.contains("expected a text")));
        assert!(parsed("---\ndescription: [1]\n---\nx").is_err_and(|why| why.contains("`description`")));
    }
}
