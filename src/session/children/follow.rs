//! Who waits for the end of a run, and tells the session above: one task a run, from its beginning, or from a restart, to the
//! moment in which that session has written the end down.

use std::sync::Arc;
use std::time::Duration;

use super::tree::works_for;
use super::{RunEnd, Unfinished};
use crate::base::limit;
use crate::host::put_back;
use crate::protocol::{
    ApiError, ClientId, ErrorBody, ErrorCode, Merge, MergeOutcome, SessionId, TurnId, TurnRecord, TurnStatus, Worktree,
};
use crate::session::actor::ChildOrder;
use crate::session::control::Command;
use crate::session::manager::{Manager, Shelf};
use crate::store::{OpenRun, SessionRow, StoreError};
use crate::tool::ChangeRecorder;

impl Shelf {
    /// Waits for the end of a run of a session under `parent`, and tells that one. `unfinished` counts it until then.
    pub(in crate::session) fn follow(
        self: &Arc<Self>,
        (parent, client): (&SessionId, Option<&ClientId>),
        run: OpenRun,
        unfinished: Option<Unfinished>,
    ) {
        let (shelf, parent, client) = (Arc::clone(self), parent.clone(), client.cloned());
        tokio::spawn(async move {
            shelf.follow_to_its_end((&parent, client.as_ref()), &run).await;
            drop(unfinished);
        });
    }

    async fn follow_to_its_end(self: &Arc<Self>, (parent, client): (&SessionId, Option<&ClientId>), run: &OpenRun) {
        let manager = Manager { shelf: Arc::clone(self) };
        // Before it may be deleted.
        let tree = self.tree_of(&run.session).await;
        let ended = match manager.live(client, &run.session).await {
            Ok(child) => child.end_of(&run.turn).await,
            Err(error) => Err(error),
        };
        if self.is_closing() && ended.is_err() {
            // The next start finds it as it is then.
            return;
        }
        let completed = ended.as_ref().is_ok_and(|record| record.status == TurnStatus::Completed);
        let merge = match tree {
            Some(tree) => self.put_back((parent, &run.by), (&tree, completed)).await,
            None => None,
        };
        let end = end_of(run, ended, merge);
        loop {
            // Without a session above there is nobody to be told.
            let Ok(above) = manager.live(client, parent).await else { return };
            match above.tell_of_child(|reply| ChildOrder::Settle(Box::new(end.clone()), reply)).await {
                Ok(Ok(())) => return,
                Ok(Err(_)) | Err(_) if self.is_closing() => return,
                Ok(Err(error)) => {
                    tracing::warn!(session = %parent, %error, "the end of a sub-agent could not be written down; it is tried again");
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(limit::STORE_RETRY_MS)).await;
        }
    }
}

impl Shelf {
    /// The working tree that a session has for itself.
    async fn tree_of(&self, session: &SessionId) -> Option<Worktree> {
        self.store.session(session).await.ok().flatten()?.lineage?.worktree
    }

    /// Puts what was done there back where it came from, as something that the turn did which gave the work. None: nobody knows
    /// where that is any more.
    async fn put_back(
        self: &Arc<Self>,
        (parent, by): (&SessionId, &TurnId),
        (tree, completed): (&Worktree, bool),
    ) -> Option<Merge> {
        let _alone = self.trees.lock().await;
        let row = self.store.session(parent).await.ok().flatten()?;
        let grounds = match self.bench.grounds(&row.settings) {
            Ok(grounds) => grounds,
            Err(error) => {
                let (branch, reason) = (Some(tree.branch.clone()), Some(error.to_string()));
                return Some(Merge { outcome: MergeOutcome::Failed, branch, paths: Vec::new(), reason });
            }
        };
        let above = Manager { shelf: Arc::clone(self) }.above(&row).await.unwrap_or_default();
        let recorder = self.bench.changes(&row.settings).map(|(recording, workspace)| {
            let recorder: Arc<dyn ChangeRecorder> =
                recording.turn(parent, by, (workspace, works_for(&row, by, &above)));
            recorder
        });
        Some(put_back(&grounds, (tree, completed), recorder).await)
    }
}

/// How it ended. What cannot be told has failed.
fn end_of(run: &OpenRun, ended: Result<TurnRecord, ApiError>, merge: Option<Merge>) -> RunEnd {
    match ended {
        Ok(record) => RunEnd::of(run, Some(record), merge),
        Err(error) if error.code() == ErrorCode::NotFound => RunEnd::of(run, None, merge),
        Err(ApiError(error)) => RunEnd {
            status: TurnStatus::Failed,
            error: Some(ErrorBody { message: format!("its end cannot be told: {}", error.message), ..error }),
            ..RunEnd::of(run, None, merge)
        },
    }
}

impl Manager {
    /// Takes up what an earlier process has not done with: runs that go on are followed, those whose end nobody was told of
    /// are told, and those that a turn waited for, which is gone, are ended.
    pub(in crate::session) async fn recover_children(&self, rows: Vec<SessionRow>) -> Result<(), StoreError> {
        for row in rows {
            for run in row.children.iter().filter(|run| !run.ended) {
                if !run.background {
                    self.end_left_behind(row.client.as_ref(), run).await;
                }
                let root = row.lineage.as_ref().and_then(|lineage| lineage.root()).unwrap_or(&row.id);
                let depth = row.lineage.as_ref().map_or(0, |lineage| lineage.depth()) + 1;
                let unfinished = self.shelf.lanes.open((root, depth), usize::MAX);
                self.shelf.follow((&row.id, row.client.as_ref()), run.clone(), unfinished);
            }
            if row.children.iter().any(|run| run.ended) {
                // It tells what is to be told as it wakes.
                drop(self.live(row.client.as_ref(), &row.id).await);
            }
        }
        Ok(())
    }

    /// Ends a run that nobody waits for any more.
    async fn end_left_behind(&self, client: Option<&ClientId>, run: &OpenRun) {
        let Ok(child) = self.live(client, &run.session).await else { return };
        let reason = "the turn that waited for it was ended by a restart".to_owned();
        // What ran has ended by the restart itself.
        drop(child.abort(Command { turn: Some(run.turn.clone()), reason, if_version: None }).await);
    }
}
