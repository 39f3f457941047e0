//! What a call that may look around does not get to see.
//!
//! A rule that denies `sec/*` to the file tools is about what a search of the whole tree finds there as well: the
//! search passes it over, as if it were not there.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Says of a path, absolute and without links, whether a search passes it over.
#[derive(Clone)]
pub struct Veil(Arc<dyn Fn(&Path) -> bool + Send + Sync>);

impl Veil {
    /// A veil over what `hides` says yes to. It is asked of every file and directory that a search comes by.
    pub fn new(hides: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(hides))
    }

    /// Whether it is passed over.
    pub fn hides(&self, path: &Path) -> bool {
        (self.0)(path)
    }
}

impl fmt::Debug for Veil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Veil").finish_non_exhaustive()
    }
}
