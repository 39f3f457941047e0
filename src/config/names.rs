//! What a setting is called by whoever gave it: an error names what was typed, not what we call it.

/// A setting that the application may have to refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Where sessions work that name no directory.
    WorkingDirectory,
    /// Roots under which working directories may lie.
    AllowedRoots,
    /// Further roots for the file tools.
    AllowedPaths,
    /// The model of new sessions.
    Model,
    /// The model that turns remembered texts into vectors.
    EmbeddingModel,
}

/// Where settings come from, and so what they are called there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Names {
    /// Flags, variables and a file.
    #[default]
    Flags,
    /// Members of a configuration in JavaScript.
    Members,
}

impl Names {
    /// What a setting is called.
    pub fn of(self, setting: Setting) -> String {
        let (flag, member) = match setting {
            Setting::WorkingDirectory => ("cwd", "workingDirectory"),
            Setting::AllowedRoots => ("root", "allowedRoots"),
            Setting::AllowedPaths => ("allowed_path", "allowedPaths"),
            Setting::Model => ("model", "model"),
            Setting::EmbeddingModel => ("memory_embedding_model", "memory.embeddingAgent"),
        };
        match self {
            Self::Flags => spellings(flag),
            Self::Members => member.to_owned(),
        }
    }
}

/// The setting that is meant by its `spellings`, or by the key that a place in the file begins with. None: it is neither.
pub fn setting_of(place: &str) -> Option<&str> {
    match place.strip_suffix(')').and_then(|place| place.rsplit_once(", ")) {
        Some((_, name)) => Some(name),
        None => place.split_once('[').map(|(name, _)| name),
    }
}

/// A setting's name as flag, variable and key.
pub(super) fn spellings(name: &str) -> String {
    format!("--{} (SIMSE_{}, {name})", name.replace('_', "-"), name.to_ascii_uppercase())
}
