//! Decides what a call may do. Pure: rules and a call in, a verdict out; nobody is asked here.
//!
//! The last rule that matches wins. A command line is taken apart, each simple command in it is judged
//! alone, and the strictest answer counts: deny over ask over allow. Who holds the rules against a call
//! asks three questions of each, and they are not the same:
//!
//! - Does an *allow* rule cover it? Only when all of it can be read and all of it is named: assignments
//!   in front, files written to, the program as it is spelt. What cannot be read, and what runs other
//!   commands (`eval`, `sh -c`, `sudo`, `xargs`, a substitution …), no pattern covers.
//! - Does a *deny* or *ask* rule hit it? Wherever the command may be: by its base name, behind
//!   assignments, behind git's own options, inside another command's arguments.
//! - Could one hit it? An unknown part (`$X`, a glob) may stand for anything: then it is at least asked.
//!
//! A rule without a pattern, or with the pattern `*`, is about the whole tool and always matches. Below all rules
//! lies the floor: what it names is denied, whatever they say.
//!
//! Invariant: no text makes an allow rule with a pattern cover a command that the pattern does not spell.
//!
//! Source: typescript-api.md §3.

mod explain;
mod floor;
mod grants;
mod later;
mod pattern;
mod rules;
mod shell;
mod subject;

pub use explain::{Explanation, PartVerdict};
pub use floor::{FLOOR, Floor, FloorEntry, FloorHit};
pub use grants::{Grants, Wanted, grant_place};
pub use later::runs_later;
pub use rules::{Basis, Facts, Hidden, Rules, Verdict, decide};
pub use shell::{WrittenPath, command_parts, written_paths};
pub use subject::{PathSubject, Subject};

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;
