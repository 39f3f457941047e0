//! What a setting is called by whoever gave it: an error names what was typed, not what we call it.

use super::options::Options;
use crate::base::text;

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
    /// The directory of the model that does that here.
    MemoryModel,
    /// Models that are asked when another cannot be used.
    ModelFallbacks,
    /// The model for small work.
    SmallModel,
    /// The model that sums up conversations.
    CompactionModel,
    /// What answers of models are recorded in.
    RecordModels,
    /// The recording that answers of models come from.
    ReplayModels,
    /// Where sessions are.
    Store,
    /// Where other servers reach this one.
    NodeUrl,
    /// Labels of the workspaces that this server reaches.
    NodeLabels,
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
            Setting::ModelFallbacks => ("model_fallbacks", "modelFallbacks"),
            Setting::SmallModel => ("small_model", "smallModel"),
            Setting::CompactionModel => ("compaction_model", "compactionModel"),
            Setting::RecordModels => ("record_models", "recordModels"),
            Setting::ReplayModels => ("replay_models", "replayModels"),
            Setting::Store => ("store", "store"),
            Setting::NodeUrl => ("node_url", "nodeUrl"),
            Setting::NodeLabels => ("node_labels", "nodeLabels"),
            Setting::EmbeddingModel => ("memory_embedding_model", "memory.embeddingAgent"),
            Setting::MemoryModel => ("memory_model", "memory.model"),
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

/// Variables of this process that look like one of ours and are none: what each may have meant.
pub fn strange_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter_map(|name| strange_variable(&name)).collect()
}

fn strange_variable(name: &str) -> Option<String> {
    let own = name.strip_prefix("SIMSE_")?.to_ascii_lowercase();
    let known = || Options::NAMES.iter().copied().chain(["config", "mcp_token", "token"]);
    if known().any(|known| known == own) {
        return None;
    }
    let meant = text::near_misses(&own, known()).first()?.to_ascii_uppercase();
    Some(format!("the variable {name} is not known; did you mean SIMSE_{meant}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_spelt_wrong_is_told_and_anybody_elses_is_not() {
        let told = strange_variable("SIMSE_MAX_ITERATONS").unwrap_or_default();
        assert_eq!(told, "the variable SIMSE_MAX_ITERATONS is not known; did you mean SIMSE_MAX_ITERATIONS?");
        // Those of our own tests and programs among them.
        let others = [
            "SIMSE_PORT",
            "SIMSE_CONFIG",
            "SIMSE_CRASH_KILLS",
            "SIMSE_TEST_PYTHON",
            "SIMSE_PROCESS",
            "SIMSE_KIN",
            "PORT",
            "SIMSE_",
        ];
        assert_eq!(others.map(strange_variable), [const { None }; 8]);
    }
}
