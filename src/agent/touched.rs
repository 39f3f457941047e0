//! The files that a conversation was about, and the newest of them as they are now.
//!
//! Invariant: a file is read again by the tool that reads files, with its hooks and within the session's rules, and only where nobody
//! has to be asked; what cannot be read is left out.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, run_call};
use super::{Gate, GateQuestion};
use crate::base::{BoxFuture, limit, text};
use crate::context::files_of;
use crate::protocol::{
    AttachedFile, Message, PermissionVerdict, ToolCallRequest, ToolCategory, ToolDefinition, TouchedFiles,
};
use crate::tool::{Arguments, Registry, Subject, Veil};

/// The tool that reads files.
const READING_TOOL: &str = "fs_read";
/// Its argument that names one.
const PATH_ARGUMENT: &str = "path";

/// The files that a conversation was about.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// All of them, within limits.
    pub files: TouchedFiles,
    /// Where each was last touched. By where it leads.
    last: HashMap<PathBuf, Touch>,
}

/// When a file was last touched.
#[derive(Debug)]
struct Touch {
    /// How it was named.
    path: String,
    /// The place of that message.
    at: usize,
    /// What was touched later has a higher one, also within a message.
    rank: usize,
}

/// Finds them in the calls, and in what an earlier summary tells of.
pub(super) fn touched(registry: &Registry, messages: &[Message]) -> Touched {
    let failed = |message: &Message| match message {
        Message::ToolResult { call_id, is_error: true, .. } => Some(call_id.clone()),
        Message::ToolResult { .. } | Message::User(_) | Message::Assistant { .. } => None,
    };
    let failed: HashSet<String> = messages.iter().filter_map(failed).collect();
    let (mut changed, mut read) = (Vec::new(), Vec::new());
    let mut last = HashMap::new();
    let mut count = 0;
    let mut touch = |place: PathBuf, path: String, at: usize| {
        count += 1;
        last.insert(place, Touch { path, at, rank: count });
    };
    for (at, message) in messages.iter().enumerate() {
        let earlier = files_of(message);
        // An earlier summary stands for the calls that it sums up: what was read of it last time is due again.
        for path in earlier.read.iter().chain(&earlier.changed) {
            touch(resolved(registry, path), path.clone(), at);
        }
        changed.extend(earlier.changed);
        read.extend(earlier.read);
        let Message::Assistant { calls, .. } = message else { continue };
        for call in calls.iter().filter(|call| !failed.contains(&call.id)) {
            let Some(tool) = registry.get(&call.name) else { continue };
            let list = match tool.judged_as(&call.arguments).category {
                Some(ToolCategory::Edit) => &mut changed,
                Some(ToolCategory::Read) => &mut read,
                _ => continue,
            };
            let Subject::Paths(paths) = tool.subject(&call.arguments) else { continue };
            for path in paths {
                let place = path.resolved.unwrap_or_else(|| PathBuf::from(&path.given));
                touch(place, path.given.clone(), at);
                list.push(path.given);
            }
        }
    }
    let changed = newest(changed);
    let mut read = newest(read);
    read.retain(|path| !changed.contains(path));
    Touched { files: TouchedFiles { changed, read }, last }
}

/// Where a path leads, as the tool that reads files takes it.
fn resolved(registry: &Registry, path: &str) -> PathBuf {
    let arguments = Arguments::from_iter([(PATH_ARGUMENT.to_owned(), path.into())]);
    let subject = registry.get(READING_TOOL).map(|tool| tool.subject(&arguments));
    let first = match subject {
        Some(Subject::Paths(paths)) => paths.into_iter().next(),
        _ => None,
    };
    first.and_then(|path| path.resolved).unwrap_or_else(|| PathBuf::from(path))
}

/// Each path once, where it came last; the newest ones, within the limit.
fn newest(paths: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    // A line of them is read back with these between them.
    let plain = |path: &String| !path.contains(", ") && !path.contains('\n') && !path.is_empty();
    let mut kept: Vec<String> =
        paths.into_iter().rev().filter(plain).filter(|path| seen.insert(path.clone())).collect();
    kept.truncate(limit::COMPACT_PATHS_MAX);
    kept.reverse();
    kept
}

/// The newest of them as they are now, but for those that the messages from `kept_from` on have been about anyway; at most `room`
/// bytes.
pub(super) async fn attached(
    environment: &CallEnvironment,
    touched: &Touched,
    (kept_from, mut room): (usize, usize),
    cancel: &CancellationToken,
) -> Vec<AttachedFile> {
    let mut paths: Vec<&Touch> = touched.last.values().filter(|touch| touch.at < kept_from).collect();
    paths.sort_by_key(|touch| std::cmp::Reverse(touch.rank));
    let looking = CallEnvironment {
        gate: Arc::new(Unasked(Arc::clone(&environment.gate))),
        sink: None,
        ear: None,
        ..environment.clone()
    };
    let mut found: Vec<AttachedFile> = Vec::new();
    for Touch { path, .. } in paths.into_iter().take(2 * limit::COMPACT_FILES_MAX) {
        if found.len() >= limit::COMPACT_FILES_MAX || room == 0 || cancel.is_cancelled() {
            break;
        }
        let arguments = Arguments::from_iter([(PATH_ARGUMENT.to_owned(), path.as_str().into())]);
        let id = format!("attach_{}", found.len());
        let request = ToolCallRequest { id, name: READING_TOOL.to_owned(), arguments };
        let result = run_call(&looking, request, cancel).await.result;
        if result.is_error || !result.parts.is_empty() || result.output.trim().is_empty() {
            continue;
        }
        let bytes_max = room.min(limit::COMPACT_FILE_BYTES_MAX);
        let shown = text::head(&result.output, bytes_max);
        let cut = if shown.len() < result.output.len() { "\n[cut: read the file for the rest]" } else { "" };
        room -= shown.len();
        found.push(AttachedFile { path: path.clone(), text: format!("{shown}{cut}") });
    }
    // The oldest first, as they were met.
    found.reverse();
    found
}

/// The same gate, which asks nobody.
struct Unasked(Arc<dyn Gate>);

impl Gate for Unasked {
    fn check<'a>(&'a self, question: GateQuestion<'a>, _: &'a CancellationToken) -> BoxFuture<'a, PermissionVerdict> {
        Box::pin(async move {
            // Whoever would ask finds that it is over.
            let over = CancellationToken::new();
            over.cancel();
            self.0.check(question, &over).await
        })
    }

    fn veil(&self, tool: &ToolDefinition) -> Option<Veil> {
        self.0.veil(tool)
    }
}
