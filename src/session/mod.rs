//! Sessions in their life: what a prompt sets off, in which order it is written down, and who may change it.
//!
//! `turn` is the pure state machine; `actor` owns all that changes of one session; `journal` numbers events,
//! hands them to the store and then to the readers; `manager` finds the actor of a session, or wakes it.
//!
//! Invariants: nothing outside this module changes a session. An event reaches a reader only when it
//! is in the log. A control (abort, steer, feedback) never waits behind the turn that it controls.

mod actor;
mod agent_rules;
mod ask;
mod attendance;
mod board;
mod book;
mod budget;
mod children;
mod clients;
mod control;
mod doing;
mod earlier;
mod explained;
mod fork;
mod gate;
mod grammar;
mod granted;
mod helm;
mod history;
mod journal;
mod lent;
mod live;
mod locks;
mod manager;
mod metered;
mod places;
mod policy;
mod reader;
mod receipt;
mod recorded;
mod recovery;
mod repair;
mod runner;
mod scopes;
mod settings;
mod sink;
mod snapshot;
mod started;
mod tally;
mod tenure;
mod titling;
mod traced;
pub mod transfer;
mod turn;
mod views;
mod weight;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::agent::{Asker, TurnInput, TurnOutcome, run_turn};
use crate::base::BoxFuture;
use crate::base::metrics::meters::Meters;
use crate::base::trace::Tracer;
use crate::base::workspace::Workspace;
use crate::config::{AgentCatalog, Limits, McpServer};
use crate::hook::{Hooks, NoHooks};
use crate::host::{Grounds, Recording};
use crate::model::{Model, Models};
use crate::protocol::{AgentDefinition, ApiError, ErrorBody, ErrorCode, InteractionMode, SessionId};
use crate::store::{SessionSettings, StoreError};
use crate::tool::{Guide, Registry};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

pub use actor::{Accepted, NewPrompt, NewSettings};
pub use ask::{Answer, GrantTerms, Resolved, Says};
pub use attendance::Attending;
pub use board::BoardChange;
pub use book::GrantBook;
pub use children::{AgentRole, may_work_in};
pub use control::{Command, Controlled};
pub use explained::ExplainedCall;
pub use fork::NewFork;
pub use grammar::Misplaced;
pub use history::{is_item, items};
pub use live::{ClientGuard, Live};
pub use manager::{Manager, one_less};
pub use policy::ServerRules;
pub use reader::EventReader;
pub use receipt::Receipt;
pub use recorded::{disown, disown_all};
pub use settings::{SERVERS_FALLBACKS, ToolEntry, configure};
pub use snapshot::items_back;
pub use started::Starting;
pub use tenure::{CHANGES_MISSED_MAX, Company, Whereabouts, is_nobodys};
pub use views::Views;

/// What a turn works with.
pub struct Equipment {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Models that are asked, in this order, when the one before cannot be used.
    pub fallbacks: Vec<Arc<dyn Model>>,
    /// The system text.
    pub system: String,
    /// The tools.
    pub registry: Arc<Registry>,
    /// The hooks.
    pub hooks: Arc<dyn Hooks>,
    /// All models, for tools that ask one.
    pub models: Models,
    /// The tool servers that an agent is to have in its session, where one answers.
    pub agent_servers: Arc<[McpServer]>,
    /// Who knows what is to be known of the places that calls touch. None: nobody.
    pub guide: Option<Arc<dyn Guide>>,
    /// The agent of a markdown file that the session works as.
    pub agent: Option<Arc<AgentDefinition>>,
    /// How the agent and its model talk about calls.
    pub mode: InteractionMode,
    /// What clients are to know before the turn begins: what is not as the session's settings have it.
    pub notices: Vec<String>,
}

/// Gives sessions what they work with. The application fills it.
pub trait Workbench: Send + Sync + 'static {
    /// The equipment of a session's next turn.
    ///
    /// # Errors
    /// Why the turn cannot be run: its model is gone, its directory is.
    fn equip<'a>(
        &'a self,
        session: &'a SessionId,
        settings: &'a SessionSettings,
    ) -> BoxFuture<'a, Result<Equipment, ErrorBody>>;

    /// Who hears of what happens around sessions.
    fn hooks(&self) -> Arc<dyn Hooks> {
        Arc::new(NoHooks)
    }

    /// Whether the session may work where it does: roots may be others than when it was made, and a link may lie there now.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the field `workingDirectory`.
    fn place(&self, _settings: &SessionSettings) -> Result<(), ApiError> {
        Ok(())
    }

    /// The agents that a session in this directory can name. None of its own: nobody is asked to have any.
    fn agents<'a>(&'a self, _directory: &'a Path) -> BoxFuture<'a, Arc<AgentCatalog>> {
        Box::pin(std::future::ready(Arc::default()))
    }

    /// Who records what turns of a session with these settings do to files, and where it works. None: nobody does.
    fn changes(&self, _settings: &SessionSettings) -> Option<(Arc<Recording>, Workspace)> {
        None
    }

    /// Where working trees of sub-agents of a session with these settings are made from.
    ///
    /// # Errors
    /// Why there are none.
    fn grounds(&self, _settings: &SessionSettings) -> Result<Grounds, ApiError> {
        Err(ApiError::conflict("sub-agents have no working trees of their own here"))
    }

    /// What a sub-agent of that name is: a type of agent, or one that is defined where the session works. None: nobody is
    /// called so.
    fn role(&self, _settings: &SessionSettings, name: &str) -> Option<AgentRole> {
        (name == "default").then(AgentRole::default)
    }

    /// The names that are known.
    fn roles(&self, _settings: &SessionSettings) -> Vec<String> {
        vec!["default".to_owned()]
    }

    /// Whether a session may have that model.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the field `model`.
    fn check_model(&self, _model: &str) -> Result<(), ApiError> {
        Ok(())
    }

    /// Runs a turn to its end.
    fn run(&self, input: TurnInput, cancel: CancellationToken) -> BoxFuture<'static, TurnOutcome> {
        Box::pin(run_turn(input, cancel))
    }
}

/// What all sessions of a manager have in common.
pub struct Terms {
    /// Limits and waits, as they are now.
    pub limits: RwLock<Limits>,
    /// The server's rules.
    pub rules: Arc<ServerRules>,
    /// Somebody in this program who answers questions.
    pub asker: Option<Arc<dyn Asker>>,
    /// Grants that outlive their sessions.
    pub saved: Arc<GrantBook>,
    /// Further roots of the file tools, beside a session's directory.
    pub roots: Vec<PathBuf>,
    /// Counts what happens.
    pub meters: Arc<Meters>,
    /// Sessions in the store, about: what is being made counts already.
    pub session_count: Arc<AtomicU64>,
    /// Tells a collector of it.
    pub tracer: Tracer,
}

/// What a store says, as a caller is told.
pub fn store_failure(error: &StoreError) -> ApiError {
    match error {
        StoreError::Taken(_) => {
            let details = serde_json::json!({ "field": "sessionId", "expected": "an id that is not taken, or none" });
            ApiError::conflict(error.to_string()).with_details(details)
        }
        StoreError::NoSession(id) => ApiError::not_found(format!("session {id}")),
        StoreError::NoTurn(id) => ApiError::not_found(format!("turn {id}")),
        StoreError::TooDeep { forks_max, .. } => {
            // No waiting helps.
            let expected = format!("a session that is less than the {forks_max}th fork in a row");
            ApiError::invalid("sessionId", expected)
        }
        StoreError::Closed => stopping(),
        StoreError::Begun => {
            let details = serde_json::json!({ "reason": BEGUN_ELSEWHERE });
            ApiError::conflict(error.to_string()).with_details(details)
        }
        StoreError::TakenOver | StoreError::Elsewhere(_) | StoreError::Away { .. } => {
            ApiError::new(ErrorCode::UpstreamUnavailable, error.to_string())
        }
        StoreError::InUse { .. }
        | StoreError::Occupied { .. }
        | StoreError::Damaged { .. }
        | StoreError::Broken { .. }
        | StoreError::TooNew { .. }
        | StoreError::Io { .. } => ApiError::internal(error.to_string()),
    }
}

/// What was done, and what the store says of writing it down. Whoever asks again elsewhere, or later, is told so by the code.
pub fn unwritten(done: &str, error: &StoreError) -> ApiError {
    let code = match store_failure(error).code() {
        ErrorCode::UpstreamUnavailable => ErrorCode::UpstreamUnavailable,
        _ => ErrorCode::Internal,
    };
    ApiError::new(code, format!("{done}, but that could not be written down: {error}"))
}

/// Why a command is refused that another server of the store is at.
pub const BEGUN_ELSEWHERE: &str = "begun elsewhere";

/// The refusal of a server that ends.
pub fn stopping() -> ApiError {
    ApiError::new(ErrorCode::UpstreamUnavailable, "the server is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is told to wait tries again for ever.
    #[test]
    fn a_fork_that_is_too_deep_is_no_matter_of_time() {
        let error = StoreError::TooDeep { session: "ses_1".parse().unwrap(), forks_max: 1_000 };
        let told = store_failure(&error);
        assert_eq!(told.code(), ErrorCode::InvalidArgument);
        assert_eq!(told.to_string(), "`sessionId`: expected a session that is less than the 1000th fork in a row");
    }

    /// A key that is asked for again at another server has its effect there.
    #[test]
    fn what_another_server_follows_in_is_asked_for_again() {
        let full = StoreError::Io { doing: "commit".into(), cause: "no room".into() };
        let away = StoreError::Away { doing: "commit".into(), cause: "nobody there".into() };
        let elsewhere = StoreError::Elsewhere("ses_1".parse().unwrap());
        let again = ErrorCode::UpstreamUnavailable;
        let cases = [(StoreError::TakenOver, again), (elsewhere, again), (away, again), (full, ErrorCode::Internal)];
        for (error, code) in cases {
            let told = unwritten("turn t is being aborted", &error);
            assert_eq!(told.code(), code, "{error}");
            let wanted = format!("turn t is being aborted, but that could not be written down: {error}");
            assert_eq!(told.0.message, wanted);
        }
    }
}
