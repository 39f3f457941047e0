//! TBD
/// TBD
#[derive(Debug)]
pub struct MemoryStore;
