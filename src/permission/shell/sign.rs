//! Signs among the arguments of a program that say that it runs others, or writes.
//!
//! Invariant: a word that only the shell will know is any option that it can be.

use super::UNKNOWN;

/// Words in front of a subcommand that hold it in a group.
const GROUPS: [&str; 9] =
    ["builder", "buildx", "codespace", "compose", "container", "image", "netns", "submodule", "tool"];

/// When a launcher runs what its arguments say.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    /// With any argument, and without.
    Always,
    /// With any argument at all.
    Arguments,
    /// With this argument, word for word.
    Word(&'static str),
    /// With an argument that begins so.
    Start(&'static str),
    /// With an argument in which this stands.
    Inside(&'static str),
    /// With this letter among its short options.
    Letter(char),
    /// With this long option, or what it can be shortened to.
    Long(&'static str),
    /// As its own function says.
    Check(fn(&[String]) -> bool),
}

use When::{Always, Arguments, Check, Inside, Letter, Long, Start, Word};

/// An argument of which only the shell will know a piece.
pub(super) fn any_unknown(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument.contains(UNKNOWN))
}

/// An argument that only the shell will know, and that may turn out to be an option.
pub(super) fn maybe_option(arguments: &[String]) -> bool {
    let options = arguments.iter().take_while(|argument| *argument != "--");
    options.into_iter().any(|argument| argument.starts_with(UNKNOWN))
}

/// A word that only the shell will know, and that may be the subcommand: nothing that is one stands before it.
fn maybe_subcommand(arguments: &[String]) -> bool {
    let mut behind_option = false;
    for argument in arguments {
        if argument.starts_with(UNKNOWN) {
            return true;
        }
        // What stands behind an option may be its value.
        let is_operand = !argument.starts_with('-') && !behind_option && !GROUPS.contains(&argument.as_str());
        if is_operand || argument == "--" {
            return false;
        }
        behind_option = argument.starts_with('-');
    }
    false
}

/// Whether a sign is among the arguments, or may be: a word that only the shell will know is any option that it can be.
pub(super) fn fits(when: When, arguments: &[String]) -> bool {
    let mut options = arguments.iter().map(String::as_str).take_while(|argument| *argument != "--");
    match when {
        Always => true,
        Arguments => !arguments.is_empty(),
        Word(word) => {
            let may_be = if word.starts_with('-') { maybe_option } else { maybe_subcommand };
            arguments.iter().any(|argument| argument == word) || may_be(arguments)
        }
        Start(start) => arguments.iter().any(|argument| argument.starts_with(start)) || maybe_option(arguments),
        Inside(text) => arguments.iter().any(|argument| argument.contains(text)),
        Letter(letter) => options.any(|a| {
            let is_short = a.starts_with('-') && !a.starts_with("--");
            a.starts_with(UNKNOWN) || (is_short && a.contains([letter, UNKNOWN]))
        }),
        Long(name) => options.any(|a| {
            let given = a.split('=').next().unwrap_or(a);
            match given.split_once(UNKNOWN) {
                Some((front, _)) => name.starts_with(front) || (front.starts_with("--") && front.starts_with(name)),
                None => given.len() > 2 && given.starts_with("--") && name.starts_with(given),
            }
        }),
        Check(check) => check(arguments),
    }
}
