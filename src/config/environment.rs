//! The process's own environment, as a whole: what started programs inherit from (see `base::process::environment`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::supervision::is_ours_alone;

/// The operating system, such as `linux`.
pub const PLATFORM: &str = std::env::consts::OS;

/// Where an agent's tool client joins us.
pub const TOOL_DOOR: &str = "SIMSE_TOOL_DOOR";
/// The key of the session that it is for.
pub const TOOL_KEY: &str = "SIMSE_TOOL_KEY";

/// All variables of this process, but those that a supervisor set for this process alone.
pub fn inherited_environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !is_ours_alone(name)).collect()
}

/// The token for the server that `simse mcp --attach` leads on to (`SIMSE_MCP_TOKEN`). None: no text, or an empty one.
pub fn attach_token() -> Option<SecretString> {
    secret("SIMSE_MCP_TOKEN")
}

/// The token for the server that a person's `--attach` names (`SIMSE_TOKEN`). None: no text, or an empty one.
pub fn client_token() -> Option<SecretString> {
    secret("SIMSE_TOKEN")
}

/// The password for a database whose address has none (`PGPASSWORD`). None: no text, or an empty one.
pub fn database_password() -> Option<SecretString> {
    secret("PGPASSWORD")
}

fn secret(name: &str) -> Option<SecretString> {
    let text = std::env::var(name).ok().map(|text| text.trim().to_owned());
    text.filter(|text| !text.is_empty()).map(SecretString::from)
}

/// What this process was started with, its own name first.
pub fn own_arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os()
}

/// The program that runs here. None: the system does not say.
pub fn own_program() -> Option<PathBuf> {
    std::env::current_exe().ok()
}

/// What an agent's tool client was given to join us: where, and the key of its session. None: nobody gave it.
pub fn tool_door() -> Option<(String, String)> {
    Some((std::env::var(TOOL_DOOR).ok()?, std::env::var(TOOL_KEY).ok()?))
}

/// The program in which the user writes texts: `VISUAL`, else `EDITOR`, else vi. Words for a shell.
pub fn editor_program() -> String {
    let said = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    said.map(|words| words.trim().to_owned()).find(|words| !words.is_empty()).unwrap_or_else(|| "vi".to_owned())
}

/// The user's home directory, as `~` in a command means it.
pub fn home_directory() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// Where the program `name` lies, as a shell would find it: a name with a slash relative to `directory`, any
/// other along `PATH`. None when there is no such file that may be run.
pub fn find_program(name: &str, directory: &Path) -> Option<PathBuf> {
    find_program_in(name, directory, std::env::var_os("PATH").as_deref())
}

/// The same along another `PATH`.
pub fn find_program_in(name: &str, directory: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(directory.join(name)).filter(|path| is_program(path));
    }
    std::env::split_paths(path?).map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}
