//! The way of a person at the terminal to a session: the server that is meant, and the session there.
//!
//! Without an address it is the server of the data directory; where none runs, this process becomes it, with a door on this machine,
//! for as long as the command runs. Invariant: the data directory's token goes to nobody but its own server.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::Exit;
use super::arguments::Place;
use super::client::{Client, ClientError, Way};
use super::found::{Found, find, neighbour, of_a_door, own_token, token_of, with_a_door};
use super::running::Running;
use super::serve::exit_of;
use crate::config::{Launch, LogLevel, Options, Origin, client_token};
use crate::protocol::{Page, SessionId, SessionView};

/// Settings that are about this process or about the session, and so of use with a server that runs already.
const OF_USE: [&str; 9] = [
    "data_dir",
    "log_format",
    "log_level",
    "log_filter",
    "shutdown_grace_ms",
    "cwd",
    "model",
    "permission_mode",
    "port_file",
];
/// How long a stop waits for what still runs.
const SHUTDOWN_GRACE_MS: u64 = 1_000;
/// Sessions that are looked through for the newest of a directory.
const LOOKED_THROUGH: usize = 1_000;

/// Which server, and which session there.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Reach {
    /// Use the server at http(s)://HOST:PORT or unix:SOCKET [default: that of the data directory; where none runs, one of its own]
    ///
    /// The token is that of SIMSE_TOKEN or --token-file, else the data directory's, which only its own server is shown.
    #[arg(long, value_name = "URL", help_heading = "Which session")]
    pub(super) attach: Option<String>,
    /// With --attach: a file that has the token, for its owner alone
    #[arg(long, value_name = "FILE", requires = "attach", help_heading = "Which session")]
    pub(super) token_file: Option<PathBuf>,
    /// Go on with the newest session of the working directory [default: a new one]
    #[arg(short = 'c', long = "continue", conflicts_with = "session", help_heading = "Which session")]
    pub(super) go_on: bool,
    /// Go on with this session
    #[arg(short, long, value_name = "ID", help_heading = "Which session")]
    pub(super) session: Option<SessionId>,
    /// Its agent [default: the server's]
    #[arg(long, value_name = "NAME", help_heading = "Which session")]
    pub(super) agent: Option<String>,
    /// Configuration file [default: ~/.config/simse/config.toml, when it is there]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: Options,
}

/// Which server is meant, of those that run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct There {
    /// Use the server at http(s)://HOST:PORT or unix:SOCKET [default: that of the data directory]
    #[arg(long, value_name = "URL")]
    attach: Option<String>,
    /// With --attach: a file that has the token, for its owner alone
    #[arg(long, value_name = "FILE", requires = "attach")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// Why something cannot go on, and what the program ends with.
pub(super) type Refusal = (Exit, String);

/// A server that is there.
pub(super) struct Reached {
    /// The way to it.
    pub(super) client: Client,
    /// The server, where it is this process.
    own: Option<Box<Running>>,
    /// What was said when the program was started.
    pub(super) launch: Launch,
    /// Whether it is on this machine, and so sees the same files.
    pub(super) near: bool,
    agent: Option<String>,
}

impl Reach {
    /// The settings, before anything is started.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn launch(&self) -> Result<Launch, Refusal> {
        if let Some(flag) = of_a_door(&self.options) {
            let words =
                format!("{flag} is for `simse serve`: the door of this command is on this machine, on any port");
            return Err((Exit::Usage, words));
        }
        // What is asked for is this user's, and lies where it lies: the session's working directory bounds its tools.
        let own = Options {
            root: Some(vec![PathBuf::from("/")]),
            log_level: Some(LogLevel::Warn),
            shutdown_grace_ms: Some(SHUTDOWN_GRACE_MS),
            ..Options::default()
        };
        let launch = Launch::resolve(self.options.clone(), self.config.clone(), own);
        launch.map(with_a_door).map_err(|error| (Exit::Usage, error.to_string()))
    }

    /// Finds the server, or becomes it.
    ///
    /// # Errors
    /// When there is none, or it is not the one that is meant.
    pub(super) async fn server(&self, launch: Launch) -> Result<Reached, Refusal> {
        let agent = self.agent.clone();
        if let Some(url) = &self.attach {
            useful(&launch, "with --attach: that server has settings of its own")?;
            let (client, near) = self.attached(&launch, url).await?;
            return Ok(Reached { client, own: None, launch, near, agent });
        }
        match find(&launch).await.map_err(|error| (exit_of(&error), error.to_string()))? {
            Found::Other(client) => {
                let running = "the server of this data directory runs already, and has settings of its own";
                useful(&launch, &format!("here: {running} ({})", client.way.shown()))?;
                Ok(Reached { client: *client, own: None, launch, near: true, agent })
            }
            Found::Own(running) => {
                Ok(Reached { client: running.client(), own: Some(running), launch, near: true, agent })
            }
        }
    }

    async fn attached(&self, launch: &Launch, url: &str) -> Result<(Client, bool), Refusal> {
        let way = way_of(url)?;
        let given = self.token_file.as_deref().map(token_of).transpose().map_err(|words| (Exit::Usage, words))?;
        let near = way.is_near();
        let client = match client_token().or(given) {
            Some(token) => Client { way, token: Some(token) },
            None => {
                let stranger = Client { way, token: None };
                let token = own_token(launch, &stranger).await;
                Client { token, ..stranger }
            }
        };
        match client.call("GET", "/sessions?limit=1", None).await {
            Ok(_) => Ok((client, near)),
            Err(ClientError::Refused { status: 401, .. }) => {
                let words = format!("{url} wants a token: SIMSE_TOKEN, or a file that --token-file names");
                Err((Exit::CannotStart, words))
            }
            Err(error) => {
                let words = format!("--attach: {error}");
                // Whose certificates count, rustls says in its own words; how one more comes to count, nobody.
                let hint = if words.contains("peer certificate") {
                    ". SSL_CERT_FILE names a file with the certificate of who signed the server's"
                } else {
                    ""
                };
                Err((Exit::CannotStart, words + hint))
            }
        }
    }

    /// The session that is meant: a new one, or one that is there.
    ///
    /// # Errors
    /// What the server says, or that there is none.
    pub(super) async fn session(&self, reached: &Reached) -> Result<SessionView, Refusal> {
        let failed = |error: ClientError| (Exit::Failed, error.to_string());
        let found = match &self.session {
            Some(id) => Some(reached.client.read(&format!("/sessions/{id}")).await.map_err(failed)?),
            None if self.go_on => {
                let directory = reached.directory().map(Path::to_owned);
                let newest = reached.newest(directory.as_deref()).await.map_err(failed)?;
                Some(newest.ok_or_else(|| {
                    let place = directory.map_or_else(String::new, |place| format!(" in {}", place.display()));
                    (Exit::Failed, format!("--continue: there is no session{place} yet"))
                })?)
            }
            None => None,
        };
        let mut wanted = reached.wanted();
        let Some(found): Option<SessionView> = found else { return reached.create().await.map_err(failed) };
        // Where a session works is its own matter.
        wanted.remove("workingDirectory");
        if wanted.is_empty() {
            return Ok(found);
        }
        let path = format!("/sessions/{}", found.session_id);
        reached.client.call("PATCH", &path, Some(&Value::Object(wanted))).await.map_err(failed)?;
        reached.client.read(&path).await.map_err(failed)
    }
}

impl There {
    /// The way to it. This process never becomes it.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn server(self) -> Result<Client, Refusal> {
        let Self { attach, token_file, place: Place { config, data_dir } } = self;
        let options = Options { data_dir, ..Options::default() };
        let reach = Reach { attach, token_file, config, options, ..Reach::default() };
        let launch = reach.launch()?;
        if reach.attach.is_some() {
            return Ok(reach.server(launch).await?.client);
        }
        let found = neighbour(&launch).await;
        found.ok_or_else(|| {
            let place = launch.data_directory.display();
            let words = format!("{place}: no server has it that could be asked; one that speaks TLS alone: --attach");
            (Exit::CannotStart, words)
        })
    }
}

impl Reached {
    /// Where new sessions work, as far as it is said: a server elsewhere has other directories.
    pub(super) fn directory(&self) -> Option<&Path> {
        let said = self.launch.origins.iter().any(|(name, origin)| *name == "cwd" && *origin == Origin::Flag);
        (self.near || said).then_some(self.launch.settings.working_directory.as_path())
    }

    /// What was said about the session.
    pub(super) fn wanted(&self) -> Map<String, Value> {
        let said = |name: &str| self.launch.origins.iter().any(|(one, origin)| *one == name && *origin == Origin::Flag);
        let mut wanted = Map::new();
        if let Some(directory) = self.directory() {
            wanted.insert("workingDirectory".to_owned(), json!(directory));
        }
        if let Some(agent) = &self.agent {
            wanted.insert("agent".to_owned(), json!(agent));
        }
        if let (true, Some(model)) = (said("model"), &self.launch.said.model) {
            wanted.insert("model".to_owned(), json!(model));
        }
        if let (true, Some(mode)) = (said("permission_mode"), &self.launch.said.permission_mode) {
            wanted.insert("permissionMode".to_owned(), json!(mode));
        }
        wanted
    }

    /// Makes a session as it was asked for.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn create(&self) -> Result<SessionView, ClientError> {
        let created = self.client.call("POST", "/sessions", Some(&Value::Object(self.wanted()))).await?;
        let id = created.get("sessionId").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.client.read(&format!("/sessions/{id}")).await
    }

    /// The newest session that nobody has under it, of a directory where one is named.
    async fn newest(&self, directory: Option<&Path>) -> Result<Option<SessionView>, ClientError> {
        let mut newest: Option<SessionView> = None;
        let mut cursor = None;
        let mut looked = 0;
        while looked < LOOKED_THROUGH {
            let page = self.client.sessions(cursor.as_deref(), 100).await?;
            looked += page.items.len();
            for view in page.items {
                let here = directory.is_none_or(|directory| view.working_directory == directory);
                let newer = newest.as_ref().is_none_or(|found| found.updated_at < view.updated_at);
                if here && newer && view.lineage.is_none() {
                    newest = Some(view);
                }
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        Ok(newest)
    }

    /// Whether the server is this process.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Ends the server, where it is this process.
    ///
    /// # Errors
    /// When not everything could be stored.
    pub(super) async fn end(self) -> Result<(), Refusal> {
        let Some(running) = self.own else { return Ok(()) };
        running.stop().await.map_err(|error| (Exit::Failed, format!("not everything could be stored: {error}")))
    }
}

/// Refuses flags that the server's own settings stand against.
fn useful(launch: &Launch, why: &str) -> Result<(), Refusal> {
    let useless = |(name, origin): &&(&str, Origin)| *origin == Origin::Flag && !OF_USE.contains(name);
    match launch.origins.iter().find(useless) {
        Some((name, _)) => Err((Exit::Usage, format!("--{} is of no use {why}", name.replace('_', "-")))),
        None => Ok(()),
    }
}

/// The way to an address.
fn way_of(url: &str) -> Result<Way, Refusal> {
    if let Some(path) = url.strip_prefix("unix:") {
        return Ok(Way::Socket(PathBuf::from(path.strip_prefix("//").unwrap_or(path))));
    }
    let bare = url.trim_end_matches('/');
    let authority = |scheme: &str| bare.strip_prefix(scheme).filter(|rest| !rest.is_empty());
    let strange = |rest: &str| rest.contains(['?', '#', '/', '@', ' ']) || rest.chars().any(char::is_control);
    match (authority("http://"), authority("https://")) {
        (Some(rest), _) if !strange(rest) => {
            let port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            Ok(Way::Network(if port { rest.to_owned() } else { format!("{rest}:80") }))
        }
        (_, Some(rest)) if !strange(rest) => Ok(Way::Encrypted(bare.to_owned())),
        _ => {
            let expected = "expected http://HOST:PORT, https://HOST:PORT or unix:SOCKET";
            Err((Exit::Usage, format!("--attach: {expected}, got `{url}`")))
        }
    }
}

impl Client {
    /// A page of the sessions, the newest first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn sessions(&self, cursor: Option<&str>, limit: usize) -> Result<Page<SessionView>, ClientError> {
        let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        self.read(&format!("/sessions?limit={limit}{cursor}")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_three_kinds() {
        for (url, shown) in [
            ("http://127.0.0.1:4100", Some("http://127.0.0.1:4100")),
            ("http://[::1]:4100/", Some("http://[::1]:4100")),
            ("http://box", Some("http://box:80")),
            ("https://box:8443", Some("https://box:8443")),
            ("unix:/run/simse", Some("unix:/run/simse")),
            ("unix:///run/simse", Some("unix:/run/simse")),
            ("box:4100", None),
            ("http://", None),
            ("https://box/path", None),
            ("http://me@box:1", None),
            ("http://box:1?x", None),
        ] {
            let way = way_of(url).ok().map(|way| way.shown());
            assert_eq!(way.as_deref(), shown, "{url}");
        }
    }
}
