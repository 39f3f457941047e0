//! One run of a server: its process or HTTP session, the negotiation, and its end.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use rmcp::model::ServerCapabilities;
use rmcp::service::{RunningService, RunningServiceCancellationToken, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::answers::Answers;
use super::ask::still_there;
use super::explain::{not_begun, request_failed};
use super::greeting::{ADDRESS_WAIT, Greeting, Patient, is_newest};
use super::handler::Handler;
use super::link::needs_login;
use super::listing::{Listed, Unlisted, list_tools};
use super::login::wanted_of;
use super::order::InOrder;
use super::pipe::{Fault, Guarded, LastWords, drain, with_last_words};
use super::signer::{Signed, Signer};
use crate::base::panics::broken;
use crate::base::process::{Ending, Invocation, Piped, environment, spawn};
use crate::base::secrets::Secrets;
use crate::base::{http, limit};
use crate::config::{McpServer, McpTransport, inherited_environment};

/// How long the rest of the output is read after the process has ended, and the other way round.
const REST_WAIT: Duration = Duration::from_millis(500);
/// How long the protocol has to say goodbye.
const GOODBYE_WAIT: Duration = Duration::from_secs(2);

/// What is looked after while the connection lives.
pub(super) struct Tending {
    peer: Peer<RoleClient>,
    tools_changed: Arc<Notify>,
    url: Option<String>,
}

impl Tending {
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Notes that the tools are others now.
    pub(super) fn tell_tools_changed(&self) {
        self.tools_changed.notify_one();
    }

    /// Waits for word that the tools are others now.
    pub(super) async fn tools_changed(&self) {
        self.tools_changed.notified().await;
    }

    /// Tells it that the roots are others now. One that cannot be told is noticed elsewhere.
    pub(super) async fn roots_changed(&self) {
        if is_newest(&self.peer) {
            // It asks with each request that wants to know.
            return;
        }
        let told = timeout(GOODBYE_WAIT, self.peer.notify_roots_list_changed());
        drop(told.await);
    }

    /// Whether it still answers; an error is an answer too.
    pub(super) async fn ping(&self) -> Result<(), String> {
        still_there(&self.peer).await.map_err(|error| request_failed(&error, self.url.as_deref()))
    }
}

/// A connection that stands.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    tools_changed: Arc<Notify>,
    url: Option<String>,
    /// Ends the protocol's own task.
    goodbye: Option<RunningServiceCancellationToken>,
    over: AbortOnDropHandle<()>,
    process: Option<Process>,
}

/// Why a connection did not begin, and how it may.
struct NotBegun {
    /// The end of a sentence.
    why: String,
    other: Option<Greeting>,
}

impl From<String> for NotBegun {
    fn from(why: String) -> Self {
        Self { why, other: None }
    }
}

/// A started program.
struct Process {
    piped: Piped,
    fault: Fault,
    words: LastWords,
    /// It did not say what it can.
    was_silent: Arc<AtomicBool>,
    secrets: Secrets,
    _draining: AbortOnDropHandle<()>,
}

impl Connection {
    /// Starts or reaches the server, negotiates, and lists its tools. Dropping the future kills what was started.
    ///
    /// # Errors
    /// Why it did not work, as the end of a sentence.
    pub(super) async fn open(
        spec: &McpServer,
        answers: &Arc<Answers>,
        greets: &Mutex<Greeting>,
    ) -> Result<(Self, Vec<Listed>), String> {
        let connection = Self::begin(spec, answers, greets).await?;
        if connection.offers().tools.is_none() {
            return Ok((connection, Vec::new()));
        }
        match list_tools(&connection.peer, &spec.name).await {
            Ok(listed) => Ok((connection, listed)),
            Err(Unlisted::Login(wanted)) => {
                answers.place.logins.note(&spec.name, wanted);
                connection.close(None).await;
                Err(needs_login(&spec.name))
            }
            Err(reason) => {
                let ended = connection.over.is_finished();
                let why = connection.close(None).await;
                Err(if ended { why } else { format!("it did not list its tools: {reason}") })
            }
        }
    }

    /// Starts or reaches it in one way, and where that is not its own in another.
    async fn begin(spec: &McpServer, answers: &Arc<Answers>, greets: &Mutex<Greeting>) -> Result<Self, String> {
        let once = async |greeting| match &spec.transport {
            McpTransport::Stdio { .. } => Self::start(spec, answers, greeting).await,
            McpTransport::Http { .. } => Self::reach(spec, answers, greeting).await,
        };
        let first = *greets.lock();
        match once(first).await {
            Ok(connection) => {
                if connection.process.as_ref().is_some_and(|process| process.was_silent.load(Ordering::Acquire)) {
                    // It is not waited for once more.
                    *greets.lock() = Greeting::Older;
                }
                Ok(connection)
            }
            Err(NotBegun { why, other: None }) => {
                *greets.lock() = Greeting::default();
                Err(why)
            }
            Err(NotBegun { why, other: Some(other) }) => {
                let why = spec.secrets().hidden(why);
                tracing::debug!(server = spec.name, why, "an MCP server is greeted in another way");
                *greets.lock() = other;
                once(other).await.map_err(|not| not.why)
            }
        }
    }

    async fn start(spec: &McpServer, answers: &Arc<Answers>, greeting: Greeting) -> Result<Self, NotBegun> {
        let McpTransport::Stdio { command, args, env, cwd } = &spec.transport else {
            return Err(NotBegun::from("it is no program".to_owned()));
        };
        let directory = &answers.place.directory;
        let invocation = Invocation {
            program: command.into(),
            arguments: args.iter().map(OsString::from).collect(),
            directory: cwd.as_ref().map_or_else(|| directory.clone(), |cwd| directory.join(cwd)),
            environment: environment(inherited_environment(), env),
            confinement: None,
        };
        let mut piped = spawn(&invocation).map_err(|cause| cause.to_string())?;
        let (Some(input), Some(output), Some(errors)) = (piped.stdin.take(), piped.stdout.take(), piped.stderr.take())
        else {
            return Err(NotBegun::from("its standard streams are missing".to_owned()));
        };
        let (fault, words) = (Fault::default(), LastWords::default());
        let draining = tokio::spawn(drain(errors, (spec.name.clone(), spec.secrets()), Arc::clone(&words)));
        let guarded = Guarded::new(output, &spec.name, Arc::clone(&fault)).hiding(spec.secrets());
        // Ours breaks off first; what the protocol finds too long it would drop, and the caller would wait.
        let transport = AsyncRwTransport::new_client(guarded, input)
            .with_max_line_length(limit::MCP_MESSAGE_BYTES_MAX + CHUNK_SLACK_BYTES);
        let handler = Handler::new(answers);
        let tools_changed = handler.tools_changed();
        let was_silent = Arc::default();
        let transport = InOrder::new(Patient::new(transport, &was_silent), answers);
        let begun = serve_client_with_lifecycle(handler, transport, greeting.mode()).await;
        let (secrets, _draining) = (spec.secrets(), AbortOnDropHandle::new(draining));
        let process = Process { piped, fault, words, was_silent, secrets, _draining };
        match begun {
            Ok(service) => Ok(Self::new(service, tools_changed, (None, Some(process)))),
            Err(error) => {
                let (refused, other) = (not_begun(&error, None), greeting.after(&error));
                Err(NotBegun { why: process.end().await.unwrap_or(refused), other })
            }
        }
    }

    async fn reach(spec: &McpServer, answers: &Arc<Answers>, greeting: Greeting) -> Result<Self, NotBegun> {
        let McpTransport::Http { url, headers, oauth } = &spec.transport else {
            return Err(NotBegun::from("it has no address".to_owned()));
        };
        let (name, logins) = (&spec.name, &answers.place.logins);
        let client = http::protocol_client(url).await.map_err(|error| error.to_string())?;
        let is_signed = headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        let headers = http::header_pairs(headers).map_err(|error| error.to_string())?;
        let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .custom_headers(headers)
            .max_sse_event_size(limit::MCP_MESSAGE_BYTES_MAX);
        let handler = Handler::new(answers);
        let tools_changed = handler.tools_changed();
        let begin = async {
            if is_signed {
                let transport = InOrder::new(StreamableHttpClientTransport::with_client(client, config), answers);
                return Ok(serve_client_with_lifecycle(handler, transport, greeting.mode()).await);
            }
            let signer = Signer::new((name, url), oauth.as_deref(), logins).await?;
            let transport = StreamableHttpClientTransport::with_client(Signed::new(client, signer), config);
            let transport = InOrder::new(transport, answers);
            Ok::<_, String>(serve_client_with_lifecycle(handler, transport, greeting.mode()).await)
        };
        let begun = match greeting {
            // One that leaves a question unanswered would hold up what comes behind it.
            Greeting::Asked => timeout(ADDRESS_WAIT, begin)
                .await
                .map_err(|_| NotBegun { why: "it did not say what it can".into(), other: Some(Greeting::Older) })??,
            Greeting::Older | Greeting::Newest => begin.await?,
        };
        let service = begun.map_err(|error| match wanted_of(&error) {
            Some(wanted) => {
                logins.note(name, wanted);
                NotBegun::from(needs_login(name))
            }
            None => NotBegun { why: not_begun(&error, Some(url)), other: greeting.after(&error) },
        })?;
        Ok(Self::new(service, tools_changed, (Some(url.to_owned()), None)))
    }

    fn new(
        service: RunningService<RoleClient, Handler>,
        tools_changed: Arc<Notify>,
        (url, process): (Option<String>, Option<Process>),
    ) -> Self {
        let (peer, goodbye) = (service.peer().clone(), Some(service.cancellation_token()));
        let over = tokio::spawn(async move {
            if let Err(panic) = service.waiting().await {
                let panic = broken(panic);
                tracing::error!(panic, "the task of an MCP connection broke off");
            }
        });
        Self { peer, tools_changed, url, goodbye, over: AbortOnDropHandle::new(over), process }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// What the server says that it can do.
    pub(super) fn offers(&self) -> ServerCapabilities {
        self.peer.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default()
    }

    pub(super) fn tending(&self) -> Tending {
        Tending { peer: self.peer.clone(), tools_changed: Arc::clone(&self.tools_changed), url: self.url.clone() }
    }

    /// Waits until it is over: the stream has ended, or the process has.
    pub(super) async fn ended(&mut self) {
        let over = (&mut self.over).map(drop);
        match &mut self.process {
            None => over.await,
            Some(process) => {
                tokio::pin!(over);
                let exited = tokio::select! {
                    () = &mut over => false,
                    _ = process.piped.wait() => true,
                };
                if exited {
                    // What it wrote before is still in the pipe.
                    drop(timeout(REST_WAIT, over).await);
                }
            }
        }
    }

    /// Says goodbye, ends the process with its group, and answers why it was over: `known`, or what can be found out.
    pub(super) async fn close(mut self, known: Option<String>) -> String {
        let was_over = self.over.is_finished();
        if let Some(goodbye) = self.goodbye.take() {
            goodbye.cancel();
        }
        if !was_over {
            drop(timeout(GOODBYE_WAIT, &mut self.over).await);
        }
        let found = match self.process.take() {
            Some(process) => process.end().await,
            None => None,
        };
        known.or(found).unwrap_or_else(|| "it closed the connection".to_owned())
    }
}

/// What the protocol's own limit of a line leaves above ours.
const CHUNK_SLACK_BYTES: usize = 1 << 20;

impl Process {
    /// Ends it with its group. Why it had ended, when it had ended by itself or was broken off.
    async fn end(mut self) -> Option<String> {
        let fault = self.fault.lock().take();
        let exited = timeout(REST_WAIT, self.piped.wait()).await;
        self.piped.stop(Duration::from_millis(limit::MCP_STOP_GRACE_MS)).await;
        if fault.is_some() {
            return fault;
        }
        let how = match Ending::from(exited.ok()?.ok()?) {
            Ending::Exited(code) => format!("its program ended with exit code {code}"),
            Ending::Signalled(signal) => format!("its program was ended by signal {signal}"),
            Ending::TimedOut | Ending::Cancelled => return None,
        };
        Some(with_last_words(how, (&self.words, &self.secrets)))
    }
}
