//! Tasks that wait for each other, as `createTaskList` keeps them: an update is done whole or not at all; no task waits for
//! itself, by whatever way; ids are never given twice. Pure.
//!
//! One rule more, because several work on one list: what somebody has in progress nobody else begins.

use std::collections::BTreeMap;

use crate::base::limit;
use crate::protocol::{
    ApiError, ErrorCode, EventBody, TaskChange, TaskDeletion, TaskItem, TaskStatus, TaskView, TreeMember,
};
use crate::tool::TaskInput;

/// The list.
#[derive(Debug, Clone, Default)]
pub(in crate::session) struct Tasks {
    tasks: BTreeMap<u64, TaskItem>,
    /// The newest id.
    last: u64,
}

/// Who changes the list, and when.
#[derive(Debug, Clone)]
pub(in crate::session) struct Author {
    pub(in crate::session) by: Option<TreeMember>,
    /// What it is called as the owner of a task, where it is one by what it does.
    pub(in crate::session) label: Option<String>,
    pub(in crate::session) now_ms: u64,
}

fn none(id: &str) -> ApiError {
    ApiError::not_found(format!("task \"{id}\""))
        .with_details(serde_json::json!({ "why": "TASK_NOT_FOUND", "taskId": id }))
}

impl Tasks {
    /// A list of these; `last`: the newest id that was given.
    pub(super) fn of(tasks: impl IntoIterator<Item = (u64, TaskItem)>, last: u64) -> Self {
        let mut list = Self { tasks: tasks.into_iter().collect(), last };
        let known: Vec<String> = list.tasks.values().map(|task| task.id.clone()).collect();
        // What was taken off the list is waited for no longer, whatever stood in the log of those that did.
        list.tasks.values_mut().for_each(|task| task.blocked_by.retain(|id| known.contains(id)));
        list
    }

    fn known(&self, id: &str) -> Result<(u64, &TaskItem), ApiError> {
        let number = id.parse::<u64>().ok().filter(|number| number.to_string() == id);
        number.and_then(|number| Some((number, self.tasks.get(&number)?))).ok_or_else(|| none(id))
    }

    /// All, in the order in which they were created.
    pub(in crate::session) fn views(&self) -> Vec<TaskView> {
        let blocks = |id: &String| {
            let waits = self.tasks.values().filter(|other| other.blocked_by.contains(id));
            waits.map(|other| other.id.clone()).collect()
        };
        self.tasks.values().map(|task| TaskView { task: task.clone(), blocks: blocks(&task.id) }).collect()
    }

    /// What happens when a task is added. The first is about the task itself.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`, `NOT_FOUND`, `CONFLICT`: then nothing does.
    pub(in crate::session) fn create(&self, input: TaskInput, author: &Author) -> Result<Vec<EventBody>, ApiError> {
        if self.tasks.len() >= limit::TASKS_MAX {
            let message = format!("there are {} tasks already: delete some", limit::TASKS_MAX);
            let details = serde_json::json!({ "why": "TASK_LIMIT", "maxTasks": limit::TASKS_MAX });
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message).with_details(details));
        }
        let number = self.last + 1;
        let (created_at, updated_at) = (author.now_ms, author.now_ms);
        let task = TaskItem {
            id: number.to_string(),
            subject: String::new(),
            description: String::new(),
            active_form: None,
            owner: None,
            status: TaskStatus::Pending,
            blocked_by: Vec::new(),
            created_at,
            updated_at,
        };
        let mut next = self.tasks.clone();
        next.insert(number, task);
        self.changed(next, (number, input), author)
    }

    /// What happens when a task is changed. The first is about the task itself.
    ///
    /// # Errors
    /// `NOT_FOUND`, `CONFLICT`: then nothing does.
    pub(in crate::session) fn update(
        &self,
        id: &str,
        mut input: TaskInput,
        author: &Author,
    ) -> Result<Vec<EventBody>, ApiError> {
        let (number, task) = self.known(id)?;
        if input.status == Some(TaskStatus::InProgress) {
            let who = input.owner.as_ref().or(author.label.as_ref());
            let other = task.owner.as_ref().filter(|owner| who.is_some_and(|who| who != *owner));
            if let Some(owner) = other.filter(|_| task.status == TaskStatus::InProgress) {
                let message = format!("task {id} is in progress already, by {owner}: take another one");
                let details = serde_json::json!({ "why": "TASK_TAKEN", "taskId": id, "owner": owner });
                return Err(ApiError::conflict(message).with_details(details));
            }
            if task.owner.is_none() && input.owner.is_none() {
                input.owner.clone_from(&author.label);
            }
        }
        self.changed(self.tasks.clone(), (number, input), author)
    }

    /// What happens when a task is taken off the list.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub(in crate::session) fn delete(&self, id: &str, author: &Author) -> Result<EventBody, ApiError> {
        let (_, task) = self.known(id)?;
        Ok(EventBody::TaskDelete(TaskDeletion { id: task.id.clone(), by: author.by.clone() }))
    }

    /// Takes in what an event says.
    pub(in crate::session) fn take(&mut self, body: &EventBody) {
        match body {
            EventBody::TaskCreate(change) | EventBody::TaskUpdate(change) => {
                let Ok(number) = change.task.id.parse::<u64>() else { return };
                self.last = self.last.max(number);
                self.tasks.insert(number, change.task.clone());
            }
            EventBody::TaskDelete(deletion) => {
                let Ok(number) = deletion.id.parse::<u64>() else { return };
                self.tasks.remove(&number);
                self.tasks.values_mut().for_each(|task| task.blocked_by.retain(|id| *id != deletion.id));
            }
            _ => {}
        }
    }

    /// The events by which the list becomes what `input` makes of `next`.
    fn changed(
        &self,
        mut next: BTreeMap<u64, TaskItem>,
        (number, input): (u64, TaskInput),
        author: &Author,
    ) -> Result<Vec<EventBody>, ApiError> {
        let known = |next: &BTreeMap<u64, TaskItem>, id: &String| {
            let number = id.parse::<u64>().ok().filter(|number| number.to_string() == *id && next.contains_key(number));
            number.ok_or_else(|| none(id))
        };
        let mut others = Vec::new();
        for id in &input.adds {
            others.push(known(&next, id)?);
        }
        for id in &input.adds_by {
            known(&next, id)?;
        }
        let links = !input.adds_by.is_empty() || !others.is_empty();
        let task = next.get_mut(&number).ok_or_else(|| none(&number.to_string()))?;
        input.apply(task, author.now_ms);
        let bytes = serde_json::to_string(task).map_or(usize::MAX, |text| text.len());
        if bytes > limit::TASK_BYTES_MAX {
            let expected = format!("a task of at most {} bytes in all", limit::TASK_BYTES_MAX);
            return Err(ApiError::unfit(longest_member(task), expected, format!("{bytes} bytes")));
        }
        let id = task.id.clone();
        for other in others {
            if let Some(task) = next.get_mut(&other).filter(|task| !task.blocked_by.contains(&id)) {
                task.blocked_by.push(id.clone());
            }
        }
        if links {
            check_no_circle(&next, &id)?;
        }
        Ok(self.events(&next, number, author))
    }

    /// What has changed, the task itself first.
    fn events(&self, next: &BTreeMap<u64, TaskItem>, number: u64, author: &Author) -> Vec<EventBody> {
        let told = |task: &TaskItem| Box::new(TaskChange { task: task.clone(), by: author.by.clone() });
        let own = next.get(&number).into_iter().map(|task| match self.tasks.contains_key(&number) {
            true => EventBody::TaskUpdate(told(task)),
            false => EventBody::TaskCreate(told(task)),
        });
        let others = next.iter().filter(|(other, task)| **other != number && self.tasks.get(*other) != Some(*task));
        own.chain(others.map(|(_, task)| EventBody::TaskUpdate(told(task)))).collect()
    }
}

/// The member of a task that takes most of it, by its name on the wire.
fn longest_member(task: &TaskItem) -> &'static str {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let members = [
        ("description", task.description.len()),
        ("subject", task.subject.len()),
        ("activeForm", length(&task.active_form)),
        ("owner", length(&task.owner)),
    ];
    members.into_iter().max_by_key(|(_, length)| *length).map_or("description", |(name, _)| name)
}

/// Whoever waits for whom, no task waits for itself.
fn check_no_circle(among: &BTreeMap<u64, TaskItem>, from: &str) -> Result<(), ApiError> {
    let waits_for = |id: &str| {
        let task = id.parse::<u64>().ok().and_then(|number| among.get(&number));
        task.map(|task| task.blocked_by.as_slice()).unwrap_or_default()
    };
    // Who led to each: by that the circle is told.
    let mut led_by: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = vec![from];
    while let Some(id) = open.pop() {
        for next in waits_for(id) {
            if next == from {
                let mut circle = vec![from];
                let mut at = Some(id);
                while let Some(member) = at {
                    circle.insert(0, member);
                    at = if member == from { None } else { led_by.get(member).copied() };
                }
                let message = format!("task {}", circle.join(" waits for "));
                let details = serde_json::json!({ "why": "TASK_CIRCULAR_DEPENDENCY", "taskIds": circle });
                return Err(ApiError::conflict(message).with_details(details));
            }
            if !led_by.contains_key(next.as_str()) {
                led_by.insert(next, id);
                open.push(next);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn author(label: Option<&str>) -> Author {
        Author { by: None, label: label.map(str::to_owned), now_ms: 5 }
    }

    fn ids(all: &[&str]) -> Vec<String> {
        all.iter().map(|id| (*id).to_owned()).collect()
    }

    fn input(subject: &str, blocks: &[&str], blocked_by: &[&str]) -> TaskInput {
        let subject = (!subject.is_empty()).then(|| subject.to_owned());
        TaskInput { subject, adds: ids(blocks), adds_by: ids(blocked_by), ..TaskInput::default() }
    }

    /// Does what comes of it, or says why nothing does.
    fn done(tasks: &mut Tasks, events: Result<Vec<EventBody>, ApiError>) -> Result<usize, String> {
        let events = events.map_err(|error| error.to_string())?;
        events.iter().for_each(|event| tasks.take(event));
        Ok(events.len())
    }

    #[test]
    fn tasks_wait_for_each_other_and_never_for_themselves() {
        let mut tasks = Tasks::default();
        for (subject, blocks, by, events) in
            [("build", &[][..], &[][..], 1), ("test", &[], &["1"], 1), ("plan", &["1"], &[], 2)]
        {
            let made = tasks.create(input(subject, blocks, by), &author(None));
            assert_eq!(done(&mut tasks, made), Ok(events), "{subject}");
        }
        let seen: Vec<(Vec<String>, Vec<String>)> =
            tasks.views().into_iter().map(|view| (view.task.blocked_by, view.blocks)).collect();
        assert_eq!(seen, [(ids(&["3"]), ids(&["2"])), (ids(&["1"]), ids(&[])), (ids(&[]), ids(&["1"]))]);
        let before = tasks.views();
        for (id, change, why) in [
            ("1", input("", &[], &["1"]), "task 1 waits for 1"),
            ("3", input("", &[], &["2"]), "task 3 waits for 2 waits for 1 waits for 3"),
            ("2", input("", &["3"], &[]), "task 2 waits for 1 waits for 3 waits for 2"),
            ("9", input("x", &[], &[]), "no task \"9\""),
            ("01", input("x", &[], &[]), "no task \"01\""),
            ("1", input("x", &["9"], &[]), "no task \"9\""),
            ("1", input("x", &[], &["2", "9"]), "no task \"9\""),
        ] {
            assert_eq!(done(&mut Tasks::default(), tasks.update(id, change, &author(None))), Err(why.to_owned()));
        }
        assert_eq!(tasks.views(), before);
        let gone = tasks.delete("1", &author(None)).map(|event| vec![event]);
        assert_eq!(done(&mut tasks, gone), Ok(1));
        assert!(tasks.views().iter().all(|view| view.task.blocked_by.is_empty() && view.blocks.is_empty()));
        let made = tasks.create(input("more", &[], &[]), &author(None));
        assert_eq!(done(&mut tasks, made), Ok(1));
        assert_eq!(
            tasks.views().last().map(|view| view.task.id.clone()),
            Some("4".to_owned()),
            "an id is not given twice"
        );
    }

    #[test]
    fn what_somebody_has_in_progress_nobody_else_begins() {
        let mut tasks = Tasks::default();
        let made = tasks.create(input("build", &[], &[]), &author(None));
        assert_eq!(done(&mut tasks, made), Ok(1));
        let begin = |owner: Option<&str>| TaskInput {
            status: Some(TaskStatus::InProgress),
            owner: owner.map(str::to_owned),
            ..TaskInput::default()
        };
        let begun = tasks.update("1", begin(None), &author(Some("a")));
        assert_eq!(done(&mut tasks, begun), Ok(1));
        assert_eq!(tasks.views()[0].task.owner.as_deref(), Some("a"));
        for (who, owner, taken) in
            [("b", None, true), ("a", None, false), ("a", Some("b"), true), ("b", Some("a"), false)]
        {
            let refused = tasks.update("1", begin(owner), &author(Some(who))).err().map(|error| error.to_string());
            let why = "task 1 is in progress already, by a: take another one".to_owned();
            assert_eq!(refused, taken.then_some(why), "{who} {owner:?}");
        }
        // Who gives it back says so.
        let back = TaskInput { status: Some(TaskStatus::Pending), owner: Some(String::new()), ..TaskInput::default() };
        let given = tasks.update("1", back, &author(Some("a")));
        assert_eq!(done(&mut tasks, given), Ok(1));
        let begun = tasks.update("1", begin(None), &author(Some("b")));
        assert_eq!(done(&mut tasks, begun), Ok(1));
        assert_eq!(tasks.views()[0].task.owner.as_deref(), Some("b"));
    }

    #[test]
    fn the_list_is_bounded() {
        let mut tasks = Tasks::default();
        let long = || Some("x".repeat(limit::TASK_BYTES_MAX));
        for (field, long) in [
            ("description", TaskInput { description: long(), ..input("s", &[], &[]) }),
            ("subject", TaskInput { subject: long(), ..TaskInput::default() }),
            ("activeForm", TaskInput { active_form: long(), ..input("s", &[], &[]) }),
        ] {
            let refused = tasks.create(long, &author(None)).expect_err("too long");
            assert_eq!(refused.code(), ErrorCode::InvalidArgument);
            assert!(refused.to_string().starts_with(&format!("`{field}`: expected a task")), "{refused}");
        }
        for _ in 0..limit::TASKS_MAX {
            let made = tasks.create(input("s", &[], &[]), &author(None));
            assert_eq!(done(&mut tasks, made), Ok(1));
        }
        let refused = done(&mut Tasks::default(), tasks.create(input("s", &[], &[]), &author(None)));
        assert_eq!(refused, Err("there are 100 tasks already: delete some".to_owned()));
    }
}
