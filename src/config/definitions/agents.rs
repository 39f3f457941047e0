//! The agents that a working directory has: those of the project, of the folders that the settings name, of the user, and ours.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::agent::{agent, built_in, is_another, parse_agent};
use super::frontmatter::{Unfit, parts};
use super::shelf::{Layout, Place, Shelf, Taken};
use super::{AGENTS, DefinitionFolders};
use crate::base::limit;
use crate::protocol::{AgentDefinition, DefinitionFault, DefinitionSource};

/// The agents of a working directory, and the files that are none though they should be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentCatalog {
    /// Each name once. Those that come earlier took the place of later ones of their name.
    pub agents: Vec<Arc<AgentDefinition>>,
    /// What was left out, and why.
    pub faults: Vec<DefinitionFault>,
}

impl AgentCatalog {
    /// The agent of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<AgentDefinition>> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// Why a file of that name is no agent, where there is one.
    pub fn fault_of(&self, name: &str) -> Option<&DefinitionFault> {
        self.faults.iter().find(|fault| fault.path.file_stem().is_some_and(|stem| stem == name))
    }

    fn fault(&mut self, path: PathBuf, reason: String) {
        if self.faults.len() < limit::DEFINITION_FAULTS_MAX {
            self.faults.push(DefinitionFault { path, reason });
        }
    }
}

/// Finds agents.
#[derive(Debug)]
pub struct AgentFolders {
    folders: DefinitionFolders,
    /// Names that no file can have: they are those of other agents.
    reserved: Vec<String>,
    shelf: Shelf<AgentDefinition>,
    own: Vec<Arc<AgentDefinition>>,
}

impl AgentFolders {
    /// In these folders, beside agents of the `reserved` names.
    pub fn new(folders: DefinitionFolders, reserved: Vec<String>) -> Self {
        let parsed = |(name, text)| parse_agent(text, Path::new(name), DefinitionSource::BuiltIn).ok();
        let own = built_in().into_iter().filter_map(parsed).map(Arc::new).collect();
        Self { folders, reserved, shelf: Shelf::new(Layout::Files, read), own }
    }

    /// The agents of the working directory that is the last of `directories`: it and those above it in its project, outermost
    /// first. Blocking.
    pub fn look(&self, directories: &[PathBuf]) -> AgentCatalog {
        let mut catalog = AgentCatalog::default();
        for place in self.folders.places(directories, &AGENTS, &self.folders.agents) {
            for (path, taken) in self.shelf.look(&place) {
                match taken {
                    Taken::One(agent) => self.add(&mut catalog, agent, path),
                    Taken::Fault(why) => catalog.fault(path, why.to_string()),
                    Taken::Another => {}
                }
            }
        }
        for agent in &self.own {
            if catalog.get(&agent.name).is_none() {
                catalog.agents.push(Arc::clone(agent));
            }
        }
        catalog
    }

    fn add(&self, catalog: &mut AgentCatalog, agent: Arc<AgentDefinition>, path: PathBuf) {
        if self.reserved.contains(&agent.name) {
            catalog.fault(
                path,
                format!("`name`: expected another name than `{}`, which an agent of the server has", agent.name),
            );
        } else if let Some(first) = catalog.get(&agent.name) {
            let first = first.path.as_deref().unwrap_or(Path::new("")).display().to_string();
            catalog.fault(path, format!("`name`: `{}` is the name of {first} already, which counts", agent.name));
        } else {
            catalog.agents.push(agent);
        }
    }
}

fn read(text: &str, path: &Path, place: &Place) -> Taken<AgentDefinition> {
    let found = match parts(text) {
        Ok(found) => found,
        Err(_) if place.shared => return Taken::Another,
        Err(Unfit::Headless) => return Taken::Fault("expected frontmatter: a first line `---`".into()),
        Err(Unfit::Unreadable(why)) => return Taken::Fault(why.into()),
    };
    if place.shared && is_another(&found.fields) {
        return Taken::Another;
    }
    match agent(&found, path, place.source) {
        Ok(agent) => Taken::One(Arc::new(agent)),
        Err(why) => Taken::Fault(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn told(catalog: &AgentCatalog, top: &Path) -> Vec<String> {
        let short = |path: &Path| path.strip_prefix(top).unwrap_or(path).display().to_string();
        let agent = |agent: &Arc<AgentDefinition>| {
            format!("{} {}", agent.name, agent.path.as_deref().map_or("-".into(), short))
        };
        catalog.agents.iter().map(agent).collect()
    }

    #[test]
    fn the_first_of_a_name_counts_and_one_bad_file_stops_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let at = |path: &str| top.join(path);
        let named = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nText.\n");
        for (path, text) in [
            ("repo/sub/.simse/agents/near.md", named("near")),
            ("repo/sub/.simse/agents/zbad.md", "---\nname: bad\nkind: none\n---\n".into()),
            ("repo/.simse/agents/near.md", named("near")),
            ("repo/.simse/agents/no-head.md", "Just a text.".into()),
            ("repo/.simse/agents/server.md", named("simse")),
            ("repo/.simse/agents/plain.md", "---\ndescription: named by its file\n---\n".into()),
            ("repo/agents/seed.md", named("seed")),
            ("repo/agents/README.md", "# Our agents\n".into()),
            ("repo/agents/post.md", "---\ntitle: A post\n---\n".into()),
            ("repo/agents/bad.md", "---\nname: bad\ntools: {}\n---\n".into()),
            ("given/explore.md", named("explore")),
            ("home/agents/mine.md", named("mine")),
            ("home/agents/seed.md", named("seed")),
        ] {
            write(&at(path), &text);
        }
        let folders =
            DefinitionFolders { agents: vec![at("given")], homes: vec![at("home")], ..DefinitionFolders::default() };
        let finder = AgentFolders::new(folders, vec!["simse".into()]);
        let catalog = finder.look(&[at("repo"), at("repo/sub")]);
        let want = [
            "near repo/sub/.simse/agents/near.md",
            "plain repo/.simse/agents/plain.md",
            "seed repo/agents/seed.md",
            "explore given/explore.md",
            "mine home/agents/mine.md",
            "build -",
            "plan -",
        ];
        assert_eq!(told(&catalog, &top), want);
        let faults: Vec<(String, &str)> = catalog
            .faults
            .iter()
            .map(|fault| (fault.path.strip_prefix(&top).unwrap().display().to_string(), fault.reason.as_str()))
            .collect();
        let paths: Vec<&str> = faults.iter().map(|(path, _)| path.as_str()).collect();
        let want = [
            "repo/sub/.simse/agents/zbad.md",
            "repo/.simse/agents/near.md",
            "repo/.simse/agents/no-head.md",
            "repo/.simse/agents/server.md",
            "repo/agents/bad.md",
            "home/agents/seed.md",
        ];
        assert_eq!(paths, want);
        let reasons =
            ["`kind`", "near.md already, which counts", "frontmatter", "`simse`", "`tools`", "`seed` is the name of"];
        for ((_, reason), want) in faults.iter().zip(reasons) {
            assert!(reason.contains(want), "{reason}");
        }
        assert_eq!(catalog.get("near").unwrap().source, DefinitionSource::Project);
        assert_eq!(catalog.get("mine").unwrap().source, DefinitionSource::User);
        assert_eq!(catalog.get("explore").unwrap().source, DefinitionSource::Settings);
        // The same again is the very same.
        assert_eq!(finder.look(&[at("repo"), at("repo/sub")]), catalog);
        write(&at("repo/sub/.simse/agents/zbad.md"), &named("good"));
        assert!(finder.look(&[at("repo"), at("repo/sub")]).get("good").is_some());
    }

    #[test]
    fn without_any_folder_there_are_ours() {
        let finder = AgentFolders::new(DefinitionFolders::default(), Vec::new());
        let catalog = finder.look(&["/nowhere/at/all".into()]);
        let names: Vec<&str> = catalog.agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!((names, catalog.faults.len()), (vec!["build", "plan", "explore"], 0));
    }
}
