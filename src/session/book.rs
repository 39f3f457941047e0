//! Grants that outlive a session: for a project (a working directory), or wherever a client works.
//!
//! They are few and are all held in memory; the store has them first. Whoever decides looks here, so that a grant
//! given or taken back counts at once in every session.
//!
//! Invariant: what is here is on disk. One client's grants are never seen by another.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::gate::add_grant;
use crate::base::{clock, limit};
use crate::permission::{Grants, Wanted};
use crate::protocol::{ClientId, GrantId};
use crate::store::{GrantRow, Store, StoreError, Write, commit};

/// All grants that outlive a session.
pub struct GrantBook {
    store: Arc<dyn Store>,
    held: Mutex<Held>,
    /// One change at a time: memory follows the disk in its order.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    /// Oldest first.
    rows: Vec<GrantRow>,
    ready: HashMap<(Option<ClientId>, Option<PathBuf>), Grants>,
}

impl Held {
    fn new(mut rows: Vec<GrantRow>) -> Self {
        // Not all were given their ids by one clock.
        rows.sort_by_key(|row| row.grant.created_at);
        let mut ready: HashMap<_, Grants> = HashMap::new();
        for GrantRow { client, project, grant } in &rows {
            let grants = ready.entry((client.clone(), project.clone())).or_default();
            add_grant(grants, grant);
        }
        Self { rows, ready }
    }
}

/// Who asks, and where: a client and a working directory.
pub(super) type Place<'a> = (Option<&'a ClientId>, &'a Path);

impl GrantBook {
    /// Reads what there is; what has ended is forgotten.
    ///
    /// # Errors
    /// What the store says.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let now = clock::now_ms();
        let (rows, over): (Vec<_>, Vec<_>) = store.grants().await?.into_iter().partition(|row| row.grant.holds(now));
        if !over.is_empty() {
            commit(&store, over.into_iter().map(|row| Write::DeleteGrant(row.grant.id)).collect()).await?;
        }
        Ok(Self { store, held: Mutex::new(Held::new(rows)), writing: tokio::sync::Mutex::default() })
    }

    /// Reads again what there is: another server of the store may have changed it.
    ///
    /// # Errors
    /// What the store says; then all is as it was.
    pub(super) async fn reload(&self) -> Result<(), StoreError> {
        let _one = self.writing.lock().await;
        let now = clock::now_ms();
        let rows = self.store.grants().await?.into_iter().filter(|row| row.grant.holds(now)).collect();
        *self.held.lock() = Held::new(rows);
        Ok(())
    }

    /// One without grants.
    #[cfg(test)]
    pub(super) fn empty(store: Arc<dyn Store>) -> Self {
        Self { store, held: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    /// The grant that covers a call, `own` being those of the session.
    pub(super) fn covering(&self, (client, directory): Place<'_>, own: &Grants, wanted: Wanted<'_>) -> Option<GrantId> {
        let held = self.held.lock();
        let of = |project: Option<PathBuf>| held.ready.get(&(client.cloned(), project));
        let books: Vec<&Grants> = [Some(own), of(Some(directory.to_owned())), of(None)].into_iter().flatten().collect();
        Grants::covering(&books, wanted, clock::now_ms())
    }

    /// Adds one; the same one again only ends when the new one does. A client's oldest go when it has too many.
    pub(super) async fn save(&self, row: GrantRow) -> Result<(), StoreError> {
        let _one = self.writing.lock().await;
        let now = clock::now_ms();
        let mut rows = self.held.lock().rows.clone();
        let twin = |old: &GrantRow| {
            old.client == row.client && old.project == row.project && old.grant.says_the_same(&row.grant)
        };
        let mut gone: Vec<GrantId> = Vec::new();
        rows.retain(|old| {
            let keep = !twin(old) && old.grant.holds(now);
            if !keep {
                gone.push(old.grant.id.clone());
            }
            keep
        });
        let many = rows.iter().filter(|old| old.client == row.client).count();
        if many >= limit::GRANTS_MAX
            && let Some(oldest) = rows.iter().position(|old| old.client == row.client)
        {
            gone.push(rows.remove(oldest).grant.id);
        }
        rows.push(row.clone());
        let mut writes: Vec<Write> = gone.into_iter().map(Write::DeleteGrant).collect();
        writes.push(Write::SaveGrant(Box::new(row)));
        commit(&self.store, writes).await?;
        *self.held.lock() = Held::new(rows);
        Ok(())
    }

    /// The grants of a client that hold, oldest first.
    pub fn list(&self, client: Option<&ClientId>) -> Vec<GrantRow> {
        let now = clock::now_ms();
        let held = self.held.lock();
        held.rows.iter().filter(|row| row.client.as_ref() == client && row.grant.holds(now)).cloned().collect()
    }

    /// Takes one back. False: the client has none of that id.
    ///
    /// # Errors
    /// What the store says; then it still holds.
    pub async fn revoke(&self, client: Option<&ClientId>, id: &GrantId) -> Result<bool, StoreError> {
        let _one = self.writing.lock().await;
        let mut rows = self.held.lock().rows.clone();
        let before = rows.len();
        rows.retain(|row| row.grant.id != *id || row.client.as_ref() != client);
        if rows.len() == before {
            return Ok(false);
        }
        commit(&self.store, vec![Write::DeleteGrant(id.clone())]).await?;
        *self.held.lock() = Held::new(rows);
        Ok(true)
    }
}

impl std::fmt::Debug for GrantBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrantBook").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::Subject;
    use crate::store::{Grant, GrantSubject, MemoryStore};

    fn row(client: Option<&str>, project: Option<&str>, command: &str, expires_at: Option<u64>) -> GrantRow {
        let on = GrantSubject::Command(command.into());
        GrantRow {
            client: client.map(|c| c.parse().expect("an id")),
            project: project.map(PathBuf::from),
            grant: Grant { id: GrantId::generate(), created_at: 1, expires_at, tool: "bash".into(), on },
        }
    }

    fn covers(book: &GrantBook, client: Option<&str>, directory: &str, command: &str) -> bool {
        let client: Option<ClientId> = client.map(|c| c.parse().expect("an id"));
        let subject = Subject::Command(command.into());
        book.covering((client.as_ref(), Path::new(directory)), &Grants::default(), ("bash", &subject, None)).is_some()
    }

    #[tokio::test]
    async fn each_reaches_as_far_as_it_says_and_survives() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let book = GrantBook::open(Arc::clone(&store)).await.expect("opens");
        let always = row(None, None, "ls", None);
        for row in [
            always.clone(),
            row(None, Some("/w"), "make", None),
            row(Some("c"), None, "pwd", None),
            row(None, None, "old", Some(5)),
        ] {
            book.save(row).await.expect("saved");
        }
        let book = GrantBook::open(Arc::clone(&store)).await.expect("opens again");
        #[rustfmt::skip]
        let table = [
            (None, "/w", "ls", true), (None, "/x", "ls", true), (None, "/w", "make", true), (None, "/x", "make", false), (None, "/w", "ls; make", true),
            (Some("c"), "/w", "ls", false), (Some("c"), "/w", "pwd", true), (None, "/w", "pwd", false), (None, "/w", "old", false),
        ];
        for (client, directory, command, want) in table {
            assert_eq!(covers(&book, client, directory, command), want, "{client:?} {directory} {command}");
        }
        assert_eq!(store.grants().await.expect("read").len(), 3, "what has ended is forgotten");
        assert_eq!(book.list(None).len(), 2);
        let other: ClientId = "c".parse().expect("an id");
        assert_eq!(book.revoke(Some(&other), &always.grant.id).await, Ok(false), "another client's");
        assert_eq!(book.revoke(None, &always.grant.id).await, Ok(true));
        assert_eq!(book.revoke(None, &always.grant.id).await, Ok(false), "once");
        assert!(!covers(&book, None, "/w", "ls"));
        assert_eq!(store.grants().await.expect("read").len(), 2);
    }

    #[tokio::test]
    async fn the_same_again_replaces_and_many_at_once_are_all_kept() {
        let book = Arc::new(GrantBook::open(Arc::new(MemoryStore::new())).await.expect("opens"));
        book.save(row(None, None, "ls", Some(u64::MAX - 1))).await.expect("saved");
        book.save(row(None, None, "ls", None)).await.expect("saved");
        assert_eq!(book.list(None).iter().map(|r| r.grant.expires_at).collect::<Vec<_>>(), [None]);
        let saves = (0..50).map(|n| {
            let book = Arc::clone(&book);
            tokio::spawn(async move { book.save(row(None, None, &format!("make {n}"), None)).await })
        });
        for save in saves.collect::<Vec<_>>() {
            save.await.expect("no panic").expect("saved");
        }
        assert_eq!(book.list(None).len(), 51);
        assert!((0..50).all(|n| covers(&book, None, "/w", &format!("make {n}"))));
    }
}
