//! `simse mcp --attach`: an MCP client over the standard streams, led on to a server that runs.
//!
//! Nothing is opened and no session is kept here. Invariants: stdout carries the protocol and nothing else; the data directory's own
//! token goes to nobody but the server that shows that it has that directory.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Way};
use super::found::{neighbour, own_token, token_of};
use super::log::Log;
use super::serve::refuse;
use super::stdio::Streams;
use super::{Exit, signal};
use crate::base::http;
use crate::config::{Launch, LogFormat, Origin, attach_token, strange_variables};
use crate::protocol::{ErrorCode, SessionId};
use crate::server::{Attachment, Pipe, bridge_mcp};

/// Settings that are about this process, and of use beside `--attach`.
const OF_USE: [&str; 5] = ["data_dir", "log_format", "log_level", "log_filter", "shutdown_grace_ms"];
/// Where MCP is spoken.
const PATH: &str = "/mcp";

/// To which server, and as whom.
pub(super) struct Wanted {
    /// Its address; empty: that of the data directory.
    pub(super) url: String,
    pub(super) session: Option<SessionId>,
    pub(super) token_file: Option<PathBuf>,
}

/// Leads the client on until the input ends, or a signal.
pub(super) async fn run(launch: &Launch, streams: Streams, wanted: Wanted) -> Exit {
    let useless = |(name, origin): &&(&str, Origin)| *origin == Origin::Flag && !OF_USE.contains(name);
    if let Some((name, _)) = launch.origins.iter().find(useless) {
        let flag = name.replace('_', "-");
        let words = format!("--{flag} is of no use beside --attach: the server that runs has settings of its own");
        return refuse(LogFormat::Text, Exit::Usage, words);
    }
    let log = Log::start(launch);
    for said in strange_variables() {
        tracing::warn!("{said}");
    }
    let exit = lead_on(launch, streams, wanted).await;
    log.deliver().await;
    log.flush();
    exit
}

async fn lead_on(launch: &Launch, streams: Streams, wanted: Wanted) -> Exit {
    let refused = |exit, words: String| refuse(launch.log_format, exit, words);
    let stop = match signal::stop_requested() {
        Ok(stop) => stop,
        Err(cause) => return refused(Exit::CannotStart, format!("no signals: {cause}")),
    };
    let target = match target(launch, &wanted.url).await {
        Ok(target) => target,
        Err((exit, words)) => return refused(exit, words),
    };
    let given = match wanted.token_file.as_deref().map(token_of).transpose() {
        Ok(given) => given,
        Err(words) => return refused(Exit::Usage, words),
    };
    let query = wanted.session.map(|id| format!("?session={id}")).unwrap_or_default();
    let way = match http::Way::to(&format!("{}{query}", target.url), target.socket.as_deref()).await {
        Ok(way) => way,
        Err(cause) => return refused(Exit::Usage, format!("--attach: {cause}")),
    };
    let token = match attach_token().or(given) {
        Some(token) => Some(token),
        None => target.own_token(launch).await,
    };
    serve(launch, streams, (Attachment { way, token }, stop)).await
}

async fn serve(launch: &Launch, streams: Streams, (to, stop): (Attachment, CancellationToken)) -> Exit {
    let (input, output) = streams.files();
    let (_grace, grace) = watch::channel(Duration::from_millis(launch.shutdown_grace_ms));
    let pipe = Pipe { input, output, line_bytes_max: launch.listen.body_bytes_max, grace };
    match bridge_mcp(to, pipe, stop).await {
        Ok(()) => Exit::Ok,
        Err(error) => {
            let there = matches!(error.code(), ErrorCode::UpstreamUnavailable | ErrorCode::Forbidden);
            refuse(launch.log_format, if there { Exit::CannotStart } else { Exit::Failed }, error)
        }
    }
}

/// Where the server is.
struct Target {
    /// The address of its `/mcp`.
    url: String,
    socket: Option<PathBuf>,
    /// It is the data directory's, as it has shown already; with its token.
    proved: Option<Option<SecretString>>,
}

async fn target(launch: &Launch, url: &str) -> Result<Target, (Exit, String)> {
    if url.is_empty() {
        let Some(client) = neighbour(launch).await else {
            let place = launch.data_directory.display();
            let words = format!("--attach: no server runs that has the data directory {place}; name its address");
            return Err((Exit::CannotStart, words));
        };
        let socket = match &client.way {
            Way::Socket(path) => Some(path.clone()),
            Way::Network(_) | Way::Encrypted(_) => None,
        };
        let url = format!("http://{}{PATH}", client.way.host());
        return Ok(Target { url, socket, proved: Some(client.token) });
    }
    if let Some(path) = url.strip_prefix("unix:") {
        let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
        return Ok(Target { url: format!("http://localhost{PATH}"), socket: Some(path), proved: None });
    }
    let bare = url.trim_end_matches('/');
    if !["http://", "https://"].iter().any(|scheme| bare.starts_with(scheme)) || bare.contains(['?', '#']) {
        let expected = "expected http://HOST:PORT, https://HOST:PORT or unix:SOCKET, without a query";
        return Err((Exit::Usage, format!("--attach: {expected}, got `{url}`")));
    }
    let url = if bare.ends_with(PATH) { bare.to_owned() } else { format!("{bare}{PATH}") };
    Ok(Target { url, socket: None, proved: None })
}

impl Target {
    /// The data directory's token, if this is its server.
    async fn own_token(&self, launch: &Launch) -> Option<SecretString> {
        if let Some(token) = &self.proved {
            return token.clone();
        }
        let authority = self.url.strip_prefix("http://")?.strip_suffix(PATH)?.to_owned();
        let way = self.socket.clone().map_or(Way::Network(authority), Way::Socket);
        own_token(launch, &Client { way, token: None }).await
    }
}
