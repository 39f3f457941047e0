//! Definitions of one kind that a working directory has: the first of each name, and the files that are none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::shelf::{Layout, Read, Shelf, Taken};
use super::{DefinitionFolders, Kind};
use crate::base::limit;
use crate::protocol::{DefinitionFault, SkillView};

use super::command::CommandDefinition;

/// Something with a name and a file.
pub(super) trait Defined {
    fn name(&self) -> &str;
    fn path(&self) -> &Path;
}

impl Defined for SkillView {
    fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Defined for CommandDefinition {
    fn name(&self) -> &str {
        &self.view.name
    }

    fn path(&self) -> &Path {
        &self.view.path
    }
}

/// What there is, and what is not because of a fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog<T> {
    /// Each name once, in the order in which their folders count.
    pub all: Vec<Arc<T>>,
    /// What was left out, and why.
    pub faults: Vec<DefinitionFault>,
}

impl<T> Default for Catalog<T> {
    fn default() -> Self {
        Self { all: Vec::new(), faults: Vec::new() }
    }
}

#[allow(private_bounds, reason = "what can be in a catalog is decided here")]
impl<T: Defined> Catalog<T> {
    /// The one of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<T>> {
        self.all.iter().find(|one| one.name() == name)
    }

    fn fault(&mut self, path: PathBuf, reason: String) {
        if self.faults.len() < limit::DEFINITION_FAULTS_MAX {
            self.faults.push(DefinitionFault { path, reason });
        }
    }

    fn add(&mut self, one: Arc<T>, path: PathBuf) {
        match self.get(one.name()).map(|first| first.path().display().to_string()) {
            Some(first) => {
                let reason = format!("`name`: `{}` is the name of {first} already, which counts", one.name());
                self.fault(path, reason);
            }
            None => self.all.push(one),
        }
    }
}

/// Finds the definitions of one kind.
#[derive(Debug)]
pub struct Finder<T> {
    folders: DefinitionFolders,
    kind: &'static Kind,
    given: Vec<PathBuf>,
    shelf: Shelf<T>,
}

#[allow(private_bounds, reason = "what can be found is decided here")]
impl<T: Defined> Finder<T> {
    pub(super) fn new(
        folders: &DefinitionFolders,
        (kind, given): (&'static Kind, &[PathBuf]),
        (layout, read): (Layout, Read<T>),
    ) -> Self {
        Self { folders: folders.clone(), kind, given: given.to_vec(), shelf: Shelf::new(layout, read) }
    }

    /// What the working directory has that is the last of `directories`: it and those above it in its project, outermost first.
    /// Blocking.
    pub fn look(&self, directories: &[PathBuf]) -> Catalog<T> {
        let mut catalog = Catalog::default();
        for place in self.folders.places(directories, self.kind, &self.given) {
            for (path, taken) in self.shelf.look(&place) {
                match taken {
                    Taken::One(one) => catalog.add(one, path),
                    Taken::Fault(why) => catalog.fault(path, why.to_string()),
                    Taken::Another => {}
                }
            }
        }
        catalog
    }
}
