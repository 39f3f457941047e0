//! Where the user's own agents, skills and commands lie.

use std::path::{Path, PathBuf};

use super::{Surroundings, default_config_file, path};

/// The user's folders of ours, in which agents and the like are looked for: beside the configuration, and in the home.
pub(super) fn definition_homes(from: &Surroundings) -> Vec<PathBuf> {
    let beside = default_config_file(from).and_then(|file| file.parent().map(Path::to_owned));
    beside.into_iter().chain(path(from, "HOME").map(|home| home.join(".simse"))).collect()
}
