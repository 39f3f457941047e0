//! What clients send, as far as it is looked at. Unknown members are left alone: the protocol grows by them.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

/// `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialize {
    /// The newest version that the client speaks.
    pub(super) protocol_version: u64,
    #[serde(default)]
    pub(super) client_capabilities: Option<Capabilities>,
}

/// What the client can.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Capabilities {
    #[serde(default)]
    session: Option<SessionCapabilities>,
    #[serde(default)]
    elicitation: Option<ElicitationCapabilities>,
    #[serde(default, rename = "_meta")]
    meta: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct SessionCapabilities {
    #[serde(default)]
    notices: Option<Value>,
    #[serde(default)]
    compaction: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct ElicitationCapabilities {
    #[serde(default)]
    form: Option<Value>,
}

/// What of it matters here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Client {
    /// It shows notices.
    pub(super) notices: bool,
    /// It shows that a context is made shorter.
    pub(super) compactions: bool,
    /// It puts forms before a person.
    pub(super) forms: bool,
    /// It draws terminals out of `_meta` (an extension of Zed).
    pub(super) terminals: bool,
}

impl Capabilities {
    /// What of it matters here.
    pub(super) fn client(&self) -> Client {
        let session = self.session.as_ref();
        Client {
            notices: session.is_some_and(|session| session.notices.is_some()),
            compactions: session.is_some_and(|session| session.compaction.is_some()),
            forms: self.elicitation.as_ref().is_some_and(|elicitation| elicitation.form.is_some()),
            terminals: self.meta.as_ref().is_some_and(|meta| meta["terminal_output"] == true),
        }
    }
}

/// `session/new`, `session/load`, `session/resume` and `session/fork`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Open {
    /// The session; not of a new one.
    #[serde(default)]
    pub(super) session_id: Option<String>,
    /// Where its tools work; absolute.
    pub(super) cwd: PathBuf,
    /// Where its file tools may work beside that; absolute. None: nothing is said.
    #[serde(default)]
    pub(super) additional_directories: Option<Vec<PathBuf>>,
    /// Tool servers of the editor. None: nothing is said.
    #[serde(default)]
    pub(super) mcp_servers: Option<Vec<Value>>,
    /// What the model is told beside the system text.
    #[serde(default)]
    pub(super) system_prompt: Option<SystemPrompt>,
}

/// A system text of the client.
#[derive(Debug, Deserialize)]
pub(super) struct SystemPrompt {
    /// `append` or `override`.
    pub(super) mode: String,
    /// The text.
    pub(super) content: Vec<Value>,
}

/// One that names a session, and nothing else.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Named {
    pub(super) session_id: String,
}

/// `session/list`.
#[derive(Debug, Deserialize)]
pub(super) struct List {
    /// Only those that work there.
    #[serde(default)]
    pub(super) cwd: Option<PathBuf>,
    /// The `nextCursor` of the page before.
    #[serde(default)]
    pub(super) cursor: Option<String>,
}

/// `session/prompt` and `_session/steering`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prompt {
    pub(super) session_id: String,
    pub(super) prompt: Vec<Value>,
    #[serde(default, rename = "_meta")]
    pub(super) meta: Option<Value>,
}

/// `session/set_mode`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetMode {
    pub(super) session_id: String,
    pub(super) mode_id: String,
}

/// `session/set_config_option`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetOption {
    pub(super) session_id: String,
    pub(super) config_id: String,
    pub(super) value: Value,
}

/// `session/set_title`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetTitle {
    pub(super) session_id: String,
    pub(super) title: String,
}

/// `authenticate`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Authenticate {
    pub(super) method_id: String,
}

/// `$/cancel_request`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelRequest {
    pub(super) request_id: Value,
}
