//! A project's own tool servers (`.mcp.json`), and which of these files the user trusts.
//!
//! The file comes with the project, so with whoever wrote it: it is found and shown, and nothing of it is started or filled in from the
//! environment before the user has said yes to this very content. A file that changes is another file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::McpServer;
use super::data_directory::{DataDirectoryError, error, place, read_private};
use crate::base::{file, limit};

/// The name of the file.
pub const PROJECT_FILE: &str = ".mcp.json";
/// Where trust is kept, in a data directory.
const TRUSTED: &str = "trusted-projects.json";
const LOCK: &str = "trusted-projects.lock";

/// A project's file, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// Where it is; its directory is without links.
    pub path: PathBuf,
    /// SHA-256 of its content, in hexadecimal digits.
    pub hash: String,
    /// Its servers, as they are written, in the order of their names.
    entries: Vec<(String, Value)>,
}

/// A file that is no such file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct BadProjectFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// A server as a person is shown it who has to decide. Nothing is filled in, and what may be a key is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its program and arguments, or its address.
    pub runs: String,
    /// The names of what it would be given of the environment or as headers.
    pub given: Vec<String>,
}

impl ProjectFile {
    /// The file of the project that a directory belongs to: the nearest one on the way up, below the root that the directory is under.
    /// Blocking.
    pub fn find(directory: &Path, roots: &[PathBuf]) -> Option<Result<Self, BadProjectFile>> {
        let directory = std::fs::canonicalize(directory).ok()?;
        let root = roots.iter().filter(|root| directory.starts_with(root)).max_by_key(|root| root.as_os_str().len())?;
        let places = directory.ancestors().take_while(|place| place.starts_with(root));
        let found =
            places.map(|place| place.join(PROJECT_FILE)).find(|path| std::fs::symlink_metadata(path).is_ok())?;
        Some(Self::read(found))
    }

    fn read(path: PathBuf) -> Result<Self, BadProjectFile> {
        let bad = |problem: String| BadProjectFile { path: path.clone(), problem };
        let (bytes, _) =
            file::read_small(&path, limit::MCP_PROJECT_FILE_BYTES_MAX).map_err(|cause| bad(cause.to_string()))?;
        let written: Value = serde_json::from_slice(&bytes).map_err(|cause| bad(cause.to_string()))?;
        let servers = match written.get("mcpServers") {
            Some(Value::Object(servers)) => servers.clone(),
            Some(_) => return Err(bad("`mcpServers`: expected an object".into())),
            None => return Err(bad("expected an object with `mcpServers`".into())),
        };
        if servers.len() > limit::MCP_SERVERS_OF_SESSION_MAX {
            let most = limit::MCP_SERVERS_OF_SESSION_MAX;
            return Err(bad(format!("`mcpServers`: expected at most {most} servers, got {}", servers.len())));
        }
        let hash = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { hash, entries: servers.into_iter().collect(), path })
    }

    /// Where its programs start.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Its servers for a person.
    pub fn shown(&self) -> Vec<Shown> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let names = |value: Option<&Value>| {
            value.and_then(Value::as_object).map(|all| all.keys().cloned().collect()).unwrap_or_default()
        };
        let shown = |(name, entry): &(String, Value)| {
            let program = entry.get("command").map(|command| {
                let arguments = entry.get("args").and_then(Value::as_array).into_iter().flatten().map(text);
                std::iter::once(text(command)).chain(arguments).collect::<Vec<_>>().join(" ")
            });
            let runs = program.or_else(|| entry.get("url").map(text)).unwrap_or_default();
            let given = names(entry.get("env").or_else(|| entry.get("headers")));
            Shown { name: name.clone(), runs, given }
        };
        self.entries.iter().map(shown).collect()
    }

    /// Its servers with `${NAME}` filled in from the environment, and why others are none. Only for a file that is trusted.
    pub fn servers(&self) -> (Vec<McpServer>, Vec<String>) {
        self.servers_with(|name| std::env::var(name).ok())
    }

    fn servers_with(&self, variable: impl Fn(&str) -> Option<String>) -> (Vec<McpServer>, Vec<String>) {
        let (mut servers, mut faults) = (Vec::new(), Vec::new());
        for (name, entry) in &self.entries {
            match server(name, entry, &variable) {
                Ok(mut server) => {
                    server.start_within(self.directory());
                    servers.push(server);
                }
                Err(why) => faults.push(why),
            }
        }
        (servers, faults)
    }
}

/// A server of the file in our own form. Members that we do not know are passed over: others write them for other programs.
fn server(name: &str, entry: &Value, variable: &impl Fn(&str) -> Option<String>) -> Result<McpServer, String> {
    let entry = entry.as_object().ok_or_else(|| format!("`{name}`: expected an object"))?;
    let transport = match entry.get("type").map(Value::as_str) {
        None | Some(Some("stdio" | "http")) => entry.get("type").cloned(),
        Some(Some("streamable-http" | "streamableHttp")) => Some(json!("http")),
        Some(_) => return Err(format!("`{name}.type`: expected `stdio` or `http`")),
    };
    let known = ["command", "args", "env", "cwd", "url", "headers", "oauth"];
    let mut ours: Map<String, Value> = entry
        .iter()
        .filter(|(member, _)| known.contains(&member.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for value in ours.values_mut() {
        fill(value, variable).map_err(|missing| format!("`{name}`: the variable {missing} is not set"))?;
    }
    ours.insert("name".into(), name.into());
    if let Some(transport) = transport {
        ours.insert("transport".into(), transport);
    }
    serde_json::from_value(Value::Object(ours)).map_err(|error| error.to_string())
}

/// Fills in the variables of all texts. An error: the one that is not set.
fn fill(value: &mut Value, variable: &impl Fn(&str) -> Option<String>) -> Result<(), String> {
    match value {
        Value::String(text) => *text = filled(text, variable)?,
        Value::Array(values) => values.iter_mut().try_for_each(|value| fill(value, variable))?,
        Value::Object(members) => members.values_mut().try_for_each(|value| fill(value, variable))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// `${NAME}` and `${NAME:-otherwise}`; anything else stands for itself.
fn filled(text: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut made, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("${") {
        let Some(end) = rest[at..].find('}').map(|end| at + end) else { break };
        let inner = &rest[at + 2..end];
        let (name, otherwise) = inner.split_once(":-").map_or((inner, None), |(name, other)| (name, Some(other)));
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        made.push_str(&rest[..at]);
        if is_name {
            let value = variable(name).filter(|value| !value.is_empty()).or_else(|| otherwise.map(str::to_owned));
            made.push_str(&value.ok_or_else(|| name.to_owned())?);
        } else {
            made.push_str(&rest[at..=end]);
        }
        rest = &rest[end + 1..];
    }
    made.push_str(rest);
    Ok(made)
}

/// Which files are trusted: path and hash of the content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trusted {
    projects: BTreeMap<PathBuf, String>,
}

impl Trusted {
    /// What a data directory says; nothing where it says nothing. Blocking.
    ///
    /// # Errors
    /// [`DataDirectoryError`] when others can read the file, or it holds something else.
    pub fn read(directory: &Path) -> Result<Self, DataDirectoryError> {
        let (path, doing) = (directory.join(TRUSTED), "read which projects are trusted");
        let advice = "whoever could write it could have trusted anything; delete it and trust anew";
        let Some(bytes) = read_private(&path, doing, advice)? else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes).map_err(|cause| error(doing, &path, cause.into()))
    }

    /// Whether this very content is trusted.
    pub fn holds(&self, file: &ProjectFile) -> bool {
        self.projects.get(&file.path).is_some_and(|hash| *hash == file.hash)
    }

    /// The files and the hashes of their contents.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.projects.iter().map(|(path, hash)| (path.as_path(), hash.as_str()))
    }

    /// Trusts a file as it is, or with no hash none of it any more.
    pub fn set(&mut self, path: &Path, hash: Option<&str>) {
        match hash {
            Some(hash) => drop(self.projects.insert(path.to_owned(), hash.to_owned())),
            None => drop(self.projects.remove(path)),
        }
    }

    /// The same in a data directory, beside other programs that do so. Blocking.
    ///
    /// # Errors
    /// [`DataDirectoryError`]
    pub fn keep(directory: &Path, path: &Path, hash: Option<&str>) -> Result<Self, DataDirectoryError> {
        let (file, doing) = (directory.join(TRUSTED), "write which projects are trusted");
        // Held until it is dropped.
        let _lock = lock(directory).map_err(|cause| error(doing, &file, cause))?;
        let mut trusted = Self::read(directory)?;
        trusted.set(path, hash);
        let text = serde_json::to_vec_pretty(&trusted).map_err(|cause| error(doing, &file, cause.into()))?;
        place(&file, &text, true).map_err(|cause| error(doing, &file, cause))?;
        Ok(trusted)
    }
}

fn lock(directory: &Path) -> io::Result<File> {
    let options = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).clone();
    let file = options.open(directory.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::McpTransport;

    fn written(place: &Path, content: &Value) -> PathBuf {
        std::fs::create_dir_all(place).unwrap();
        let path = place.join(PROJECT_FILE);
        std::fs::write(&path, content.to_string()).unwrap();
        path
    }

    #[test]
    fn the_nearest_file_below_the_root_counts() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let one = |name: &str| json!({ "mcpServers": { name: { "command": "x" } } });
        written(&home, &one("outside"));
        let (root, deep) = (home.join("root"), home.join("root/a/b/c"));
        std::fs::create_dir_all(&deep).unwrap();
        let roots = [root.clone()];
        assert!(ProjectFile::find(&deep, &roots).is_none(), "what lies above the root is not looked for");
        let project = written(&root.join("a"), &one("project"));
        let found = ProjectFile::find(&deep, &roots).unwrap().unwrap();
        assert_eq!((&found.path, found.shown()[0].name.as_str()), (&project, "project"));
        let nearer = written(&deep, &one("nearer"));
        assert_eq!(ProjectFile::find(&deep, &roots).unwrap().unwrap().path, nearer);
        assert_eq!(ProjectFile::find(&root.join("a"), &roots).unwrap().unwrap().path, project);
        for (content, want) in
            [(json!([]), "expected an object with"), (json!({ "mcpServers": [] }), "`mcpServers`: expected an object")]
        {
            written(&deep, &content);
            let bad = ProjectFile::find(&deep, &roots).unwrap().unwrap_err();
            assert!(bad.problem.contains(want), "{bad}");
        }
    }

    #[test]
    fn servers_are_ours_with_their_variables_filled_in() {
        let home = tempfile::tempdir().unwrap();
        let path = written(
            home.path(),
            &json!({ "mcpServers": {
                "a": { "command": "${HERE}/run", "args": ["--key=${KEY:-none}", "$KEY ${} ${a b} ${KEY"], "env": { "K": "${KEY}" }, "disabled": false, "cwd": "sub" },
                "b": { "type": "streamable-http", "url": "https://x/${EMPTY:-mcp}", "headers": { "X-Key": "${KEY}" } },
                "c": { "command": "${MISSING}" },
                "d": { "type": "sse", "url": "https://x/" },
                "e": { "command": "x", "url": "https://x/" },
            } }),
        );
        let file = ProjectFile::read(path).unwrap();
        let variable = |name: &str| match name {
            "HERE" => Some("/here".to_owned()),
            "KEY" => Some("s3cret".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let (servers, faults) = file.servers_with(variable);
        let McpTransport::Stdio { command, args, env, cwd } = &servers[0].transport else { panic!("a program") };
        assert_eq!(
            (command.as_str(), args[0].as_str(), args[1].as_str()),
            ("/here/run", "--key=s3cret", "$KEY ${} ${a b} ${KEY")
        );
        assert_eq!((env["K"].as_str(), cwd.as_deref()), ("s3cret", Some(home.path().join("sub").as_path())));
        let McpTransport::Http { url, headers, .. } = &servers[1].transport else { panic!("an address") };
        assert_eq!((url.as_str(), headers["X-Key"].as_str(), servers.len()), ("https://x/mcp", "s3cret", 2));
        let wanted = [
            "`c`: the variable MISSING is not set",
            "`d.type`: expected `stdio` or `http`",
            "`url` of the MCP server `e`",
        ];
        assert!(
            faults.iter().zip(wanted).all(|(fault, want)| fault.starts_with(want)) && faults.len() == 3,
            "{faults:?}"
        );
        let shown = file.shown();
        assert_eq!(shown[0].runs, "${HERE}/run --key=${KEY:-none} $KEY ${} ${a b} ${KEY");
        assert_eq!(
            (shown[0].given.as_slice(), shown[1].runs.as_str()),
            (["K".to_owned()].as_slice(), "https://x/${EMPTY:-mcp}")
        );
    }

    #[test]
    fn trust_is_in_a_file_as_it_is_and_kept_for_us_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let (home, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = written(home.path(), &json!({ "mcpServers": { "a": { "command": "x" } } }));
        let file = ProjectFile::read(path.clone()).unwrap();
        assert!(!Trusted::read(data.path()).unwrap().holds(&file));
        assert!(Trusted::keep(data.path(), &file.path, Some(&file.hash)).unwrap().holds(&file));
        let kept = data.path().join(TRUSTED);
        assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Trusted::read(data.path()).unwrap().files().count(), 1);
        written(home.path(), &json!({ "mcpServers": { "a": { "command": "y" } } }));
        let changed = ProjectFile::read(path).unwrap();
        assert!(!Trusted::read(data.path()).unwrap().holds(&changed), "another content is another file");
        assert!(!Trusted::keep(data.path(), &file.path, None).unwrap().holds(&file));
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Trusted::read(data.path()).is_err());
    }
}
