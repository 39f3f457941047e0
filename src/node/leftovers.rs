//! The end of the process, for what tools have left behind.

use napi_derive::napi;

/// Ends what tools have left running, and removes what they keep in files. Blocks.
#[napi(catch_unwind)]
pub fn end_estates() {
    crate::tool::end_estates();
}
