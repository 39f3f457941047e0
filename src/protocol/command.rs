//! What a client can ask for: the bodies of the routes, and of the commands on other doors.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::agent::AgentOptions;
use super::agent_definition::InteractionMode;
use super::budget::Budget;
use super::id::{RequestId, SessionId, TurnId};
use super::item::Part;
use super::object;
use super::permission::{GrantScope, PermissionConfig, PermissionMode};
use super::whole;

/// `POST /sessions`. Every field may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CreateSession {
    /// A chosen id; one is made otherwise.
    pub session_id: Option<SessionId>,
    /// Where its tools work, see [`Configure::working_directory`]. Default: the server's own.
    pub working_directory: Option<PathBuf>,
    /// Where they may work beside that, see [`Configure::additional_directories`]. Default: nowhere.
    pub additional_directories: Option<Vec<PathBuf>>,
    /// The session that it stands under: it may do at most what that one may, and goes with it.
    pub parent: Option<SessionId>,
    /// A name from `GET /agents`, see [`Configure::agent`].
    pub agent: Option<String>,
    /// `provider/name`, from `GET /models`.
    pub model: Option<String>,
    /// A title, at most 256 characters, none of them control characters.
    pub title: Option<String>,
    /// Text that is added to the system prompt.
    pub instructions: Option<String>,
    /// The tools it may use, see [`Configure::tools`]. Default: all.
    pub tools: Option<Vec<String>>,
    /// How much its model thinks before it answers. Default: `auto`.
    pub reasoning: Option<Reasoning>,
    /// What the options of its agent are set to (`GET /sessions/:id/agent`). Default: as the agent has them.
    pub agent_options: Option<AgentOptions>,
    /// The models that are asked, in this order, when its own cannot be used, see [`Configure::model_fallbacks`]. Default: the
    /// server's.
    pub model_fallbacks: Option<Vec<String>>,
    /// What it may spend, see [`Configure::budget`]. Default: as much as it likes.
    #[serde(deserialize_with = "object::optional")]
    pub budget: Option<Budget>,
    /// Rules of this session. A denial by the server's own rules stands; otherwise these decide (an `ask` of the server's may become `allow`).
    #[serde(deserialize_with = "object::optional")]
    pub tool_permissions: Option<PermissionConfig>,
    /// How much it does without asking. Default: the server's setting.
    pub permission_mode: Option<PermissionMode>,
    /// How the agent and its model talk about calls, see [`Configure::interaction_mode`].
    pub interaction_mode: Option<InteractionMode>,
}

/// What a prompt says: a text, or parts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PromptContent {
    /// A text.
    Text(String),
    /// Text and images.
    Parts(Vec<Part>),
}

/// By hand, so that an error names the part and what was expected of it.
impl<'de> Deserialize<'de> for PromptContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Content;

        impl<'de> Visitor<'de> for Content {
            type Value = PromptContent;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text, or a list of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<PromptContent, E> {
                Ok(PromptContent::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<PromptContent, E> {
                Ok(PromptContent::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<PromptContent, A::Error> {
                object::list(SeqAccessDeserializer::new(parts)).map(PromptContent::Parts)
            }
        }

        deserializer.deserialize_any(Content)
    }
}

impl PromptContent {
    /// The content as parts.
    pub fn into_parts(self) -> Vec<Part> {
        match self {
            Self::Text(text) => vec![Part::Text { text }],
            Self::Parts(parts) => parts,
        }
    }

    /// What it takes in memory, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Parts(parts) => Self::bytes_of(parts),
        }
    }

    /// The same of parts.
    pub fn bytes_of(parts: &[Part]) -> usize {
        let said = parts.iter().map(|part| match part {
            Part::Text { text } => text.len(),
            Part::Image { media_type, data } => media_type.len() + data.len(),
        });
        said.sum::<usize>() + size_of_val(parts)
    }

    /// All its text, parts joined by a line break.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts
                    .iter()
                    .filter_map(|part| match part {
                        Part::Text { text } => Some(text.as_str()),
                        Part::Image { .. } => None,
                    })
                    .collect();
                texts.join("\n")
            }
        }
    }
}

/// What to do with a prompt while a turn runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptMode {
    /// Run it after the ones before it.
    #[default]
    Queue,
    /// Put it into the running turn at the next item boundary; a new turn when none runs.
    Steer,
    /// Refuse it with `CONFLICT`.
    Reject,
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reasoning {
    /// As much as it does by itself: it is told nothing.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as it can.
    Xhigh,
}

impl Reasoning {
    /// Its name on the wires of models. None: it is not mentioned.
    pub fn effort(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::None => Some("none"),
            Self::Minimal => Some("minimal"),
            Self::Low => Some("low"),
            Self::Medium => Some("medium"),
            Self::High => Some("high"),
            Self::Xhigh => Some("xhigh"),
        }
    }
}

/// Changes to a session's settings, from the next turn on: `PATCH /sessions/:id`, or beside a prompt. What is not named
/// stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Configure {
    /// Another agent of `GET /agents`: one that a markdown file defines, `simse` for none of these, or an ACP agent. With it come
    /// the model and the reasoning of its file, where it names some and nothing else is said beside it. Its text, tools, gates,
    /// rules and rounds are those of its file when a turn begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// How the agent and its model talk about calls: `chat`, the model calls tools as its provider has it; `auto`, it answers with
    /// JSON actions until it finishes its task. Default: as the agent's file says, else `auto` for a model that cannot call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interaction_mode: Option<InteractionMode>,
    /// Another model, `provider/name`, or `acp/NAME` for an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much the model thinks before it answers. Of an agent: its option of the category `thought_level`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// What the options of its agent are set to, those that are not named as the agent has them. Gone with another agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_options: Option<AgentOptions>,
    /// The models that are asked, in this order, when its own cannot be used. No entry: none; `*` alone: those of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_fallbacks: Option<Vec<String>>,
    /// What it may spend from its beginning on, with all sessions that stand under it; no limit: as much as it likes. A limit
    /// that is reached ends its turns, and theirs.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub budget: Option<Budget>,
    /// Another title; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Other instructions; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Names are the tools that it has from now on, `*` means all of them, no entry none. `+name` and `-name` add and take
    /// away: from those that are named beside them, else from those that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Another permission mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// Where its tools work; must lie under an allowed root and not in the server's own data. Not absolute: from where the server
    /// works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<PathBuf>,
    /// Directories beside that in which its tools may work in the same way: all of them, no entry means none. Each exists, lies
    /// under an allowed root and not in the server's own data. Not absolute: from the session's working directory, the new one
    /// where it changes, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_directories: Option<Vec<PathBuf>>,
}

/// What holds for one turn alone, instead of what its session is set to. What is not named is as in the session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TurnSettings {
    /// Another agent, as `agent` of a session's settings; with it come the model and the reasoning of its file, where it names
    /// some and nothing else is said beside it. A prompt that begins with `@name` and a space names it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Another model, `provider/name`, or `acp/NAME` for an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much the model thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// What the options of its agent are set to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_options: Option<AgentOptions>,
    /// The models that are asked, in this order, when its own cannot be used, see [`Configure::model_fallbacks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_fallbacks: Option<Vec<String>>,
    /// The JSON Schema of an object that the final answer has to be: the turn completes with it in `output`, or fails with the
    /// kind `output_invalid`. Not of an agent, nor of a model whose `structuredOutput` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map<String, Value>>,
}

impl TurnSettings {
    /// The same as changes of a session's settings.
    pub fn as_changes(&self) -> Configure {
        let Self { agent, model, reasoning, agent_options, model_fallbacks, output_schema: _ } = self.clone();
        Configure { agent, model, reasoning, agent_options, model_fallbacks, ..Configure::default() }
    }
}

/// `POST /sessions/:id/prompt`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prompt {
    /// What the user says; not empty.
    pub prompt: PromptContent,
    /// What to do while a turn runs.
    #[serde(default)]
    pub mode: PromptMode,
    /// Settings that change with this prompt.
    #[serde(default, deserialize_with = "object::optional")]
    pub configure: Option<Configure>,
    /// What holds for its turn alone. A turn that runs keeps what it began with, so this is refused of a prompt that is put
    /// into one.
    #[serde(default, deserialize_with = "object::optional")]
    pub turn: Option<TurnSettings>,
    /// Refuse unless the session has this version.
    #[serde(default, deserialize_with = "whole::optional")]
    pub if_version: Option<u64>,
}

/// `POST /sessions/:id/compact`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Compact {
    /// What the summary is to keep above all, in words: at most 4,000 characters.
    pub focus: Option<String>,
    /// Refuse unless the session has this version.
    #[serde(deserialize_with = "whole::optional")]
    pub if_version: Option<u64>,
}

/// `POST /sessions/:id/abort`, `/interrupt`, `/pause` and `/resume`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Control {
    /// The turn that is meant: another one is left alone. Default: the one that runs or is paused.
    pub turn_id: Option<TurnId>,
    /// Why; goes into the event.
    pub reason: Option<String>,
    /// Refuse unless the session has this version.
    #[serde(deserialize_with = "whole::optional")]
    pub if_version: Option<u64>,
}

/// A client's answer to a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This once.
    Allow,
    /// This once, and calls like it for the rest of the session, or as far as `scope` says.
    AllowAlways,
    /// No.
    Deny,
}

/// `POST /sessions/:id/feedback`. To a question about permission: one of `callId` and `requestId`, one of `decision` and
/// `allowed`. To another question: `requestId`, and one of `value` and `cancelled`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Feedback {
    /// The call that waits.
    pub call_id: Option<String>,
    /// The request that waits.
    pub request_id: Option<RequestId>,
    /// The answer.
    pub decision: Option<Decision>,
    /// The answer in short form.
    pub allowed: Option<bool>,
    /// The answer to a question that is not about permission.
    pub value: Option<Value>,
    /// True: there will be no answer to such a question.
    pub cancelled: Option<bool>,
    /// Words for the model, when the answer is no; why there is none, when there is none.
    pub message: Option<String>,
    /// How far a yes reaches. Default: `once` for `allow`, `session` for `allow_always`.
    pub scope: Option<GrantScope>,
    /// After how many milliseconds a yes that reaches further than this call ends. Default: never.
    #[serde(deserialize_with = "whole::optional")]
    pub expires_in_ms: Option<u64>,
}
