//! Large contents are in memory one at a time, in the whole process: what many sessions do to large files at once costs no more
//! memory than what one does.
//!
//! Whoever holds a large content waits for no other one: it is written down before the next is read.

use parking_lot::{Mutex, MutexGuard};

/// Contents above this size are large, in bytes.
pub(super) const LARGE_BYTES: u64 = 8 << 20;

static ONE: Mutex<()> = Mutex::new(());

/// To be held for as long as a content is in memory. Blocks while another large one is. None: it is not large.
pub(super) fn alone(bytes: u64) -> Option<MutexGuard<'static, ()>> {
    (bytes > LARGE_BYTES).then(|| ONE.lock())
}
