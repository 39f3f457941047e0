//! Decides what a call may do. Pure: rules and a call in, a verdict out; nobody is asked here.

mod subject;

pub use subject::{PathSubject, Subject};
