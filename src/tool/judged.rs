//! Where the paths of a call led when it was judged, so that it is run there or not at all.
//!
//! Rules are held against resolved paths, and a person may take minutes to answer: a link that is put in the way meanwhile
//! must not lead the call to a place that nobody judged.

use std::sync::Arc;

use super::Subject;
use crate::base::workspace::{Judged, Workspace};

/// Where the paths of one call led.
#[derive(Debug, Clone, Default)]
pub struct JudgedPaths(Option<Arc<[Judged]>>);

impl JudgedPaths {
    /// Those of a subject. One that led nowhere leads nowhere later either.
    pub fn of(subject: &Subject) -> Self {
        let Subject::Paths(paths) = subject else { return Self::default() };
        let judged = |path: &super::PathSubject| {
            let resolved = path.resolved.clone()?;
            Some(Judged { path: resolved, below: path.below })
        };
        Self(Some(paths.iter().filter_map(judged).collect()))
    }

    /// The workspace for a tool that resolves no path but those of its subject: it finds them where they were, or refuses them.
    /// The same workspace for a call that was judged by something else.
    pub fn hold(&self, workspace: &Arc<Workspace>) -> Arc<Workspace> {
        match &self.0 {
            Some(judged) => Arc::new(workspace.held_to(Arc::clone(judged))),
            None => Arc::clone(workspace),
        }
    }
}
