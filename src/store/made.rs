//! Commits that wait become lists of changes: at the last moment, so that what came meanwhile goes with them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::store::{Committed, Made, StoreError, Write};

/// Has the changes of a group named. Who panics meanwhile has none, and is told so.
pub(super) fn make_all(group: &mut Vec<(Made, Committed)>) -> Vec<(Vec<Write>, Committed)> {
    let mut made = Vec::with_capacity(group.len());
    for (make, done) in group.drain(..) {
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(writes) => made.push((writes, done)),
            Err(_) => drop(catch_unwind(AssertUnwindSafe(move || done(Err(StoreError::Closed))))),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn who_panics_is_told_and_takes_nobody_with_it() {
        let told: Arc<Mutex<Vec<&str>>> = Arc::default();
        let commit = |name: &'static str, make: Made| {
            let told = Arc::clone(&told);
            let done: Committed =
                Box::new(move |result| told.lock().push(if result.is_ok() { name } else { "refused" }));
            (make, done)
        };
        let mut group = vec![
            commit("first", Box::new(Vec::new)),
            commit("second", Box::new(|| panic!("a fault"))),
            commit("third", Box::new(Vec::new)),
        ];
        let made = make_all(&mut group);
        assert!(group.is_empty());
        made.into_iter().for_each(|(_, done)| done(Ok(())));
        assert_eq!(*told.lock(), ["refused", "first", "third"]);
    }
}
