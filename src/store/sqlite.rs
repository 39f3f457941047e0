//! TBD
/// TBD
#[derive(Debug)]
pub struct SqliteStore;
