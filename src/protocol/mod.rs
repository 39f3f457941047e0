//! Every type that crosses a wire or a disk. serde only: no I/O, no async, no clock.
//!
//! Field names are camelCase on the wire. Times are integers: milliseconds since 1970, UTC.
//! Request bodies refuse unknown fields, so that a misspelt option is an error and not a silence.

mod agent;
mod agent_definition;
mod board;
mod budget;
mod changes;
mod client;
mod command;
mod compaction;
mod config_view;
mod display;
mod encode;
mod error;
mod event;
mod files;
mod id;
mod item;
mod kind;
mod lifecycle;
mod lineage;
mod mcp;
mod node;
mod object;
mod permission;
mod record;
mod request;
mod session;
mod session_token;
mod skill;
mod snapshot;
mod task;
mod telling;
mod tool;
pub(crate) mod whole;

pub use agent::{
    AgentChoices, AgentCommand, AgentCommands, AgentCompaction, AgentCost, AgentOption, AgentOptions, AgentPlan,
    AgentSetting, AgentState, AgentUsage, AgentValue, PlanEntry,
};
pub use agent_definition::{
    ANY_TOOL, AgentDefinition, AgentGate, AgentKind, AgentList, AgentView, DefinitionFault, DefinitionSource,
    InteractionMode, PlanDecision, PlanVerdict,
};
pub use board::{BadKey, BoardDeletion, BoardEntry, BoardKey, PutBoardEntry, TreeMember};
pub use budget::{Budget, BudgetKind, BudgetNotice, BudgetScope, BudgetState, SessionBudgets, Spending};
pub use changes::{ChangeKind, ChangeReport, DiffView, FileChange, Fork, PathReason, TurnChanges, Undo, Undone};
pub use client::{Access, BadRole, BadTokenName, ClientId, TokenName, TokenRole};
pub use command::{
    Compact, Configure, Control, CreateSession, Decision, Feedback, Prompt, PromptContent, PromptMode, Reasoning,
    TurnSettings,
};
pub use compaction::{AttachedFile, Compaction, CompactionTrigger, TouchedFiles, TurnTask};
pub use config_view::{ConfigView, SettingView};
pub use display::Display;
pub use error::{ApiError, ErrorBody, ErrorCode, ErrorEnvelope};
pub use event::EventBody;
pub(crate) use event::of_tree;
pub use files::{FileEntry, FileKind, FilesView};
pub use id::{BadId, GrantId, RequestId, SessionId, SessionTokenId, TurnId};
pub use item::{Item, ItemBody, Message, Original, Part, Role};
pub use kind::{EVENT_TYPES, kind_named};
pub use lifecycle::{LATER_LIFECYCLE_TYPES, LIFECYCLE_TYPES, SESSION_DELETED, is_lifecycle};
pub use lineage::{
    AgentTypeView, BadRunId, CancelRun, CancelledRuns, Coordination, Isolation, Lineage, Merge, MergeOutcome,
    RunContext, RunId, RunSummary, RunView, SubagentEnd, SubagentQueued, SubagentRequest, SubagentResponse,
    SubagentStart, Worktree,
};
pub use mcp::{
    AskMcp, McpAnswer, McpOwner, McpProjectServer, McpProjectView, McpServerView, McpTrust, McpView, TrustProject,
};
pub use node::{Drained, NodeList, NodeState, NodeView};
pub use permission::{
    ExplainCall, ExplainedPart, GrantScope, GrantView, PermissionConfig, PermissionExplanation, PermissionMode,
    PermissionPolicy, PermissionRule, PermissionVerdict, VerdictBasis, VerdictSource,
};
pub use record::Event;
pub use request::{ClientQuestion, ClientReply, FormReply, NoticeLevel};
pub use session::{
    ACP_PREFIX, Cost, CountTokens, Deleted, Health, LimitView, ModelList, ModelPrices, ModelView, OWN_AGENT, Page,
    Proof, SessionStatus, SessionView, TokenCount, TurnRecord, TurnStatus, TurnStop, Usage, agent_of,
};
pub use session_token::{MadeSessionToken, NewSessionToken, SessionTokenList, SessionTokenRole, SessionTokenView};
pub use skill::{CommandKind, CommandList, CommandView, SkillList, SkillView};
pub use snapshot::{OpenCall, Snapshot, Underway};
pub use task::{ChangeTask, NewTask, TaskChange, TaskDeletion, TaskItem, TaskStatus, TaskView};
pub use telling::{Beginning, Configured, ControlKind, Granted, RevokeReason, RoundKind};
pub use tool::{
    CategoryFilter, Held, HeldCall, ToolAnnotations, ToolCallRequest, ToolCallResult, ToolCategory, ToolDefinition,
    ToolList, ToolMetrics,
};
