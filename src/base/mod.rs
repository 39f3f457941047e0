//! The outside world, tamed: one file for each part of it.

pub mod assertion;
pub mod beneath;
pub mod clock;
pub mod console;
pub mod deflate;
pub mod ear;
pub mod ends;
pub mod file;
pub mod glob;
pub mod http;
pub mod image;
pub mod letters;
pub mod limit;
pub mod metrics;
pub mod notify;
pub mod own_directory;
pub mod panics;
pub mod passed;
pub mod place;
pub mod process;
pub mod proof;
#[cfg(test)]
#[path = "../../fuzz/src/inside/replay.rs"]
pub(crate) mod replay;
pub mod sandbox;
pub mod secrets;
pub mod show;
pub mod sse;
pub mod text;
pub mod trace;
pub mod workspace;

use std::future::Future;
use std::pin::Pin;

/// A boxed future that may cross threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
