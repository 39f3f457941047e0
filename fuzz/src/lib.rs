//! The sources of simse that the fuzz targets look at, under the names that they have in the crate.
//!
//! Not a copy: each module is the file that ships. The rest of the crate (servers, stores, providers) is left out, so
//! that a build with coverage takes a minute, and so that what is private can be looked at without being made public.

// The properties name the crate as everybody does.
extern crate self as simse;

#[path = "../../src/base"]
pub mod base {
    //! The outside world, as far as the targets need it.
    pub mod beneath;
    pub mod glob;
    pub mod image;
    pub mod limit;
    pub mod place;
    pub mod show;
    pub mod sse;
    pub mod text;
    pub mod workspace;
}

#[path = "../../src/edit/mod.rs"]
pub mod edit;
#[path = "../../src/permission/mod.rs"]
pub mod permission;
#[path = "../../src/protocol/mod.rs"]
pub mod protocol;

pub mod tool {
    //! What the search's globs name of the tools.

    /// Why a tool failed.
    #[derive(Debug)]
    pub enum ToolError {
        /// Its arguments are not what its definition asks for.
        BadArguments(String),
    }
}

#[path = "../../src/host"]
pub mod host {
    //! The globs of the search tools, which are private in the crate.

    mod search {
        pub(super) mod choice;

        mod entries {
            //! Of the walk's own entries only this.
            use std::ffi::OsStr;
            use std::os::unix::ffi::OsStrExt;
            use std::path::Path;

            /// Bytes as a path.
            pub(in crate::host) fn as_path(bytes: &[u8]) -> &Path {
                Path::new(OsStr::from_bytes(bytes))
            }
        }
    }

    /// The choice of some globs. None: one of them is no glob.
    pub struct Choice(search::choice::FileChoice);

    impl Choice {
        /// Prepares it.
        pub fn new(globs: &[String]) -> Option<Self> {
            search::choice::FileChoice::new("glob", globs).ok().map(Self)
        }

        /// Whether the file at `path` counts.
        pub fn takes(&mut self, path: &str) -> bool {
            self.0.takes(path.as_bytes())
        }

        /// Whether anything below the directory at `path` can count.
        pub fn enters(&self, path: &str) -> bool {
            self.0.enters(path.as_bytes())
        }
    }

    /// See `names_hidden` in the search.
    pub fn names_hidden(glob: &str) -> bool {
        search::choice::names_hidden(glob)
    }
}

pub mod properties;
