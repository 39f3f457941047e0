//! The process's own environment, as a whole: what started programs inherit from (see `base::process::environment`).

use std::ffi::OsString;

/// All variables of this process, unfiltered.
pub fn inherited_environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}
