//! Tasks that the sessions of a tree share, in the form of `createTaskList` (typescript-api.md §7). They belong to the session
//! above all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::board::TreeMember;

/// Where a task stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Nobody has begun it.
    #[default]
    Pending,
    /// Somebody works on it.
    InProgress,
    /// It is done.
    Completed,
}

impl TaskStatus {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }
}

/// A task, as it stands in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskItem {
    /// Its id: a number that is given once.
    pub id: String,
    /// What is to be done, in a few words.
    pub subject: String,
    /// What belongs to it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What is shown while it is worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
    /// Who works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Where it stands.
    pub status: TaskStatus,
    /// Ids of tasks that come first.
    pub blocked_by: Vec<String>,
    /// When it was made.
    pub created_at: u64,
    /// When it last changed.
    pub updated_at: u64,
}

/// A task as `GET /sessions/:id/tasks` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskView {
    /// The task.
    #[serde(flatten)]
    pub task: TaskItem,
    /// Ids of tasks that wait for it.
    pub blocks: Vec<String>,
}

/// A task came to be, or changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskChange {
    /// The task as it is then.
    pub task: TaskItem,
    /// Who has made or changed it. Absent: a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<TreeMember>,
}

/// A task was taken off the list: nobody waits for it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskDeletion {
    /// Its id.
    pub id: String,
    /// Who has. Absent: a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<TreeMember>,
}

/// `POST /sessions/:id/tasks`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTask {
    /// What is to be done, in a few words.
    pub subject: String,
    /// What belongs to it.
    #[serde(default)]
    pub description: Option<String>,
    /// What is shown while it is worked on.
    #[serde(default)]
    pub active_form: Option<String>,
    /// Who works on it.
    #[serde(default)]
    pub owner: Option<String>,
    /// Where it stands. Default: nobody has begun it.
    #[serde(default)]
    pub status: Option<TaskStatus>,
    /// Ids of tasks that come first.
    #[serde(default)]
    pub blocked_by: Option<Vec<String>>,
}

/// `PATCH /sessions/:id/tasks/:taskId`: only what is named changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeTask {
    /// Where it stands.
    #[serde(default)]
    pub status: Option<TaskStatus>,
    /// Other words for what is to be done.
    #[serde(default)]
    pub subject: Option<String>,
    /// Another description.
    #[serde(default)]
    pub description: Option<String>,
    /// What is shown while it is worked on. Empty: nothing.
    #[serde(default)]
    pub active_form: Option<String>,
    /// Who works on it. Empty: nobody.
    #[serde(default)]
    pub owner: Option<String>,
    /// Ids of tasks that wait for it from now on.
    #[serde(default)]
    pub add_blocks: Option<Vec<String>>,
    /// Ids of tasks that it waits for from now on.
    #[serde(default)]
    pub add_blocked_by: Option<Vec<String>>,
}
