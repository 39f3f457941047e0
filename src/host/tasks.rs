//! `task_create`, `task_update`, `task_get`, `task_list`, `task_delete`: the list of tasks that all sessions of a tree share, in the
//! words of `registerTaskTools` (js/tasks.cjs).

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::blackboard::{refused, tree_of};
use super::fs_common::{optional_text, text_argument};
use crate::base::{BoxFuture, limit};
use crate::protocol::{TaskStatus, TaskView, ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, TaskInput, TaskOrder, Tool, ToolContext, ToolError, ToolOutput, Tree};

/// The names of the tools, in the order in which they are told.
pub const TASK_TOOLS: [&str; 5] = ["task_create", "task_update", "task_get", "task_list", "task_delete"];

/// The tools.
pub fn task_tools() -> Vec<Arc<dyn Tool>> {
    let all = [What::Create, What::Update, What::Get, What::List, What::Delete];
    all.into_iter().map(|what| Arc::new(Tasks(what)) as Arc<dyn Tool>).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Create,
    Update,
    Get,
    List,
    Delete,
}

#[derive(Debug)]
struct Tasks(What);

static DEFINITIONS: LazyLock<[ToolDefinition; 5]> = LazyLock::new(|| {
    let id = json!({"type": "string", "description": "The id of the task", "required": true});
    let ids = |what: &str| json!({"type": "array", "items": {"type": "string"}, "description": what});
    let looks = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    let destroys = ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() };
    [
        define(
            TASK_TOOLS[0],
            "Adds a task to the list of this work. For work of several steps: one task for each step that can be done by itself, before it is begun.",
            ToolAnnotations::default(),
            &json!({
                "subject": {"type": "string", "description": "What is to be done, in a few words", "required": true},
                "description": {"type": "string", "description": "What belongs to it, and when it is done"},
                "activeForm": {"type": "string", "description": "What is shown while it is worked on, such as \"Running tests\""},
                "owner": {"type": "string", "description": "Who works on it"},
                "blockedBy": ids("Ids of tasks that come first"),
            }),
        ),
        define(
            TASK_TOOLS[1],
            "Changes a task: its status (in_progress when it is begun, completed when it is done and checked), its words, its owner, what it waits for.",
            ToolAnnotations::default(),
            &json!({
                "id": id,
                "status": {"type": "string", "enum": ["pending", "in_progress", "completed"], "description": "Where it stands"},
                "subject": {"type": "string", "description": "Other words for what is to be done"},
                "description": {"type": "string", "description": "Another description"},
                "activeForm": {"type": "string", "description": "What is shown while it is worked on; empty: nothing"},
                "owner": {"type": "string", "description": "Who works on it; empty: nobody"},
                "addBlocks": ids("Ids of tasks that wait for this one from now on"),
                "addBlockedBy": ids("Ids of tasks that this one waits for from now on"),
            }),
        ),
        define(TASK_TOOLS[2], "Shows a task with all that belongs to it.", looks.clone(), &json!({ "id": id })),
        define(
            TASK_TOOLS[3],
            "Shows all tasks: where each stands, who works on it, what it waits for.",
            looks,
            &json!({}),
        ),
        define(
            TASK_TOOLS[4],
            "Takes a task off the list that is no longer to be done.",
            destroys,
            &json!({ "id": id }),
        ),
    ]
});

fn define(name: &str, description: &str, annotations: ToolAnnotations, parameters: &Value) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: parameters.as_object().cloned().unwrap_or_default(),
        category: Some(ToolCategory::Task),
        annotations: Some(annotations),
        timeout_ms: None,
        max_output_chars: None,
    }
}

fn ids(arguments: &Arguments, name: &str) -> Result<Vec<String>, ToolError> {
    let Some(given) = arguments.get(name).filter(|given| !given.is_null()) else { return Ok(Vec::new()) };
    let read: Vec<String> = serde_json::from_value(given.clone())
        .map_err(|_| ToolError::BadArguments(format!("`{name}`: expected a list of ids, got {given}")))?;
    if read.len() > limit::TASKS_MAX {
        let expected = format!("`{name}`: expected at most {} ids, got {}", limit::TASKS_MAX, read.len());
        return Err(ToolError::BadArguments(expected));
    }
    Ok(read)
}

/// What a call says of a task. `adds` and `adds_by` are what it calls who waits.
fn input(arguments: &Arguments, (adds, adds_by): (Option<&str>, &str)) -> Result<TaskInput, ToolError> {
    let subject = optional_text(arguments, "subject")?;
    if subject.as_ref().is_some_and(|subject| subject.trim().is_empty()) {
        return Err(ToolError::BadArguments("`subject`: expected a text that says something".to_owned()));
    }
    let status = match arguments.get("status").filter(|given| !given.is_null()) {
        None => None,
        Some(given) => Some(serde_json::from_value::<TaskStatus>(given.clone()).map_err(|_| {
            ToolError::BadArguments(format!("`status`: expected pending, in_progress or completed, got {given}"))
        })?),
    };
    Ok(TaskInput {
        subject,
        description: optional_text(arguments, "description")?,
        active_form: optional_text(arguments, "activeForm")?,
        owner: optional_text(arguments, "owner")?,
        status,
        adds: adds.map_or_else(|| Ok(Vec::new()), |name| ids(arguments, name))?,
        adds_by: ids(arguments, adds_by)?,
    })
}

fn refs<'a>(all: impl IntoIterator<Item = &'a String>) -> String {
    all.into_iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(", ")
}

/// A task in one line.
fn line(view: &TaskView, done: &[&str]) -> String {
    let task = &view.task;
    let owner = task.owner.as_deref().map(|owner| format!(" ({owner})")).unwrap_or_default();
    let waits = refs(task.blocked_by.iter().filter(|other| !done.contains(&other.as_str())));
    let waits = if waits.is_empty() { waits } else { format!(" waits for {waits}") };
    format!("#{} [{}] {}{owner}{waits}", task.id, task.status.name(), task.subject)
}

/// A task in all its words.
fn told(view: &TaskView) -> String {
    let task = &view.task;
    let mut lines = vec![format!("#{} [{}] {}", task.id, task.status.name(), task.subject)];
    lines.extend(task.owner.as_deref().map(|owner| format!("Owner: {owner}")));
    if !task.blocked_by.is_empty() {
        lines.push(format!("Waits for: {}", refs(&task.blocked_by)));
    }
    if !view.blocks.is_empty() {
        lines.push(format!("Comes before: {}", refs(&view.blocks)));
    }
    if !task.description.is_empty() {
        lines.push(format!("\n{}", task.description));
    }
    lines.join("\n")
}

fn listed(tasks: &[TaskView]) -> String {
    let done: Vec<&str> = tasks
        .iter()
        .filter(|view| view.task.status == TaskStatus::Completed)
        .map(|view| view.task.id.as_str())
        .collect();
    let lines: Vec<String> = tasks.iter().map(|view| line(view, &done)).collect();
    if lines.is_empty() { "There are no tasks.".to_owned() } else { lines.join("\n") }
}

impl Tasks {
    async fn change(&self, order: TaskOrder, tree: &dyn Tree) -> Result<ToolOutput, ToolError> {
        let deleted = if let TaskOrder::Delete(id) = &order { Some(id.clone()) } else { None };
        let verb = if self.0 == What::Create { "Created" } else { "Updated" };
        let view = tree.change_tasks(order).await.map_err(|error| refused(&error))?;
        let text = match (&view, deleted) {
            (Some(view), _) => format!("{verb} {}", told(view)),
            (None, Some(id)) => format!("Deleted #{id}"),
            (None, None) => return Err(ToolError::failed("the task is not there any more")),
        };
        let details = view.and_then(|view| serde_json::to_value(view).ok());
        Ok(ToolOutput { text, details, ..ToolOutput::default() })
    }
}

impl Tool for Tasks {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITIONS[self.0 as usize]
    }

    fn records_changes(&self) -> bool {
        // It touches no files.
        true
    }

    fn may_repeat(&self, _: &Arguments) -> bool {
        // Others change the list meanwhile.
        matches!(self.0, What::Get | What::List)
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let tree = tree_of(context)?;
            let tree = tree.as_ref();
            match self.0 {
                What::Create => {
                    text_argument(&arguments, "subject")?;
                    self.change(TaskOrder::Create(input(&arguments, (None, "blockedBy"))?), tree).await
                }
                What::Update => {
                    let id = text_argument(&arguments, "id")?;
                    let changes = input(&arguments, (Some("addBlocks"), "addBlockedBy"))?;
                    self.change(TaskOrder::Update(id, changes), tree).await
                }
                What::Delete => self.change(TaskOrder::Delete(text_argument(&arguments, "id")?), tree).await,
                What::List => Ok(listed(&tree.tasks().await.map_err(|error| refused(&error))?).into()),
                What::Get => {
                    let id = text_argument(&arguments, "id")?;
                    let tasks = tree.tasks().await.map_err(|error| refused(&error))?;
                    let found = tasks.iter().find(|view| view.task.id == id);
                    found.map(|view| told(view).into()).ok_or_else(|| ToolError::failed(format!("no task \"{id}\"")))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fs_common::testing::call;
    use super::*;
    use crate::protocol::TaskItem;

    fn view(id: &str, owner: Option<&str>, status: TaskStatus, (by, blocks): (&[&str], &[&str])) -> TaskView {
        let ids = |all: &[&str]| all.iter().map(|id| (*id).to_owned()).collect();
        let task = TaskItem {
            id: id.to_owned(),
            subject: format!("s{id}"),
            description: String::new(),
            active_form: None,
            owner: owner.map(str::to_owned),
            status,
            blocked_by: ids(by),
            created_at: 0,
            updated_at: 0,
        };
        TaskView { task, blocks: ids(blocks) }
    }

    #[test]
    fn tasks_are_told_as_programs_tell_theirs() {
        let first = view("1", None, TaskStatus::Completed, (&[], &["2"]));
        let mut second = view("2", Some("me"), TaskStatus::Pending, (&["1", "3"], &[]));
        second.task.description = "all".to_owned();
        assert_eq!(told(&first), "#1 [completed] s1\nComes before: #2");
        assert_eq!(told(&second), "#2 [pending] s2\nOwner: me\nWaits for: #1, #3\n\nall");
        let all = [first, second, view("3", None, TaskStatus::InProgress, (&[], &["2"]))];
        assert_eq!(listed(&all), "#1 [completed] s1\n#2 [pending] s2 (me) waits for #3\n#3 [in_progress] s3");
        assert_eq!(listed(&[]), "There are no tasks.");
    }

    #[test]
    fn without_a_session_there_is_no_list() {
        for tool in task_tools() {
            let said = call(tool.as_ref(), json!({ "id": "1", "subject": "s" })).expect_err("no session");
            assert!(said.contains("no session"), "{said}");
        }
        let names: Vec<String> = task_tools().iter().map(|tool| tool.definition().name.clone()).collect();
        assert_eq!(names, TASK_TOOLS);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let arguments = |value: Value| value.as_object().cloned().unwrap_or_default();
        for (given, begins) in [
            (json!({"subject": " "}), "`subject`: expected a text"),
            (json!({"subject": "s", "status": "done"}), "`status`: expected pending"),
            (json!({"subject": "s", "addBlocks": "1"}), "`addBlocks`: expected a list of ids"),
            (json!({"subject": "s", "addBlockedBy": vec!["1"; 101]}), "`addBlockedBy`: expected at most 100 ids"),
        ] {
            let error = input(&arguments(given), (Some("addBlocks"), "addBlockedBy")).expect_err("refused").to_string();
            assert!(error.starts_with(begins), "{error}");
        }
    }
}
