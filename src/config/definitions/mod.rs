//! Agents, skills and commands that are markdown files with frontmatter: parsed, found in folders, and found again cheaply.
//!
//! A file with a fault is left out and told of; the rest of its folder counts. Of two with one name the first counts, in the
//! order of the folders. A file is read again only when it looks changed, so that a look costs one listing of each folder
//! that is there. Everything here reads the disk and belongs on the blocking pool.

mod agent;
mod agents;
mod catalog;
mod command;
mod fields;
mod frontmatter;
mod shelf;
mod skill;

use std::fs;
use std::path::PathBuf;

use crate::protocol::DefinitionSource;

pub use agents::{AgentCatalog, AgentFolders};
pub use catalog::{Catalog, Finder};
pub use command::{CommandDefinition, commands, expand, fill};
pub use skill::{LoadedSkill, load_skill, skill_file, skills};

use shelf::Place;

/// Where definitions of one kind lie.
#[derive(Debug)]
struct Kind {
    /// In each directory of a project.
    project: &'static [&'static str],
    /// At the project's root, where they may lie beside other files.
    shared: Option<&'static str>,
    /// In the user's folders of ours.
    home: &'static str,
}

const AGENTS: Kind = Kind { project: &[".simse/agents"], shared: Some("agents"), home: "agents" };
/// Those of other programs are texts for models all the same.
const SKILLS: Kind =
    Kind { project: &[".simse/skills", ".agents/skills", ".claude/skills"], shared: None, home: "skills" };
const COMMANDS: Kind = Kind { project: &[".simse/commands", ".claude/commands"], shared: None, home: "commands" };

/// Where definitions are looked for, beside the project's own folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefinitionFolders {
    /// Folders of agents that the settings name, in their order.
    pub agents: Vec<PathBuf>,
    /// Folders of skills that the settings name.
    pub skills: Vec<PathBuf>,
    /// Folders of commands that the settings name.
    pub commands: Vec<PathBuf>,
    /// The user's folders of ours: `agents` and the like lie in them.
    pub homes: Vec<PathBuf>,
}

impl DefinitionFolders {
    /// The folders that are looked at for the working directory that is the last of `directories`, in the order in which they
    /// count: the project's, the nearest first; those of the settings; the user's.
    fn places(&self, directories: &[PathBuf], kind: &Kind, given: &[PathBuf]) -> Vec<Place> {
        let top = directories.first().and_then(|top| fs::canonicalize(top).ok());
        let project = |directory: PathBuf, shared| Place {
            directory,
            within: top.clone(),
            source: DefinitionSource::Project,
            shared,
        };
        let anywhere = |directory: PathBuf, source| Place { directory, within: None, source, shared: false };
        let mut places: Vec<Place> = Vec::new();
        // A project that is gone has nothing that could be held against its tree.
        if top.is_some() {
            for directory in directories.iter().rev() {
                places.extend(kind.project.iter().map(|folder| project(directory.join(folder), false)));
            }
            let shared = kind.shared.and_then(|folder| Some(directories.first()?.join(folder)));
            places.extend(shared.map(|folder| project(folder, true)));
        }
        places.extend(given.iter().map(|given| anywhere(given.clone(), DefinitionSource::Settings)));
        places.extend(self.homes.iter().map(|home| anywhere(home.join(kind.home), DefinitionSource::User)));
        let mut seen: Vec<PathBuf> = Vec::new();
        places.retain(|place| {
            let new = !seen.contains(&place.directory);
            seen.push(place.directory.clone());
            new
        });
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_folder_comes_first_and_each_once() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let at = |path: &str| top.join(path);
        fs::create_dir_all(at("a/b")).unwrap();
        let folders = DefinitionFolders { homes: vec![at("home"), at("a/.simse")], ..DefinitionFolders::default() };
        let places = folders.places(&[top.clone(), at("a"), at("a/b")], &AGENTS, &[at("given")]);
        let found: Vec<PathBuf> = places.iter().map(|place| place.directory.clone()).collect();
        let want = ["a/b/.simse/agents", "a/.simse/agents", ".simse/agents", "agents", "given", "home/agents"].map(at);
        assert_eq!(found, want);
        assert_eq!(places.iter().filter(|place| place.within.is_some()).count(), 4);
        assert!(places[3].shared && !places[4].shared);
        let gone = folders.places(&[at("gone")], &AGENTS, &[]);
        assert_eq!(gone.len(), 2, "{gone:?}");
    }
}
