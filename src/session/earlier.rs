//! The outputs of a session's earlier calls, as its log has them: whole, whatever the model is still shown of them.
//!
//! The log is read backwards, page by page, and no further than is needed; so the newest calls cost least.

use std::collections::HashMap;
use std::sync::Weak;

use super::live::Live;
use super::snapshot::items_back;
use crate::base::BoxFuture;
use crate::protocol::ItemBody;
use crate::tool::{EarlierCall, EarlierCalls, WantedCalls};

/// Items that are read at once.
const PAGE: usize = 500;
/// Items that are looked through, at most.
const ITEMS_MAX: usize = 200_000;

/// Reads one session's log, and no other's. It keeps no session in memory: what tools share may outlive it.
pub(super) struct LoggedCalls(pub(super) Weak<Live>);

impl std::fmt::Debug for LoggedCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoggedCalls").finish_non_exhaustive()
    }
}

impl EarlierCalls for LoggedCalls {
    fn find<'a>(&'a self, wanted: &'a WantedCalls) -> BoxFuture<'a, Result<Vec<EarlierCall>, String>> {
        Box::pin(self.read(wanted))
    }
}

impl LoggedCalls {
    async fn read(&self, wanted: &WantedCalls) -> Result<Vec<EarlierCall>, String> {
        let live = self.0.upgrade().ok_or("the session is no longer there")?;
        let store = live.store.as_ref();
        let (mut found, mut passed, mut seen) = (Vec::new(), 0, 0);
        // Read backwards, a result comes before its call.
        let mut results: HashMap<String, String> = HashMap::new();
        let mut before = Some(u64::MAX);
        while let Some(end) = before.filter(|_| seen < ITEMS_MAX) {
            let (items, next) = items_back(store, &live.id, end, PAGE).await.map_err(|error| error.to_string())?;
            seen += items.len().max(1);
            for item in items {
                match item.body {
                    ItemBody::ToolResult { call_id, output, .. } => {
                        if wanted.call_id.as_ref().is_none_or(|id| *id == call_id) && long(&output, wanted.chars_min) {
                            results.insert(call_id, output);
                        }
                    }
                    ItemBody::ToolCall { call_id, name, arguments } => {
                        let Some(output) = results.remove(&call_id) else { continue };
                        if !wanted.fits(&call_id, &name, &arguments) {
                            continue;
                        }
                        passed += 1;
                        if passed > wanted.skip {
                            found.push(EarlierCall { call_id, tool: name, arguments, output });
                        }
                        if found.len() >= wanted.count_max {
                            return Ok(found);
                        }
                    }
                    ItemBody::Message { .. } | ItemBody::Summary { .. } => {}
                }
            }
            before = next;
        }
        Ok(found)
    }
}

/// Whether a text has at least so many characters.
fn long(text: &str, chars_min: usize) -> bool {
    text.len() >= chars_min && (chars_min == 0 || text.chars().nth(chars_min - 1).is_some())
}
