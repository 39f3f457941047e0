//! Which session of a tree writes where: who writes a path holds it for a while, and another session of the same tree is told so
//! instead of writing over it.
//!
//! Nobody waits here, so nobody waits for ever: a claim is granted or refused at once. A lock ends with its time, which each write
//! renews, with the turn that took it, and with the process. A lock is on a path and on all below it.
//!
//! What a session holds by writing binds those beside it and those above it, and not those under it: it has given them the work.
//! What it has asked for by `lock_paths` binds all others.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::base::limit;
use crate::protocol::{SessionId, TreeMember};
use crate::tool::HeldPath;

#[derive(Debug)]
struct Lock {
    path: PathBuf,
    holder: TreeMember,
    until: Instant,
    /// It was asked for, and did not come by writing.
    chosen: bool,
}

/// Who wants to hold something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimant<'a> {
    /// Who it is.
    pub(super) member: &'a TreeMember,
    /// The sessions above it.
    pub(super) above: &'a [SessionId],
}

/// The locks of all trees, by the session above all.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<SessionId, Vec<Lock>>>);

fn meet(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

impl Lock {
    /// Whether it stands against somebody who wants that path.
    fn stands_against(&self, who: Claimant<'_>, path: &Path) -> bool {
        let own = self.holder.session_id == who.member.session_id;
        let given = !self.chosen && who.above.contains(&self.holder.session_id);
        !own && !given && meet(&self.path, path)
    }
}

impl Locks {
    /// Takes these paths for a session, all of them or none, for so long from now on.
    ///
    /// # Errors
    /// The first that another session holds.
    pub(super) fn claim(
        &self,
        root: &SessionId,
        who: Claimant<'_>,
        paths: &[PathBuf],
        (patience, chosen, now): (Duration, bool, Instant),
    ) -> Result<(), HeldPath> {
        let mut trees = self.0.lock();
        let locks = trees.entry(root.clone()).or_default();
        locks.retain(|lock| lock.until > now);
        for path in paths {
            if let Some(lock) = locks.iter().find(|lock| lock.stands_against(who, path)) {
                let (path, by, left) = (path.clone(), lock.holder.clone(), lock.until.duration_since(now));
                return Err(HeldPath { path, by, left });
            }
        }
        for path in paths {
            // What those above hold there by writing goes on to whom they gave the work.
            let passes_on = |lock: &Lock| lock.holder.session_id != who.member.session_id && meet(&lock.path, path);
            locks.retain(|lock| !passes_on(lock));
            let until = now + patience;
            if let Some(lock) = locks.iter_mut().find(|lock| lock.path == *path) {
                lock.until = lock.until.max(until);
                lock.chosen |= chosen;
            } else if locks.len() < limit::LOCKS_MAX {
                // More is not remembered: the write itself goes on.
                locks.push(Lock { path: path.clone(), holder: who.member.clone(), until, chosen });
            }
        }
        if locks.is_empty() {
            trees.remove(root);
        }
        Ok(())
    }

    /// Gives up what a session holds of these paths. None: all of it. Those that it held.
    pub(super) fn release(&self, root: &SessionId, session: &SessionId, paths: Option<&[PathBuf]>) -> Vec<PathBuf> {
        let mut trees = self.0.lock();
        let Some(locks) = trees.get_mut(root) else { return Vec::new() };
        let meant =
            |lock: &Lock| lock.holder.session_id == *session && paths.is_none_or(|paths| paths.contains(&lock.path));
        let released = locks.iter().filter(|lock| meant(lock)).map(|lock| lock.path.clone()).collect();
        locks.retain(|lock| !meant(lock));
        if locks.is_empty() {
            trees.remove(root);
        }
        released
    }

    /// How many paths the fullest tree has.
    pub(super) fn most(&self) -> usize {
        self.0.lock().values().map(Vec::len).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHILE: Duration = Duration::from_secs(60);

    fn id(text: &str) -> SessionId {
        text.parse().expect("an id")
    }

    fn member(text: &str) -> TreeMember {
        TreeMember { session_id: id(text), name: None }
    }

    /// `a` and `b` are under `root`; `deep` is under `a`.
    fn above(session: &str) -> Vec<SessionId> {
        match session {
            "root" => Vec::new(),
            "deep" => vec![id("root"), id("a")],
            _ => vec![id("root")],
        }
    }

    fn claim(locks: &Locks, who: &str, path: &str, (chosen, now): (bool, Instant)) -> Option<String> {
        let (member, above) = (member(who), above(who));
        let who = Claimant { member: &member, above: &above };
        let refused = locks.claim(&id("root"), who, &[path.into()], (WHILE, chosen, now)).err();
        refused.map(|held| held.by.session_id.to_string())
    }

    #[test]
    fn who_writes_holds_a_path_and_all_below_it() {
        let (locks, now) = (Locks::default(), Instant::now());
        assert_eq!(claim(&locks, "a", "/w/src", (false, now)), None);
        #[rustfmt::skip]
        let table = [
            ("b", "/w/src", Some("a")), ("b", "/w/src/x.rs", Some("a")), ("b", "/w", Some("a")), ("b", "/w/srcs", None),
            ("a", "/w/src/x.rs", None), ("root", "/w/src", Some("a")), ("deep", "/w/src/deep.rs", None),
        ];
        for (who, path, held) in table {
            assert_eq!(claim(&locks, who, path, (false, now)).as_deref(), held, "{who} {path}");
        }
    }

    #[test]
    fn what_those_above_hold_by_writing_goes_on_to_whom_they_gave_the_work() {
        let (locks, now) = (Locks::default(), Instant::now());
        assert_eq!(claim(&locks, "root", "/w/a", (false, now)), None);
        assert_eq!(claim(&locks, "a", "/w/a", (false, now)), None);
        assert_eq!(claim(&locks, "root", "/w/a", (false, now)).as_deref(), Some("a"));
        assert_eq!(claim(&locks, "b", "/w/a", (false, now)).as_deref(), Some("a"));
        // What was asked for binds those under it too.
        assert_eq!(claim(&locks, "root", "/w/b", (true, now)), None);
        assert_eq!(claim(&locks, "a", "/w/b", (false, now)).as_deref(), Some("root"));
        assert_eq!(locks.release(&id("root"), &id("root"), None), [PathBuf::from("/w/b")]);
        assert_eq!(claim(&locks, "a", "/w/b", (false, now)), None);
    }

    #[test]
    fn a_lock_ends_with_its_time_and_each_write_renews_it() {
        let (locks, now) = (Locks::default(), Instant::now());
        assert_eq!(claim(&locks, "a", "/w/a", (false, now)), None);
        let later = now + WHILE - Duration::from_secs(1);
        assert_eq!(claim(&locks, "a", "/w/a", (false, later)), None);
        assert_eq!(claim(&locks, "b", "/w/a", (false, now + WHILE)).as_deref(), Some("a"));
        assert_eq!(claim(&locks, "b", "/w/a", (false, later + WHILE)), None);
        assert_eq!(claim(&locks, "a", "/w/a", (false, later + WHILE)).as_deref(), Some("b"));
    }

    #[test]
    fn what_is_refused_takes_nothing_and_nothing_is_left_behind() {
        let (locks, now) = (Locks::default(), Instant::now());
        assert_eq!(claim(&locks, "a", "/w/a", (false, now)), None);
        let (b, over) = (member("b"), above("b"));
        let who = Claimant { member: &b, above: &over };
        let both = ["/w/b".into(), "/w/a".into()];
        let held = locks.claim(&id("root"), who, &both, (WHILE, false, now)).expect_err("held");
        assert_eq!((held.path.to_str(), held.left), (Some("/w/a"), WHILE));
        assert!(locks.release(&id("root"), &id("b"), None).is_empty());
        assert_eq!(locks.release(&id("root"), &id("a"), Some(&["/w/c".into()])), Vec::<PathBuf>::new());
        assert_eq!(locks.release(&id("root"), &id("a"), None).len(), 1);
        assert_eq!(locks.most(), 0);
        for n in 0..=limit::LOCKS_MAX {
            assert_eq!(claim(&locks, "a", &format!("/w/{n}"), (false, now)), None);
        }
        assert_eq!(locks.most(), limit::LOCKS_MAX);
        assert_eq!(claim(&locks, "b", "/w/1", (false, now)).as_deref(), Some("a"));
    }
}
