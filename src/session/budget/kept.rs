//! Accounts that are in memory, by whom they are of.
//!
//! What nobody holds any more goes when there are many: each time that they are looked through, at least half as many as stayed have to
//! come before the next time. So one more costs the same however many there are.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::base::limit;

/// Who looks at the store for different ones does so side by side, but for one in so many that meet by chance.
const WAYS: usize = 64;

/// Accounts by name.
#[derive(Debug)]
pub(super) struct Kept<K, V> {
    all: HashMap<K, V>,
    /// So many, and they are looked through.
    sweep_at: usize,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self { all: HashMap::new(), sweep_at: limit::BUDGET_ACCOUNTS_MAX }
    }
}

impl<K: Eq + Hash, V> Kept<K, V> {
    /// The account of that name.
    pub(super) fn get(&self, name: &K) -> Option<&V> {
        self.all.get(name)
    }

    /// All of them.
    pub(super) fn each(&self) -> impl Iterator<Item = &V> {
        self.all.values()
    }

    /// Adds one. `held` says of the others which have to stay.
    pub(super) fn insert(&mut self, name: K, account: V, held: impl Fn(&V) -> bool) {
        if self.all.len() >= self.sweep_at {
            self.all.retain(|_, account| held(account));
            self.sweep_at = (self.all.len() + self.all.len() / 2).max(limit::BUDGET_ACCOUNTS_MAX);
        }
        self.all.insert(name, account);
    }
}

/// Lets one at a time read what is not known yet of the same name.
#[derive(Debug)]
pub(super) struct Readers(Vec<tokio::sync::Mutex<()>>);

impl Default for Readers {
    fn default() -> Self {
        Self((0..WAYS).map(|_| tokio::sync::Mutex::default()).collect())
    }
}

impl Readers {
    /// The lock of a name.
    pub(super) fn of(&self, name: impl Hash) -> &tokio::sync::Mutex<()> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let way = usize::try_from(hasher.finish() % WAYS as u64).unwrap_or(0);
        &self.0[way]
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_nobody_holds_goes_and_who_comes_is_not_held_against_all_others() {
        let mut kept = Kept::<usize, bool>::default();
        let looked = Cell::new(0);
        let held = |held: &bool| {
            looked.set(looked.get() + 1);
            *held
        };
        let count = 4 * limit::BUDGET_ACCOUNTS_MAX;
        // All of them are held.
        for name in 0..count {
            kept.insert(name, true, held);
        }
        assert_eq!((kept.all.len(), kept.get(&7)), (count, Some(&true)));
        assert!(looked.get() < 4 * count, "{} looks for {count}", looked.get());
        // None of the later ones is.
        for name in count..5 * count {
            kept.insert(name, false, held);
        }
        assert!(kept.all.len() <= 2 * count, "{}", kept.all.len());
        assert_eq!(kept.get(&7), Some(&true));
    }

    #[tokio::test]
    async fn two_names_are_read_side_by_side_and_the_same_one_alone() {
        let readers = Readers::default();
        let one = readers.of("one").lock().await;
        assert!(readers.of("one").try_lock().is_err());
        let others = ["two", "three", "four"].map(|name| readers.of(name).try_lock().is_ok());
        assert!(others.contains(&true), "{others:?}");
        drop(one);
        assert!(readers.of("one").try_lock().is_ok());
    }
}
